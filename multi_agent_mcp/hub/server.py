"""The embedded hub: a nats-server with one account per machine, TLS except on loopback, and every write synced.

`sync_interval` is quoted on purpose: the server misreads an unquoted interval and only warns.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import nkeys

from multi_agent_mcp.domain import times
from multi_agent_mcp.errors import HubUnreachable, InvalidArguments, StorageError
from multi_agent_mcp.hub.share_directory import Share
from multi_agent_mcp.hub.subjects import (
    HUB,
    JOINER,
    SLOTS,
    Names,
    hub_url,
    is_any,
    is_loopback,
    lane_for,
    own_addresses,
    parse_address,
    slot_of,
)
from multi_agent_mcp.store.authority import PAYLOAD_BYTES
from multi_agent_mcp.store.records import KeyFile
from multi_agent_mcp.system.process import is_alive, start_detached, started_at

# The certificate of the embedded hub.

VALID_DAYS = 3650
CHAIN_MAX = 8
"""The most former certificates that the hub sends along: a machine that was away for more renewals needs a token."""
CERTIFICATES = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----\n?")


def new_certificate(former: bytes = b"") -> bytes:
    """Returns a new key and its certificate, which joining machines receive with their token: self-signed, or signed
    with the key of the `former` ones, which follow. So whoever trusts one of those trusts the new one."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = signer = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    name = issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"multi-agent-mcp hub {serial:x}"[:64])])
    now, chain = times.now(), CERTIFICATES.findall(former)[:CHAIN_MAX]
    if chain:
        signer = cast("ec.EllipticCurvePrivateKey", serialization.load_pem_private_key(former, None))
        issuer = x509.load_pem_x509_certificate(chain[0]).subject
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
    unencrypted = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, unencrypted)
    return b"".join((private, certificate.public_bytes(serialization.Encoding.PEM), *chain))


# nkeys, the Ed25519 keys that identify users of NATS (https://docs.nats.io/running-a-nats-service/nkeys).

PUBLIC_BYTES = 35
"""A byte for the kind, the key, and two for the checksum."""


def new_seed() -> str:
    """Returns the secret half of a new key, as text."""
    return bytes(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)).decode()


def public_of(seed: str) -> str:
    """Returns the public half, which the server is given."""
    return bytes(nkeys.from_seed(bytearray(seed.encode())).public_key).decode()


def is_user_key(public: str) -> bool:
    """Whether this is the public half of a user's key, with its checksum: with any other the server does not start."""
    try:
        data = base64.b32decode(public)
    except ValueError:
        return False
    is_users = len(data) == PUBLIC_BYTES and data[0] == nkeys.PREFIX_BYTE_USER
    return is_users and bytes(nkeys.crc16_checksum(data[:-2])) == data[-2:]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


FORMER_PAIR = ("key.pem", "hub.pem")
"""The key and the certificate of a hub that was made before both were in one file, which changes at once."""
ACCOUNTS = "accounts: "
OLDEST = (2, 11)
"""The oldest usable version, the first with batched direct gets."""
START_SECONDS, END_SECONDS = 60.0, 10.0
"""The longest waits for a server that begins, which takes long on a busy machine or with much to recover, and for one
that ends."""
BUFFERED_MAX = 128
"""The number of values that a stream receives ahead of those that it has synced; the server refuses more. It answers
nobody about a stream before it has stored what it had received: what one machine floods would delay all others."""
STORE_BYTES = 1 << 50
"""A limit above any disk: the default is three quarters of the space that was free when the server started."""
LOG_BYTES = 16 << 10
ROOM_BYTES = 4 * PAYLOAD_BYTES
"""The free space from which on a disk does not count as full."""
NEVER_STARTED = "nats-server: "
"""The beginning of what nats-server says last when it ends because of its configuration."""
_LOGGED = re.compile(r"^\[\d+\] \S+ \S+ \[\w+\] ")
"""What the server writes before each line of its log: its process, the time and the level."""
CHECK_SECONDS = 5.0
WORDS_MAX = 400
REFUSED_BY_DISK = (b"critical write error", b"no space left on device")
"""Log messages of nats-server after a refusal by the disk, after which it stores nothing until it is restarted."""


@dataclass(frozen=True)
class HubServer:
    """The hub of one session, with its files in `.share/hub/`."""

    share: Share
    names: Names

    @property
    def path(self) -> Path:
        return self.share.path / "hub"

    def make(self, listen: str) -> None:
        """Writes the hub's address, certificate and administrator's key, which alone may create streams. Raises
        `InvalidArguments`."""
        host, port = parse_address(listen)
        self.share.files.replace(self.path / "admin.nk", new_seed().encode())
        self._write("settings", {"host": host, "port": port})
        self._write("users", {"machines": {}, "tokens": {}})
        for former in ("tls.pem", *FORMER_PAIR):
            self.share.files.remove(self.path / former)
        if not is_loopback(host):
            self.share.files.replace(self.path / "tls.pem", new_certificate())

    def renew(self) -> None:
        """Makes new keys of the hub itself and, if it has one, a new certificate, for when it starts next."""
        self.share.files.replace(self.path / "admin.nk", new_seed().encode())
        self.share.files.replace(self.path / "reception.nk", new_seed().encode())
        if former := self._pair():
            self.share.files.replace(self.path / "tls.pem", new_certificate(former))

    def _pair(self) -> bytes:
        """Returns the key and the certificates, newest first; nothing without TLS."""
        read = self.share.files.read
        return read(self.path / "tls.pem") or b"".join(read(self.path / each) or b"" for each in FORMER_PAIR)

    def listens_at(self, listen: str) -> bool:
        """Whether that is the address of `make`. Raises `InvalidArguments`."""
        settings = self.read("settings")
        return parse_address(listen) == (settings["host"], settings["port"])

    @property
    def exists(self) -> bool:
        return (self.path / "settings.json").exists()

    @property
    def admin_seed(self) -> str:
        return (self.share.files.read(self.path / "admin.nk") or b"").decode()

    @property
    def reception_seed(self) -> str:
        """The key of the user that answers requests to join, made when it is needed first."""
        return KeyFile(self.share.files, self.path / "reception.nk").ensure(new_seed)

    @property
    def certificate(self) -> str | None:
        found = CERTIFICATES.search(self._pair())
        return None if found is None else found[0].decode()

    @property
    def local_url(self) -> str:
        """The URL for this machine."""
        settings = self.read("settings")
        return hub_url("127.0.0.1" if is_any(settings["host"]) else settings["host"], settings["port"])

    def urls(self) -> list[str]:
        """Returns the URLs at which other machines may reach it."""
        settings = self.read("settings")
        hosts = [settings["host"]] if not is_any(settings["host"]) else own_addresses()
        return [hub_url(host, settings["port"]) for host in hosts]

    def read(self, name: str) -> Any:
        return json.loads(self.share.files.read(self.path / f"{name}.json") or b"{}")

    def users(self) -> dict[str, dict[str, Any]]:
        """Returns `machines` (name → public nkey), their `lanes`, those that are `full` (they may change nothing that
        all share; see `admission.keep_room`), and `tokens` (id → facts of a token for joining).
        A key that is none, or another machine's, is left out: it would stop the hub for all. This machine's is the one
        that it has: a process that renewed it may have been killed."""
        found: dict[str, dict[str, Any]] = self.read("users")
        known = self.share.membership()
        machines: dict[str, str] = {}
        if known is not None and known.serves and known.machine in found.get("machines", {}):
            machines[known.machine] = public_of(self.share.seed())
        for name, public in found.get("machines", {}).items():
            if name not in machines and is_user_key(public) and public not in machines.values():
                machines[name] = public
        return {**found, "machines": machines}

    def let(self, users: Mapping[str, Mapping[str, Any]]) -> None:
        """Sets the users; see `note` and `apply`."""
        self.note(users)
        self.apply()

    def note(self, users: Mapping[str, Mapping[str, Any]]) -> None:
        """Sets the users, for `apply` to let them in. Raises `HubUnreachable`, and changes nothing, if the server would
        not start with them."""
        if words := self._refusal(configuration(self, self.read("settings"), users).encode()):
            raise HubUnreachable("hub_not_started", line=words)
        self._write("users", users)

    def apply(self) -> None:
        """Makes a running server know the users. New tokens are reloaded without disconnecting anybody; for a machine
        that came or went the server is started again, because it loses what an account imports if a reload adds it
        (nats-server issue 8560): the others are connected again within a second."""
        had = self._machines()
        if not self._configure() or (pid := self.pid()) is None:
            return
        if self._machines() == had:
            os.kill(pid, signal.SIGHUP)
        else:
            with self._starting():
                self.stop()
                self._launch()
            self._wait()

    # A configuration with which the server does not start replaces none with which it did.

    def _refusal(self, data: bytes) -> str:
        """Returns why the server does not start with this configuration, in its words; "" if it does, as far as
        is known within `CHECK_SECONDS`."""
        refused = self.read("refused")
        if data == self.share.files.read(self.path / "server.conf"):
            return ""
        if refused.get("digest") == digest(data):
            return str(refused["words"])
        call = [find_program(), "-t", "-c", "/dev/stdin"]
        try:
            done = subprocess.run(call, input=data, capture_output=True, timeout=CHECK_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return ""  # a busy machine: what the server says when it starts counts
        said = done.stderr.decode(errors="replace").strip().replace("/dev/stdin", "server.conf")
        return said[:WORDS_MAX] or "-" if done.returncode != 0 else ""

    def note_good(self) -> None:
        """Notes that the server runs with the configuration that is in place, to which `_launch` can return."""
        data, path = self.share.files.read(self.path / "server.conf") or b"", self.path / "good.conf"
        if data != self.share.files.read(path):
            self.share.files.replace(path, data)

    def _return_to_good(self) -> None:
        """Puts the last good configuration back if the server has ended because of the one that is in place, but not if
        that has come since then, as when a machine joined meanwhile."""
        data = self.share.files.read(self.path / "server.conf")
        if self.read("process").get("configuration") not in (None, digest(data or b"")):
            return
        good = self.share.files.read(self.path / "good.conf")
        words = self.last_words()
        if data is not None and good not in (None, data) and words.startswith(NEVER_STARTED):
            self._note_refused(data, words)
            self.share.files.replace(self.path / "server.conf", good or b"")

    def _note_refused(self, data: bytes, words: str) -> None:
        if self.read("refused").get("digest") != digest(data):
            self._write("refused", {"digest": digest(data), "words": words})

    def last_words(self) -> str:
        """Returns the last line that the server has written; "-" for none."""
        with suppress(OSError), (self.path / "server.log").open("rb") as log:
            log.seek(-min(LOG_BYTES, log.seek(0, os.SEEK_END)), os.SEEK_END)
            lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
            return _LOGGED.sub("", lines[-1].strip())[:WORDS_MAX] if lines else "-"
        return "-"

    def trouble(self) -> dict[str, Any] | None:
        """Returns what keeps the server from running, or from running with its users: its `words`, the path of its
        `log`, whether it `runs` (with the last good configuration), and who is `left_out` of that; None if all is well.
        """
        with self._starting():  # a machine that joins has it started again
            runs = self.pid() is not None
        words = self.read("refused").get("words")
        if words is None and runs:
            return None
        log = str((self.path / "server.log").relative_to(self.share.path.parent))
        known = self._machines()
        left_out = [name for name in self.users()["machines"] if self.names.account(name) not in known]
        return {"words": words if runs else self.last_words(), "log": log, "runs": runs, "left_out": left_out}

    def _machines(self) -> list[str]:
        """Returns the accounts of machines in the configuration that is in place."""
        data = (self.share.files.read(self.path / "server.conf") or b"").decode()
        found = next((line for line in data.splitlines() if line.startswith(ACCOUNTS)), f"{ACCOUNTS}{{}}")
        return [
            name for name in json.loads(found.removeprefix(ACCOUNTS)) if not name.startswith(self.names.account(JOINER))
        ]

    def start(self) -> None:
        """Starts the server unless it runs, and waits until it accepts connections. Raises `HubUnreachable`, and
        `InvalidArguments` if the port is taken; see also `launch`."""
        if self.pid() is None:
            self._require_free()
        if self.launch():
            self._wait()

    def launch(self) -> bool:
        """Starts the server unless it runs, without waiting; returns whether it had to be started. Raises
        `InvalidArguments` without a usable program, and `StorageError`."""
        with self._starting():
            return self._launch()

    def _starting(self) -> AbstractContextManager[None]:
        """Returns a context in which no other process starts the server: the relay does when it finds none."""
        return self.share.files.locks.held("hub-start")

    def _launch(self) -> bool:
        if self.pid() is not None:
            return False
        program = find_program()
        self._return_to_good()
        self._configure()
        pid = start_detached([program, "-c", str(self.path / "server.conf")], self.path / "server.log")
        try:
            used = digest(self.share.files.read(self.path / "server.conf") or b"")
            self._write("process", {"pid": pid, "started_at": started_at(pid), "configuration": used})
        except StorageError:  # its process would be unknown to others
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            raise
        return True

    def stop(self) -> None:
        """Stops the server and waits until it has ended, at most `END_SECONDS`."""
        if (pid := self.pid()) is not None:
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + END_SECONDS
            while self.pid() is not None and time.monotonic() < deadline:
                time.sleep(0.02)

    def has_given_up(self) -> bool:
        """Returns whether the server stores nothing after a refusal by its disk, which now has room."""
        pid = self.pid()
        if pid is None or shutil.disk_usage(self.path).free < ROOM_BYTES:
            return False
        with (self.path / "server.log").open("rb") as log:
            log.seek(-min(LOG_BYTES, log.seek(0, os.SEEK_END)), os.SEEK_END)
            own = [line for line in log if line.startswith(b"[%d] " % pid)]
        return any(words in line for line in own for words in REFUSED_BY_DISK)

    def pid(self) -> int | None:
        """Returns the server's process; None if it does not run."""
        noted = self.read("process")
        return noted["pid"] if noted and is_alive(noted["pid"], noted["started_at"]) else None

    def _require_free(self) -> None:
        settings = self.read("settings")
        try:
            family, *_, address = socket.getaddrinfo(settings["host"], settings["port"], type=socket.SOCK_STREAM)[0]
            with socket.socket(family) as listening:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listening.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:  # nats-server reports other errors
                raise InvalidArguments("listen_taken", port=settings["port"]) from error

    def _wait(self) -> None:
        settings = self.read("settings")
        host = "127.0.0.1" if is_any(settings["host"]) else settings["host"]
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.pid() is not None:
            with suppress(OSError), socket.create_connection((host, settings["port"]), 1):
                self.note_good()
                return
            time.sleep(0.02)
        raise HubUnreachable("hub_not_started", line=self.last_words())

    def _configure(self) -> bool:
        """Writes the configuration, unless the server does not start with it; returns whether it has changed."""
        settings, users, path = self.read("settings"), self.users(), self.path / "server.conf"
        data = configuration(self, settings, users).encode()
        if words := self._refusal(data):
            self._note_refused(data, words)
            return False
        self.share.files.remove(self.path / "refused.json")
        if data == self.share.files.read(path):
            return False
        self.share.files.replace(path, data)
        return True

    def _write(self, name: str, value: Any) -> None:
        self.share.files.replace(self.path / f"{name}.json", json.dumps(value, indent=1).encode())


def configuration(server: HubServer, settings: Mapping[str, Any], users: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the server's configuration file (https://docs.nats.io/running-a-nats-service/configuration). All values
    are JSON strings and numbers, which its format accepts."""
    path = server.path
    address = f"{settings['host']}:{settings['port']}"
    store = f"store_dir: {json.dumps(str(path / 'data'))}, max_file_store: {STORE_BYTES}"
    lines = [
        f"listen: {json.dumps(address)}",
        f"max_payload: {PAYLOAD_BYTES + 65536}",
        f'jetstream {{ {store}, sync_interval: "always", max_buffered_msgs: {BUFFERED_MAX} }}',
        f"{ACCOUNTS}{json.dumps(accounts(server, users))}",
    ]
    if server.certificate is not None:
        key, chain = ("tls.pem",) * 2 if (path / "tls.pem").exists() else FORMER_PAIR
        pair = {"cert_file": str(path / chain), "key_file": str(path / key)}
        lines.append(f"tls: {json.dumps({**pair, 'handshake_first': True})}")
    return "\n".join(lines) + "\n"


def accounts(server: HubServer, users: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the accounts: the hub's with its streams, and one for each machine and unused token."""
    names = server.names
    reception = {"nkey": public_of(server.reception_seed), "permissions": names.reception_permissions}
    hub = {
        "jetstream": "enabled",
        "users": [{"nkey": public_of(server.admin_seed)}, reception],
        "exports": names.exports,
    }
    lanes = users.get("lanes", {})
    machines = {
        names.account(machine): Names(names.uuid, lanes.get(machine) or lane_for(machine)).machine_account(
            machine, public, may_share=machine not in users.get("full", ())
        )
        for machine, public in users["machines"].items()
    }
    waiting = {slot_of(token_id): facts["nkey"] for token_id, facts in users["tokens"].items() if not facts.get("used")}
    joiners = {names.account(f"{JOINER}{slot}"): names.joiner_account(slot, waiting.get(slot)) for slot in SLOTS}
    return {HUB: hub, **machines, **joiners}


def find_program() -> str:
    """Returns the path of nats-server: on PATH, else that of the extra `machines`. Raises `InvalidArguments`, also if
    it is too old."""
    beside = Path(sys.executable).parent / "nats-server"
    program = shutil.which("nats-server") or (str(beside) if beside.exists() else None)
    if program is None:
        raise InvalidArguments("no_nats_server")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    digits = version.strip().rpartition("v")[2].split(".")
    if tuple(int(part) for part in digits[:2] if part.isdecimal()) < OLDEST:
        raise InvalidArguments("old_nats_server", version=version.strip(), oldest=".".join(map(str, OLDEST)))
    return program
