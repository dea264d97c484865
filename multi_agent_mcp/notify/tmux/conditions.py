"""Conditions that tmux itself evaluates, in the same command that types (docs/protocol.md, Typing into a pane,
One command).

Each is a tmux format that is true or false; `all_of` joins them. Text inside `#{…}` is escaped for tmux.
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
    """The conjunction of the conditions, as a balanced tree: tmux gives up on formats nested a hundred deep."""
    if len(conditions) == 1:
        return conditions[0]
    middle = len(conditions) // 2
    return f"#{{&&:{all_of(conditions[:middle])},{all_of(conditions[middle:])}}}"


def safe_pane(agent: Agent, command: str) -> list[str]:
    """Conditions on the pane itself: it is the registered pane of the registered server, alive, takes input, is in no
    mode and not synchronized with others, and its foreground command is still `command` (Pane identity, Live input, No
    shells)."""
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
    """Conditions that the pane still shows the snapshot: the same cursor, the same first row of the composer, and no
    words of a dialog in new places."""
    row = screen.rows[composer.first]
    return [*same_cursor(screen), shown(whole(row), screen), *no_dialog(profile, screen)]


def same_line(profile: Profile, screen: Screen, composer: Composer) -> list[str]:
    """Conditions that our own line still stands in the composer: the same cursor, and every row of it unchanged (Own
    line only). Whole rows are compared, because wrapping may split the tag."""
    rows = [row for row in screen.rows[composer.first : composer.last + 1] if row.strip()]
    return [*same_cursor(screen), *(shown(whole(row), screen) for row in rows), *no_dialog(profile, screen)]


def same_human(snapshot: PaneSnapshot) -> list[str]:
    """The condition that no human has pressed a key since the snapshot in a client that shows the pane. tmux records a
    key before it passes it on, so none can come in between (Human first)."""
    return [same("client_activity", snapshot.activity)] if snapshot.last_key else []


def same_cursor(screen: Screen) -> list[str]:
    return [
        same("cursor_x", screen.cursor_x),
        same("cursor_y", screen.cursor_y),
        same("cursor_flag", int(screen.cursor_flag)),
    ]


def no_dialog(profile: Profile, screen: Screen) -> list[str]:
    """Conditions that a dialog's words occur nowhere new. An agent may have written such words itself: then their first
    occurrence must still be on the same row."""
    return [shown(pattern, screen) for pattern in profile.gates]


def same(name: str, value: object) -> str:
    return f"#{{==:#{{{name}}},{value}}}"


def literal(text: str) -> str:
    """A POSIX extended regular expression that matches exactly this text."""
    return _POSIX_SPECIAL.sub(r"\\\1", text)


def whole(row: str) -> str:
    """A regular expression that matches exactly this whole row."""
    return f"^{literal(row)}$"


def escaped(pattern: str) -> str:
    """Escapes `#`, `,` and `}` for use inside a tmux format."""
    return re.sub(r"([#,}])", r"#\1", pattern)


def shown(pattern: str, screen: Screen) -> str:
    """The condition that the first matching row has the same number as in the snapshot (0: none matches)."""
    return f"#{{==:#{{C/r:{escaped(pattern)}}},{screen.row_of(pattern)}}}"
