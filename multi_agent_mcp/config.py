"""The environment, and where sessions are: what is known before any file is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from multi_agent_mcp.environment import ENVIRON
from multi_agent_mcp.environment import PREFIX as ENV
from multi_agent_mcp.errors import InvalidArguments, NoSuchSession

ROOT_NAME = ".multi-agent-mcp"
TMUX_DIRECTORY = "/tmp"  # noqa: S108 - where tmux keeps its sockets
HELD_LEASES = f"{ENV}LEASES"
"""The variable that names, for a command with a lease, what it and those around it hold."""


class TmuxPane(NamedTuple):
    """The tmux pane of a process, from `TMUX` and `TMUX_PANE`."""

    socket_path: str
    pane_id: str


class Environment(NamedTuple):
    """The settings in the environment, which command-line options override. `is_configured`: the host's own
    configuration has our server and hooks already (`up` with {mcp_config}), and a plugin has nothing to do."""

    root: str | None = None
    session: str | None = None
    agent: str | None = None
    purpose: str | None = None
    pane: TmuxPane | None = None
    check_locks: bool = False
    is_configured: bool = False
    leases: tuple[str, ...] = ()


def read_environment(environ: Mapping[str, str] = ENVIRON) -> Environment:
    """Reads `MULTI_AGENT_MCP_ROOT/_SESSION/_AGENT/_PURPOSE`, and the pane in which this process was started. The
    passkey was removed when the process started; see `environment.take_passkey`. Tests set `_CHECK_LOCKS` for the
    processes that they start; see `store/locks.py`."""
    return Environment(
        root=environ.get(f"{ENV}ROOT") or None,  # an empty variable counts as unset, as in most programs
        session=environ.get(f"{ENV}SESSION") or None,
        agent=environ.get(f"{ENV}AGENT") or None,
        purpose=environ.get(f"{ENV}PURPOSE") or None,
        pane=_pane(environ),
        check_locks=bool(environ.get(f"{ENV}CHECK_LOCKS")),
        is_configured=bool(environ.get(f"{ENV}CONFIGURED")),
        leases=tuple(filter(None, environ.get(HELD_LEASES, "").split(","))),
    )


def plugins_environment() -> Environment:
    """The settings of a server that a plugin starts: a host may hand over `$NAME` as it stands for a variable that is
    not set."""
    return read_environment({name: value for name, value in ENVIRON.items() if not value.startswith(f"${ENV}")})


def _pane(environ: Mapping[str, str]) -> TmuxPane | None:
    """The pane from `TMUX` (`socket,server pid,session`) and `TMUX_PANE`. Codex passes neither to its servers
    (docs/hosts.md, The server's life) unless its configuration names them, as ours does; `MULTI_AGENT_MCP_SOCKET` and
    `MULTI_AGENT_MCP_PANE` are what earlier versions wrote there."""
    socket_path = environ.get(f"{ENV}SOCKET") or environ.get("TMUX", "").split(",")[0]
    pane_id = environ.get(f"{ENV}PANE") or environ.get("TMUX_PANE", "")
    return TmuxPane(socket_path, pane_id) if socket_path and pane_id.startswith("%") else None


def trust_file() -> Path | None:
    """The user's list of what is trusted though it belongs to others (docs/security.md, Other users' sessions), in the
    directory of the XDG Base Directory Specification; None without a home directory."""
    given = ENVIRON.get("XDG_CONFIG_HOME", "")
    try:
        home = Path(given) if given.startswith("/") else Path.home() / ".config"
    except RuntimeError:
        return None
    return home / "multi-agent-mcp" / "trusted"


def home_of(variable: str, default: str) -> Path:
    """Another program's directory: what the environment's `variable` names, if it is set, else `default`."""
    given = ENVIRON.get(variable, "") if variable else ""
    return expanded(given if given.startswith("/") else default)


def tmux_socket() -> str:
    """The socket of the tmux server that plain `tmux` uses here, running or not: that of this terminal, else the
    default one of tmux(1)."""
    inside = ENVIRON.get("TMUX", "").split(",")[0]
    if inside:
        return inside
    directories = (Path(ENVIRON.get("TMUX_TMPDIR") or TMUX_DIRECTORY), Path(TMUX_DIRECTORY))
    directory = next(found for found in directories if found.is_dir())
    return str(directory.resolve() / f"tmux-{os.getuid()}" / "default")


def expanded(path: str | Path) -> Path:
    """The path with its `~` replaced; that of an unknown user stays, as in a shell."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - `Path.expanduser` raises for it


def working_directory() -> Path:
    """The working directory, by the name that it had if it was removed meanwhile."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        known = Path("/proc/self/cwd")
        was = known.readlink() if known.is_symlink() else ENVIRON.get("PWD", "/")
        return Path(str(was).removesuffix(" (deleted)"))


def find_root(given: str | None, start: Path) -> Path:
    """The root: as given, else the nearest `.multi-agent-mcp` at or above `start`, else a new one in `start`."""
    if given:
        return expanded(given).absolute()
    for directory in (start, *start.parents):
        if (directory / ROOT_NAME).is_dir():
            return directory / ROOT_NAME
    return start / ROOT_NAME


def find_session(given: str | None, root: Path) -> str:
    """The session: as given, else the only one below the root. Raises `NoSuchSession`."""
    if given is not None:
        return given
    names = session_names(root)
    if len(names) == 1:
        return names[0]
    if not names:
        raise no_session(root)
    raise NoSuchSession("which_session", names=", ".join(names), root=root.name)


def require_utf8(root: Path) -> None:
    """Raises `InvalidArguments` for a new root whose path is not UTF-8: neither an answer nor the configuration file of
    a host could name it."""
    try:
        str(root).encode()
    except UnicodeEncodeError as error:
        raise InvalidArguments("root_not_utf8", root=ascii(str(root))) from error


def session_names(root: Path) -> list[str]:
    """The names of the sessions below a root, as far as it may be read."""
    try:
        return sorted(item.name for item in root.iterdir() if os.path.isfile(item / "session.yaml"))  # noqa: PTH113
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def no_session(root: Path) -> NoSuchSession:
    """The refusal below a root without a session; it names one that is there but for its session.yaml."""
    with suppress(OSError):
        for path in sorted(root.iterdir()):
            if is_without_settings(path):
                return NoSuchSession("no_settings", session=path.name, root=root.name)
    return NoSuchSession("no_session_yet", root=root.name)


def is_without_settings(path: Path) -> bool:
    """Whether this is the directory of a session whose session.yaml is gone, or is no file."""
    return (path / "agents.json").is_file() and not (path / "session.yaml").is_file()
