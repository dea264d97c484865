"""The command line: all commands, each imported only when it is run, and their man page."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from functools import partial
from io import StringIO
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn

import click

from multi_agent_mcp import __version__
from multi_agent_mcp.cli.at_hand import features_at_hand
from multi_agent_mcp.environment import locale_language, login_shell
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.features import Features, attempted, load
from multi_agent_mcp.features.ours import ABSENT, ALL, MACHINERY, SECTIONS

PROGRAM = "multi-agent-mcp"


def commands_of(features: Features) -> dict[str, dict[str, tuple[str, str]]]:
    """The commands by section: what is to be loaded, and the line in `--help`, which would otherwise have to import all
    modules."""
    found: dict[str, dict[str, tuple[str, str]]] = {section: {} for section in SECTIONS}
    for name, (section, where, line) in features.each("commands"):
        found.setdefault(section, {})[name] = (where, features.said(name, line))
    return {section: commands for section, commands in found.items() if commands}


COMMANDS = commands_of(ALL)


ARGUMENTS = f"{__name__}.arguments"
EVERYTHING = f"{__name__}.everything"
"""Keys of a context: the words of the command line; whether `--help` is to explain every command."""


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command is run, as in click's documentation. It has the
    commands of the session at hand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for commands in commands_of(_features(ctx)).values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        features = _features(ctx)
        name, *below = dict(features.each("former_commands")).get(cmd_name, cmd_name).split() or [cmd_name]
        where = next((commands[name][0] for commands in commands_of(features).values() if name in commands), None)
        loaded = None if where is None else attempted(where, partial(load, where), None)
        found = None if loaded is None else _reduced(loaded, name, features)
        for name in below:
            found = found.get_command(ctx, name) if isinstance(found, click.Group) else None
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's; but an unknown name is compared with those of all commands, which are not loaded."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=self.list_commands(ctx), ctx=ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What is needed every day with a line each, of every other section the names. `help --all` has all lines."""
        (first, everyday), *others = commands_of(_features(ctx)).items()
        if ctx.meta.get(EVERYTHING):
            for section, commands in ((first, everyday), *others):
                with formatter.section(section):
                    formatter.write_dl([(name, line) for name, (_, line) in commands.items()], col_max=14)
            return
        with formatter.section(first):
            formatter.write_dl([(name, line) for name, (_, line) in everyday.items()], col_max=14)
        with formatter.section("More, explained by `help --all`, and each by `help NAME`"):
            formatter.write_dl([(section, " · ".join(named)) for section, named in others if section != MACHINERY])


def _features(context: click.Context) -> Features:
    """The features of the session that the command line is about."""
    return features_at_hand(context.meta.get(ARGUMENTS, ()))


def _reduced(command: click.Command, path: str, features: Features) -> click.Command:
    """The command without what belongs to features that are off or not here: parameters, which it is given as None,
    and commands below it."""
    reduced, lacks = copy(command), features.foreign("options", path)
    lacks |= {str(one.name) for one in command.params if getattr(one, "feature", None) in ABSENT}
    reduced.params = [
        _parameter(parameter, path, features) for parameter in command.params if parameter.name not in lacks
    ]
    if without := [parameter.name for parameter in command.params if parameter.name in lacks]:
        reduced.callback = partial(_callback(command), **dict.fromkeys(map(str, without)))
    reduced.help = features.said(path, command.help or "") or None
    reduced.short_help = _first_sentence(reduced.help or "")
    if isinstance(reduced, click.Group):
        below = {name: found for name, found in reduced.commands.items() if name not in lacks}
        reduced.commands = {name: _reduced(found, f"{path} {name}", features) for name, found in below.items()}
    return reduced


def _first_sentence(text: str) -> str | None:
    """What a list of commands says of one: click cuts what is longer than a line, where this one is wrapped."""
    first = " ".join(text.partition("\n\n")[0].split())
    return first[: first.find(". ") + 1] or first or None


def _parameter(parameter: click.Parameter, path: str, features: Features) -> click.Parameter:
    """The parameter without what its help says of features that are off, and without their values."""
    reduced, kind = copy(parameter), parameter.type
    if isinstance(reduced, click.Option | click.Argument) and reduced.help:
        reduced.help = features.said(path, reduced.help)
    if reduced.metavar:
        reduced.metavar = features.said(path, reduced.metavar)
    if isinstance(kind, click.Choice) and features.foreign("choices", str(parameter.name)):
        reduced.type = click.Choice(features.offered(str(parameter.name), kind.choices))
    return reduced


def _callback(command: click.Command) -> Callable[..., Any]:
    return command.callback or (lambda **_: None)


def _show_completion(context: click.Context, _: click.Parameter, shell: str | None) -> None:
    if shell is None:
        return
    from click.shell_completion import get_completion_class

    from multi_agent_mcp.cli.context import WRONG_USE, refuse

    name = shell or login_shell()
    kind = get_completion_class(name)
    if kind is None:
        wrong = InvalidArguments(
            "no_such_choice", name="--show-completion", value=repr(name), allowed="bash, zsh, fish"
        )
        refuse(wrong, code=WRONG_USE)
    click.echo(kind(app, {}, PROGRAM, f"_{PROGRAM}_COMPLETE".replace("-", "_").upper()).source())
    context.exit()


def _show_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked:
        return
    from multi_agent_mcp.system.git import described

    commit = described(Path(__file__).parents[2])
    click.echo(f"{PROGRAM} {__version__}{f' (commit {commit})' if commit else ''}")
    context.exit()


@click.group(
    PROGRAM,
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"show_default": True, "help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Print the version, and in a clone its commit.",
)
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

    Without a command: where the nearest session is, and what to do next.
    """
    if context.invoked_subcommand is None:
        from multi_agent_mcp.cli import looking

        looking.status()


@click.command("help")
@click.argument("command", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="List every command, and what hosts run.")
@click.option("--man", "as_man", is_flag=True, help="Print a man page of all commands: `help --man | man -l -`.")
@click.pass_context
def help_command(context: click.Context, command: tuple[str, ...], everything: bool, as_man: bool) -> None:
    """Explain a command, or list them.

    Example: `multi-agent-mcp help send`
    """
    root = context.find_root()
    if everything and not command:
        root.meta[EVERYTHING] = True
        click.echo(root.get_help())
        return
    if as_man:
        click.echo(man_page(PROGRAM, __version__, app, commands_of(_features(context.find_root()))), nl=False)
        return
    root.command.main([*command, "--help"], prog_name=root.info_name, standalone_mode=False)


def run() -> NoReturn:
    """Runs the command line. Click reports wrong use in English; with a Japanese locale or `--json`, we do."""
    try:
        sys.exit(app(prog_name=PROGRAM, standalone_mode=False))
    except click.ClickException as error:
        from multi_agent_mcp.cli.context import WRONG_USE, refuse

        as_json = "--json" in takewhile(lambda word: word != "--", sys.argv[1:])
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            error.show()
        elif locale_language() == "en" and not as_json:
            _show(error)
        else:
            with suppress(click.exceptions.Exit):
                refuse(_wrong_use(error), as_json=as_json)
        sys.exit(WRONG_USE)
    except click.Abort:
        sys.exit(1)


def _show(error: click.ClickException) -> None:
    """Prints click's own words on standard error, which may repeat whatever was given."""
    from multi_agent_mcp.texts import QUOTED_CHARACTERS, shortened

    words = StringIO()
    error.show(words)
    sys.stderr.write(shortened(words.getvalue().rstrip(), QUOTED_CHARACTERS) + "\n")


def _wrong_use(error: click.ClickException) -> InvalidArguments:
    """Translates an error of click. What click distinguishes only by its message is recognised by that."""
    match error:
        case click.NoSuchCommand():
            meant = ", ".join(error.possibilities or ())
            key = "unknown_command_meant" if meant else "unknown_command"
            return InvalidArguments(key, name=error.command_name, meant=meant)
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
    if isinstance(kind, click.Choice):
        return InvalidArguments("not_one_of", name=name, allowed=", ".join(kind.choices))
    return InvalidArguments("bad_parameter", name=name)


SECTION = 1


# The man page, man(7), from what `--help` says: every command with its arguments and options.


def man_page(
    program: str, version: str, root: click.Group, commands: Mapping[str, Mapping[str, tuple[str, str]]]
) -> str:
    """Returns the page as roff(7): the commands by subject, in the order of `--help`."""
    context = click.Context(root, info_name=program)
    lines = [
        f'.TH {program.upper()} {SECTION} "" "{_roff(f"{program} {version}")}"',
        ".SH NAME",
        f"{_roff(program)} \\- {_roff((root.help or '').partition(chr(10))[0].rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_roff(program)}",
        "[OPTIONS] COMMAND [ARGS]...",
    ]
    for subject, named in commands.items():
        lines.append(f'.SH "{_roff(subject.upper())}"')
        for name in named:
            command = root.get_command(context, name)
            if command is not None:
                lines += _man_command(command, click.Context(command, context, info_name=name))
    lines += [
        ".SH EXIT STATUS",
        "0 done, 1 refused or failed, 2 wrong use.",
        ".SH ENVIRONMENT",
        _roff("MULTI_AGENT_MCP_ROOT, MULTI_AGENT_MCP_SESSION: the defaults of --root and --session."),
    ]
    return "\n".join(lines) + "\n"


def _man_command(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yields a command, and after it those of a group."""
    usage = " ".join(command.collect_usage_pieces(context))
    yield f'.SS "{_roff(f"{context.command_path} {usage}")}"'
    for paragraph in re.split(r"\n\s*\n", (command.help or "").replace("\b\n", "").strip()):
        yield ".PP"
        yield _roff(" ".join(paragraph.split()))
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in record[0]:
            yield ".TP"
            yield f".B {_roff(record[0])}"
            yield _roff(record[1]) or "\\&"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from _man_command(below, click.Context(below, context, info_name=name))


def _roff(words: str) -> str:
    """Escapes text: backslashes, hyphens that are to be copied, quotes, and a dot or quote that begins a line."""
    escaped = words.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    escaped = "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in escaped)
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
