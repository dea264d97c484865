"""Sends the content of this machine's files to the hub, as values; `hub/noticing.py` says which, and when."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.entity import Mark, Readable
from multi_agent_mcp.domain.notification import TOLD_APART
from multi_agent_mcp.domain.times import format_time, now, parse_time, within_month
from multi_agent_mcp.errors import HubUnreachable, Refusal
from multi_agent_mcp.hub import subjects
from multi_agent_mcp.hub.applying import HAND_OFF, mark_in
from multi_agent_mcp.hub.share_directory import shared_settings
from multi_agent_mcp.hub.sizes import EDITS_BYTES
from multi_agent_mcp.hub.stream import OFFSET, OVER, TIME, Hub, Stored
from multi_agent_mcp.hub.subjects import BY_DIRECTORY, BY_NAME, MAIL, Names, Rule, TravellingKind
from multi_agent_mcp.hub.written_by_people import as_on_hub, decoded, is_by_hand, name_of_its_own, says
from multi_agent_mcp.store.authority import TOO_LARGE, Superseded, digest8
from multi_agent_mcp.store.codec import parse
from multi_agent_mcp.store.directory import ARCHIVE
from multi_agent_mcp.store.inbox import Inbox
from multi_agent_mcp.store.inbox_files import precedence
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.file_status import RACY_NS, modified_at, signature

logger = logging.getLogger(__name__)

CHUNK_BYTES = 256 << 10
KNOWN_MAX = 20_000
SETTLE_SECONDS = 1.0
"""The time that a person's program may need to write a file."""
LOG_SECONDS = 0.01
UNREAD_PARTS = 3
"""How many parts the path of a message or notification has that is not archived."""


@dataclass(eq=False)
class Publishing:
    """Publishes files, in the relay's event loop; operations that take locks run in threads."""

    workspace: Workspace
    names: Names
    machine: str
    hub: Hub
    _known: dict[str, str] = field(default_factory=dict)
    _own: dict[int, int] = field(default_factory=dict)
    """The times (nanoseconds since the epoch) of files that this relay has written from the hub, by the hashes of their
    signatures, as there may be hundreds of thousands while a machine joins."""
    _own_max: float = KNOWN_MAX
    _first: int = 1

    def begin_again(self, first: int) -> None:
        """Begins with a hub that has no values of this machine and none of revisions before `first`. All files written
        here are remembered until `keep_newest`."""
        self._known.clear()
        self._own.clear()
        self._own_max = inf
        self._first = first

    def keep_newest(self) -> None:
        """Limits the remembered files to the newest `KNOWN_MAX`."""
        self._own_max = KNOWN_MAX
        self._own = dict([*self._own.items()][-KNOWN_MAX:])

    def wrote(self, signature_hash: int, at: int) -> None:
        """Records that this relay writes a file from the hub, which need not be published. Not thread-safe."""
        self._own[signature_hash] = at
        if len(self._own) > self._own_max:
            del self._own[next(iter(self._own))]

    def wrote_all(self, written: Iterable[tuple[int, int]]) -> None:
        for signature_hash, at in written:
            self.wrote(signature_hash, at)

    def is_own(self, path: Path) -> bool:
        """Returns whether a file is unchanged since this relay wrote it. It is False for files with several values
        (agents.json, session.yaml), in which another one may have been edited."""
        try:
            return self.is_own_file(path, (self.workspace.path / path).lstat())
        except OSError:
            return False

    def is_own_file(self, path: Path, status: os.stat_result) -> bool:
        """As `is_own`, for a file with this status. `st_ctime` also reveals a change that keeps the size and the
        modification time."""
        written_at = self._own.get(hash(signature(status))) if len(path.parts) > 1 else None
        return written_at is not None and abs(status.st_ctime_ns - written_at) < RACY_NS

    async def publish(self, path: Path) -> None:
        """Publishes a file. Raises a `Refusal` or OSError, which may be temporary; any other exception is due to the
        file."""
        kind = path.parts[0]
        if kind in MAIL:
            await self.publish_mail(path)
        elif kind in BY_DIRECTORY and path.suffix == ".md":
            if BY_DIRECTORY[kind].rule is Rule.SHARED:
                await asyncio.to_thread(self._push, BY_DIRECTORY[kind], path)
            else:
                await self._publish_own(path, BY_DIRECTORY[kind].name)
        elif kind == "owner_wait":
            await self._publish_own(path, subjects.WAIT)
        elif kind == ".edits":
            await self._publish_edits(path)
        elif kind == "agents.json":
            await asyncio.to_thread(self._push_agents)
        elif kind == "session.yaml":
            await self._publish_settings()
        else:
            await self._publish_log(path)

    async def publish_mail(self, path: Path, *, is_new: bool = False) -> None:
        """Publishes a message or notification once, and its `read_at` if this machine is the agent's home."""
        owner, name = path.parts[1], path.name
        inbox: Inbox[Any] = (self.workspace.mailbox if path.parts[0] == "ipc" else self.workspace.notices)(owner)
        found = _read(self.workspace, path)
        if found is None:
            return
        data, modified = found
        entity: Readable = inbox.hot.decode(data, path.stem, modified / 1e9)
        key = _mail_key(path)
        kind = subjects.MESSAGE if path.parts[0] == "ipc" else subjects.NOTIFICATION
        may_be_back = not is_new and len(path.parts) == UNREAD_PARTS
        by_hand = may_be_back and (is_by_hand(name, entity) or await asyncio.to_thread(self._is_back, path, entity))
        if by_hand and key not in self._known and (older := _archived(inbox, name)) is not None:
            await self.publish_mail(older.relative_to(self.workspace.path))  # the name stays with it
        is_known = is_new or (key in self._known and not by_hand)
        known = None if is_known else await self.hub.last_of_any(kind, owner, name)
        if by_hand and known is not None and decoded(inbox, name, known) != entity.mark_read(None):
            await asyncio.sleep(SETTLE_SECONDS)
            its_mark = await self.hub.last_of_any(subjects.READ, owner, name)
            mark = Mark(None) if its_mark is None else mark_in(its_mark)
            await asyncio.to_thread(self._give_way, inbox, path, found, known, mark)
            return
        if by_hand and (complete := as_on_hub(inbox, entity, known)) != data:
            await asyncio.to_thread(self._complete, inbox, path, found, complete)
            return
        if key not in self._known:
            unread = data if entity.read_at is None else inbox.hot.codec.encode(entity.mark_read(None))
            try:
                stored_at = await self._publish_first(kind, owner, name, unread, modified, known)
            except HubUnreachable as refusal:
                if refusal.key == f"error.{TOO_LARGE}":  # it is never sent
                    await asyncio.to_thread(self._note_too_large, owner, entity.id)
                raise
            if stored_at is not None and not self._is_home(owner):
                self._note_travel_soon(entity.id, stored_at)
            self._remember(key, "" if is_new else await self._known_mark(kind, owner, name))
        if self._is_home(owner):
            await self._publish_mark(inbox, path, kind, entity, modified)

    async def _publish_mark(self, inbox: Inbox[Any], path: Path, kind: str, entity: Readable, modified: int) -> None:
        """Publishes the time at which an agent of this machine has read a message or notification, if it is another."""
        key, is_here = _mail_key(path), len(path.parts) == UNREAD_PARTS
        if is_here and entity.read_at is not None and await asyncio.to_thread(self._make_unread, inbox, path.name):
            return  # it is noticed again
        if not is_here and _is_copied(inbox, path.name, entity):
            return  # the mark of the file that was put back counts
        mark = inbox.mark_of(self.workspace.path / path, entity)
        if mark.words != self._known[key]:
            subject = self.names.own(self.machine, subjects.MARKS[kind], path.parts[1], path.name)
            time = None if mark.read_at is None else format_time(mark.read_at)
            said = {"read_at": time, **dict.fromkeys(mark.said, True)}
            await self._put(subject, json.dumps(said).encode(), modified)
            self._remember(key, mark.words)

    def _is_back(self, path: Path, entity: Readable) -> bool:
        """Returns whether a person has put a message back into the mailbox of this machine's agent. It was read, so
        that it may have another text by now."""
        inbox = self.workspace.mailbox(path.parts[1])
        if path.parts[0] != "ipc" or not self._is_home(path.parts[1]):
            return False
        is_marked = entity.read_at is not None and inbox.is_unread(path.name, entity)  # type: ignore[arg-type]
        return is_marked or bool(self._known.get(_mail_key(path))) or _archived(inbox, path.name) is not None

    def _make_unread(self, inbox: Inbox[Any], name: str) -> bool:
        """Takes the mark from a file that was read and that a person has put back, so that it is unread on every
        machine. Returns whether it was one."""
        with self.workspace.files.locks.held(inbox.lock):
            entity = inbox.hot.load(name)
            is_back = entity is not None and entity.read_at is not None and inbox.is_unread(name, entity)
            if is_back:
                inbox.mark_read([name], None)
            return is_back

    async def mark_by_hand(self, path: Path, mark: Mark) -> None:
        """Marks the hub's message under this name as read at home, unless what is here is another one by now: that
        gives way, and is sent. Raises `HubUnreachable`, `StorageError`, `Unreadable`."""
        owner, name = path.parts[1:]
        inbox = self.workspace.mailbox(owner)
        while (found := _read(self.workspace, path)) is not None:
            known = await self.hub.last_of_any(subjects.MESSAGE, owner, name)
            if known is None or await asyncio.to_thread(self._give_way, inbox, path, found, known, mark):
                return
        await asyncio.to_thread(inbox.accept_mark, name, mark)

    def _give_way(self, inbox: Inbox[Any], path: Path, found: tuple[bytes, int], known: Stored, mark: Mark) -> bool:
        """Puts the message that the hub has under this name, marked as it is at home, in the place of a
        hand-written one. That is renamed, so that it is noticed under its new name, unless it is the same one: it says
        the same, and the other one is unread, or it was put back here by its reader's own machine. Returns False,
        having done nothing, if the file has changed since it was `found`."""
        files, whole, is_home = self.workspace.files, self.workspace.path / path, self._is_home(path.parts[1])
        mine, theirs = inbox.hot.decode(found[0], path.stem, found[1] / 1e9), decoded(inbox, path.name, known)
        is_there = mine.mark_read(None) == theirs
        is_same = is_there or (says(mine) == says(theirs) and (is_home or mark.read_at is None))
        its_own = whole.with_name(name_of_its_own(path.name, inbox.hot.codec.encode(mine)))
        with files.locks.held(inbox.lock):
            if _read(self.workspace, path) != found:
                return False
            if not is_same and _archived(inbox, path.name) is not None:
                files.relocate([(whole, its_own)])
                return True
            if not is_same:
                with suppress(FileExistsError):
                    files.create(its_own, found[0])
            if not is_there:
                entity = theirs.mark_read(mine.read_at if is_same and is_home else None)
                files.replace(whole, as_on_hub(inbox, entity, known), modified=known.written_at)
        if not (is_same and is_home):
            inbox.accept_mark(path.name, mark)
        return True

    def _complete(self, inbox: Inbox[Any], path: Path, found: tuple[bytes, int], complete: bytes) -> None:
        """Writes what a person left out of a message, as its first reader would, so that it is the same to the byte on
        every machine, whoever reads it where. It is noticed again then, as it is if it has changed since."""
        with self.workspace.files.locks.held(inbox.lock):
            if _read(self.workspace, path) == found:
                self.workspace.files.replace(self.workspace.path / path, complete, modified=found[1])

    async def _publish_first(
        self, kind: str, owner: str, name: str, data: bytes, modified: int, known: Stored | None
    ) -> datetime | None:
        """Stores a message or notification unless the hub has it; returns the time when the hub accepted it from this
        machine, None if it is another machine's. `known` is the hub's value, if it was asked for: of two notifications
        that two machines have made, both are sent if this one stands (see `Inbox.keep_against`)."""
        subject, notices = self.names.own(self.machine, kind, owner, name), self.workspace.notices(owner)
        if known is not None and known.subject != subject and kind == subjects.NOTIFICATION:
            mine = notices.hot.decode(data, name.removesuffix(".md"), modified / 1e9)
            is_apart = mine.action in TOLD_APART
            known = None if is_apart and precedence(mine) < precedence(decoded(notices, name, known)) else known
        if known is not None:  # another machine's, or sent before this relay began
            return parse_time(known.at) if known.subject == subject else None
        with suppress(Superseded):  # the hub has it
            await self._put(subject, data, modified, expected=0)
        return now()

    def _note_travel_soon(self, item_id: str, stored_at: datetime) -> None:
        """Logs when the hub accepted an item, after the other machines have been told of it."""

        def note() -> None:
            with suppress(Refusal):  # nothing depends on it
                self.workspace.travel_log.add("on_hub", stored_at, [item_id])

        loop = asyncio.get_running_loop()
        loop.call_later(LOG_SECONDS, loop.run_in_executor, None, note)

    def _note_too_large(self, owner: str, item_id: str) -> None:
        log = self.workspace.travel_log
        with suppress(Refusal):  # nothing depends on it
            known = log.steps().get(item_id, ())
            if not self._is_home(owner) and not (known and known[-1]["state"] == "refused"):
                log.add("refused", now(), [item_id], reason=TOO_LARGE)

    async def _known_mark(self, kind: str, owner: str, name: str) -> str:
        found = await self.hub.last(self.names.own(self.machine, subjects.MARKS[kind], owner, name))
        return "" if found is None else mark_in(found).words

    async def _publish_own(self, path: Path, kind: str) -> None:
        """Publishes the newest state of a file that only the agent's home writes."""
        owner, stem = (path.parts[1], path.stem) if kind != subjects.WAIT else _of_wait(path)
        found = _read(self.workspace, path)
        is_gone = found is None and (kind != subjects.WAIT or (stem != "-" and not self._stands_again(owner)))
        if is_gone:  # what was pruned stays elsewhere
            return
        is_copy = kind in BY_NAME and BY_NAME[kind].rule is Rule.COPY
        if not self._is_home(str(parse(found[0]).header.get("agent_id")) if is_copy and found else owner):
            return
        data, modified = found or (b"", time.time_ns())
        if kind in BY_NAME and ARCHIVE in path.parts:  # which it has not left by being copied or edited there
            modified = within_month(path.parent.name, modified)
        key = f"{path.parts[0]}/{owner}/{stem}"  # the same before and after it is archived
        over = {OVER: "1"} if kind == HAND_OFF and ARCHIVE in path.parts else {}  # which its content does not say
        state = digest8(data) + "".join(over)
        if self._known.get(key) != state:
            await self._put(self.names.own(self.machine, kind, owner, stem), data, modified, more=over)
            self._remember(key, state)

    def _stands_again(self, owner: str) -> bool:
        """Returns whether an Owner waits: a wait that has left the archive was not pruned then."""
        return os.path.lexists(self.workspace.path / "owner_wait" / f"{owner}.md")

    async def _publish_edits(self, path: Path) -> None:
        """Publishes an agent's last edits, whole lines of them: no more is needed to see that others edit a file."""
        found = _read(self.workspace, path)
        if found is None or not self._is_home(path.stem):
            return
        data, modified = found
        if len(data) > EDITS_BYTES:
            data = data[-EDITS_BYTES:].partition(b"\n")[2]
        await self._put(self.names.own(self.machine, subjects.EDITS, path.stem), data, modified)

    async def _publish_log(self, path: Path) -> None:
        """Publishes the new part of a log."""
        is_audit = path.parts[0] == "audit"
        if "." in path.stem or (not is_audit and not self._is_home(path.parts[1])):
            return  # another machine's
        name = path.stem if is_audit else f"{path.parts[1]}/{path.stem}"
        subject = self.names.log(self.machine, subjects.AUDIT if is_audit else subjects.LOG, name)
        if str(path) not in self._known:
            last = await self.hub.last(subject)
            self._remember(str(path), str(int(last.headers[OFFSET]) + len(last.data)) if last is not None else "0")
        offset, whole = int(self._known[str(path)]), self.workspace.path / path
        for chunk in self.workspace.files.blocks(whole, offset, CHUNK_BYTES):
            await self._put(subject, chunk, modified_at(whole), more={OFFSET: str(offset)})
            offset += len(chunk)
            self._remember(str(path), str(offset))

    async def _publish_settings(self) -> None:
        data = shared_settings(self.workspace)
        if b'"language"' not in data:
            return  # a machine that has just joined has none before it has heard of it
        subject = self.names.shared(subjects.SETTINGS)
        found = await self.hub.last(subject)
        if found is None or found.data != data:
            try:
                await self._put(subject, data, time.time_ns(), expected=found.sequence if found else 0)
            except Superseded:
                self.workspace.conflicts.keep("session.json", data)

    def _push(self, kind: TravellingKind, path: Path) -> None:
        """Pushes a shared file that was made or edited by a person. Runs in a thread, as it takes the entity's lock."""
        collection, own_directory = kind.collection(self.workspace), kind.collection(self.workspace).layout.file_name
        if own_directory not in (None, path.name):
            return  # a copy of mail, beside the conversation's own file
        entity_id = path.stem if own_directory is None else path.parent.name
        collection.push(entity_id, self._first)
        if kind.directory == "tasks" and len(path.parts) == 3:  # files that leave the archive were pruned
            collection.restore(entity_id)

    def _push_agents(self) -> None:
        for agent_id in self.workspace.registry.edited(self._first):
            self.workspace.registry.push(agent_id, self._first)

    async def _put(
        self,
        subject: str,
        data: bytes,
        modified: int,
        *,
        expected: int | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        headers = {TIME: str(modified), **(more or {})}
        await self.hub.put(subject, data, secrets.token_hex(8), headers, expected=expected)

    def _is_home(self, agent_id: str) -> bool:
        agent = self.workspace.registry.all().get(agent_id)
        return agent is not None and agent.machine == self.machine

    def has_mail(self, path: Path) -> bool:
        """Returns whether the hub has the message or notification in this file."""
        return _mail_key(path) in self._known

    def came(self, kind: str, owner: str, name: str) -> None:
        """Records that the hub has this message or notification; a known mark of it is kept."""
        key = f"{MAIL[kind == subjects.NOTIFICATION]}/{owner}/{name}"
        self._remember(key, self._known.get(key, ""))

    def _remember(self, key: str, value: str) -> None:
        self._known.pop(key, None)
        self._known[key] = value
        while len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]


def _mail_key(path: Path) -> str:
    """Returns the key of a mail file, which is the same before and after it is archived."""
    return f"{path.parts[0]}/{path.parts[1]}/{path.name}"


def _of_wait(path: Path) -> tuple[str, str]:
    """Returns the Owner whose wait is in this file, and its name on the hub: "-" for the one in force."""
    if ARCHIVE not in path.parts:
        return path.stem, "-"
    return path.stem.split("_", 3)[-1], path.stem  # `{date}_{time}_{id8}_{owner}`


def _archived(inbox: Inbox[Any], name: str) -> Path | None:
    """Returns the path of the file with this name in an inbox's archive; None if there is none."""
    paths = (month.path / name for month in inbox.months())
    return next((path for path in paths if path.exists()), None)


def _is_copied(inbox: Inbox[Any], name: str, archived: Readable) -> bool:
    """Returns whether a copy of an archived message or notification was put back by a person, to be read again."""
    here = inbox.hot.load(name) if os.path.lexists(f"{inbox.path}/{name}") else None
    return here is not None and here.mark_read(None) == archived.mark_read(None)


def _read(workspace: Workspace, path: Path) -> tuple[bytes, int] | None:
    """Returns a file's bytes and modification time (nanoseconds since the epoch); None if it is gone."""
    whole = workspace.path / path
    data = workspace.files.read(whole)
    try:
        return None if data is None else (data, whole.stat().st_mtime_ns)
    except FileNotFoundError:
        return None
