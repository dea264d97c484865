"""Agents' Markdown as HTML that does nothing but look like text."""

from __future__ import annotations

from functools import cache

import nh3
from markdown_it import MarkdownIt

from multi_agent_mcp.domain.plain import neutral

CHARACTERS_SHOWN = 20_000
"""Longer texts are cut: a page must stay usable whatever an agent writes."""

_TAGS = {
    *("p", "br", "hr", "blockquote", "pre", "code", "em", "strong", "s", "a"),
    *("ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}
_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}, "code": {"class"}}
_SCHEMES = {"http", "https", "mailto"}


@cache
def _renderer() -> MarkdownIt:
    # Raw HTML is shown as text; images are not fetched, because that would tell a stranger that the mail was read.
    return MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"]).disable("image")


def as_html(text: str) -> str:
    """The text rendered and sanitized, from at most `CHARACTERS_SHOWN` of it, with a mark for every character that
    commands or deceives (see `plain`). Links open elsewhere, without a
    referrer."""
    rendered = _renderer().render(neutral(text[:CHARACTERS_SHOWN].replace("\r\n", "\n")))
    return nh3.clean(
        rendered, tags=_TAGS, attributes=_ATTRIBUTES, url_schemes=_SCHEMES, link_rel="noopener noreferrer nofollow"
    )
