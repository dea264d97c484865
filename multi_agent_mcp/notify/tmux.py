"""The pane doorbell: one line typed into somebody else's terminal, or not at all (PANES.md).

The gates and the paste are one tmux command, so nothing can change in between (row 15). The line goes through a paste
buffer of its own (rows 9, 10) into a pane that is addressed by `%id` and recognised by its process and its server
(rows 11, 12). Nothing but the line and one Enter is ever sent (row 18).
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import libtmux
from libtmux import exc
from libtmux.common import tmux_cmd

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.notify.lines import sanitized

CALL_SECONDS = 2.0
VERIFY_PAUSES = (0.02, 0.06, 0.15)

_SHELLS = "^-?(ba|z|fi|da|a|k|mk|c|tc|xon|el|n)?sh$|^-?nu$|^login$|^pwsh$"
_FACTS = (
    "pane_id",
    "pane_pid",
    "pid",
    "pane_dead",
    "pane_in_mode",
    "pane_input_off",
    "pane_synchronized",
    "pane_current_command",
)
_FACTS_FORMAT = "\t".join(f"#{{{name}}}" for name in _FACTS)
_PLACE = ("pane_id", "session_name", "window_index", "pane_index", "pane_pid", "pid")
_PANE_ID = re.compile(r"%[0-9]+")


class Tmux(libtmux.Server):
    """libtmux's server with every call bounded: a hung tmux is killed after two seconds (row 19)."""

    def cmd(self, cmd: str, *args: Any, target: str | int | None = None, stdin: str | None = None) -> tmux_cmd:
        """As libtmux's, which can neither be bounded nor be given a standard input."""
        options = [f"-S{self.socket_path}"] if self.socket_path else []
        options += [f"-L{self.socket_name}"] if self.socket_name else []
        options += [f"-f{self.config_file}"] if self.config_file else []
        aim = [] if target is None else ["-t", str(target)]
        call = [str(self.tmux_bin or "tmux"), *options, cmd, *aim, *(str(arg) for arg in args)]
        result = tmux_cmd.__new__(tmux_cmd)
        result.cmd = call
        try:
            done = subprocess.run(
                call,
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

    def refusal(self, agent: Agent) -> str | None:
        """Why nothing may be typed, or None. The same gates as in `_gate`, for people."""
        reasons = {
            "pane_gone": self.pane_id != agent.pane_id,
            "tmux_restarted": agent.tmux_pid is not None and self.tmux_pid != agent.tmux_pid,
            "pane_changed": agent.pane_pid is not None and self.pane_pid != agent.pane_pid,
            "pane_dead": self.dead,
            "shell": re.search(_SHELLS, self.command) is not None,
            "copy_mode": self.in_mode,
            "input_off": self.input_off,
            "synchronized": self.synchronized,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)


class TmuxNotifier:
    """Rings an agent in its registered pane."""

    name = "tmux"

    def __init__(self, submit_pause_seconds: float) -> None:
        self.submit_pause_seconds = submit_pause_seconds

    def ring(self, agent: Agent, line: str) -> Delivery:
        """`submitted` when the line was typed and entered, `rung` when it stands there but was not entered,
        `stored` with the reason when nothing was typed."""
        if agent.pane_id is None or agent.socket_path is None or not _PANE_ID.fullmatch(agent.pane_id):
            return Delivery("stored", "no_pane")
        server = Tmux(socket_path=agent.socket_path)
        try:
            return self._ring(server, agent, sanitized(line))
        except exc.TmuxCommandNotFound:
            return Delivery("stored", "no_tmux")

    def _ring(self, server: Tmux, agent: Agent, line: str) -> Delivery:
        gate, pane, began = _gate(agent), agent.pane_id, time.monotonic()
        buffer = f"multi-agent-mcp-{os.getpid()}-{time.monotonic_ns()}"
        typed = _guarded(
            server,
            ("load-buffer", "-b", buffer, "-", ";"),
            gate,
            pane,
            yes=f"paste-buffer -p -r -d -b {buffer} -t {pane}",
            no=f"delete-buffer -b {buffer}",
            stdin=line,
        )
        if typed is not True:
            if typed == "shell":
                _show_status(server, agent, line)
            return Delivery("stored", _reason(typed, agent))
        time.sleep(self.submit_pause_seconds)
        entered = _guarded(server, (), gate, pane, yes=f"send-keys -t {pane} Enter", no="")
        if entered is not True:
            return Delivery("rung", _reason(entered, agent))
        entered_after = timedelta(seconds=time.monotonic() - began)
        if _has_left_composer(server, agent, line):
            return Delivery("submitted", entered_after=entered_after)
        return Delivery("rung", "not_submitted")


def _gate(agent: Agent) -> str:
    """One tmux format that is true only if typing is harmless."""
    conditions = [
        f"#{{==:#{{pane_id}},{agent.pane_id}}}",
        "#{==:#{pane_dead}#{pane_in_mode}#{pane_input_off}#{pane_synchronized},0000}",
        f"#{{?#{{m/r:{_SHELLS},#{{pane_current_command}}}},0,1}}",
    ]
    if agent.pane_pid is not None:
        conditions.append(f"#{{==:#{{pane_pid}},{int(agent.pane_pid)}}}")
    if agent.tmux_pid is not None:
        conditions.append(f"#{{==:#{{pid}},{int(agent.tmux_pid)}}}")
    gate = conditions.pop()
    while conditions:
        gate = f"#{{&&:{conditions.pop()},{gate}}}"
    return gate


def _guarded(
    server: Tmux, before: tuple[str, ...], gate: str, pane: str | None, *, yes: str, no: str, stdin: str = ""
) -> bool | str | PaneFacts:
    """Runs `yes` if the gate holds, in one call of tmux. True when it did; else the facts that kept it from it, or
    what tmux complained about."""
    report = f"display-message -p -t {pane} '{_FACTS_FORMAT}'"
    otherwise = f"{no} ; {report}" if no else report
    command, *rest = (*before, "if-shell", "-F", "-t", pane, gate, f"{yes} ; display-message -p DONE", otherwise)
    done = server.cmd(str(command), *rest, stdin=stdin)
    if done.returncode or done.stderr:
        return "tmux_timeout" if done.returncode == 124 else "tmux_gone"
    if done.stdout == ["DONE"]:
        return True
    facts = _parse_facts(done.stdout[-1] if done.stdout else "")
    return facts if facts is not None else "pane_gone"


def _reason(outcome: bool | str | PaneFacts, agent: Agent) -> str:
    if isinstance(outcome, PaneFacts):
        return outcome.refusal(agent) or "changed_meanwhile"
    return str(outcome)


def _parse_facts(line: str) -> PaneFacts | None:
    values = line.split("\t")
    if len(values) != len(_FACTS) or not values[0]:
        return None
    pane_id, pane_pid, tmux_pid, dead, in_mode, input_off, synchronized, command = values
    return PaneFacts(
        pane_id=pane_id,
        pane_pid=int(pane_pid or 0),
        tmux_pid=int(tmux_pid or 0),
        dead=_flag(dead),
        in_mode=_flag(in_mode),
        input_off=_flag(input_off),
        synchronized=_flag(synchronized),
        command=command,
    )


def _flag(value: str) -> bool:
    return value not in ("", "0")


def _has_left_composer(server: Tmux, agent: Agent, line: str) -> bool:
    """Looks whether the line was submitted: it no longer stands where the cursor is (row 1)."""
    tail = line[-12:]
    for pause in VERIFY_PAUSES:
        time.sleep(pause)
        cursor = ("display-message", "-p", "-t", agent.pane_id, "#{cursor_y}")
        seen = server.cmd(*map(str, cursor), ";", "capture-pane", "-p", "-t", agent.pane_id)
        if seen.returncode or not seen.stdout or not seen.stdout[0].isdigit():
            return False
        row = int(seen.stdout[0]) + 1
        if row >= len(seen.stdout) or tail not in seen.stdout[row]:
            return True
    return False


def _show_status(server: Tmux, agent: Agent, line: str) -> None:
    """The agent has quit to its shell: nothing is typed, but a client that shows the pane is told (row 8)."""
    server.cmd("display-message", "-t", agent.pane_id, "-d", "5000", "-l", line)


def default_socket() -> str:
    """The socket of the tmux server that plain `tmux` talks to; "" when none runs."""
    found = Tmux().cmd("display-message", "-p", "#{socket_path}")
    return found.stdout[0] if found.returncode == 0 and found.stdout else ""


def pane_place(socket_path: str, pane_id: str) -> dict[str, Any] | None:
    """The registry's pane fields for a pane, or None when there is no such pane (probed by `list-panes`, row 12)."""
    if not _PANE_ID.fullmatch(pane_id):
        return None
    wanted = f"#{{==:#{{pane_id}},{pane_id}}}"
    try:
        found = Tmux(socket_path=socket_path).cmd(
            "list-panes", "-a", "-f", wanted, "-F", "\t".join(f"#{{{name}}}" for name in _PLACE)
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
    wanted = f"#{{==:#{{pane_id}},{agent.pane_id}}}"
    try:
        found = Tmux(socket_path=agent.socket_path).cmd("list-panes", "-a", "-f", wanted, "-F", _FACTS_FORMAT)
    except exc.TmuxCommandNotFound:
        return "no_tmux"
    if found.returncode:
        return "tmux_gone"
    facts = _parse_facts(found.stdout[0]) if found.stdout else None
    return facts.refusal(agent) if facts else "pane_gone"
