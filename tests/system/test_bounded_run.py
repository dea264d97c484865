"""Commands that are run within bounds, as real processes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from multi_agent_mcp.system.bounded_run import Ended, cleaned_environment, run_bounded
from tests.lies.lies import processes_in


def run(directory: Path, script: str, *, seconds: float = 30, kept: int = 1_000) -> Ended | None:
    environment = cleaned_environment(CHECK="tests")
    return run_bounded(
        ["/bin/sh", "-c", script],
        directory,
        environment,
        seconds=seconds,
        output_bytes=kept,
        cancelled=lambda: (directory / "cancel").exists(),
    )


@pytest.mark.parametrize(
    ("script", "ended"),
    [
        ("echo out; echo err >&2; exit 3", Ended(3, "out\nerr\n")),
        ("kill -9 $$", Ended(137, "")),
        ("cat; tty; ps -o tty= -p $$", Ended(0, "not a tty\n?\n")),
        ("yes 0123456 | head -c 3000000 | tail -c 30000000; echo end", Ended(0, "0123456\n" * 12 + "end\n")),
    ],
)
def test_a_command_has_its_exit_code_the_end_of_its_output_and_no_terminal(
    tmp_path: Path, script: str, ended: Ended
) -> None:
    assert run(tmp_path, script, kept=100) == ended


@pytest.mark.parametrize(
    ("script", "failure"),
    [
        ("trap '' TERM INT HUP; sleep 300 & sleep 300", "timed_out"),
        ("setsid sleep 300 & exit 0", "left_processes"),
        ("(setsid sh -c 'sleep 300' &) ; exit 0", "left_processes"),
        ("env -i setsid sleep 300 & sleep 0.1; kill -9 $PPID; sleep 300", "killed"),
    ],
)
def test_whatever_it_starts_is_killed_with_it(tmp_path: Path, script: str, failure: str) -> None:
    ended = run(tmp_path, script, seconds=2)
    assert ended is not None
    assert (ended.failure, processes_in(tmp_path)) == (failure, [])


def test_it_is_cancelled_whole(tmp_path: Path) -> None:
    threading.Timer(0.2, (tmp_path / "cancel").touch).start()
    assert run(tmp_path, "sleep 300 & sleep 300") is None
    assert processes_in(tmp_path) == []


def test_what_cannot_be_started_says_so(tmp_path: Path) -> None:
    ended = run_bounded(["./nothing"], tmp_path, {}, seconds=5, output_bytes=100, cancelled=lambda: False)
    assert ended is not None
    assert (ended.exit_code, ended.failure) == (127, "not_started")


def test_its_environment_is_ours_without_our_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MULTI_AGENT_MCP_PASSKEY", "MULTI_AGENT_MCP_AGENT", "TMUX", "TMUX_PANE"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("KEPT", "y")
    found = cleaned_environment(TASK="tsk_0123456789ab")
    assert found["KEPT"] == "y"
    own = {name: value for name, value in found.items() if name.startswith(("MULTI_AGENT_MCP_", "TMUX"))}
    assert own == {"MULTI_AGENT_MCP_TASK": "tsk_0123456789ab"}
