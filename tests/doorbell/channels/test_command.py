"""`notify_command`: run without a shell, with nothing an agent wrote, and never waited for long. Played with real
programs."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery, Due
from multi_agent_mcp.domain.dialog import Asked
from multi_agent_mcp.doorbell.channels import NotifyCommand, default_chain
from multi_agent_mcp.doorbell.ringing import Doorbell
from multi_agent_mcp.environment import PASSKEY
from multi_agent_mcp.services.questions import Asking
from multi_agent_mcp.settings import Settings
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import by_hand, read, send

OWNER = Agent(id="owner", role="owner", type="human")
FAILED = Delivery("stored", "notify_command_failed")
RUNG = Delivery("rung", "notify_command")


class Program:
    """A program that writes down its arguments and its environment, then does `then`."""

    def __init__(self, path: Path, then: str = "") -> None:
        self.path = path
        self.said = path.with_suffix(".said")
        self.environment = path.with_suffix(".environment")
        self.then(then)

    def then(self, then: str) -> None:
        said = f'for part in "$@"; do printf "%s\\0" "$part" >> {self.said}; done; env > {self.environment}'
        self.path.write_text(f"#!/bin/sh\n{said}\n{then}\n", encoding="utf-8")
        self.path.chmod(0o700)

    def arguments(self) -> list[str]:
        return self.said.read_text(encoding="utf-8").split("\0")[:-1] if self.said.exists() else []


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path / "push")


def channel(services: Services, command: Sequence[str], seconds: float = 30.0) -> NotifyCommand:
    return NotifyCommand(command, services.workspace.notify_command_failure, services.clock, seconds)


def doorbell(services: Services, *command: str) -> Doorbell:
    """A doorbell with every channel, for a session whose session.yaml has this command."""
    settings = Settings(language="en", notify_command=command)
    with_command = Services(replace(services.session, settings=settings))
    return Doorbell(with_command.session, default_chain(services.workspace, settings, services.texts))


def test_the_line_is_wherever_an_argument_asks_for_it_and_no_shell_sees_it(
    services: Services, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSKEY, "secret")
    command = [str(program.path), "publish", "$HOME", "{line}", "title={line};", "{lines} {0}"]
    assert channel(services, command).ring(OWNER, "[IPC] a\n$(touch pwned)\x1b[2J") == RUNG
    line = "[IPC] a $(touch pwned) [2J"
    assert program.arguments() == ["publish", "$HOME", line, f"title={line};", "{lines} {0}"]
    assert "secret" not in program.environment.read_text(encoding="utf-8")


def test_it_is_for_people_only(services: Services, program: Program) -> None:
    push = channel(services, [str(program.path), "{line}"])
    assert push.ring(Agent(id="worker-a"), "x") == Delivery("stored", "not_human")
    assert push.ring(Agent(id="helper", role="worker", type="human"), "x") == RUNG
    assert program.arguments() == ["x"]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ([], "bad_notify_command"),
        (["no-such-program", "{line}"], "no_notify_command"),
        (["/bin", "{line}"], "no_notify_command"),
        (["false", "{line}"], "notify_command_failed"),
    ],
)
def test_a_command_that_cannot_be_run_or_fails_is_no_ring(services: Services, command: list[str], reason: str) -> None:
    assert channel(services, command).ring(OWNER, "x") == Delivery("stored", reason)


def test_a_program_that_is_none_is_a_failure_that_is_written_down(services: Services, tmp_path: Path) -> None:
    (tmp_path / "broken").write_bytes(b"\x7fELF no program")
    (tmp_path / "broken").chmod(0o700)
    assert channel(services, [str(tmp_path / "broken")]).ring(OWNER, "x") == FAILED
    assert services.workspace.notify_command_failure.read()["failure"] == "ENOEXEC"


def test_a_failure_is_forgotten_when_the_command_works_again(services: Services, program: Program) -> None:
    program.then("exit 3")
    push = channel(services, [str(program.path)])
    assert push.ring(OWNER, "x") == FAILED
    assert services.workspace.notify_command_failure.read()["failure"] == "exit 3"
    program.then("exit 0")
    assert push.ring(OWNER, "x") == RUNG
    assert services.workspace.notify_command_failure.read() is None


def test_a_command_that_hangs_is_killed_with_what_it_started_and_no_sender_waits_for_it_again_soon(
    services: Services, program: Program, clock: Clock, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    program.then(f"(exec sleep 1000 > {pipe}) &\ntrap '' TERM\nsleep 1000")
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)) as lives:
        os.set_blocking(lives.fileno(), True)
        push = channel(services, [str(program.path), "x"], seconds=1.0)
        assert push.ring(OWNER, "x") == FAILED
        assert lives.read() == ""  # the end of the file: nobody holds it open any more
    for _ in range(20):
        assert push.ring(OWNER, "x") == FAILED
    assert program.arguments() == ["x"]
    assert push.check(OWNER) == "notify_command_failed"
    clock.advance(61)
    program.then("exit 0")
    assert push.ring(OWNER, "x") == RUNG


def test_a_command_that_leaves_something_running_and_ends_has_rung(services: Services, program: Program) -> None:
    program.then("sleep 1 &\nexit 0")
    began = time.monotonic()
    assert channel(services, [str(program.path)]).ring(OWNER, "x") == RUNG
    assert time.monotonic() - began < 1


def test_it_is_run_instead_of_the_desktop_notice_which_follows_when_it_fails(
    services: Services, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "desk"
    path.mkdir()
    notice = Program(path / "notify-send")
    monkeypatch.setenv("PATH", f"{path}:/usr/bin:/bin")
    send(services, "admin", "owner")
    services.workspace.delivery_log("owner").path.unlink()
    assert doorbell(services, str(program.path), "{line}").ring("owner")[0] == RUNG
    assert notice.arguments() == []
    services.workspace.delivery_log("owner").path.unlink()
    assert doorbell(services, "false").ring("owner")[0] == Delivery("rung", "desktop")


@pytest.mark.parametrize("hostile", ["{line}", "$(touch pwned)", "--help", "`id`", "a;b"])
def test_what_a_sender_wrote_never_reaches_the_command(services: Services, program: Program, hostile: str) -> None:
    header = f'sender_id: "{hostile}"\nmessage_type: "{hostile}"\nsubject: "{hostile}"'
    by_hand(services, "owner", "note.md", f"---\n{header}\n---\n\n{hostile}")
    assert doorbell(services, str(program.path), "{line}").ring("owner")[0] == RUNG
    assert program.arguments() == ["[IPC] New message: request from unknown"]


def test_trace_and_the_log_say_what_became_of_it(services: Services, program: Program) -> None:
    bell = doorbell(services, "false")
    send(services, "admin", "owner")
    read(services, "owner")
    by_hand(services, "owner", "note.md", "---\nsender_id: admin\n---\n\nx")
    ((_, message),) = services.workspace.mailbox("owner").unread()
    services.workspace.delivery_log("owner").path.unlink()
    bell.announce([message])
    doorbell(services, str(program.path), "{line}").announce([message])
    steps = services.tracking.steps(message)
    assert [(step["state"], step["reason"]) for step in steps] == [
        ("deferred", "notify_command_failed"),
        ("rung", "notify_command"),
    ]


def test_without_one_nothing_is_said_of_it(services: Services) -> None:
    chain = default_chain(services.workspace, Settings(), services.texts)
    assert "notify_command" not in [report.name for report in chain.explain(OWNER)]
    named = Agent(id="owner", role="owner", extra={"ladder": ["notify_command"]})
    assert [report.reason for report in chain.explain(named)] == ["no_such_channel"]


def test_a_question_and_a_hosts_dialog_ring_at_once_and_once_each_with_their_kind_and_id(
    services: Services, program: Program, clock: Clock
) -> None:
    send(services, "admin", "owner", "{id} is no place")
    bell = doorbell(services, str(program.path), "{kind}", "{id}", "{line}")
    bell.ring("owner")  # outstanding: nothing else would ring for half a minute
    asking = replace(services, chosen_notifier=bell.notifier)
    for _ in range(2):
        question = asking.questions.ask(services.agents.get("admin"), Asking(question="{kind}?"), None)
    bell.announce_questions("owner")
    asked = Asked("worker-a", "permission", clock())
    for dialog in (asked, asked, replace(asked, dialog_id="0123456789ab")):
        bell.announce_dialog(dialog)
    assert program.arguments() == [
        *("question", question.id, "[IPC] New notification: question from admin"),
        *("dialog", "worker-a", "[IPC] A question waits in the pane of worker-a") * 2,
    ]
    clock.advance(1)
    assert bell.ring_again("owner") == (None, Due())
