"""The history of a long-lived session: the files it would have left, written fast, without fsync.

`python -m benchmarks.past DIR --mail 100000 --tasks 10000 …` makes one for inspection.

Every file has the path and the form that the product gives it: the codec's output for one example, with other ids,
times and numbers. Nothing is locked and no agent is rung, so the files must be written before any process reads them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain import times
from multi_agent_mcp.domain.agent import Agent, AgentSession, Execution
from multi_agent_mcp.domain.entity import Entity, id8, new_id, new_message_id
from multi_agent_mcp.domain.history import Change, History
from multi_agent_mcp.domain.message import Conversation, Message
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.store.codec import as_text
from multi_agent_mcp.store.collection import Collection
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.files import FILE_MODE, make_directory

MINUTE = timedelta(minutes=1)
AT = datetime(1999, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
"""Stands in an example for the moment at which each of its copies was made."""
NUMBER = "4711471147114711"
"""Stands in an example's text for the number of the copy."""
WORDS = "Nothing of note happened, and this is what was said about it at the time. "

Written = Callable[[str, datetime, int], bytes]
"""A copy's file from its id, its moment and its number."""


class Stencil:
    """The file of an example, into which each copy's id, moment and number are put."""

    def __init__(self, example: Entity, example_id: str) -> None:
        text = as_text(example).replace("%", "%%")
        marks = {example_id: "%(id)s", times.format_time(AT): "%(at)s", NUMBER: "%(number)d"}
        for mark, field in marks.items():
            text = text.replace(mark, field)
        self._text = text

    def bytes(self, entity_id: str, at: datetime, number: int, **further: str) -> bytes:
        """A copy's file; `further` replaces whole words of the example."""
        text = self._text
        for mark, value in further.items():
            text = text.replace(mark, value)
        return (text % {"id": entity_id, "at": times.format_time(at), "number": number}).encode()


class Past:
    """Puts a past into the session of `workspace`: of `count` things the last is of `until` (now), each `every` (a
    minute) after the one before. Methods that make more than one file return the id of the oldest."""

    def __init__(
        self,
        workspace: Workspace,
        *,
        until: datetime | None = None,
        every: timedelta = MINUTE,
        sign: Callable[[Message], Message] | None = None,
    ) -> None:
        """With `sign` each message is signed and written by itself, which takes ten times as long."""
        self.workspace = workspace
        self.until = until or times.now()
        self.every = every
        self.sign = sign
        self._made: set[Path] = set()

    def agents(self, count: int) -> None:
        """Further workers of `admin`: `w0001` and on. They have no keys and no mailboxes until they need them."""
        registry = self.workspace.registry
        for number in range(1, count + 1):
            registry.add(Agent(id=f"w{number:04}", parent_id="admin"))

    def company(self, count: int) -> None:
        """So many further workers at work: each has 25 tasks, of which 8 are done and 2 begun, and 100 messages, of
        which 3 are unread."""
        self.agents(count)
        for number in range(1, count + 1):
            name = f"w{number:04}"
            self.finished_tasks(8, name)
            self.open_tasks(15, name)
            self.tasks_in_progress(2, name)
            self.archived_mail(97, name, "admin")
            self.unread_mail(3, name, "admin")

    def archived_mail(self, count: int, receiver_id: str = "admin", sender_id: str = "worker") -> str:
        """Read long ago."""
        inbox = self.workspace.mailbox(receiver_id).path / "archive"
        return self._mail(count, inbox, receiver_id=receiver_id, sender_id=sender_id, read_at=AT)

    def unread_mail(self, count: int, receiver_id: str = "admin", sender_id: str = "worker") -> str:
        """Waiting in the mailbox."""
        return self._mail(count, self.workspace.mailbox(receiver_id).path, receiver_id=receiver_id, sender_id=sender_id)

    def read_mail(self, count: int, receiver_id: str = "admin", sender_id: str = "worker") -> str:
        """Read, and in the mailbox itself, as if put there by a person."""
        path = self.workspace.mailbox(receiver_id).path
        return self._mail(count, path, receiver_id=receiver_id, sender_id=sender_id, read_at=AT)

    def notifications(self, count: int, agent_id: str = "worker") -> str:
        """Read long ago."""
        entity_id = new_id("ntf")
        example = Notification(id=entity_id, target_agent_id=agent_id, message=WORDS, created_at=AT, read_at=AT)
        inbox = self.workspace.notices(agent_id).path / "archive"
        return self._stamped(count, Stencil(example, entity_id).bytes, inbox, partial(new_id, "ntf"))

    def finished_tasks(self, count: int, assignee_id: str = "worker", **fields: Any) -> str:
        """Done, as many changes as a task needs for that."""
        return self._tasks(count, ("in_progress", "done"), assignee_id, fields)

    def open_tasks(self, count: int, assignee_id: str = "worker", **fields: Any) -> str:
        """To do."""
        return self._tasks(count, (), assignee_id, fields)

    def tasks_in_progress(self, count: int, assignee_id: str = "worker", **fields: Any) -> str:
        """Begun."""
        return self._tasks(count, ("in_progress",), assignee_id, fields)

    def task_with_history(self, entries: int, assignee_id: str = "worker") -> str:
        """One task in progress that was edited so often."""
        task = _task(new_id("tsk"), assignee_id, ("in_progress",))
        edits = (Change(by="admin", at=at).entry(edited=["title"]) for at in self._moments(entries))
        task = replace(task, created_at=self.until, updated_at=self.until, history=History([*task.history, *edits]))
        self.workspace.tasks.add(task)
        return task.id

    def subtasks_in_line(self, count: int, assignee_id: str = "worker") -> str:
        """Each is the only subtask of the one before; returns the topmost, which is not among them."""
        return self._line(count, assignee_id, lambda before: {"parent_task_id": before})

    def dependency_chain(self, count: int, assignee_id: str = "worker") -> str:
        """Each waits for the one before; only the first can be started."""
        return self._line(count, assignee_id, lambda before: {"dependencies": (before,)})

    def executions(self, count: int, agent_id: str = "worker", *, task_id: str | None = None) -> str:
        """Completed."""
        entity_id, task_id = new_id("exec"), task_id or new_id("tsk")
        log = f"executions/{agent_id}/logs/{entity_id}.log"
        began = Execution(id=entity_id, agent_id=agent_id, task_id=task_id, started_at=AT, log_file_path=log)
        stencil = Stencil(began.finish(AT), entity_id)
        return self._over(self.workspace.executions, agent_id, count, stencil, "exec")

    def log(self, execution_id: str, lines: int) -> None:
        """Writes a log of this many lines for an execution."""
        execution = self.workspace.executions.get(execution_id)
        path = self.workspace.execution_log(execution)
        self._require(path.parent)
        with path.open("w", encoding="utf-8") as log:
            log.writelines(
                f"[{times.format_time(at)}] call {number}: read_messages -> success\n"
                for number, at in enumerate(self._moments(lines))
            )
        path.chmod(FILE_MODE)

    def ended_sessions(self, count: int, agent_id: str = "worker") -> str:
        entity_id = new_id("ses")
        opened = AgentSession(id=entity_id, agent_id=agent_id, pid=999_999_999, created_at=AT)
        stencil = Stencil(opened.touch(AT).end(AT), entity_id)
        return self._over(self.workspace.sessions, agent_id, count, stencil, "ses")

    def conversation(self, messages: int, initiator_id: str = "worker", target_agent_id: str = "admin") -> str:
        """One active conversation; the copies in the mailboxes are not made."""
        conversation = Conversation(
            id=new_id("cnv"),
            initiator_id=initiator_id,
            target_agent_id=target_agent_id,
            status="active",
            started_at=self._first(messages),
        )
        self.workspace.conversations.add(conversation)
        path = self.workspace.conversation_messages(conversation.id).path
        metadata = {"conversation_id": conversation.id}
        self._mail(messages, path, receiver_id=target_agent_id, sender_id=initiator_id, read_at=AT, metadata=metadata)
        return conversation.id

    def _mail(self, count: int, inbox: Path, **fields: Any) -> str:
        entity_id = new_message_id()
        kind = "conversation" if "metadata" in fields else "request"
        content = WORDS * 3
        example = Message(
            id=entity_id, message_type=kind, subject=f"message {NUMBER}", created_at=AT, content=content, **fields
        )
        if self.sign is None:
            return self._stamped(count, Stencil(example, entity_id).bytes, inbox, new_message_id)
        return self._stamped(count, partial(_signed, example, self.sign), inbox, new_message_id)

    def _stamped(self, count: int, written: Written, inbox: Path, new_id: Callable[[], str]) -> str:
        """Files of an inbox: `{stamp}_{id8}.md`, in an archive by months."""
        monthly, oldest = inbox.name == "archive", ""
        for number, at in enumerate(self._moments(count)):
            entity_id = new_id()
            oldest = oldest or entity_id
            directory = inbox / f"{at:%Y-%m}" if monthly else inbox
            name = f"{times.stamp(at)}_{id8(entity_id)}.md"
            self._write(directory, name, written(entity_id, at, number))
        return oldest

    def _identified(self, count: int, stencil: Stencil, directory: Path, prefix: str) -> str:
        """Files of a collection: `{id}.md`, as old as what they tell of."""
        oldest = ""
        for number, at in enumerate(self._moments(count)):
            entity_id = new_id(prefix)
            oldest = oldest or entity_id
            self._write(directory, f"{entity_id}.md", stencil.bytes(entity_id, at, number), at)
        return oldest

    def _over(self, collection: Collection[Any], partition: str, count: int, stencil: Stencil, prefix: str) -> str:
        """Writes entities as `_identified`, and archives the finished ones."""
        oldest = self._identified(count, stencil, collection.directory(partition).path, prefix)
        collection.archive_over(partition)
        return oldest

    def _tasks(self, count: int, statuses: tuple[str, ...], assignee_id: str, fields: Mapping[str, Any]) -> str:
        entity_id = new_id("tsk")
        stencil = Stencil(_task(entity_id, assignee_id, statuses, **fields), entity_id)
        return self._over(self.workspace.tasks, assignee_id, count, stencil, "tsk")

    def _line(self, count: int, assignee_id: str, following: Callable[[str], dict[str, Any]]) -> str:
        first = replace(_task(new_id("tsk"), assignee_id, ()), created_at=self._first(count))
        self.workspace.tasks.add(first)
        example_id, before_mark = new_id("tsk"), new_id("tsk")
        stencil = Stencil(_task(example_id, assignee_id, (), **following(before_mark)), example_id)
        directory, before = self.workspace.tasks.directory(assignee_id).path, first.id
        for number, at in enumerate(self._moments(count)):
            entity_id = new_id("tsk")
            data = stencil.bytes(entity_id, at, number, **{before_mark: before})
            self._write(directory, f"{entity_id}.md", data, at)
            before = entity_id
        return first.id

    def _first(self, count: int) -> datetime:
        return self.until - count * self.every

    def _moments(self, count: int) -> Iterator[datetime]:
        first = self._first(count)
        return (first + number * self.every for number in range(1, count + 1))

    def _write(self, directory: Path, name: str, data: bytes, modified: datetime | None = None) -> None:
        self._require(directory)
        path = f"{directory}/{name}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        os.write(descriptor, data)
        if modified is not None:
            os.utime(descriptor, (modified.timestamp(), modified.timestamp()))
        os.close(descriptor)

    def _require(self, directory: Path) -> None:
        if directory not in self._made:
            make_directory(directory)
            self._made.add(directory)


def _task(task_id: str, assignee_id: str, statuses: tuple[str, ...], **fields: Any) -> Task:
    change = Change(by=assignee_id, at=AT)
    fields = {"title": f"task {NUMBER}", "description": WORDS * 3, **fields}
    task = Task.made(task_id, replace(change, by="admin"), status="todo", assignee_id=assignee_id, **fields)
    for status in statuses:
        task = task.move_to(status, change)
    return task


def _signed(example: Message, sign: Callable[[Message], Message], entity_id: str, at: datetime, number: int) -> bytes:
    read_at = None if example.read_at is None else at
    message = replace(example, id=entity_id, subject=f"message {number}", created_at=at, read_at=read_at)
    return as_text(sign(message)).encode()


def main() -> int:
    from benchmarks.team import Team

    arguments = _arguments()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    past = Past(Team.made(arguments.directory).services.workspace)
    for name in _KINDS:
        if count := getattr(arguments, name):
            print(f"{count} {name.replace('_', ' ')}", getattr(past, name)(count) or "")
    print(f"--root {arguments.directory} --session bench")
    return 0


_KINDS = (
    *("agents", "company", "archived_mail", "unread_mail", "read_mail", "notifications"),
    *("finished_tasks", "open_tasks", "tasks_in_progress"),
    *("task_with_history", "subtasks_in_line", "dependency_chain", "executions", "ended_sessions", "conversation"),
)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.past", description="Makes a session with a past.")
    parser.add_argument("directory", type=Path, metavar="DIR", help="the root; the session is called bench")
    for name in _KINDS:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=0, metavar="N")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
