"""How far this machine has applied the hub's stream, and whether the hub is still the one that the stream came from."""

from __future__ import annotations

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.hub.stream import OP, Hub, StreamState
from multi_agent_mcp.store.json_file import Record


class Progress:
    """As `.share/position.json` has it. A power cut may leave an earlier one: then some values are applied twice.

    `identity`: of the hub's stream. `sequence`, `log_sequence`: up to where its values and its logs are in the files.
    `scanned`: when all that had changed here was known to be there (seconds since the epoch). `witness`: the newest
    revision that it is known to have had, and which operation it was. `restore_until`, `restore_logs_until`: up to
    there a machine whose files are new takes over its own, too.
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
        """Writes it down, unless nothing has come since."""
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
        """Whether nothing of the hub was ever had here."""
        return self.sequence == self.restore_until == 0

    def begin(self, last: int, last_log: int) -> None:
        """Everything up to there comes now, and the machine's own, too. Written down at once: what is made here in the
        meantime must not count as come from the hub, should the relay die. Raises `StorageError`: then it has not
        begun."""
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
        """Whether this is the hub whose values have come so far, or its successor (see `hub.reseeding`), to which all
        files are brought again. One that was restored may have grown again since: then another operation has the newest
        revision that is known here. Raises `HubUnreachable`."""
        identity, _, predecessor = state.identity.partition(" after ")
        if self.identity in ("", identity):
            self.identity = identity
            return await self._is_as_witnessed(hub, state)
        if predecessor != self.identity:
            return False
        self.scanned, self.log_sequence = 0.0, 0  # before the identity: they may be noted in between
        self.identity = identity
        return True

    async def _is_as_witnessed(self, hub: Hub, state: StreamState) -> bool:
        revision, operation = self.witness
        if state.last_sequence < max(revision, self.sequence):
            return False
        found = await hub.at(revision) if revision else None
        return found is None or found.headers.get(OP) == operation
