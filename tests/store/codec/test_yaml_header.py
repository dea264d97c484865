"""The quick ways to write and to read a header are PyYAML's."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multi_agent_mcp.config import NOT_YAML
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.store.codec.yaml_header import dump, dump_slowly, load, load_quickly

KEYS = st.sampled_from(
    ["id", "sender_id", "created_at", "signature", "metadata", "y", "no", "null", "x y", "", "w" * 100, "long " * 26]
)
MOMENTS = st.datetimes(timezones=st.just(UTC)).map(format_time)
WORDS = st.text(alphabet="abefnostuxyNOTYE0129_-.:+~ \u017f\u212a", max_size=12)
SIGNATURES = st.integers(0, 2**512 - 1).map(lambda number: f"v2:{number:0128x}")
IDS = st.uuids().map(str) | st.integers(0, 2**256 - 1).map(lambda number: f"v1:{number:064x}") | SIGNATURES
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    WORDS,
    IDS,
    MOMENTS,
    st.text(),
    st.lists(WORDS).map(" ".join),
    st.just({}),
    st.just([]),
    st.just(uuid.UUID(int=1).hex),
)
DEEP = st.recursive(VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3))


@given(st.dictionaries(KEYS | st.text(), DEEP))
def test_any_header_is_written_as_pyyaml_writes_it(header: dict[str, Any]) -> None:
    assert dump(header) == dump_slowly(header)


@pytest.mark.parametrize(
    "word",
    [
        *("y", "Y", "n", "N", "yes", "No", "ON", "oFF", "true", "FALSE", "null", "Null", "NULL", "None"),
        *("nan", "inf", "e1", "1e1", "0x1", "a:b", "-", "~", "="),
    ],
)
def test_every_word_of_yaml_is_quoted_as_pyyaml_quotes_it(word: str) -> None:
    assert dump({"subject": word}) == dump_slowly({"subject": word})


@pytest.mark.parametrize(
    "value", [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]
)
def test_the_ends_of_time_are_written_alike(value: datetime) -> None:
    text = format_time(value)
    assert dump({"created_at": text}) == dump_slowly({"created_at": text}) == f"created_at: '{text}'"


SCALARS = st.one_of(
    IDS,
    MOMENTS.map("'{}'".format),
    WORDS,
    st.text(max_size=12),
    st.text(alphabet="truefalsnyokTFNY012'\"{}[]#:- \u3042\uff11\u00e9\ufeff\x85\u2028&*!|>%@`", max_size=8),
    st.integers(-9, 10**20).map(str),
    st.sampled_from(
        ["null", "{}", "[]", "~", "", "true", "nULL", "No", "'it''s'", "'a: b'", "'", "1e5", "0042", "0x1", "|", "- a"]
    ),
)
NAMES = st.sampled_from(["conversation_id", "broadcast_id"])
SIMPLE: st.SearchStrategy[Any] = (
    st.none()
    | IDS
    | MOMENTS
    | st.sampled_from(["admin", "two words", "w" * 90, -1, 0, 100])
    | st.just({})
    | st.just([])
)
ITEMS = st.lists(SIMPLE | st.dictionaries(NAMES, SIMPLE | st.lists(SIMPLE, max_size=2)), max_size=3)
LINES = st.tuples(
    st.sampled_from(["", "  ", "    ", "- ", "  - ", "- - ", "\t"]),
    st.sampled_from(["id", "sender_id", "y", "null", "True", "k", "a b", "Key", "metadata"]),
    st.sampled_from([": ", ":", ":  ", " : "]),
    SCALARS,
).map("".join)


def read(header: str) -> Any:
    try:
        return load(header)
    except NOT_YAML:
        return "not YAML"


BARE = st.tuples(st.sampled_from(["- ", "-", "  - ", "    - ", "  "]), SCALARS).map("".join)
OPENING = st.sampled_from(["metadata:", "  status:", "- status:", "    x:", "", "# note", "...", "-", "- "])


@given(st.lists(LINES | BARE | OPENING, max_size=7).map("\n".join))
def test_a_header_that_is_read_quickly_is_read_as_pyyaml_reads_it(header: str) -> None:
    quick = load_quickly(header)
    assert quick is None or repr(quick) == repr(read(header))


@given(
    st.dictionaries(
        st.sampled_from(["id", "sender_id", "metadata", "history"]),
        SIMPLE | ITEMS | st.dictionaries(NAMES, SIMPLE | ITEMS),
    )
)
def test_what_is_written_without_pyyaml_is_read_without_it(header: dict[str, Any]) -> None:
    assert load_quickly(dump(header)) == header or not header
