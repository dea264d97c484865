"""One look at a pane, in one call of tmux: its facts, who sits before it, and its screen."""

from __future__ import annotations

from dataclasses import dataclass

from multi_agent_mcp.notify.tmux.client import FACTS_FORMAT, PaneFacts, Tmux, pane_filter, parse_facts
from multi_agent_mcp.notify.tmux.screens import Screen, parsed
from multi_agent_mcp.notify.tmux.values import number

_CLIENT, _SCREEN = "client", "screen"
_CLIENT_FORMAT = f"{_CLIENT}\t#{{window_id}}\t#{{client_activity}}\t#{{client_readonly}}"


@dataclass(frozen=True)
class PaneSnapshot:
    """What one call saw. `last_key` is when a human last pressed a key in a client that shows the pane (seconds since
    the epoch, whole ones; 0: no client shows it); `activity` is the same as a gate can ask for it."""

    facts: PaneFacts
    screen: Screen
    last_key: int
    activity: str


def take_snapshot(server: Tmux, pane_id: str) -> PaneSnapshot | str:
    """Looks at a pane; else says why that was not possible."""
    done = server.cmd(
        "list-panes", "-a", "-f", pane_filter(pane_id), "-F", FACTS_FORMAT, ";",
        "list-clients", "-F", _CLIENT_FORMAT, ";",
        "display-message", "-p", "-t", pane_id, f"{_SCREEN}\t#{{client_activity}}", ";",
        "capture-pane", "-e", "-p", "-t", pane_id,
    )  # fmt: skip
    if done.returncode == 124:
        return "tmux_timeout"
    at = next((number for number, line in enumerate(done.stdout) if line.startswith(f"{_SCREEN}\t")), None)
    if at is None:
        return "tmux_gone"
    facts = parse_facts(done.stdout[0])
    if facts is None or done.returncode:
        return "pane_gone"
    last_key = _last_key(facts.window_id, done.stdout[1:at])
    return PaneSnapshot(facts, _screen(facts, done.stdout[at + 1 :]), last_key, done.stdout[at].partition("\t")[2])


def _screen(facts: PaneFacts, lines: list[str]) -> Screen:
    rows, solid = parsed([*lines, *[""] * (facts.height - len(lines))])
    return Screen(
        rows=rows,
        solid=solid,
        cursor_x=facts.cursor_x,
        cursor_y=facts.cursor_y,
        cursor_flag=facts.cursor_flag,
        title=facts.title,
        dead=facts.dead,
        in_mode=facts.in_mode,
    )


def _last_key(window_id: str, clients: list[str]) -> int:
    """`client_activity` moves on human keys and not on `send-keys` (docs/protocol.md, Typing into a pane, Human
    first). Read-only clients do not count."""
    fields = [line.split("\t") for line in clients if line.startswith(f"{_CLIENT}\t")]
    return max(
        (number(field[2]) or 0 for field in fields if field[1] == window_id and field[3:] != ["1"]),
        default=0,
    )
