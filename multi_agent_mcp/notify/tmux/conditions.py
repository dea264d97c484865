"""Conditions that tmux itself evaluates, in the same command that types (docs/protocol.md, Typing into a pane,
One command).

Each is a tmux format that is true or false; `all_of` joins them. What stands inside `#{…}` is escaped for tmux.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.notify.tmux.client import printable
from multi_agent_mcp.notify.tmux.profiles import Profile
from multi_agent_mcp.notify.tmux.screens import Composer, Screen
from multi_agent_mcp.notify.tmux.snapshot import PaneSnapshot

_POSIX_SPECIAL = re.compile(r"([\\^$.|?*+()\[\]{}])")


def all_of(conditions: Sequence[str]) -> str:
    """True if all are. As a balanced tree: tmux gives up on a format nested a hundred deep."""
    if len(conditions) == 1:
        return conditions[0]
    middle = len(conditions) // 2
    return f"#{{&&:{all_of(conditions[:middle])},{all_of(conditions[middle:])}}}"


def safe_pane(agent: Agent, command: str) -> list[str]:
    """What tmux itself knows: it is the registered pane of the registered server, alive, takes input, is in no mode
    and not synchronized with others, and the foreground command is the one of the snapshot (Pane identity, Live input,
    No shells)."""
    conditions = [
        same("pane_id", agent.pane_id),
        "#{==:#{pane_dead}#{pane_in_mode}#{pane_input_off}#{pane_synchronized},0000}",
        f"#{{==:{printable('pane_current_command')},{escaped(command)}}}",
    ]
    if agent.pane_pid is not None:
        conditions.append(same("pane_pid", int(agent.pane_pid)))
    if agent.tmux_pid is not None:
        conditions.append(same("pid", int(agent.tmux_pid)))
    return conditions


def same_screen(profile: Profile, screen: Screen, composer: Composer) -> list[str]:
    """The pane still shows what the snapshot shows: the cursor where it was, the composer's first row as it was, and no
    dialog's words where there were none."""
    row = screen.rows[composer.first]
    return [*same_cursor(screen), shown(whole(row), screen), *no_dialog(profile, screen)]


def same_line(profile: Profile, screen: Screen, composer: Composer) -> list[str]:
    """Our own line still stands in the composer: the cursor where it was, and every row of it as it was (Own line
    only). Whole rows, because a tag alone may be split by a line's wrap."""
    rows = [row for row in screen.rows[composer.first : composer.last + 1] if row.strip()]
    return [*same_cursor(screen), *(shown(whole(row), screen) for row in rows), *no_dialog(profile, screen)]


def same_human(snapshot: PaneSnapshot) -> list[str]:
    """No human has pressed a key since, in a client that shows the pane. tmux notes a key before it hands it on, so
    none can slip in between (Human first)."""
    return [same("client_activity", snapshot.activity)] if snapshot.last_key else []


def same_cursor(screen: Screen) -> list[str]:
    return [
        same("cursor_x", screen.cursor_x),
        same("cursor_y", screen.cursor_y),
        same("cursor_flag", int(screen.cursor_flag)),
    ]


def no_dialog(profile: Profile, screen: Screen) -> list[str]:
    """An agent may have written such words further up; then they must still be first on that very row."""
    return [shown(pattern, screen) for pattern in profile.gates]


def same(name: str, value: object) -> str:
    return f"#{{==:#{{{name}}},{value}}}"


def literal(text: str) -> str:
    """A POSIX extended expression that matches exactly this text."""
    return _POSIX_SPECIAL.sub(r"\\\1", text)


def whole(row: str) -> str:
    """An expression for a row that says this and nothing else."""
    return f"^{literal(row)}$"


def escaped(pattern: str) -> str:
    """Inside a format `#`, `,` and `}` need a `#` before them."""
    return re.sub(r"([#,}])", r"#\1", pattern)


def shown(pattern: str, screen: Screen) -> str:
    """The first row that matches is the same as in the snapshot (0: none does)."""
    return f"#{{==:#{{C/r:{escaped(pattern)}}},{screen.row_of(pattern)}}}"
