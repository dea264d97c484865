"""The relay: this machine's one connection to the hub. It brings what is written here there and what is written
elsewhere here, and answers this machine's processes on a socket (docs/protocol.md, Several machines)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from filelock import Timeout
from nats.aio.msg import Msg

from multi_agent_mcp.domain.times import format_time, now
from multi_agent_mcp.errors import AlreadyExists, HubReplaced, HubUnreachable, StorageError
from multi_agent_mcp.hub.answering import Answering
from multi_agent_mcp.hub.applying import Applying, Consequences
from multi_agent_mcp.hub.joining import Reception
from multi_agent_mcp.hub.peers import Peers
from multi_agent_mcp.hub.publishing import Publishing
from multi_agent_mcp.hub.relay_authority import RelayAuthority
from multi_agent_mcp.hub.server import Server
from multi_agent_mcp.hub.settings import shared_settings
from multi_agent_mcp.hub.share import Membership, Share
from multi_agent_mcp.hub.stream import OP, TIME, Hub, Stored, StreamState
from multi_agent_mcp.hub.subjects import MESSAGE, NOTIFICATION, Names, Own
from multi_agent_mcp.store.authority import Shared
from multi_agent_mcp.store.files.locks import RELAY
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.file_events import TreeWatch

logger = logging.getLogger(__name__)

BEAT_SECONDS = 5.0
GRACE_SECONDS = 1.0
NOTE_SECONDS = 0.5
TAKE_SECONDS = 0.2
HUB_SECONDS = 1.0
"""How soon a hub that has died is started again."""
MARGIN_SECONDS = 2.0
"""Change times and our clock need not agree to the tick."""
T = TypeVar("T")


class Relay:
    """Made once per process; `run` until a signal comes."""

    def __init__(
        self,
        workspace: Workspace,
        share: Share,
        membership: Membership,
        authority: RelayAuthority,
        consequences: Consequences,
    ) -> None:
        self.workspace = workspace
        self.authority = authority
        authority.relay = self
        self.share = share
        self.membership = membership
        self.names = Names(membership.uuid)
        self.machine = membership.machine
        self.server = Server(share, self.names) if membership.serves else None
        self.reception = None if self.server is None else Reception(self.server, partial(shared_settings, workspace))
        self.hub = Hub(self.names, self.machine, self._connection_changed)
        self.applying = Applying(workspace, self.names, self.machine, consequences)
        self.publishing = Publishing(workspace, self.names, self.machine, self.hub, self._sent)
        self.replaced = False
        noted = share.record("position").read() or {}
        self.position = int(noted.get("sequence", 0))
        self.log_position = int(noted.get("log_sequence", 0))
        self.identity = str(noted.get("identity", ""))
        self.adopts = bool(noted.get("adopts", False))
        self._scanned = float(noted.get("scanned", 0))
        self._witness = (int(noted.get("witness", [0, ""])[0]), str(noted.get("witness", [0, ""])[1]))
        self._restore_until = 0
        self._claimed = 0
        self._watch = ExitStack()
        self._watches = False
        self._beat_soon = asyncio.Event()
        self._last_sent = 0
        self._since = format_time(now())
        self._synchronised = False
        self._wake = asyncio.Event()
        self._news = asyncio.Event()
        self.peers = Peers(self._news.set)
        self._applier = ThreadPoolExecutor(1, "apply")
        self._ringer = ThreadPoolExecutor(1, "ring")

    # What processes of this machine ask for

    def require(self) -> None:
        """Raises `HubReplaced` or `HubUnreachable`."""
        if self.replaced:
            raise HubReplaced
        if not self.hub.connected:
            raise HubUnreachable

    async def put(self, key: str, revision: int, data: bytes) -> int:
        """Stores a shared value in place of this revision (0: of none). Raises as `Hub.put`, and `HubReplaced`."""
        self.require()
        stamp, op = {TIME: str(time.time_ns())}, secrets.token_hex(8)
        stored = await self.hub.put(self.names.shared(key), data, op, stamp, expected=revision)
        self._sent(stored, op)
        # Should the process that asked for it die before it has written its file, we do.
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self._wake.set)
        return stored

    async def current(self, key: str) -> Shared | None:
        self.require()
        found = await self.hub.last(self.names.shared(key))
        return None if found is None else found.shared

    def is_up(self, machine: str) -> bool:
        return machine == self.machine or self.peers.is_up(machine)

    def work(self) -> None:
        """Works until SIGTERM or SIGINT. Raises `AlreadyExists` when another relay of this session does."""
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
        lock = self.workspace.locks.lock(RELAY)
        try:
            lock.acquire(timeout=TAKE_SECONDS)
        except Timeout:
            raise AlreadyExists("relay_runs") from None
        with lock:
            asyncio.run(self.run())

    async def run(self) -> None:
        stop = asyncio.Event()
        loop = self.authority.loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        work = (self._keep_hub(), self._connect(), self._follow(), self._beat(), self._note(), self.publishing.run())
        tasks = [asyncio.create_task(item) for item in work]
        server = await Answering(self, self.share).listen()
        waiting = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {waiting}:
                task.result()  # none of them ends but by a fault
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._watch.close()
            self._note_position()
            with suppress(Exception):
                await asyncio.wait_for(self.hub.close(), 1)

    # The hub

    async def _keep_hub(self) -> None:
        """Keeps the hub running, if it is this machine's, and lets others join."""
        while self.server is not None and self.reception is not None:
            try:
                await asyncio.to_thread(self.server.start)
                if not self.reception.is_open:
                    await self.reception.open()
            except HubUnreachable as refusal:
                logger.warning("the hub does not run: %s", refusal)
            await asyncio.sleep(HUB_SECONDS)
        await asyncio.Event().wait()

    async def _connect(self) -> None:
        if self.position:  # else everything comes from the hub first
            await self._look_at_files()
        await self.hub.connect(self.membership.urls, self.share.seed(), self.share.certificate())
        await self.hub.hear(self.names.heartbeats, self._heard)
        await asyncio.Event().wait()

    async def _look_at_files(self) -> None:
        """Notices from now on what changes, and once what has changed since it last did."""
        loop = asyncio.get_running_loop()
        if not self._watches:
            self._watches = True

            def noticed(path: Path) -> None:
                loop.call_soon_threadsafe(self.publishing.noticed, path)

            self._watch.enter_context(TreeWatch(self.workspace.path, noticed))
        await self.publishing.scan(self._scanned - MARGIN_SECONDS)

    def _connection_changed(self) -> None:
        self._synchronised = False
        self._since = format_time(now())
        self._wake.set()
        self._news.set()

    async def _follow(self) -> None:
        """Applies what comes, in order; after every connection it first sees whether the hub is the one it knows."""
        while True:
            self._wake.clear()
            try:
                if self.hub.connected and (not self.replaced or await self._is_made_anew()):
                    if not self._synchronised:
                        await self._synchronise()
                    await self._catch_up()
                    await self._compare()
            except HubUnreachable as refusal:
                logger.info("the hub does not answer: %s", refusal)
            except StorageError as refusal:
                logger.warning("what other machines wrote cannot be applied yet: %s", refusal)
                await asyncio.sleep(1)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), BEAT_SECONDS)

    async def _synchronise(self) -> None:
        state = await self.hub.state()
        if not await self._is_known(state):
            self._found_replaced()
            return
        is_new = self.position == 0
        if is_new:
            self._restore_until = state.last_sequence
        await self._catch_up()
        if is_new and state.last_sequence and not self.adopts:
            self._scanned = time.time() + MARGIN_SECONDS  # all that lies here came from the hub just now
        await self._look_at_files()
        self._synchronised = True
        self._news.set()

    async def _is_known(self, state: StreamState) -> bool:
        """Whether this is the hub whose values have come so far, or its successor; see `hub.reseeding`. One that was
        restored may have grown again since: then another operation has the newest revision that is known here."""
        identity, _, predecessor = state.identity.partition(" after ")
        if self.identity in ("", identity):
            self.identity = identity
            revision, op = self._witness
            if state.last_sequence < max(revision, self.position):
                return False
            found = await self.hub.at(revision) if revision else None
            return found is None or found.headers.get(OP) == op
        if predecessor != self.identity:
            return False
        self.identity, self._scanned = identity, 0.0
        return True

    async def _is_made_anew(self) -> bool:
        """Whether the hub that was too old has got a successor; then all is exchanged again."""
        state = await self.hub.state()
        if state.identity.partition(" ")[0] == self.identity or not await self._is_known(state):
            return False
        self.replaced = self._synchronised = False
        return True

    async def _compare(self) -> None:
        """A machine that has had more of the hub than there is now shows that it was replaced."""
        if self._claimed > self.position and (await self.hub.state()).last_sequence < self._claimed:
            self._found_replaced()

    def _found_replaced(self) -> None:
        logger.error("the hub is older than what was had of it (revision %d): nothing is exchanged", self._witness[0])
        self.replaced = True
        self._beat_soon.set()
        self._news.set()

    async def _catch_up(self) -> None:
        while batch := await self.hub.after(self.position):
            restoring = self.position < self._restore_until
            work = partial(self.applying.apply, batch, restoring=restoring)
            then = await self._in_applier(work)
            self.position = batch[-1].sequence
            self._witnessed(self.position, batch[-1].headers.get(OP, ""))
            await self._in_applier(self._note_position)
            self._remember(batch)
            for consequence in then:
                self._ringer.submit(consequence)
            self._news.set()
        while batch := await self.hub.after(self.log_position, self.names.log_stream):
            await self._in_applier(partial(self.applying.apply_logs, batch))
            self.log_position = batch[-1].sequence
            await self._in_applier(self._note_position)

    async def _in_applier(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._applier, work)

    def _remember(self, batch: Sequence[Stored]) -> None:
        for stored in batch:
            what = self.names.parse(stored.subject)
            if isinstance(what, Own) and what.kind in (MESSAGE, NOTIFICATION):
                self.publishing.remember_mail(what.kind, what.owner, what.name, "")

    def _note_position(self) -> None:
        """A power cut may leave an earlier one: then some values are applied twice."""
        facts = {
            "identity": self.identity,
            "sequence": self.position,
            "log_sequence": self.log_position,
            "scanned": self._scanned,
            "witness": self._witness,
        }
        self.share.record("position").write(facts)

    # The other machines

    def _sent(self, revision: int, op: str) -> None:
        self._last_sent = max(self._last_sent, revision)
        self._witnessed(revision, op)
        self._beat_soon.set()

    def _witnessed(self, revision: int, op: str) -> None:
        """The newest revision that the hub is known to have had, and which operation it was."""
        self._witness = max(self._witness, (revision, op))

    async def _beat(self) -> None:
        while True:
            self._beat_soon.clear()
            facts = {
                "position": self.position,
                "last": self._last_sent,
                "time": time.time(),
                "replaced": self.identity if self.replaced else None,
            }
            with suppress(Exception):  # it is cut off just now
                await self.hub.beat(facts)
            self.peers.bury()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._beat_soon.wait(), BEAT_SECONDS)

    async def _heard(self, message: Msg) -> None:
        machine = message.subject.rpartition(".")[2]
        try:
            facts = json.loads(message.data)
            last, position, sent_at = int(facts["last"]), int(facts["position"]), float(facts["time"])
        except (ValueError, LookupError, TypeError):
            return
        if machine == self.machine:
            return
        self._claimed = max(self._claimed, position)
        if facts.get("replaced") == self.identity and not self.replaced:
            self._found_replaced()
        if self.peers.heard(machine, position, sent_at):
            self._beat_soon.set()  # it does not know of this one yet
        if max(last, position) > self.position:
            self._wake.set()

    async def _note(self) -> None:
        """Writes down how things stand, for those who look: at every change, and now and then."""
        while True:
            self._news.clear()
            if self._synchronised and self.hub.connected and not self.publishing.pending:
                self._scanned = time.time()
            self.share.record("state").write(self.status(), durable=False)
            await asyncio.sleep(NOTE_SECONDS)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), BEAT_SECONDS)

    def status(self) -> dict[str, Any]:
        """How things stand, as `.share/state.json` has it."""
        waiting = self.publishing.waiting()
        machines = self.peers.as_answer(self.position)
        machines[self.machine] = {"up": True, "since": self._since, "behind": 0, "clock_offset": 0.0}
        return {
            "machine": self.machine,
            "pid": os.getpid(),
            "connected": self.hub.connected,
            "synchronised": self._synchronised,
            "since": self._since,
            "replaced": self.replaced,
            "position": self.position,
            "queued": len(waiting),
            "pending": self.publishing.pending,
            "conflicts": self.publishing.conflicts,
            "version": self.hub.version if self.hub.connected else None,
            "urls": list(self.membership.urls),
            "serves": self.membership.serves,
            "machines": machines,
        }
