"""A program without a profile: it asks for permission to do something, and takes Enter for yes.

`python -m tests.conformance.dialog LOG`. Every byte that reaches it is written to LOG.
"""

from __future__ import annotations

import os
import sys
import tty
from pathlib import Path

SCREEN = "\x1b[?2004h\x1b[H\x1b[2J Do you trust the files in this folder?\r\n\r\n ● 1. Trust folder\r\n   2. No\r\n"


def main(log: str) -> None:
    tty.setraw(0)
    os.write(1, SCREEN.encode())
    while data := os.read(0, 1 << 16):
        with Path(log).open("ab") as file:
            file.write(data)


if __name__ == "__main__":
    main(sys.argv[1])
