"""Mail search over all mailboxes, for people: the console, `watch`, the timeline."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from multi_agent_mcp.domain.entity import age
from multi_agent_mcp.domain.times import stamp
from multi_agent_mcp.errors import MessageNotFound
from multi_agent_mcp.session import Service, Session
from multi_agent_mcp.store.merged_inboxes import LAST, Envelope, InboxFile, MergedMailbox, position

if TYPE_CHECKING:
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.store.workspace import Mailbox


LOOKED_AT = 5_000


class Page(NamedTuple):
    """Messages, newest first, each with only the beginning of its content; `more`: older ones follow."""

    messages: list[Message]
    more: bool


class MailSearch(Service):
    """Searches all mailboxes, archives included. Marks nothing read."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._merged = MergedMailbox()

    def page(
        self,
        *,
        between: tuple[str, str] | None = None,
        receiver_id: str | None = None,
        sender_id: str | None = None,
        unread_only: bool = False,
        before: str | None = None,
        limit: int = 50,
    ) -> Page:
        """The newest `limit` messages that match, or those before the message with the id `before`. Files with equal
        time and id are kept on one page, even beyond the limit, because `before` cannot separate them. `between`
        selects the messages that two agents sent each other. The receiver of a message is the owner of its mailbox.

        Raises `MessageNotFound` when there is no message `before`.
        """
        mailboxes = self._mailboxes(between if receiver_id is None else (receiver_id,))
        place = None if before is None else position(*self._find(before))
        last = LAST if place is None else place[0]
        files = self._merged.unread(mailboxes) if unread_only else self._merged.newest_first(mailboxes, last=last)
        wanted = (
            head
            for head in self._merged.heads(files, place)
            if (between is None or head.sender_id in between) and sender_id in (None, head.sender_id)
        )
        messages = list(islice(wanted, limit))
        for head in wanted:
            if not messages or age(head) != age(messages[-1]):
                return Page(messages, more=True)
            messages.append(head)
        return Page(messages, more=False)

    def during(self, start: datetime, end: datetime, limit: int) -> tuple[list[Envelope], int]:
        """The newest `limit` messages of a period, oldest first, and approximately how many older ones it has. The
        first look at archived ones reads them, and notes what it found (`.index/`)."""
        first, last = stamp(start), stamp(end)
        mailboxes = self._mailboxes()
        files = self._merged.newest_first(mailboxes, first, last)
        found = (envelope for envelope in self._merged.envelopes(files) if start <= envelope.created_at <= end)
        messages = list(islice(found, limit))[::-1]
        self._merged.note_envelopes()
        older = self._merged.count(mailboxes, first, last) - limit if len(messages) == limit else 0
        return messages, max(older, 0)

    def about_task(self, task_id: str, since: datetime, limit: int) -> list[Message]:
        """The newest `limit` messages whose metadata name the task, oldest first, among the newest `LOOKED_AT` after
        `since`."""
        files = self._merged.newest_first(self._mailboxes(), stamp(since))
        heads = islice(self._merged.heads(files), LOOKED_AT)
        found = islice((head for head in heads if head.metadata.get("task_id") == task_id), limit)
        return [self.get(head.id) for head in found][::-1]

    def get(self, message_id: str) -> Message:
        """The whole message. Raises `MessageNotFound`."""
        for _ in range(2):  # its reader may move it to the archive between the two steps
            file, _head = self._find(message_id)
            if (message := file.directory.load(file.name)) is not None:
                return message
        raise MessageNotFound(message_id=message_id)

    def _find(self, message_id: str) -> tuple[InboxFile[Message], Message]:
        found = self._merged.find(self._mailboxes(), message_id)
        if found is None:
            raise MessageNotFound(message_id=message_id)
        return found

    def _mailboxes(self, of: tuple[str, ...] | None = None) -> list[Mailbox]:
        """The mailboxes of these agents, or of all, removed ones included."""
        known = self.workspace.registry.all()
        return [self.workspace.mailbox(agent_id) for agent_id in known if of is None or agent_id in of]
