"""Tasks as a collection: the older lines of a task's history have a file of their own (docs/format.md, Entities)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.history import NUMBER, History
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.store.collection import Collection

EARLIER, STANDING = "earlier_history", "standing"
"""Keys of a task's header: how many lines are in the other file, and which of those say where the task stands."""


class Tasks(Collection[Task]):
    """Lines go to `_history/{task_id}.jsonl` before the task's file is written without them, so that none is lost; only
    as many count there as the task's file says, and what a killed process has added beyond is written again."""

    def history_path(self, task_id: str) -> Path:
        return self.base / "_history" / f"{task_id}.jsonl"

    def _adopted(self, entity: Task, entity_id: str) -> Task:
        task = super()._adopted(entity, entity_id)
        earlier = task.extra.get(EARLIER)
        if not isinstance(earlier, int):
            return task
        known = {key: value for key, value in task.extra.items() if key not in (EARLIER, STANDING)}
        older = cache(lambda: self.files.read(self.history_path(entity_id)) or b"")
        history = History(task.history.newest, earlier, _numbered(task.extra.get(STANDING)), older)
        return replace(task, history=history, extra=known)

    def _shortened(self, entity: Task) -> Task:
        history, added = entity.history.shortened()
        if added:
            self.files.append(self.history_path(entity.id), added, sync=True)
        if not history.earlier:
            return entity
        standing = [{NUMBER: number, **line} for number, line in history.standing.items()]
        extra = {**entity.extra, EARLIER: history.earlier, STANDING: standing}
        return replace(entity, history=History(history.newest), extra=extra)


def _numbered(lines: Any) -> Mapping[int, Mapping[str, Any]]:
    """The standing lines by their numbers, as far as a hand has left them so."""
    found = [line for line in lines if isinstance(line, dict)] if isinstance(lines, list) else []
    return {
        line[NUMBER]: {key: value for key, value in line.items() if key != NUMBER}
        for line in found
        if isinstance(line.get(NUMBER), int)
    }
