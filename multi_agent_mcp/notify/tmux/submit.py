"""The submit key: pressed only while our own line, with its tag, is what stands in the composer
(docs/protocol.md, Typing into a pane, Own line only)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta

from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.notify.tmux import conditions as gates
from multi_agent_mcp.notify.tmux.pane_marker import KEY_SECONDS
from multi_agent_mcp.notify.tmux.screens import (
    BUSY,
    IDLE,
    OURS,
    TYPEABLE,
    UNKNOWN,
    Sight,
    classify,
    is_busy,
    squeezed,
    tag_of,
)
from multi_agent_mcp.notify.tmux.snapshot import PaneSnapshot, take_snapshot
from multi_agent_mcp.notify.tmux.typing import (
    CHANGED,
    NOT_SUBMITTED,
    Attempt,
    forget_line,
    kept_in_composer,
    press,
    stranger,
)

SETTLE_SECONDS = 0.6
"""How long after the pause the key may still follow the paste. Both hosts hold a dialog back for 1 s after the last
input to the composer; a key that comes later could meet one that opens in that very moment."""
LOOK_AGAIN_SECONDS = 0.01
NOT_ECHOED = "not_echoed"


@dataclass(frozen=True)
class Standing:
    """The last look at a composer that was to hold our line, and why the key cannot be pressed (None: it can)."""

    reason: str | None
    seen: PaneSnapshot | None = None
    sight: Sight | None = None


def enter(visit: Attempt, text: str, until: float, not_before: float = 0.0) -> Delivery:
    """Presses the submit key once if the text, and only it, stands in the composer before `until` (`time.monotonic`);
    then looks whether it has left. `rung` means that the line is left there, or still on its way."""
    tag = tag_of(text) or ""
    while True:
        standing = _standing(visit, text, until)
        if standing.seen is None or standing.sight is None or standing.reason is not None:
            return _left(visit, standing.reason, echoed=standing.sight is not None and standing.sight.shows(tag))
        condition = gate(visit, gates.same_line(visit.profile, standing.seen.screen, standing.sight.composed))
        keys = visit.mark.keys if visit.mark is not None and visit.mark.tag == tag else 0
        key = _key(visit, standing.sight, standing.seen, keys)
        time.sleep(max(0.0, not_before - time.monotonic()))
        if (kept := press(visit, condition, key, tag, keys + 1)) is None:
            break
        if kept != CHANGED or time.monotonic() >= until:
            return _left(visit, kept, echoed=True)
        # a host at work moves its composer up and down
    entered = timedelta(seconds=time.monotonic() - visit.began)
    if (kept := kept_in_composer(visit, tag)) is not None:
        return Delivery("rung", kept, left=True)
    forget_line(visit)
    return Delivery("submitted", entered_after=entered)


def finish(visit: Attempt) -> Delivery:
    """An earlier line of ours still stands there, whole and alone: entering it is all that is to do. Only at rest: a
    working host may open a dialog between the look and the key. And not while a key may still be on its way. `stored`
    with the reason when it was not entered."""
    composer, mark = visit.sight.composed, visit.mark
    if is_busy(visit.profile, visit.seen.screen, composer):
        return Delivery("stored", OURS)
    if mark is not None and mark.keys and mark.tag == visit.sight.tag and mark.younger_than(KEY_SECONDS):
        return Delivery("stored", NOT_SUBMITTED)
    outcome = enter(visit, composer.typed, time.monotonic() + SETTLE_SECONDS)
    if outcome.state == "submitted":
        return Delivery("submitted", "earlier_line", outcome.entered_after)
    return Delivery("stored", outcome.reason)


def gate(visit: Attempt, conditions: list[str]) -> str:
    """Everything that must hold for a key or a paste, as one condition for tmux."""
    return gates.all_of(
        [*gates.safe_pane(visit.agent, visit.seen.facts.command), *gates.same_human(visit.seen), *conditions]
    )


def _left(visit: Attempt, reason: str | None, *, echoed: bool) -> Delivery:
    if echoed:
        forget_line(visit)
    return Delivery("rung", reason, left=True)


def _key(visit: Attempt, sight: Sight, seen: PaneSnapshot, tried: int) -> str:
    """The key for this state; where the profile has several, another one each time."""
    state = BUSY if is_busy(visit.profile, seen.screen, sight.composed) else IDLE
    keys = visit.profile.submit.get(state) or visit.profile.submit[IDLE]
    return keys[tried % len(keys)]


def _standing(visit: Attempt, text: str, until: float) -> Standing:
    """Waits for the text to stand in the composer."""
    while True:
        seen = take_snapshot(visit.server, visit.pane)
        if isinstance(seen, str):
            return Standing(seen)
        if (reason := seen.facts.refusal(visit.agent)) is not None:
            return Standing(reason)
        sight = classify(visit.profile, seen.screen)
        if seen.last_key > visit.seen.last_key:
            return Standing("human_typing", seen, sight)
        if sight.state == OURS and squeezed(sight.composed.typed) == squeezed(text):
            return Standing(stranger(visit), seen, sight)
        if time.monotonic() >= until:
            return Standing(NOT_ECHOED if sight.state in (*TYPEABLE, UNKNOWN) else sight.state, seen, sight)
        time.sleep(LOOK_AGAIN_SECONDS)
