"""Stubs of `serve` and `hook` for `--help` and completion. Both parse their options without click, and `__main__` runs
them directly."""

from __future__ import annotations

import click

from multi_agent_mcp.cli.for_hosts import hook as hook_command
from multi_agent_mcp.cli.for_hosts import serve as serve_command

ARGUMENTS = click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
UNPARSED = {"allow_extra_args": True, "ignore_unknown_options": True}


@click.command(help=serve_command.HELP, add_help_option=False, context_settings=UNPARSED)
@ARGUMENTS
def serve(arguments: tuple[str, ...]) -> None:
    serve_command.main(arguments)


@click.command(help=hook_command.HELP, add_help_option=False, context_settings=UNPARSED)
@ARGUMENTS
def hook(arguments: tuple[str, ...]) -> None:
    hook_command.main(arguments)
