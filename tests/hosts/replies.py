"""The replies of a scripted model and the requests to it, independent of the dialect."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Say:
    """A reply of one text. With `until` the model thinks until the event is set. `is_full`: it says that the
    conversation has nearly filled its context (`FULL` tokens)."""

    text: str
    until: threading.Event | None = None
    is_full: bool = False


@dataclass(frozen=True)
class Call:
    """A reply with one call of a tool, by its name in the host, with a `namespace` if the host uses them. `until` and
    `is_full` as above."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    namespace: str | None = None
    until: threading.Event | None = None
    is_full: bool = False

    @property
    def name(self) -> str:
        """The name under which a request offers the tool."""
        return f"{self.namespace}/{self.tool}" if self.namespace else self.tool


@dataclass(frozen=True)
class Refuse:
    """The service's refusal in place of a reply, as the real one does it at a limit."""

    body: Json
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 429


Answer = Say | Call
Reply = Answer | Refuse
CONTEXT = 100_000
"""The tokens that a scenario lets a conversation have before the host compacts it."""
FULL = 99_000


def taken(reply: Answer) -> int:
    """How many tokens the request of this reply took, as the model says."""
    return FULL if reply.is_full else 100


Decide = Callable[["Request"], Reply]


@dataclass
class Request:
    """A request of the host for one turn. `news` is everything after the model's last reply."""

    body: Json
    news: str
    tools: tuple[str, ...]
    at: float = field(default_factory=time.monotonic)
    reply: Reply | None = None
    cut_off: bool = False
    """The host hung up before the model was done: it was interrupted."""

    @property
    def history(self) -> str:
        """Every text of the dialogue so far."""
        dialogue = (self.body.get(key) for key in ("messages", "input", "contents"))
        return "\n".join(_texts(next(filter(None, dialogue), None)))


@dataclass(frozen=True)
class Wire:
    """One dialect. `read` takes a request apart; `stream` makes the server-sent events of a reply, `whole` the same in
    one piece. A request without tools is not the agent's (a title for the session and the like): `aside` answers it."""

    read: Callable[[Json], Request]
    stream: Callable[[Answer, Json], Iterator[bytes]]
    whole: Callable[[Answer, Json], Json]
    aside: Say = Say("scripted")
    thinking: bytes = b": thinking\n\n"
    """The bytes that keep the connection open while the model thinks."""


numbers = itertools.count(1)
"""Numbers for the ids that a dialect requires."""


def event(data: Json, name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def since(items: list[Json], is_models: Callable[[Json], bool]) -> str:
    """Every text in the items after the model's last one."""
    last = max((number for number, item in enumerate(items) if is_models(item)), default=-1)
    return "\n".join(_texts(items[last + 1 :]))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
