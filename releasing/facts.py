"""The facts of a release, each from its one place: the version from the package, the rest from pyproject.toml.

Whoever publishes the project puts its address into `[project.urls]` and runs `scripts/plugins`: the name in the MCP
registry, server.json, the plugins and the marker in README.md follow.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from multi_agent_mcp import __version__

REPOSITORY = Path(__file__).parents[1]
VERSION = __version__
"""As Python's index has it (PEP 440)."""
SEMANTIC_VERSION = re.sub(r"rc(\d+)$", r"-rc.\1", VERSION)
"""The same for hosts, npm and the MCP registry (https://semver.org)."""


@cache
def project() -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    with open(REPOSITORY / "pyproject.toml", "rb") as file:
        table: dict[str, Any] = tomllib.load(file)["project"]
    return table


def address() -> str:
    """The address of the public repository."""
    url: str = project()["urls"]["Repository"]
    return url


def slug() -> str:
    """OWNER/NAME of the public repository, as its forge names it."""
    return urlsplit(address()).path.strip("/")


def registry_name() -> str:
    """The server's name in the MCP registry, which gives the namespace to the account that owns the repository; the
    README that is published with the package has to name it, too (official-registry-requirements of the registry)."""
    owner, _, name = slug().partition("/")
    return f"io.github.{owner}/{name}"
