"""Attention: everything that waits for the human, worst first (docs/protocol.md, Attention). Derived from what is there
at the moment, so what was solved anywhere is gone by itself."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.dialog import Dialog
from multi_agent_mcp.domain.entity import plain_value
from multi_agent_mcp.domain.message import page_order
from multi_agent_mcp.domain.stuck import DIALOG, LOGIN, PaneLook
from multi_agent_mcp.domain.times import parse_time
from multi_agent_mcp.services.doctor.finding import PROBLEM, Finding
from multi_agent_mcp.services.mail.tracking import DeliveryTracking
from multi_agent_mcp.services.overview.pane_looks import LookAtPane, PaneLooks
from multi_agent_mcp.services.overview.stuck_agents import StuckAgents
from multi_agent_mcp.services.tasks.changes import TaskChanges
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.texts import Texts

KINDS = (
    "dialog",
    "login",
    "ended",
    "machine",
    "stuck",
    "request",
    "conversation",
    "blocked",
    "undelivered",
    "mail",
    "doctor",
)
"""What may wait, the worst first."""
MAIL_MAX = 50
UNDELIVERED_AFTER = timedelta(seconds=30)
TOLD_BY_OTHERS = frozenset({"stuck", "panes", "waiting"})
"""Checks of `doctor` whose findings are here by another name."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """One thing that waits. `agent_id` is whom it concerns, `id` the task or message; `since` is None where nobody
    knows. `text` says what it is, `command` what helps; `dialog` is the question with its choices, where a profile
    describes them."""

    kind: str
    agent_id: str | None
    id: str | None = None
    since: datetime | None = None
    text: str
    command: str
    dialog: Dialog | None = None

    def as_answer(self) -> dict[str, Any]:
        """As JSON knows it."""
        known = {name: plain_value(value) for name, value in vars(self).items() if name != "dialog"}
        return known | {"dialog": self.dialog.as_answer() if self.dialog else None}


@dataclass(frozen=True)
class Panes:
    """What agents' panes show. `ended`: the agents whose panes were kept although their program has ended; `dialogs`:
    the questions whose choices a profile describes."""

    looks: Mapping[str, PaneLook] = field(default_factory=dict)
    ended: Collection[str] = ()
    dialogs: Mapping[str, Dialog | None] = field(default_factory=dict)


@dataclass(eq=False)
class Attention:
    """Looks what waits for one person; changes nothing. `look_at`, `screen` and `dialog` look into an agent's
    pane at this moment; `machines` is what is known of the team's machines, by name."""

    workspace: Workspace
    stuck_agents: StuckAgents
    task_changes: TaskChanges
    tracking: DeliveryTracking
    pane_looks: PaneLooks
    look_at: LookAtPane
    screen: Callable[[Agent], str]
    dialog: Callable[[Agent], Dialog | None]
    machines: Callable[[], Mapping[str, Any]]
    people: Texts
    clock: Callable[[], datetime]

    def look(self) -> Panes:
        """What stands in the panes at this moment."""
        looks = self.pane_looks.now(self.look_at)
        seen = {agent.id: agent for agent in self._others() if agent.pane_id is not None}
        ended = {name for name in seen.keys() - looks.keys() if self.screen(seen[name]) == "pane_dead"}
        asking = [name for name, look in looks.items() if look.state == DIALOG]
        return Panes(looks, ended, {name: self.dialog(seen[name]) for name in asking})

    def recorded(self) -> Panes:
        """What the supervisor saw last; calls no tmux."""
        return Panes(self.pane_looks.recorded())

    def of(self, person: Agent, findings: Iterable[Finding] = (), panes: Panes | None = None) -> list[Item]:
        """What waits for this person, the worst first, of one kind the oldest; `findings` are those of `doctor`,
        `panes` what the panes show (None: looks now)."""
        panes = self.look() if panes is None else panes
        asking = {item.agent_id: item for item in self._asking(panes)}
        requests = list(self._requests(person))
        waiting = [
            *asking.values(),
            *self._ended(panes.ended),
            *self._away(),
            *self._stuck(panes.looks, asking.keys() | set(panes.ended)),
            *requests,
            *self._blocked(),
            *self._undelivered(asking.keys()),
            *self._mail(person, {item.id for item in requests}),
            *(self._finding(finding) for finding in findings if _is_news(finding)),
        ]
        return sorted(waiting, key=lambda item: (KINDS.index(item.kind), item.since or self.clock()))

    def _asking(self, panes: Panes) -> Iterator[Item]:
        """Hosts that wait for a human in their panes."""
        recorded = self.pane_looks.recorded()
        for agent_id, look in panes.looks.items():
            if look.state not in (DIALOG, LOGIN):
                continue
            before = recorded.get(agent_id)
            dialog = panes.dialogs.get(agent_id)
            words = " ".join(dialog.text.split()) if dialog else ""
            yield Item(
                kind=look.state,
                agent_id=agent_id,
                since=before.since if before is not None and before.state == look.state else None,
                text=self.people(f"attention.{'asks' if dialog else look.state}", host=look.host, question=words),
                command=f"multi-agent-mcp answer {agent_id}" if dialog else self._attach(agent_id),
                dialog=dialog,
            )

    def _ended(self, ended: Iterable[str]) -> Iterator[Item]:
        for agent_id in ended:
            text = self.people("attention.ended")
            yield Item(kind="ended", agent_id=agent_id, text=text, command=f"multi-agent-mcp up {agent_id}")

    def _away(self) -> Iterator[Item]:
        """Other machines of the team that do not answer."""
        for name, facts in self.machines().items():
            if not facts.get("up"):
                yield Item(
                    kind="machine",
                    agent_id=None,
                    id=name,
                    since=parse_time(facts.get("since")),
                    text=self.people("attention.machine", machine=name),
                    command="multi-agent-mcp machines",
                )

    def _stuck(self, looks: Mapping[str, PaneLook], asking: Iterable[str | None]) -> Iterator[Item]:
        for agent_id, found in self.stuck_agents.find(looks).items():
            if agent_id not in asking:
                text = self.stuck_agents.sentence(found)
                yield Item(
                    kind="stuck", agent_id=agent_id, since=found.since, text=text, command=self._attach(agent_id)
                )

    def _requests(self, person: Agent) -> Iterator[Item]:
        for task in self.task_changes.requests_for(person.id):
            yield Item(
                kind="request",
                agent_id=task.created_by,
                id=task.id,
                since=task.created_at,
                text=self.people("attention.request", title=task.title),
                command=f"multi-agent-mcp task approve {task.id}",
            )

    def _blocked(self) -> Iterator[Item]:
        for task in self.workspace.tasks.open():
            if task.status == "blocked":
                yield Item(
                    kind="blocked",
                    agent_id=task.assignee_id,
                    id=task.id,
                    since=task.status_changed_at,
                    text=self.people("attention.blocked", title=task.title, reason=task.blocked_reason or "-"),
                    command=f"multi-agent-mcp task show {task.id}",
                )

    def _undelivered(self, asking: Iterable[str | None]) -> Iterator[Item]:
        """One for each agent that was not told of its mail, and the reason. Of an agent that asks something that is the
        reason."""
        border = self.clock() - UNDELIVERED_AFTER
        for agent in self._others():
            unread = [message for _, message in self.workspace.mailbox(agent.id).unread()]
            waits = [message for message in unread if message.created_at < border]
            if not waits or agent.id in asking:
                continue
            oldest = min(waits, key=lambda message: message.created_at)
            (progress,) = self.tracking.progress([oldest])
            if (reason := progress.get("reason")) is not None:
                yield Item(
                    kind="undelivered",
                    agent_id=agent.id,
                    id=oldest.id,
                    since=oldest.created_at,
                    text=self.people("attention.undelivered", count=len(waits), reason=self.people.words_of(reason)),
                    command=f"multi-agent-mcp trace {oldest.id}",
                )

    def _mail(self, person: Agent, requested: Collection[str | None]) -> Iterator[Item]:
        """The oldest unread mail, but for that which only asks for the decision about a request, and how much more."""
        mailbox = self.workspace.mailbox(person.id)
        unread = mailbox.unread()
        for name, message in heapq.nsmallest(MAIL_MAX, unread, key=lambda item: page_order(item[1])):
            if str(message.metadata.get("task_id")) in requested:  # a hand may have written anything
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
            )
        if len(unread) > MAIL_MAX:
            text = self.people("attention.more", count=len(unread) - MAIL_MAX)
            yield Item(kind="mail", agent_id=None, text=text, command="multi-agent-mcp read")

    def _finding(self, finding: Finding) -> Item:
        return Item(
            kind="doctor", agent_id=None, text=f"{finding.subject}: {finding.finding}", command="multi-agent-mcp doctor"
        )

    def _others(self) -> list[Agent]:
        """The agents that are no people."""
        return [agent for agent in self.workspace.registry.active().values() if not agent.may_be_human]

    def _attach(self, agent_id: str) -> str:
        """What shows an agent's window, with all of its team's."""
        agent = self.workspace.registry.active()[agent_id]
        if agent.pane_id is None:
            return f"multi-agent-mcp up {agent_id}"
        return f"tmux -S {agent.socket_path} attach -t {agent.pane_id}"


def _is_news(finding: Finding) -> bool:
    return finding.level == PROBLEM and finding.check not in TOLD_BY_OTHERS
