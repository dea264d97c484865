"""Bulk writing: several processes write the values that a machine receives when it joins or has lost its files. One
process writes 3 000 values a second, and the hub delivers ten times as many.

`python -m multi_agent_mcp.hub.restoring DIRECTORY UUID MACHINE` is one such process: it answers every pickled batch on
standard input with the length and the pickled fields of a `Written`, and ends with its relay.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import zlib
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.hub.applying import Applying
from multi_agent_mcp.hub.disk import refusal_words
from multi_agent_mcp.hub.share_directory import relay_client_of
from multi_agent_mcp.hub.stream import Stored
from multi_agent_mcp.hub.subjects import MARKS, Names, Own
from multi_agent_mcp.programs import child_environment, python
from multi_agent_mcp.store.authority import ALONE
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.files import write_all

PROCESSES = 4 if (os.cpu_count() or 1) >= 4 else 2
"""The number of processes: a divisor of the number of lock stripes, so that no two take the same stripe."""
LENGTH_BYTES = 8


class Written(NamedTuple):
    """What a batch has led to: the arguments of `Applying.on_written` for each file, the marks whose messages have not
    come yet, and the reason if the disk has refused it, else ""."""

    files: list[tuple[int, int]]
    early: dict[str, str]
    refused: str = ""


class Restoring:
    """A pool of processes that apply values; see `running`."""

    def __init__(self, names: Names, pipes: Sequence[tuple[StreamWriter, StreamReader, asyncio.Lock]]) -> None:
        self._names = names
        self._pipes = pipes

    async def apply(self, values: Sequence[Stored]) -> Written:
        """Applies values durably, as `Applying.apply` when restoring, but without consequences; concurrent calls are
        applied in order. Returns the files written. Raises `StorageError`."""
        parts = parted(values, self._names, len(self._pipes))
        done = await asyncio.gather(*(_handed(part, *pipe) for part, pipe in zip(parts, self._pipes, strict=True)))
        files = [each for written in done for each in written.files]
        return Written(files, {key: at for written in done for key, at in written.early.items()})


@asynccontextmanager
async def running(path: Path, names: Names, machine: str) -> AsyncIterator[Restoring]:
    """Runs the processes within the context, for the session at `path`."""
    call = (*python(__name__), str(path), names.uuid, machine)
    how: dict[str, Any] = {"stdin": PIPE, "stdout": PIPE, "env": child_environment()}
    processes = await asyncio.gather(*(asyncio.create_subprocess_exec(*call, **how) for _ in range(PROCESSES)))
    try:
        ends = ((each.stdin, each.stdout) for each in processes)
        yield Restoring(names, [(into, out, asyncio.Lock()) for into, out in ends if into and out])
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def parted(values: Sequence[Stored], names: Names, count: int) -> list[list[Stored]]:
    """Divides values into one part for each process. A mark goes with its item; marks of earlier items go together for
    each inbox, which has one lock."""
    named = [(names.parse(stored.subject), stored) for stored in values]
    arrived = {(what.owner, what.name) for what, _ in named if isinstance(what, Own) and what.kind in MARKS}
    parts: list[list[Stored]] = [[] for _ in range(count)]
    for what, stored in named:
        if isinstance(what, Own):
            alone = what.kind in MARKS.values() and (what.owner, what.name) not in arrived
            key = what.owner if alone else what.name
        else:
            key = (what or "").partition(".")[2]
        parts[zlib.crc32(key.encode(errors="surrogateescape")) % count].append(stored)
    return parts


async def _handed(part: Sequence[Stored], writer: StreamWriter, reader: StreamReader, turn: asyncio.Lock) -> Written:
    """Sends a part to a process and waits until it is written; processes answer in order. Raises `StorageError`."""
    try:
        writer.write(pickle.dumps(part))
        async with turn:
            await writer.drain()
            length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
            done = Written(*pickle.loads(await reader.readexactly(length)))  # noqa: S301 - from a process of ours
    except (OSError, asyncio.IncompleteReadError):
        done = Written([], {}, "the process that was to write it has ended")
    if done.refused:
        raise StorageError(path="-", reason=done.refused)
    return done


def main() -> None:
    path, uuid, machine = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    workspace = Workspace(path.parent, path.name, relay_client_of(path) or ALONE)  # type: ignore[arg-type]
    written: list[tuple[int, int]] = []
    applying = Applying(
        workspace=workspace,
        names=Names(uuid),
        machine=machine,
        consequences=_Nothing(),
        on_written=lambda *file: written.append(file),
    )
    # The relay has ended, perhaps in the middle of a batch, or before it took the answer.
    with suppress(EOFError, pickle.UnpicklingError, BrokenPipeError):
        while True:
            part = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our relay
            written.clear()
            applying.early.clear()
            try:
                applying.apply(part, restoring=True)
                refused = ""
            except StorageError as error:
                refused = "{1} ({0})".format(*refusal_words(error))
            done = pickle.dumps((written, applying.early, refused))
            write_all(sys.stdout.fileno(), len(done).to_bytes(LENGTH_BYTES, "big") + done)


class _Nothing:
    """Ignores the consequences of restored values."""

    def task_changed(self, task: Task) -> None: ...

    def questions_changed(self) -> None: ...

    def arrived(self, message: Message) -> None: ...

    def notified(self, notice: Notification) -> None: ...

    def edited(self, agent_id: str) -> None: ...

    def moved_in(self, agent: Agent) -> None: ...


if __name__ == "__main__":
    main()
