"""The pane doorbell before a known host, in a real tmux: what is typed, what is deferred and why
(docs/protocol.md, Typing into a pane)."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.domain import times
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.doorbell.channels import ChannelChain, StatusLine
from multi_agent_mcp.doorbell.ringing import Doorbell
from multi_agent_mcp.doorbell.thread import DoorbellThread
from multi_agent_mcp.doorbell.tmux import typing
from multi_agent_mcp.doorbell.tmux.client import Answer, Server, pane_place
from multi_agent_mcp.doorbell.tmux.learning import UnknownProgram
from multi_agent_mcp.doorbell.tmux.notifier import RemotePanes, TmuxNotifier
from multi_agent_mcp.doorbell.tmux.profiles import Profiles, load_profiles
from multi_agent_mcp.doorbell.tmux.screens import OURS, Screen, classify
from multi_agent_mcp.doorbell.tmux.snapshot import take_snapshot
from multi_agent_mcp.doorbell.tmux.team_panes import TeamPanes
from multi_agent_mcp.doorbell.tmux.typing import SETTLE_SECONDS
from multi_agent_mcp.errors import TmuxTimeout
from multi_agent_mcp.features import Features
from multi_agent_mcp.services.notifications.derived import DerivedNotices
from multi_agent_mcp.services.notifications.notifications import Notifications
from multi_agent_mcp.services.notifications.writing import Interrupts, NoticeWriter
from multi_agent_mcp.session import Session
from multi_agent_mcp.settings import Settings
from multi_agent_mcp.texts import catalogue
from tests.conformance.composer import CLOSE
from tests.conformance.reader import Log, submitted
from tests.conformance.stage import Seat, Stage, wait_for
from tests.end_to_end.support import wait_until
from tests.programs import stand_in

pytestmark = pytest.mark.tmux
LINE = "[IPC] 新しいメッセージ: request from admin"
ALIKE = re.compile(rf"{re.escape(LINE)} #[0-9a-z]{{4}}")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(2, dialogs=0) as made:
        wait_for(made.seats, made)
        yield made


@pytest.fixture(params=[0, 1], ids=["claude", "codex"])
def seat(stage: Stage, request: pytest.FixtureRequest) -> Iterator[Seat]:
    """A pane with an empty composer, at rest."""
    seat = stage.seats[request.param]
    os.write(seat.keyboard, CLOSE + b"\x15")
    comes_to(stage, seat, "idle")
    yield seat
    os.write(seat.keyboard, CLOSE + b"\x15")


def notifier(quiet: float = 0.0, kept: list[Screen] | None = None) -> TmuxNotifier:
    def keep(_: str, screen: Screen) -> None:
        if kept is not None:
            kept.append(screen)

    return TmuxNotifier(0.02, load_profiles(), keep, quiet_seconds=quiet)


def doorbell(stage: Stage, chain: ChannelChain) -> Doorbell:
    """A doorbell as one process has it."""
    session = replace(session_of(stage), features=Features(()))
    writer = NoticeWriter(session)
    derived = DerivedNotices(session, writer, Interrupts(session, writer), lambda _: None)
    notifications = Notifications(session, derived, writer)
    session.contributions.service = lambda _: notifications
    return Doorbell(session, chain)


def session_of(stage: Stage) -> Session:
    return Session(stage.workspace, Settings(), catalogue("ja"), times.now)


def agent(stage: Stage, seat: Seat) -> Agent:
    return stage.workspace.registry.get(seat.agent_id)


def comes_to(stage: Stage, seat: Seat, state: str) -> None:
    """Waits until the pane shows this state."""
    end, profile = time.monotonic() + 10, load_profiles().named[seat.host]
    while True:
        seen = take_snapshot(Server(stage.socket).pane(seat.pane_id))
        if isinstance(seen, str) or seen.facts.command != seat.host:
            pass
        elif classify(profile, seen.screen).state == state:
            return
        assert time.monotonic() < end, seen
        time.sleep(0.02)


def shows(stage: Stage, seat: Seat, text: str) -> None:
    end = time.monotonic() + 10
    while text not in stage.tmux("capture-pane", "-p", "-t", seat.pane_id):
        assert time.monotonic() < end, stage.tmux("capture-pane", "-p", "-t", seat.pane_id)
        time.sleep(0.02)


def runs(stage: Stage, pane: str, command: str) -> None:
    end = time.monotonic() + 10
    while stage.tmux("display-message", "-p", "-t", pane, "#{pane_current_command}") != command:
        assert time.monotonic() < end
        time.sleep(0.02)


def gone(stage: Stage, seat: Seat, text: str) -> None:
    end = time.monotonic() + 10
    while text in stage.tmux("capture-pane", "-p", "-t", seat.pane_id):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_line_is_typed_whole_with_a_short_tag_and_submitted_once(stage: Stage, seat: Seat) -> None:
    before = len(submitted(Log(seat.log).read()))
    assert notifier().check(agent(stage, seat)) is None
    assert notifier().ring(agent(stage, seat), LINE).state == "submitted"
    (line,) = submitted(Log(seat.log).read())[before:]
    assert ALIKE.fullmatch(line)


def test_a_host_that_holds_no_dialog_back_gets_nothing_while_it_works(stage: Stage, seat: Seat) -> None:
    known = load_profiles().named
    rests = replace(known[seat.host], submit={"idle": known[seat.host].submit["idle"], "busy": ()})
    ringing = TmuxNotifier(0.02, Profiles({**known, seat.host: rests}), quiet_seconds=0.0)
    end = time.monotonic() + 20
    while (outcome := ringing.ring(agent(stage, seat), LINE)) != Delivery("stored", "busy"):
        assert time.monotonic() < end, outcome  # each line that is entered lets it work for up to 0.8 s
    entered = len(submitted(Log(seat.log).read()))
    comes_to(stage, seat, "idle")
    assert len(submitted(Log(seat.log).read())) == entered
    assert ringing.ring(agent(stage, seat), LINE).state == "submitted"


def test_a_host_at_work_gets_no_key_that_comes_when_its_dialogs_are_not_held_back_any_more(
    stage: Stage, seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typing, "SETTLE_SECONDS", 0.0)  # every look takes longer
    end = time.monotonic() + 20
    while (outcome := notifier().ring(agent(stage, seat), LINE)).reason != "busy":
        assert time.monotonic() < end, outcome  # each line that is entered lets it work for up to 0.8 s
    assert (outcome.state, outcome.left) == ("rung", True)
    entered = len(submitted(Log(seat.log).read()))
    comes_to(stage, seat, OURS)
    wait_until(lambda: notifier().ring(agent(stage, seat), LINE).state == "submitted", "it is entered at rest")
    assert len(submitted(Log(seat.log).read())) == entered + 1


def test_a_draft_is_left_as_it_is(stage: Stage, seat: Seat) -> None:
    os.write(seat.keyboard, b"half a sentence")
    comes_to(stage, seat, "draft")
    assert notifier().ring(agent(stage, seat), LINE) == Delivery("stored", "draft")
    shows(stage, seat, "half a sentence")
    os.write(seat.keyboard, b"\x15")
    gone(stage, seat, "half a sentence")


def test_a_persons_line_passes_the_same_gates_and_is_on_record(stage: Stage, seat: Seat) -> None:
    panes = RemotePanes(session_of(stage), notifier())
    owner, before = Agent(id="owner", role="owner"), len(submitted(Log(seat.log).read()))
    os.write(seat.keyboard, b"half a sentence")
    comes_to(stage, seat, "draft")
    assert panes.type_line(agent(stage, seat), "look at the log", owner) == Delivery("stored", "draft")
    os.write(seat.keyboard, b"\x15")
    comes_to(stage, seat, "idle")
    assert panes.type_line(agent(stage, seat), "look at the log", owner).state == "submitted"
    (line,) = submitted(Log(seat.log).read())[before:]
    assert re.fullmatch(r"\[IPC\] look at the log #[0-9a-z]{4}", line)
    (log,) = (stage.workspace.path / "audit").iterdir()
    record = {"tool": "line", "by": "owner", "agent_id": seat.agent_id, "text": "look at the log", "state": "submitted"}
    assert json.loads(log.read_text().splitlines()[-1]).items() >= record.items()


def test_a_persons_line_that_its_host_shows_late_is_entered_when_it_is_there(stage: Stage, seat: Seat) -> None:
    panes = RemotePanes(session_of(stage), notifier())
    before = len(submitted(Log(seat.log).read()))
    with ThreadPoolExecutor(1) as person:
        with hard_at_work(seat):
            typed = person.submit(panes.type_line, agent(stage, seat), "look at the log", Agent(id="owner"))
            wait_until(lambda: notifier().check(agent(stage, seat)) == "not_echoed", "it is on its way")
            time.sleep(SETTLE_SECONDS + 0.5)  # the attempt itself waits no longer
        assert typed.result().state == "submitted"
    (line,) = submitted(Log(seat.log).read())[before:]
    assert line.startswith("[IPC] look at the log #")


def test_marks_on_letters_of_a_persons_line_take_no_room(stage: Stage, seat: Seat) -> None:
    panes, before = RemotePanes(session_of(stage), notifier()), len(submitted(Log(seat.log).read()))
    decomposed = "か\u3099 a\u0301"
    assert panes.type_line(agent(stage, seat), decomposed, Agent(id="owner")).state == "submitted"
    (line,) = submitted(Log(seat.log).read())[before:]
    assert line.startswith("[IPC] が á #")


@contextmanager
def frozen(stage: Stage) -> Iterator[None]:
    """The tmux server is stopped."""
    server = int(stage.tmux("display-message", "-p", "#{pid}"))
    os.kill(server, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server, signal.SIGCONT)


def test_a_frozen_tmux_is_the_reason_for_all_who_ring_at_once_and_is_waited_for_by_one_of_them(
    stage: Stage, seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    plain = Server.cmd

    def counted(self: Server, *words: str, **options: Any) -> Answer:
        calls.append(words[0])
        return plain(self, *words, **options)

    chains = [
        ChannelChain({"tmux": notifier, "status_line": lambda: StatusLine(stage.workspace.unread_count)})
        for _ in range(6)
    ]
    letters = [Message(id=f"m-{at}", sender_id="admin", receiver_id=seat.agent_id) for at in range(len(chains))]
    monkeypatch.setattr(Server, "cmd", counted)
    with frozen(stage), ThreadPoolExecutor(len(chains)) as pool:
        found = list(pool.map(lambda chain, letter: doorbell(stage, chain).announce([letter]), chains, letters))
    assert [outcome[seat.agent_id] for outcome in found] == [Delivery("stored", "tmux_timeout")] * len(chains)
    assert len(calls) <= 2


def test_a_frozen_tmux_refuses_what_needs_it_with_a_code_of_its_own(stage: Stage, seat: Seat) -> None:
    with frozen(stage):
        for asked in (
            lambda: pane_place(stage.socket, seat.pane_id),
            lambda: TeamPanes(stage.socket, "team").all(),
            lambda: UnknownProgram.in_pane_of(agent(stage, seat), stage.root / "hosts"),
        ):
            with pytest.raises(TmuxTimeout):
                asked()


def test_a_tmux_that_does_not_answer_is_asked_once_by_those_who_only_look(
    stage: Stage, seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    plain = Server.cmd

    def counted(self: Server, *words: str, **options: Any) -> Answer:
        calls.append(words[0])
        return plain(self, *words, **options)

    looking, both = notifier(), [agent(stage, one) for one in stage.seats]
    server = int(stage.tmux("display-message", "-p", "#{pid}"))
    monkeypatch.setattr(Server, "cmd", counted)
    os.kill(server, signal.SIGSTOP)
    try:
        assert [looking.screen(one) for one in both] == ["tmux_timeout"] * 2
        assert [looking.probe(one) for one in both] == ["tmux_timeout"] * 2
        assert [looking.dialog(one) for one in both] == [None] * 2
        assert looking.silent.is_silent(stage.socket)
        assert len(calls) == 1
    finally:
        os.kill(server, signal.SIGCONT)
    assert notifier().probe(both[0]) is None


def test_a_picker_gets_no_key(stage: Stage, seat: Seat) -> None:
    os.write(seat.keyboard, b"/model\n")
    comes_to(stage, seat, "picker")
    assert notifier().ring(agent(stage, seat), LINE) == Delivery("stored", "picker")
    assert notifier().host(agent(stage, seat)) == (seat.host, "picker")
    assert not [event for event in Log(seat.log).read() if event["event"] == "key"]


def test_who_is_typing_is_not_disturbed(stage: Stage, seat: Seat) -> None:
    os.write(seat.keyboard, b"\x15")
    end = time.monotonic() + 10
    while (ringing := notifier(quiet=3.0).ring(agent(stage, seat), LINE)).reason != "human_typing":
        assert time.monotonic() < end, ringing
    assert ringing.state == "stored"


@pytest.mark.parametrize(("set_by", "typing"), [(-86400, False), (-1, True), (0, True), (86400, False)])
def test_a_clock_that_is_set_silences_no_doorbell(stage: Stage, seat: Seat, set_by: float, typing: bool) -> None:
    os.write(seat.keyboard, b"\x15")
    comes_to(stage, seat, "idle")
    seen = take_snapshot(Server(stage.socket).pane(seat.pane_id))
    assert not isinstance(seen, str)
    assert abs(seen.last_key - time.time()) < 60
    ringing = TmuxNotifier(0.02, load_profiles(), quiet_seconds=3.0, clock=lambda: seen.last_key + set_by)
    assert ringing.check(agent(stage, seat)) == ("human_typing" if typing else None)


def test_a_line_of_ours_that_was_left_standing_is_finished_and_not_typed_again(stage: Stage, seat: Seat) -> None:
    before = len(submitted(Log(seat.log).read()))
    os.write(seat.keyboard, b"\x1b[200~" + f"{LINE} #k3x9".encode() + b"\x1b[201~")
    shows(stage, seat, "#k3x9")
    end = time.monotonic() + 10
    while (outcome := notifier().ring(agent(stage, seat), LINE)).state != "submitted":
        assert outcome == Delivery("stored", "our_line"), "only a host at work is waited for"
        assert time.monotonic() < end
    assert outcome.reason == "earlier_line"
    assert submitted(Log(seat.log).read())[before:] == [f"{LINE} #k3x9"]


@contextmanager
def hard_at_work(seat: Seat) -> Iterator[None]:
    """Keeps the host from reading input and drawing; afterwards it processes everything at once."""
    late = Path(f"{seat.log}.late")
    late.touch()
    try:
        time.sleep(0.1)  # it may be amid its last look at the terminal
        yield
    finally:
        late.unlink()


def test_a_line_whose_echo_comes_late_is_not_typed_twice_and_is_entered_later(stage: Stage, seat: Seat) -> None:
    before = len(submitted(Log(seat.log).read()))
    with hard_at_work(seat):
        assert notifier().ring(agent(stage, seat), LINE) == Delivery("rung", "not_echoed", left=True)
        assert notifier().ring(agent(stage, seat), LINE) == Delivery("stored", "not_echoed")
        assert notifier().check(agent(stage, seat)) == "not_echoed"
        assert notifier().finish(agent(stage, seat)) == Delivery("stored", "not_echoed")
    comes_to(stage, seat, "our_line")
    outcome = notifier().finish(agent(stage, seat))
    assert (outcome.state, outcome.reason) == ("submitted", "earlier_line")
    (line,) = submitted(Log(seat.log).read())[before:]
    assert ALIKE.fullmatch(line)
    assert notifier().finish(agent(stage, seat)) == Delivery("stored", "line_gone")


def test_a_host_that_has_not_heard_our_key_yet_gets_no_second_one(stage: Stage, seat: Seat) -> None:
    before = len(submitted(Log(seat.log).read()))
    os.write(seat.keyboard, b"\x1b[200~" + f"{LINE} #m4n7".encode() + b"\x1b[201~")
    comes_to(stage, seat, "our_line")
    with hard_at_work(seat):
        assert notifier().finish(agent(stage, seat)) == Delivery("stored", "not_submitted")
        assert notifier().ring(agent(stage, seat), LINE) == Delivery("stored", "not_submitted")
        assert notifier().finish(agent(stage, seat)) == Delivery("stored", "not_submitted")
    wait_until(lambda: len(submitted(Log(seat.log).read())) > before, "the line is entered")
    assert submitted(Log(seat.log).read())[before:] == [f"{LINE} #m4n7"]


def test_a_line_that_our_late_key_has_entered_is_not_typed_again(stage: Stage, seat: Seat) -> None:
    before = len(submitted(Log(seat.log).read()))
    os.write(seat.keyboard, b"\x1b[200~" + f"{LINE} #p6q8".encode() + b"\x1b[201~")
    comes_to(stage, seat, "our_line")
    with hard_at_work(seat):
        assert notifier().finish(agent(stage, seat)) == Delivery("stored", "not_submitted")
    comes_to(stage, seat, "idle")
    assert notifier().finish(agent(stage, seat)) == Delivery("stored", "line_gone")
    assert notifier().ring(agent(stage, seat), LINE) == Delivery("rung", "earlier_line")
    assert submitted(Log(seat.log).read())[before:] == [f"{LINE} #p6q8"]
    for _ in range(2):  # that stood for one ring, and a key that was seen to work stands for none
        comes_to(stage, seat, "idle")
        assert notifier().ring(agent(stage, seat), LINE).state == "submitted"


def test_a_line_that_is_left_comes_to_an_end_by_itself_although_its_mail_was_read(stage: Stage, seat: Seat) -> None:
    before = len(submitted(Log(seat.log).read()))
    workspace, chain = stage.workspace, ChannelChain({"tmux": notifier})
    workspace.registry.update(seat.agent_id, ladder=["tmux"])
    mail = workspace.mailbox(seat.agent_id).path / "mail.md"
    bell = DoorbellThread(doorbell(stage, chain), seat.agent_id, "task", prepare=dict)
    with hard_at_work(seat):
        mail.parent.mkdir(parents=True, exist_ok=True)
        mail.write_text("---\nsender_id: admin\n---\n\nx", encoding="utf-8")
        bell.start()
        log = workspace.delivery_log(seat.agent_id)
        wait_until(lambda: any(entry["state"] == "rung" for entry in log.newest_first()), "the line is pasted")
        mail.unlink()
    wait_until(lambda: len(submitted(Log(seat.log).read())) > before, "the line is entered")
    bell.close()
    assert [ALIKE.fullmatch(line) is not None for line in submitted(Log(seat.log).read())[before:]] == [True]


def test_a_server_whose_pane_is_anothers_now_leaves_ringing_to_the_one_in_that_pane(stage: Stage, seat: Seat) -> None:
    before = len(submitted(Log(seat.log).read()))
    workspace, chain = stage.workspace, ChannelChain({"tmux": notifier})
    workspace.registry.update(seat.agent_id, ladder=["tmux"])
    registered = agent(stage, seat)
    former = {"pane_id": seat.pane_id, "socket_path": stage.socket, "pane_pid": os.getpid()}
    outlives = DoorbellThread(doorbell(stage, chain), seat.agent_id, "task", prepare=lambda: former)
    successor = DoorbellThread(
        doorbell(stage, chain), seat.agent_id, "task", prepare=lambda: {**former, "pane_pid": registered.pane_pid}
    )
    mail = workspace.mailbox(seat.agent_id).path / "mail.md"
    mail.parent.mkdir(parents=True, exist_ok=True)
    mail.write_text("---\nsender_id: admin\n---\n\nx", encoding="utf-8")
    outlives.claim()
    outlives.start()
    log = workspace.delivery_log(seat.agent_id)
    wait_until(lambda: any(entry.get("reason") == "pane_changed" for entry in log.newest_first()), "it defers")
    successor.start()
    wait_until(lambda: len(submitted(Log(seat.log).read())) > before, "the line is entered")
    for bell in (outlives, successor):
        bell.close()
    mail.unlink()


def test_a_line_that_the_human_has_changed_is_left_to_the_human(stage: Stage, seat: Seat) -> None:
    os.write(seat.keyboard, b"\x1b[200~" + f"{LINE} #k3x9".encode() + b"\x1b[201~, well")
    comes_to(stage, seat, "draft")
    assert notifier().finish(agent(stage, seat)) == Delivery("stored", "draft")
    os.write(seat.keyboard, b"\x15mine alone")
    gone(stage, seat, "#k3x9")
    shows(stage, seat, "mine alone")
    assert notifier().finish(agent(stage, seat)) == Delivery("stored", "line_gone")


def test_a_line_of_ours_with_a_blank_of_the_humans_behind_it_is_a_draft(stage: Stage, seat: Seat) -> None:
    os.write(seat.keyboard, b"\x1b[200~" + f"{LINE} #k3x9".encode() + b"\x1b[201~")
    shows(stage, seat, "#k3x9")
    os.write(seat.keyboard, b" ")
    comes_to(stage, seat, "draft")
    assert notifier().ring(agent(stage, seat), LINE) == Delivery("stored", "draft")
    os.write(seat.keyboard, b"\x15")
    gone(stage, seat, "#k3x9")


def test_an_ideographic_space_with_the_cursor_before_it_is_a_draft(stage: Stage, seat: Seat) -> None:
    os.write(seat.keyboard, b"\x1b[200~" + "\u3000".encode() + b"\x1b[201~")
    shows(stage, seat, "\u3000")
    os.write(seat.keyboard, b"\x01")
    wait_until(lambda: stage.tmux("display-message", "-p", "-t", seat.pane_id, "#{cursor_x}") == "2", "the cursor is")
    assert notifier().ring(agent(stage, seat), LINE) == Delivery("stored", "draft")


def test_another_program_in_the_foreground_gets_nothing(stage: Stage, tmp_path: Path) -> None:
    pane = stage.tmux("new-session", "-d", "-P", "-F", "#{pane_id}", "exec cat")
    kept: list[Screen] = []
    other = Agent(id="x", host="claude", pane_id=pane, socket_path=stage.socket)
    runs(stage, pane, "cat")
    for host in (None, "claude", "plain", "shell", "gemini"):
        assert notifier(kept=kept).ring(replace(other, host=host), LINE) == Delivery("stored", "unknown_host")
        assert notifier().host(replace(other, host=host)) is None
    assert kept == []
    stage.tmux("kill-pane", "-t", pane)


def test_an_unknown_screen_of_a_known_host_is_kept_and_gets_nothing(stage: Stage) -> None:
    host = stand_in(stage.directory / "hosts", "claude")
    shutil.copy(shutil.which("cat") or "", host)
    pane = stage.tmux("new-session", "-d", "-P", "-F", "#{pane_id}", f"exec {host}")
    agent = Agent(id="x", pane_id=pane, socket_path=stage.socket)
    kept: list[Screen] = []
    runs(stage, pane, "claude")
    assert notifier(kept=kept).ring(agent, LINE) == Delivery("stored", "unknown_screen")
    assert len(kept) == 1
    stage.tmux("respawn-pane", "-k", "-t", pane, f"echo ' Select login method:'; exec {host}")
    wait_until(lambda: notifier().host(agent) == ("claude", "login"), "its login screen is known")
    assert notifier().ring(agent, LINE) == Delivery("stored", "login")
    stage.tmux("kill-pane", "-t", pane)


@pytest.mark.parametrize("state", ["draft", "copy_mode"])
def test_the_decision_about_a_busy_pane_is_one_call_of_tmux(
    stage: Stage, seat: Seat, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if state == "copy_mode":
        stage.tmux("copy-mode", "-t", seat.pane_id)
    else:
        os.write(seat.keyboard, b"jjj")
        comes_to(stage, seat, "draft")
    calls: list[str] = []
    plain = Server.cmd

    def counted(self: Server, *words: str, **options: Any) -> Answer:
        calls.append(words[0])
        return plain(self, *words, **options)

    monkeypatch.setattr(Server, "cmd", counted)
    assert notifier().ring(agent(stage, seat), LINE) == Delivery("stored", state)
    assert len(calls) == 1
    assert notifier().check(agent(stage, seat)) == state
    assert len(calls) == 2
    if state == "copy_mode":
        stage.tmux("send-keys", "-t", seat.pane_id, "-X", "cancel")
