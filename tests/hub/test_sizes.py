"""What is too large, or takes too long to parse, is neither sent nor read."""

from __future__ import annotations

import pytest

from multi_agent_mcp.hub.sizes import MARK_BYTES, RECORD_BYTES, STRUCTURE_MAX, is_acceptable
from multi_agent_mcp.hub.subjects import EDITS, MESSAGE, READ, Own
from multi_agent_mcp.store.authority import HEADER_BYTES, PAYLOAD_BYTES, SHARED_BYTES

MAIL = Own("laptop", MESSAGE, "admin", "x.md")
BODY = b"---\nid: x\n---\n\n" + b", [{:\n" * 400_000


@pytest.mark.parametrize(
    ("what", "data"),
    [
        (MAIL, BODY),
        (MAIL, b"---\nx: " + b"x" * (HEADER_BYTES - 10) + b"\n---\n"),
        ("tsk.tsk_1", b"---\n---\n" + b"x" * (SHARED_BYTES - 8)),
        ("line.tsk_1-7", b"," * SHARED_BYTES),
        ("agent.x", b"x" * RECORD_BYTES),
        (MAIL._replace(kind=READ), b"x" * MARK_BYTES),
        (None, b"x" * PAYLOAD_BYTES),
    ],
)
def test_what_is_no_larger_than_it_may_be_is_read(what: Own | str | None, data: bytes) -> None:
    assert is_acceptable(what, data)


@pytest.mark.parametrize(
    ("what", "data"),
    [
        (MAIL, b"---\nx: " + b"x" * HEADER_BYTES + b"\n---\n"),
        (MAIL, b"---\nx: " + b"," * (STRUCTURE_MAX + 1) + b"\n---\n"),
        (MAIL, b"---\nx: |\n ---\n---x\n" + b"[" * STRUCTURE_MAX + b"\n---\n"),
        (MAIL, b"---\nx: y" + b"x" * (HEADER_BYTES + 1)),
        ("tsk.tsk_1", b"---\n---\n" + b"x" * SHARED_BYTES),
        ("agent.x", b"x" * (RECORD_BYTES + 1)),
        ("settings", b"x" * (RECORD_BYTES + 1)),
        (MAIL._replace(kind=READ), b"x" * (MARK_BYTES + 1)),
        (MAIL._replace(kind=EDITS), b"x" * (RECORD_BYTES + 1)),
        (MAIL, BODY[:20] + b"x" * PAYLOAD_BYTES),
        (None, b"x" * (PAYLOAD_BYTES + 1)),
    ],
)
def test_what_is_larger_is_not(what: Own | str | None, data: bytes) -> None:
    assert not is_acceptable(what, data)
