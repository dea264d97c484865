"""A program that behaves like a host's composer in the fixtures.

`python -m tests.conformance.composer HOST LOG SEED DIALOGS`, the last how likely a line leads to a dialog.

Raw mode, bracketed paste, a draft, a queue while it works, dialogs that act on any key, a picker, a transcript, an
alternate screen (codex). What is submitted and every key that reaches a view without a composer is written to LOG, one
JSON object a line, before the screen shows it. Both hosts hold a dialog back while somebody types; so does this one.
While LOG.late is there it hears and draws nothing, like a host with much to do: what is pasted is echoed late.
A human ends a draft with C-j, so that the log can tell the human's key from the doorbell's.
"""

from __future__ import annotations

import json
import os
import random
import re
import select
import sys
import termios
import time
import tty
from dataclasses import dataclass, field
from pathlib import Path

from multi_agent_mcp.domain.text import columns
from tests.conformance.views import VIEWS

HOLD_BACK_SECONDS = 1.0  # both hosts: no dialog within a second of the last input
CLOSE = b"\x1b[15~"  # F5: the human answers a dialog, leaves a view
QUIT = b"\x1b[20~"  # F9: the host ends; its pane falls back to a shell
SEQUENCE = re.compile(rb"\x1b(\[[0-9;]*[~A-Za-z]|O[A-Z])")
OURS = re.compile(rb"[\r\t]|\x1b\[200~")  # what only a doorbell sends: the human of this suite never does
PASTE = re.compile(rb"\x1b\[200~(.*?)\x1b\[201~(\r*)", re.DOTALL)
TITLES = {"idle": "✳ work", "busy": "⠐ work"}


@dataclass
class Composer:
    """The state of one host, and its reactions to keys."""

    host: str
    log: str
    chance: random.Random
    dialogs: float
    view: str = ""
    text: str = ""
    at: int = 0
    queue: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    busy_until: float = 0.0
    dialog_at: float = float("inf")
    last_input: float = 0.0
    over: bool = False

    @property
    def busy(self) -> bool:
        return time.monotonic() < self.busy_until

    def write(self, **facts: str) -> None:
        descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, json.dumps(facts, ensure_ascii=False).encode() + b"\n")
        os.close(descriptor)

    def feed(self, data: bytes) -> None:
        """Processes the bytes of one read from the terminal."""
        data, quits, _ = data.partition(QUIT)
        self.over = bool(quits)
        if not data:
            return
        if self.view:
            self._answer(data)
        else:
            self.last_input = time.monotonic()
            self._type(data)

    def _answer(self, data: bytes) -> None:
        """Dialogs act on any key. A paste alone they ignore, as both hosts do
        (docs/hosts.md, Typing into the composer)."""
        if re.fullmatch(PASTE.pattern, data, re.DOTALL) and not data.endswith(b"\r"):
            self.write(event="paste", view=self.view)
            return
        if data != CLOSE:
            self.write(event="key" if OURS.search(data) else "human_key", view=self.view, data=repr(data))
        self.view = ""

    def _type(self, data: bytes) -> None:
        while data:
            if (pasted := PASTE.match(data)) is not None:
                # keys in the same read as a paste become part of it
                self._insert(pasted[1].decode(errors="replace") + "\n" * len(pasted[2]))
                data = data[pasted.end() :]
            elif (other := SEQUENCE.match(data)) is not None:
                data = data[other.end() :]
            elif len(data) > 1 and data[:1] not in b"\x01\x15\n\x1b":
                self._insert(data[:1].decode("latin-1").replace("\r", "\n"))
                data = data[1:]
            else:
                self._key(data[:1])
                data = data[1:]

    def _insert(self, text: str) -> None:
        self.text = self.text[: self.at] + text + self.text[self.at :]
        self.at += len(text)

    def _key(self, key: bytes) -> None:
        if key == b"\x01":
            self.at = 0
        elif key == b"\x15":
            self.text, self.at = "", 0
        elif key == b"\n":
            self._submit("human")
        elif key == b"\r":
            if self.host == "codex" and self.busy:
                self.write(event="interrupt", text=self.text)
            self._submit("key")
        elif key == b"\t":
            if self.host == "codex":
                self._submit("key")
        elif key >= b" ":
            self._insert(key.decode("latin-1"))

    def _submit(self, by: str) -> None:
        text = self.text
        self.text, self.at = "", 0
        if not text:
            return
        if by == "human" and text in ("/model", "/transcript"):
            self.view = {"/model": "picker", "/transcript": "transcript"}[text]
            return
        self.write(event="line", by=by, text=text)
        if self.busy:
            self.queue.append(text)
            return
        self._work(text)

    def _work(self, text: str) -> None:
        now = time.monotonic()
        self.history = [*self.history, text][-4:]
        self.busy_until = now + self.chance.choice((0.0, 0.1, 0.3, 0.8))
        if self.chance.random() < self.dialogs:  # the tool it runs will need a permission
            self.busy_until = now + 3.0
            self.dialog_at = now + self.chance.uniform(0.0, 0.5)

    def tick(self) -> None:
        """Advances dialogs, queued lines and work with the time, without a key."""
        now = time.monotonic()
        if not self.view and now >= self.dialog_at and now - self.last_input >= HOLD_BACK_SECONDS:
            self.view, self.dialog_at = "dialog", now + self.chance.uniform(0.2, 0.5)
        elif self.view == "dialog" and now >= self.dialog_at:  # a hook has answered it
            self.view, self.dialog_at, self.busy_until = "", float("inf"), now + 0.1
        if not self.busy and self.queue:
            self.history = [*self.history, *self.queue][-4:]
            self.queue.clear()

    def screen(self, width: int) -> bytes:
        """The whole screen, drawn again."""
        spins = "busy" if self.busy and self.view != "dialog" else "idle"
        title = TITLES[spins] if self.host == "claude" or spins == "busy" else "work"
        if self.view == "dialog" and self.host == "codex":
            title = "[ ! ] Action Required | work"
        body, row, column = self._covered() if self.view else self._open(width)
        shown = "\r\n".join(f"{line}\x1b[K" for line in body)
        flag = "h" if self.host == "codex" and not self.view else "l"
        return f"\x1b[?25l\x1b]2;{title}\x07\x1b[H{shown}\x1b[J\x1b[{row + 1};{column + 1}H\x1b[?25{flag}".encode()

    def _covered(self) -> tuple[list[str], int, int]:
        rule = ["─" * 24] if self.host == "claude" and self.view != "transcript" else []
        body = [*self._past(), *rule, *VIEWS[self.view][self.host].split("\n")]
        return body, len(body) - 4, 1

    def _past(self) -> list[str]:
        mark = "❯" if self.host == "claude" else "›"
        return [row for text in self.history for row in (f"{mark} {cut(text)}", "", f"● OK {cut(text)}", "")]

    def _open(self, width: int) -> tuple[list[str], int, int]:
        past = [*self._past(), *self._working()]
        rows = wrapped(self.text, width - 4)
        prompt = {"claude": "❯\u00a0", "codex": "› "}[self.host]
        if self.host == "claude" and self.text.startswith("!"):
            prompt, rows = "! ", [rows[0][1:], *rows[1:]]
        hint = "Ask Codex to do anything" if self.host == "codex" else ""
        if self.host == "claude" and self.queue:
            hint = "Press up to edit queued messages"
        first = f"{prompt}{rows[0]}" if self.text else f"{prompt}\x1b[2m{hint}\x1b[0m"
        drawn = [first, *(f"  {row}" for row in rows[1:])]
        before = wrapped(self.text[: self.at], width - 4)
        around = (["─" * (width - 1)], ["─" * (width - 1), "  ? for shortcuts"])
        if self.host == "codex":
            around = (["", ""], ["", "  gpt-5 default · /home/dev/proj", "  ? for shortcuts"])
        body = [*past, *around[0], *drawn, *around[1]]
        row = len(past) + len(around[0]) + len(before) - 1
        return body, row, 2 + columns(before[-1])

    def _working(self) -> list[str]:
        if not self.busy:
            return []
        if self.host == "codex":
            return ["• Working (2s • esc to interrupt)", *(f"  ↳ {cut(text)}" for text in self.queue)]
        return ["✶ Sublimating… (esc to interrupt)", *(f"  ❯ {cut(text)}" for text in self.queue)]


def cut(text: str) -> str:
    """The beginning of the text that fits into one row of the narrowest pane."""
    return wrapped(text, 28)[0]


def wrapped(text: str, width: int) -> list[str]:
    """The rows of a text, broken anywhere."""
    rows = [""]
    for letter in text:
        if letter == "\n" or columns(rows[-1] + letter) > width:
            rows.append("")
        if letter != "\n":
            rows[-1] += letter
    return rows


def main(host: str, log: str, seed: str, dialogs: str) -> None:
    """Runs until it is told to quit."""
    composer = Composer(host, log, random.Random(seed), float(dialogs))  # noqa: S311 - a simulation
    before = termios.tcgetattr(0)
    tty.setraw(0)
    out = b"\x1b[?1049h" if host == "codex" else b""
    os.write(1, out + b"\x1b[?2004h\x1b[H\x1b[2J")
    drawn, late = b"", Path(f"{log}.late")
    try:
        while not composer.over:
            while late.exists():
                time.sleep(0.02)
            frame = composer.screen(os.get_terminal_size(1).columns)
            if frame != drawn:
                os.write(1, frame)
                drawn = frame
            if select.select([0], [], [], 0.04)[0]:
                data = os.read(0, 1 << 16)
                while b"\x1b[200~" in data and b"\x1b[201~" not in data:
                    data += os.read(0, 1 << 16)
                if not data:
                    return
                composer.feed(data)
            else:
                composer.tick()  # only when no key waits: what was typed is heard first
    finally:
        os.write(1, b"\x1b[?2004l\x1b[?1049l\x1b[?25h\x1b[H\x1b[2J")
        termios.tcsetattr(0, termios.TCSADRAIN, before)


if __name__ == "__main__":
    main(*sys.argv[1:5])
