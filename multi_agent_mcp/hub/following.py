"""Following the hub: applies the values of other machines here in the hub's order, as long as it is the same hub."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from multi_agent_mcp.errors import HubReplaced, HubUnreachable, StorageError
from multi_agent_mcp.hub.restoring import Written, running
from multi_agent_mcp.hub.stream import OP, Hub, Stored, StreamState
from multi_agent_mcp.hub.subjects import MESSAGE, NOTIFICATION, REFERRED, Own

if TYPE_CHECKING:
    from multi_agent_mcp.hub.applying import Applying, Disk
    from multi_agent_mcp.hub.outgoing import Noticing
    from multi_agent_mcp.store.records import Record

# This machine's progress in applying the hub's streams, and the check that the hub is still the same one.


class Progress:
    """The content of `.share/position.json`. A power cut may leave an earlier one: then some values are applied twice.

    `identity`: of the hub's stream. `sequence`, `log_sequence`: up to where its values and its logs are in the files.
    `scanned`: the time up to which all changes of files here were sent (seconds since the epoch). `witness`: the newest
    revision that the hub is known to have had, and its operation. `restore_until`, `restore_logs_until`: the positions
    up to which a machine with new files applies its own values, too.
    """

    def __init__(self, record: Record) -> None:
        self._record = record
        noted = record.read() or {}
        self.identity = str(noted.get("identity", ""))
        self.sequence = int(noted.get("sequence", 0))
        self.log_sequence = int(noted.get("log_sequence", 0))
        self.scanned = float(noted.get("scanned", 0))
        revision, operation = noted.get("witness", (0, ""))
        self.witness = (int(revision), str(operation))
        self.restore_until = int(noted.get("restore_until", 0))
        self.restore_logs_until = int(noted.get("restore_logs_until", 0))
        self._noted = self._place

    @property
    def _place(self) -> tuple[object, ...]:
        return self.identity, self.sequence, self.log_sequence, self.restore_until, self.scanned > 0

    def note(self) -> None:
        """Writes the progress if it has changed."""
        if self._noted == (place := self._place):
            return
        facts = {
            "identity": self.identity,
            "sequence": self.sequence,
            "log_sequence": self.log_sequence,
            "scanned": self.scanned,
            "witness": self.witness,
            "restore_until": self.restore_until,
            "restore_logs_until": self.restore_logs_until,
        }
        self._record.write(facts)
        self._noted = place

    @property
    def is_new(self) -> bool:
        """Whether no value of the hub was ever applied here."""
        return self.sequence == self.restore_until == 0

    def begin(self, last: int, last_log: int) -> None:
        """Begins to restore all values up to these positions, including this machine's own. This is written at once, so
        that files made here in the meantime do not count as received from the hub if the relay dies. Raises
        `StorageError`: then it has not begun."""
        self.restore_until, self.restore_logs_until = last, last_log
        try:
            self.note()
        except StorageError:
            self.restore_until = self.restore_logs_until = 0
            raise

    @property
    def is_restoring(self) -> bool:
        return self.sequence < self.restore_until

    @property
    def is_restoring_logs(self) -> bool:
        return self.log_sequence < self.restore_logs_until

    def witnessed(self, revision: int, operation: str) -> None:
        self.witness = max(self.witness, (revision, operation))

    @property
    def newest(self) -> int:
        """The newest revision that this machine had of the hub."""
        return max(self.witness[0], self.sequence)

    async def recognises(self, hub: Hub, state: StreamState, newest: int) -> bool:
        """Returns whether this is the hub followed so far, or its successor (see `hub.reseeding`), to which all files
        are sent again. A hub restored from an old copy may have grown again since: then the witness's revision belongs
        to another operation. `newest` is that of before the state was asked for, as this machine's own values go on
        growing meanwhile. Raises `HubUnreachable`."""
        identity, _, predecessor = state.identity.partition(" after ")
        if self.identity in ("", identity):
            self.identity = identity
            return state.last_sequence >= newest and await self._is_as_witnessed(hub)
        if predecessor != self.identity:
            return False
        self.scanned, self.log_sequence = 0.0, 0  # before the identity: `note` may be called in between
        self.identity = identity
        return True

    async def _is_as_witnessed(self, hub: Hub) -> bool:
        revision, operation = self.witness
        found = await hub.at(revision) if revision else None
        return found is None or found.headers.get(OP) == operation


logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""The interval of polling without any sign of new values."""
RETRY_SECONDS = 1.0
DOUBT_SECONDS = 30.0
MANY = 5_000
"""The number of values from which on several processes are worth the second that they take to start."""
ROUND = 4096
"""The approximate number of values that several processes write together."""
AHEAD = 2
"""The number of rounds handed over in advance, so that no process idles."""
APPLYING = "what other machines wrote"
T = TypeVar("T")


class Following:
    """Applies the hub's values, in the relay's event loop; files are written in one thread, agents rung in another.
    `on_news` is called on every change to be reported to others. `replaced`: the hub is older than it was before."""

    def __init__(
        self,
        hub: Hub,
        applying: Applying,
        noticing: Noticing,
        progress: Progress,
        disk: Disk,
        on_news: Callable[[], None],
    ) -> None:
        self.hub = hub
        self.applying = applying
        self.publishing = noticing.publishing
        self.noticing = noticing
        self.progress = progress
        self.disk = disk
        self.replaced = False
        self.synchronised = False
        self._on_news = on_news
        self._connections = 0
        self._claimed = 0
        self._announced = 0
        self._referred_until = 0
        self._doubted_at: float | None = None
        self._restored = False
        self._begun: str | None = None
        """The identity of the hub to which all files are being sent from the beginning."""
        self._wake = asyncio.Event()
        self._applier = ThreadPoolExecutor(1, "apply")
        self._ringer = ThreadPoolExecutor(1, "ring")

    def wake(self) -> None:
        """Makes `run` look for new values."""
        self._wake.set()

    def require(self) -> None:
        """Raises `HubReplaced` or `HubUnreachable`."""
        if self.replaced:
            raise HubReplaced
        if not self.hub.usable:
            raise HubUnreachable

    def connection_changed(self) -> None:
        self._connections += 1
        self.synchronised = False
        self.wake()

    def claimed(self, position: int, last: int) -> None:
        """Takes another machine's position and the last revision that it has stored."""
        self._claimed = max(self._claimed, position)
        newest = max(position, last)
        self._announced = max(self._announced, newest)
        if newest > self.progress.sequence:
            self.wake()

    def found_replaced(self) -> None:
        if not self.replaced:
            revision, _ = self.progress.witness
            logger.error("the hub is older than what was had of it (revision %d): nothing is exchanged", revision)
            self.replaced, self.hub.recognised = True, False
            self._on_news()

    async def run(self) -> None:
        """Applies new values in order, forever; after each connection it first checks that it is the same hub."""
        while True:
            self._wake.clear()
            try:
                if self.hub.connected and (not self.replaced or await self._is_made_anew()):
                    await self._follow()
                    self.disk.took(APPLYING)
            except HubUnreachable as refusal:
                logger.info("the hub does not answer: %s", refusal)
            except (StorageError, OSError) as refusal:
                self.disk.refused(APPLYING, refusal)
                self._on_news()
                await asyncio.sleep(RETRY_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()

    async def look_at_files(self) -> None:
        """Starts noticing changes of files here, and notices once those since the last scan."""
        await self.noticing.look_at_files(self.progress.scanned)

    async def _follow(self) -> None:
        if not self.synchronised:
            await self._synchronise()
        if not self.synchronised:
            return
        await self._catch_up()
        # If another machine has had later revisions than there are now, the hub was replaced.
        claimed = self._claimed  # it may grow with the hub while the hub is asked
        if claimed > self.progress.sequence and (state := await self.hub.state()).last_sequence < claimed:
            self._found_older(state)

    async def _synchronise(self) -> None:
        """Checks that it is the same hub, and exchanges everything with it. If the connection changes meanwhile, it
        ends without a result, and `run` begins again: the hub on the new connection has not been recognised."""
        connection, newest, followed = self._connections, self.progress.newest, self.progress.identity
        state = await self.hub.state()
        recognised = await self.progress.recognises(self.hub, state, newest)
        if connection != self._connections:
            return
        if not recognised:
            self._found_older(state)
            return
        if self.progress.identity != followed:
            self.replaced = False  # meanwhile another machine may have said that of the former hub
        self.hub.recognised = True
        self._doubted_at = None
        if not self.progress.scanned and self._begun != state.identity:
            self._claimed = self._announced = 0
            self.publishing.begin_anew(state.first)
            self._begun = state.identity
        if self.progress.is_new:
            logs = await self.hub.state(self.hub.names.log_stream)
            self.progress.begin(state.last_sequence, logs.last_sequence)
            await self.noticing.note_changed(0.0)  # before values are received
        await self._catch_up()
        await self.look_at_files()  # if nothing was scanned yet: all files not written by this relay
        await self._in_applier(self.publishing.keep_newest)
        if connection != self._connections:
            return
        self.synchronised = True
        self._do_soon(self.applying.at_home())
        self._on_news()

    def _found_older(self, state: StreamState) -> None:
        """Marks the hub as replaced. Raises `HubUnreachable` instead while that may be temporary: of several servers, a
        former leader may return old data until it notices that it is not the leader any more."""
        self._doubted_at = self._doubted_at or time.monotonic()
        if state.replicas > 1 and time.monotonic() - self._doubted_at < DOUBT_SECONDS:
            raise HubUnreachable
        self.found_replaced()

    async def _is_made_anew(self) -> bool:
        """Returns whether the hub that was too old has a successor; then everything is exchanged again."""
        newest, state = self.progress.newest, await self.hub.state()
        if state.identity.partition(" ")[0] == self.progress.identity:
            return False
        if not await self.progress.recognises(self.hub, state, newest):
            return False
        self.replaced = self.synchronised = False
        return True

    async def _catch_up(self) -> None:
        if self.progress.restore_until - self.progress.sequence > MANY and not self._restored:
            self._restored = True  # if it fails, the rest is applied here
            await self._restore()
        while batch := await self._next():
            if not batch[-1].is_last and batch[-1].sequence > self._referred_until:
                await self._get_referred()
            await self._apply(batch)
            if batch[-1].is_last:  # later values are announced
                break
        while batch := await self.hub.after(self.progress.log_sequence, self.hub.names.log_stream):
            is_restoring = self.progress.is_restoring_logs
            await self._in_applier(partial(self.applying.apply_logs, batch, restoring=is_restoring))
            self.progress.log_sequence = batch[-1].sequence
            self._on_news()

    async def _next(self) -> list[Stored]:
        """Returns the next values, with one request if only one is known to be there."""
        following = self.progress.sequence + 1
        if self._announced == following and (found := await self.hub.directly(following)) is not None:
            return [found]
        return await self.hub.after(self.progress.sequence)

    async def _restore(self) -> None:
        """Receives and writes thousands of values, fetching the next ones while others are being written."""
        await self._get_referred()
        values: list[Stored] = []
        sequence = self.progress.sequence
        work: deque[tuple[asyncio.Task[Written], list[Stored]]] = deque()
        async with running(self.applying.workspace.path, self.hub.names, self.applying.machine) as restoring:
            try:
                while batch := await self.hub.after(sequence):
                    sequence = batch[-1].sequence
                    values += batch
                    if len(values) > ROUND or batch[-1].is_last:
                        work.append((asyncio.create_task(restoring.apply(values)), values))
                        values = []
                    if len(work) > AHEAD:
                        await self._restored_first(work)
                while work:
                    await self._restored_first(work)
            finally:
                await asyncio.gather(*(task for task, _ in work), return_exceptions=True)

    async def _restored_first(self, work: deque[tuple[asyncio.Task[Written], list[Stored]]]) -> None:
        """Waits for the first round. If it raises, later rounds do not count and are applied again."""
        task, values = work.popleft()
        await self._in_applier(partial(self.publishing.wrote_all, await task))
        self._applied(values)

    async def _get_referred(self) -> None:
        """Applies agents and conversations before the mail and marks that refer to them: the hub has only their newest
        state, whose revision may be later than those."""
        until = (await self.hub.state()).last_sequence
        for subject in (self.hub.names.shared(f"{kind}.>") for kind in REFERRED):
            sequence = self.progress.sequence
            while batch := await self.hub.after(sequence, subject=subject):
                self._do_soon(await self._in_applier(partial(self.applying.apply, batch, restoring=True)))
                sequence = batch[-1].sequence
        self._referred_until = until

    async def _apply(self, batch: Sequence[Stored]) -> None:
        work = partial(self.applying.apply, batch, restoring=self.progress.is_restoring)
        then = await self._in_applier(work)
        self._applied(batch)
        self._do_soon(then)

    def _applied(self, batch: Sequence[Stored]) -> None:
        """Records that a batch is in the files now."""
        self.progress.sequence = batch[-1].sequence
        self.progress.witnessed(batch[-1].sequence, batch[-1].headers.get(OP, ""))
        for stored in batch:
            what = self.hub.names.parse(stored.subject)
            if isinstance(what, Own) and what.kind in (MESSAGE, NOTIFICATION):
                self.publishing.came(what.kind, what.owner, what.name)
        self._on_news()

    def _do_soon(self, consequences: Sequence[Callable[[], None]]) -> None:
        for consequence in consequences:
            self._ringer.submit(consequence)

    async def _in_applier(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._applier, work)
