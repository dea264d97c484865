"""Administration of the hub: creating its streams, and connections for single requests."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from nats.aio.client import Client

from multi_agent_mcp.errors import HubUnreachable
from multi_agent_mcp.hub.kinds import KINDS, Rule
from multi_agent_mcp.hub.share_directory import shared_settings
from multi_agent_mcp.hub.stream import FAILED, MACHINE, NO_STREAM, OP, TIME, WAS, protected
from multi_agent_mcp.hub.subjects import Names, inbox
from multi_agent_mcp.store.authority import PAYLOAD_BYTES
from multi_agent_mcp.store.shared_collection import LINE

if TYPE_CHECKING:
    from multi_agent_mcp.hub.server import Server
    from multi_agent_mcp.store.workspace import Workspace

NAME_TAKEN = 10058
"""The error code of the JetStream API for creating a stream that exists with another configuration."""
STORE_REFUSED = "error creating store"
"""The server's words when it cannot make a stream's files, for whatever reason."""
CONNECT_SECONDS = 3.0
CREATE_SECONDS = 5.0
ADMINISTER_SECONDS = 10.0
LOG_SECONDS = 90 * 24 * 3600


async def make_streams(client: Client, names: Names, identity: str, *, first: int = 1, replicas: int = 1) -> None:
    """Creates the streams of a session unless they exist; the values' sequence begins at `first`. Requires the
    administrator's permissions, which no machine has. Raises `HubUnreachable`."""
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
    beats = {
        "name": names.beat_stream,
        "description": identity,
        "subjects": [names.heartbeats],
        "max_msgs_per_subject": 1,
        "republish": {"src": names.heartbeats, "dest": names.heard.replace("*", "{{wildcard(1)}}")},
    }
    for config in (values, logs, beats):
        await _create(client, f"$JS.API.STREAM.CREATE.{config['name']}", json.dumps({**config, **common}).encode())


async def _create(client: Client, call: str, config: bytes) -> None:
    """Creates a stream. A server that is still removing the files of a deleted stream of this name refuses; then it is
    asked again, for at most `CREATE_SECONDS`."""
    deadline = time.monotonic() + CREATE_SECONDS
    while True:
        try:
            await administer(client, call, config, but=NAME_TAKEN)
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
    Raises `HubUnreachable`."""
    deadline = time.monotonic() + CONNECT_SECONDS
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
                error_cb=_ignore,
            )
            return client
        except FAILED as error:
            with suppress(Exception):  # it may be in any state
                await asyncio.wait_for(client.close(), 0.5)
            if time.monotonic() > deadline:
                raise HubUnreachable from error
            await asyncio.sleep(0.1)


async def _ignore(_: Exception) -> None:
    """Ignores an error, as the caller gets it, too."""


# Recreates a hub from the files of one machine, after the old one was lost or restored from an older copy.
#
# The new revisions begin far above the old ones, so that every machine accepts its values as newer. Each value carries
# its old revision: a machine whose file is newer than that sends its own. Machines send their own values themselves, as
# they scan all their files when they find the new hub.

GAP = 1_000_000
"""The gap between the position of this machine and the new hub's first revision, which no machine can have passed."""


async def reseed(server: Server, workspace: Workspace, machine: str, position: int, identity: str) -> None:
    """Replaces the hub's streams by new ones with the shared values of the files here. Raises `HubUnreachable`."""
    client = await connected_once([server.local_url], server.admin_seed, server.certificate, "admin")
    try:
        for stream in (server.names.stream, server.names.log_stream, server.names.beat_stream):
            await administer(client, f"$JS.API.STREAM.DELETE.{stream}", b"", but=NO_STREAM)
        successor = f"{secrets.token_hex(8)} after {identity}"
        await make_streams(client, server.names, successor, first=position + GAP)
        for key, data, was in _shared_values(workspace):
            await _put(client, server.names.shared(key), data, machine, was)
    finally:
        await client.close()


def _shared_values(workspace: Workspace) -> Iterator[tuple[str, bytes, int]]:
    """Yields every shared value of the files: its key, its bytes, its old revision."""
    yield "settings", shared_settings(workspace), 0
    yield from workspace.registry.shared_values()
    for kind in KINDS:
        if kind.rule is Rule.SHARED:
            yield from kind.collection(workspace).shared_values()
    for name, line in workspace.tasks.lines():
        yield f"{LINE}.{name}", line, 0


async def _put(client: Client, subject: str, data: bytes, machine: str, was: int) -> None:
    headers = {OP: secrets.token_hex(8), MACHINE: machine, TIME: str(time.time_ns()), WAS: str(was)}
    await administer(client, subject, data, headers=headers)
