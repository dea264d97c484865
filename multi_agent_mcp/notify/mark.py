"""What a pane remembers of the last line of ours, whoever pasted it: a tmux option of the pane, set in the same command
as the paste and as the key. A host with much to do shows nothing of either for a while; its screen alone would invite a
second paste, or a second key, which it would then take in one gulp with the first (PANES.md row 1)."""

from __future__ import annotations

import time
from dataclasses import dataclass

OPTION = "@ipc_line"
ECHO_SECONDS = 10.0
"""How long a host may take to show what was pasted. Meanwhile an empty composer proves nothing."""
KEY_SECONDS = 10.0
"""How long a host may take to act on a key. Meanwhile a line that stands there proves nothing."""


@dataclass(frozen=True)
class LineMark:
    """The line's tag, the process it was pasted to, when that or its last key was, and how many keys there were."""

    tag: str
    pane_pid: int
    at: int
    keys: int = 0

    @classmethod
    def parse(cls, text: str) -> LineMark | None:
        """None for an option that is not set, or not by us."""
        tag, *numbers = text.split(":")
        if len(numbers) != 3 or not all(number.isdigit() for number in numbers):
            return None
        return cls(tag, *map(int, numbers))

    def __str__(self) -> str:
        return f"{self.tag}:{self.pane_pid}:{self.at}:{self.keys}"

    def younger_than(self, seconds: float) -> bool:
        """False also after the clock was set back."""
        return 0 <= time.time() - self.at < seconds
