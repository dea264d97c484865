"""Collections whose entities several machines share: the authority orders each change before the file is written
(docs/protocol.md, Several machines). Tasks are one: the older lines of a task's history have their own file
(docs/format.md, Entities)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from multi_agent_mcp.domain.entity import Identified, entity_id
from multi_agent_mcp.domain.history import NUMBER, History, numbered
from multi_agent_mcp.domain.json_lines import newest_first
from multi_agent_mcp.domain.task import Task, work_order
from multi_agent_mcp.domain.times import within_month
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.authority import (
    END,
    HUB,
    NOW,
    Authority,
    Shared,
    Superseded,
    digest8,
    marked,
    revision_of,
    with_mark,
    without_last,
    without_mark,
)
from multi_agent_mcp.store.codec import codec
from multi_agent_mcp.store.collection import Collection, Location
from multi_agent_mcp.store.durable_files import FileChanged, Files
from multi_agent_mcp.store.partition import Layout, is_plain
from multi_agent_mcp.store.records import Conflicts

E = TypeVar("E", bound=Identified)

logger = logging.getLogger(__name__)

_ID = re.compile(rb"^id: ([a-z]{3}_[0-9a-f]{12})\r?$", re.MULTILINE)


class SharedCollection(Collection[E]):
    """A collection whose authority knows an entity as `{kind}.{id}`. On one machine it behaves as `Collection`."""

    def __init__(self, files: Files, base: Path, layout: Layout[E], authority: Authority, kind: str) -> None:
        super().__init__(files, base, layout)
        self.authority = authority
        self.kind = kind
        self.is_shared = authority.here is not None
        self._codec = codec(layout.entity_type)

    def add(self, entity: E) -> E:
        if not self.is_shared:
            return super().add(entity)
        with self.files.locks.held(self._lock(entity.id)):  # else the relay would write the hub's value, too
            if self.locate(entity.id) is not None:
                raise FileExistsError(entity.id)
            try:
                return self._create(self._agreed(None, entity))
            except Superseded as earlier:  # an attempt that died between the hub and the file
                received, data = self._received(entity.id, earlier.current)
                return self._create(received, data=data)

    def remove(self, entity: E) -> None:
        found = self.authority.current(self._key(entity)) if self.is_shared else None
        if found is not None:
            self.authority.swap(self._key(entity), found.revision, b"")
        super().remove(entity)

    def accept(
        self,
        entity_id: str,
        shared: Shared,
        modified: int | None = None,
        *,
        was: int | None = None,
        edited: int | None = None,
    ) -> E | None:
        """Writes the hub's value of an entity unless the file is as new, and returns the entity written; empty data
        removes the file. `modified` is the time of the change in nanoseconds since the epoch. `was` is the value's
        revision on a former hub, if it was restored from there: a file that is newer is sent to the hub instead.
        `edited` is the revision in the mark of this machine's file when it was sent as this value, after an edit by
        hand: if it has been edited again since, it is left to `push`."""
        with self.files.locks.held(self._lock(entity_id)):
            located = self.locate(entity_id)
            if located is not None:
                entity, known = located.entity, revision_of(located.entity)
                if entity.extra.get(HUB) == NOW:
                    return None  # an edit that was moved back from the quarantine
                if known >= shared.revision or (known == edited and self._is_edited(located, shared)):
                    if not self._is_in_place(located):
                        self._write(located, entity)  # whoever wrote it may have been killed before it moved it
                    return None
                if was is not None and known > was:
                    self._share_all_of(entity)
                    agreed = self._agreed(marked(entity, shared), entity, is_edited=True)
                    with suppress(FileChanged):  # it is pushed when it is noticed
                        self._write(located, agreed, guarded=True)
                    return None
            return self._take_over(entity_id, shared, located, modified)

    def has(self, entity_id: str, revision: int) -> bool:
        """Whether this revision of an entity, or a newer one, is here, and where it belongs: it is not if whoever
        wrote it was killed before it had moved it."""
        located = self.locate(entity_id, known=True)
        return located is not None and revision_of(located.entity) >= revision and self._is_in_place(located)

    def _is_in_place(self, located: Location[E]) -> bool:
        if located.directory is not located.partition.home:
            return True
        return not self._is_over(located.entity) and self._belonging_to(located.entity) in (None, located.partition)

    def push(self, entity_id: str, first: int = 1) -> None:
        """Sends an entity to the authority whose file was made or edited by a person, or has a revision before `first`,
        which is one of a former hub. If the authority has a newer value, that is taken over instead."""
        with self.files.locks.held(self._lock(entity_id)):
            located = self.locate(entity_id)
            if located is None:
                return
            if 0 < revision_of(located.entity) < first:
                self._share_again(located)
            elif not self._is_as_marked(located):
                try:
                    known, at = self._known(located.entity), _changed_at(located)
                    agreed = self._agreed(known, located.entity, is_edited=True, at=at)
                    with suppress(FileChanged):  # it is saved again and will be pushed again
                        self._write(located, agreed, at, guarded=True)
                except Superseded as newer:
                    self._take_over(entity_id, newer.current, located)

    def _known(self, entity: E) -> E | None:
        """Returns an edited entity if the authority has one with this id; None for a new one, which may be a copy of
        another's file, with its mark. Then all of it is sent."""
        is_marked = revision_of(entity) > 0 or entity.extra.get(HUB) == NOW
        if is_marked and self.authority.current(self._key(entity)) is not None:
            return entity
        self._share_all_of(entity)
        return None

    def restore(self, entity_id: str) -> None:
        """Writes the authority's value again if the file is gone, or was unreadable and set aside."""
        with self.files.locks.held(self._lock(entity_id)):
            if self.layout.is_id(entity_id) and self.locate(entity_id) is None:
                current = self.authority.current(f"{self.kind}.{entity_id}")
                if current is not None:
                    self._take_over(entity_id, current, None)

    def changed_at(self, entity_id: str) -> int | None:
        """Returns when an entity's file was last changed, in nanoseconds since the epoch; None if there is none."""
        located = self.locate(entity_id, known=True)
        return None if located is None else _changed_at(located)

    def shared_values(self) -> Iterator[tuple[str, bytes, int]]:
        """Yields every entity as it is sent: its key, its bytes, and the revision in its mark."""
        found = map(self._settled, self.all())
        return ((self._key(entity), self._payload(entity), revision_of(entity)) for entity in found)

    def _change(self, entity_id: str, change: Callable[[E], E]) -> E:
        while True:
            located = self._located(entity_id)
            try:
                agreed = self._agreed(located.entity, change(located.entity))
            except Superseded as newer:  # another machine was faster: take its value, then apply the change again
                self._take_over(entity_id, newer.current, located)
                continue
            try:
                return self._write(located, agreed, guarded=self.is_shared)
            except FileChanged:
                self._set_aside(located)
                return self._write(located, agreed)

    def _agreed(self, before: E | None, after: E, *, is_edited: bool = False, at: int | None = None) -> E:
        """Returns the changed value with its new mark, once the authority has accepted it in place of `before`. `at`
        as in `Authority.create`. Raises `Superseded`."""
        if not self.is_shared or (after == before and not is_edited):
            return after
        after = self._settled(after)
        data = self._payload(after)
        if before is None:
            revision = self.authority.create(self._key(after), data, at=at)
        else:
            revision = self.authority.swap(self._key(after), self._base(before), data, edited=is_edited, at=at)
        return after if revision is None else marked(after, Shared(revision, data))

    def _base(self, before: E) -> int:
        """Returns the revision that a change replaces."""
        current = self.authority.current(self._key(before)) if before.extra.get(HUB) == NOW else None
        return revision_of(before) if current is None else current.revision

    def _share_again(self, located: Location[E]) -> None:
        """Sends an entity of a former hub to the new one. If another machine was faster, `accept` decides later which
        of the two is newer."""
        entity = self._settled(located.entity)
        data = self._payload(entity)
        self._share_all_of(entity)
        with suppress(Superseded, FileChanged):
            at = _changed_at(located)
            revision = self.authority.create(self._key(entity), data, revision_of(entity), at)
            if revision is not None:
                self._write(located, marked(entity, Shared(revision, data)), at, guarded=True)

    def _share_all_of(self, entity: E) -> None:
        """Sends those parts of an entity to a recreated hub that are not in its file."""

    def _take_over(
        self, entity_id: str, shared: Shared, located: Location[E] | None, modified: int | None = None
    ) -> E | None:
        """Writes the authority's value and returns the entity, or removes the file and returns None if the value is
        empty. An edit of the file that the authority does not have is set aside."""
        if located is not None and self._is_edited(located, shared):
            self._set_aside(located)
        if shared.data:
            (entity, data), modified = self._received(entity_id, shared), shared.at if modified is None else modified
            try:
                self._put(located, entity, modified, data, guarded=True)
            except FileChanged:
                return self._take_over(entity_id, shared, self.locate(entity_id), modified)
            return entity
        if located is not None:
            located.directory.remove(self.layout.name(entity_id), sync=True)
            self._drop_own_directory(located.directory, self.layout.name(entity_id))
        return None

    def _set_aside(self, located: Location[E]) -> None:
        """Copies a person's edit that is about to be overwritten."""
        Conflicts(self.files).keep_file(located.directory.path / self.layout.name(located.entity.id))

    def _received(self, entity_id: str, shared: Shared) -> tuple[E, bytes | None]:
        """Returns the entity of a hub's value, and its bytes with the mark. They are None, and the mark is of our own
        form, if none can be added to them, or if they name another entity, as a person's copy of its file does."""
        entity = self._adopted(self._codec.decode(shared.data, id=entity_id), entity_id)
        data = None if _names_another(shared.data, entity_id) else with_mark(shared)
        return marked(entity, shared if data is not None else shared._replace(data=self._payload(entity))), data

    def is_as_on_hub(self, entity: E, shared: Shared) -> bool:
        """Returns whether an entity's mark is that of this value."""
        return bool(entity.extra.get(HUB) == self._received(entity.id, shared)[0].extra[HUB])

    def _is_edited(self, located: Location[E], shared: Shared) -> bool:
        return not self._is_as_marked(located) and self._payload(located.entity) != shared.data

    def _is_as_marked(self, located: Location[E]) -> bool:
        """Returns whether an entity is the hub's value under its revision, not made or edited by a person. The value
        may have another form than ours: it is in the file to the byte, but for the mark. So is it in a copy under
        another id."""
        _, _, digest = str(located.entity.extra.get(HUB, "")).partition(" ")
        if digest == digest8(self._payload(located.entity)):
            return True
        data = self.files.read(located.directory.path / self.layout.name(located.entity.id)) or b""
        return not _names_another(data, located.entity.id) and digest == digest8(without_last(data))

    def _unmarked(self, entity: E) -> E:
        return replace(entity, extra=without_mark(entity))

    def _payload(self, entity: E) -> bytes:
        """Returns the bytes to send: the file without its mark."""
        stored = self._as_stored(entity)
        return self._codec.encode(replace(stored, extra=without_mark(stored)))

    def _key(self, entity: E) -> str:
        return f"{self.kind}.{entity.id}"


def _names_another(data: bytes, entity_id: str) -> bool:
    """Returns whether a file says that it is another entity's."""
    said = _ID.search(data.partition(END)[0])
    return said is not None and said[1] != entity_id.encode()


# The month of the archive follows from this time. A file whose own time is in another month, as it was copied or edited
# there, has one of the month in which it is: so it is in the same one on every machine.
def _changed_at(located: Location[E]) -> int | None:
    if located.signature is None:
        return None
    at, directory = located.signature[0], located.directory
    return at if directory is located.partition.home else within_month(directory.path.name, at)


LINE = "line"
"""The kind of a history line in an authority's keys."""
EARLIER, STANDING = "earlier_history", "standing"
"""Keys of a task's header: the number of lines in the history file, and those of them that state where it stands."""


class Tasks(SharedCollection[Task]):
    """The tasks of a session. Older history lines are written to `_history/{task_id}.jsonl` before the task's file
    without them, so that none is lost. The task's file says how many lines count there; lines beyond, added by a
    process that was killed, are written again."""

    def in_progress(self, assignee_id: str) -> list[Task]:
        """Returns the tasks an agent works on, in the order of work."""
        return sorted((task for task in self.open(assignee_id) if task.is_worked_on), key=work_order)

    def history_path(self, task_id: str) -> Path:
        return self.base / "_history" / f"{task_id}.jsonl"

    def _adopted(self, entity: Task, task_id: str) -> Task:
        task = super()._adopted(entity, task_id)
        if task.assignee_id is not None and not is_plain(task.assignee_id):
            task = replace(task, assignee_id=None)  # a hand-written file may name anything
        earlier = task.extra.get(EARLIER)
        if not isinstance(earlier, int):
            return task
        known = {key: value for key, value in task.extra.items() if key not in (EARLIER, STANDING)}
        history = History(task.history.newest, earlier, _standing(task.extra.get(STANDING)), self._older(task_id))
        return replace(task, history=history, extra=known)

    def _older(self, task_id: str) -> Callable[[], bytes]:
        return cache(lambda: self._older_lines(task_id))

    def _older_lines(self, task_id: str) -> bytes:
        """Returns the lines of the history file; empty if it is missing or unreadable, which must not hide the task."""
        try:
            return self.files.read(self.history_path(task_id)) or b""
        except StorageError as error:
            logger.warning("the older lines of %s cannot be read: %s", task_id, error)
            return b""

    def _settled(self, entity: Task) -> Task:
        history, added = entity.history.shortened()
        if not added:
            return entity
        self._share_lines(entity.id, added)
        self._append_lines(entity.id, added)
        older = self._older(entity.id)
        return replace(entity, history=History(history.newest, history.earlier, history.standing, older))

    def _as_stored(self, entity: Task) -> Task:
        history, _ = entity.history.shortened()
        if not history.earlier:
            return entity
        standing = [numbered(*item) for item in history.standing.items()]
        mark = {key: value for key, value in entity.extra.items() if key == HUB}
        extra = {**without_mark(entity), EARLIER: history.earlier, STANDING: standing, **mark}
        return replace(entity, history=History(history.newest), extra=extra)

    def _append_lines(self, task_id: str, added: bytes) -> None:
        """Appends lines to the history file, but those that are there: a process that did not get further has written
        them, perhaps this one, for a change that the hub has refused."""
        path, lines = self.history_path(task_id), _by_number(added)
        last = next(newest_first(self.files.blocks_from_end(path)), {}).get(NUMBER)
        if isinstance(last, int) and last >= min(lines):
            there = frozenset(self._older_lines(task_id).splitlines())
            lines = {number: line for number, line in lines.items() if line not in there}
        if lines:
            self.files.append(path, b"\n".join(lines.values()), sync=True)

    def _share_lines(self, task_id: str, lines: bytes) -> None:
        """Sends lines that leave the task's file to the hub. Every process moves the same line under the same key."""
        if self.is_shared:
            for number, line in _by_number(lines).items():
                with suppress(Superseded):  # another machine has moved it
                    self.authority.create(f"{LINE}.{task_id}-{number}", line)

    def _share_all_of(self, entity: Task) -> None:
        self._share_lines(entity.id, self._older_lines(entity.id))

    def lines(self) -> Iterator[tuple[str, bytes]]:
        """Yields every line in the history files, as the arguments of `accept_line`."""
        for name in self.files.names(self.base / "_history"):
            task_id = name.removesuffix(".jsonl")
            for number, line in _by_number(self._older_lines(task_id)).items():
                yield f"{task_id}-{number}", line

    def accept_line(self, name: str, line: bytes) -> None:
        """Adds the line `{task_id}-{number}` to a task's history file unless it is there. Raises `InvalidId` and
        `ValueError`."""
        task_id, _, number = name.partition("-")
        path = self.history_path(entity_id("tsk", task_id))
        if int(number) != json.loads(line)[NUMBER] or b"\n" in line:
            raise ValueError(name)
        with self.files.locks.held(self._lock(task_id)):
            likely = newest_first(self.files.blocks_from_end(path), f'"{NUMBER}": {int(number)}'.encode())
            if all(found.get(NUMBER) != int(number) for found in likely):
                self.files.append(path, line, sync=True)


def _by_number(lines: bytes) -> dict[int, bytes]:
    """Returns the lines of a history file by their numbers, of one number the last, without those that are damaged."""
    found = {}
    for line in lines.splitlines():
        with suppress(ValueError, RecursionError):
            said = json.loads(line)
            if isinstance(said, dict) and isinstance(said.get(NUMBER), int):
                found[said[NUMBER]] = line
    return found


def _standing(lines: Any) -> Mapping[int, Mapping[str, Any]]:
    """Returns the standing lines by number, as far as manual edits have left them intact."""
    found = [line for line in lines if isinstance(line, dict)] if isinstance(lines, list) else []
    return {
        line[NUMBER]: {key: value for key, value in line.items() if key != NUMBER}
        for line in found
        if isinstance(line.get(NUMBER), int)
    }
