"""tmux, bounded, and what it says of a pane (PANES.md rows 11, 12, 19). Who types is `notify/pane.py`."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import Any

import libtmux
from libtmux import exc
from libtmux.common import tmux_cmd

from multi_agent_mcp.config import child_environment
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.notify import mark
from multi_agent_mcp.notify.hosts import Profiles, load_profiles

CALL_SECONDS = 2.0

_FACTS = (
    "pane_id",
    "pane_pid",
    "pid",
    "pane_dead",
    "pane_in_mode",
    "pane_input_off",
    "pane_synchronized",
    "pane_current_command",
    "window_id",
    "pane_height",
    "cursor_x",
    "cursor_y",
    "cursor_flag",
    mark.OPTION,
    "pane_title",
)
FACTS_FORMAT = "\t".join(f"#{{{name}}}" for name in _FACTS)
_PLACE = ("pane_id", "session_name", "window_index", "pane_index", "pane_pid", "pid")
GONE = ("no_pane", "pane_gone", "pane_changed", "tmux_gone", "tmux_restarted", "no_tmux")
"""Answers of `probe` by which the registered pane is there no more."""
PANE_ID = re.compile(r"%[0-9]+")


class Tmux(libtmux.Server):
    """libtmux's server with every call bounded: a hung tmux is killed after two seconds (row 19)."""

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

    def refusal(self, agent: Agent, profiles: Profiles) -> str | None:
        """Why nothing may be typed, or None. The same conditions as `gates.safe_pane`, in words."""
        reasons = {
            "pane_gone": self.pane_id != agent.pane_id,
            "tmux_restarted": agent.tmux_pid is not None and self.tmux_pid != agent.tmux_pid,
            "pane_changed": agent.pane_pid is not None and self.pane_pid != agent.pane_pid,
            "pane_dead": self.dead,
            "shell": profiles.is_shell(self.command),
            "copy_mode": self.in_mode,
            "input_off": self.input_off,
            "synchronized": self.synchronized,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)


def parse_facts(line: str) -> PaneFacts | None:
    """A line of `FACTS_FORMAT`; None for anything else, also for what tmux says of a pane that is not there."""
    values = line.split("\t", len(_FACTS) - 1)
    if len(values) != len(_FACTS) or not values[0]:
        return None
    fact = dict(zip(_FACTS, values, strict=True))
    return PaneFacts(
        pane_id=fact["pane_id"],
        pane_pid=int(fact["pane_pid"] or 0),
        tmux_pid=int(fact["pid"] or 0),
        dead=_flag(fact["pane_dead"]),
        in_mode=_flag(fact["pane_in_mode"]),
        input_off=_flag(fact["pane_input_off"]),
        synchronized=_flag(fact["pane_synchronized"]),
        command=fact["pane_current_command"],
        window_id=fact["window_id"],
        height=int(fact["pane_height"] or 0),
        cursor_x=int(fact["cursor_x"] or 0),
        cursor_y=int(fact["cursor_y"] or 0),
        cursor_flag=_flag(fact["cursor_flag"]),
        title=fact["pane_title"],
        line=fact[mark.OPTION],
    )


def _flag(value: str) -> bool:
    return value not in ("", "0")


def pane_filter(pane_id: str) -> str:
    """For `list-panes -a -f`: the only way to ask for a pane that answers nothing when there is none (row 12)."""
    return f"#{{==:#{{pane_id}},{pane_id}}}"


def pane_place(socket_path: str, pane_id: str) -> dict[str, Any] | None:
    """The registry's pane fields for a pane, or None when there is no such pane (probed by `list-panes`, row 12)."""
    if not PANE_ID.fullmatch(pane_id):
        return None
    try:
        found = Tmux(socket_path=socket_path).cmd(
            "list-panes", "-a", "-f", pane_filter(pane_id), "-F", "\t".join(f"#{{{name}}}" for name in _PLACE)
        )
    except exc.TmuxCommandNotFound:
        return None
    for line in found.stdout:
        pane, session_name, window_index, pane_index, pane_pid, tmux_pid = line.split("\t")
        if pane == pane_id:
            return {
                "session_name": session_name,
                "window_index": int(window_index),
                "pane_index": int(pane_index),
                "pane_id": pane_id,
                "socket_path": socket_path,
                "pane_pid": int(pane_pid),
                "tmux_pid": int(tmux_pid),
            }
    return None


def probe(agent: Agent) -> str | None:
    """Why this agent's pane could not be rung at this moment, or None. Types nothing; for `doctor`."""
    if agent.pane_id is None or agent.socket_path is None:
        return "no_pane"
    wanted = pane_filter(agent.pane_id)
    try:
        found = Tmux(socket_path=agent.socket_path).cmd("list-panes", "-a", "-f", wanted, "-F", FACTS_FORMAT)
    except exc.TmuxCommandNotFound:
        return "no_tmux"
    if found.returncode:
        return "tmux_gone"
    facts = parse_facts(found.stdout[0]) if found.stdout else None
    return facts.refusal(agent, load_profiles()) if facts else "pane_gone"
