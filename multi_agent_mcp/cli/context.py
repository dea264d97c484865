"""What every command shares: options, finding the session, output for people and programs, refusals as exit codes.

Exit codes: 0 done, 1 refused or failed, 2 wrong use.
"""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from multi_agent_mcp.bootstrap import Services, open_session
from multi_agent_mcp.config import find_root, find_session, read_environment
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.sanitize import one_line, sanitize
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.texts import DEFAULT_LANGUAGE, Texts, catalogue


def _not_empty(value: str | None) -> str | None:
    if value == "":
        raise typer.BadParameter("it is empty")
    return value


Root = Annotated[
    str | None,
    typer.Option(
        "--root",
        metavar="DIR",
        callback=_not_empty,
        help="The root directory (default: the nearest .multi-agent-mcp).",
    ),
]
Session = Annotated[
    str | None, typer.Option("--session", metavar="NAME", help="The session (default: the only one there is).")
]
As = Annotated[str | None, typer.Option("--as", metavar="AGENT", help="Who you are (default: the Owner).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


class SessionContext:
    """An opened session and the human in front of it."""

    def __init__(self, services: Services, acting: str | None, *, as_json: bool) -> None:
        self.services = services
        self.as_json = as_json
        self.has_shown = False
        self._acting = acting

    @property
    def me(self) -> Agent:
        """Who acts: `--as`, else the Owner."""
        agents = self.services.agents
        return agents.owner() if self._acting is None else agents.get(self._acting)

    def show(self, answer: dict[str, Any], lines: Iterable[str]) -> None:
        """Prints the answer as JSON, or the lines for people."""
        self.has_shown = True
        if self.as_json:
            print_json({"success": True, **answer})
        else:
            for line in lines:
                say(line)


@contextmanager
def session_context(
    root: str | None, session: str | None, acting: str | None = None, *, as_json: bool = False
) -> Iterator[SessionContext]:
    """Opens the session for one command; a refusal inside becomes one sentence and exit code 1."""
    texts = catalogue(DEFAULT_LANGUAGE)
    context = None
    try:
        environment = read_environment()
        where = find_root(root or environment.root, Path.cwd())
        services = open_session(where, find_session(environment.session if session is None else session, where))
        texts = services.texts
        services.agents.publish_keys()
        services.operations.finish()
        context = SessionContext(services, acting, as_json=as_json)
        yield context
    except Refusal as refusal:
        # One JSON object is all a program expects: what fails after the answer is said on stderr.
        refuse(refusal, texts, as_json=as_json and not (context and context.has_shown))


def refuse(refusal: Refusal, texts: Texts, *, as_json: bool, code: int = 1) -> None:
    """Says why not, on stderr (or as JSON on stdout), and exits."""
    sentence = texts.sentence(refusal)
    if as_json:
        print_json({"success": False, "error": refusal.code, "message": sentence})
    else:
        complain(f"{refusal.code}: {sentence}")
    raise typer.Exit(code)


def print_json(answer: Any) -> None:
    """JSON that loses nothing, whatever letters standard output has."""
    is_unicode = codecs.lookup(sys.stdout.encoding).name == "utf-8"
    sys.stdout.write(json.dumps(answer, ensure_ascii=not is_unicode, indent=2) + "\n")


def say(line: str = "") -> None:
    """One line for people; whatever an agent wrote cannot command their terminal."""
    sys.stdout.write(sanitize(line) + "\n")


def complain(line: str) -> None:
    sys.stderr.write(f"multi-agent-mcp: {one_line(line)}\n")


def unverified(shown: Mapping[str, Any]) -> str:
    """What stands behind the name of a sender whose signature is missing or wrong."""
    return " (unverified)" if shown.get("verified") is False else ""


def indented(text: str) -> Iterator[str]:
    """What somebody wrote, line by line: it cannot pass for a line of ours, which begin at the left."""
    for line in text.split("\n"):
        yield f"   {line}".rstrip()


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """A plain table: aligned columns that survive `grep` and `cut`; no cell begins a line of its own."""
    cells = [[one_line(str(cell)) for cell in row] for row in rows]
    widths = [max([width(column), *(width(row[index]) for row in cells)]) for index, column in enumerate(head)]
    for row in ([*head], *cells):
        yield "  ".join(pad(cell, widths[index]) for index, cell in enumerate(row)).rstrip()


def pad(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))


def width(text: str) -> int:
    """Columns in a terminal; a Japanese character takes two."""
    from unicodedata import east_asian_width

    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)
