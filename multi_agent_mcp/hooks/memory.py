"""What `hook` keeps between its runs: which mail and notifications it has announced, and what it knows of the agent's
host.

For mail it is mainly a point in time, before which everything has been announced. So neither the record nor a lookup
grows with the amount of unread mail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from multi_agent_mcp.domain.delivery import NAMED, Ring, UnreadItem
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.system.file_status import RACY_NS

TRANSCRIPTS = 50
"""The number of conversations of its host that are remembered for an agent."""


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


START, FORGOTTEN = "start", "forgotten"


@dataclass(frozen=True)
class HostMemory:
    """What is known of an agent's host: its process, its own id of its conversation (`session`) and when that was first
    seen there. And of the briefing: whether it is `due` at the next event that can carry it, as this process started or
    as the model has forgotten something; `told_at`, when a hook told it, or had nothing to tell, at the start of this
    process, until the process's first `get_next_action`; `briefed`, the last conversation in which a hook told it."""

    host: str | None = None
    session: str | None = None
    pid: int = 0
    since: str = ""
    due: str = ""
    told_at: str = ""
    briefed: str | None = None

    @classmethod
    def of(cls, facts: Any) -> HostMemory:
        """Parses the record; what is invalid is left out."""
        known = {item.name: type(item.default) for item in fields(cls)}
        found = facts if isinstance(facts, dict) else {}
        return cls(**{name: value for name, value in found.items() if name in known and _fits(value, known[name])})

    def seen(self, host: str | None, session: str | None, pid: int, at: datetime) -> HostMemory:
        """The memory after an event of this process in this conversation."""
        if pid != self.pid:
            return HostMemory(host, session, pid, format_time(at), briefed=self.briefed)
        if session in (None, self.session):
            return self if host is None else replace(self, host=host)
        return replace(self, host=host or self.host, session=session, since=format_time(at))

    def is_of(self, pid: int, since: datetime) -> bool:
        """Whether this is about the host of a server, by its process, else by the time since when it was seen."""
        return bool(self.pid) and (self.pid == pid or max(self.since, self.told_at) >= format_time(since))

    @property
    def facts(self) -> dict[str, Any]:
        return vars(self)


def _fits(value: object, kind: type) -> bool:
    return isinstance(value, str) if kind in (str, type(None)) else type(value) is kind


@dataclass
class HookState:
    """The state of announcements. `announced` are the ids announced by any event, `stopped` those for which the end of
    a turn was prevented, `ring` is the last announcement that reached the model, `host_session` the host's own id of
    the last conversation that it named, `host` what is known of the host.

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
    host: HostMemory = HostMemory()

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
            host = HostMemory.of(facts.get("host"))
            return cls(
                announced=announced,
                stopped=stopped,
                ring=ring,
                host_session=facts.get("host_session"),
                until=until,
                urgent=urgent,
                transcripts=transcripts,
                host=host,
            )
        except (AttributeError, TypeError, ValueError, OverflowError):
            return cls()

    def since(self, seen: int) -> int:
        """The time from which mail must be examined, given that the mailbox last changed at `seen`: 0, the beginning,
        if the clock was set back."""
        return self.until if self.until <= seen else 0

    def in_conversation(self, host_session: str | None, host: str | None, transcript: str | None) -> None:
        """Records the host's conversation in which an event occurred, and its file."""
        if host_session is not None:
            self.host_session = host_session
            known = self.transcripts.pop(host_session, [None, None])
            self.transcripts[host_session] = [host or known[0], transcript or known[-1]]
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
        events += ["PostToolUse", "UserPromptSubmit"] if self.host.due or unread.all_ids - self.announced else []
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
            "host": self.host.facts,
        }


def ids(items: Iterable[Message] | Iterable[Notification] | Iterable[UnreadItem]) -> set[str]:
    return {item.id for item in items}


NANOSECONDS = 10**9
