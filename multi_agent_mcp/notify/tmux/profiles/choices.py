"""How a profile describes the choices of a host's dialogs: `choices:` in its file (docs/hosts.md, Mending a
profile)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_PARTS = {"mark", "key", "label"}


@dataclass(frozen=True)
class ChoiceShape:
    """A dialog about one of `topics` reaches from the nearest row like `top` (which is not its own), or from the first
    row on the screen like `begin`, to the lowest row. Its choices are numbered rows like `row`, with the groups `mark`
    (of the one that is marked), `key` (which picks it) and `label`; below them only rows like `below` may stand. With
    `frame` it is a box, whose sides are none of the text. What `lasting` finds means that the host will not ask
    again; what `in_pane` finds takes more than its key, so it can be chosen in the pane only."""

    topics: frozenset[str]
    row: re.Pattern[str]
    below: re.Pattern[str]
    lasting: re.Pattern[str]
    top: re.Pattern[str] | None = None
    begin: re.Pattern[str] | None = None
    in_pane: re.Pattern[str] | None = None
    frame: str = ""


def choice_shape(data: Mapping[str, Any]) -> ChoiceShape:
    """What `choices:` describes. Raises what `load_profiles` catches."""
    row = re.compile(data["row"])
    if set(row.groupindex) != _PARTS:
        raise ValueError(f"choices: row has not the groups {', '.join(sorted(_PARTS))}")
    if ("top" in data) == ("begin" in data):
        raise ValueError("choices: one of top and begin says where a dialog begins")
    return ChoiceShape(
        topics=frozenset(map(str, data["topics"])),
        row=row,
        below=re.compile(data["below"]),
        lasting=re.compile(data["lasting"]),
        top=re.compile(data["top"]) if "top" in data else None,
        begin=re.compile(data["begin"]) if "begin" in data else None,
        in_pane=re.compile(data["in_pane"]) if "in_pane" in data else None,
        frame=str(data.get("frame", "")),
    )
