"""A snapshot of a pane, by one call of tmux: its facts, its clients' last key, and its screen; and the marker that we
set on it (docs/protocol.md, Typing into a pane)."""

from __future__ import annotations

import time
from dataclasses import dataclass

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.doorbell.tmux.client import Tmux, columns_format, number, pane_filter, parse_columns
from multi_agent_mcp.doorbell.tmux.profiles import Profiles, load_profiles, recognise
from multi_agent_mcp.doorbell.tmux.screens import Screen, parsed

MARKER_OPTION = "@ipc_line"
"""The tmux option of the pane that is set in the same command as a paste or a key, whichever process sends it. A host
under load shows neither for a while; its screen alone would invite a second paste or key, which it would then read
together with the first (Slow hosts)."""
ANSWER_OPTION = "@ipc_answer"
"""The option for the last dialog that was answered from elsewhere, with the dialog's id in place of the tag."""
ECHO_SECONDS = 10.0
"""How long a host may take to show a paste. Meanwhile an empty composer proves nothing."""
KEY_SECONDS = 10.0
"""How long a host may take to act on a key. Meanwhile a line that is still shown proves nothing."""
GONE = ("no_pane", "pane_gone", "pane_changed", "tmux_gone", "tmux_restarted", "no_tmux")
"""Results of `probe` that mean that the registered pane no longer exists."""


@dataclass(frozen=True)
class PaneMarker:
    """The last line of ours pasted into a pane: its tag, the process that it was pasted to, the time of the paste or of
    its last key, and the number of keys. The time counts from the machine's start: it is the same for all processes and
    does not move when the clock is set."""

    tag: str
    pane_pid: int
    at: int
    keys: int = 0

    @classmethod
    def parse(cls, text: str) -> PaneMarker | None:
        """Parses the option's value; None if it is not set, or not by us."""
        tag, *values = text.split(":")
        pane_pid, at, keys = map(number, values) if len(values) == 3 else (None, None, None)
        if pane_pid is None or at is None or keys is None:
            return None
        return cls(tag, pane_pid, at, keys)

    def __str__(self) -> str:
        return f"{self.tag}:{self.pane_pid}:{self.at}:{self.keys}"

    def younger_than(self, seconds: float) -> bool:
        return 0 <= machine_time() - self.at < seconds


def machine_time() -> int:
    """Whole seconds since the machine's start."""
    return int(time.monotonic())


_NUMBERS = {
    "pane_pid": "pane_pid",
    "tmux_pid": "pid",
    "height": "pane_height",
    "cursor_x": "cursor_x",
    "cursor_y": "cursor_y",
    "output": "window_activity",
}
_FLAGS = {
    "dead": "pane_dead",
    "in_mode": "pane_in_mode",
    "input_off": "pane_input_off",
    "synchronized": "pane_synchronized",
    "cursor_flag": "cursor_flag",
}
_TEXTS = {
    "pane_id": "pane_id",
    "window_id": "window_id",
    "command": "pane_current_command",
    "marker": MARKER_OPTION,
    "answered": ANSWER_OPTION,
    "title": "pane_title",
}
_COLUMNS = {**_NUMBERS, **_FLAGS, **_TEXTS}
"""The fields of `PaneFacts` and tmux's names for them."""
FACTS_FORMAT = columns_format(_COLUMNS.values())


@dataclass(frozen=True)
class PaneFacts:
    """tmux's variables of a pane at one moment; `output` is when its window last printed (whole seconds since the
    epoch)."""

    pane_pid: int
    tmux_pid: int
    height: int
    cursor_x: int
    cursor_y: int
    output: int
    dead: bool
    in_mode: bool
    input_off: bool
    synchronized: bool
    cursor_flag: bool
    pane_id: str
    window_id: str
    command: str
    marker: str
    answered: str
    title: str

    def refusal(self, agent: Agent) -> str | None:
        """The reason why nothing may be typed, or None. The same conditions as `conditions.safe_pane`."""
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


def parse_facts(line: str) -> PaneFacts | None:
    """A line of `FACTS_FORMAT`; None for anything else."""
    values = parse_columns(line, tuple(_COLUMNS), _NUMBERS)
    if values is None:
        return None
    return PaneFacts(**values | {flag: values[flag] not in ("", "0") for flag in _FLAGS})


def probe(agent: Agent, profiles: Profiles | None = None) -> str | None:
    """The reason why this agent's pane cannot be rung now, whatever it shows, or None. Types nothing."""
    if agent.pane_id is None or agent.socket_path is None:
        return "no_pane"
    wanted = pane_filter(agent.pane_id)
    found = Tmux(agent.socket_path).cmd("list-panes", "-a", "-f", wanted, "-F", FACTS_FORMAT)
    if found.failure:
        return found.failure
    if (facts := parse_facts(found.stdout[0]) if found.stdout else None) is None:
        return "pane_gone"
    if (reason := facts.refusal(agent)) is not None:
        return reason
    profile = recognise(agent, facts.pane_pid, profiles or load_profiles())
    return profile if isinstance(profile, str) else None


@dataclass(frozen=True)
class PaneSnapshot:
    """A pane at one moment. `last_key` is when a human last pressed a key in a client that shows the pane (whole
    seconds since the epoch; 0: no client shows it); `activity` is the value of `client_activity` to use in a condition.
    `settled`: the window printed nothing in the second of the snapshot, so any later output changes `facts.output`."""

    facts: PaneFacts
    screen: Screen
    last_key: int
    activity: str
    settled: bool = False


_CLIENT, _SCREEN = "client", "screen"
_CLIENT_FORMAT = f"{_CLIENT}\t#{{window_id}}\t#{{client_activity}}\t#{{client_readonly}}"


def take_snapshot(server: Tmux, pane_id: str) -> PaneSnapshot | str:
    """Takes a snapshot, or returns the reason why that is not possible."""
    second = int(time.time())
    done = server.cmd(
        "list-panes", "-a", "-f", pane_filter(pane_id), "-F", FACTS_FORMAT, ";",
        "list-clients", "-F", _CLIENT_FORMAT, ";",
        "display-message", "-p", "-t", pane_id, f"{_SCREEN}\t#{{client_activity}}", ";",
        "capture-pane", "-e", "-p", "-t", pane_id,
    )  # fmt: skip
    at = next((number for number, line in enumerate(done.stdout) if line.startswith(f"{_SCREEN}\t")), None)
    if at is None:
        return done.failure or "tmux_gone"
    facts = parse_facts(done.stdout[0])
    if facts is None or done.returncode:
        return "pane_gone"
    last_key = _last_key(facts.window_id, done.stdout[1:at])
    activity, screen = done.stdout[at].partition("\t")[2], _screen(facts, done.stdout[at + 1 :])
    return PaneSnapshot(facts, screen, last_key, activity, settled=facts.output < second)


def _screen(facts: PaneFacts, lines: list[str]) -> Screen:
    rows, solid = parsed([*lines, *[""] * (facts.height - len(lines))])
    return Screen(
        rows=rows,
        solid=solid,
        lines=tuple(lines),
        cursor_x=facts.cursor_x,
        cursor_y=facts.cursor_y,
        cursor_flag=facts.cursor_flag,
        title=facts.title,
        dead=facts.dead,
        in_mode=facts.in_mode,
    )


def _last_key(window_id: str, clients: list[str]) -> int:
    """The newest `client_activity` of the clients that show the window, 0 if none does. It changes on human keys, not
    on `send-keys` (docs/protocol.md, Typing into a pane, Human first). Read-only clients do not count."""
    fields = [line.split("\t") for line in clients if line.startswith(f"{_CLIENT}\t")]
    return max(
        (number(field[2]) or 0 for field in fields if field[1] == window_id and field[3:] != ["1"]),
        default=0,
    )
