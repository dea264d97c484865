"""The weakest channel: unread counts in a tmux option, for the status line."""

from __future__ import annotations

from collections.abc import Callable

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.notify.channel import Channel
from multi_agent_mcp.notify.tmux.client import TIMEOUT, Tmux
from multi_agent_mcp.notify.tmux.snapshot import GONE, probe

OPTION = "@ipc_unread"


class StatusLine(Channel):
    """Sets `@ipc_unread` of the agent's tmux session to `worker-a:3 worker-b:1`, for `#{@ipc_unread}` in
    `status-right`. It informs a human who looks and wakes no agent, so it never counts as rung."""

    name = "status_line"

    def __init__(self, unread: Callable[[str], int]) -> None:
        self._unread = unread

    def check(self, agent: Agent) -> str | None:
        """The reason when the agent has no living pane or its tmux does not answer."""
        reason = probe(agent)
        return reason if reason in (*GONE, TIMEOUT) else None

    def ring(self, agent: Agent, line: str) -> Delivery:  # noqa: ARG002 - only a number is shown
        """Always `stored`, with the reason `status_line` when the option shows the count."""
        if agent.pane_id is None or agent.socket_path is None:
            return Delivery("stored", "no_pane")
        failure = _show(Tmux(agent.socket_path), agent.pane_id, agent.id, self._unread(agent.id))
        return Delivery("stored", failure or "status_line")

    def clear(self, agent: Agent) -> None:
        self.ring(agent, "")


def _show(server: Tmux, pane: str, agent_id: str, unread: int) -> str | None:
    """Writes the count if it has changed; returns None, or why it could not be written. The current value is read from
    tmux each time, because several processes may set it."""
    known = server.cmd("show-options", "-q", "-v", "-t", pane, OPTION)
    counts = dict(word.rpartition(":")[::2] for word in " ".join(known.stdout).split() if ":" in word)
    if known.failure or counts.get(agent_id, "0") == str(unread):
        return known.failure
    counts[agent_id] = str(unread)
    text = " ".join(f"{name}:{count}" for name, count in sorted(counts.items()) if count != "0")
    return server.cmd("set-option", "-t", pane, OPTION, text).failure
