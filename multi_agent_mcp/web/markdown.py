"""Agents' Markdown as sanitized HTML."""

from __future__ import annotations

import re
from functools import cache
from html import escape

import nh3
from markdown_it import MarkdownIt

from multi_agent_mcp.domain.sanitize import sanitize

CHARACTERS_SHOWN = 20_000
"""Longer texts are cut: a page must stay usable whatever an agent writes."""
HTML_MAX = 100_000
CELLS_MAX = 2_000
_DELIMITER_ROW = re.compile(r"[ \t>]*[-:|][-:| \t]*")
"""The second line of a table (GFM, 4.10), perhaps in a quotation."""

_TAGS = {
    *("p", "br", "hr", "blockquote", "pre", "code", "em", "strong", "s", "a"),
    *("ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}
_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}, "code": {"class"}}
_SCHEMES = {"http", "https", "mailto"}


@cache
def _renderer() -> MarkdownIt:
    # Raw HTML is shown as text; images are not fetched, because the request would reveal that the mail was read.
    return MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"]).disable("image")


def as_html(text: str) -> str | None:
    """The text rendered and sanitized, from at most `CHARACTERS_SHOWN` of it, with a mark for every control or
    invisible character (see `sanitize`). Links send no referrer. None when it would be too large for a browser."""
    source = _source(text)
    if _table_cells(source) > CELLS_MAX:
        return None
    html = nh3.clean(
        _renderer().render(source),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes=_SCHEMES,
        link_rel="noopener noreferrer nofollow",
    )
    return html if len(html) <= HTML_MAX else None


def as_written(text: str) -> str:
    """The same characters as plain text in a `<pre>`."""
    return f"<pre>{escape(_source(text))}</pre>"


def _source(text: str) -> str:
    return sanitize(text[:CHARACTERS_SHOWN].replace("\r\n", "\n"))


def _table_cells(source: str) -> int:
    """An upper estimate of the number of table cells. A row of one character is filled up to the
    columns of its table, so that 20 000 characters can make a million cells."""
    cells = columns = 0
    for line in source.split("\n"):
        if not line.strip(" \t"):
            columns = 0
        elif _DELIMITER_ROW.fullmatch(line):
            columns = max(columns, line.count("|"))  # rows may look like it
        cells += columns
    return cells
