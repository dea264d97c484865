"""Calls of tmux, each bounded in time, and where a pane is
(docs/protocol.md, Typing into a pane, Pane identity, Bounded calls)."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Collection, Sequence
from typing import Any

import libtmux
from libtmux import exc
from libtmux.common import tmux_cmd

from multi_agent_mcp.config import child_environment
from multi_agent_mcp.system.foreground import Process, foreground

CALL_SECONDS = 2.0
START_SECONDS = 0.5
"""How long a window's command may take until it has replaced what tmux starts it through."""
PANE_ID = re.compile(r"%[0-9]+")
_NUMBER = re.compile(r"[0-9]{1,18}")
_CONTROLS = "[\x01-\x1f\x7f]"


class Tmux(libtmux.Server):
    """libtmux's server with every call bounded: a hung tmux is killed after two seconds (Bounded calls)."""

    inside: str | None = None
    """The pane whose clients `#{client_activity}` means: tmux asks the environment which pane a call comes from."""

    def cmd(self, cmd: str, *args: Any, target: str | int | None = None, stdin: str | None = None) -> tmux_cmd:
        """As libtmux's, which can neither be bounded nor be given a standard input."""
        options = [f"-S{self.socket_path}"] if self.socket_path else []
        options += [f"-L{self.socket_name}"] if self.socket_name else []
        options += [f"-f{self.config_file}"] if self.config_file else []
        aim = [] if target is None else ["-t", str(target)]
        # -u: without it tmux turns what is not ASCII into underscores where the environment names no UTF-8 locale
        call = [str(self.tmux_bin or "tmux"), "-u", *options, cmd, *aim, *(str(arg) for arg in args)]
        result = tmux_cmd.__new__(tmux_cmd)
        result.cmd = call
        try:
            done = subprocess.run(
                call,
                env=self._environment(),
                input=stdin if stdin is not None else "",
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=CALL_SECONDS,
                check=False,
            )
        except FileNotFoundError as error:
            raise exc.TmuxCommandNotFound from error
        except subprocess.TimeoutExpired:
            result.returncode, result.stdout, result.stderr = 124, [], ["tmux did not answer within 2 s"]
            return result
        result.returncode = done.returncode
        result.stdout = done.stdout.rstrip("\n").split("\n") if done.stdout else []
        result.stderr = [line for line in done.stderr.split("\n") if line]
        return result

    def _environment(self) -> dict[str, str] | None:
        if self.inside is None:
            return None
        return child_environment(TMUX=f"{self.socket_path},0,0", TMUX_PANE=self.inside)


def number(text: str) -> int | None:
    """A whole number in plain digits, of a size that a process id or a time has; `str.isdigit` and `int` take more.
    Programs, users and anybody's `set-option` choose many of tmux's values, so what makes no sense is not believed."""
    return int(text) if _NUMBER.fullmatch(text) else None


def printable(variable: str) -> str:
    """A tmux format for a variable, each of its control characters a blank: it breaks no line and no column."""
    return f"#{{s/{_CONTROLS}/ /:{variable}}}"


def columns_format(variables: Collection[str]) -> str:
    return "\t".join(map(printable, variables))


def parse_columns(line: str, names: Sequence[str], numbers: Collection[str]) -> dict[str, Any] | None:
    """A line of `columns_format` by name; None for anything else, also for what tmux says of a pane that is gone."""
    texts = line.split("\t")
    if len(texts) != len(names):
        return None
    values = {name: number(text) if name in numbers else text for name, text in zip(names, texts, strict=True)}
    return None if None in values.values() else values


def pane_filter(pane_id: str) -> str:
    """For `list-panes -a -f`: the only way to ask for a pane that answers nothing when there is none (Pane
    identity)."""
    return f"#{{==:#{{pane_id}},{pane_id}}}"


_PLACE = {name: name for name in ("session_name", "window_index", "pane_index", "pane_id", "pane_pid")} | {
    "tmux_pid": "pid"
}
"""The registry's pane fields and tmux's names for them."""


def pane_place(socket_path: str, pane_id: str) -> dict[str, Any] | None:
    """The registry's pane fields for a pane, or None when there is no such pane (probed by
    `list-panes`: Pane identity)."""
    if not PANE_ID.fullmatch(pane_id):
        return None
    wanted = ("-f", pane_filter(pane_id), "-F", columns_format(_PLACE.values()))
    try:
        found = Tmux(socket_path=socket_path).cmd("list-panes", "-a", *wanted)
    except exc.TmuxCommandNotFound:
        return None
    for line in found.stdout:
        place = parse_columns(line, tuple(_PLACE), _PLACE.keys() - {"session_name", "pane_id"})
        if place is not None and place["pane_id"] == pane_id:
            return {**place, "socket_path": socket_path, "pane_program": _program(place["pane_pid"])}
    return None


def _program(pane_pid: int) -> list[str] | None:
    """The identities of what reads the pane's terminal. tmux starts a window's command through a shell: it counts once
    it has become that command."""
    end = time.monotonic() + START_SECONDS
    while (seen := foreground(pane_pid)) is not None and _starts(seen.leader) and time.monotonic() < end:
        time.sleep(0.01)
    return None if seen is None else seen.identities


def _starts(process: Process) -> bool:
    """Whether it is about to become another program: tmux after its fork, a shell with an `exec`, env(1)."""
    exec_shell = process.arguments[1:2] == ("-c",) and "".join(process.arguments[2:]).startswith("exec ")
    return exec_shell or process.executable == "env" or process.executable.startswith("tmux")
