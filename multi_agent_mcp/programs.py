"""How programs are started: those of ours, and others."""

from __future__ import annotations

import os
import sys

from multi_agent_mcp.environment import ENVIRON, PASSKEY, needs_module_path
from multi_agent_mcp.trace import current, variables


def child_environment(**added: str) -> dict[str, str]:
    """The environment for a program that we start: ours without the passkey, with the trace of the running call, and
    with `added` variables."""
    return {name: value for name, value in ENVIRON.items() if name != PASSKEY} | variables(current()) | added


def called(program: str) -> str:
    """The file of a program, as the directories in PATH tell that are absolute: another, such as `node_modules/.bin`,
    would be looked for below the directory that we are in, where an agent writes. Its name if there is none."""
    for directory in os.get_exec_path():
        path = f"{directory}/{program}"
        if directory.startswith("/") and os.access(path, os.X_OK):
            return path
    return program


def python(module: str = "multi_agent_mcp") -> tuple[str, ...]:
    """The words that run a module of ours, so that no module of the project is imported: neither from the working
    directory (`-P`) nor from PYTHONPATH and the like (`-E`), which stay in the environment for the programs that we
    start. A package that is found by PYTHONPATH only needs it; see `environment.leave_out_the_project`."""
    return (sys.executable, *(() if needs_module_path() else ("-E",)), "-P", "-m", module)
