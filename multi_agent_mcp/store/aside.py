"""A new session that appears whole or not at all: it is made in a directory beside its root, and renamed."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

from multi_agent_mcp.domain.entity import SessionName
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.files import make_directory, sync_directory, sync_together, write_new

_UNFINISHED = ".unfinished-"
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)


@contextmanager
def made_aside(root: Path, session: SessionName) -> Iterator[Path]:
    """Yields a root near `root` in which a session is made, durable or not, and then puts it into `root` in one step,
    durably: nobody sees half of it, and nothing is left if the context raises. What a killed process has left is
    removed by the next one. Raises `FileExistsError` if `root` has the session, and as `Workspace.make`."""
    Workspace(root, session).require_possible()
    if (root / session).exists():
        raise _exists(root / session)
    near = next(directory for directory in root.parents if directory.is_dir())
    _remove_abandoned(near, root.name)
    aside, claim = _claimed(near, root.name)
    try:
        write_new(aside / ".gitignore", b"*\n", durable=False)  # first: keys are beside the project's files
        yield aside
        sync_together([aside, *aside.rglob("*")])
        _put_in_place(aside, root, session)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        os.close(claim)


def _put_in_place(aside: Path, root: Path, session: SessionName) -> None:
    """A new root comes with its session; one that is there gets the session alone."""
    make_directory(root.parent)
    try:
        if root.exists():
            Workspace(root, session).keep_out_of_git()
            _rename(aside / session, root / session)
            sync_directory(root)
        else:
            _rename(aside, root)
            sync_directory(root.parent)
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
        if (root / session).exists():
            raise _exists(root / session) from error
        _put_in_place(aside, root, session)  # another session has just brought the root


def _rename(source: Path, target: Path) -> None:
    os.rename(source, target)  # noqa: PTH104 - rename(2): not onto a directory that has anything in it


def _exists(path: Path) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


def _claimed(near: Path, name: str) -> tuple[Path, int]:
    """A new directory in `near`, and a descriptor that has it locked as long as its maker lives."""
    while True:
        aside = Path(mkdtemp(prefix=f"{name}{_UNFINISHED}", dir=near))
        with suppress(FileNotFoundError):
            descriptor = os.open(aside, os.O_RDONLY | os.O_DIRECTORY)
            with suppress(OSError):  # a file system that cannot lock directories: nobody finds it abandoned, either
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if aside.exists():
                return aside, descriptor
            os.close(descriptor)  # whoever removes what is abandoned has been quicker


def _remove_abandoned(near: Path, name: str) -> None:
    for aside in near.glob(f"{name}{_UNFINISHED}*"):
        with suppress(OSError):
            descriptor = os.open(aside, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(aside, ignore_errors=True)
            finally:
                os.close(descriptor)
