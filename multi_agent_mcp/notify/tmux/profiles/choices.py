"""How a profile describes the choices of a host's dialogs: `choices:` in its file (docs/hosts.md, Fixing a
profile)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from multi_agent_mcp.domain.dialog import Choice

LASTING = re.compile(
    r"don['’]t ask|\balways\b|\ballow all\b|\bremember\b|\bin (the )?future\b|\bfuture sessions\b|\bthe rest of\b"
    r"|\b(for|during|from|in) this (session|conversation|chat|project|folder|directory|repo)|^yes, and (?!tell\b)"
    r"|^trust\b|\bI trust\b",
    re.IGNORECASE,
)
"""How hosts say that they will not ask again. The words change from version to version; a choice that is said to last
and does not does less harm than the other way round."""


@dataclass(frozen=True)
class ChoiceShape:
    """A dialog about one of `topics` reaches from the nearest row like `top` (which is not its own), or from the first
    row on the screen like `begin`, to the lowest row. Its choices are numbered rows like `row`, with the groups `mark`
    (of the one that is marked), `key` (which picks it) and `label`; below them only rows like `below` may stand. With
    `frame` it is a box, whose sides are none of the text. What `LASTING` or `lasting` finds means that the host
    will not ask again; what `in_pane` finds takes more than its key, so it can be chosen in the pane only.

    Or all of its choices stand in one row like `across`, with the group `labels` (three blanks between them) and, where
    the row tells how far the box reaches, `edge`. The marked one has another background; Left and Right move the mark,
    Enter picks. A box of `tallest` rows, with its first and its last one, may be cut off by its host."""

    topics: frozenset[str]
    below: re.Pattern[str]
    lasting: re.Pattern[str] | None = None
    row: re.Pattern[str] | None = None
    across: re.Pattern[str] | None = None
    tallest: int = 0
    top: re.Pattern[str] | None = None
    begin: re.Pattern[str] | None = None
    in_pane: re.Pattern[str] | None = None
    frame: str = ""

    def choice(self, key: str, label: str) -> Choice:
        found = (pattern.search(label) for pattern in (LASTING, self.lasting) if pattern is not None)
        return Choice(key, label, any(found))


def choice_shape(data: Mapping[str, Any]) -> ChoiceShape:
    """What `choices:` describes. Raises what `load_profiles` catches."""
    if ("row" in data) == ("across" in data):
        raise ValueError("choices: one of row and across says where they stand")
    if ("top" in data) == ("begin" in data):
        raise ValueError("choices: one of top and begin says where a dialog begins")
    return ChoiceShape(
        topics=frozenset(map(str, data["topics"])),
        below=re.compile(data["below"]),
        lasting=re.compile(data["lasting"]) if "lasting" in data else None,
        row=_with_groups(data, "row", {"mark", "key", "label"}),
        across=_with_groups(data, "across", {"labels", "edge"}),
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
