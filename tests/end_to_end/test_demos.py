"""The README's promises to its readers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from socket import create_server

import pytest

from tests.end_to_end.support import COMMAND, REPOSITORY, Team, wait_until

DEMO_SECONDS = 600
IN_JAPANESE = ("--language", "ja")


def played(command: list[str], cwd: Path, env: Mapping[str, str]) -> str:
    """The output of a command that must end well."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=dict(env),
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
        (
            "interrupt",
            ["blocked --reason '", "replaced by an interrupt", "タスクを blocked にしてから report_completed まで: "],
        ),
        ("morning", ["$ tmux kill-server", "[4/4] まで済み"]),
        ("proven", ["expected hello, greeting.txt says: helo", "tests: passed", "review → done"]),
        ("gate", ["checks approve", "in_progress → review", "review → done"]),
        ("question", ["どの色にしますか？ → 青 (owner)", "門を塗る: done, 青 で塗りました。"]),
        ("shiritori", ["りんご", "かもめ", "しりとり完了: 12語"]),
    ],
)
def test_every_step_of_a_demo_happens(tmp_path: Path, env: dict[str, str], scene: str, told: list[str]) -> None:
    output = played([*COMMAND, "demo", scene, *IN_JAPANESE, "--directory", str(tmp_path / "place")], tmp_path, env)
    assert output.splitlines()[-1] == "すべての段階が行われました"
    for text in told:
        assert text in output
    picture = (tmp_path / "place" / "timeline.svg").read_text(encoding="utf-8")
    assert 'data-id="worker-a"' in picture


@pytest.mark.slow
@pytest.mark.tmux
def test_every_step_happens_across_three_machines(tmp_path: Path, env: dict[str, str]) -> None:
    output = played([*COMMAND, "demo", "machines", *IN_JAPANESE, "--directory", str(tmp_path / "place")], tmp_path, env)
    assert output.splitlines()[-1] == "すべての段階が行われました"
    assert "admin@desk → worker-b@shed" in output


@contextmanager
def begun(scene: str, place: Path, env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A demo that plays, in a process group of its own; it is told to end at last."""
    with subprocess.Popen(
        [*COMMAND, "demo", scene, *IN_JAPANESE, "--directory", str(place)],
        cwd=place.parent,
        env={**env, "PYTHONUNBUFFERED": "1"},  # its first line is waited for
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    ) as demo:
        try:
            yield demo
        finally:
            demo.terminate()


def socket_of(demo: subprocess.Popen[str]) -> str:
    """That of its tmux server, from the first line that it prints."""
    assert demo.stdout is not None
    return demo.stdout.readline().split()[2]


def is_served(socket: str) -> bool:
    return subprocess.run(["tmux", "-S", socket, "has-session"], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.tmux
def test_the_office_can_be_visited_until_it_is_closed(tmp_path: Path, env: dict[str, str]) -> None:
    with begun("office", tmp_path / "place", env) as demo:
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
def test_an_office_that_is_told_to_end_leaves_no_tmux_and_no_console(tmp_path: Path, env: dict[str, str]) -> None:
    with begun("office", tmp_path / "place", env) as demo:
        socket = socket_of(demo)
        assert demo.stdout is not None
        port = next(found[1] for text in demo.stdout if (found := re.search(r":(\d+)/open\?ticket=", text)))
        demo.terminate()
        errors = demo.communicate(timeout=DEMO_SECONDS)[1]
    assert (demo.returncode, errors) == (128 + signal.SIGTERM, "")
    assert not is_served(socket)
    assert not Path(socket).parent.exists()
    with closing(create_server(("127.0.0.1", int(port)))):
        pass  # nobody serves there any more


@pytest.mark.tmux
def test_a_demo_whose_terminal_is_gone_leaves_no_tmux(tmp_path: Path, env: dict[str, str]) -> None:
    with begun("question", tmp_path / "place", env) as demo:
        socket = socket_of(demo)
        wait_until(lambda: is_served(socket), "its agents are there")
        demo.send_signal(signal.SIGHUP)
        errors = demo.communicate(timeout=DEMO_SECONDS)[1]
    assert (demo.returncode, errors) == (128 + signal.SIGHUP, "")
    assert not is_served(socket)
    assert not Path(socket).parent.exists()
