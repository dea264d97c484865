"""`multi-agent-mcp` and `python -m multi_agent_mcp`."""

from __future__ import annotations

import gc
import io
import os
import sys
from typing import NoReturn

from multi_agent_mcp.environment import locale_language, take_passkey


def main() -> None:
    """The command line. What the operating system refuses outside the store (a full disk behind `>`, a reader that has
    gone) is one sentence and exit code 1, too; it says so when the command itself was carried out."""
    gc.set_threshold(100_000)  # a start makes many objects and little garbage; looking for it takes a sixth of the time
    _prepare_streams(serving=sys.argv[1:2] == ["serve"])
    is_done = False
    try:
        try:
            _run(sys.argv[1:], take_passkey())
            is_done = True
        except SystemExit as ending:
            is_done = not ending.code
            raise
        finally:
            if sys.stdout is not None:  # None: it was closed from the start
                sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more at its end
        _end("output_failed" if is_done else "system", error)


def _run(arguments: list[str], passkey: str | None) -> None:
    if arguments[:1] == ["serve"]:
        from multi_agent_mcp.cli import serve  # a host waits for it: no other command is imported

        serve.main(arguments[1:], passkey)
    elif arguments[:1] == ["hook"]:
        from multi_agent_mcp.cli import hook  # a host waits for it at every tool call

        hook.main(arguments[1:])
    else:
        from multi_agent_mcp.cli.main import run

        run()


def _end(key: str, error: OSError | None = None) -> NoReturn:
    from multi_agent_mcp.errors import StorageError  # a hook that has nothing to say does not wait for these
    from multi_agent_mcp.texts import catalogue

    refusal = StorageError(key, reason=error)
    if key == "system" and error is not None and error.filename is not None:
        refusal = StorageError("system_at", path=os.fsdecode(error.filename), reason=error)
    sentence = catalogue(locale_language()).sentence(refusal)
    sys.stderr.write(f"multi-agent-mcp: storage_error: {sentence}\n")
    sys.exit(1)


def _prepare_streams(*, serving: bool) -> None:
    """Makes the standard streams ones that every command can rely on.

    The number of a closed one would go to the next file that is opened, and what is meant for people would end up in
    it; Python has None in its place. Characters that an encoding does not have are replaced, not refused. `serve`
    refuses to start without standard input or output, so it gets nothing in their place.
    """
    if serving and (sys.stdin is None or sys.stdout is None):
        sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        return
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115 - it stays open as long as we run
    is_closed = sys.stdout is None
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if is_closed:
        _end("output_closed")
    if isinstance(sys.stdin, io.TextIOWrapper) and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # refused with a sentence where a text is wanted
        sys.stdout.reconfigure(errors="replace")


if __name__ == "__main__":
    main()
