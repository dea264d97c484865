"""The output of commands: plain lines and tables for people, JSON for programs."""

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
    """Prints JSON; characters are escaped unless standard output is UTF-8, so that none is lost."""
    is_unicode = codecs.lookup(sys.stdout.encoding).name == "utf-8"
    sys.stdout.write(json.dumps(answer, ensure_ascii=not is_unicode, indent=2) + "\n")


def print_answer(answer: Mapping[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Prints the result of a command, as JSON or as lines for people."""
    if as_json:
        print_json({"success": True, **answer})
        return
    for line in lines:
        print_line(line)


def print_line(line: str = "") -> None:
    """Prints one line for people, without control characters, so that an agent's text cannot control the terminal."""
    sys.stdout.write(sanitize(line) + "\n")


def print_error(line: str) -> None:
    """Prints one line on standard error."""
    sys.stderr.write(f"multi-agent-mcp: {one_line(line)}\n")


def text_of(argument: str) -> str:
    """Returns the argument, or for `-` the content of standard input."""
    return sys.stdin.read() if argument == "-" else argument


def delivery_lines(sent: Sent, texts: Texts) -> Iterator[str]:
    """Yields the message's id, then a line with the delivery to each receiver."""
    yield sent.message_id
    for agent_id, delivery in sent.delivery.items():
        key = f"sent.{delivery.reason}"
        if key not in texts:
            key = f"sent.{delivery.state}" if delivery.reason is None else f"sent.{delivery.state}_because"
        yield texts(key, agent_id=agent_id, reason=texts.words_of(delivery.reason or ""))


def unverified(message: Mapping[str, Any], texts: Texts) -> str:
    """Returns the note after a sender's name if the signature is missing or wrong, else ""."""
    return texts("mail.unverified") if message.get("verified") is False else ""


def placed(agent_id: str | None, machine: str | None) -> str:
    """Returns an agent's id, with its machine if there are several: `worker-a@laptop`."""
    return display_id(agent_id) if machine is None else f"{display_id(agent_id)}@{display_id(machine)}"


def indented(text: str) -> Iterator[str]:
    """Yields an agent's text indented, line by line, so that none can pass for one of our lines, which are not."""
    for line in text.split("\n"):
        yield f"   {line}".rstrip()


def excerpt(text: str) -> str:
    """Returns an agent's text on one line, shortened to `EXCERPT_COLUMNS`; `--json` has the whole text."""
    return shortened(one_line(text), EXCERPT_COLUMNS)


def titled_table(texts: Texts, names: Iterable[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yields a table with column titles in the session's language."""
    return table([texts(f"table.{name}") for name in names], rows)


def column_table(texts: Texts, items: Iterable[Item], columns: Mapping[str, Callable[[Item], object]]) -> Iterator[str]:
    """Yields a table of items; `columns` maps each column's name to the function that makes an item's cell."""
    return titled_table(texts, columns, [[cell(item) for cell in columns.values()] for item in items])


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yields a plain table with aligned columns, suitable for `grep` and `cut`; every row is one line."""
    cells = [list(head), *([one_line(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
