"""Notifications as agent sessions are shown them, those of their purpose, until they are read (docs/protocol.md,
Notifications)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.entity import age, new_id
from multi_agent_mcp.domain.notification import CHAT_NOTICE, CHECK_CHAT, Notification
from multi_agent_mcp.domain.text import quoted_lines
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import ContentTooLarge, Refusal
from multi_agent_mcp.services.answer_budget import NOTICE_CHARACTERS, clipped
from multi_agent_mcp.services.validation import require_text
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.services.notifications.derived import DerivedNotices, Judgement
    from multi_agent_mcp.services.notifications.writing import NoticeWriter
    from multi_agent_mcp.services.sessions.confirmation import Lease
    from multi_agent_mcp.store.directory import Directory
    from multi_agent_mcp.texts import Texts

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
class Notifications(Service):
    """The notifications of one session directory."""

    derived: DerivedNotices
    writer: NoticeWriter

    def refresh(self, agent_id: str, purpose: str) -> Pending:
        """Repairs the agent's notifications and returns what is unread for a session of this purpose. A few stat(2)
        while nothing changes. Raises `StorageError`."""
        self.bring_up(agent_id)
        with self.workspace.tasks.read_once():
            return self.pending(agent_id, purpose)[0]

    def bring_up(self, agent_id: str) -> None:
        """As `repair`, but raises `StorageError`."""
        self.contributions.end_expired()
        self.derived.repair(agent_id)

    def pending(self, agent_id: str, purpose: str) -> tuple[Pending, set[Directory[Any]] | None]:
        """What is unread for a session of this purpose, and the directories by which that was judged; None: more than
        those. The notifications are looked at first, as what judges them has to be looked at afterwards."""
        found = [notice for _, notice in self.workspace.notices(agent_id).unread() if notice.meant_for(purpose)]
        judged: list[Judgement] = []

        def applies(notice: Notification) -> bool:
            judged.append(self.derived.judge(notice))
            return judged[-1].applies

        first = next(filter(applies, found), None)  # an interrupt, if there is one that applies
        chats = (notice for notice in reversed(found) if notice.type == CHAT_NOTICE and purpose == "task")
        chat = None if first is None else next(filter(applies, chats), None)
        places = {place for each in judged for place in each.places or ()}
        is_known = first is None or not first.interrupts
        pending = NOTHING if first is None else Pending(first.interrupts, True, chat)
        return pending, places if is_known and all(each.places is not None for each in judged) else None

    def repair(self, agent_id: str) -> None:
        """Writes notifications that a killed process did not write and ends obsolete ones. Never raises: the next
        reader tries again."""
        try:
            self.bring_up(agent_id)
        except Refusal as refusal:
            logger.warning("the notifications of %s are not repaired yet: %s", agent_id, refusal)

    def due_after(self) -> timedelta | None:
        """After what time `repair` has something to do although no file changes: a deadline passes. None if never."""
        deadline: datetime | None = self.contributions.ask("next_deadline")
        now = self.clock()
        return None if deadline is None or deadline <= now else deadline - now

    def waiting(self, agent_id: str) -> list[Notification]:
        """The unread notifications of an agent that still apply, oldest first, for sessions of either purpose. Writes
        nothing."""
        return sorted(self.derived.waiting(agent_id), key=age)

    def ringing(self, agent_id: str) -> list[Notification]:
        """Those of `waiting` that ring the agent now, not those that wait for a paused agent's resumption."""
        notices = [notice for notice in self.waiting(agent_id) if notice.rings]
        if any(notice.waits_for_resumption for notice in notices) and self.is_paused(agent_id):
            return [notice for notice in notices if not notice.waits_for_resumption]
        return notices

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
            answer = [as_answer(notice, self.writer.texts) for _, notice in mine]
            del mine[fits(answer) :]
            if mark_as_read and mine:
                now = self.clock()
                if lease is not None:
                    lease(tuple(inbox.reference(name, now) for name, _ in mine))
                    inbox.mark_read([name for name, _ in mine], now, dict(mine))
                else:
                    inbox.read([name for name, _ in mine], now, dict(mine))
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
            action=CHECK_CHAT,
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
        are ended."""
        return [
            (name, notice)
            for name, notice in self.workspace.notices(agent_id).unread(fresh=fresh)
            if notice.meant_for(purpose) and self.derived.applies(notice)
        ]


def as_answer(notice: Notification, texts: Texts) -> dict[str, Any]:
    """A notification as its agent sees it, with what only some have: a `reason`, a question, its answer. Cut texts are
    marked as cut. All messages are ours but those of the agent's own chat session, which are quoted."""
    message = clipped(notice.message, NOTICE_CHARACTERS)
    if notice.action == CHECK_CHAT and message:
        message = f"{texts('notice.chat')}\n{quoted_lines(message)}"
    answer = {
        "id": notice.id,
        "type": notice.type,
        "action": notice.action,
        "task_id": notice.task_id,
        "conversation_id": notice.conversation_id,
        "message": message,
        "instruction": clipped(notice.instruction, NOTICE_CHARACTERS),
        "created_at": format_time(notice.created_at),
    }
    some = {
        "reason": clipped(notice.reason, NOTICE_CHARACTERS),
        "question_id": notice.question_id,
        "answer": clipped(notice.answer, ANSWER_CHARACTERS),
        "note": clipped(notice.note, NOTICE_CHARACTERS),
        "choices": notice.choices and list(notice.choices),
        "head": notice.head,
    }
    return answer | {name: value for name, value in some.items() if value}
