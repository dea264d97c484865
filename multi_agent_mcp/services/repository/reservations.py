"""Who edits what, and who has reserved it (docs/protocol.md, Reservations, Edits)."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.config import working_directory
from multi_agent_mcp.domain.agent import Agent, is_superior
from multi_agent_mcp.domain.entity import EPOCH, age, entity_id, fields_of, new_id
from multi_agent_mcp.domain.patterns import expressions, matcher, parsed_patterns
from multi_agent_mcp.domain.reservation import (
    CLAIMS,
    EDIT_OVERLAP,
    EXPIRED,
    HOLDER_GONE,
    RELEASED,
    RESERVATION_CONFLICT,
    RESERVATION_ENDED,
    TASK_ENDED,
    FileEdit,
    Reservation,
    episode,
    overlap_notice,
    reservation_notice,
)
from multi_agent_mcp.domain.text import named, quoted
from multi_agent_mcp.domain.times import format_time, parse_time
from multi_agent_mcp.errors import InvalidArguments, Refusal, ReservationNotFound, Reserved, StorageError, Unauthorized
from multi_agent_mcp.hosts import tool_inputs
from multi_agent_mcp.services.validation import words_or_none
from multi_agent_mcp.session import Service
from multi_agent_mcp.store import edit_log
from multi_agent_mcp.store.authority import Superseded
from multi_agent_mcp.store.records import Record
from multi_agent_mcp.system.file_status import common_directory, modified_at, tree_of
from multi_agent_mcp.system.files import storage_errors
from multi_agent_mcp.system.git import root_commit

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.notifications.writing import NoticeWriter
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions

logger = logging.getLogger(__name__)

PERSONS_MINUTES = 60.0
MINUTES_MAX = 60.0 * 24 * 366
REASON_CHARACTERS = 500
PATTERNS_SHOWN = 5
ARRIVAL_SECONDS = 60.0
"""The time after which a claim without a file was left behind by a process that was killed before it wrote one."""


@dataclass(eq=False)
class Reservations(Service):
    """The reservations of one team. `enforces`: a conflicting one is refused, instead of granted and named to both."""

    sessions: Sessions
    writer: NoticeWriter
    has_lost_pane: Callable[[Agent], bool]
    """Whether no program of the agent runs in a pane."""

    def still_open(self) -> list[str]:
        """The reservations that have not ended."""
        return [one.id for one in self.open()]

    def open(self) -> list[Reservation]:
        """The reservations that are in force, oldest first. Changes nothing."""
        return sorted((one for one in self.workspace.reservations.open() if self._why_over(one) is None), key=age)

    def reserve(
        self,
        agent: Agent,
        patterns: Iterable[str],
        *,
        reason: str | None = None,
        minutes: float | None = None,
        task_id: str | None = None,
        session_id: str | None = None,
    ) -> tuple[Reservation, list[Reservation]]:
        """Reserves files for an agent; returns the reservation and those of others that overlap with it. One without a
        session is a person's, and expires. Raises `InvalidArguments`; `Reserved` where reservations are enforced."""
        here = tree_of(str(working_directory() / "-"))
        found = parsed_patterns(
            [*patterns], here, lambda name: os.path.lexists(f"{here or working_directory()}/{name}")
        )
        reason = words_or_none("reason", reason)
        if len(reason or "") > REASON_CHARACTERS:
            raise InvalidArguments("too_long", name="reason", limit=REASON_CHARACTERS)
        if minutes is not None and not (math.isfinite(minutes) and 0 < minutes <= MINUTES_MAX):
            raise InvalidArguments("bad_minutes", most=int(MINUTES_MAX))
        self.settle()
        now = self.clock()
        lasting = PERSONS_MINUTES if minutes is None and session_id is None else minutes
        new = Reservation(
            id=new_id("rsv"),
            agent_id=agent.id,
            task_id=task_id,
            patterns=found,
            reason=reason,
            created_at=now,
            expires_at=None if lasting is None else now + timedelta(minutes=lasting),
            session_id=session_id,
        )
        if self.session.settings.repository.enforces:
            return self._reserve_alone(new), []
        self.workspace.reservations.add(new)
        conflicts = self.conflicts_of(new)
        for other in conflicts:
            self._tell_conflict(other, new)
        return new, conflicts

    def release(self, actor: Agent, reservation_id: str | None = None) -> list[Reservation]:
        """Ends a reservation, or all of the actor's own; returns those that it ended. Raises `ReservationNotFound`, and
        `Unauthorized` unless the actor is the holder, a superior of it, or a person."""
        if reservation_id is None:
            chosen = [one for one in self.workspace.reservations.open() if one.agent_id == actor.id]
        else:
            chosen = [self.workspace.reservations.get(entity_id("rsv", reservation_id))]
            self._require_permission(actor, chosen[0])
        ended = []
        for one in chosen:
            if one.is_open:
                self._end(one, RELEASED, actor.id)
                ended.append(one)
        return ended

    def settle(self) -> list[Reservation]:
        """Ends the reservations that have run out, and tells so; returns them. Never raises: the next look tries
        again."""
        ended = []
        for one in self.workspace.reservations.open():
            try:
                if (why := self._why_over(one)) is not None:
                    self._end(one, why, self._finisher(one) if why == TASK_ENDED else None)
                    ended.append(one)
            except Refusal as refusal:
                logger.warning("the reservation %s has not ended yet: %s", one.id, refusal)
        return ended

    def conflicts_of(self, reservation: Reservation) -> list[Reservation]:
        """The reservations of other agents that overlap with this one, oldest first."""
        others = (other for other in self.open() if other.agent_id != reservation.agent_id)
        return [other for other in others if other.overlaps(reservation)]

    def holder_of(self, path: str, agent_id: str) -> Reservation | None:
        """Another agent's reservation that matches this path of the working tree, or None."""
        others = (one for one in self.open() if one.agent_id != agent_id)
        return next((one for one in others if matcher(one.patterns)(path)), None)

    def index(self) -> dict[str, Any]:
        """What a hook reads instead of all files (`hooks/first_look.py`); it is written for the next one."""
        path, looked_at = self.workspace.path, time.time_ns()
        seen = [modified_at(path / "reservations"), modified_at(self.workspace.settings_path)]
        reserved = (
            [[one.agent_id, expressions(one.patterns)] for one in self.open()]
            if self.session.settings.repository.enforces
            else []
        )
        facts = {"seen": seen, "looked_at": looked_at, "reserved": reserved}
        self.workspace.reservation_index.write(facts, durable=False)
        return facts

    def _reserve_alone(self, new: Reservation) -> Reservation:
        """Adds the reservation unless another one overlaps. Raises `Reserved`."""
        with self.workspace.locks.held("reserving"):
            conflicts = self.conflicts_of(new)
            if not conflicts:
                conflicts = self._claim(new)
            if not conflicts:
                return self.workspace.reservations.add(new)
        for other in conflicts:
            self._tell_conflict(other, new, is_refused=True)
        raise self.refusal(conflicts[0])

    def refusal(self, other: Reservation) -> Reserved:
        """The refusal of what another agent's reservation prevents."""
        name = self._name_of(other.agent_id)
        patterns = shown_patterns(other.patterns)
        return Reserved(agent_id=other.agent_id, name=name, patterns=patterns, reservation_id=other.id)

    def _claim(self, new: Reservation) -> list[Reservation]:
        """On several machines, enters the reservation among the open ones on the hub, which orders them; returns those
        that overlap, then without entering it."""
        authority = self.workspace.authority
        while authority.here is not None:
            current = authority.current(CLAIMS)
            known = [one for one in _claims(current.data if current else b"") if self._is_claimed(one)]
            conflicts = [one for one in known if one.agent_id != new.agent_id and one.overlaps(new)]
            if conflicts:
                return conflicts
            facts = ("id", "agent_id", "patterns", "created_at", "expires_at")
            data = json.dumps([fields_of(one, *facts) for one in (*known, new)]).encode()
            with suppress(Superseded):  # another machine was faster
                if current is None:
                    authority.create(CLAIMS, data)
                else:
                    authority.swap(CLAIMS, current.revision, data)
                break
        return []

    def _is_claimed(self, claim: Reservation) -> bool:
        """Whether a claim on the hub is in force: its file may not have arrived here yet."""
        found = self.workspace.reservations.find(claim.id)
        if found is not None:
            return found.is_open and self._why_over(found) is None
        return (self.clock() - claim.created_at).total_seconds() < ARRIVAL_SECONDS

    def _why_over(self, one: Reservation) -> str | None:
        """Why a reservation is over, or None. Only the holder's own machine knows whether it is gone."""
        if one.has_expired(self.clock()):
            return EXPIRED
        if one.task_id is not None and self._has_ended(one.task_id, one.agent_id):
            return TASK_ENDED
        holder = self.workspace.registry.all().get(one.agent_id)
        if holder is None or holder.removed:
            return HOLDER_GONE
        if one.session_id is None or not self.workspace.is_here(holder) or self.sessions.alive(holder.id):
            return None
        return HOLDER_GONE if self.has_lost_pane(holder) else None

    def _has_ended(self, task_id: str, agent_id: str) -> bool:
        if self.workspace.tasks.indexed(task_id, agent_id) is not None:
            return False
        task = self.workspace.tasks.find(task_id)
        return task is not None and (task.final or task.assignee_id != agent_id)

    def _finisher(self, one: Reservation) -> str | None:
        task = self.workspace.tasks.find(one.task_id) if one.task_id is not None else None
        return one.agent_id if task is not None and task.status_changed_by == one.agent_id else None

    def _require_permission(self, actor: Agent, one: Reservation) -> None:
        agents = self.workspace.registry.all()
        if actor.id == one.agent_id or actor.may_be_human:
            return
        if one.agent_id not in agents or not is_superior(actor.id, one.agent_id, agents):
            raise Unauthorized("not_reservation_holder", reservation_id=one.id, agent_id=one.agent_id)

    def _end(self, one: Reservation, why: str, by: str | None) -> None:
        """Ends a reservation. Everybody concerned is told first: whoever is killed in between leaves it to the next
        one, who tells nobody twice."""
        current = self.workspace.reservations.get(one.id)
        told = {one.agent_id, *(current.asked_by or ())}
        reason = self.writer.texts(
            f"reservation.{why}", name=self._name_of(one.agent_id), patterns=shown_patterns(one.patterns)
        )
        for target in sorted(told - ({by} if why == RELEASED else set())):
            self._tell(RESERVATION_ENDED, current, target, by, reason)
        self.workspace.reservations.update(one.id, lambda found: found.end(self.clock(), why))

    def _tell_conflict(self, other: Reservation, new: Reservation, *, is_refused: bool = False) -> None:
        """Tells the holder of a reservation that another agent wants, and, unless it was refused, got the same files;
        then that agent, too."""
        with suppress(ReservationNotFound):  # its file has not come from another machine yet
            self.workspace.reservations.update(other.id, lambda found: found.asked_for_by(new.agent_id))
        key, cause = ("refused", new.agent_id) if is_refused else ("both", new.id)
        self._tell(RESERVATION_CONFLICT, other, other.agent_id, new.agent_id, self._words(key, new), cause)
        if not is_refused:
            self._tell(RESERVATION_CONFLICT, new, new.agent_id, other.agent_id, self._words(key, other), other.id)

    def _words(self, key: str, one: Reservation) -> str:
        values = {"name": self._name_of(one.agent_id), "patterns": shown_patterns(one.patterns)}
        reason = self.writer.texts("reservation.because", reason=quoted(one.reason)) if one.reason else ""
        return self.writer.texts(f"reservation.{key}", **values) + reason

    def _tell(self, action: str, about: Reservation, target: str, by: str | None, reason: str, *cause: str) -> None:
        if target in self.workspace.registry.active():
            notice = reservation_notice(action, about, target, by, self.clock(), reason, *cause)
            self.writer.put_first(self.writer.worded(notice, f"notice.{action}"))

    def _name_of(self, agent_id: str) -> str:
        agent = self.workspace.registry.all().get(agent_id)
        return named(agent.name) if agent is not None and agent.name else agent_id


def shown_patterns(patterns: Iterable[str]) -> str:
    """The patterns in a sentence."""
    listed = [named(pattern) for pattern in patterns]
    return ", ".join([*listed[:PATTERNS_SHOWN], *(["…"] if len(listed) > PATTERNS_SHOWN else [])])


def reservation_answer(one: Reservation) -> dict[str, Any]:
    """A reservation in the answers of tools and commands."""
    facts = ("agent_id", "task_id", "patterns", "reason", "created_at", "expires_at")
    return {"reservation_id": one.id, **fields_of(one, *facts)}


def _claims(data: bytes) -> list[Reservation]:
    return [
        Reservation(
            id=fact["id"],
            agent_id=fact["agent_id"],
            patterns=tuple(fact["patterns"]),
            created_at=parse_time(fact["created_at"]) or EPOCH,
            expires_at=parse_time(fact["expires_at"]),
        )
        for fact in (json.loads(data) if data else [])
    ]


# Who edits what: notes edits, tells agents that edit one file, lists them (docs/protocol.md, Edits).
#
# Everything here is best effort: a line that is lost costs a notice, never work.

ARRIVED_MAX = 20
"""The newest files of another machine's agent that are looked at."""


@dataclass(eq=False)
class Edits(Service):
    """The edits of one team. `minutes` (limits.edit_overlap_minutes): two edits of one file within them overlap."""

    writer: NoticeWriter

    def hook_settings(self) -> dict[str, Any]:
        """What a hook must know (`store/edit_log.py`), written for the next one."""
        path = str(self.workspace.path)
        known = edit_log.settings(path)
        return self._write_settings({}) if known is None else known

    def note(self, agent_id: str, paths: Sequence[str], cwd: str) -> None:
        """Notes that an agent has edited the files at these absolute paths. Never raises."""
        try:
            self._append(agent_id, self._located(paths, cwd))
        except Refusal as refusal:
            logger.warning("edits of %s are not noted: %s", agent_id, refusal)

    def tell(self, agent_id: str, paths: Sequence[str], cwd: str) -> None:
        """Tells the agents with open tasks that edit one of these files, among them this one, once for each file and
        episode. Never raises: the next edit tries again."""
        for edited in self._located(paths, cwd):
            try:
                self.tell_overlap(edited, agent_id)
            except Refusal as refusal:
                logger.warning("that %s is edited by several is not told: %s", edited.path, refusal)

    def arrived(self, agent_id: str) -> None:
        """Tells of the overlaps of edits that have come from the agent's own machine: whoever edited at the same time
        here did not see them. Never raises."""
        since = time.time() - self.session.settings.limits.edit_overlap_minutes * 60
        lines = edit_log.all_edits(str(self.workspace.path), since)
        mine = (edit_log.Edited(line.path, line.repository) for line in lines if line.agent_id == agent_id)
        for edited in list(dict.fromkeys(mine))[:ARRIVED_MAX]:
            try:
                self.tell_overlap(edited, agent_id)
            except Refusal as refusal:
                logger.warning("that %s is edited by several is not told: %s", edited.path, refusal)

    def tell_overlap(self, edited: edit_log.Edited, agent_id: str) -> None:
        """Tells those who edit a file together with this agent. Raises `StorageError`."""
        window = timedelta(minutes=self.session.settings.limits.edit_overlap_minutes)
        since = time.time() - window.total_seconds()
        path = str(self.workspace.path)
        known = [_parsed(edit) for edit in edit_log.edits_at(path, edited, 0)]
        of = episode([edit for edit in known if edit is not None], window)
        recent = {edit.agent_id: edit for edit in of if edit.at.timestamp() >= since}
        involved = {name: edit for name, edit in recent.items() if self._is_at_work(edit)}
        if agent_id not in involved or len(involved) < 2:
            return
        for name, edit in involved.items():
            others = sorted(set(involved) - {name}, key=lambda other: involved[other].at, reverse=True)
            reason = self.writer.texts("edits.overlap", path=named(edited.path), agents=", ".join(others))
            notice = overlap_notice(of, edit, others[0], reason)
            self.writer.put_first(self.writer.worded(notice, f"notice.{EDIT_OVERLAP}"))
        self._note_told(edited, involved)

    def recent(self, path: str | None = None) -> list[FileEdit]:
        """The last edit of each file by each agent within the window, newest first; of one path, or of what is below
        it."""
        found: dict[tuple[str, str | None, str], FileEdit] = {}
        for line in edit_log.all_edits(
            str(self.workspace.path), time.time() - self.session.settings.limits.edit_overlap_minutes * 60
        ):
            edit = _parsed(line)
            if edit is not None and (path is None or _is_below(edit.path, path)):
                found.setdefault((edit.path, edit.repository, edit.agent_id), edit)
        return sorted(found.values(), key=lambda edit: edit.at, reverse=True)

    def shared(self, edits: Iterable[FileEdit]) -> dict[tuple[str, str | None], list[str]]:
        """The files that several agents with open tasks edit, each with their ids."""
        found: dict[tuple[str, str | None], list[str]] = {}
        for edit in edits:
            if self._is_at_work(edit):
                found.setdefault((edit.path, edit.repository), []).append(edit.agent_id)
        return {file: sorted(agents) for file, agents in found.items() if len(agents) > 1}

    def overlaps(self) -> dict[str, list[str]]:
        """The files that were told of as edited by several agents which still work, by agent; without reading logs."""
        found: dict[str, list[str]] = {}
        for key, (moment, agents) in edit_log.told(str(self.workspace.path)).items():
            working = [name for name in agents if self.workspace.tasks.in_progress(name)]
            if time.time() - moment < self.session.settings.limits.edit_overlap_minutes * 60 and len(working) > 1:
                for name in working:
                    found.setdefault(name, []).append(key.partition(":")[2])
        return found

    def _is_at_work(self, edit: FileEdit) -> bool:
        """Whether the task of an edit is still open and its agent's."""
        task: Task | None = None
        with suppress(StorageError):  # a line by hand may name anything
            task = self.workspace.tasks.indexed(edit.task_id or "", edit.agent_id)
        return task is not None and edit.agent_id in self.workspace.registry.active()

    def _located(self, paths: Sequence[str], cwd: str) -> list[edit_log.Edited]:
        path, known = str(self.workspace.path), self.hook_settings()["repositories"]
        found = edit_log.located(path, paths, cwd, known)
        if found is None:
            trees = {tree for one in paths if (tree := tree_of(one)) is not None}
            fresh = {common_directory(tree): _repository_id(tree) for tree in trees}
            known = self._write_settings({**known, **fresh})["repositories"]
            found = edit_log.located(path, paths, cwd, known)
        return found or []

    def _write_settings(self, repositories: Mapping[str, str]) -> dict[str, Any]:
        facts = {
            "settings_at": modified_at(self.workspace.settings_path),
            "minutes": self.session.settings.limits.edit_overlap_minutes,
            "tools": tool_inputs(),
            "notes": "reservations" in self.session.features,
            "repositories": {**repositories},
        }
        self._record("hook").write(facts, durable=False)
        return facts

    def _append(self, agent_id: str, edited: Sequence[edit_log.Edited]) -> None:
        path = str(self.workspace.path)
        with storage_errors(Path(edit_log.directory(path))):
            edit_log.append(path, agent_id, edited, edit_log.task_in_hand(path, agent_id))

    def _note_told(self, edited: edit_log.Edited, involved: Iterable[str]) -> None:
        now = time.time()
        told = edit_log.told(str(self.workspace.path))
        recent = {
            key: entry
            for key, entry in told.items()
            if now - entry[0] < self.session.settings.limits.edit_overlap_minutes * 60
        }
        self._record("told").write({**recent, edit_log.told_key(edited): [now, sorted(involved)]}, durable=False)

    def _record(self, name: str) -> Record:
        return Record(self.workspace.files, Path(edit_log.directory(str(self.workspace.path))) / f"{name}.json")


def edit_answer(edit: FileEdit) -> dict[str, Any]:
    """An edit in the answers of commands and of the console."""
    return {"path": edit.path, "agent_id": edit.agent_id, "task_id": edit.task_id, "at": format_time(edit.at)}


def _repository_id(tree: str) -> str:
    """What tells repositories apart, the same for all clones and worktrees: the first commit; without one, where it
    lies."""
    return (root_commit(tree) or hashlib.sha256(common_directory(tree).encode(errors="replace")).hexdigest())[:12]


def _is_below(path: str, asked: str) -> bool:
    wanted = asked.removeprefix("./").rstrip("/")
    return path == wanted or path.startswith(f"{wanted}/")


def _parsed(line: edit_log.Edit) -> FileEdit | None:
    at = parse_time(line.at)
    return None if at is None else FileEdit(line.path, line.repository, line.agent_id, line.task_id, at)
