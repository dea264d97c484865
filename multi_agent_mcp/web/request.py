"""Requests to the API: typed access to path, query and JSON body."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from starlette.requests import ClientDisconnect, Request

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.times import local_zone
from multi_agent_mcp.errors import ContentTooLarge, InvalidArguments, Reason
from multi_agent_mcp.features import Features
from multi_agent_mcp.wiring import Services

BODY_BYTES = 4 << 20  # room for a message of a megabyte with every character escaped
BODY_SECONDS = 30.0
PAGE = 50
PAGE_MAX = 200
_NUMBER_MAX = 10**9


@dataclass(frozen=True)
class ApiRequest:
    """One request of the console. Every method raises `InvalidArguments` for a bad value."""

    services: Services
    me: Agent
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def features(self) -> Features:
        """The features of the session."""
        return self.services.session.features

    def text(self, name: str) -> str:
        """A required string of the body."""
        value = self.optional_text(name)
        if value is None:
            raise InvalidArguments(reason=Reason("argument.missing", name=name))
        return value

    def optional_text(self, name: str) -> str | None:
        value = self.body.get(name)
        if value is not None and not isinstance(value, str):
            raise InvalidArguments(reason=Reason("argument.string", name=name))
        return value

    def strings(self, name: str) -> list[str]:
        """A list of strings in the body; empty if it is missing."""
        value = self.body.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise InvalidArguments(reason=Reason("argument.list", name=name))
        return value

    def flag(self, name: str) -> bool:
        """A required boolean of the body."""
        value = self.body.get(name)
        if not isinstance(value, bool):
            raise InvalidArguments(reason=Reason("argument.bool", name=name))
        return value

    def whole_number(self, name: str) -> int:
        """A required whole number of the body, at least 0."""
        value = self.body.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _NUMBER_MAX:
            raise InvalidArguments(reason=Reason("argument.int", name=name))
        return value

    def parameter(self, name: str) -> str | None:
        """A parameter of the query; None if it is missing or empty."""
        return self.query.get(name) or None

    def agent_id(self, name: str) -> str | None:
        """An agent's id in the query, also a removed one's; None if it is missing or empty. Raises as
        `Agents.filtered`."""
        return self.services.agents.filtered(self.parameter(name))

    def number(self, name: str, default: int, *, most: int = _NUMBER_MAX) -> int:
        """A whole number of the query, at least 0, capped at `most`."""
        given = self.parameter(name)
        if given is None:
            return default
        if not given.isascii() or not given.isdigit() or len(given) > len(str(_NUMBER_MAX)):
            raise InvalidArguments(reason=Reason("argument.int", name=name))
        return min(int(given), most)

    @property
    def zone(self) -> tzinfo:
        """The time zone with the IANA name in `?zone=`; this machine's if it is missing or unknown."""
        name = self.parameter("zone")
        try:
            return ZoneInfo(name) if name else local_zone()
        except (ValueError, OSError, KeyError):
            return local_zone()

    @property
    def limit(self) -> int:
        """The number of items per page, from 1 to `PAGE_MAX`."""
        return max(self.number("limit", PAGE, most=PAGE_MAX), 1)


async def read_body(request: Request) -> bytes:
    """Reads the body of a change. Raises `ContentTooLarge` as soon as it exceeds `BODY_BYTES`, `InvalidArguments` when
    it does not end within `BODY_SECONDS`."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > BODY_BYTES:
                    raise ContentTooLarge(size=len(body), limit=BODY_BYTES)
    except (TimeoutError, ClientDisconnect) as error:
        raise InvalidArguments("body_incomplete") from error
    return bytes(body)


def parse_body(data: bytes) -> Mapping[str, Any]:
    """Parses the JSON object in the body of a change. Raises `InvalidArguments`."""
    if not data:
        return {}
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments("body_no_json") from error
    if not isinstance(body, dict):
        raise InvalidArguments("body_no_json")
    return body
