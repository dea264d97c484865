"""Whose files are opened: other users' are refused until they are trusted. The tests run as the superuser, who may give
files away; some work for anybody."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.errors import UntrustedSession
from multi_agent_mcp.services.team.setup import read_team
from multi_agent_mcp.system.ownership import is_trusted, others_may_write, trust
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
    monkeypatch.delenv("SUDO_UID", raising=False)


def refusal(root: Path) -> str:
    """The sentence with which the session is refused; "" if it is opened."""
    try:
        open_session(root, "demo")
    except UntrustedSession as untrusted:
        return catalogue("en").sentence(untrusted)
    return ""


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
    assert said.endswith(f"multi-agent-mcp trust {root}")


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
def test_with_sudo_the_callers_sessions_are_ones_own(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (services.root, *services.root.rglob("*")):
        os.chown(path, MALLORY, MALLORY)
    assert refusal(services.root)
    monkeypatch.setenv("SUDO_UID", str(MALLORY))
    services.root.chmod(0o770)  # the caller's private group
    assert refusal(services.root) == ""
    monkeypatch.setenv("SUDO_UID", "no number")
    assert refusal(services.root)


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


def test_no_name_of_a_directory_can_pass_for_another_that_is_trusted(tmp_path: Path) -> None:
    strange, meant = tmp_path / f'x"]\n[{os.geteuid()}, "{tmp_path}/meant"]', tmp_path / "meant"
    meant.mkdir()
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
