"""The commands, each imported when it is asked for."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import NoReturn

import click
from click.shell_completion import get_completion_class

from multi_agent_mcp import __version__
from multi_agent_mcp.cli.context import WRONG_USE, refuse
from multi_agent_mcp.cli.output import print_error
from multi_agent_mcp.environment import locale_language, login_shell
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.texts import catalogue

PROGRAM = "multi-agent-mcp"
COMMANDS = {
    "init": "init:init",
    "serve": "unparsed:serve",
    "send": "mail:send",
    "reply": "mail:reply",
    "read": "mail:read",
    "unread": "mail:unread",
    "trace": "mail:trace",
    "up": "team:up",
    "down": "team:down",
    "supervise": "team:supervise",
    "conversations": "conversations:conversations",
    "say": "conversations:say",
    "end": "conversations:end",
    "sessions": "conversations:sessions",
    "web": "web:web",
    "share": "machines:share",
    "join": "machines:join",
    "machines": "machines:machines",
    "relay": "machines:relay",
    "leave": "machines:leave",
    "doctor": "doctor:doctor",
    "prune": "doctor:prune",
    "send-task": "tasks:send_task",
    "unlock": "tasks:unlock",
    "interrupt": "tasks:interrupt",
    "resume": "tasks:resume",
    "log": "tasks:log",
    "timeline": "timeline:timeline",
    "search": "search:search",
    "watch": "watch.command:watch",
    "host-config": "host_config:host_config",
    "host": "host:host",
    "hook": "unparsed:hook",
    "demo": "demo.command:demo",
    "help": "main:help_command",
    "agent": "agents:agent",
    "conversation": "conversations:conversation",
    "task": "tasks:task",
}
"""Where each command is: its module in this package, and its name there."""


class LazyGroup(click.Group):
    """Imports a command's module only when the command is run or listed, as click's documentation shows."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name].split(":")
        command: click.Command = getattr(import_module(f"multi_agent_mcp.cli.{module}"), name)
        return command


def _show_completion(context: click.Context, _: click.Parameter, shell: str | None) -> None:
    if shell is None:
        return
    kind = get_completion_class(shell or login_shell())
    if kind is None:
        wrong = InvalidArguments(
            "no_such_choice", name="--show-completion", value=repr(shell), allowed="bash, zsh, fish"
        )
        refuse(wrong, code=WRONG_USE)
    click.echo(kind(app, {}, PROGRAM, f"_{PROGRAM}_COMPLETE".replace("-", "_").upper()).source())
    context.exit()


@click.group(PROGRAM, cls=LazyGroup, invoke_without_command=True, context_settings={"show_default": True})
@click.version_option(__version__, message="%(prog)s %(version)s", help="Print the version.")
@click.option(
    "--show-completion",
    metavar="[SHELL]",
    is_flag=False,
    flag_value="",
    is_eager=True,
    expose_value=False,
    callback=_show_completion,
    help='Print what completes commands in your shell: eval "$(multi-agent-mcp --show-completion)".',
)
@click.pass_context
def app(context: click.Context) -> None:
    """Messages, tasks and interrupts between AI coding agents in tmux panes, through nothing but files.

    Without a command: where the nearest session stands, and what to do next.
    """
    if context.invoked_subcommand is None:
        from multi_agent_mcp.cli import status

        status.show()


@click.command("help")
@click.argument("command", nargs=-1)
@click.pass_context
def help_command(context: click.Context, command: tuple[str, ...]) -> None:
    """Explain a command."""
    root = context.find_root()
    root.command.main([*command, "--help"], prog_name=root.info_name, standalone_mode=False)


def run() -> NoReturn:
    """The command line. Click says in English what is wrong with it; with a Japanese locale we do."""
    try:
        sys.exit(app(prog_name=PROGRAM, standalone_mode=False))
    except click.ClickException as error:
        if locale_language() == "en" or isinstance(error, click.exceptions.NoArgsIsHelpError):
            error.show()
        else:
            print_error(f"invalid_arguments: {catalogue('ja').sentence(_wrong_use(error))}")
        sys.exit(WRONG_USE)
    except click.Abort:
        sys.exit(1)


def _wrong_use(error: click.ClickException) -> InvalidArguments:
    """What click refuses. Where it tells two things apart only by its words, so do we."""
    match error:
        case click.NoSuchCommand():
            return InvalidArguments("unknown_command", name=error.command_name)
        case click.NoSuchOption():
            meant = ", ".join(error.possibilities or ())
            return InvalidArguments(
                "unknown_option_meant" if meant else "unknown_option", name=error.option_name, meant=meant
            )
        case click.BadOptionUsage():
            key = "option_without_value" if "not take a value" in error.message else "option_value"
            return InvalidArguments(key, name=error.option_name)
        case click.BadParameter(param=click.Parameter() as parameter):
            return _bad_parameter(error, parameter)
        case click.UsageError() if found := re.search(r"extra arguments? \((.*)\)", error.message, re.DOTALL):
            return InvalidArguments("extra_arguments", given=found[1])
    return InvalidArguments("wrong_use")


def _bad_parameter(error: click.BadParameter, parameter: click.Parameter) -> InvalidArguments:
    name = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name
    if isinstance(error, click.MissingParameter):
        return InvalidArguments("missing_parameter", name=name)
    if isinstance(kind := parameter.type, click.IntRange | click.FloatRange):
        limits = f"≥ {kind.min}" if kind.max is None else f"{kind.min}–{kind.max}"
        return InvalidArguments(
            "bad_integer" if isinstance(kind, click.IntRange) else "bad_number", name=name, limits=limits
        )
    return InvalidArguments("bad_parameter", name=name)
