"""The canonical form of what is signed is a public format: a change of it makes every old message unverified."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from multi_agent_mcp.domain.message import (
    Message,
    has_old_scheme,
    is_signed_by,
    is_signed_with,
    public_key,
    signature,
    signed_bytes,
)

KEY = "k" * 43
PUBLIC = "ed25519:5c7e62747042b9f86f80d489faaab5b7a8fbe67a952700cea152e45ffa2e23d4"
MESSAGE = Message(
    id="0a1b2c3d-0000-4000-8000-000000000000",
    sender_id="admin",
    receiver_id="worker-a",
    subject="件名",
    created_at=datetime(2026, 11, 21, 21, 46, 1, 123456, tzinfo=UTC),
    metadata={"task_id": "tsk_0123456789ab", "a": [1, None]},
    content="本文\r\n",
)


def test_the_signed_bytes_are_those_of_the_published_format() -> None:
    assert signed_bytes(MESSAGE).decode() == (
        '{"created_at":"2026-11-21T21:46:01.123456Z","id":"0a1b2c3d-0000-4000-8000-000000000000",'
        '"message_type":"request","metadata":{"a":[1,null],"task_id":"tsk_0123456789ab"},"priority":"normal",'
        '"receiver_id":"worker-a","scheme":"v2","sender_id":"admin","subject":"件名"}\n本文\r\n'
    )


def test_a_signature_is_one_that_any_program_can_make() -> None:
    seed = HKDF(SHA256(), length=32, salt=None, info=b"multi-agent-mcp signature v2").derive(KEY.encode())
    key = Ed25519PrivateKey.from_private_bytes(seed)
    assert public_key(KEY) == PUBLIC == f"ed25519:{key.public_key().public_bytes_raw().hex()}"
    made = f"v2:{key.sign(signed_bytes(MESSAGE)).hex()}"
    assert signature(MESSAGE, KEY) == made
    assert made.startswith("v2:20318917d814c218")
    assert is_signed_by(replace(MESSAGE, signature=made), PUBLIC)


def old(message: Message) -> Message:
    """The message with a signature of the former scheme."""
    digest = hmac.new(KEY.encode(), signed_bytes(message, "v1"), hashlib.sha256).hexdigest()
    return replace(message, signature=f"v1:{digest}")


def test_an_hmac_of_old_still_verifies_with_the_key_and_only_as_such() -> None:
    assert has_old_scheme(old(MESSAGE))
    assert is_signed_with(old(MESSAGE), KEY)
    assert not is_signed_with(old(MESSAGE), KEY[1:])
    assert not is_signed_with(replace(old(MESSAGE), content="other"), KEY)
    assert not is_signed_by(old(MESSAGE), PUBLIC)
    assert not has_old_scheme(replace(MESSAGE, signature=signature(MESSAGE, KEY)))


@pytest.mark.parametrize(
    "changed",
    [
        {"id": "0a1b2c3d-0000-4000-8000-000000000001"},
        {"sender_id": "owner"},
        {"receiver_id": "worker-b"},
        {"message_type": "task_assign"},
        {"priority": "urgent"},
        {"subject": "another"},
        {"created_at": datetime(2026, 11, 21, 21, 46, 2, tzinfo=UTC)},
        {"metadata": {}},
        {"content": "本文\n"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_every_field_of_the_envelope_and_the_body_are_covered(changed: dict[str, Any]) -> None:
    signed = replace(MESSAGE, signature=signature(MESSAGE, KEY))
    assert is_signed_by(signed, PUBLIC)
    assert not is_signed_by(replace(signed, **changed), PUBLIC)


def test_reading_a_message_does_not_touch_its_signature() -> None:
    signed = replace(MESSAGE, signature=signature(MESSAGE, KEY))
    assert is_signed_by(signed.mark_read(datetime(2026, 11, 22, tzinfo=UTC)), PUBLIC)


@pytest.mark.parametrize(
    "given", [None, "", "v1:", "v2:", "v0:00", "ü", "\ud800", "v2:zz", f"v2:{'0' * 128}", 7, ["v2:"]]
)
def test_nonsense_is_no_signature(given: Any) -> None:
    nonsense = replace(MESSAGE, signature=given)
    assert not is_signed_with(nonsense, KEY)
    assert not is_signed_by(nonsense, PUBLIC)


@pytest.mark.parametrize(
    "given", ["", "ed25519:", "ed25519:00", f"ed25519:{'f' * 64}", f"rsa:{'0' * 64}", None, 7, ["x"]]
)
def test_nonsense_is_no_public_key(given: Any) -> None:
    assert not is_signed_by(replace(MESSAGE, signature=signature(MESSAGE, KEY)), given)


def nested(depth: int) -> Any:
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "metadata",
    [{1: "a", "b": "c"}, {"n": 10**5000}, {"deep": nested(100_000)}, {"of": {1, 2}}],
    ids=["keys", "digits", "depth", "type"],
)
@pytest.mark.parametrize("scheme", ["v1", "v2"])
def test_metadata_that_nobody_can_have_signed_does_not_verify(scheme: str, metadata: dict[Any, Any]) -> None:
    strange = replace(MESSAGE, metadata=metadata, signature=f"{scheme}:{'0' * 128}")
    assert not is_signed_by(strange, PUBLIC)
    assert not is_signed_with(strange, KEY)
