"""The ladder: the first rung that gets the line across wins; none of them ever raises."""

from __future__ import annotations

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.notify.base import Notifier
from multi_agent_mcp.notify.ladder import Ladder
from multi_agent_mcp.notify.recorder import Recorder

AGENT = Agent(id="worker-a")


class Broken:
    """A rung that breaks."""

    name = "broken"

    def ring(self, agent: Agent, line: str) -> Delivery:
        raise OSError(f"no such device for {agent.id}: {line}")


def ring(*rungs: Notifier) -> Delivery:
    return Ladder([lambda rung=rung: rung for rung in rungs]).ring(AGENT, "[IPC] x")  # type: ignore[misc]


def refusing(reason: str) -> Recorder:
    return Recorder(Delivery("stored", reason))


def test_the_first_rung_that_gets_across_wins_and_the_next_is_not_tried() -> None:
    first, second = Recorder(Delivery("rung", "not_submitted")), Recorder()
    assert ring(first, second) == Delivery("rung", "not_submitted")
    assert (len(first.rings), len(second.rings)) == (1, 0)


def test_a_rung_that_cannot_be_used_gives_way_to_the_next() -> None:
    assert ring(refusing("copy_mode"), Recorder(Delivery("rung", "desktop"))) == Delivery("rung", "desktop")


def test_a_rung_that_breaks_gives_way_to_the_next() -> None:
    assert ring(Broken(), Recorder()) == Delivery("submitted")
    assert ring(Broken()) == Delivery("stored", "failed_OSError")


def test_the_most_telling_reason_is_given() -> None:
    assert ring(refusing("no_pane"), refusing("desktop_failed")).reason == "desktop_failed"
    assert ring(refusing("copy_mode"), refusing("no_desktop")).reason == "copy_mode"
    assert ring(refusing("no_pane"), refusing("no_desktop")).reason == "no_pane"


def test_without_rungs_there_is_no_doorbell() -> None:
    assert ring() == Delivery("stored", "no_doorbell")


def test_a_rung_that_cannot_even_be_made_gives_way() -> None:
    def unmade() -> Notifier:
        raise ImportError("libtmux")

    assert Ladder([unmade, Recorder]).ring(AGENT, "x") == Delivery("submitted")
