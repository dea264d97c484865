"""Desktop notices: the text is an argument, never built into a script. Played with real executables on PATH."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from multi_agent_mcp.bootstrap import Services
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.notify.channels.chain import default_chain
from multi_agent_mcp.notify.channels.desktop import DesktopNotifier
from multi_agent_mcp.notify.doorbell import Doorbell
from tests.services.support import by_hand, send

HUMAN = Agent(id="owner", role="owner", type="human")
HOSTILE = [
    '" & (do shell script "touch pwned") & "',
    "$(touch pwned)",
    "`touch pwned`",
    "x'; touch pwned; '",
    "-e",
    "--help",
    "%s%n",
    "\\\\\"'",
]


class SessionContext:
    """A PATH that holds nothing but the desktop programs a test puts there; they write down their arguments."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.said = path / "arguments"

    def has(self, program: str, exit_code: int = 0) -> None:
        script = self.path / program
        lines = ["#!/bin/sh", f'for a in "$@"; do printf "%s\\0" "$a" >> {shlex.quote(str(self.said))}; done']
        script.write_text("\n".join([*lines, f"exit {exit_code}", ""]))
        script.chmod(0o700)

    def arguments(self) -> list[str]:
        return self.said.read_bytes().decode().split("\0")[:-1] if self.said.exists() else []


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SessionContext:
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.chdir(tmp_path)
    return SessionContext(path)


def ring(line: str = "[IPC] x", agent: Agent = HUMAN) -> Delivery:
    return DesktopNotifier("Multi-Agent MCP").ring(agent, line)


@pytest.mark.parametrize("line", HOSTILE)
def test_osascript_gets_title_and_line_as_its_last_arguments(desk: SessionContext, tmp_path: Path, line: str) -> None:
    desk.has("osascript")
    assert ring(line) == Delivery("rung", "desktop")
    *script, title, text = desk.arguments()
    assert (title, text) == ("Multi-Agent MCP", line)
    assert script == [
        "-e",
        "on run argv",
        "-e",
        "display notification (item 2 of argv) with title (item 1 of argv)",
        "-e",
        "end run",
    ]
    assert not list(tmp_path.glob("pwned"))


@pytest.mark.parametrize("line", HOSTILE)
def test_notify_send_gets_the_title_first_and_then_the_line(desk: SessionContext, tmp_path: Path, line: str) -> None:
    desk.has("notify-send")
    assert ring(line) == Delivery("rung", "desktop")
    assert desk.arguments() == ["--", "Multi-Agent MCP", line]
    assert not list(tmp_path.glob("pwned"))


def test_osascript_is_taken_where_both_are_there(desk: SessionContext) -> None:
    desk.has("osascript")
    desk.has("notify-send")
    ring()
    assert desk.arguments()[0] == "-e"


def test_without_a_desktop_program_nothing_is_rung(desk: SessionContext) -> None:
    assert ring() == Delivery("stored", "no_desktop")


def test_a_desktop_program_that_fails_is_said_to_have_failed(desk: SessionContext) -> None:
    desk.has("notify-send", exit_code=1)
    assert ring() == Delivery("stored", "desktop_failed")
    (desk.path / "notify-send").write_bytes(b"\x7fELF no program")
    assert ring() == Delivery("stored", "desktop_failed")


def test_control_characters_do_not_reach_the_desktop(desk: SessionContext) -> None:
    desk.has("notify-send")
    ring("a\x00b\nc\x1b[31m\u202ed")
    assert desk.arguments()[-1] == "a b c [31m d"


def test_only_people_get_desktop_notices(desk: SessionContext) -> None:
    desk.has("notify-send")
    assert ring(agent=Agent(id="worker-a")) == Delivery("stored", "not_human")
    assert ring(agent=Agent(id="helper", role="worker", type="human")) == Delivery("rung", "desktop")
    assert ring(agent=Agent(id="boss", role="owner", type="ai")) == Delivery("rung", "desktop")


@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_a_sender_wrote_never_reaches_the_desktop(desk: SessionContext, services: Services, hostile: str) -> None:
    desk.has("notify-send")
    doorbell = Doorbell(
        services.workspace,
        services.notifications,
        default_chain(services.workspace, services.settings, services.texts),
        services.settings,
        services.texts,
        services.clock,
    )
    header = f"sender_id: {hostile!r}\nmessage_type: {hostile!r}\nsubject: {hostile!r}" if "'" not in hostile else ""
    by_hand(services, "owner", "note.md", f"---\n{header or 'subject: x'}\n---\n\n{hostile}")
    delivery, _ = doorbell.ring("owner")
    assert delivery == Delivery("rung", "desktop")
    assert desk.arguments() == ["--", "Multi-Agent MCP", "[IPC] New message: request from unknown"]


def test_a_message_to_the_owner_reaches_the_desktop(desk: SessionContext, services: Services) -> None:
    desk.has("notify-send")
    doorbell = Doorbell(
        services.workspace,
        services.notifications,
        default_chain(services.workspace, services.settings, services.texts),
        services.settings,
        services.texts,
        services.clock,
    )
    send(services, "admin", "owner", "secret content", subject="secret subject")
    ((_, message),) = services.workspace.mailbox("owner").unread()
    (services.workspace.path / ".doorbell" / "owner.jsonl").unlink()
    assert doorbell.announce([message])["owner"] == Delivery("rung", "desktop")
    assert desk.arguments()[-1] == "[IPC] New message: request from admin"
