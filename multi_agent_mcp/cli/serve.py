"""`serve`: the stdio MCP server of one agent.

A host waits for it, some only a second (docs/protocol.md, Host life cycle). So it reads its few options without
click, whose import and that of the other commands would take a tenth of that.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import select
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from multi_agent_mcp.domain.agent import PURPOSES
from multi_agent_mcp.domain.sanitize import sanitize
from multi_agent_mcp.environment import locale_language
from multi_agent_mcp.errors import InvalidArguments, Refusal
from multi_agent_mcp.services.validation import require_choice
from multi_agent_mcp.texts import LANGUAGES, Texts, catalogue

if TYPE_CHECKING:
    from multi_agent_mcp.bootstrap import Services
    from multi_agent_mcp.config import Environment
    from multi_agent_mcp.server.binding import Binding

HELP = "Run an agent's MCP server on standard input and output. Hosts start it; see host-config."
WRONG_USE = 2


class _Harmless(logging.Formatter):
    """Log lines name files and ids that anybody may have written."""

    def format(self, record: logging.LogRecord) -> str:
        return sanitize(super().format(record))


class _StandardError(logging.StreamHandler[TextIO]):
    """A host that does not read our standard error must not stop us: a line that finds no room there is dropped."""

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is not None and select.select([], [self.stream], [], 0)[1]:
            super().emit(record)


def _log_to_stderr() -> None:
    handler = _StandardError()
    handler.setFormatter(_Harmless("multi-agent-mcp: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


def main(arguments: Sequence[str], passkey: str | None = None) -> None:
    """Serves until the end of the process. Refuses to start with one sentence and exit code 2. The passkey is what the
    environment held; without one the agent's key file is read."""
    host_pid = os.getppid()  # before anything that takes time: the host may go meanwhile
    _log_to_stderr()
    gc.disable()  # a start makes many objects and hardly any garbage; looking for it takes a twentieth of the time
    options = _options(arguments)
    from multi_agent_mcp.config import read_environment  # only now: every other command imports this module for HELP

    environment = read_environment()
    texts = catalogue(options.language or locale_language())
    try:
        _require_stdio()
        services = _opened(options, environment)
        texts = services.texts
        binding = _bound(services, options, environment, passkey)
    except Refusal as refusal:
        _refuse(refusal, texts)
    from multi_agent_mcp.server.lean_import import import_app

    app = import_app()  # and mcp, which takes half a second
    gc.freeze()
    gc.enable()
    app.run(binding, host_pid)


def _refuse(refusal: Refusal, texts: Texts) -> NoReturn:
    from multi_agent_mcp.cli.output import print_error

    print_error(f"{refusal.code}: {texts.sentence(refusal)}")
    raise SystemExit(WRONG_USE)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    """What the command line says; nonsense ends the process like any refusal."""
    try:
        options, unknown = _parser().parse_known_args(arguments)
        if unknown:
            raise InvalidArguments("unknown_option", name=f"{unknown[0]:.60}")
        if options.root == "":
            raise InvalidArguments("option_empty", name="--root")
    except argparse.ArgumentError as error:  # all options take any text, so it can only be missing
        _refuse(InvalidArguments("option_value", name=error.argument_name), catalogue(locale_language()))
    except Refusal as refusal:
        _refuse(refusal, catalogue(locale_language()))
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="multi-agent-mcp serve", description=HELP, allow_abbrev=False, exit_on_error=False
    )
    parser.add_argument("--root", metavar="DIR", help="the root directory (default: the nearest .multi-agent-mcp)")
    parser.add_argument("--session", metavar="NAME", help="the session (default: the only one there is)")
    parser.add_argument("--agent", metavar="ID", help="the agent this process is; without it: authenticate first")
    parser.add_argument("--purpose", help=f"one of {', '.join(PURPOSES)} (default: by what waits)")
    parser.add_argument("--language", help=f"one of {', '.join(LANGUAGES)} (default: the session's)")
    return parser


def _require_stdio() -> None:
    """Python has no stream where the descriptor was closed; the next file to be opened would take its number."""
    if sys.stdin is None or sys.stdout is None:
        raise InvalidArguments("no_stdio")


def _opened(options: argparse.Namespace, environment: Environment) -> Services:
    """The session; options win over the environment."""
    from multi_agent_mcp.bootstrap import open_session
    from multi_agent_mcp.config import find_root, find_session

    root = find_root(options.root or environment.root, Path.cwd())
    session = environment.session if options.session is None else options.session
    return open_session(root, find_session(session, root), language=options.language)


def _bound(services: Services, options: argparse.Namespace, environment: Environment, passkey: str | None) -> Binding:
    """This process, bound to its agent if it was given one."""
    from multi_agent_mcp.server.binding import Binding

    purpose = options.purpose or environment.purpose
    if purpose is not None:
        require_choice("purpose", purpose, PURPOSES)
    binding = Binding(services, pane=environment.pane, purpose=purpose)
    agent_id = environment.agent if options.agent is None else options.agent
    if agent_id is not None:
        binding.bind_process(agent_id, passkey)
    return binding
