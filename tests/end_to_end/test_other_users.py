"""Two users of one machine, as real processes of theirs: what one left in a shared directory does nothing to the
other."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.support import COMMAND, Ran, run

ME, MALLORY = 4210, 4211
"""Two users without a name."""
TEAM = """\
session: demo
language: en
notify_command: [touch, {proof}]
agents:
  - {{id: owner, role: owner, type: human}}
  - {{id: worker, parent: owner, command: "touch {proof}"}}
"""
NOTHING_TO_DO = b'{"hook_event_name": "Stop"}'

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only the superuser can be two users, by setpriv(1)"
)

Command = Callable[..., Ran]


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory like /tmp."""
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o1777)
    return directory


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Runs the command line as a user, in a directory. The capability lets it read the program and the way there, which
    may be the superuser's alone."""

    def command(user: int, where: Path, *arguments: str | Path, stdin: bytes = b"") -> Ran:
        home = tmp_path / f"home-{user}"
        home.mkdir(exist_ok=True)
        os.chown(home, user, user)
        which = ["--reuid", str(user), "--regid", str(user), "--clear-groups"]
        readable = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"}
        return run(["setpriv", *which, *readable, *COMMAND, *arguments], env=env, cwd=where, stdin=stdin)

    return command


def own(directory: Path, user: int) -> Path:
    directory.mkdir()
    os.chown(directory, user, user)
    return directory


def test_nothing_that_another_user_left_above_is_run(shared: Path, command: Command, tmp_path: Path) -> None:
    proof, root = shared / "proof", shared / ".multi-agent-mcp"
    (shared / "team.yaml").write_text(TEAM.format(proof=proof))
    os.chown(shared / "team.yaml", MALLORY, MALLORY)
    assert command(MALLORY, shared, "init").code == 0
    for path in (root, root / "demo"):
        path.chmod(0o777)
    mine = own(shared / "mine", ME)
    before = sorted(shared.rglob("*"))
    socket = tmp_path / "no.socket"
    for arguments in (["send", "owner", "hi"], ["up", "--no-wait", "--socket", socket], ["doctor"], ["init"], []):
        refused = command(ME, mine, *arguments)
        assert (refused.code, refused.stdout) == (1, ""), arguments
        assert f"untrusted_session: {root} belongs to uid {MALLORY}, not to you." in refused.stderr
    assert command(ME, mine, "serve", "--agent", "worker").code == 2
    hook = command(ME, mine, "hook", "--agent", "worker", stdin=NOTHING_TO_DO)
    assert (hook.code, hook.stdout) == (0, "")
    assert "untrusted_session" in hook.stderr
    assert sorted(shared.rglob("*")) == before
    assert not proof.exists()


def test_what_another_user_left_there_is_used_by_whoever_says_so(shared: Path, command: Command) -> None:
    root = shared / ".multi-agent-mcp"
    (shared / "team.yaml").write_text(TEAM.format(proof="/dev/null"))
    os.chown(shared / "team.yaml", MALLORY, MALLORY)
    assert command(MALLORY, shared, "init").code == 0
    mine = own(shared / "mine", ME)
    refused = command(ME, mine, "agent", "list")
    *_, told = refused.stderr.partition("multi-agent-mcp doctor trust ")
    assert told.strip() == str(root)
    trusted = command(ME, mine, "doctor", "trust", told.strip())
    assert f"{root} is trusted as long as it belongs to uid {MALLORY}" in trusted.stdout
    assert command(ME, mine, "agent", "list").code == 0


def test_a_user_with_a_private_group_and_its_umask_hears_no_complaint(shared: Path, command: Command) -> None:
    project = own(shared / "project", ME)
    before = os.umask(0o002)
    try:
        (project / "team.yaml").write_text(TEAM.format(proof="/dev/null"))
        os.chown(project / "team.yaml", ME, ME)
        project.chmod(0o775)
        assert command(ME, project, "init", "--root", ".").code == 0
        for path in (project / "demo", project / "demo" / "session.yaml"):
            path.chmod(0o775)
        assert command(ME, project, "agent", "list", "--root", ".").stderr == ""
    finally:
        os.umask(before)
