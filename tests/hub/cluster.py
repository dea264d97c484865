"""Three real nats-servers on loopback with three replicas of every value, as the user's own hub."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from nats.errors import Error

from multi_agent_mcp.errors import HubUnreachable
from multi_agent_mcp.hub.administration import connected_once
from multi_agent_mcp.hub.server import find_program, new_seed, public_of
from multi_agent_mcp.store.authority import PAYLOAD_BYTES
from tests.hub.support import eventually, free_port

SIZE = 3
CONFIGURATION = """
server_name: "server{number}"
listen: "127.0.0.1:{port}"
max_payload: {payload}
jetstream {{ store_dir: {store}, sync_interval: "always", max_buffered_msgs: 128 }}
cluster {{ name: "team", listen: "127.0.0.1:{route}", routes: {routes} }}
accounts {{
  HUB {{ jetstream: enabled, users: [ {{ nkey: "{admin}" }} ], {exports} }}
  {accounts}
}}
"""


@dataclass
class Cluster:
    """The cluster; its servers are identified by their number."""

    base: Path
    ports: list[int] = field(default_factory=lambda: [free_port() for _ in range(SIZE)])
    routes: list[int] = field(default_factory=lambda: [free_port() for _ in range(SIZE)])
    seed: str = field(default_factory=new_seed)
    exports: str = ""
    accounts: list[str] = field(default_factory=list)
    servers: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(f"nats://127.0.0.1:{port}" for port in self.ports)

    def start(self, number: int) -> None:
        self._configure(number)
        with (self.base / f"{number}.log").open("ab") as log:
            command = [find_program(), "-c", str(self.base / f"{number}.conf")]
            self.servers[number] = subprocess.Popen(command, stdout=log, stderr=log)

    def let(self, account: str, exports: str | None = None) -> None:
        """Lets a machine in, as the lines say that `share` or `join` has printed."""
        self.accounts.append(account)
        self.exports = exports or self.exports
        for number in self.servers:  # one after the other: a reload would lose what the new account imports
            self.kill(number)
            self.start(number)
            eventually(partial(_answers, self.ports[number]))

    def kill(self, number: int) -> None:
        self.servers[number].kill()
        self.servers[number].wait()

    def leader(self, stream: str) -> int:
        """The number of the server that leads a stream."""
        found: int | None = None

        def is_known() -> bool:
            nonlocal found
            found = asyncio.run(self._leader(stream))
            return found is not None

        eventually(is_known, "no leader")
        assert found is not None
        return found

    async def _leader(self, stream: str) -> int | None:
        try:
            client = await connected_once(self.urls, self.seed, None, "admin")
        except HubUnreachable:
            return None
        try:
            answer = json.loads((await client.request(f"$JS.API.STREAM.INFO.{stream}", b"", 2)).data)
            return int(answer["cluster"]["leader"].removeprefix("server"))
        except (Error, LookupError):
            return None
        finally:
            await client.close()

    def keep_on_one(self, stream: str) -> int:
        """Has a stream kept by one server alone, which is returned: while that is dead, the stream has no leader."""
        asyncio.run(self._keep_on_one(stream))
        return self.leader(stream)

    async def _keep_on_one(self, stream: str) -> None:
        client = await connected_once(self.urls, self.seed, None, "admin")

        async def ask(call: str, request: bytes = b"") -> dict[str, Any]:
            answer: dict[str, Any] = json.loads(
                (await client.request(f"$JS.API.STREAM.{call}.{stream}", request, 5)).data
            )
            assert "error" not in answer, answer
            return answer

        try:
            config = (await ask("INFO"))["config"]
            await ask("UPDATE", json.dumps({**config, "num_replicas": 1}).encode())
            while (await ask("INFO"))["cluster"].get("replicas"):
                await asyncio.sleep(0.1)
        finally:
            await client.close()

    def _configure(self, number: int) -> None:
        text = CONFIGURATION.format(
            number=number,
            port=self.ports[number],
            payload=PAYLOAD_BYTES + 65536,
            store=json.dumps(str(self.base / f"data{number}")),
            route=self.routes[number],
            routes=json.dumps([f"nats://127.0.0.1:{route}" for route in self.routes]),
            admin=public_of(self.seed),
            exports=self.exports,
            accounts="\n  ".join(self.accounts),
        )
        (self.base / f"{number}.conf").write_text(text)


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextmanager
def three_servers(base: Path) -> Iterator[Cluster]:
    base.mkdir()
    cluster = Cluster(base)
    try:
        for number in range(SIZE):
            cluster.start(number)
        yield cluster
    finally:
        for number in cluster.servers:
            cluster.kill(number)
