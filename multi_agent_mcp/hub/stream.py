"""The hub as the relay sees it: values by subject, each with a revision, over NATS JetStream.

Only requests and core subscriptions are used: see `Names.machine_permissions` for why there are no consumers. A stream
keeps the newest value of each subject; its sequence numbers are the revisions and the order in which all machines see
them. What the JetStream API answers: https://docs.nats.io/reference/reference-protocols/nats_api_reference.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error, NoRespondersError

from multi_agent_mcp.errors import HubUnreachable
from multi_agent_mcp.hub.subjects import Names, inbox
from multi_agent_mcp.store.authority import Shared, Superseded

logger = logging.getLogger(__name__)

OP, MACHINE, TIME, OFFSET, WAS = "Mam-Op", "Mam-Machine", "Mam-Time", "Mam-Offset", "Mam-Was"
"""Our headers: which operation wrote it, from where, when (nanoseconds), in a log from which byte on, and which
revision a value had on the hub that this one replaces."""
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
WRONG_SEQUENCE, NOT_FOUND = 10071, 10037
PAYLOAD_BYTES = 4 << 20
"""A message's content may have 1 MiB, which JSON and YAML may make longer."""
REQUEST_SECONDS = 2.0
ERRAND_SECONDS = 3.0
BATCH = 256
BATCH_BYTES = 8 << 20
LOG_SECONDS = 90 * 24 * 3600

_FAILED = (Error, OSError, asyncio.TimeoutError, ValueError)


@dataclass(frozen=True)
class Stored:
    """One value of a stream."""

    subject: str
    sequence: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def shared(self) -> Shared:
        return Shared(self.sequence, self.data)


@dataclass(frozen=True)
class StreamState:
    """`identity` is new whenever the stream is made anew."""

    identity: str
    last_sequence: int


@dataclass
class Hub:
    """A connection. It comes back by itself; meanwhile every request raises `HubUnreachable` at once."""

    names: Names
    machine: str
    on_change: Callable[[], None] = lambda: None
    """Called whenever it is connected or cut off."""
    client: Client = field(default_factory=Client)
    violations: set[str] = field(default_factory=set)

    async def connect(self, urls: Sequence[str], seed: str, certificate: str | None) -> None:
        """Returns when connected; tries until then. Raises `OSError` and `nats.errors.Error` only for what will not
        pass by itself."""
        await self.client.connect(
            list(urls),
            nkeys_seed_str=seed,
            tls=trusting(certificate),
            inbox_prefix=inbox(self.machine),
            allow_reconnect=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.25,  # type: ignore[arg-type]  # it is slept for
            connect_timeout=2,
            ping_interval=5,
            max_outstanding_pings=2,
            pending_size=0,  # what cannot be sent now is refused: the files remember it
            error_cb=self._on_error,
            disconnected_cb=self._on_change,
            reconnected_cb=self._on_change,
            closed_cb=self._on_change,
        )
        self.on_change()

    @property
    def connected(self) -> bool:
        return self.client.is_connected

    @property
    def version(self) -> str:
        return str(self.client.connected_server_version)

    async def close(self) -> None:
        await self.client.close()

    async def state(self, stream: str | None = None) -> StreamState:
        """Raises `HubUnreachable`."""
        answer = await self._api(f"STREAM.INFO.{stream or self.names.stream}", {})
        return StreamState(answer["config"].get("description", ""), answer["state"]["last_seq"])

    async def put(
        self, subject: str, data: bytes, op: str, headers: Mapping[str, str], *, expected: int | None = None
    ) -> int:
        """Stores a value; returns its revision. With `expected` only in place of this revision (0: of none). Raises
        `Superseded`, and `HubUnreachable` when it was not stored, or when that cannot be known.

        An answer may be lost after the value was stored. Then, and when it seems that somebody was faster, what is
        stored says by its operation whether it is ours.
        """
        sent = {OP: op, MACHINE: self.machine, **headers}
        if expected is not None:
            sent[EXPECTED] = str(expected)
        self._require_connected()
        try:
            answer = json.loads((await self.client.request(subject, data, REQUEST_SECONDS, headers=sent)).data)
        except NoRespondersError:
            raise HubUnreachable from None
        except _FAILED:
            if subject.lower() in self.violations:
                raise HubUnreachable("hub_permission") from None
            answer = {}
        if "seq" in answer and "error" not in answer:
            return int(answer["seq"])
        code = answer.get("error", {}).get("err_code")
        if code not in (None, WRONG_SEQUENCE):
            logger.warning("the hub refused %s: %s", subject, answer["error"])
            raise HubUnreachable
        return await self._settled(subject, op, is_refused=code is not None)

    async def last(self, subject: str, stream: str | None = None) -> Stored | None:
        """The newest value of a subject, which may have wildcards, as the leader has it. Raises `HubUnreachable`."""
        return await self._get(stream, {"last_by_subj": subject})

    async def at(self, sequence: int) -> Stored | None:
        """The value of this revision; None when a newer one has taken its place. Raises `HubUnreachable`."""
        return await self._get(None, {"seq": sequence})

    async def _get(self, stream: str | None, which: Mapping[str, Any]) -> Stored | None:
        answer = await self._api(f"STREAM.MSG.GET.{stream or self.names.stream}", which)
        if "message" not in answer:
            return None
        message = answer["message"]
        headers = _headers(base64.b64decode(message.get("hdrs", "")))
        return Stored(message["subject"], message["seq"], headers, base64.b64decode(message.get("data", "")))

    async def after(self, sequence: int, stream: str | None = None) -> list[Stored]:
        """The next values in order, some hundred at most; none when there are none (yet). Raises `HubUnreachable`."""
        request = {"seq": sequence + 1, "next_by_subj": ">", "batch": BATCH, "max_bytes": BATCH_BYTES}
        self._require_connected()
        try:
            answers = self.client.new_inbox()
            subscription = await self.client.subscribe(answers)
            try:
                subject = f"$JS.API.DIRECT.GET.{stream or self.names.stream}"
                await self.client.publish(subject, json.dumps(request).encode(), reply=answers)
                return [stored async for stored in _batch(subscription.next_msg)]
            finally:
                await subscription.unsubscribe()
        except _FAILED as error:
            raise HubUnreachable from error

    async def beat(self, facts: Mapping[str, Any]) -> None:
        """Tells the other machines that this one lives; not stored."""
        if self.connected:
            await self.client.publish(self.names.heartbeat(self.machine), json.dumps(facts).encode())

    async def hear(self, subject: str, heard: Callable[[Msg], Awaitable[None]]) -> None:
        await self.client.subscribe(subject, cb=heard)

    async def _settled(self, subject: str, op: str, *, is_refused: bool) -> int:
        """What became of a publish that was refused or not answered."""
        try:
            found = await self.last(subject)
        except HubUnreachable:
            raise HubUnreachable("hub_unclear") from None
        if found is not None and found.headers.get(OP) == op:
            return found.sequence
        if is_refused and found is not None:
            raise Superseded(found.shared)
        raise HubUnreachable

    async def _api(self, call: str, request: Mapping[str, Any]) -> dict[str, Any]:
        self._require_connected()
        try:
            reply = await self.client.request(f"$JS.API.{call}", json.dumps(request).encode(), REQUEST_SECONDS)
        except _FAILED as error:
            raise HubUnreachable from error
        answer: dict[str, Any] = json.loads(reply.data)
        if answer.get("error", {}).get("err_code") not in (None, NOT_FOUND):
            logger.warning("the hub refused %s: %s", call, answer["error"])
            raise HubUnreachable
        return answer

    def _require_connected(self) -> None:
        if not self.connected:
            raise HubUnreachable

    async def _on_error(self, error: Exception) -> None:
        _, found, subject = str(error).partition('publish to "')
        if found:
            self.violations.add(subject.rstrip('"'))
        logger.info("hub: %s", error)

    async def _on_change(self) -> None:
        self.on_change()


async def _batch(next_message: Callable[..., Awaitable[Msg]]) -> Any:
    """The answers of one batched direct get, up to its end (ADR-31 of NATS)."""
    while True:
        message = await next_message(timeout=REQUEST_SECONDS)
        headers = message.headers or {}
        if "Status" in headers:  # 204: the end of the batch; 404: there is nothing after this sequence
            return
        yield Stored(headers["Nats-Subject"], int(headers["Nats-Sequence"]), headers, message.data)


def _headers(block: bytes) -> dict[str, str]:
    lines = block.decode(errors="replace").split("\r\n")[1:]
    return {name: value.strip() for name, found, value in (line.partition(":") for line in lines) if found}


def trusting(certificate: str | None) -> ssl.SSLContext | None:
    """TLS to the one server that has this certificate, by whatever name or address it is reached."""
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate)
    return context


async def make_streams(client: Client, names: Names, identity: str, *, first: int = 1, replicas: int = 1) -> None:
    """Makes the streams of a session unless they are there; the values' sequence begins at `first`. Needs rights that
    no machine has. Raises `HubUnreachable`."""
    common = {"storage": "file", "num_replicas": replicas, "allow_direct": True, "max_msg_size": PAYLOAD_BYTES}
    values = {
        "name": names.stream,
        "description": identity,
        "subjects": list(names.stored),
        "max_msgs_per_subject": 1,
        "discard": "new",
        "deny_delete": True,
        "deny_purge": True,
        "first_seq": first,
    }
    logs = {"name": names.log_stream, "description": identity, "subjects": [names.logs], "max_age": LOG_SECONDS * 10**9}
    for config in (values, logs):
        call = f"$JS.API.STREAM.CREATE.{config['name']}"
        answer = json.loads((await client.request(call, json.dumps({**config, **common}).encode(), 10)).data)
        if "error" in answer and answer["error"]["err_code"] != 10058:  # it is there with another configuration
            raise HubUnreachable("hub_refused", words=answer["error"]["description"])


async def connected_once(urls: Sequence[str], seed: str, certificate: str | None, name: str) -> Client:
    """A connection for one errand. It is tried for a moment: a server that was just told of a user may not have taken
    that over yet. Raises `HubUnreachable`."""
    deadline = time.monotonic() + ERRAND_SECONDS
    while True:
        client = Client()
        try:
            await client.connect(
                list(urls),
                nkeys_seed_str=seed,
                tls=trusting(certificate),
                inbox_prefix=inbox(name),
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=2,
                error_cb=_ignore,
            )
            return client
        except _FAILED as error:
            with suppress(Exception):  # it may be in the middle of anything
                await asyncio.wait_for(client.close(), 0.5)
            if time.monotonic() > deadline:
                raise HubUnreachable from error
            await asyncio.sleep(0.1)


async def _ignore(_: Exception) -> None:
    """The caller gets it as well."""
