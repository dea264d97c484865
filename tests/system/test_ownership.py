"""Whose files are opened: other users' are refused until they are trusted. The tests run as the superuser, who may give
files away; some work for anybody."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.cli.main import app
from multi_agent_mcp.config import ROOT_NAME
from multi_agent_mcp.errors import InvalidArguments, StorageError, UntrustedSession
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.team.setup import read_team
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.system.ownership import is_trusted, others_may_write, trust, user_name
from multi_agent_mcp.texts import catalogue
from multi_agent_mcp.wiring import Services
from tests.cli.conftest import TEAM

MALLORY, EVE = 4211, 4212
"""Two users without a name."""
STRANGERS = 4213
"""A group without a name, which is no user's own."""

superuser = pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can give files to other users")


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def refusal(root: Path) -> str:
    """The sentence with which the session is refused; "" if it is opened."""
    try:
        open_session(root, "demo")
    except UntrustedSession as untrusted:
        return catalogue("en").sentence(untrusted)
    return ""


def follow(said: str) -> None:
    """Runs a command that a sentence ends with."""
    done = CliRunner().invoke(app, shlex.split(said.rstrip("."))[1:])
    assert done.exit_code == 0, done.output


@superuser
@pytest.mark.parametrize(
    "name", [".", "demo", "demo/session.yaml", "demo/agents.json", "demo/secrets", "demo/ipc", "hosts", "hosts/x.yaml"]
)
def test_what_another_user_owns_is_refused_whatever_its_mode(services: Services, name: str) -> None:
    root = services.root
    (root / "hosts").mkdir()
    (root / "hosts" / "x.yaml").write_text("name: x")
    assert refusal(root) == ""
    os.chown(root / name, MALLORY, MALLORY)
    said = refusal(root)
    assert f"{root / name} belongs to uid {MALLORY}, not to you." in said
    assert said.endswith(f"multi-agent-mcp doctor trust {root}")


@superuser
def test_a_link_belongs_to_whoever_made_it(services: Services, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere"
    link.symlink_to(services.root)
    assert refusal(link) == ""
    os.lchown(link, MALLORY, MALLORY)
    assert f"{link} belongs to" in refusal(link)


@pytest.mark.parametrize("name", [".", "demo", "demo/session.yaml", "demo/secrets"])
def test_what_everybody_may_write_to_is_refused_where_everybody_gets_there(services: Services, name: str) -> None:
    root = services.root
    for directory in (root, root / "demo"):
        directory.chmod(0o755)
    (root / name).chmod(0o757)
    assert f"Others may write to {root / name} (its mode is 0757;" in refusal(root)
    if name != ".":
        root.chmod(0o700)
        assert refusal(root) == ""


def test_a_shared_directory_above_the_root_may_be_written_to_by_everybody(services: Services) -> None:
    services.root.parent.chmod(0o777)
    assert refusal(services.root) == ""
    services.root.parent.chmod(0o1777)
    assert refusal(services.root) == ""


def test_what_is_made_under_the_umask_of_private_groups_is_no_complaint(tmp_path: Path) -> None:
    directory = tmp_path / "project"
    directory.mkdir()
    os.chown(directory, -1, os.getegid() if os.geteuid() else 0)
    directory.chmod(0o2775)
    if os.geteuid() in {0, os.getegid()}:  # a private group: its number is that of the user, on most systems
        assert not others_may_write(directory.stat())
    directory.chmod(0o757)
    assert others_may_write(directory.stat())


@superuser
def test_a_group_of_several_may_write_when_its_mode_says_so(services: Services) -> None:
    os.chown(services.root, 0, STRANGERS)
    services.root.chmod(0o755)
    assert refusal(services.root) == ""
    services.root.chmod(0o775)
    assert "(its mode is 0775;" in refusal(services.root)


@superuser
def test_with_sudo_the_callers_sessions_are_not_ones_own(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (services.root, *services.root.rglob("*")):
        os.chown(path, MALLORY, MALLORY)
    monkeypatch.setenv("SUDO_UID", str(MALLORY))
    said = refusal(services.root)
    assert f"belongs to uid {MALLORY}, not to you. Run this as that user, or without sudo" in said
    follow(said[said.index("multi-agent-mcp doctor trust") :])
    assert refusal(services.root) == ""


AS_USER = """
import os, sys
from contextlib import suppress
from click.exceptions import Exit
from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.cli.looking import status
from multi_agent_mcp.errors import UntrustedSession
from multi_agent_mcp.texts import catalogue
from pathlib import Path
sentence = catalogue("en").sentence
catalogue("en", "people")
os.setgroups([])
os.setresgid(*[int(sys.argv[1])] * 3)
os.setresuid(*[int(sys.argv[1])] * 3)
for session in (None, "demo"):
    try:
        open_session(Path(".multi-agent-mcp"), session)
    except UntrustedSession as refusal:
        print(sentence(refusal))
with suppress(Exit):
    status()
"""
"""Opens the session as a user who may not read the program."""


@superuser
@pytest.mark.parametrize(("name", "owner"), [(".", 0), ("demo", 0), (".", MALLORY), ("demo", MALLORY)])
def test_a_session_that_one_may_not_enter_is_not_said_to_be_missing(
    name: str, owner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as shared:  # no directory of pytest's, which others may not enter
        root = Path(shared) / ROOT_NAME
        (root / "demo").mkdir(parents=True)
        for entered in (root.parent, root):
            entered.chmod(0o755)
        (root / name).chmod(0o700)
        os.chown(root / name, owner, owner)
        env = {**os.environ, "LC_ALL": "C.UTF-8", "MULTI_AGENT_MCP_ROOT": ""}
        command = [sys.executable, "-c", AS_USER, str(EVE)]
        done = subprocess.run(command, cwd=shared, env=env, capture_output=True, text=True, check=False)
        said = f"{root / name} belongs to {user_name(owner)}, who keeps it closed to you"
        assert [line.count(said) for line in done.stdout.splitlines()] == [1, 1], done.stderr
        assert done.stderr == f"multi-agent-mcp: untrusted_session: {done.stdout.splitlines()[0]}\n"
        named = re.search(r"multi-agent-mcp init --root DIR", done.stdout)
        assert named is not None
        (Path(shared) / "team.yaml").write_text(TEAM, encoding="utf-8")
        monkeypatch.chdir(shared)
        follow(named[0].replace("DIR", str(Path(shared) / "mine")))


@superuser
def test_a_directory_of_somebody_else_beside_ones_own_session_may_be_closed(services: Services) -> None:
    (services.root / "closed").mkdir(mode=0o700)
    os.chown(services.root / "closed", MALLORY, MALLORY)
    assert open_session(services.root, None).workspace.session == "demo"


@superuser
def test_what_is_trusted_is_opened_until_it_belongs_to_somebody_else(services: Services) -> None:
    for path in (services.root, *services.root.rglob("*")):
        os.chown(path, MALLORY, MALLORY)
    owner, place = trust(services.root)
    assert owner == f"uid {MALLORY}"
    assert refusal(services.root) == ""
    trust(services.root)
    assert len(place.read_bytes().splitlines()) == 1
    os.chown(services.root, EVE, EVE)
    assert f"belongs to uid {EVE}" in refusal(services.root)


@superuser
def test_what_others_may_write_to_says_nothing_about_what_is_trusted(services: Services) -> None:
    os.chown(services.root, MALLORY, MALLORY)
    _, place = trust(services.root)
    place.chmod(0o666)
    assert not is_trusted(services.root)
    place.chmod(0o600)
    assert is_trusted(services.root)
    os.chown(place, MALLORY, MALLORY)
    assert not is_trusted(services.root)


def test_a_line_of_the_list_stands_on_its_own_whatever_is_there(services: Services) -> None:
    _, place = trust(services.root)
    place.write_bytes(b"\xff\xfe\0garbage\n[4211, no json\nthe last line has no end")
    trust(services.root)
    assert is_trusted(services.root)
    assert place.read_bytes().startswith(b"\xff\xfe\0garbage\n[4211, no json\nthe last line has no end\n[")


def test_a_list_that_would_not_be_believed_is_not_added_to(services: Services) -> None:
    _, place = trust(services.root)
    before = place.read_bytes()
    place.chmod(0o666)
    with pytest.raises(UntrustedSession, match="trust_list"):
        trust(services.root)
    assert place.read_bytes() == before
    place.unlink()
    os.mkfifo(place)
    assert not is_trusted(services.root)
    with pytest.raises(StorageError):
        trust(services.root)


def test_only_a_root_or_a_team_file_can_be_trusted(services: Services, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "passwd").write_text("root")
    for wrong in (other, tmp_path / "passwd", Path("/")):
        with pytest.raises(InvalidArguments, match="trust_no_root"):
            trust(wrong)
    for near in (services.root.parent, services.root / "demo"):
        with pytest.raises(InvalidArguments) as refused:
            trust(near)
        assert catalogue("en").sentence(refused.value).endswith(f"Do you mean the root {services.root}?")
    assert not is_trusted(services.root)
    services.root.rename(tmp_path / "called-otherwise")
    trust(tmp_path / "called-otherwise")


def test_no_name_of_a_directory_can_pass_for_another_that_is_trusted(tmp_path: Path) -> None:
    strange, meant = tmp_path / f'x"]\n[{os.geteuid()}, "{tmp_path}/meant/{ROOT_NAME}"]', tmp_path / "meant"
    strange, meant = strange / ROOT_NAME, meant / ROOT_NAME
    meant.mkdir(parents=True)
    strange.mkdir(parents=True)
    trust(strange)
    assert is_trusted(strange)
    assert not is_trusted(meant)


@superuser
def test_a_root_that_is_replaced_while_a_process_runs_is_not_read(services: Services) -> None:
    services.root.rename(services.root.with_name("mine"))
    planted = services.root / "demo"
    planted.mkdir(parents=True)
    (planted / "agents.json").write_text('{"agents": {"w": {"id": "w", "command": "touch pwned"}}}')
    for path in (services.root, planted, planted / "agents.json"):
        os.chown(path, MALLORY, MALLORY)
    with pytest.raises(UntrustedSession):
        services.agents.all()


@superuser
def test_a_file_of_another_user_in_ones_own_session_is_not_read(services: Services) -> None:
    os.chown(services.workspace.key_path("owner"), MALLORY, MALLORY)
    with pytest.raises(UntrustedSession):
        services.workspace.key("owner").read()
    subjects = {finding.subject: finding for finding in services.doctor(lambda _: None).examine()}
    assert f"uid {MALLORY}" in subjects["secrets/owner.key"].finding


@superuser
def test_the_task_and_mail_of_another_user_are_set_aside_whole(services: Services) -> None:
    admin = services.agents.get("admin")
    services.task_creation.create(admin, [NewTask(title="mine", assignee_id="worker-a")])
    services.messages.send(admin, Draft(content="mine", receiver_id="worker-a"))
    (task,) = (services.path / "tasks" / "worker-a").glob("*.md")
    (message,) = (services.path / "ipc" / "worker-a").glob("*.md")
    forged = {task: task.read_bytes(), message: message.read_bytes()}
    forged[task.with_name("tsk_0123456789ab.md")] = forged[task].replace(b"status: todo", b"status: done")
    for path, data in forged.items():
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        os.chown(path, MALLORY, MALLORY)
    assert services.unread_mail_count("worker-a") == 0
    assert not [*services.workspace.tasks.directory("worker-a").entries(fresh=True)]
    for path, data in forged.items():
        aside = path.parent / "quarantine" / path.name
        assert aside.read_bytes() == data
        reason = aside.with_name(f"{aside.name}.reason.txt").read_text(encoding="utf-8")
        assert f"{path} belongs to uid {MALLORY}, not to you" in reason


@superuser
def test_the_files_of_another_user_in_a_trusted_root_are_read(services: Services) -> None:
    admin = services.agents.get("admin")
    services.messages.send(admin, Draft(content="theirs", receiver_id="worker-a"))
    trust(services.root)
    for path in services.path.rglob("*"):
        os.chown(path, MALLORY, MALLORY)
    assert open_session(services.root, "demo").unread_mail_count("worker-a") == 1


@superuser
def test_a_session_of_somebody_else_beside_ones_own_is_passed_over(services: Services) -> None:
    foreign = services.root / "foreign"
    foreign.mkdir()
    (foreign / "session.yaml").write_text("language: en")
    (foreign / "agents.json").write_text("{}")
    os.chown(foreign, MALLORY, MALLORY)
    assert refusal(services.root) == ""
    with pytest.raises(Exception, match="agent_not_found"):
        services.agents.participant("nobody")


@superuser
def test_a_team_file_of_somebody_else_is_refused_as_it_names_programs(tmp_path: Path) -> None:
    team = tmp_path / "team.yaml"
    team.write_text(TEAM)
    os.chown(team, MALLORY, MALLORY)
    with pytest.raises(UntrustedSession):
        read_team(team)
    trust(team)
    assert read_team(team).session == "demo"
