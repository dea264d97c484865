"""The state of an agent after `up`: a code and its text (docs/protocol.md, Team in tmux)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from multi_agent_mcp.texts import Texts

READY, STARTING, RUNNING, OPEN, ELSEWHERE = "ready", "starting", "running", "open", "elsewhere"
ENDED, NO_SERVER, UNKNOWN_SCREEN = "ended", "no_server", "unknown_screen"
NO_COMMAND, ON_DEMAND, NO_PROGRAM, REFUSED = "no_command", "on_demand", "no_program", "refused"
DIALOG = "dialog"
FINE = frozenset({READY, OPEN, ELSEWHERE, NO_COMMAND, ON_DEMAND})
"""States that need no action."""


@dataclass(frozen=True)
class AgentState:
    """The state of an agent, or of one of the team's other windows. `state` is a code; that of a dialog has its topic
    (`dialog:trust`). `facts` are the values in its text, `last_lines` the last lines of an ended program, `earlier` the
    agent's sessions that ran before its window was opened."""

    agent_id: str
    state: str
    socket_path: str | None = None
    pane_id: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    last_lines: tuple[str, ...] = ()
    earlier: frozenset[str] = frozenset()

    @property
    def is_fine(self) -> bool:
        return self.state in FINE

    @property
    def asks(self) -> bool:
        """Whether a dialog in the pane waits for a human."""
        return self.state.partition(":")[0] == DIALOG

    def note(self, texts: Texts) -> str:
        """Returns the text of the state; a topic of a dialog without a text (from a user's own profile) gets the
        general one."""
        key = f"up.{self.state}"
        return texts(key if key in texts else f"up.{DIALOG}", **self.facts)

    def as_answer(self, texts: Texts) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in ("agent_id", "state", "socket_path", "pane_id")}
        return told | {"note": self.note(texts), "last_lines": list(self.last_lines)}
