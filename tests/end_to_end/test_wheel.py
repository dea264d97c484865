"""The wheel as its user has it: installed into an empty environment, far from the repository, it plays a team."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.end_to_end.support import REPOSITORY, Team, Terminal, run


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of programs of a new virtual environment that has the wheel. What the wheel needs is lent to it by
    the environment of the tests, so that no network is needed; whether `dependencies` names all of it is not tried."""
    base = tmp_path_factory.mktemp("wheel")
    built: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", base]
    subprocess.run(built, cwd=REPOSITORY, check=True, capture_output=True)
    environment = base / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, capture_output=True)
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", environment, "install", "--no-index", "--no-deps"]
    subprocess.run([*pip, *base.glob("*.whl")], check=True, capture_output=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    return environment / "bin"


@pytest.mark.tmux
@pytest.mark.slow
def test_the_wheel_alone_makes_a_team_that_is_ready_and_takes_it_down(
    installed: Path, bare: Team, terminal: Terminal
) -> None:
    env = {name: value for name, value in bare.env.items() if name != "PYTHONPATH"}
    where: list[str | Path] = [installed / "python", "-c", "import multi_agent_mcp; print(multi_agent_mcp.__path__[0])"]
    package = Path(run(where, env=env, cwd=bare.base).stdout.strip())
    assert package.is_relative_to(installed.parent)
    assert (package / "py.typed").is_file()

    command = installed / "multi-agent-mcp"
    made = run([command, "init", "--demo"], env=env, cwd=bare.base)
    assert made.code == 0, made
    raised = run([command, "up", "--socket", terminal.socket, "--no-supervisor", "--json"], env=env, cwd=bare.base)
    assert raised.code == 0, raised
    states = {item["agent_id"]: item["state"] for item in raised.json["agents"]}
    assert states.pop("owner") == "no_command"
    assert states.pop("(owner)") == "open"
    assert states == dict.fromkeys(("admin", "worker-a", "worker-b"), "ready")
    closed = run([command, "down", "--json"], env=env, cwd=bare.base)
    assert sorted(closed.json["closed"]) == ["admin", "owner", "worker-a", "worker-b"]
