"""A human who types, changes their mind, opens pickers, scrolls, resizes, moves, kills and restarts panes."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

from tests.conformance.composer import CLOSE, QUIT
from tests.conformance.stage import Seat, Stage


class Human(threading.Thread):
    """A human at one pane. Keys go through the attached client, as a human's do, so that tmux registers the
    activity."""

    def __init__(self, stage: Stage, seat: Seat, seed: int, calm: float) -> None:
        super().__init__(daemon=True)
        self.stage, self.seat, self.calm = stage, seat, calm
        self.chance = random.Random(seed)  # noqa: S311 - a simulation
        self.interrupting = threading.Event()
        self.acts = 0

    def run(self) -> None:
        acts: list[tuple[int, Callable[[], None]]] = [
            (8, self.draft), (4, self.home), (3, self.picker), (2, self.transcript), (2, self.bash_mode),
            (4, self.scroll), (2, self.resize), (2, self.swap), (3, self.much_to_do), (1, self.respawn),
            (1, self.kill), (1, self.quit_host),
        ]  # fmt: skip
        while not self.interrupting.wait(self.chance.uniform(0.5, 1.5) * self.calm):
            self.chance.choices([act for _, act in acts], [weight for weight, _ in acts])[0]()
            self.acts += 1

    def draft(self) -> None:
        """Types half a sentence, then deletes or sends it."""
        for letter in self.chance.choices("hjkq ", k=self.chance.randint(1, 8)):
            self.keys(letter.encode())
            self.pause(0.02, 0.15)
        self.pause(0.1, 1.5)
        self.keys(self.chance.choice((b"\x15", b"\x15", b"\n")))

    def home(self) -> None:
        """A draft with the cursor at its beginning: where it is in an empty composer."""
        self.keys(b"jkh")
        self.pause(0.05, 0.1)
        self.keys(b"\x01")
        self.pause(1.0, 2.5)
        self.keys(b"\x15")

    def picker(self) -> None:
        self.view(b"/model")

    def transcript(self) -> None:
        self.view(b"/transcript")

    def view(self, command: bytes) -> None:
        self.keys(b"\x15")
        self.keys(command)
        self.pause(0.05, 0.3)
        self.keys(b"\n")
        self.pause(0.3, 2.5)
        self.keys(CLOSE)

    def bash_mode(self) -> None:
        self.keys(b"!h")
        self.pause(0.5, 2.0)
        self.keys(b"\x15")

    def scroll(self) -> None:
        self.tmux("copy-mode", "-t", self.seat.pane_id)
        self.pause(0.2, 1.5)
        self.tmux("send-keys", "-t", self.seat.pane_id, "-X", "cancel")

    def resize(self) -> None:
        width = self.chance.choice(("38", "60", "100"))
        self.tmux("resize-window", "-t", self.seat.pane_id, "-x", width)

    def swap(self) -> None:
        """The pane moves into the spare window, and back."""
        self.tmux("swap-pane", "-d", "-s", self.seat.pane_id, "-t", "spare:")
        self.pause(0.1, 0.5)
        self.tmux("swap-pane", "-d", "-s", self.seat.pane_id, "-t", f"{self.seat.agent_id}:")

    def much_to_do(self) -> None:
        """The host has so much to do that it hears and shows nothing for a while."""
        late = Path(f"{self.seat.log}.late")
        late.touch()
        self.pause(0.3, 2.5)
        late.unlink()

    def respawn(self) -> None:
        self.tmux("respawn-pane", "-k", "-t", self.seat.pane_id, self.stage.command(self.seat.host, self.seat.log))
        self.pause(0.2, 0.6)
        self.stage.register(self.seat.agent_id, self.seat.pane_id)

    def kill(self) -> None:
        """The pane is gone; another one takes its place after a while."""
        before = self.seat.pane_id
        made = self.tmux(
            "new-window", "-d", "-t", f"{self.seat.agent_id}:", "-P", "-F", "#{pane_id}",
            self.stage.command(self.seat.host, self.seat.log),
        )  # fmt: skip
        if not made:
            return
        self.tmux("kill-pane", "-t", before)
        self.pause(0.2, 0.6)
        self.seat.pane_id = made
        self.stage.register(self.seat.agent_id, self.seat.pane_id)

    def quit_host(self) -> None:
        """The host ends: its pane is a shell for a moment."""
        self.keys(QUIT)
        self.pause(0.5, 1.0)

    def pause(self, least: float, most: float) -> None:
        self.interrupting.wait(self.chance.uniform(least, most))

    def keys(self, data: bytes) -> None:
        os.write(self.seat.keyboard, data)

    def tmux(self, *arguments: str) -> str:
        return self.stage.tmux(*arguments, check=False)
