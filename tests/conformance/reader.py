"""Reads the logs of the programs in the panes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any


class Log:
    """One pane's log, which is read incrementally."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self.events: list[dict[str, Any]] = []

    def read(self) -> list[dict[str, Any]]:
        """Reads the rest of the log; returns all events so far."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._offset += len(whole)
            self.events += [json.loads(line) for line in whole.splitlines()]
        return self.events

    def holds(self, line: str) -> bool:
        """Whether the host was given this line, whichever process sent the key."""
        return any(event["event"] == "line" and f"{line} #" in event["text"] for event in self.read())


def submitted(events: list[dict[str, Any]]) -> list[str]:
    """The lines that the doorbell's key submitted."""
    return [event["text"] for event in events if event["event"] == "line" and event["by"] == "key"]


def counted(lines: list[str]) -> Counter[str]:
    """The number of occurrences of each line, without its tag."""
    return Counter(line.rpartition(" #")[0] for line in lines)
