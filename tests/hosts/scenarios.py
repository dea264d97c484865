"""What a host is put through. Each scenario has a world of its own, says what it measured and fails by an assertion."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.hosts.scripted_model import Say
from tests.hosts.stage import TASK, Stage
from tests.system.support import wait_until

DRAFT = "half a sentence"
MAIL = "the figures of June, please"
STILL_SECONDS = 2.0  # the bell has tried again within that time


@dataclass(frozen=True)
class Measured:
    """What a scenario measured: one number in milliseconds, and what it is."""

    milliseconds: float
    what: str


@dataclass(frozen=True)
class Scenario:
    """`hooks`: with the hooks that `host-config` writes and the host's own ladder, else only with the server, and rung
    in the pane. `asks`: the host asks its human before it runs a command."""

    title: str
    play: Callable[[Stage], Measured]
    hooks: bool = False
    asks: bool = False


def loads_the_server(stage: Stage) -> Measured:
    began = stage.started
    (session,) = stage.team.services.sessions.live("worker-a")
    stage.say("hello")
    request = stage.model.request_with("hello")
    for tool in ("read_messages", "get_notifications", "send_message", "report_completed"):
        assert stage.host.knows(tool) in request.tools, f"the model was not offered {tool}"
    seconds = session.created_at.timestamp() - (time.time() - (time.monotonic() - began))
    return Measured(seconds * 1000, "typed command → our server has its session")


def rings_when_idle(stage: Stage) -> Measured:
    message = stage.send(MAIL)
    stage.read_by_model(message, MAIL)
    return Measured(
        stage.step(message, "submitted"), f"stored → submitted; read after {stage.step(message, 'read'):.0f}"
    )


def queues_while_thinking(stage: Stage) -> Measured:
    done = threading.Event()
    stage.say("think", Say("thought", until=done))
    thinking = stage.model.request_with("think")
    stage.wait_for_state("busy")
    message = stage.send(MAIL)
    submitted = stage.step(message, "submitted")
    before = len(stage.model.requests)
    done.set()
    stage.read_by_model(message, MAIL, after=before)
    assert not thinking.cut_off, "the doorbell interrupted the model"
    return Measured(submitted, "stored → queued in the composer; the turn went on")


def queues_during_a_tool(stage: Stage) -> Measured:
    flag = stage.project / "go-on"
    stage.say("work", stage.host.shell(f"until [ -e {flag} ]; do sleep 0.1; done"))
    stage.model.request_with("work")
    stage.wait_for_state("busy")
    time.sleep(1.0)
    message = stage.send(MAIL)
    submitted = stage.step(message, "submitted")
    flag.touch()
    stage.read_by_model(message, MAIL)
    return Measured(submitted, "stored → queued in the composer; read with the tool's result")


def leaves_a_draft(stage: Stage) -> Measured:
    stage.type(DRAFT)
    stage.wait_for_state("draft")
    message = stage.send(MAIL)
    stage.step(message, "deferred", "draft")
    time.sleep(STILL_SECONDS)
    assert stage.draft == DRAFT, f"the draft became {stage.draft!r}"
    assert not stage.model.requests, "something was submitted"
    stage.press(*["BSpace"] * len(DRAFT))
    gone = time.monotonic()
    request = stage.model.request_with("[IPC]")
    assert DRAFT not in request.news
    stage.read_by_model(message, MAIL)
    return Measured((request.at - gone) * 1000, "draft gone → the model has the line")


def leaves_a_dialog(stage: Stage) -> Measured:
    made = stage.project / "made-by-the-tool"
    stage.say("work", stage.host.shell(f"touch {made}", ask=True))
    wait_until(lambda: stage.host.dialog in stage.pane.screen, "the host asks its human")
    requests = len(stage.model.requests)
    message = stage.send(MAIL)
    stage.step(message, "deferred", "dialog")
    time.sleep(STILL_SECONDS)
    assert stage.host.dialog in stage.pane.screen, "the dialog was answered"
    assert "[IPC]" not in stage.pane.screen
    assert not made.exists(), "the tool was approved"
    assert len(stage.model.requests) == requests, "something was submitted"
    stage.press("Enter")  # the human approves
    approved = time.monotonic()
    wait_until(made.exists, "the approved tool runs")
    request = stage.model.request_with("[IPC]", after=requests)
    stage.read_by_model(message, MAIL, after=requests)
    return Measured((request.at - approved) * 1000, "dialog answered → the model has the line")


def leaves_a_shell(stage: Stage) -> Measured:
    stage.say("hello")
    stage.model.request_with("hello")
    stage.wait_for_state("idle")
    stage.type(stage.host.quit)
    stage.press("Enter")
    wait_until(lambda: stage.pane.fact("pane_current_command") == "bash", "the host has quit")
    wait_until(lambda: not stage.team.services.sessions.live("worker-a"), "our server has gone with it")
    message = stage.send(MAIL)
    assert [step[:2] for step in stage.steps(message)] == [("stored", None), ("deferred", "shell")]
    assert "[IPC]" not in stage.pane.screen
    before = len(stage.model.requests)
    stage.launch()
    started = time.monotonic()
    stage.read_by_model(message, MAIL, after=before)
    return Measured((time.monotonic() - started) * 1000, "idle again → the model has read it")


def replaces_an_answer(stage: Stage) -> Measured:
    go_on = threading.Event()
    own = replace(stage.host.tool("get_my_tasks"), until=go_on)
    stage.say("work", own, stage.host.tool("get_notifications"), Say("stopped"))
    stage.model.request_with("work")
    stage.interrupt()
    called = time.monotonic()
    go_on.set()
    told = stage.model.request_with("get_notifications()", after=1)
    assert TASK not in told.news, "the tool's own answer came, too"
    read = stage.model.request_with("report_completed with result='blocked'", after=2)
    assert read is stage.model.requests[2]
    return Measured((told.at - called) * 1000, "tool called → the model has the interrupt in place of its answer")


def denies_a_native_tool(stage: Stage) -> Measured:
    go_on = threading.Event()
    denied, allowed = stage.project / "denied", stage.project / "allowed"
    stage.say(
        "work",
        replace(stage.host.shell(f"touch {denied}"), until=go_on),
        stage.host.tool("get_notifications"),
        stage.host.shell(f"touch {allowed}"),
        Say("stopped"),
    )
    stage.model.request_with("work")
    stage.interrupt()
    called = time.monotonic()
    go_on.set()
    told = stage.model.request_with("This tool was not run: you are interrupted.", after=1)
    assert told is stage.model.requests[1]
    assert "report_completed with result='blocked'" in told.news
    wait_until(allowed.exists, "after get_notifications tools run again")
    assert not denied.exists(), "the tool ran"
    return Measured((told.at - called) * 1000, "tool called → the model has the denial and the interrupt")


def brings_mail_after_a_tool(stage: Stage) -> Measured:
    go_on = threading.Event()
    stage.say("work", replace(stage.host.shell("true"), until=go_on))
    stage.model.request_with("work")
    message = stage.send(MAIL)
    called = time.monotonic()
    go_on.set()
    told = stage.model.request_with("Call read_messages to read it.", after=1)
    assert told is stage.model.requests[1], "it did not come with the tool's result"
    stage.read_by_model(message, MAIL, after=2)
    return Measured((told.at - called) * 1000, "tool called → the model has its result and the line")


def does_not_stop_on_urgent_mail(stage: Stage) -> Measured:
    go_on = threading.Event()
    stage.say("work", Say("done", until=go_on))
    stage.model.request_with("work")
    message = stage.send(MAIL, priority="urgent")
    said = time.monotonic()
    go_on.set()
    told = stage.model.request_with("Do not stop yet.", after=1)
    stage.read_by_model(message, MAIL, after=1)
    return Measured((told.at - said) * 1000, "the model is done → it has the reason to go on")


def wakes_without_keys(stage: Stage) -> Measured:
    stage.say("hello")  # Codex names its thread at its first turn
    stage.model.request_with("hello")
    stage.wait_for_state("idle")
    stage.type(DRAFT)
    stage.wait_for_state("draft")
    sent = time.monotonic()
    message = stage.send(MAIL)
    request = stage.model.request_with("[IPC]")
    read = stage.read_by_model(message, MAIL)
    steps = stage.steps(message)
    assert stage.draft == DRAFT, f"the draft became {stage.draft!r}"
    wanted = "codex_queue" if stage.host.name == "codex" else "hook"
    assert [why for _, why, _ in steps if why] == [wanted], steps
    return Measured(read, f"stored → read; the line after {(request.at - sent) * 1000:.0f}, the draft stays")


SCENARIOS = (
    Scenario("loads the server by `host-config`, tools offered", loads_the_server),
    Scenario("idle: woken by the pane doorbell, reads its mail", rings_when_idle),
    Scenario("busy thinking: the line is queued", queues_while_thinking),
    Scenario("busy in a tool: the line is queued", queues_during_a_tool),
    Scenario("draft: nothing typed, delivered after", leaves_a_draft),
    Scenario("permission dialog: nothing typed, delivered after", leaves_a_dialog, asks=True),
    Scenario("quit to its shell: nothing typed; started again: reads it", leaves_a_shell, hooks=True),
    Scenario("interrupt replaces our tool's answer", replaces_an_answer),
    Scenario("interrupt denies the shell tool (PreToolUse)", denies_a_native_tool, hooks=True),
    Scenario("mail comes with a tool's result (PostToolUse)", brings_mail_after_a_tool, hooks=True),
    Scenario("urgent mail keeps the turn going (Stop)", does_not_stop_on_urgent_mail, hooks=True),
    Scenario("idle with a draft: woken without keys", wakes_without_keys, hooks=True),
)
