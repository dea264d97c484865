"""Applies values of the hub, written by other machines, to the files, in the hub's order.

A value may be received again (the position is written after the files), may be older than the file (another process was
faster) and may be invalid (any joined machine can publish): applying it twice has no effect, an older value is ignored,
and an invalid one is logged and skipped.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import inf
from pathlib import Path
from typing import Any, Protocol

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.entity import Mark, Readable, entity_id, is_entity_id
from multi_agent_mcp.domain.entity import agent_id as parse_agent_id
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.notification import TOLD_APART, Notification
from multi_agent_mcp.domain.question import Question
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.times import now, parse_time
from multi_agent_mcp.errors import InvalidArguments, InvalidId, StorageError
from multi_agent_mcp.hub import subjects
from multi_agent_mcp.hub.logs import LogParts
from multi_agent_mcp.hub.share_directory import accept_settings
from multi_agent_mcp.hub.sizes import is_acceptable
from multi_agent_mcp.hub.stream import EDITED, MACHINE, OVER, RELAY, WAS, Stored
from multi_agent_mcp.hub.subjects import BY_NAME, KINDS, WITHOUT_FILES, Names, Own, Rule, TravellingKind
from multi_agent_mcp.hub.written_by_people import decoded, is_by_hand, make_way
from multi_agent_mcp.store.codec import Unreadable, parse
from multi_agent_mcp.store.collection import Collection
from multi_agent_mcp.store.inbox import Inbox, file_name
from multi_agent_mcp.store.shared_collection import LINE
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.file_status import Signature

logger = logging.getLogger(__name__)


BULK, TOGETHER = 16, 32
"""The numbers of values above which a batch is made durable at its end, and of entities of a kind above which one look
at all that are here is worth it."""
HAND_OFF, DELEGATION = "hnd", "dlg"
EARLY_MAX = 50_000
PASSED_OVER_MAX = 100
NAME_BYTES = 255
"""The longest file name that file systems accept."""
OF_A_CONVERSATION = b"\nmessage_type: conversation\n"
UNCOPIED = "copy"
"""The kind, in `Applying.early`, of a conversation's message that came before its conversation: its value is the
receiver, and it is copied once the conversation is here."""
HOPELESS = frozenset({errno.ENAMETOOLONG, errno.EFBIG, errno.EINVAL, errno.EILSEQ, errno.EOVERFLOW})
"""The errors of the disk that are permanent; all others may be temporary."""
_AGENT_ID = re.compile(rb"^agent_id: ([\w-]{1,64})\r?$", re.MULTILINE | re.ASCII)
_OF_AN_INTERRUPT = re.compile(rb"^type: interrupt\naction: .*\ntask_id: (tsk_[0-9a-f]{12})$", re.MULTILINE)
_OUR_FILE = re.compile(r"[^/\0.][^/\0]*\.md")
Then = Callable[[], None]
Marks = dict[Path, Mark]


class Consequences(Protocol):
    """The consequences of a value once its file is written. No method raises."""

    def task_changed(self, task: Task) -> None: ...

    def questions_changed(self) -> None: ...

    def arrived(self, message: Message) -> None: ...

    def notified(self, notice: Notification) -> None: ...

    def edited(self, agent_id: str) -> None:
        """Called for an agent of another machine that has edited files."""

    def moved_in(self, agent: Agent) -> None:
        """Called for an agent whose home is this machine, newly or already before."""


@dataclass(eq=False, kw_only=True)
class Applying:
    """Writes values to the files of one session."""

    workspace: Workspace
    names: Names
    machine: str
    consequences: Consequences
    on_written: Callable[[int, int], object]
    """Called for each file written here, with the hash of its signature and the time (nanoseconds since the epoch)."""
    early: dict[str, str] = field(default_factory=dict)
    """What waits for a value of another stream, which may be behind: the marks of messages that have not come yet, in
    words, by `{kind}/{owner}/{name}`; and the receivers of messages whose conversation has not, by
    `{UNCOPIED}/{conversation}/{name}`."""
    relay: str = ""
    """The id of the relay, whose own values are here."""
    left: list[Stored] = field(default_factory=list)
    _marks: dict[tuple[str, str, str], Mark] = field(default_factory=dict)
    standing: set[Own] = field(default_factory=set)
    """The notifications of others under whose name one that was made here stands: the hub is to have that, too."""
    _is_noticed: bool = False
    _perhaps_over: dict[str, None] = field(default_factory=dict)
    """The tasks and delegations about which something has come that may let them leave for the archive."""
    _passed_over: int = 0
    _by_hand: Marks = field(default_factory=dict)
    _merged: set[tuple[str, str, str]] = field(default_factory=set)

    @cached_property
    def logs(self) -> LogParts:
        return LogParts(self.workspace, self.names, self.machine, self._is_home)

    def apply(self, batch: Sequence[Stored], *, restoring: bool, until: float = inf) -> list[Then]:
        """Applies values in order, durably, and returns their consequences, to be called next. `restoring`: this
        machine's own values are applied, too, as its files were lost. After the time `until` (by `time.monotonic`) no
        further one is begun, but one at least; those are `left`. Raises `StorageError`."""
        self.left = []
        batch = [stored for stored in batch if self._is_acceptable(stored)]
        self._marks, self._merged = self._true_marks(batch), set()
        files = self.workspace.files
        in_bulk = files.in_bulk() if len(batch) > BULK else nullcontext()
        with files.noting(self._note), in_bulk, self.workspace.registry.read_once():
            then = self._agents([stored for stored in batch if self._kind(stored) == subjects.AGENT])
            rest = [stored for stored in batch if self._kind(stored) != subjects.AGENT]
            rest.sort(key=lambda stored: self._kind(stored) != subjects.CONVERSATION)  # others may refer to them
            if restoring:
                rest = self._put_in_archives(rest)
            with ExitStack() as together:
                for collection in self._with_many(rest) if restoring else ():
                    together.enter_context(collection.accepting_together())
                then += self._each(rest, partial(self._apply, restoring=restoring), until)
            self._put_away_what_is_over()
            return then

    # A task stays among those that are open until its agent's notification is here, a delegation until its conversation
    # has ended. Both may come in either order, on a machine that joins by two processes at once: each of these looks
    # after it has written, so that one of them sees what both have.
    def _put_away_what_is_over(self) -> None:
        while self._perhaps_over:
            found = next(iter(self._perhaps_over))
            with suppress(InvalidId, Unreadable):
                if found.startswith("tsk_"):
                    self.workspace.tasks.put_away(found)
                elif (delegation := self.workspace.delegations.find(found)) is not None:
                    self.workspace.retire_delegation(delegation)
            del self._perhaps_over[found]

    def _put_in_archives(self, batch: Sequence[Stored]) -> list[Stored]:
        """Applies the messages and notifications of a batch that were read, those of one inbox together; returns the
        other values."""
        found, rest = defaultdict(list), []
        for stored in batch:
            what = self.names.parse(stored.subject)
            mark = self._marks.get((subjects.MARKS.get(what.kind, ""), *what[2:])) if isinstance(what, Own) else None
            if isinstance(what, Own) and mark is not None and mark.read_at is not None and not mark.held:
                found[what.kind, what.owner].append(stored)
            else:
                rest.append(stored)
        for (kind, owner), some in found.items():
            with self._inbox(kind, owner).accepting_together():
                self._each(some, partial(self._apply, restoring=True))
        return rest

    def _with_many(self, batch: Sequence[Stored]) -> list[Collection[Any]]:
        """Returns the collections of which a batch has many entities."""
        found = Counter(self._kind(stored) for stored in batch)
        kinds = (kind for kind in KINDS if kind.rule is not Rule.COPY and found[kind.name] > TOGETHER)
        return [kind.collection(self.workspace) for kind in kinds]

    def _inbox(self, kind: str, owner: str) -> Inbox[Any]:
        """Returns the mailbox of an agent, or its notifications, for their kind or that of their marks. Raises
        `InvalidId`."""
        is_mail = kind in (subjects.MESSAGE, subjects.READ)
        return self.workspace.mailbox(owner) if is_mail else self.workspace.notices(owner)

    def _kind(self, stored: Stored) -> str:
        what = self.names.parse(stored.subject)
        return what.kind if isinstance(what, Own) else (what or "").partition(".")[0]

    def _agents(self, batch: Sequence[Stored]) -> list[Then]:
        """Applies agents' records, all with one write."""
        values = []
        for stored in batch:
            try:
                name = parse_agent_id(str(self.names.parse(stored.subject)).partition(".")[2])
                values.append((name, stored.shared, _number(stored, WAS)))
            except Exception as error:  # noqa: BLE001 - any joined machine may send it
                self._pass_over(stored, error)
        accepted = self.workspace.registry.accept(values) if values else []
        agents = [agent for agent in accepted if not agent.removed]
        self.workspace.make_inboxes(*(agent.id for agent in agents))
        return self._moved_in(agents)

    def at_home(self) -> list[Then]:
        """Returns the consequences for this machine's agents that an earlier relay may not have completed."""
        return self._moved_in(self.workspace.registry.active().values())

    def _moved_in(self, agents: Iterable[Agent]) -> list[Then]:
        """Returns the consequences for those agents whose home is here. One without a key was added by no machine: it
        gets none, which would be one more change of the team for each."""
        mine = [agent for agent in agents if agent.machine == self.machine and agent.public_key is not None]
        return [partial(self.consequences.moved_in, agent) for agent in mine]

    def take_marks(self, early: Mapping[str, str], came: Iterable[Stored]) -> None:
        """Applies what another process read too `early`, and marks that waited here for messages that have now come
        (`came`). What still has to wait is kept."""
        marks = (self._mark_of(what) for what in map(self.names.parse, (stored.subject for stored in came)))
        waited = {key: self.early[key] for key in marks if key in self.early}
        for key, at in {**waited, **early}.items():
            if not key.startswith(f"{UNCOPIED}/") and self._mark(*key.split("/", 2), mark=Mark.parse(at)):
                self.early.pop(key, None)
            else:
                self._keep_early(key, at)
        self._copy_what_waited()

    def _mark_of(self, what: Own | str | None) -> str:
        """Returns the key in `early` of a message's or notification's mark; "" for anything else."""
        if not isinstance(what, Own) or what.kind not in subjects.MARKS:
            return ""
        return "/".join((subjects.MARKS[what.kind], what.owner, what.name))

    def marks_by_hand(self) -> Marks:
        """Returns the marks of hand-written messages that came, by their files: for `Publishing.mark_by_hand`."""
        marks, self._by_hand = self._by_hand, {}
        return marks

    def _is_acceptable(self, stored: Stored) -> bool:
        """Judges the size before anything is parsed."""
        is_so = is_acceptable(self.names.parse(stored.subject), stored.data)
        if not is_so:
            self._pass_over(stored, ValueError(len(stored.data)))
        return is_so

    def _each(self, batch: Sequence[Stored], apply: Callable[[Stored], list[Then]], until: float = inf) -> list[Then]:
        then: list[Then] = []
        for number, stored in enumerate(batch):
            if number and time.monotonic() > until:
                self.left = [*batch[number:]]
                break
            try:
                then += apply(stored)
            except Exception as error:
                if (refusal := _of_the_disk(error)) is not None:
                    raise refusal from error
                self._pass_over(stored, error)
        return then

    def _pass_over(self, stored: Stored, error: Exception) -> None:
        """Logs that a value is no entity, unless it is one of very many."""
        self._passed_over += 1
        if self._passed_over <= PASSED_OVER_MAX:
            logger.warning("%.200r (revision %d) is passed over: %.300r", stored.subject, stored.sequence, error)
        elif self._passed_over == PASSED_OVER_MAX + 1:
            logger.warning("more values are passed over")

    def _note(self, written: Signature) -> None:
        if not self._is_noticed:
            self.on_written(hash(written), time.time_ns())

    def is_of_unknown(self, stored: Stored) -> bool:
        """Returns whether a value is of an agent that is not known here, and would be passed over."""
        what, owner = self.names.parse(stored.subject), None
        with suppress(Exception):  # it is passed over in any case
            if self.logs.has(stored):
                owner = self.logs.agent_of(stored)
            elif isinstance(what, Own):
                is_copy = what.kind in BY_NAME and BY_NAME[what.kind].rule is Rule.COPY
                said = _AGENT_ID.search(stored.data) if is_copy else None
                owner = said[1].decode() if said is not None else what.owner
        return owner is not None and owner not in self.workspace.registry.all()

    def _apply(self, stored: Stored, *, restoring: bool) -> list[Then]:
        if self.logs.has(stored):
            self.logs.apply(stored, restoring=restoring)
            return []
        what = self.names.parse(stored.subject)
        if isinstance(what, str):
            then = self._shared(what, stored)
            return [] if restoring else then
        if what is not None and what.kind == subjects.NOTIFICATION and (task := _OF_AN_INTERRUPT.search(stored.data)):
            self._perhaps_over[task[1].decode()] = None  # also for one made here: its task may not have left yet
        if what is None or (what.machine == self.machine and stored.headers.get(RELAY) == self.relay):
            return []
        if what.kind in (subjects.MESSAGE, subjects.NOTIFICATION):  # also those that a copy of this directory has sent
            then = self._arrival(what, stored, restoring=restoring)
            return [] if restoring else then
        if what.machine == self.machine and not restoring:
            return []
        if what.kind in BY_NAME and self._known(what.kind, Rule.STATE, Rule.COPY).rule is Rule.COPY:
            self._file_of_home(what, stored)
        elif what[1:] not in self._merged and self._is_home(what.machine, what.owner):
            self._state(what, stored, restoring=restoring)
            if what.kind == subjects.EDITS and not restoring:
                return [lambda: self.consequences.edited(what.owner)]
        return []

    def _known(self, kind: str, *rules: Rule) -> TravellingKind:
        """Returns what travels by one of these rules. Raises `InvalidArguments` for any other kind."""
        found = BY_NAME.get(kind)
        if found is None or found.rule not in rules:
            raise InvalidArguments("bad_text", name=repr(kind)[:80])
        return found

    def _file_of_home(self, what: Own, stored: Stored) -> None:
        """Writes a file as its agent's home has written it, in the directory that its header names, and in place of no
        other agent's. Raises `Unreadable` and `InvalidArguments`."""
        header, name = parse(stored.data).header, _file(f"{what.name}.md")
        path = self.workspace.path / BY_NAME[what.kind].directory / parse_agent_id(what.owner) / name
        is_in_place = header.get("agent_id" if what.kind == HAND_OFF else "task_id") == what.owner
        if not is_in_place or not self._is_home(what.machine, agent_id := str(header.get("agent_id"))):
            raise Unreadable("misplaced", name="id", value=what.name, owner=what.owner)
        kept = self.workspace.hand_offs(what.owner) if what.kind == HAND_OFF else None
        archived = [month.path / name for month in kept.archive.months()] if kept is not None else []
        place = next(filter(os.path.lexists, [path, *archived]), path)
        there = self.workspace.files.read(place)
        if there and parse(there).header.get("agent_id") not in (agent_id, None):
            raise Unreadable("misplaced", name="id", value=what.name, owner=what.owner)
        if place != path:
            self.workspace.files.move(place, path)
        self.workspace.files.replace(path, stored.data, modified=stored.written_at)
        if kept is not None and OVER in stored.headers and (entity := kept.home.load(name)) is not None:
            kept.put_away(name, entity)

    def _true_marks(self, batch: Sequence[Stored]) -> dict[tuple[str, str, str], Mark]:
        """Returns the marks in this batch, by their kind, owner and name, so that an item that was read within the
        batch is written only once."""
        found: dict[tuple[str, str, str], Mark] = {}
        for stored in batch:
            what = self.names.parse(stored.subject)
            if isinstance(what, Own) and what.kind in subjects.MARKS.values():
                with suppress(Exception):  # it is skipped when it is applied
                    if self._is_home(what.machine, what.owner):
                        found[what[1:]] = mark_in(stored)
        return found

    def _shared(self, key: str, stored: Stored) -> list[Then]:
        kind, _, name = key.partition(".")
        if kind == subjects.SETTINGS:
            accept_settings(self.workspace, stored.data)
        elif kind == LINE:
            self.workspace.tasks.accept_line(name, stored.data)
        elif kind not in WITHOUT_FILES:
            return self._entity(kind, name, stored)
        return []

    def _entity(self, kind: str, name: str, stored: Stored) -> list[Then]:
        collection, written = self._known(kind, Rule.SHARED).collection(self.workspace), None
        is_own = stored.headers.get(MACHINE) == self.machine
        if not (is_own and collection.has(entity_id(kind, name), stored.sequence)):  # its writer holds the lock
            written = collection.accept(
                entity_id(kind, name),
                stored.shared,
                stored.written_at,
                was=_number(stored, WAS),
                edited=_number(stored, EDITED) if is_own else None,
            )
        if kind == DELEGATION:
            self._perhaps_over[name] = None
        elif kind == subjects.CONVERSATION:
            self._copy_what_waited(name)
            talk = written or collection.find(name)
            if talk is not None and talk.status == "ended" and talk.delegation_id is not None:
                self._perhaps_over[talk.delegation_id] = None
        if isinstance(written, Question):
            return [self.consequences.questions_changed]
        return [lambda: self.consequences.task_changed(written)] if isinstance(written, Task) else []

    def _arrival(self, what: Own, stored: Stored, *, restoring: bool) -> list[Then]:
        is_mail, name, inbox = what.kind == subjects.MESSAGE, _file(what.name), self._inbox(what.kind, what.owner)
        mark = (subjects.MARKS[what.kind], what.owner, what.name)
        if is_mail:
            self._require_no_replay(what, name, decoded(inbox, name, stored))
            make_way(inbox, name, stored)
        elif self._keep_against(inbox, name, stored, restoring=restoring):
            self.standing.add(what)
            return []
        early = self.early.get(key := self._mark_of(what))
        known = self._marks.get(mark) if mark in self._marks or early is None else Mark.parse(early)
        entity = inbox.accept(name, stored.data, stored.written_at, known)
        self.early.pop(key, None)
        if entity is None:
            if early is not None:  # it was written by a process that did not have the mark
                inbox.accept_mark(name, Mark.parse(early))
            if is_mail and OF_A_CONVERSATION in stored.data:  # or by one that was killed before it made the copy
                self._copy(decoded(inbox, name, stored), name, what.owner)
            return []
        if mark in self._marks:
            self._merged.add(mark)
        if is_mail:
            self._copy(entity, name, what.owner)
        return [partial(self._tell, what, entity)] if self._is_mine(what) else []

    def _require_no_replay(self, what: Own, name: str, message: Readable) -> None:
        """Raises `Unreadable` for a signed message under a name that is not its own, from a machine which is neither
        its sender's nor its receiver's home: it would be handed out once more under each name."""
        if not isinstance(message, Message) or message.signature is None or name == file_name(message):
            return
        if not any(self._is_home(what.machine, each) for each in (message.sender_id, what.owner)):
            raise Unreadable("misplaced", name="id", value=message.id, owner=file_name(message))

    def _keep_against(self, inbox: Inbox[Any], name: str, stored: Stored, *, restoring: bool) -> bool:
        """Keeps a notification of this id that was made here, if it comes before the hub's, and returns whether it did.
        Where the hub's is kept, its mark is sent from here again."""
        if restoring and not inbox.has_name(name):
            return False  # see `without_rivals`
        theirs = decoded(inbox, name, stored)
        if not isinstance(theirs, Notification) or theirs.action not in TOLD_APART:
            return False
        self._is_noticed = True
        try:
            return inbox.keep_against(name, theirs, stored.written_at)
        finally:
            self._is_noticed = False

    def without_rivals(self) -> None:
        """Removes notifications that do not stand, as another one of their id does, which came together. Raises
        `StorageError`."""
        for agent_id in self.workspace.registry.active():
            self.workspace.notices(agent_id).without_rivals(TOLD_APART)

    def _tell(self, what: Own, entity: Any) -> None:
        """Records the arrival of an item for an agent of this machine, and triggers the ring."""
        with suppress(StorageError):  # nothing depends on it
            self.workspace.travel_log.add("arrived", now(), [entity.id], machine=what.machine)
        if what.kind == subjects.MESSAGE:
            self.consequences.arrived(entity)
        else:
            self.consequences.notified(entity)

    def _copy(self, message: Readable, name: str, receiver: str) -> None:
        """Copies a message of a conversation to the conversation's directory, as its sender has done; if the
        conversation is not here, the message waits for it, however long."""
        if not isinstance(message, Message) or message.message_type != "conversation":
            return
        conversation_id = message.metadata.get("conversation_id")
        if not isinstance(conversation_id, str) or not is_entity_id(subjects.CONVERSATION, conversation_id):
            return
        conversation = self.workspace.conversations.find(conversation_id)
        if conversation is None:
            self._keep_early(f"{UNCOPIED}/{conversation_id}/{name}", receiver)
        elif conversation.has(message.sender_id):
            with suppress(FileExistsError):
                copy = message.mark_read(None)
                self.workspace.conversation_messages(conversation.id).create(file_name(message), copy)

    def _copy_what_waited(self, conversation_id: str = "") -> None:
        """Copies the messages that have waited for a conversation, or for any."""
        start = f"{UNCOPIED}/{conversation_id}/" if conversation_id else f"{UNCOPIED}/"
        for key, receiver in [each for each in self.early.items() if each[0].startswith(start)]:
            _, conversation, name = key.split("/", 2)
            if self.workspace.conversations.find(conversation) is not None:
                if (found := self.workspace.mailbox(receiver).find(name)) is not None:
                    self._copy(found[1], name, receiver)
                del self.early[key]

    def _state(self, what: Own, stored: Stored, *, restoring: bool) -> None:
        """Applies a value that only the agent's home writes."""
        if what.kind in subjects.MARKS.values():
            if not self._mark(*what[1:], mark=(mark := mark_in(stored)), restoring=restoring):
                self._keep_early("/".join(what[1:]), mark.words)
        elif what.kind in BY_NAME:
            collection = BY_NAME[what.kind].collection(self.workspace)
            collection.accept_copy(entity_id(what.kind, what.name), stored.data, what.owner, stored.written_at)
        elif what.kind == subjects.EDITS:
            path = self.workspace.path / ".edits" / f"{parse_agent_id(what.owner)}.jsonl"
            self.workspace.files.replace(path, stored.data, durable=False)
        elif what.kind == subjects.WAIT:
            waits, name = self.workspace.owner_waits, f"{parse_agent_id(what.owner)}.md"
            if what.name != "-":  # one that was released
                waits, name = self.workspace.released_waits, _file(f"{what.name}.md")
                if not what.name.endswith(f"_{what.owner}"):
                    raise Unreadable("misplaced", name="id", value=what.name, owner=what.owner)
            if stored.data:
                waits.codec.decode(stored.data)  # else it is passed over
                self.workspace.files.replace(waits.path / name, stored.data)
            else:
                waits.remove(name, sync=True)

    def _mark(self, kind: str, owner: str, name: str, *, mark: Mark, restoring: bool = True) -> bool:
        """Marks a message or notification as read; returns whether it is there. If it is a person's, what is there may
        have been saved since, and may not be what was read: see `marks_by_hand`."""
        inbox = self._inbox(kind, owner)
        if not restoring and (found := inbox.hot.load(_file(name))) is not None and is_by_hand(name, found):
            self._by_hand[Path("ipc", owner, name)] = mark
            return True
        return inbox.accept_mark(_file(name), mark)

    def _keep_early(self, key: str, at: str) -> None:
        self.early[key] = at
        while len(self.early) > EARLY_MAX:
            del self.early[next(iter(self.early))]

    def _is_mine(self, what: Own) -> bool:
        agent = self.workspace.registry.all().get(what.owner)
        return agent is not None and agent.machine == self.machine

    def _is_home(self, machine: str, agent_id: str) -> bool:
        """Returns whether a machine is or was an agent's home."""
        agent = self.workspace.registry.all().get(agent_id)
        return agent is not None and machine in (agent.machine, *agent.extra.get("machines", ()))


def _of_the_disk(error: Exception) -> StorageError | None:
    """Returns the error as a `StorageError` if the disk caused it and it may be temporary, so that the caller retries;
    else None."""
    cause = error.__cause__ if isinstance(error, StorageError) else error
    if isinstance(cause, OSError) and cause.errno in HOPELESS:
        return None
    if isinstance(error, OSError):
        return StorageError(path=error.filename or "-", reason=error)
    return error if isinstance(error, StorageError) else None


def _file(name: str) -> str:
    """Returns the name if a file of an inbox may have it. Raises `InvalidArguments`."""
    if not _OUR_FILE.fullmatch(name) or len(os.fsencode(name)) > NAME_BYTES:
        raise InvalidArguments("bad_text", name=repr(name)[:80])
    return name


def mark_in(stored: Stored) -> Mark:
    """Returns the mark that a value is. Raises `ValueError`, `LookupError` or `TypeError`."""
    said = json.loads(stored.data)
    return Mark(parse_time(said["read_at"]), *(said.get(name) is True for name in ("settled", "over", "held")))


def _number(stored: Stored, header: str) -> int | None:
    """Returns the revision in a header, if there is one. Raises `ValueError`."""
    return int(stored.headers[header]) if header in stored.headers else None
