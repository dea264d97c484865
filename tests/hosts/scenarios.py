"""The scenarios for a host. Each has its own environment, returns its measurements and fails by an assertion."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from multi_agent_mcp.hosts import description, hosts
from multi_agent_mcp.windows.shells import GIT_SETTINGS, OF_HOSTS
from tests.end_to_end.support import wait_until
from tests.hosts.replies import Say
from tests.hosts.stage import AGENT, TASK, Host, Stage, names_in, stage

DRAFT = "half a sentence"
LINE = "[IPC] New message"  # without the rest `[IPC]` is in our instructions, too
MAIL = "the figures of June, please"
TOOLS_WORD = "the-tool-ran"
MANY = 50
RACES = 8
RACE_WIDTH_SECONDS = 0.35
OF_SHELLS = frozenset({"OLDPWD", "PWD", "SHLVL"})
HARMLESS = ("MULTI_AGENT_MCP_", "_", "GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_", "LC_", "DISPLAY", "DBUS_SESSION_")
"""Beginnings of names that may be passed on: ours are replaced, git counts its own by GIT_CONFIG_COUNT, and Gemini CLI
empties those of a desktop, which does no harm."""
STILL_SECONDS = 2.0  # the doorbell thread has tried again within that time


@dataclass(frozen=True)
class Measured:
    """The measurement of a scenario: one number in milliseconds, and its meaning."""

    milliseconds: float
    what: str


@dataclass(frozen=True)
class Scenario:
    """`hooks`: with the hooks that `host-config` writes and its own channels, else only with the server, and rung
    in the pane. `asks`: the host asks its human before it runs a command. `needs`: see `Host.lacks`."""

    title: str
    play: Callable[[Stage], Measured]
    hooks: bool = False
    asks: bool = False
    needs: str | None = None

    def fits(self, host: Host) -> bool:
        """Whether the host supports everything that the scenario needs."""
        return self.needs not in host.lacks

    def run(self, host: Host, binaries: Path) -> Measured:
        """Plays it in a world of its own."""
        hooks = self.hooks and "hooks" not in host.lacks
        with stage(host, binaries, hooks=hooks, asks=self.asks, trusted=self.needs != "trust") as built:
            return self.play(built)


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
    entered = min(at for state, _, at in stage.steps(message) if state in ("rung", "submitted"))
    return Measured(entered, f"stored → entered; read after {stage.step(message, 'read'):.0f}")


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


def rests_while_busy(stage: Stage) -> Measured:
    done = threading.Event()
    stage.say("think", Say("thought", until=done))
    stage.model.request_with("think")
    stage.wait_for_state("busy")
    message = stage.send(MAIL)
    stage.step(message, "deferred", "busy")
    time.sleep(STILL_SECONDS)
    assert LINE not in stage.pane.screen
    before = len(stage.model.requests)
    done.set()
    finished = time.monotonic()
    request = stage.model.request_with(LINE, after=before)
    stage.read_by_model(message, MAIL, after=before)
    return Measured((request.at - finished) * 1000, "turn over → the model has the line")


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
    request = stage.model.request_with(LINE)
    assert DRAFT not in request.news
    stage.read_by_model(message, MAIL)
    return Measured((request.at - gone) * 1000, "draft gone → the model has the line")


def leaves_a_dialog(stage: Stage) -> Measured:
    return _past_a_dialog(stage, lambda message: stage.step(message, "deferred", "dialog"))


def leaves_a_dialog_without_keys(stage: Stage) -> Measured:
    return _past_a_dialog(stage, lambda message: stage.step(message, "rung"))


def _past_a_dialog(stage: Stage, noted: Callable[[str], float]) -> Measured:
    if stage.hooked:
        _greet(stage)
    requests = len(stage.model.requests)
    made = stage.project / "made-by-the-tool"
    stage.say("work", stage.host.shell(f"touch {made}", ask=True))
    wait_until(lambda: stage.host.dialog in stage.pane.screen, "the host asks its human")
    message = stage.send(MAIL)
    noted(message)
    time.sleep(STILL_SECONDS)
    assert stage.host.dialog in stage.pane.screen, "the dialog was answered"
    assert LINE not in stage.pane.screen
    assert not made.exists(), "the tool was approved"
    assert len(stage.model.requests) == requests + 1, "something was submitted"
    stage.press("Enter")  # the human approves
    approved = time.monotonic()
    wait_until(made.exists, "the approved tool runs")
    request = stage.model.request_with(LINE, after=requests)
    stage.read_by_model(message, MAIL, after=requests)
    return Measured((request.at - approved) * 1000, "dialog answered → the model has the line")


def is_answered_from_elsewhere(stage: Stage) -> Measured:
    """`answer`: once approved, once rejected, and what would last is labelled so."""
    made, never = stage.project / "made-by-the-tool", stage.project / "never-made"
    asked = _asked(stage, f"touch {made}")
    assert str(made) in "".join(asked["text"].split()), asked
    lasting = [choice["choice"] for choice in asked["choices"] if choice["lasting"]]
    assert lasting[:1] == ["2"], asked
    began = time.monotonic()
    came = stage.team.ask("answer", "worker-a", "1", "--question", asked["id"])
    took = time.monotonic() - began
    assert came["state"] == "answered", came
    wait_until(made.exists, "the approved tool runs")
    stage.wait_for_state("idle")
    measured = Measured(took * 1000, "`answer AGENT 1` → pressed, and seen to be taken")
    asked = _asked(stage, f"touch {never}")
    no = asked["choices"][-1]
    if not no["label"].startswith(("No", "Reject")):
        return measured  # Copilot CLI wants to be told why, in its pane
    came = stage.team.ask("answer", "worker-a", no["choice"], "--question", asked["id"])
    assert came["state"] == "answered", came
    wait_until(lambda: stage.state in ("idle", "draft"), "the host is at rest")
    time.sleep(STILL_SECONDS)
    assert not never.exists(), "the rejected tool ran"
    return measured


def _asked(stage: Stage, command: str) -> dict[str, Any]:
    """The dialog in which the host asks whether it may run this."""
    stage.say("work", stage.host.shell(command, ask=True))
    wait_until(lambda: stage.host.dialog in stage.pane.screen, "the host asks its human")
    dialogs: list[dict[str, Any]] = wait_until(lambda: stage.team.ask("answer", "worker-a")["dialogs"], "it is read")
    return dialogs[0]


def trusts_from_elsewhere(stage: Stage) -> Measured:
    (asked,) = wait_until(lambda: stage.team.ask("answer", "worker-a")["dialogs"], "its choices are read")
    assert asked["topic"] == "trust", asked
    yes = next(choice for choice in asked["choices"] if choice["label"].lower().startswith(("yes", "trust")))
    began = time.monotonic()
    came = stage.team.ask("answer", "worker-a", yes["choice"], "--question", asked["id"])
    assert came["state"] == "answered", came
    took = time.monotonic() - began
    wait_until(lambda: stage.host.trust not in stage.pane.screen, "the question is gone")
    return Measured(took * 1000, "`answer AGENT 1` → pressed, and seen to be taken")


def leaves_the_trust_question(stage: Stage) -> Measured:
    message = stage.send(MAIL)
    stage.step(message, "deferred", "dialog")
    stage.send(f"{MAIL}, now", priority="urgent")
    time.sleep(STILL_SECONDS)
    assert stage.host.trust in stage.pane.screen, "the question was answered"
    assert LINE not in stage.pane.screen
    stage.press(*stage.host.trusting)  # the human trusts it
    trusted = time.monotonic()
    request = stage.model.request_with(LINE)
    stage.read_by_model(message, MAIL)
    return Measured((request.at - trusted) * 1000, "question answered → the model has the line")


def races_a_dialog(stage: Stage) -> Measured:
    """The mail comes while the dialog opens: the line may be queued or deferred, the dialog is never answered."""
    ahead: list[float] = []
    for number in range(RACES):
        made, go_on = stage.project / f"made-{number}", threading.Event()
        before, mail = len(stage.model.requests), f"{MAIL} ({number})"
        stage.say("work", replace(stage.host.shell(f"touch {made}", ask=True), until=go_on))
        stage.model.request_with("work", after=before)
        stage.wait_for_state("busy")
        stage.team.post("worker-a", mail)
        ahead.append(number * RACE_WIDTH_SECONDS / (RACES - 1))
        time.sleep(ahead[-1])
        go_on.set()
        wait_until(lambda: stage.host.dialog in stage.pane.screen, "the host asks its human")
        time.sleep(STILL_SECONDS)
        assert stage.host.dialog in stage.pane.screen, f"the dialog was answered ({ahead[-1]:.2f} s)"
        assert not made.exists(), f"the tool was approved ({ahead[-1]:.2f} s)"
        stage.press("Enter")
        wait_until(made.exists, "the approved tool runs")
        stage.model.request_with(mail, after=before)
        stage.wait_for_state("idle")
    return Measured(ahead[-1] * 1000, f"mail up to this long before the dialog, {RACES} times; all of it read")


def rings_seldom(stage: Stage) -> Measured:
    all_stored = threading.Event()  # a model that reads meanwhile is rung again, as often as it is fast
    stage.model.script(replace(stage.host.tool("read_messages"), until=all_stored))
    began = time.monotonic()
    for number in range(MANY):
        stage.team.post("worker-a", f"{MAIL} ({number})")
    stored = time.monotonic() - began
    all_stored.set()
    wait_until(lambda: not stage.team.unread("worker-a"), "all of it is read")
    took = (time.monotonic() - began) * 1000
    wait_until(lambda: stage.state in ("idle", "our_line"), "the host is idle again")
    rung = sum(LINE in request.news for request in stage.model.requests)
    assert 1 <= rung <= 3, f"{rung} doorbells"
    return Measured(took, f"first stored → all {MANY} read; stored within {stored * 1000:.0f}, {rung} doorbells")


def leaves_a_shell(stage: Stage) -> Measured:
    _greet(stage)
    stage.type(stage.host.quit)
    stage.press("Enter")
    wait_until(lambda: stage.pane.fact("pane_current_command") == "bash", "the host has quit")
    wait_until(lambda: not stage.team.services.sessions.live("worker-a"), "our server has gone with it")
    message = stage.send(MAIL)
    assert [step[:2] for step in stage.steps(message)] == [("stored", None), ("deferred", "shell")]
    assert LINE not in stage.pane.screen
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
    stage.say("work", replace(stage.host.shell(f"echo {TOOLS_WORD}"), until=go_on))
    stage.model.request_with("work")
    message = stage.send(MAIL)
    called = time.monotonic()
    go_on.set()
    told = stage.model.request_with("Call read_messages to read it.", after=1)
    assert told is stage.model.requests[1], "it did not come in the same turn"
    assert TOOLS_WORD in told.news, "it did not come with the tool's result"
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
    _greet(stage)
    stage.type(DRAFT)
    stage.wait_for_state("draft")
    sent = time.monotonic()
    message = stage.send(MAIL)
    request = stage.model.request_with(LINE)
    read = stage.read_by_model(message, MAIL)
    steps = stage.steps(message)
    assert stage.draft == DRAFT, f"the draft became {stage.draft!r}"
    wanted = "codex_queue" if stage.host.name == "codex" else "hook"
    assert [why for _, why, _ in steps if why] == [wanted], steps
    return Measured(read, f"stored → read; the line after {(request.at - sent) * 1000:.0f}, the draft stays")


def tells_what_it_passes_on(stage: Stage) -> Measured:
    """What it adds to the environment of its tools' commands and of our server is known: `up` leaves it out."""
    printed, own = stage.project / "environment", names_in(Path(f"/proc/{stage.host_process}/environ").read_bytes())
    script = stage.project / "prints-it"
    script.write_text(f"env -0 >{printed}.part; mv {printed}.part {printed}\n", encoding="utf-8")
    stage.say("work", stage.host.shell(f"sh {script}"))  # Gemini CLI asks about a line that redirects
    wait_until(printed.exists, "the tool has run")
    (session,) = stage.team.services.sessions.live(AGENT)
    seen = names_in(printed.read_bytes()) | names_in(Path(f"/proc/{session.pid}/environ").read_bytes())
    added = {name for name in seen - own if not name.startswith(HARMLESS)}
    known = {*hosts()[stage.host.name].inherited, *OF_HOSTS, *GIT_SETTINGS, *OF_SHELLS}
    assert added <= known, f"not known: {sorted(added - known)}"
    return Measured(len(added), f"added variables: {', '.join(sorted(added - OF_SHELLS))}")


def has_its_own_arguments_taken_off(stage: Stage) -> Measured:
    """It offers its model arguments of its own with our tools, and sends them along."""
    (argument, _) = description(stage.host.name)["arguments"]
    began = time.monotonic()
    stage.say("work", stage.host.tool("get_my_tasks", **{argument: True}), Say("seen"))
    asked = stage.model.request_with("work")
    assert argument in json.dumps(asked.body["tools"]), "it does not offer it any more"
    told = stage.model.request_with('"tasks"', after=1)
    assert "invalid_arguments" not in told.news, told.news
    return Measured((time.monotonic() - began) * 1000, f"called with {argument} → answered")


def _greet(stage: Stage) -> None:
    """A first turn: only then Codex names its thread."""
    stage.say("hello")
    stage.model.request_with("hello")
    stage.wait_for_state("idle")


SCENARIOS = (
    Scenario("loads the server by `host-config`, tools offered", loads_the_server),
    Scenario("idle: woken by the pane doorbell, reads its mail", rings_when_idle),
    Scenario("what it adds to the environment of others is known", tells_what_it_passes_on),
    Scenario("arguments of its own in a call are taken off", has_its_own_arguments_taken_off, needs="arguments"),
    Scenario("busy thinking: the line is queued", queues_while_thinking, needs="queue"),
    Scenario("busy in a tool: the line is queued", queues_during_a_tool, needs="queue"),
    Scenario("busy: nothing typed, delivered after", rests_while_busy, needs="rest"),
    Scenario("draft: nothing typed, delivered after", leaves_a_draft),
    Scenario("permission dialog: nothing typed, delivered after", leaves_a_dialog, asks=True),
    Scenario("mail comes as a permission dialog opens: not answered", races_a_dialog, asks=True),
    Scenario("answered from elsewhere: once approved, rejected", is_answered_from_elsewhere, asks=True),
    Scenario("answered from elsewhere: trusted", trusts_from_elsewhere, needs="trust"),
    Scenario("question of trust: nothing typed, delivered after", leaves_the_trust_question, needs="trust"),
    Scenario("50 messages at once: 1–3 doorbells", rings_seldom),
    Scenario("quit to its shell: nothing typed; started again: reads it", leaves_a_shell, hooks=True),
    Scenario("interrupt replaces our tool's answer", replaces_an_answer),
    Scenario("interrupt denies the shell tool (PreToolUse)", denies_a_native_tool, hooks=True, needs="hooks"),
    Scenario("mail comes with a tool's result (PostToolUse)", brings_mail_after_a_tool, hooks=True, needs="hooks"),
    Scenario("urgent mail keeps the turn going (Stop)", does_not_stop_on_urgent_mail, hooks=True, needs="stop"),
    Scenario("idle with a draft: woken without keys", wakes_without_keys, hooks=True, needs="waker"),
    Scenario(
        "permission dialog, hooks: not answered, delivered after",
        leaves_a_dialog_without_keys,
        hooks=True,
        asks=True,
        needs="waker",
    ),
)
