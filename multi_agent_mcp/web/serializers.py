"""Serializes entities as JSON-ready values for the pages, with texts cut to the part that is shown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from html import escape, unescape
from itertools import zip_longest
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token

from multi_agent_mcp.domain.agent import Execution, HandOff
from multi_agent_mcp.domain.entity import fields_of
from multi_agent_mcp.domain.message import Conversation, Message
from multi_agent_mcp.domain.proof import Receipt
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.task_reports import compare, without_items
from multi_agent_mcp.domain.text import BOXES, sanitize
from multi_agent_mcp.domain.times import format_time

if TYPE_CHECKING:
    from multi_agent_mcp.features import Features

PREVIEW_CHARACTERS = 200
SUBJECT_CHARACTERS = 300
PAGE_HTML_CHARACTERS = 200_000


def moment(value: datetime | None) -> str | None:
    return format_time(value) if value else None


def task_card(features: Features, task: Task, subtasks: Mapping[str, int] | None = None) -> dict[str, Any]:
    """A task's fields for the board, but for those of features that are off. `subtasks` are the numbers of its subtasks
    by status."""
    children = subtasks or {}
    shown = ("title", "status", "priority", "assignee_id", "created_by", "requester_id", "parent_task_id", "progress")
    dated = ("approval_status", "completion_result", "created_at", "updated_at", "done_when", "proof")
    card = {
        "task_id": task.id,
        **fields_of(task, *shown, *dated),
        "checklist": {
            "total": len(task.checklist),
            "completed": sum(item["completed"] for item in task.checklist),
        },
        "subtasks": {"total": sum(children.values()), "done": children.get("done", 0)},
        "blocked_reason": (task.blocked_reason or "")[:PREVIEW_CHARACTERS] or None,
        "status_changed_at": moment(task.status_since),
        "is_examined": task.is_examined,
        "head": (task.delivery or {}).get("head"),
    }
    return features.shown("task", card)


def task_whole(features: Features, task: Task, subtasks: Iterable[Task]) -> dict[str, Any]:
    """A task's fields for its own panel."""
    children = list(subtasks)
    shown = ("dependencies", "blocked_reason", "completion_summary", "next_steps", "history")
    return {
        **task_card(features, task, Counter(child.status for child in children)),
        **fields_of(task, *shown, "status_changed_by", "started_at", "completed_at"),
        "description": shown_text(without_items(task.description)),
        "checklist_items": compare(task.description, task.checklist),
        "subtask_cards": [task_card(features, child) for child in children],
    }


def delivery_row(task: Task, recorded: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What a task delivers: what its assignee says of it while that is examined, and the commit of its worktree, as
    `recorded`; None if nothing."""
    said = task.delivery or {}
    words = {key: said[key] and str(said[key]) for key in ("at", "head", "summary", "next_steps") if key in said}
    gate = {key: said[key] for key in ("protected", "checks_changed") if said.get(key)}
    return {**words, **gate, **(recorded or {})} or None


def receipt_row(receipt: Receipt, rows: Iterable[Sequence[Mapping[str, Any]]] | None = None) -> dict[str, Any]:
    """A receipt's fields for its task's panel; `rows` is its whole output as a terminal would show it, without them its
    end is plain text."""
    shown = ("check", "command", "exit_code", "failure", "finished_at", "head", "dirty", "changed_during", "machine")
    facts = fields_of(receipt, *shown, "seconds", "passed")
    output = {"last_lines": receipt.last_lines()} if rows is None else {"rows": list(rows)}
    return {"receipt_id": receipt.id, **facts, **output}


def message_head(message: Message) -> dict[str, Any]:
    """A message's fields for a list."""
    return {
        **fields_of(message, "id", "sender_id", "receiver_id", "message_type", "priority", "created_at", "read_at"),
        "subject": message.subject[:SUBJECT_CHARACTERS],
        "preview": " ".join(message.content[: PREVIEW_CHARACTERS * 2].split())[:PREVIEW_CHARACTERS],
        **{name: _reference(message.metadata, name) for name in ("conversation_id", "task_id", "broadcast_id")},
    }


def message_whole(message: Message) -> dict[str, Any]:
    """A message's fields with its content."""
    return {**message_head(message), "subject": message.subject, "content": shown_text(message.content)}


def messages_whole(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages with their content, up to `PAGE_HTML_CHARACTERS` in total: beyond that the `content` of older messages
    is None."""
    room = PAGE_HTML_CHARACTERS
    found = []
    for message in reversed(messages):
        shown = message_whole(message) if room > 0 else {**message_head(message), "content": None}
        room -= len(shown["content"]["html"]) if shown["content"] else 0
        found.append(shown)
    return found[::-1]


def shown_text(text: str) -> dict[str, Any]:
    """An agent's text as safe HTML, with its full length. `as_written`: it is shown as plain text, because rendered
    Markdown would be too large or hide a word."""
    html = as_html(text)
    return {
        "html": as_written(text) if html is None else html,
        "as_written": html is None,
        "length": len(text),
        "truncated": len(text) > CHARACTERS_SHOWN,
    }


def conversation_head(conversation: Conversation) -> dict[str, Any]:
    belongs = ("initiator_id", "target_agent_id", "task_id", "delegation_id")
    shown = (*belongs, "purpose", "status", "started_at", "ended_at", "ended_by")
    return {"conversation_id": conversation.id, **fields_of(conversation, *shown)}


def execution_row(execution: Execution) -> dict[str, Any]:
    shown = ("agent_id", "task_id", "session_id", "status", "started_at", "completed_at")
    ended = ("duration_seconds", "exit_code", "error_message")
    return {"execution_id": execution.id, **fields_of(execution, *shown, *ended)}


def handoff_row(hand_off: HandOff) -> dict[str, Any]:
    shown = fields_of(hand_off, "agent_id", "task_id", "kind", "created_at", "content")
    return {"handoff_id": hand_off.id, **shown}


def _reference(metadata: Mapping[str, Any], name: str) -> str | None:
    value = metadata.get(name)
    return value if isinstance(value, str) else None


CHARACTERS_SHOWN = 20_000
"""The limit from which texts are cut: a page must stay usable whatever an agent writes."""
HTML_MAX = 100_000
CELLS_MAX = 2_000
_WORD = re.compile(r"[^\W_]+")
_BOX = re.compile(r"\[([ xX])\]\s+")
_LANGUAGE = re.compile(r"[A-Za-z0-9+#]{0,20}")
_DELIMITER_ROW = re.compile(r"[ \t>]*[-:|][-:| \t]*")
"""The second line of a table (GFM, 4.10), perhaps in a quotation."""

_TAGS = {
    *("p", "br", "hr", "blockquote", "pre", "code", "em", "strong", "s", "a"),
    *("ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}
_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}, "code": {"class"}, "li": {"class"}}
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
    _draw_boxes(tokens)
    html = nh3.clean(
        renderer.renderer.render(tokens, renderer.options, {}),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes=_SCHEMES,
        link_rel="noopener noreferrer nofollow",
    )
    return html if len(html) <= HTML_MAX else None


def _draw_boxes(tokens: Sequence[Token]) -> None:
    """Draws the items of checklists, `- [ ] words`, with boxes."""
    for item, _, words in zip(tokens, tokens[1:], tokens[2:], strict=False):
        first = words.children[0] if item.type == "list_item_open" and words.children else None
        if first is not None and first.type == "text" and (found := _BOX.match(first.content)):
            first.content = f"{BOXES[found[1] != ' ']} {first.content[found.end() :]}"
            item.attrSet("class", "box")


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
