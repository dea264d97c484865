"""Agents, their roles, the hierarchy over `parent_id`, and agent sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal, get_args

from multi_agent_mcp.domain.entity import EPOCH, Entity, Identified
from multi_agent_mcp.errors import AgentNotFound, InvalidArguments

Role = Literal["owner", "admin", "worker"]
AgentType = Literal["ai", "human"]
Purpose = Literal["task", "chat"]

ROLES: tuple[str, ...] = get_args(Role)
PERSON = "person"
WHOEVER = "@"
"""What a receiver begins with who is not known yet: `@role`, `@any`."""
AGENT_TYPES: tuple[str, ...] = get_args(AgentType)
ON_DEMAND = "on_demand"
"""The value of an agent's key `spawn` with which the supervisor starts it when there is work for it."""
PURPOSES: tuple[str, ...] = get_args(Purpose)


@dataclass(frozen=True, kw_only=True)
class Agent:
    """A named participant: one record of `agents.json`. The pane fields locate the pane in which it is rung;
    `pane_program` identifies the processes that read its terminal when it was registered. `machine` is its home in a
    shared session, with its server, pane and key. `host` names the profile of its host, or is `plain` for a program
    that reads lines; `host_by` is `person` if a person wrote it, else a hook recorded it (docs/format.md, agents.json).
    `prompt` replaces the host's first prompt. `team_file` is what team.yaml said when it was last taken over;
    `tmux_server` is when process `tmux_pid` started and which program it is."""

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
    team_file: dict[str, str] | None = None
    tmux_server: str | None = None
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

    def changed_by_team_file(self, said: dict[str, str]) -> dict[str, Any]:
        """Returns the fields to write for what team.yaml says: what it said before, a person may have changed since."""
        before = self.team_file or {}
        return self.changed_by_person({key: value for key, value in said.items() if before.get(key) != value}) | {
            "team_file": said
        }

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


def is_known_superior(candidate: str, of: str, agents: Mapping[str, Agent]) -> bool:
    """As `is_superior`; in a broken hierarchy nobody is one."""
    try:
        return is_superior(candidate, of, agents)
    except (AgentNotFound, InvalidArguments):
        return False


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


# Agent sessions: one running server process of an agent, with a purpose (docs/protocol.md, Agent sessions).

SESSION_LIFETIME = timedelta(seconds=3600)
DIED = "died"


ANY_TASK = "-"
"""What stands for the task of an interrupt that names none."""


@dataclass(frozen=True, kw_only=True)
class AgentSession(Identified):
    """An agent session. `state` is `active`, `ended`, `expired`, or `died` if its process did not end it. `unconfirmed`
    are the leased files of the last answers (paths in the session directory and the time of the mark; without it, or
    ids, in files of earlier versions), which the agent's next server makes unread again if this process dies before its
    next call. `calls` counts the tool calls. `machine` is that of the process, in a shared session. `host` is the
    program that started the process, `host_session` that program's own id of its conversation, once known, and
    `host_directory` where it works, `host_pid` its process, with its start time. `stopped` are the tasks of the
    interrupts that the agent has read and not answered yet, the last read last; `ANY_TASK` for one that names no task.
    """

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset(
        {"machine", "host", "host_session", "host_directory", "stopped", "host_pid", "host_pid_started_at"}
    )

    id: str
    agent_id: str = ""
    purpose: str = "task"
    task_id: str | None = None
    state: str = "active"
    token_hash: str = ""
    pid: int = 0
    pid_started_at: str | None = None
    created_at: datetime = EPOCH
    last_activity_at: datetime = EPOCH
    expires_at: datetime = EPOCH
    ended_at: datetime | None = None
    unconfirmed: tuple[str, ...] = ()
    calls: int = 0
    machine: str | None = None
    host: str | None = None
    host_session: str | None = None
    host_directory: str | None = None
    stopped: tuple[str, ...] | None = None
    host_pid: int | None = None
    host_pid_started_at: str | None = None

    def touch(self, at: datetime) -> AgentSession:
        """The session after a call, which renews its lifetime."""
        return replace(self, last_activity_at=at, expires_at=at + SESSION_LIFETIME, calls=self.calls + 1)

    @property
    def called(self) -> bool:
        """Whether a tool was called; `calls` begins at 1."""
        return self.calls > 1

    def with_unconfirmed(self, files: tuple[str, ...]) -> AgentSession:
        """The session with these files as unconfirmed."""
        return replace(self, unconfirmed=files)

    def in_conversation(
        self, host: str | None, host_session: str | None, host_directory: str | None = None
    ) -> AgentSession:
        """The session in this conversation of its host; what is not known stays as it was."""
        return replace(
            self,
            host=host or self.host,
            host_session=host_session or self.host_session,
            host_directory=host_directory or self.host_directory,
        )

    def on_task(self, task_id: str | None) -> AgentSession:
        """The session bound to this task, which an interrupt read before does not concern."""
        return replace(self, task_id=task_id, stopped=None)

    def told_to_stop(self, task_ids: Iterable[str]) -> AgentSession:
        """The session after its agent has read interrupts about these tasks."""
        known = [task_id for task_id in self.stopped or () if task_id not in set(task_ids)]
        return replace(self, stopped=(*known, *task_ids) or None)

    def has_stopped(self, task_id: str) -> AgentSession:
        """The session after its agent has answered the interrupts about this task, and those that name none."""
        left = tuple(known for known in self.stopped or () if known not in (task_id, ANY_TASK))
        return replace(self, stopped=left or None)

    def end(self, at: datetime, state: str = "ended") -> AgentSession:
        return self if self.ended_at else replace(self, state=state, ended_at=at)

    def expired(self, at: datetime) -> bool:
        return at >= self.expires_at


# Executions: one stretch of work of a task session on a task, with a log of its tool calls (docs/protocol.md,
# Executions).

ExecutionStatus = Literal["running", "completed", "failed"]


@dataclass(frozen=True, kw_only=True)
class Execution(Identified):
    """An execution. `log_file_path` is relative to the session directory; `duration_seconds` is set at the end."""

    BEGAN: ClassVar[str] = "started_at"
    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"traceparent"})

    id: str
    agent_id: str = ""
    task_id: str = ""
    session_id: str = ""
    status: str = "running"
    started_at: datetime = EPOCH
    completed_at: datetime | None = None
    exit_code: int | None = None
    duration_seconds: float | None = None
    log_file_path: str = ""
    error_message: str | None = None
    traceparent: str | None = None
    """The trace of the call that began it."""

    @property
    def running(self) -> bool:
        return self.completed_at is None

    def finish(self, at: datetime, *, error_message: str | None = None) -> Execution:
        """The finished execution: `completed` with exit code 0, or `failed` with 1 and the reason. Finishing twice
        changes nothing."""
        if not self.running:
            return self
        return replace(
            self,
            status="completed" if error_message is None else "failed",
            completed_at=at,
            exit_code=0 if error_message is None else 1,
            duration_seconds=round(max((at - self.started_at).total_seconds(), 0.0), 3),
            error_message=error_message,
        )


# Hand-offs: what an agent, or its superior, has to know to go on with a task (docs/protocol.md, Hand-offs).

HAND_OFF_CHARACTERS = 4_000


@dataclass(frozen=True, kw_only=True)
class HandOff(Identified):
    """A hand-off. `kind` is `written` by its agent, or `derived` from the task and its log. `task_id` is the task that
    it is about, if any."""

    BODY: ClassVar[str | None] = "content"

    id: str
    agent_id: str = ""
    task_id: str | None = None
    kind: str = "written"
    created_at: datetime = EPOCH
    content: str = ""


# The Owner's wait-lock: after `send_task` to an Admin the Owner waits for an answer and does not poll
# (docs/protocol.md, Owner wait).


@dataclass(frozen=True, kw_only=True)
class OwnerWait(Entity):
    """A wait-lock. `empty_checks` counts checks in a row that found no mail; `released_by` is the message that ended
    the wait."""

    owner_id: str = ""
    admin_id: str = ""
    task_id: str = ""
    message_id: str = ""
    since: datetime = EPOCH
    empty_checks: int = 0
    released_by: str | None = None

    def checked(self, unread: int) -> OwnerWait:
        """The wait after a check that found `unread` messages."""
        return replace(self, empty_checks=0 if unread else self.empty_checks + 1)
