"""The table of all writing operations."""

from __future__ import annotations

from tests.crash.operations import board, chats, mail, people, pool, programs, proofs, questions, reports
from tests.crash.stage import Operation

ROOMS: dict[str, tuple[Operation, ...]] = {
    room.__name__.rpartition(".")[2]: room.OPERATIONS
    for room in (mail, reports, board, chats, questions, people, pool, proofs, programs)
}
OPERATIONS: dict[str, Operation] = {operation.name: operation for room in ROOMS.values() for operation in room}
