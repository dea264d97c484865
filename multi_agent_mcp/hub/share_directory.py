"""`.share/`, which is never shared: this machine's membership in a team of several, its access to the hub, and its
relay, as its other processes see and ask it."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from multi_agent_mcp.errors import HubReplaced, HubUnreachable, StorageError
from multi_agent_mcp.hub.subjects import Names, lane_for
from multi_agent_mcp.settings import parse_limits
from multi_agent_mcp.store.authority import Shared, Superseded
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.locks import RELAY
from multi_agent_mcp.store.records import SHARE, Record, RelayState
from multi_agent_mcp.texts import LANGUAGES
from multi_agent_mcp.yaml_files import load_yaml

if TYPE_CHECKING:
    from multi_agent_mcp.store.workspace import Workspace

# The settings of `session.yaml` that machines share: language and limits. Not `notify_command`: no other machine may
# decide which program runs here.

SHARED = ("language", "limits")


def shared_settings(workspace: Workspace) -> bytes:
    """Returns the shared part of the settings as JSON."""
    settings = load_yaml(workspace.settings_path) or {}
    return json.dumps({key: settings[key] for key in SHARED if settings.get(key)}, sort_keys=True).encode()


def valid_settings(said: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what machines share of settings that another one has sent, and nothing else. Raises `ValueError` and
    `Refusal` for invalid ones."""
    if "language" in said and said["language"] not in tuple(LANGUAGES):
        raise ValueError("language")
    parse_limits(said.get("limits"))
    return {key: said[key] for key in SHARED if key in said}


def accept_settings(workspace: Workspace, data: bytes) -> None:
    """Applies settings of another machine. Raises `ValueError` and `Refusal` for invalid ones."""
    said = valid_settings(json.loads(data))
    if data != shared_settings(workspace):
        settings = {**load_yaml(workspace.settings_path), **said}
        text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
        workspace.files.replace(workspace.settings_path, text.encode())


SOCKET = "relay.sock"
_SOCKET_PATH_MAX = 100  # sockaddr_un(7) holds 108 bytes, on macOS 104


@dataclass(frozen=True)
class Membership:
    """The membership of this machine in a session. `urls` are the hub's, `lane` is the machine's lane there; `serves`:
    the hub runs here; `own_hub`: it is the user's own, whose configuration names each machine."""

    uuid: str
    machine: str
    urls: tuple[str, ...]
    serves: bool = False
    own_hub: bool = False
    lane: str = ""

    @property
    def names(self) -> Names:
        return Names(self.uuid, self.lane or lane_for(self.machine))


class Share:
    """The directory `.share/` of a session."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.path = files.base / SHARE

    def record(self, name: str) -> Record:
        return Record(self.files, self.path / f"{name}.json")

    def membership(self) -> Membership | None:
        """Returns this machine's membership; None if the session is not shared."""
        if not (found := self.record("machine").facts()):
            return None
        kind = {name: bool(found.get(name)) for name in ("serves", "own_hub")}
        return Membership(found["uuid"], found["machine"], tuple(found["urls"]), **kind, lane=found.get("lane", ""))

    def join(self, membership: Membership, seed: str, certificate: str | None) -> None:
        """Writes this machine's key, certificate and membership; the last makes the session shared."""
        self.files.replace(self.path / "machine.nk", seed.encode())
        self.trust(certificate)
        self.record("machine").write(asdict(membership))

    def trust(self, certificate: str | None) -> None:
        """Trusts the hub with this certificate alone; None: without TLS, or with what the system's authorities sign."""
        if certificate is None:
            self.files.remove(self.path / "hub.pem")
        elif certificate.strip() != self.certificate():
            self.files.replace(self.path / "hub.pem", certificate.encode())

    def leave(self) -> None:
        """Ends the membership, so that the session is no longer shared; all files stay, including the key."""
        if (known := self.membership()) is not None:
            self.record("left").write({"machine": known.machine, "uuid": known.uuid})
        self.record("machine").remove()

    @property
    def former_machine(self) -> str | None:
        """This machine's name when it left; None if it never has."""
        return self.record("left").facts().get("machine")

    def former_home(self, uuid: str) -> str | None:
        """Returns this machine's name when it left another team than this one, whose agents it brings along. In the
        same team they stay at home where they were: this may be a copy of a directory that is still in use."""
        left = self.record("left").facts()
        return None if left.get("uuid", uuid) == uuid else left.get("machine")

    def seed(self) -> str:
        """Returns the secret half of this machine's nkey; "" if there is none."""
        return self._text("machine.nk") or ""

    def certificate(self) -> str | None:
        """Returns the hub's certificate, the only one trusted; None without one."""
        return self._text("hub.pem")

    @property
    def relay_runs(self) -> bool:
        return self.files.locks.is_held(RELAY)

    def remove_socket(self) -> None:
        """Removes the socket left by a relay that was killed, which would make bind(2) fail."""
        self.files.remove(self.path / SOCKET)

    def _text(self, name: str) -> str | None:
        data = self.files.read(self.path / name)
        return None if data is None else data.decode().strip()


@contextmanager
def socket_path(share: Path) -> Iterator[str]:
    """Yields a path of the relay's socket that is short enough for bind(2) and connect(2), however deep the session."""
    path = str(share / SOCKET)
    if len(path) < _SOCKET_PATH_MAX or not Path("/proc/self/fd").is_dir():
        yield path
        return
    descriptor = os.open(share, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


# The authority of a shared session: a client of this machine's relay, over a Unix socket. Neither the hub's client nor
# an event loop is imported here, so that servers and commands start without them.

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

    def create(self, key: str, data: bytes, was: int | None = None, at: int | None = None) -> int | None:  # noqa: ARG002
        # `at` is left out: only the relay itself sends what was there before.
        return self._revision(op="create", key=key, data=data.decode(), was=was)

    def swap(self, key: str, revision: int, data: bytes, **edit: Any) -> int | None:  # noqa: ARG002
        # `edited` and `at` are left out: only the relay itself sends what was edited by a person.
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
    return None if value is None else Shared(value["revision"], value["data"].encode(), value.get("at"))
