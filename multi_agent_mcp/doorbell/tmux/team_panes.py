"""The panes of a team in tmux: opened with a marker, and recognised by that marker only."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multi_agent_mcp.doorbell.tmux.client import CALL_SECONDS, TIMEOUT, Answer, Server, literal
from multi_agent_mcp.errors import InvalidArguments, Reason, Refusal, TmuxTimeout
from multi_agent_mcp.system.files import storage_errors
from multi_agent_mcp.system.process import identity

MARKER = "@multi_agent_mcp"
MADE_FOR = "@multi_agent_mcp_made_for"
"""The pane's option that tells the windows of a session from those of an earlier one at the same place."""
USABLE = (None, "copy_mode", "synchronized", "input_off", "unknown_host")
"""Results of `probe` that mean that the program of a pane runs."""

_ENDING = re.compile(r"server exited|lost server")
_NO_SERVER = re.compile(rf"no server running|error connecting|{_ENDING.pattern}")
_LABEL = re.compile(r"[A-Za-z0-9_-]+\.[a-z-]+")
STARTING_SECONDS = 30.0
ENDING_SERVERS = 3
"""How often a call is repeated that was taken by a tmux server about to end (`kill-server` does not wait for it)."""
_SIZE = ("-x", "160", "-y", "48")


@dataclass(frozen=True, kw_only=True)
class OwnPane:
    """A pane that we opened and that still has its first process. `dead`: that process has ended, and the pane was
    opened to remain."""

    label: str
    socket_path: str
    pane_id: str
    pane_pid: int
    dead: bool = False
    tmux_pid: int = 0
    made_for: str = ""

    @property
    def place(self) -> dict[str, Any]:
        """What is recorded of it: where it is, and the tmux server by which it is found when its socket is gone."""
        place = {"socket_path": self.socket_path, "pane_id": self.pane_id, "pane_pid": self.pane_pid}
        return place | {"tmux_pid": self.tmux_pid, "tmux_server": identity(self.tmux_pid)}


@dataclass(frozen=True)
class NewWindow:
    """A window to be opened. `command` are the words of a program, which no shell reads. `remains`: its pane stays
    visible after its program has ended. `directory`: where its program works; None: that of the process that opens it,
    or of the program before."""

    label: str
    name: str
    command: tuple[str, ...]
    remains: bool = False
    directory: str | None = None


class TeamPanes:
    """The panes of one team on one tmux server.

    The marker is a user option of the pane, `{project}:{label}:{pane_pid}`, set in the command that opens the window.
    So no kill can come between the two, and a pane that somebody respawned is no longer ours: its process id
    differs."""

    def __init__(self, socket_path: str, project: str, config_file: str | None = None, *, made_for: str = "") -> None:
        self.socket_path = socket_path
        self.project = project
        self._made_for = made_for
        self._server = Server(socket_path, config_file)

    def all(self) -> list[OwnPane]:
        """Every pane of this team on this server. Raises `TmuxTimeout`, and `InvalidArguments` when tmux fails."""
        columns = f"#{{pane_id}}\t#{{pane_pid}}\t#{{pane_dead}}\t#{{pid}}\t#{{{MADE_FOR}}}\t#{{{MARKER}}}"
        listed = self._server.cmd("list-panes", "-a", "-F", columns)
        if listed.failure not in (None, "no_tmux") and not any(map(_NO_SERVER.search, listed.stderr)):
            raise self._refused(listed)
        parsed = (self._parse(line) for line in listed.stdout)
        return list({pane.pane_id: pane for pane in parsed if pane is not None}.values())

    def open(self, new: NewWindow) -> OwnPane | None:
        """Opens a window unless a living pane with its label exists. tmux checks this in the same command, so repeating
        a call that timed out opens no second one. Returns the living pane, else the newest dead one that remains, else
        None. Raises `InvalidArguments` when tmux is missing or refuses, and `TmuxTimeout`.
        """
        directory = Path(self.socket_path).parent
        with storage_errors(directory):
            directory.mkdir(mode=0o700, exist_ok=True)  # tmux creates it only if no socket is given
        self._run(
            "start-server",
            ";",
            "if-shell",
            "-F",
            self._living(new.label),
            "",
            self._opening(new),
            seconds=self._patience(),
        )
        found = [pane for pane in self.all() if pane.label == new.label]
        return max(found, key=lambda pane: (not pane.dead, int(pane.pane_id[1:])), default=None)

    def default_shell(self) -> str:
        """The shell that tmux gives people here (tmux(1), default-shell). Raises as `open`."""
        asked = self._server.cmd("start-server", ";", "show-options", "-gv", "default-shell", seconds=self._patience())
        if asked.failure or not asked.stdout:
            raise self._refused(asked)
        return asked.stdout[0]

    def _patience(self) -> float:
        """How long a call may take that starts a server unless one runs: it does nothing before it has read tmux.conf,
        whose plug-ins are programs."""
        asked = self._server.cmd("display-message", "-p", "")
        return STARTING_SECONDS if asked.failure == "tmux_gone" else CALL_SECONDS

    def close(self, pane: OwnPane) -> None:
        """Closes the pane if it is still the same one."""
        self._server.pane(pane.pane_id).if_true(self._ours(pane.label), f"kill-pane -t {pane.pane_id}")

    def keep(self, pane: OwnPane) -> None:
        """Lets the pane remain when its program ends."""
        option = _sequence(["set-option", "-p", "-t", pane.pane_id, "remain-on-exit", "on"])
        self._server.pane(pane.pane_id).if_true(self._ours(pane.label), option)

    def restart(self, pane: OwnPane, new: NewWindow) -> OwnPane | None:
        """Ends the pane's program and runs the command there instead, in the same directory, if the pane is still the
        same one. Returns it, or None if its program has ended and it does not remain. Raises as `open`."""
        there = ["-t", pane.pane_id]
        run = ["respawn-pane", "-k", *there, *_place(new), *new.command]
        marking = ["set-option", "-pF", *there, MARKER, self._marker(new.label)]
        # the scrollback would pass for the last lines of the new program
        self._run(
            *("if-shell", "-F", *there, self._ours(pane.label)), _sequence(run, marking, ["clear-history", *there])
        )
        return next((found for found in self.all() if found.pane_id == pane.pane_id), None)

    def _opening(self, new: NewWindow) -> str:
        """The tmux commands that open a window with its marker, creating the team's tmux session if necessary."""
        window = ["-d", "-n", literal(new.name), *_place(new), *new.command]
        added = _sequence(["new-window", "-a", "-t", f"={self.project}:{{end}}", *window])
        first = _sequence(["new-session", "-s", self.project, *_SIZE, *window])
        # A new server shows the errors of tmux.conf over its first pane, where nothing could be typed until a person
        # had looked at them: nobody scrolls in a pane that was opened just now.
        uncovered = _sequence(["send-keys", "-t", self._at("start"), "-X", "cancel"])
        uncovered = _sequence(["if-shell", "-F", "-t", self._at("start"), "#{pane_in_mode}", uncovered])
        exists = f"#{{S:#{{?#{{==:#{{session_name}},{self.project}}},1,}}}}"
        added, first = f"{added} ; {self._making(new, 'end')}", f"{first} ; {uncovered} ; {self._making(new, 'start')}"
        return _sequence(["if-shell", "-F", exists, added, first])

    def _at(self, end: str) -> str:
        """The pane that was opened just now, at this end of the team's tmux session. (`-d` does not make it tmux's
        current one; the first window of a session stays the first when a hook of a person's opens others.)"""
        return f"={self.project}:{{{end}}}.{{top-left}}"

    def _making(self, new: NewWindow, end: str) -> str:
        """The tmux commands that give the new pane its marker, and what it needs whatever tmux.conf says."""
        there = self._at(end)
        marking = _sequence(
            ["set-option", "-pF", "-t", there, MARKER, self._marker(new.label)],
            ["set-option", "-p", "-t", there, MADE_FOR, self._made_for],
            ["set-option", "-p", "-t", there, "remain-on-exit", "on" if new.remains else "off"],
            ["set-option", "-p", "-t", there, "synchronize-panes", "off"],  # else nothing is ever typed there
        )
        # `destroy-unattached` would end the session with this call. Its own value wins over a person's tmux.conf, and
        # the second time over what a hook of theirs sets when a session or a window is made. `exit-unattached` would
        # end the server, whose option it is.
        lasts = ["set-option", "-s", "exit-unattached", "off"]
        stays = ["set-option", "-t", f"={self.project}:", "destroy-unattached", "off"]
        return f"{marking} ; {_sequence(lasts, stays, ['run-shell', 'true'], lasts, stays)}"

    def _living(self, label: str) -> str:
        """A tmux format that is true when a living pane with this label is on the server."""
        return f"#{{S:#{{W:#{{P:#{{?#{{&&:{self._ours(label)},#{{?pane_dead,0,1}}}},1,}}}}}}}}"

    def _ours(self, label: str) -> str:
        """A tmux format that is true for a pane of ours with this label."""
        return f"#{{==:#{{{MARKER}}},{self._marker(label)}}}"

    def _marker(self, label: str) -> str:
        """A tmux format that expands to the marker of a pane with this label."""
        return f"{self.project}:{label}:#{{pane_pid}}"

    def _parse(self, line: str) -> OwnPane | None:
        pane_id, pane_pid, dead, server, made_for, marker = (*line.split("\t", 5), *[""] * 5)[:6]
        project, _, rest = marker.partition(":")
        label, _, pid = rest.rpartition(":")
        if project != self.project or not _LABEL.fullmatch(label) or pid != pane_pid:
            return None
        return OwnPane(
            label=label,
            socket_path=self.socket_path,
            pane_id=pane_id,
            pane_pid=int(pid),
            dead=dead == "1",
            tmux_pid=int(server),
            made_for=made_for,
        )

    def _run(self, *arguments: str, seconds: float = CALL_SECONDS) -> None:
        done = self._server.cmd(*arguments, seconds=seconds)
        for _ in range(ENDING_SERVERS):
            if any(map(_ENDING.search, done.stderr)):
                done = self._server.cmd(*arguments, seconds=STARTING_SECONDS)
        if done.failure:
            raise self._refused(done)

    def _refused(self, done: Answer) -> Refusal:
        if done.failure == TIMEOUT:
            return TmuxTimeout(socket_path=self.socket_path)
        if done.failure == "no_tmux":
            return InvalidArguments("no_tmux")
        reason = " ".join(" ".join(done.stderr).split())[:200]
        return InvalidArguments("tmux", reason=reason or Reason("exit_code", code=done.returncode))


# A tmux server whose socket is gone, or is another's by now, lives as long as its process does.

SOCKET_SECONDS = 1.0


def reach(socket_path: str, tmux_pid: int, tmux_server: str | None) -> bool:
    """Returns whether the tmux server with this process, which a pane was registered with, can be called, or has ended.
    One whose socket is gone is asked for it (tmux(1), SIGUSR1), unless another server answers there by now."""
    if tmux_server is None or identity(tmux_pid) != tmux_server:
        return True
    tmux = Server(socket_path)
    asked = tmux.cmd("display-message", "-p", "#{pid}")
    if asked.failure == "tmux_gone":
        with suppress(OSError):
            Path(socket_path).parent.mkdir(mode=0o700, exist_ok=True)
            os.kill(tmux_pid, signal.SIGUSR1)
        end = time.monotonic() + SOCKET_SECONDS
        while (asked := tmux.cmd("display-message", "-p", "#{pid}")).failure and time.monotonic() < end:
            time.sleep(0.02)
    return asked.failure in (TIMEOUT, "no_tmux") or asked.stdout == [str(tmux_pid)]


LAST_LINES = 8


def last_lines(socket_path: str, pane_id: str) -> tuple[str, ...]:
    """The last `LAST_LINES` lines of a pane, without blank ones. tmux adds how the program ended, scrolling the screen
    up, so the scrollback is included."""
    captured = Server(socket_path).pane(pane_id).capture_pane(start="-", join_wrapped=True)
    return tuple(line for line in map(str.rstrip, captured) if line)[-LAST_LINES:]


def tmux_session(root: Path, session: str) -> str:
    """The name of a team's tmux session: the session's id and a short hash of the root's path, because teams of
    different projects may have the same id."""
    path = os.path.realpath(root).encode(errors="surrogateescape")
    return f"{session}-{hashlib.sha256(path).hexdigest()[:6]}"


def executed(command: str) -> str:
    """The command with `exec` before it if it is simple, so that the pane's process is the agent itself, no shell."""
    return command if is_compound(command) else f"exec {command}"


_QUOTED = re.compile(r"""@\((?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\)|'[^']*'|"(?:[^"\\]|\\.)*"|\\.""", re.DOTALL)
"""A word in quotation marks, in xonsh's form (a Python string) and in those of other shells."""
_COMPOUND = re.compile(r"[;&|<>()`\n]|^\s*(\w+=|exec\s)|(^|\s)#")


def is_compound(command: str) -> bool:
    """Whether a shell command is more than one program with its arguments."""
    return _COMPOUND.search(_QUOTED.sub("_", command)) is not None


_BEGUN = re.compile(r"(?:^|[;&|(\n])\s*(?:(?:exec|(?:/\S*/)?env|then|do|\w+=\S*|-\S*)\s+)*([^\s;&|()=#]+)")


def programs_of(command: str) -> list[str]:
    """The names of the programs that a shell command starts, as far as they are written without quotes."""
    return [Path(found).name for found in _BEGUN.findall(_QUOTED.sub("_", command))]


def filled(template: str, values: Mapping[str, str | Path]) -> str:
    """Fills the placeholders of a command like `claude --mcp-config {mcp_config}`; other braces stay. The values are
    already quoted for a shell, so quotes around a placeholder are removed."""
    return re.sub(r"(['\"]?)\{(\w+)\}\1", lambda found: str(values.get(found[2], found[0])), template)


def _place(new: NewWindow) -> list[str]:
    return [] if new.directory is None else ["-c", literal(new.directory)]


def _sequence(*commands: list[str]) -> str:
    """The commands as one string for tmux to parse; see "Parsing syntax" in tmux(1)."""
    return " ; ".join(" ".join(map(_quoted, command)) for command in commands)


def _quoted(word: str) -> str:
    escaped = re.sub(r'[\\"$~]', r"\\\g<0>", word)
    return '"' + escaped.replace("\n", "\\n") + '"'  # tmux drops blanks after a line break in quotes
