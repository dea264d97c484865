"""The doorbell in a real tmux: one line, whole, submitted once, or nothing at all
(docs/protocol.md, Doorbell line, Typing into a pane)."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.doorbell.tmux.notifier import TmuxNotifier
from multi_agent_mcp.doorbell.tmux.profiles import load_profiles
from multi_agent_mcp.services.validation import Draft
from tests.end_to_end.support import (
    TEAM,
    UP,
    Pane,
    Team,
    Terminal,
    count_line,
    eventually,
    eventually_answers,
    line,
    outcome,
    wait_until,
    workers,
)

pytestmark = [pytest.mark.tmux, pytest.mark.anyio]


@pytest.fixture
def pane(terminal: Terminal, team: Team) -> Pane:
    """worker-a's pane: its program writes down what is submitted to it."""
    made = terminal.pane()
    made.belongs_to(team, "worker-a")
    return made


def _lines(pane: Pane, count: int) -> list[str]:
    """Waits for this many submitted lines; returns all lines."""
    wait_until(lambda: len(pane.lines) >= count, f"{count} lines in the pane")
    return pane.lines


async def _registered(team: Team, agent_id: str, pane: Pane) -> None:
    registry = team.services.workspace.registry
    await eventually(lambda: registry.get(agent_id).pane_id == pane.id, "the server registers its pane")


def test_a_sender_rings_a_recipient_without_a_server(team: Team, pane: Pane) -> None:
    assert team.delivery("worker-a") == ("submitted", None)
    assert _lines(pane, 1) == [line()]
    assert pane.screen.splitlines()[0] == line()


RINGING = """\
import sys
from multi_agent_mcp import Team
with Team.open(sys.argv[1]) as team:
    admin, worker = team["admin"], team["worker-a"]
    print(admin.send_message(receiver_id="worker-a", content="one")["delivery"]["worker-a"]["state"], flush=True)
    worker.read_messages()
    admin.send_message(receiver_id="worker-a", content="two")
    print(team.rings, flush=True)
    sys.stdin.read()
"""


def test_a_program_rings_a_pane_as_every_other_process_and_for_its_own_agents(team: Team, pane: Pane) -> None:
    command = [sys.executable, "-c", RINGING, str(team.root)]
    with subprocess.Popen(
        command, env=team.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as program:
        assert _lines(pane, 2) == [line(), line()]
        said, _ = program.communicate("")
    assert (said, program.returncode) == ("submitted\n[]\n", 0)
    assert not team.services.sessions.everywhere()


def test_a_pane_is_registered_by_hand(team: Team, terminal: Terminal) -> None:
    pane = terminal.pane()
    here = ("--parent", "admin", "--pane", pane.id, "--socket", terminal.socket)
    added = team.ask("agent", "add", "worker-c", "--host", "plain", *here)
    assert (added["pane_id"], added["pane_pid"]) == (pane.id, int(pane.fact("pane_pid")))
    assert team.delivery("worker-c") == ("submitted", None)
    assert _lines(pane, 1) == [line()]
    refused = team.run("agent", "add", "worker-d", "--pane", "%999", "--socket", terminal.socket)
    assert refused.code == 1
    assert "worker-d" not in team.services.agents.all()


@pytest.mark.parametrize("given", ["tmux", "explicitly"])
async def test_a_recipients_own_server_registers_its_pane_and_rings_there(
    team: Team, terminal: Terminal, given: str
) -> None:
    pane = terminal.pane(starts=True)
    explicit = {"MULTI_AGENT_MCP_SOCKET": terminal.socket, "MULTI_AGENT_MCP_PANE": pane.id, "TMUX_PANE": ""}
    async with (
        team.server("worker-a", inside=pane, env={} if given == "tmux" else explicit) as worker,
        team.server("admin") as admin,
    ):
        await _registered(team, "worker-a", pane)
        sent = await admin.call("send_message", receiver_id="worker-a", content="do it", message_type="task_assign")
        assert sent["delivery"] == {"worker-a": {"state": "stored", "reason": "recipient_server_rings"}}
        await eventually(lambda: pane.lines == [line(message_type="task_assign")], "the line arrives")
        await eventually_answers(
            lambda: admin.call("get_message_status", message_id=sent["message_id"]),
            lambda answer: answer["state"] == "submitted",
            "the status says submitted",
        )
        assert len((await worker.call("read_messages"))["messages"]) == 1
        status = await admin.call("get_message_status", message_id=sent["message_id"])
        assert [step["state"] for step in status["steps"]] == ["stored", "rung", "submitted", "read"]
        assert [step["at"] for step in status["steps"]] == sorted(step["at"] for step in status["steps"])
        (copy,) = team.ask("trace", sent["message_id"])["copies"]
        assert [step["state"] for step in copy["steps"]] == ["stored", "rung", "submitted", "read"]
        assert pane.lines == [line(message_type="task_assign")]


async def test_a_server_registers_its_pane_although_another_session_lives_if_the_registered_one_is_gone(
    team: Team, terminal: Terminal
) -> None:
    former, pane = terminal.pane(starts=True), terminal.pane(starts=True)
    async with team.server("worker-a", inside=former):
        await _registered(team, "worker-a", former)
        terminal("kill-pane", "-t", former.id)
        async with team.server("worker-a", inside=pane):
            await _registered(team, "worker-a", pane)


async def test_a_server_whose_tmux_hung_when_it_began_registers_its_pane_later_and_rings(
    team: Team, terminal: Terminal
) -> None:
    pane, tmux = terminal.pane(starts=True), int(terminal("display-message", "-p", "#{pid}"))
    async with team.server(None, inside=pane) as worker:
        os.kill(tmux, signal.SIGSTOP)
        try:
            await worker.call("authenticate", agent_id="worker-a", passkey=team.key("worker-a"))
            (said,) = team.base.glob("server-*.stderr")
            await eventually(lambda: "tmux" in said.read_text(encoding="utf-8"), "tmux has not answered")
        finally:
            os.kill(tmux, signal.SIGCONT)
        await _registered(team, "worker-a", pane)
        team.send("worker-a")
        await eventually(lambda: pane.lines == [line()], "it is rung there")


async def test_only_one_doorbell_is_outstanding_and_a_new_one_follows_the_reading(
    team: Team, terminal: Terminal
) -> None:
    pane = terminal.pane()
    pane.belongs_to(team, "worker-a")
    async with team.server("worker-a") as worker:
        for sender in ("admin", "worker-b", "owner"):
            team.send("worker-a", sender=sender)
            await eventually(lambda: pane.lines == [line()], "the first message rings")
        assert len((await worker.call("read_messages"))["messages"]) == 3
        await worker.call("list_agents")
        assert pane.lines == [line()]
        team.send("worker-a", sender="worker-b", type="response")
        await eventually(lambda: len(pane.lines) > 1, "a message after the reading rings")
        assert pane.lines == [line(), line("worker-b", "response")]


def test_senders_do_not_ring_again_while_a_doorbell_is_outstanding(team: Team, pane: Pane) -> None:
    assert team.delivery("worker-a") == ("submitted", None)
    for _ in range(2):
        assert team.delivery("worker-a") == ("stored", "doorbell_outstanding")
    assert len(team.ask("read", "worker-a")["messages"]) == 3
    assert team.delivery("worker-a", sender="worker-b") == ("submitted", None)
    assert _lines(pane, 2) == [line(), line("worker-b")]


async def test_no_doorbell_rings_for_the_rest_of_what_is_just_being_read(team: Team, terminal: Terminal) -> None:
    pane = terminal.pane()
    pane.belongs_to(team, "worker-a")
    services = team.services
    async with team.server("worker-a") as worker:
        with _kept_awake(team, "worker-a"):
            for number in range(1, 7):
                services.messages.send(services.agents.get("admin"), Draft(content="rings", receiver_id="worker-a"))
                await eventually(partial(_has_lines, pane, number), "the first message rings")
                for _ in range(14):
                    services.messages.send(services.agents.get("worker-b"), Draft(content="x", receiver_id="worker-a"))
                assert (await worker.call("read_messages"))["unread_remaining"] == 0
                assert pane.lines == [line()] * number


def _has_lines(pane: Pane, count: int) -> bool:
    return len(pane.lines) >= count


@contextmanager
def _kept_awake(team: Team, agent_id: str) -> Iterator[None]:
    """Begins to write a file again and again, which keeps the doorbell thread looking all the time."""
    enough = threading.Event()

    def write() -> None:
        while not enough.wait(0.002):
            team.drop(team.path / "ipc" / agent_id / "begun.md", "")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        enough.set()
        writer.join()
        (team.path / "ipc" / agent_id / "begun.md").unlink(missing_ok=True)


async def test_mail_that_waited_for_the_server_rings_once_with_its_count(team: Team, terminal: Terminal) -> None:
    for sender in ("admin", "worker-b", "owner"):
        team.send("worker-a", sender=sender)
    pane = terminal.pane()
    pane.belongs_to(team, "worker-a")
    async with team.server("worker-a"):
        await eventually(lambda: pane.lines == [count_line(3)], "the waiting mail is announced")


async def test_nothing_unread_rings_nothing(team: Team, terminal: Terminal) -> None:
    pane = terminal.pane()
    pane.belongs_to(team, "worker-a")
    async with team.server("worker-a") as worker, team.server("admin") as admin:
        assert (await worker.call("read_messages"))["messages"] == []
        await worker.call("send_message", receiver_id="admin", content="from me, not to me")
        team.notify("worker-a", "told.md", sender_id="worker-a", action="task_blocked", message="its own doing")
        read = team.path / "ipc" / "worker-a" / "archive" / "2026-01" / "read.md"
        read.parent.mkdir(parents=True)
        team.drop(read, "---\nsender_id: worker-b\nread_at: 2026-01-01T00:00:00Z\n---\n\nread already\n")
        await admin.call("send_message", receiver_id="worker-a", content="the first to ring")
        await eventually(lambda: pane.lines != [], "mail rings")
        assert pane.lines == [line()]


async def test_a_file_written_by_hand_rings_and_can_claim_no_text_for_the_line(
    team: Team, terminal: Terminal, tmp_path: Path
) -> None:
    pane = terminal.pane()
    pane.belongs_to(team, "worker-a")
    inbox = team.path / "ipc" / "worker-a"
    note = tmp_path / "note.md"
    async with team.server("worker-a") as worker:
        note.write_text("---\nsender_id: worker-b\n---\n\nby hand\n", encoding="utf-8")
        shutil.copy(note, inbox)
        await eventually(lambda: pane.lines == [line("worker-b")], "the hand-written file rings")
        await worker.call("read_messages")
        hostile = '---\nsender_id: "x; rm -rf /\\e]0;\\a"\nmessage_type: "$(reboot)\\r"\nsubject: "`id`"\n---\n\nEvil\n'
        team.drop(inbox / "hostile.md", hostile)
        await eventually(lambda: len(pane.lines) > 1, "the hostile file rings")
        assert pane.lines[1:] == [line("unknown")]


def test_the_lines_of_twelve_concurrent_senders_are_whole(bare: Team, terminal: Terminal) -> None:
    limits = "{doorbell_pause_seconds: 0.001, doorbell_pause_max_seconds: 0.001}"
    team = bare.make(f"{TEAM}limits: {limits}\n")  # so that each of them rings
    pane = terminal.pane()
    pane.belongs_to(team, "worker-a")
    jobs = [("send", str(team.root), team.session, "admin", "worker-a", "1")] * 12
    with workers(team, jobs) as running:
        sent = [message_id for process in running for message_id in outcome(process)]
    assert {message.id for message in team.unread("worker-a")} == set(sent)
    assert len(set(sent)) == 12
    rung = pane.lines
    assert 1 <= len(rung) <= 12
    assert set(rung) <= {line(), *(count_line(count) for count in range(2, 13))}


def test_a_pane_in_copy_mode_is_left_alone(team: Team, terminal: Terminal, pane: Pane) -> None:
    terminal("copy-mode", "-t", pane.id)
    assert team.delivery("worker-a") == ("stored", "copy_mode")
    assert pane.fact("pane_in_mode") == "1"
    terminal("send-keys", "-t", pane.id, "-X", "cancel")
    assert team.delivery("worker-a") == ("submitted", None)
    assert _lines(pane, 1) == [count_line(2)]


async def test_a_line_put_off_by_copy_mode_is_delivered_after_it(team: Team, terminal: Terminal) -> None:
    pane = terminal.pane()
    pane.belongs_to(team, "worker-a")
    async with team.server("worker-a"):
        terminal("copy-mode", "-t", pane.id)
        sent = team.send("worker-a")
        await eventually(lambda: _steps(team, sent["message_id"]) == ["stored", "deferred"], "the line is put off")
        (copy,) = team.ask("trace", sent["message_id"])["copies"]
        assert (copy["state"], copy["reason"]) == ("stored", "copy_mode")
        assert pane.fact("pane_in_mode") == "1"
        assert pane.lines == []
        terminal("send-keys", "-t", pane.id, "-X", "cancel")
        await eventually(lambda: pane.lines == [line()], "the line arrives after copy mode")
        await eventually(lambda: _steps(team, sent["message_id"])[-1] == "submitted", "the delivery log says submitted")
        assert _steps(team, sent["message_id"]) == ["stored", "deferred", "rung", "submitted"]


def _steps(team: Team, message_id: str) -> list[str]:
    (copy,) = team.services.tracking.trace(message_id)
    return [step["state"] for step in copy["steps"]]


def test_a_pane_whose_program_has_quit_to_its_shell_gets_nothing_typed(team: Team, terminal: Terminal) -> None:
    pane = terminal.pane(f"PS1='ready$ ' exec sh -i 2>&1; : {team.base}")
    log = team.base / "quit"
    wait_until(lambda: "ready$" in pane.screen, "the shell's prompt")
    terminal("send-keys", "-t", pane.id, f"tee {log}", "Enter")
    wait_until(lambda: pane.fact("pane_current_command") == "tee" and log.exists(), "the program runs in the shell")
    pane.belongs_to(team, "worker-a")
    assert team.delivery("worker-a") == ("submitted", None)
    wait_until(lambda: log.read_text(encoding="utf-8").splitlines() == [line()], "the program gets its line")
    assert len(team.ask("read", "worker-a")["messages"]) == 1
    terminal("send-keys", "-t", pane.id, "C-d")
    wait_until(
        lambda: pane.fact("pane_current_command") == "sh" and pane.screen.endswith("ready$"), "back in the shell"
    )
    before = pane.screen
    assert team.delivery("worker-a") == ("stored", "shell")
    assert team.delivery("worker-a", sender="worker-b") == ("stored", "shell")
    assert pane.screen == before
    (finding,) = _pane_findings(team)
    assert finding["finding"].startswith(f"ペイン {pane.id}: shell: ")


def test_a_program_that_nobody_has_declared_or_described_gets_nothing_and_doctor_says_what_to_do(
    team: Team, pane: Pane
) -> None:
    registry = team.services.workspace.registry
    for host, advice in (
        (None, "--host plain"),
        ("goose", "host learn"),
    ):
        registry.update("worker-a", host=host)
        assert team.delivery("worker-a") == ("stored", "unknown_host")
        (finding,) = _pane_findings(team)
        assert finding["finding"].startswith(f"ペイン {pane.id}: unknown_host: ")
        assert advice in finding["repair"]
    registry.update("worker-a", host="plain")
    assert team.delivery("worker-a") == ("submitted", None)
    assert _lines(pane, 1) == [count_line(3)]


def test_a_plain_pane_gets_nothing_once_another_program_reads_its_terminal(team: Team, terminal: Terminal) -> None:
    log = team.base / "lines"
    pane = terminal.pane(f"sh -c 'tee {log}; touch {log}.ended; exec tee {log}.other'")
    wait_until(log.exists, "the program runs")
    pane.belongs_to(team, "worker-a")
    assert team.delivery("worker-a") == ("submitted", None)
    assert len(team.ask("read", "worker-a")["messages"]) == 1
    terminal("send-keys", "-t", pane.id, "C-d")
    wait_until(Path(f"{log}.other").exists, "the next one runs, in the same process that was the first one's shell")
    assert team.delivery("worker-a") == ("stored", "unknown_host")
    (finding,) = _pane_findings(team)
    assert "agent set worker-a --pane" in finding["repair"]
    assert Path(f"{log}.other").read_text(encoding="utf-8") == ""
    pane.belongs_to(team, "worker-a")
    assert team.delivery("worker-a", sender="worker-b") == ("submitted", None)


@contextmanager
def _human(terminal: Terminal, pane: Pane) -> Iterator[int]:
    """A human's terminal that shows the pane; what is written to it is typed."""
    terminal("select-window", "-t", pane.id)
    pid, keyboard = pty.fork()
    if pid == 0:
        environment = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        os.execvpe("tmux", ["tmux", "-S", terminal.socket, "attach"], environment)  # noqa: S606
    try:
        wait_until(lambda: terminal("list-clients"), "the human is there")
        yield keyboard
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(keyboard)


def test_a_line_that_a_human_has_begun_before_a_plain_program_is_left_alone(
    team: Team, terminal: Terminal, pane: Pane
) -> None:
    notifier = TmuxNotifier(0.02, load_profiles(), quiet_seconds=0)
    agent = team.services.agents.get("worker-a")
    with _human(terminal, pane) as keyboard:
        for draft in (b"half a li", b"  "):
            os.write(keyboard, draft)
            wait_until(lambda: pane.fact("cursor_x") != "0", "it is echoed")
            assert notifier.check(agent) == "draft"
            assert notifier.ring(agent, line()) == Delivery("stored", "draft")
            os.write(keyboard, b"\x15")
            wait_until(lambda: pane.fact("cursor_x") == "0", "it is taken away")
        assert pane.lines == []
        assert notifier.ring(agent, line()).state == "submitted"
        assert _lines(pane, 1) == [line()]
    terminal("send-keys", "-t", pane.id, "-l", "> ")
    wait_until(lambda: pane.fact("cursor_x") == "2", "a prompt is there")
    assert notifier.check(agent) is None


@pytest.mark.parametrize(
    "command",
    ["sh -c 'sleep 0.7; exec tee lines'", "cd .; tee lines; true", "sh -c 'while read x; do echo $x >>lines; done'"],
    ids=["behind a launcher", "below a shell", "a shell's script"],
)
def test_a_plain_program_that_up_has_started_gets_its_line_however_it_was_started(
    bare: Team, terminal: Terminal, command: str
) -> None:
    log = bare.base / "lines"
    entry = json.dumps(command.replace("lines", str(log)))
    team = bare.make(TEAM.replace("{id: worker-a,", f"{{command: {entry}, id: worker-a,"))
    context = team.ask(*UP, "--socket", terminal.socket, "--no-supervisor")["agents"]
    (pane_id,) = (item["pane_id"] for item in context if item["agent_id"] == "worker-a")
    if "tee" in command:
        wait_until(log.exists, "the program runs")
    assert team.delivery("worker-a") == ("submitted", None)
    wait_until(lambda: log.exists() and log.read_text(encoding="utf-8") == f"{line()}\n", "the line arrives")
    assert Pane(terminal, pane_id, log).lines == [line()]


@pytest.mark.parametrize("name", ["a\\tb", "a\\nb", "\\001,}#{q", "\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t"])
def test_a_program_may_call_itself_what_it_likes(team: Team, terminal: Terminal, name: str) -> None:
    log = team.base / "lines"
    pane = terminal.pane(f'exec bash -c \'exec -a "$(printf "{name}")" tee {log}\'')
    wait_until(log.exists, "the program runs")
    pane.belongs_to(team, "worker-a")
    terminal("set-option", "-p", "-t", pane.id, "@ipc_line", "k3x9:²:²:²\tx\ny")
    terminal("select-pane", "-t", pane.id, "-T", "a title")
    assert _pane_findings(team) == []
    assert team.delivery("worker-a") == ("submitted", None)
    wait_until(lambda: log.read_text(encoding="utf-8") == f"{line()}\n", "the line arrives")


def _pane_findings(team: Team) -> list[dict[str, str]]:
    findings = team.ask("doctor")["findings"]
    return [item for item in findings if item["check"] == "panes" and item["subject"] == "worker-a"]


def test_indexes_and_names_may_change_because_a_pane_is_its_id(team: Team, terminal: Terminal) -> None:
    terminal("set-option", "-g", "base-index", "1")
    terminal("set-option", "-g", "pane-base-index", "1")
    first, second = terminal.pane(), terminal.pane()
    first.belongs_to(team, "worker-a")
    second.belongs_to(team, "worker-b")
    places = {pane.id: pane.fact("window_index") for pane in (first, second)}
    terminal("swap-window", "-d", "-s", first.id, "-t", second.id)
    assert first.fact("window_index") == places[second.id]
    terminal("rename-session", "-t", "work", "work-renamed")
    terminal("new-session", "-d", "-s", "work", "exec cat")
    terminal("move-window", "-r", "-t", "work-renamed:")
    assert team.delivery("worker-a") == ("submitted", None)
    assert team.delivery("worker-b", sender="owner") == ("submitted", None)
    assert _lines(first, 1) == [line()]
    assert _lines(second, 1) == [line("owner")]


def _respawned(terminal: Terminal, pane: Pane) -> None:
    terminal("respawn-pane", "-k", "-t", pane.id, f"exec tee {pane.log}-respawned")


def _dead(terminal: Terminal, pane: Pane) -> None:
    terminal("set-option", "-g", "remain-on-exit", "on")
    os.kill(int(pane.fact("pane_pid")), signal.SIGTERM)
    wait_until(lambda: pane.fact("pane_dead") == "1", "the pane's program has ended")


def _synchronized(terminal: Terminal, pane: Pane) -> None:
    terminal("set-option", "-w", "-t", pane.id, "synchronize-panes", "on")


def _input_off(terminal: Terminal, pane: Pane) -> None:
    terminal("select-pane", "-d", "-t", pane.id)


def _closed(terminal: Terminal, pane: Pane) -> None:
    terminal("kill-pane", "-t", pane.id)


def _answers(terminal: Terminal) -> bool:
    try:
        terminal("list-sessions")
    except AssertionError:
        return False
    return True


def _vanished(terminal: Terminal, pane: Pane) -> None:
    terminal("kill-server")
    wait_until(lambda: not _answers(terminal), f"the tmux server of pane {pane.id} has ended")


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        (_respawned, {"pane_changed"}),
        (_dead, {"pane_dead"}),
        (_synchronized, {"synchronized"}),
        (_input_off, {"input_off"}),
        (_closed, {"pane_gone"}),
        (_vanished, {"tmux_gone"}),
    ],
)
def test_a_pane_that_must_not_be_typed_into_gets_nothing_and_the_reason_is_told(
    team: Team, terminal: Terminal, change: Callable[[Terminal, Pane], None], reasons: set[str]
) -> None:
    pane = terminal.pane()
    neighbour = terminal.split(pane)
    pane.belongs_to(team, "worker-a")
    change(terminal, pane)
    sent = team.send("worker-a")
    delivery = sent["delivery"]["worker-a"]
    assert delivery["state"] == "stored"
    assert delivery["reason"] in reasons
    assert pane.lines == []
    assert neighbour.lines == []
    assert not Path(f"{pane.log}-respawned").exists() or not Path(f"{pane.log}-respawned").read_text(encoding="utf-8")
    (copy,) = team.ask("trace", sent["message_id"])["copies"]
    assert copy["reason"] in reasons
    assert [message.id for message in team.unread("worker-a")] == [sent["message_id"]]


async def test_a_server_survives_the_loss_of_its_tmux_server(team: Team, terminal: Terminal) -> None:
    pane = terminal.pane()
    pane.belongs_to(team, "worker-a")
    async with team.server("worker-a") as worker:
        terminal("kill-server")
        sent = team.send("worker-a")
        await eventually(lambda: _steps(team, sent["message_id"]) == ["stored", "deferred"], "ringing is given up")
        assert len((await worker.call("read_messages"))["messages"]) == 1


def test_another_pane_with_the_old_number_after_a_restart_of_tmux_is_not_rung(
    team: Team, terminal: Terminal, env: dict[str, str]
) -> None:
    terminal.pane().belongs_to(team, "worker-a")
    terminal("kill-server")
    directory = Path(terminal.socket).parent
    wait_until(lambda: not _answers(terminal), "the tmux server has ended")
    again = Terminal(directory, env)
    pane = again.pane()
    assert pane.id == team.services.workspace.registry.get("worker-a").pane_id
    assert team.delivery("worker-a")[1] in {"tmux_restarted", "pane_changed"}
    assert pane.lines == []


@pytest.mark.parametrize("messages", [1, 2])
def test_a_line_that_enter_did_not_submit_is_rung_but_not_submitted(
    team: Team, terminal: Terminal, messages: int
) -> None:
    for _ in range(messages - 1):
        team.send("worker-a")
    log = team.base / "unsubmitted"
    pane = terminal.pane(f"stty -icrnl && exec tee {log}")
    wait_until(lambda: pane.fact("pane_current_command") == "tee" and log.exists(), "tee runs")
    pane.belongs_to(team, "worker-a")
    assert team.delivery("worker-a") == ("rung", "not_submitted")
    assert (line() if messages == 1 else count_line(2)) in pane.screen
    assert log.read_text(encoding="utf-8") == ""


async def test_a_broadcast_rings_every_pane(team: Team, terminal: Terminal) -> None:
    panes = {agent_id: terminal.pane() for agent_id in ("worker-a", "worker-b")}
    for agent_id, pane in panes.items():
        pane.belongs_to(team, agent_id)
    async with team.server("admin") as admin:
        sent = await admin.call("send_message", content="all of you", message_type="broadcast")
        states = {agent_id: delivery["state"] for agent_id, delivery in sent["delivery"].items()}
        assert states == {"owner": "stored", "worker-a": "submitted", "worker-b": "submitted"}
    for pane in panes.values():
        assert _lines(pane, 1) == [line(message_type="broadcast")]


async def test_a_sender_rings_again_once_the_recipients_server_has_been_killed(team: Team, terminal: Terminal) -> None:
    pane = terminal.pane()
    pane.belongs_to(team, "worker-a")
    async with team.server("worker-a") as worker:
        worker.kill()
        await worker.gone()
        assert await eventually(lambda: team.delivery("worker-a"), "a delivery") == ("submitted", None)
        assert pane.lines == [line()]


async def test_a_server_that_was_started_from_a_pane_but_outside_of_it_has_no_pane(
    team: Team, terminal: Terminal
) -> None:
    somebodys = terminal.pane(starts=True)
    there = {**somebodys.env, "PYTHONHASHSEED": "0"}  # starts it cold: `doctor` looks at its environment
    async with team.server("worker-a", inside=somebodys), team.server("worker-b", env=there):
        await _registered(team, "worker-a", somebodys)  # an editor's terminal that was opened from there
        assert team.delivery("worker-b") == ("stored", "recipient_server_rings")
        said = team.base / "server-2.stderr"
        await eventually(
            lambda: f"does not run in pane {somebodys.id}" in said.read_text(encoding="utf-8"), "it says so"
        )
        assert "multi-agent-mcp agent set worker-b --pane %N" in said.read_text(encoding="utf-8")
        assert team.services.agents.get("worker-b").pane_id is None
        (finding,) = (
            item
            for item in team.run("doctor", "--json").json["findings"]
            if (item["check"], item["subject"]) == ("panes", "worker-b")
        )
        assert somebodys.id in finding["finding"]
        own = terminal.pane()
        advice = re.search(r"multi-agent-mcp (agent set \S+ --pane )%N", finding["repair"])
        assert advice is not None
        team.ask(*advice[1].split(), own.id, "--socket", terminal.socket)
        team.services.workspace.registry.update("worker-b", host="plain")
        team.send("worker-b")
        await eventually(lambda: own.lines != [], "it is rung there")
    assert somebodys.lines == []
    refused = team.run("agent", "set", "worker-b", "--here", env=somebodys.env)
    assert "invalid_arguments" in refused.stderr
    assert f"TMUX_PANE の示すペイン {somebodys.id} の中では動いていません" in refused.stderr
