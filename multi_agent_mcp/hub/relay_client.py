"""The authority of a shared session: a client of this machine's relay, over a Unix socket.

It imports neither the hub's client nor an event loop, so that servers and commands start without them.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from multi_agent_mcp.errors import HubReplaced, HubUnreachable, StorageError
from multi_agent_mcp.hub.share_directory import Membership, Share, socket_path
from multi_agent_mcp.store.authority import Shared, Superseded
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.records import RelayState

ANSWER_SECONDS = 6.0
"""The time to wait for the relay, longer than the relay waits for the hub."""
QUEUE_SECONDS = 0.25
HUB_SECONDS = 0.2
"""The time to wait for the relay about new mail, and the part of it for which the relay waits for the hub: a relay that
hangs does not answer at all."""
CHANGES = frozenset({"create", "swap"})
STATE_SECONDS = 1.0
HUB_SLOW = "hub_slow"
"""The reason for queued mail if no problem is known."""
HANGS, UNCLEAR = "relay_hangs", "relay_unclear"
"""The reasons if the relay runs but does not answer: in general, and after it was asked for a change."""
REFUSALS: dict[str, type[StorageError]] = {"hub_unreachable": HubUnreachable, "hub_replaced": HubReplaced}


class RelayClient:
    """A client of the relay; see `store.shared_collection.Authority`. Without a relay shared values cannot be
    changed."""

    def __init__(self, share: Share, membership: Membership) -> None:
        self.here: str | None = membership.machine
        self._share = share
        self._state: tuple[float, dict[str, Any]] = (float("-inf"), {})

    def require(self) -> None:
        self.ask(op="require")

    def create(self, key: str, data: bytes, was: int | None = None) -> int | None:
        return self._revision(op="create", key=key, data=data.decode(), was=was)

    def swap(self, key: str, revision: int, data: bytes, *, edited: bool = False) -> int | None:  # noqa: ARG002
        # `edited` is left out: only the relay itself sends what was edited by hand.
        return self._revision(op="swap", key=key, revision=revision, data=data.decode())

    def current(self, key: str) -> Shared | None:
        return _shared(self.ask(op="current", key=key)["current"])

    def queue(self, paths: Sequence[Path], *, wait: bool) -> str | None:
        names = [str(path.relative_to(self._share.files.base)) for path in paths]
        try:
            seconds = HUB_SECONDS if wait else 0
            waits: str | None = self.ask(QUEUE_SECONDS, op="queue", paths=names, wait=seconds)["waits"]
        except HubUnreachable as refusal:
            if refusal.key == "error.no_relay":
                return "no_relay"
            return HANGS if RelayState(self._share.files).read()["hangs"] else HUB_SLOW
        return waits

    def is_up(self, machine: str) -> bool:
        if machine == self.here:
            return True
        asked, state = self._state
        if time.monotonic() - asked > STATE_SECONDS:
            state = RelayState(self._share.files).read()
            self._state = time.monotonic(), state
        return bool(state.get("machines", {}).get(machine, {}).get("up"))

    def ask(self, seconds: float = ANSWER_SECONDS, /, **request: Any) -> dict[str, Any]:
        """Sends one request and returns the answer. Raises `HubReplaced`, and `HubUnreachable`, also if the relay does
        not answer within `seconds`: then a change may have been made or may still be."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(seconds)
            try:
                with socket_path(self._share.path) as path:
                    connection.connect(path)
            except TimeoutError as error:  # the socket's backlog is full
                raise self._hangs(HANGS) from error
            except OSError as error:
                raise HubUnreachable("no_relay") from error
            try:
                answer = _answered(connection, request)
            except TimeoutError as error:
                raise self._hangs(UNCLEAR if request["op"] in CHANGES else HANGS) from error
            except (OSError, ValueError) as error:  # the relay has just been killed
                raise HubUnreachable("hub_unclear" if request["op"] in CHANGES else "no_relay") from error
        if "refused" in answer:
            raise REFUSALS[answer["refused"]](answer.get("key"))
        return answer

    def _hangs(self, key: str) -> HubUnreachable:
        return HubUnreachable(key, pid=RelayState(self._share.files).read().get("pid", "-"))

    def _revision(self, **request: Any) -> int:
        answer = self.ask(**request)
        if (current := _shared(answer.get("superseded"))) is not None:
            raise Superseded(current)
        return int(answer["revision"])


def relay_client_of(session: Path) -> RelayClient | None:
    """Returns the authority of a session directory; None if the session is not shared."""
    share = Share(Files(session))
    membership = share.membership()
    return None if membership is None else RelayClient(share, membership)


def _answered(connection: socket.socket, request: Mapping[str, Any]) -> dict[str, Any]:
    connection.sendall(json.dumps(request).encode() + b"\n")
    with connection.makefile("rb") as stream:
        answer: dict[str, Any] = json.loads(stream.readline())
        return answer


def _shared(value: Any) -> Shared | None:
    return None if value is None else Shared(value["revision"], value["data"].encode())
