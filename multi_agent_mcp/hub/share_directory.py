"""`.share/`: this machine's membership in a team of several and its access to the hub. It is never shared."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from multi_agent_mcp.config import load_yaml, parse_limits
from multi_agent_mcp.hub.subjects import Names, lane_for
from multi_agent_mcp.store.locks import RELAY
from multi_agent_mcp.store.records import SHARE, Record
from multi_agent_mcp.texts import LANGUAGES

if TYPE_CHECKING:
    from multi_agent_mcp.store.durable_files import Files
    from multi_agent_mcp.store.workspace import Workspace

# The settings of `session.yaml` that machines share: language and limits. Not `notify_command`: no other machine may
# decide which program runs here.

SHARED = ("language", "limits")


def shared_settings(workspace: Workspace) -> bytes:
    """Returns the shared part of the settings as JSON."""
    settings = load_yaml(workspace.settings_path) or {}
    return json.dumps({key: settings[key] for key in SHARED if settings.get(key)}, sort_keys=True).encode()


def accept_settings(workspace: Workspace, data: bytes) -> None:
    """Applies settings of another machine. Raises `ValueError` and `Refusal` for invalid ones."""
    said: dict[str, Any] = json.loads(data)
    if said.get("language") not in LANGUAGES:
        raise ValueError("language")
    parse_limits(said.get("limits"))
    if data != shared_settings(workspace):
        settings = {**load_yaml(workspace.settings_path), **{key: said[key] for key in SHARED if key in said}}
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
        found = self.record("machine").read()
        if not isinstance(found, dict):
            return None
        kind = {name: bool(found.get(name)) for name in ("serves", "own_hub")}
        return Membership(found["uuid"], found["machine"], tuple(found["urls"]), **kind, lane=found.get("lane", ""))

    def join(self, membership: Membership, seed: str, certificate: str | None) -> None:
        """Writes this machine's key, certificate and membership; the last makes the session shared."""
        self.files.replace(self.path / "machine.nk", seed.encode())
        if certificate is not None:
            self.files.replace(self.path / "hub.pem", certificate.encode())
        self.record("machine").write(asdict(membership))

    def leave(self) -> None:
        """Ends the membership, so that the session is no longer shared; all files stay, including the key."""
        if (known := self.membership()) is not None:
            self.record("left").write({"machine": known.machine, "uuid": known.uuid})
        self.record("machine").remove()

    @property
    def former_machine(self) -> str | None:
        """This machine's name when it left; None if it never has."""
        return (self.record("left").read() or {}).get("machine")

    def former_home(self, uuid: str) -> str | None:
        """Returns this machine's name when it left another team than this one, whose agents it brings along. In the
        same team they stay at home where they were: this may be a copy of a directory that is still in use."""
        left = self.record("left").read() or {}
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
