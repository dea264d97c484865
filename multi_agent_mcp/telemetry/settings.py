"""The keys of session.yaml of this folder's features."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from multi_agent_mcp.settings import refused

_HTTP = re.compile(r"https?://[^/\s]+")


class Destination(NamedTuple):
    """`telemetry:` in session.yaml: where spans go, one of both. A relative `file` is in the session's directory."""

    file: str | None = None
    otlp: str | None = None

    def __str__(self) -> str:
        return self.file or self.otlp or ""


def parse_telemetry(given: Any, _name: str) -> Destination | None:
    """Parses `telemetry` of session.yaml or team.yaml: `{file: PATH}` or `{otlp: URL}`. Raises `InvalidArguments`."""
    if given is None:
        return None
    if not isinstance(given, dict) or len(given) != 1 or not given.keys() <= {"file", "otlp"}:
        raise refused("no_telemetry")
    ((name, value),) = given.items()
    if not isinstance(value, str) or "\0" in value or not value.strip() or (name == "otlp" and not _HTTP.match(value)):
        raise refused("no_telemetry")
    return Destination(**{name: os.path.expanduser(value) if name == "file" else value})  # noqa: PTH111 - as `expanded`
