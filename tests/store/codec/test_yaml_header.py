"""The quick way to write a header writes what PyYAML writes."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.store.codec.frontmatter import codec
from multi_agent_mcp.store.codec.yaml_header import Loader, dump, dump_slowly, load_quickly

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


@given(st.dictionaries(KEYS | st.text(), VALUES | st.dictionaries(WORDS, VALUES)))
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


@given(st.dictionaries(KEYS | st.text(max_size=8), VALUES))
def test_what_is_loaded_quickly_is_what_pyyaml_loads(header: dict[str, Any]) -> None:
    text = dump(header)
    quickly = load_quickly(text)
    assert quickly is None or quickly == yaml.load(text, Loader=Loader)  # noqa: S506 - it is a safe loader


@pytest.mark.parametrize(
    "value",
    [
        *(
            "~",
            "null",
            "NULL",
            "nUll",
            "true",
            "False",
            "yes",
            "12",
            "-3",
            "1.5",
            "1e3",
            "0042",
            "007",
            "0x1f",
            "1_000",
        ),
        *("a: b", "a:b", "a:", "a #b", "a#b", "- a", "a -b", "[a]", "{a: b}", "[]", "{}", "'a'", "'it''s'", '"a\\n"'),
        *("&a b", "*a", "!t a", "| ", "> ", "%a", "@a", "a, b", "a  b", "a ", "é ü", "通知 です", "", "2026-11-21"),
        *("0a1b2c3d-1111-4222-8333-444455556666", "v2:0a1b", "http://a.b/c?d=1", "? a", "a\tb", "a\u2028b", "=", "<<"),
    ],
)
def test_a_line_that_somebody_wrote_is_loaded_quickly_only_as_pyyaml_loads_it(value: str) -> None:
    text = f"id: a\nsubject: {value}\nread_at: null"
    try:
        loaded = yaml.load(text, Loader=Loader)  # noqa: S506 - it is a safe loader
    except yaml.YAMLError:
        assert load_quickly(text) is None
    else:
        assert load_quickly(text) in (None, loaded)


@pytest.mark.parametrize("text", ["null: a", "yes: a", "id: a\nid: b", "id: a\n b", "id:  a", "id: a\r", "a b: c", ""])
def test_so_is_any_header(text: str) -> None:
    assert load_quickly(text) in (None, yaml.load(text, Loader=Loader))  # noqa: S506 - it is a safe loader


def test_what_we_write_of_a_message_is_loaded_quickly() -> None:
    message = Message(id="0a1b2c3d-1111-4222-8333-444455556666", sender_id="admin", receiver_id="worker-a")
    header = codec(Message).encode(replace(message, subject="Build the wall", signature="v2:0a1b")).decode()
    assert load_quickly(header.split("---\n")[1].rstrip("\n")) is not None
