"""Answers a host's events with JSON: interrupts before any tool of the agent, mail and notifications once each
(docs/protocol.md, Hooks).

So an interrupt reaches an agent at its next call of any tool, Bash and Edit included, not only of our own tools.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.delivery import NAMED, DoorbellItem, Due, Ring, UnreadItem, UnreadNotification
from multi_agent_mcp.domain.message import Message, reading_order
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.doorbell.wording import doorbell_line
from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.hooks import state_file
from multi_agent_mcp.hosts import host_named
from multi_agent_mcp.services.notifications.notifications import Notifications, as_answer
from multi_agent_mcp.system.file_status import RACY_NS

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.notification import Notification
    from multi_agent_mcp.doorbell.ringing import Doorbell
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.usage.limits import Limits
    from multi_agent_mcp.store.workspace import Mailbox, Workspace
    from multi_agent_mcp.texts import Texts

TRANSCRIPTS = 50
"""The number of conversations of its host that are remembered for an agent."""

# The record of the unread mail and notifications that `hook` has announced.
#
# For mail it is mainly a point in time, before which everything has been announced. So neither the record nor a lookup
# grows with the amount of unread mail.


@dataclass(frozen=True)
class Unread:
    """The unread items that an event may have to announce: notifications, newest first, and mail in reading order."""

    notices: Sequence[Notification]
    mail: Sequence[Message]

    @property
    def interrupts(self) -> list[Notification]:
        return [notice for notice in self.notices if notice.interrupts]

    @property
    def pressing(self) -> set[str]:
        """The ids of the items that prevent the end of a turn: interrupts and urgent mail."""
        return ids(self.interrupts) | {message.id for message in self.mail if message.priority == "urgent"}

    @cached_property
    def all_ids(self) -> set[str]:
        return ids(self.notices) | ids(self.mail)

    def without(self, item_ids: set[str]) -> Unread:
        if item_ids.isdisjoint(self.all_ids):
            return self
        return Unread(
            [notice for notice in self.notices if notice.id not in item_ids],
            [message for message in self.mail if message.id not in item_ids],
        )


@dataclass(frozen=True)
class ChangedMail:
    """An unread file of the mailbox and when it was last changed (nanoseconds)."""

    name: str
    message: Message
    at: int


@dataclass
class HookState:
    """The state of announcements. `announced` are the ids announced by any event, `stopped` those for which the end of
    a turn was prevented, `ring` is the last announcement that reached the model, `host_session` the host's own id of
    its session.

    `transcripts` are the host's last conversations: by its id of each the host's name and the file that it keeps.

    `until`: mail from before this time (in nanoseconds, by the mailbox's own time) was announced, and is not in
    `announced`; `urgent` are the files of such mail that still have to prevent the end of a turn. In the file,
    `announced` is called `told`.
    """

    announced: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    ring: Ring | None = None
    host_session: str | None = None
    until: int = 0
    urgent: list[str] = field(default_factory=list)
    transcripts: dict[str, list[str | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> HookState:
        """Parses the file's content; anything invalid gives an empty state."""
        try:
            announced, stopped = (set(map(str, facts.get(key, ()))) for key in ("told", "stopped"))
            urgent = [str(name) for name in facts.get("urgent", ()) if "/" not in str(name)]
            ring, until = Ring.of(facts.get("ring") or {}), int(facts.get("until", 0))
            transcripts = {
                str(key): [*files][:2] for key, files in (facts.get("transcripts") or {}).items() if len(files) > 1
            }
            return cls(announced, stopped, ring, facts.get("host_session"), until, urgent, transcripts)
        except (AttributeError, TypeError, ValueError, OverflowError):
            return cls()

    def since(self, seen: int) -> int:
        """The time from which mail must be examined, given that the mailbox last changed at `seen`: 0, the beginning,
        if the clock was set back."""
        return self.until if self.until <= seen else 0

    def in_conversation(self, event: Event) -> None:
        """Records the host's conversation in which an event occurred, and its file."""
        if event.host_session is not None:
            self.host_session = event.host_session
            known = self.transcripts.pop(event.host_session, [None, None])
            self.transcripts[event.host_session] = [event.host or known[0], event.transcript or known[-1]]
            self.transcripts = dict([*self.transcripts.items()][-TRANSCRIPTS:])

    def forget_all_but(self, unread: set[str]) -> None:
        self.announced &= unread
        self.stopped &= unread

    def announce(self, item_ids: Iterable[str], at: datetime) -> None:
        self.announced.update(item_ids)
        self.rung(at, item_ids)

    def rung(self, at: datetime, item_ids: Iterable[str], attempt: int = 1) -> None:
        """Records a ring, which is outstanding while one of these items, or of an earlier ring's, is unread."""
        earlier = self.ring.item_ids if self.ring else frozenset[str]()
        self.ring = Ring(at, frozenset([*dict.fromkeys([*item_ids, *earlier])][:NAMED]), attempt)

    def remember(self, mail: Sequence[ChangedMail], notices: Sequence[Notification], seen: int) -> None:
        """Records that the examined mail was announced, if all of it was: then it need not be examined again, except
        what may have arrived at the same moment."""
        if all(item.message.id in self.announced for item in mail):
            self.until = seen
        border = self.until - RACY_NS
        pressing = (item for item in mail if item.message.priority == "urgent" and item.at <= border)
        self.urgent = [item.name for item in pressing if item.message.id not in self.stopped]
        self.forget_all_but(ids(notices) | {item.message.id for item in mail if item.at > border})

    def speaks(self, unread: Unread) -> list[str]:
        """The events that have something to announce even if nothing new arrives."""
        events = ["PreToolUse"] if unread.interrupts else []
        events += ["PostToolUse", "UserPromptSubmit"] if unread.all_ids - self.announced else []
        return events + (["Stop"] if unread.pressing - self.stopped else [])

    def facts(self) -> dict[str, Any]:
        """The content of the file."""
        ring = self.ring and {
            "at": format_time(self.ring.at),
            "messages": sorted(self.ring.item_ids),
            "attempt": self.ring.attempt,
        }
        return {
            "told": sorted(self.announced),
            "stopped": sorted(self.stopped),
            "ring": ring,
            "host_session": self.host_session,
            "until": self.until,
            "urgent": self.urgent,
            "transcripts": self.transcripts,
        }


def ids(items: Iterable[Message] | Iterable[Notification] | Iterable[UnreadItem]) -> set[str]:
    return {item.id for item in items}


logger = logging.getLogger(__name__)

LINES_MAX = 5
"""The most messages or notifications that are announced one by one; more are announced by their number."""


@dataclass(frozen=True)
class Event:
    """An event in the host, for which it calls `hook`. `host` is the host's name if the hook's command line gives it,
    `transcript` the file in which the host keeps the conversation; `facts` is all that the host said, if it may be
    about a usage limit."""

    name: str
    host_session: str | None = None
    host: str | None = None
    transcript: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Hooks:
    """Answers the hooks of one session's agents."""

    workspace: Workspace
    notifications: Notifications
    sessions: Sessions
    doorbell: Doorbell
    limits: Limits
    texts: Texts
    clock: Callable[[], datetime]

    def answer(self, agent_id: str, purpose: str, event: Event) -> dict[str, Any] | None:
        """The JSON that the hook prints, or None if there is nothing to announce.

        Mail and notifications are announced once, and the end of a turn is prevented once for each interrupt or urgent
        message; native tools are denied until the interrupt has been read. Raises `AgentNotFound`.
        """
        agent = self.workspace.registry.get(agent_id)
        if event.facts:
            self.limits.heard(agent_id, event.host, event.facts)
        with self.workspace.locks.held(_lock(agent_id)):
            look = state_file.look(str(self.workspace.path), agent_id)  # before reading: later items are not missed
            state, seen = self._state(agent_id, purpose), look["seen"][0]
            notices, mail = self._notices(agent_id, purpose), self._mail(agent_id, state, seen)
            unread = Unread(notices, self._meant(agent_id, purpose, [item.message for item in mail]))
            answer = self._decided(event.name, unread, state)
            state.in_conversation(event)
            speaks = state.speaks(unread)
            state.remember(mail, notices, seen)
            self._write(agent_id, purpose, {**look, "speaks": speaks, **state.facts()})
        self._note_host(agent, event)
        return answer

    def wake(self, agent_id: str, purpose: str) -> tuple[str | None, Due[DoorbellItem]]:
        """Returns the line that wakes an idle agent, or None if none is due, and what is due next. Records the ring."""
        self.notifications.repair(agent_id)
        if not self.workspace.unread_count(agent_id) and not self.doorbell.awaits_reset(agent_id):
            return None, Due()
        with self.workspace.locks.held(_lock(agent_id)):
            state = self._state(agent_id, purpose)
            line, decision = self.doorbell.wake(agent_id, purpose, state.ring)
            if line is not None:
                state.rung(self.clock(), (item.id for item in decision.items), decision.attempt)
                self._write(agent_id, purpose, state.facts())  # without `seen`: the next hook looks again
        return line, decision

    def _decided(self, event: str, unread: Unread, state: HookState) -> dict[str, Any] | None:
        """The answer to one event; records in `state` the items that it announces."""
        fresh = unread.without(state.announced)
        if event == "PreToolUse" and unread.interrupts:
            if fresh.interrupts:
                state.announce(ids(fresh.interrupts), self.clock())
            reason = self._interrupt_words("hook.denied", unread.interrupts)
            return _for_event(event, permissionDecision="deny", permissionDecisionReason=reason)
        if event in ("PostToolUse", "UserPromptSubmit") and fresh.all_ids:
            state.announce(fresh.all_ids, self.clock())
            return _for_event(event, additionalContext=self._words(fresh))
        if event == "Stop" and (pressing := unread.pressing - state.stopped):
            state.stopped |= pressing
            state.announce(pressing, self.clock())
            announced = unread.without(unread.all_ids - pressing)
            return {"decision": "block", "reason": self._words(announced, "hook.not_yet")}
        return None

    def _words(self, unread: Unread, opening: str | None = None) -> str:
        parts = [self.texts(opening)] if opening else []
        if interrupts := unread.interrupts:
            parts.append(self._interrupt_words(None, interrupts))
        elif unread.notices:
            parts.append(self._lines(list(map(UnreadNotification.of, unread.notices)), "notification.some"))
        if unread.mail:
            parts.append(self._lines(unread.mail, "hook.mail"))
        return "\n\n".join(parts)

    def _lines(self, items: Sequence[DoorbellItem], advice: str) -> str:
        groups = [[item] for item in items] if len(items) <= LINES_MAX else [items]
        return "\n".join([*(doorbell_line(self.texts, group) for group in groups), self.texts(advice)])

    def _interrupt_words(self, opening: str | None, interrupts: Sequence[Notification]) -> str:
        parts = [self.texts(opening)] if opening else []
        shown = map(as_answer, interrupts[:LINES_MAX])
        parts += [f"{notice['message']}\n{notice['instruction']}".strip() for notice in shown]
        return "\n\n".join([*parts, self.texts("notification.interrupt")])

    def _notices(self, agent_id: str, purpose: str) -> list[Notification]:
        """The unread notifications to announce, newest first."""
        self.notifications.repair(agent_id)
        return [notice for notice in reversed(self.notifications.ringing(agent_id)) if notice.meant_for(purpose)]

    def _mail(self, agent_id: str, state: HookState, seen: int) -> list[ChangedMail]:
        """The unread mail that arrived or changed since all mail was announced, and older urgent mail that still has to
        prevent the end of a turn. After the first look this is little, however much is unread."""
        mailbox, since = self.workspace.mailbox(agent_id), state.since(seen)
        names = state_file.changed_since(str(mailbox.path), since) if since else mailbox.hot.names()
        unread = self._unread(mailbox, [*dict.fromkeys([*names, *state.urgent])], seen)
        state.announced |= {item.message.id for item in unread if item.name in state.urgent and item.name not in names}
        return unread

    def _unread(self, mailbox: Mailbox, names: Sequence[str], seen: int) -> list[ChangedMail]:
        try:
            return [ChangedMail(*found) for found in mailbox.unread_among(names)] if names else []
        except (StorageError, ValueError):  # a bad sector, which the index skips, or an invalid name
            return [ChangedMail(name, message, seen) for name, message in mailbox.unread()]

    def _meant(self, agent_id: str, purpose: str, mail: Sequence[Message]) -> list[Message]:
        """The mail in reading order, without what the agent's other living session announces."""
        return sorted(self.doorbell.meant_for(agent_id, purpose, mail), key=reading_order)

    def _note_host(self, agent: Agent, event: Event) -> None:
        """Records the agent's host, unless a person named one, and the thread of a host that takes lines into it in the
        registry, for the channel chain. Never raises: this must not lose an answer."""
        thread = event.host_session if _has_queue(event.host or agent.host) else None
        is_known = agent.seen_in(event.host).get("host") in (None, agent.host)
        if is_known and thread in (None, agent.extra.get("codex_thread_id")):
            return
        threads = {} if thread is None else {"codex_thread_id": thread}
        try:
            self.workspace.registry.revise(agent.id, lambda known: known.seen_in(event.host) | threads)
        except Refusal as refusal:
            logger.warning("the host could not be noted: %s", refusal)

    def _state(self, agent_id: str, purpose: str) -> HookState:
        return HookState.of(state_file.read_state(str(self.workspace.path), agent_id, purpose))

    def _write(self, agent_id: str, purpose: str, facts: Mapping[str, Any]) -> None:
        path = str(self.workspace.path)
        if facts != state_file.read_state(path, agent_id, purpose):
            target = Path(state_file.state_path(path, agent_id, purpose))
            self.workspace.files.replace(target, json.dumps(facts).encode(), durable=False)


def _for_event(event: str, **output: str) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **output}}


def _has_queue(host: str | None) -> bool:
    """Whether the host takes lines into a thread of its own, which is then to be recorded."""
    known = host_named(host)
    return known is not None and "codex_queue" in known.channels


def _lock(agent_id: str) -> str:
    return f"hooks-{agent_id}"
