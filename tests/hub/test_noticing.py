"""What becomes of a changed file that cannot be published."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.entity import SessionName
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.errors import HubUnreachable, InvalidId, Refusal
from multi_agent_mcp.hub.noticing import Noticing
from multi_agent_mcp.hub.publishing import Publishing
from multi_agent_mcp.hub.stream import OP, Stored
from multi_agent_mcp.hub.subjects import MESSAGE, READ, Names, Own
from multi_agent_mcp.store.authority import Superseded
from multi_agent_mcp.store.inbox import file_name
from multi_agent_mcp.store.workspace import Mailbox, Workspace
from tests.hub.support import DESK
from tests.store.support import NOON, confirm_read, message, put


@pytest.mark.parametrize(("refusal", "left"), [(InvalidId(value="'x y'"), 0), (HubUnreachable(), 1)])
def test_only_what_may_succeed_later_is_tried_again(tmp_path: Path, refusal: Refusal, left: int) -> None:
    tried = []

    async def publish(path: Path) -> None:
        tried.append(path)
        raise refusal

    publishing = SimpleNamespace(publish=publish, is_own=lambda _: False)
    noticing = Noticing(tmp_path, cast("Any", SimpleNamespace(usable=True)), cast("Any", publishing))
    noticing.due.add(Path("agents.json"), 0.0)
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(noticing.run(), 0.2))
    assert (len(tried), len(noticing.due)) == (1, left)


def test_agents_and_conversations_are_sent_before_what_refers_to_them(tmp_path: Path) -> None:
    """Else a machine that joins may be handed a mark before it knows whose it is."""
    begun, sent = list[tuple[str, int]](), list[Path]()

    async def publish(path: Path) -> None:
        begun.append((path.name, len(sent)))
        await asyncio.sleep(0)
        sent.append(path)

    publishing = SimpleNamespace(publish=publish, is_own=lambda _: False)
    noticing = Noticing(tmp_path, cast("Any", SimpleNamespace(usable=True)), cast("Any", publishing))
    for path in ("ipc/admin/a.md", "conversations/cnv_1/conversation.md", "executions/admin/b.md", "agents.json"):
        noticing.due.add(Path(path), 0.0)
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(noticing.run(), 0.2))
    assert begun == [("conversation.md", 0), ("agents.json", 0), ("a.md", 2), ("b.md", 2)]


class Values:
    """A hub's values, in memory, as `Publishing` asks for them."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.by_subject: dict[str, Stored] = {}

    async def put(self, subject: str, data: bytes, op: str, headers: dict[str, str], *, expected: int | None) -> int:
        found = self.by_subject.get(subject)
        if expected == 0 and found is not None:
            raise Superseded(found.shared)
        self.by_subject[subject] = Stored(subject, len(self.by_subject) + 1, {**headers, OP: op}, data)
        return len(self.by_subject)

    async def last(self, subject: str) -> Stored | None:
        return self.by_subject.get(subject)

    async def last_of_any(self, kind: str, owner: str, name: str) -> Stored | None:
        return self.by_subject.get(self.names.own(DESK, kind, owner, name))


@dataclass
class Sharing:
    """Letters of a session that is being shared."""

    workspace: Workspace
    values: Values
    publishing: Publishing

    def publish(self, *paths: Path) -> None:
        """Publishes files, and those under which hand-written ones are put, until nothing is left to do."""
        seen: set[tuple[Path, int]] = set()
        pending = [*paths]
        while pending:
            for path in pending:
                seen.add((path, path.stat().st_mtime_ns))
                with suppress(FileNotFoundError):
                    asyncio.run(self.publishing.publish(path.relative_to(self.workspace.path)))
            letters = (self.workspace.path / "ipc").glob("*/*.md")
            pending = [path for path in letters if (path, path.stat().st_mtime_ns) not in seen]

    def unread_elsewhere(self) -> dict[str, bool]:
        """Returns the contents of the letters on the hub, and whether they are unread there."""
        found = {}
        for subject, stored in self.values.by_subject.items():
            what = self.values.names.parse(subject)
            assert isinstance(what, Own)
            if what.kind == MESSAGE:
                mark = self.values.by_subject.get(self.values.names.own(DESK, READ, what.owner, what.name))
                text = stored.data.decode().rpartition("---\n\n")[2]
                found[text] = mark is None or json.loads(mark.data)["read_at"] is None
        return found


@pytest.fixture
def sharing(tmp_path: Path) -> Sharing:
    workspace, names = Workspace(tmp_path, SessionName("demo")), Names("0" * 32)
    workspace.make()
    workspace.registry.create()
    workspace.registry.add(Agent(id="worker-a", role="owner", machine=DESK))
    values = Values(names)
    return Sharing(workspace, values, Publishing(workspace, names, DESK, cast("Any", values)))


def read_letter(mailbox: Mailbox, letter: Message) -> Path:
    """Has a letter delivered and read; returns its file in the archive."""
    mailbox.deliver(letter)
    mailbox.mark_read([file_name(letter)], NOON)
    confirm_read(mailbox)
    (archived,) = mailbox.path.glob("archive/*/*.md")
    return archived


ORDERS = pytest.mark.parametrize("archived_first", [True, False], ids=["the archived one first", "and last"])


@ORDERS
def test_a_message_that_was_put_back_is_unread_everywhere_whichever_copy_is_published_first(
    sharing: Sharing, archived_first: bool
) -> None:
    mailbox = sharing.workspace.mailbox("worker-a")
    archived = read_letter(mailbox, letter := replace(message(), signature="v2:00"))
    back = mailbox.path / archived.name
    back.write_bytes(archived.read_bytes())
    twice = (back, back)  # its mark is taken, which is noticed
    sharing.publish(*((archived, *twice) if archived_first else (*twice, archived)))
    assert sharing.unread_elsewhere() == {letter.content: True}


@ORDERS
def test_an_unread_message_of_a_person_under_an_archived_ones_name_travels_beside_it(
    sharing: Sharing, archived_first: bool
) -> None:
    mailbox = sharing.workspace.mailbox("worker-a")
    archived = read_letter(mailbox, letter := message())
    other = replace(letter, id=f"{letter.id[:-1]}7", content="new")
    new = put(mailbox.path / archived.name, mailbox.hot.codec.encode(other))
    sharing.publish(*((archived, new) if archived_first else (new, archived)))
    assert sharing.unread_elsewhere() == {letter.content: False, "new": True}


@pytest.mark.parametrize("copied", [True, False], ids=["copied", "moved"])
@pytest.mark.parametrize("shared_before", [True, False])
@pytest.mark.parametrize("unmarked", [True, False])
@ORDERS
def test_a_read_message_that_was_put_back_with_another_text_travels_beside_the_first(
    sharing: Sharing, *, copied: bool, shared_before: bool, unmarked: bool, archived_first: bool
) -> None:
    mailbox = sharing.workspace.mailbox("worker-a")
    archived = read_letter(mailbox, letter := replace(message(), signature="v2:00"))
    first = archived.read_bytes()
    if shared_before:
        sharing.publish(archived)
    edited = replace(letter, content="edited", read_at=None if unmarked else NOON)
    back = put(mailbox.path / archived.name, mailbox.hot.codec.encode(edited))
    if not copied:
        archived.unlink()
    noticed = [back] if shared_before or not copied else [archived, back]
    sharing.publish(*(noticed if archived_first else reversed(noticed)))
    found = sharing.unread_elsewhere()
    if copied or shared_before:
        assert found == {letter.content: False, "edited": True}
        assert archived.read_bytes() == first
    else:
        assert found == {"edited": True}
    (here,) = mailbox.path.glob("*.md")
    assert b"edited" in here.read_bytes()
