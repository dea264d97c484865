"""Names on the hub: its streams and subjects, and what a machine may do there (docs/protocol.md, Several machines)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

MESSAGE, NOTIFICATION, READ, SEEN, SESSION, EXECUTION, WAIT = "msg", "ntf", "read", "seen", "ses", "exec", "wait"
"""What one machine writes: mail and notifications, their marks `read_at`, and the files with a single writer."""
MARKS = {MESSAGE: READ, NOTIFICATION: SEEN}
TASK, CONVERSATION, DELEGATION, AGENT, SETTINGS = "tsk", "cnv", "dlg", "agent", "settings"
"""What all machines write, one after the other."""
REFERRED = (AGENT, CONVERSATION)
"""What others of them refer to."""
KNOWN_MAX = 16_384
"""Of so many subjects it is remembered what they name: a value's is asked for several times in a row."""
LOG, AUDIT = "exec", "audit"
"""What only grows, in the stream of logs."""


class Own(NamedTuple):
    """`own.{machine}.{kind}.{owner}.{name}`"""

    machine: str
    kind: str
    owner: str
    name: str


class Names:
    """The names of one session, by its uuid (32 hexadecimal digits)."""

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
        """What a stored subject names: something of one machine, or a shared key; None for neither."""

    def own(self, machine: str, kind: str, owner: str, name: str = "-") -> str:
        """The subject of what a machine alone writes; `*` for any machine."""
        return f"{self.root}.own.{machine}.{kind}.{token(owner)}.{token(name)}"

    def shared(self, key: str) -> str:
        """The subject of a key of `store.authority`."""
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
        """What a machine may publish and subscribe to: it writes in no other's name, and makes, changes or deletes
        nothing of the hub itself. It may have no consumer: the server would publish for it to any subject it names."""
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
        """What the holder of a join token may do: ask once."""
        return {"publish": [self.join(token_id)], "subscribe": [f"{inbox(f'join-{token_id}')}.>"]}


def inbox(name: str) -> str:
    """Where a machine's answers arrive; only it may listen there."""
    return f"_INBOX_{name}"


def token(name: str) -> str:
    """A name as one token of a subject: a file's name may hold dots and blanks."""
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E")


def unquoted(part: str) -> str:
    """The name that a token stands for."""
    return unquote(part)
