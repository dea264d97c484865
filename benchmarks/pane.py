"""A real tmux server on its own socket with one idle pane, and the lines that become visible in it."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path


class Pane:
    """Runs `cat`: its terminal shows what is typed at once, and the line again when it is entered. Use as a context
    manager. The directory is a short one, because a socket's path may have no more than 107 characters."""

    def __enter__(self) -> Pane:
        self.directory = Path(tempfile.mkdtemp(prefix="mam-"))
        self.socket = str(self.directory / "s")
        try:
            self.id = self.tmux("new-session", "-d", "-P", "-F", "#{pane_id}", "-x", "120", "-y", "40", "exec cat")
            shown = self.directory / "shown"
            os.mkfifo(shown)
            self._shown = os.open(shown, os.O_RDWR | os.O_NONBLOCK)
            self.tmux("pipe-pane", "-O", "-t", self.id, f"exec cat > '{shown}'")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], capture_output=True, check=False)
        shutil.rmtree(self.directory, ignore_errors=True)

    def tmux(self, *arguments: str) -> str:
        """One call of tmux; its output without the last newline."""
        call = ["tmux", "-f", os.devnull, "-S", self.socket, *arguments]
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout.rstrip("\n")

    def forget(self) -> None:
        """Discards the lines that are visible so far."""
        while select.select([self._shown], [], [], 0)[0]:
            os.read(self._shown, 1 << 16)

    def visible_at(self, text: bytes, within: float = 10.0) -> float:
        """The moment (`time.perf_counter`) at which the pane showed this text; raises TimeoutError."""
        seen, end = b"", time.perf_counter() + within
        while text not in seen:
            if not select.select([self._shown], [], [], max(0.0, end - time.perf_counter()))[0]:
                raise TimeoutError(f"the pane did not show {text!r} within {within} s")
            seen += os.read(self._shown, 1 << 16)
        return time.perf_counter()
