"""Signatures: messages are signed with their sender's key, and what does not verify is told apart.

Every agent's processes run as the same user and can read every key: a signature shows that a message was written by
this program or by somebody who took the key on purpose, not more (docs/security.md).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Literal

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.names import agent_id as parse_agent_id
from multi_agent_mcp.domain.signature import is_signed_with, signature
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.services.agents import Agents

logger = logging.getLogger(__name__)

Verdict = Literal["signed", "unsigned", "tampered", "no_key", "misplaced"]


class Signatures:
    """Signs and verifies; every key is read once per process."""

    def __init__(self, agents: Agents) -> None:
        self.agents = agents
        self._keys: dict[str, str] = {}

    def sign(self, message: Message) -> Message:
        """The message with its sender's signature; unsigned, said aloud, when the sender's key cannot be read."""
        key = self._key(message.sender_id)
        if key is None:
            logger.warning("message %s is not signed: the key of %s cannot be read", message.id, message.sender_id)
            return message
        return replace(message, signature=signature(message, key))

    def verdict(self, message: Message, mailbox_of: str | None = None) -> Verdict:
        """What the signature says. `misplaced`: a genuine message to somebody else than the agent `mailbox_of`."""
        if message.signature is None:
            return "unsigned"
        key = self._key(message.sender_id)
        if key is None:
            return "no_key"
        if not is_signed_with(message, key):
            fresh = self._key(message.sender_id, again=True)  # it may have been restored since it was read
            if fresh in (None, key) or not is_signed_with(message, fresh or ""):
                return "tampered"
        return "signed" if mailbox_of in (None, message.receiver_id) else "misplaced"

    def verifies(self, message: Message, mailbox_of: str | None = None) -> bool:
        return self.verdict(message, mailbox_of) == "signed"

    def _key(self, agent_id: str, *, again: bool = False) -> str | None:
        if agent_id not in self._keys or again:
            try:
                key = self.agents.stored_key(parse_agent_id(agent_id))
            except Refusal:  # the sender of a hand-written message may be anything
                return None
            if not key:
                return None  # an empty key would let anybody sign
            self._keys[agent_id] = key
        return self._keys[agent_id]
