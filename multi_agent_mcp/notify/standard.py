"""The standard ladder: every rung there is, made when it is first needed."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from multi_agent_mcp.config import Settings
from multi_agent_mcp.notify.base import Rung
from multi_agent_mcp.notify.desktop import DesktopNotifier
from multi_agent_mcp.notify.doorbell import is_served
from multi_agent_mcp.notify.ladder import Ladder
from multi_agent_mcp.notify.rungs import CodexQueue, HookRung
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.texts import Texts

if TYPE_CHECKING:
    from multi_agent_mcp.notify.pane import TmuxNotifier


def standard_ladder(workspace: Workspace, settings: Settings, texts: Texts) -> Ladder:
    """Every rung there is; which of them an agent has, and in which order, says `notify/ladder.py`."""

    @cache
    def status_line() -> Rung:
        from multi_agent_mcp.notify.status import StatusLine

        return StatusLine(lambda agent_id: len(workspace.mailbox(agent_id).unread()))

    return Ladder(
        {
            "hook": lambda: HookRung(workspace.path),
            "codex_queue": lambda: CodexQueue(partial(is_served, workspace)),
            "tmux": cache(lambda: pane_notifier(workspace, settings)),
            "desktop": lambda: DesktopNotifier(texts("doorbell.title")),
            "status_line": status_line,
        }
    )


def pane_notifier(workspace: Workspace, settings: Settings) -> TmuxNotifier:
    """The rung that types. Profiles of hosts stand in the package and, mended by hand, in `{root}/hosts/*.yaml`."""
    from multi_agent_mcp.notify.hosts import load_profiles
    from multi_agent_mcp.notify.pane import TmuxNotifier  # libtmux takes 70 ms to import
    from multi_agent_mcp.notify.unknown import UnknownScreens

    unknown = UnknownScreens(workspace.files, workspace.path / "unknown_screens")
    return TmuxNotifier(settings.limits.submit_pause_seconds, load_profiles(workspace.root / "hosts"), unknown.keep)
