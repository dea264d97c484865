"""A program that shows captured screens of hosts and writes down every byte that it is sent.

`python SCRIPT tests.conformance.shown PIPE LOG` (`tests.programs.stand_in`). Each line from PIPE is the path of a
captured screen, without its suffix, to be shown with its cursor and its title.
"""

from __future__ import annotations

import os
import select
import sys
import tty
from pathlib import Path

from tests.doorbell.tmux.test_screens import facts_of


def drawn(path: Path) -> bytes:
    """The sequences that show the screen. Right of the cursor may be a placeholder, which hosts show faint."""
    facts = facts_of(path)
    x, y = int(facts["x"]), int(facts["y"])
    rows = path.with_name(f"{path.name}.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
    rows[y:] = [f"{rows[y][:x]}\x1b[2m{rows[y][x:]}\x1b[0m", *rows[y + 1 :]] if y < len(rows) else []
    cursor = f"\x1b[{y + 1};{x + 1}H\x1b[?25{'h' if facts['flag'] == '1' else 'l'}"
    shown = "\r\n".join(rows)
    return f"\x1b]2;{facts['title']}\x07\x1b[H\x1b[2J{shown}{cursor}".encode()


def main() -> None:
    pipe, log = os.open(sys.argv[1], os.O_RDWR), Path(sys.argv[2])
    tty.setraw(0)
    os.write(1, b"\x1b[?2004h")
    while True:
        ready, _, _ = select.select([0, pipe], [], [])
        if pipe in ready:
            os.write(1, drawn(Path(os.read(pipe, 1 << 12).decode().strip())))
        if 0 in ready:
            if not (data := os.read(0, 1 << 12)):
                return
            with log.open("ab") as file:
                file.write(data)


if __name__ == "__main__":
    main()
