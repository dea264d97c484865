"""Conversations of people, by commands and in the console (docs/protocol.md, Conversations)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.conversation import Conversation
from multi_agent_mcp.domain.ids import entity_id
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.errors import InvalidArguments, Unauthorized
from multi_agent_mcp.services.chat.conversations import Conversations
from multi_agent_mcp.services.mail.search import MailSearch
from multi_agent_mcp.services.mail.sending import Messages, Sent
from multi_agent_mcp.services.team.agents import Agents
from multi_agent_mcp.services.validation import Draft, require_words
from multi_agent_mcp.store.workspace import Workspace

SUBJECT_CHARACTERS = 500
SHORTEST_BEGINNING = 8  # of an id: as many digits as the name of a message's file has


@dataclass(eq=False)
class HumanConversations:
    """Starts conversations without a chat session, and replies to messages."""

    workspace: Workspace
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
            like = mailbox.find_all(lambda message: message.id.startswith(message_id), like=message_id)
            ids = sorted({message.id for _, message in like})
            if len(ids) > 1:
                raise InvalidArguments("ambiguous_id", message_id=message_id, ids=", ".join(ids))
            found = like[0] if like else None
        if found is None:
            elsewhere = self.mail_search.get(message_id)
            raise Unauthorized("not_receiver", message_id=message_id, agent_id=elsewhere.receiver_id)
        return found[1]

    def _subject(self, answered: str) -> str:
        """The subject with one `Re: `, cut to the length that can be sent."""
        texts = self.messages.texts
        is_quoted = answered.startswith(texts("subject.reply", subject="").rstrip())
        subject = texts("subject.reply", subject=answered) if answered and not is_quoted else answered
        return subject[:SUBJECT_CHARACTERS]
