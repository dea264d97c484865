"""`serve`: runs the stdio MCP server of one agent.

Hosts wait for it, some only a second (docs/protocol.md, Host life cycle), so it parses its few options without click:
importing click and the other commands would take a tenth of that.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import select
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, TextIO

from multi_agent_mcp.domain.agent import PURPOSES
from multi_agent_mcp.domain.text import sanitize
from multi_agent_mcp.environment import locale_language
from multi_agent_mcp.errors import InvalidArguments, InvalidSession, Refusal
from multi_agent_mcp.services.validation import require_choice
from multi_agent_mcp.texts import LANGUAGES, Texts, catalogue

if TYPE_CHECKING:
    from multi_agent_mcp.config import Environment
    from multi_agent_mcp.server.binding import Binding
    from multi_agent_mcp.wiring import Services

HELP = "Run an agent's MCP server on standard input and output. Hosts start it; see host-config."
WRONG_USE = 2


class _Harmless(logging.Formatter):
    """Removes control characters from log lines, which contain file names and ids written by others."""

    def format(self, record: logging.LogRecord) -> str:
        return sanitize(super().format(record))


class _StandardError(logging.StreamHandler[TextIO]):
    """Drops log lines that would block, so that a host that does not read standard error cannot stop the server."""

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is not None and select.select([], [self.stream], [], 0)[1]:
            super().emit(record)


def _log_to_stderr() -> None:
    handler = _StandardError()
    handler.setFormatter(_Harmless("multi-agent-mcp: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


def main(arguments: Sequence[str], passkey: str | None = None) -> None:
    """Serves until the process ends; refuses to start with one sentence and exit code 2. `passkey` is that of the
    environment; without it the agent's key file is read."""
    host_pid = os.getppid()  # before anything slow, during which the host might end
    _log_to_stderr()
    gc.disable()  # starting makes many objects and hardly any garbage; collecting takes a twentieth of the time
    options = _options(arguments)
    from multi_agent_mcp import config  # only now: every other command imports this module for HELP

    environment = config.plugins_environment() if options.plugin else config.read_environment()
    texts = catalogue(options.language or locale_language())
    if sys.stdin is None or sys.stdout is None:  # a file opened later would get its number
        _refuse(InvalidArguments("no_stdio"), texts)
    if options.plugin and environment.is_configured:
        _serve_without_agent(None, texts, host_pid)
    try:
        if options.plugin and environment.agent is None and options.agent is None:
            raise InvalidSession("not_of_a_team")
        services = _opened(options, environment)
        texts = services.texts
        for wrong in services.session.wrong_features:
            logging.warning("%s", texts.sentence(wrong))
        binding = _bound(services, options, environment, passkey)
    except Refusal as refusal:
        texts = texts if options.language or not refusal.language else catalogue(refusal.language)
        if options.plugin:
            _serve_without_agent(refusal, texts, host_pid)
        _refuse(refusal, texts)
    from multi_agent_mcp.server import app  # and mcp, which takes half a second: not before refusals

    gc.freeze()
    gc.enable()
    app.run(binding, host_pid)


def _refuse(refusal: Refusal, texts: Texts) -> NoReturn:
    from multi_agent_mcp.cli.context import print_error

    print_error(f"{refusal.code}: {texts.sentence(refusal)}")
    raise SystemExit(WRONG_USE)


def _serve_without_agent(refusal: Refusal | None, texts: Texts, host_pid: int) -> NoReturn:
    """Serves as a plugin does where it is of no use, and says why."""
    from multi_agent_mcp.server.app import run_without_agent

    run_without_agent(refusal, texts, host_pid)
    raise SystemExit(0)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the command line; errors end the process like any refusal."""
    try:
        options, unknown = _parser().parse_known_args(arguments)
        if unknown:
            raise InvalidArguments("unknown_option", name=f"{unknown[0]:.60}")
        if options.root == "":
            raise InvalidArguments("option_empty", name="--root")
    except argparse.ArgumentError as error:  # options accept any text, so the value is missing
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
    parser.add_argument(
        "--plugin", action="store_true", help="serve whoever the environment names; without an agent, say what to do"
    )
    parser.add_argument(
        "--no-statement", action="store_true", help="the host has the statement among its operator's instructions"
    )
    return parser


def _opened(options: argparse.Namespace, environment: Environment) -> Services:
    """Opens the session; options take precedence over the environment."""
    from multi_agent_mcp.bootstrap import open_session
    from multi_agent_mcp.config import find_root, working_directory

    root = find_root(options.root or environment.root, working_directory())
    session = environment.session if options.session is None else options.session
    return open_session(root, session, language=options.language)


def _bound(services: Services, options: argparse.Namespace, environment: Environment, passkey: str | None) -> Binding:
    """Returns the binding of this process, bound to its agent if one was given."""
    from multi_agent_mcp.server.binding import Binding

    purpose = options.purpose or environment.purpose
    if purpose is not None:
        require_choice("purpose", purpose, PURPOSES)
    binding = Binding(services, pane=environment.pane, purpose=purpose)
    binding.gives_statement = not options.no_statement
    agent_id = environment.agent if options.agent is None else options.agent
    if agent_id is not None:
        binding.bind_process(agent_id, passkey)
    return binding
