"""libtmux's objects over calls that end."""

from __future__ import annotations

import os
import signal

from multi_agent_mcp.doorbell.tmux.client import Server
from tests.end_to_end.support import Terminal


def test_a_server_that_does_not_answer_is_waited_for_no_longer_than_a_call_may_take(terminal: Terminal) -> None:
    pane, pid = terminal.pane("echo left behind; exec cat"), int(terminal("display-message", "-p", "#{pid}"))
    server = Server(terminal.socket)
    assert "left behind" in server.pane(pane.id).capture_pane()
    os.kill(pid, signal.SIGSTOP)
    try:
        assert server.cmd("list-sessions").returncode == 124
        assert server.pane(pane.id).capture_pane() == []
    finally:
        os.kill(pid, signal.SIGCONT)
    assert server.is_alive()
