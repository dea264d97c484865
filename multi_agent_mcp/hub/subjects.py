"""Names on the hub: streams and subjects, and the permissions of a machine (docs/protocol.md, Several machines)."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from multi_agent_mcp.errors import InvalidArguments

# The addresses on which a hub listens, and the URLs at which it is reached.

PORT = 4222


def parse_address(listen: str) -> tuple[str, int]:
    """Parses `HOST:PORT`, `HOST` or `PORT`. Raises `InvalidArguments`."""
    host, _, port = (
        listen.rpartition(":") if ":" in listen else ("", "", listen) if listen.isdecimal() else (listen, "", "")
    )
    if port and not (port.isdecimal() and 0 < int(port) < 65536):
        raise InvalidArguments("bad_listen", value=f"{listen!r:.60}")
    try:
        host.encode("idna")  # as getaddrinfo(3) is called
    except UnicodeError as error:
        raise InvalidArguments("bad_listen", value=f"{listen!r:.60}") from error
    return host.strip("[]") or "0.0.0.0", int(port or PORT)  # noqa: S104 - off loopback there is TLS


def is_any(host: str) -> bool:
    return host in ("0.0.0.0", "::")  # noqa: S104 - it is compared


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def own_addresses() -> list[str]:
    """Returns this machine's address in its network, if any, and its name."""
    found = []
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # RFC 5737; nothing is sent
        found.append(probe.getsockname()[0])
    return list(dict.fromkeys([*found, socket.gethostname()]))


def hub_url(host: str, port: int) -> str:
    return f"nats://[{host}]:{port}" if ":" in host else f"nats://{host}:{port}"


def require_protected(urls: Sequence[str]) -> None:
    """Raises `InvalidArguments` for a hub on another machine without TLS, and for an invalid URL."""
    for url in urls:
        try:
            parts = urlsplit(url)
            is_hub = parts.scheme in ("nats", "tls") and parts.hostname is not None and parts.port != 0
        except ValueError:
            is_hub = False
        if not is_hub:
            raise InvalidArguments("bad_hub", url=f"{url!r:.80}")
        if parts.scheme == "nats" and not is_loopback(parts.hostname or ""):
            raise InvalidArguments("hub_without_tls", url=url)


MESSAGE, NOTIFICATION, READ, SEEN, SESSION, EXECUTION, WAIT = "msg", "ntf", "read", "seen", "ses", "exec", "wait"
"""The kinds of values that one machine writes: mail and notifications, marks `read_at`, and files with one writer."""
MARKS = {MESSAGE: READ, NOTIFICATION: SEEN}
TASK, CONVERSATION, DELEGATION, AGENT, SETTINGS = "tsk", "cnv", "dlg", "agent", "settings"
"""The kinds of values that all machines write, in the order of the authority."""
REFERRED = (AGENT, CONVERSATION)
"""The kinds of values to which other values refer."""
KNOWN_MAX = 16_384
"""The number of parsed subjects in the cache: that of a value is parsed several times in a row."""
LOG, AUDIT = "exec", "audit"
"""The kinds of append-only files, in the stream of logs."""


class Own(NamedTuple):
    """The parts of the subject of a value that one machine writes: `own.{machine}.{kind}.{owner}.{name}`."""

    machine: str
    kind: str
    owner: str
    name: str


class Names:
    """The names of one session, made from its uuid (32 hexadecimal digits)."""

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self.root = f"mam.{uuid}"
        self.stream = f"MAM_{uuid}"
        self.log_stream = f"MAM_{uuid}_LOG"
        self.stored = (f"{self.root}.own.>", f"{self.root}.all.>")
        self.logs = f"{self.root}.log.>"
        self.heartbeats = f"{self.root}.hb.*"
        self.joins = f"{self.root}.join.*"
        self.parse = lru_cache(KNOWN_MAX)(self._parse)
        """Parses the subject of a stored value: returns `Own` for one machine's, a key for a shared one, else None."""

    def own(self, machine: str, kind: str, owner: str, name: str = "-") -> str:
        """Returns the subject of a value that one machine writes; `*` matches any machine."""
        return f"{self.root}.own.{machine}.{kind}.{token(owner)}.{token(name)}"

    def shared(self, key: str) -> str:
        """Returns the subject of a key of `store.shared_collection`."""
        return f"{self.root}.all.{key}"

    def log(self, machine: str, kind: str, name: str) -> str:
        return f"{self.root}.log.{machine}.{kind}.{token(name)}"

    def heartbeat(self, machine: str) -> str:
        return f"{self.root}.hb.{machine}"

    def join(self, token_id: str) -> str:
        return f"{self.root}.join.{token_id}"

    def _parse(self, subject: str) -> Own | str | None:
        parts = subject.removeprefix(f"{self.root}.").split(".")
        if parts[0] == "own" and len(parts) == 5:
            return Own(parts[1], parts[2], unquoted(parts[3]), unquoted(parts[4]))
        return ".".join(parts[1:]) if parts[0] == "all" and len(parts) > 1 else None

    def machine_permissions(self, machine: str) -> dict[str, list[str]]:
        """Returns the subjects that a machine may publish and subscribe to: it cannot write in another's name, nor
        change the hub itself. It may not have consumers: the server would publish for them to any subject."""
        reading = [
            f"$JS.API.{call}.{stream}"
            for stream in (self.stream, self.log_stream)
            for call in ("STREAM.INFO", "STREAM.MSG.GET", "DIRECT.GET")
        ]
        own = [f"{self.root}.own.{machine}.>", f"{self.root}.log.{machine}.>", self.heartbeat(machine)]
        return {
            "publish": [*own, f"{self.root}.all.>", *reading],
            "subscribe": [f"{inbox(machine)}.>", self.heartbeats],
        }

    def joiner_permissions(self, token_id: str) -> dict[str, list[str]]:
        """Returns the permissions of a token for joining: asking to join."""
        return {"publish": [self.join(token_id)], "subscribe": [f"{inbox(f'join-{token_id}')}.>"]}


def inbox(name: str) -> str:
    """Returns the prefix of the subjects for a machine's answers, to which only it may subscribe."""
    return f"_INBOX_{name}"


def token(name: str) -> str:
    """Returns a name quoted as one token of a subject, as a file's name may contain dots and blanks."""
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E")


def unquoted(part: str) -> str:
    """Returns the name quoted in a token."""
    return unquote(part)
