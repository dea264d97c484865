"""The entry point of `multi-agent-mcp` and `python -m multi_agent_mcp`."""

from __future__ import annotations

import gc
import io
import os
import sys

from multi_agent_mcp.environment import leave_out_the_project, locale_language, take_passkey

TYPE_CHECKING = False  # a silent hook cannot wait for `typing`
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> None:
    """Runs the command line. An `OSError` outside the store (a full disk behind `>`, a reader that has gone) gives one
    sentence, too, which says if the command itself was carried out, and exit code 1."""
    leave_out_the_project()
    gc.set_threshold(100_000)  # start-up makes many objects and little garbage; collecting takes a sixth of its time
    _prepare_streams("".join(sys.argv[1:2]))
    is_done = False
    try:
        try:
            _run(sys.argv[1:], take_passkey())
            is_done = True
        except SystemExit as ending:
            is_done = not ending.code
            raise
        finally:
            if sys.stdout is not None:  # None if it was closed from the start
                sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it again at its end
        _end("output_failed" if is_done else "system", error)


def _run(arguments: list[str], passkey: str | None) -> None:
    if arguments[:1] == ["serve"]:
        from multi_agent_mcp.cli.for_hosts import serve  # a host waits for it: no other command is imported

        serve.main(arguments[1:], passkey)
    elif arguments[:1] == ["hook"]:
        from multi_agent_mcp.cli.for_hosts import hook  # a host waits for it at every tool call

        hook.main(arguments[1:])
    else:
        from multi_agent_mcp.cli.main import run

        run()


def _end(key: str, error: OSError | None = None) -> NoReturn:
    from multi_agent_mcp.errors import StorageError, system_error  # here: a hook that announces nothing need not wait
    from multi_agent_mcp.texts import catalogue

    refusal = system_error(error) if key == "system" and error is not None else StorageError(key, reason=error)
    sentence = catalogue(locale_language()).sentence(refusal)
    try:
        sys.stderr.write(f"multi-agent-mcp: storage_error: {sentence}\n")
        sys.stderr.flush()
    except OSError:  # on the full disk, too: nothing can be said, and the interpreter would exit with 120
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    sys.exit(1)


def _prepare_streams(command: str) -> None:
    """Replaces closed standard streams, so that this command can use them.

    The descriptor of a closed stream, which is None in Python, would be reused by the next opened file, and output for
    people would end up there. Characters that an encoding lacks are replaced, not refused. `serve` refuses to start
    without standard input or output, so they are not replaced for it. Others do nothing if nobody can read what they
    say, except `hook`: it never fails, and does more than to answer.
    """
    if command == "serve" and (sys.stdin is None or sys.stdout is None):
        sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        return
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115 - it stays open until the end
    is_in_vain = sys.stdout is None and command != "hook"
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if is_in_vain:
        _end("output_closed")
    if isinstance(sys.stdin, io.TextIOWrapper) and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # validation refuses them later, with a sentence
        sys.stdout.reconfigure(errors="replace")


if __name__ == "__main__":
    main()
