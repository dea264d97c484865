"""The ladder: the strongest rung a recipient has, going down when one cannot be used
(docs/protocol.md, Channels)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import ChannelReport, Delivery
from multi_agent_mcp.notify.channel import LINE_GONE, Channel, Finisher

logger = logging.getLogger(__name__)

BY_HOST: Mapping[str, tuple[str, ...]] = {
    "claude": ("hook", "tmux", "desktop", "status_line"),
    "codex": ("hook", "codex_queue", "tmux", "desktop", "status_line"),
}
OTHERWISE = ("tmux", "desktop", "status_line")
_SAY_LITTLE = (
    *("no_desktop", "no_pane"),
    *("no_hook", "no_codex_thread", "no_codex", "codex_gone", "not_human", "status_line"),
)
"""Reasons that only say that the agent has no such rung: another rung's reason tells more. The most telling first; an
Owner without a pane lacks a desktop command, not a pane."""
NO_SUCH_RUNG = "no_such_rung"


def channels_of(agent: Agent, known: Sequence[str] | Mapping[str, object]) -> tuple[str, ...]:
    """The names of the agent's rungs, strongest first: its own key `ladder` in agents.json, else its host's."""
    return tuple(name for name in _wanted(agent) if name in known)


def _wanted(agent: Agent) -> tuple[str, ...]:
    wanted = agent.extra.get("ladder")
    if isinstance(wanted, list):
        return tuple(map(str, wanted))
    return BY_HOST.get(agent.host, OTHERWISE) if isinstance(agent.host, str) else OTHERWISE


def explain(agent: Agent, rungs: Mapping[str, Callable[[], Channel]]) -> tuple[ChannelReport, ...]:
    """Which rungs the agent has, strongest first, and why each could not ring at this moment (None: it could).

    Rings nothing, types nothing. `no_such_rung` is a name in the agent's `ladder` that nobody knows; a rung that breaks
    is `failed_{error}`. A reason may be gone in a second (`draft`, `human_typing`) or need another set-up (`no_hook`,
    `no_pane`); the words in `notify/` beside each `check` say which.
    """
    return tuple(ChannelReport(name, _checked(agent, rungs.get(name))) for name in _wanted(agent))


def _checked(agent: Agent, made: Callable[[], Channel] | None) -> str | None:
    if made is None:
        return NO_SUCH_RUNG
    try:
        return made().check(agent)
    except Exception as error:  # noqa: BLE001 - as in `ChannelChain.ring`: one broken rung must not hide the others
        return f"failed_{type(error).__name__}"


def _says_little(delivery: Delivery) -> int:
    """0 for a reason that tells something; ties are the strongest rung's."""
    return _SAY_LITTLE.index(delivery.reason) + 1 if delivery.reason in _SAY_LITTLE else 0


class ChannelChain:
    """Tries an agent's rungs in order. The first that gets the line across wins; else the first one's reason counts."""

    name = "ladder"

    def __init__(self, rungs: Mapping[str, Callable[[], Channel]]) -> None:
        self._rungs = rungs  # made when needed: importing libtmux costs 70 ms

    def ring(self, agent: Agent, line: str) -> Delivery:
        """Never raises: a doorbell that breaks must not lose the answer of a message that was stored."""
        failed: list[Delivery] = []
        for name in channels_of(agent, self._rungs):
            delivery = self._try(name, agent, line)
            if delivery.state != "stored":
                return delivery
            failed.append(delivery)
        return min(failed, key=_says_little, default=Delivery("stored", "no_doorbell"))

    def explain(self, agent: Agent) -> tuple[ChannelReport, ...]:
        """See the function `explain`."""
        return explain(agent, self._rungs)

    def finish(self, agent: Agent) -> Delivery:
        """Enters a line that the agent's pane was left with; see `Finisher`. Never raises."""
        for name in channels_of(agent, self._rungs) if agent.pane_id is not None else ():
            try:
                rung = self._rungs[name]()
                if isinstance(rung, Finisher):
                    return rung.finish(agent)
            except Exception as error:  # noqa: BLE001 - as in `_try`
                logger.warning("%s could not finish its line: %s: %s", name, type(error).__name__, error)
        return Delivery("stored", LINE_GONE)

    def quiet(self, agent: Agent) -> None:
        """Nothing is unread any more: takes back what a rung has left on show, whichever process that was. Never
        raises."""
        if agent.pane_id is None:
            return
        for name in channels_of(agent, self._rungs):
            try:
                take_back = getattr(self._rungs[name](), "quiet", None)
                if take_back is not None:
                    take_back(agent)
            except Exception as error:  # noqa: BLE001 - as in `_try`
                logger.warning("%s could not be taken back: %s: %s", name, type(error).__name__, error)

    def _try(self, name: str, agent: Agent, line: str) -> Delivery:
        try:
            return self._rungs[name]().ring(agent, line)
        except Exception as error:  # noqa: BLE001 - a rung is a door: whatever breaks in it, the next one is tried
            logger.warning("the doorbell %s failed: %s: %s", name, type(error).__name__, error)
            return Delivery("stored", f"failed_{type(error).__name__}")
