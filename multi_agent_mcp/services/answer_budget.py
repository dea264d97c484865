"""Limits the sizes of answers, and cuts lists and texts to fit (docs/protocol.md, Answers).

An agent pays for every character of an answer, and its host cuts off long ones. Sizes are characters of JSON, where a
control character takes six.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.texts import Texts, beginning, json_size, shortened

if TYPE_CHECKING:
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.settings import Limits

RESERVE = 2_600  # of every answer, for the fields beside the list: hints, notification, a chat notification
ENVELOPE_CHARACTERS = 4_000  # a message's subject and metadata, so that any message fits into an answer
HEADER_CHARACTERS = ENVELOPE_CHARACTERS + 600
SHORTENED_CHARACTERS = 120
SMALLEST_SLICE = 200  # the least part of a message's content to show
TEXT_CHARACTERS = 700
ROOM_FOR_IDS = 350  # beside the texts of an item in a list
SMALLEST_ITEM = 400
SHARE_CHARACTERS = 1_500  # of each list in a list of them
ROOM_FOR_MARKS = 40
SPOKEN_CHARACTERS = 3_000  # of a message in a conversation; all of it is in the receiver's mail
NOTICE_CHARACTERS = 2_000  # a text of a notification, also one that another program wrote
UNLIMITED = 2**62
_SEPARATOR = 2
_LATER_FIELDS = 90  # `read_at`, `verified` and `authority` are set after a message was measured
_HEADER = ("sender_id", "receiver_id", "message_type", "priority", "subject", "metadata")

T = TypeVar("T")


def first_fitting(items: Iterable[T], characters: int) -> list[T]:
    """The first items that fit into this many characters of JSON."""
    kept: list[T] = []
    for item in items:
        characters -= json_size(item) + _SEPARATOR
        if characters < 0:
            break
        kept.append(item)
    return kept


def clipped(text: str | None, characters: int = TEXT_CHARACTERS) -> str | None:
    """As `shortened`, for a text that may be missing."""
    return text and shortened(text, characters)


class AnswerBudget:
    """The room for lists and messages in an answer of at most `limits.answer_characters`."""

    def __init__(self, limits: Limits, texts: Texts) -> None:
        self.characters = limits.answer_characters - RESERVE
        self._how_to_continue = texts("more.list")

    def fitting(
        self, answer: dict[str, Any], key: str, items: Sequence[Any], how_to_continue: str | None = None
    ) -> dict[str, Any]:
        """The `answer` with as many items under `key` as fit, and with `truncated` if items were left out."""
        shown = first_fitting(items, self.characters - json_size(answer))
        if len(shown) == len(items):
            return {**answer, key: shown}
        hint = how_to_continue or self._how_to_continue
        return {**answer, key: shown, "total_count": len(items), "truncated": True, "how_to_continue": hint}

    def page(
        self,
        answer: dict[str, Any],
        key: str,
        items: Sequence[Any],
        how_to_continue: Callable[[Any], str],
        *,
        more: bool,
    ) -> dict[str, Any]:
        """The `answer` with as many items under `key` as fit, at least one; with `truncated` and how to continue after
        the last of them if others follow, of `items` or behind them (`more`)."""
        shown = first_fitting(items, self.characters - json_size(answer)) or list(items[:1])
        if len(shown) == len(items) and not more:
            return {**answer, key: shown}
        return {**answer, key: shown, "truncated": True, "how_to_continue": how_to_continue(shown[-1])}

    def share(self, count: int) -> int:
        """The characters for the texts of each of `count` items, so that as many as possible are shown."""
        return max(self.characters // max(count, 1) - ROOM_FOR_IDS, SMALLEST_ITEM)

    def newest_of_each(self, holders: Iterable[dict[str, Any]], key: str) -> list[dict[str, Any]]:
        """Returns the first holders, at least one, as many as fit with what they hold under `key`, for which each may
        count on `SHARE_CHARACTERS`. What is longer is cut to its newest (last) items, which share the room that the
        others leave; `{key}_truncated` marks those cut."""
        room = self.characters
        chosen: list[tuple[int, dict[str, Any]]] = []
        for holder in holders:
            whole = json_size(holder[key])
            beside = json_size(holder) - whole + ROOM_FOR_MARKS
            if chosen and room < beside + min(whole, SHARE_CHARACTERS):
                break
            room -= beside + min(whole, SHARE_CHARACTERS)
            chosen.append((whole, holder))
        cut = [holder for whole, holder in chosen if whole > SHARE_CHARACTERS]
        share = SHARE_CHARACTERS + max(room, 0) // max(len(cut), 1)
        for holder in cut:
            kept = first_fitting(reversed(holder[key]), share)[::-1]
            if len(kept) < len(holder[key]):
                holder |= {key: kept, f"{key}_truncated": True}
        return [holder for _, holder in chosen]


@dataclass(frozen=True)
class Slice:
    """The part of a message in an answer: its `content` from `offset`, up to the end unless `truncated`. `path` is its
    file; `address` identifies this file (see `Inbox.address`) and is nearly always the message's id.

    Only messages that do not verify are flagged: a flag on all others, nearly all, would lengthen every answer.
    """

    message: Message
    path: Path
    address: str
    content: str = ""
    offset: int = 0
    truncated: bool = False
    verified: bool = True
    authority: str = ""

    def as_answer(self) -> dict[str, Any]:
        message = self.message
        answer: dict[str, Any] = {
            "id": self.address,
            "sender_id": message.sender_id,
            "receiver_id": message.receiver_id,
            "message_type": message.message_type,
            "priority": message.priority,
            "subject": message.subject,
            "content": self.content,
            "created_at": format_time(message.created_at),
            "read_at": format_time(message.read_at) if message.read_at else None,
            "metadata": dict(message.metadata),
        }
        if self.address != message.id:
            answer["duplicate_of"] = message.id[:SHORTENED_CHARACTERS]
        answer |= _shortened({name: answer[name] for name in _HEADER})
        if self.authority:
            answer["authority"] = self.authority
        if not self.verified:
            answer["verified"] = False
        if self.truncated or self.offset:
            answer |= {"content_truncated": self.truncated, "content_length": len(message.content)}
        return answer


def pack(candidates: Iterable[Slice], limit: int, budget: int) -> tuple[list[Slice], bool]:
    """As many of these whole messages as fit, at least the first one, cut if necessary; and whether there are more."""
    slices: list[Slice] = []
    for whole in candidates:
        if len(slices) >= limit:
            return slices, True
        size = _size(whole)
        if size <= budget:
            slices.append(whole)
            budget -= size
        elif not slices:
            return [cut(whole, 0, budget)], any(True for _ in candidates)
        else:
            return slices, True
    return slices, False


def cut(whole: Slice, offset: int, budget: int) -> Slice:
    """The slice with the longest part of the content from `offset` that fits into the budget."""
    rest = whole.message.content[offset:]
    room = max(budget - _size(replace(whole, content="")), SMALLEST_SLICE)
    shown = beginning(rest, room)
    return replace(whole, content=shown, offset=offset, truncated=len(shown) < len(rest))


def _size(item: Slice) -> int:
    return json_size(item.as_answer()) + _LATER_FIELDS


def _shortened(header: dict[str, Any]) -> dict[str, Any]:
    """The header, cut if it is larger than any that `send_message` accepts: a hand-written one may be of any size, and
    must neither hide the content nor exceed the answer's limit."""
    if json_size(header) <= HEADER_CHARACTERS:
        return header
    texts = {name: value[:SHORTENED_CHARACTERS] for name, value in header.items() if isinstance(value, str)}
    return {**texts, "metadata": {}, "header_truncated": True}
