"""The man page, man(7), from what `--help` says: every command with its arguments and options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import click

SECTION = 1


def page(program: str, version: str, root: click.Group, commands: Mapping[str, Mapping[str, tuple[str, str]]]) -> str:
    """Returns the page as roff(7): the commands by subject, in the order of `--help`."""
    context = click.Context(root, info_name=program)
    lines = [
        f'.TH {program.upper()} {SECTION} "" "{_text(f"{program} {version}")}"',
        ".SH NAME",
        f"{_text(program)} \\- {_text((root.help or '').partition(chr(10))[0].rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_text(program)}",
        "[OPTIONS] COMMAND [ARGS]...",
    ]
    for subject, named in commands.items():
        lines.append(f'.SH "{_text(subject.upper())}"')
        for name in named:
            command = root.get_command(context, name)
            if command is not None:
                lines += _command(command, click.Context(command, context, info_name=name))
    lines += [
        ".SH EXIT STATUS",
        "0 done, 1 refused or failed, 2 wrong use.",
        ".SH ENVIRONMENT",
        _text("MULTI_AGENT_MCP_ROOT, MULTI_AGENT_MCP_SESSION: the defaults of --root and --session."),
    ]
    return "\n".join(lines) + "\n"


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yields a command, and after it those of a group."""
    usage = " ".join(command.collect_usage_pieces(context))
    yield f'.SS "{_text(f"{context.command_path} {usage}")}"'
    for paragraph in re.split(r"\n\s*\n", (command.help or "").replace("\b\n", "").strip()):
        yield ".PP"
        yield _text(" ".join(paragraph.split()))
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in record[0]:
            yield ".TP"
            yield f".B {_text(record[0])}"
            yield _text(record[1]) or "\\&"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from _command(below, click.Context(below, context, info_name=name))


def _text(words: str) -> str:
    """Escapes text: backslashes, hyphens that are to be copied, quotes, and a dot or quote that begins a line."""
    escaped = words.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    escaped = "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in escaped)
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
