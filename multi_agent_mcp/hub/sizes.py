"""Sizes, which are judged before anything of another machine is parsed: what is slow to read delays the one who sent it
and nobody else."""

from __future__ import annotations

import re

from multi_agent_mcp.hub import subjects
from multi_agent_mcp.hub.subjects import Own
from multi_agent_mcp.store.authority import HEADER_BYTES, PAYLOAD_BYTES, SHARED_BYTES
from multi_agent_mcp.store.shared_collection import LINE

BEAT_BYTES = 16 << 10
RECORD_BYTES, MARK_BYTES = 64 << 10, 4 << 10
"""The largest record of an agent or settings of the session, and the largest mark."""
EDITS_BYTES = 16 << 10
STRUCTURE_MAX = 20_000
"""The most characters that begin, separate or end values in a header: the parser takes 10 microseconds for each."""
_STRUCTURE = (b",", b"[", b"{", b":", b"\n")
_HEADER_ENDS = re.compile(rb"\n---[ \t]*(?:\r?\n|\Z)")


def is_acceptable(what: Own | str | None, data: bytes) -> bool:
    """Whether a value of this subject (see `Names.parse`) is one that is sent, and read from others."""
    if isinstance(what, str):
        kind = what.partition(".")[0]
        if kind in (subjects.AGENT, subjects.SETTINGS):
            return len(data) <= RECORD_BYTES
        return len(data) <= SHARED_BYTES and (kind == LINE or _has_short_header(data))
    if what is None:  # a part of a log
        return len(data) <= PAYLOAD_BYTES
    if what.kind in subjects.MARKS.values():
        return len(data) <= MARK_BYTES
    if what.kind == subjects.EDITS:
        return len(data) <= EDITS_BYTES
    return len(data) <= PAYLOAD_BYTES and _has_short_header(data)


def _has_short_header(data: bytes) -> bool:
    """Whether the header, if there is one, is short and has few values."""
    end = _HEADER_ENDS.search(data)
    length = len(data) if end is None else end.start()
    return length <= HEADER_BYTES and sum(data.count(mark, 0, length) for mark in _STRUCTURE) <= STRUCTURE_MAX
