"""Agents, their roles, and the hierarchy over `parent_id`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from multi_agent_mcp.errors import AgentNotFound, InvalidArguments

Role = Literal["owner", "admin", "worker"]
AgentType = Literal["ai", "human"]
Purpose = Literal["task", "chat"]

ROLES: tuple[str, ...] = get_args(Role)
PERSON = "person"
AGENT_TYPES: tuple[str, ...] = get_args(AgentType)
PURPOSES: tuple[str, ...] = get_args(Purpose)


@dataclass(frozen=True, kw_only=True)
class Agent:
    """A named participant: one record of `agents.json`. The pane fields locate the pane in which it is rung;
    `pane_program` identifies the processes that read its terminal when it was registered. `machine` is its home in a
    shared session, with its server, pane and key. `host` names the profile of its host, or is `plain` for a program
    that reads lines; `host_by` is `person` if a person wrote it, else a hook recorded it (docs/format.md, agents.json).
    `prompt` replaces the host's first prompt."""

    id: str
    role: str = "worker"
    type: str = "ai"
    name: str = ""
    parent_id: str | None = None
    status: str = "active"
    session_name: str | None = None
    window_index: int | None = None
    pane_index: int | None = None
    pane_id: str | None = None
    socket_path: str | None = None
    pane_pid: int | None = None
    tmux_pid: int | None = None
    pane_program: list[str] | None = None
    command: str | None = None
    host: str | None = None
    host_by: str | None = None
    prompt: str | None = None
    created_at: str | None = None
    passkey_hash: str | None = None
    public_key: str | None = None
    machine: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def may_be_human(self) -> bool:
        """Whether the agent may be a person: an Owner counts whatever its type, whose default is `ai`."""
        return self.role == "owner" or self.type == "human"

    @property
    def declared_host(self) -> str | None:
        """The host that a person wrote; None if there is none, or it was only recorded. `plain` is never recorded, and
        older records have no `host_by`."""
        return self.host if self.host_by == PERSON or self.host == "plain" else None

    def changed_by_person(self, changed: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the fields to write for a person's changes: a given host becomes the person's own; a recorded one is
        dropped with the command that it was recorded under."""
        if "host" in changed:
            return {**changed, "host_by": PERSON if changed["host"] else None}
        is_stale = self.declared_host is None and changed.get("command", self.command) != self.command
        return {**changed, "host": None} if is_stale else dict(changed)

    def seen_in(self, host: str | None) -> dict[str, Any]:
        """Returns the fields to write for a host in which the agent was seen: none if a person said otherwise."""
        return {} if host is None or self.declared_host is not None else {"host": host}

    @property
    def removed(self) -> bool:
        """Whether the agent was removed: its record and files stay, but nobody can write to it."""
        return self.status == "removed"


def superiors(agent_id: str, agents: Mapping[str, Agent]) -> Iterator[Agent]:
    """The strict ancestors (上位者), nearest first. Raises `AgentNotFound`, and `InvalidArguments` for a cycle or a
    missing parent."""
    seen = {agent_id}
    if agent_id not in agents:
        raise AgentNotFound(agent_id=agent_id)
    parent_id = agents[agent_id].parent_id
    while parent_id is not None:
        if parent_id in seen:
            raise InvalidArguments("hierarchy_cycle", agent_id=parent_id)
        seen.add(parent_id)
        parent = agents.get(parent_id)
        if parent is None:
            raise InvalidArguments("hierarchy_missing_parent", agent_id=agent_id, parent_id=parent_id)
        yield parent
        parent_id = parent.parent_id


def is_superior(candidate: str, of: str, agents: Mapping[str, Agent]) -> bool:
    """Whether `candidate` is a strict ancestor of `of` (docs/protocol.md, Hierarchy). Raises as `superiors`."""
    return any(superior.id == candidate for superior in superiors(of, agents))


def sharing_panes(agents: Iterable[Agent]) -> list[list[str]]:
    """The ids of agents that are registered in one pane (docs/protocol.md, Pane identity), a list for each such pane:
    the lines for one are typed to whoever is there."""
    by_pane: dict[object, list[str]] = {}
    for agent in agents:
        if agent.pane_id is not None:
            place = agent.socket_path, agent.tmux_pid, agent.pane_id, agent.pane_pid
            by_pane.setdefault(place, []).append(agent.id)
    return [ids for ids in by_pane.values() if len(ids) > 1]


def by_server(agents: Iterable[Agent]) -> dict[tuple[str | None, int | None], list[str]]:
    """The ids of the agents by their tmux server: its socket and, if known, its process."""
    servers: dict[tuple[str | None, int | None], list[str]] = {}
    for agent in agents:
        servers.setdefault((agent.socket_path, agent.tmux_pid), []).append(agent.id)
    return servers


def waking_tmux(socket_path: str | None, pid: int | None) -> str:
    """The command that lets a stopped tmux server go on; for an unknown process one that tells whether it answers."""
    return f"kill -CONT {pid}" if pid else f"tmux -S {socket_path} ls"


def in_tree_order(agents: Mapping[str, Agent]) -> list[tuple[Agent, int]]:
    """All agents with their depth, each below its superior. An agent without a superior here, or in a cycle, is the
    root of a tree of its own: this is for display, so it never fails."""
    below: dict[str | None, list[Agent]] = {}
    for agent in agents.values():
        below.setdefault(agent.parent_id if agent.parent_id in agents else None, []).append(agent)
    found: dict[str, tuple[Agent, int]] = {}
    for root in (*below.get(None, ()), *agents.values()):
        pending = [(root, 0)]
        while pending:
            agent, depth = pending.pop()
            if agent.id not in found:
                found[agent.id] = agent, depth
                pending += [(child, depth + 1) for child in reversed(below.get(agent.id, ()))]
    return list(found.values())


def nearest_superior(agent_id: str, agents: Mapping[str, Agent]) -> Agent | None:
    """The superior to notify about an agent: the nearest one that was not removed, else an Owner, also if the hierarchy
    is broken; None if there is none. Never raises."""
    with suppress(AgentNotFound, InvalidArguments):
        for superior in superiors(agent_id, agents):
            if not superior.removed:
                return superior
    return next((owner for owner in owners(agents) if owner.id != agent_id), None)


def owners(agents: Mapping[str, Agent]) -> list[Agent]:
    """The Owners, the first registered one first: the same order on every machine."""
    found = (agent for agent in agents.values() if agent.role == "owner" and not agent.removed)
    return sorted(found, key=lambda owner: str(owner.created_at or ""))


def report_recipient(agent_id: str, agents: Mapping[str, Agent]) -> Agent:
    """The recipient of `report_task_*`: the nearest superior with role admin, else the Owner above the agent, else the
    first Owner (docs/protocol.md, Hierarchy). Raises `AgentNotFound`, and as `superiors`."""
    above = list(superiors(agent_id, agents))
    admins = (superior for superior in above if superior.role == "admin")
    own = owners({superior.id: superior for superior in above})
    for agent in (*admins, *own, *owners(agents)):
        if agent.id != agent_id:
            return agent
    raise AgentNotFound("no_superior", agent_id=agent_id)
