"""Agents' Markdown becomes HTML that does nothing."""

from __future__ import annotations

import re
import textwrap
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multi_agent_mcp.web.serializers import CHARACTERS_SHOWN, HTML_MAX, as_html, as_written

HARMLESS = {"a": {"href", "title", "rel"}, "code": {"class"}, "ol": {"start"}}
BLOCKS = {"p", "br", "hr", "blockquote", "pre", "ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6"}
TAGS = BLOCKS | {"code", "em", "strong", "s", "a", "table", "thead", "tbody", "tr", "th", "td"}

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
UNHEARD = re.compile(r"^[\x00-\x20]+|[\t\n\r]")
"""Characters that a browser removes from an address before it parses it (WHATWG URL, 4.4)."""


class Inspector(HTMLParser):
    """Fails at whatever a browser could run or fetch."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        for name, value in attrs:
            assert name in HARMLESS.get(tag, set()), (tag, name)
            if name == "href":
                scheme = SCHEME.match(UNHEARD.sub("", value or ""))
                assert scheme is None or scheme[1].lower() in {"http", "https", "mailto"}, value


def inspect(text: str) -> str:
    """Returns the HTML that the page shows for a text, after checking that it is inert."""
    rendered = as_html(text)
    html = as_written(text) if rendered is None else rendered
    inspector = Inspector()
    inspector.feed(html)
    inspector.close()
    return html


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](data:text/html,<script>alert(1)</script>)",
        "[x](vbscript:x)",
        "![x](http://evil.example/track.png)",
        "<a href='javascript:x'>x</a>",
        "<svg/onload=alert(1)>",
        "`<b>`\n\n    <iframe src=//evil.example>",
        "[x]: javascript:alert(1)\n\n[x]",
        '<https://example.org/"onmouseover=alert(1)>',
        "| <b> |\n|---|\n| <i onclick=x> |",
        '```"><script>\nx\n```',
    ],
)
def test_nothing_an_agent_writes_can_act(text: str) -> None:
    assert "<script" not in inspect(text)


@given(st.text())
def test_any_text_becomes_harmless(text: str) -> None:
    inspect(text)


@given(
    st.lists(
        st.sampled_from(
            [
                "<",
                ">",
                "script",
                "[a](",
                "javascript:",
                ")",
                '"',
                "'",
                "`",
                "|",
                "\n",
                "img src=",
                "on",
                "=",
                "&#x6a;",
                "!",
            ]
        ),
        max_size=40,
    ).map("".join)
)
def test_any_mixture_of_what_is_dangerous_becomes_harmless(text: str) -> None:
    inspect(text)


def test_a_picture_is_not_fetched() -> None:
    assert "<img" not in inspect("![alt](http://evil.example/x.png)")


def test_links_lead_away_without_a_trace() -> None:
    assert 'rel="noopener noreferrer nofollow"' in inspect("[x](https://example.org)")


def test_a_million_characters_are_cut() -> None:
    assert len(inspect("word " * 200_000)) < CHARACTERS_SHOWN * 2


def test_deep_nesting_is_no_trouble() -> None:
    inspect("> " * 5_000 + "x")
    inspect("[" * 10_000)
    inspect("*" * 10_000 + "x")


def test_what_cannot_be_seen_and_deceives_is_marked() -> None:
    assert as_html("pay \u202e100\u202c now\u200b\x07\r\nplease\U000e0041") == "<p>pay �100� now��<br>\nplease�</p>\n"


def wide_table(columns: int) -> str:
    """A table of few characters and many cells: rows are filled up."""
    return "|" * (columns + 1) + "\n" + "|-" * columns + "|\n" + "|\n" * (60_000 // columns) + "\n"


@pytest.mark.parametrize("text", [wide_table(250), wide_table(20), "- a\n\n" + textwrap.indent(wide_table(250), "  ")])
@pytest.mark.parametrize("prefix", ["", "> ", " >> "])
def test_a_table_of_more_cells_than_a_browser_draws_is_not_rendered(text: str, prefix: str) -> None:
    quoted = "".join(f"{prefix}{line}\n" for line in text.splitlines())
    assert as_html(quoted) is None
    assert len(as_written(quoted)) < len(quoted) * 5


@pytest.mark.parametrize("text", ["[a](b)", "#\n", "a\n", "<http://a>", "&", "*a*", "- a\n", "> ", "[", "|-|\n"])
def test_what_is_rendered_stays_small(text: str) -> None:
    html = as_html(text * (CHARACTERS_SHOWN // len(text)))
    assert html is None or len(html) <= HTML_MAX


def test_an_ordinary_table_is_rendered() -> None:
    assert inspect("| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 200).count("<td>") == 400


def test_what_is_not_rendered_is_still_harmless() -> None:
    assert as_written("<b>\u202e&") == "<pre>&lt;b&gt;\ufffd&amp;</pre>"


@pytest.mark.parametrize(
    "text",
    [
        "[//]: # (hidden)\n\nfine",
        '[a]: http://x "hidden"\n\nfine',
        '[a](http://x "hidden")',
        "[](http://x/hidden)",
        "[a](ftp://hidden)",
        "[a](javascript:hidden)",
        "![](http://x/hidden)",
        "![a](http://x 'hidden')",
        "```python hidden\nx\n```",
        "~~~ so hidden\nx\n~~~",
        "| a |\n|---|\n| b | hidden |",
        f"{'> ' * 40}hidden",
        f"{'- ' * 40}hidden",
        f"{'[' * 40}hidden{']' * 40}",
        "<!-- hidden -->",
        "<p title=hidden>fine</p>",
        "[^1]: hidden",
    ],
)
def test_no_word_of_an_agent_vanishes_from_the_page(text: str) -> None:
    html = as_html(text)
    shown = as_written(text) if html is None else html
    assert "hidden" in re.sub(r"<[^>]*>", "", shown)


@pytest.mark.parametrize(
    "text",
    [
        "# Plan\n\n1. *one*\n2. `two` &amp; three\n\n[the log](https://example.org/a_b?c=d%20e#f) <https://example.org>",
        "| a | b |\n|:--|--:|\n| 1 |\n\n```python\nprint(1)\n```\n\n- [ ] open\n- [x] done\n\n---\n\nfoo*bar*baz\\_x",
        "3) three\n4) four\n\n    code\n\n> said\n\n~~no~~ **yes** caf&eacute; `&eacute;&#x6a;`",
    ],
)
def test_ordinary_markdown_is_rendered(text: str) -> None:
    assert as_html(text) is not None


def test_items_of_a_checklist_have_boxes_and_words_elsewhere_are_as_written() -> None:
    html = as_html("- [ ] open <b>\n- [x] done `[ ] x`\n- [X] [a](http://x.example)\n- [y] other\n\n[ ] no item")
    assert html is not None
    assert html.count('<li class="box">') == 3
    assert "☐ open &lt;b&gt;" in html
    assert "☑ done <code>[ ] x</code>" in html
    assert "☑ <a" in html
    assert "<li>[y] other" in html
    assert "<p>[ ] no item" in html
