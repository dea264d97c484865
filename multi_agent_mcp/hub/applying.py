"""From the hub into the files: what other machines wrote, in the hub's order, each value as often as need be.

A value may come again (the position is written after the files), may be older than the file (another process was
faster) and may be nonsense (any joined machine can publish): applying it twice does nothing, the older one loses, and
nonsense is logged and passed over.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.ids import agent_id as parse_agent_id
from multi_agent_mcp.domain.ids import entity_id
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.times import parse_time
from multi_agent_mcp.errors import InvalidArguments, Refusal, StorageError
from multi_agent_mcp.hub import subjects
from multi_agent_mcp.hub.settings import accept_settings
from multi_agent_mcp.hub.stream import OFFSET, TIME, WAS, Stored
from multi_agent_mcp.hub.subjects import Names, Own
from multi_agent_mcp.store.codec.frontmatter import Unreadable, codec
from multi_agent_mcp.store.inbox import file_name
from multi_agent_mcp.store.tasks import LINE
from multi_agent_mcp.store.workspace import Workspace

logger = logging.getLogger(__name__)

BULK = 32
_OUR_FILE = re.compile(r"[^/\0.][^/\0]*\.md")
_DAY = re.compile(r"\d{8}")
_EXECUTION = re.compile(r"exec_[0-9a-f]{12}")
_NONSENSE = (Unreadable, LookupError, ValueError, TypeError, AttributeError, RecursionError, Refusal)


class Consequences(Protocol):
    """What follows from a value once its file is there. None of them raises."""

    def task_changed(self, task: Task) -> None: ...

    def arrived(self, message: Message) -> None: ...

    def notified(self, notice: Notification) -> None: ...

    def moved_in(self, agent: Agent) -> None:
        """This machine is the home of an agent now."""


@dataclass(eq=False)
class Applying:
    """Writes values into the files of one session."""

    workspace: Workspace
    names: Names
    machine: str
    consequences: Consequences

    def apply(self, batch: Sequence[Stored], *, restoring: bool) -> list[Callable[[], None]]:
        """Applies them in order; durable when it returns. Returns what is to be done about them then. `restoring`: what
        this machine itself wrote is applied, too, because its files were lost. Raises `StorageError`."""
        then: list[Callable[[], None]] = []
        with self.workspace.files.in_bulk() if len(batch) > BULK else nullcontext():
            for stored in batch:
                try:
                    then += self._apply(stored, restoring=restoring)
                except StorageError:
                    raise
                except _NONSENSE as error:
                    logger.warning("%s (revision %d) is passed over: %r", stored.subject, stored.sequence, error)
        return then

    def apply_logs(self, batch: Sequence[Stored]) -> None:
        """Pieces of logs. Durable when it returns. Raises `StorageError`."""
        with self.workspace.files.in_bulk() if len(batch) > BULK else nullcontext():
            for stored in batch:
                try:
                    self._apply_log(stored)
                except StorageError:
                    raise
                except _NONSENSE as error:
                    logger.warning("%s (revision %d) is passed over: %r", stored.subject, stored.sequence, error)

    def _apply_log(self, stored: Stored) -> None:
        machine, kind, name = stored.subject.removeprefix(f"{self.names.root}.log.").split(".")
        if machine == self.machine:
            return
        owner, _, stem = subjects.unquoted(name).partition("/")
        if kind == subjects.AUDIT and _DAY.fullmatch(owner):
            path = self.workspace.path / "audit" / f"{owner}.{machine}.jsonl"
        elif kind == subjects.LOG and _EXECUTION.fullmatch(stem) and self._is_home(machine, owner):
            path = self.workspace.path / "executions" / parse_agent_id(owner) / "logs" / f"{stem}.log"
        else:
            return
        self.workspace.files.extend(path, int(stored.headers[OFFSET]), stored.data)

    def _apply(self, stored: Stored, *, restoring: bool) -> list[Callable[[], None]]:
        what = self.names.parse(stored.subject)
        if isinstance(what, str):
            return self._shared(what, stored)
        if what is None or (what.machine == self.machine and not restoring):
            return []
        if what.kind in (subjects.MESSAGE, subjects.NOTIFICATION):
            return self._arrival(what, stored)
        if self._is_home(what.machine, what.owner):
            self._state(what, stored)
        return []

    def _shared(self, key: str, stored: Stored) -> list[Callable[[], None]]:
        kind, _, name = key.partition(".")
        if kind == subjects.SETTINGS:
            accept_settings(self.workspace, stored.data)
        elif kind == subjects.AGENT:
            agent = self.workspace.registry.accept(parse_agent_id(name), stored.shared)
            if agent is not None and not agent.removed:
                self.workspace.make_inboxes(agent.id)
                if agent.machine == self.machine:
                    return [lambda: self.consequences.moved_in(agent)]
        elif kind == LINE:
            self.workspace.tasks.accept_line(name, stored.data)
        else:
            return self._entity(kind, name, stored)
        return []

    def _entity(self, kind: str, name: str, stored: Stored) -> list[Callable[[], None]]:
        known: dict[str, Any] = {
            subjects.TASK: self.workspace.tasks,
            subjects.CONVERSATION: self.workspace.conversations,
            subjects.DELEGATION: self.workspace.delegations,
        }
        was = stored.headers.get(WAS)
        written = known[kind].accept(
            entity_id(kind, name), stored.shared, _time(stored), was=int(was) if was is not None else None
        )
        if not written or kind != subjects.TASK or not stored.data:
            return []
        task = self.workspace.tasks.find(name)
        return [] if task is None else [lambda: self.consequences.task_changed(task)]

    def _arrival(self, what: Own, stored: Stored) -> list[Callable[[], None]]:
        name = _file(what.name)
        if what.kind == subjects.NOTIFICATION:
            notice = self.workspace.notices(what.owner).accept(name, stored.data, _time(stored))
            return [lambda: self.consequences.notified(notice)] if notice is not None and self._is_mine(what) else []
        message = self.workspace.mailbox(what.owner).accept(name, stored.data, _time(stored))
        if message is None:
            return []
        self._copy(message)
        return [lambda: self.consequences.arrived(message)] if self._is_mine(what) else []

    def _copy(self, message: Message) -> None:
        """Puts what was said in a conversation into its directory, too, as its sender has done."""
        if message.message_type != "conversation" or "conversation_id" not in message.metadata:
            return
        conversation = self.workspace.conversations.find(entity_id("cnv", message.metadata["conversation_id"]))
        if conversation is not None and conversation.has(message.sender_id):
            with suppress(FileExistsError):
                self.workspace.conversation_messages(conversation.id).create(file_name(message), message)

    def _state(self, what: Own, stored: Stored) -> None:
        """What the home of an agent says of it."""
        if what.kind == subjects.READ:
            inbox = self.workspace.mailbox(what.owner)
            inbox.accept_read(_file(what.name), parse_time(json.loads(stored.data)["read_at"]))
        elif what.kind == subjects.SEEN:
            notices = self.workspace.notices(what.owner)
            notices.accept_read(_file(what.name), parse_time(json.loads(stored.data)["read_at"]))
        elif what.kind == subjects.SESSION:
            self.workspace.sessions.accept_copy(entity_id("ses", what.name), stored.data, what.owner, _time(stored))
        elif what.kind == subjects.EXECUTION:
            self.workspace.executions.accept_copy(entity_id("exec", what.name), stored.data, what.owner, _time(stored))
        elif what.kind == subjects.WAIT:
            waits, name = self.workspace.owner_waits, f"{parse_agent_id(what.owner)}.md"
            if stored.data:
                waits.replace(name, codec(waits.codec.entity_type).decode(stored.data))
            else:
                waits.remove(name, sync=True)

    def _is_mine(self, what: Own) -> bool:
        agent = self.workspace.registry.all().get(what.owner)
        return agent is not None and agent.machine == self.machine

    def _is_home(self, machine: str, agent_id: str) -> bool:
        """Whether a machine is, or was once, an agent's home."""
        agent = self.workspace.registry.all().get(agent_id)
        return agent is not None and machine in (agent.machine, *agent.extra.get("machines", ()))


def _file(name: str) -> str:
    """A name that a file of an inbox may have. Raises `InvalidArguments`."""
    if not _OUR_FILE.fullmatch(name):
        raise InvalidArguments("bad_text", name=repr(name)[:80])
    return name


def _time(stored: Stored) -> int:
    """When the value was written, in nanoseconds since the epoch. Raises `ValueError`."""
    return int(stored.headers[TIME])
