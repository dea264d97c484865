"""Which files of this machine are sent to the hub, and when: new mail at once, other changes on file events, and those
made without a relay or a hub by their change time, once both are there. The files themselves are the outbox: no other
record says what is still to be sent."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from multi_agent_mcp.domain.entity import is_name
from multi_agent_mcp.errors import HubUnreachable, InvalidId, Refusal
from multi_agent_mcp.hub.stream import Hub
from multi_agent_mcp.hub.subjects import MAIL, Rule, directories
from multi_agent_mcp.store.authority import TOO_LARGE
from multi_agent_mcp.store.directory import QUARANTINE
from multi_agent_mcp.system.file_events import TreeWatch

if TYPE_CHECKING:
    from multi_agent_mcp.hub.publishing import Publishing

logger = logging.getLogger(__name__)

HAND_MADE = frozenset({"ipc", "agents.json", "session.yaml"}) | directories(Rule.SHARED)
"""Files and directories in which people may write."""
TRAVELLING = HAND_MADE | {"notifications", "owner_wait", "audit", ".edits"} | directories(Rule.STATE, Rule.COPY)
_BY_AGENT = frozenset({"ipc", "notifications"}) | directories(Rule.STATE, Rule.COPY)
"""Directories that hold one directory for each agent (or another partition), named by its id."""
_ASIDE = frozenset({QUARANTINE})


def travels(path: Path) -> bool:
    """Returns whether a path, relative to the session's directory, is of a file that other machines have, too."""
    if not path.parts or path.parts[0] not in TRAVELLING or path.name.startswith(".") or _ASIDE & set(path.parts):
        return False
    if path.parts[0] in _BY_AGENT and not (len(path.parts) > 2 and is_name(path.parts[1])):
        return False  # such as a copy of an agent's directory, `ipc/worker-a.bak`
    lines = (".jsonl",) if path.parts[0] in ("audit", ".edits") else ()
    logs = (".log",) if path.parts[0] == "executions" else lines
    return len(path.parts) == 1 or path.suffix in (".md", *logs)


class Changed(NamedTuple):
    """A changed file. `at` is its `st_ctime`, which cannot be set, in seconds since the epoch."""

    at: float
    path: Path
    status: os.stat_result


def changed_since(base: Path, since: float) -> Iterator[Changed]:
    """Yields the files below `base` that are sent to the hub and were changed since then."""
    pending = [str(base)]
    while pending:
        with suppress(FileNotFoundError), os.scandir(pending.pop()) as directory:  # it may be removed meanwhile
            for item in directory:
                path = Path(item.path).relative_to(base)
                if item.is_dir(follow_symlinks=False):
                    if path.parts[0] in TRAVELLING and item.name not in _ASIDE:
                        pending.append(item.path)
                elif travels(path) and item.is_file(follow_symlinks=False):
                    status = _status(item)
                    if status is not None and status.st_ctime >= since:
                        yield Changed(status.st_ctime, path, status)


def _status(item: os.DirEntry[str]) -> os.stat_result | None:
    """Returns a file's status; None if it was removed or archived meanwhile."""
    try:
        return item.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


class DueFile(NamedTuple):
    """The earliest time to send a file (by `time.monotonic`), and when it was changed (seconds since the epoch)."""

    after: float
    changed_at: float


class DueFiles:
    """The files to send. A file is due, at work, or both: if it changes while it is being sent, it is due again."""

    def __init__(self) -> None:
        self._due: dict[Path, DueFile] = {}
        self._at_work: dict[Path, float] = {}

    def __len__(self) -> int:
        return len(self._due) + len(self._at_work)

    def __iter__(self) -> Iterator[Path]:
        return iter(self._due.keys() | self._at_work.keys())

    def add(self, path: Path, changed_at: float, wait: float = 0.0) -> None:
        """Makes a file due in `wait` seconds, unless it is due already."""
        self._due.setdefault(path, DueFile(time.monotonic() + wait, changed_at))

    def ready(self) -> list[Path]:
        """Returns the files that may be sent now, in the order in which they were added."""
        now = time.monotonic()
        return [path for path, due in self._due.items() if due.after <= now]

    def pause(self, longest: float) -> float:
        """Returns the seconds until the next file may be sent; `longest` if there is none."""
        return min((due.after for due in self._due.values()), default=time.monotonic() + longest) - time.monotonic()

    @contextmanager
    def at_work(self, path: Path) -> Iterator[float]:
        """Marks a file as being sent within the context; yields the time at which it was changed."""
        due = self._due.pop(path, None)
        changed_at = self._at_work[path] = time.time() if due is None else due.changed_at
        try:
            yield changed_at
        finally:
            self._at_work.pop(path, None)

    def changed_before(self, now: float) -> float:
        """Returns the time (seconds since the epoch) before which all changes have been sent, at most `now`."""
        return min([now, *(due.changed_at for due in self._due.values()), *self._at_work.values()])


GRACE_SECONDS = 1.0
"""The delay before sending a file that may be written by a person, or that an operation may still undo."""
MARGIN_SECONDS = 10.0
"""The longest time between a change and its event."""
RETRY_SECONDS = 2.0
LONGEST_SECONDS = 60.0
AT_ONCE = 64


def is_referred_to(path: Path) -> bool:
    """Returns whether a file, by its path in the session's directory, holds what other files refer to: agents, or a
    conversation (`subjects.REFERRED`)."""
    return path.parts[0] == "agents.json" or path.name == "conversation.md"


@dataclass(eq=False)
class Noticing:
    """Notices changed files and has them published, in the relay's event loop."""

    path: Path
    hub: Hub
    publishing: Publishing
    is_whole: Callable[[], bool] = lambda: True
    """Whether this machine has back what it once wrote: before, a message may still lack its mark, and look unread."""
    due: DueFiles = field(default_factory=DueFiles)
    _asked: asyncio.Event = field(default_factory=asyncio.Event)
    _watch: TreeWatch | None = None

    def close(self) -> None:
        """Stops watching the files."""
        if self._watch is not None:
            self._watch.__exit__()

    @property
    def queued(self) -> int:
        """The number of messages and notifications that the hub does not have yet."""
        return sum(path.parts[0] in MAIL and not self.publishing.has_mail(path) for path in self.due)

    def noticed(self, path: Path) -> None:
        """Takes a changed file; `path` is relative to the session's directory."""
        if travels(path):
            kind = path.parts[0]
            is_known = kind in MAIL and self.publishing.has_mail(path)
            self.due.add(path, time.time(), GRACE_SECONDS if kind in HAND_MADE and not is_known else 0.0)
            self._asked.set()

    async def send(self, paths: Iterable[Path]) -> None:
        """Sends new mail at once. Raises `HubUnreachable`: then the caller passes it to `noticed`."""
        await asyncio.gather(*map(self._send, set(paths)))

    async def _send(self, path: Path) -> None:
        with self.due.at_work(path):
            await self.publishing.publish_mail(path, is_new=True)

    async def look_at_files(self, since: float) -> None:
        """Watches the files from now on, and notices those changed after `since` (seconds since the epoch), less
        `MARGIN_SECONDS` for events that come late."""
        if self._watch is None:
            loop = asyncio.get_running_loop()

            def noticed(path: Path) -> None:
                loop.call_soon_threadsafe(self.noticed, path)

            self._watch = TreeWatch(self.path, noticed)
            self._watch.__enter__()
        await self.note_changed(since - MARGIN_SECONDS)

    async def note_changed(self, since: float) -> None:
        """Notices the files changed after `since`, except those written by this relay."""
        found = await asyncio.to_thread(self._changed_since, since)
        for changed in found:  # oldest first: if this relay is killed, the next one continues from there
            self.due.add(changed.path, changed.at)
        self._asked.set()

    def _changed_since(self, since: float) -> list[Changed]:
        found = changed_since(self.path, since)
        return sorted(changed for changed in found if not self.publishing.is_own_file(changed.path, changed.status))

    async def run(self) -> None:
        """Publishes due files, forever."""
        while True:
            self._asked.clear()
            if self.hub.usable and self.is_whole():
                ready = self.due.ready()
                first = [path for path in ready if is_referred_to(path)]  # whatever is sent says that it comes after
                for some in (first, [path for path in ready if not is_referred_to(path)]):
                    for start in range(0, len(some), AT_ONCE):
                        await asyncio.gather(*map(self._publish, some[start : start + AT_ONCE]))
            pause = max(self.due.pause(LONGEST_SECONDS), 0.02 if self.hub.usable and self.is_whole() else 0.5)
            try:
                await asyncio.wait_for(self._asked.wait(), pause)
            except TimeoutError:
                continue

    async def _publish(self, path: Path) -> None:
        with self.due.at_work(path) as changed_at:
            try:
                if not self.publishing.is_own(path):
                    await self.publishing.publish(path)
            except InvalidId as error:  # its name stays invalid
                logger.warning("%s is not published: %s", path, error)
            except (Refusal, OSError) as error:
                logger.info("%s is not published yet: %s", path, error)
                if not isinstance(error, HubUnreachable) or error.key != f"error.{TOO_LARGE}":
                    self.due.add(path, changed_at, RETRY_SECONDS)
            except Exception as error:  # noqa: BLE001 - a door: made by a person, or by another machine
                logger.warning("%s is not published: %.300r", path, error)
