"""The kinds of entities that machines exchange, one line each in `KINDS` (docs/machines.md, What travels).

Mail, notifications and their marks, logs, the Owner's wait, agents' records and settings are no entities with a file of
their own, or are no one's alone; `hub.publishing` and `hub.applying` know them by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from multi_agent_mcp.domain.repository.reservation import CLAIMS

if TYPE_CHECKING:
    from multi_agent_mcp.store.workspace import Workspace


class Rule(Enum):
    """How the entities of a kind travel."""

    SHARED = "shared"
    """Any machine changes them, by compare-and-set: a `SharedCollection`, also written by hand."""
    STATE = "state"
    """Their agent's home changes them, and their newest state travels: a `Collection` by `agent_id`."""
    COPY = "copy"
    """Their agent's home writes them once, `{directory}/{partition}/{name}.md` with an `agent_id` in the header, and
    their bytes travel."""


class Kind(NamedTuple):
    """`name` is the prefix of their ids and their kind in subjects, `directory` where their files are, and the name of
    their collection in `Workspace`."""

    name: str
    directory: str
    rule: Rule

    def collection(self, workspace: Workspace) -> Any:
        return getattr(workspace, self.directory)


KINDS = (
    Kind("cnv", "conversations", Rule.SHARED),
    Kind("dlg", "delegations", Rule.SHARED),
    Kind("tsk", "tasks", Rule.SHARED),
    Kind("qst", "questions", Rule.SHARED),
    Kind("rsv", "reservations", Rule.SHARED),
    Kind("ses", "sessions", Rule.STATE),
    Kind("exec", "executions", Rule.STATE),
    Kind("hnd", "handoffs", Rule.COPY),
    Kind("rcp", "receipts", Rule.COPY),
)
"""Every kind. One more is one more line."""

WITHOUT_FILES = (CLAIMS.partition(".")[0],)
"""The kinds of shared values that only order changes: no machine has a file of them."""

BY_NAME: Mapping[str, Kind] = {kind.name: kind for kind in KINDS}
BY_DIRECTORY: Mapping[str, Kind] = {kind.directory: kind for kind in KINDS}


def directories(*rules: Rule) -> frozenset[str]:
    """Returns the directories of the kinds that travel by one of these rules."""
    return frozenset(kind.directory for kind in KINDS if kind.rule in rules)
