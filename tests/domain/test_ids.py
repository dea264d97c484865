"""Ids are parsed before they touch a path."""

from __future__ import annotations

import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multi_agent_mcp.domain.entity import agent_id, entity_id, id8, new_id, new_message_id, session_name
from multi_agent_mcp.errors import InvalidId

BAD_NAMES = [
    "",
    ".",
    "..",
    "../x",
    "a/b",
    "a\\b",
    "-a",
    "_a",
    "a.b",
    "a b",
    "a\n",
    "\x00",
    "é",
    "１",
    "x" * 65,
    None,
    7,
    b"owner",
]


@pytest.mark.parametrize("value", BAD_NAMES)
def test_a_name_that_could_leave_its_directory_is_refused(value: object) -> None:
    with pytest.raises(InvalidId) as agent:
        agent_id(value)
    with pytest.raises(InvalidId):
        session_name(value)
    assert agent.value.code == "invalid_id"


@pytest.mark.parametrize("value", ["a", "7", "worker-a", "A_1", "x" * 64])
def test_a_plain_name_is_taken_as_it_is(value: str) -> None:
    assert (str(agent_id(value)), str(session_name(value))) == (value, value)


@given(st.text())
def test_whatever_is_accepted_is_one_plain_path_component(value: str) -> None:
    try:
        accepted = agent_id(value)
    except InvalidId:
        return
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", accepted)


@pytest.mark.parametrize("prefix", ["tsk", "ntf", "cnv", "dlg", "exec", "ses", "msg"])
def test_a_new_entity_id_is_a_prefix_and_twelve_hex_characters(prefix: str) -> None:
    fresh = new_id(prefix)
    assert re.fullmatch(prefix + r"_[0-9a-f]{12}", fresh)
    assert entity_id(prefix, fresh) == fresh


@pytest.mark.parametrize(
    "value", ["tsk_", "tsk_0123456789AB", "tsk_0123456789abc", "ses_0123456789ab", "../tsk_0123456789ab", None, 3]
)
def test_an_entity_id_of_another_kind_or_shape_is_refused(value: object) -> None:
    with pytest.raises(InvalidId):
        entity_id("tsk", value)


def test_a_message_id_is_a_uuid4() -> None:
    assert uuid.UUID(new_message_id()).version == 4


def test_the_copies_of_a_broadcast_share_their_first_eight_digits_and_nothing_else() -> None:
    whole = new_message_id()
    copies = {new_message_id(like=whole) for _ in range(20)}
    assert len(copies) == 20
    assert {copy[:8] for copy in copies} == {whole[:8]}
    assert all(uuid.UUID(copy).version == 4 for copy in copies)


@pytest.mark.parametrize(
    ("entity", "expected"),
    [
        ("0a1b2c3d-1111-4222-8333-444455556666", "0a1b2c3d"),
        ("tsk_0123456789ab", "01234567"),
        ("exec_0123456789ab", "01234567"),
        ("../../etc/passwd", "etcpassw"),
        ("", "0"),
        ("日本", "0"),
    ],
)
def test_eight_characters_stand_for_an_id_in_a_file_name(entity: str, expected: str) -> None:
    assert id8(entity) == expected
