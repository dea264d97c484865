"""`.share/`: what a machine knows of the team's other machines and of its way to the hub. Nothing of it travels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.files.locks import RELAY
from multi_agent_mcp.store.json_file import Record

DIRECTORY = ".share"
SOCKET = "relay.sock"
_SOCKET_PATH_MAX = 100  # sockaddr_un(7) holds 108 bytes, on macOS 104


@dataclass(frozen=True)
class Membership:
    """Which session this machine belongs to and as what. `urls` is where the hub is; `serves`: it runs here."""

    uuid: str
    machine: str
    urls: tuple[str, ...]
    serves: bool = False


class Share:
    """The directory `.share/` of a session."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.path = files.base / DIRECTORY

    def record(self, name: str) -> Record:
        return Record(self.files, self.path / f"{name}.json")

    def membership(self) -> Membership | None:
        """None while the session is this machine's alone."""
        found = self.record("machine").read()
        if not isinstance(found, dict):
            return None
        return Membership(found["uuid"], found["machine"], tuple(found["urls"]), bool(found.get("serves")))

    def join(self, membership: Membership, seed: str, certificate: str | None) -> None:
        """Writes down who this machine is. The membership last: with it the session is shared."""
        self.files.replace(self.path / "machine.nk", seed.encode())
        if certificate is not None:
            self.files.replace(self.path / "hub.pem", certificate.encode())
        self.record("machine").write(asdict(membership))

    def leave(self) -> None:
        """The session is this machine's alone again; the files stay, and so does the key, for nobody else."""
        self.record("machine").remove()

    def seed(self) -> str:
        """The machine's own nkey."""
        return self._text("machine.nk") or ""

    def certificate(self) -> str | None:
        """The hub's certificate, which alone is trusted; None without TLS."""
        return self._text("hub.pem")

    def state(self) -> dict[str, Any]:
        """What the relay last noted: `connected`, `position`, `queued`, `machines` …"""
        found = self.record("state").read()
        return found if isinstance(found, dict) else {}

    @property
    def relay_runs(self) -> bool:
        return self.files.locks.is_held(RELAY)

    def remove_socket(self) -> None:
        """What a relay that was killed has left; bind(2) would refuse."""
        self.files.remove(self.path / SOCKET)

    def _text(self, name: str) -> str | None:
        data = self.files.read(self.path / name)
        return None if data is None else data.decode().strip()


@contextmanager
def socket_path(share: Path) -> Iterator[str]:
    """The relay's socket by a path that bind(2) and connect(2) take: a session may lie deeper than they allow."""
    path = str(share / SOCKET)
    if len(path) < _SOCKET_PATH_MAX or not Path("/proc/self/fd").is_dir():
        yield path
        return
    descriptor = os.open(share, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)
