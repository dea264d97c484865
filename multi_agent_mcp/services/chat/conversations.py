"""Conversations between two agents: every message is mail, with a copy in the conversation's directory
(docs/protocol.md, Conversations)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.entity import age, entity_id, new_id
from multi_agent_mcp.domain.message import Conversation, Message
from multi_agent_mcp.domain.times import format_time, parse_time
from multi_agent_mcp.errors import (
    ConversationNotFound,
    InvalidArguments,
    InvalidId,
    MessageNotFound,
    Refusal,
    Unauthorized,
)
from multi_agent_mcp.services.answer_budget import SPOKEN_CHARACTERS, clipped
from multi_agent_mcp.services.mail import Messages, NewMessages, Outbox, PreparedMessages, Sent
from multi_agent_mcp.services.operations import Apply, Operation, Operations, Run, read_as, read_by
from multi_agent_mcp.services.validation import Draft, require_text, require_words
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.archive import STAMP_LENGTH, are_ours
from multi_agent_mcp.texts import beginning

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.services.mail_search import MailSearch
    from multi_agent_mcp.services.team.agents import Agents


@dataclass(frozen=True, kw_only=True)
class BeginConversation(Operation):
    """A conversation and its first message."""

    KIND = "begin_conversation"
    TAKES_ITSELF_BACK = True

    conversation: Conversation = field(metadata=read_as(Conversation))
    mail: NewMessages | None = field(metadata=read_by(NewMessages.of))


@dataclass(frozen=True, kw_only=True)
class Say(Operation):
    """A further message in a conversation."""

    KIND = "say"
    TAKES_ITSELF_BACK = True
    ONLY_MAIL = True

    conversation_id: str
    sender_id: str
    mail: NewMessages | None = field(metadata=read_by(NewMessages.of))


@dataclass(frozen=True, kw_only=True)
class EndConversation(Operation):
    """The end of a conversation, with its time as in files, and the mail about it."""

    KIND = "end_conversation"

    conversation_id: str
    by: str
    at: str
    mail: NewMessages | None = field(metadata=read_by(NewMessages.of))


ENDED = "ended"
PURPOSE_CHARACTERS = 1_000


@dataclass(eq=False)
class Conversations(Service):
    """The conversations of one team."""

    agents: Agents
    messages: Messages
    outbox: Outbox
    operations: Operations

    def get(self, conversation_id: object) -> Conversation:
        """Raises `InvalidId` or `ConversationNotFound`."""
        return self.workspace.conversations.get(entity_id("cnv", conversation_id))

    def begin(
        self,
        initiator: Agent,
        target: Agent,
        first_words: str,
        *,
        purpose: str | None = None,
        task_id: str | None = None,
        delegation_id: str | None = None,
        conversation_id: str | None = None,
    ) -> tuple[Conversation, Sent]:
        """Creates a conversation and sends its first message. If the message cannot be stored, no conversation exists.

        With the `conversation_id` of a conversation whose starter was killed before sending the first message, restarts
        that conversation.
        """
        if initiator.id == target.id:
            raise InvalidArguments("to_oneself")
        require_words("initial_message", first_words)
        require_purpose(purpose)
        conversation = Conversation(
            id=conversation_id or new_id("cnv"),
            initiator_id=initiator.id,
            target_agent_id=target.id,
            task_id=task_id,
            delegation_id=delegation_id,
            purpose=purpose,
            started_at=self.clock(),
        )
        prepared = self._prepared(initiator, conversation, Draft(content=first_words))
        stored = self.operations.run(BeginConversation(conversation=conversation, mail=prepared.to_store))
        return conversation, self.messages.announced(prepared, stored)

    def applied(self) -> Mapping[type[Operation], Apply]:
        return {BeginConversation: self.apply_start, Say: self.apply_message, EndConversation: self.apply_end}

    def apply_start(self, operation: BeginConversation, run: Run) -> list[Message]:
        """Stores the conversation and its first message."""
        conversation = operation.conversation
        try:
            self.workspace.conversations.add(conversation)
        except FileExistsError:
            if not run.again:
                self._remove_copies(conversation)
        try:
            return self.outbox.put(operation.mail, run)
        except Refusal:
            if not run.again:
                self.workspace.conversations.remove(conversation)
            raise

    def is_heard(self, conversation: Conversation) -> bool:
        """Whether the target has received a message of the conversation."""
        if conversation.status != "pending":
            return True
        target = conversation.target_agent_id
        got = (self.workspace.mailbox(target).find(message.id) for message in self.messages_of(conversation.id))
        return any(self.of_mail(target, found[1]) is not None for found in got if found is not None)

    def of_mail(self, reader_id: str, message: Message) -> Conversation | None:
        """The conversation that this message to `reader_id` belongs to, or None. Any sender can write an id into
        metadata, so it counts only in a message signed by the other participant."""
        try:  # `get` checks the id: the sender of a message must not name a file elsewhere
            found = self.get(message.metadata.get("conversation_id"))
        except (InvalidId, ConversationNotFound):
            return None
        return found if message.receiver_id == reader_id and self._belongs_to(found, message) else None

    def say(self, sender: Agent, conversation_id: str, draft: Draft) -> Sent:
        """Sends a message to the other participant of a conversation. The target's first answer makes it active.

        Raises `NotParticipant`, `ConversationNotActive`, and as `Messages.compose`.
        """
        conversation = self.get(conversation_id)
        other = conversation.other(sender.id)
        conversation.require_open()
        require_words("content", draft.content)
        if draft.receiver_id not in (None, other):
            raise InvalidArguments("conversation_with", conversation_id=conversation.id, agent_id=other)
        metadata = {key: value for key, value in draft.metadata.items() if key != ENDED}
        prepared = self._prepared(sender, conversation, replace(draft, metadata=metadata))
        operation = Say(conversation_id=conversation.id, sender_id=sender.id, mail=prepared.to_store)
        return self.messages.announced(prepared, self.operations.run(operation))

    def apply_message(self, operation: Say, run: Run) -> list[Message]:
        """Updates the conversation, then stores the message. If that fails, nothing was said."""
        self._note_seen(operation.conversation_id, operation.sender_id)
        return self.outbox.put(operation.mail, run)

    def end(self, actor: Agent, conversation_id: str, final_words: str | None = None) -> Conversation:
        """Ends a conversation; the other participant gets mail, with the final words if there are any. Without them, a
        conversation with an agent that was removed can be ended, too."""
        conversation = self.get(conversation_id)
        now = self.clock()
        ended = conversation.end(actor.id, now)
        require_text("final_message", final_words)
        prepared = self._last_message(actor, ended, final_words)
        mail = prepared.to_store if prepared is not None else None
        operation = EndConversation(conversation_id=ended.id, by=actor.id, at=format_time(now), mail=mail)
        _, stored = self.operations.run(operation)
        if prepared is not None:
            self.messages.announced(prepared, stored)
        return ended

    def apply_end(self, operation: EndConversation, run: Run) -> tuple[Conversation, list[Message]]:
        """Ends the conversation and stores the mail about it."""
        by, at = operation.by, parse_time(operation.at) or self.clock()
        ended = self.workspace.conversations.update(
            operation.conversation_id,
            lambda found: found if run.again and found.ended_at is not None else found.end(by, at),
        )
        stored = self.outbox.put(operation.mail, run)
        for agent_id in (ended.initiator_id, ended.target_agent_id):
            self.workspace.retire_delegations(agent_id)
        return ended, stored

    def messages_of(self, conversation_id: str) -> list[Message]:
        """The messages of a conversation, oldest first."""
        directory = self.workspace.conversation_messages(conversation_id)
        return sorted((message for _, message in directory.entities()), key=age)

    def newest(self, conversation_id: str, limit: int, before: str | None = None) -> tuple[list[Message], int]:
        """The newest `limit` messages of a conversation, oldest first, and the number of all; with `before`, the newest
        before the message with this id. Older ones are read only if the directory has files whose names we did not
        choose. Raises `MessageNotFound`."""
        directory = self.workspace.conversation_messages(conversation_id)
        names = directory.names()
        if before is not None or not are_ours(names):
            everything = self.messages_of(conversation_id)
            older = everything if before is None else everything[: _index(before, everything)]
            return older[-limit:], len(everything)
        first = min(nlargest(limit, names), default="")[:STAMP_LENGTH]
        loaded = (directory.load(name) for name in names if name >= first)
        found = sorted((message for message in loaded if message is not None), key=age)
        return found[-limit:], len(names)

    def spoken(self, conversation: Conversation, message: Message, reader_id: str | None = None) -> dict[str, Any]:
        """A message of a conversation for an answer, flagged unless signed by a participant, and with what it is to its
        reader if that is an agent. Long content is cut; the receiver's mail has it whole."""
        shown = beginning(message.content, SPOKEN_CHARACTERS)
        answer: dict[str, Any] = {
            "id": message.id,
            "sender_id": message.sender_id,
            "content": shown,
            "created_at": format_time(message.created_at),
        }
        belongs = self._belongs_to(conversation, message)
        if reader_id is not None:
            standing = self.outbox.signatures.standing
            answer["authority"] = standing(message.sender_id, reader_id) if belongs else "unverified"
        if not belongs:
            answer["verified"] = False
        if len(shown) < len(message.content):
            answer |= {"content_truncated": True, "content_length": len(message.content)}
        return answer

    def all(self) -> list[Conversation]:
        """Every conversation, oldest first."""
        return sorted(self.workspace.conversations.all(), key=age)

    def page(self, agent_id: str | None, *, offset: int, limit: int) -> tuple[list[Conversation], int]:
        """A page of the conversations of one agent or of all, newest first, and their total number."""
        found = (self.all() if agent_id is None else self.of_agent(agent_id))[::-1]
        return found[offset : offset + limit], len(found)

    def require_reader(self, conversation: Conversation, agent_id: str) -> None:
        """Raises `NotParticipant` for an agent that neither takes part nor may read the conversation's task."""
        task = self.workspace.tasks.find(conversation.task_id) if conversation.task_id else None
        if task is None or not task.concerns(agent_id, self.agents.all()):
            conversation.require_participant(agent_id)

    def without_task(self, agent_id: str) -> list[Conversation]:
        """The conversations that carry out the agent's delegations without a task, oldest first."""
        mine = (item for item in self.of_agent(agent_id) if item.initiator_id == agent_id)
        return [item for item in mine if item.task_id is None and item.delegation_id is not None]

    def of_task(self, task_id: str) -> list[Conversation]:
        """The conversations about a task, oldest first."""
        return sorted((item for item in self.workspace.conversations.all() if item.task_id == task_id), key=age)

    def of_agent(self, agent_id: str) -> list[Conversation]:
        """The conversations of an agent, oldest first."""
        return sorted((item for item in self.workspace.conversations.all() if item.has(agent_id)), key=age)

    def mark_seen(self, reader: Agent, messages: Iterable[Message]) -> None:
        """Records that the reader has read these messages: conversations that it is the target of become active."""
        found = (self.of_mail(reader.id, message) for message in messages if is_conversational(message))
        for conversation_id in {conversation.id for conversation in found if conversation is not None}:
            with suppress(ConversationNotFound):  # deleted meanwhile
                self._note_seen(conversation_id, reader.id)

    def latest_with(self, agent_id: str, other_id: str) -> Conversation | None:
        """The newest conversation between the two agents, or None."""
        both = [item for item in self.of_agent(agent_id) if item.has(other_id)]
        return both[-1] if both else None

    def _remove_copies(self, conversation: Conversation) -> None:
        """Deletes the copies of messages that never became mail."""
        directory = self.workspace.conversation_messages(conversation.id)
        for name, _ in directory.entities():
            directory.remove(name)

    def _belongs_to(self, conversation: Conversation, message: Message) -> bool:
        """Whether this is a signed message of one participant to the other in this conversation."""
        return (
            message.metadata.get("conversation_id") == conversation.id
            and conversation.has(message.sender_id)
            and message.receiver_id == conversation.other(message.sender_id)
            and self.outbox.signatures.verifies(message)
        )

    def _note_seen(self, conversation_id: str, agent_id: str) -> None:
        self.workspace.conversations.update(conversation_id, lambda found: found.seen_by(agent_id))

    def _prepared(self, sender: Agent, conversation: Conversation, draft: Draft) -> PreparedMessages:
        """Prepares mail to the other participant and its copy in the conversation's directory."""
        addressed = replace(
            draft,
            receiver_id=conversation.other(sender.id),
            message_type="conversation",
            subject=draft.subject or _as_subject(conversation),
            metadata={**draft.metadata, "conversation_id": conversation.id},
        )
        return self.messages.compose(sender, addressed, conversation.id)

    def _last_message(self, actor: Agent, ended: Conversation, final_words: str | None) -> PreparedMessages | None:
        if final_words and final_words.strip():
            return self._prepared(actor, ended, Draft(content=final_words, metadata={ENDED: True}))
        if ended.other(actor.id) not in self.agents.all():
            return None
        return self.messages.compose(actor, self._end_notice(actor, ended))

    def _end_notice(self, actor: Agent, ended: Conversation) -> Draft:
        return Draft(
            content=self.messages.texts("conversation.ended"),
            receiver_id=ended.other(actor.id),
            message_type="system",
            subject=_as_subject(ended),
            metadata={"conversation_id": ended.id, ENDED: True},
        )


def _index(message_id: str, messages: Sequence[Message]) -> int:
    for index, message in enumerate(messages):
        if message.id == message_id:
            return index
    raise MessageNotFound(message_id=message_id)


def is_conversational(message: Message) -> bool:
    return message.message_type == "conversation" and "conversation_id" in message.metadata


def _as_subject(conversation: Conversation) -> str:
    """The purpose as the subject of mail, which is bounded in characters of JSON."""
    return clipped(conversation.purpose, PURPOSE_CHARACTERS) or ""


def require_purpose(purpose: str | None) -> None:
    """Raises `InvalidArguments` for a purpose that is too long or not text."""
    require_text("purpose", purpose)
    if len(purpose or "") > PURPOSE_CHARACTERS:
        raise InvalidArguments("too_long", name="purpose", limit=PURPOSE_CHARACTERS)


# Conversations of people, by commands and in the console.

SUBJECT_CHARACTERS = 500
SHORTEST_BEGINNING = 4  # of an id


@dataclass(eq=False)
class HumanConversations(Service):
    """Starts conversations without a chat session, and replies to messages."""

    agents: Agents
    conversations: Conversations
    messages: Messages
    mail_search: MailSearch

    def start(
        self, initiator: Agent, target_id: str, first_words: str, purpose: str | None = None, task_id: str | None = None
    ) -> tuple[Conversation, Sent]:
        """Starts a conversation, optionally about a task that the initiator may change.

        Raises `AgentNotFound`, `TaskNotFound`, `Unauthorized`, and as `Conversations.begin`.
        """
        target = self.agents.participant(target_id)
        if task_id is not None:
            task = self.workspace.tasks.get(entity_id("tsk", task_id))
            task.require_writer(initiator.id, self.agents.all())
        return self.conversations.begin(initiator, target, first_words, purpose=purpose, task_id=task_id)

    def reply(
        self, reader: Agent, message_id: str, words: str, idempotency_key: str | None = None
    ) -> tuple[Sent, Conversation | None]:
        """Answers a message to the reader: in its conversation, which is returned, or as mail to its sender.

        Raises `MessageNotFound`, `Unauthorized` for others' mail, and as `Conversations.say` and `Messages.send`.
        """
        message = self.message_to(reader, message_id)
        require_words("content", words)
        draft = Draft(content=words, metadata={"in_reply_to": message.id}, idempotency_key=idempotency_key)
        conversation = self.conversations.of_mail(reader.id, message)
        if conversation is not None:
            return self.conversations.say(reader, conversation.id, draft), conversation
        answer = replace(
            draft, receiver_id=message.sender_id, message_type="response", subject=self._subject(message.subject)
        )
        return self.messages.send(reader, answer), None

    def message_to(self, reader: Agent, message_id: str) -> Message:
        """A message in the reader's mailbox, by its id or a unique beginning of it. Raises `InvalidArguments` for an
        ambiguous beginning, `MessageNotFound`, `Unauthorized` for others' mail."""
        mailbox = self.workspace.mailbox(reader.id)
        found = mailbox.find(message_id)
        if found is None and len(message_id) >= SHORTEST_BEGINNING:
            like = mailbox.beginning_with(message_id)
            ids = sorted({message.id for _, message in like})
            if len(ids) > 1:
                raise InvalidArguments("ambiguous_id", id=message_id, ids=", ".join(ids))
            found = like[0] if like else None
        if found is None:
            elsewhere = self.mail_search.get(message_id)
            key = "not_receiver" if elsewhere.sender_id != reader.id else "not_receiver_but_sender"
            raise Unauthorized(key, message_id=message_id, agent_id=elsewhere.receiver_id)
        return found[1]

    def _subject(self, answered: str) -> str:
        """The subject with one `Re: `, cut to the length that can be sent."""
        texts = self.messages.texts
        is_quoted = answered.startswith(texts("subject.reply", subject="").rstrip())
        subject = texts("subject.reply", subject=answered) if answered and not is_quoted else answered
        return subject[:SUBJECT_CHARACTERS]
