"""The channel chain: tries a recipient's channels from the strongest to the weakest (docs/protocol.md, Channels)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from multi_agent_mcp.domain.delivery import MANY, About, ChannelReport, Delivery
from multi_agent_mcp.doorbell.channel import LINE_GONE, Channel
from multi_agent_mcp.doorbell.channels import CodexQueue, DesktopNotifier, HookChannel, NotifyCommand
from multi_agent_mcp.errors import TmuxTimeout
from multi_agent_mcp.hosts import WITHOUT_A_HOST, host_named

if TYPE_CHECKING:
    from multi_agent_mcp.config import Settings
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.doorbell.tmux.notifier import TmuxNotifier
    from multi_agent_mcp.store.workspace import Workspace
    from multi_agent_mcp.texts import Texts


T = TypeVar("T")

logger = logging.getLogger(__name__)

NEED_A_PANE = ("tmux", "status_line")
_LEAST_TELLING = (
    *("no_desktop", "no_pane"),
    *("no_hook", "no_codex_thread", "no_codex", "codex_gone", "not_human", "status_line"),
)
"""Reasons that only say that the agent lacks the channel, so that another channel's reason is more useful. The most
useful first: what an Owner without a pane lacks is a desktop command, not a pane."""
NO_SUCH_CHANNEL = "no_such_rung"
"""The reason for an unknown name in an agent's key `ladder` of agents.json; spelled in the terms of that file."""


class ChannelChain(Channel):
    """Tries an agent's channels in order until one delivers the line; if none does, returns the most useful reason.
    Never raises: a failing doorbell must not lose the answer about a message that was stored."""

    name = "ladder"

    def __init__(self, channels: Mapping[str, Callable[[], Channel]]) -> None:
        self._channels = channels  # created when needed: most calls ring nobody

    def check(self, agent: Agent) -> str | None:
        """None if any channel could ring, else the most useful reason."""
        reasons: list[str | None] = []
        for reason in self._answers(agent, lambda channel: channel.check(agent)):
            if reason is None:
                return None
            reasons.append(reason)
        return min(reasons, key=_tells_little, default="no_doorbell")

    def ring(self, agent: Agent, line: str, about: About = MANY) -> Delivery:
        failed: list[str | None] = []
        for delivery in self._answers(agent, lambda channel: channel.ring(agent, line, about)):
            if isinstance(delivery, Delivery) and delivery.state != "stored":
                return delivery
            failed.append(delivery.reason if isinstance(delivery, Delivery) else delivery)
        return Delivery("stored", min(failed, key=_tells_little, default="no_doorbell"))

    def ring_at_once(self, agent: Agent, line: str, about: About) -> Delivery | None:
        if NotifyCommand.name not in self.names(agent):
            return None
        delivery = self._asked(NotifyCommand.name, agent, lambda channel: channel.ring(agent, line, about))
        return delivery if isinstance(delivery, Delivery) else Delivery("stored", delivery)

    def finish(self, agent: Agent) -> Delivery:
        for name in self.names(agent) if agent.pane_id is not None else ():  # without one no line is left behind
            delivery = self._asked(name, agent, lambda channel: channel.finish(agent))
            if isinstance(delivery, Delivery) and delivery.reason != LINE_GONE:
                return delivery
        return Delivery("stored", LINE_GONE)

    def clear(self, agent: Agent) -> None:
        for name in self.names(agent) if agent.pane_id is not None else ():  # without one no count is shown
            self._asked(name, agent, lambda channel: channel.clear(agent))

    def explain(self, agent: Agent, *, is_silent: bool = False) -> tuple[ChannelReport, ...]:
        """The state of each channel; rings nothing, types nothing. A channel that raises is `failed_{error}`. Some
        reasons pass in a second (`draft`, `human_typing`), others need another set-up (`no_hook`, `no_pane`)."""

        def state(name: str) -> str | None:
            if is_silent and name in NEED_A_PANE:
                return TmuxTimeout.code
            return self._asked(name, agent, lambda channel: channel.check(agent))

        return tuple(ChannelReport(name, state(name)) for name in self._wanted(agent))

    def names(self, agent: Agent) -> tuple[str, ...]:
        """The agent's channels, strongest first: its own key `ladder` in agents.json, else its host's."""
        return tuple(name for name in self._wanted(agent) if name in self._channels)

    def _wanted(self, agent: Agent) -> tuple[str, ...]:
        """As `names`, but with unknown names of the agent's own list, which `explain` reports."""
        wanted = agent.extra.get("ladder")
        if isinstance(wanted, list):
            return tuple(map(str, wanted))
        host = host_named(agent.host)
        return tuple(name for name in (host.channels if host else WITHOUT_A_HOST) if name in self._channels)

    def _answers(self, agent: Agent, question: Callable[[Channel], T]) -> Iterator[T | str]:
        """As `_asked`, for the agent's channels in order. A tmux that does not answer one is not asked by the next."""
        is_silent = False
        for name in self.names(agent):
            if not (is_silent and name in NEED_A_PANE):
                answer = self._asked(name, agent, question)
                is_silent = is_silent or getattr(answer, "reason", answer) == TmuxTimeout.code
                yield answer

    def _asked(self, name: str, agent: Agent, question: Callable[[Channel], T]) -> T | str:
        """The result of `question` for a channel, else the reason why the channel cannot be asked."""
        if name not in self._channels:
            return NO_SUCH_CHANNEL
        if name in NEED_A_PANE and agent.pane_id is None:
            return "no_pane"  # without importing its module, which takes time
        try:
            return question(self._channels[name]())
        except Exception as error:  # noqa: BLE001 - after any failure of a channel the next one is tried
            logger.warning("the channel %s failed: %s: %s", name, type(error).__name__, error)
            return f"failed_{type(error).__name__}"


def _tells_little(reason: str | None) -> int:
    """Sorts reasons, useful ones (0) first; of equal ones `min` takes the stronger channel's."""
    return _LEAST_TELLING.index(reason) + 1 if reason in _LEAST_TELLING else 0


def default_chain(workspace: Workspace, settings: Settings, texts: Texts) -> ChannelChain:
    """The chain of all channels, each created when it is first needed."""

    @cache
    def status_line() -> Channel:
        from multi_agent_mcp.doorbell.channels import StatusLine

        return StatusLine(workspace.unread_count)

    channels: dict[str, Callable[[], Channel]] = {
        "hook": lambda: HookChannel(workspace.files),
        "codex_queue": lambda: CodexQueue(lambda agent_id: bool(workspace.served_purposes(agent_id))),
        "tmux": cache(lambda: pane_notifier(workspace, settings)),
        "desktop": lambda: DesktopNotifier(texts("doorbell.title")),
        "status_line": status_line,
    }
    if (command := settings.notify_command) is not None:
        channels["notify_command"] = lambda: NotifyCommand(command, workspace.notify_command_failure)
    return ChannelChain(channels)


def pane_notifier(workspace: Workspace, settings: Settings) -> TmuxNotifier:
    """The channel that types into panes, with the package's host profiles and those in `{root}/hosts/*.yaml`."""
    from multi_agent_mcp.doorbell.tmux.learning import UnknownScreens
    from multi_agent_mcp.doorbell.tmux.notifier import TmuxNotifier
    from multi_agent_mcp.doorbell.tmux.profiles import load_profiles

    profiles = load_profiles(workspace.root / "hosts")
    for file, reason in profiles.left_out.items():
        logger.warning("hosts/%s is left out: %s", file, reason)
    unknown = UnknownScreens(workspace.files, workspace.path / "unknown_screens")
    return TmuxNotifier(settings.limits.submit_pause_seconds, profiles, unknown.save)
