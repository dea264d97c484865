"""Change notifications for open pages: numbered events with topics, as server-sent events (WHATWG HTML, 9.2).

An event only names topics whose files changed, and the page fetches them again. Lost events do no harm: a reconnecting
page passes the last number that it saw and gets every topic that changed since, or all topics if another server has
been started meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path

from multi_agent_mcp.features.ours import ALL
from multi_agent_mcp.system.file_events import TreeWatch

TOPIC_OF_DIRECTORY = dict(ALL.each("topics"))
GATHER_SECONDS = 0.04  # a send touches several files and is one event
HEARTBEAT_SECONDS = 15.0  # detects the connections of dead pages
RETRY_MILLISECONDS = 500
_NUMBER = re.compile("[0-9]{1,18}")


class Live:
    """The changes of one session directory, for any number of pages. Used only in the server's event loop."""

    def __init__(self, path: Path, topics: Mapping[str, str] = TOPIC_OF_DIRECTORY) -> None:
        self.path = path
        self._topics = topics
        self.boot = secrets.token_hex(4)
        """Distinguishes this server's event numbers from those of an earlier one."""
        self._count = 0
        self._changed_at = dict.fromkeys(sorted(set(topics.values())), 0)
        self._pending: set[str] = set()
        self._news = asyncio.Condition()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch = TreeWatch(path, self._noticed)

    async def __aenter__(self) -> Live:
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._watch.__enter__)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        await asyncio.to_thread(self._watch.__exit__)

    @property
    def degraded(self) -> str | None:
        """The reason why changes are polled for; None when file events work."""
        return self._watch.degraded

    @property
    def position(self) -> str:
        """The id of the newest event; a page that is rendered now asks for later ones."""
        return self._id(self._count)

    async def close(self) -> None:
        """Ends every open stream; called before the server stops."""
        async with self._news:
            self._closed = True
            self._news.notify_all()

    async def events(self, last_event_id: str | None) -> AsyncIterator[str]:
        """The stream of one page, from the event that it saw last (None: from now on)."""
        seen = self._count if last_event_id is None else self._seen(last_event_id)
        yield f"retry: {RETRY_MILLISECONDS}\n\n"
        topics = self._since(seen)
        seen = self._count  # before every yield: a change during the yield belongs to the next event
        yield self._event(seen, topics)
        while not self._closed:
            try:
                await asyncio.wait_for(self._wait_beyond(seen), HEARTBEAT_SECONDS)
            except TimeoutError:
                yield ": keep-alive\n\n"
                continue
            topics = self._since(seen)
            seen = self._count
            if topics:
                yield self._event(seen, topics)

    def _noticed(self, path: Path) -> None:
        """Called in the watching thread when a file below the session directory has changed."""
        topic = self._topics.get(path.parts[0])
        if topic is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._gather, topic)

    def _gather(self, topic: str) -> None:
        if not self._pending:
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self._publish)
        self._pending.add(topic)

    def _publish(self) -> None:
        self._count += 1
        for topic in self._pending:
            self._changed_at[topic] = self._count
        self._pending.clear()
        self._publishing = asyncio.ensure_future(self._wake())

    async def _wake(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def _wait_beyond(self, seen: int) -> None:
        async with self._news:
            await self._news.wait_for(lambda: self._closed or self._count != seen)

    def _id(self, number: int) -> str:
        return f"{self.boot}-{number}"

    def _seen(self, event_id: str) -> int:
        """The number in an event id; -1, before all events, if another server issued it."""
        boot, _, number = event_id.partition("-")
        return int(number) if boot == self.boot and _NUMBER.fullmatch(number) else -1

    def _since(self, seen: int) -> list[str]:
        return [topic for topic, changed_at in self._changed_at.items() if changed_at > seen]

    def _event(self, number: int, topics: Iterable[str]) -> str:
        return f"id: {self._id(number)}\nevent: changed\ndata: {json.dumps(list(topics))}\n\n"
