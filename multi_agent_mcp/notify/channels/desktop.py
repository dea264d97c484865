"""Desktop notices for a human outside tmux. The text is always an argument, never built into a script."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.notify.channel import Channel, has_taken
from multi_agent_mcp.notify.wording import sanitized

_APPLESCRIPT = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)


class DesktopNotifier(Channel):
    """`osascript` where it is on PATH (macOS), else `notify-send` (Linux)."""

    name = "desktop"

    def __init__(self, title: str) -> None:
        self.title = title

    def check(self, agent: Agent) -> str | None:
        """`not_human` for agents, who have panes; `no_desktop` where no command that shows notices is on PATH."""
        if not agent.may_be_human:
            return "not_human"
        return None if notice_command(self.title, "") else "no_desktop"

    def ring(self, agent: Agent, line: str) -> Delivery:
        """`rung` when the notice was handed to the desktop."""
        reason, call = self.check(agent), notice_command(self.title, sanitized(line))
        if reason is not None or call is None:
            return Delivery("stored", reason)
        return Delivery("rung", "desktop") if has_taken(call) else Delivery("stored", "desktop_failed")


def notice_command(title: str, line: str) -> Sequence[str] | None:
    """The command that shows a notice, chosen by PATH; None when there is none."""
    if osascript := shutil.which("osascript"):
        script = [part for statement in _APPLESCRIPT for part in ("-e", statement)]
        return [osascript, *script, title, line]
    if notify_send := shutil.which("notify-send"):
        return [notify_send, "--", title, line]
    return None
