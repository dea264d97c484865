"""Whose files are opened: what they name is run as this user, so nobody else may have written them
(docs/security.md, Other users' sessions)."""

from __future__ import annotations

import errno
import grp
import json
import os
import pwd
import shlex
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from multi_agent_mcp.config import ROOT_NAME, session_names, trust_file
from multi_agent_mcp.errors import InvalidArguments, Reason, UntrustedSession
from multi_agent_mcp.system.file_status import careful
from multi_agent_mcp.system.files import FILE_MODE, make_directory, storage_errors, write_all

SUPERUSER = 0
TEAM_SUFFIXES = frozenset({".yaml", ".yml"})
ENTERED_BY_OTHERS = stat.S_IXGRP | stat.S_IXOTH


def own_users() -> frozenset[int]:
    """The users whose files are as good as ours: this process's and the superuser. Not the one who called sudo(8):
    what the superuser makes in that user's session, its user cannot open any more."""
    return frozenset({os.geteuid(), SUPERUSER})


def user_name(user: int) -> str:
    """The user's name and number, for people."""
    try:
        return f"{pwd.getpwuid(user).pw_name} ({user})"
    except KeyError:
        return f"uid {user}"


def require_own(path: Path, *directories: Path) -> None:
    """Raises `UntrustedSession` if somebody else owns or may write to `path`, one of the `directories` in it or one of
    their entries, unless `path` is trusted. What does not exist, or may not be looked at, is nobody's."""
    reason = next(_suspicions(path, *directories), None)
    if reason is not None and not is_trusted(path):
        raise _untrusted(reason, path)


def require_owner(owner: int, found: Path, root: Path) -> None:
    """Raises `UntrustedSession` if this owner of what was `found` below a root is somebody else, unless the root is
    trusted."""
    if owner not in own_users() and not is_trusted(root):
        raise _untrusted(_belonging(found, owner), root)


def _untrusted(reason: Reason, path: Path) -> UntrustedSession:
    key = "users_session" if os.geteuid() == SUPERUSER and reason.key == "belongs_to" else None
    return UntrustedSession(
        key, reason=reason, command=f"multi-agent-mcp doctor trust {shlex.quote(str(path.absolute()))}"
    )


def require_entered(*directories: Path) -> None:
    """Raises `UntrustedSession` for a directory that its owner, somebody else or the superuser, keeps closed to us."""
    for directory in directories:
        status = _status(directory)
        if status is None or not stat.S_ISDIR(status.st_mode) or status.st_uid == os.geteuid():
            continue
        if not os.access(directory, os.R_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise UntrustedSession("closed_session", path=directory.absolute(), owner=user_name(status.st_uid))


def require_root_entered(root: Path) -> None:
    """As `require_entered`, for a root, and for what may be a session in it unless there is one that we can enter."""
    require_entered(root)
    if not session_names(root):
        with suppress(OSError):
            require_entered(*root.iterdir())


def _belonging(path: Path, owner: int) -> Reason:
    return Reason("belongs_to", path=str(path), owner=user_name(owner))


def _suspicions(path: Path, *directories: Path) -> Iterator[Reason]:
    """Yields what somebody else owns or may write to. In a directory that others cannot enter, modes do not matter."""
    own = own_users()
    yield from _about(path, own)
    is_open = _is_entered(path)
    for directory in directories:
        yield from _about(directory, own, is_open=is_open)
        with suppress(OSError), os.scandir(directory) as entries:
            is_entered = is_open and _is_entered(directory)
            for entry in entries:
                yield from _about(entry, own, is_open=is_entered)


def _is_entered(directory: Path) -> bool:
    status = _status(directory)
    return status is not None and bool(status.st_mode & ENTERED_BY_OTHERS)


def _about(item: Path | os.DirEntry[str], own: Collection[int], *, is_open: bool = True) -> Iterator[Reason]:
    """Yields what is wrong with one file or directory. A symbolic link belongs to whoever made it, too."""
    status = _status(item, is_followed=False)
    if status is not None and stat.S_ISLNK(status.st_mode) and status.st_uid in own:
        status = _status(item)
    if status is None:
        return
    if status.st_uid not in own:
        yield _belonging(Path(item), status.st_uid)
    elif is_open and others_may_write(status):
        yield Reason("open_to_writers", path=str(Path(item)), mode=f"{stat.S_IMODE(status.st_mode):04o}")


def _status(item: Path | os.DirEntry[str], *, is_followed: bool = True) -> os.stat_result | None:
    try:
        return item.stat(follow_symlinks=is_followed)
    except OSError:
        return None


def others_may_write(status: os.stat_result) -> bool:
    """Whether the mode of a file or directory lets somebody else write: everybody, or a group of more than one user.
    Access control lists are not read."""
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return False  # the mode of a symbolic link means nothing
    by_group = bool(status.st_mode & stat.S_IWGRP) and not _is_private(status.st_gid)
    return by_group or bool(status.st_mode & stat.S_IWOTH)


def _is_private(group: int) -> bool:
    """Whether one of our users is alone in a group: that of the same name, which many systems make for every user and
    combine with the umask 002 (useradd(8), USERGROUPS_ENAB). Where neither has a name, as in a container, the group of
    the same number."""
    users = {user: _login(user) for user in own_users()}
    try:
        known = grp.getgrgid(group)
    except KeyError:
        return group in users and users[group] is None
    is_alone = set(known.gr_mem) <= {name for name in users.values() if name}
    return is_alone and (group == SUPERUSER or known.gr_name in users.values())


def _login(user: int) -> str | None:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return None


def is_trusted(path: Path) -> bool:
    """Whether `trust` was called for what is at this path, and it still belongs to the same user."""
    place = trust_file()
    status = _status(path)
    if place is None or status is None:
        return False
    with suppress(OSError), open(place, "rb", opener=careful) as file:
        if _list_complaint(place, os.fstat(file.fileno())) is None:
            return _line(path, status.st_uid) in file.read().splitlines()
    return False


def trust(path: Path) -> tuple[str, Path]:
    """Trusts the root or team.yaml at this path, as long as it belongs to the same user. Returns this user's name, and
    the file that records it. Raises `InvalidArguments` for anything else, `StorageError` if there is nothing at
    the path, or the file cannot be written, and `UntrustedSession` for a file that would not be believed."""
    with storage_errors(path):
        owner = path.stat().st_uid
    _require_usable(path)
    place = trust_file()
    if place is None:
        raise UntrustedSession("no_home")
    if not is_trusted(path):
        with storage_errors(place):
            make_directory(place.parent)
            _note(place, _line(path, owner))
    return user_name(owner), place


def _require_usable(path: Path) -> None:
    """Raises `InvalidArguments` for what is neither a root nor a team.yaml, naming the root that must be meant."""
    if _is_root(path) or (path.is_file() and path.suffix in TEAM_SUFFIXES):
        return
    meant = [near for near in (path / ROOT_NAME, path.absolute().parent) if _is_root(near)]
    if len(meant) == 1:
        raise InvalidArguments("trust_root_meant", path=path.absolute(), root=meant[0].absolute())
    raise InvalidArguments("trust_no_root", path=path.absolute())


def _is_root(path: Path) -> bool:
    """Whether a directory is called as a root, or has sessions."""
    is_called = ROOT_NAME in {path.absolute().name, os.path.basename(os.path.realpath(path))}  # noqa: PTH119 - as above
    return path.is_dir() and (is_called or bool(session_names(path)))


def _note(place: Path, line: bytes) -> None:
    """Appends a line of its own to the list; a last line without an end is ended first. Raises OSError, also for a
    pipe, without waiting for its reader, and `UntrustedSession`."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(place, flags, FILE_MODE)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(place))
        if (reason := _list_complaint(place, status)) is not None:
            raise UntrustedSession("trust_list", reason=reason)
        data = file.read()
        write_all(descriptor, (b"\n" if data and not data.endswith(b"\n") else b"") + line + b"\n")


def _list_complaint(place: Path, status: os.stat_result) -> Reason | None:
    """Why the list is not believed; None if it is. A pipe or a device says nothing."""
    if status.st_uid not in own_users():
        return _belonging(place, status.st_uid)
    if not stat.S_ISREG(status.st_mode) or others_may_write(status):
        return Reason("open_to_writers", path=str(place), mode=f"{stat.S_IMODE(status.st_mode):04o}")
    return None


def _line(path: Path, owner: int) -> bytes:
    """The line of a trusted path, whatever characters it has: it names the owner, as what another user puts at
    that path is not meant."""
    return json.dumps([owner, os.path.realpath(path)]).encode()
