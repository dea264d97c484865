"""The block that `init --agents-md` adds to a project's AGENTS.md and CLAUDE.md (docs/hosts.md, Instructions in the
project)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.system.other_files import FileChange, apply_change, read_external, remove_file

AGENTS, CLAUDE = "AGENTS.md", "CLAUDE.md"
BEGIN, END = b"<!-- multi-agent-mcp: begin -->", b"<!-- multi-agent-mcp: end -->"
_MARKERS = re.compile(rb"^<!-- multi-agent-mcp: (begin|end) -->\r?$", re.MULTILINE)
_IMPORTS_AGENTS = re.compile(rb"^\s*@(?:\./)?AGENTS\.md\s*$", re.MULTILINE)


class ProjectInstructions:
    """The block that `init --agents-md` adds to AGENTS.md and CLAUDE.md, which hosts read by themselves, and takes out
    again (docs/hosts.md, Instructions in the project). `backups` gets a copy before each change.

    All other bytes of a file stay as they are. What separates the block from the text before it tells how the file
    ended before: after a line break one empty line, and a line break behind the block; else two line breaks, and none
    behind it. So the file that the block is taken out of is, byte for byte, the one that it was added to.
    """

    def __init__(self, project: Path, backups: Path) -> None:
        self._project = project
        self._backups = backups

    def add(self, block: str, *, for_claude: bool) -> list[Path]:
        """Adds the block, or brings it up to date; returns the files that changed. AGENTS.md is made if it is missing,
        CLAUDE.md `for_claude` only, which does not read AGENTS.md; one that imports AGENTS.md or is the same file is
        left as it is. Raises as `_change`, before anything is changed."""
        changes = [self._change(AGENTS, block)]
        claude = self._project / CLAUDE
        is_same = os.path.realpath(claude) == os.path.realpath(self._project / AGENTS)
        before = None if is_same else read_external(self._inside(CLAUDE))
        if not is_same and (for_claude if before is None else not _IMPORTS_AGENTS.search(before)):
            changes.append(self._change(CLAUDE, block))
        return list(self._applied(changes))

    def remove(self) -> list[Path]:
        """Takes the block out again, and removes a file that holds nothing else; returns the files that changed. Raises
        as `_change`, before anything is changed."""
        names = dict.fromkeys(os.path.realpath(self._project / name) for name in (AGENTS, CLAUDE))
        return list(self._applied([self._change(os.path.relpath(name, self._project), None) for name in names]))

    def _change(self, name: str, block: str | None) -> FileChange:
        """The change of one file. Raises `InvalidArguments` for a file that a link leads to out of the project, that is
        no text, or whose marks are not one block, and `StorageError`."""
        path = self._inside(name)
        before = read_external(path)
        if b"\0" in (before or b""):
            raise InvalidArguments("agents_md_no_text", file=path)
        try:
            after = _without(before or b"") if block is None else _with(before or b"", block)
        except ValueError as error:
            raise InvalidArguments("agents_md_marks", file=path, begin=BEGIN.decode(), end=END.decode()) from error
        return FileChange(path, before, after, is_public=True)

    def _inside(self, name: str) -> Path:
        path = self._project / name
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self._project)):
            raise InvalidArguments("agents_md_leads_out", file=path)
        return path

    def _applied(self, changes: list[FileChange]) -> Iterator[Path]:
        for change in changes:
            if change.before is None and not change.after:
                continue
            if not change.after and change.before:
                remove_file(change, self._backups)
                yield change.path
            elif change.changes:
                apply_change(change, self._backups)
                yield change.path


def _found(data: bytes) -> tuple[int, int] | None:
    """Where the block begins and ends. Raises `ValueError` if the marks are not those of one block."""
    marks = list(_MARKERS.finditer(data))
    if not marks:
        return None
    if [mark[1] for mark in marks] != [b"begin", b"end"]:
        raise ValueError(len(marks))
    return marks[0].start(), marks[1].end() - marks[1][0].endswith(b"\r")


def _with(data: bytes, block: str) -> bytes:
    line = b"\r\n" if b"\r\n" in data else b"\n"
    text = line.join([BEGIN, *block.strip("\n").encode().split(b"\n"), END])
    if (place := _found(data)) is not None:
        return data[: place[0]] + text + data[place[1] :]
    if not data:
        return text + line
    return data + line + text + line if data.endswith(b"\n") else data + line + line + text


def _without(data: bytes) -> bytes:
    if (place := _found(data)) is None:
        return data
    head, tail = data[: place[0]], data[place[1] :]
    line = b"\r\n" if b"\r\n" in data else b"\n"
    if not tail:
        return head.removesuffix(line + line)
    return (head.removesuffix(line) if head else head) + tail.removeprefix(line)
