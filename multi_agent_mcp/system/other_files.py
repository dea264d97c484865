"""Finds files of other programs by patterns."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path


def matching(base: Path, pattern: str, words: Mapping[str, str]) -> list[Path]:
    """The files like `pattern` below `base`, sorted; {names} in it stand for `words`, literally."""
    for name, word in words.items():
        pattern = pattern.replace(f"{{{name}}}", glob.escape(word))
    return sorted(Path(found) for found in glob.glob(str(base / pattern)) if os.path.isfile(found))  # noqa: PTH113, PTH207


def last_lines(path: str, size: int) -> list[bytes]:
    """The complete lines in the last bytes of a file; none if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return []
    try:
        start = max(os.fstat(descriptor).st_size - size, 0)
        return os.pread(descriptor, size, start).split(b"\n")[bool(start) : -1]
    except OSError:
        return []
    finally:
        os.close(descriptor)


def named_from(first: Path, pattern: str, levels: int = 3) -> Iterator[Path]:
    """Yields the files like `pattern` whose path comes after that of `first`, in directories by date (`levels` of
    them, as 2026/11/23)."""
    top = first.parents[levels]
    yield from _after(top, first.relative_to(top).parts, pattern)


def _after(directory: Path, first: Sequence[str], pattern: str) -> Iterator[Path]:
    names: list[str] = []
    with suppress(OSError):
        names = sorted(os.listdir(directory))  # noqa: PTH208
    for name in names:
        if first and name < first[0]:
            continue
        if len(first) == 1:
            if name != first[0] and fnmatch(name, pattern):
                yield directory / name
        else:
            same = name == first[0]
            yield from _after(directory / name, first[1:] if same else [""] * (len(first) - 1), pattern)
