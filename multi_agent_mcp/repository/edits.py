"""Who edits what: notes edits, tells agents that edit one file, lists them (docs/protocol.md, Edits).

Everything here is best effort: a line that is lost costs a notification, never work."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.text import named
from multi_agent_mcp.domain.times import format_time, parse_time
from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.hosts import tool_inputs
from multi_agent_mcp.repository import edit_log
from multi_agent_mcp.repository.reservation import EDIT_OVERLAP, FileEdit, episode, overlap_notice
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.records import Record
from multi_agent_mcp.system.file_status import common_directory, modified_at, tree_of
from multi_agent_mcp.system.files import storage_errors
from multi_agent_mcp.system.git import root_commit

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.hooks.first_look import ToolCall
    from multi_agent_mcp.services.notifications.writing import NoticeWriter

logger = logging.getLogger(__name__)

ARRIVED_MAX = 20
"""The newest files of another machine's agent that are looked at."""


@dataclass(eq=False)
class Edits(Service):
    """The edits of one team. `minutes` (limits.edit_overlap_minutes): two edits of one file within them overlap."""

    notice_writer: NoticeWriter

    def hook_settings(self) -> dict[str, Any]:
        """What a hook must know (`repository/edit_log.py`), written for the next one."""
        path = str(self.workspace.path)
        known = edit_log.settings(path)
        return self._write_settings({}) if known is None else known

    def tools(self) -> Mapping[str, Mapping[str, Sequence[str]]]:
        """Which tools of all hosts edit files, and by which keys (`hosts.tool_inputs`)."""
        found: Mapping[str, Mapping[str, Sequence[str]]] = self.hook_settings()["tools"]
        return found

    def edited(self, agent_id: str, call: ToolCall, is_noted: bool) -> None:
        """Notes the edits of a host's call, unless they are noted, and tells those who edit the same files."""
        if call.paths and not is_noted:
            self.note(agent_id, call.paths, call.cwd)
        if call.paths:
            self.tell(agent_id, call.paths, call.cwd)

    def note(self, agent_id: str, paths: Sequence[str], cwd: str) -> None:
        """Notes that an agent has edited the files at these absolute paths. Never raises."""
        try:
            self._append(agent_id, self._located(paths, cwd))
        except Refusal as refusal:
            logger.warning("edits of %s are not noted: %s", agent_id, refusal)

    def tell(self, agent_id: str, paths: Sequence[str], cwd: str) -> None:
        """Tells the agents with open tasks that edit one of these files, among them this one, once for each file and
        episode. Never raises: the next edit tries again."""
        for edited in self._located(paths, cwd):
            try:
                self.tell_overlap(edited, agent_id)
            except Refusal as refusal:
                logger.warning("that %s is edited by several is not told: %s", edited.path, refusal)

    def arrived(self, agent_id: str) -> None:
        """Tells of the overlaps of edits that have come from the agent's own machine: whoever edited at the same time
        here did not see them. Never raises."""
        since = time.time() - self.session.settings.limits.edit_overlap_minutes * 60
        lines = edit_log.all_edits(str(self.workspace.path), since)
        mine = (edit_log.Edited(line.path, line.repository) for line in lines if line.agent_id == agent_id)
        for edited in list(dict.fromkeys(mine))[:ARRIVED_MAX]:
            try:
                self.tell_overlap(edited, agent_id)
            except Refusal as refusal:
                logger.warning("that %s is edited by several is not told: %s", edited.path, refusal)

    def tell_overlap(self, edited: edit_log.Edited, agent_id: str) -> None:
        """Tells those who edit a file together with this agent. Raises `StorageError`."""
        window = timedelta(minutes=self.session.settings.limits.edit_overlap_minutes)
        since = time.time() - window.total_seconds()
        path = str(self.workspace.path)
        known = [_parsed(edit) for edit in edit_log.edits_at(path, edited, 0)]
        of = episode([edit for edit in known if edit is not None], window)
        recent = {edit.agent_id: edit for edit in of if edit.at.timestamp() >= since}
        involved = {name: edit for name, edit in recent.items() if self._is_at_work(edit)}
        if agent_id not in involved or len(involved) < 2:
            return
        for name, edit in involved.items():
            others = sorted(set(involved) - {name}, key=lambda other: involved[other].at, reverse=True)
            reason = self.notice_writer.texts("edits.overlap", path=named(edited.path), agents=", ".join(others))
            notice = overlap_notice(of, edit, others[0], reason)
            self.notice_writer.put_first(self.notice_writer.worded(notice, f"notice.{EDIT_OVERLAP}"))
        self._note_told(edited, involved)

    def recent(self, path: str | None = None) -> list[FileEdit]:
        """The last edit of each file by each agent within the window, newest first; of one path, or of what is below
        it."""
        found: dict[tuple[str, str | None, str], FileEdit] = {}
        for line in edit_log.all_edits(
            str(self.workspace.path), time.time() - self.session.settings.limits.edit_overlap_minutes * 60
        ):
            edit = _parsed(line)
            if edit is not None and (path is None or _is_below(edit.path, path)):
                found.setdefault((edit.path, edit.repository, edit.agent_id), edit)
        return sorted(found.values(), key=lambda edit: edit.at, reverse=True)

    def shared(self, edits: Iterable[FileEdit]) -> dict[tuple[str, str | None], list[str]]:
        """The files that several agents with open tasks edit, each with their ids."""
        found: dict[tuple[str, str | None], list[str]] = {}
        for edit in edits:
            if self._is_at_work(edit):
                found.setdefault((edit.path, edit.repository), []).append(edit.agent_id)
        return {file: sorted(agents) for file, agents in found.items() if len(agents) > 1}

    def overlaps(self) -> dict[str, list[str]]:
        """The files that were told of as edited by several agents which still work, by agent; without reading logs."""
        found: dict[str, list[str]] = {}
        for key, (moment, agents) in edit_log.told(str(self.workspace.path)).items():
            working = [name for name in agents if self.workspace.tasks.in_progress(name)]
            if time.time() - moment < self.session.settings.limits.edit_overlap_minutes * 60 and len(working) > 1:
                for name in working:
                    found.setdefault(name, []).append(key.partition(":")[2])
        return found

    def edited_for(self, task: Task) -> dict[str | None, list[str]]:
        """The paths that a task's agent edited for it, by repository."""
        found: dict[str | None, dict[str, None]] = {}
        for edit in edit_log.all_edits(str(self.workspace.path), 0):
            if edit.task_id == task.id and edit.agent_id == task.assignee_id:
                found.setdefault(edit.repository, {})[edit.path] = None
        return {repository: sorted(paths) for repository, paths in found.items()}

    def _is_at_work(self, edit: FileEdit) -> bool:
        """Whether the task of an edit is still open and its agent's."""
        task: Task | None = None
        with suppress(StorageError):  # a line that a person wrote may name anything
            task = self.workspace.tasks.indexed(edit.task_id or "", edit.agent_id)
        return task is not None and edit.agent_id in self.workspace.registry.active()

    def _located(self, paths: Sequence[str], cwd: str) -> list[edit_log.Edited]:
        path, known = str(self.workspace.path), self.hook_settings()["repositories"]
        found = edit_log.located(path, paths, cwd, known)
        if found is None:
            trees = {tree for one in paths if (tree := tree_of(one)) is not None}
            fresh = {common_directory(tree): _repository_id(tree) for tree in trees}
            known = self._write_settings({**known, **fresh})["repositories"]
            found = edit_log.located(path, paths, cwd, known)
        return found or []

    def _write_settings(self, repositories: Mapping[str, str]) -> dict[str, Any]:
        facts = {
            "settings_at": modified_at(self.workspace.settings_path),
            "minutes": self.session.settings.limits.edit_overlap_minutes,
            "tools": tool_inputs(),
            "notes": "reservations" in self.session.features,
            "repositories": {**repositories},
        }
        self._record("hook").write(facts, durable=False)
        return facts

    def _append(self, agent_id: str, edited: Sequence[edit_log.Edited]) -> None:
        path = str(self.workspace.path)
        with storage_errors(Path(edit_log.directory(path))):
            edit_log.append(path, agent_id, edited, edit_log.task_in_hand(path, agent_id))

    def _note_told(self, edited: edit_log.Edited, involved: Iterable[str]) -> None:
        now = time.time()
        told = edit_log.told(str(self.workspace.path))
        recent = {
            key: entry
            for key, entry in told.items()
            if now - entry[0] < self.session.settings.limits.edit_overlap_minutes * 60
        }
        self._record("told").write({**recent, edit_log.told_key(edited): [now, sorted(involved)]}, durable=False)

    def _record(self, name: str) -> Record:
        return Record(self.workspace.files, Path(edit_log.directory(str(self.workspace.path))) / f"{name}.json")


def edit_answer(edit: FileEdit) -> dict[str, Any]:
    """An edit in the answers of commands and of the console."""
    return {"path": edit.path, "agent_id": edit.agent_id, "task_id": edit.task_id, "at": format_time(edit.at)}


def _repository_id(tree: str) -> str:
    """What distinguishes repositories, the same for all clones and worktrees: the first commit; without one, where it
    is."""
    return (root_commit(tree) or hashlib.sha256(common_directory(tree).encode(errors="replace")).hexdigest())[:12]


def _is_below(path: str, asked: str) -> bool:
    wanted = asked.removeprefix("./").rstrip("/")
    return path == wanted or path.startswith(f"{wanted}/")


def _parsed(line: edit_log.Edit) -> FileEdit | None:
    at = parse_time(line.at)
    return None if at is None else FileEdit(line.path, line.repository, line.agent_id, line.task_id, at)
