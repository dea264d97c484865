"""An append-only text file, read by lines from its end or from a line on, without loading all of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.archive import INDEXES
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.json_file import Record
from multi_agent_mcp.system.file_status import careful
from multi_agent_mcp.system.writing import storage_errors

BLOCK_BYTES = 1 << 16
COUNTED_ANEW_BYTES = 1 << 20
"""The number of new bytes from which on a count of lines is saved, so that the next one continues there."""


class LineFile:
    """The lines of the file `path`, none while it does not exist. Methods raise `StorageError`."""

    def __init__(self, files: Files, path: Path) -> None:
        self.files = files
        self.path = path
        self._counted = Record(files, files.base / INDEXES / f"{path.relative_to(files.base)}.json")

    def last(self, count: int) -> list[str]:
        """Returns the last `count` lines, oldest first."""
        data = b""
        for file in self._opened():
            position = file.seek(0, os.SEEK_END)
            while position and data.count(b"\n") <= count:
                start = max(position - BLOCK_BYTES, 0)
                file.seek(start)
                data = file.read(position - start) + data
                position = start
        return _lines(data)[-count:] if count else []

    def since(self, number: int) -> list[str]:
        """Returns the lines from this number on; the first line is 0."""
        return [_text(line) for file in self._opened() for line in islice(file, number, None)]

    def count(self) -> int:
        """Returns the number of lines."""
        lines, end = self._noted()
        for file in self._opened():
            size = file.seek(0, os.SEEK_END)
            if size < end:  # it was truncated
                lines, end = 0, 0
            file.seek(end)
            last = b""
            while block := file.read(BLOCK_BYTES):
                lines, end, last = lines + block.count(b"\n"), end + len(block), block
            if last and not last.endswith(b"\n"):
                return lines + 1
            if end - self._noted()[1] > COUNTED_ANEW_BYTES:
                self._note(lines, end)
        return lines

    def _noted(self) -> tuple[int, int]:
        noted = self._counted.read()
        found = isinstance(noted, list) and len(noted) == 2 and all(isinstance(number, int) for number in noted)
        return (noted[0], noted[1]) if found else (0, 0)

    def _note(self, lines: int, end: int) -> None:
        try:
            self._counted.write([lines, end], durable=False)
        except StorageError:
            return  # the lines are counted again

    def _opened(self) -> Iterator[BinaryIO]:
        with storage_errors(self.path, FileNotFoundError):
            self.files.containment.require(self.path.parent)
            try:
                file = open(self.path, "rb", opener=careful)  # noqa: SIM115 - closed below
            except FileNotFoundError:
                return
            with file:
                yield file


def _lines(data: bytes) -> list[str]:
    return [_text(line) for line in data.split(b"\n")[: None if not data.endswith(b"\n") else -1]] if data else []


def _text(line: bytes) -> str:
    return line.rstrip(b"\r\n").decode(errors="replace")
