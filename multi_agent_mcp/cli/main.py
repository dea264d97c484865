"""The commands."""

from __future__ import annotations

from typing import Annotated

import typer

from multi_agent_mcp import __version__
from multi_agent_mcp.cli import agents, hook, mail, serve, supervise, tasks, team, timeline, web
from multi_agent_mcp.cli import conversations as talk
from multi_agent_mcp.cli import doctor as care
from multi_agent_mcp.cli import host_config as hosts
from multi_agent_mcp.cli import init as setup
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


app.command()(setup.init)
app.add_typer(agents.app, name="agent")
app.command(
    "serve",
    help=serve.HELP,
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(_serve)
app.command()(mail.send)
app.command()(mail.read)
app.command()(mail.unread)
app.command()(mail.trace)
app.command()(team.up)
app.command()(team.down)
app.command()(supervise.supervise)
app.command()(talk.conversations)
app.command()(talk.sessions)
app.command()(web.web)
app.command()(care.doctor)
app.command()(care.prune)
app.add_typer(tasks.app, name="task")
app.command()(tasks.interrupt)
app.command()(tasks.log)
app.command()(timeline.timeline)
app.command()(watch)
app.command("host-config")(hosts.host_config)
app.command(
    "hook",
    help=hook.HELP,
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(_hook)
app.command()(demo)
