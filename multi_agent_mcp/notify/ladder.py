"""The ladder: the strongest rung a recipient has, going down when one cannot be used (PANES.md)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.notify.base import Notifier

logger = logging.getLogger(__name__)

BY_HOST: Mapping[str | None, tuple[str, ...]] = {
    "claude": ("hook", "tmux", "desktop", "status_line"),
    "codex": ("hook", "codex_queue", "tmux", "desktop", "status_line"),
}
OTHERWISE = ("tmux", "desktop", "status_line")
_NO_SUCH_RUNG = ("no_hook", "no_codex_thread", "no_codex", "codex_gone", "status_line")
_SAY_LITTLE = ("no_pane", "no_desktop", *_NO_SUCH_RUNG)
"""Reasons that only say that the agent has no such rung: another rung's reason tells more."""


def rungs_of(agent: Agent, known: Sequence[str] | Mapping[str, object]) -> tuple[str, ...]:
    """The names of the agent's rungs, strongest first: its own key `ladder` in agents.json, else its host's."""
    wanted = agent.extra.get("ladder")
    if isinstance(wanted, list):
        return tuple(name for name in wanted if name in known)
    return tuple(name for name in BY_HOST.get(agent.host, OTHERWISE) if name in known)


class Ladder:
    """Tries an agent's rungs in order. The first that gets the line across wins; else the first one's reason counts."""

    name = "ladder"

    def __init__(self, rungs: Mapping[str, Callable[[], Notifier]]) -> None:
        self._rungs = rungs  # made when needed: importing libtmux costs 70 ms
        self._below: set[str] = set()

    def ring(self, agent: Agent, line: str) -> Delivery:
        """Never raises: a doorbell that breaks must not lose the answer of a message that was stored."""
        failed: list[Delivery] = []
        for name in rungs_of(agent, self._rungs):
            delivery = self._try(name, agent, line)
            if delivery.state != "stored":
                return delivery
            failed.append(delivery)
        told = [delivery for delivery in failed if delivery.reason not in _SAY_LITTLE]
        nowhere = [delivery for delivery in failed if delivery.reason not in _NO_SUCH_RUNG]
        return (told or nowhere or failed or [Delivery("stored", "no_doorbell")])[0]

    def quiet(self, agent: Agent) -> None:
        """Nothing is unread any more: takes back what rungs of this process have left on show. Never raises."""
        if agent.id not in self._below:
            return
        self._below.discard(agent.id)
        for name in rungs_of(agent, self._rungs):
            try:
                take_back = getattr(self._rungs[name](), "quiet", None)
                if take_back is not None:
                    take_back(agent)
            except Exception as error:  # noqa: BLE001 - as in `_try`
                logger.warning("%s could not be taken back: %s: %s", name, type(error).__name__, error)

    def _try(self, name: str, agent: Agent, line: str) -> Delivery:
        try:
            delivery = self._rungs[name]().ring(agent, line)
        except Exception as error:  # noqa: BLE001 - a rung is a door: whatever breaks in it, the next one is tried
            logger.warning("the doorbell %s failed: %s: %s", name, type(error).__name__, error)
            return Delivery("stored", f"failed_{type(error).__name__}")
        if delivery.reason == "status_line":
            self._below.add(agent.id)
        return delivery
