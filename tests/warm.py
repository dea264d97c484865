"""Starts our own programs from a warm interpreter: forked from a process that has imported what they import.

Importing takes half a second of processor time in a server and a quarter in a command, taking the interpreter apart at
the end a tenth, and the suite starts more than a thousand of them. While this is installed, `subprocess.Popen` (on
which all ways of starting processes are based) has `python -m multi_agent_mcp …` and a few of the tests' own programs
forked by a warm process and handed over to this one. They are its children in every observable way, with the requested
standard streams, directory, environment and arguments; what `start_detached` starts is nobody's child, as it would be.
Unusual calls (a function to run before, another locale than C.UTF-8, options of the interpreter) start a process as
usual; so do all calls on other systems than Linux, or with `COLD=1` in the environment.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import io
import itertools
import json
import os
import pkgutil
import re
import runpy
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

import multi_agent_mcp
from multi_agent_mcp.system.process import DETACHED

PROGRAMS = (
    "multi_agent_mcp",
    "tests.services.forks",
    "tests.end_to_end.processes",
    "tests.conformance.sender",
    "tests.partition.writer",
    "tests.partition.claimer",
    "tests.crash",
    "tests.soak",
    "tests.powercut",
)
OTHERS = (
    *("anyio._backends._asyncio", "ctypes.util", "difflib", "glob", "nacl.signing", "nats", "nkeys"),
    *("rich.console", "rich.table", "tomlkit", "watchdog.observers"),
)
"""What programs import besides our own modules, and only when they need it."""
UNIMPORTED = ("multi_agent_mcp.__main__", "multi_agent_mcp.telemetry.exporting")
"""Our modules that are not imported: the program itself, and what needs an extra."""
UNUSUAL = re.compile(
    r"(LANG|LC_CTYPE)=(?!C\.UTF-8$)|LANGUAGE=|LC_(?!CTYPE=)|PYTHON(?!(PATH|DONTWRITEBYTECODE|UNBUFFERED)=)"
)
"""Variables that tell the interpreter itself how to start, otherwise than the warm one was started."""
STARTING = {"demo", "join", "share"}
"""Our commands that start more programs of ours: each is given a warm process of its own."""
DETACHING = ["sh", "-c", DETACHED, "sh"]
"""Before the log and the command."""
PR_SET_CHILD_SUBREAPER = 36
REPOSITORY = Path(__file__).parents[1]
_cold = subprocess.Popen


class Warm(_cold):  # type: ignore[type-arg]
    """A process that was forked from the warm one where that can be."""

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, *rest: Any) -> None:
        (close_fds, pass_fds, cwd, env, _, _, shell, *pipes, _, gid, gids, uid, umask, session, group) = rest
        words = [] if shell or isinstance(args, (str, bytes, os.PathLike)) else [os.fsdecode(word) for word in args]
        environment = os.environ if env is None else env
        if words[:4] == DETACHING and _is_ours(words[5:]) and not _is_unusual(environment):
            super()._execute_child(["sh", "-c", f"echo {_detached(words[4:], environment)}"], None, None, *rest)  # type: ignore[misc]
            return
        usual = close_fds and preexec_fn is None and not pass_fds and (gid, gids, uid) == (None,) * 3
        usual = usual and executable in (None, *words[:1]) and (umask, group) == (-1, -1) and Path(cwd or ".").is_dir()
        if not (usual and _is_ours(words) and not _is_unusual(environment)):
            super()._execute_child(args, executable, preexec_fn, *rest)  # type: ignore[misc]
            return
        streams = pipes[0], pipes[3], pipes[5]
        asked = _asked_for(words, environment, cwd, session=bool(session))
        self.pid = _forked(asked, [given if given >= 0 else own for own, given in enumerate(streams)])
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def install() -> None:
    """Replaces `subprocess.Popen` in this process, from now on."""
    if sys.platform == "linux" and "COLD" not in os.environ:
        subprocess.Popen = Warm  # type: ignore[misc]


def _is_unusual(environment: Mapping[Any, Any]) -> bool:
    return any(UNUSUAL.match(f"{os.fsdecode(name)}={os.fsdecode(value)}") for name, value in environment.items())


def _is_ours(words: Sequence[str]) -> bool:
    return words[:1] == [sys.executable] and _module(words)[:1] == ["-m"] and [*_module(words), ""][1] in PROGRAMS


def _module(words: Sequence[str]) -> list[str]:
    """The words from `-m` on; before it come options that only say where modules are not to be looked for."""
    return [*itertools.dropwhile({"-E", "-P"}.__contains__, words[1:])]


class _Stove:
    """The warm process, started when it is needed first; it ends with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: socket.socket | None = None
        self._process: Any = None

    def fork(self, asked: Mapping[str, Any], streams: Sequence[int], *, adopted: bool = True) -> int:
        """The pid of a new child of this process, or of an orphan."""
        with self._lock, _adopting() if adopted else nullcontext():
            line = self._line = self._line or self._lit()
            socket.send_fds(line, [b"\n"], streams)
            line.sendall(json.dumps(asked).encode() + b"\n")
            return int(_line_from(line))

    def take(self, line: socket.socket) -> None:
        """From now on, forks from the process at the other end of the line."""
        self._line = line

    def _lit(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        environment = {name: value for name, value in os.environ.items() if not _is_unusual({name: value})}
        command = [sys.executable, "-m", "tests.warm", str(theirs.fileno())]
        self._process = _cold(command, cwd=REPOSITORY, env=environment, pass_fds=[theirs.fileno()])
        theirs.close()
        atexit.register(self._put_out, ours)
        return ours

    def _put_out(self, line: socket.socket) -> None:
        line.close()
        self._process.wait()


@contextmanager
def _adopting() -> Iterator[None]:
    """Within, this process adopts orphaned descendants in place of init: prctl(2)."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


_stove = _Stove()
_forked = _stove.fork


def _asked_for(words: Sequence[str], environment: Mapping[Any, Any], cwd: Any, *, session: bool) -> dict[str, Any]:
    return {
        "program": _module(words)[1],
        "arguments": _module(words)[2:],
        "directory": os.fsdecode(cwd or Path.cwd()),
        "environment": {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()},
        "session": session,
    }


def _detached(words: Sequence[str], environment: Mapping[Any, Any]) -> int:
    """Does what the script of `start_detached` does with its arguments; returns the pid."""
    log, *command = words
    with (
        open(os.devnull, "rb") as nothing,
        open(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as out,
    ):
        asked = {**_asked_for(command, environment, None, session=True), "umask": 0o077}
        return _forked(asked, [nothing.fileno(), out.fileno(), out.fileno()], adopted=False)


def _line_from(line: socket.socket) -> bytes:
    """Returns everything up to the end of a line. Raises `EOFError` when the peer has gone."""
    data = b""
    while not data.endswith(b"\n"):
        data += (more := line.recv(1 << 20))
        if not more:
            raise EOFError
    return data


def _asked(line: socket.socket) -> dict[str, Any]:
    """Serves requests in the warm process. Returns only in a forked child, with the request that the child is to
    execute and its streams in place."""
    while True:
        _, streams, _, _ = socket.recv_fds(line, 1, 3)
        asked: dict[str, Any] = json.loads(_line_from(line))
        between = os.fork()
        if between == 0 and _is_born():
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            line.sendall(b"%d\n" % os.getpid())
            return asked
        os.waitpid(between, 0)
        for stream in streams:
            os.close(stream)


def _is_born() -> bool:
    """Forks once more and ends this process; returns True in its child, once the child has been adopted by another
    parent."""
    before = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == before:
        time.sleep(0)
    return True


def _become(asked: Mapping[str, Any]) -> None:
    """Sets the session, directory, environment, streams and arguments that a fresh interpreter would have started
    with."""
    if asked["session"]:
        os.setsid()
    if "umask" in asked:
        os.umask(asked["umask"])
    os.closerange(3, 256)
    os.chdir(asked["directory"])
    os.environ.clear()
    os.environ.update(({} if "LANG" in asked["environment"] else {"LC_CTYPE": "C.UTF-8"}) | asked["environment"])
    time.tzset()
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin, sys.stdout = (
        io.TextIOWrapper(
            open(number, mode, buffering=0 if at_once and mode == "wb" else -1, closefd=False),  # noqa: SIM115
            encoding="utf-8",
            errors="surrogateescape",
            newline="\n",
            write_through=at_once,
        )
        for number, mode in enumerate(("rb", "wb"))
    )
    sys.stderr = io.TextIOWrapper(open(2, "wb", closefd=False), "utf-8", "backslashreplace", "\n", line_buffering=True)  # noqa: SIM115
    sys.argv = [asked["program"], *asked["arguments"]]
    sys.path[0] = asked["directory"]


def _prepare() -> None:
    """Imports all that our programs import, and makes what each of them makes alike: texts, the tools' schemas."""
    ours = [found.name for found in pkgutil.walk_packages(multi_agent_mcp.__path__, "multi_agent_mcp.")]
    for module in (*OTHERS, *(name for name in ours if name not in UNIMPORTED)):
        importlib.import_module(module)
    texts, tools = (importlib.import_module(f"multi_agent_mcp.{name}") for name in ("texts", "server.tools"))
    for language, part in itertools.product(texts.LANGUAGES, (None, "people", "console")):
        texts.catalogue(language, part)
    for tool in tools.TOOLS.values():
        tool.described()


def _run(program: str) -> NoReturn:
    """Runs it to its end, and ends this process with its code after all that an interpreter does that anybody could
    see. What ends otherwise (a traceback, an interrupt, output that nobody takes) ends as usual."""
    code = 0
    try:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not (end.code is None or isinstance(end.code, int)):
            raise
        code = end.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:
            stream.flush()
    os._exit(code & 0xFF)


def _serve(line: socket.socket) -> None:
    """Forks what is asked for, and returns when nobody can ask any more; in the forked processes it does not return."""
    try:
        asked = _asked(line)
    except EOFError:
        return
    _become(asked)
    if STARTING.intersection(asked["arguments"][:1]):
        _keep_warm()
    _run(asked["program"])


def _keep_warm() -> None:
    """Forks a warm process for the programs that this one will start, while this one has done nothing yet."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)  # whoever reads what this program says reads to its end
        _serve(theirs)
        os._exit(0)
    theirs.close()
    _stove.take(ours)
    install()


def main(line: socket.socket) -> None:
    _prepare()
    sys.dont_write_bytecode = True  # as `quiet_environment` wants it of every process
    gc.freeze()
    _serve(line)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
