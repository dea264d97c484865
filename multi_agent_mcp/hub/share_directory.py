"""`.share/`: what a machine knows about the team's other machines and how it reaches the hub. None of it is shared."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.files.locks import RELAY
from multi_agent_mcp.store.json_file import Record
from multi_agent_mcp.store.relay_state import SHARE

SOCKET = "relay.sock"
_SOCKET_PATH_MAX = 100  # sockaddr_un(7) holds 108 bytes, on macOS 104


@dataclass(frozen=True)
class Membership:
    """Which session this machine belongs to and as what. `urls` is where the hub is; `serves`: it runs here;
    `own_hub`: it is one of the user's, whose configuration names each machine."""

    uuid: str
    machine: str
    urls: tuple[str, ...]
    serves: bool = False
    own_hub: bool = False


class Share:
    """The directory `.share/` of a session."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.path = files.base / SHARE

    def record(self, name: str) -> Record:
        return Record(self.files, self.path / f"{name}.json")

    def membership(self) -> Membership | None:
        """None while the session is this machine's alone."""
        found = self.record("machine").read()
        if not isinstance(found, dict):
            return None
        kind = {name: bool(found.get(name)) for name in ("serves", "own_hub")}
        return Membership(found["uuid"], found["machine"], tuple(found["urls"]), **kind)

    def join(self, membership: Membership, seed: str, certificate: str | None) -> None:
        """Writes down who this machine is. The membership last: with it the session is shared."""
        self.files.replace(self.path / "machine.nk", seed.encode())
        if certificate is not None:
            self.files.replace(self.path / "hub.pem", certificate.encode())
        self.record("machine").write(asdict(membership))

    def leave(self) -> None:
        """The session is this machine's alone again; the files stay, and so does the key, for nobody else."""
        if (known := self.membership()) is not None:
            self.record("left").write({"machine": known.machine})
        self.record("machine").remove()

    @property
    def former_machine(self) -> str | None:
        """What this machine was called when it left; None when it never took part."""
        return (self.record("left").read() or {}).get("machine")

    def seed(self) -> str:
        """The machine's own nkey."""
        return self._text("machine.nk") or ""

    def certificate(self) -> str | None:
        """The hub's certificate, which alone is trusted; None without TLS."""
        return self._text("hub.pem")

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
