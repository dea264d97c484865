"""What a timeline has too much of to draw each by itself, as counts for each piece of time: on a lane the messages that
were sent, above its line, and received, below it; and the tasks that have no row of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.texts import Texts

if TYPE_CHECKING:
    from multi_agent_mcp.timeline.events import Arrow, Bar
    from multi_agent_mcp.timeline.scale import Scale

PIECE = 14.0  # pixels of time
HEIGHT, LEAST = 15.0, 2.0  # pixels of the largest count in the picture, and of a single message or task


class Pieces:
    """The pieces of time of a drawing."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.number = max(round((scale.right - scale.left) / PIECE), 1)

    def of(self, moment: datetime | None) -> int:
        """The number of the piece that contains this moment (None: the end of the drawing)."""
        share = (self.scale.x(moment) - self.scale.left) / (self.scale.right - self.scale.left)
        return min(int(share * self.number), self.number - 1)

    def place(self, piece: int) -> dict[str, Any]:
        """The place of a count in the drawing, whose heights are still 0. `id` is the period that it is of, in
        milliseconds."""
        length, width = self.scale.length / self.number, (self.scale.right - self.scale.left) / self.number
        start, end = self.scale.start + piece * length, self.scale.start + (piece + 1) * length
        return {
            "id": f"{start.timestamp() * 1000:.0f}-{end.timestamp() * 1000:.0f}",
            "x": self.scale.left + piece * width + 1,
            "width": width - 2,
            **dict.fromkeys(("up", "down", "tasks"), 0),
            "period": f"{self.scale.clock(start)} – {self.scale.clock(end)}",
        }


def message_counts(
    arrows: Iterable[Arrow], scale: Scale, line_of: Callable[[str], float | None], texts: Texts
) -> Iterator[dict[str, Any]]:
    """The counts of messages; `line_of` says where an agent's line is, if it has one."""
    pieces = Pieces(scale)
    sent, received = Counter[tuple[float, int]](), Counter[tuple[float, int]]()
    for arrow in arrows:
        sender, receiver = line_of(arrow.sender_id), line_of(arrow.receiver_id)
        if sender is None or receiver is None:
            continue
        piece = pieces.of(arrow.sent_at)
        sent[sender, piece] += 1
        received[receiver, piece] += 1
    most = max([*sent.values(), *received.values()], default=1)
    for line, piece in sorted(sent.keys() | received.keys()):
        up, down = (found[line, piece] for found in (sent, received))
        yield {
            **pieces.place(piece),
            "y": line,
            "up": up and max(up / most * HEIGHT, LEAST),
            "down": down and max(down / most * HEIGHT, LEAST),
            "told": texts("timeline.count", sent=up, received=down),
        }


def task_counts(
    crowds: Collection[tuple[float, Collection[Bar]]], scale: Scale, texts: Texts
) -> Iterator[dict[str, Any]]:
    """The counts of tasks that there were at a time, for each crowd of them with the y of the row that they share."""
    pieces = Pieces(scale)
    counts = [(bottom, _at_once(bars, pieces)) for bottom, bars in crowds]
    most = max((max(found) for _, found in counts), default=1)
    for bottom, found in counts:
        for piece, count in enumerate(found):
            if count:
                height = max(count / most * HEIGHT, LEAST)
                yield {
                    **pieces.place(piece),
                    "y": bottom,
                    "tasks": height,
                    "told": texts("timeline.tasks", count=count),
                }


def _at_once(bars: Iterable[Bar], pieces: Pieces) -> list[int]:
    changes = [0] * (pieces.number + 1)
    for bar in bars:
        changes[pieces.of(bar.start)] += 1
        changes[pieces.of(bar.end) + 1] -= 1
    return list(accumulate(changes))[:-1]
