"""What statistics ask of a message: who wrote to whom, when, and when it was read. Of a file in the form that we write,
that stands in the first lines, and YAML is not read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.entity import assembled
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.times import parse_time
from multi_agent_mcp.system.containment import peek

if TYPE_CHECKING:
    from multi_agent_mcp.store.directory import EntityFiles

_NAME = rb"(?!null\n|true\n|false\n)([a-z][a-z0-9_-]*)\n"
_TIME = rb"'(\d{4}-\d\d-\d\dT[0-9:.]+Z)'\n"
_BEGINNING = re.compile(
    rb"---\nid: ([0-9a-f]{8}-[0-9a-f-]{27})\nsender_id: " + _NAME + rb"receiver_id: " + _NAME
    # one line each: what a person has folded begins otherwise, and is read as YAML
    + rb"message_type: \w+\npriority: \w+\nsubject: (?:[^\n\"'|>].*|'(?:[^'\n]|'')*'|\"(?:[^\"\\\n]|\\.)*\")\n"
    + rb"created_at: " + _TIME + rb"read_at: (?:null\n|" + _TIME + rb")"
)  # fmt: skip
_BLANK = vars(Message(id=""))


def letter(directory: EntityFiles[Message], name: str) -> Message | None:
    """The message in a file without its subject, content and further fields; as `EntityFiles.load` in all else. The
    caller has seen to it that the directory is inside the session's (`require_inside`)."""
    data, status = peek(f"{directory.path}/{name}")
    found = _BEGINNING.match(data)
    if found is None or status is None or not directory.files.containment.is_own(status):
        return directory.load(name)
    entity_id, sender_id, receiver_id, created, read = (part and part.decode() for part in found.groups())
    created_at, read_at = parse_time(created), parse_time(read)
    is_misplaced = receiver_id not in directory.path.parts[-3:]
    if created_at is None or is_misplaced or (read_at is None) != (read is None):
        return directory.load(name)
    known = {"id": entity_id, "sender_id": sender_id, "receiver_id": receiver_id}
    return assembled(Message, {**_BLANK, **known, "created_at": created_at, "read_at": read_at})
