"""With which conversation a host begins (docs/protocol.md, Continuing a conversation)."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.hosts import hosts
from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
from multi_agent_mcp.system.process import end
from multi_agent_mcp.windows import agent_command
from multi_agent_mcp.windows.agent_command import Beginning, beginning_of, command_of, refuse, set_aside
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import send

ID = str(uuid.uuid4())  # of this process: what others run must not have it open
COMMANDS = {"gemini": "gemini {mcp_config}"}


def command(services: Services, text: str, **fields: object) -> None:
    services.agents.change("worker-a", command=text, **fields)


def conversed(
    services: Services, host: str, conversation: str = ID, purpose: str = "task", *, ends: bool = True
) -> LiveSession:
    """A session of worker-a in a conversation of this host."""
    session = services.sessions.open("worker-a", purpose)
    session.note_conversation(host, conversation)
    if ends:
        session.end()
    return session


def begun(services: Services, purpose: str = "task", *, fresh: bool = False) -> Beginning:
    return beginning_of(services, services.agents.get("worker-a"), purpose, fresh=fresh)


def words(services: Services, beginning: Beginning) -> list[str]:
    return shlex.split(command_of(services, services.agents.get("worker-a"), "task", beginning) or "")


@pytest.mark.parametrize("host", sorted(hosts()))
def test_each_host_is_told_which_conversation_to_continue_before_its_other_words(services: Services, host: str) -> None:
    command(services, f"{host} {'{mcp_config}' if host != 'gemini' else ''} --model 'a b'")
    assert begun(services).why == ("no_way" if host == "gemini" else "first")
    conversed(services, host)
    if host == "gemini":  # without our settings it might lose the conversation
        services.agents.change("worker-a", command="gemini {mcp_config} --model 'a b'")
        beginning = begun(services)
        assert beginning.words == f"--resume {ID}"
        return
    beginning = begun(services)
    assert (beginning.conversation, beginning.why) == (ID, None)
    found = words(services, beginning)
    assert found[0] == host
    assert any(word.endswith(ID) for word in found[1:3])
    assert "--model" in found
    assert "a b" in found


def test_there_is_a_prompt_only_if_there_is_something_to_do(services: Services) -> None:
    command(services, "'/a place/claude' --verbose")
    conversed(services, "claude")
    assert words(services, begun(services)) == ["/a place/claude", "--resume", ID, "--verbose"]
    send(services, "admin", "worker-a")
    *_, prompt = words(services, begun(services))
    assert prompt == services.texts("doorbell.begin")
    services.agents.note("worker-a", prompt=" ")
    assert words(services, begun(services)) == ["/a place/claude", "--resume", ID, "--verbose"]


def test_one_that_another_agent_s_hooks_have_named_is_not_continued(services: Services) -> None:
    command(services, "claude")
    conversed(services, "claude")
    state = {"transcripts": {ID: ["claude", None]}}
    services.workspace.hook_state("worker-b", "task").write(state)
    assert begun(services).why == "first"
    services.workspace.hook_state("worker-a", "task").write(state)
    assert begun(services).conversation == ID


def test_it_is_the_last_one_of_that_purpose_in_that_host(services: Services, clock: Clock) -> None:
    told = [("claude", "task"), ("codex", "task"), ("claude", "task"), ("claude", "chat")]
    for number, (host, purpose) in enumerate(told):
        conversation = f"conversation-number-{number}"
        clock.advance(1)
        conversed(services, host, conversation, purpose)
    command(services, "claude")
    assert begun(services).conversation == "conversation-number-2"
    assert begun(services, "chat").conversation == "conversation-number-3"
    command(services, "codex")
    assert begun(services).conversation == "conversation-number-1", "the one from before the host was changed"
    command(services, "opencode")
    assert begun(services).why == "first"


def test_what_says_otherwise_wins(services: Services) -> None:
    conversed(services, "claude")
    command(services, "claude")
    assert begun(services, fresh=True).why == "asked"
    for text in ("claude --resume x", "claude -c", "claude -p hello"):
        command(services, text)
        assert begun(services).why == "own_words"
    for text in ("cd x && claude", "FOO=1 claude", "exec claude"):
        command(services, text)
        assert begun(services).why in (None, "no_way")
        assert not begun(services).continues
    command(services, "python3 -m something")
    assert begun(services) == Beginning()
    command(services, "claude", resume=False)
    assert begun(services).why == "team"


def test_a_team_may_say_it_for_all(services: Services) -> None:
    conversed(services, "claude")
    command(services, "claude")
    settings = services.workspace.settings_path
    settings.write_text(f"{settings.read_text(encoding='utf-8')}resume: false\n", encoding="utf-8")
    again = open_session(services.root, services.session.name, notifier=Recorder())
    assert begun(again).why == "team"
    again.agents.change("worker-a", resume=True)
    assert begun(again).continues, "an agent's own word counts"


def test_a_refused_one_or_one_of_another_directory_is_not_continued(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversed(services, "opencode")
    conversed(services, "claude")
    monkeypatch.chdir(tmp_path)
    command(services, "opencode")
    assert begun(services).why == "moved"
    command(services, "claude")
    assert begun(services).continues, "it does not mind"
    refuse(services, ID)
    assert begun(services).why == "refused"


class TestStillOpen:
    """A conversation that a living process has open, and does not close, is left alone."""

    @pytest.fixture(autouse=True)
    def at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(agent_command, "PARTING_SECONDS", 0.0)

    def test_by_one_of_our_servers(self, services: Services) -> None:
        command(services, "claude")
        session = conversed(services, "claude", ends=False)
        assert begun(services).why == "open"
        beginning = beginning_of(services, services.agents.get("worker-a"), "task", ending=[os.getpid()])
        assert beginning.continues, "it ends before the host starts"
        session.end()
        assert begun(services).continues

    def test_by_its_arguments_or_a_file_that_it_writes(self, services: Services, tmp_path: Path) -> None:
        command(services, "claude")
        conversed(services, "claude")
        rollout = tmp_path / f"rollout-{ID}.jsonl"
        rollout.touch()
        for code, arguments in (("", [f"--resume={ID}"]), (f"f = open({str(rollout)!r}, 'a')", [])):
            with running(code, *arguments):
                assert begun(services).why == "open"
        output = tmp_path / ID / "output"  # of what one of its tools has left running
        output.parent.mkdir()
        for code, arguments in (
            ("", [f"new-window claude --resume {ID}"]),
            (f"f = open({str(rollout)!r})", []),
            (f"f = open({str(output)!r}, 'a')", []),
        ):
            with running(code, *arguments):
                assert begun(services).continues

    def test_not_by_one_that_ends_just_then(self, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(agent_command, "PARTING_SECONDS", 60.0)
        command(services, "claude")
        conversed(services, "claude")
        with running("", f"--resume={ID}") as process:
            ending = threading.Timer(0.3, process.kill)
            ending.start()
            assert begun(services).continues
            ending.join()

    def test_by_the_hosts_own_file(self, services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
        command(services, "claude")
        conversed(services, "claude")
        noted = tmp_path / "sessions" / f"{os.getppid()}.json"
        noted.parent.mkdir()
        noted.write_text(f'{{"sessionId": "{ID}"}}', encoding="utf-8")
        assert begun(services).why == "open"
        noted.rename(noted.with_name("999999999.json"))
        assert begun(services).continues


def test_a_conversation_that_was_set_aside_is_not_continued_though_the_new_one_died_without_an_id(
    services: Services, clock: Clock
) -> None:
    conversed(services, "claude")
    command(services, "claude")
    set_aside(services, services.agents.get("worker-a"), "task")
    assert begun(services).why == "asked"
    clock.advance(1)
    conversed(services, "claude", str(uuid.uuid4()))
    assert begun(services).continues


@contextmanager
def running(code: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of another program, with these arguments, that waits."""
    text = f"{code}\nprint(flush=True)\nimport sys\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", text, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            end(process.pid, signal.SIGKILL, 5)


def test_the_directory_is_recorded_with_the_conversation(services: Services) -> None:
    record = conversed(services, "claude").record
    assert (record.host, record.host_session, record.host_directory) == ("claude", ID, os.getcwd())  # noqa: PTH109
    assert replace(record).in_conversation(None, None) == record
