"""The embedded hub: a nats-server of our own, with one nkey per machine, TLS off loopback, and every write synced.

`sync_interval` is quoted on purpose: the server reads an unquoted interval as something else and only warns.
"""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain import times
from multi_agent_mcp.errors import HubUnreachable, InvalidArguments
from multi_agent_mcp.hub.nkey import new_seed, public_of
from multi_agent_mcp.hub.share import Share
from multi_agent_mcp.hub.stream import PAYLOAD_BYTES
from multi_agent_mcp.hub.subjects import Names
from multi_agent_mcp.system.process import is_alive, start_detached, started_at

OLDEST = (2, 11)
"""The first version with batched direct gets."""
PORT = 4222
START_SECONDS = 10.0
CERTIFICATE_DAYS = 3650


@dataclass(frozen=True)
class Server:
    """The server of one session, in `.share/hub/`."""

    share: Share
    names: Names

    @property
    def path(self) -> Path:
        return self.share.path / "hub"

    def make(self, listen: str) -> None:
        """Writes down where it listens, its certificate and the key that alone may make streams. Raises
        `InvalidArguments`."""
        host, port = parse_address(listen)
        self.share.files.replace(self.path / "admin.nk", new_seed().encode())
        self._write("settings", {"host": host, "port": port})
        self._write("users", {"machines": {}, "tokens": {}})
        if not is_loopback(host):
            key, certificate = new_certificate()
            self.share.files.replace(self.path / "key.pem", key)
            self.share.files.replace(self.path / "hub.pem", certificate)

    @property
    def exists(self) -> bool:
        return (self.path / "settings.json").exists()

    @property
    def admin_seed(self) -> str:
        return (self.share.files.read(self.path / "admin.nk") or b"").decode()

    @property
    def certificate(self) -> str | None:
        data = self.share.files.read(self.path / "hub.pem")
        return None if data is None else data.decode()

    @property
    def local_url(self) -> str:
        """How this machine reaches it."""
        settings = self.read("settings")
        return _url("127.0.0.1" if is_any(settings["host"]) else settings["host"], settings["port"])

    def urls(self) -> list[str]:
        """How other machines may reach it."""
        settings = self.read("settings")
        hosts = [settings["host"]] if not is_any(settings["host"]) else own_addresses()
        return [_url(host, settings["port"]) for host in hosts]

    def read(self, name: str) -> Any:
        return json.loads(self.share.files.read(self.path / f"{name}.json") or b"{}")

    def users(self) -> dict[str, dict[str, Any]]:
        """`machines`: name → public nkey; `tokens`: what was handed out for joining, by its id."""
        found: dict[str, dict[str, Any]] = self.read("users")
        return found

    def let(self, users: Mapping[str, Mapping[str, Any]]) -> None:
        """These users from now on; a running server takes them over without cutting anybody else off."""
        self._write("users", users)
        self._configure()
        if (pid := self.pid()) is not None:
            os.kill(pid, signal.SIGHUP)

    def start(self) -> None:
        """Starts it unless it runs; returns when it takes connections. Raises `HubUnreachable`."""
        if self.pid() is not None:
            return
        program = find_program()
        self._configure()
        pid = start_detached([program, "-c", str(self.path / "server.conf")], self.path / "server.log")
        self._write("process", {"pid": pid, "started_at": started_at(pid)})
        self._wait()

    def stop(self) -> None:
        """Ends it; returns when it has ended."""
        if (pid := self.pid()) is not None:
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + START_SECONDS
            while self.pid() is not None and time.monotonic() < deadline:
                time.sleep(0.02)

    def pid(self) -> int | None:
        """Its process; None when it does not run."""
        noted = self.read("process")
        return noted["pid"] if noted and is_alive(noted["pid"], noted["started_at"]) else None

    def _wait(self) -> None:
        settings = self.read("settings")
        host = "127.0.0.1" if is_any(settings["host"]) else settings["host"]
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.pid() is not None:
            with suppress(OSError), socket.create_connection((host, settings["port"]), 1):
                return
            time.sleep(0.02)
        lines = (self.path / "server.log").read_text(errors="replace").splitlines()
        raise HubUnreachable("hub_not_started", words=lines[-1] if lines else "-")

    def _configure(self) -> None:
        settings, users = self.read("settings"), self.users()
        self.share.files.replace(self.path / "server.conf", configuration(self, settings, users).encode())

    def _write(self, name: str, value: Any) -> None:
        self.share.files.replace(self.path / f"{name}.json", json.dumps(value, indent=1).encode())


def configuration(server: Server, settings: Mapping[str, Any], users: Mapping[str, Mapping[str, Any]]) -> str:
    """The server's configuration file (https://docs.nats.io/running-a-nats-service/configuration). Everything in it is
    a JSON string or number, which that format takes as they are."""
    path = server.path
    address = f"{settings['host']}:{settings['port']}"
    lines = [
        f"listen: {json.dumps(address)}",
        f"max_payload: {PAYLOAD_BYTES + 65536}",
        f'jetstream {{ store_dir: {json.dumps(str(path / "data"))}, sync_interval: "always" }}',
        "authorization { users = [",
        f"  {{ nkey: {json.dumps(public_of(server.admin_seed))} }}",
    ]
    for machine, public in users["machines"].items():
        lines.append(user(public, server.names.machine_permissions(machine)))
    for token_id, facts in users["tokens"].items():
        if not facts.get("used"):
            lines.append(user(facts["nkey"], server.names.joiner_permissions(token_id)))
    lines.append("] }")
    if server.certificate is not None:
        lines.append(
            f"tls {{ cert_file: {json.dumps(str(path / 'hub.pem'))}, key_file: {json.dumps(str(path / 'key.pem'))} }}"
        )
    return "\n".join(lines) + "\n"


def user(public: str, permissions: Mapping[str, Any]) -> str:
    """A user as the configuration has it."""
    return f"  {{ nkey: {json.dumps(public)}, permissions: {json.dumps(permissions)} }}"


def find_program() -> str:
    """nats-server: the one on PATH, else the one of the extra `machines`. Raises `InvalidArguments`."""
    beside = Path(sys.executable).parent / "nats-server"
    program = shutil.which("nats-server") or (str(beside) if beside.exists() else None)
    if program is None:
        raise InvalidArguments("no_nats_server")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    digits = version.strip().rpartition("v")[2].split(".")
    if tuple(int(part) for part in digits[:2] if part.isdecimal()) < OLDEST:
        raise InvalidArguments("old_nats_server", version=version.strip(), oldest=".".join(map(str, OLDEST)))
    return program


def parse_address(listen: str) -> tuple[str, int]:
    """`HOST:PORT`, or one of both. Raises `InvalidArguments`."""
    host, _, port = (
        listen.rpartition(":") if ":" in listen else ("", "", listen) if listen.isdecimal() else (listen, "", "")
    )
    if port and not (port.isdecimal() and 0 < int(port) < 65536):
        raise InvalidArguments("bad_listen", value=f"{listen!r:.60}")
    return host.strip("[]") or "0.0.0.0", int(port or PORT)  # noqa: S104 - off loopback there is TLS


def is_any(host: str) -> bool:
    return host in ("0.0.0.0", "::")  # noqa: S104 - it is compared


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def own_addresses() -> list[str]:
    """This machine's address in its network, and its name."""
    found = []
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # RFC 5737; nothing is sent
        found.append(probe.getsockname()[0])
    return list(dict.fromkeys([*found, socket.gethostname()]))


def new_certificate() -> tuple[bytes, bytes]:
    """A key and a certificate that is its own authority: the joining machines are given it with their token."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "multi-agent-mcp hub")])
    now = times.now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=CERTIFICATE_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    unencrypted = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, unencrypted)
    return private, certificate.public_bytes(serialization.Encoding.PEM)


def _url(host: str, port: int) -> str:
    return f"nats://[{host}]:{port}" if ":" in host else f"nats://{host}:{port}"
