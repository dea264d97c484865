"""The first `init`: parses a team.yaml and makes the session directory."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from multi_agent_mcp import settings as session_settings
from multi_agent_mcp.domain.agent import AGENT_TYPES, ON_DEMAND, ROLES, Agent
from multi_agent_mcp.domain.entity import agent_id as parse_agent_id
from multi_agent_mcp.domain.entity import session_name
from multi_agent_mcp.domain.patterns import is_readable
from multi_agent_mcp.domain.proof import require_conditions
from multi_agent_mcp.domain.times import format_time, now
from multi_agent_mcp.errors import AlreadyExists, InvalidArguments, InvalidId, Reason
from multi_agent_mcp.features.chosen import chosen, require_sound
from multi_agent_mcp.hosts import PLAIN, channels, described
from multi_agent_mcp.services.team.agents import Agents, Signatures
from multi_agent_mcp.services.team.approvals import Approvals
from multi_agent_mcp.services.team.commands import COMMAND, NEARLY, PLACEHOLDERS, problem_of
from multi_agent_mcp.services.team.upgrade import upgrade
from multi_agent_mcp.services.validation import require_one_line, require_skills, require_text
from multi_agent_mcp.session import Session
from multi_agent_mcp.store.aside import made_aside
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.ownership import require_own
from multi_agent_mcp.texts import DEFAULT_LANGUAGE, LANGUAGES, catalogue
from multi_agent_mcp.yaml_files import NOT_YAML, at_line, load_yaml, truth, yaml_problem

if TYPE_CHECKING:
    from multi_agent_mcp.settings import Settings

_AGENT_KEYS = frozenset({"id", "role", "type", "name", "parent", "parent_id", "command", "host", "prompt"})
_OTHER_KEYS = frozenset(
    {"ladder", "skills", "spawn", "shell", "limits", "resume", "statement", *session_settings.RULES}
)
_CHOICES: Mapping[str, Sequence[str | None]] = {
    "role": ROLES,
    "type": AGENT_TYPES,
    "spawn": (ON_DEMAND, None),
    "shell": (*session_settings.SHELLS, None),
}
PROMPT_CHARACTERS = 1_000
NAME_CHARACTERS = 200
_QUOTED = r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\[^\n]"""
_FOLD = re.compile(rf"({_QUOTED})|\\\n|[ \t]*\n[ \t]*(?=-|\{{\w+\}})", re.DOTALL)
"""A line end before an option or a placeholder, or one that the shell takes away, outside of quotes."""


class _Unusable(Exception):
    """Raised for a team file that is invalid, with the reason."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True)
class TeamFile:
    """A parsed team.yaml."""

    agents: tuple[Agent, ...]
    session: str | None = None
    language: str | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    notify_command: tuple[str, ...] | None = None
    console: Mapping[str, Any] = field(default_factory=dict)
    resume: bool = True
    checks: Mapping[str, Any] = field(default_factory=dict)
    done_when: tuple[str, ...] = ()
    shell: str = "sh"
    statement: bool = True
    protected: tuple[str, ...] = ()
    roles: Mapping[str, Any] = field(default_factory=dict)
    features: Mapping[str, Any] = field(default_factory=dict)
    at_most: int | str | None = None
    of_features: Mapping[str, Any] = field(default_factory=dict)
    """The keys of features, as they are there, that say something else than their default."""
    unknown: tuple[str, ...] = ()
    """The keys that are nothing to us: of a newer version, of a feature that is not there, or a person's own."""
    named: Mapping[str, Any] = field(default_factory=dict)
    """The settings that team.yaml names, as it does; an empty one or a default is not in `settings`."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings for session.yaml."""
        said = {
            "language": self.language,
            "limits": dict(self.limits),
            "notify_command": self.notify_command and list(self.notify_command),
            "console": dict(self.console),
            **self.of_features,
            "checks": dict(self.checks),
            "done_when": list(self.done_when),
            "shell": None if self.shell == "sh" else self.shell,
            "statement": None if self.statement else "off",
            "protected": list(self.protected),
            "roles": dict(self.roles),
            "features": dict(self.features),
            "at_most": self.at_most,
            "resume": None if self.resume else False,
        }
        return {key: value for key, value in said.items() if value not in (None, {}, [])}


_OF_CORE = frozenset(spec.name for spec in fields(TeamFile)) - {
    "agents",
    "session",
    "of_features",
    "named",
    "unknown",
}


def known_settings(features: Any) -> frozenset[str]:
    """The keys of team.yaml that become those of session.yaml, with these `features:`."""
    return _OF_CORE.union(session_settings.feature_keys(features))


def read_team(path: Path) -> TeamFile:
    """Parses a team.yaml (docs/protocol.md, Team file). Raises `InvalidArguments` or `InvalidId`, and
    `UntrustedSession` for one that somebody else may write, as it names programs."""
    require_own(path)
    try:
        data = load_yaml(path)
    except (OSError, *NOT_YAML) as error:
        raise InvalidArguments("bad_team", file=path.name, reason=yaml_problem(error)) from error
    try:
        return team_of(data, path.name)
    except InvalidArguments as refusal:
        if isinstance(reason := refusal.values.get("reason"), Reason):
            refusal.values["reason"] = at_line(path, reason)
        raise


def team_of(data: Any, name: str = "team") -> TeamFile:
    """The team that the content of a team.yaml describes, `name` for messages. Raises `InvalidArguments` or
    `InvalidId`."""
    try:
        return _team(data)
    except _Unusable as error:
        raise InvalidArguments("bad_team", file=name, reason=error.reason) from error


def _team(data: Any) -> TeamFile:
    agents = _members(data)
    _require_no_misspelt(data)
    session = _named(data.get("session"), "session")
    if not isinstance(session, str | None):
        raise _Unusable(Reason("no_text", name="session"))
    language = _named(data.get("language"), "language")
    if language is not None and language not in LANGUAGES:
        raise InvalidArguments("bad_language", language=repr(language)[:40], allowed=", ".join(LANGUAGES))
    try:
        settings = _settings(data)
    except InvalidArguments as refusal:
        if "reason" not in refusal.values:
            raise
        raise _Unusable(refusal.values["reason"]) from refusal
    known = known_settings(data.get("features"))
    return TeamFile(
        agents,
        session,
        language,
        notify_command=session_settings.parse_notify_command(data.get("notify_command")),
        named={key: value for key, value in data.items() if key in known and value is not None},
        unknown=tuple(f"{key!s:.60}" for key in data if key not in {*known, "agents", "session"}),
        **settings,
    )


def _require_no_misspelt(data: Mapping[str, Any]) -> None:
    """Raises `_Unusable` for an unknown key that is nearly a known one; others are left to whoever reads them."""
    _require_near({*known_settings(data.get("features")), "agents", "session"}, data)
    of_features = {key for feature in chosen(data.get("features"))[0].all for key in feature.of_agents}
    for record in data["agents"]:
        _require_near({*_AGENT_KEYS, *_OTHER_KEYS, *of_features}, record, f"{record['id']}.")


def _require_near(known: Collection[str], given: Mapping[str, Any], of: str = "") -> None:
    for key in map(str, given):
        if key not in known and (meant := get_close_matches(key, known, 1, NEARLY)):
            raise _Unusable(Reason("misspelt", name=f"{of}{key:.60}", meant=meant[0]))


def _members(data: Any) -> tuple[Agent, ...]:
    if not isinstance(data, dict) or not isinstance(data.get("agents"), list) or not data["agents"]:
        raise _Unusable(Reason("no_agents"))
    agents = tuple(_agent(record) for record in data["agents"])
    ids = [agent.id for agent in agents]
    lowered = [agent_id.lower() for agent_id in ids]
    if twice := {agent_id for agent_id in ids if lowered.count(agent_id.lower()) > 1}:
        raise _Unusable(Reason("twice", name=", ".join(sorted(twice))))
    return agents


def _settings(data: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that are handed on as they are, or parsed. Raises `InvalidArguments` for a wrong one."""
    said = session_settings.settings_of(data)
    features = require_sound(data.get("features")).all
    parsers = {key: where for feature in features for key, where in feature.settings.items()}
    of_agents = [key for feature in features for key in feature.of_agents]
    for record in data["agents"]:
        session_settings.parse_limits(record.get("limits"), f"{record['id']}.limits")
        require_patterns(session_settings.parse_rules(record, str(record["id"])).edits or ())
        session_settings.parse_switch(record.get("statement"), f"{record['id']}.statement")
        session_settings.parse_switch(record.get("resume"), f"{record['id']}.resume", "true, false")
        for key in (one for one in of_agents if one in record):
            session_settings.parsed(parsers[key], record[key], f"{record['id']}.{key}")
    by_role = (one for rules in said.roles.values() for one in session_settings.parse_rules(rules, "").edits or ())
    require_patterns([*said.protected, *by_role])
    _require_commands(data, said)
    return {
        **{key: data.get(key) or {} for key in ("limits", "console", "checks", "features")},
        **{key: getattr(said, key) for key in ("resume", "shell", "protected", "roles", "statement", "at_most")},
        "done_when": require_conditions(said.done_when, said.checks),
        "of_features": {
            key: data[key]
            for key, value in said.given.items()
            if value != session_settings.parsed(parsers[key], None, key)
        },
    }


def _require_commands(data: Mapping[str, Any], said: Settings) -> None:
    """Raises `_Unusable` for a command that sh(1) could not read; those for a person's own shell are not judged."""
    for record in data["agents"]:
        is_ours = (record.get("shell") or said.shell) == "sh"
        if is_ours and (command := _command(record)):
            _require_command(f"{record['id']}.command", command)
    ruled = {f"roles.{role}": rules for role, rules in said.roles.items()}
    ruled |= {str(record["id"]): record for record in data["agents"]}
    for name, rules in ruled.items():
        if (sandbox := session_settings.parse_rules(rules, name).sandbox) is not None:
            _require_command(f"{name}.sandbox", sandbox, (*PLACEHOLDERS, COMMAND))


def _require_command(name: str, command: str, known: tuple[str, ...] = PLACEHOLDERS) -> None:
    if (problem := problem_of(name, command, known)) is not None:
        raise _Unusable(problem)


def require_known_hosts(agents: Iterable[Agent], root: Path) -> None:
    """Raises `InvalidArguments` for a host without a profile: ours, and a person's below the root (docs/hosts.md)."""
    for agent in (one for one in agents if one.host not in (None, "", PLAIN)):
        require_text("host", agent.host)
        known = described(root)
        if agent.host not in known:
            facts = {"agent_id": agent.id, "host": f"{agent.host:.60}", "allowed": ", ".join(known)}
            raise InvalidArguments("no_such_host", **facts)


def require_usable(agent: Agent, root: Path, shell: str) -> None:
    """Raises `InvalidArguments` for a host without a profile, and a command that sh(1) could not read, unless the
    agent's own `shell`, else the team's, is a person's."""
    require_known_hosts([agent], root)
    is_ours = (agent.extra.get("shell") or shell) == "sh"
    if is_ours and agent.command and (problem := problem_of(f"{agent.id}.command", agent.command)) is not None:
        raise InvalidArguments("unusable_agent", reason=problem)


def require_patterns(patterns: Sequence[str]) -> None:
    """Raises `InvalidArguments` for a pattern that cannot be read."""
    if wrong := next((one for one in patterns if not is_readable(one.removeprefix("!"))), None):
        raise session_settings.refused("no_pattern", name=f"{wrong:.60}")


def _agent(record: Any) -> Agent:
    if not isinstance(record, dict) or "id" not in record:
        raise _Unusable(Reason("no_id", value=f"{reprlib.repr(record):.80}"))
    try:
        agent_id = parse_agent_id(_named(record["id"], "id"))
    except InvalidId as error:
        raise InvalidId(value=repr(record["id"])[:80]) from error
    for key, allowed in _CHOICES.items():
        if key in record and record[key] not in allowed:
            value = f"{record[key]!r:.60}"
            raise _Unusable(
                Reason("no_choice", name=f"{agent_id}.{key}", value=value, allowed=", ".join(filter(None, allowed)))
            )
    extra = {str(key): value for key, value in record.items() if key not in _AGENT_KEYS}
    for key in ("ladder", "skills"):
        extra |= {key: _list_in(record, key)} if record.get(key) is not None else {}
    parent = record.get("parent_id", record.get("parent"))
    return Agent(
        id=agent_id,
        role=record.get("role", "worker"),
        type=record.get("type", "ai"),
        name=_name(record),
        parent_id=None if parent is None else parse_agent_id(_named(parent, f"{agent_id}.parent")),
        command=_command(record),
        host=_text_or_none(record, "host"),
        prompt=_prompt(record),
        extra=_as_json(extra),
    )


def _name(record: Mapping[str, Any]) -> str:
    """The agent's name for people. Raises `InvalidArguments` for one of several lines or too long."""
    key = f"{record['id']}.name"
    _named(record.get("name"), key)
    name = _text_or_none(record, "name") or ""
    require_one_line(key, name)
    if len(name) > NAME_CHARACTERS:
        raise _Unusable(Reason("too_long", name=key, limit=NAME_CHARACTERS))
    return name


def _list_in(record: Mapping[str, Any], key: str) -> list[str]:
    """The agent's channels, or its skills."""
    name, given = f"{record['id']}.{key}", record[key]
    if not isinstance(given, list):
        raise _Unusable(Reason("no_list", name=name))
    for place, value in enumerate(given):
        if key == "ladder" and value not in channels():
            facts = {"value": f"{value!r:.60}", "allowed": ", ".join(channels())}
            raise _Unusable(Reason("no_choice", name=f"{name}[{place}]", **facts))
        if not session_settings.is_word(value):
            raise _Unusable(Reason("no_text", name=f"{name}[{place}]"))
    return list(require_skills(given, name)) if key == "skills" else given


def _as_json(extra: dict[str, Any]) -> dict[str, Any]:
    """Returns the user's own keys as stored in agents.json; values that JSON cannot represent (dates) become text."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(extra, default=str, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise _Unusable(Reason("no_json")) from error
    return plain


def _named(value: Any, key: str) -> Any:
    """A name, as it is. Raises `_Unusable` for one that YAML reads as a number or truth value."""
    if isinstance(value, (bool, int, float)):
        spelled = str(value).lower() if isinstance(value, bool) else str(value)
        raise _Unusable(Reason("unquoted", name=key, value=f"{spelled:.60}"))
    return value


def _command(record: Mapping[str, Any]) -> str | None:
    """The agent's command without line ends around it and before its further words, which no command begins with:
    YAML's folding leaves some. One with a here-document stays as it is."""
    command = _text_or_none(record, "command")
    if command is None or "<<" in command:
        return command and command.strip()
    return _FOLD.sub(lambda found: found[1] or ("" if found[0] == "\\\n" else " "), command.strip())


def _text_or_none(record: Mapping[str, Any], key: str) -> str | None:
    value = record.get(key)
    if value is not None and not isinstance(value, str):
        raise _Unusable(Reason("no_text", name=f"{record['id']}.{key}"))
    return value


def _prompt(record: Mapping[str, Any]) -> str | None:
    """Returns the agent's own first prompt. It becomes a program's argument, which may not contain NUL, and part of a
    tmux command, which is limited to 16 kB. Raises `InvalidArguments`."""
    prompt = record.get("prompt")
    if prompt is None or (isinstance(prompt, str) and "\0" not in prompt and len(prompt) <= PROMPT_CHARACTERS):
        return prompt
    raise InvalidArguments("bad_prompt", agent_id=record["id"], most=PROMPT_CHARACTERS)


def create_session(root: Path, session: str, team: TeamFile, language: str | None) -> Path:
    """Makes the session directory, or completes it: a second `init` keeps keys, mail and settings. Returns its path.

    Raises `AlreadyExists` for a name that differs from that of another session only in case.
    """
    workspace = Workspace(root, session_name(session))
    _make(workspace, team, language)
    return workspace.path


def _make(workspace: Workspace, team: TeamFile, language: str | None) -> None:
    workspace.make()
    first = {"id": workspace.session, "language": DEFAULT_LANGUAGE, "created_at": format_time(now()), "limits": {}}
    chosen = {"language": language} if language else {}
    settings = {**first, **team.settings, **chosen}
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    workspace.registry.create()
    with suppress(FileExistsError):  # a second init. This file comes last, as it makes the directory a session.
        workspace.files.create(workspace.settings_path, text.encode())
    workspace.keep_out_of_git()


def create_team(root: Path, session: str, team: TeamFile) -> None:
    """Makes a session with its agents, whole or not at all. Raises `FileExistsError` if it exists, `OSError` for a
    directory that cannot be written, and as `create_session`, `Agents.add` and `Agents.superiors`."""
    name = session_name(session)
    require_known_hosts(team.agents, root)
    with made_aside(root, name) as aside:
        workspace = Workspace(aside, name)
        with workspace.files.in_bulk(durable=False):
            _make(workspace, team, team.language)
            settings = session_settings.read_settings(workspace.settings_path)
            agents = Agents(Session(workspace, settings, catalogue(settings.language), now))
            workspace.make_inboxes(*(agent.id for agent in team.agents))
            for agent_id in add_missing(agents, team):
                agents.superiors(agent_id)
            upgrade(workspace)


def add_missing(agents: Agents, team: TeamFile) -> list[str]:
    """Registers the team's agents that are missing, and updates command, host, prompt and name of the others where
    team.yaml says something else than it did before. A new session is approved as it is written. Returns the ids that
    were added."""
    approvals = Approvals(agents.session, agents, Signatures(agents))
    with approvals.following(first=approvals.is_first()) as followed:
        added = _add_missing(agents, team)
        followed.agents += [agent for agent in team.agents if agent.id in added]
        return added


def _add_missing(agents: Agents, team: TeamFile) -> list[str]:
    added = []
    for agent in team.agents:
        wanted = {"command": agent.command, "host": agent.host, "prompt": agent.prompt, "name": agent.name or None}
        said = {key: value for key, value in wanted.items() if value is not None}
        try:
            agents.add(replace(agent, team_file=said))
            added.append(agent.id)
        except AlreadyExists:
            if agent.id not in agents.all():
                raise  # another agent, whose id differs only in case
            agents.registry.revise(agent.id, partial(Agent.changed_by_team_file, said=said))
    return added


# A second `init`: applies the changes in team.yaml to a session, except some (docs/protocol.md, Commands).

_OURS = frozenset(spec.name for spec in fields(Agent))
_FIXED = ("role", "type", "parent_id")
"""The identity of an agent, on which others rely: a second `init` does not change it."""
_TAKEN_OVER = ("command", "host", "prompt", "name")
_STAYS = ("command", "host", "prompt")
_STAYS_TOO = ("ladder", "spawn", "skills")
"""Keys that are kept if team.yaml does not mention them, as a person may have added them: `workspace add`, which makes
a worktree for good, is not repeated by each `init`."""


_TOLD = "kept_told"
"""The key of an agent's record with the keys of which `init` has told that it keeps them."""


@dataclass(frozen=True)
class TeamUpdate:
    """The result of a second `init`. `changed` and `kept` are the keys in which team.yaml differed, per agent (or
    `session.yaml`); keys that it does not mention are kept, those of session.yaml also listed as `unnamed`. `left_out`
    are the agents that team.yaml does not name, `new_keys` those that got a new passkey, as theirs was lost,
    `told_before` those whose `kept` keys an earlier `init` has named."""

    added: list[str]
    changed: Mapping[str, list[str]]
    kept: Mapping[str, list[str]]
    left_out: list[str]
    new_keys: list[str] = field(default_factory=list)
    told_before: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)


def update_session(agents: Agents, team: TeamFile, language: str | None) -> TeamUpdate:
    """Updates a session from its team.yaml; for a new session it only registers the agents. Approves nothing."""
    unnamed = _unnamed(load_yaml(agents.workspace.settings_path), team)
    changed_settings, kept_settings = _update_settings(agents.workspace, team, language)
    new_keys = [agents.renew_key(agent_id).id for agent_id in agents.without_key()]
    before = dict(agents.all())
    added = _add_missing(agents, team)
    for agent in team.agents:
        own = {key: value for key, value in agent.extra.items() if key not in _OURS}
        if agent.id in before and own:
            agents.registry.update(agent.id, **own)
    after = agents.all()
    known = [agent for agent in team.agents if agent.id in before and agent.id in after]
    changed = {agent.id: _differing(before[agent.id], after[agent.id]) for agent in known}
    kept = {agent.id: _kept(agent, after[agent.id]) for agent in known}
    told = {agent_id: after[agent_id].extra.get(_TOLD, []) for agent_id in kept}
    told_before = [name for name, keys in kept.items() if keys and keys == told[name] and set(_FIXED).isdisjoint(keys)]
    for agent_id, keys in kept.items():
        if keys != told[agent_id]:
            agents.registry.update(agent_id, **{_TOLD: keys})
    named = {agent.id for agent in team.agents}
    return TeamUpdate(
        added=added,
        changed=_without_empty({"session.yaml": changed_settings, **changed}),
        kept=_without_empty({"session.yaml": [*kept_settings, *unnamed], **kept}),
        left_out=[agent_id for agent_id in after if agent_id not in named],
        new_keys=new_keys,
        told_before=told_before,
        unnamed=unnamed,
    )


def features_after(agents: Agents, team: TeamFile) -> Any:
    """What session.yaml says of `features` after an `init`."""
    settings = load_yaml(agents.workspace.settings_path)
    keeps = _has_comments(agents.workspace) or "features" not in team.named
    return settings.get("features") if keeps else team.features


def _has_comments(workspace: Workspace) -> bool:
    """Whether a person has written comments into session.yaml, which writing it would lose."""
    return b"#" in (workspace.files.read(workspace.settings_path) or b"")


def _update_settings(workspace: Workspace, team: TeamFile, language: str | None) -> tuple[list[str], list[str]]:
    """Updates session.yaml; returns the changed keys and the kept ones. Nothing is changed if the file has comments,
    which writing it would lose."""
    settings = load_yaml(workspace.settings_path)
    wanted = {**team.settings, **({"language": language} if language else {})}
    wanted |= {key: said for key, said in team.named.items() if key in settings and key not in wanted}  # empty, default
    differing = {key: value for key, value in wanted.items() if truth(settings.get(key)) != truth(value)}
    if not differing:
        return [], []
    if _has_comments(workspace):
        return [], list(differing)
    text = yaml.safe_dump({**settings, **differing}, sort_keys=False, allow_unicode=True)
    workspace.files.replace(workspace.settings_path, text.encode())
    return list(differing), []


def _unnamed(settings: Mapping[str, Any], team: TeamFile) -> list[str]:
    """What session.yaml sets and team.yaml does not name; each session has a language."""
    others = known_settings(settings.get("features")) - {"language", *team.named}
    return [key for key in settings if key in others and settings[key] not in (None, {}, [])]


def _kept(wanted: Agent, after: Agent) -> list[str]:
    fixed = [key for key in _FIXED if getattr(wanted, key) != getattr(after, key)]
    said = replace(after, host=after.declared_host)
    gone = [key for key in _STAYS if getattr(wanted, key) is None and getattr(said, key) is not None]
    own = [key for key in _TAKEN_OVER if getattr(wanted, key) and getattr(wanted, key) != getattr(said, key)]
    return [*fixed, *gone, *own, *(key for key in _STAYS_TOO if after.extra.get(key) and key not in wanted.extra)]


def _differing(before: Agent, after: Agent) -> list[str]:
    own = [key for key in after.extra if before.extra.get(key) != after.extra[key]]
    return [key for key in _TAKEN_OVER if getattr(before, key) != getattr(after, key)] + own


def _without_empty(lists: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {name: items for name, items in lists.items() if items}
