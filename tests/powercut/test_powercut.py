"""The short form of `scripts/powercut`: what was acknowledged is there after the power was cut, and whole.

In a process of its own, because it forks and pytest has threads. As root only; elsewhere it says why not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.powercut.__main__ import main
from tests.powercut.machine import missing

REPOSITORY = Path(__file__).parents[2]


def cut(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.powercut", "--seconds", "1", *options],
        cwd=REPOSITORY,
        env={key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "PYTHONPATH")},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=300,
    )


@pytest.fixture
def machine() -> None:
    if (reason := missing()) is not None:
        pytest.skip(reason)


def test_what_was_acknowledged_is_there_after_a_power_cut(machine: None) -> None:
    done = cut("--cuts", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 cuts, " in done.stdout
    assert " 0 looks for" not in done.stdout


def test_a_program_that_forgets_fsync_is_found_out(machine: None) -> None:
    done = cut("--cuts", "2", "--unsynced")
    assert done.returncode == 1, done.stdout + done.stderr


def test_who_may_not_mount_is_told_so_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["powercut", "--cuts", "1"])
    assert main() == 2
    assert capsys.readouterr().err == "powercut: it mounts file systems, so it must be run as root.\n"
