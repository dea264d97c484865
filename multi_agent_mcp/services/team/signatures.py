"""Signatures: messages are signed with their sender's key, and only verified ones have an effect.

All agents' processes run as the same user and can read every key: a signature shows only that a message was written by
this program or by somebody who took the key on purpose (docs/security.md).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.signature import has_old_scheme, is_signed_by, is_signed_with, signature
from multi_agent_mcp.services.team.agents import Agents

logger = logging.getLogger(__name__)

Verdict = Literal["signed", "unsigned", "tampered", "no_key", "misplaced"]


class Signatures:
    """Signs messages with their senders' keys and verifies them with the public keys."""

    def __init__(self, agents: Agents) -> None:
        self.agents = agents

    def sign(self, message: Message) -> Message:
        """Returns the message with its sender's signature; unsigned, with a warning in the log, if the key cannot be
        read."""
        return self.sign_all([message], message.sender_id)[0]

    def sign_all(self, messages: Sequence[Message], sender_id: str) -> list[Message]:
        """Signs several messages of one sender; see `sign`."""
        key = self.agents.known_key(sender_id) if messages else None
        if key is None:
            for message in messages:
                logger.warning("message %s is not signed: the key of %s cannot be read", message.id, sender_id)
            return list(messages)
        return [replace(message, signature=signature(message, key)) for message in messages]

    def verdict(self, message: Message, mailbox_of: str | None = None) -> Verdict:
        """Returns the result of verifying a message. `misplaced`: it is genuine, but not addressed to `mailbox_of`."""
        if message.signature is None:
            return "unsigned"
        genuine = self._is_genuine(message)
        if not genuine:
            return "no_key" if genuine is None else "tampered"
        return "signed" if mailbox_of in (None, message.receiver_id) else "misplaced"

    def verifies(self, message: Message, mailbox_of: str | None = None) -> bool:
        return self.verdict(message, mailbox_of) == "signed"

    def _is_genuine(self, message: Message) -> bool | None:
        """Returns whether the signature is valid, also that of a removed agent; None without a key to check it."""
        sender = self.agents.registry.all().get(message.sender_id)
        if sender is None:
            return None
        if has_old_scheme(message):
            key = self.agents.known_key(sender.id)
            return None if key is None else is_signed_with(message, key)
        known = [key for key in (sender.public_key, *sender.extra.get("former_public_keys", ())) if key is not None]
        return any(is_signed_by(message, key) for key in known) if known else None
