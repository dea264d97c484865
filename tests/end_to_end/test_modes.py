"""Directories are 0700 and files 0600, whatever umask a process was started with."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.support import TEAM, UP, Team, Terminal

UMASKS = (0o000, 0o777)
"""Permissions for everybody; no permissions even for the owner."""


@contextmanager
def started_with(umask: int) -> Iterator[None]:
    """Processes that are started now inherit the umask."""
    before = os.umask(umask)
    try:
        yield
    finally:
        os.umask(before)


def wrong_modes(path: Path) -> dict[str, str]:
    """Path → mode of everything in the tree, its root included, whose mode is wrong."""
    found = [path, *path.rglob("*")]
    assert len(found) > 20
    modes = {item: item.lstat().st_mode for item in found}
    return {
        str(item.relative_to(path)): oct(stat.S_IMODE(mode))
        for item, mode in modes.items()
        if stat.S_IMODE(mode) != (0o700 if stat.S_ISDIR(mode) else 0o600)
    }


def live_through(team: Team, umask: int) -> None:
    """Runs one of each command that writes."""
    with started_with(umask):
        team.ask("init", "--team", team.base / "team.yaml")
        team.ask("agent", "add", "worker-c", "--parent", "admin")
        message_id = team.send("worker-a", "hello")["message_id"]
        team.send("all", "hello")
        task = team.ask("task", "add", "Build", "--assignee", "worker-a")["task_id"]
        team.ask("task", "status", task, "in_progress")
        team.ask("interrupt", "worker-a", "--action", "blocked")
        team.ask("read", "worker-a")
        team.ask("trace", message_id)
        team.ask("agent", "remove", "worker-c")
        (team.path / "ipc" / "worker-b" / "bad.md").write_text("no front matter")
        (team.path / "ipc" / "worker-b" / "bad.md").chmod(0o600)
        team.ask("read", "worker-b")
        team.run("doctor")
        team.ask("host-config", "claude", "--agent", "worker-a", "--write")
        team.run("hook", "--agent", "worker-a", stdin=b'{"hook_event_name": "Stop"}')


@pytest.mark.parametrize("umask", UMASKS, ids=oct)
def test_every_command_makes_private_files_under_any_umask(bare: Team, umask: int) -> None:
    (bare.base / "team.yaml").write_text(TEAM)
    live_through(bare, umask)
    assert wrong_modes(bare.root) == {}


@pytest.mark.anyio
@pytest.mark.parametrize("umask", UMASKS, ids=oct)
async def test_servers_make_private_files_under_any_umask(team: Team, umask: int) -> None:
    with started_with(umask):
        async with team.server("admin", "--purpose", "task") as admin, team.server("worker-a") as worker:
            task = (await admin.call("send_task", agent_id="worker-a", title="Build", content="x"))["task_id"]
            await worker.call("read_messages")
            await worker.call("get_next_action")
            await worker.call("report_task_progress", task_id=task, progress=50)
            await admin.call("read_messages")
            await admin.call("delegate_to_chat_session", target_agent_id="worker-a", purpose="talk")
            async with team.server("admin", "--purpose", "chat") as chat:
                asked = {"target_agent_id": "worker-a", "initial_message": "hello"}
                conversation = (await chat.call("start_conversation", **asked))["conversation_id"]
                await chat.call("notify_task_session", conversation_id=conversation, priority="high")
    assert wrong_modes(team.root) == {}


def test_a_team_in_tmux_makes_private_files(bare: Team, terminal: Terminal) -> None:
    text = TEAM.replace("parent: owner,", "parent: owner, command: 'tail -f {mcp_config}',")
    (bare.base / "team.yaml").write_text(text)
    with started_with(0):
        bare.ask("init", "--team", bare.base / "team.yaml")
        bare.ask(*UP, "--socket", terminal.socket, "--no-supervisor")
        bare.send("admin", "hello", sender="owner")
        bare.ask("down")
    assert (bare.path / "hosts" / "admin.mcp.json").is_file()
    assert wrong_modes(bare.root) == {}
