"""The commands."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from multi_agent_mcp import __version__
from multi_agent_mcp.cli import (
    agents,
    conversations,
    doctor,
    hook,
    host_config,
    init,
    mail,
    serve,
    tasks,
    team,
    timeline,
    web,
)
from multi_agent_mcp.cli.context import WRONG_USE
from multi_agent_mcp.cli.demo.command import demo
from multi_agent_mcp.cli.output import print_error
from multi_agent_mcp.cli.watch.command import watch
from multi_agent_mcp.environment import locale_language
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.texts import catalogue

app = typer.Typer(
    name="multi-agent-mcp",
    help="Messages, tasks and interrupts between AI coding agents in tmux panes, through nothing but files.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"multi-agent-mcp {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version  # the callback has acted on it


def run() -> NoReturn:
    """The command line. Typer says in English what is wrong with it; with a Japanese locale we do."""
    if locale_language() == "en":
        app()
    try:
        sys.exit(app(standalone_mode=False))
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            app()  # prints the help
        print_error(f"invalid_arguments: {catalogue('ja').sentence(_wrong_use(error))}")
        sys.exit(WRONG_USE)


def _wrong_use(error: typer.TyperException) -> InvalidArguments:
    """What typer refuses, by the name of its exception: the classes themselves are not public."""
    kinds = {
        "NoSuchOption": "unknown_option",
        "BadOptionUsage": "option_value",
        "MissingParameter": "missing_parameter",
    }
    key = kinds.get(type(error).__name__, "bad_parameter" if isinstance(error, typer.BadParameter) else "wrong_use")
    parameter = getattr(error, "param", None)
    name = getattr(error, "option_name", None)
    if parameter is not None:
        first = parameter.opts[0]
        name = first if first.startswith("-") else parameter.metavar or first
    return InvalidArguments(key, name=name)


def _serve(context: typer.Context) -> None:
    """`serve` reads its options itself; `__main__` hands them over without coming here."""
    serve.main(context.args)


def _hook(context: typer.Context) -> None:
    """As `_serve`."""
    hook.main(context.args)


UNPARSED = {"allow_extra_args": True, "ignore_unknown_options": True}

app.command()(init.init)
app.add_typer(agents.app, name="agent")
app.command("serve", help=serve.HELP, add_help_option=False, context_settings=UNPARSED)(_serve)
for command in (mail.send, mail.reply, mail.read, mail.unread, mail.trace, team.up, team.down, team.supervise):
    app.command()(command)
app.add_typer(conversations.app, name="conversation")
for command in (
    conversations.conversations,
    conversations.say,
    conversations.end,
    conversations.sessions,
    web.web,
    doctor.doctor,
    doctor.prune,
):
    app.command()(command)
app.add_typer(tasks.app, name="task")
app.command("send-task")(tasks.send_task)
for command in (tasks.unlock, tasks.interrupt, tasks.resume, tasks.log, timeline.timeline, watch):
    app.command()(command)
app.command("host-config")(host_config.host_config)
app.command("hook", help=hook.HELP, add_help_option=False, context_settings=UNPARSED)(_hook)
app.command()(demo)
