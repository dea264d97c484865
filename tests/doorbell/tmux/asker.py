"""A program that asks questions like Claude Code, which may change while they are being answered.

`python SCRIPT tests.doorbell.tmux.asker LOG` (`stand_in`). SIGUSR1 changes one row of the question: a blank one, or one
that occurs twice. All its rows are also printed above it, as an agent may do. A digit answers, and the next question
follows; while LOG.works exists, only after the program `sudo` beside it has read the terminal for half a second; while
LOG.late exists, input is not read, as LOG says, and while LOG.rests exists, the host is at rest after an answer and
SIGUSR1 asks the same question again. While LOG.strange exists, its choices have no numbers, words that no profile knows
stand below them, and Enter answers. LOG gets every question drawn and every key, with the question that the terminal is
known to show: after each drawing the terminal is asked for the cursor's position, and input before its reply was sent
when it had not shown that drawing yet (`crossed`).
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import tty
from pathlib import Path

from tests.programs import stand_in

ROWS = (("touch a", "", "touch b"), ("touch a", "rm -rf /", "touch b"), ("touch a", "touch b", "touch b"))
"""The rows of the question, by variant: the second row is blank, different, or equal to another row."""
REPLY = re.compile(rb"\x1b\[[0-9]+;[0-9]+R")
RULE = "─" * 90


class Asker:
    """The question by its number and its variant; `known` is how many drawings the terminal has confirmed."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.number = 0
        self.variant = 0
        self.drawn = 0
        self.known = 0
        self.rests = False

    def write(self, **facts: object) -> None:
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")

    def draw(self) -> None:
        rows = [f"   {row}" for row in ROWS[self.variant]]
        question = [f" Bash command {self.number}", "", *rows, "", " Do you want to proceed?"]
        choices = [" ❯ 1. Yes", "   2. Yes, and don't ask again", "   3. No", "", " Esc to cancel · Tab to amend"]
        if self.is_strange():
            choices = [" ❯ Never", "   Perhaps", "", " Use ↑↓ as you like, Esc to cancel"]
        copy = [f"   {row}" for variant in ROWS for row in variant] + ["", " Do you want to proceed?", "   3. No"]
        self.drawn += 1
        self.write(event="drawn", drawn=self.drawn, number=self.number, variant=self.variant)
        text = "\r\n".join([*copy, RULE, *question, *choices])
        sys.stdout.write(f"\x1b[H\x1b[2J{text}\x1b[6n")
        sys.stdout.flush()

    def is_strange(self) -> bool:
        return Path(f"{self.log}.strange").exists()

    def change(self) -> None:
        self.variant = self.variant if self.rests else (self.variant + 1) % len(ROWS)
        self.rests = False
        self.draw()

    def rest(self) -> None:
        self.rests = True
        sys.stdout.write(f"\x1b[H\x1b[2J{RULE}\r\n❯ \r\n{RULE}\x1b[2;3H")
        sys.stdout.flush()

    def feed(self, data: bytes) -> None:
        for part in re.findall(rb"\x1b\[[0-9;]*[A-Za-z]|.", data, re.DOTALL):
            if REPLY.fullmatch(part):
                self.known += 1
                continue
            self.write(event="key", key=part.decode("latin-1"), drawn=self.drawn, crossed=self.known < self.drawn)
            if part.isdigit() and Path(f"{self.log}.rests").exists():
                self.rest()
            elif part.isdigit() or (part == b"\r" and self.is_strange()):
                if Path(f"{self.log}.works").exists():
                    subprocess.run(["sudo", "0.5"], executable=self.log.parent / "sudo", check=True)
                self.number += 1
                self.draw()


def asker_command(log: Path) -> str:
    """The command for tmux that starts the program as a host with a profile."""
    return f"exec {sys.executable} {stand_in(log.parent, 'claude')} tests.doorbell.tmux.asker {log}"


def main() -> None:
    log = Path(sys.argv[1])
    asker, (wake, signalled) = Asker(log), os.pipe()
    os.set_blocking(signalled, False)
    signal.set_wakeup_fd(signalled)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    tty.setraw(0)
    asker.draw()
    is_late = False
    while True:
        was_late, is_late = is_late, Path(f"{log}.late").exists()
        if is_late and not was_late:
            asker.write(event="late")
        ready, _, _ = select.select([wake] if is_late else [wake, 0], [], [], 0.05)
        if wake in ready:
            os.read(wake, 1)
            asker.change()
        if 0 in ready:
            asker.feed(os.read(0, 1 << 12))


if __name__ == "__main__":
    main()
