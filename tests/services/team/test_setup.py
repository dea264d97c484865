"""`init`: a session directory from a team.yaml."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.config import session_names
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.errors import AlreadyExists, InvalidArguments, InvalidId, NoSuchSession, Refusal, StorageError
from multi_agent_mcp.hooks.answers import Event
from multi_agent_mcp.services.team import setup
from multi_agent_mcp.services.team.setup import (
    TeamFile,
    TeamUpdate,
    add_missing,
    create_session,
    known_settings,
    read_team,
    require_known_hosts,
    team_of,
    update_session,
)
from multi_agent_mcp.settings import read_settings, settings_of
from multi_agent_mcp.texts import catalogue

TEAM = """
session: demo
language: ja
agents:
  - {id: owner, role: owner, type: human}
  - {id: admin, role: admin, parent: owner}
  - {id: worker-a, role: worker, parent: admin, command: "claude --mcp-config {mcp_config}", colour: blue}
  - {id: worker-b, parent: admin}
"""


@pytest.fixture
def team_file(tmp_path: Path) -> Path:
    path = tmp_path / "team.yaml"
    path.write_text(TEAM)
    return path


def test_the_documented_team_is_read(team_file: Path) -> None:
    team = read_team(team_file)
    assert (team.session, team.language) == ("demo", "ja")
    assert [(agent.id, agent.role, agent.type, agent.parent_id) for agent in team.agents] == [
        ("owner", "owner", "human", None),
        ("admin", "admin", "ai", "owner"),
        ("worker-a", "worker", "ai", "admin"),
        ("worker-b", "worker", "ai", "admin"),
    ]
    assert (team.agents[2].command, team.agents[2].extra) == ("claude --mcp-config {mcp_config}", {"colour": "blue"})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "agents: [",
        "agents: {a: b}",
        "- a",
        "agents: [a]",
        "agents: [{role: owner}]",
        "agents: [{id: ../x}]",
        "agents: [{id: 7}]",
        "agents: [{id: a, role: king}]",
        "agents: [{id: a, role: [owner]}]",
        "agents: [{id: a, type: robot}]",
        "agents: [{id: a, workspace: none}]",
        "agents: [{id: a, spawn: always}]",
        "agents: [{id: a, usage: maybe}]",
        "agents: [{id: a, on_limit: sleep}]",
        "agents: [{id: a, ladder: tmux}]",
        "agents: [{id: a, parent: ../b}]",
        "agents: [{id: a, command: [ls]}]",
        "agents: [{id: a, prompt: [go]}]",
        'agents: [{id: a, prompt: "\\0"}]',
        "agents: [{id: a, prompt: " + "x" * 1_001 + "}]",
        "agents: [{id: a}, {id: a}]",
        "agents: [{id: a}]\nlanguage: fr",
        "agents: [{id: a}]\nlimits: 5",
        "agents: [{id: a}]\nnotify_command: ntfy publish",
        "agents: [{id: a, x: .nan}]",
        "agents: [{id: a, x: {[1]: 2}}]",
        "agents: [{id: a, x: {[2026]: 2}}]",
        "agents:\n  - id: a\n    x: &x [*x]",
        "\x00",
        "agents: &a [*a]",
        f"agents: {'[' * 300}{']' * 300}",
    ],
)
def test_a_team_that_makes_no_sense_is_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(text)
    with pytest.raises((InvalidArguments, InvalidId)) as refusal:
        read_team(path)
    for language in ("ja", "en"):
        sentence = catalogue(language).sentence(refusal.value)
        assert "\n" not in sentence
        assert len(sentence) < 400


KINDS = {
    "a number": "7", "nothing of it": "0", "a negative number": "-3", "a huge number": "1" + "0" * 30,
    "a fraction": "1.5", "no number": ".nan", "a truth": "true", "an empty text": '""', "a blank": '" "',
    "a text": "hello", "kana": "日本語", "a very long text": "x" * 100_000, "NUL": '"a\\0b"',
    "a list": "[a]", "an empty list": "[]", "a list with a number": "[a, 7]", "a list of nothing": "[null]",
    "a mapping": "{a: b}", "an empty mapping": "{}", "a mapping of numbers": "{7: 8}",
}  # fmt: skip
TEXTS = {"a text", "kana", "an empty text", "a blank", "a very long text", "NUL"}
PATTERNS = {"a text", "kana", "a list", "an empty list", "a very long text"}
MAPPINGS = {"a mapping", "an empty mapping", "a mapping of numbers"}
MEANT = {
    "session": TEXTS, "limits": MAPPINGS, "console": {"an empty mapping"}, "notify_command": {"a list"},
    "checks": {"a mapping", "an empty mapping"}, "roles": {"an empty mapping"}, "features": {"an empty mapping"},
    "done_when": {"an empty text", "a blank", "an empty list"}, "at_most": {"a number"}, "protected": PATTERNS,
    "workspace_setup": {"a text", "kana", "a list", "a very long text"},
    "usage": {"a truth"}, "resume": {"a truth"}, "statement": {"a truth"}, "guard": {"a truth"}, "pool": {"a truth"},
    "b.id": {"a text"}, "b.parent": {"a text"}, "b.name": TEXTS - {"a very long text"}, "b.command": TEXTS - {"NUL"},
    "b.prompt": TEXTS - {"a very long text", "NUL"}, "b.ladder": {"an empty list"}, "b.edits": PATTERNS,
    "b.host": TEXTS, "b.skills": {"a list", "an empty list"}, "b.commands": {"an empty mapping"}, "b.limits": MAPPINGS,
    "b.usage": {"a truth"}, "b.resume": {"a truth"}, "b.statement": {"a truth"},
}  # fmt: skip
"""Which of the kinds each key takes; what it says of a host is judged with the root at hand."""


@pytest.mark.parametrize(
    "key",
    [
        *sorted(known_settings(None) | {"session"}),
        *(
            f"b.{key}"
            for key in sorted(setup._AGENT_KEYS | setup._OTHER_KEYS | {"usage", "on_limit", "workspace", "commit"})
        ),
    ],
)
def test_every_key_takes_only_what_it_means_and_says_which_it_was(tmp_path: Path, key: str) -> None:
    path, name = tmp_path / "team.yaml", key.removeprefix("b.")
    meant = MEANT.get(key.replace("parent_id", "parent"), set())
    for kind, value in KINDS.items():
        own = f"  - {{{'' if name == 'id' else 'id: b, '}{name}: {value}}}\n"
        path.write_text("agents:\n  - {id: a, role: owner}\n" + (own if key != name else f"{key}: {value}\n"))
        if kind in meant:
            read_team(path)
            continue
        with pytest.raises((InvalidArguments, InvalidId)) as refusal:
            read_team(path)
        sentence = catalogue("en").sentence(refusal.value)
        assert "\n" not in sentence
        assert len(sentence) < 400
        said = isinstance(refusal.value, InvalidId) or name.replace("parent_id", "parent") in sentence.lower()
        assert said or ".nan" in sentence or "check '" in sentence, (kind, sentence)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ladder: [tmux, pigeon]", "b.ladder[1] is 'pigeon', not one of tmux, "),
        ("ladder: [[tmux]]", "b.ladder[0] is ['tmux'], not one of"),
        ("skills: [python, 7]", "b.skills[1] must be a string"),
        ("comand: claude", "b.comand is not a setting; do you mean command?"),
        ("name: 7", 'b.name is 7, which YAML takes for no text; write "7"'),
        ("resume: maybe", "b.resume is 'maybe', not one of true, false"),
        ("limits: {tokens_per_day: -1}", "b.limits.tokens_per_day must be a number"),
        ('command: "claude \'x"', "sh cannot read b.command: "),
        ("command: 'claude {nope}'", "b.command has {nope}, which is no placeholder (there are mcp_config, prompt, "),
        ("command: \"sh -c '{mcp_confg}'\"", "b.command has {mcp_confg}, which is no placeholder"),
        ("sandbox: 'bwrap ( {command}'", "sh cannot read b.sandbox: "),
        ("sandbox: 'bwrap {root} {commando} {command}'", "b.sandbox has {commando}, which is no placeholder"),
    ],
)
def test_what_an_agent_cannot_have_is_named_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(f"session: demo\nagents:\n  - {{id: a, role: owner}}\n  - id: b\n    {text}\n")
    with pytest.raises(InvalidArguments) as refusal:
        read_team(path)
    sentence = catalogue("en").sentence(refusal.value)
    assert words in sentence
    assert sentence.endswith("(line 5)") or "comand" in text


@pytest.mark.parametrize(
    "command",
    [
        "claude --mcp-config {mcp_config} \"{prompt}\" '{worktree}'",
        'cd "$HOME" && exec claude # it\'s mine',
        "git diff HEAD@{upstream} ${x} | awk '{print}' > {session}.txt",
        "find . -exec cat {} \\; ; echo {a,b} {1..3} '{\"json\": {}}'",
        "cat <<'E'\nit's {nope}\nE",
        "env A='{nope}' claude",
    ],
)
def test_a_command_that_sh_reads_is_taken_as_it_is(tmp_path: Path, command: str) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(f"agents: [{{id: a, command: {json.dumps(command)}}}]")
    (agent,) = read_team(path).agents
    assert agent.command == command


def test_a_command_for_a_persons_own_shell_is_not_judged(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text('agents:\n  - {id: a, shell: default, command: "echo (ls) {x}"}\n')
    assert read_team(path).agents[0].command == "echo (ls) {x}"


def test_a_host_has_a_profile_of_ours_or_of_the_persons(root: Path) -> None:
    agents = [Agent(id="a", host="aider")]
    with pytest.raises(InvalidArguments, match="no_such_host"):
        require_known_hosts(agents, root)
    (root / "hosts").mkdir(parents=True)
    (root / "hosts" / "aider.yaml").touch()
    require_known_hosts([*agents, Agent(id="b", host="plain"), Agent(id="c", host="codex"), Agent(id="d")], root)


def test_keys_that_are_nothing_to_us_are_left_to_others_and_named(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text("x-base: &b {color: red}\nnewer: 1\nagents:\n  - {id: a, color: red, <<: *b}\n")
    team = read_team(path)
    assert (team.unknown, team.agents[0].extra) == (("x-base", "newer"), {"color": "red"})


@pytest.mark.parametrize(
    "text",
    ["protected: 0", "protected: {}", "roles: []", "done_when: {}", "language: []", "roles: {worker: {commands: []}}"],
)
def test_what_is_to_protect_is_not_off_for_a_wrong_kind(tmp_path: Path, text: str) -> None:
    (tmp_path / "session.yaml").write_text(f"id: demo\n{text}\n")
    with pytest.raises(InvalidArguments):
        read_settings(tmp_path / "session.yaml")


def test_a_key_without_a_value_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text("agents: [{id: a, spawn: , ladder: , usage: , on_limit: , limits: }]")
    (agent,) = read_team(tmp_path / "team.yaml").agents
    assert (agent.id, agent.role, agent.type) == ("a", "worker", "ai")


def test_a_team_file_that_is_not_there_or_no_text_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"agents: [{id: a, name: \xff}]")
    for name in ("gone.yaml", ".", "latin.yaml"):
        with pytest.raises(InvalidArguments):
            read_team(tmp_path / name)


def test_a_date_of_the_users_own_is_kept_as_text(tmp_path: Path, root: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text("agents: [{id: a, since: 2026-11-21}]")
    create_session(root, "demo", read_team(path), None)
    agents = open_session(root, "demo", notifier=Recorder()).agents
    add_missing(agents, read_team(path))
    assert agents.get("a").extra == {"since": "2026-11-21"}


def test_a_session_is_made_with_its_settings(team_file: Path, root: Path) -> None:
    path = create_session(root, "demo", read_team(team_file), None)
    assert path == root / "demo"
    assert session_names(root) == ["demo"]
    assert read_settings(path / "session.yaml").language == "ja"


def test_the_teams_notify_command_becomes_the_sessions(team_file: Path, root: Path) -> None:
    given = f'{team_file.read_text(encoding="utf-8")}\nnotify_command: [push, "{{line}}"]\n'
    team_file.write_text(given, encoding="utf-8")
    path = create_session(root, "demo", read_team(team_file), None)
    assert read_settings(path / "session.yaml").notify_command == ("push", "{line}")


def test_the_given_language_wins_over_the_teams(team_file: Path, root: Path) -> None:
    path = create_session(root, "demo", read_team(team_file), "en")
    assert read_settings(path / "session.yaml").language == "en"


def test_a_second_init_adds_agents_and_keeps_settings_keys_and_mail(team_file: Path, root: Path) -> None:
    team = read_team(team_file)
    create_session(root, "demo", replace(team, agents=team.agents[:2]), "en")
    services = open_session(root, "demo", notifier=Recorder())
    assert add_missing(services.agents, replace(team, agents=team.agents[:2])) == ["owner", "admin"]
    key = services.agents.stored_key("admin")
    (services.workspace.path / "ipc" / "admin" / "note.md").write_text("---\nid: a\n---\n\nx")
    create_session(root, "demo", team, "ja")
    again = open_session(root, "demo", notifier=Recorder())
    assert add_missing(again.agents, team) == ["worker-a", "worker-b"]
    assert again.settings.language == "en"
    assert again.agents.stored_key("admin") == key
    assert len(again.workspace.mailbox("admin").unread()) == 1


def test_a_second_init_brings_commands_up_to_date(team_file: Path, root: Path) -> None:
    team = read_team(team_file)
    create_session(root, "demo", team, None)
    agents = open_session(root, "demo", notifier=Recorder()).agents
    add_missing(agents, team)
    changed = tuple(
        replace(agent, command="codex", prompt="") if agent.id == "worker-a" else agent for agent in team.agents
    )
    add_missing(agents, replace(team, agents=changed))
    assert (agents.get("worker-a").command, agents.get("worker-a").prompt) == ("codex", "")
    assert agents.get("worker-a").parent_id == "admin"


def test_a_second_init_overwrites_what_a_person_set_only_where_team_yaml_says_something_else_by_now(
    team_file: Path, root: Path
) -> None:
    def saying(command: str | None) -> TeamFile:
        agents = (replace(agent, command=command) if agent.id == "worker-a" else agent for agent in team.agents)
        return replace(team, agents=tuple(agents))

    team = read_team(team_file)
    create_session(root, "demo", team, None)
    agents = open_session(root, "demo", notifier=Recorder()).agents
    update_session(agents, saying(CLAUDE), None)
    agents.change("worker-a", command=CODEX, name="Ada")
    kept = update_session(agents, saying(CLAUDE), None)
    assert (agents.get("worker-a").command, agents.get("worker-a").name) == (CODEX, "Ada")
    assert "command" in kept.kept["worker-a"]
    assert "worker-a" not in kept.changed
    taken = update_session(agents, saying("opencode {mcp_config}"), None)
    assert agents.get("worker-a").command == "opencode {mcp_config}"
    assert taken.changed["worker-a"] == ["command"]
    agents.registry.update("worker-a", team_file=None, command=CODEX)  # of an earlier version
    update_session(agents, saying(CLAUDE), None)
    assert agents.get("worker-a").command == CLAUDE


CLAUDE, CODEX = "claude --mcp-config {mcp_config}", "codex {mcp_config}"


@pytest.mark.parametrize(
    ("said", "seen", "now"),
    [
        ({}, "claude", None),  # recorded by a hook: it goes with the command
        ({"host": "claude"}, "codex", "claude"),  # a person's stays, and no hook overwrites it
        ({"host": "plain"}, "claude", "plain"),
    ],
)
def test_a_recorded_host_goes_with_its_command_and_a_persons_stays(
    tmp_path: Path, root: Path, said: dict[str, str], seen: str, now: str | None
) -> None:
    def init(command: str) -> TeamUpdate:
        agent = {"id": "worker", "command": command, **said}
        (tmp_path / "team.yaml").write_text(json.dumps({"session": "demo", "agents": [agent]}), encoding="utf-8")
        team = read_team(tmp_path / "team.yaml")
        create_session(root, "demo", team, None)
        return update_session(open_session(root, "demo").agents, team, None)

    init(CLAUDE)
    services = open_session(root, "demo", notifier=Recorder())
    services.hooks.answer("worker", "task", Event("SessionStart", host=seen))
    assert init(CLAUDE) == TeamUpdate([], {}, {}, []), "what a hook recorded is nothing that team.yaml leaves out"
    assert services.agents.get("worker").host == said.get("host", seen)
    services.agents.change("worker", command=CLAUDE)
    assert services.agents.get("worker").host == said.get("host", seen), "the command is still the same"

    told = init(CODEX)
    agent = services.agents.get("worker")
    assert (agent.command, agent.host) == (CODEX, now)
    assert told.changed == {"worker": ["command"] if said else ["command", "host"]}
    words = services.host_configurations.argument(agent)
    assert ("-c mcp_servers.ipc" in words) == (now != "claude")


def test_the_persons_host_is_whoever_writes_it_and_the_empty_one_is_recorded_again(team_file: Path, root: Path) -> None:
    team = read_team(team_file)
    create_session(root, "demo", team, None)
    services = open_session(root, "demo", notifier=Recorder())
    add_missing(services.agents, team)
    seen = Event("SessionStart", host="codex")
    services.agents.change("worker-a", host="gemini")
    services.hooks.answer("worker-a", "task", seen)
    services.agents.change("worker-a", command=CODEX)
    assert services.agents.get("worker-a").host == "gemini"
    services.agents.change("worker-a", host="")
    services.hooks.answer("worker-a", "task", seen)
    assert services.agents.get("worker-a").host == "codex"
    services.agents.change("worker-a", command=CLAUDE, host="claude")
    services.hooks.answer("worker-a", "task", seen)
    assert services.agents.get("worker-a").host == "claude"

    services.hooks.answer("worker-b", "task", Event("SessionStart", host="claude"))
    services.agents.remove("worker-b")
    assert services.agents.add(Agent(id="worker-b", command=CODEX)).host is None
    services.agents.remove("worker-b")
    assert services.agents.add(Agent(id="worker-b", host="opencode")).declared_host == "opencode"


def test_an_older_record_starts_the_host_of_its_command_and_keeps_what_only_a_person_writes(
    team_file: Path, root: Path
) -> None:
    team = read_team(team_file)
    create_session(root, "demo", team, None)
    services = open_session(root, "demo", notifier=Recorder())
    add_missing(services.agents, team)
    registry = services.agents.registry
    registry.update("worker-a", command=CODEX, host="claude")  # Codex's command, and what a hook of Claude Code said
    assert "-c mcp_servers.ipc" in services.host_configurations.argument(services.agents.get("worker-a"))
    registry.update(
        "worker-a", command="./mine {mcp_config}", host="codex"
    )  # a launcher, whose host is not in its name
    assert "-c mcp_servers.ipc" in services.host_configurations.argument(services.agents.get("worker-a"))
    registry.update("worker-b", host="plain", command="cat")
    services.hooks.answer("worker-b", "task", Event("SessionStart", host="claude"))
    services.agents.change("worker-b", command="sh")
    assert services.agents.get("worker-b").host == "plain"


@pytest.mark.parametrize(("session", "refusal"), [("../x", InvalidId), ("", InvalidId), ("a/b", InvalidId)])
def test_a_session_name_cannot_leave_the_root(
    team_file: Path, root: Path, session: str, refusal: type[Refusal]
) -> None:
    with pytest.raises(refusal):
        create_session(root, session, read_team(team_file), None)
    assert not root.exists()


def test_a_file_where_the_root_should_be_is_a_storage_error(team_file: Path, root: Path) -> None:
    root.write_text("in the way")
    with pytest.raises(StorageError):
        create_session(root, "demo", read_team(team_file), None)


def test_a_team_whose_ids_differ_in_case_only_is_refused(team_file: Path) -> None:
    team_file.write_text(TEAM + "  - {id: Worker-B, parent: admin}\n")
    with pytest.raises(InvalidArguments, match=r"Worker-B.*worker-b"):
        read_team(team_file)


def test_a_second_init_adds_nobody_whose_id_differs_from_a_known_one_in_case_only(
    team_file: Path, tmp_path: Path
) -> None:
    team = read_team(team_file)
    create_session(tmp_path, "demo", team, None)
    agents = open_session(tmp_path, "demo", notifier=Recorder()).agents
    add_missing(agents, team)
    renamed = replace(team, agents=tuple(replace(agent, id=agent.id.upper()) for agent in team.agents))
    with pytest.raises(AlreadyExists, match="owner"):
        add_missing(agents, renamed)
    assert list(agents.all()) == ["owner", "admin", "worker-a", "worker-b"]


def test_a_session_whose_name_differs_from_another_one_in_case_only_is_refused(team_file: Path, tmp_path: Path) -> None:
    team = read_team(team_file)
    create_session(tmp_path, "demo", team, None)
    with pytest.raises(AlreadyExists, match="demo"):
        create_session(tmp_path, "Demo", team, None)
    assert session_names(tmp_path) == ["demo"]


def test_a_session_is_opened_by_its_exact_name_where_the_file_system_does_not_mind_the_case(
    team_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_session(tmp_path, "demo", read_team(team_file), None)
    (tmp_path / "Demo").symlink_to("demo")
    real_listing = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: [name for name in real_listing(path) if name != "Demo"])
    assert (tmp_path / "Demo" / "session.yaml").is_file()
    with pytest.raises(NoSuchSession):
        open_session(tmp_path, "Demo", notifier=Recorder())


def refused(tmp_path: Path, text: str) -> str:
    """The sentence with which a team.yaml is refused."""
    path = tmp_path / "team.yaml"
    path.write_text(text)
    with pytest.raises((InvalidArguments, InvalidId)) as refusal:
        read_team(path)
    return catalogue("en").sentence(refusal.value)


def test_a_key_that_is_given_twice_is_refused_with_its_lines(tmp_path: Path) -> None:
    doubled = "agents:\n  - {id: a}\nlanguage: en\nagents:\n  - {id: b}\n"
    assert "the key agents is given twice (lines 1 and 4)" in refused(tmp_path, doubled)
    assert "the key id is given twice (lines 2 and 2)" in refused(tmp_path, "agents:\n  - {id: a, id: b}\n")
    nested = "agents: [{id: a}]\nlimits:\n  stuck_minutes: 5\n  stuck_minutes: 6\n"
    assert "the key stuck_minutes is given twice (lines 3 and 4)" in refused(tmp_path, nested)


def test_keys_that_are_merged_may_be_said_again(tmp_path: Path) -> None:
    text = "shared: &it {role: worker, host: plain}\nmore: &more {<<: *it, host: claude}\n"
    (tmp_path / "team.yaml").write_text(f"{text}agents: [{{<<: *more, id: a, role: admin}}, {{<<: *it, id: b}}]\n")
    one, other = read_team(tmp_path / "team.yaml").agents
    assert [(one.role, one.host), (other.role, other.host)] == [("admin", "claude"), ("worker", "plain")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("agents: [{id: 1}]", 'id is 1, which YAML takes for no text; write "1" with quotes'),
        ("agents: [{id: true}]", 'write "true" with quotes'),
        ("agents: [{id: a, parent: 7}]", 'a.parent is 7, which YAML takes for no text; write "7" with quotes'),
        ("session: 2026\nagents: [{id: a}]", 'session is 2026, which YAML takes for no text; write "2026" with quotes'),
        ("language: no\nagents: [{id: a}]", "Language 'no' is not available"),
        ("reservations: on\nagents: [{id: a}]", "reservations is 'on', not one of advise, enforce"),
        ("guard: maybe\nagents: [{id: a}]", "guard must be true or false"),
    ],
)
def test_a_value_of_another_kind_is_named_with_what_to_write(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(tmp_path, text)


def test_words_that_older_yaml_takes_for_truth_are_names_and_switches_as_they_are_meant(tmp_path: Path) -> None:
    text = "session: 2026-11-27\nguard: on\nresume: no\nusage: off\nagents: [{id: no}, {id: on, parent: no}]\n"
    (tmp_path / "team.yaml").write_text(text)
    team = read_team(tmp_path / "team.yaml")
    assert [(agent.id, agent.parent_id) for agent in team.agents] == [("no", None), ("on", "no")]
    assert (team.session, team.resume, settings_of(team.settings).of("usage")) == ("2026-11-27", False, False)
    assert settings_of(team.settings).of("guard") is True


@pytest.mark.parametrize(
    ("command", "read"),
    [
        (">\n      claude\n      --mcp-config {mcp_config}\n", "claude --mcp-config {mcp_config}"),
        (">\n      claude\n        --mcp-config {mcp_config}\n", "claude --mcp-config {mcp_config}"),
        ("|\n      claude \\\n      --mcp-config {mcp_config}\n", "claude --mcp-config {mcp_config}"),
        ("|\n      claude\n      --mcp-config {mcp_config}\n\n", "claude --mcp-config {mcp_config}"),
        ('"claude {mcp_config}\\n"', "claude {mcp_config}"),
        ("|\n      cd app\n      claude {mcp_config}\n", "cd app\nclaude {mcp_config}"),
        (">\n      claude\n        {mcp_config}\n        --x\n", "claude {mcp_config} --x"),
        (
            "|\n      for a in 1\n      do\n        claude\n        codex\n      done\n",
            "for a in 1\ndo\n  claude\n  codex\ndone",
        ),
        ("|\n      claude -p 'Mind:\n      - tests\n      ' \"\n      - \"\n", "claude -p 'Mind:\n- tests\n' \"\n- \""),
        ("|\n      cat <<END\n        - a\n      END\n", "cat <<END\n  - a\nEND"),
    ],
)
def test_line_ends_of_folded_commands_are_none_of_the_shells(tmp_path: Path, command: str, read: str) -> None:
    (tmp_path / "team.yaml").write_text(f"agents:\n  - id: a\n    command: {command}")
    (agent,) = read_team(tmp_path / "team.yaml").agents
    assert agent.command == read


@pytest.mark.parametrize("key", ["protect", "statment", "role"])
def test_a_misspelt_key_of_a_team_is_named(key: str) -> None:
    with pytest.raises(InvalidArguments) as refusal:
        team_of({"agents": [{"id": "owner", "role": "owner"}], key: []})
    assert refusal.value.values["reason"].values["name"] == key
    team_of({"agents": [{"id": "owner", "role": "owner"}], "ours": []})


def test_an_element_of_a_list_is_named() -> None:
    with pytest.raises(InvalidArguments) as refusal:
        team_of({"agents": [{"id": "owner", "role": "owner"}], "protected": ["a", 1]})
    assert refusal.value.values["reason"].values["name"] == "protected[1]"
