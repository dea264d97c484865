"""Recreates a hub from the files of one machine, after the old one was lost or restored from an older copy.

The new revisions begin far above the old ones, so that every machine accepts its values as newer. Each value carries
its old revision: a machine whose file is newer than that sends its own. Machines send their own values themselves, as
they scan all their files when they find the new hub.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator

from nats.aio.client import Client

from multi_agent_mcp.hub.administration import administer, connected_once, make_streams
from multi_agent_mcp.hub.server import Server
from multi_agent_mcp.hub.shared_settings import shared_settings
from multi_agent_mcp.hub.stream import MACHINE, NO_STREAM, OP, TIME, WAS
from multi_agent_mcp.store.tasks import LINE
from multi_agent_mcp.store.workspace import Workspace

GAP = 1_000_000
"""The gap between the position of this machine and the new hub's first revision, which no machine can have passed."""


async def reseed(server: Server, workspace: Workspace, machine: str, position: int, identity: str) -> None:
    """Replaces the hub's streams by new ones with the shared values of the files here. Raises `HubUnreachable`."""
    client = await connected_once([server.local_url], server.admin_seed, server.certificate, "admin")
    try:
        for stream in (server.names.stream, server.names.log_stream):
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
    for collection in (workspace.conversations, workspace.delegations, workspace.tasks):
        yield from collection.shared_values()
    for name, line in workspace.tasks.lines():
        yield f"{LINE}.{name}", line, 0


async def _put(client: Client, subject: str, data: bytes, machine: str, was: int) -> None:
    headers = {OP: secrets.token_hex(8), MACHINE: machine, TIME: str(time.time_ns()), WAS: str(was)}
    await administer(client, subject, data, headers=headers)
