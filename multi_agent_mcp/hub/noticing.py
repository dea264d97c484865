"""Decides which files of this machine are sent to the hub, and when: new mail at once, other changes on file events,
and those made without a relay or a hub by their change time, once both are there. The files themselves are the outbox:
no other record says what is still to be sent."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from multi_agent_mcp.errors import HubUnreachable, InvalidId, Refusal
from multi_agent_mcp.hub.changed_files import HAND_MADE, Changed, changed_since, travels
from multi_agent_mcp.hub.due_files import DueFiles
from multi_agent_mcp.hub.publishing import MAIL, Publishing
from multi_agent_mcp.hub.stream import Hub
from multi_agent_mcp.store.authority import TOO_LARGE
from multi_agent_mcp.system.file_events import TreeWatch

logger = logging.getLogger(__name__)

GRACE_SECONDS = 1.0
"""The delay before sending a file that may be written by hand, or that an operation may still undo."""
MARGIN_SECONDS = 10.0
"""The longest time between a change and its event."""
RETRY_SECONDS = 2.0
LONGEST_SECONDS = 60.0
AT_ONCE = 64


@dataclass(eq=False)
class Noticing:
    """Notices changed files and has them published, in the relay's event loop."""

    path: Path
    hub: Hub
    publishing: Publishing
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
            if self.hub.usable:
                ready = self.due.ready()
                for start in range(0, len(ready), AT_ONCE):
                    await asyncio.gather(*map(self._publish, ready[start : start + AT_ONCE]))
            pause = max(self.due.pause(LONGEST_SECONDS), 0.02 if self.hub.usable else 0.5)
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
            except Exception as error:  # noqa: BLE001 - a door: made by a hand, or by another machine
                logger.warning("%s is not published: %.300r", path, error)
