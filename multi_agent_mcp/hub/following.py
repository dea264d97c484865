"""Following the hub: applies the values of other machines here, each stream in its order, as long as it is the same
hub. A stream that is flooded delays only itself: each has a task of its own, and they take turns, measured in time. In
a stream that several machines write, the values of one that takes long are applied by a task of their own."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nats.aio.msg import Msg

from multi_agent_mcp.domain.entity import Mark
from multi_agent_mcp.errors import HubReplaced, HubUnreachable, InvalidArguments, StorageError
from multi_agent_mcp.hub.applying import OF_A_CONVERSATION, Applying, Marks, Then
from multi_agent_mcp.hub.disk import Disk
from multi_agent_mcp.hub.progress import Progress
from multi_agent_mcp.hub.restoring import Written, running
from multi_agent_mcp.hub.stream import AFTER, OP, Hub, Stored, StreamState
from multi_agent_mcp.hub.subjects import MESSAGE, NOTIFICATION, REFERRED, Own
from multi_agent_mcp.store.codec import Unreadable

if TYPE_CHECKING:
    from multi_agent_mcp.hub.noticing import Noticing

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""The interval of polling without any sign of new values."""
STREAMS_SECONDS = 60.0
"""The interval of looking for streams that nobody has followed yet, should the news of their first value be lost."""
RETRY_SECONDS = 1.0
DOUBT_SECONDS = 30.0
ORDER_SECONDS = 0.5
"""The longest wait of one machine's values for the shared ones that it had: as these may be flooded, not for ever."""
REFERRING_SECONDS = 60.0
"""The same for values that cannot do without them."""
MANY = 5_000
"""The number of values from which on several processes are worth the second that they take to start."""
ROUND = 4096
"""The approximate number of values that several processes write together."""
AHEAD = 2
"""The number of rounds handed over in advance, so that no process idles."""
TURN, TURN_SECONDS = 128, 0.1
"""The most values that are applied before another stream's turn, and the time after which no further one is."""
PATIENT_SECONDS = 5.0
"""The time for which what refers to shared values waits for a machine whose values take long."""
LATE_SECONDS = 0.3
"""The time for one machine's values of a batch after which the rest of them is left to a task of their own."""
APPLYING = "what other machines wrote"
T = TypeVar("T")


@dataclass(eq=False)
class Late:
    """One machine's values in a stream that are not applied yet: from the revision `first` on; `skipped` is the last
    one that the stream's follower has left to its `task`."""

    first: int
    skipped: int
    since: float
    task: asyncio.Task[None] | None = None


class StreamFollower:
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
        self._announced: dict[str, int] = {}
        self._referred_until = 0
        self._doubted_at: float | None = None
        self._looked_at = float("-inf")
        self._is_in_doubt = False
        self._look_again_at = 0.0
        self._restored: set[str] = set()
        self._one_restores = asyncio.Lock()
        self._begun: str | None = None
        """The identity of the hub to which all files are being sent from the beginning."""
        self._wake = asyncio.Event()
        self._wakes: dict[str, asyncio.Event] = {}
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._moved = asyncio.Condition()
        self._reached: dict[str, int] = {}
        self._late: dict[tuple[str, str], Late] = {}
        self._writers: dict[str, set[str]] = {}
        hub.shared_until = progress.newest.get(hub.names.stream, 0)
        self._applier = ThreadPoolExecutor(1, "apply")
        self._ringer = ThreadPoolExecutor(1, "ring")

    def wake(self) -> None:
        """Makes this machine look for new values in every stream."""
        for wake in (self._wake, *self._wakes.values()):
            wake.set()

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

    async def heard(self, message: Msg) -> None:
        """Hears of a value that a stream has stored."""
        stream, last = (message.headers or {}).get("Nats-Stream", ""), (message.headers or {}).get("Nats-Sequence", "")
        if stream in self.hub.names.streams and last.isdecimal():
            self._announced[stream] = int(last)
            self._follower(stream).set()

    def found_replaced(self) -> None:
        if not self.replaced:
            logger.error("the hub is older than what was had of it (%s): nothing is exchanged", self.progress.newest)
            self.replaced, self.hub.recognised = True, False
            self._on_news()

    async def run(self) -> None:
        """Checks after each connection that it is the same hub, and lets one task follow each stream, forever."""
        while True:
            self._wake.clear()
            tasks = (*self._followers.values(), *(late.task for late in self._late.values()))
            for ended in (task for task in tasks if task is not None and task.done()):
                ended.result()
            try:
                if self.hub.connected and not self.synchronised and (not self.replaced or await self._is_known_again()):
                    await self._synchronise()
                elif self.synchronised and time.monotonic() > self._look_again_at:
                    await self._look_around()
            except HubUnreachable as refusal:
                logger.info("the hub does not answer: %s", refusal)
            except (StorageError, OSError) as refusal:
                await self._refused(refusal)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()

    async def _refused(self, refusal: StorageError | OSError) -> None:
        self.disk.refused(APPLYING, refusal)
        self._on_news()
        await asyncio.sleep(RETRY_SECONDS)

    def _follower(self, stream: str) -> asyncio.Event:
        """Returns what wakes the task that follows a stream, which is begun now if there is none."""
        if stream not in self._wakes:
            self.hub.used.add(stream)
            self._wakes[stream] = asyncio.Event()
            self._followers[stream] = asyncio.create_task(self._follow(stream))
        return self._wakes[stream]

    async def _follow(self, stream: str) -> None:
        wake = self._wakes[stream]
        while True:
            wake.clear()
            try:
                if self.hub.usable and stream not in self.hub.silent:  # else it may be another one when it is back
                    await self._catch_up(stream)
                    self.disk.took(APPLYING)
            except HubUnreachable as refusal:
                logger.info("the hub does not answer: %s", refusal)
            except (StorageError, OSError) as refusal:
                await self._refused(refusal)
                wake.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await wake.wait()

    async def look_at_files(self) -> None:
        """Starts noticing changes of files here, and notices once those since the last scan."""
        await self.noticing.look_at_files(self.progress.scanned)

    async def _synchronise(self) -> None:
        """Checks that it is the same hub, and exchanges everything with it. If the connection changes meanwhile, it
        ends without a result, and `run` begins again: the hub on the new connection has not been recognised."""
        connection, newest = self._connections, self.progress.newest
        states = await self.hub.states()
        recognised = await self.progress.recognises(self.hub, states, newest)
        if connection != self._connections:
            return
        shared = states[self.hub.names.stream]
        if not recognised:
            self._found_older(shared)
            return
        self._doubted_at = None
        if not self.progress.scanned and self._begun != shared.identity:
            for known in (self._announced, self._reached, self._late):
                known.clear()
            self.publishing.begin_again(shared.first)
            self._begun = shared.identity
        if self.progress.is_new:
            if self.hub.silent:
                raise HubUnreachable  # all that there is has to be known
            self.progress.begin(states)
            await self.noticing.note_changed(0.0)  # before values are received
        is_restoring = any(map(self.progress.is_restoring, states))
        self.hub.recognised = True
        await self._reach(states, connection)
        await self.look_at_files()  # if nothing was scanned yet: all files not written by this relay
        await self._in_applier(self.publishing.keep_newest)
        if connection != self._connections:
            return
        self.synchronised = True
        if is_restoring:
            await self._in_applier(self.applying.without_rivals)
        self._do_soon(self.applying.at_home())
        self._on_news()

    def _wake_followers(self, states: Mapping[str, StreamState]) -> None:
        """Has every stream followed that is further here."""
        self._look_again_at = time.monotonic() + (0 if self.hub.silent else STREAMS_SECONDS)
        for stream, state in states.items():
            if state.last_sequence > self._place(stream):
                self._follower(stream).set()

    def _place(self, stream: str) -> int:
        """Returns up to where a stream is in the files, but for the values of machines that are late."""
        return max(self._reached.get(stream, 0), self.progress.place(stream))

    async def _reach(self, states: Mapping[str, StreamState], connection: int) -> None:
        """Waits until every stream is as far as it was."""
        self._wake_followers(states)
        is_there = partial(lambda: all(self._place(each) >= state.last_sequence for each, state in states.items()))
        while connection == self._connections and not is_there():
            await self._wait_until(is_there, RETRY_SECONDS)

    def _found_older(self, state: StreamState) -> None:
        """Marks the hub as replaced. Raises `HubUnreachable` instead while that may be temporary: of several servers, a
        former leader may return old data until it notices that it is not the leader any more."""
        self._doubted_at = self._doubted_at or time.monotonic()
        if state.replicas > 1 and time.monotonic() - self._doubted_at < DOUBT_SECONDS:
            raise HubUnreachable
        self.found_replaced()

    async def _is_known_again(self) -> bool:
        """Returns whether the hub that was too old has a successor, or is itself again; then everything is exchanged
        again."""
        newest, states = self.progress.newest, await self.hub.states()
        self.replaced = not await self.progress.recognises(self.hub, states, newest)
        return not self.replaced

    def doubt(self) -> None:
        """Makes this machine look itself whether the hub is the known one, as another one says that it is not. What
        that one says is no proof: it may say anything."""
        if self.synchronised and time.monotonic() - self._looked_at > DOUBT_SECONDS:
            self._looked_at, self._look_again_at = time.monotonic(), 0.0
            self._is_in_doubt = True
            self._wake.set()

    async def _look_around(self) -> None:
        """Looks for streams that are further, and in doubt whether this is still the known hub."""
        was_silent = self.hub.silent
        newest, states = self.progress.newest, await self.hub.states()
        if (self._is_in_doubt or was_silent) and not await self.progress.recognises(self.hub, states, newest):
            self.synchronised = False
            self._found_older(states[self.hub.names.stream])
        self._is_in_doubt = False
        self._wake_followers(states)

    async def _catch_up(self, stream: str) -> None:
        """Applies what there is of a stream."""
        connection = self._connections
        if self.progress.until.get(stream, 0) - self.progress.place(stream) > MANY and stream not in self._restored:
            self._restored.add(stream)  # if it fails, the rest is applied here
            until = self.progress.until[self.hub.names.stream]
            await self._after_shared(stream, lambda: self.progress.place(self.hub.names.stream) >= until)
            async with self._one_restores:
                await self._restore(stream)
        while (batch := await self._next(stream)) and connection == self._connections:
            if not batch[-1].is_last and stream == self.hub.names.stream and batch[-1].sequence > self._referred_until:
                await self._get_referred()
            await self._after_referred(stream, batch)
            await self._apply(stream, batch)
            if batch[-1].is_last:  # later values are announced
                break

    async def _next(self, stream: str) -> list[Stored]:
        """Returns the next values, with one request if only one is known to be there."""
        following = self._place(stream) + 1
        is_alone = self._announced.get(stream) == following
        if is_alone and (found := await self.hub.directly(stream, following)) is not None:
            return [found]
        return await self.hub.after(stream, self._place(stream))

    async def _after_referred(self, stream: str, batch: Sequence[Stored]) -> None:
        """Waits for the shared values to which these may refer: those that their machine had when it wrote them. What
        an unknown agent has written waits for all that there are: its record may have been sent after it, as a machine
        that shares its files for the first time has none of them."""
        shared = self.hub.names.stream
        revision, seconds = max(map(_shared_before, batch)), ORDER_SECONDS
        if any(OF_A_CONVERSATION in stored.data for stored in batch):
            seconds = REFERRING_SECONDS
        if stream != shared and any(map(self.applying.is_of_unknown, batch)):
            last = (await self.hub.state(shared)).last_sequence
            await self._after_shared(
                stream,
                lambda: self.progress.place(shared) >= last or not any(map(self.applying.is_of_unknown, batch)),
                REFERRING_SECONDS,
            )
        await self._after_shared(stream, lambda: self._firm_place(shared) >= revision, seconds)

    def _firm_place(self, stream: str) -> int:
        """Returns up to where a stream is in the files, but for what machines have written that are late for long."""
        late = (item for (where, _), item in self._late.items() if where == stream)
        waited_for = [item.first - 1 for item in late if time.monotonic() - item.since < PATIENT_SECONDS]
        return min([self._place(stream), *waited_for])

    async def _after_shared(self, stream: str, is_there: Callable[[], bool], seconds: float = 0.0) -> None:
        """Waits until the shared values are as far: without limit while all are restored, else for so long at most."""
        shared = self.hub.names.stream
        if stream == shared or (not self.progress.is_restoring(shared) and is_there()):
            return
        self._follower(shared).set()
        while self.progress.is_restoring(shared) and self.hub.usable:
            await self._wait_until(lambda: not self.progress.is_restoring(shared), RETRY_SECONDS)
        await self._wait_until(is_there, seconds)

    async def _wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Waits until it holds, for so long at most; it is looked at whenever a batch was applied."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._moved:
                await self._moved.wait_for(condition)

    async def _restore(self, stream: str) -> None:
        """Receives and writes thousands of values, fetching the next ones while others are being written."""
        if stream == self.hub.names.stream:
            await self._get_referred()
        values: list[Stored] = []
        sequence = self.progress.place(stream)
        work: deque[tuple[asyncio.Task[Written], list[Stored]]] = deque()
        async with running(self.applying.workspace.path, self.hub.names, self.applying.machine) as restoring:
            try:
                while batch := await self.hub.after(stream, sequence):
                    sequence = batch[-1].sequence
                    values += batch
                    if len(values) > ROUND or batch[-1].is_last:
                        work.append((asyncio.create_task(restoring.apply(values)), values))
                        values = []
                    if len(work) > AHEAD:
                        await self._restored_first(stream, work)
                while work:
                    await self._restored_first(stream, work)
            finally:
                await asyncio.gather(*(task for task, _ in work), return_exceptions=True)

    async def _restored_first(self, stream: str, work: deque[tuple[asyncio.Task[Written], list[Stored]]]) -> None:
        """Waits for the first round. If it raises, later rounds do not count and are applied again."""
        task, values = work.popleft()
        identity, written = self.progress.identity, await task
        await self._in_applier(partial(self.publishing.wrote_all, written.files))
        await self._in_applier(partial(self.applying.take_marks, written.early, values))
        await self._applied(stream, values, identity)

    async def _get_referred(self) -> None:
        """Applies agents and conversations before what refers to them: the hub has only their newest state, whose
        revision may be later than that."""
        shared = self.hub.names.stream
        until = (await self.hub.state(shared)).last_sequence
        for subject in (self.hub.names.stored(self.hub.names.shared(f"{kind}.>")) for kind in REFERRED):
            sequence = max(self.progress.place(shared), self._referred_until)
            while batch := await self.hub.after(shared, sequence, subject):
                await self._take_turns(batch, restoring=True)
                sequence = batch[-1].sequence
        self._referred_until = until

    async def _apply(self, stream: str, batch: Sequence[Stored]) -> None:
        identity = self.progress.identity
        if self.progress.is_restoring(stream):
            await self._take_turns(batch, restoring=True)
        else:
            for writer, values in self._by_writer(batch).items():
                await self._apply_of(stream, writer, values)
        await self._applied(stream, batch, identity)

    def _by_writer(self, batch: Sequence[Stored]) -> dict[str, list[Stored]]:
        found: dict[str, list[Stored]] = {}
        for stored in batch:
            found.setdefault(self.hub.names.writer(stored.subject), []).append(stored)
        return found

    async def _apply_of(self, stream: str, writer: str, values: Sequence[Stored]) -> None:
        """Applies one machine's values of a batch, or leaves them to a task of their own if they take long and others
        write in this stream, too."""
        writers = self._writers.setdefault(stream, set())
        writers.add(writer)
        late = self._late.get((stream, writer))
        if late is not None:
            late.skipped = values[-1].sequence
            return
        seconds = LATE_SECONDS if len(writers) > 1 or stream == self.hub.names.stream else inf
        left = await self._take_turns(values, restoring=False, seconds=seconds)
        if left:
            first = min(stored.sequence for stored in left)
            late = self._late[stream, writer] = Late(first, values[-1].sequence, time.monotonic())
            late.task = asyncio.create_task(self._catch_up_of(stream, writer, late))

    async def _catch_up_of(self, stream: str, writer: str, late: Late) -> None:
        """Applies what a machine that is late has written in a stream, while the others' values go on."""
        subject = self.hub.names.all_of(stream, writer)
        while self._late.get((stream, writer)) is late:
            skipped = late.skipped
            try:
                batch = await self.hub.after(stream, late.first - 1, subject)
                if not batch and late.skipped == skipped:  # else one was skipped while it was asked
                    break
                await self._take_turns(batch, restoring=False)
                late.first = batch[-1].sequence + 1 if batch else late.first
            except HubUnreachable:
                await asyncio.sleep(RETRY_SECONDS)
            except (StorageError, OSError) as refusal:
                await self._refused(refusal)
        if self._late.get((stream, writer)) is late:
            del self._late[stream, writer]
            self._note_place(stream)
            async with self._moved:
                self._moved.notify_all()

    async def _take_turns(self, batch: Sequence[Stored], *, restoring: bool, seconds: float = inf) -> Sequence[Stored]:
        """Applies values in turns with the other streams; returns those that were not begun within these seconds."""
        until, left = time.monotonic() + seconds, batch
        while left and time.monotonic() < until:
            turn = partial(self._turn, left[:TURN], restoring=restoring)
            then, gaps, marks, rest = await self._in_applier(turn)
            left = [*rest, *left[TURN:]]
            self._do_soon(then)
            for subject in gaps:
                await self._fill(subject)
            for path, mark in marks.items():
                await self._mark_by_hand(path, mark)
        return left

    def _turn(self, batch: Sequence[Stored], *, restoring: bool) -> tuple[list[Then], list[str], Marks, list[Stored]]:
        """Applies values in the applier's thread, where no other stream's come in between; returns their consequences,
        what they lack (see `Applying`), and the values for which there was no time."""
        then = self.applying.apply(batch, restoring=restoring, until=time.monotonic() + TURN_SECONDS)
        return then, self.applying.logs.gaps_to_fill(), self.applying.marks_by_hand(), self.applying.left

    async def _mark_by_hand(self, path: Path, mark: Mark) -> None:
        try:
            await self.publishing.mark_by_hand(path, mark)
        except (InvalidArguments, Unreadable) as error:
            logger.warning("%s is not marked: %.300r", path, error)

    async def _fill(self, subject: str) -> None:
        """Asks again for all parts of a log of which some are missing here."""
        stream, sequence = self.hub.names.stream_of(subject), 0
        turn = partial(self.applying.apply, restoring=self.progress.is_restoring(stream))
        try:
            while batch := await self.hub.after(stream, sequence, subject):
                await self._in_applier(partial(turn, batch))
                sequence = batch[-1].sequence
        except BaseException:
            self.applying.logs.ask_again_later(subject)
            raise

    async def _applied(self, stream: str, batch: Sequence[Stored], identity: str) -> None:
        """Records that a batch is in the files now."""
        last = batch[-1]
        if identity != self.progress.identity:
            return  # the hub was made again meanwhile: its places begin again
        self._reached[stream] = last.sequence
        self._note_place(stream)
        self.progress.witnessed(stream, last.sequence, last.headers.get(OP, ""))
        if stream == self.hub.names.stream:
            self.hub.shared_until = max(self.hub.shared_until, last.sequence)
        for stored in batch:
            what = self.hub.names.parse(stored.subject)
            if what in self.applying.standing:
                self.applying.standing.discard(what)
            elif isinstance(what, Own) and what.kind in (MESSAGE, NOTIFICATION):
                self.publishing.came(what.kind, what.owner, what.name)
        async with self._moved:
            self._moved.notify_all()
        self._on_news()

    def _note_place(self, stream: str) -> None:
        """Notes up to where everything of a stream is in the files: if this relay ends, it goes on from there."""
        late = (item.first - 1 for (where, _), item in self._late.items() if where == stream)
        self.progress.places[stream] = min([self._place(stream), *late])

    def _do_soon(self, consequences: Sequence[Callable[[], None]]) -> None:
        for consequence in consequences:
            self._ringer.submit(consequence)

    async def _in_applier(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._applier, work)


def _shared_before(stored: Stored) -> int:
    """Returns the shared revision that a value's machine had."""
    said = stored.headers.get(AFTER, "")
    return int(said) if said.isdecimal() and len(said) < 16 else 0
