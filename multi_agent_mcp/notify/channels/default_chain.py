"""The standard ladder: every rung there is, made when it is first needed."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from multi_agent_mcp.config import Settings
from multi_agent_mcp.notify.channel import Channel
from multi_agent_mcp.notify.channels.chain import ChannelChain
from multi_agent_mcp.notify.channels.desktop import DesktopNotifier
from multi_agent_mcp.notify.channels.keyless import CodexQueue, HookChannel
from multi_agent_mcp.notify.doorbell import is_served
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.texts import Texts

if TYPE_CHECKING:
    from multi_agent_mcp.notify.tmux.notifier import TmuxNotifier


def default_chain(workspace: Workspace, settings: Settings, texts: Texts) -> ChannelChain:
    """Every rung there is; which of them an agent has, and in which order, says `notify/channels/chain.py`."""

    @cache
    def status_line() -> Channel:
        from multi_agent_mcp.notify.channels.status_line import StatusLine

        return StatusLine(lambda agent_id: len(workspace.mailbox(agent_id).unread()))

    return ChannelChain(
        {
            "hook": lambda: HookChannel(workspace.files),
            "codex_queue": lambda: CodexQueue(partial(is_served, workspace)),
            "tmux": cache(lambda: pane_notifier(workspace, settings)),
            "desktop": lambda: DesktopNotifier(texts("doorbell.title")),
            "status_line": status_line,
        }
    )


def pane_notifier(workspace: Workspace, settings: Settings) -> TmuxNotifier:
    """The rung that types. Profiles of hosts stand in the package and, mended by hand, in `{root}/hosts/*.yaml`."""
    from multi_agent_mcp.notify.tmux.notifier import TmuxNotifier  # libtmux takes 70 ms to import
    from multi_agent_mcp.notify.tmux.profiles import load_profiles
    from multi_agent_mcp.notify.tmux.unknown_screens import UnknownScreens

    unknown = UnknownScreens(workspace.files, workspace.path / "unknown_screens")
    return TmuxNotifier(settings.limits.submit_pause_seconds, load_profiles(workspace.root / "hosts"), unknown.keep)
