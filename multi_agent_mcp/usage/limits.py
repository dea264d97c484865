"""Agents whose hosts have met a usage limit: `.limits/{agent_id}.json`, derived and best effort (docs/protocol.md,
Limited agents)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import Agent, nearest_superior
from multi_agent_mcp.domain.json_lines import parsed, value_at
from multi_agent_mcp.domain.times import in_zone, parse_time
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.services.team.limited import Limited
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.records import Record
from multi_agent_mcp.system.other_files import last_lines
from multi_agent_mcp.usage.feature import LIMITS
from multi_agent_mcp.usage.limit import (
    SHORTEST_ON_SCREEN,
    Limit,
    LimitReader,
    LimitRules,
    LimitSeen,
    ahead,
    limit_rules_of,
    limited_notice,
    until_said,
)
from multi_agent_mcp.usage.settings import OFF, ON_LIMIT, WAIT
from multi_agent_mcp.yaml_files import truth

if TYPE_CHECKING:
    from multi_agent_mcp.domain.notification import Notification
    from multi_agent_mcp.services.notifications.writing import NoticeWriter

logger = logging.getLogger(__name__)

HOOK, FILE, SCREEN = "hook", "file", "screen"
TAIL_BYTES = 1 << 16
LATE = timedelta(hours=12)
"""How old a saying in a file may be that has no time of reset."""


@dataclass(eq=False)
class UsageLimits(Service):
    """The limits of one session's agents. What it writes may be deleted at any time; its methods never raise."""

    notice_writer: NoticeWriter

    def of(self, agent_id: str) -> Limit | None:
        """The agent's episode, also between its reset and the agent's next act; one stat(2) if there is none."""
        record = self._record(agent_id)
        return Limit.of(agent_id, record.read()) if record.path.exists() else None

    def now(self, agent_id: str) -> Limit | None:
        """The agent's limit if it is limited now."""
        limit = self.of(agent_id)
        return limit if limit is not None and limit.lasts(self.clock()) else None

    def all(self) -> dict[str, Limit]:
        """The agents that are limited now."""
        found = {agent_id: self.now(agent_id) for agent_id in self.workspace.registry.active()}
        return {agent_id: limit for agent_id, limit in found.items() if limit is not None}

    def limited(self, agent_id: str) -> Limited | None:
        """As `of`, for others."""
        if (limit := self.of(agent_id)) is None:
            return None
        lasts, words = limit.lasts(self.clock()), self.sentence(limit)
        return Limited(agent_id, limit.beginning, limit.until, limit.window, words, lasts)

    def excuses(self, agent_id: str, patience: timedelta) -> bool:
        """Whether a usage limit is why an agent is silent: it lasts, or was reset less than `patience` ago."""
        if (limit := self.of(agent_id)) is None:
            return False
        now = self.clock()
        since = max(filter(None, (limit.until, limit.rung_at, limit.next_ring)), default=now)
        return limit.lasts(now) or now - since < patience

    def policy(self, agent: Agent) -> str:
        """`wait`, `tell` or `off`: the agent's own `on_limit`, else the team's. YAML reads a bare `off` as false."""
        of_team = self.session.settings.of("on_limit", WAIT)
        own = agent.extra.get("on_limit", of_team)
        return OFF if truth(own) is False else own if own in ON_LIMIT else of_team

    def saw(self, agent_id: str, host: str | None, seen: LimitSeen) -> None:
        """Records that an agent's host met a limit, and notifies its superior once for each episode."""
        try:
            agent = self.workspace.registry.get(agent_id)
            if agent.may_be_human or self.policy(agent) == OFF or "usage" not in self.session.features:
                return
            with self.workspace.locks.held(f"limits-{agent_id}"):
                limit = self._after(agent_id, host, seen)
                if limit is not None:
                    self._record(agent_id).write(limit.as_record(), durable=False)
            if limit is not None:
                self._tell(limit)
        except Refusal as refusal:
            logger.warning("the limit of %s could not be recorded: %s", agent_id, refusal)

    def acted(self, agent_id: str, at: datetime | None = None) -> None:
        """The agent has made a call, or its host has gone on: its episode is over, unless that was before it."""
        limit = self.of(agent_id)
        if limit is None or (at is not None and at <= limit.seen_at):
            return
        try:
            with self.workspace.locks.held(f"limits-{agent_id}"):
                ended = {**limit.as_record(), "ended_at": f"{(at or self.clock()).isoformat()}"}
                self._ended(agent_id).write(ended, durable=False)
                self._record(agent_id).remove()
        except Refusal as refusal:
            logger.warning("the end of the limit of %s could not be recorded: %s", agent_id, refusal)

    def saw_in_event(self, agent_id: str, host: str | None, facts: Mapping[str, Any]) -> None:
        """Takes in an event of the host's hooks: that it met a limit, or that it goes on."""
        rules = limit_rules_of(host or self._host_of(agent_id))
        name = str(facts.get("hook_event_name"))
        if rules is not None and rules.tells(name, facts):
            said = str(value_at(facts, rules.words) or "")
            found = self._in_transcript(rules, facts) or LimitSeen(self.clock(), HOOK)
            until = found.until or until_said(said, self.clock(), self.session.zone)
            self.saw(agent_id, host, replace(found, at=self.clock(), source=HOOK, until=until))
        elif name in ("PostToolUse", "Stop") or (rules is not None and rules.ended_by(name, facts)):
            self.acted(agent_id)

    def saw_on_screen(self, agent: Agent, host: str, words: str, window: str | None = None) -> None:
        """Takes in what a host's screen says of a limit. A time that has passed is no news: it may have stood there
        since."""
        now = self.clock()
        until = until_said(words, now, self.session.zone)
        if until is None or ahead(until, now + SHORTEST_ON_SCREEN) is not None:
            self.saw(agent.id, host, LimitSeen(now, SCREEN, until, window))

    def saw_in_file(self, agent_id: str, host: str, seen: LimitSeen) -> None:
        """Takes in what a host's own file says of a limit, unless that is over or too old to know."""
        now = self.clock()
        if seen.until is not None if ahead(seen.until, now) is not None else now - seen.at < LATE:
            self.saw(agent_id, host, seen)

    def rung(self, agent_id: str) -> None:
        """Records the ring that an episode has after its reset, or while that is unknown."""
        try:
            with self.workspace.locks.held(f"limits-{agent_id}"):
                if (limit := self.of(agent_id)) is not None:
                    self._record(agent_id).write(limit.rung(self.clock()).as_record(), durable=False)
        except Refusal as refusal:
            logger.warning("the ring of %s after its limit could not be recorded: %s", agent_id, refusal)

    def tell(self) -> list[Notification]:
        """Writes notifications that a killed process did not write; returns the new ones."""
        told = (self._tell(limit) for limit in self.all().values())
        return [notice for notice in told if notice is not None]

    def sentence(self, limit: Limit) -> str:
        """The sentence that says what limit it is and when it ends."""
        until = limit.until and in_zone(limit.until, self.session.zone)
        when = self.texts("limit.unknown") if until is None else f"{until:%Y-%m-%d %H:%M %Z}"
        return self.texts("limit.reason", agent_id=limit.agent_id, window=limit.window or "-", until=when)

    def _after(self, agent_id: str, host: str | None, seen: LimitSeen) -> Limit | None:
        """The episode after this saying; None if it says nothing new."""
        now, known, ended = self.clock(), self.of(agent_id), self._ended(agent_id).read()
        before = Limit.of(agent_id, ended)
        ended_at = parse_time(ended.get("ended_at")) if before is not None else None
        if known is not None and (again := known.again(seen, now)) is not None:
            return again
        if ended_at is not None and seen.source != HOOK and seen.at <= ended_at:
            return None
        is_same = before is not None and before.is_same(seen.until)
        if is_same and seen.source == SCREEN:
            return None  # the agent has acted since: it stood there before
        host = host or self._host_of(agent_id)
        rules = limit_rules_of(host)
        return Limit(
            agent_id=agent_id,
            seen_at=seen.at,
            source=seen.source,
            until=ahead(seen.until, now),
            window=seen.window,
            host=host,
            grace=timedelta(seconds=rules.grace_seconds if rules is not None else 0),
            began_at=before.beginning if before is not None and is_same else seen.at,
        )

    def _tell(self, limit: Limit) -> Notification | None:
        superior = nearest_superior(limit.agent_id, self.workspace.registry.all())
        if superior is None:
            return None
        notice = limited_notice(limit, superior.id, self.sentence(limit))
        return notice if self.notice_writer.put_new(notice, "notice.agent_limited") else None

    def _in_transcript(self, rules: LimitRules, facts: Mapping[str, Any]) -> LimitSeen | None:
        """What the end of the conversation's file says of the limit."""
        path = facts.get("transcript_path")
        lines = last_lines(path, TAIL_BYTES) if isinstance(path, str) else []
        reader, now = LimitReader(rules, self.session.zone), self.clock()
        found = [seen for line in lines if (seen := reader.read(parsed(line), now)) is not None]
        return found[-1] if found and ahead(found[-1].until, now) is not None else None

    def _host_of(self, agent_id: str) -> str | None:
        agent = self.workspace.registry.all().get(agent_id)
        return None if agent is None else agent.host

    def _record(self, agent_id: str) -> Record:
        return Record(self.workspace.files, self.workspace.path / LIMITS / f"{agent_id}.json")

    def _ended(self, agent_id: str) -> Record:
        """The last episode that is over: what the host's files and screen still say of it is no news."""
        return Record(self.workspace.files, self.workspace.path / LIMITS / "ended" / f"{agent_id}.json")
