"""The findings of `doctor`, the context of the checks that produce them, those from one walk through the session
directory, and its pruning."""

from __future__ import annotations

import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from multi_agent_mcp.config import trust_file
from multi_agent_mcp.domain.entity import is_entity_id, new_id
from multi_agent_mcp.domain.text import display_id
from multi_agent_mcp.errors import Reason, StorageError
from multi_agent_mcp.features.ours import OURS
from multi_agent_mcp.store.authority import PAYLOAD_BYTES, SHARED_BYTES
from multi_agent_mcp.store.codec import Unreadable, parse
from multi_agent_mcp.store.directory import QUARANTINE, REASON_SUFFIX, Directory, Quarantine, reason_in
from multi_agent_mcp.store.durable_files import INDEXES
from multi_agent_mcp.store.records import RELAY_SOCKET
from multi_agent_mcp.system.files import DIRECTORY_MODE, FILE_MODE, Node, walk
from multi_agent_mcp.system.ownership import is_trusted, own_users, user_name

if TYPE_CHECKING:
    from multi_agent_mcp.contributions import Contributions
    from multi_agent_mcp.domain.agent import Agent, AgentSession
    from multi_agent_mcp.domain.dialog import Dialog
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.features import Kind
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.operations import Operations
    from multi_agent_mcp.services.overview.missing_sessions import MissingSessions
    from multi_agent_mcp.services.overview.pane_looks import LookAtPane
    from multi_agent_mcp.services.overview.stuck_agents import StuckAgents
    from multi_agent_mcp.services.overview.supervision import Supervision
    from multi_agent_mcp.services.questions import QuestionEffects
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.sessions.session_records import OwnerWaits
    from multi_agent_mcp.services.tasks.checks import Checks
    from multi_agent_mcp.services.team.agents import Agents, Signatures
    from multi_agent_mcp.session import Session
    from multi_agent_mcp.store.collection import Collection
    from multi_agent_mcp.store.shared_collection import SharedCollection
    from multi_agent_mcp.store.workspace import Workspace
    from multi_agent_mcp.texts import Texts

# Disk usage of a session, by kind of file.

ASIDE = frozenset({"archive", "logs", QUARANTINE})
"""Subdirectories of a kind that are counted separately."""


class DiskUsage:
    """The number of files and their size on the disk, by kind: `ipc`, `ipc/archive`, `executions/logs`, …"""

    def __init__(self) -> None:
        self._files: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def add(self, node: Node) -> None:
        kind = _kind(node.name.rpartition("/")[0])
        self._files[kind] += not node.is_directory
        self._bytes[kind] += node.disk_bytes

    def files(self, *kinds: str) -> int:
        return sum(self._files[kind] for kind in kinds)

    def as_answer(self) -> list[dict[str, Any]]:
        """The kinds with their numbers of files and bytes, largest first."""
        return [{"kind": kind, "files": self._files[kind], "bytes": size} for kind, size in self._bytes.most_common()]


@lru_cache(maxsize=64)  # the files of a directory are adjacent
def _kind(directory: str) -> str:
    first, *deeper = directory.split("/")
    aside = [] if first.startswith(".") else [part for part in deeper if part in ASIDE]
    return "/".join([first or ".", *aside[:1]])


PROBLEM, NOTE = "problem", "note"

T = TypeVar("T")


class Track(Protocol):
    """Passes items on, and may display their count. `name` says what they are; `total` is their approximate number,
    None if unknown."""

    def __call__(self, items: Iterable[T], name: str, total: int | None, /) -> Iterable[T]: ...


def untracked(items: Iterable[T], _name: str, _total: int | None) -> Iterable[T]:
    return items


@dataclass(frozen=True)
class Finding:
    """A result of a check. A `problem` makes `doctor` exit with 1, a `note` does not. `repair` describes the remedy;
    `fix`, if any, is called by `doctor --repair` and loses nothing that can be read."""

    check: str
    level: str
    subject: str
    finding: str
    repair: str = ""
    fix: Callable[[], object] | None = field(default=None, compare=False, repr=False)

    def as_answer(self) -> dict[str, Any]:
        answer = {name: getattr(self, name) for name in ("check", "level", "subject", "finding", "repair")}
        return {**answer, "repairable": self.fix is not None}


@dataclass(frozen=True)
class CheckContext:
    """The services and texts that checks use. `probe` returns why an agent's pane cannot be rung, or None; `program`
    the files that run there; `look_at` the host in the pane; `misnamed` the pane that a process's environment
    names although it does not run there; `harmful_options` yields the options of tmux that harm agents, their
    ids, and the command that turns each off; `hosts` are the names of the usable profiles,
    `profiles_left_out` the unusable files and why. `dialog` reads the question in an agent's pane; `hooks_ran` tells
    whether a session's host has run a hook of ours. `outdated_files` returns hosts' files with the host, an agent and
    what writes them again, `still_open` the features that are off and of which something is open, with its ids. `track`
    is passed items of which there may be very many; the walk through the session's directory adds to `usage`."""

    session: Session
    agents: Agents
    sessions: Sessions
    owner_waits: OwnerWaits
    missing_sessions: MissingSessions
    supervision: Supervision
    derived: DerivedNotices
    question_effects: QuestionEffects
    stuck_agents: StuckAgents
    signatures: Signatures
    checks: Checks
    operations: Operations
    probe: Callable[[Agent], str | None]
    program: Callable[[Agent], str]
    look_at: LookAtPane
    misnamed: Callable[[int], str | None]
    harmful_options: Callable[[Sequence[Agent]], Iterable[tuple[str, Sequence[str], str]]]
    hosts: Sequence[str]
    profiles_left_out: Mapping[str, str]
    contributions: Contributions
    dialog: Callable[[Agent], Dialog | None]
    hooks_ran: Callable[[AgentSession], bool]
    still_open: Callable[[], Mapping[str, Sequence[str]]] = dict
    outdated_files: Callable[[], Iterable[tuple[str, str, Path, Callable[[], object]]]] = tuple
    track: Track = untracked
    usage: DiskUsage = field(default_factory=DiskUsage)

    @property
    def workspace(self) -> Workspace:
        return self.session.workspace

    @property
    def texts(self) -> Texts:
        return self.session.people

    def found(
        self, check: str, level: str, subject: str, key: str, fix: Callable[[], object] | None = None, /, **values: Any
    ) -> Finding:
        """A finding with the texts `finding.{key}` and `repair.{key}`, filled with `values`."""
        repair = f"repair.{key}"
        words = self.texts(repair, **values) if repair in self.texts else ""
        return Finding(check, level, subject, self.texts(f"finding.{key}", **values), words, fix)


# Checks of the tree: links, modes, quarantined files, leftovers, disk usage.

KINDS = frozenset(kind.directory for feature in OURS for kind in feature.kinds)
SHARED = frozenset(kind.directory for feature in OURS for kind in feature.kinds if kind.travels == "shared")
"""The kinds of files that have a directory of their own in the session's (docs/format.md, The tree)."""
DERIVED = (".doorbell", INDEXES, ".locks", ".tmp")
SCRATCH_SECONDS = 3600.0
"""The age from which a scratch file was left by a killed process; a younger one may still be written to."""
_NAMED = re.compile(r"(tasks|delegations|questions)/(?:(?!quarantine/)[^/]+/)?(?:archive/[^/]+/)?([^/.][^/]*)\.md")
"""The files of what tools know by an id, which their names must be."""
_PRIVATE_FILE = stat.S_IFREG | FILE_MODE


def misplaced(context: CheckContext) -> Iterator[Finding]:
    """Files in place of directories, which prevent reading and writing anything of that kind."""
    base, files = context.workspace.path, context.workspace.files
    kinds = [kind for kind in ("ipc", "notifications") if (base / kind).is_dir()]
    boxes = [f"{kind}/{name}" for kind in kinds for name in files.names(base / kind) if not name.startswith(".")]
    known = {kind.directory for kind in context.session.features.each("kinds")} | KINDS
    for name in (*sorted(known), *DERIVED, *boxes, *(f"{box}/archive" for box in boxes)):
        if (base / name).is_file():
            yield context.found("tree", PROBLEM, name, "no_directory")
    for log in files.names(base / ".doorbell") if (base / ".doorbell").is_dir() else ():
        if (base / ".doorbell" / log).is_dir():
            yield context.found("tree", PROBLEM, f".doorbell/{log}", "no_log")


def tree(context: CheckContext) -> Iterator[Finding]:
    """Findings from the names, types and modes of files, whatever their content."""
    for name in context.agents.registry.damaged():
        yield context.found("registry", NOTE, name, "restored", name=name)
    found: list[Finding] = []
    own, is_trusted_whole = own_users(), is_trusted(context.workspace.root)
    if is_trusted_whole:
        yield context.found("owner", NOTE, ".", "trusted", path=context.workspace.root, file=trust_file())
    open_to_others: Counter[int] = Counter()
    seen, again = set[tuple[str, ...]](), set[tuple[str, ...]]()
    for node in context.track(walk(context.workspace.path), "files", None):
        context.usage.add(node)
        if node.status.st_size > SHARED_BYTES:
            found += _too_large(context, node)
        if node.status.st_uid not in own and not is_trusted_whole:
            owner = user_name(node.status.st_uid)
            found.append(context.found("owner", PROBLEM, node.name, "of_another", owner=owner))
        if (named := _NAMED.fullmatch(node.name)) and node.is_file:
            found += _unnamed(context, node, *named.groups())
            (again if named.groups() in seen else seen).add(named.groups())
        if node.status.st_mode == _PRIVATE_FILE and node.name.endswith(".md"):
            continue  # nearly all files: nothing else to check
        open_to_others[node.wanted_mode] += node.mode & 0o077 != 0 and not (node.is_link or _is_secret(node))
        for check in (_link, _mode, _quarantined, _mailbox, _leftover):
            found += check(context, node)
    found += _doubled(context, again)
    yield from sorted(found, key=lambda finding: finding.subject)
    for wanted in filter(open_to_others.get, (DIRECTORY_MODE, FILE_MODE)):
        kind = "open_files" if wanted == FILE_MODE else "open_directories"
        fix = partial(_close_all, context.workspace.path, wanted)
        yield context.found("modes", NOTE, ".", kind, fix, count=open_to_others[wanted], wanted=f"{wanted:o}")


def _too_large(context: CheckContext, node: Node) -> Iterator[Finding]:
    """Files that cannot travel to the other machines. Logs go in pieces, and copies of mail not at all."""
    parts = Path(node.name).parts
    is_entity = parts[0] in KINDS and node.name.endswith(".md") and QUARANTINE not in parts and node.is_file
    is_copy = parts[0] == "conversations" and parts[-1] != "conversation.md"
    limit = SHARED_BYTES if parts[0] in SHARED else PAYLOAD_BYTES
    if context.workspace.authority.here is not None and is_entity and not is_copy and node.status.st_size > limit:
        facts = {"size": f"{node.status.st_size / (1 << 20):.1f}", "limit": f"{limit / (1 << 20):g}"}
        yield context.found("machines", PROBLEM, node.name, "too_large", **facts)


def _link(context: CheckContext, node: Node) -> Iterator[Finding]:
    """Symbolic links, pipes and devices, which have no effect because they are never followed or opened."""
    if node.is_link:
        target = (context.workspace.path / node.name).readlink()
        yield context.found("links", PROBLEM, node.name, "link", target=target)
    elif not node.is_directory and not node.is_file and node.name != RELAY_SOCKET:
        yield context.found("links", PROBLEM, node.name, "no_file")


def _mode(context: CheckContext, node: Node) -> Iterator[Finding]:
    """Files that their owner may not read or write, and secrets that other users may. For other files the latter is a
    single note, by `tree`: below a closed session directory it does little harm, and umask(2) causes it."""
    if node.is_link:
        return
    wanted = node.wanted_mode
    facts = {"mode": f"{node.mode:04o}", "wanted": f"{wanted:o}", "name": node.name}
    fix = partial(_chmod, context.workspace.path / node.name, wanted)
    if node.mode & 0o077 and _is_secret(node):
        yield context.found("modes", PROBLEM, node.name, "open_to_others", fix, **facts)
    if node.mode & wanted != wanted:
        yield context.found("unreadable", PROBLEM, node.name, "closed_to_owner", fix, **facts)


def _quarantined(context: CheckContext, node: Node) -> Iterator[Finding]:
    """Quarantined files, with the reason."""
    path = context.workspace.path / node.name
    if path.parent.name == QUARANTINE and node.name.endswith(REASON_SUFFIX):
        reason = reason_in(context.workspace.files.read(path) or b"", context.texts.language)
        yield context.found("files", PROBLEM, node.name.removesuffix(REASON_SUFFIX), "quarantined", reason=reason)


def damaged(context: CheckContext, kind: Kind) -> Iterator[tuple[str, str]]:
    """The files of a kind that could not be read, now or before, each with the reason. For checks of other packages."""
    workspace, collection = context.workspace, context.workspace.collection(kind)
    collection.all()  # sets aside what cannot be read
    for directory in collection.directories():
        for name in sorted(workspace.files.names(directory.quarantine.path)):
            if name.endswith(REASON_SUFFIX):
                found = workspace.files.read(directory.quarantine.path / name) or b""
                yield name.removesuffix(REASON_SUFFIX), reason_in(found, context.texts.language)


def _mailbox(context: CheckContext, node: Node) -> Iterator[Finding]:
    """Mailboxes of unknown agents."""
    kind, _, agent_id = node.name.partition("/")
    is_mailbox = kind in ("ipc", "notifications") and node.is_directory and node.name.count("/") == 1
    if is_mailbox and agent_id not in context.agents.registry.all():
        yield context.found("files", PROBLEM, node.name, "no_agent", agent_id=display_id(agent_id))


def _unnamed(context: CheckContext, node: Node, kind: str, stem: str) -> Iterator[Finding]:
    """Files of people whose name is no id, which do not count, as no tool takes such a name. Each is to have the id in
    its header, if no other file has that: older lines of a task's history are stored under it."""
    workspace, collection = context.workspace, _collections(context)[kind]
    if collection.layout.is_name(f"{stem}.md"):
        return
    path, said = workspace.path / node.name, ""
    with suppress(Unreadable, StorageError):
        said = str(parse(workspace.files.read(path) or b"").header.get("id"))
    is_free = is_entity_id(collection.kind, said) and collection.find(said) is None
    target = path.with_name(f"{said if is_free else new_id(collection.kind)}.md")
    fix = partial(workspace.files.relocate, [(path, target)])
    yield context.found("files", PROBLEM, node.name, "no_id", fix, name=target.name)


def _doubled(context: CheckContext, named: Iterable[tuple[str, ...]]) -> Iterator[Finding]:
    """Files of one id in several places, as hands copy them: lists show all of them, tools change one, and one travels
    to the other machines."""
    base = context.workspace.path
    for kind, stem in named:
        collection, name = _collections(context)[kind], f"{stem}.md"
        paths = [directory.path / name for directory in collection.directories() if collection.layout.is_name(name)]
        places = [str(path.relative_to(base)) for path in paths if path.is_file()]
        if len(places) > 1:  # else it has been moved meanwhile
            yield context.found("files", PROBLEM, places[0], "same_id", others=", ".join(places[1:]))


def _collections(context: CheckContext) -> Mapping[str, SharedCollection[Any]]:
    """Returns the collections whose files tools know by their ids, by their directories."""
    workspace = context.workspace
    return {each.base.name: each for each in (workspace.tasks, workspace.delegations, workspace.questions)}


def _leftover(context: CheckContext, node: Node) -> Iterator[Finding]:
    """Scratch files of processes that were killed while writing. Nothing in them was ever acknowledged."""
    if is_leftover(node):
        remove = partial(context.workspace.files.remove, context.workspace.path / node.name)
        yield context.found("leftovers", NOTE, node.name, "leftover", remove)


def is_leftover(node: Node) -> bool:
    place, _, name = node.name.rpartition("/")
    is_old = time.time() - node.status.st_mtime > SCRATCH_SECONDS
    return place == ".tmp" and name.endswith(".tmp") and is_old and not node.is_directory


def _is_secret(node: Node) -> bool:
    return node.name == "." or "secrets" in node.name.split("/")


def _close_all(base: Path, wanted: int) -> None:
    for node in walk(base):
        if node.wanted_mode == wanted and node.mode & 0o077:
            _chmod(base / node.name, wanted)


def _chmod(path: Path, mode: int) -> None:
    """Changes the mode by chmod(2), but never through a symbolic link that may have replaced the file."""
    if not path.is_symlink():
        path.chmod(mode)


# Checks of file contents (unfinished operations, missing notifications, signatures, histories) and of the disk.


def operations(context: CheckContext) -> Iterator[Finding]:
    """Operations whose process was killed midway, and which no reader has finished since; unreadable intents."""
    for intent in context.workspace.intents.left_behind():
        finish = context.operations.finish
        yield context.found("operations", PROBLEM, intent.id, "cut_off", finish, kind=intent.kind)
    intents = context.workspace.intents
    for path in intents.unreadable():
        reason = Reason("no_intent")
        fix = partial(Quarantine(intents.files, intents.path).set_aside, path, reason)
        yield context.found("operations", PROBLEM, f".intents/{path.name}", "no_intent", fix, reason=reason)


def unreadable(context: CheckContext) -> Iterator[Finding]:
    """Files that the disk fails to read, which readers skip. Reads all open entities, so that unreadable files are
    quarantined now, not when an agent needs them; finished tasks and read mail are too many for that."""
    workspace = context.workspace
    collections: tuple[Collection[Any], ...] = (
        workspace.tasks,
        workspace.sessions,
        workspace.executions,
        workspace.delegations,
        workspace.conversations,
        workspace.questions,
    )
    directories: list[Directory[Any]] = [
        workspace.owner_waits,
        *(collection.directory(name) for collection in collections for name in collection.partitions()),
        *(workspace.mailbox(agent_id).hot for agent_id in context.agents.registry.all()),
        *(workspace.notices(agent_id).hot for agent_id in context.agents.registry.all()),
    ]
    for directory in directories:
        for name in directory.skipped():
            subject = str((directory.path / name).relative_to(workspace.path))
            yield context.found("disk", PROBLEM, subject, "bad_sector")


def hard_links(context: CheckContext) -> Iterator[Finding]:
    """A file system without link(2)."""
    if not context.workspace.files.has_links():
        yield context.found("disk", NOTE, ".", "no_hard_links")


def notifications(context: CheckContext) -> Iterator[Finding]:
    """Tasks whose notifications were not written, because the writer was killed before."""
    for task in context.workspace.tasks.open():
        for notice in context.derived.missing(task):
            fix = partial(context.derived.ensure, task)
            facts = {"agent_id": notice.target_agent_id, "action": notice.action}
            # The next reader writes the notification; until then a missing interrupt does not stop its agent.
            level = PROBLEM if notice.interrupts else NOTE
            yield context.found("notifications", level, task.id, "not_told", fix, **facts)


def signatures(context: CheckContext) -> Iterator[Finding]:
    """Messages that do not verify: unread, read, archived, and the copies in conversations."""
    found = (
        (directory.path / name, message, mailbox_of)
        for directory, mailbox_of in _directories(context)
        for name, message in directory.each()
    )
    total = context.usage.files("ipc", "ipc/archive", "conversations")
    for path, message, mailbox_of in context.track(found, "messages", total):
        yield from _judged(context, path, message, mailbox_of)


def histories(context: CheckContext) -> Iterator[Finding]:
    """Tasks whose older history is incomplete: a file that was cut off, or edited by a person."""
    for agent_id in context.workspace.tasks.partitions():
        for task in context.workspace.tasks.all(agent_id):
            if missing := len(task.history) - sum(1 for _ in task.history):
                path = context.workspace.tasks.history_path(task.id).relative_to(context.workspace.path)
                facts = {"missing": missing, "earlier": task.history.earlier, "task_id": task.id}
                yield context.found("histories", PROBLEM, str(path), "history_cut", **facts)


def _directories(context: CheckContext) -> Iterator[tuple[Directory[Message], str | None]]:
    for agent_id in context.agents.registry.all():
        for directory in context.workspace.mailbox(agent_id).directories():
            yield directory, agent_id
    for conversation in context.workspace.conversations.all():
        yield context.workspace.conversation_messages(conversation.id), None


def _judged(context: CheckContext, path: Path, message: Message, mailbox_of: str | None) -> Iterator[Finding]:
    verdict = context.signatures.verdict(message, mailbox_of)
    if verdict == "signed":
        return
    level = NOTE if verdict == "unsigned" else PROBLEM
    facts = {"sender": display_id(message.sender_id), "receiver": display_id(message.receiver_id)}
    yield context.found("signatures", level, str(path.relative_to(context.workspace.path)), verdict, **facts)
