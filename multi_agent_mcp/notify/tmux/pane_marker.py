"""What a pane remembers of the last line of ours, whoever pasted it: a tmux option of the pane, set in the same command
as the paste and as the key. A host with much to do shows nothing of either for a while; its screen alone would invite a
second paste, or a second key, which it would then take in one gulp with the first
(docs/protocol.md, Typing into a pane, Slow hosts)."""

from __future__ import annotations

import time
from dataclasses import dataclass

from multi_agent_mcp.notify.tmux.values import number

OPTION = "@ipc_line"
ECHO_SECONDS = 10.0
"""How long a host may take to show what was pasted. Meanwhile an empty composer proves nothing."""
KEY_SECONDS = 10.0
"""How long a host may take to act on a key. Meanwhile a line that stands there proves nothing."""


@dataclass(frozen=True)
class LineMark:
    """The line's tag, the process it was pasted to, when that or its last key was, and how many keys there were. The
    time is the machine's since its start: other processes read the same one, and setting the clock does not move it."""

    tag: str
    pane_pid: int
    at: int
    keys: int = 0

    @classmethod
    def parse(cls, text: str) -> LineMark | None:
        """None for an option that is not set, or not by us."""
        tag, *values = text.split(":")
        pane_pid, at, keys = map(number, values) if len(values) == 3 else (None, None, None)
        if pane_pid is None or at is None or keys is None:
            return None
        return cls(tag, pane_pid, at, keys)

    def __str__(self) -> str:
        return f"{self.tag}:{self.pane_pid}:{self.at}:{self.keys}"

    def younger_than(self, seconds: float) -> bool:
        return 0 <= machine_time() - self.at < seconds


def machine_time() -> int:
    """Whole seconds since the machine's start."""
    return int(time.monotonic())
