"""Reading mail: chooses messages for an answer, applies their reports and marks them read (docs/protocol.md, Reading).

`services/sessions/agent_sessions.py` tracks whether such an answer arrives, and makes its messages unread again if not
(docs/protocol.md, Confirmation)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.entity import age, entity_id
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.message import Message, is_report
from multi_agent_mcp.domain.task import Task, checklist_item
from multi_agent_mcp.domain.task_reports import LINES, ReportTime, progressed, reported, require_current
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import (
    InvalidId,
    InvalidStatusTransition,
    MessageNotFound,
    NotProven,
    Refusal,
    StorageError,
    TaskNotFound,
)
from multi_agent_mcp.services.answer_budget import UNLIMITED, AnswerBudget, Slice, cut, pack
from multi_agent_mcp.services.tasks.changes import require_startable
from multi_agent_mcp.session import Service
from multi_agent_mcp.texts import catalogue

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.services.chat.conversations import Conversations
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.overview.snapshot import Dashboard
    from multi_agent_mcp.services.sessions.confirmation import Lease
    from multi_agent_mcp.services.sessions.session_records import OwnerWaits
    from multi_agent_mcp.services.team.agents import Agents, Signatures
    from multi_agent_mcp.store.workspace import Mailbox

logger = logging.getLogger(__name__)

REASONS_SHOWN = 3
REASON_CHARACTERS = 160


@dataclass(frozen=True, kw_only=True)
class Query:
    """The arguments of a reading. `offset` counts characters and is used with `message_id`.

    `whole` lifts the limit on an answer's size, `polling=False` the Owner's polling guard: a human at a terminal has
    no context window to overflow, and is no agent in a loop.
    """

    unread_only: bool = True
    mark_as_read: bool = True
    message_type: str | None = None
    limit: int = 50
    before: str | None = None
    message_id: str | None = None
    offset: int = 0
    whole: bool = False
    polling: bool = True


@dataclass(frozen=True, kw_only=True)
class ReadBatch:
    """The messages chosen for one answer at the time `at`: the `slices`, the names of the files that were `unread`
    before it, and whether there are `more` messages than fit. The messages with the ids `kept` stay unread: what they
    report cannot be written now."""

    reader: Agent
    query: Query
    mailbox: Path
    unread: Collection[str]
    slices: Sequence[Slice]
    more: bool
    at: datetime
    kept: Collection[str] = ()

    @property
    def names(self) -> list[str]:
        """The names of the mailbox's files that this reading marks read."""
        return [item.path.name for item in self._marked()]

    @property
    def believed(self) -> list[Message]:
        """The messages marked read whose signature verifies; only these have effects beyond being mail."""
        return [item.message for item in self._marked() if item.verified]

    @property
    def reports(self) -> list[Message]:
        """Those of `believed` that report on tasks; none reports to a worker."""
        return [] if self.reader.role == "worker" else list(filter(is_report, self.believed))

    def _marked(self) -> list[Slice]:
        return [item for item in self.slices if self._is_fresh(item)]

    def shown(self) -> list[dict[str, Any]]:
        """The messages as the reader sees them, those marked read with `read_at` set."""
        return [
            replace(item, message=item.message.mark_read(self.at)).as_answer()
            if self._is_fresh(item)
            else item.as_answer()
            for item in self.slices
        ]

    def _is_fresh(self, item: Slice) -> bool:
        """Whether this reading marks the message read. Files that somebody put unread into an archive stay unread."""
        is_unread = item.path.parent == self.mailbox and item.path.name in self.unread
        return self.query.mark_as_read and is_unread and item.message.id not in self.kept


@dataclass(eq=False)
class Reading(Service):
    """Reads mailboxes for their owners."""

    agents: Agents
    answer_budget: AnswerBudget
    reports: Reports
    conversations: Conversations
    owner_waits: OwnerWaits
    signatures: Signatures

    def unread_among(self, agent_id: str, spoken: Iterable[Message]) -> list[str]:
        """The ids of those messages of a conversation that are unread in the agent's mailbox. Copies that do not verify
        are left out: their content may be forged."""
        waiting = {message.id for _, message in self.workspace.mailbox(agent_id).unread()}
        return [item.id for item in spoken if item.id in waiting and self.conversations.of_mail(agent_id, item)]

    def count(self, agent: Agent) -> int:
        """The number of unread messages, for the agent itself. Examines every file, and counts as a check of a waiting
        Owner: raises `PollingBlocked`."""
        unread = len(self.workspace.mailbox(agent.id).unread(fresh=True))
        self.owner_waits.checked(agent, unread)
        return unread

    def answered(self, agent: Agent, message: Message) -> None:
        """Marks a message read that a person has answered without reading the others."""
        self.read(agent, Query(message_id=message.id, whole=True, polling=False))

    def read(self, agent: Agent, query: Query, lease: Lease | None = None) -> dict[str, Any]:
        """Returns messages and marks them read, in this order: reports are applied, the files are leased, `read_at` is
        written. A failure before that leaves everything unread; so does one of the hub a report.

        Raises `PollingBlocked` for a waiting Owner who polls, `MessageNotFound` for an unknown id.
        """
        # A page of history may take long, and others wait for the lock: it is taken only to mark messages read.
        batch = None if query.unread_only else self.select(agent, query)
        refused: Mapping[str, Refusal] = {}
        if batch is None or batch.names:
            with self.workspace.locks.held(self.workspace.mailbox(agent.id).lock):
                batch = batch or self.select(agent, query)
                batch, refused = self._mark(batch, lease)
        dashboard_updated = bool(batch.reports) and self.reports.follow_up(batch.reports)
        return self._answer(batch, dashboard_updated=dashboard_updated) | self._not_followed(refused)

    def select(self, agent: Agent, query: Query) -> ReadBatch:
        """Chooses the messages for an answer; marks nothing read. Raises as `read`."""
        mailbox = self.workspace.mailbox(agent.id)
        unread = mailbox.unread(fresh=True)
        if agent.role == "owner" and query.polling and query.unread_only and query.message_id is None:
            self.owner_waits.checked(agent, len(unread))
        slices, more = self._choose(mailbox, query, unread)
        judged = [self._judged(item, agent.id) for item in slices]
        return ReadBatch(
            reader=agent,
            query=query,
            mailbox=mailbox.path,
            unread={name for name, _ in unread},
            slices=judged,
            more=more,
            at=self.clock(),
        )

    def _judged(self, item: Slice, reader_id: str) -> Slice:
        """With what its signature says. A second file of one message has no authority: it is to be read once."""
        verified = self.signatures.verifies(item.message, reader_id)
        is_once = verified and item.address == item.message.id
        authority = self.signatures.standing(item.message.sender_id, reader_id) if is_once else "unverified"
        return replace(item, verified=verified, authority=authority)

    def preview(self, batch: ReadBatch) -> dict[str, Any]:
        """The answer for a batch that is marked read only after it has been printed; see `complete`."""
        return self._answer(batch, dashboard_updated=False)

    def complete(self, batch: ReadBatch) -> dict[str, Any]:
        """Marks a printed batch read: a reader that dies while printing has consumed nothing. Returns the answer's
        fields about reports that were not applied."""
        if not batch.names:
            return {}  # without the lock, so that read-only directories can be viewed
        with self.workspace.locks.held(self.workspace.mailbox(batch.reader.id).lock):
            batch, refused = self._mark(batch, None)
        if batch.reports:
            self.reports.follow_up(batch.reports)
        return self._not_followed(refused)

    def _answer(self, batch: ReadBatch, *, dashboard_updated: bool) -> dict[str, Any]:
        shown = batch.shown()
        return {
            "messages": shown,
            "count": len(shown),
            "unread_remaining": len(batch.unread) - len(batch.names),
            "dashboard_updated": dashboard_updated,
            **self._how_to_go_on(batch),
        }

    def _choose(
        self, mailbox: Mailbox, query: Query, unread: Sequence[tuple[str, Message]]
    ) -> tuple[list[Slice], bool]:
        """The messages that fit into one answer, and whether there are more."""
        budget = UNLIMITED if query.whole else self.answer_budget.characters
        addresses = mailbox.addresses()

        def addressed(path: Path, message: Message) -> Slice:
            return Slice(message, path, addresses.of(path, message), message.content)

        if query.message_id is not None:
            path, message = self._found(mailbox, query.message_id)
            asked_for = Slice(message, path, query.message_id, message.content)
            return [cut(asked_for, query.offset, budget)], False
        candidates = self._unread(mailbox, query, unread) if query.unread_only else self._page(mailbox, query)
        return pack((addressed(*item) for item in candidates), query.limit, budget)

    def _unread(
        self, mailbox: Mailbox, query: Query, unread: Sequence[tuple[str, Message]]
    ) -> Iterable[tuple[Path, Message]]:
        wanted = query.message_type
        for name, head in unread:
            if wanted in (None, head.message_type) and (message := mailbox.hot.load(name)) is not None:
                yield mailbox.path / name, message

    def _page(self, mailbox: Mailbox, query: Query) -> Iterable[tuple[Path, Message]]:
        before = None if query.before is None else mailbox.position(*self._found(mailbox, query.before))
        for path, message in mailbox.newest_first(before):
            if query.message_type in (None, message.message_type):
                yield path, message

    def _found(self, mailbox: Mailbox, named: str) -> tuple[Path, Message]:
        found = mailbox.find(named)
        if found is None:
            raise MessageNotFound(message_id=named)
        return found

    def _mark(self, batch: ReadBatch, lease: Lease | None) -> tuple[ReadBatch, dict[str, Refusal]]:
        """Marks the batch read, after its reports were applied, its files leased and an Owner's wait released: a reader
        that dies midway may get the answer again, but never waits for one that it already got. Returns the batch as it
        was marked, and the reports that were not applied."""
        refused = self.reports.apply(batch.reports) if batch.reports else {}
        batch = replace(batch, kept={key for key, why in refused.items() if isinstance(why, StorageError)})
        believed, names = batch.believed, batch.names
        if not names:
            return batch, refused
        mailbox = self.workspace.mailbox(batch.reader.id)
        self.conversations.mark_seen(batch.reader, believed)
        if lease is not None:
            lease(tuple(mailbox.reference(name, batch.at) for name in names))
        if batch.reader.role == "owner":
            self.owner_waits.release_by(batch.reader, believed, self.agents.registry.all())
        seen = {item.path.name: item.message for item in batch.slices}
        if lease is not None:
            mailbox.mark_read(names, batch.at, seen)
        else:
            mailbox.read(names, batch.at, seen)
        read = (item.message for item in batch.slices if item.path.name in names)
        self.contributions.tell("marked_read", read, batch.at)
        return batch, refused

    def _not_followed(self, refused: Mapping[str, Refusal]) -> dict[str, Any]:
        """The answer's fields about reports that could not be applied to their tasks: the first ones, with short
        reasons."""
        shown = [
            {"message_id": message_id, "reason": self.texts.sentence(refusal)[:REASON_CHARACTERS]}
            for message_id, refusal in [*refused.items()][:REASONS_SHOWN]
        ]
        note = self.texts("report.not_followed", count=len(refused))
        return {"reports_not_followed": shown, "reports_note": note} if shown else {}

    def _how_to_go_on(self, batch: ReadBatch) -> dict[str, Any]:
        hints = [
            self.texts("more.content", message_id=item.address, offset=item.offset + len(item.content))
            for item in batch.slices
            if item.truncated
        ]
        if batch.more and batch.query.unread_only:
            hints.append(self.texts("more.unread"))
        elif batch.more:
            hints.append(self.texts("more.history", before=batch.slices[-1].address))
        return {"truncated": True, "how_to_continue": " ".join(hints)} if hints else {}


# Applies workers' reports to their tasks when the Admin reads them (docs/protocol.md, Reports).


@dataclass(eq=False)
class Reports(Service):
    """Applies `task_progress`, `task_complete` and `task_failed` messages, once each, in order, in the assignee's
    name."""

    dashboard: Dashboard
    derived: DerivedNotices

    def apply(self, reports: Iterable[Message]) -> dict[str, Refusal]:
        """Applies reports to their tasks. Idempotent: a report read twice, because its reader died, counts once.

        Returns, by message id, why a report could not be applied; the task's history records that, too.
        """
        refused: dict[str, Refusal] = {}
        for message in sorted(reports, key=age):
            if "result" in message.metadata:
                continue  # `report_completed` has changed the task itself
            try:
                self.workspace.tasks.update(_task_id(message), self._change(message, refused))
            except Refusal as refusal:
                refused[message.id] = refusal
                logger.warning("report %s was not applied: %s", message.id, _in_words(refusal))
        return refused

    def follow_up(self, reports: Iterable[Message]) -> bool:
        """Sends the notifications that follow from reports, and rewrites the dashboard. Returns whether the dashboard
        was rewritten."""
        for report in reports:
            with suppress(InvalidId, TaskNotFound):
                self.derived.follow_up(self.workspace.tasks.get(_task_id(report)))
        return self.dashboard.update()

    def _change(self, message: Message, refused: dict[str, Refusal]) -> Callable[[Task], Task]:
        written_at = format_time(message.created_at)
        change = Change(by=message.sender_id, at=self.clock(), message_id=message.id, written_at=written_at)

        def apply(task: Task) -> Task:
            if task.final or task.has_applied(message.id):
                return task
            task.require_assignee(message.sender_id)
            try:
                return self._followed(task, message, change)
            except (InvalidStatusTransition, NotProven) as refusal:
                refused[message.id] = refusal
                return task.refused_report(change, message.message_type, refusal.key.removeprefix("error."))

        return apply

    def _followed(self, task: Task, message: Message, change: Change) -> Task:
        """The task after the report. A report that starts a task needs what any start needs: it cannot bypass an
        approval or a dependency. Raises `InvalidStatusTransition`."""
        written = ReportTime(message.created_at, _lines(message))
        require_current(task, written, change.at, of_end=message.message_type != "task_progress")
        outcome = _outcome(task, message, change, written)
        begins = task.status != "in_progress" and outcome.status != task.status
        if begins or task.approval_status != "approved":
            require_startable(self.workspace, task)
        return outcome


def _task_id(report: Message) -> str:
    """The report's task id, checked so that a sender cannot name a file elsewhere. Raises `InvalidId`."""
    return entity_id("tsk", report.metadata.get("task_id"))


def _in_words(refusal: Refusal) -> str:
    """The refusal for the server's log, in English whatever the session's language."""
    return catalogue("en").sentence(refusal)


def _outcome(task: Task, message: Message, change: Change, written: ReportTime) -> Task:
    """The task with the report's progress or result."""
    if message.message_type == "task_progress":
        return progressed(task, change, _progress(message), _checklist(message), written)
    summary = message.metadata.get("summary") or message.content
    failed = message.message_type == "task_failed"
    reason = message.content if failed else None
    return reported(task, replace(change, reason=reason), failed=failed, summary=str(summary))


def _progress(message: Message) -> int | None:
    value = message.metadata.get("progress")
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 100 else None


def _lines(message: Message) -> int | None:
    value = message.metadata.get(LINES)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _checklist(message: Message) -> tuple[Mapping[str, object], ...] | None:
    value = message.metadata.get("checklist")
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        return None
    return tuple(map(checklist_item, value))
