"""From the files to the hub: what this machine has written and the hub does not have.

The files are the outbox. What was written while nobody listened is found again by its change time (`st_ctime`, which
nobody can set back) once the relay or the hub is there. What was just sent is named by its sender; everything else is
noticed by the file events, files made and edited by hand too.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.entity import Readable
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.hub import subjects
from multi_agent_mcp.hub.settings import shared_settings
from multi_agent_mcp.hub.stream import OFFSET, TIME, Hub
from multi_agent_mcp.hub.subjects import Names
from multi_agent_mcp.store.authority import Superseded, digest8
from multi_agent_mcp.store.codec.frontmatter import Unreadable
from multi_agent_mcp.store.inbox import Inbox
from multi_agent_mcp.store.workspace import Workspace

logger = logging.getLogger(__name__)

GRACE_SECONDS = 1.0
"""How long a file of a kind that people write by hand, or that an operation may still take back, is left alone."""
RETRY_SECONDS = 2.0
AT_ONCE = 64
CHUNK_BYTES = 256 << 10
KNOWN_MAX = 20_000
HAND_MADE = frozenset({"ipc", "tasks", "delegations", "conversations", "agents.json", "session.yaml"})
TRAVELLING = HAND_MADE | {"notifications", "sessions", "executions", "owner_wait", "audit"}
_ASIDE = frozenset({"quarantine"})


@dataclass(eq=False)
class Publishing:
    """Brings files to the hub. Runs in the relay's event loop; what takes locks runs in threads."""

    workspace: Workspace
    names: Names
    machine: str
    hub: Hub
    on_sent: Callable[[int, str], None]
    """Called with the revision and the operation of what was stored."""
    _due: dict[Path, float] = field(default_factory=dict)
    _known: dict[str, str] = field(default_factory=dict)
    _asked: asyncio.Event = field(default_factory=asyncio.Event)
    conflicts: int = 0

    def noticed(self, path: Path) -> None:
        """A file has changed; `path` is relative to the session's directory."""
        if _travels(path):
            grace = GRACE_SECONDS if path.parts[0] in HAND_MADE and not self._is_known_mail(path) else 0.0
            self._due.setdefault(path, time.monotonic() + grace)
            self._asked.set()

    def waiting(self) -> list[Path]:
        """What the hub does not have yet."""
        mail = [path for path in self._due if path.parts[0] in ("ipc", "notifications")]
        return [path for path in mail if str(Path(path.parts[0], path.parts[1], path.name)) not in self._known]

    @property
    def pending(self) -> int:
        """How many files there are still to look at."""
        return len(self._due)

    async def send(self, paths: Iterable[Path]) -> None:
        """Mail that was just written, at once. Raises `HubUnreachable`: then it goes later."""
        paths = list(paths)
        for path in paths:
            self._due[path] = time.monotonic()
        await asyncio.gather(*(self._publish_mail(path, is_new=True) for path in paths))
        for path in paths:
            self._due.pop(path, None)

    async def scan(self, since: float) -> None:
        """Notes every file that was changed after `since` (seconds since the epoch)."""
        found = await asyncio.to_thread(lambda: list(changed_since(self.workspace.path, since)))
        for path in found:
            self._due.setdefault(path, 0.0)
        self._asked.set()

    async def run(self) -> None:
        """Publishes what is due, for ever."""
        while True:
            self._asked.clear()
            now = time.monotonic()
            due = [path for path, moment in self._due.items() if moment <= now]
            if due and self.hub.connected:
                for start in range(0, len(due), AT_ONCE):
                    await asyncio.gather(*map(self._publish, due[start : start + AT_ONCE]))
            next_due = min(self._due.values(), default=now + 60)
            pause = max(next_due - time.monotonic(), 0.02 if self.hub.connected else 0.5)
            try:
                await asyncio.wait_for(self._asked.wait(), pause)
            except TimeoutError:
                continue

    async def _publish(self, path: Path) -> None:
        noted = self._due.get(path)
        try:
            await self._publish_kind(path)
        except (Refusal, OSError) as error:
            logger.info("%s is not published yet: %s", path, error)
            self._due[path] = time.monotonic() + RETRY_SECONDS
            return
        except (Unreadable, ValueError, LookupError) as error:
            logger.warning("%s is not published: %r", path, error)
        if self._due.get(path) == noted:
            self._due.pop(path, None)

    async def _publish_kind(self, path: Path) -> None:
        kind = path.parts[0]
        if kind in ("ipc", "notifications"):
            await self._publish_mail(path)
        elif kind in ("tasks", "delegations", "conversations"):
            await asyncio.to_thread(self._push, kind, path)
        elif kind in ("sessions", "executions") and path.suffix == ".md":
            await self._publish_own(path, subjects.SESSION if kind == "sessions" else subjects.EXECUTION)
        elif kind == "owner_wait":
            await self._publish_own(path, subjects.WAIT)
        elif kind == "agents.json":
            await asyncio.to_thread(self._push_agents)
        elif kind == "session.yaml":
            await self._publish_settings()
        else:
            await self._publish_log(path)

    async def _publish_mail(self, path: Path, *, is_new: bool = False) -> None:
        """A message or notification, once; and whether it is read, if the agent's home is here."""
        owner, name = path.parts[1], path.name
        inbox: Inbox[Any] = (self.workspace.mailbox if path.parts[0] == "ipc" else self.workspace.notices)(owner)
        found = _read(self.workspace, path)
        if found is None:
            return
        data, modified = found
        entity: Readable = inbox.hot.decode(data, path.stem, modified / 1e9)
        key = str(Path(path.parts[0], owner, name))
        kind = subjects.MESSAGE if path.parts[0] == "ipc" else subjects.NOTIFICATION
        if key not in self._known:
            unread = data if entity.read_at is None else inbox.hot.codec.encode(entity.mark_read(None))
            await self._publish_first(kind, owner, name, unread, modified, is_new=is_new)
            self._remember(key, "" if is_new else await self._known_mark(kind, owner, name))
        mark = "" if entity.read_at is None else format_time(entity.read_at)
        if mark != self._known[key] and self._is_home(owner):
            subject = self.names.own(self.machine, _mark_kind(kind), owner, name)
            await self._put(subject, json.dumps({"read_at": mark or None}).encode(), modified)
            self._remember(key, mark)

    async def _publish_first(
        self, kind: str, owner: str, name: str, data: bytes, modified: int, *, is_new: bool
    ) -> None:
        if not is_new and await self.hub.last(self.names.own("*", kind, owner, name)) is not None:
            return  # it is another machine's, or was sent before this relay began
        with suppress(Superseded):  # it is there
            await self._put(self.names.own(self.machine, kind, owner, name), data, modified, expected=0)

    async def _known_mark(self, kind: str, owner: str, name: str) -> str:
        found = await self.hub.last(self.names.own("*", _mark_kind(kind), owner, name))
        return "" if found is None else json.loads(found.data)["read_at"] or ""

    async def _publish_own(self, path: Path, kind: str) -> None:
        """The newest state of a file that only the agent's home writes."""
        owner, stem = (path.parts[1], path.stem) if kind != subjects.WAIT else (path.stem, "-")
        if not self._is_home(owner) or len(path.parts) != (2 if kind == subjects.WAIT else 3):
            return
        found = _read(self.workspace, path)
        if found is None and kind != subjects.WAIT:
            return
        data, modified = found or (b"", time.time_ns())
        if self._known.get(str(path)) != digest8(data):
            await self._put(self.names.own(self.machine, kind, owner, stem), data, modified)
            self._remember(str(path), digest8(data))

    async def _publish_log(self, path: Path) -> None:
        """What a log has grown by."""
        is_audit = path.parts[0] == "audit"
        if "." in path.stem or (not is_audit and not self._is_home(path.parts[1])):
            return  # another machine's
        name = path.stem if is_audit else f"{path.parts[1]}/{path.stem}"
        subject = self.names.log(self.machine, subjects.AUDIT if is_audit else subjects.LOG, name)
        if str(path) not in self._known:
            last = await self.hub.last(subject, self.names.log_stream)
            self._remember(str(path), str(int(last.headers[OFFSET]) + len(last.data)) if last is not None else "0")
        found = _read(self.workspace, path)
        offset = int(self._known[str(path)])
        data, modified = found or (b"", 0)
        while offset < len(data):
            chunk = data[offset : offset + CHUNK_BYTES]
            await self._put(subject, chunk, modified, offset=offset)
            offset += len(chunk)
            self._remember(str(path), str(offset))

    async def _publish_settings(self) -> None:
        data = shared_settings(self.workspace)
        subject = self.names.shared(subjects.SETTINGS)
        found = await self.hub.last(subject)
        if found is None or found.data != data:
            try:
                await self._put(subject, data, time.time_ns(), expected=found.sequence if found else 0)
            except Superseded:
                self.conflicts += 1

    def _push(self, kind: str, path: Path) -> None:
        """A shared file that was made or edited by hand. Runs in a thread, with the entity's lock."""
        if kind == "conversations":
            if path.name != "conversation.md":
                return  # a copy of mail
            pushed = self.workspace.conversations.push(path.parts[1])
        else:
            pushed = (self.workspace.tasks if kind == "tasks" else self.workspace.delegations).push(path.stem)
        self.conflicts += pushed is not None

    def _push_agents(self) -> None:
        for agent_id in self.workspace.registry.edited():
            self.conflicts += not self.workspace.registry.push(agent_id)

    async def _put(
        self, subject: str, data: bytes, modified: int, *, expected: int | None = None, offset: int | None = None
    ) -> None:
        headers = {TIME: str(modified)} if offset is None else {TIME: str(modified), OFFSET: str(offset)}
        op = secrets.token_hex(8)
        stored = await self.hub.put(subject, data, op, headers, expected=expected)
        if offset is None:  # a log has revisions of its own
            self.on_sent(stored, op)

    def _is_home(self, agent_id: str) -> bool:
        agent = self.workspace.registry.all().get(agent_id)
        return agent is not None and agent.machine == self.machine

    def _is_known_mail(self, path: Path) -> bool:
        return path.parts[0] == "ipc" and str(Path("ipc", path.parts[1], path.name)) in self._known

    def remember_mail(self, kind: str, owner: str, name: str, mark: str) -> None:
        """The hub has this message or notification, with this mark `read_at`."""
        self._remember(str(Path("ipc" if kind == subjects.MESSAGE else "notifications", owner, name)), mark)

    def _remember(self, key: str, value: str) -> None:
        self._known.pop(key, None)
        self._known[key] = value
        while len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]


def _mark_kind(kind: str) -> str:
    return subjects.READ if kind == subjects.MESSAGE else subjects.SEEN


def _read(workspace: Workspace, path: Path) -> tuple[bytes, int] | None:
    """A file's bytes and when it was changed; None when it has gone."""
    whole = workspace.path / path
    data = workspace.files.read(whole)
    try:
        return None if data is None else (data, whole.stat().st_mtime_ns)
    except FileNotFoundError:
        return None


def _travels(path: Path) -> bool:
    """Whether a path, relative to the session's directory, is of a file that other machines have, too."""
    if not path.parts or path.parts[0] not in TRAVELLING or path.name.startswith(".") or _ASIDE & set(path.parts):
        return False
    logs = (".log",) if path.parts[0] == "executions" else (".jsonl",) if path.parts[0] == "audit" else ()
    return len(path.parts) == 1 or path.suffix in (".md", *logs)


def changed_since(base: Path, since: float) -> Iterator[Path]:
    """The files below that were changed since then and travel."""
    pending = [str(base)]
    while pending:
        with os.scandir(pending.pop()) as directory:
            for item in directory:
                path = Path(item.path).relative_to(base)
                if item.is_dir(follow_symlinks=False):
                    if path.parts[0] in TRAVELLING and item.name not in _ASIDE:
                        pending.append(item.path)
                elif _travels(path) and item.is_file(follow_symlinks=False):
                    status = item.stat(follow_symlinks=False)
                    if status.st_ctime >= since:
                        yield path
