"""The state of a session for views: agents, open tasks, the newest messages, machines."""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice, takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from multi_agent_mcp.domain.agent import Agent, AgentSession, OwnerWait, in_tree_order
from multi_agent_mcp.domain.dialog import Asked
from multi_agent_mcp.domain.entity import age, fields_of
from multi_agent_mcp.domain.task import TASK_STATUSES, Task, work_order
from multi_agent_mcp.domain.text import one_line
from multi_agent_mcp.domain.times import format_time, from_timestamp, json_values, local_zone, parse_time
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.records import SHARE, Record
from multi_agent_mcp.texts import Texts, catalogue

if TYPE_CHECKING:
    from multi_agent_mcp.domain.notification import Notification
    from multi_agent_mcp.domain.question import Question
    from multi_agent_mcp.domain.stuck import Stuck
    from multi_agent_mcp.services.mail import DeliveryTracking
    from multi_agent_mcp.services.mail_search import MailSearch
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.overview.stuck_agents import StuckAgents
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.sessions.session_records import OwnerWaits
    from multi_agent_mcp.services.tasks.delivered import DeliveryRecords
    from multi_agent_mcp.services.team.agents import Agents
    from multi_agent_mcp.services.team.limited import Limited, LimitedAgents

logger = logging.getLogger(__name__)

SUBJECT_CHARACTERS = 120


@dataclass(frozen=True, kw_only=True)
class AgentRow:
    """An agent's state; `watch`, the console and the dashboard each show a part of it.

    `depth` is the number of its superiors, `running` its sessions whose process runs, `interrupts` the number of unread
    interrupts that apply, `pause` the current pause, `task` the task it works on, `wait` an Owner's wait-lock, `stuck`
    why it is stuck, if that was asked for, `limit` the usage limit that its host has met; `away`: its machine is away;
    `alive`: a server process of it runs (docs/format.md, agent session); `active_at`: when that was last called;
    `asked`: the number of open questions to it, `overdue` of those whose deadline has passed.
    """

    agent: Agent
    depth: int
    running: tuple[AgentSession, ...]
    unread: int
    interrupts: int
    pause: Notification | None
    task: Task | None
    wait: OwnerWait | None
    stuck: Stuck | None = None
    limit: Limited | None = None
    away: bool = False
    alive: bool = False
    active_at: datetime | None = None
    asked: int = 0
    overdue: int = 0

    @property
    def waiting_for(self) -> str | None:
        return self.wait.admin_id if self.wait else None

    def as_answer(self) -> dict[str, Any]:
        return {
            "id": self.agent.id,
            "role": self.agent.role,
            "depth": self.depth,
            "alive": self.alive,
            "unread": self.unread,
            "open_questions": self.asked,
            "overdue_questions": self.overdue,
            "interrupted": self.interrupts > 0,
            "task_id": self.task.id if self.task else None,
            "task_title": self.task.title if self.task else None,
            "waiting_for": self.waiting_for,
            "active_at": self.active_at and format_time(self.active_at),
            "stuck": self.stuck.cause if self.stuck else None,
            **({"limited_until": self.limit.until_said} if self.limit else {}),
            **({"machine": self.agent.machine, "away": self.away} if self.agent.machine is not None else {}),
        }


@dataclass(frozen=True, kw_only=True)
class MessageRow:
    """A message. `state` is its delivery state, `reason` why it got no further; without a subject, `subject` holds the
    first words."""

    id: str
    sender_id: str
    receiver_id: str
    message_type: str
    subject: str
    created_at: datetime
    state: str
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The state of a session: the open tasks, the number of all tasks by status, the newest messages, the agents."""

    session: str
    at: datetime
    counts: dict[str, int]
    agents: tuple[AgentRow, ...]
    tasks: tuple[Task, ...]
    messages: tuple[MessageRow, ...]

    def as_answer(self) -> dict[str, Any]:
        """The fields as JSON-ready values."""
        return {
            "session": self.session,
            "at": format_time(self.at),
            "counts": self.counts,
            "agents": [row.as_answer() for row in self.agents],
            "tasks": [_task(task) for task in self.tasks],
            "messages": [asdict(row, dict_factory=json_values) for row in self.messages],
        }


@dataclass(eq=False)
class Snapshots(Service):
    """Takes snapshots of a session; changes nothing."""

    sessions: Sessions
    owner_waits: OwnerWaits
    derived: DerivedNotices
    mail_search: MailSearch
    tracking: DeliveryTracking
    stuck_agents: StuckAgents
    limited: LimitedAgents

    def take(self, *, messages: int = 20) -> Snapshot:
        """A snapshot with the newest `messages`. Cheap while little has changed, because directories are indexed."""
        tasks = list(self.workspace.tasks.open_in_order())
        return Snapshot(
            session=self.workspace.session,
            at=self.clock(),
            counts=self.counts(tasks),
            agents=tuple(self.agents(tasks, self.stuck_agents.find())),
            tasks=tuple(task for task in tasks if not task.final),
            messages=tuple(self._messages(messages)),
        )

    def counts(self, tasks: Iterable[Task]) -> dict[str, int]:
        """The number of tasks of each status; `tasks` are the open ones."""
        counts = Counter(map(attrgetter("status"), tasks)) + self.workspace.tasks.closed_counts()
        offered = self.session.features.offered("status", TASK_STATUSES)
        return {status: counts[status] for status in TASK_STATUSES if status in offered or counts[status]}

    def agents(self, tasks: Iterable[Task] | None = None, stuck: Mapping[str, Stuck] | None = None) -> list[AgentRow]:
        """The rows of all agents, each below its superior. `tasks` are the open tasks, if already read; `stuck` the
        stuck agents, if they are to be shown."""
        found = self.workspace.tasks.open() if tasks is None else tasks
        running = sorted((task for task in found if task.is_worked_on), key=work_order)
        current = {task.assignee_id: task for task in reversed(running)}  # the first of each agent's wins
        everybody, open_to = in_tree_order(self.workspace.registry.active()), self._open_questions()
        return [
            self._agent(agent, depth, current.get(agent.id), (stuck or {}).get(agent.id), open_to[agent.id])
            for agent, depth in everybody
        ]

    def agent(self, agent_id: str, stuck: Stuck | None = None) -> AgentRow:
        """The row of one agent; `stuck` as for `agents`. Raises `AgentNotFound`."""
        agent = self.workspace.registry.get(agent_id)
        depths = {known.id: depth for known, depth in in_tree_order(self.workspace.registry.active())}
        task = next(iter(self.workspace.tasks.in_progress(agent_id)), None)
        return self._agent(agent, depths.get(agent_id, 0), task, stuck, self._open_questions()[agent_id])

    def _open_questions(self) -> Mapping[str, list[Question]]:
        """The open questions, by addressee."""
        found: defaultdict[str, list[Question]] = defaultdict(list)
        for question in self.workspace.questions.open():
            found[question.to_id].append(question)
        return found

    def _agent(
        self, agent: Agent, depth: int, task: Task | None, stuck: Stuck | None, asked: Sequence[Question]
    ) -> AgentRow:
        notices = (notice for _, notice in self.workspace.notices(agent.id).unread())
        alive = self.sessions.alive(agent.id)
        return AgentRow(
            agent=agent,
            depth=depth,
            running=tuple(self.sessions.running(agent.id)),
            unread=len(self.workspace.mailbox(agent.id).unread()),
            interrupts=sum(map(self.derived.applies, takewhile(attrgetter("interrupts"), notices))),
            pause=self.derived.pause_of(agent.id),
            task=task,
            wait=self.owner_waits.of(agent.id) if agent.role == "owner" else None,
            stuck=stuck,
            limit=self.limited.now(agent.id),
            away=agent.machine is not None and not self.workspace.authority.is_up(agent.machine),
            alive=alive,
            active_at=self.sessions.last_activity(agent.id) if alive else None,
            asked=len(asked),
            overdue=sum(question.is_due(self.clock()) for question in asked),
        )

    def _messages(self, limit: int) -> Iterator[MessageRow]:
        found = self.mail_search.page(limit=limit).messages
        for message, progress in zip(found, self.tracking.progress(found), strict=True):
            yield MessageRow(
                id=message.id,
                sender_id=message.sender_id,
                receiver_id=message.receiver_id,
                message_type=message.message_type,
                subject=" ".join((message.subject or message.content).split())[:SUBJECT_CHARACTERS],
                created_at=message.created_at,
                state=progress["state"],
                reason=progress.get("reason"),
            )


def _task(task: Task) -> dict[str, Any]:
    shown = fields_of(task, "id", "title", "status", "assignee_id", "progress", "blocked_reason")
    return {**shown, "since": format_time(task.status_since)}


# The dashboard: derived from the files; nothing reads it back (docs/protocol.md, Dashboard).


FINISHED_SHOWN = 20
OPEN_SHOWN = 100
"""The number of open tasks in `dashboard.md`, which is rewritten with every report."""


@dataclass(eq=False)
class Dashboard(Service):
    """The state of agents and tasks, as data (`get_dashboard`) and as `dashboard/dashboard.md`."""

    snapshots: Snapshots
    delivery_records: DeliveryRecords

    def data(self, *, open_shown: int | None = None) -> dict[str, Any]:
        """Counts by status, agents with their current task, open tasks, and the tasks finished last. `open_shown`
        limits the open tasks, in the order of work."""
        with self.workspace.tasks.read_once():
            tasks = self.workspace.tasks.open()
            counts = self.snapshots.counts(tasks)
            finished = self.workspace.tasks.closed(limit=FINISHED_SHOWN)
            shown = tasks if open_shown is None else [*islice(self.workspace.tasks.open_in_order(), open_shown)]
        uncommitted = self.delivery_records.uncommitted_count
        used: Mapping[str, int] = self.contributions.ask("tokens", 1, local_zone()) or {}
        return {
            "updated_at": format_time(self.clock()),
            "counts": counts | {"total": sum(counts.values())},
            "agents": [_agent(row, used.get(row.agent.id)) for row in self.snapshots.agents(tasks)],
            "tasks": [
                self.session.features.shown("task", _task_line(task, uncommitted(task)))
                for task in (*sorted(shown, key=age), *finished)
            ],
            "tasks_left_out": len(tasks) - len(shown),
        }

    def update(self) -> bool:
        """Rewrites `dashboard.md` after a change; returns whether that succeeded. Failures to write it are only logged:
        the file is derived, and the next change rewrites it."""
        try:
            self.write()
        except StorageError as refusal:
            logger.warning("the dashboard was not rewritten: %s", catalogue("en").sentence(refusal))
            return False
        return True

    def write(self) -> None:
        """Rewrites `dashboard.md`; of two writers at once the later data wins."""
        with self.workspace.locks.held("dashboard"):
            text = as_markdown(self.data(open_shown=OPEN_SHOWN), self.texts)
            self.workspace.files.replace(self.workspace.dashboard_path, text.encode(), durable=False)


def _agent(row: AgentRow, tokens: int | None) -> dict[str, Any]:
    doing = {"alive", "unread", "open_questions", "overdue_questions", "task_id", "waiting_for", "limited_until"}
    used = {} if tokens is None else {"tokens_today": tokens}
    return {name: value for name, value in row.as_answer().items() if name in {"id", "role"} | doing} | used


def _task_line(task: Task, uncommitted: int) -> dict[str, Any]:
    line = {
        "task_id": task.id,
        **fields_of(task, "title", "status", "priority", "assignee_id", "progress", "checklist", "proof"),
        "summary": task.completion_summary,
        "blocked_reason": task.blocked_reason,
    }
    return line | {"uncommitted": uncommitted} if uncommitted else line


def as_markdown(data: dict[str, Any], texts: Texts) -> str:
    """The dashboard as a Markdown page. Statuses and roles are shown as the tools take them."""
    named = {**data["counts"], texts("dashboard.total"): data["counts"]["total"]}
    counts = " · ".join(f"{name} {number}" for name, number in named.items() if name != "total")
    lines = [f"# {texts('dashboard.title')}", "", f"{data['updated_at']} · {counts}"]
    lines += _table(texts, "task", (_task_cells(task, texts) for task in data["tasks"]))
    if data["tasks_left_out"]:
        lines += ["", texts("dashboard.left_out", count=data["tasks_left_out"])]
    lines += _table(texts, "agent", (_agent_cells(agent, texts) for agent in data["agents"]))
    return "\n".join(lines) + "\n"


def _table(texts: Texts, kind: str, rows: Iterable[Sequence[object]]) -> Iterator[str]:
    head = texts(f"dashboard.{kind}_head").split("|")
    yield from ("", f"## {texts(f'dashboard.{kind}s')}", "", _row(*head), "|" + "---|" * len(head))
    yield from (_row(*row) for row in rows)


def _task_cells(task: dict[str, Any], texts: Texts) -> tuple[object, ...]:
    lacks = texts("dashboard.uncommitted", count=task["uncommitted"]) if "uncommitted" in task else None
    more = "; ".join(filter(None, (task.get("proof"), lacks)))
    status = f"{task['status']} ({more})" if more else task["status"]
    return task["task_id"], task["title"], status, task["assignee_id"] or "-", f"{task['progress']}%"


def _agent_cells(agent: dict[str, Any], texts: Texts) -> tuple[object, ...]:
    alive = texts("dashboard.alive" if agent["alive"] else "dashboard.off")
    if "limited_until" in agent:
        alive = texts("dashboard.limited", until=agent["limited_until"])
    asked = str(agent["open_questions"])
    if agent["overdue_questions"]:
        asked = texts("dashboard.overdue", open=asked, overdue=agent["overdue_questions"])
    doing = (agent["task_id"] or "-", agent["waiting_for"] or "-")
    used = f"{agent['tokens_today']:,}" if "tokens_today" in agent else "-"
    return agent["id"], agent["role"], alive, agent["unread"], asked, *doing, used


def _row(*cells: object) -> str:
    """A table row, with text by agents escaped to stay within its cell."""
    return "| " + " | ".join(one_line(str(cell)).replace("|", "\\|") for cell in cells) + " |"


# The machines of a team for views: which are up or away since when, and what waits on each.

HERE, UP, AWAY, UNKNOWN, LEFT = "here", "up", "away", "unknown", "left"
CONNECTED, CUT_OFF, SHUT_OUT = "connected", "cut_off", "shut_out"
REPLACED, NO_RELAY, RELAY_HANGS = "replaced", "no_relay", "relay_hangs"
WITHOUT_RELAY = (NO_RELAY, RELAY_HANGS)


@dataclass(frozen=True, kw_only=True)
class MachineRow:
    """One machine. `state` is `here`, `up`, `away`, `unknown` while this machine is cut off or has only begun to
    listen, or `left` for one that takes part no more although agents are at home there. `since` is when it came up, or
    was last heard from if it is away. `behind` is the number of changes that it lacks, `queued` of messages that wait
    there for the hub, `conflicts` of edits set aside there; `clock_offset` is its clock's difference in seconds; None
    where unknown. `troubles` are what it reports to be wrong: `disk` (it refuses what other machines write), `double`
    (another relay says that it is this machine), `older` (it has had more of the hub than there is now), `logs` (they
    occupy as much as they may here). `agents` are those at home there; `asking` those of them that wait for a human in
    a pane, while it is `up`."""

    name: str
    state: str
    since: datetime | None = None
    behind: int | None = None
    queued: int | None = None
    conflicts: int | None = None
    clock_offset: float | None = None
    troubles: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    asking: tuple[Asked, ...] = ()


@dataclass(frozen=True)
class AgentsMachine:
    """An agent's machine, and its `state` as in `MachineRow`."""

    machine: str
    state: str


@dataclass(frozen=True, kw_only=True)
class TeamOfMachines:
    """The machines of a team. `here` is this machine's name; `exchange` its state towards the hub: `connected`,
    `cut_off`, `shut_out` (the hub does not know its key), `replaced`, `no_relay` or `relay_hangs` (it does not answer),
    `since` then. `relay_pid` is the relay's process, as last noted. `serves`: the hub runs here; `own_hub`: it is the
    user's own. `queued` is the number of messages that wait for the hub, `pending` of files still to be examined; None
    without a relay that counts them. `edits` are those set aside here, newest first, each with its `path` and `at`.
    `unwritten` is what the disk refuses here (`path`, `reason`, `since`); `hub_trouble` says why the hub here does not
    run, or not with all its machines (see `Server.trouble`). `filled` is how full what all share is, from
    half on: `percent`, and where the hub runs the bytes `by` each machine."""

    here: str
    exchange: str
    since: datetime | None = None
    relay_pid: int | None = None
    serves: bool = False
    own_hub: bool = False
    version: str | None = None
    urls: tuple[str, ...] = ()
    tried_at: str | None = None
    position: int = 0
    queued: int | None = None
    pending: int | None = None
    edits: tuple[Mapping[str, str], ...] = ()
    unwritten: Mapping[str, str] | None = None
    hub_trouble: Mapping[str, Any] | None = None
    filled: Mapping[str, Any] | None = None
    machines: tuple[MachineRow, ...] = ()

    @property
    def tried(self) -> dict[str, str]:
        """Where the hub was looked for and when last, in words."""
        return {"urls": ", ".join(self.urls) or "-", "tried_at": self.tried_at or "-"}

    @property
    def hub_words(self) -> dict[str, str]:
        """The values of that text."""
        trouble = self.hub_trouble or {}
        left_out = ", ".join(map(str, trouble.get("left_out", ()))) or "-"
        return {"line": one_line(str(trouble.get("words"))), "log": str(trouble.get("log")), "left_out": left_out}

    @property
    def hub_finding(self) -> str | None:
        """The name of the text that says what is wrong with the hub here; None if nothing is known to be."""
        if self.hub_trouble is None:
            return None
        return "hub_earlier" if self.hub_trouble["runs"] else "hub_down"

    def as_answer(self) -> dict[str, Any]:
        """The fields as JSON-ready values, with the machines by name."""
        answer = asdict(self, dict_factory=json_values)
        return answer | {"machines": {row.pop("name"): row for row in answer["machines"]}}


class Way(NamedTuple):
    """A host for ssh, and the root directory there; "" for the usual one."""

    host: str
    root: str


_SSH_HOST = re.compile(r"[A-Za-z0-9_\[][\w.@:%\[\]-]{0,254}", re.ASCII)
"""A host, an alias or `USER@HOST`: never an option of ssh, nor anything that a shell would read."""


@dataclass(eq=False)
class Machines(Service):
    """Reads the state of all machines from this machine's files."""

    agents: Agents

    def still_open(self) -> list[str]:
        """This machine's name, if the session is shared."""
        return [name for name in (self.session.machine,) if name is not None]

    def look(self) -> TeamOfMachines | None:
        """The machines of the team; None for a session of one machine."""
        here = self.workspace.authority.here
        if here is None:
            return None
        state = self.workspace.relay_state.read()
        edits = tuple(self.workspace.conflicts.standing())
        exchange = _exchange(state)
        counted = state if exchange not in WITHOUT_RELAY else {}
        return TeamOfMachines(
            here=here,
            exchange=exchange,
            since=parse_time(state.get("since")) if exchange not in WITHOUT_RELAY else self._last_noted(),
            relay_pid=state.get("pid"),
            serves=bool(state.get("serves")),
            own_hub=bool(state.get("own_hub")),
            version=state.get("version"),
            urls=tuple(state.get("urls", ())),
            tried_at=state.get("tried_at"),
            position=int(state.get("position", 0)),
            queued=counted.get("queued"),
            pending=counted.get("pending"),
            edits=edits,
            unwritten=counted.get("unwritten"),
            hub_trouble=counted.get("hub_trouble"),
            filled=counted.get("filled"),
            machines=tuple(self._rows(here, exchange, state, counted.get("queued"), len(edits))),
        )

    # How this machine reaches others by ssh: a setting that is its own, and never travels.

    def set_way(self, machine: str, host: str, root: str) -> bool:
        """Sets the way to a machine, or takes it away with an empty `host`; returns False for what is no host."""
        if host and not _SSH_HOST.fullmatch(host):
            return False
        ways = {name: way for name, way in self._ways.facts().items() if name != machine}
        self._ways.write(ways | ({machine: {"host": host, "root": root}} if host else {}))
        return True

    def way_to(self, agent_id: str) -> Way | None:
        """The way to an agent's home; None if that is here, or no way is known."""
        home = self.workspace.elsewhere(self.workspace.registry.active().get(agent_id))
        way = self._ways.facts().get(home or "")
        if not isinstance(way, dict) or not _SSH_HOST.fullmatch(str(way.get("host"))):  # a person may have written it
            return None
        return Way(str(way["host"]), str(way.get("root") or ""))

    @property
    def _ways(self) -> Record:
        return Record(self.workspace.files, self.workspace.path / SHARE / "ssh.json")

    def states(self) -> dict[str, str]:
        """The state of each machine, by name; empty for a session of one machine."""
        found = self.look()
        return {} if found is None else {row.name: row.state for row in found.machines}

    def known_until(self) -> dict[str, datetime | None]:
        """Until when it is known what the machines do that cannot be heard of now; of the others it is."""
        found = self.look()
        rows = () if found is None else found.machines
        silent = (row for row in rows if row.state in (AWAY, UNKNOWN))
        return {row.name: row.since if row.state == AWAY or found is None else found.since for row in silent}

    def homes(self) -> dict[str, AgentsMachine]:
        """The home of each agent, by id, including removed agents: their messages still exist."""
        states = self.states()
        agents = self.workspace.registry.all().values()
        return {
            agent.id: AgentsMachine(agent.machine, states.get(agent.machine, UNKNOWN))
            for agent in agents
            if agent.machine
        }

    def _last_noted(self) -> datetime | None:
        at = self.workspace.relay_state.noted_at
        return from_timestamp(at) if at else None

    def _rows(
        self, here: str, exchange: str, state: Mapping[str, Any], queued: int | None, edits: int
    ) -> list[MachineRow]:
        homes, known, members = self.agents.by_machine(), state.get("machines", {}), state.get("members", ())
        rows = []
        for name in sorted({here, *homes, *known, *members}, key=lambda name: (name != here, name)):
            facts = known.get(name, {})
            stands = HERE if name == here else _state(facts, exchange, is_listening=not state.get("listened"))
            if members and name not in members and stands == AWAY:
                stands = LEFT
            asking = map(Asked.parse, facts.get("asking", ()) if stands == UP else ())
            row = MachineRow(
                name=name,
                state=stands,
                since=parse_time(facts.get("since")),
                behind=facts.get("behind"),
                queued=queued if name == here else facts.get("queued"),
                conflicts=edits if name == here else facts.get("conflicts"),
                clock_offset=facts.get("clock_offset"),
                troubles=tuple(facts.get("troubles", ()) if stands in (HERE, UP) else ()),
                agents=tuple(homes.get(name, ())),
                asking=tuple(item for item in asking if item.agent_id in homes.get(name, ())),
            )
            if row.agents or name in members or row.state in (HERE, UP):
                rows.append(row)
        return rows


def _exchange(state: Mapping[str, Any]) -> str:
    if not state["relay"]:
        return RELAY_HANGS if state["hangs"] else NO_RELAY
    if state.get("replaced"):
        return REPLACED
    if state.get("connected"):
        return CONNECTED
    return SHUT_OUT if state.get("shut_out") else CUT_OFF


def _state(facts: Mapping[str, Any], exchange: str, *, is_listening: bool) -> str:
    if exchange in (CUT_OFF, SHUT_OUT, *WITHOUT_RELAY) or (is_listening and not facts):
        return UNKNOWN
    return UP if facts.get("up") else AWAY
