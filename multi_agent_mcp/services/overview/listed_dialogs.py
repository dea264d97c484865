"""Which dialogs were listed to whom a moment ago, so that a person who has just read a question need not repeat its id
(docs/protocol.md, Answering a dialog)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.times import format_time, is_recent, parse_time
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.domain.dialog import Dialog


LISTED_FOR = timedelta(minutes=1)


@dataclass(eq=False)
class ListedDialogs(Service):
    """The records `.listed/{agent_id}.json`, one for each person, which may be deleted."""

    def note(self, person_id: str, dialogs: Mapping[str, Dialog]) -> None:
        """Records that these dialogs, by agent id, are now listed to the person. Best effort: what is not recorded is
        asked for once more."""
        if dialogs:
            at = format_time(self.clock())
            new = {agent_id: {"id": dialog.id, "at": at} for agent_id, dialog in dialogs.items()}
            record = self.workspace.listed_dialogs(person_id)
            with suppress(StorageError):
                record.write({**record.facts(), **new}, durable=False)

    def of(self, person_id: str, agent_id: str) -> str | None:
        """The id of the agent's dialog that was last listed to the person; None if that is longer ago than
        `LISTED_FOR`."""
        record = self.workspace.listed_dialogs(person_id).facts().get(agent_id)
        if not isinstance(record, dict) or (at := parse_time(record.get("at"))) is None:
            return None
        return str(record.get("id")) if is_recent(at, self.clock(), LISTED_FOR) else None
