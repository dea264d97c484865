"""The tree: links, modes, files that cannot be read, what was left over."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from multi_agent_mcp.services.doctor.finding import NOTE, PROBLEM, CheckContext, Finding
from multi_agent_mcp.store.files.containment import read_file
from multi_agent_mcp.store.quarantine import DIRECTORY, REASON_SUFFIX
from multi_agent_mcp.system.disk import DIRECTORY_MODE, FILE_MODE

KINDS = frozenset(
    {"ipc", "notifications", "tasks", "sessions", "executions", "conversations", "delegations", "owner_wait", "secrets"}
)
"""What has a directory of its own in a session's (docs/format.md, The tree)."""
LEFTOVER_SECONDS = 3600.0
"""A scratch file that is older was left by a process that was killed; the youngest may be somebody's just now."""


def links(patient: CheckContext) -> Iterator[Finding]:
    """Symbolic links, pipes and the like: never followed, never waited for, and so probably not what was meant."""
    for path, status in _everything(patient):
        if stat.S_ISLNK(status.st_mode):
            finding = f"a symbolic link to {path.readlink()}; it is not followed out of the session"
            yield Finding("links", PROBLEM, _name(patient, path), finding, "replace it by what it points to")
        elif not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
            yield Finding("links", PROBLEM, _name(patient, path), "neither a file nor a directory", "remove it")


def directories(patient: CheckContext) -> Iterator[Finding]:
    """Files that lie where a directory belongs: nothing of that kind can be read or written."""
    for path, status in _everything(patient):
        where = path.relative_to(patient.workspace.path).parts
        is_kind = len(where) == 1 and where[0] in KINDS
        is_box = len(where) == 2 and where[0] in ("ipc", "notifications") and not where[1].startswith(".")
        if (is_kind or is_box) and stat.S_ISREG(status.st_mode):
            yield Finding("tree", PROBLEM, _name(patient, path), "a file where a directory belongs", "move it away")


def modes(patient: CheckContext) -> Iterator[Finding]:
    """What others than its owner may read or write. Below a closed session directory that is only worth a note: a file
    put there by hand has the mode of whoever put it."""
    inside: dict[int, list[Path]] = {DIRECTORY_MODE: [], FILE_MODE: []}
    base = patient.workspace.path
    for path, status in _everything(patient):
        if stat.S_ISLNK(status.st_mode) or not stat.S_IMODE(status.st_mode) & 0o077:
            continue
        wanted = DIRECTORY_MODE if stat.S_ISDIR(status.st_mode) else FILE_MODE
        if path != base and "secrets" not in path.relative_to(base).parts:
            inside[wanted].append(path)
            continue
        finding = f"others have rights to it ({stat.S_IMODE(status.st_mode):04o})"
        repair = partial(_close, [path], wanted)
        yield Finding(
            "modes", PROBLEM, _name(patient, path), finding, f"chmod {wanted:o} {_name(patient, path)}", repair
        )
    for wanted, paths in inside.items():
        if paths:
            finding = (
                f"others would have rights to {len(paths)} of its {'files' if wanted == FILE_MODE else 'directories'}"
            )
            yield Finding("modes", NOTE, ".", finding, f"chmod {wanted:o}", partial(_close, paths, wanted))


def unreadable(patient: CheckContext) -> Iterator[Finding]:
    """What its own owner may not read."""
    for path, status in _everything(patient):
        wanted = 0o700 if stat.S_ISDIR(status.st_mode) else 0o600
        if stat.S_ISLNK(status.st_mode) or stat.S_IMODE(status.st_mode) & wanted == wanted:
            continue
        finding = f"its owner has too few rights ({stat.S_IMODE(status.st_mode):04o})"
        repair = partial(_close, [path], wanted)
        subject = _name(patient, path)
        yield Finding("unreadable", PROBLEM, subject, finding, f"chmod {wanted:o} {subject}", repair)


def quarantined(patient: CheckContext) -> Iterator[Finding]:
    """Files that could not be read, with the reason, and mailboxes of nobody."""
    _read_everything(patient)
    for reason in sorted(path for path, _ in _everything(patient) if path.name.endswith(REASON_SUFFIX)):
        if reason.parent.name != DIRECTORY:
            continue
        why = read_file(reason)[0].decode(errors="replace").strip()
        subject = _name(patient, reason).removesuffix(REASON_SUFFIX)
        yield Finding("files", PROBLEM, subject, why, "mend it and move it back one directory")
    known = set(patient.agents.registry.all())
    for kind in ("ipc", "notifications"):
        base = patient.workspace.path / kind
        for box in sorted(base.iterdir()) if base.is_dir() else []:
            if box.is_dir() and box.name not in known:
                yield Finding("files", PROBLEM, f"{kind}/{box.name}", "of no agent", "agent add, or remove it")


def _read_everything(patient: CheckContext) -> None:
    """So that a file nobody can read is set aside now, and not when somebody needs it. Finished tasks and read mail
    are too many for that."""
    workspace = patient.workspace
    workspace.tasks.open()
    for collection in (workspace.sessions, workspace.executions, workspace.delegations, workspace.conversations):
        collection.all()
    for agent_id in patient.agents.registry.all():
        workspace.mailbox(agent_id).hot.entries()
        workspace.notices(agent_id).hot.entries()
        patient.owner_waits.of(agent_id)


def leftovers(patient: CheckContext) -> Iterator[Finding]:
    """Scratch files of processes that were killed while they wrote: never acknowledged, never anybody's."""
    scratch = patient.workspace.files.scratch
    for path, status in _everything(patient):
        if path.parent == scratch and path.suffix == ".tmp" and time.time() - status.st_mtime > LEFTOVER_SECONDS:
            finding = "left by a process that was killed while it wrote"
            yield Finding(
                "leftovers", NOTE, _name(patient, path), finding, "delete it", partial(path.unlink, missing_ok=True)
            )


def _everything(patient: CheckContext) -> Iterator[tuple[Path, os.stat_result]]:
    """The session directory and all below it, links not followed."""
    base = patient.workspace.path
    yield base, base.lstat()
    for directory, subdirectories, names in os.walk(base):
        for name in sorted((*subdirectories, *names)):
            path = Path(directory, name)
            try:
                yield path, path.lstat()
            except FileNotFoundError:
                continue  # moved on meanwhile


def _close(paths: list[Path], mode: int) -> None:
    """chmod(2), never through a symbolic link that was put there meanwhile."""
    for path in paths:
        if not path.is_symlink():
            path.chmod(mode)


def _name(patient: CheckContext, path: Path) -> str:
    return str(path.relative_to(patient.workspace.path))
