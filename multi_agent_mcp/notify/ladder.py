"""The ladder: the strongest rung a recipient has, going down when one cannot be used (PANES.md)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.notify.base import Notifier

logger = logging.getLogger(__name__)


class Ladder:
    """Tries its rungs in order. The first that gets the line across wins; else the first rung's reason counts."""

    name = "ladder"

    def __init__(self, rungs: Sequence[Callable[[], Notifier]]) -> None:
        self._rungs = rungs  # made when needed: importing libtmux costs 70 ms

    def ring(self, agent: Agent, line: str) -> Delivery:
        """Never raises: a doorbell that breaks must not lose the answer of a message that was stored."""
        failed: list[Delivery] = []
        for make in self._rungs:
            try:
                delivery = make().ring(agent, line)
            except Exception as error:  # noqa: BLE001 - a rung is a door: whatever breaks in it, the next one is tried
                logger.warning("a doorbell failed: %s: %s", type(error).__name__, error)
                delivery = Delivery("stored", f"failed_{type(error).__name__}")
            if delivery.state != "stored":
                return delivery
            failed.append(delivery)
        told = [delivery for delivery in failed if delivery.reason not in ("no_pane", "no_desktop")]
        return (told or failed or [Delivery("stored", "no_doorbell")])[0]
