"""How far this machine has applied the streams of the hub, and whether the hub is still the same one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.hub.stream import OP, Hub, StreamState
from multi_agent_mcp.store.records import Record


class Progress:
    """The content of `.share/position.json`. A power cut may leave an earlier one: then some values are applied twice.

    `identity`: of the hub. `places`: up to where each stream is in the files. `scanned`: the time up to which all
    changes of files here were sent (seconds since the epoch). `witnesses`: of each stream the newest revision that the
    hub is known to have had, and its operation. `until`: the places up to which a machine with new files applies its
    own values, too. `early`: the marks whose messages have not come yet (see `Applying`).
    """

    def __init__(self, record: Record, shared: str) -> None:
        self._record = record
        self._shared = shared
        noted = record.facts()
        self.identity = str(noted.get("identity", ""))
        self.places: dict[str, int] = dict(noted.get("places") or {shared: int(noted.get("sequence", 0))})
        self.until: dict[str, int] = dict(noted.get("until", {}))
        self.witnesses: dict[str, tuple[int, str]] = {
            stream: (int(revision), str(operation))
            for stream, (revision, operation) in noted.get("witnesses", {}).items()
        }
        self.early: dict[str, str] = dict(noted.get("early", {}))
        self.scanned = float(noted.get("scanned", 0))
        self._noted = self._state

    @property
    def _state(self) -> tuple[object, ...]:
        return self.identity, {**self.places}, {**self.until}, len(self.early), self.scanned > 0

    def note(self) -> None:
        """Writes the progress if it has changed. `sequence` is the shared revision, which `reseed` goes on from."""
        if self._noted == (state := self._state):
            return
        facts = {
            "identity": self.identity,
            "sequence": self.place(self._shared),
            "places": {**self.places},
            "scanned": self.scanned,
            "witnesses": {**self.witnesses},
            "until": {**self.until},
            "early": {**self.early},
        }
        self._record.write(facts)
        self._noted = state

    def place(self, stream: str) -> int:
        return self.places.get(stream, 0)

    @property
    def position(self) -> int:
        """The number of values that have passed here, which the machines compare."""
        return sum(self.places.values())

    @property
    def target(self) -> int:
        """The position at which all is restored."""
        return sum(self.until.values())

    @property
    def is_new(self) -> bool:
        """Whether no value of the hub was ever applied here."""
        return self.position == self.target == 0

    def begin(self, states: Mapping[str, StreamState]) -> None:
        """Begins to restore all values that there are, including this machine's own. This is written at once, so that
        files made here in the meantime do not count as received from the hub if the relay dies. Raises `StorageError`:
        then it has not begun."""
        self.until = {stream: state.last_sequence for stream, state in states.items() if state.last_sequence}
        try:
            self.note()
        except StorageError:
            self.until = {}
            raise

    def is_restoring(self, stream: str) -> bool:
        return self.place(stream) < self.until.get(stream, 0)

    def witnessed(self, stream: str, revision: int, operation: str) -> None:
        self.witnesses[stream] = max(self.witnesses.get(stream, (0, "")), (revision, operation))

    @property
    def newest(self) -> dict[str, int]:
        """The newest revision of each stream that this machine had of the hub."""
        streams = self.places.keys() | self.witnesses.keys()
        return {stream: max(self.witnesses.get(stream, (0, ""))[0], self.place(stream)) for stream in streams}

    async def recognises(self, hub: Hub, states: Mapping[str, StreamState], newest: Mapping[str, int]) -> bool:
        """Returns whether this is the hub followed so far, or its successor (see `administration.reseed`), to which all
        files are sent again. A hub restored from an old copy may have grown again since: then the witness's revision
        belongs to another operation. `newest` is that of before the states were asked for, as this machine's own values
        go on growing meanwhile. Raises `HubUnreachable`."""
        (said, *others) = {state.identity for state in states.values()}
        identity, _, predecessor = said.partition(" after ")
        if others or not identity:
            return False  # it has lost a stream, or its streams have another form
        if self.identity in ("", identity):
            self.identity = identity
            known = {stream: last for stream, last in newest.items() if stream in states}
            if any(states[stream].last_sequence < last for stream, last in known.items()):
                return False
            return all(await asyncio.gather(*(self._is_as_witnessed(hub, stream) for stream in known)))
        if predecessor != self.identity:
            return False
        self.scanned = 0.0  # before the identity: `note` may be called in between
        self.places, self.witnesses = {self._shared: self.place(self._shared)}, {}
        self.identity = identity
        return True

    async def _is_as_witnessed(self, hub: Hub, stream: str) -> bool:
        revision, operation = self.witnesses.get(stream, (0, ""))
        found = await hub.at(stream, revision) if revision else None
        return found is None or found.headers.get(OP, "") == operation
