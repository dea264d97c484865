"""The tmux session option for a status line."""

from __future__ import annotations

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.doorbell.channels import OPTION, ChannelChain, StatusLine
from tests.conformance.stage import Stage

pytestmark = pytest.mark.tmux


def test_the_option_counts_each_agents_unread_mail_until_it_is_read(stage: Stage) -> None:
    pane = stage.tmux("display-message", "-p", "-t", "spare:", "#{pane_id}")
    unread = {"a": 3, "b": 1}
    status = StatusLine(lambda agent_id: unread[agent_id])
    ladder = ChannelChain({"status_line": lambda: status})
    agents = [Agent(id=name, pane_id=pane, socket_path=stage.socket) for name in unread]
    assert [status.check(agents[0]), status.check(Agent(id="c"))] == [None, "no_pane"]
    for agent in agents:
        assert ladder.ring(agent, "line") == Delivery("stored", "status_line")
    assert stage.tmux("display-message", "-p", "-t", pane, f"#{{{OPTION}}}") == "a:3 b:1"
    unread["a"] = 0
    ChannelChain({"status_line": lambda: StatusLine(unread.__getitem__)}).clear(agents[0])  # as another process would
    assert stage.tmux("display-message", "-p", "-t", pane, f"#{{{OPTION}}}") == "b:1"
