"""The record of the supervisor's looks at agents' panes, for processes that do not look themselves (`watch`, the
console) and for a restarted supervisor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.dialog import Asked, Dialog
from multi_agent_mcp.domain.stuck import DIALOG, LOGIN, PANE_PATIENCE, PaneLook
from multi_agent_mcp.domain.times import format_time, is_recent, json_values, parse_time
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions


LOOK_EVERY = timedelta(seconds=30)
GOOD_FOR = timedelta(seconds=180)
ASKED_FOR = timedelta(seconds=75)
"""How long a recorded question is valid: after two missed looks no supervisor runs, and it may have been answered."""
LookAtPane = Callable[[Agent], tuple[str, str] | None]
"""Returns the host in an agent's pane, if it has a profile, and the state of its screen; else None."""


@dataclass(eq=False)
class PaneLooks(Service):
    """The record `.supervisor/panes.json`, which is derived and may be deleted."""

    sessions: Sessions

    def recorded(self) -> dict[str, PaneLook]:
        """The recorded looks by agent id, none if they are older than `GOOD_FOR`."""
        return self._last() if self._is_newer_than(GOOD_FOR) else {}

    def is_offline(self, agent_id: str) -> bool:
        """Whether the agent's host was last seen to have been without its model for longer than may pass."""
        look = self.recorded().get(agent_id)
        return look is not None and look.is_offline and self.clock() - look.since >= PANE_PATIENCE

    def now(self, look_at: LookAtPane) -> dict[str, PaneLook]:
        """Looks at the panes of all agents that are not people. Writes nothing."""
        before = self._last()
        looks: dict[str, PaneLook] = {}
        for agent in self.workspace.registry.active().values():
            seen = look_at(agent) if agent.pane_id is not None and not agent.may_be_human else None
            if seen is not None:
                looks[agent.id] = self._continued(agent.id, *seen, before.get(agent.id))
        return looks

    def refresh(
        self,
        look_at: LookAtPane,
        dialog: Callable[[Agent], Dialog | None] = lambda _: None,
        every: timedelta = LOOK_EVERY,
    ) -> None:
        """Looks again and writes the record, unless it is newer than `every`; `dialog` reads a pane's dialog."""
        if not self._is_newer_than(every):
            looks = self.now(look_at)
            panes = {agent_id: asdict(look, dict_factory=json_values) for agent_id, look in looks.items()}
            asked = [asdict(item, dict_factory=json_values) for item in self._asking(looks, dialog)]
            record = {"at": format_time(self.clock()), "panes": panes, "asked": asked}
            self.workspace.pane_looks.write(record, durable=False)

    def asked(self) -> tuple[Asked, ...]:
        """The agents last seen waiting for a human, none if the record is older than `ASKED_FOR`."""
        return tuple(self._last_asked()) if self._is_newer_than(ASKED_FOR) else ()

    def forget(self) -> None:
        """Removes the record, because the panes are closed. Raises `StorageError`."""
        self.workspace.pane_looks.remove()

    def _asking(self, looks: Mapping[str, PaneLook], dialog: Callable[[Agent], Dialog | None]) -> Iterator[Asked]:
        """The agents whose panes wait for a human. A question seen before keeps its time."""
        last = self._last_asked() if self._is_newer_than(GOOD_FOR) else ()
        before = {(item.agent_id, item.topic, item.dialog_id): item for item in last}
        agents = self.workspace.registry.active()
        for agent_id, look in looks.items():
            if look.state in (DIALOG, LOGIN):
                shown = dialog(agents[agent_id]) if look.asks else None
                topic = LOGIN if look.asks_for_login else shown.topic if shown is not None else None
                known = agent_id, topic, shown.id if shown is not None else None
                yield before.get(known) or Asked(agent_id, topic, self.clock(), known[2])

    def _last_asked(self) -> Iterator[Asked]:
        found = self.workspace.pane_looks.facts().get("asked")
        for facts in found if isinstance(found, list) else ():
            with suppress(ValueError, LookupError, TypeError, AttributeError):  # a damaged record
                yield Asked.parse(facts)

    def _continued(self, agent_id: str, host: str, state: str, before: PaneLook | None) -> PaneLook:
        """The new look, which keeps the time of the one before if it is like it."""
        look = PaneLook(host, state, self.sessions.alive(agent_id), self.clock())
        return replace(look, since=before.since) if before is not None and look.is_like(before) else look

    def _last(self) -> dict[str, PaneLook]:
        panes = self.workspace.pane_looks.facts().get("panes")
        looks = {agent_id: _look(pane) for agent_id, pane in (panes.items() if isinstance(panes, dict) else ())}
        return {agent_id: look for agent_id, look in looks.items() if look is not None}

    def _is_newer_than(self, length: timedelta) -> bool:
        at = parse_time(self.workspace.pane_looks.facts().get("at"))
        return at is not None and is_recent(at, self.clock(), length)


def _look(record: Any) -> PaneLook | None:
    """Parses a recorded look; None if it is damaged."""
    if not isinstance(record, dict) or (since := parse_time(record.get("since"))) is None:
        return None
    return PaneLook(str(record.get("host")), str(record.get("state")), record.get("served") is True, since)
