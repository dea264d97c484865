"""Who wrote a message: an HMAC by the sender's key over its envelope and its body (docs/format.md, "Signatures")."""

from __future__ import annotations

import hashlib
import hmac
import json

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.times import format_time

SCHEME = "v1"
_SIGNED = ("id", "sender_id", "receiver_id", "message_type", "priority", "subject")


def signed_bytes(message: Message) -> bytes:
    """What is signed: the envelope as one line of JSON, a newline, and the body. Not `read_at` and unknown keys: they
    change after the message was sent."""
    envelope = {
        "scheme": SCHEME,
        **{name: getattr(message, name) for name in _SIGNED},
        "created_at": format_time(message.created_at),
        "metadata": dict(message.metadata),
    }
    line = json.dumps(envelope, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return f"{line}\n{message.content}".encode(errors="surrogatepass")


def signature(message: Message, key: str) -> str:
    """`v1:` and 64 hex digits of HMAC-SHA256; `key` is the text of the sender's key file."""
    return f"{SCHEME}:{hmac.new(key.encode(), signed_bytes(message), hashlib.sha256).hexdigest()}"


def is_signed_with(message: Message, key: str) -> bool:
    """Whether the message bears the signature that its sender's key makes of it."""
    return hmac.compare_digest((message.signature or "").encode(), signature(message, key).encode())
