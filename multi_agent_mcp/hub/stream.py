"""The relay's interface to the hub: values by subject, each with a revision, over NATS JetStream.

Only requests and core subscriptions are used: see `Names.machine_account` for why there are no consumers. A stream
keeps the newest value of each subject; its sequence numbers are the revisions and the order in which all machines see
them. The JetStream API: https://docs.nats.io/reference/reference-protocols/nats_api_reference.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import AuthorizationError, Error, NoRespondersError

from multi_agent_mcp.domain.times import format_time, now
from multi_agent_mcp.errors import HubUnreachable
from multi_agent_mcp.hub.sizes import is_acceptable
from multi_agent_mcp.hub.subjects import LANES, Names, inbox
from multi_agent_mcp.store.authority import TOO_LARGE, Shared, Superseded

logger = logging.getLogger(__name__)

OP, MACHINE, TIME, OFFSET, WAS = "Mam-Op", "Mam-Machine", "Mam-Time", "Mam-Offset", "Mam-Was"
EDITED, AFTER, RELAY, OVER = "Mam-Edited", "Mam-After", "Mam-Relay", "Mam-Over"
"""Our headers: the operation that wrote the value, its machine, its relay (an id of the process, as a copied directory
has a relay of the same machine), the time (nanoseconds since the epoch), the offset in a log (bytes), the value's
revision on the former hub, for a file edited by a person the revision in its mark, for values of one machine the newest
shared revision that it had (what they refer to is not newer), and that its file is in the archive."""
_NANOSECONDS = re.compile("[0-9]{1,19}")
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_OF = "Nats-Expected-Last-Subject-Sequence-Subject"
PENDING = "Nats-Num-Pending"
NEEDED = (OP, MACHINE, TIME, OFFSET, WAS, EDITED, AFTER, RELAY, OVER, PENDING)
WRONG_SEQUENCE, NOT_FOUND, NO_STREAM, TOO_MANY = 10071, 10037, 10059, 10167
REQUEST_SECONDS, LOST_SECONDS, BUSY_SECONDS = 2.0, 10.0, 0.02
BATCH = 1024
BATCH_BYTES = 8 << 20
FILLED_BY = (("messages", "msgs"), ("bytes", "bytes"))
FORM = "writers"
"""The form of the streams, with which their description begins; one hub of another form is made again."""

NO_RESPONDERS = "503"
FAILED = (Error, OSError, asyncio.TimeoutError, ValueError)


@dataclass(frozen=True)
class Stored:
    """One value of a stream."""

    subject: str
    sequence: int
    headers: Mapping[str, str]
    data: bytes
    at: str | None = None
    """The time when the hub stored it; None if it was read directly."""

    @property
    def is_last(self) -> bool:
        """Whether it was the last value when it was read."""
        return self.headers.get(PENDING, "0") == "0"

    @property
    def written_at(self) -> int:
        """The time at which the value was written, in nanoseconds since the epoch. Raises `ValueError`."""
        return int(self.headers[TIME])

    @property
    def shared(self) -> Shared:
        at = self.headers.get(TIME, "")  # any machine may send another text
        return Shared(self.sequence, self.data, int(at) if _NANOSECONDS.fullmatch(at) else None)


@dataclass(frozen=True)
class StreamState:
    """The state of a stream. `identity` is new whenever the stream is recreated; `replicas` is the number of its
    servers; no revision is before `first`; `filled` is the part of what it may hold, in percent."""

    identity: str
    last_sequence: int
    first: int = 1
    replicas: int = 1
    filled: int = 0


@dataclass
class Hub:
    """A connection to the hub. It reconnects by itself; meanwhile every request raises `HubUnreachable` at once."""

    names: Names
    machine: str
    on_change: Callable[[], None] = lambda: None
    """Called whenever the connection is made or lost."""
    on_stored: Callable[[str, int, str], None] = lambda *_: None
    """Called with the stream, the revision and the operation of each value stored."""
    client: Client = field(default_factory=Client)
    violations: set[str] = field(default_factory=set)
    recognised: bool = False
    """Whether the hub was recognised as the known one, on this connection."""
    refused: bool = False
    """Whether the hub answers, but does not know this machine's key."""
    shared_until: int = 0
    """The newest shared revision that this machine has or has stored."""
    relay: str = field(default_factory=lambda: secrets.token_hex(8))
    used: set[str] = field(default_factory=set)
    """The streams that have values, or had some: of a hub that is made again they may get some at any moment."""
    tried_at: str | None = None
    """The minute in which it was last tried in vain to connect."""
    silent: frozenset[str] = frozenset()
    """The streams that did not answer when all were last asked, as they had no leader."""
    _connections: int = 0
    """How often the connection was made or lost."""
    _replicas: int = 1
    _lost_at: float = float("-inf")
    on_renewed: Callable[[str], bool] = lambda _: False
    """Called with the hub's certificate if it is a newer one than the trusted one, which signed it; returns whether it
    was noted as the one to trust."""
    certificate: str | None = None
    _trusted: str | None = None
    _closed: asyncio.Event = field(default_factory=asyncio.Event)
    _said: str = ""

    async def connect(self, urls: Sequence[str], seed: str, certificate: str | None) -> None:
        """Connects, retrying until it succeeds. Raises `OSError` and `nats.errors.Error` only for permanent errors."""
        self.client, self.certificate, self._trusted = Client(), certificate, certificate
        self._closed.clear()
        await self.client.connect(
            list(urls),
            nkeys_seed_str=seed,
            **protected(urls, certificate, self._presented),
            inbox_prefix=inbox(self.machine),
            allow_reconnect=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.25,  # type: ignore[arg-type]  # it is slept for
            connect_timeout=2,
            ping_interval=5,
            max_outstanding_pings=2,
            pending_size=0,  # requests fail while disconnected: the files are the outbox
            error_cb=self._on_error,
            disconnected_cb=self._on_change,
            reconnected_cb=self._on_change,
            closed_cb=self._on_closed,
        )
        await self._on_change()

    async def wait_until_closed(self) -> None:
        """Waits until the connection is closed for good, as after the server refused the machine's key."""
        await self._closed.wait()

    @property
    def connected(self) -> bool:
        return self.client.is_connected

    @property
    def usable(self) -> bool:
        """Whether the hub is connected and recognised, so that values may be exchanged."""
        return self.connected and self.recognised

    @property
    def version(self) -> str:
        return str(self.client.connected_server_version).removeprefix("<nats server v").removesuffix(">")

    async def close(self) -> None:
        await self.client.close()

    async def states(self) -> dict[str, StreamState]:
        """Returns the states of the streams of values and logs, without those that do not answer (`silent`). Raises
        `HubUnreachable` if the shared one does not."""
        asked = map(self.state, self.names.streams)
        found = zip(self.names.streams, await asyncio.gather(*asked, return_exceptions=True), strict=True)
        states: dict[str, StreamState] = {}
        for stream, answer in found:
            if isinstance(answer, StreamState):
                states[stream] = answer
            elif stream == self.names.stream or not isinstance(answer, HubUnreachable):
                raise answer
        self.silent = frozenset(self.names.streams) - states.keys()
        self.used |= {stream for stream, state in states.items() if state.last_sequence}
        return states

    async def state(self, stream: str) -> StreamState:
        """Returns the state of a stream; that of an empty one without identity if it is lost, or of another form.
        Raises `HubUnreachable`."""
        answer = await self._api(f"STREAM.INFO.{stream}", {}, but=NO_STREAM)
        if "error" in answer:
            return StreamState("", 0, replicas=self._replicas)
        config, last = answer["config"], answer["state"]["last_seq"]
        self._replicas = config["num_replicas"]
        form, _, identity = config.get("description", "").partition(" ")
        first = config.get("first_seq", 1)
        parts = [answer["state"][what] / max(config[f"max_{limit}"], 1) for what, limit in FILLED_BY]
        return StreamState(identity if form == FORM else "", last, first, self._replicas, round(100 * max(parts)))

    async def put(
        self, subject: str, data: bytes, op: str, headers: Mapping[str, str], *, expected: int | None = None
    ) -> int:
        """Stores a value and returns its revision; with `expected` only in place of this revision (0: none). Raises
        `Superseded`, and `HubUnreachable` if it was not stored or that is unknown.

        An answer may be lost after the value was stored. Then, and if another machine seems to have been faster, the
        operation of the stored value tells whether it is ours. If it is a person's earlier edit of the same file, whose
        answer never arrived, it is replaced. Where an answer was lost and another machine's value is there, ours may
        have been in its place before: that is unknown, and nobody may make the change once more."""
        if not is_acceptable(self.names.parse(self.names.stored(subject, self.machine)), data):
            raise HubUnreachable(TOO_LARGE)
        sent = {OP: op, MACHINE: self.machine, RELAY: self.relay, AFTER: str(self.shared_until), **headers}
        if expected is not None:
            sent |= {EXPECTED: str(expected), EXPECTED_OF: self.names.stored(subject)}
        connections = self._connections
        answer = await self._published(subject, data, sent)
        is_unclear = not answer
        if not answer and expected is not None and self._connections != connections:
            with suppress(HubUnreachable):  # the connection was lost: sent again, it is stored once at most
                answer = await self._published(subject, data, sent)
        if "seq" in answer and "error" not in answer:
            return self._stored(subject, int(answer["seq"]), op)
        code = answer.get("error", {}).get("err_code")
        if code not in (None, WRONG_SEQUENCE):
            logger.warning("the hub refused %s: %s", subject, answer["error"])
            is_full = "maximum" in str(answer["error"].get("description"))
            is_shared = self.names.stream_of(subject) == self.names.stream
            raise HubUnreachable(("hub_full_shared" if is_shared else "hub_full") if is_full else None)
        found = await self._settled(subject, op, replaces=None if is_unclear or code is None else expected)
        if found.headers.get(OP) == op:
            return self._stored(subject, found.sequence, op)
        if not self._is_earlier_edit(found, headers):
            raise Superseded(found.shared)
        return await self.put(subject, data, op, headers, expected=found.sequence)

    async def _published(self, subject: str, data: bytes, headers: dict[str, str]) -> dict[str, Any]:
        """Publishes a value and returns the answer, {} if there was none. While too many values of others wait for the
        stream (`server.BUFFERED_MAX`), it is tried again. Raises `HubUnreachable` if it was not stored."""
        until = time.monotonic() + REQUEST_SECONDS
        while True:
            self._require_connected()
            try:
                reply = await self.client.request(subject, data, REQUEST_SECONDS, headers=headers)
                answer: dict[str, Any] = json.loads(reply.data)
            except NoRespondersError:
                await self._lost()
                raise HubUnreachable from None
            except FAILED:
                if subject.lower() in self.violations:
                    is_shared = self.names.stream_of(subject) == self.names.stream
                    raise HubUnreachable("hub_part_full" if is_shared else "hub_permission") from None
                return {}
            if answer.get("error", {}).get("err_code") != TOO_MANY or time.monotonic() > until:
                return answer
            await asyncio.sleep(BUSY_SECONDS)

    def _stored(self, subject: str, revision: int, op: str) -> int:
        stream = self.names.stream_of(subject)
        if stream == self.names.stream:
            self.shared_until = max(self.shared_until, revision)
        self.on_stored(stream, revision, op)
        return revision

    def _is_earlier_edit(self, stored: Stored, headers: Mapping[str, str]) -> bool:
        same_base = EDITED in headers and stored.headers.get(EDITED) == headers[EDITED]
        return same_base and stored.headers.get(MACHINE) == self.machine

    async def last(self, subject: str) -> Stored | None:
        """Returns the newest value of a subject, whoever has written it, from the leader; None if there is none. Raises
        `HubUnreachable`."""
        return await self._get(self.names.stream_of(subject), {"last_by_subj": self.names.stored(subject)})

    async def last_of_any(self, kind: str, owner: str, name: str) -> Stored | None:
        """Returns the value that any machine has of this kind and name, the one stored first if several have; None if
        none has. What has no leader is not asked (`silent`). Raises `HubUnreachable`."""
        asked, lanes = [self.names.own("*", kind, owner, name, lane=lane) for lane in LANES], self.used - self.silent
        try:
            found = await asyncio.gather(*(self.last(each) for each in asked if self.names.stream_of(each) in lanes))
        except HubUnreachable:
            await self._lost()
            raise
        return min(filter(None, found), key=lambda stored: stored.at or "", default=None)

    async def at(self, stream: str, sequence: int) -> Stored | None:
        """Returns the value of this revision; None if it was replaced by a newer one. Raises `HubUnreachable`."""
        return await self._get(stream, {"seq": sequence})

    async def _get(self, stream: str, which: Mapping[str, Any]) -> Stored | None:
        answer = await self._api(f"STREAM.MSG.GET.{stream}", which)
        if "message" not in answer:
            return None
        message = answer["message"]
        headers = _headers(base64.b64decode(message.get("hdrs", "")))
        data = base64.b64decode(message.get("data", ""))
        return Stored(message["subject"], message["seq"], headers, data, message.get("time"))

    async def directly(self, stream: str, sequence: int) -> Stored | None:
        """Returns the value of this revision from the server that answers first, in half the time of `after`; None if
        it was replaced by a newer one, or that server does not have it yet. Raises `HubUnreachable`."""
        self._require_connected()
        try:
            reply = await self.client.request(
                self.names.api(f"DIRECT.GET.{stream}"),
                json.dumps({"seq": sequence}).encode(),
                REQUEST_SECONDS,
            )
        except FAILED as error:
            raise HubUnreachable from error
        return _stored(reply)

    async def after(self, stream: str, sequence: int, subject: str = ">") -> list[Stored]:
        """Returns the next values in order, at most `BATCH`; [] if there are none yet. Raises `HubUnreachable`."""
        found = await self._batch_after(stream, sequence, subject)
        if not found and self._replicas > 1:  # any server may have answered, even one without the newest values
            newest = await self._get(stream, {"seq": sequence + 1, "next_by_subj": subject})
            return [] if newest is None else [newest]
        return found

    async def _batch_after(self, stream: str, sequence: int, subject: str) -> list[Stored]:
        self._require_connected()
        try:
            return await batch_after(self.client, self.names.api(f"DIRECT.GET.{stream}"), sequence, subject)
        except NoRespondersError as error:
            await self._lost()
            raise HubUnreachable from error
        except FAILED as error:
            raise HubUnreachable from error

    async def beat(self, facts: Mapping[str, Any]) -> None:
        """Sends a heartbeat to the other machines."""
        if self.connected:
            try:
                data = json.dumps(facts).encode()
                await self.client.request(self.names.heartbeat(self.machine), data, REQUEST_SECONDS)
            except NoRespondersError:
                await self._lost()

    async def _lost(self) -> None:
        """Nobody answers although the connection is open: the hub has lost a stream. It is looked at as after a new
        connection, once in a while."""
        if time.monotonic() - self._lost_at > LOST_SECONDS:
            self._lost_at = time.monotonic()
            logger.warning("the hub has no stream for what was said")
            await self._on_change()

    async def hear(self, subject: str, heard: Callable[[Msg], Awaitable[None]]) -> None:
        await self.client.subscribe(subject, cb=heard)

    async def _settled(self, subject: str, op: str, *, replaces: int | None) -> Stored:
        """Returns the newest value after a publication that was not answered, or was refused because the current
        revision is not the one it `replaces`: its own value (`op`) or one that was stored before. Raises
        `HubUnreachable` if the result is unknown: the value may still be stored, and a former leader may return old
        data."""
        try:
            found = await self.last(subject)
        except HubUnreachable:
            raise HubUnreachable("hub_unclear") from None
        is_ours = found is not None and found.headers.get(OP) == op
        if found is None or not (is_ours or (replaces is not None and found.sequence > replaces)):
            raise HubUnreachable("hub_unclear")
        return found

    async def _api(self, call: str, request: Mapping[str, Any], *, but: int = NOT_FOUND) -> dict[str, Any]:
        """Returns the answer of the JetStream API, also one with the error code `but`. Raises `HubUnreachable`."""
        self._require_connected()
        try:
            reply = await self.client.request(self.names.api(call), json.dumps(request).encode(), REQUEST_SECONDS)
        except NoRespondersError:
            await self._lost()
            raise HubUnreachable from None
        except FAILED as error:
            raise HubUnreachable from error
        answer: dict[str, Any] = json.loads(reply.data)
        if answer.get("error", {}).get("err_code") not in (None, but):
            logger.warning("the hub refused %s: %s", call, answer["error"])
            raise HubUnreachable
        return answer

    def _require_connected(self) -> None:
        if not self.connected:
            raise HubUnreachable

    async def _on_error(self, error: Exception) -> None:
        self.refused = is_key_refused(error)
        if not self.connected:
            self.tried_at = format_time(now().replace(second=0, microsecond=0))
        _, found, subject = str(error).partition('publish to "')
        if found:
            self.violations.add(subject.rstrip('"'))
        if self._said != (words := str(error)):  # a hub that is away fails four times a second
            logger.info("hub: %s", words)
            self._said = words

    def _presented(self, certificate: str) -> None:
        self.certificate = certificate

    async def _on_change(self) -> None:
        self.recognised, self._said = False, ""
        self._connections += 1
        self.refused = False
        self.on_change()
        is_renewed = self.connected and self.certificate is not None and self.certificate != self._trusted
        if is_renewed and self.on_renewed(str(self.certificate)):
            await self.client.close()  # the next connection trusts the former one no more

    async def _on_closed(self) -> None:
        self.recognised = False
        self._closed.set()
        self.on_change()


def is_key_refused(error: BaseException | None) -> bool:
    """Returns whether a server refused the client's key: the client reports that in the server's words when it
    connects, and in its own on an existing connection."""
    return isinstance(error, AuthorizationError) or "authorization violation" in str(error).lower()


async def batch_after(client: Client, call: str, sequence: int, subject: str = ">") -> list[Stored]:
    """Returns the next values of a stream in order by one batched direct get, at most `BATCH`; [] if there are none.
    Raises `NoRespondersError` if there is no such stream, and others of `FAILED`."""
    request = {"seq": sequence + 1, "next_by_subj": subject, "batch": BATCH, "max_bytes": BATCH_BYTES}
    batch, answers = _Batch(), client.new_inbox()
    subscription = await client.subscribe(answers, cb=batch.heard)
    try:
        await client.publish(call, json.dumps(request).encode(), reply=answers)
        found = await batch.whole()
    finally:
        await subscription.unsubscribe()
    if batch.has_no_stream:
        raise NoRespondersError
    return found


class _Batch:
    """The answers of one batched direct get, up to its end (ADR-31 of NATS)."""

    def __init__(self) -> None:
        self.has_no_stream = False
        self._found: list[Stored] = []
        self._ended = asyncio.Event()

    async def heard(self, message: Msg) -> None:
        if found := _stored(message):
            self._found.append(found)
        else:  # 204: the end of the batch; 404: nothing is after this sequence
            self.has_no_stream = (message.headers or {}).get("Status") == NO_RESPONDERS
            self._ended.set()

    async def whole(self) -> list[Stored]:
        """Returns all values of the batch. Raises `TimeoutError` if the next answer does not come."""
        while not self._ended.is_set():
            known = len(self._found)
            try:
                await asyncio.wait_for(self._ended.wait(), REQUEST_SECONDS)
            except TimeoutError:
                if len(self._found) == known:
                    raise
        return self._found


def _stored(message: Msg) -> Stored | None:
    """Returns the value in an answer to a direct get; None if the answer is a status of the server.

    Only the server's own headers distinguish them: it adds its headers after the publisher's, which may contain a
    `Status`, or another subject."""
    headers = message.headers or {}
    if "Nats-Subject" not in headers or "Nats-Sequence" not in headers:  # "no responders" has the first
        return None
    needed = {name: headers[name] for name in NEEDED if name in headers}
    return Stored(headers["Nats-Subject"], int(headers["Nats-Sequence"]), needed, message.data)


def _headers(block: bytes) -> dict[str, str]:
    lines = block.decode(errors="replace").split("\r\n")[1:]
    return {name: value.strip() for name, found, value in (line.partition(":") for line in lines) if found}


def protected(
    urls: Sequence[str], certificate: str | None, presented: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Returns the client's options for TLS. With a certificate only the server that has it is accepted, under any name
    or address, or has one that was signed with its key, of which `presented` is told (`share --renew`); without one,
    the system's authorities decide if a URL begins with `tls`. TLS begins before the server's first message, which an
    attacker could otherwise change to disable it."""
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a renewed certificate is trusted without its former one
        context.sslobject_class = _telling(presented)
        context.load_verify_locations(cadata=certificate)
    elif any(url.startswith("tls://") for url in urls):
        context = ssl.create_default_context()
    else:
        return {}
    return {"tls": context, "tls_handshake_first": True}


def _telling(presented: Callable[[str], None]) -> type[ssl.SSLObject]:
    """Returns a kind of connection that tells the server's certificate once it has proved to be trusted."""

    class Telling(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            presented(ssl.DER_cert_to_PEM_cert(self.getpeercert(binary_form=True) or b"").strip())

    return Telling
