"""Messages of a timeline as counts, where arrows would hide each other: for each lane and each piece of time what was
sent, above the line, and what was received, below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.texts import Texts

if TYPE_CHECKING:
    from multi_agent_mcp.timeline.events import Arrow
    from multi_agent_mcp.timeline.scale import Scale

PIECE = 14.0  # pixels of time
HEIGHT, LEAST = 15.0, 2.0  # pixels of the largest count in the picture, and of a single message


def counts(
    arrows: Iterable[Arrow], scale: Scale, line_of: Callable[[str], float | None], texts: Texts
) -> Iterator[dict[str, Any]]:
    """The counts, as places in the drawing: `line_of` says where an agent's line is, if it has one. `id` is the period
    that each is of, in milliseconds."""
    pieces = max(round((scale.right - scale.left) / PIECE), 1)
    sent, received = Counter[tuple[float, int]](), Counter[tuple[float, int]]()
    for arrow in arrows:
        sender, receiver = line_of(arrow.sender_id), line_of(arrow.receiver_id)
        if sender is None or receiver is None:
            continue
        share = (scale.x(arrow.sent_at) - scale.left) / (scale.right - scale.left)
        piece = min(int(share * pieces), pieces - 1)
        sent[sender, piece] += 1
        received[receiver, piece] += 1
    most = max([*sent.values(), *received.values()], default=1)
    length = scale.length / pieces
    for line, piece in sorted(sent.keys() | received.keys()):
        start, end = scale.start + piece * length, scale.start + (piece + 1) * length
        up, down = (found[line, piece] for found in (sent, received))
        yield {
            "id": f"{start.timestamp() * 1000:.0f}-{end.timestamp() * 1000:.0f}",
            "x": scale.left + piece * (scale.right - scale.left) / pieces + 1,
            "width": (scale.right - scale.left) / pieces - 2,
            "y": line,
            "up": up and max(up / most * HEIGHT, LEAST),
            "down": down and max(down / most * HEIGHT, LEAST),
            "title": (f"{scale.clock(start)} – {scale.clock(end)}", texts("timeline.count", sent=up, received=down)),
        }
