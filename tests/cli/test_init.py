"""`init`: the team.yaml it writes for the hosts on PATH, and what it says of a changed one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.hosts import hosts as known_hosts
from multi_agent_mcp.services.team.setup import read_team
from multi_agent_mcp.wiring import Services
from tests.cli.conftest import TEAM, Ask, Run

Offer = Callable[..., None]


@pytest.fixture(autouse=True)
def locale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to work in."""
    path = tmp_path / "My Project!"
    path.mkdir()
    monkeypatch.chdir(path)
    return path


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Restricts PATH to these programs."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))

    def offer(*names: str) -> None:
        for name in names:
            (directory / name).write_text("#!/bin/sh\n")
            (directory / name).chmod(0o755)

    return offer


def commands(path: Path = Path("team.yaml")) -> dict[str, str | None]:
    return {agent.id: agent.command for agent in read_team(path).agents}


@pytest.mark.parametrize(
    ("found", "arguments", "hosts"),
    [
        (("claude",), (), ("claude", "claude", "claude")),
        (("claude", "codex", "tmux"), (), ("claude", "claude", "codex")),
        (("codex",), ("--admin", "claude"), ("claude", "codex", "codex")),
        ((), ("--admin", "codex", "--workers", "gemini, claude,codex"), ("codex", "gemini", "claude", "codex")),
    ],
)
def test_a_team_is_written_for_the_hosts_on_path(
    run: Run, offer: Offer, project: Path, found: tuple[str, ...], arguments: tuple[str, ...], hosts: tuple[str, ...]
) -> None:
    offer(*found)
    made = run("init", *arguments)
    assert made.exit_code == 0, made.output
    assert made.stdout.startswith(f"{project}/team.yaml: written")
    assert (project / "team.yaml").stat().st_mode & 0o077 == 0o044, "it belongs to the project, as its sources do"
    assert made.stdout.splitlines()[-1] == "next: multi-agent-mcp up"
    missing = [program for name, program in known_hosts().items() if name in hosts and name not in found]
    steps = [f"{item.title} is not on PATH yet: {item.install}" for item in missing]
    if "gemini" in hosts:
        steps += ["first, once in this directory: multi-agent-mcp host-config gemini --agent worker-a --write"]
    assert made.stdout.splitlines()[2:-1] == steps
    team = read_team(project / "team.yaml")
    assert (team.session, team.language) == ("My-Project", "en")
    ids = ["admin", "worker-a", "worker-b", "worker-c"]
    wanted = {agent_id: known_hosts()[host].command for agent_id, host in zip(ids, hosts, strict=False)}
    assert commands() == {"owner": None, **wanted}
    assert {agent.parent_id for agent in team.agents} == {None, "owner", "admin"}
    assert (project / ".multi-agent-mcp" / "My-Project" / "secrets" / "admin.key").is_file()


def test_without_any_host_it_says_how_to_get_one_and_writes_nothing(run: Run, offer: Offer, project: Path) -> None:
    offer()
    refused = run("init")
    assert (refused.exit_code, refused.stdout) == (1, "")
    for program in known_hosts().values():
        assert f"{program.title} (`{program.install}`)" in refused.stderr
    assert "init --demo" in refused.stderr
    assert json.loads(run("init", "--json").stdout)["error"] == "invalid_arguments"
    assert list(project.iterdir()) == []


def test_scripted_agents_need_no_host(run: Run, offer: Offer, project: Path) -> None:
    offer()
    assert "send-task admin" in run("init", "--demo", "--name", "trial").stdout.splitlines()[-1]
    agents = read_team(project / "team.yaml").agents
    assert [agent.host for agent in agents] == [None, "plain", "plain", "plain"]
    assert agents[0].command is None
    for agent in agents[1:]:
        script = (agent.command or "").rpartition("/")[2]
        assert (Path(__file__).parents[2] / "examples" / "agents" / script).is_file()


def test_the_team_of_a_scene_is_not_said_to_do_the_job_of_the_demo(run: Run, offer: Offer, project: Path) -> None:
    offer()
    gate = Path(__file__).parents[2] / "examples" / "gate.yaml"
    assert run("init", "--team", str(gate), "--root", str(project / ".multi-agent-mcp")).stdout.endswith(" up\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--workers", ",".join(["claude"] * 27)),
        ("--demo", "--admin", "claude"),
        ("--name", "a b"),
        ("--name", ""),
    ],
)
def test_what_makes_no_team_is_refused_and_nothing_is_written(
    run: Run, offer: Offer, project: Path, arguments: tuple[str, ...]
) -> None:
    offer("claude")
    refused = run("init", *arguments)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert len(refused.stderr.splitlines()) == 1
    assert list(project.iterdir()) == []


def test_a_link_that_leads_nowhere_or_round_is_no_reason_to_fail_without_a_word(
    run: Run, offer: Offer, project: Path
) -> None:
    offer("claude")
    (project / "team.yaml").symlink_to("team.yaml")
    refused = run("init")
    assert (refused.exit_code, refused.exception.__class__) == (1, SystemExit)
    assert refused.stderr.startswith("multi-agent-mcp: storage_error: ")


def test_a_name_that_another_session_has_but_for_case_leaves_no_file(run: Run, offer: Offer, project: Path) -> None:
    offer("claude")
    assert run("init", "--name", "Demo").exit_code == 0
    (project / "team.yaml").unlink()
    assert "already_exists" in run("init", "--name", "demo").stderr
    assert not (project / "team.yaml").exists()


def test_the_language_is_the_locales_or_the_given_one(
    run: Run, offer: Offer, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer("claude")
    monkeypatch.setenv("LC_ALL", "ja_JP.UTF-8")
    assert "書き込みました" in run("init").stdout
    assert read_team(project / "team.yaml").language == "ja"
    (project / "team.yaml").unlink()
    assert run("init", "--language", "en").exit_code == 0
    assert read_team(project / "team.yaml").language == "en"


def test_a_team_yaml_that_is_there_is_never_written(run: Run, offer: Offer, session: Path, tmp_path: Path) -> None:
    offer("codex")
    assert run("init").exit_code == 0
    for arguments in (("--admin", "codex"), ("--workers", "codex"), ("--name", "x"), ("--demo",)):
        refused = run("init", *arguments)
        assert refused.exit_code == 1
        assert f"{tmp_path}/team.yaml already exists" in refused.stderr
    assert (tmp_path / "team.yaml").read_text(encoding="utf-8") == TEAM


@pytest.mark.parametrize(("directory", "name"), [("Ümläut", "Umlaut"), ("日本", "team"), ("-x.y", "x-y")])
def test_a_session_is_called_as_its_directory_as_far_as_names_may_be(
    run: Run, offer: Offer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory: str, name: str
) -> None:
    offer("claude")
    (tmp_path / directory).mkdir()
    monkeypatch.chdir(tmp_path / directory)
    assert run("init").exit_code == 0
    assert read_team(Path("team.yaml")).session == name


def test_below_a_project_the_projects_team_is_meant(
    run: Run, offer: Offer, session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer("claude")
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path / "src")
    assert run("init").stdout == f"{session}: 3 agents (0 new)\n"
    (tmp_path / "team.yaml").unlink()
    assert run("init").exit_code == 0
    assert (tmp_path / "src" / "team.yaml").is_file()
    assert not (tmp_path / "team.yaml").exists()


def test_the_root_is_ignored_by_git_unless_its_user_says_otherwise(run: Run, session: Path) -> None:
    ignored = session.parent / ".gitignore"
    assert ignored.read_text() == "*\n"
    ignored.unlink()
    run("init")
    assert ignored.read_text() == "*\n"
    ignored.write_text("secrets/\n")
    run("init")
    assert ignored.read_text() == "secrets/\n"


def test_a_root_with_other_things_in_it_is_not_ignored(run: Run, session: Path, tmp_path: Path) -> None:
    assert run("init", "--root", ".").exit_code == 0
    assert (tmp_path / "demo" / "session.yaml").is_file()
    assert not (tmp_path / ".gitignore").exists()


def test_a_second_init_says_what_it_took_over_and_what_it_kept(run: Run, session: Path, ask: Ask) -> None:
    team: dict[str, Any] = yaml.safe_load(TEAM)
    owner, admin, worker = team["agents"]
    ask("agent", "set", "worker-a", "--host", "plain")
    admin |= {"ladder": ["desktop"], "prompt": "Go.", "command": "cat", "type": "human", "pane_id": "%9"}
    team |= {"language": "ja", "limits": {"content_bytes": 1_000}, "notify_command": ["push", "{line}"]}
    team["agents"] = [owner, admin, {**worker, "id": "worker-b"}]
    Path("team.yaml").write_text(json.dumps(team), encoding="utf-8")
    told = ask("init")
    assert told["added"] == ["worker-b"]
    assert told["left_out"] == ["worker-a"]
    assert told["kept"] == {"admin": ["type"]}
    assert told["changed"] == {
        "session.yaml": ["language", "limits", "notify_command"],
        "admin": ["command", "prompt", "ladder"],
    }
    assert yaml.safe_load((session / "session.yaml").read_text())["language"] == "ja"
    assert ask("agent", "list")["agents"][1]["pane_id"] is None
    lines = run("init").stdout.splitlines()
    assert [line.partition(":")[0] for line in lines[1:]] == ["admin", "team.yaml にありませんが、残しています"]
    again = ask("init")
    assert (again["changed"], again["kept"]) == ({}, {"admin": ["type"]})


def test_what_team_yaml_no_longer_names_is_kept_and_named(run: Run, session: Path, ask: Ask) -> None:
    team: dict[str, Any] = yaml.safe_load(TEAM)
    before = {**team["agents"][2], "host": "plain", "command": "cat", "ladder": ["tmux"]}
    Path("team.yaml").write_text(json.dumps(team | {"agents": [*team["agents"][:2], before]}), encoding="utf-8")
    ask("init")
    Path("team.yaml").write_text(TEAM, encoding="utf-8")
    assert ask("init")["kept"] == {"worker-a": ["command", "host", "ladder"]}


def test_a_setting_is_taken_back_by_an_empty_value_or_the_default(run: Run, session: Path, ask: Ask) -> None:
    first = {"features": {"timeline": "off"}, "usage": "off", "limits": {"content_bytes": 1_000}, "resume": False}
    back = {"features": {}, "usage": "on", "limits": {}, "resume": True}
    team: dict[str, Any] = yaml.safe_load(TEAM)
    Path("team.yaml").write_text(json.dumps(team | first), encoding="utf-8")
    assert {*ask("init")["changed"]["session.yaml"]} == first.keys()
    assert run("stats").exit_code == 2
    Path("team.yaml").write_text(json.dumps(team | back), encoding="utf-8")
    told = ask("init")
    assert {*told["changed"]["session.yaml"]} == back.keys()
    assert told["kept"] == {}
    assert run("stats").exit_code == 0
    assert (ask("init")["changed"], ask("init")["kept"]) == ({}, {})


def test_a_setting_that_team_yaml_no_longer_names_is_kept_and_named(run: Run, session: Path, ask: Ask) -> None:
    Path("team.yaml").write_text(f"{TEAM}features: {{timeline: off}}\nusage: off\n", encoding="utf-8")
    ask("init")
    Path("team.yaml").write_text(TEAM, encoding="utf-8")
    told = ask("init")
    assert (told["changed"], told["kept"]) == ({}, {"session.yaml": ["usage", "features"]})
    assert "session.yaml: kept, although team.yaml does not name it: usage, features" in run("init").stdout
    assert run("stats").exit_code == 2


def test_after_a_second_session_the_next_command_names_it(run: Run, session: Path) -> None:
    other = TEAM.replace("demo", "other").replace("parent: owner", "parent: owner, command: cat")
    Path("team.yaml").write_text(other, encoding="utf-8")
    assert run("init").stdout.splitlines()[-1] == "next: multi-agent-mcp up --session other"
    assert "next" not in run("init").stdout


@pytest.mark.parametrize(
    "text", [None, "agents: 1", "agents: []\n", "session: s\nlimits: {stuck_minutes: no}\nagents: [{id: a}]"]
)
def test_what_is_wrong_with_a_team_file_is_said_of_that_file(run: Run, tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    refused = run("init", "--team", "mine.yaml")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("multi-agent-mcp: invalid_arguments: mine.yaml cannot be read: ")


def test_what_is_kept_is_told_once(run: Run, session: Path, ask: Ask) -> None:
    ask("agent", "set", "worker-a", "--command", "cat")
    assert "worker-a: kept as it was" in run("init").stdout
    assert "kept as" not in run("init").stdout
    assert ask("init")["kept"] == {"worker-a": ["command"]}
    ask("agent", "set", "worker-a", "--host", "plain")
    assert "team.yaml differs: command, host (" in run("init").stdout
    ask("agent", "set", "worker-a", "--command", "", "--host", "")
    assert "kept as" not in run("init").stdout
    ask("agent", "set", "worker-a", "--command", "cat")
    assert "worker-a: kept as it was" in run("init").stdout


def test_settings_with_a_persons_comments_are_kept_and_named(run: Run, session: Path, ask: Ask) -> None:
    settings = session / "session.yaml"
    settings.write_text(f"# mine\n{settings.read_text()}")
    before = settings.read_text()
    assert ask("init", "--language", "ja")["kept"] == {"session.yaml": ["language"]}
    assert "session.yaml: kept as it was" in run("init", "--language", "ja").stdout
    assert settings.read_text() == before


def test_a_root_that_is_not_utf8_is_refused_before_anything_is_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / os.fsdecode(b"odd\xff")
    odd.mkdir()
    monkeypatch.chdir(odd)
    assert run("init", "--demo").stderr.startswith("multi-agent-mcp: invalid_arguments: ")
    assert list(odd.iterdir()) == []
    (odd / "team.yaml").write_text(TEAM)
    assert json.loads(run("init", "--json").stdout)["error"] == "invalid_arguments"
    assert [file.name for file in odd.iterdir()] == ["team.yaml"]


class TestALostPasskey:
    def test_init_makes_a_new_one_and_says_so_and_what_was_signed_before_stays_genuine(
        self, run: Run, ask: Ask, session: Path
    ) -> None:
        ask("send", "worker-a", "signed before", "--as", "admin")
        (session / "secrets" / "admin.key").unlink()
        made = run("init")
        assert "the passkey was missing, so a new one was made, for: admin" in made.stdout
        ask("send", "worker-a", "signed after", "--as", "admin")
        assert [each.get("verified") for each in ask("read", "--as", "worker-a")["messages"]] == [None, None]
        assert run("doctor", "--verify").exit_code == 0
        assert "passkey" not in run("init").stdout

    def test_doctor_names_it_and_its_repair_makes_a_new_one(self, run: Run, ask: Ask, session: Path) -> None:
        ask("send", "worker-a", "signed before", "--as", "admin")
        key = session / "secrets" / "admin.key"
        key.unlink()
        assert "multi-agent-mcp init makes a new one" in run("doctor").stdout
        assert run("doctor", "--repair", "--verify").exit_code == 0
        assert key.read_text()


def test_a_session_that_has_lost_its_settings_is_named_and_init_makes_them_again(
    run: Run, ask: Ask, session: Path
) -> None:
    ask("send", "admin", "hello")
    (session / "session.yaml").unlink()
    for arguments in ((), ("unread",), ("unread", "--session", "demo")):
        refused = run(*arguments)
        assert refused.exit_code == 1
        assert refused.stderr.endswith("multi-agent-mcp init --session demo\n")
    assert run("init", "--session", "demo").exit_code == 0
    assert ask("unread", "--as", "admin")["unread_count"] == 1


def test_what_is_left_of_a_session_is_said_truly(run: Run, ask: Ask, session: Path) -> None:
    ask("send", "admin", "hello")
    for name in ("agents.json", "agents.json.bak"):
        (session / name).unlink()
    assert "Still there: ipc/; secrets/." in run("unread").stderr
    assert run("init").exit_code == 0
    assert ask("unread", "--as", "admin")["unread_count"] == 1


def test_of_a_session_that_was_removed_nothing_is_promised(services: Services) -> None:
    shutil.rmtree(services.path)
    with pytest.raises(StorageError) as refused:
        services.agents.registry.all()
    sentence = services.texts.sentence(refused.value)
    assert sentence.startswith(f"There is no session in {services.path} any more")
    assert not services.path.exists()


DECIDING = """\
session: demo
language: {language}
checks: {{tests: "{check}"}}
protected: ["tests/**"]
agents:
  - {{id: owner, role: owner, type: human}}
  - {{id: worker-a, role: worker, parent: owner, edits: ["src/**"]}}
"""


def answered(answer: str, *words: str) -> str:
    """What `init` prints in a terminal in which this is typed."""
    terminal, end = os.openpty()
    os.write(terminal, answer.encode())
    command = [sys.executable, "-m", "multi_agent_mcp", "init", *words]
    with subprocess.Popen(command, stdin=end, stdout=end, stderr=end, close_fds=True) as process:
        os.close(end)
        said = bytearray()
        with suppress(OSError):  # EIO: the other end is closed
            while piece := os.read(terminal, 65_536):
                said += piece
        process.wait()
    os.close(terminal)
    return said.decode()


def decide(check: str, language: str = "en") -> None:
    Path("team.yaml").write_text(DECIDING.format(language=language, check=check), encoding="utf-8")


@pytest.mark.parametrize(
    ("language", "answer", "asked", "told"),
    [
        ("en", "n\n", "not approved yet:", "Approved by nobody yet."),
        ("ja", "\n", "まだ承認されていません:", "まだ承認されていません。"),
        ("en", "\x04", "not approved yet:", "Approved by nobody yet."),
        ("en", "y\n", "not approved yet:", None),
    ],
)
def test_in_a_terminal_what_a_team_file_decides_is_shown_before_a_person_approves_it(
    run: Run, language: str, answer: str, asked: str, told: str | None
) -> None:
    decide("pytest -q", language)
    said = answered(answer)
    assert asked in said
    assert 'checks.tests: {"run": "pytest -q", "minutes": 10.0, "directory": "."}' in said
    assert 'protected: ["tests/**"]' in said
    assert '"edits": ["src/**"]' in said
    assert (told is None) or told in said
    checks = json.loads(run("checks", "--json").stdout)
    assert [check["run"] for check in checks["checks"]] == ["pytest -q"], "all is written"
    assert checks["approval"]["state"] == ("missing" if told else "approved")


def test_in_a_terminal_a_changed_team_file_is_approved_by_yes_alone(run: Run) -> None:
    decide("pytest -q")
    run("init")
    assert "approve" not in answered("").lower(), "nothing has changed, so nothing is asked"
    decide("true")
    said = answered("n\n")
    assert '{"run": "pytest -q", "minutes": 10.0, "directory": "."} → {"run": "true",' in said
    assert "protected:" not in said
    assert "Changed since a person approved them: checks.tests." in said
    assert "checks.tests" in run("init").stdout, "nor does a script approve what a person has not"
    assert "→" in run("init", "--yes").stdout
    assert "Approved by owner" in run("checks").stdout


def test_what_init_writes_itself_is_approved_without_a_question(run: Run) -> None:
    assert "approve" not in answered("", "--demo").lower()
    assert "Approved by owner" in run("checks").stdout


def test_without_a_terminal_what_is_approved_is_printed(run: Run) -> None:
    decide("pytest -q")
    assert '  checks.tests: {"run": "pytest -q", "minutes": 10.0, "directory": "."}' in run("init").stdout
    decide("true")
    (changed,) = json.loads(run("init", "--json").stdout)["approved"]
    assert changed.startswith('checks.tests: {"run": "pytest -q"')
    assert "Approved by owner" in run("checks").stdout


def test_an_agent_that_runs_init_approves_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    decide("pytest -q")
    run("init")
    decide("true")
    monkeypatch.setenv("MULTI_AGENT_MCP_AGENT", "worker-a")
    assert "Changed since a person approved them: checks.tests." in run("init", "--yes").stdout
    assert "Approve it?" not in answered("y\n")


def test_checks_approve_shows_what_it_approves(run: Run) -> None:
    decide("pytest -q")
    run("init")
    settings = Path(".multi-agent-mcp/demo/session.yaml")
    settings.write_text(settings.read_text().replace("tests/**", "docs/**"))
    assert '  protected: ["tests/**"] → ["docs/**"]' in run("checks", "approve").stdout


def test_init_names_the_keys_that_nothing_reads(run: Run, session: Path, ask: Ask) -> None:
    Path("team.yaml").write_text(f"x-mine: 1\nfuture: 2\n{TEAM}", encoding="utf-8")
    assert "team.yaml has keys that nothing here reads: future\n" in run("init").stdout
    assert ask("init")["unknown_keys"] == ["x-mine", "future"]


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--host", "pigeon", "'pigeon', not one of claude, "),
        ("--command", "claude 'x", "sh cannot read worker-a.command: "),
        ("--command", "claude {nope}", "worker-a.command has {nope}, which is no placeholder"),
    ],
)
def test_what_no_agent_can_have_is_refused_by_every_command_that_takes_it(
    run: Run, session: Path, option: str, value: str, words: str
) -> None:
    before = (session / "agents.json").read_bytes()
    assert words in run("agent", "set", "worker-a", option, value).stderr
    assert words.replace("worker-a", "new") in run("agent", "add", "new", option, value).stderr
    key = option.removeprefix("--")
    Path("team.yaml").write_text(
        json.dumps({"session": "other", "agents": [{"id": "worker-a", key: value}]}), encoding="utf-8"
    )
    refused = run("init")
    assert (refused.exit_code, words in refused.stderr) == (1, True)
    assert not (session.parent / "other").exists()
    assert (session / "agents.json").read_bytes() == before
