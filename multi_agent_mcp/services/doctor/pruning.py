"""The command `prune`: deletes old files of finished things. Nothing else deletes files that could still be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from multi_agent_mcp.domain.agent import AgentSession, Execution
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.question import Question
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.features import load
from multi_agent_mcp.features.ours import OURS
from multi_agent_mcp.services.doctor.tree import is_leftover
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.codec import Unreadable, codec
from multi_agent_mcp.store.durable_files import INDEXES
from multi_agent_mcp.store.workspace import CONVERSATION, Workspace
from multi_agent_mcp.system.files import Node, walk

if TYPE_CHECKING:
    from multi_agent_mcp.domain.entity import Entity
    from multi_agent_mcp.store.partition import Layout


_SAYS_SO: Mapping[str, tuple[type[Entity], Callable[[Any], object]]] = {
    "ipc": (Message, lambda message: message.read_at is not None),
    "notifications": (Notification, lambda notice: notice.read_at is not None),
    "tasks": (Task, lambda task: task.final),
    "questions": (Question, lambda question: question.closed),
    "sessions": (AgentSession, lambda session: session.ended_at is not None),
    "executions": (Execution, lambda execution: not execution.running),
}
"""How a file says that it is over (read, finished, ended), whatever directory it is in."""
LOCK_AGE = timedelta(days=30)
"""The least age of lock files to delete: they are small and recreated on use, so deleting recent ones is pointless."""
_LAID_OUT = tuple(kind for feature in OURS for kind in feature.kinds if kind.layout)
"""The optional kinds, whose files are over where their layout says so."""
_MAY_BE_OVER = re.compile(
    "".join(rf"(?P<{kind.directory}> {kind.directory}/archive/(?:[^/]+/)?[^/]+\.md ) |" for kind in _LAID_OUT)
    + r"""
      (?P<ipc>            ipc/[^/]+/archive/[^/]+/[^/]+\.md )
    | (?P<notifications>  notifications/[^/]+/archive/[^/]+/[^/]+\.md )
    | (?P<owner_wait>     owner_wait/archive/[^/]+\.md )
    | (?P<tasks>          tasks/\w[\w-]*/archive/[^/]+/[^/]+\.md )
    | (?P<histories>      tasks/_history/[^/]+\.jsonl )
    | (?P<sessions>       sessions/\w[\w-]*/archive/[^/]+/[^/]+\.md )
    | (?P<executions>     executions/\w[\w-]*/archive/[^/]+/[^/]+\.md )
    | (?P<logs>           executions/\w[\w-]*/logs/[^/]+\.log )
    | (?P<handoffs>       handoffs/\w[\w-]*/archive/[^/]+/[^/]+\.md )
    | (?P<delegations>    delegations/\w[\w-]*/archive/[^/]+/[^/]+\.md )
    | (?P<conversations>  conversations/archive/[^/]+/cnv_[0-9a-f]{12}/[^/]+\.md )
    | (?P<receipts>       receipts/tsk_[0-9a-f]{12}/(?:(?:archive/[^/]+/)?[^/]+\.md|reported\.diff) )
    | (?P<questions>      questions/archive/[^/]+/[^/]+\.md )
    | (?P<audit>          audit/[^/]+\.jsonl )
    | (?P<claims>         \.claims/[^/]+/[^/]+\.json )
    | (?P<locks>          \.locks/[^/]+\.lock )
    | (?P<index>          \.index/.+\.(?:json|jsonl|names|letters) )
    | (?P<scratch>        \.tmp/[^/]+\.tmp )
    """,
    re.VERBOSE | re.ASCII,
)
"""The paths, in the session directory, of files that may be deleted, by kind (the group's name)."""


class Prunable(NamedTuple):
    """A file that may be deleted: its path in the session directory, its kind, its size in bytes."""

    name: str
    kind: str
    size: int


class Pruning(Service):
    """Finds and deletes files that are over and older than an age: never unread mail, unfinished things, or files that
    those need."""

    def prunable(self, now: datetime, age: timedelta, *, reads_archives: bool = True) -> Iterator[Prunable]:
        """Yields archived mail, notifications, tasks, questions and hand-offs, ended sessions and reservations,
        receipts of tasks that are over, executions with their logs, ended conversations with their delegations,
        released wait-locks, the audit log, idempotency keys; lock files and scratch files of killed processes by ages
        of their own. A file may be deleted as soon as it is yielded.

        Files that refer to others come first: a delegation without its conversation would seem never to have been
        carried out. Without `reads_archives`, everything in an archive is taken to be over, which is fast, but only
        good for an estimate: somebody may have put a file there. Raises `StorageError`."""
        return _Search(self.workspace, now, age, reads_archives=reads_archives).found()

    def delete(self, item: Prunable) -> None:
        """Deletes a file, and after a conversation's own file also its directory. Raises `StorageError`."""
        path = self.workspace.path / item.name
        if item.kind == "locks":
            self.workspace.locks.remove(path.stem)
        else:
            self.workspace.files.remove(path)
        if path.name == CONVERSATION:
            self.workspace.files.remove_directory(path.parent)


class _Search:
    """One search for files older than an age."""

    def __init__(self, workspace: Workspace, now: datetime, age: timedelta, *, reads_archives: bool) -> None:
        self.workspace = workspace
        self.reads_archives = reads_archives
        self.oldest = (now - age).timestamp()
        self.oldest_lock = (now - max(age, LOCK_AGE)).timestamp()
        open_tasks = workspace.tasks.open()
        self.needed = {name for task in open_tasks for name in (task.parent_task_id, *task.dependencies)}
        self.talked_of = {
            str(message.metadata.get("conversation_id"))  # a hand-written value may be anything
            for agent_id in workspace.registry.all()
            for _, message in workspace.mailbox(agent_id).unread()
        }
        """The ids of the conversations of unread mail."""
        laid_out: Mapping[str, Layout[Any]] = {kind.directory: load(kind.layout)() for kind in _LAID_OUT}
        self.say_so = {
            **_SAYS_SO,
            **{kind: (layout.entity_type, layout.over or bool) for kind, layout in laid_out.items()},
        }
        self.conditions: dict[str, Callable[[Node], bool]] = {
            **{kind: partial(self._says_so, kind) for kind in self.say_so},
            "tasks": lambda node: node.last.partition(".")[0] not in self.needed and self._says_so("tasks", node),
            "histories": lambda node: workspace.tasks.find(PurePath(node.name).stem) is None,
            "receipts": lambda node: self._task_is_over(node.name.split("/")[1]),
            "logs": lambda node: not self._is_running(_owner(node), f"{PurePath(node.name).stem}.md"),
            "delegations": lambda node: self._is_carried_out(PurePath(node.name).stem),
            "conversations": lambda node: self._has_ended(PurePath(node.name).parent.name),
            "locks": lambda node: node.status.st_mtime < self.oldest_lock,
            "index": lambda node: not _indexed_by(workspace.path, node).exists(),
        }
        """By kind, the test whether an old file may be deleted; old files of other kinds always may."""
        self._has_ended = lru_cache(maxsize=64)(self._ended_long_ago)

    def found(self) -> Iterator[Prunable]:
        """Yields the files; a conversation's own file, which says that it has ended, after all its others, so that an
        interrupted deletion continues the next time."""
        last: list[Prunable] = []
        for node in walk(self.workspace.path):
            match = None if node.is_directory else _MAY_BE_OVER.fullmatch(node.name)
            kind = match.lastgroup if match is not None else None
            if kind is None or not self._is_over(kind, node):
                continue
            item = Prunable(node.name, kind, node.status.st_size)
            if node.name.endswith(f"/{CONVERSATION}"):
                last.append(item)
                continue
            yield item
            if kind == "tasks":
                yield from self._history_of(PurePath(node.name).stem)
        yield from last

    def _history_of(self, task_id: str) -> Iterator[Prunable]:
        """The file with the older lines of a task's history, to be deleted after the task's."""
        path = self.workspace.tasks.history_path(task_id)
        if path.is_file():
            yield Prunable(str(path.relative_to(self.workspace.path)), "histories", path.stat().st_size)

    def _is_over(self, kind: str, node: Node) -> bool:
        if kind == "scratch":
            return is_leftover(node)
        if node.status.st_mtime >= self.oldest:
            return False
        condition = self.conditions.get(kind)
        return condition is None or condition(node)

    def _says_so(self, kind: str, node: Node) -> bool:
        """Whether the file's header says that it is over. Files that cannot be read stay."""
        if not self.reads_archives and "/archive/" in node.name:
            return True
        entity_type, is_over = self.say_so[kind]
        data = self.workspace.files.read(self.workspace.path / node.name) if node.is_file else None
        try:
            return data is not None and bool(is_over(codec(entity_type).decode(data, id=PurePath(node.name).stem)))
        except Unreadable:
            return False

    def _task_is_over(self, task_id: str) -> bool:
        task = self.workspace.tasks.find(task_id)
        return task is None or task.final

    def _is_running(self, agent_id: str, name: str) -> bool:
        execution = self.workspace.executions.directory(agent_id).load(name)
        return execution is not None and execution.running

    def _is_carried_out(self, delegation_id: str) -> bool:
        delegation = self.workspace.delegations.find(delegation_id)
        conversation_id = delegation.reserved_id if delegation is not None else None
        return conversation_id is not None and self._has_ended(conversation_id)

    def _ended_long_ago(self, conversation_id: str) -> bool:
        conversation = self.workspace.conversations.find(conversation_id)
        ended_at = conversation.ended_at if conversation is not None else None
        if conversation_id in self.talked_of:
            return False
        return ended_at is not None and ended_at.timestamp() < self.oldest


def _indexed_by(base: Path, node: Node) -> Path:
    """Returns the path of the file or directory that this index is about."""
    return base / PurePath(node.name).relative_to(INDEXES).with_suffix("")


def _owner(node: Node) -> str:
    """The name of the directory below that of the kind: an agent's or conversation's id."""
    return node.name.split("/")[1]
