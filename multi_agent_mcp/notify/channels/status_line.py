"""The last channel: a tmux session option for a status line."""

from __future__ import annotations

from collections.abc import Callable

from libtmux import exc

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.notify.channel import Channel
from multi_agent_mcp.notify.tmux.client import Tmux
from multi_agent_mcp.notify.tmux.snapshot import GONE, probe

OPTION = "@ipc_unread"


class StatusLine(Channel):
    """Sets `@ipc_unread` of the agent's tmux session to `worker-a:3 worker-b:1`, for `#{@ipc_unread}` in
    `status-right`. It informs a human who looks and wakes no agent, so it never counts as rung."""

    name = "status_line"

    def __init__(self, unread: Callable[[str], int]) -> None:
        self._unread = unread

    def check(self, agent: Agent) -> str | None:
        """`no_pane`, or why that pane's tmux does not answer."""
        reason = probe(agent)
        return reason if reason in GONE else None

    def ring(self, agent: Agent, line: str) -> Delivery:  # noqa: ARG002 - a number says it
        """`stored`, with the reason `status_line` when the option says it."""
        if agent.pane_id is None or agent.socket_path is None:
            return Delivery("stored", "no_pane")
        try:
            shown = _show(Tmux(socket_path=agent.socket_path), agent.pane_id, agent.id, self._unread(agent.id))
        except exc.TmuxCommandNotFound:
            return Delivery("stored", "no_tmux")
        return Delivery("stored", "status_line" if shown else "tmux_gone")

    def clear(self, agent: Agent) -> None:
        self.ring(agent, "")


def _show(server: Tmux, pane: str, agent_id: str, unread: int) -> bool:
    """Writes the count if it is another one. Several processes may speak for an agent, so tmux is asked each time."""
    known = server.cmd("show-options", "-q", "-v", "-t", pane, OPTION)
    if known.returncode:
        return False
    counts = dict(word.rpartition(":")[::2] for word in " ".join(known.stdout).split() if ":" in word)
    if counts.get(agent_id, "0") == str(unread):
        return True
    counts[agent_id] = str(unread)
    text = " ".join(f"{name}:{count}" for name, count in sorted(counts.items()) if count != "0")
    return server.cmd("set-option", "-t", pane, OPTION, text).returncode == 0
