"""Imports the server without the parts of `mcp` that it does not use.

`import mcp` also loads mcp's client and its high-level server, with their dependencies: an eighth of a server's memory
and a fifth of its start-up time, for which its host waits. Modules inside mcp import names only from other modules, not
from the packages, so the packages can be left empty.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType

PACKAGES = ("mcp", "mcp.server", "mcp.client")


def import_app() -> ModuleType:
    """Imports `server.app`, in a process that has not imported mcp yet and imports nothing else of it later."""
    before = set(sys.modules)
    try:
        for name in PACKAGES:
            _stand_empty(name)
        return import_module("multi_agent_mcp.server.app")
    except (ImportError, AttributeError):  # a version of mcp with another structure
        for name in set(sys.modules) - before:
            if name.split(".")[0] == "mcp" or name.startswith("multi_agent_mcp.server."):
                del sys.modules[name]
        return import_module("multi_agent_mcp.server.app")


def _stand_empty(name: str) -> None:
    """Puts a package into `sys.modules` whose submodules can be imported, without executing its `__init__`."""
    spec = find_spec(name)
    if spec is None:
        raise ImportError(name)
    sys.modules[name] = module_from_spec(spec)
    parent, _, own = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], own, sys.modules[name])
