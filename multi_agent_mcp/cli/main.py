"""The commands."""

from __future__ import annotations

from typing import Annotated

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
from multi_agent_mcp.cli.demo.command import demo
from multi_agent_mcp.cli.watch.command import watch

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
for command in (mail.send, mail.read, mail.unread, mail.trace, team.up, team.down, team.supervise):
    app.command()(command)
for command in (conversations.conversations, conversations.sessions, web.web, doctor.doctor, doctor.prune):
    app.command()(command)
app.add_typer(tasks.app, name="task")
for command in (tasks.interrupt, tasks.resume, tasks.log, timeline.timeline, watch):
    app.command()(command)
app.command("host-config")(host_config.host_config)
app.command("hook", help=hook.HELP, add_help_option=False, context_settings=UNPARSED)(_hook)
app.command()(demo)
