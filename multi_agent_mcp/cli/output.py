"""What commands print: plain lines and tables for people, JSON for programs."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from multi_agent_mcp.domain.sanitize import display_id, one_line, sanitize
from multi_agent_mcp.domain.text_width import columns, shortened
from multi_agent_mcp.texts import Texts

if TYPE_CHECKING:
    from multi_agent_mcp.services.mail.sending import Sent


EXCERPT_COLUMNS = 72
Item = TypeVar("Item")


def print_json(answer: Any) -> None:
    """JSON that loses nothing, whatever encoding standard output has."""
    is_unicode = codecs.lookup(sys.stdout.encoding).name == "utf-8"
    sys.stdout.write(json.dumps(answer, ensure_ascii=not is_unicode, indent=2) + "\n")


def print_answer(answer: Mapping[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """What a command has done: as JSON, or the lines for people."""
    if as_json:
        print_json({"success": True, **answer})
        return
    for line in lines:
        print_line(line)


def print_line(line: str = "") -> None:
    """One line for people; nothing that an agent wrote can control their terminal."""
    sys.stdout.write(sanitize(line) + "\n")


def print_error(line: str) -> None:
    """One line on standard error."""
    sys.stderr.write(f"multi-agent-mcp: {one_line(line)}\n")


def text_of(argument: str) -> str:
    """The text that an argument stands for: itself, or for `-` what standard input holds."""
    return sys.stdin.read() if argument == "-" else argument


def delivery_lines(sent: Sent, texts: Texts) -> Iterator[str]:
    """The message's id, then how far it got with each receiver."""
    yield sent.message_id
    for agent_id, delivery in sent.delivery.items():
        key = f"sent.{delivery.reason}"
        if key not in texts:
            key = f"sent.{delivery.state}" if delivery.reason is None else f"sent.{delivery.state}_because"
        yield texts(key, agent_id=agent_id, reason=texts.words_of(delivery.reason or ""))


def unverified(message: Mapping[str, Any], texts: Texts) -> str:
    """The note behind the name of a sender whose signature is missing or wrong."""
    return texts("mail.unverified") if message.get("verified") is False else ""


def placed(agent_id: str | None, machine: str | None) -> str:
    """An agent, and its machine where there are several: `worker-a@laptop`."""
    return display_id(agent_id) if machine is None else f"{display_id(agent_id)}@{display_id(machine)}"


def indented(text: str) -> Iterator[str]:
    """An agent's text, line by line: none of it can pass for a line of ours, which begin at the left."""
    for line in text.split("\n"):
        yield f"   {line}".rstrip()


def excerpt(text: str) -> str:
    """As much of an agent's words as a line among others has room for; `--json` has all of them."""
    return shortened(one_line(text), EXCERPT_COLUMNS)


def titled_table(texts: Texts, names: Iterable[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """A table whose columns are titled in the language of the session."""
    return table([texts(f"table.{name}") for name in names], rows)


def column_table(texts: Texts, items: Iterable[Item], columns: Mapping[str, Callable[[Item], object]]) -> Iterator[str]:
    """The same of items: each column's name with what makes its cell."""
    return titled_table(texts, columns, [[cell(item) for cell in columns.values()] for item in items])


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """A plain table: aligned columns that survive `grep` and `cut`; no cell begins a line of its own."""
    cells = [list(head), *([one_line(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
