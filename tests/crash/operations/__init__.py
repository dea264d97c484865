"""Every writing operation there is, as a table."""

from __future__ import annotations

from tests.crash.operations import board, chats, mail, people, reports
from tests.crash.stage import Operation

OPERATIONS: dict[str, Operation] = {
    operation.name: operation for room in (mail, reports, board, chats, people) for operation in room.OPERATIONS
}
