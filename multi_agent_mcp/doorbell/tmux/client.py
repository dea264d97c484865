"""tmux as libtmux's objects, each call bounded in time, and the location of a pane
(docs/protocol.md, Typing into a pane, Pane identity, Bounded calls)."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import libtmux
from libtmux.common import tmux_cmd

from multi_agent_mcp.config import TmuxPane, read_environment
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import InvalidArguments, TmuxTimeout
from multi_agent_mcp.programs import called, child_environment
from multi_agent_mcp.system.process import Process, environment_of, foreground, identity, is_below, terminal_of

CALL_SECONDS = 2.0
SILENT_SECONDS = 10.0
START_SECONDS = 0.5
"""How long a window's command may take to replace the shell that tmux starts it with."""
TIMEOUT = TmuxTimeout.code
"""The reason why nothing is known of a pane whose tmux server does not answer."""
T = TypeVar("T")
PANE_ID = re.compile(r"%[0-9]+")
BEGINS = ": multi-agent-mcp; "
"""How the text begins by which /bin/sh starts a window's program, to be replaced by it."""
_NUMBER = re.compile(r"[0-9]{1,18}")
_CONTROLS = "[\x01-\x1f\x7f]"


class Answer(tmux_cmd):
    """The result of a call, in libtmux's form: its exit code and the lines that tmux printed."""

    def __init__(self, words: Sequence[str], returncode: int, stdout: list[str], stderr: list[str]) -> None:
        # not the base class's, which runs the call, and waits for it for ever
        self.cmd = list(words)
        self.returncode, self.stdout, self.stderr = returncode, stdout, stderr

    @property
    def failure(self) -> str | None:
        """None when the call succeeded; `no_tmux` when tmux is not on PATH, `tmux_timeout`, `pane_gone` when there is
        no such pane, else `tmux_gone`."""
        if not self.returncode:
            return None
        if any(line.startswith("can't find pane") for line in self.stderr):
            return "pane_gone"
        return {_MISSING: "no_tmux", _TIMEOUT: TIMEOUT}.get(self.returncode, "tmux_gone")


_MISSING, _TIMEOUT = 127, 124
"""The exit codes that a shell and timeout(1) give for such calls."""


class Server(libtmux.Server):
    """A tmux server: the only way to tmux of this package. Every call ends after two seconds (Bounded calls), and none
    raises.

    Panes are known by their ids alone. libtmux's own look-ups (`panes`, `sessions`, `refresh`) are not used: each
    starts a program without a bound, and its answer is taken apart by what a program may write into its title.

    `inside` is the pane to whose clients `#{client_activity}` refers: tmux reads the calling pane from the environment.
    """

    def __init__(self, socket_path: str | Path, config_file: str | None = None, inside: str | None = None) -> None:
        super().__init__(socket_path=str(socket_path), config_file=config_file)
        self.inside = inside

    def cmd(  # type: ignore[override]  # a protocol of libtmux wants any keywords
        self, cmd: str, *args: Any, target: str | int | None = None, stdin: str = "", seconds: float = CALL_SECONDS
    ) -> Answer:
        """Runs one command, or several with `;` between, with a text on standard input. No more than `seconds`."""
        words = [cmd, *([] if target is None else ["-t", str(target)]), *map(str, args)]
        configured = [f"-f{self.config_file}"] if self.config_file else []
        # -u: without it tmux turns non-ASCII characters into underscores if the environment names no UTF-8 locale
        call = [called("tmux"), "-u", f"-S{self.socket_path}", *configured, *words]
        try:
            done = subprocess.run(
                call,
                env=self._environment(),
                input=stdin,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except FileNotFoundError:
            return Answer(call, _MISSING, [], [])
        except subprocess.TimeoutExpired:
            return Answer(call, _TIMEOUT, [], [f"tmux did not answer within {seconds:.0f} s"])
        printed = done.stdout.rstrip("\n").split("\n") if done.stdout else []
        return Answer(call, done.returncode, printed, [line for line in done.stderr.split("\n") if line])

    def pane(self, pane_id: str) -> Pane:
        """Returns the pane with this id, without asking for anything about it."""
        return Pane(server=self, pane_id=pane_id)

    def _environment(self) -> dict[str, str] | None:
        if self.inside is None:
            return None
        return child_environment(TMUX=f"{self.socket_path},0,0", TMUX_PANE=self.inside)


class Pane(libtmux.Pane):
    """A pane of a `Server`, known by its id."""

    server: Server
    pane_id: str

    def cmd(  # type: ignore[override]  # as above
        self, cmd: str, *args: Any, target: str | int | None = None, stdin: str = ""
    ) -> Answer:
        """Runs one command whose target is this pane."""
        return self.server.cmd(cmd, *args, target=self.pane_id if target is None else target, stdin=stdin)

    def if_true(
        self, condition: str, then: str, otherwise: str | None = None, *, before: Sequence[str] = (), stdin: str = ""
    ) -> Answer:
        """Runs one command of tmux or another, by whether the condition, a format, is true of this pane. tmux judges
        and acts in one command, so nothing comes between (`if-shell -F`); the commands `before` are in the same
        call."""
        choice = [condition, then, *([] if otherwise is None else [otherwise])]
        return self.server.cmd(*before, "if-shell", "-F", "-t", self.pane_id, *choice, stdin=stdin)


class SilentServers:
    """Remembers the tmux servers that did not answer a moment ago (stopped or overloaded), so that merely looking at
    panes does not wait for each of theirs."""

    def __init__(self) -> None:
        self._asked: dict[str | None, float] = {}

    def ask(self, socket_path: str | None, look: Callable[[], T | str]) -> T | str:
        """Returns the result of `look`; `tmux_timeout` at once if that was its result within `SILENT_SECONDS`."""
        if self.is_silent(socket_path):
            return TIMEOUT
        found = look()
        if found == TIMEOUT:
            self._asked[socket_path] = time.monotonic()
        return found

    def is_silent(self, socket_path: str | None) -> bool:
        """Whether a call of this server timed out within the last `SILENT_SECONDS`."""
        return time.monotonic() - self._asked.get(socket_path, -SILENT_SECONDS) < SILENT_SECONDS


def number(text: str) -> int | None:
    """A whole number of at most 18 ASCII digits, else None; `str.isdigit` and `int` accept more. Programs and users
    choose many of tmux's values (`set-option`), so they are checked strictly."""
    return int(text) if _NUMBER.fullmatch(text) else None


def literal(text: str) -> str:
    """The text, for what tmux takes as a format (`-c`, `-n`): each `#` doubled, except before `[`, where tmux leaves
    them as they are (tmux(1), FORMATS)."""
    return re.sub(r"#(?!#*\[)", "##", text)


def printable(variable: str) -> str:
    """A tmux format for a variable with its control characters replaced by blanks, so that it fits in a column."""
    return f"#{{s/{_CONTROLS}/ /:{variable}}}"


def columns_format(variables: Collection[str]) -> str:
    return "\t".join(map(printable, variables))


def parse_columns(line: str, names: Sequence[str], numbers: Collection[str]) -> dict[str, Any] | None:
    """Parses a line of `columns_format` into values by name; None for anything else, such as tmux's output for a pane
    that is gone."""
    texts = line.split("\t")
    if len(texts) != len(names):
        return None
    values = {name: number(text) if name in numbers else text for name, text in zip(names, texts, strict=True)}
    return None if None in values.values() else values


def pane_filter(pane_id: str) -> str:
    """A filter for `list-panes -a -f`, the only query for a pane that prints nothing when there is no such pane (Pane
    identity)."""
    return f"#{{==:#{{pane_id}},{pane_id}}}"


_PLACE = {name: name for name in ("session_name", "window_index", "pane_index", "pane_id", "pane_pid")} | {
    "tmux_pid": "pid"
}
"""The registry's pane fields and tmux's names for them."""
_TEXTS = {"session_name", "pane_id", "pane_tty"}


def pane_place(socket_path: str, pane_id: str) -> dict[str, Any] | None:
    """The registry's pane fields for a pane, or None when there is no such pane (probed by
    `list-panes`: Pane identity). Raises `TmuxTimeout`."""
    place = _asked(socket_path, pane_id, _PLACE)
    if place is None:
        return None
    program, server = _program(place["pane_pid"]), identity(place["tmux_pid"])
    return {**place, "socket_path": socket_path, "pane_program": program, "tmux_server": server}


def runs_in(pid: int, pane: TmuxPane) -> bool:
    """Whether a process runs in the pane that its environment names: it descends from the pane's first process, or
    the pane is its controlling terminal. Whatever it inherited the variables from is no proof (docs/protocol.md, Pane
    identity). Raises `TmuxTimeout`."""
    found = _asked(*pane, {name: name for name in ("pane_id", "pane_pid", "pane_tty")})
    return found is not None and (is_below(pid, [found["pane_pid"]]) or terminal_of(pid) == found["pane_tty"])


def own_pane() -> TmuxPane | None:
    """The pane in which this process runs; None outside of tmux, and where it cannot be verified."""
    named = read_environment().pane
    with suppress(TmuxTimeout):
        return named if named is not None and runs_in(os.getpid(), named) else None
    return None


def misnamed(pid: int) -> str | None:
    """The pane that a process's environment names although it does not run there; None for one that names none."""
    named = read_environment(environment_of(pid)).pane
    with suppress(TmuxTimeout):
        return named.pane_id if named is not None and not runs_in(pid, named) else None
    return None


def _asked(socket_path: str, pane_id: str, columns: Mapping[str, str]) -> dict[str, Any] | None:
    """What tmux says of a pane in these columns, our names and its; None when there is no such pane. Raises
    `TmuxTimeout`."""
    if not PANE_ID.fullmatch(pane_id):
        return None
    wanted = ("-f", pane_filter(pane_id), "-F", columns_format(columns.values()))
    listed = Server(socket_path).cmd("list-panes", "-a", *wanted)
    if listed.failure == TIMEOUT:
        raise TmuxTimeout(socket_path=socket_path)
    places = (parse_columns(line, tuple(columns), columns.keys() - _TEXTS) for line in listed.stdout)
    return next((place for place in places if place is not None and place["pane_id"] == pane_id), None)


def _program(pane_pid: int) -> list[str] | None:
    """The identities of the processes that read the pane's terminal. Waits until the shell with which tmux starts a
    window's command has become that command."""
    end = time.monotonic() + START_SECONDS
    while (seen := foreground(pane_pid)) is not None and _starts(seen.leader) and time.monotonic() < end:
        time.sleep(0.01)
    return None if seen is None else seen.identities


def _starts(process: Process) -> bool:
    """Whether the process is about to become another program: tmux after its fork, a shell with an `exec`, env(1)."""
    begins = process.arguments[1:2] == ("-c",) and "".join(process.arguments[2:]).startswith((BEGINS, "exec "))
    return begins or process.executable == "env" or process.executable.startswith("tmux")


# A tmux server as a whole: its version, and the environment that it gives to new windows.

OLDEST = (3, 3)


def require_tmux(socket_path: str) -> str:
    """The version of the tmux on PATH. Raises `InvalidArguments` when there is none, or one that is too old."""
    said = Server(socket_path).cmd("-V")
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
    shown = Server(socket_path).cmd("show-environment", "-g")
    if shown.failure:
        return None
    handed_on = "\n".join(["", *shown.stdout, ""])
    return [name for name, value in wanted.items() if f"\n{name}={value}\n" not in handed_on]


# Options of a person's tmux that harm a team, whoever has set them since a window was opened.

HARMFUL = {"destroy-unattached": "-t", "exit-unattached": "-s", "synchronize-panes": "-pt"}
"""The options, and how each is set: of a pane's session, of the server, of the pane."""


def harmful_options(agents: Collection[Agent]) -> Iterator[tuple[str, list[str], str]]:
    """The options that are on and harm agents in panes: the option, the agents' ids, and the command that turns it off
    for them."""
    columns = ["#{pane_id}", "#{session_id}", *(f"#{{{option}}}" for option in HARMFUL)]
    for socket_path in sorted({agent.socket_path for agent in agents if agent.socket_path is not None}):
        listed = (line.split() for line in Server(socket_path).cmd("list-panes", "-a", "-F", " ".join(columns)).stdout)
        panes = {words[0]: dict(zip(HARMFUL, words[2:], strict=False)) | {"-t": words[1]} for words in listed}
        here = {
            agent.id: agent.pane_id for agent in agents if agent.socket_path == socket_path and agent.pane_id in panes
        }
        for option, how in HARMFUL.items():
            harmed: dict[str, list[str]] = {}
            for agent_id, pane_id in here.items():
                if panes[pane_id].get(option) in ("1", "on"):
                    target = {"-t": panes[pane_id]["-t"], "-s": "", "-pt": pane_id}[how]
                    harmed.setdefault(target, []).append(agent_id)
            for target, agent_ids in harmed.items():
                words = ["tmux", "-S", socket_path, "set-option", how, *filter(None, [target]), option, "off"]
                yield option, agent_ids, shlex.join(words)
