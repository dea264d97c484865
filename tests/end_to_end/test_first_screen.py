"""The first screen of the READMEs, and the ten lines of the tour: every command as it is
there, in order, with an empty home, by the wheel alone that `pip` builds and installs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.hosts import hosts as known_hosts
from tests.end_to_end.support import REPOSITORY, run, wait_until

ACTOR = Path(__file__).with_name("actor.py")
PIP = "from pip._internal.cli.main import main\nraise SystemExit(main())\n"
"""What pip's own entry point does; copying pip into the environment takes seconds."""
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_ROOT_USER_ACTION": "ignore"}
"""`pip install .` without the network: what it needs is lent. 0 is pip's way to say no to isolation (pypa/pip 5735)."""


def _program(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def shell(env: dict[str, str], tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables of a shell in an activated virtual environment, which has nothing but pip. On PATH are programs
    with the names of all hosts; each opens its agent's session."""
    environment = Path(env["HOME"]) / "venv"
    venv: list[str | Path] = [sys.executable, "-m", "venv", "--without-pip", environment]
    subprocess.run(venv, check=True, capture_output=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    _program(environment / "bin" / "pip", f"#!{environment}/bin/python\n{PIP}")
    hosts = tmp_path / "hosts"
    hosts.mkdir()
    for host in known_hosts().values():
        _program(hosts / host.command.split()[0], f"#!/bin/sh\nexec {sys.executable} {ACTOR}\n")
    (hosts / "tmux").symlink_to(str(shutil.which("tmux")))
    sockets = tempfile.mkdtemp(prefix="mam-", dir="/tmp")  # the path of a socket is limited
    path = f"{environment / 'bin'}:{hosts}:{tmp_path / 'silent'}:/usr/bin:/bin"
    variables = {name: value for name, value in env.items() if name != "PYTHONPATH"}
    shell = {**variables, **OFFLINE, "PATH": path, "PYTHONPATH": "", "TMUX_TMPDIR": sockets, "LC_ALL": "C.UTF-8"}
    yield shell
    subprocess.run(["tmux", "kill-server"], env=shell, capture_output=True, check=False)
    shutil.rmtree(sockets)


def _blocks(readme: str = "README.md") -> list[str]:
    """The blocks of commands of a README or another page."""
    text = (REPOSITORY / readme).read_text(encoding="utf-8")
    return re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def _typed(commands: str, shell: dict[str, str], where: Path) -> str:
    """What the commands print; each must succeed."""
    ran = run(["sh", "-ec", commands], env=shell, cwd=where)
    assert ran.code == 0, ran
    return ran.stdout


def with_stand_ins(commands: str) -> str:
    """The commands, where `up` may exit with 1: no profile describes the stand-ins, so none of them is ready. The
    virtual environment has been made."""
    commands = commands.replace("python3 -m venv ~/venv && ", "")
    return re.sub(r"^(multi-agent-mcp up) .*$", r"\1 || [ $? = 1 ]", commands, flags=re.MULTILINE)


@pytest.mark.tmux
@pytest.mark.slow
def test_every_command_works(shell: dict[str, str], tmp_path: Path) -> None:
    first, day, demo, scripts = _blocks()
    (ten,) = _blocks("docs/tour.md")
    empty = tmp_path / "ten"
    empty.mkdir()

    shown = _typed(with_stand_ins(first), shell, REPOSITORY)
    package = _typed("python -c 'import multi_agent_mcp; print(multi_agent_mcp.__path__[0])'", shell, empty)
    assert Path(package.strip()).is_relative_to(Path(shell["HOME"]) / "venv")
    project, scripted_project = (Path(shell["HOME"]) / name for name in ("shop", "try"))
    assert "admin: runs, but nothing can be typed into its pane" in shown, "stand-ins are no known hosts"
    assert open_session(project / ".multi-agent-mcp", "shop").unread_mail_count("admin") == 1
    *steps, attach, down = day.splitlines(keepends=True)
    assert attach.startswith("multi-agent-mcp attach ")  # it takes a terminal: test_up.py has one
    _typed("".join((*steps, down)), shell, project)
    again = with_stand_ins("multi-agent-mcp up \nmulti-agent-mcp down")
    assert "admin: runs, but nothing can be typed into its pane" in _typed(again, shell, project)

    *begin, read = demo.splitlines(keepends=True)
    shown = _typed("".join(begin), shell, project)
    assert all(f"{agent}: ready" in shown for agent in ("admin", "worker-a", "worker-b"))
    scripted = open_session(scripted_project / ".multi-agent-mcp", None)
    wait_until(lambda: scripted.unread_mail_count("owner"), "the scripted team has answered")
    assert "admin → owner" in _typed(f"{read}multi-agent-mcp down", shell, scripted_project)

    assert all((REPOSITORY / line.split()[0]).is_file() for line in scripts.splitlines())
    assert "worker-a" in _typed(ten, shell, empty)
    assert len(ten.splitlines()) == 10


def test_the_japanese_readme_has_the_same_commands() -> None:
    """But for words in quotation marks, the language, and comments."""
    english, japanese = (
        [re.sub(r'".*?"| *#.*|language: ..', "", block) for block in _blocks(readme)]
        for readme in ("README.md", "README.ja.md")
    )
    assert japanese == english


@pytest.mark.parametrize("readme", ["README.md", "README.ja.md"])
def test_nothing_says_to_install_from_an_index_that_has_it_not(readme: str) -> None:
    for page in (REPOSITORY / readme, *(REPOSITORY / "docs").glob("*.md"), *REPOSITORY.glob("multi_agent_mcp/texts/*")):
        if page.is_file():
            assert not re.search(
                r"(pip|pipx|uv tool) install ['\"]?multi-agent-mcp", page.read_text(encoding="utf-8")
            ), page
