"""The description of the choices of a host's dialogs: `choices` in a profile (docs/hosts.md, Fixing a profile)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from multi_agent_mcp.domain.dialog import Choice

LASTING = re.compile(
    r"don['’]t ask|\balways\b|\ballow all\b|\bremember\b|\bin (the )?future\b|\bfuture sessions\b|\bthe rest of\b"
    r"|\b(for|during|from|in) this (session|conversation|chat|project|folder|directory|repo)|^yes, and (?!tell\b)"
    r"|^trust\b|\bI trust\b|\bnever show\b",
    re.IGNORECASE,
)
"""Words of choices after which a host does not ask again. They change between versions; showing a choice as lasting
that is not does less harm than the reverse."""


@dataclass(frozen=True)
class ChoiceShape:
    """The appearance of a dialog about one of `topics`. It reaches from below the nearest row like `top`, or from the
    first row like `begin`, to the lowest row. Its choices are numbered rows like `row`, with the groups `mark` (empty
    unless marked), `key` (which picks the choice) and `label`; only rows like `below` may follow. Where one of them is
    like `enter`, a key may only mark its choice: Up and Down move the mark, Enter picks. `frame` is the side of its
    box, which is not part of the text. Choices that match `LASTING` or `lasting` mean that the host will not ask again;
    those that match `in_pane` need more than a key, so they can be chosen in the pane only.

    Alternatively all choices are in one row like `across`, with the group `labels` (separated by three blanks) and, if
    the row tells the right edge of the box, `edge`. The marked choice has another background; Left and Right move the
    mark, Enter picks. A box of `tallest` rows, its edges included, may have been cut off by its host. Choices with
    letters for keys are in the lowest row, like `letters`: `labels` has each letter with its words, separated alike."""

    topics: frozenset[str]
    below: re.Pattern[str]
    lasting: re.Pattern[str] | None = None
    row: re.Pattern[str] | None = None
    enter: re.Pattern[str] | None = None
    across: re.Pattern[str] | None = None
    letters: re.Pattern[str] | None = None
    tallest: int = 0
    top: re.Pattern[str] | None = None
    begin: re.Pattern[str] | None = None
    in_pane: re.Pattern[str] | None = None
    frame: str = ""

    def choice(self, key: str, label: str) -> Choice:
        found = (pattern.search(label) for pattern in (LASTING, self.lasting) if pattern is not None)
        return Choice(key, label, any(found))


def choice_shape(data: Mapping[str, Any]) -> ChoiceShape:
    """Parses the field `choices`. Raises the errors that `load_profiles` catches."""
    if ("row" in data) == ("across" in data):
        raise ValueError("choices: one of row and across says where they stand")
    if ("top" in data) == ("begin" in data):
        raise ValueError("choices: one of top and begin says where a dialog begins")
    return ChoiceShape(
        topics=frozenset(map(str, data["topics"])),
        below=re.compile(data["below"]),
        lasting=re.compile(data["lasting"]) if "lasting" in data else None,
        row=_with_groups(data, "row", {"mark", "key", "label"}),
        enter=re.compile(data["enter"]) if "enter" in data else None,
        across=_with_groups(data, "across", {"labels", "edge"}),
        letters=_with_groups(data, "letters", {"labels"}),
        tallest=int(data.get("tallest", 0)),
        top=re.compile(data["top"]) if "top" in data else None,
        begin=re.compile(data["begin"]) if "begin" in data else None,
        in_pane=re.compile(data["in_pane"]) if "in_pane" in data else None,
        frame=str(data.get("frame", "")),
    )


def _with_groups(data: Mapping[str, Any], name: str, groups: set[str]) -> re.Pattern[str] | None:
    if name not in data:
        return None
    found = re.compile(data[name])
    if set(found.groupindex) != groups:
        raise ValueError(f"choices: {name} has not the groups {', '.join(sorted(groups))}")
    return found
