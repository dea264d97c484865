"""Which version of a host is installed, told by where its program is: nothing is started for it (docs/hosts.md)."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from multi_agent_mcp.config import expanded
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.hosts import Host, host_named
from multi_agent_mcp.system.other_files import read_external

_VERSION = re.compile(r"v?([0-9]+(?:[.][0-9]+)+)")


class Newer(NamedTuple):
    """A host of which a newer version is installed than the one that its profile was proven with."""

    host: str
    title: str
    version: str
    proven: str


def newer_hosts(commands: Iterable[str | None]) -> list[Newer]:
    """Returns the hosts that these commands start and that are newer than their profiles, each once."""
    found: dict[str, Newer] = {}
    for command in filter(None, commands):
        host = host_named(_program(command).rpartition("/")[2])
        version = None if host is None else installed_version(host, command)
        if host is not None and version is not None and _numbers(version) > _numbers(host.proven):
            found.setdefault(host.name, Newer(host.name, host.title, version, host.proven))
    return list(found.values())


def installed_version(host: Host, command: str) -> str | None:
    """Returns the version of the program that a command starts: that of its npm package, or the one in its path, as
    installers and package managers put it there. None if neither tells."""
    with suppress(StorageError, ValueError, LookupError, TypeError):
        program = shutil.which(expanded(_program(command)))
        path = Path(os.path.realpath(program)) if program else Path()
        return next(_of_package(host, path), None) or next(_in_path(path), None)
    return None


def _program(command: str) -> str:
    with suppress(ValueError):
        return (shlex.split(command) or [""])[0]
    return ""


def _of_package(host: Host, path: Path) -> Iterator[str]:
    package = host.install.split()[-1]
    for directory in path.parents:
        if str(directory).endswith(f"/node_modules/{package}"):
            yield str(json.loads(read_external(directory / "package.json") or "{}")["version"])


def _in_path(path: Path) -> Iterator[str]:
    return (found[1] for part in reversed(path.parts) if (found := _VERSION.fullmatch(part)) is not None)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall("[0-9]+", version.partition("-")[0])[:4]))
