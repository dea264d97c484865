"""A person's remote use of agents' panes: viewing them, answering their hosts' dialogs, typing a line
(docs/protocol.md, Answering a dialog)."""

from __future__ import annotations

import re
import threading
import time
import unicodedata
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.domain.text import sanitize
from multi_agent_mcp.doorbell.channel import LINE_GONE
from multi_agent_mcp.doorbell.tmux.client import PANE_ID, TIMEOUT, Tmux
from multi_agent_mcp.doorbell.tmux.screens import PREFIX
from multi_agent_mcp.doorbell.tmux.snapshot import ECHO_SECONDS
from multi_agent_mcp.doorbell.tmux.view import PaneView, view_pane
from multi_agent_mcp.errors import InvalidArguments, TmuxTimeout

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.question import Answered, Dialog
    from multi_agent_mcp.doorbell.tmux.notifier import TmuxNotifier
    from multi_agent_mcp.store.workspace import Workspace

LOOK_SECONDS = 0.5
"""The shortest interval between looks. Each captures the pane twice: as people see it, and for its dialog."""
LINE_CHARACTERS = 100
"""The longest line: a line of ours is recognised by its prefix, its length and its tag (`screens.tag_of`)."""
LATE_SECONDS = ECHO_SECONDS
"""How long to wait for a host to show a line."""
LATE_POLL_SECONDS = 0.25
_LINE = re.compile(rf"[^#\x00-\x1f\x7f]{{1,{LINE_CHARACTERS}}}")
_JOINING = re.compile("[\u200c\u200d\u20dd-\u20e4\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Characters that combine with the one before, with a width that differs between terminals: the line in the composer
could not be compared with the line typed."""


class Panes:
    """The panes of a session's agents. `audit` adds a line to the audit log, for every key pressed from elsewhere."""

    def __init__(self, workspace: Workspace, typist: TmuxNotifier, audit: Callable[..., None]) -> None:
        self.workspace = workspace
        self.typist = typist
        self.audit = audit
        self._looks: dict[tuple[str, bool], tuple[float, PaneView | str, Dialog | None]] = {}
        self._turns: dict[str, threading.Lock] = {}

    def dialog(self, agent: Agent) -> Dialog | None:
        """The dialog that waits in the agent's pane, if a profile describes its choices. One call of tmux."""
        return None if agent.pane_id is None else self.typist.dialog(agent)

    def dialogs(self) -> dict[str, Dialog]:
        """The dialogs that wait, by agent id."""
        found = {agent.id: self.dialog(agent) for agent in self.workspace.registry.active().values()}
        return {agent_id: dialog for agent_id, dialog in found.items() if dialog is not None}

    def unseen(self) -> list[str]:
        """The ids of the agents whose tmux did not answer a moment ago."""
        return [agent.id for agent in self.workspace.registry.active().values() if self._is_silent(agent)]

    def asked(self, agent: Agent) -> Dialog | None:
        """As `dialog`, for somebody who asks about this agent. Raises `TmuxTimeout` if its tmux does not answer."""
        dialog = self.dialog(agent)
        if self._is_silent(agent):
            raise TmuxTimeout(socket_path=agent.socket_path)
        return dialog

    def _is_silent(self, agent: Agent) -> bool:
        return agent.pane_id is not None and self.typist.silent.is_silent(agent.socket_path)

    def answer(self, agent: Agent, dialog_id: str, choice: str, by: Agent) -> Answered:
        """Answers the dialog with this id if it is still shown, and audits it; see `TmuxNotifier.answer`. Raises
        `TmuxTimeout` if tmux did not answer before a key was sent."""
        answered = self.typist.answer(agent, dialog_id, choice)
        if (answered.state, answered.reason) == ("refused", TIMEOUT):
            raise TmuxTimeout(socket_path=agent.socket_path)
        if answered.dialog is not None and answered.state != "refused":
            picked = answered.dialog.choice(choice)
            label = picked.label if picked is not None else None
            facts = {"by": by.id, "agent_id": agent.id, **answered.as_answer(), "choice": choice, "label": label}
            self.audit("answer", **facts)
        return answered

    def view(self, agent: Agent, *, scrollback: bool = False) -> PaneView | str:
        """The pane's content with colours, else why it cannot be seen. See `view_pane`."""
        if agent.pane_id is None or agent.socket_path is None or not PANE_ID.fullmatch(agent.pane_id):
            return "no_pane"
        server, pane, pid = Tmux(agent.socket_path), agent.pane_id, agent.pane_pid
        return self.typist.silent.ask(agent.socket_path, lambda: view_pane(server, pane, pid, scrollback=scrollback))

    def look(self, agent: Agent, *, scrollback: bool = False) -> tuple[PaneView | str, Dialog | None]:
        """The screen and its dialog, or the scrollback alone; captured every `LOOK_SECONDS` at most, however many
        people look."""
        with self._turns.setdefault(agent.id, threading.Lock()):
            at, view, dialog = self._looks.get((agent.id, scrollback), (-LOOK_SECONDS, "no_pane", None))
            if time.monotonic() - at >= LOOK_SECONDS:
                view, at = self.view(agent, scrollback=scrollback), time.monotonic()
                dialog = None if isinstance(view, str) or scrollback else self.dialog(agent)
                self._looks[agent.id, scrollback] = at, view, dialog
            return view, dialog

    def type_line(self, agent: Agent, text: str, by: Agent) -> Delivery:
        """Types a person's line, under the doorbell's own conditions and lock: `submitted`; `rung` with the reason why
        it was typed but not entered; or `stored` with the reason why nothing was typed. Raises `InvalidArguments` for
        a line that is empty, too long, or has `#`, control or combining characters."""
        line = unicodedata.normalize("NFC", text).strip()
        if not _LINE.fullmatch(line) or sanitize(line) != line or _JOINING.search(line):
            raise InvalidArguments("bad_line", most=LINE_CHARACTERS)
        with self._bell(agent):
            outcome = self.typist.ring(agent, f"{PREFIX} {line}")
        if outcome.left:
            outcome = self._entered(agent, outcome)
        if outcome.state != "stored":
            self.audit("line", by=by.id, agent_id=agent.id, text=text, **outcome.as_answer())
        return outcome

    def _entered(self, agent: Agent, outcome: Delivery) -> Delivery:
        """Waits up to `LATE_SECONDS` for the host to show a line that was typed, and enters it."""
        end = time.monotonic() + LATE_SECONDS
        while time.monotonic() < end:
            time.sleep(LATE_POLL_SECONDS)
            with self._bell(agent):
                now = self.typist.finish(agent)
            if now.state == "submitted":
                return Delivery("submitted")
            if now.reason == LINE_GONE:
                return Delivery("rung", LINE_GONE)
            outcome = Delivery("rung", now.reason, left=True)
        return outcome

    def _bell(self, agent: Agent) -> AbstractContextManager[None]:
        return self.workspace.locks.held(f"doorbell-{agent.id}")
