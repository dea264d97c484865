"""The canonical form of what is signed is a public format: a change of it makes every old message unverified."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.signature import is_signed_with, signature, signed_bytes

KEY = "k" * 43
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
        '"receiver_id":"worker-a","scheme":"v1","sender_id":"admin","subject":"件名"}\n本文\r\n'
    )


def test_a_signature_is_an_hmac_that_any_program_can_make() -> None:
    expected = hmac.new(KEY.encode(), signed_bytes(MESSAGE), hashlib.sha256).hexdigest()
    assert signature(MESSAGE, KEY) == f"v1:{expected}"
    assert is_signed_with(replace(MESSAGE, signature=f"v1:{expected}"), KEY)


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
    assert is_signed_with(signed, KEY)
    assert not is_signed_with(replace(signed, **changed), KEY)


def test_reading_a_message_does_not_touch_its_signature() -> None:
    signed = replace(MESSAGE, signature=signature(MESSAGE, KEY))
    assert is_signed_with(signed.mark_read(datetime(2026, 11, 22, tzinfo=UTC)), KEY)


@pytest.mark.parametrize("given", [None, "", "v1:", "v0:00", "ü"])
def test_nonsense_is_no_signature(given: str | None) -> None:
    assert not is_signed_with(replace(MESSAGE, signature=given), KEY)
