"""`multi-agent-mcp` and `python -m multi_agent_mcp`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """The command line. What the operating system refuses outside the store (a full disk behind `>`, a reader that has
    gone) is one sentence and exit code 1, too."""
    from multi_agent_mcp.cli.main import app

    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more at its end
        sys.stderr.write(f"multi-agent-mcp: storage_error: {error.strerror or error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
