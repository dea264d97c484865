"""tmux as libtmux's objects, each call bounded in time. For what happens seldom: what an ended program has left in its
pane, the stage of the demos. Looking and typing, which happen all the time, have calls of their own
(docs/architecture.md, Packages)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import libtmux
from libtmux.common import tmux_cmd

from multi_agent_mcp.doorbell.tmux.client import Answer, Tmux


class Bounded(tmux_cmd):
    """The result of a call, in libtmux's form."""

    def __init__(self, words: list[str], answer: Answer) -> None:  # not the base class's: that one waits for ever
        self.cmd = words
        self.returncode, self.stdout, self.stderr = answer


class Server(libtmux.Server):
    """A tmux server. No call takes longer than two seconds, whatever the server does: one that gets no answer has the
    exit code 124, as timeout(1) gives."""

    def __init__(self, socket_path: str | Path, config_file: str | None = None) -> None:
        super().__init__(socket_path=str(socket_path), config_file=config_file)

    def cmd(self, cmd: str, *args: Any, target: str | int | None = None) -> tmux_cmd:
        words = [cmd, *([] if target is None else ["-t", str(target)]), *map(str, args)]
        return Bounded(words, Tmux(str(self.socket_path), self.config_file).cmd(*words))

    def pane(self, pane_id: str) -> libtmux.Pane:
        """Returns the pane with this id, without asking for anything about it."""
        return libtmux.Pane(server=self, pane_id=pane_id)
