"""Signatures of messages: Ed25519 over envelope and body (docs/format.md, "Signatures").

PyNaCl is imported where it is needed, so that commands that neither sign nor verify start faster.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from functools import lru_cache
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.times import format_time

if TYPE_CHECKING:
    from nacl.signing import SigningKey, VerifyKey

SCHEME = "v2"
OLD_SCHEME = "v1"
KEY_TYPE = "ed25519"
_ENVELOPE = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))
_SIGNED = ("id", "sender_id", "receiver_id", "message_type", "priority", "subject")
_DERIVED_FOR = b"multi-agent-mcp signature v2"
_NO_SALT = bytes(32)
_NOT_JSON = (TypeError, ValueError, RecursionError)
"""The errors that `json.dumps` raises for metadata that cannot have been signed: keys that cannot be sorted, integers
of five thousand digits, endless nesting."""


def signed_bytes(message: Message, scheme: str = SCHEME) -> bytes:
    """The signed bytes: the envelope as one line of JSON, a newline, and the body; without `read_at` and unknown keys,
    which may change after sending."""
    envelope = {
        "scheme": scheme,
        **{name: getattr(message, name) for name in _SIGNED},
        "created_at": format_time(message.created_at),
        "metadata": dict(message.metadata),
    }
    return f"{_ENVELOPE.encode(envelope)}\n{message.content}".encode(errors="surrogatepass")


def signature(message: Message, key: str) -> str:
    """Signs a message: `v2:` and 128 hexadecimal digits of Ed25519. `key` is the text of the sender's key file."""
    return f"{SCHEME}:{_signing_key(key).sign(signed_bytes(message)).signature.hex()}"


def public_key(key: str) -> str:
    """The public key for `agents.json`, with which signatures are verified: `ed25519:` and 64 hexadecimal digits."""
    return f"{KEY_TYPE}:{bytes(_signing_key(key).verify_key).hex()}"


def is_signed_by(message: Message, public: str) -> bool:
    """Whether the message has a valid signature for this public key; False, too, for an invalid key."""
    from nacl.exceptions import CryptoError

    try:
        _verifying_key(public).verify(signed_bytes(message), _digits(message.signature, SCHEME))
    except (CryptoError, *_NOT_JSON):
        return False
    return True


def has_old_scheme(message: Message) -> bool:
    return str(message.signature).startswith(f"{OLD_SCHEME}:")


def is_signed_with(message: Message, key: str) -> bool:
    """Whether a message with the old scheme, HMAC-SHA256, was signed with this key, which is the sender's own."""
    try:
        digest = hmac.new(key.encode(), signed_bytes(message, OLD_SCHEME), hashlib.sha256).hexdigest()
    except _NOT_JSON:
        return False
    return hmac.compare_digest(str(message.signature).encode(errors="surrogatepass"), f"{OLD_SCHEME}:{digest}".encode())


@lru_cache(maxsize=8)
def _signing_key(key: str) -> SigningKey:
    """The signing key of a key file. Its seed is derived from the key by HKDF-SHA256 (RFC 5869, one block), so that
    passkeys may have any form, and no secret serves two algorithms."""
    from nacl.signing import SigningKey

    pseudorandom = hmac.digest(_NO_SALT, key.encode(), "sha256")
    return SigningKey(hmac.digest(pseudorandom, _DERIVED_FOR + b"\x01", "sha256"))


@lru_cache(maxsize=1024)
def _verifying_key(public: str) -> VerifyKey:
    """Parses a public key. Raises `ValueError`."""
    from nacl.signing import VerifyKey

    return VerifyKey(_digits(public, KEY_TYPE))


def _digits(text: object, name: str) -> bytes:
    """The bytes of `{name}:{hex}`. Raises `ValueError` for anything else."""
    found, _, digits = str(text).partition(":")
    if found != name:
        raise ValueError(name)
    return bytes.fromhex(digits)
