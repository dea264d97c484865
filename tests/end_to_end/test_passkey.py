"""The passkey leaves the environment as soon as it is read: nothing that we start inherits it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.support import TEAM, UP, Team, eventually, run, wait_until

pytestmark = pytest.mark.anyio

VARIABLE = "MULTI_AGENT_MCP_PASSKEY"
SECRET = "a-passkey-that-nobody-inherits"

SHOWING = f"""
import os, sys
from multi_agent_mcp.__main__ import main
try:
    main()
except SystemExit:
    pass
print("left:", os.environ.get("{VARIABLE}"), os.environ["MULTI_AGENT_MCP_ROOT"])
"""


@pytest.mark.parametrize(
    "command",
    [("unread",), ("serve", "--help"), ("serve", "--agent", "worker-a"), ("--version",)],
    ids=" ".join,
)
def test_no_command_keeps_it(team: Team, command: tuple[str, ...]) -> None:
    env = {**team.env, VARIABLE: SECRET, "MULTI_AGENT_MCP_ROOT": str(team.root), "MULTI_AGENT_MCP_AGENT": "worker-a"}
    ran = run([sys.executable, "-c", SHOWING, *command], env=env, cwd=team.base, stdin=b"{}")
    assert ran.stdout.splitlines()[-1] == f"left: None {team.root}"


@pytest.fixture
def socket(env: dict[str, str]) -> Iterator[str]:
    """A socket without a tmux server: `up` starts it."""
    directory = Path(tempfile.mkdtemp(prefix="mam-", dir="/tmp"))
    yield str(directory / "s")
    subprocess.run(["tmux", "-S", str(directory / "s"), "kill-server"], env=env, capture_output=True, check=False)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.tmux
def test_up_leaves_it_neither_in_the_tmux_server_nor_in_a_pane(bare: Team, socket: str) -> None:
    team = bare.make(TEAM.replace("{id: worker-a,", "{command: cat, id: worker-a,"))
    team.ask(*UP, "--socket", socket, "--no-supervisor", env={VARIABLE: SECRET})
    shown = subprocess.run(
        ["tmux", "-S", socket, "show-environment", "-g"], env=team.env, capture_output=True, check=True
    ).stdout
    assert b"HOME=" in shown
    assert SECRET.encode() not in shown
    process = Path(f"/proc/{team.services.agents.get('worker-a').pane_pid}")
    wait_until(lambda: (process / "comm").read_text() == "cat\n", "the pane's program runs")
    inherited = (process / "environ").read_bytes()
    assert b"MULTI_AGENT_MCP_AGENT=worker-a" in inherited
    assert SECRET.encode() not in inherited


async def test_a_server_is_proved_by_it_signs_with_it_and_hands_it_to_no_child(team: Team, tmp_path: Path) -> None:
    passkey, written = team.key("worker-a"), tmp_path / "environment"
    (team.path / "secrets" / "worker-a.key").unlink()
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "tmux").write_text(f"#!/bin/sh\nenv > {written}.part && mv {written}.part {written}\nexit 1\n")
    (programs / "tmux").chmod(0o755)
    env = {VARIABLE: passkey, "PATH": f"{programs}:{team.env['PATH']}", "TMUX": "/nowhere,1,0", "TMUX_PANE": "%1"}
    async with team.server("worker-a", env=env) as worker, team.server("admin") as admin:
        await worker.call("send_message", receiver_id="admin", content="hello")
        await eventually(written.exists, "the server asks tmux for its pane")
        (shown,) = (await admin.call("read_messages"))["messages"]
    assert "verified" not in shown
    inherited = written.read_text()
    assert "TMUX_PANE=%1" in inherited
    assert passkey not in inherited
