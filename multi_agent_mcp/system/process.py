"""Identifies processes by id and start time, so that a reused id is not taken for the earlier process, and
finds who has which files open.

On Linux everything is read from proc(5), which costs microseconds; elsewhere psutil knows a process, and ps(1) and
lsof(8) what psutil does not tell: which process group a terminal is given to, and who has opened it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from multi_agent_mcp.domain.times import format_time, parse_time
from multi_agent_mcp.programs import called, child_environment

if TYPE_CHECKING:
    import psutil

T = TypeVar("T")
ROUNDING = timedelta(seconds=2)
"""The tolerance for start times: some systems compute them from the time since boot at each call, with rounding."""


# An executor that nobody shuts down is waited for while the main thread still counts as alive, and there is no other
# word for that time: `threading._register_atexit` would need as much that is private.
def program_ends() -> bool:
    """Whether the program's main thread has ended, and Python waits for its other threads."""
    return getattr(threading, "_SHUTTING_DOWN", False) or not threading.main_thread().is_alive()


def started_at(pid: int) -> str | None:
    """The start time of a process, an opaque text for comparison; None if there is no such process.

    On Linux clock ticks since boot (proc(5), field 22 of `/proc/PID/stat`), independent of the clock; elsewhere a time
    in UTC, in our form.
    """
    if pid <= 0:
        return None
    if sys.platform == "linux":
        fields = stat_fields(pid)
        return None if not fields or fields[2] in "ZX" else fields[21]
    import psutil  # here and below: every command imports this module, and Linux needs none of it

    with suppress(psutil.Error):
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            return format_time(datetime.fromtimestamp(process.create_time(), UTC))
    return None


def stat_fields(pid: int | str) -> list[str]:
    """The fields of `/proc/PID/stat` in the order of proc(5), from index 0; empty for a process that has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    head, _, tail = text.rpartition(")")
    return [str(pid), head.partition("(")[2], *tail.split()]


def is_alive(pid: int, start: str | None) -> bool:
    """Whether the process with this id runs and started at `start` (None: at any time)."""
    current = started_at(pid)
    return current is not None and (start is None or _is_same(current, start))


def end_of(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends (pidfd_open(2)). None where not available: on other
    systems, on Linux before 5.3 and in some sandboxes."""
    if sys.platform == "linux":
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _is_same(current: str, noted: str) -> bool:
    """Whether two start times are those of one process."""
    now, then = parse_time(current), parse_time(noted)
    return current == noted or (now is not None and then is not None and abs(now - then) <= ROUNDING)


def own_start() -> str | None:
    return started_at(os.getpid())


DETACHED = 'umask 077; log=$1; shift; "$@" </dev/null >>"$log" 2>&1 & echo $!'
"""A shell's script of `start_detached`, with the log and the program's arguments."""


def start_detached(arguments: Sequence[str], log: Path) -> int:
    """Starts a program that outlives this process, in a session of its own, and returns its process id. Its output is
    appended to `log`, which, like all files that it creates, is private to the user. It is not our child, so it need
    not be waited for."""
    done = subprocess.run(
        [called("sh"), "-c", DETACHED, "sh", str(log), *arguments],
        stdout=subprocess.PIPE,
        encoding="ascii",
        env=child_environment(),
        start_new_session=True,
        check=True,
    )
    return int(done.stdout)


SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "busybox"})


def host_of(pid: int) -> int:
    """The process id of the nearest ancestor that is no shell: hosts start commands through one (`sh -c …`), and only
    some shells replace themselves by the command. 0 if it cannot be determined."""
    parent, _ = _parent_and_name(pid)
    while parent > 1:
        above, name = _parent_and_name(parent)
        if name.lstrip("-") not in SHELLS:
            break
        parent = above
    return parent


def python_program(pid: int) -> str | None:
    """The name of the script or module that a process runs with Python, "" for a text or a terminal's; None if it is no
    Python, or cannot be read."""
    process = _process(pid, SYSTEM)
    if process is None or not process.executable.lower().startswith("python"):
        return None
    return process.program or ""


def _parent_and_name(pid: int) -> tuple[int, str]:
    """The parent's id and the command name of a process; 0 and "" if there is none."""
    if sys.platform == "linux":
        fields = stat_fields(pid)
        return (int(fields[3]), fields[1]) if fields else (0, "")
    import psutil

    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return process.ppid(), process.name()
    return 0, ""


# The foreground processes of a terminal: one of them reads what is typed there.

CALL_SECONDS = 2.0
_PSEUDO_TERMINALS = 136
"""Their major device number on Linux (devices.txt of the kernel, Unix98 PTY slaves)."""
_PROC = Path("/proc")
_VALUED = frozenset(
    ("-W", "-X", "-r", "-o", "+o", "-O", "+O", "--rcfile", "--init-file", "--require", "--import", "--loader")
)
"""Options of shells and interpreters whose value is a separate word. If another interpreter uses one differently
(`python -O`), its script is not recognised, and nothing is typed."""
_TERMINAL = re.compile(
    r"/+dev/(tty[A-Za-z0-9]*|pts/[0-9]+|console|std(in|out|err)|fd/[012])|/+proc/[^/]+(/task/[^/]+)?/fd/[012]"
)
"""Names of a terminal: a script with one of these names is read from the terminal."""
_LOADER = re.compile(r"ld([0-9]*|-.+)\.so[.0-9]*")
_LOADER_VALUED = frozenset(("--library-path", "--inhibit-rpath", "--audit", "--preload", "--argv0"))
"""Options of ld.so(8) whose value is a separate word, in addition to `--glibc-hwcaps-…`."""


class Interpreted(NamedTuple):
    """What an interpreter runs: a script's path, a module's name, or "" for code in an argument (`sh -c`)."""

    word: str
    is_file: bool = False


@dataclass(frozen=True)
class Process:
    """One process: its executable's path and the arguments that it shows. `file` is "" for a program of another user,
    as sudo(8) is, which must not be read. `renamed`: it has written a title of its own over its arguments. `script` is
    the path, without symbolic links, of the file that it runs if it is an interpreter; "" if there is none, or it
    cannot be determined."""

    pid: int
    start: str
    file: str
    arguments: tuple[str, ...]
    renamed: bool = False
    script: str = ""

    @property
    def executable(self) -> str:
        """The name of the executable."""
        return Path(self.file).name

    @property
    def name(self) -> str:
        """The name that the process gives itself, which `exec -a` can choose freely."""
        return Path(self.arguments[0].lstrip("-")).name if self.arguments else ""

    @cached_property
    def program(self) -> str | None:
        """The program that an interpreter runs: a script's or a module's name, "" for a text (`sh -c`). None if there
        is none: then it executes what it reads from its terminal."""
        given = _given(self.arguments[1:])
        return None if given is None else Path(given.word).name

    @property
    def identity(self) -> str:
        """A text that stays the same while the process lives and does not replace itself by another program."""
        return f"{self.pid}/{self.start}/{self.executable}/{self.program or ''}"


@dataclass(frozen=True)
class Foreground:
    """The foreground process group of a terminal: its leader, and the processes that may read the terminal: in the
    group (the leader, too), or in another session, where background processes may read it, too."""

    leader: Process
    readers: tuple[Process, ...]

    @property
    def identities(self) -> list[str]:
        """The identities of the readers, for comparison with later ones."""
        return sorted(process.identity for process in self.readers)


class ProcessTable(Protocol):
    """An operating system's information about processes."""

    def group(self, session_leader: int) -> list[int]:
        """The process ids of the foreground group of the session's terminal, its leader first, even if it has ended."""
        ...

    def readers(self, pids: Sequence[int]) -> list[int]:
        """Those of the processes that may read a terminal: it is their standard input, or they have opened it, as a
        pager does behind a pipe. Inherited standard output and error do not count."""
        ...

    def outsiders(self, session_leader: int) -> list[int]:
        """The processes of other sessions (setsid(2)) whose standard input is the session's terminal: job control does
        not stop them when they read it in the background."""
        ...

    def command(self, pid: int) -> tuple[str, tuple[str, ...], bool]:
        """The executable's path, the arguments, and whether these are a title that the process has set itself."""
        ...

    def directory(self, pid: int) -> str:
        """The working directory; "" if it cannot be determined."""
        ...

    def invocation(self, pid: int) -> str:
        """The path by which the process's shell says that it started it; "" if there is none. Children inherit it."""
        ...


class Proc:
    """The process table of Linux, by proc(5)."""

    def group(self, session_leader: int) -> list[int]:
        leader = next(map(int, stat_fields(session_leader)[7:8]), None)
        if leader is None:
            return []
        return [leader, *(pid for pid in _pids() if pid != leader and _group_of(pid) == leader)]

    def readers(self, pids: Sequence[int]) -> list[int]:
        return [pid for pid in pids if _reads_terminal(pid)]

    def outsiders(self, session_leader: int) -> list[int]:
        terminal = terminal_of(session_leader)
        pids = [pid for pid in _pids() if _link(f"{_PROC}/{pid}/fd/0") == terminal]
        return [pid for pid in pids if terminal_of(pid) != terminal]

    def command(self, pid: int) -> tuple[str, tuple[str, ...], bool]:
        file = _link(_PROC / str(pid) / "exe").removesuffix(" (deleted)")  # replaced by an update while it runs
        try:
            shown = (_PROC / str(pid) / "cmdline").read_bytes()
        except OSError:
            shown = b""
        words = tuple(os.fsdecode(shown).rstrip("\0").split("\0"))
        return file, words, bool(shown) and (shown.endswith(b"\0\0") or not shown.endswith(b"\0"))

    def directory(self, pid: int) -> str:
        return _link(_PROC / str(pid) / "cwd")

    def invocation(self, pid: int) -> str:
        try:
            variables = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            return ""
        return next((os.fsdecode(text[2:]) for text in variables if text.startswith(b"_=")), "")


class Portable:
    """The process table of other systems, by psutil, ps(1) and lsof(8)."""

    def group(self, session_leader: int) -> list[int]:
        import psutil

        leader = next(iter(_lines("ps", "-p", str(session_leader), "-o", "tpgid=")), "").strip()
        if not leader.isdecimal():
            return []
        return [int(leader), *(pid for pid in psutil.pids() if pid != int(leader) and _group_of(pid) == int(leader))]

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
        rows = [line.split() for line in _lines("ps", "-A", "-o", "pid=,tty=")]  # psutil knows no terminal opened since
        terminal = next((tty for pid, tty in rows if pid == str(session_leader)), "?")
        if terminal.startswith("?"):
            return []
        inside = {pid for pid, tty in rows if tty == terminal}
        pids = _lines("lsof", "-w", "-t", "-a", "-d", "0", f"/dev/{terminal}")
        return [int(pid) for pid in pids if pid not in inside]

    def command(self, pid: int) -> tuple[str, tuple[str, ...], bool]:
        file = _told(pid, lambda process: process.exe()) or _told(pid, lambda process: process.name()) or ""
        return file, tuple(_told(pid, lambda process: process.cmdline()) or ()), False

    def directory(self, pid: int) -> str:
        return _told(pid, lambda process: process.cwd()) or ""

    def invocation(self, pid: int) -> str:
        facts = _told(pid, lambda process: process.as_dict(["environ"])) or {}
        return str((facts.get("environ") or {}).get("_", ""))


def _told(pid: int, ask: Callable[[psutil.Process], T]) -> T | None:
    """What psutil tells about a process; None if it has ended or is another user's."""
    import psutil

    with suppress(psutil.Error):
        return ask(psutil.Process(pid))
    return None


SYSTEM: ProcessTable = Proc() if sys.platform == "linux" else Portable()


def directory_of(pid: int) -> str | None:
    """The directory in which a process works; None for one that is gone or another user's."""
    return _told(pid, lambda process: process.cwd())


def environment_of(pid: int) -> dict[str, str]:
    """The variables with which a process was started; none of one that has ended or is another user's."""
    return dict((_told(pid, lambda process: process.as_dict(["environ"])) or {}).get("environ") or {})


def foreground(session_leader: int, table: ProcessTable = SYSTEM) -> Foreground | None:
    """The foreground of the terminal controlled by this process, a pane's first one. None if it cannot be determined,
    because the process or the group's leader has ended."""
    leader, *others = table.group(session_leader) or [0]
    readers = (*table.readers(others), *table.outsiders(session_leader))
    processes = [_process(pid, table) for pid in (leader, *readers)]
    if processes[0] is None:
        return None
    return Foreground(processes[0], tuple(process for process in processes if process is not None))


def identity(pid: int, table: ProcessTable = SYSTEM) -> str | None:
    """When a process was started and the file that it runs, for comparison with a later time; None if it has ended."""
    start = started_at(pid)
    return None if start is None else f"{start} {table.command(pid)[0]}"


def is_child(pid: int, parent: int) -> bool:
    return _parent_and_name(pid)[0] == parent


def running_files(session_leader: int | None, table: ProcessTable = SYSTEM) -> str:
    """For people: the files of the programs that read the terminal controlled by this process, an interpreter's with
    its script; "?" for what cannot be determined."""
    seen = None if session_leader is None else foreground(session_leader, table)
    files = [" ".join(filter(None, (process.file or "?", process.script))) for process in seen.readers] if seen else []
    return ", ".join(files)[:400] or "?"


def _process(pid: int, table: ProcessTable) -> Process | None:
    start = started_at(pid)
    if start is None:
        return None
    file, shown, renamed = table.command(pid)
    file, arguments = _loaded(file, shown)
    return Process(pid, start, file, arguments, renamed, _script(pid, None if renamed else arguments, table))


def _script(pid: int, arguments: Sequence[str] | None, table: ProcessTable) -> str:
    """The path of the file that an interpreter with these arguments runs. None: they are hidden by a title, as a script
    of node may give itself; then the note names the file that a shell leaves of what it has started."""
    given = Interpreted(table.invocation(pid), is_file=True) if arguments is None else _given(arguments[1:])
    if given is None or not given.is_file or not given.word:
        return ""
    if given.word.startswith("/"):
        return os.path.realpath(given.word)
    directory = table.directory(pid)
    return os.path.realpath(f"{directory}/{given.word}") if directory else ""


def _loaded(file: str, arguments: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The executable and arguments, of the loaded program if it was started through ld.so(8) (`ld.so /bin/bash`)."""
    if not _LOADER.fullmatch(Path(file).name):
        return file, arguments
    words = list(arguments[1:])
    while words and words[0].startswith("--"):
        option = words.pop(0)
        del words[: option in _LOADER_VALUED or option.startswith("--glibc-hwcaps-")]
    return (os.path.realpath(words[0]), tuple(words)) if words else (file, arguments)


def _reads_terminal(pid: int) -> bool:
    try:
        descriptors = [path for path in (_PROC / str(pid) / "fd").iterdir() if path.name not in ("1", "2")]
    except PermissionError:
        return True  # a process of another user, as sudo(8), which asks for a password
    except OSError:
        return False
    return any(_link(path).startswith(("/dev/pts/", "/dev/tty")) for path in descriptors)


def _pids() -> list[int]:
    return [int(path.name) for path in _PROC.glob("[0-9]*")]


def _group_of(pid: int) -> int | None:
    """The process group, by a system call: reading the stat file of proc(5) takes twenty times as long."""
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
        words = [called(call[0]), *call[1:]]
        done = subprocess.run(words, env=environment, capture_output=True, check=False, timeout=CALL_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return os.fsdecode(done.stdout).splitlines()


def _given(arguments: Sequence[str]) -> Interpreted | None:
    """What an interpreter with these arguments was given to run; None if it executes what it reads."""
    words = iter(arguments)
    for word in words:
        if word in _VALUED:
            next(words, "")
        elif word == "--" or not word.startswith(("-", "+")):
            script = os.path.normpath(next(words, "") if word == "--" else word)
            return None if _TERMINAL.fullmatch(script) or not Path(script).name else Interpreted(script, is_file=True)
        elif word == "-" or _flags(word) & {"i", "s"}:
            return None  # it reads its terminal, whatever its other arguments
        elif _flags(word) & {"c", "e", "m"}:
            given = next(words, None)
            return None if given is None else Interpreted(given if "m" in _flags(word) else "")
    return None


def _flags(word: str) -> set[str]:
    """The letters of combined options like `-lc`; none for a long option, or one with an attached value
    (`-Wignore`)."""
    return set() if word.startswith(("--", "-W", "-X")) else set(word[1:])


# Which processes have something open: a host keeps its conversation in a file, and continuing one that another process
# still has open would tear it in two. What cannot be found out is taken as not open.

POLL_SECONDS = 0.05


def holding(name: str) -> set[int]:
    """The processes of this user that were given a name, such as an id, as an argument (`NAME` or `--option=NAME`), or
    that have a file open for writing whose name contains it. A directory of that name does not count: what a host's
    tools have started, and left running, writes its output there."""
    if sys.platform == "linux":
        return {int(path.name) for path in Path("/proc").glob("[0-9]*") if _holds(path, name)} - {os.getpid()}
    import psutil

    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            files = (file.path for file in process.open_files())
            if _is_given(process.cmdline(), name) or any(name in Path(path).name for path in files):
                found.add(process.pid)
    return found - {os.getpid()}


def _holds(process: Path, name: str) -> bool:
    with suppress(OSError):
        if process.stat().st_uid != os.getuid():
            return False
        if _is_given(os.fsdecode((process / "cmdline").read_bytes()).split("\0"), name):
            return True
        return any(name in link.rpartition("/")[2] and _is_written(process, number) for number, link in _links(process))
    return False


def _is_given(arguments: Sequence[str], name: str) -> bool:
    """A tmux server names in one long argument what it was started with."""
    return any(word == name or word.endswith(f"={name}") for word in arguments)


def _is_written(process: Path, number: str) -> bool:
    """Whether a file is open for writing, by the flags of proc_pid_fdinfo(5): an editor or `tail -f` only reads."""
    with suppress(OSError, ValueError, IndexError):
        lines = (process / "fdinfo" / number).read_text(encoding="ascii").splitlines()
        return int(lines[1].split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _links(process: Path) -> Iterator[tuple[str, str]]:
    with suppress(OSError):
        for entry in (process / "fd").iterdir():
            with suppress(OSError):
                yield entry.name, str(entry.readlink())


def noted_by(directory: Path, text: str) -> set[int]:
    """The living processes whose file `{pid}.json` in a directory of a host contains a text."""
    found = set()
    with suppress(OSError):
        for path in directory.glob("*.json"):
            with suppress(OSError, ValueError):
                if text.encode() in path.read_bytes() and started_at(int(path.stem)) is not None:
                    found.add(int(path.stem))
    return found


def has_lost_terminal(pid: int) -> bool:
    """Whether a process had a terminal that is gone: the window that it was started in was closed. Linux only."""
    terminals = [link for _, link in _links(Path(f"/proc/{pid}")) if link.startswith("/dev/pts/")]
    return bool(terminals) and all(link.endswith("(deleted)") for link in terminals)


def is_below(pid: int, ancestors: Collection[int]) -> bool:
    """Whether a process is one of these, or was started by one, directly or by others."""
    while pid > 1:
        if pid in ancestors:
            return True
        pid = _parent_and_name(pid)[0]
    return False


def terminal_of(pid: int) -> str | None:
    """The path of a process's controlling terminal, as the system names pseudo-terminals; None without one."""
    if sys.platform == "linux":
        return _terminal(next(map(int, stat_fields(pid)[6:7]), 0))
    return _told(pid, lambda process: process.terminal())


def _terminal(number: int) -> str | None:
    """The pseudo-terminal with this device number (proc(5), `tty_nr`); None for another terminal, or none."""
    if number >> 8 & 0xFFF != _PSEUDO_TERMINALS:
        return None
    return f"/dev/pts/{(number & 0xFF) | (number >> 12 & 0xFFF00)}"


def end(pid: int, number: signal.Signals, seconds: float) -> bool:
    """Sends a signal to a process and waits until it has ended; returns whether it has."""
    start, until = started_at(pid), time.monotonic() + seconds
    with suppress(OSError):
        os.kill(pid, number)
    while start is not None and is_alive(pid, start):
        if time.monotonic() >= until:
            return False
        time.sleep(POLL_SECONDS)
    return True
