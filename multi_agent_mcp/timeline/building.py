"""Builds the timeline of a session from its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from multi_agent_mcp.domain.agent import AgentSession, in_tree_order
from multi_agent_mcp.domain.entity import EPOCH
from multi_agent_mcp.domain.times import parse_time, stamp
from multi_agent_mcp.services.mail import delivery_steps
from multi_agent_mcp.services.sessions.agent_sessions import is_running
from multi_agent_mcp.session import Service, Session
from multi_agent_mcp.store.merged_inboxes import Envelope, MergedInbox
from multi_agent_mcp.timeline.events import (
    OTHERS,
    Arrow,
    Bar,
    Interruption,
    Lane,
    Life,
    PaneAnswer,
    Talk,
    Timeline,
    bars_of,
)

if TYPE_CHECKING:
    from multi_agent_mcp.domain.message import Conversation
    from multi_agent_mcp.domain.notification import Notification
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.mail_search import MailSearch
    from multi_agent_mcp.texts import Texts

ARROWS_MAX = 2_000
NOTICES_MAX = 2_000  # notifications examined, of which only interrupts are shown
FINISHED_MAX = 500  # tasks, and as many ended agent sessions: each of them is parsed

T = TypeVar("T", Bar, Life, Talk)


class Timelines(Service):
    """Builds timelines; changes nothing."""

    def __init__(self, session: Session, mail_search: MailSearch) -> None:
        super().__init__(session)
        self.mail_search = mail_search
        self._notices: MergedInbox[Notification] = MergedInbox()

    def told(self, texts: Texts) -> Iterator[str]:
        """The lines of the command `timeline` about the whole session."""
        from multi_agent_mcp.timeline.commands import lines_of  # here and below: the console prints nothing

        return lines_of(self.of(), texts)

    def drawn(self, texts: Texts) -> str:
        """The whole session as an SVG document, in this machine's time zone."""
        from multi_agent_mcp.timeline.commands import picture

        return picture(self.of(), texts)

    def of(self, start: datetime | None = None, end: datetime | None = None, most: int | None = None) -> Timeline:
        """The timeline of a period. Without a start it begins with the first event; without an end it extends to now,
        or to the last event if no session runs. `most` is the limit of messages, finished tasks and ended sessions
        each, by default as many as a picture has room for. Where older messages are left out, it begins with the first
        that is held: an axis that promises more would lie."""
        found = self.with_tasks(start, end, most)[0]
        if len(found.arrows) < (most or ARROWS_MAX) or not found.left_out:
            return found
        held = found.since(found.arrows[0].sent_at)
        return replace(held, lanes=tuple(self._lanes(held)))

    def with_tasks(
        self, start: datetime | None, end: datetime | None, most: int | None = None
    ) -> tuple[Timeline, list[Task]]:
        """As `of`, with the tasks that it is about, and others that are open."""
        since, until = start or EPOCH, end or self.clock()
        finished = most or FINISHED_MAX
        messages, older = self.mail_search.during(since, until, most or ARROWS_MAX)
        tasks = self.workspace.tasks.all(limit=finished, since=start)
        unparsed = self.workspace.tasks.count_closed(since, until) - finished
        found = Timeline(
            start=since,
            end=until,
            arrows=tuple(self._arrows(messages)),
            bars=_overlapping((bar for task in tasks for bar in bars_of(task)), since, until),
            marks=tuple(self._marks(tasks, since, until)),
            lives=_overlapping(map(self._life, self.workspace.sessions.all(limit=finished, since=start)), since, until),
            talks=_overlapping(map(_talk, self.workspace.conversations.all()), since, until),
            answers=tuple(self._answers(since, until)),
            left_out=older + max(unparsed, 0),
        )
        return replace(_framed(found, start, end), lanes=tuple(self._lanes(found))), tasks

    def _arrows(self, messages: Iterable[Envelope]) -> Iterator[Arrow]:
        steps_of = self._steps()
        for message in messages:
            steps = steps_of(message.receiver_id, message.id)
            yield Arrow(
                message_id=message.id,
                sender_id=message.sender_id,
                receiver_id=message.receiver_id,
                message_type=message.message_type,
                priority=message.priority,
                subject=message.subject,
                sent_at=message.created_at,
                on_hub_at=steps.get("on_hub"),
                came_at=steps.get("arrived"),
                rung_at=steps.get("rung"),
                submitted_at=steps.get("submitted"),
                read_at=message.read_at,
            )

    def _steps(self) -> Callable[[str, str], Mapping[str, datetime | None]]:
        """Returns a function from an agent id and an item id to the times of the item's steps."""
        steps_of = delivery_steps(self.workspace)
        return lambda agent_id, item_id: {
            str(step["state"]): parse_time(step.get("at")) for step in steps_of(agent_id, item_id)
        }

    def _marks(self, tasks: Iterable[Task], since: datetime, until: datetime) -> Iterator[Interruption]:
        changed_by, steps_of = cache(lambda: _changed_by(tasks)), self._steps()
        inboxes = [self.workspace.notices(agent_id) for agent_id in self.workspace.registry.all()]
        files = self._notices.newest_first(inboxes, stamp(since), stamp(until))
        for notice in islice(self._notices.heads(files), NOTICES_MAX):
            if notice.interrupts and since <= notice.created_at <= until:
                steps = steps_of(notice.target_agent_id, notice.id)
                yield Interruption(
                    notification_id=notice.id,
                    agent_id=notice.target_agent_id,
                    action=notice.action or "",
                    message=notice.message,
                    at=notice.created_at,
                    by=notice.sender_id or changed_by().get((notice.task_id, notice.created_at)),
                    task_id=notice.task_id,
                    rung_at=steps.get("rung"),
                    submitted_at=steps.get("submitted"),
                    read_at=notice.read_at,
                    reason=notice.reason,
                )

    def _answers(self, since: datetime, until: datetime) -> Iterator[PaneAnswer]:
        """The dialogs in panes that people answered from elsewhere, from the audit log."""
        for at, line in islice(self.workspace.audit_log.newest_first("answer", since, until), NOTICES_MAX):
            dialog = line.get("dialog")
            yield PaneAnswer(
                agent_id=str(line.get("agent_id", "")),
                by=str(line.get("by", "")),
                at=at,
                question=str(dialog.get("text", "")) if isinstance(dialog, Mapping) else "",
                choice=str(line.get("choice", "")),
                label=str(line.get("label") or ""),
                state=str(line.get("state", "")),
            )

    def _life(self, session: AgentSession) -> Life:
        """The life of a session. If its process died without ending it, it ends with its last call."""
        is_alive = is_running(session, self.workspace.authority)
        return Life(
            session_id=session.id,
            agent_id=session.agent_id,
            purpose=session.purpose,
            start=session.created_at,
            end=None if is_alive else session.ended_at or session.last_activity_at,
            machine=session.machine,
        )

    def _lanes(self, found: Timeline) -> Iterator[Lane]:
        """The agents in tree order, removed ones only if they occur in the timeline; then, if needed, one for
        others."""
        seen = found.occurrences().keys()
        known = self.workspace.registry.all()
        shown = {key: agent for key, agent in known.items() if not agent.removed or key in seen}
        for agent, depth in in_tree_order(shown):
            yield Lane(agent_id=agent.id, role=agent.role, depth=depth, machine=agent.machine)
        if not seen <= shown.keys():
            yield Lane(agent_id=OTHERS)


def _changed_by(tasks: Iterable[Task]) -> dict[tuple[str | None, datetime | None], str]:
    """The author of each change, by task id and time; an interrupt has the same time as its change."""
    lines = ((task.id, entry) for task in tasks for entry in task.history if isinstance(entry, Mapping))
    return {(task_id, parse_time(entry.get("at"))): str(entry["by"]) for task_id, entry in lines if entry.get("by")}


def _framed(found: Timeline, start: datetime | None, end: datetime | None) -> Timeline:
    """The timeline with the start and end that the caller left open."""
    if start is not None and end is not None:
        return found
    moments = [moment for moment in _moments(found) if moment <= found.end] or [found.end]
    at_work = any(life.end is None for life in found.lives)
    return replace(found, start=start or min(moments), end=end or (found.end if at_work else max(moments)))


def _moments(found: Timeline) -> Iterator[datetime]:
    for arrow in found.arrows:
        yield from filter(None, (arrow.sent_at, arrow.submitted_at, arrow.read_at))
    for start, end in _extents(found):
        yield from filter(None, (start, end))
    for bar in found.bars:
        yield from (span.start for span in bar.spans)
    for mark in found.marks:
        yield from filter(None, (mark.at, mark.read_at))
    yield from (answer.at for answer in found.answers)


def _extents(found: Timeline) -> Iterator[tuple[datetime, datetime | None]]:
    yield from ((bar.start, bar.end) for bar in found.bars)
    yield from ((life.start, life.end) for life in found.lives)
    yield from ((talk.start, talk.end) for talk in found.talks)


def _overlapping(items: Iterable[T], start: datetime, end: datetime) -> tuple[T, ...]:
    """The items that overlap the period, oldest first."""
    found = [item for item in items if item.start <= end and (item.end is None or item.end >= start)]
    return tuple(sorted(found, key=lambda item: item.start))


def _talk(conversation: Conversation) -> Talk:
    return Talk(
        conversation_id=conversation.id,
        initiator_id=conversation.initiator_id,
        target_agent_id=conversation.target_agent_id,
        purpose=conversation.purpose or "",
        status=conversation.status,
        start=conversation.started_at,
        end=conversation.ended_at,
    )
