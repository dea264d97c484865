"""A second `init`: applies the changes in team.yaml to a session, except some (docs/protocol.md, Commands)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import yaml

from multi_agent_mcp.config import load_yaml
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.services.team.agents import Agents
from multi_agent_mcp.services.team.setup import Team, add_missing
from multi_agent_mcp.store.workspace import Workspace

_OURS = frozenset(spec.name for spec in fields(Agent))
_FIXED = ("role", "type", "parent_id")
"""The identity of an agent, on which others rely: a second `init` does not change it."""
_TAKEN_OVER = ("command", "host", "prompt", "name")
_STAYS = ("command", "host", "prompt")
_STAYS_TOO = ("ladder", "spawn")
"""Keys that are kept if team.yaml does not mention them: `agent set`, or a person, may have added them."""


@dataclass(frozen=True)
class TeamUpdate:
    """The result of a second `init`. `changed` and `kept` are the keys in which team.yaml differed, per agent (or
    `session.yaml`); keys that it does not mention are kept. `left_out` are the agents that team.yaml does not name."""

    added: list[str]
    changed: Mapping[str, list[str]]
    kept: Mapping[str, list[str]]
    left_out: list[str]


def update_session(agents: Agents, team: Team, language: str | None) -> TeamUpdate:
    """Updates a session from its team.yaml; for a new session it only registers the agents."""
    changed_settings, kept_settings = _update_settings(agents.workspace, team, language)
    before = dict(agents.all())
    added = add_missing(agents, team)
    for agent in team.agents:
        own = {key: value for key, value in agent.extra.items() if key not in _OURS}
        if agent.id in before and own:
            agents.registry.update(agent.id, **own)
    after = agents.all()
    known = [agent for agent in team.agents if agent.id in before and agent.id in after]
    changed = {agent.id: _differing(before[agent.id], after[agent.id]) for agent in known}
    kept = {agent.id: _kept(agent, after[agent.id]) for agent in known}
    named = {agent.id for agent in team.agents}
    return TeamUpdate(
        added,
        _without_empty({"session.yaml": changed_settings, **changed}),
        _without_empty({"session.yaml": kept_settings, **kept}),
        [agent_id for agent_id in after if agent_id not in named],
    )


def _update_settings(workspace: Workspace, team: Team, language: str | None) -> tuple[list[str], list[str]]:
    """Updates session.yaml; returns the changed keys and the kept ones. Nothing is changed if the file has comments,
    which writing it would lose."""
    wanted = {**team.settings, **({"language": language} if language else {})}
    settings = load_yaml(workspace.settings_path)
    differing = {key: value for key, value in wanted.items() if settings.get(key) != value}
    if not differing:
        return [], []
    if b"#" in (workspace.files.read(workspace.settings_path) or b""):
        return [], list(differing)
    text = yaml.safe_dump({**settings, **differing}, sort_keys=False, allow_unicode=True)
    workspace.files.replace(workspace.settings_path, text.encode())
    return list(differing), []


def _kept(wanted: Agent, after: Agent) -> list[str]:
    fixed = [key for key in _FIXED if getattr(wanted, key) != getattr(after, key)]
    said = replace(after, host=after.declared_host)
    gone = [key for key in _STAYS if getattr(wanted, key) is None and getattr(said, key) is not None]
    return [*fixed, *gone, *(key for key in _STAYS_TOO if key in after.extra and key not in wanted.extra)]


def _differing(before: Agent, after: Agent) -> list[str]:
    own = [key for key in after.extra if before.extra.get(key) != after.extra[key]]
    return [key for key in _TAKEN_OVER if getattr(before, key) != getattr(after, key)] + own


def _without_empty(lists: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {name: items for name, items in lists.items() if items}
