"""A program with a composer that no profile describes: a box, a placeholder, a spinner above it, a footer.

`python -m tests.conformance.unknown_tui LOG`. Enter enters the text and it works until F5; F6 asks something, which
any key answers; C-u clears. What is entered, and every key that answers a question, is written to LOG.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
import time
import tty
from pathlib import Path

from multi_agent_mcp.domain.text import columns
from tests.conformance.composer import wrapped

PASTE = re.compile(rb"\x1b\[20[01]~")
WIDTH = 56
SPINNER = "◐◓◑◒"
QUESTION = ["  Delete the whole directory?", "", "  > [y] Yes", "    [n] No", "", "  press a key to choose"]


class UnknownTui:
    def __init__(self, log: Path) -> None:
        self.log = log
        self.text = ""
        self.past: list[str] = []
        self.state = "idle"

    def write(self, **facts: str) -> None:
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts, ensure_ascii=False) + "\n")

    def feed(self, data: bytes) -> None:
        if data in (b"\x1b[15~", b"\x1b[17~"):
            self.state = {b"\x1b[15~": "idle", b"\x1b[17~": "question"}[data]
        elif self.state == "question":
            self.write(answer=repr(data))
            self.state = "idle"
        else:
            for letter in PASTE.sub(b"", data).decode(errors="replace"):
                self._key(letter)

    def _key(self, letter: str) -> None:
        if letter == "\x15":
            self.text = ""
        elif letter != "\r":
            self.text += letter
        elif self.text:
            self.write(line=self.text)
            self.past, self.text, self.state = [*self.past, self.text][-3:], "", "busy"

    def screen(self) -> str:
        rows = [row for line in self.past for row in (f"you: {wrapped(line, WIDTH - 8)[0]}", "")]
        if self.state == "question":
            return self._drawn([*rows, *QUESTION], len(rows) + 2, 4)
        if self.state == "busy":
            rows += [f"{SPINNER[int(time.monotonic() * 10) % 4]} Pondering for {int(time.monotonic()) % 60}s", ""]
        inner = WIDTH - 5
        cut = wrapped(self.text, inner - 1)
        shown = cut if self.text else ["Say something"]
        sides = [
            f"│ {' ' if number else '»'} {part}{' ' * (inner - columns(part))}│" for number, part in enumerate(shown)
        ]
        box = [f"╭{'─' * (WIDTH - 2)}╮", *sides, f"╰{'─' * (WIDTH - 2)}╯"]
        return self._drawn([*rows, *box, "  model-9 · 87% left"], len(rows) + len(cut), 4 + columns(cut[-1]))

    def _drawn(self, rows: list[str], row: int, column: int) -> str:
        shown = "\r\n".join(f"{line}\x1b[K" for line in rows)
        return f"\x1b[H{shown}\x1b[J\x1b[{row + 1};{column + 1}H"


def main(log: str) -> None:
    tui, drawn = UnknownTui(Path(log)), ""
    tty.setraw(0)
    os.write(1, b"\x1b[?2004h\x1b[2J")
    while True:
        if (frame := tui.screen()) != drawn:
            os.write(1, frame.encode())
            drawn = frame
        if select.select([0], [], [], 0.05)[0]:
            if not (data := os.read(0, 1 << 16)):
                return
            tui.feed(data)


if __name__ == "__main__":
    main(sys.argv[1])
