"""What a person does with agents' panes from elsewhere: sees them, answers what their hosts ask, types a line
(docs/protocol.md, Answering a dialog)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.domain.dialog import Answered, Dialog
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.notify.tmux.client import PANE_ID, Tmux
from multi_agent_mcp.notify.tmux.notifier import TmuxNotifier
from multi_agent_mcp.notify.tmux.screens import PREFIX
from multi_agent_mcp.notify.tmux.view import PaneView, view_pane
from multi_agent_mcp.store.workspace import Workspace

LOOK_SECONDS = 0.25
LINE_CHARACTERS = 100
"""A line of ours is told apart from a human's by its prefix, its length and its tag (`screens.tag_of`)."""
_LINE = re.compile(rf"[^#\x00-\x1f\x7f]{{1,{LINE_CHARACTERS}}}")


class Panes:
    """`audit` adds a line to the audit log: every key that a person presses from elsewhere is one."""

    def __init__(self, workspace: Workspace, typist: TmuxNotifier, audit: Callable[..., None]) -> None:
        self.workspace = workspace
        self.typist = typist
        self.audit = audit
        self._looks: dict[str, tuple[float, PaneView | str, Dialog | None]] = {}

    def dialog(self, agent: Agent) -> Dialog | None:
        """The question that waits in the agent's pane, with its choices, if a profile describes them. One call of
        tmux."""
        return None if agent.pane_id is None else self.typist.dialog(agent)

    def dialogs(self) -> dict[str, Dialog]:
        """The same of every agent with a pane, by agent."""
        found = {agent.id: self.dialog(agent) for agent in self.workspace.registry.active().values()}
        return {agent_id: dialog for agent_id, dialog in found.items() if dialog is not None}

    def answer(self, agent: Agent, dialog_id: str, choice: str, by: Agent) -> Answered:
        """Answers the question with this id if it still stands there; see `TmuxNotifier.answer`."""
        answered = self.typist.answer(agent, dialog_id, choice)
        if answered.dialog is not None and answered.state != "refused":
            picked = answered.dialog.choice(choice)
            label = picked.label if picked is not None else None
            facts = {"by": by.id, "agent_id": agent.id, **answered.as_answer(), "choice": choice, "label": label}
            self.audit("answer", **facts)
        return answered

    def view(self, agent: Agent, *, scrollback: bool = False) -> PaneView | str:
        """What the pane shows, with colours; else why it cannot be seen. See `view_pane`."""
        if agent.pane_id is None or agent.socket_path is None or not PANE_ID.fullmatch(agent.pane_id):
            return "no_pane"
        return view_pane(Tmux(agent.socket_path), agent.pane_id, agent.pane_pid, scrollback=scrollback)

    def look(self, agent: Agent) -> tuple[PaneView | str, Dialog | None]:
        """Both, at most four times a second, however many people look."""
        at, view, dialog = self._looks.get(agent.id, (-LOOK_SECONDS, "no_pane", None))
        if time.monotonic() - at >= LOOK_SECONDS:
            view, at = self.view(agent), time.monotonic()
            dialog = None if isinstance(view, str) else self.dialog(agent)
            self._looks[agent.id] = at, view, dialog
        return view, dialog

    def type_line(self, agent: Agent, text: str, by: Agent) -> Delivery:
        """Types a line of a person's, by the doorbell's own gates and never beside a doorbell: `submitted`, `rung`, or
        `stored` with the reason. Raises `InvalidArguments` for what is no such line."""
        if not _LINE.fullmatch(text) or not text.strip():
            raise InvalidArguments("bad_line", most=LINE_CHARACTERS)
        with self.workspace.locks.held(f"doorbell-{agent.id}"):
            outcome = self.typist.ring(agent, f"{PREFIX} {text.strip()}")
        if outcome.state != "stored":
            self.audit("line", by=by.id, agent_id=agent.id, text=text, **outcome.as_answer())
        return outcome
