"""tmux, bounded, and what it says of a pane
(docs/protocol.md, Typing into a pane, Pane identity, Bounded calls). Who types is `notify/tmux/notifier.py`."""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import dataclass
from typing import Any

import libtmux
from libtmux import exc
from libtmux.common import tmux_cmd

from multi_agent_mcp.config import child_environment
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.notify.tmux import pane_marker as mark
from multi_agent_mcp.notify.tmux.profiles import Profiles, load_profiles
from multi_agent_mcp.notify.tmux.programs import recognise
from multi_agent_mcp.notify.tmux.values import number, printable
from multi_agent_mcp.system.foreground import Process, foreground

CALL_SECONDS = 2.0

_NUMBERS = ("pane_pid", "pid", "pane_height", "cursor_x", "cursor_y")
_FLAGS = ("pane_dead", "pane_in_mode", "pane_input_off", "pane_synchronized", "cursor_flag")
_TEXTS = ("pane_id", "window_id", "pane_current_command", mark.OPTION, "pane_title")
_PLACE_NUMBERS = ("pane_pid", "pid", "window_index", "pane_index")
_PLACE_TEXTS = ("pane_id", "session_name")
START_SECONDS = 0.5
"""How long a window's command may take until it has replaced what tmux starts it through."""
GONE = ("no_pane", "pane_gone", "pane_changed", "tmux_gone", "tmux_restarted", "no_tmux")
"""Answers of `probe` by which the registered pane is there no more."""
PANE_ID = re.compile(r"%[0-9]+")


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


@dataclass(frozen=True)
class PaneFacts:
    """What tmux says of a pane at one moment."""

    pane_id: str
    pane_pid: int
    tmux_pid: int
    dead: bool
    in_mode: bool
    input_off: bool
    synchronized: bool
    command: str
    window_id: str
    height: int
    cursor_x: int
    cursor_y: int
    cursor_flag: bool
    title: str
    line: str

    def refusal(self, agent: Agent) -> str | None:
        """Why nothing may be typed, or None. The same conditions as `gates.safe_pane`, in words."""
        reasons = {
            "pane_gone": self.pane_id != agent.pane_id,
            "tmux_restarted": agent.tmux_pid is not None and self.tmux_pid != agent.tmux_pid,
            "pane_changed": agent.pane_pid is not None and self.pane_pid != agent.pane_pid,
            "pane_dead": self.dead,
            "copy_mode": self.in_mode,
            "input_off": self.input_off,
            "synchronized": self.synchronized,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)


def _format(*names: str) -> str:
    """Columns that no value can break."""
    return "\t".join(map(printable, names))


FACTS_FORMAT = _format(*_NUMBERS, *_FLAGS, *_TEXTS)
_PLACE_FORMAT = _format(*_PLACE_NUMBERS, *_PLACE_TEXTS)


def parse_facts(line: str) -> PaneFacts | None:
    """A line of `FACTS_FORMAT`; None for anything else, also for what tmux says of a pane that is not there."""
    values = line.split("\t")
    numbers = [number(value) for value in values[: len(_NUMBERS)]]
    rest = values[len(_NUMBERS) :]
    if len(rest) != len(_FLAGS) + len(_TEXTS) or None in numbers:
        return None
    pane_pid, tmux_pid, height, cursor_x, cursor_y = (value or 0 for value in numbers)
    dead, in_mode, input_off, synchronized, cursor_flag = (value not in ("", "0") for value in rest[: len(_FLAGS)])
    pane_id, window_id, command, line_mark, title = rest[len(_FLAGS) :]
    return PaneFacts(
        pane_id=pane_id,
        pane_pid=pane_pid,
        tmux_pid=tmux_pid,
        dead=dead,
        in_mode=in_mode,
        input_off=input_off,
        synchronized=synchronized,
        command=command,
        window_id=window_id,
        height=height,
        cursor_x=cursor_x,
        cursor_y=cursor_y,
        cursor_flag=cursor_flag,
        title=title,
        line=line_mark,
    )


def pane_filter(pane_id: str) -> str:
    """For `list-panes -a -f`: the only way to ask for a pane that answers nothing when there is none (Pane
    identity)."""
    return f"#{{==:#{{pane_id}},{pane_id}}}"


def pane_place(socket_path: str, pane_id: str) -> dict[str, Any] | None:
    """The registry's pane fields for a pane, or None when there is no such pane (probed by
    `list-panes`: Pane identity)."""
    if not PANE_ID.fullmatch(pane_id):
        return None
    try:
        found = Tmux(socket_path=socket_path).cmd("list-panes", "-a", "-f", pane_filter(pane_id), "-F", _PLACE_FORMAT)
    except exc.TmuxCommandNotFound:
        return None
    return next((place for line in found.stdout if (place := _place(line, pane_id, socket_path)) is not None), None)


def _place(line: str, pane_id: str, socket_path: str) -> dict[str, Any] | None:
    values = line.split("\t")
    numbers = [number(value) for value in values[: len(_PLACE_NUMBERS)]]
    if len(values) != len(_PLACE_NUMBERS) + len(_PLACE_TEXTS) or None in numbers or values[-2] != pane_id:
        return None
    pane_pid, tmux_pid, window_index, pane_index = numbers
    return {
        "session_name": values[-1],
        "window_index": window_index,
        "pane_index": pane_index,
        "pane_id": pane_id,
        "socket_path": socket_path,
        "pane_pid": pane_pid,
        "tmux_pid": tmux_pid,
        "pane_program": _program(pane_pid or 0),
    }


def _program(pane_pid: int) -> list[str] | None:
    """Who reads the pane's terminal. tmux starts a window's command through a shell: it counts once it has become that
    command."""
    end = time.monotonic() + START_SECONDS
    while (seen := foreground(pane_pid)) is not None and _starts(seen.leader) and time.monotonic() < end:
        time.sleep(0.01)
    return None if seen is None else seen.identities


def _starts(process: Process) -> bool:
    """Whether it is about to become another program: tmux after its fork, a shell that was told to, env(1)."""
    told = process.arguments[1:2] == ("-c",) and "".join(process.arguments[2:]).startswith("exec ")
    return told or process.executable == "env" or process.executable.startswith("tmux")


def probe(agent: Agent, profiles: Profiles | None = None) -> str | None:
    """Why this agent's pane could not be rung at this moment, whatever it shows, or None. Types nothing."""
    if agent.pane_id is None or agent.socket_path is None:
        return "no_pane"
    wanted = pane_filter(agent.pane_id)
    try:
        found = Tmux(socket_path=agent.socket_path).cmd("list-panes", "-a", "-f", wanted, "-F", FACTS_FORMAT)
    except exc.TmuxCommandNotFound:
        return "no_tmux"
    if found.returncode:
        return "tmux_gone"
    if (facts := parse_facts(found.stdout[0]) if found.stdout else None) is None:
        return "pane_gone"
    if (reason := facts.refusal(agent)) is not None:
        return reason
    profile = recognise(agent, facts.pane_pid, facts.command, profiles or load_profiles())
    return profile if isinstance(profile, str) else None
