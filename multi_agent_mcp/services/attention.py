"""Attention: everything that waits for the human, worst first (docs/protocol.md, Attention). It is derived from the
current state on each call, so that items disappear when they are solved, wherever that happens."""

from __future__ import annotations

import heapq
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from multi_agent_mcp.domain.agent import Agent, by_server, waking_tmux
from multi_agent_mcp.domain.delivery import LIFELESS
from multi_agent_mcp.domain.entity import age, plain_value
from multi_agent_mcp.domain.question import asking_order
from multi_agent_mcp.domain.reviews import open_reviews
from multi_agent_mcp.domain.stuck import BUSY, DIALOG, LOGIN, PaneLook
from multi_agent_mcp.domain.text import quoted, some
from multi_agent_mcp.domain.times import is_recent
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.features.ours import ALL
from multi_agent_mcp.services.background import Background, PartsDone
from multi_agent_mcp.services.doctor.tree import PROBLEM, Finding
from multi_agent_mcp.services.overview.snapshot import (
    AWAY,
    CONNECTED,
    CUT_OFF,
    NO_RELAY,
    RELAY_HANGS,
    REPLACED,
    SHUT_OUT,
    Machines,
)
from multi_agent_mcp.services.questions import Questions, as_answer
from multi_agent_mcp.services.team.approvals import APPROVE, decided
from multi_agent_mcp.services.unchanged import GOOD_FOR, WhileUnchanged
from multi_agent_mcp.session import Service, Session
from multi_agent_mcp.settings import RULES, readable_settings
from multi_agent_mcp.system.file_status import Memory

if TYPE_CHECKING:
    from multi_agent_mcp.domain.dialog import Dialog
    from multi_agent_mcp.domain.question import Question
    from multi_agent_mcp.services.mail import DeliveryTracking
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.overview.missing_sessions import MissingSessions
    from multi_agent_mcp.services.overview.pane_looks import LookAtPane, PaneLooks
    from multi_agent_mcp.services.overview.stuck_agents import StuckAgents
    from multi_agent_mcp.services.overview.supervision import Supervision
    from multi_agent_mcp.services.sessions.session_records import OwnerWaits
    from multi_agent_mcp.services.tasks.changes import TaskChanges
    from multi_agent_mcp.services.team.limited import LimitedAgents

RANKS = dict(ALL.each("attention"))
KINDS = tuple(sorted(RANKS, key=RANKS.__getitem__))
"""The kinds of items, worst first."""
MAIL_MAX = 50
UNDELIVERED_AFTER = timedelta(seconds=30)
STOPS_WITHIN = timedelta(minutes=1)
"""How long the host of a paused agent may go on before it is said."""
PAUSED = ("paused", "budget")
RUNG_AT_HOME = "other_machine"
"""The reason for which mail to another machine is not announced here: no problem. That machine lists its own."""
TOLD_BY_OTHERS = frozenset({"stuck", "panes", "waiting", "supervisor"})
"""Checks of `doctor` whose findings are listed here as items of other kinds."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """One item that waits for the human. `agent_id` is the agent concerned, `id` the task, message or machine; `since`
    is None if unknown. `text` describes it, `command` solves it, on `machine` if that is not this one; `dialog` is the
    question with its choices, if a profile describes them, and `question` one to this person."""

    APART: ClassVar[frozenset[str]] = frozenset({"dialog", "machine", "question", "approved"})
    """The fields that are not plain, or left out while there is none."""
    SOLVED_IN_PANES: ClassVar[frozenset[str]] = frozenset({"dialog", "login", "stuck"})

    kind: str
    agent_id: str | None
    id: str | None = None
    since: datetime | None = None
    text: str
    command: str
    machine: str | None = None
    dialog: Dialog | None = None
    question: Question | None = None
    approved: bool = False
    """Whether it is a review that was given, and waits for checks."""

    @property
    def solved_in_pane(self) -> bool:
        """Whether the item is solved in the agent's pane, so that `machine` is the agent's home; else it is the home of
        the person it waits for."""
        return self.kind in self.SOLVED_IN_PANES

    def as_answer(self) -> dict[str, Any]:
        """Returns the item as plain values for JSON."""
        known = {name: plain_value(value) for name, value in vars(self).items() if name not in self.APART}
        place = {"machine": self.machine} if self.machine is not None else {}
        asked = {"question": as_answer(self.question)} if self.question is not None else {}
        approved = {"approved": True} if self.approved else {}
        return known | place | asked | approved | {"dialog": self.dialog.as_answer() if self.dialog else None}


@dataclass(frozen=True, kw_only=True)
class PanesSeen:
    """The agents' panes at time `at`. `ended`: agents whose program has ended in a pane that was kept; `unseen`: agents
    whose tmux does not answer; `others`: agents in panes that no profile describes or that are not the registered ones;
    `dialogs`: the dialogs shown, None if no profile describes one; `since`: the time from
    which on a host was seen waiting for a human."""

    at: datetime | None = None
    looks: Mapping[str, PaneLook] = field(default_factory=dict)
    ended: Collection[str] = ()
    unseen: Collection[str] = ()
    others: Collection[str] = ()
    dialogs: Mapping[str, Dialog | None] = field(default_factory=dict)
    since: Mapping[str, datetime | None] = field(default_factory=dict)

    def waits_since(self, agent_id: str, look: PaneLook, dialog: Dialog | None) -> datetime | None:
        """Returns the time since when the pane has shown this look and dialog; None if it showed others before."""
        was = self.looks.get(agent_id)
        is_same = was is not None and was.state == look.state and self.dialogs.get(agent_id) == dialog
        return (self.since.get(agent_id) or self.at) if is_same else None


@dataclass(eq=False)
class Attention(Service):
    """Determines the items that wait for a person, without changing anything. `look_at`, `screen` and `dialog` read an
    agent's pane."""

    stuck_agents: StuckAgents
    task_changes: TaskChanges
    tracking: DeliveryTracking
    pane_looks: PaneLooks
    limited: LimitedAgents
    look_at: LookAtPane
    screen: Callable[[Agent], str]
    dialog: Callable[[Agent], Dialog | None]
    machines: Machines
    missing_sessions: MissingSessions
    supervision: Supervision
    owner_waits: OwnerWaits
    derived: DerivedNotices
    questions: Questions

    def look(self, before: PanesSeen | None = None) -> PanesSeen:
        """Reads all panes; `before` is the last result in this process."""
        at, looks = self.clock(), self.pane_looks.now(self.look_at)
        seen = {agent.id: agent for agent in self._others() if agent.pane_id is not None}
        screens = {name: self.screen(seen[name]) for name in sorted(seen.keys() - looks.keys())}
        dead, unseen = (
            [name for name, screen in screens.items() if screen == reason] for reason in ("pane_dead", "tmux_timeout")
        )
        others = [name for name, screen in screens.items() if screen not in LIFELESS and name not in unseen]
        others += [name for name in dead if self._runs_elsewhere(seen[name])]
        ended = [name for name in dead if name not in others]
        asking = [name for name, look in looks.items() if look.state == DIALOG]
        dialogs = {name: self.dialog(seen[name]) for name in asking}
        return PanesSeen(
            at=at,
            looks=looks,
            ended=ended,
            unseen=unseen,
            others=others,
            dialogs=dialogs,
            since=self._since(before, looks, dialogs),
        )

    def _runs_elsewhere(self, agent: Agent) -> bool:
        """Returns whether a program runs in another pane that was opened for the agent, as for its chat session."""
        opened = [window.pane for slot, window in self.missing_sessions.windows().items() if slot.agent_id == agent.id]
        others = (
            replace(
                agent,
                tmux_pid=None,
                socket_path=pane.get("socket_path"),
                pane_id=str(pane["pane_id"]),
                pane_pid=pane.get("pane_pid"),
            )
            for pane in opened
            if pane.get("pane_id") not in (None, agent.pane_id)
        )
        return any(self.screen(other) not in LIFELESS for other in others)

    def _since(
        self, before: PanesSeen | None, looks: Mapping[str, PaneLook], dialogs: Mapping[str, Dialog | None]
    ) -> dict[str, datetime | None]:
        """Returns the time since when each waiting host has waited: as seen by this process, or by the supervisor if
        this is the first look."""
        waiting = {name: look for name, look in looks.items() if look.state in (DIALOG, LOGIN)}
        if before is not None and before.at is not None:
            return {name: before.waits_since(name, look, dialogs.get(name)) for name, look in waiting.items()}
        shown = {(name, _words_of(look.state, dialogs.get(name))) for name, look in waiting.items()}
        asked = self.pane_looks.asked()
        return {was.agent_id: was.since for was in asked if (was.agent_id, was.dialog_id or was.topic) in shown}

    def of(self, person: Agent, findings: Iterable[Finding] = (), panes: PanesSeen | None = None) -> list[Item]:
        """Returns the items that wait for this person, worst kind first, then oldest first. `findings` are those of
        `doctor`; `panes` is the last look at them (None: looks now)."""
        panes = self.look() if panes is None else panes
        asking = {item.agent_id: item for item in (*self._asking(panes), *self._asked_elsewhere())}
        idle = self._down(panes)
        known = {*asking, *idle, *panes.ended, *panes.unseen, *self.limited.all()}
        features = self.session.features
        further = [item for found in self.contributions.each("items", person, given=self) for item in found]
        waiting = [
            *asking.values(),
            *(self._with_work(item, panes.looks) for item in further),
            *self._not_running(idle),
            *self._ended(name for name in panes.ended if name not in idle),
            *self._silent(panes.unseen),
            *self._stuck(panes.looks, known),
            *self._undelivered(known),
            *self._mail(person, {item.id for item in further if item.kind in ("request", "review")}),
            *self._dying(panes.looks),
            *(self._finding(finding.subject, finding.finding) for finding in findings if _is_news(finding)),
        ]
        ranks = dict(features.each("attention"))
        return sorted(waiting, key=lambda item: (ranks.get(item.kind, inf), *self._order(item)))

    def _order(self, item: Item) -> tuple[Any, ...]:
        """A sort key among the items of one kind: questions by their deadlines, others by age."""
        return asking_order(item.question) if item.question is not None else (item.since or self.clock(),)

    def _asking(self, panes: PanesSeen) -> Iterator[Item]:
        """Yields items for hosts that wait for a human in their panes."""
        for agent_id, look in panes.looks.items():
            if look.state not in (DIALOG, LOGIN):
                continue
            dialog = panes.dialogs.get(agent_id)
            words = quoted(dialog.text) if dialog else ""
            yield Item(
                kind=look.state,
                agent_id=agent_id,
                since=panes.since.get(agent_id),
                text=self.session.people(
                    f"attention.{'asks' if dialog else look.state}", host=look.host, question=words
                ),
                command=f"multi-agent-mcp answer {agent_id}" if look.asks else self.attach(agent_id),
                dialog=dialog,
            )

    def questions_to(self, person: Agent) -> Iterator[Item]:
        """Yields items for the questions to this person, and for overdue ones that the person is notified of."""
        for question in self.questions.of_person(person.id):
            key = "overdue" if question.is_due(self.clock()) else "question"
            yield Item(
                kind="question",
                agent_id=question.asker_id,
                id=question.id,
                since=question.created_at,
                text=self.session.people(f"attention.{key}", question=quoted(question.question), to_id=question.to_id),
                command=f"multi-agent-mcp answer {question.id}",
                machine=self.workspace.elsewhere(person),
                question=question,
            )

    def _asked_elsewhere(self) -> Iterator[Item]:
        """Yields items for hosts that wait for a human on other machines, where they have to be answered."""
        seen = self.machines.look()
        for row in seen.machines if seen is not None else ():
            for asked in row.asking:
                is_read = asked.topic not in (None, LOGIN)
                yield Item(
                    kind=LOGIN if asked.topic == LOGIN else DIALOG,
                    agent_id=asked.agent_id,
                    since=asked.since,
                    text=self.session.people.asks_about(asked.topic),
                    command=f"multi-agent-mcp answer {asked.agent_id}" if is_read else "multi-agent-mcp attention",
                    machine=row.name,
                )

    def _down(self, panes: PanesSeen) -> list[str]:
        """Returns the agents that have work, if nobody runs on this machine who could do it or open their windows."""
        if panes.looks or panes.unseen or panes.others or self.supervision.running():
            return []
        if any(self.stuck_agents.sessions.running(agent.id) for agent in self._others()):
            return []
        return self.missing_sessions.waiting()

    def _not_running(self, idle: Sequence[str]) -> Iterator[Item]:
        if idle:
            text = self.session.people("attention.down", agents=some(idle))
            yield Item(kind="down", agent_id=None, text=text, command="multi-agent-mcp up")
        elif self.supervision.has_died and (agents := self.missing_sessions.waiting()):
            text = self.session.people("attention.supervisor_ended", agents=some(agents))
            yield Item(kind="ended", agent_id=None, text=text, command="multi-agent-mcp up")

    def _ended(self, ended: Iterable[str]) -> Iterator[Item]:
        agents = self.workspace.registry.active()
        for agent_id in ended:
            if "{examples}" in (agents[agent_id].command or ""):
                continue  # a scripted agent of `init --demo` ends when its work is done
            text = self.session.people("attention.ended")
            yield Item(kind="ended", agent_id=agent_id, text=text, command=f"multi-agent-mcp up {agent_id}")

    def _silent(self, unseen: Iterable[str]) -> Iterator[Item]:
        """Yields an item for each tmux server that does not answer, so that its panes cannot be read."""
        agents = self.workspace.registry.active()
        for server, names in by_server(agents[name] for name in unseen).items():
            text = self.session.people("attention.tmux", agents=", ".join(names), socket=server[0])
            only = names[0] if len(names) == 1 else None
            yield Item(kind="tmux", agent_id=only, text=text, command=waking_tmux(*server))

    def away(self, _person: Agent) -> Iterator[Item]:
        """Yields an item if this machine is cut off from the others, and one for each machine that does not answer."""
        seen = self.machines.look()
        if seen is None:
            return
        helps = {
            CUT_OFF: "multi-agent-mcp machines",
            SHUT_OUT: "multi-agent-mcp machines",
            NO_RELAY: "multi-agent-mcp relay --start",
            RELAY_HANGS: "multi-agent-mcp relay --stop; multi-agent-mcp relay --start",
            REPLACED: "multi-agent-mcp share --reseed",
        }
        if seen.exchange != CONNECTED:
            text = self.session.people(f"attention.{seen.exchange}", pid=seen.relay_pid)
            yield Item(
                kind="machine", agent_id=None, id=seen.here, since=seen.since, text=text, command=helps[seen.exchange]
            )
        if seen.hub_finding is not None:
            text = self.session.people(f"attention.{seen.hub_finding}", line=seen.hub_words["line"])
            yield Item(kind="machine", agent_id=None, id=seen.here, text=text, command="multi-agent-mcp doctor")
        for row in seen.machines:
            if row.state == AWAY:
                text = self.session.people("attention.machine", machine=row.name)
                command = helps[CUT_OFF]
                yield Item(kind="machine", agent_id=None, id=row.name, since=row.since, text=text, command=command)

    def _stuck(self, looks: Mapping[str, PaneLook], known: Collection[str | None]) -> Iterator[Item]:
        for agent_id, found in self.stuck_agents.find(looks).items():
            if agent_id not in known:
                yield Item(
                    kind="stuck",
                    agent_id=agent_id,
                    since=found.since,
                    text=self.stuck_agents.sentence(found, titled=True),
                    command=self.attach(agent_id),
                    machine=self.workspace.elsewhere(self.workspace.registry.active()[agent_id]),
                )

    def requests(self, person: Agent) -> Iterator[Item]:
        for task in self.task_changes.requests_for(person.id):
            yield Item(
                kind="request",
                agent_id=task.created_by,
                id=task.id,
                since=task.created_at,
                text=self.session.people("attention.request", title=quoted(task.title)),
                command=f"multi-agent-mcp task approve {task.id}",
                machine=self.workspace.elsewhere(person),
            )

    def checks_changed(self, _person: Agent) -> Iterator[Item]:
        """The checks, or what else decides, are others than a person has approved."""
        with suppress(Refusal):
            settings = readable_settings(self.workspace.settings_path)
            approval = self.contributions.ask("approval")
            kind = decided(self.session.features)
            agents = self.workspace.registry.active().values()
            ruled = settings.roles or any(not agent.extra.keys().isdisjoint(RULES) for agent in agents)
            decides = ruled or (kind == "checks" and (settings.checks or settings.protected))
            if approval.state == "changed" or (decides and approval.state == "missing"):
                names = ", ".join(approval.changed) or "-"
                yield Item(
                    kind="checks_changed",
                    agent_id=None,
                    text=self.session.people(f"attention.{kind}_{approval.state}", names=names),
                    command=f"multi-agent-mcp {APPROVE[kind]}",
                )

    def reviews(self, person: Agent) -> Iterator[Item]:
        agents = self.workspace.registry.all()
        for task in self.workspace.tasks.open():
            waiting = open_reviews(task, agents)
            if task.status != "review" or (waiting and {person.id, None}.isdisjoint(waiting.values())):
                continue
            kind, command = ("review", "approve") if waiting else ("unproven", "verify")
            yield Item(
                kind="review",
                agent_id=task.assignee_id,
                id=task.id,
                since=task.status_since,
                text=self.session.people(f"attention.{kind}", title=quoted(task.title)),
                command=f"multi-agent-mcp task {command} {task.id}",
                machine=self.workspace.elsewhere(person),
                approved=not waiting,
            )

    def blocked(self, _person: Agent) -> Iterator[Item]:
        for task in self.workspace.tasks.open():
            if task.status == "blocked":
                yield Item(
                    kind="blocked",
                    agent_id=task.assignee_id,
                    id=task.id,
                    since=task.status_since,
                    text=self.session.people(
                        "attention.blocked", title=quoted(task.title), reason=quoted(task.blocked_reason or "-")
                    ),
                    command=f"multi-agent-mcp task show {task.id}",
                )

    def paused(self, _person: Agent) -> Iterator[Item]:
        for agent in self._others():
            if (pause := self.derived.pause_of(agent.id)) is not None:
                # The system pauses only an agent whose budget is used up.
                by_system = pause.sender_id is None and "usage" in self.session.features
                words = self.session.people(
                    "attention.paused", by=pause.sender_id or "-", reason=quoted(pause.reason or "-")
                )
                yield Item(
                    kind="budget" if by_system else "paused",
                    agent_id=agent.id,
                    id=pause.task_id,
                    since=pause.created_at,
                    text=pause.reason or "-" if by_system else words,
                    command=f"multi-agent-mcp resume {agent.id}{' --tokens 100000' if by_system else ''}",
                )

    def _with_work(self, item: Item, looks: Mapping[str, PaneLook]) -> Item:
        """The item, which says so if it is about a paused agent whose host works on, long after it was notified."""
        look = looks.get(item.agent_id or "") if item.kind in PAUSED else None
        told_long_ago = item.since is not None and not is_recent(item.since, self.clock(), STOPS_WITHIN)
        if look is None or look.state != BUSY or not told_long_ago:
            return item
        return replace(item, text=self.session.people("attention.works_on", text=item.text, host=look.host))

    def wait(self, person: Agent) -> Iterator[Item]:
        """Yields an item if this person, an Owner, waits for an Admin and may do little else."""
        wait = self.owner_waits.of(person.id) if person.role == "owner" else None
        if wait is not None:
            yield Item(
                kind="wait",
                agent_id=wait.admin_id,
                id=wait.task_id,
                since=wait.since,
                text=self.session.people("attention.wait", admin_id=wait.admin_id),
                command="multi-agent-mcp wait end",
                machine=self.workspace.elsewhere(person),
            )

    def _undelivered(self, known: Collection[str | None]) -> Iterator[Item]:
        """Yields an item with the reason for each agent whose mail was not announced, except for `known` ones: they
        have another item, as they ask something, have ended or cannot be seen."""
        border = self.clock() - UNDELIVERED_AFTER
        for agent in self._others():
            unread = [message for _, message in self.workspace.mailbox(agent.id).unread()]
            waits = [message for message in unread if message.created_at < border]
            if not waits or agent.id in known:
                continue
            oldest = min(waits, key=lambda message: message.created_at)
            (progress,) = self.tracking.progress([oldest])
            if (reason := progress.get("reason")) not in (None, RUNG_AT_HOME):
                yield Item(
                    kind="undelivered",
                    agent_id=agent.id,
                    id=oldest.id,
                    since=oldest.created_at,
                    text=self.session.people(
                        "attention.undelivered", count=len(waits), reason=self.session.people.words_of(reason)
                    ),
                    command=f"multi-agent-mcp trace {oldest.id}",
                )

    def _mail(self, person: Agent, requested: Collection[str | None]) -> Iterator[Item]:
        """Yields items for the `MAIL_MAX` oldest unread messages, without those about a request that has its own item,
        and one item with the number of further messages."""
        mailbox, home = self.workspace.mailbox(person.id), self.workspace.elsewhere(person)
        unread = mailbox.unread()
        for name, message in heapq.nsmallest(MAIL_MAX, unread, key=lambda item: age(item[1])):
            if str(message.metadata.get("task_id")) in requested:  # a hand-written value may have any type
                continue
            talks = message.message_type == "conversation"
            whole = message if message.subject else mailbox.hot.load(name) or message  # the index has no long contents
            yield Item(
                kind="conversation" if talks else "mail",
                agent_id=message.sender_id,
                id=message.id,
                since=message.created_at,
                text=" ".join((whole.subject or whole.content).split()),
                command=f'multi-agent-mcp reply {message.id} "…"' if talks else "multi-agent-mcp read",
                machine=home,
            )
        if len(unread) > MAIL_MAX:
            text = self.session.people("attention.more", count=len(unread) - MAIL_MAX)
            yield Item(kind="mail", agent_id=None, text=text, command="multi-agent-mcp read", machine=home)

    def _dying(self, looks: Collection[str]) -> Iterator[Item]:
        """Yields an item for each command that dies at once, until the agent's host or its session runs: a finding of
        `doctor`, but one that the next moment may change."""
        for slot, count in self.missing_sessions.dying().items():
            if slot.purpose != "task" or slot.agent_id not in looks:
                words = self.session.people("finding.command_dies", purpose=slot.purpose, count=count)
                yield self._finding(slot.agent_id, words)

    def _finding(self, subject: str, finding: str) -> Item:
        return Item(kind="doctor", agent_id=None, text=f"{subject}: {finding}", command="multi-agent-mcp doctor")

    def _others(self) -> list[Agent]:
        """Returns the agents that are not people."""
        return [agent for agent in self.workspace.registry.active().values() if not agent.may_be_human]

    def attach(self, agent_id: str) -> str:
        """Returns the command that shows an agent's window, with all windows of its team, or opens it. A pane that `up`
        did not open is shown by tmux alone."""
        agent = self.workspace.registry.active()[agent_id]
        if agent.pane_id is None:
            return f"multi-agent-mcp up {agent_id}"
        opened = [window for slot, window in self.missing_sessions.windows().items() if slot.agent_id == agent_id]
        if any(window.pane.get("pane_id") == agent.pane_id for window in opened):
            return f"multi-agent-mcp attach {agent_id}"
        return f"tmux -S {shlex.quote(str(agent.socket_path))} attach -t {agent.pane_id}"


def _words_of(state: str, dialog: Dialog | None) -> str | None:
    """What tells one thing that a host asks from the next: a dialog's id, or that it asks for a login; None for a
    dialog that no profile describes."""
    return dialog.id if dialog is not None else LOGIN if state == LOGIN else None


def _is_news(finding: Finding) -> bool:
    return finding.level == PROBLEM and finding.check not in TOLD_BY_OTHERS


# Attention for a process that shows it continuously in any number of windows: reading the panes and examining the
# session are expensive, so their results are cached and shared by all windows.

LOOK_EVERY = timedelta(seconds=2)
EXAMINE_EVERY = timedelta(minutes=5)
"""An examination reads every file of the session."""


class Examine(Protocol):
    """Examines the session, `anyway` if nothing seems changed, too."""

    def __call__(self, progress: PartsDone, *, anyway: bool) -> list[Finding]: ...


class RecentAttention(Service):
    """The items that wait for a person, from panes read within `LOOK_EVERY` and the last findings of `doctor`."""

    def __init__(self, session: Session, attention: Attention, examine: Examine, unchanged: WhileUnchanged) -> None:
        super().__init__(session)
        self._attention = attention
        self._examine = examine
        self._unchanged = unchanged
        self._looking = Lock()
        self._panes = PanesSeen()
        self._looks = Memory()
        self._examination = Background("examination", self._examine_session)
        self._anyway = False
        self.findings: tuple[Finding, ...] = ()  # no `Memory`: whoever asks gets the last ones, and does not wait
        self.examined_at: datetime | None = None

    def of(self, person: Agent, *, good_for: timedelta = GOOD_FOR) -> list[Item]:
        """Returns the items, worst first; `good_for` as in `WhileUnchanged`. An examination that is due runs in the
        background; its findings are part of later results."""
        if self.examined_at is None or not is_recent(self.examined_at, self.clock(), EXAMINE_EVERY):
            self._examination.begin()
        panes, findings = self._look(), self.findings
        seen = repr(replace(panes, at=None)), findings
        return self._unchanged.get(
            f"attention {person.id}",
            lambda: self._attention.of(person, findings, panes),
            of=seen,
            good_for=good_for,
        )

    def found(self, findings: Iterable[Finding]) -> None:
        """Stores the findings of an examination that has just been made."""
        self.findings, self.examined_at = tuple(findings), self.clock()

    def examined(self, seconds: float | None, *, anyway: bool = False) -> PartsDone | None:
        """Brings the findings up to date in the background, and waits for it so long: None if they are, else how many
        checks have been made. `anyway` makes all of them, from now on, although nothing seems changed."""
        self._anyway = self._anyway or anyway
        running = self._examination.done_within(seconds)
        return self._examination.done_within(seconds) if running is None and self._anyway else running

    def look_again(self) -> None:
        """Drops the cached panes because one has changed: the next call reads them again."""
        self._looks.forget()

    def _look(self) -> PanesSeen:
        with self._looking:
            look = lambda: self._attention.look(self._panes)  # noqa: E731
            self._panes = self._looks.get((), look, clock=self.clock, good_for=LOOK_EVERY)
            return self._panes

    def _examine_session(self, progress: PartsDone) -> None:
        anyway, self._anyway = self._anyway, False
        self.found(self._examine(progress, anyway=anyway))
