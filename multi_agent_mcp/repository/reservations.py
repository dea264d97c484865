"""Who has reserved which files (docs/protocol.md, Reservations)."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from multi_agent_mcp.config import working_directory
from multi_agent_mcp.domain.agent import Agent, is_superior
from multi_agent_mcp.domain.entity import EPOCH, age, entity_id, fields_of, new_id
from multi_agent_mcp.domain.patterns import expressions, is_meant, matcher, parsed_patterns
from multi_agent_mcp.domain.text import named, quoted
from multi_agent_mcp.domain.times import parse_time
from multi_agent_mcp.errors import InvalidArguments, Refusal, ReservationNotFound, Reserved, Unauthorized
from multi_agent_mcp.hooks.first_look import relative_paths
from multi_agent_mcp.repository.feature import RESERVATION
from multi_agent_mcp.repository.reservation import (
    CLAIMS,
    EXPIRED,
    HOLDER_GONE,
    RELEASED,
    RESERVATION_CONFLICT,
    RESERVATION_ENDED,
    TASK_ENDED,
    Reservation,
    reservation_notice,
)
from multi_agent_mcp.repository.settings import ENFORCE
from multi_agent_mcp.services.validation import words_or_none
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.authority import Superseded
from multi_agent_mcp.store.records import Record
from multi_agent_mcp.system.file_status import modified_at, tree_of

if TYPE_CHECKING:
    from multi_agent_mcp.hooks.answers import ToolCalls
    from multi_agent_mcp.hooks.first_look import ToolCall
    from multi_agent_mcp.services.doctor.tree import CheckContext, Finding
    from multi_agent_mcp.services.notifications.writing import NoticeWriter
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.store.shared_collection import SharedCollection

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
    notice_writer: NoticeWriter

    @cached_property
    def kept(self) -> SharedCollection[Reservation]:
        """The reservations as files."""
        return cast("SharedCollection[Reservation]", self.workspace.collection(RESERVATION))

    def still_open(self) -> list[str]:
        """The reservations that have not ended."""
        return [one.id for one in self.open()]

    def open(self) -> list[Reservation]:
        """The reservations that are in force, oldest first. Changes nothing."""
        return sorted((one for one in self.kept.open() if self._why_over(one) is None), key=age)

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
        place = working_directory()
        here = tree_of(str(place / "-"))
        top = place if here is None else Path(here)
        base = place.relative_to(top).as_posix() if place != top and place.is_relative_to(top) else ""
        found = parsed_patterns([*patterns], here, lambda name: os.path.lexists(f"{top}/{name}"), base)
        reason = words_or_none("reason", reason)
        if len(reason or "") > REASON_CHARACTERS:
            raise InvalidArguments("too_long", name="reason", limit=REASON_CHARACTERS)
        if minutes is not None and not (math.isfinite(minutes) and 0 < minutes <= MINUTES_MAX):
            raise InvalidArguments("bad_minutes", most=int(MINUTES_MAX))
        self.end_over()
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
        if self.session.settings.of("reservations") == ENFORCE:
            return self._reserve_alone(new), []
        self.kept.add(new)
        conflicts = self.conflicts_of(new)
        for other in conflicts:
            self._tell_conflict(other, new)
        return new, conflicts

    def release(self, actor: Agent, reservation_id: str | None = None) -> list[Reservation]:
        """Ends a reservation, or all of the actor's own; returns those that it ended. Raises `ReservationNotFound`, and
        `Unauthorized` unless the actor is the holder, a superior of it, or a person."""
        if reservation_id is None:
            chosen = [one for one in self.kept.open() if one.agent_id == actor.id]
        else:
            chosen = [self.kept.get(entity_id("rsv", reservation_id))]
            self._require_permission(actor, chosen[0])
        ended = []
        for one in chosen:
            if one.is_open:
                self._end(one, RELEASED, actor.id)
                ended.append(one)
        return ended

    def end_over(self) -> list[Reservation]:
        """Ends the reservations that have run out, and tells so; returns them. Never raises: the next look tries
        again."""
        ended = []
        for one in self.kept.open():
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
        """What a hook reads instead of all files (`repository/first_look.py`); it is written for the next one."""
        path, looked_at = self.workspace.path, time.time_ns()
        seen = [modified_at(path / "reservations"), modified_at(self.workspace.settings_path)]
        reserved = (
            [[one.agent_id, expressions(one.patterns)] for one in self.open()]
            if self.session.settings.of("reservations") == ENFORCE
            else []
        )
        facts = {"seen": seen, "looked_at": looked_at, "reserved": reserved}
        Record(self.workspace.files, path / ".edits" / "reservations.json").write(facts, durable=False)
        return facts

    def _reserve_alone(self, new: Reservation) -> Reservation:
        """Adds the reservation unless another one overlaps. Raises `Reserved`."""
        with self.workspace.locks.held("reserving"):
            conflicts = self.conflicts_of(new)
            if not conflicts:
                conflicts = self._claim(new)
            if not conflicts:
                return self.kept.add(new)
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
        found = self.kept.find(claim.id)
        if found is not None:
            return found.is_open and self._why_over(found) is None
        return (self.clock() - claim.created_at).total_seconds() < ARRIVAL_SECONDS

    def _why_over(self, one: Reservation) -> str | None:
        """Why a reservation is over, or None. Only the holder's own machine knows whether it is gone."""
        if one.ended is not None:
            return one.ended
        if one.has_expired(self.clock()):
            return EXPIRED
        if one.task_id is not None and self._has_ended(one.task_id, one.agent_id):
            return TASK_ENDED
        holder = self.workspace.registry.all().get(one.agent_id)
        if holder is None or holder.removed:
            return HOLDER_GONE
        if one.session_id is None or not self.workspace.is_here(holder) or self.sessions.alive(holder.id):
            return None
        return HOLDER_GONE if self.contributions.ask("has_lost_pane", holder) else None

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
        """Ends a reservation: decides why and when, then tells everybody concerned, then ends it. Whoever is killed in
        between leaves it to the next one, on any machine, who tells nobody twice and the same."""
        current = self.kept.update(one.id, lambda found: found.decide(self.clock(), why, by))
        why, by, at = current.ended or why, current.ended_by, current.ended_at or self.clock()
        told = {one.agent_id, *(current.asked_by or ())}
        reason = self.notice_writer.texts(
            f"reservation.{why}", name=self._name_of(one.agent_id), patterns=shown_patterns(one.patterns)
        )
        for target in sorted(told - ({by} if why == RELEASED else set())):
            self._tell(RESERVATION_ENDED, current, target, by, reason, at=at)
        self.kept.update(one.id, Reservation.end)

    def _tell_conflict(self, other: Reservation, new: Reservation, *, is_refused: bool = False) -> None:
        """Tells the holder of a reservation that another agent wants, and, unless it was refused, got the same files;
        then that agent, too."""
        with suppress(ReservationNotFound):  # its file has not come from another machine yet
            self.kept.update(other.id, lambda found: found.asked_for_by(new.agent_id))
        key, cause = ("refused", new.agent_id) if is_refused else ("both", new.id)
        at = max(other.created_at, new.created_at)  # each of two machines may tell of the other's
        self._tell(RESERVATION_CONFLICT, other, other.agent_id, new.agent_id, self._words(key, new), cause, at=at)
        if not is_refused:
            self._tell(
                RESERVATION_CONFLICT, new, new.agent_id, other.agent_id, self._words(key, other), other.id, at=at
            )

    def _words(self, key: str, one: Reservation) -> str:
        values = {"name": self._name_of(one.agent_id), "patterns": shown_patterns(one.patterns)}
        reason = self.notice_writer.texts("reservation.because", reason=quoted(one.reason)) if one.reason else ""
        return self.notice_writer.texts(f"reservation.{key}", **values) + reason

    def _tell(
        self,
        action: str,
        about: Reservation,
        target: str,
        by: str | None,
        reason: str,
        *cause: str,
        at: datetime | None = None,
    ) -> None:
        if target in self.workspace.registry.active():
            notice = reservation_notice(action, about, target, by, at or self.clock(), reason, *cause)
            self.notice_writer.put_first(self.notice_writer.worded(notice, f"notice.{action}"))

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


def judge(calls: ToolCalls, agent: Agent, call: ToolCall) -> str | None:
    """Why files must not be edited that another agent has reserved; None where that is not enforced."""
    if not call.paths or calls.session.settings.of("reservations") != ENFORCE:
        return None
    reservations: Reservations = calls.contributions.service("reservations")
    reservations.end_over()
    reservations.index()
    for path in relative_paths(call):
        holder = reservations.holder_of(path, agent.id)
        if holder is not None:
            reason = calls.texts.sentence(reservations.refusal(holder))
            return calls.texts("hook.reserved", path=named(path), reason=reason)
    return None


def check(context: CheckContext) -> Iterator[Finding]:
    """Reservations with a pattern that cannot be read, which reserves nothing but a file that is called so."""
    from multi_agent_mcp.services.doctor.tree import PROBLEM

    for one in context.workspace.collection(RESERVATION).open():
        for pattern in one.patterns:
            if not is_meant(pattern):
                facts = {"pattern": named(pattern), "reservation_id": one.id}
                yield context.found("reservations", PROBLEM, one.id, "bad_pattern", **facts)
