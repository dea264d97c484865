"""Renders agents' Markdown as sanitized HTML."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape, unescape
from itertools import zip_longest
from urllib.parse import unquote, urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token

from multi_agent_mcp.domain.text import sanitize

CHARACTERS_SHOWN = 20_000
"""The limit from which texts are cut: a page must stay usable whatever an agent writes."""
HTML_MAX = 100_000
CELLS_MAX = 2_000
_WORD = re.compile(r"[^\W_]+")
_LANGUAGE = re.compile(r"[A-Za-z0-9+#]{0,20}")
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
    # Raw HTML is shown as text; images are not fetched, because the request would reveal that the mail was read; the
    # definition of a link (`[a]: b "c"`) would not be visible at all.
    wanted = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    return wanted.disable(["image", "reference"])


def as_html(text: str) -> str | None:
    """Renders the first `CHARACTERS_SHOWN` characters of a text as sanitized HTML, with a mark for every control or
    invisible character (see `sanitize`). Links send no referrer. Returns None if the HTML would be too large for a
    browser, or would not show every word."""
    source = _source(text)
    if _table_cells(source) > CELLS_MAX:
        return None
    renderer = _renderer()
    tokens = renderer.parse(source)
    if _words(unescape(source)) - sum(map(_words, _seen(tokens)), Counter()):
        return None
    html = nh3.clean(
        renderer.renderer.render(tokens, renderer.options, {}),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes=_SCHEMES,
        link_rel="noopener noreferrer nofollow",
    )
    return html if len(html) <= HTML_MAX else None


def _words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text))


def _seen(tokens: Sequence[Token]) -> Iterator[str]:
    """The visible parts of a text: not words after a fence's language, titles of links, surplus cells of a row, or
    blocks nested too deeply. A link's target counts if the link has text: the browser shows it."""
    for token, following in zip_longest(tokens, tokens[1:]):
        yield from _seen(token.children or ())
        if token.type == "link_open" and following is not None and following.type != "link_close":
            yield _address(str(token.attrGet("href")))
        elif token.type == "fence":
            yield token.info if _LANGUAGE.fullmatch(token.info.strip()) else ""
            yield _literal(token.content)
        elif token.type == "list_item_open":
            yield token.info  # its number
        elif token.type != "inline":
            yield _literal(token.content) if token.type.startswith("code") else token.content


def _literal(code: str) -> str:
    """The visible text of code, which shows character references literally: with the characters they mean, too."""
    meant = unescape(code)
    return code if meant == code else f"{code} {meant}"


def _address(href: str) -> str:
    try:
        return f"{href} {unquote(href)}" if urlsplit(href).scheme in {"", *_SCHEMES} else ""
    except ValueError:
        return ""


def as_written(text: str) -> str:
    """Renders the same characters as plain text in a `<pre>`."""
    return f"<pre>{escape(_source(text))}</pre>"


def _source(text: str) -> str:
    return sanitize(text[:CHARACTERS_SHOWN].replace("\r\n", "\n"))


def _table_cells(source: str) -> int:
    """An upper bound of the number of table cells. Rows are filled up to the columns of their table, so 20 000
    characters can make a million cells."""
    cells = columns = 0
    for line in source.split("\n"):
        if not line.strip(" \t"):
            columns = 0
        elif _DELIMITER_ROW.fullmatch(line):
            columns = max(columns, line.count("|"))  # ordinary rows may match, too
        cells += columns
    return cells
