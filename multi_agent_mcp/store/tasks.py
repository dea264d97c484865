"""The collection of tasks: the older lines of a task's history have their own file (docs/format.md, Entities)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.ids import entity_id
from multi_agent_mcp.domain.task import Task, work_order
from multi_agent_mcp.domain.task_history import NUMBER, History
from multi_agent_mcp.domain.text import newest_first
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.shared_collection import SharedCollection, Superseded

logger = logging.getLogger(__name__)

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
        return sorted((task for task in self.open(assignee_id) if task.status == "in_progress"), key=work_order)

    def history_path(self, task_id: str) -> Path:
        return self.base / "_history" / f"{task_id}.jsonl"

    def _adopted(self, entity: Task, task_id: str) -> Task:
        task = super()._adopted(entity, task_id)
        earlier = task.extra.get(EARLIER)
        if not isinstance(earlier, int):
            return task
        known = {key: value for key, value in task.extra.items() if key not in (EARLIER, STANDING)}
        older = cache(lambda: self._older_lines(task_id))
        history = History(task.history.newest, earlier, _numbered(task.extra.get(STANDING)), older)
        return replace(task, history=history, extra=known)

    def _older_lines(self, task_id: str) -> bytes:
        """Returns the lines of the history file; empty if it is missing or unreadable, which must not hide the task."""
        try:
            return self.files.read(self.history_path(task_id)) or b""
        except StorageError as error:
            logger.warning("the older lines of %s cannot be read: %s", task_id, error)
            return b""

    def _shortened(self, entity: Task) -> Task:
        history, added = entity.history.shortened()
        if added:
            self._share_lines(entity.id, added)
            self.files.append(self.history_path(entity.id), added, sync=True)
        if not history.earlier:
            return entity
        standing = [{NUMBER: number, **line} for number, line in history.standing.items()]
        extra = {**entity.extra, EARLIER: history.earlier, STANDING: standing}
        return replace(entity, history=History(history.newest), extra=extra)

    def _share_lines(self, task_id: str, lines: bytes) -> None:
        """Sends lines that leave the task's file to the hub. Every process moves the same line under the same key."""
        if self.is_shared:
            for line in filter(None, lines.splitlines()):
                with suppress(Superseded):  # another machine has moved it
                    self.authority.create(f"{LINE}.{task_id}-{json.loads(line)[NUMBER]}", line)

    def _share_all_of(self, entity: Task) -> None:
        self._share_lines(entity.id, self._older_lines(entity.id))

    def lines(self) -> Iterator[tuple[str, bytes]]:
        """Yields every line in the history files, as the arguments of `accept_line`."""
        for name in self.files.names(self.base / "_history"):
            for line in newest_first(self.files.read(self.base / "_history" / name) or b""):
                task_id = name.removesuffix(".jsonl")
                yield f"{task_id}-{line[NUMBER]}", json.dumps(line, ensure_ascii=False).encode()

    def accept_line(self, name: str, line: bytes) -> None:
        """Adds the line `{task_id}-{number}` to a task's history file unless it is there. Raises `InvalidId` and
        `ValueError`."""
        task_id, _, number = name.partition("-")
        path = self.history_path(entity_id("tsk", task_id))
        if int(number) != json.loads(line)[NUMBER] or b"\n" in line:
            raise ValueError(name)
        with self.files.locks.held(self._lock(task_id)):
            known = {found[NUMBER] for found in newest_first(self.files.read(path) or b"") if NUMBER in found}
            if int(number) not in known:
                self.files.append(path, line, sync=True)


def _numbered(lines: Any) -> Mapping[int, Mapping[str, Any]]:
    """Returns the standing lines by number, as far as manual edits have left them intact."""
    found = [line for line in lines if isinstance(line, dict)] if isinstance(lines, list) else []
    return {
        line[NUMBER]: {key: value for key, value in line.items() if key != NUMBER}
        for line in found
        if isinstance(line.get(NUMBER), int)
    }
