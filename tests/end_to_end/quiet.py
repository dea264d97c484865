"""An environment without access to the desktop, the home and the tmux of the user who runs the tests."""

from __future__ import annotations

import os
from pathlib import Path

REFUSING = "#!/bin/sh\nexit 1\n"


def quiet_environment(base: Path) -> dict[str, str]:
    """Its home is below `base`; `osascript` and `notify-send` are there and refuse. Nothing writes what it compiles: a
    process that is killed, or may write no large files, would leave half a module, which breaks the program."""
    home, silent = base / "home", base / "silent"
    home.mkdir()
    silent.mkdir()
    for name in ("osascript", "notify-send"):
        (silent / name).write_text(REFUSING, encoding="ascii")
        (silent / name).chmod(0o755)
    return {
        **{name: os.environ[name] for name in ("PYTHONPATH", "MULTI_AGENT_MCP_CHECK_LOCKS") if name in os.environ},
        "HOME": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": f"{silent}:{os.environ['PATH']}",
        "SHELL": "/bin/sh",
        "TERM": "xterm-256color",
        "TMUX_TMPDIR": str(home),
    }
