"""The floor of every write: a temporary file, fsync, rename, fsync of the directory. Nothing but the standard library,
so that the bare server which uses it stays bare."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

_numbers = itertools.count()


def durable_write(directory: Path, data: bytes) -> Path:
    """Puts a new file in place so that it survives a power cut. Returns its path."""
    path = directory / f"{os.getpid()}-{next(_numbers)}.md"
    scratch = path.with_suffix(".tmp")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    scratch.rename(path)
    parent = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
    return path
