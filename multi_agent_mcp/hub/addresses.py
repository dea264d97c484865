"""The addresses on which a hub listens, and the URLs at which it is reached."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from multi_agent_mcp.errors import InvalidArguments

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
