"""Notifications, shown to the agent sessions of their purpose until they are read (docs/protocol.md, Notifications)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.entity import age
from multi_agent_mcp.domain.ids import new_id
from multi_agent_mcp.domain.notification import CHAT_NOTICE, Notification
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import ContentTooLarge, Refusal
from multi_agent_mcp.services.answer_budget import NOTICE_CHARACTERS, clipped
from multi_agent_mcp.services.validation import require_text

if TYPE_CHECKING:
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.notifications.writing import NoticeWriter
    from multi_agent_mcp.services.sessions.confirmation import Lease
    from multi_agent_mcp.store.workspace import Workspace

logger = logging.getLogger(__name__)

ANSWER_CHARACTERS = 4_200  # an answer of the greatest length, with its line breaks
MESSAGE_CHARACTERS = 1_000  # shown beside the answers of other tools


@dataclass(frozen=True)
class Pending:
    """The kinds of unread notifications of an agent session; `from_chat` is the newest one from its chat session."""

    interrupts: bool = False
    some: bool = False
    from_chat: Notification | None = None


NOTHING = Pending()


@dataclass(eq=False)
class Notifications:
    """The notifications of one session directory."""

    workspace: Workspace
    derived: DerivedNotices
    writer: NoticeWriter
    clock: Callable[[], datetime]
    settle: Callable[[], None]
    """Ends what has run out, and tells those concerned. Never raises."""
    next_deadline: Callable[[], datetime | None] = lambda: None
    """See `QuestionEffects.next_deadline`."""

    def refresh(self, agent_id: str, purpose: str) -> Pending:
        """Repairs the agent's notifications and returns what is unread for a session of this purpose. A few stat(2)
        while nothing changes. Raises `StorageError`."""
        self.settle()
        self.derived.repair(agent_id)
        with self.workspace.tasks.read_once():
            unread = [notice for _, notice in self.workspace.notices(agent_id).unread() if notice.meant_for(purpose)]
            first = next(filter(self.derived.applies, unread), None)  # an interrupt, if there is one that applies
            if first is None:
                return NOTHING
            chats = (notice for notice in reversed(unread) if notice.type == CHAT_NOTICE and purpose == "task")
            return Pending(first.interrupts, True, next(filter(self.derived.applies, chats), None))

    def repair(self, agent_id: str) -> None:
        """Writes notifications that a killed process did not write and settles obsolete ones. Never raises: the next
        reader tries again."""
        self.settle()
        try:
            self.derived.repair(agent_id)
        except Refusal as refusal:
            logger.warning("the notifications of %s are not repaired yet: %s", agent_id, refusal)

    def due_after(self) -> timedelta | None:
        """After what time `repair` has something to do although no file changes: a deadline passes. None if never."""
        deadline, now = self.next_deadline(), self.clock()
        return None if deadline is None or deadline <= now else deadline - now

    def waiting(self, agent_id: str) -> list[Notification]:
        """The unread notifications of an agent that still apply, oldest first, for sessions of either purpose. Writes
        nothing."""
        return sorted(self.derived.waiting(agent_id), key=age)

    def ringing(self, agent_id: str) -> list[Notification]:
        """Those of `waiting` that ring the agent now (see `is_held`)."""
        notices = [notice for notice in self.waiting(agent_id) if notice.rings]
        if any(map(_waits_for_resumption, notices)) and self.derived.pause_of(agent_id) is not None:
            return [notice for notice in notices if not _waits_for_resumption(notice)]
        return notices

    def is_held(self, notice: Notification) -> bool:
        """Whether a notification rings only after `resume`: of those for a paused agent's task session, all but
        interrupts (docs/protocol.md, Interrupts)."""
        return _waits_for_resumption(notice) and self.derived.pause_of(notice.target_agent_id) is not None

    def is_paused(self, agent_id: str) -> bool:
        """Whether the agent is paused."""
        return self.derived.pause_of(agent_id) is not None

    def read(
        self,
        agent_id: str,
        purpose: str,
        *,
        mark_as_read: bool = True,
        fits: Callable[[list[dict[str, Any]]], int] = len,
        lease: Lease | None = None,
    ) -> list[dict[str, Any]]:
        """Returns the unread notifications for this purpose, newest first, and marks them read: as many as `fits`
        allows; the others follow next time. `lease` is called before they are marked, as with mail."""
        inbox = self.workspace.notices(agent_id)
        with self.workspace.locks.held(inbox.lock):
            mine = self._unread(agent_id, purpose, fresh=True)
            mine.sort(key=lambda item: age(item[1]), reverse=True)
            answer = [as_answer(notice) for _, notice in mine]
            del mine[fits(answer) :]
            if mark_as_read and mine:
                now = self.clock()
                if lease is not None:
                    lease(tuple(inbox.reference(name, now) for name, _ in mine))
                    inbox.mark_read([name for name, _ in mine], now)
                else:
                    inbox.read([name for name, _ in mine], now)
        return answer[: len(mine)]

    def from_chat(
        self, agent_id: str, conversation_id: str, message: str | None, task_id: str | None, *, interrupting: bool
    ) -> Notification:
        """Asks the agent's own task session to look into a conversation, optionally as an interrupt (docs/protocol.md,
        Chat notifications)."""
        require_text("message", message)
        if len(message or "") > MESSAGE_CHARACTERS:
            raise ContentTooLarge(size=len(message or ""), limit=MESSAGE_CHARACTERS)
        notice = Notification(
            id=new_id("ntf"),
            target_agent_id=agent_id,
            target_purpose="task",
            type="interrupt" if interrupting else CHAT_NOTICE,
            action="check_chat",
            task_id=task_id,
            conversation_id=conversation_id,
            message=message or "",
            created_at=self.clock(),
            instruction=self.writer.texts("chat.check", conversation_id=conversation_id),
            sender_id=agent_id,
        )
        return self.writer.put(notice)

    def _unread(self, agent_id: str, purpose: str, *, fresh: bool = False) -> list[tuple[str, Notification]]:
        """The unread notifications for this purpose that apply, with their file names; others stay unread until they
        are settled."""
        return [
            (name, notice)
            for name, notice in self.workspace.notices(agent_id).unread(fresh=fresh)
            if notice.meant_for(purpose) and self.derived.applies(notice)
        ]


def _waits_for_resumption(notice: Notification) -> bool:
    return notice.meant_for("task") and not notice.interrupts


def as_answer(notice: Notification) -> dict[str, Any]:
    """A notification as its agent sees it, with what only some have: a `reason`, a question, its answer. Cut texts are
    marked as cut."""
    answer = {
        "id": notice.id,
        "type": notice.type,
        "action": notice.action,
        "task_id": notice.task_id,
        "conversation_id": notice.conversation_id,
        "message": clipped(notice.message, NOTICE_CHARACTERS),
        "instruction": clipped(notice.instruction, NOTICE_CHARACTERS),
        "created_at": format_time(notice.created_at),
    }
    some = {
        "reason": clipped(notice.reason, NOTICE_CHARACTERS),
        "question_id": notice.question_id,
        "answer": clipped(notice.answer, ANSWER_CHARACTERS),
        "note": clipped(notice.note, NOTICE_CHARACTERS),
    }
    return answer | {name: value for name, value in some.items() if value}
