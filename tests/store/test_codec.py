"""Entity and file: every field and the body survive byte for byte; what people write is understood."""

from __future__ import annotations

import json
import re
from dataclasses import Field, fields, replace
from datetime import UTC, datetime
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from multi_agent_mcp.domain.agent import AgentSession, Execution, OwnerWait
from multi_agent_mcp.domain.entity import ITEM, Entity, as_json
from multi_agent_mcp.domain.history import History
from multi_agent_mcp.domain.message import Conversation, Delegation, Message
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.repository.reservation import Reservation
from multi_agent_mcp.store.codec import Document, Unreadable, codec, parse, render
from multi_agent_mcp.texts import catalogue

ENTITIES: list[type[Entity]] = [
    *(Message, Notification, Task, AgentSession, OwnerWait),
    *(Conversation, Delegation, Execution, Reservation),
]

NASTY = [
    "",
    " ",
    "  leading and trailing  ",
    "\n",
    "\n\n---\n\n",
    "---",
    "---\nid: forged\n---\n\nbody",
    "a\r\nb\r\n",
    "a\rb",
    "\ttab",
    "\x00\x01\x07\x1b[31m\x7f",
    "next line\x85, line\u2028 and paragraph\u2029 separator",
    "\ufeffmark at the front, \ufeff within, and at the end \ufeff",
    "👩‍👩‍👧 emoji 🎉",
    "\ufffe\uffff",
    "\U0010ffff",
    "null",
    "~",
    "yes",
    "=",
    "<<",
    "0x1F",
    "09",
    "0042",
    "1.5e3",
    "-7.e2",
    "1_000",
    "9" * 5000,
    "12:30",
    "2026-11-21",
    "1e3",
    "- a list",
    "{a: b}",
    "key: value",
    "# no comment",
    "'",
    '"',
    "\\",
    "|",
    ">",
    "&anchor",
    "*alias",
    "!!python/object:os.system",
    "%YAML 1.1",
    "?",
    "@",
    "`",
    "...",
    "x" * 5000,
    "word " * 500,
    " x\n y\n",
    "trailing newline\n",
    "日本語の本文",
]

NUMERIC = st.text(alphabet="0123456789.+-_eExob:", max_size=8)
TEXT = st.one_of(st.sampled_from(NASTY), st.text(), NUMERIC, st.text(alphabet="-\n\r \t\x85\u2028\u2029\ufeff:#'\"a"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
MAPPING = st.dictionaries(TEXT, JSON, max_size=3)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    bool: st.booleans(),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    datetime: st.datetimes(timezones=st.just(UTC)),
}


def strategy(hint: Any) -> st.SearchStrategy[Any]:
    if get_origin(hint) is UnionType:
        (kind,) = (kind for kind in get_args(hint) if kind is not NoneType)
        return st.none() | strategy(kind)
    if get_origin(hint) is tuple:
        return st.lists(strategy(get_args(hint)[0]), max_size=3).map(tuple)
    return VALUES.get(hint, MAPPING)


def entities(kind: type[Entity]) -> st.SearchStrategy[Entity]:
    hints = get_type_hints(kind)
    return st.builds(
        kind, **{spec.name: of_field(spec, hints[spec.name]) for spec in fields(kind) if spec.name != "extra"}
    )


def of_field(spec: Field[Any], hint: Any) -> st.SearchStrategy[Any]:
    """Items are what an item of that field can be."""
    make = spec.metadata.get(ITEM)
    return strategy(hint) if make is None else strategy(hint).map(lambda items: tuple(map(make, items)))


@pytest.mark.parametrize("kind", ENTITIES)
@settings(max_examples=25)  # of each kind: one codec reads and writes them all
@given(data=st.data())
def test_every_entity_survives_the_disk_whatever_its_fields_hold(kind: type[Entity], data: st.DataObject) -> None:
    entity = data.draw(entities(kind))
    written = codec(kind).encode(entity)
    assert codec(kind).decode(written) == entity
    assert codec(kind).encode(codec(kind).decode(written)) == written


@pytest.mark.parametrize("text", NASTY)
def test_a_nasty_text_survives_as_subject_metadata_and_body(text: str) -> None:
    message = Message(id="m", sender_id=text, subject=text, metadata={"key": text, text: [text]}, content=text)
    written = codec(Message).encode(message)
    assert codec(Message).decode(written) == message
    assert written.endswith(b"\n---\n\n" + text.encode())


@pytest.mark.parametrize("kind", ENTITIES)
def test_the_keys_are_in_the_documented_order(kind: type[Entity]) -> None:
    keys = {
        Message: "id sender_id receiver_id message_type priority subject created_at read_at metadata",
        Notification: "id target_agent_id target_purpose type action task_id conversation_id message created_at "
        "read_at",
        Task: "id title status priority assignee_id created_by parent_task_id dependencies approval_status "
        "approved_by requester_id progress checklist blocked_reason completion_result completion_summary next_steps "
        "interrupt_id started_from_conversation_id status_changed_by status_changed_at created_at updated_at "
        "started_at completed_at history",
        AgentSession: "id agent_id purpose task_id state token_hash pid pid_started_at created_at last_activity_at "
        "expires_at ended_at",
        OwnerWait: "owner_id admin_id task_id message_id since empty_checks",
        Delegation: "id agent_id target_agent_id purpose task_id status taken_by conversation_id created_at updated_at",
        Conversation: "id initiator_id target_agent_id task_id delegation_id purpose status started_at ended_at "
        "ended_by",
        Reservation: "id agent_id task_id patterns reason created_at expires_at released_at",
        Execution: "id agent_id task_id session_id status started_at completed_at exit_code duration_seconds "
        "log_file_path error_message",
    }[kind].split()
    values: dict[str, Any] = {} if kind is OwnerWait else {"id": "x"}
    header = parse(codec(kind).encode(kind(**values))).header
    assert list(header)[: len(keys)] == keys


def test_a_message_is_written_as_documented() -> None:
    message = Message(
        id="0a1b2c3d-1111-4222-8333-444455556666",
        sender_id="admin",
        receiver_id="worker-a",
        subject="件名",
        created_at=datetime(2026, 11, 21, 21, 46, 1, 123456, tzinfo=UTC),
        content="  本文\r\n",
    )
    assert codec(Message).encode(message).decode() == (
        "---\n"
        "id: 0a1b2c3d-1111-4222-8333-444455556666\n"
        "sender_id: admin\n"
        "receiver_id: worker-a\n"
        "message_type: request\n"
        "priority: normal\n"
        "subject: 件名\n"
        "created_at: '2026-11-21T21:46:01.123456Z'\n"
        "read_at: null\n"
        "metadata: {}\n"
        "---\n"
        "\n"
        "  本文\r\n"
    )


def test_unknown_keys_are_kept_when_a_file_is_rewritten() -> None:
    foreign = b"---\nid: a\nx-trace: 7\ncolour: {name: blue}\ndue: 2026-12-01\n---\n\nbody"
    message = codec(Message).decode(foreign)
    rewritten = parse(codec(Message).encode(message.mark_read(datetime(2026, 11, 21, tzinfo=UTC)))).header
    assert (rewritten["x-trace"], rewritten["colour"]) == (7, {"name": "blue"})
    assert codec(Message).decode(codec(Message).encode(message)) == message


@pytest.mark.parametrize(
    "value",
    [
        "2026-11-21T21:46:01",
        "2026-11-21 21:46:01",
        "'2026-11-21T21:46:01'",
        "2026-11-21T21:46:01Z",
        '"2026-11-22T06:46:01+09:00"',
        "2026-11-22T06:46:01+09:00",
    ],
)
def test_a_naive_or_unquoted_time_is_understood(value: str) -> None:
    message = codec(Message).decode(f"---\nid: a\ncreated_at: {value}\n---\n\nhi".encode())
    assert message.created_at == datetime(2026, 11, 21, 21, 46, 1, tzinfo=UTC)


def test_what_is_missing_or_makes_no_sense_takes_the_fallback_and_then_the_default() -> None:
    noon = datetime(2026, 11, 21, 12, tzinfo=UTC)
    header = b"---\ncreated_at: soon\npriority: null\nsubject: [a]\nmetadata: 5\n---\n\nhi"
    message = codec(Message).decode(header, id="note", created_at=noon, receiver_id="worker-a")
    assert (message.id, message.created_at, message.receiver_id) == ("note", noon, "worker-a")
    assert (message.priority, message.subject, message.sender_id) == ("normal", "", "unknown")
    assert message.metadata == {"value": 5}


def test_numbers_and_dates_where_a_text_belongs_become_text() -> None:
    message = codec(Message).decode(b"---\nid: 5\nsubject: 2026-11-21\nsender_id: true\n---\n\nhi")
    assert (message.id, message.subject, message.sender_id) == ("5", "2026-11-21", "True")


@pytest.mark.parametrize(
    "value", ["2026-12-01", "2026-12-01 10:00:00", "!!binary aGk=", "!!set {a, b}", ".nan", "-.inf"]
)
def test_metadata_that_json_cannot_hold_is_read_as_what_json_can_hold(value: str) -> None:
    message = codec(Message).decode(
        f"---\nid: a\nmetadata: {{due: {value}, 2026-01-01: [{value}]}}\n---\n\nhi".encode()
    )
    assert json.loads(json.dumps(message.metadata, allow_nan=False)) == message.metadata
    assert "due" in message.metadata


def test_a_task_made_by_hand_with_a_scalar_for_a_list_is_read() -> None:
    task = codec(Task).decode(b"---\nid: a\ndependencies: tsk_1\nprogress: most\nchecklist: {a: b}\n---\n\nhi")
    assert (task.dependencies, task.progress, task.checklist) == ((), 0, ())


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_file_with_foreign_line_ends_or_a_byte_order_mark_is_read(newline: str, mark: str) -> None:
    text = newline.join([f"{mark}---", "id: a", "subject: hello", "---", "", "one", "two", ""])
    message = codec(Message).decode(text.encode())
    assert (message.id, message.subject, message.content) == ("a", "hello", newline.join(["one", "two", ""]))


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("---\nid: a\n---\nno blank line", "no blank line"),
        ("---\nid: a\n---\n\none blank line", "one blank line"),
        ("---\nid: a\n---\n\n\ntwo", "\ntwo"),
        ("---\nid: a\n---", ""),
        ("---\nid: a\n---\n", ""),
        ("---  \nid: a\n---\t\n\nblanks after the dashes", "blanks after the dashes"),
        ("---\nid: a\n---\n\nx\n---\ny\n---\n", "x\n---\ny\n---\n"),
        ("---\n---\n\na header without keys", "a header without keys"),
        ("---\n# no key yet\n\n---\na comment", "a comment"),
    ],
)
def test_the_body_begins_after_one_blank_line_where_there_is_one(text: str, body: str) -> None:
    assert codec(Message).decode(text.encode(), id="a").content == body


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no front matter"),
        (b"just a note\n", "no front matter"),
        (b"\n---\nid: a\n---\n", "no front matter"),
        (b"---\nid: a\n", "not closed"),
        (b"---\nid: [a\n---\n\nx", "not YAML"),
        (b"---\nid: 'a\n---\n\nx", "not YAML"),
        (b"---\n\tid: a\n---\n\nx", "not YAML"),
        (b"---\nid: !!python/object/apply:os.getpid []\n---\n\nx", "not YAML"),
        (b"---\na: &a [*a]\n---\n\nx", "contains itself"),
        (b"---\nmetadata: &a {b: {c: *a}}\n---\n\nx", "contains itself"),
        (b"---\na: " + b"[" * 100 + b"]" * 100 + b"\n---\n\nx", "nested too deeply"),
        (b"---\n- a\n---\n\nx", "not a mapping"),
        (b"---\n[]\n---\n\nx", "not a mapping"),
        (b"---\nid: a\n---\n\n\xff\xfe", "not UTF-8"),
        ("---\nid: a\n---\n".encode("utf-16"), "not UTF-8"),
    ],
)
def test_what_cannot_be_read_says_why_in_one_line(data: bytes, reason: str) -> None:
    with pytest.raises(Unreadable) as error:
        parse(data)
    said = catalogue("en").reason(error.value.reason)
    assert reason in said
    assert "\n" not in said


@given(st.binary(max_size=200))
@example(b"---\n? [a]\n: b\n---\n")
@example(b"---\n" + b"[" * 2000 + b"\n---\n")
@example(b"---\na: &a [*a]\n---\n")
@example(b"---\na: " + b"[" * 60 + b"]" * 60 + b"\n---\n")
@example(b"---\nprogress: 1e999\n---\n")
@example(b"---\nprogress: .nan\n---\n")
@example(b"---\ncreated_at: 0001-01-01T00:00:00+14:00\n---\n")
def test_any_bytes_can_be_read_and_written_again_or_are_unreadable(data: bytes) -> None:
    try:
        task = codec(Task).decode(data, id="x")
    except Unreadable:
        return
    again = codec(Task).decode(codec(Task).encode(task), id="x")
    assert repr(again) == repr(task)  # not ==: NaN does not equal itself


def test_a_lone_surrogate_is_refused_before_anything_is_written() -> None:
    with pytest.raises(ValueError, match="surrogate"):
        render(Document({"id": "a"}, "\ud800"))


def test_a_history_that_repeats_itself_is_written_out_in_full() -> None:
    entry = {"by": "admin"}
    task = Task(id="tsk_0123456789ab", history=History([entry, entry]))
    written = codec(Task).encode(task)
    assert b"&id" not in written
    assert codec(Task).decode(written) == replace(task, history=History([{"by": "admin"}] * 2))


@pytest.mark.parametrize("subject", ["12:30", "yes", "2026-11-21", "0x1f", "1_000", "no", "2026-13-45"])
def test_a_plain_scalar_in_a_hand_written_header_stays_the_text_it_is(subject: str) -> None:
    read = codec(Message).decode(f"---\nsubject: {subject}\n---\n\n".encode(), id="note")
    assert read.subject == subject


@pytest.mark.parametrize("written", ["09", "0042", "+8190", "9" * 5000, "!!str 09"])
def test_digits_by_hand_that_are_no_plain_number_hide_nothing(written: str) -> None:
    message = codec(Message).decode(f"---\nid: m\nsubject: {written}\n---\n\nbody".encode())
    assert message.subject.lstrip("+") == written.removeprefix("!!str ").lstrip("+")


@pytest.mark.parametrize("written", ["!!bool x", '!!int ""', '!!float ""', "!!timestamp x", "!!timestamp 2026-99-99"])
def test_a_tag_that_lies_about_its_value_is_unreadable_and_no_accident(written: str) -> None:
    with pytest.raises(Unreadable):
        parse(f"---\nid: m\nsubject: {written}\n---\n\nbody".encode())


@pytest.mark.parametrize("written", ["!!timestamp 2026-11-21", "!!set {a, b}", "!!binary aGk=", ".inf", "1.5e999"])
def test_unknown_keys_of_any_kind_can_be_shown_as_json(written: str) -> None:
    task = codec(Task).decode(f"---\nid: t\nmine: {written}\n---\n\n".encode())
    json.dumps(as_json(task), allow_nan=False)


TAGGED = """!!timestamp 2026-11-21 | !!timestamp 2026-11-21 10:00:00 | [!!timestamp 2026-11-21] | !!set {a, b}
!!binary aGk= | !!float .inf | !!int 0x1F | !!bool yes | !!omap [a: 1] | !!pairs [a: 1, a: 2] | 1.5e999 | 2.0 | ~"""


@pytest.mark.parametrize("written", re.split(r" \| |\n", TAGGED))
def test_unknown_keys_of_any_kind_are_the_same_after_a_rewrite(written: str) -> None:
    read = codec(Task).decode(f"---\nid: t\nmine: {written}\n---\n\n".encode())
    again = codec(Task).decode(codec(Task).encode(read))
    assert (again, type(again.extra["mine"])) == (read, type(read.extra["mine"]))


@pytest.mark.parametrize("written", [".nan", "nan", "-inf", "1.5e999"])
def test_a_duration_that_is_no_number_counts_as_unknown(written: str) -> None:
    assert codec(Execution).decode(f"---\nid: e\nduration_seconds: {written}\n---\n".encode()).duration_seconds is None


def test_an_item_of_a_checklist_is_read_whatever_somebody_wrote() -> None:
    header = "checklist: [write tests, 7, null, {text: [a], completed: 'no'}, {text: b, completed: yes, due: soon}]"
    task = codec(Task).decode(f"---\nid: tsk_0123456789ab\n{header}\nhistory: [moved, {{by: admin}}]\n---\n".encode())
    assert task.checklist == (
        {"text": "write tests", "completed": False},
        {"text": "7", "completed": False},
        {"text": "", "completed": False},
        {"text": "['a']", "completed": False},
        {"text": "b", "completed": True, "due": "soon"},
    )
    assert task.history == ({"text": "moved"}, {"by": "admin"})
    assert codec(Task).decode(codec(Task).encode(task)).checklist == task.checklist


@pytest.mark.parametrize("many", ["x: [{}]", "x:\n- {}", "x: {{{}}}"], ids=["a list", "a block list", "a mapping"])
def test_a_long_text_that_aliases_repeat_without_end_is_unreadable(many: str) -> None:
    """Written again it would be a hundred megabytes, and fill the memory of whoever reads the mailbox."""
    repeated = {"x: [{}]": "*a, " * 2_000, "x:\n- {}": "\n- ".join(["*a"] * 2_000)}
    mapping = ", ".join(f"k{number}: *a" for number in range(2_000))
    header = f'id: a\ny: &a "{"text " * 10_000}"\n{many.format(repeated.get(many, mapping))}'
    with pytest.raises(Unreadable):
        parse(f"---\n{header}\n---\n".encode())


def test_a_text_that_aliases_repeat_is_read_in_full() -> None:
    found = parse(b"---\nid: &a some words\nx: [*a, *a]\n? *a\n: y\n---\n").header
    assert found == {"id": "some words", "x": ["some words", "some words"], "some words": "y"}
