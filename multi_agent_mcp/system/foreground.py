"""Which processes have a terminal in the foreground: what is typed there goes to one of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from multi_agent_mcp.config import child_environment
from multi_agent_mcp.system.process import started_at, stat_fields

CALL_SECONDS = 2.0
_PROC = Path("/proc")
_VALUED = frozenset(
    ("-W", "-X", "-r", "-o", "+o", "-O", "+O", "--rcfile", "--init-file", "--require", "--import", "--loader")
)
"""Options of shells and interpreters whose value is a word of its own. Where one means something else to another
interpreter (`python -O`), a script is taken for no script, and nothing is typed."""
_TERMINAL = re.compile(
    r"/+dev/(tty[A-Za-z0-9]*|pts/[0-9]+|console|std(in|out|err)|fd/[012])|/+proc/[^/]+(/task/[^/]+)?/fd/[012]"
)
"""A script by one of these names is what is typed."""
_LOADER = re.compile(r"ld([0-9]*|-.+)\.so[.0-9]*")
_LOADER_VALUED = frozenset(("--library-path", "--inhibit-rpath", "--audit", "--preload", "--argv0"))
"""Options of ld.so(8) whose value is a word of its own, beside `--glibc-hwcaps-…`."""


@dataclass(frozen=True)
class Process:
    """One process: what it executes, and the arguments it shows. `executable` is "" where that must not be read: a
    program of another user, as sudo(8) is. `renamed`: it has written a title of its own over its arguments."""

    pid: int
    start: str
    executable: str
    arguments: tuple[str, ...]
    renamed: bool = False

    @property
    def name(self) -> str:
        """What it calls itself; `exec -a` chooses that freely."""
        return Path(self.arguments[0].lstrip("-")).name if self.arguments else ""

    @cached_property
    def program(self) -> str | None:
        """What an interpreter was given to run: a script's or a module's name, "" for a text (`sh -c`). None for
        nothing: then it runs what it reads from its terminal."""
        return _program(self.arguments[1:])

    @property
    def identity(self) -> str:
        """The same for as long as it is this process and has not replaced itself by another program."""
        return f"{self.pid}/{self.start}/{self.executable}/{self.program or ''}"


@dataclass(frozen=True)
class Foreground:
    """The foreground process group of a terminal: its leader, and whoever may read what is typed: in it (the leader,
    too), or in another session, where nothing keeps a process in the background from reading."""

    leader: Process
    readers: tuple[Process, ...]

    @property
    def identities(self) -> list[str]:
        """To be compared later with who reads the terminal then."""
        return sorted(process.identity for process in self.readers)


class ProcessTable(Protocol):
    """Where an operating system says this."""

    def group(self, session_leader: int) -> list[int]:
        """The foreground process group of the session's terminal, its leader first whether it lives or not."""
        ...

    def readers(self, pids: Sequence[int]) -> list[int]:
        """Those that may read the terminal: their standard input is one, or they have opened one for themselves, as a
        pager does behind a pipe. Output that was merely inherited does not count."""
        ...

    def outsiders(self, session_leader: int) -> list[int]:
        """Processes of other sessions (setsid(2)) whose standard input is the session's terminal: job control does not
        stop them when they read it from the background."""
        ...

    def command(self, pid: int) -> tuple[str, tuple[str, ...], bool]:
        """The executable's name, the arguments, and whether these are a title that the process has given itself."""
        ...


class Proc:
    """Linux: proc(5)."""

    def group(self, session_leader: int) -> list[int]:
        leader = next(map(int, stat_fields(session_leader)[7:8]), None)
        if leader is None:
            return []
        return [leader, *(pid for pid in _pids() if pid != leader and _group_of(pid) == leader)]

    def readers(self, pids: Sequence[int]) -> list[int]:
        return [pid for pid in pids if _reads_terminal(pid)]

    def outsiders(self, session_leader: int) -> list[int]:
        number = next(map(int, stat_fields(session_leader)[6:7]), 0)
        terminal = f"/dev/pts/{(number & 0xFF) | (number >> 12 & 0xFFF00)}"
        pids = [pid for pid in _pids() if _link(f"{_PROC}/{pid}/fd/0") == terminal]
        return [pid for pid in pids if stat_fields(pid)[6:7] != [str(number)]]

    def command(self, pid: int) -> tuple[str, tuple[str, ...], bool]:
        executable = Path(_link(_PROC / str(pid) / "exe").removesuffix(" (deleted)")).name
        try:
            shown = (_PROC / str(pid) / "cmdline").read_bytes()
        except OSError:
            shown = b""
        words = tuple(os.fsdecode(shown).rstrip("\0").split("\0"))
        return executable, words, bool(shown) and (shown.endswith(b"\0\0") or not shown.endswith(b"\0"))


class Ps:
    """Elsewhere: ps(1) and lsof(8)."""

    def group(self, session_leader: int) -> list[int]:
        rows = [line.split() for line in _lines("ps", "-A", "-o", "pid=,pgid=,tpgid=")]
        leaders = [group for pid, _, group in rows if pid == str(session_leader)]
        others = [pid for pid, group, _ in rows if [group] == leaders and pid not in leaders]
        return [int(pid) for pid in (*leaders, *others)]

    def readers(self, pids: Sequence[int]) -> list[int]:
        found, pid = set(), 0
        for line in (
            _lines("lsof", "-w", "-a", "-p", ",".join(map(str, pids)), "-d", "^1,^2", "-F", "n") if pids else ()
        ):
            if line.startswith("p"):
                pid = int(line[1:])
            elif line.startswith(("n/dev/tty", "n/dev/pts/")):
                found.add(pid)
        return sorted(found)

    def outsiders(self, session_leader: int) -> list[int]:
        rows = [line.split() for line in _lines("ps", "-A", "-o", "pid=,tty=")]
        terminal = next((tty for pid, tty in rows if pid == str(session_leader)), "?")
        if terminal.startswith("?"):
            return []
        inside = {pid for pid, tty in rows if tty == terminal}
        pids = _lines("lsof", "-w", "-t", "-a", "-d", "0", f"/dev/{terminal}")
        return [int(pid) for pid in pids if pid not in inside]

    def command(self, pid: int) -> tuple[str, tuple[str, ...], bool]:
        executable, arguments = (" ".join(_lines("ps", "-p", str(pid), "-o", f"{name}=")) for name in ("ucomm", "args"))
        return executable.strip(), tuple(arguments.split()), False


SYSTEM: ProcessTable = Proc() if sys.platform == "linux" else Ps()


def foreground(session_leader: int, table: ProcessTable = SYSTEM) -> Foreground | None:
    """The foreground of the terminal that this process (a pane's first one) controls. None when that cannot be said:
    the process is gone, or the group's leader is."""
    leader, *others = table.group(session_leader) or [0]
    readers = (*table.readers(others), *table.outsiders(session_leader))
    processes = [_process(pid, table) for pid in (leader, *readers)]
    if processes[0] is None:
        return None
    return Foreground(processes[0], tuple(process for process in processes if process is not None))


def _process(pid: int, table: ProcessTable) -> Process | None:
    start = started_at(pid)
    if start is None:
        return None
    executable, arguments, renamed = table.command(pid)
    return Process(pid, start, *_loaded(executable, arguments), renamed)


def _loaded(executable: str, arguments: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """What the dynamic loader runs where a program was started through it (`ld.so /bin/bash`)."""
    if not _LOADER.fullmatch(executable):
        return executable, arguments
    words = list(arguments[1:])
    while words and words[0].startswith("--"):
        option = words.pop(0)
        del words[: option in _LOADER_VALUED or option.startswith("--glibc-hwcaps-")]
    return (Path(words[0]).resolve().name, tuple(words)) if words else (executable, arguments)


def _reads_terminal(pid: int) -> bool:
    try:
        descriptors = [path for path in (_PROC / str(pid) / "fd").iterdir() if path.name not in ("1", "2")]
    except PermissionError:
        return True  # another user's: sudo(8) asks for a password
    except OSError:
        return False
    return any(_link(path).startswith(("/dev/pts/", "/dev/tty")) for path in descriptors)


def _pids() -> list[int]:
    return [int(path.name) for path in _PROC.glob("[0-9]*")]


def _group_of(pid: int) -> int | None:
    """By a system call: reading every stat(5) file takes twenty times as long."""
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def _link(path: str | Path) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - one for every process of the machine in each decision to ring
    except OSError:
        return ""


def _lines(*call: str) -> list[str]:
    environment = child_environment(LC_ALL="C", TZ="UTC")
    try:
        done = subprocess.run(call, env=environment, capture_output=True, check=False, timeout=CALL_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return os.fsdecode(done.stdout).splitlines()


def _program(arguments: Sequence[str]) -> str | None:
    words = iter(arguments)
    for word in words:
        if word in _VALUED:
            next(words, "")
        elif word == "--" or not word.startswith(("-", "+")):
            script = os.path.normpath(next(words, "") if word == "--" else word)
            return None if _TERMINAL.fullmatch(script) else Path(script).name or None
        elif word == "-" or _flags(word) & {"i", "s"}:
            return None  # it reads its terminal, whatever else it was given
        elif _flags(word) & {"c", "e", "m"}:
            given = next(words, None)
            return given if "m" in _flags(word) or given is None else ""
    return None


def _flags(word: str) -> set[str]:
    """The letters of a cluster like `-lc`; none for a long option, or for one with its value behind it (`-Wignore`)."""
    return set() if word.startswith(("--", "-W", "-X")) else set(word[1:])
