"""`multi-agent-mcp` and `python -m multi_agent_mcp`."""

from __future__ import annotations

import os
import sys

from multi_agent_mcp.environment import take_passkey


def main() -> None:
    """The command line. What the operating system refuses outside the store (a full disk behind `>`, a reader that has
    gone) is one sentence and exit code 1, too."""
    try:
        try:
            _run(sys.argv[1:], take_passkey())
        finally:
            if sys.stdout is not None:  # None: it was closed from the start
                sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more at its end
        sys.stderr.write(f"multi-agent-mcp: storage_error: {error.strerror or error}\n")
        sys.exit(1)


def _run(arguments: list[str], passkey: str | None) -> None:
    if arguments[:1] == ["serve"]:
        from multi_agent_mcp.cli import serve  # a host waits for it: no other command is imported

        serve.main(arguments[1:], passkey)
    elif arguments[:1] == ["hook"]:
        from multi_agent_mcp.cli import hook  # a host waits for it at every tool call

        hook.main(arguments[1:])
    else:
        from multi_agent_mcp.cli.main import app

        app()


if __name__ == "__main__":
    main()
