"""The authority of a machine that shares its session: every question goes to its relay, by a socket of this machine.

No client of the hub and no event loop is imported here: servers and commands start without them.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multi_agent_mcp.errors import HubReplaced, HubUnreachable, StorageError
from multi_agent_mcp.hub.share import Membership, Share, socket_path
from multi_agent_mcp.store.authority import Shared, Superseded
from multi_agent_mcp.store.files.durable_files import Files

ANSWER_SECONDS = 6.0
"""Longer than the relay waits for the hub."""
QUEUE_SECONDS = 0.25
STATE_SECONDS = 1.0
REFUSALS: dict[str, type[StorageError]] = {"hub_unreachable": HubUnreachable, "hub_replaced": HubReplaced}


class Link:
    """Asks the relay; see `store.authority.Authority`. Without a relay nothing shared can be changed."""

    def __init__(self, share: Share, membership: Membership) -> None:
        self.here: str | None = membership.machine
        self._share = share
        self._state: tuple[float, dict[str, Any]] = (float("-inf"), {})

    def require(self) -> None:
        self.ask(op="require")

    def create(self, key: str, data: bytes) -> int | None:
        return self._revision(op="create", key=key, data=data.decode())

    def swap(self, key: str, revision: int, data: bytes) -> int | None:
        return self._revision(op="swap", key=key, revision=revision, data=data.decode())

    def current(self, key: str) -> Shared | None:
        return _shared(self.ask(op="current", key=key)["current"])

    def queue(self, paths: Sequence[Path], *, wait: bool) -> bool:
        names = [str(path.relative_to(self._share.files.base)) for path in paths]
        try:
            return bool(self.ask(op="queue", paths=names, wait=QUEUE_SECONDS if wait else 0)["sent"])
        except HubUnreachable:
            return False

    def is_up(self, machine: str) -> bool:
        if machine == self.here:
            return True
        asked, state = self._state
        if time.monotonic() - asked > STATE_SECONDS:
            state = self._share.state() if self._share.relay_runs else {}
            self._state = time.monotonic(), state
        return bool(state.get("machines", {}).get(machine, {}).get("up"))

    def ask(self, **request: Any) -> dict[str, Any]:
        """One request and its answer. Raises `HubUnreachable` and `HubReplaced`."""
        try:
            answer: dict[str, Any] = json.loads(self._answer(json.dumps(request).encode() + b"\n"))
        except (OSError, ValueError) as error:
            raise HubUnreachable("no_relay") from error
        if "refused" in answer:
            raise REFUSALS[answer["refused"]](answer.get("key"))
        return answer

    def _answer(self, line: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX) as connection, socket_path(self._share.path) as path:
            connection.settimeout(ANSWER_SECONDS)
            connection.connect(path)
            connection.sendall(line)
            with connection.makefile("rb") as stream:
                return stream.readline()

    def _revision(self, **request: Any) -> int:
        answer = self.ask(**request)
        if (current := _shared(answer.get("superseded"))) is not None:
            raise Superseded(current)
        return int(answer["revision"])


def link_of(session: Path) -> Link | None:
    """The authority of a session directory; None for one that is not shared."""
    share = Share(Files(session))
    membership = share.membership()
    return None if membership is None else Link(share, membership)


def _shared(value: Any) -> Shared | None:
    return None if value is None else Shared(value["revision"], value["data"].encode())
