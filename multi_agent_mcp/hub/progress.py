"""This machine's progress in applying the hub's streams, and the check that the hub is still the same one."""

from __future__ import annotations

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.hub.stream import OP, Hub, StreamState
from multi_agent_mcp.store.json_file import Record


class Progress:
    """The content of `.share/position.json`. A power cut may leave an earlier one: then some values are applied twice.

    `identity`: of the hub's stream. `sequence`, `log_sequence`: up to where its values and its logs are in the files.
    `scanned`: the time up to which all changes of files here were sent (seconds since the epoch). `witness`: the newest
    revision that the hub is known to have had, and its operation. `restore_until`, `restore_logs_until`: the positions
    up to which a machine with new files applies its own values, too.
    """

    def __init__(self, record: Record) -> None:
        self._record = record
        noted = record.read() or {}
        self.identity = str(noted.get("identity", ""))
        self.sequence = int(noted.get("sequence", 0))
        self.log_sequence = int(noted.get("log_sequence", 0))
        self.scanned = float(noted.get("scanned", 0))
        revision, operation = noted.get("witness", (0, ""))
        self.witness = (int(revision), str(operation))
        self.restore_until = int(noted.get("restore_until", 0))
        self.restore_logs_until = int(noted.get("restore_logs_until", 0))
        self._noted = self._place

    @property
    def _place(self) -> tuple[object, ...]:
        return self.identity, self.sequence, self.log_sequence, self.restore_until, self.scanned > 0

    def note(self) -> None:
        """Writes the progress if it has changed."""
        if self._noted == (place := self._place):
            return
        facts = {
            "identity": self.identity,
            "sequence": self.sequence,
            "log_sequence": self.log_sequence,
            "scanned": self.scanned,
            "witness": self.witness,
            "restore_until": self.restore_until,
            "restore_logs_until": self.restore_logs_until,
        }
        self._record.write(facts)
        self._noted = place

    @property
    def is_new(self) -> bool:
        """Whether no value of the hub was ever applied here."""
        return self.sequence == self.restore_until == 0

    def begin(self, last: int, last_log: int) -> None:
        """Begins to restore all values up to these positions, including this machine's own. This is written at once, so
        that files made here in the meantime do not count as received from the hub if the relay dies. Raises
        `StorageError`: then it has not begun."""
        self.restore_until, self.restore_logs_until = last, last_log
        try:
            self.note()
        except StorageError:
            self.restore_until = self.restore_logs_until = 0
            raise

    @property
    def is_restoring(self) -> bool:
        return self.sequence < self.restore_until

    @property
    def is_restoring_logs(self) -> bool:
        return self.log_sequence < self.restore_logs_until

    def witnessed(self, revision: int, operation: str) -> None:
        self.witness = max(self.witness, (revision, operation))

    async def recognises(self, hub: Hub, state: StreamState) -> bool:
        """Returns whether this is the hub followed so far, or its successor (see `hub.reseeding`), to which all files
        are sent again. A hub restored from an old copy may have grown again since: then the witness's revision belongs
        to another operation. Raises `HubUnreachable`."""
        identity, _, predecessor = state.identity.partition(" after ")
        if self.identity in ("", identity):
            self.identity = identity
            return await self._is_as_witnessed(hub, state)
        if predecessor != self.identity:
            return False
        self.scanned, self.log_sequence = 0.0, 0  # before the identity: `note` may be called in between
        self.identity = identity
        return True

    async def _is_as_witnessed(self, hub: Hub, state: StreamState) -> bool:
        revision, operation = self.witness
        if state.last_sequence < max(revision, self.sequence):
            return False
        found = await hub.at(revision) if revision else None
        return found is None or found.headers.get(OP) == operation
