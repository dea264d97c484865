"""The relay: this machine's only connection to the hub. It publishes changes made here, applies those made elsewhere,
and answers this machine's processes on a socket (docs/protocol.md, Several machines)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Set
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from filelock import Timeout
from nats.errors import ConnectionClosedError

from multi_agent_mcp.domain.dialog import Asked
from multi_agent_mcp.domain.times import format_time, from_timestamp, now
from multi_agent_mcp.errors import AlreadyExists, HubUnreachable, Refusal, StorageError
from multi_agent_mcp.hub.admission import Reception, keep_room
from multi_agent_mcp.hub.applying import Applying, Consequences
from multi_agent_mcp.hub.disk import Disk
from multi_agent_mcp.hub.following import StreamFollower
from multi_agent_mcp.hub.heartbeats import ASKING_MAX, BEAT_SECONDS, DISK, DOUBLE, LOGS, TROUBLES, Beat, Heartbeats
from multi_agent_mcp.hub.noticing import Noticing
from multi_agent_mcp.hub.progress import Progress
from multi_agent_mcp.hub.publishing import Publishing
from multi_agent_mcp.hub.server import HubServer
from multi_agent_mcp.hub.share_directory import HUB_SLOW, Membership, RelayClient, Share, shared_settings, socket_path
from multi_agent_mcp.hub.stream import EDITED, FAILED, TIME, WAS, Hub
from multi_agent_mcp.hub.subjects import MESSAGE
from multi_agent_mcp.store.authority import Shared, Superseded
from multi_agent_mcp.store.locks import RELAY, Lasting
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.process import own_start

logger = logging.getLogger(__name__)

GRACE_SECONDS = 1.0
NOTE_SECONDS = 0.5
"""The delay, and the shortest interval, of writing the state for other processes."""
STALL_SECONDS = 5.0
TAKE_SECONDS = 1.0
LOCK_SECONDS = 1.0
"""The interval at which the lock's file is looked at."""
CANCEL_SECONDS = 0.1
HUB_SECONDS = 1.0
"""The delay before a hub that died is restarted, and before a machine that was refused connects again."""
BACK_SECONDS, AGAIN_SECONDS = 2.0, 0.02
"""How long a request waits for a hub that was lost, which is less than `ANSWER_SECONDS`, and how often it looks."""
MEASURE_SECONDS, HUB_MEASURE_SECONDS = 30.0, 3.0
HALF_FULL = 50
REFUSED_SECONDS = 30.0
"""The shortest interval of restarts because the disk refused the hub, as it may lack more than space."""


class Home(Consequences, Protocol):
    """The operations on this machine's agents that the relay delegates."""

    def look_after_agents(self) -> tuple[Asked, ...]:
        """Detects servers that were killed, and returns the agents that wait for a human in a pane: no other process on
        this machine can."""


class Relay:
    """The relay of a session, one per process. `work` or `run` serves until a signal."""

    def __init__(
        self,
        workspace: Workspace,
        share: Share,
        membership: Membership,
        authority: RelayAuthority,
        home: Home,
    ) -> None:
        self.workspace = workspace
        self.share = share
        self.membership = membership
        self.authority = authority
        self.home = home
        authority.relay = self
        self.names = membership.names
        self.machine = membership.machine
        self.server = HubServer(share, self.names) if membership.serves else None
        self.hub = Hub(self.names, self.machine, self._connection_changed)
        self.disk = Disk()
        self.progress = Progress(share.record("position"), self.names.stream)
        self.hub.on_stored, self.hub.on_renewed = self.progress.witnessed, self._trust
        self.publishing = Publishing(workspace, self.names, self.machine, self.hub)
        applying = Applying(
            workspace=workspace,
            names=self.names,
            machine=self.machine,
            consequences=home,
            on_written=self.publishing.wrote,
            early=self.progress.early,
            relay=self.hub.relay,
        )
        own = self.names.stream_of(self.names.own(self.machine, MESSAGE, self.machine))
        is_whole = partial(lambda: not self.progress.is_restoring(own))
        self.noticing = Noticing(workspace.path, self.hub, self.publishing, is_whole)
        self.applying = applying
        self.following = StreamFollower(self.hub, applying, self.noticing, self.progress, self.disk, self._note_news)
        self.heartbeats = Heartbeats(self.hub, self._beat, self._heard, self._note_news)
        self._asking: tuple[Asked, ...] = ()
        self._hub_trouble: Mapping[str, Any] | None = None
        self._filled: Mapping[str, Any] | None = None
        self._since, self._changed_at = format_time(now()), time.monotonic()
        self._news = asyncio.Event()
        noted = workspace.relay_state.read()
        self._members: tuple[str, ...] = tuple(noted.get("members", ()))
        known = noted.get("machines", {})
        self.heartbeats.remember(known, format_time(from_timestamp(workspace.relay_state.noted_at)))

    # Requests of this machine's processes

    def require(self) -> None:
        """Raises `HubReplaced` or `HubUnreachable`."""
        if self.hub.refused:
            raise HubUnreachable("shut_out")
        self.following.require()

    async def require_soon(self) -> None:
        """As `require`, and waits a moment for a hub that was lost or found just now: it starts again when it lets a
        machine in."""
        while not self.hub.usable and time.monotonic() - self._changed_at < BACK_SECONDS:
            await asyncio.sleep(AGAIN_SECONDS)
        self.require()

    async def put(
        self,
        key: str,
        revision: int,
        data: bytes,
        was: int | None = None,
        *,
        edited: bool = False,
        at: int | None = None,
    ) -> int:
        """Stores a shared value in place of this revision (0: none) and returns the new one; `was`, `edited` and `at`
        as in `Authority`. Raises as `Hub.put`, and `HubReplaced`."""
        await self.require_soon()
        stamp, op = {TIME: str(time.time_ns() if at is None else at)}, secrets.token_hex(8)
        if was is not None:
            stamp[WAS] = str(was)
        if edited:
            stamp[EDITED] = str(revision)
        stored = await self.hub.put(self.names.shared(key), data, op, stamp, expected=revision)
        # If the process that asked dies before it has written its file, the relay writes it.
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self.following.wake)
        return stored

    async def current(self, key: str) -> Shared | None:
        await self.require_soon()
        found = await self.hub.last(self.names.shared(key))
        return None if found is None else found.shared

    def is_up(self, machine: str) -> bool:
        return machine == self.machine or self.heartbeats.is_up(machine)

    # Running

    def work(self) -> None:
        """Runs until SIGTERM or SIGINT. Raises `AlreadyExists` if another relay of this session runs."""
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
        with suppress(HubUnreachable):  # the file of a running relay's lock may have been removed
            RelayClient(self.share, self.membership).ask(op="status")
            raise AlreadyExists("relay_runs")
        try:
            lock = Lasting(self.workspace.locks, RELAY, TAKE_SECONDS)
        except Timeout:
            raise AlreadyExists("relay_runs") from None
        with closing(lock):
            asyncio.run(self.run(lock))

    async def run(self, lock: Lasting) -> None:
        stop = asyncio.Event()
        loop = self.authority.loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        server = await Answering(self, self.share).listen()
        work = (
            stop.wait(),
            self._keep_lock(lock),
            self._keep_hub(),
            self._connect(),
            self.following.run(),
            self.heartbeats.run(),
            self._note(),
            self._look_after_agents(),
            self._measure(),
            self.noticing.run(),
        )
        tasks = {asyncio.create_task(item) for item in work}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # all but the first two end only by an exception
        finally:
            server.close()
            await _end(tasks)
            self.noticing.close()
            with self.disk.tried("position"):
                self.progress.note()
            await self.heartbeats.end()
            with suppress(Exception):
                await asyncio.wait_for(self.hub.close(), 1)
            await _end(asyncio.all_tasks() - {asyncio.current_task()})

    async def _keep_lock(self, lock: Lasting) -> None:
        """Takes the lock again whenever its file was removed; returns once another relay has it."""
        has_lock = True
        while has_lock:
            await asyncio.sleep(LOCK_SECONDS)
            with self.disk.tried("lock"):
                has_lock = await asyncio.to_thread(lock.keep)
        logger.warning("this relay ends: its lock's file was removed, and another relay has taken the lock")

    async def _keep_hub(self) -> None:
        """Keeps the hub running and lets machines join, if the hub is on this machine."""
        if self.server is None:
            await asyncio.Event().wait()
            return
        reception = Reception(self.server, partial(shared_settings, self.workspace))
        ended_at, is_started = float("-inf"), False
        while True:
            await self._look_for_trouble(self.server, is_started=is_started, is_reached=reception.is_open)
            try:
                with self.disk.tried("hub"):
                    if time.monotonic() - ended_at > REFUSED_SECONDS and await self._has_ended(self.server):
                        ended_at = time.monotonic()
                    is_started = await asyncio.to_thread(self.server.launch)
                    if not reception.is_open:
                        await reception.open()
            except HubUnreachable as refusal:
                logger.warning("the hub does not run: %s", refusal)
            await asyncio.sleep(HUB_SECONDS)

    async def _measure(self) -> None:
        """Notes how full what all share is, once it is half full. Where the hub runs, also who has filled it: who has
        written more than a part of it writes no more of it (`keep_room`)."""
        looked, by = None, dict[str, int]()
        while True:
            await asyncio.sleep(MEASURE_SECONDS if self.server is None else HUB_MEASURE_SECONDS)
            with suppress(Refusal, OSError, *FAILED):
                state = await self.hub.state(self.names.stream)
                if self.server is not None and state.filled > HALF_FULL and looked != (state.identity, state.filled):
                    by = await keep_room(self.server, self.membership.machine)
                    looked = state.identity, state.filled
                full = [] if self.server is None else [*self.server.users().get("full", {})]
                is_filled = bool(full) or state.filled > HALF_FULL
                self._filled = {"percent": state.filled, "by": by, "full": full} if is_filled else None
                self._note_news()

    async def _look_for_trouble(self, server: HubServer, *, is_started: bool, is_reached: bool) -> None:
        """Notes why the hub on this machine does not run. One that was not just started may have been killed; one that
        has a process may be about to end again for the same reason, until it is reached."""
        with self.disk.tried("hub"):
            found = await asyncio.to_thread(server.trouble)
            if (found is None and not is_reached) or (found is not None and not found["runs"] and not is_started):
                return
            if found != self._hub_trouble:
                logger.warning("the hub: %s", found)
                self._hub_trouble = found
                self._note_news()

    async def _has_ended(self, server: HubServer) -> bool:
        """Stops the hub if it stores nothing although its disk has room; returns whether it did."""
        if not await asyncio.to_thread(server.has_given_up):
            return False
        logger.warning("the hub is started again: the disk has refused it, and has room now")
        await asyncio.to_thread(server.stop)
        return True

    async def _connect(self) -> None:
        if self.progress.position:  # else all values are received from the hub first
            with self.disk.tried("files"):  # repeated once the hub is found
                await self.following.look_at_files()
        while True:
            await self.hub.connect(self.membership.urls, self.share.seed(), self.share.certificate())
            with suppress(ConnectionClosedError):  # by the hub, or as it has a new certificate
                await self.hub.hear(self.names.heard, self.heartbeats.heard)
                await self.hub.hear(self.names.news, self.following.heard)
            await self.hub.wait_until_closed()
            await asyncio.sleep(HUB_SECONDS)

    def _connection_changed(self) -> None:
        self._since, self._changed_at = format_time(now()), time.monotonic()
        self.heartbeats.soon()
        self.following.connection_changed()
        self._note_news()

    def _trust(self, certificate: str) -> bool:
        with self.disk.tried("certificate"):
            self.share.trust(certificate)
            return True
        return False

    # The other machines

    def _beat(self) -> Beat:
        return Beat(
            position=self.progress.position,
            time=time.time(),
            queued=self.noticing.queued,
            conflicts=len(self.workspace.conflicts.standing()),
            replaced=self.progress.identity if self.following.replaced else None,
            asking=self._asking[:ASKING_MAX],
            troubles=self._troubles(),
            relay=self.hub.relay,
            members=self._members if self.server is not None else (),
        )

    def _troubles(self) -> tuple[str, ...]:
        has = {DISK: self.disk.unwritten is not None, DOUBLE: self.heartbeats.has_double}
        return tuple(trouble for trouble in TROUBLES if has[trouble])

    def _heard(self, beat: Beat) -> None:
        if beat.members and self.server is None:
            self._members = beat.members
        if beat.replaced == self.progress.identity:
            self.following.doubt()

    async def _look_after_agents(self) -> None:
        while True:
            try:
                asking = await asyncio.to_thread(self.home.look_after_agents)
                members = self._members if self.server is None else tuple(sorted(self.server.users()["machines"]))
            except Exception as error:  # noqa: BLE001 - a door: a person may have written what is looked at
                logger.warning("how the agents are is not known: %.300r", error)
            else:
                if (asking, members) != (self._asking, self._members):
                    self._asking, self._members = asking, members
                    self.heartbeats.soon()
                    self._note_news()
            await asyncio.sleep(BEAT_SECONDS)

    # State for other processes

    def _note_news(self) -> None:
        self._news.set()
        if self.following.replaced:
            self.heartbeats.soon()

    async def _note(self) -> None:
        """Writes the state for other processes, forever."""
        looked_at = time.monotonic()
        while True:
            self._news.clear()
            with self.disk.tried("state"):
                if self.following.synchronised and self.hub.connected:
                    if time.monotonic() - looked_at > STALL_SECONDS:  # the kernel may have dropped file events
                        await self.following.look_at_files()
                    self.progress.scanned = self.noticing.due.changed_before(time.time())
                looked_at = time.monotonic()
                self.workspace.relay_state.note(self.status())
            with self.disk.tried("position"):
                await asyncio.to_thread(self.progress.note)
            await asyncio.sleep(NOTE_SECONDS)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), NOTE_SECONDS)

    def status(self) -> dict[str, Any]:
        """Returns the state, as written to `.share/state.json`."""
        position = self.progress.position
        identity = None if self.following.replaced else self.progress.identity
        machines = {name: peer.as_answer(position, identity) for name, peer in self.heartbeats.peers.items()}
        for name in self.applying.logs.full & machines.keys():
            machines[name]["troubles"] = [*machines[name].get("troubles", ()), LOGS]
        machines[self.machine] = {"up": True, "since": self._since, "behind": 0, "clock_offset": 0.0}
        machines[self.machine]["troubles"] = self._troubles()
        return {
            "machine": self.machine,
            "pid": os.getpid(),
            "pid_started_at": own_start(),
            "connected": self.hub.connected,
            "shut_out": self.hub.refused,
            "synchronised": self.following.synchronised,
            "since": self._since,
            "replaced": self.following.replaced,
            "position": position,
            "restore_until": self.progress.target,
            "queued": self.noticing.queued,
            "pending": len(self.noticing.due),
            "conflicts": len(self.workspace.conflicts.standing()),
            "version": self.hub.version if self.hub.connected else None,
            "urls": list(self.membership.urls),
            "tried_at": self.hub.tried_at,
            "serves": self.membership.serves,
            "own_hub": self.membership.own_hub,
            "unwritten": self.disk.unwritten,
            "hub_trouble": self._hub_trouble,
            "filled": self._filled,
            "listened": self.heartbeats.listened,
            "members": list(self._members),
            "machines": machines,
        }


async def _end(tasks: Set[asyncio.Task[Any] | None]) -> None:
    """Cancels tasks until they have ended. Once is not enough: a cancellation may be lost if an answer has just come,
    in `asyncio.wait_for` before Python 3.12 (python/cpython#86296), and in the hub's client while it sends."""
    while pending := [task for task in tasks if task is not None and not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=CANCEL_SECONDS)


# This machine's threads and processes ask the relay: its own threads ask its event loop directly, other processes its
# socket, one line of JSON each way (see `hub.share_directory`).

T = TypeVar("T")
Answer = dict[str, Any]

ANSWER_SECONDS = 6.0
LINE_BYTES = 16 << 20


class RelayAuthority:
    """The authority for the relay's own threads; see `store.shared_collection.Authority`."""

    def __init__(self, machine: str) -> None:
        self.here: str | None = machine
        self.relay: Relay | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    def require(self) -> None:
        self._relay().require()

    def create(self, key: str, data: bytes, was: int | None = None, at: int | None = None) -> int | None:
        return self._wait(self._relay().put(key, 0, data, was, at=at))

    def swap(self, key: str, revision: int, data: bytes, *, edited: bool = False, at: int | None = None) -> int | None:
        return self._wait(self._relay().put(key, revision, data, edited=edited, at=at))

    def current(self, key: str) -> Shared | None:
        return self._wait(self._relay().current(key))

    def queue(self, paths: Any, *, wait: bool) -> str | None:  # noqa: ARG002 - the file events notice it
        return HUB_SLOW

    def is_up(self, machine: str) -> bool:
        return self._relay().is_up(machine)

    def _relay(self) -> Relay:
        if self.relay is None:
            raise HubUnreachable("no_relay")
        return self.relay

    def _wait(self, answer: Coroutine[Any, Any, T]) -> T:
        if self.loop is None:
            raise HubUnreachable("no_relay")
        try:
            return asyncio.run_coroutine_threadsafe(answer, self.loop).result(ANSWER_SECONDS)
        except (FutureTimeout, CancelledError) as error:  # the relay is ending, and must not wait for its threads
            raise HubUnreachable("hub_unclear") from error


class Answering:
    """The server on the relay's socket."""

    def __init__(self, relay: Relay, share: Share) -> None:
        self.relay = relay
        self.share = share
        self._sending: set[asyncio.Task[str | None]] = set()
        self._operations: dict[str, Callable[[Mapping[str, Any]], Awaitable[Answer]]] = {
            "require": self._require,
            "create": self._put,
            "swap": self._put,
            "current": self._current,
            "queue": self._queue,
            "status": self._status,
        }

    async def listen(self) -> asyncio.AbstractServer:
        """Starts answering, until the returned server is closed."""
        self.share.remove_socket()
        with socket_path(self.share.path) as path:
            before = os.umask(0o177)
            try:
                return await asyncio.start_unix_server(self._serve, path, limit=LINE_BYTES)
            finally:
                os.umask(before)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError):
            request = json.loads(await reader.readline())
            writer.write(json.dumps(await self._answer(request)).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _answer(self, request: Mapping[str, Any]) -> Answer:
        try:
            return await self._operations[request["op"]](request)
        except Superseded as newer:
            return {"superseded": _as_json(newer.current)}
        except StorageError as refusal:
            return {"refused": refusal.code, "key": refusal.key.removeprefix("error.")}

    async def _require(self, _: Mapping[str, Any]) -> Answer:
        await self.relay.require_soon()
        return {}

    async def _put(self, request: Mapping[str, Any]) -> Answer:
        revision, was = request.get("revision", 0), request.get("was")
        return {"revision": await self.relay.put(request["key"], revision, request["data"].encode(), was)}

    async def _current(self, request: Mapping[str, Any]) -> Answer:
        found = await self.relay.current(request["key"])
        return {"current": None if found is None else _as_json(found)}

    async def _queue(self, request: Mapping[str, Any]) -> Answer:
        sending = asyncio.create_task(self._send([Path(path) for path in request["paths"]]))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        done, _ = await asyncio.wait([sending], timeout=request["wait"])
        return {"waits": sending.result() if done else HUB_SLOW}

    async def _send(self, paths: list[Path]) -> str | None:
        """Sends mail; returns the code of the reason why the hub does not have it yet, or None if it has."""
        try:
            self.relay.require()
            await self.relay.noticing.send(paths)
        except StorageError as refusal:
            logger.info("queued: %s", refusal)
            for path in paths:
                self.relay.noticing.noticed(path)
            return refusal.key.removeprefix("error.")
        return None

    async def _status(self, _: Mapping[str, Any]) -> Answer:
        return self.relay.status()


def _as_json(shared: Shared) -> Answer:
    return {"revision": shared.revision, "data": shared.data.decode(), "at": shared.at}
