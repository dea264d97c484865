"""Confirmed means written: what an answer hands out is consumed only once its last byte is on standard output."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.support import COMMAND, REPOSITORY, Team, _runs, wait_until
from tests.end_to_end.wire import Wire, call, request, wire
from tests.soak.lives import PROTOCOL

MAIL = ("one", "two", "three")
ENDS_WITHIN_SECONDS = 2.0
SLACK = 5  # times as long, on a machine that is busy with other tests

KILLED_HOST = """\
import os, subprocess, sys
reading, writing = os.pipe()
server = subprocess.Popen(sys.argv[2:], stdin=reading, stdout=subprocess.PIPE)
kept = {"input": [writing], "input and output": [writing, server.stdout.fileno()]}[sys.argv[1]]
heir = subprocess.Popen(["sleep", "60"], pass_fds=kept, stdout=subprocess.DEVNULL)
print(server.pid, heir.pid, flush=True)
lines = [line.encode() for line in sys.stdin.read().splitlines()]
for line in lines[:-1]:
    os.write(writing, line + b"\\n")
    if b'"id"' in line:
        server.stdout.readline()
os.write(writing, lines[-1] + b"\\n")
os.kill(os.getpid(), 9)
"""


def _post(team: Team) -> None:
    for content in MAIL:
        team.post("worker-a", content + "." * 1_500)


def _contents(answer: dict[str, object]) -> list[str]:
    messages: list[dict[str, str]] = answer["messages"]  # type: ignore[assignment]
    return [message["content"].rstrip(".") for message in messages]


def _read_by_the_next_server(team: Team) -> list[str]:
    with wire(team) as host:
        answer = host.call("read_messages").answer
        assert answer is not None
        return _contents(dict(answer))


def _ended_within(host: Wire, begin: Callable[[], object]) -> float:
    began = time.monotonic()
    begin()
    host.process.wait(ENDS_WITHIN_SECONDS * SLACK)
    return time.monotonic() - began


@pytest.mark.parametrize("inherited", ["input", "input and output"])
def test_mail_for_a_host_that_was_killed_is_unread_though_another_process_keeps_its_pipes(
    team: Team, inherited: str
) -> None:
    _post(team)
    where = ["serve", "--root", str(team.root), "--session", team.session, "--agent", "worker-a"]
    initialize = request(
        0, "initialize", protocolVersion=PROTOCOL, capabilities={}, clientInfo={"name": "h", "version": "1"}
    )
    lines = [initialize, b'{"jsonrpc": "2.0", "method": "notifications/initialized"}', call(1, "read_messages")]
    host = subprocess.Popen(
        [sys.executable, "-c", KILLED_HOST, inherited, *COMMAND, *where],
        env=team.env,
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    out, _ = host.communicate(b"\n".join(lines))
    server, heir = map(int, out.split())
    try:
        wait_until(lambda: not _runs(server), "the server ends")
    finally:
        os.kill(heir, signal.SIGKILL)
    assert host.returncode == -signal.SIGKILL
    assert _read_by_the_next_server(team) == list(MAIL)


def test_a_host_that_has_closed_the_output_ends_the_server_and_consumes_nothing(team: Team) -> None:
    _post(team)
    with wire(team) as host:
        host.close_output()
        host.say(call(1, "read_messages"))
        host.process.wait(ENDS_WITHIN_SECONDS * SLACK)
    assert _read_by_the_next_server(team) == list(MAIL)


def test_a_host_that_has_closed_the_output_and_ends_the_server_has_consumed_nothing(team: Team) -> None:
    _post(team)
    with wire(team) as host:
        host.close_output()
        host.say(call(1, "read_messages"))
        wait_until(lambda: not team.unread("worker-a") or not _runs(host.pid), "the call has run")
        if host.process.poll() is None:
            host.signal(signal.SIGTERM)
        host.process.wait(ENDS_WITHIN_SECONDS * SLACK)
    assert _read_by_the_next_server(team) == list(MAIL)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "SIGHUP", "end of input"])
def test_a_full_pipe_keeps_no_server_and_consumes_nothing(team: Team, how: str) -> None:
    _post(team)
    with wire(team) as host:
        host.narrow()
        host.say(call(1, "read_messages"))
        host.wait_until_full()
        assert host.process.stdin is not None
        ending = host.process.stdin.close if how == "end of input" else lambda: host.signal(signal.Signals[how])
        assert _ended_within(host, ending) < ENDS_WITHIN_SECONDS * SLACK
    assert not team.services.sessions.live("worker-a")
    assert len(team.unread("worker-a")) == len(MAIL)
    assert _read_by_the_next_server(team) == list(MAIL)


def test_a_server_that_cannot_close_its_session_says_so_in_one_sentence(team: Team) -> None:
    with wire(team) as host:
        host.say(call(1, "get_unread_count"))
        host.heard_until(1)
        shutil.rmtree(team.path / "sessions")
        (team.path / "sessions").write_text("in the way")
        assert host.process.stdin is not None
        host.process.stdin.close()
        assert host.process.wait(ENDS_WITHIN_SECONDS * SLACK) == 1
    said = (team.base / f"wire-{team.started}.stderr").read_text(encoding="utf-8").splitlines()
    assert [line for line in said if line.startswith("multi-agent-mcp: the session could not be closed: ")] == said[-1:]


def test_a_call_behind_a_full_pipe_confirms_nothing(team: Team) -> None:
    _post(team)
    with wire(team) as host:
        host.narrow()
        host.say(call(1, "read_messages"))
        host.wait_until_full()
        host.say(call(2, "send_message", receiver_id="admin", content="the second call has run"))
        wait_until(lambda: team.unread("admin"), "the second call has run")
        host.kill()
    assert _read_by_the_next_server(team) == list(MAIL)


def test_a_logout_behind_an_answer_that_is_not_taken_yet_waits_and_confirms_it(team: Team) -> None:
    """Formerly it waited only half a second: the mail was unread again, although its answer arrived."""
    _post(team)
    with wire(team) as host:
        host.narrow()
        host.say(call(1, "read_messages"))
        host.wait_until_full()
        host.say(call(2, "logout"))
        time.sleep(1.5)  # nothing may happen meanwhile, so there is no event to wait for
        answers = {message["id"]: message for message in (host.hear(), host.hear()) if "id" in message}
        assert _contents(answers[1]["result"]["structuredContent"]) == list(MAIL)
        wait_until(lambda: not team.services.sessions.live("worker-a"), "the logout")
    assert team.unread("worker-a") == []


def test_a_slow_host_gets_every_answer_whole_and_its_next_call_confirms_them(team: Team) -> None:
    _post(team)
    with wire(team) as host:
        host.narrow()
        host.say(call(1, "read_messages"))
        host.wait_until_full()
        host.say(*(call(number, "list_agents") for number in range(2, 8)))
        heard = [host.hear() for _ in range(7)]
        answers = {message["id"]: message["result"]["structuredContent"] for message in heard}
        assert set(answers) == set(range(1, 8))
        assert _contents(answers[1]) == list(MAIL)
        host.call("list_agents")
        host.kill()
    assert _read_by_the_next_server(team) == []


def test_the_answer_that_was_taken_last_is_consumed_when_the_input_ends_behind_a_full_pipe(team: Team) -> None:
    _post(team)
    with wire(team) as host:
        assert host.call("read_messages", limit=1).done
        host.narrow()
        host.say(call(1, "read_messages"))
        host.wait_until_full()
        assert host.process.stdin is not None
        host.process.stdin.close()
        host.process.wait(ENDS_WITHIN_SECONDS * SLACK)
    assert _read_by_the_next_server(team) == list(MAIL[1:])


def test_calls_that_run_when_the_input_ends_are_answered_with_what_they_did(team: Team) -> None:
    """Formerly they were answered with "Connection closed", although the messages were stored."""
    team.services.workspace.registry.update("admin", pane_id="%1")
    with wire(team) as host:
        numbers = range(1, 4)
        with team.services.workspace.locks.held("doorbell-admin"):
            sends = (
                call(number, "send_message", receiver_id="admin", content=f"number {number}") for number in numbers
            )
            host.say(*sends)
            assert host.process.stdin is not None
            host.process.stdin.close()
            with pytest.raises(subprocess.TimeoutExpired):  # they are not cut off while they wait for the lock
                host.process.wait(1)
        heard = [host.hear() for _ in numbers]
        assert host.process.wait(ENDS_WITHIN_SECONDS * SLACK) == 0
    answers = {answer["id"]: answer.get("result", {}).get("structuredContent", answer) for answer in heard}
    assert {answer["message_id"] for answer in answers.values()} == {message.id for message in team.unread("admin")}
    assert set(answers) == set(numbers)


def test_calls_that_write_do_so_in_their_order_and_wait_for_none_that_waits(team: Team) -> None:
    """A host may send many calls before it reads the first answer; only the last one's is awaited here."""
    with wire(team) as host:
        sends = [call(number, "send_message", receiver_id="admin", content=str(number)) for number in range(1, 31)]
        host.say(call(0, "get_next_action", timeout_seconds=600), *sends)
        host.heard_until(30)
        contents = [message.content for message in sorted(team.mailbox("admin"), key=lambda item: item.created_at)]
        assert contents == [str(number) for number in range(1, 31)]


def test_requests_from_a_file_are_answered_into_a_file(team: Team, tmp_path: Path) -> None:
    questions, answers = tmp_path / "questions", tmp_path / "answers"
    questions.write_bytes(b"[1]\n" + b'{"jsonrpc": "2.0", "id": 2, "method": 5}')
    with questions.open() as stdin, answers.open("w") as stdout:
        command = [*COMMAND, "serve", "--root", str(team.root), "--session", team.session, "--agent", "worker-a"]
        done = subprocess.run(command, env=team.env, stdin=stdin, stdout=stdout, check=False, timeout=60)
    assert done.returncode == 0
    assert answers.read_text(encoding="utf-8").count('"error"') == 2


def test_serve_without_standard_input_or_output_is_one_sentence(team: Team) -> None:
    command = f"{' '.join(COMMAND)} serve --root {team.root} --session {team.session} --agent worker-a"
    for closed in ("<&-", ">&-"):
        ran = subprocess.run(
            ["sh", "-c", f"{command} {closed}"], env=team.env, capture_output=True, text=True, check=False, timeout=30
        )
        assert ran.returncode == 2
        assert ran.stderr.startswith("multi-agent-mcp: "), ran.stderr
        assert len(ran.stderr.splitlines()) == 1
