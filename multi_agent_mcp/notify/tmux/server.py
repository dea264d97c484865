"""A tmux server as a whole: its version, and the environment that it gives to new windows."""

from __future__ import annotations

import re
from collections.abc import Mapping

from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.notify.tmux.client import Tmux

OLDEST = (3, 3)


def require_tmux(socket_path: str) -> str:
    """The version of the tmux on PATH. Raises `InvalidArguments` when there is none, or one that is too old."""
    said = Tmux(socket_path).cmd("-V")
    if said.failure == "no_tmux":
        raise InvalidArguments("no_tmux")
    version = " ".join(said.stdout).removeprefix("tmux ")
    found = re.search(r"(\d+)\.(\d+)", version)  # `3.5a`, `next-3.6`, `openbsd-7.4`; `master` is new enough
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        raise InvalidArguments("old_tmux", version=version[:40], oldest=".".join(map(str, OLDEST)))
    return version


def withheld(socket_path: str, wanted: Mapping[str, str]) -> list[str] | None:
    """The names of the `wanted` variables that a new window would not get with that value, because the server was
    started without them. None when no server runs: a new one inherits them from this process."""
    shown = Tmux(socket_path).cmd("show-environment", "-g")
    if shown.failure:
        return None
    handed_on = "\n".join(["", *shown.stdout, ""])
    return [name for name, value in wanted.items() if f"\n{name}={value}\n" not in handed_on]
