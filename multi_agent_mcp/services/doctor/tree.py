"""One walk through the session directory: links, modes, files that cannot be read, what was left over."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from multi_agent_mcp.services.doctor.finding import NOTE, PROBLEM, CheckContext, Finding
from multi_agent_mcp.store.quarantine import DIRECTORY, REASON_SUFFIX, reason_in
from multi_agent_mcp.system.disk import DIRECTORY_MODE, FILE_MODE

KINDS = frozenset(
    {"ipc", "notifications", "tasks", "sessions", "executions", "conversations", "delegations", "owner_wait", "secrets"}
)
"""What has a directory of its own in a session's (docs/format.md, The tree)."""
SCRATCH_SECONDS = 3600.0
"""An older scratch file was left by a process that was killed; a younger one may still be written to."""


class Node(NamedTuple):
    """A file or directory; `name` is its path in the session directory (`.` for that directory itself)."""

    path: Path
    name: str
    status: os.stat_result

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.status.st_mode)

    @property
    def mode(self) -> int:
        return stat.S_IMODE(self.status.st_mode)


def walk(base: Path) -> Iterator[Node]:
    """The session directory and all below it; symbolic links are not followed."""
    yield Node(base, ".", base.lstat())
    for directory, subdirectories, names in os.walk(base):
        for name in sorted((*subdirectories, *names)):
            path = Path(directory, name)
            try:
                yield Node(path, str(path.relative_to(base)), path.lstat())
            except FileNotFoundError:
                continue  # moved or deleted meanwhile


def tree(context: CheckContext) -> Iterator[Finding]:
    """What the files' names, types and modes say, whatever is in them."""
    yield from _misplaced(context)  # first: what cannot be read may break the rest
    _read_everything(context)
    nodes = list(walk(context.workspace.path))
    yield from _restored(context)
    yield from _links(context, nodes)
    yield from _modes(context, nodes)
    yield from _unreadable(context, nodes)
    yield from _quarantined(context, nodes)
    yield from _unknown_mailboxes(context, nodes)
    yield from _leftovers(context, nodes)


def _misplaced(context: CheckContext) -> Iterator[Finding]:
    """Files where a directory belongs: nothing of that kind can be read or written."""
    base, files = context.workspace.path, context.workspace.files
    kinds = [kind for kind in ("ipc", "notifications") if (base / kind).is_dir()]
    boxes = [f"{kind}/{name}" for kind in kinds for name in files.names(base / kind)]
    for name in (*sorted(KINDS), *boxes):
        if (base / name).is_file() and not (base / name).name.startswith("."):
            yield context.found("tree", PROBLEM, name, "no_directory")


def _read_everything(context: CheckContext) -> None:
    """So that a file that cannot be read is quarantined now, and not when an agent needs it. Finished tasks and read
    mail are too many for that."""
    workspace = context.workspace
    workspace.tasks.open()
    for collection in (workspace.sessions, workspace.executions, workspace.delegations, workspace.conversations):
        collection.all()
    for agent_id in context.agents.registry.all():
        workspace.mailbox(agent_id).hot.entries()
        workspace.notices(agent_id).hot.entries()
        context.owner_waits.of(agent_id)


def _restored(context: CheckContext) -> Iterator[Finding]:
    for name in context.agents.registry.damaged():
        yield context.found("registry", NOTE, name, "restored", name=name)


def _links(context: CheckContext, nodes: Sequence[Node]) -> Iterator[Finding]:
    """Symbolic links, pipes and devices: they are never followed or waited for, so they do not do what was meant."""
    for node in nodes:
        if node.is_link:
            yield context.found("links", PROBLEM, node.name, "link", target=node.path.readlink())
        elif not node.is_directory and not stat.S_ISREG(node.status.st_mode):
            yield context.found("links", PROBLEM, node.name, "no_file")


def _modes(context: CheckContext, nodes: Sequence[Node]) -> Iterator[Finding]:
    """What other users may read or write. Below a closed session directory that is only worth a note: a file put there
    by hand has the mode that its author's umask gave it."""
    inside: dict[int, list[Path]] = {DIRECTORY_MODE: [], FILE_MODE: []}
    for node in nodes:
        if node.is_link or not node.mode & 0o077:
            continue
        wanted = DIRECTORY_MODE if node.is_directory else FILE_MODE
        if node.name == "." or "secrets" in Path(node.name).parts:
            facts = {"mode": f"{node.mode:04o}", "wanted": f"{wanted:o}", "name": node.name}
            mend = partial(_chmod, [node.path], wanted)
            yield context.found("modes", PROBLEM, node.name, "open_to_others", mend, **facts)
        else:
            inside[wanted].append(node.path)
    for wanted, paths in inside.items():
        if paths:
            kind = "open_files" if wanted == FILE_MODE else "open_directories"
            mend = partial(_chmod, paths, wanted)
            yield context.found("modes", NOTE, ".", kind, mend, count=len(paths), wanted=f"{wanted:o}")


def _unreadable(context: CheckContext, nodes: Sequence[Node]) -> Iterator[Finding]:
    """What its own owner may not read or write."""
    for node in nodes:
        wanted = DIRECTORY_MODE if node.is_directory else FILE_MODE
        if not node.is_link and node.mode & wanted != wanted:
            facts = {"mode": f"{node.mode:04o}", "wanted": f"{wanted:o}", "name": node.name}
            mend = partial(_chmod, [node.path], wanted)
            yield context.found("unreadable", PROBLEM, node.name, "closed_to_owner", mend, **facts)


def _quarantined(context: CheckContext, nodes: Sequence[Node]) -> Iterator[Finding]:
    """Files that could not be read, with the reason."""
    for node in nodes:
        if node.path.parent.name == DIRECTORY and node.name.endswith(REASON_SUFFIX):
            reason = reason_in(context.workspace.files.read(node.path) or b"", context.texts.language)
            subject = node.name.removesuffix(REASON_SUFFIX)
            yield context.found("files", PROBLEM, subject, "quarantined", reason=reason)


def _unknown_mailboxes(context: CheckContext, nodes: Sequence[Node]) -> Iterator[Finding]:
    known = context.agents.registry.all()
    for node in nodes:
        kind, _, agent_id = node.name.partition("/")
        is_mailbox = kind in ("ipc", "notifications") and node.is_directory and node.name.count("/") == 1
        if is_mailbox and agent_id not in known:
            yield context.found("files", PROBLEM, node.name, "no_agent")


def _leftovers(context: CheckContext, nodes: Sequence[Node]) -> Iterator[Finding]:
    """Scratch files of processes that were killed while they wrote. Nothing in them was ever acknowledged."""
    files = context.workspace.files
    for node in nodes:
        is_scratch = node.path.parent == files.scratch and node.path.suffix == ".tmp"
        if is_scratch and time.time() - node.status.st_mtime > SCRATCH_SECONDS:
            yield context.found("leftovers", NOTE, node.name, "leftover", partial(files.remove, node.path))


def _chmod(paths: Sequence[Path], mode: int) -> None:
    """chmod(2), never through a symbolic link that was put there meanwhile."""
    for path in paths:
        if not path.is_symlink():
            path.chmod(mode)
