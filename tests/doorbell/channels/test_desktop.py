"""Desktop notices: the text is an argument, never built into a script. Played with real executables on PATH."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.doorbell.channels import DesktopNotifier, default_chain
from multi_agent_mcp.doorbell.ringing import Doorbell
from multi_agent_mcp.wiring import Services
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


class Desktop:
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
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desktop:
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.chdir(tmp_path)
    return Desktop(path)


def ring(line: str = "[IPC] x", agent: Agent = HUMAN) -> Delivery:
    return DesktopNotifier("Multi-Agent MCP").ring(agent, line)


def doorbell_of(services: Services) -> Doorbell:
    return Doorbell(
        services.session,
        default_chain(services.workspace, services.settings, services.texts),
    )


@pytest.mark.parametrize("line", HOSTILE)
def test_osascript_gets_title_and_line_as_its_last_arguments(desktop: Desktop, tmp_path: Path, line: str) -> None:
    desktop.has("osascript")
    assert ring(line) == Delivery("rung", "desktop")
    *script, title, text = desktop.arguments()
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
def test_notify_send_gets_the_title_first_and_then_the_line(desktop: Desktop, tmp_path: Path, line: str) -> None:
    desktop.has("notify-send")
    assert ring(line) == Delivery("rung", "desktop")
    assert desktop.arguments() == ["--", "Multi-Agent MCP", line]
    assert not list(tmp_path.glob("pwned"))


def test_osascript_is_taken_where_both_are_there(desktop: Desktop) -> None:
    desktop.has("osascript")
    desktop.has("notify-send")
    ring()
    assert desktop.arguments()[0] == "-e"


def test_without_a_desktop_program_nothing_is_rung(desktop: Desktop) -> None:
    assert ring() == Delivery("stored", "no_desktop")


def test_a_desktop_program_that_fails_is_said_to_have_failed(desktop: Desktop) -> None:
    desktop.has("notify-send", exit_code=1)
    assert ring() == Delivery("stored", "desktop_failed")
    (desktop.path / "notify-send").write_bytes(b"\x7fELF no program")
    assert ring() == Delivery("stored", "desktop_failed")


def test_control_characters_do_not_reach_the_desktop(desktop: Desktop) -> None:
    desktop.has("notify-send")
    ring("a\x00b\nc\x1b[31m\u202ed")
    assert desktop.arguments()[-1] == "a b c [31m d"


def test_only_people_get_desktop_notices(desktop: Desktop) -> None:
    desktop.has("notify-send")
    assert ring(agent=Agent(id="worker-a")) == Delivery("stored", "not_human")
    assert ring(agent=Agent(id="helper", role="worker", type="human")) == Delivery("rung", "desktop")
    assert ring(agent=Agent(id="boss", role="owner", type="ai")) == Delivery("rung", "desktop")


@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_a_sender_wrote_never_reaches_the_desktop(desktop: Desktop, services: Services, hostile: str) -> None:
    desktop.has("notify-send")
    header = f"sender_id: {hostile!r}\nmessage_type: {hostile!r}\nsubject: {hostile!r}" if "'" not in hostile else ""
    by_hand(services, "owner", "note.md", f"---\n{header or 'subject: x'}\n---\n\n{hostile}")
    delivery, _ = doorbell_of(services).ring("owner")
    assert delivery == Delivery("rung", "desktop")
    assert desktop.arguments() == ["--", "Multi-Agent MCP", "[IPC] New message: request from unknown"]


def test_a_message_to_the_owner_reaches_the_desktop(desktop: Desktop, services: Services) -> None:
    desktop.has("notify-send")
    send(services, "admin", "owner", "secret content", subject="secret subject")
    ((_, message),) = services.workspace.mailbox("owner").unread()
    (services.workspace.path / ".doorbell" / "owner.jsonl").unlink()
    assert doorbell_of(services).announce([message])["owner"] == Delivery("rung", "desktop")
    assert desktop.arguments()[-1] == "[IPC] New message: request from admin"
