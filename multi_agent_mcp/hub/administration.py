"""Administration of the hub: creating its streams, and connections for single requests."""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig

from multi_agent_mcp.errors import HubUnreachable
from multi_agent_mcp.hub.server import HubServer
from multi_agent_mcp.hub.share_directory import shared_settings
from multi_agent_mcp.hub.sizes import BEAT_BYTES, is_acceptable
from multi_agent_mcp.hub.stream import (
    BATCH,
    FAILED,
    FORM,
    MACHINE,
    NO_STREAM,
    OP,
    TIME,
    WAS,
    Stored,
    batch_after,
    protected,
)
from multi_agent_mcp.hub.subjects import BY_NAME, JETSTREAM, KINDS, Names, Rule, inbox
from multi_agent_mcp.store.authority import PAYLOAD_BYTES, SHARED_BYTES
from multi_agent_mcp.store.shared_collection import LINE
from multi_agent_mcp.store.workspace import Workspace

NAME_TAKEN = 10058
"""The error code of the JetStream API for creating a stream that exists with another configuration."""
STORE_REFUSED = "error creating store"
"""The server's words when it cannot make a stream's files, for whatever reason."""
CONNECT_SECONDS = 3.0
CREATE_SECONDS = 5.0
ADMINISTER_SECONDS = 10.0
LOG_SECONDS = 90 * 24 * 3600
HEADERS_BYTES = 4 << 10
"""The most that the headers of a value take; the server counts them, too."""
VALUES, VALUE_BYTES, LOG_BYTES = 300_000, 512 << 20, 128 << 20
"""The most that a stream holds. One machine can fill no more than its own lane, and `PART_BYTES` of what all share."""
PART_BYTES = VALUE_BYTES // 2
"""What one machine may write of what all share, by the measure of `shares_of`."""


async def make_streams(client: Client, names: Names, identity: str, *, first: int = 1, replicas: int = 1) -> None:
    """Creates the streams of a session unless they exist; the values' sequence begins at `first`. Requires the
    administrator's permissions, which no machine has. Raises `HubUnreachable`."""
    common = {
        "description": f"{FORM} {identity}",
        "storage": "file",
        "num_replicas": replicas,
        "allow_direct": True,
        "max_msg_size": PAYLOAD_BYTES,
        "deny_delete": True,
        "deny_purge": True,
    }
    values = {"max_msgs_per_subject": 1, "max_msgs": VALUES, "max_bytes": VALUE_BYTES, "discard": "new"}
    logs = {"max_age": LOG_SECONDS * 10**9, "max_msgs": VALUES, "max_bytes": LOG_BYTES, "discard": "old"}
    beats = {
        "max_msg_size": BEAT_BYTES + HEADERS_BYTES,
        "subjects": [names.heartbeats],
        "max_msgs_per_subject": 1,
        "republish": {"src": names.heartbeats, "dest": names.heard.replace("*", "{{wildcard(1)}}")},
    }
    for stream in names.streams:
        kind = values if stream in names.values else logs
        begins = {"first_seq": first, "max_msg_size": SHARED_BYTES + HEADERS_BYTES} if stream == names.stream else {}
        news = {"src": ">", "dest": names.news, "headers_only": True}
        config = {**common, **kind, **begins, "subjects": names.subjects_of(stream), "republish": news}
        await _create(client, stream, config)
    await _create(client, names.beat_stream, {**common, **beats})


async def take_new_kinds(server: HubServer) -> None:
    """Lets the streams of a hub that an earlier version has made take the kinds that were added since. Raises
    `HubUnreachable`."""
    client, names = await connected_as_administrator(server), server.names
    try:
        for stream in names.streams:
            answer = json.loads((await client.request(f"$JS.API.STREAM.INFO.{stream}", b"", ADMINISTER_SECONDS)).data)
            config, taken = answer.get("config", {}), names.subjects_of(stream)
            if config.get("description", "").startswith(FORM) and set(config["subjects"]) != set(taken):
                data = json.dumps({**config, "subjects": taken}).encode()
                await administer(client, f"$JS.API.STREAM.UPDATE.{stream}", data)
    except FAILED as error:
        raise HubUnreachable from error
    finally:
        await client.close()


async def connected_as_administrator(server: HubServer) -> Client:
    """Returns a connection with the rights to make streams. Raises `HubUnreachable`."""
    return await connected_once([server.local_url], server.admin_seed, server.certificate, "admin")


async def _create(client: Client, stream: str, config: Mapping[str, Any]) -> None:
    """Creates a stream. A server that is still removing the files of a deleted stream of this name refuses; then it is
    asked again, for at most `CREATE_SECONDS`."""
    call, data = f"$JS.API.STREAM.CREATE.{stream}", json.dumps({**config, "name": stream}).encode()
    deadline = time.monotonic() + CREATE_SECONDS
    while True:
        try:
            await administer(client, call, data, but=NAME_TAKEN)
        except HubUnreachable as refusal:
            if STORE_REFUSED not in str(refusal.values.get("words")) or time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)
        else:
            return


async def administer(
    client: Client, subject: str, data: bytes, *, headers: dict[str, str] | None = None, but: int | None = None
) -> None:
    """Sends the hub a request that needs the administrator's permissions. Raises `HubUnreachable`, also if the hub
    refuses with another code than `but`."""
    try:
        answer = json.loads((await client.request(subject, data, ADMINISTER_SECONDS, headers=headers)).data)
    except FAILED as error:
        raise HubUnreachable from error
    if "error" in answer and answer["error"].get("err_code") != but:
        raise HubUnreachable("hub_refused", words=answer["error"].get("description"))


async def connected_once(urls: Sequence[str], seed: str, certificate: str | None, name: str) -> Client:
    """Returns a connection for one request. Retries for `CONNECT_SECONDS`, as a server may not know a new user yet.
    Raises `HubUnreachable`, and says so if somebody else answers."""
    deadline = time.monotonic() + CONNECT_SECONDS
    said: list[Exception] = []

    async def note(error: Exception) -> None:
        said.append(error)

    while True:
        client = Client()
        try:
            await client.connect(
                list(urls),
                nkeys_seed_str=seed,
                **protected(urls, certificate),
                inbox_prefix=inbox(name),
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=2,
                error_cb=note,
            )
            return client
        except FAILED as error:
            with suppress(Exception):  # it may be in any state
                await asyncio.wait_for(client.close(), 0.5)
            if time.monotonic() > deadline:
                is_stranger = any(isinstance(each, ssl.SSLCertVerificationError) for each in (*said, error))
                key = "hub_stranger" if is_stranger else "hub_not_reached"
                raise HubUnreachable(key, urls=", ".join(urls)) from error
            await asyncio.sleep(0.1)


# Recreates a hub from the files of one machine, after the old one was lost or restored from an older copy.
#
# The new revisions begin far above the old ones, so that every machine accepts its values as newer. Each value carries
# its old revision: a machine whose file is newer than that sends its own. Machines send their own values themselves, as
# they scan all their files when they find the new hub.

GAP = 1_000_000
"""The gap between the position of this machine and the new hub's first revision, which no machine can have passed."""


PER_VALUE_BYTES = 300
"""What the hub keeps besides a value: its subject and headers."""


async def reseed(
    server: HubServer, workspace: Workspace, machine: str, position: int, identity: str, without: str
) -> int:
    """Replaces the hub's streams by new ones with the shared values of the files here; returns how many were left out.
    What the machine `without` has written last is left out, with it what it has written first; what another one had
    written before is put back. Its files here are in the quarantine then. Raises `HubUnreachable`, and before anything
    is changed if all of it has no room on the hub."""
    client = await connected_as_administrator(server)
    try:
        names = server.names
        written = await _written_by(client, names, without) if without else {}
        sizes = [len(each[1]) + PER_VALUE_BYTES for each in _sent_values(workspace, written)]
        if sum(sizes) > VALUE_BYTES or len(sizes) > VALUES:
            raise HubUnreachable("hub_no_room", mib=-(-sum(sizes) >> 20), limit=VALUE_BYTES >> 20)
        for key in written:
            _keep_aside(workspace, key)
        former = f"{names.stream}_LOG"  # of the form in which all machines shared two streams
        for stream in (*names.streams, names.beat_stream, former):
            await administer(client, f"$JS.API.STREAM.DELETE.{stream}", b"", but=NO_STREAM)
        successor = f"{secrets.token_hex(8)} after {identity}"
        await make_streams(client, names, successor, first=position + GAP)
        put_back = ((key, *found) for key, found in written.items())
        for key, data, was in chain(_sent_values(workspace, written), put_back):
            subject, at = names.stored(names.shared(key), machine), _changed_at(workspace, key)
            await _put(client, subject, data, machine, was, at)
        return len(written)
    except FAILED as error:
        raise HubUnreachable from error
    finally:
        await client.close()


def _sent_values(workspace: Workspace, written: Mapping[str, Any]) -> Iterator[tuple[str, bytes, int]]:
    """Yields the values of the files that go to the new hub. Left out are entities that are `written` again, with their
    history's lines, and what is too large; `doctor` names that."""
    for key, data, was in _shared_values(workspace):
        kind, _, name = key.partition(".")
        left_out = key in written or (kind == LINE and f"tsk.{name.partition('-')[0]}" in written)
        if not left_out and is_acceptable(key, data):
            yield key, data, was


async def _written_by(client: Client, names: Names, machine: str) -> dict[str, tuple[bytes, int]]:
    """Returns the entities that a machine has written last, by their keys: what another one had written before (nothing
    for those that it has made), and the revision that is left out. Raises `HubUnreachable`."""
    newest: dict[str, tuple[int, str]] = {}
    others: dict[str, tuple[int, bytes]] = {}
    async for stored in _all_of(client, names.stream):
        key, writer = str(names.parse(stored.subject)), names.writer(stored.subject)
        if BY_NAME.get(key.partition(".")[0]) is None:
            continue  # agents have a command of their own
        newest[key] = max(newest.get(key, (0, "")), (stored.sequence, writer))
        if writer != machine:
            others[key] = max(others.get(key, (0, b"")), (stored.sequence, stored.data))
    left_out = {key: revision for key, (revision, writer) in newest.items() if writer == machine}
    return {key: (others.get(key, (0, b""))[1], revision) for key, revision in left_out.items()}


async def _all_of(client: Client, stream: str) -> AsyncIterator[Stored]:
    """Yields the values of a stream, by the administrator's rights. Raises `HubUnreachable`."""
    sequence = 0
    while batch := await batch_after(client, f"{JETSTREAM}.DIRECT.GET.{stream}", sequence):
        for stored in batch:
            yield stored
        sequence = batch[-1].sequence


async def shares_of(server: HubServer) -> dict[str, int]:
    """Returns how many bytes each machine has written of what all share; a short value counts as its part of as many
    values as a stream holds. The hub says their sizes: the values themselves, up to `VALUE_BYTES`, would keep the relay
    that asks from its work. Raises `HubUnreachable`."""
    client, found = await connected_as_administrator(server), Counter[str]()
    sizes = ConsumerConfig(headers_only=True, ack_policy=AckPolicy.NONE, inactive_threshold=ADMINISTER_SECONDS)
    try:
        asked = await client.jetstream(timeout=ADMINISTER_SECONDS).pull_subscribe(
            "", stream=server.names.stream, config=sizes
        )
        pending = (await asked.consumer_info()).num_pending
        while pending:
            for value in await asked.fetch(BATCH, ADMINISTER_SECONDS):
                size = int((value.headers or {})["Nats-Msg-Size"]) + PER_VALUE_BYTES
                found[server.names.writer(value.subject)] += max(size, VALUE_BYTES // VALUES)
                pending = value.metadata.num_pending
        return {**found}
    except (*FAILED, LookupError) as error:
        raise HubUnreachable from error
    finally:
        await client.close()


async def make_room(server: HubServer, beside: int) -> None:
    """Lets what all share hold as much as ever beside so many bytes (`shares_of`). Raises `HubUnreachable`."""
    client, stream = await connected_as_administrator(server), server.names.stream
    try:
        config = json.loads((await client.request(f"$JS.API.STREAM.INFO.{stream}", b"", ADMINISTER_SECONDS)).data)
        limits = {"max_bytes": VALUE_BYTES + beside, "max_msgs": VALUES + beside * VALUES // VALUE_BYTES}
        if not limits.items() <= config.get("config", {}).items():
            data = json.dumps({**config["config"], **limits}).encode()
            await administer(client, f"$JS.API.STREAM.UPDATE.{stream}", data)
    except (*FAILED, KeyError) as error:
        raise HubUnreachable from error
    finally:
        await client.close()


def _keep_aside(workspace: Workspace, key: str) -> None:
    """Keeps a copy of a file that is to be left out."""
    kind, _, name = key.partition(".")
    collection = BY_NAME[kind].collection(workspace)
    located = collection.locate(name)
    if located is not None:
        workspace.conflicts.keep_file(located.directory.path / collection.layout.name(name))


def newest_revision(workspace: Workspace) -> int:
    """Returns the newest revision in the marks of the files."""
    return max(was for _, _, was in _shared_values(workspace))


def _shared_values(workspace: Workspace) -> Iterator[tuple[str, bytes, int]]:
    """Yields every shared value of the files: its key, its bytes, its old revision."""
    yield "settings", shared_settings(workspace), 0
    yield from workspace.registry.shared_values()
    for kind in KINDS:
        if kind.rule is Rule.SHARED:
            yield from kind.collection(workspace).shared_values()
    for name, line in workspace.tasks.lines():
        yield f"{LINE}.{name}", line, 0


def _changed_at(workspace: Workspace, key: str) -> int:
    """Returns when the value's file was last changed, which decides the month of the archive."""
    kind, _, name = key.partition(".")
    known = BY_NAME[kind].collection(workspace).changed_at(name) if kind in BY_NAME else None
    return time.time_ns() if known is None else int(known)


async def _put(client: Client, subject: str, data: bytes, machine: str, was: int, at: int) -> None:
    headers = {OP: secrets.token_hex(8), MACHINE: machine, TIME: str(at), WAS: str(was)}
    await administer(client, subject, data, headers=headers)
