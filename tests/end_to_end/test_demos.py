"""The README's promises to its readers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from socket import create_server

import pytest

from tests.end_to_end.support import COMMAND, REPOSITORY, Team

DEMO_SECONDS = 600
JAPANESE = {"LC_ALL": "ja_JP.UTF-8"}


def played(command: list[str], cwd: Path, env: Mapping[str, str]) -> str:
    """The output of a command that must end well."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**env, **JAPANESE},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=DEMO_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.tmux
@pytest.mark.parametrize(
    ("scene", "told"),
    [
        ("main", ["task_assign", "task_complete", "# ダッシュボード"]),
        ("interrupt", ["replaced by an interrupt", "タスクを blocked にしてから report_completed まで: "]),
        ("morning", ["$ tmux kill-server", "[4/4] まで済み"]),
        ("proven", ["expected hello, greeting.txt says: helo", "tests: passed", "review → done"]),
        ("question", ["どの色にしますか？ → 青 (owner)", "門を塗る: done, 青 で塗りました。"]),
        ("shiritori", ["りんご", "かもめ", "しりとり完了: 12語"]),
    ],
)
def test_every_step_of_a_demo_happens(tmp_path: Path, env: dict[str, str], scene: str, told: list[str]) -> None:
    output = played([*COMMAND, "demo", scene, "--directory", str(tmp_path / "place")], tmp_path, env)
    assert output.splitlines()[-1] == "すべての段階が行われました"
    for text in told:
        assert text in output
    picture = (tmp_path / "place" / "timeline.svg").read_text(encoding="utf-8")
    assert 'data-id="worker-a"' in picture


@pytest.mark.slow
@pytest.mark.tmux
def test_every_step_happens_across_three_machines(tmp_path: Path, env: dict[str, str]) -> None:
    output = played([*COMMAND, "demo", "machines", "--directory", str(tmp_path / "place")], tmp_path, env)
    assert output.splitlines()[-1] == "すべての段階が行われました"
    assert "admin@desk → worker-b@shed" in output


@pytest.mark.slow
@pytest.mark.tmux
def test_the_office_can_be_visited_until_it_is_closed(tmp_path: Path, env: dict[str, str]) -> None:
    with subprocess.Popen(
        [*COMMAND, "demo", "office", "--directory", str(tmp_path / "place")],
        cwd=tmp_path,
        env={**env, **JAPANESE},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    ) as demo:
        assert demo.stdout is not None
        assert any("/open?ticket=" in line for line in demo.stdout)
        os.killpg(demo.pid, signal.SIGINT)
        assert demo.stdout.read().splitlines()[-1] == "すべての段階が行われました"


@pytest.mark.slow
@pytest.mark.tmux
def test_a_demo_leaves_a_session_alone_that_is_there_already(bare: Team) -> None:
    root = bare.base / ".multi-agent-mcp"
    bare.ask("init", "--team", REPOSITORY / "examples" / "team.yaml", "--root", root)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    ran = bare.run("demo", "--directory", bare.base)
    assert (ran.code, ran.stdout) == (1, "")
    assert ran.stderr.startswith("multi-agent-mcp: already_exists: ")
    assert len(ran.stderr.splitlines()) == 1
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


@pytest.mark.tmux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_an_office_that_is_told_to_end_leaves_no_tmux_and_no_console(
    tmp_path: Path, env: dict[str, str], number: signal.Signals
) -> None:
    with subprocess.Popen(
        [*COMMAND, "demo", "office", "--directory", str(tmp_path / "place")],
        cwd=tmp_path,
        env={**env, **JAPANESE},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as demo:
        try:
            assert demo.stdout is not None
            socket = demo.stdout.readline().split()[2]
            port = next(found[1] for text in demo.stdout if (found := re.search(r":(\d+)/open\?ticket=", text)))
            demo.send_signal(number)
            errors = demo.communicate(timeout=DEMO_SECONDS)[1]
        finally:
            demo.terminate()
    assert (demo.returncode, errors) == (128 + number, "")
    assert subprocess.run(["tmux", "-S", socket, "has-session"], capture_output=True, check=False).returncode == 1
    assert not Path(socket).parent.exists()
    with closing(create_server(("127.0.0.1", int(port)))):
        pass  # nobody serves there any more
