"""The documents that a search covers: mail, tasks, conversations, the logs of executions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from multi_agent_mcp.domain.conversation import Conversation
from multi_agent_mcp.domain.execution import Execution
from multi_agent_mcp.domain.ids import id8
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.times import parse_time, stamp
from multi_agent_mcp.store.entity_files import EntityFiles
from multi_agent_mcp.store.search_index import Document
from multi_agent_mcp.store.workspace import Workspace

TOPS = ("ipc", "conversations", "tasks", "executions")
LOGS = "logs"
CHUNK_BYTES = 8_192
"""The size of a log's documents, up to the next end of a line."""
_LINE_TIME = re.compile(r"\[(?P<at>[^\]\n]{20,32})\] ")

Entity = Message | Task | Conversation | Execution


@dataclass(frozen=True)
class Source:
    """One document and its entity. `key` is equal for copies of one message, as of a broadcast or in a conversation."""

    kind: str
    entity: Entity
    document: Document

    @property
    def key(self) -> tuple[str, ...]:
        if isinstance(self.entity, Message):
            return self.kind, id8(self.entity.id), stamp(self.entity.created_at), self.entity.sender_id
        return self.kind, self.entity.id

    @property
    def facts(self) -> dict[str, str]:
        """The author (`from`), the receiver (`to`) and the `task`, as far as known."""
        return dict(fact.split("=", 1) for fact in self.document.facts)


class Sources:
    """Reads the documents of files below `TOPS`; paths are relative to the session's directory."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def documents(self, path: Path, start: int = 0) -> Iterator[Document]:
        """The documents of a file for the index; of a log, those from byte `start` on."""
        return (source.document for source in self.read(path, start))

    def read(self, path: Path, start: int = 0) -> Iterator[Source]:
        """The sources in a file, none if it is not to be searched."""
        if path.suffix == ".log":
            yield from self._chunks(path, start)
        elif path.suffix == ".md" and (entity := self._load(path)) is not None:
            yield _source(entity)

    def _load(self, path: Path) -> Message | Task | Conversation | None:
        files, directory = self.workspace.files, self.workspace.path / path.parent
        match path.parts:
            case ("ipc", agent_id, *_, name):
                return EntityFiles(files, directory, Message, receiver_id=agent_id).load(name)
            case ("tasks", _, name) | ("tasks", _, "archive", _, name):
                return EntityFiles(files, directory, Task).load(name)
            case ("conversations", _, "conversation.md" as name):
                return EntityFiles(files, directory, Conversation).load(name)
            case ("conversations", _, name):
                return EntityFiles(files, directory, Message).load(name)
        return None

    def _chunks(self, path: Path, start: int) -> Iterator[Source]:
        """A log in pieces of whole lines, each with the time of its first line."""
        execution = self._execution(path)
        at = execution.started_at
        facts = _facts(**{"from": execution.agent_id, "task": execution.task_id})
        data = (self.workspace.files.read(self.workspace.path / path) or b"")[start:]
        place = 0
        while place < len(data):
            end = data.find(b"\n", place + CHUNK_BYTES) + 1 or len(data)
            text = data[place:end].decode(errors="replace")
            at = _line_time(text) or at
            yield Source("log", execution, Document(text, at, facts, start + place))
            place = end

    def _execution(self, log: Path) -> Execution:
        """The execution of a log; if its file is lost, one with only the fields that the path tells."""
        return self.workspace.executions.find(log.stem) or Execution(id=log.stem, agent_id=log.parts[1])


def _source(entity: Message | Task | Conversation) -> Source:
    match entity:
        case Message():
            facts = _facts(
                **{"from": entity.sender_id, "to": entity.receiver_id, "task": entity.metadata.get("task_id")}
            )
            return Source("message", entity, Document(f"{entity.subject}\n{entity.content}", entity.created_at, facts))
        case Task():
            facts = _facts(**{"from": entity.created_by, "to": entity.assignee_id, "task": entity.id})
            return Source("task", entity, Document(_task_text(entity), entity.created_at, facts))
        case Conversation():
            facts = _facts(**{"from": entity.initiator_id, "to": entity.target_agent_id, "task": entity.task_id})
            return Source("conversation", entity, Document(entity.purpose or "", entity.started_at, facts))


def _task_text(task: Task) -> str:
    words = [task.title, task.description, task.blocked_reason, task.completion_summary, task.next_steps]
    return "\n".join(filter(None, [*words, *(str(item.get("text", "")) for item in task.checklist)]))


def _facts(**said: object) -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in said.items() if isinstance(value, str) and value)


def _line_time(text: str) -> datetime | None:
    found = _LINE_TIME.match(text)
    return parse_time(found["at"]) if found else None
