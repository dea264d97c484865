"""What agents' panes show, looked at by the supervisor and remembered for those that cannot look (`watch`, the
console, a supervisor that is restarted)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.dialog import Asked, Dialog
from multi_agent_mcp.domain.stuck import DIALOG, LOGIN, PaneLook
from multi_agent_mcp.domain.times import format_time, is_recent, json_values, parse_time
from multi_agent_mcp.services.sessions.agent_sessions import Sessions
from multi_agent_mcp.store.workspace import Workspace

LOOK_EVERY = timedelta(seconds=30)
GOOD_FOR = timedelta(seconds=180)
ASKED_FOR = timedelta(seconds=75)
"""After two looks that did not happen nobody looks any more, and a question may have been answered in its pane."""

LookAtPane = Callable[[Agent], tuple[str, str] | None]
"""The described host in an agent's pane and the state of its screen; None: there is none, or nobody can look."""


@dataclass(eq=False)
class PaneLooks:
    """The record `.supervisor/panes.json`; derived, may be deleted."""

    workspace: Workspace
    sessions: Sessions
    clock: Callable[[], datetime]

    def recorded(self) -> dict[str, PaneLook]:
        """What was seen last, by agent, unless that was long ago."""
        return self._last() if self._is_newer_than(GOOD_FOR) else {}

    def now(self, look_at: LookAtPane) -> dict[str, PaneLook]:
        """What the panes of agents that are no people show at this moment. Writes nothing."""
        before = self._last()
        looks: dict[str, PaneLook] = {}
        for agent in self.workspace.registry.active().values():
            seen = look_at(agent) if agent.pane_id is not None and not agent.may_be_human else None
            if seen is not None:
                looks[agent.id] = self._continued(agent.id, *seen, before.get(agent.id))
        return looks

    def refresh(self, look_at: LookAtPane, dialog: Callable[[Agent], Dialog | None] = lambda _: None) -> None:
        """Looks again, if the last look was not a moment ago; `dialog` reads what is asked in a pane."""
        if not self._is_newer_than(LOOK_EVERY):
            looks = self.now(look_at)
            panes = {agent_id: asdict(look, dict_factory=json_values) for agent_id, look in looks.items()}
            asked = [asdict(item, dict_factory=json_values) for item in self._asking(looks, dialog)]
            record = {"at": format_time(self.clock()), "panes": panes, "asked": asked}
            self.workspace.pane_looks.write(record, durable=False)

    def asked(self) -> tuple[Asked, ...]:
        """Who was seen last to wait for a human, unless that was long ago."""
        return tuple(self._last_asked()) if self._is_newer_than(ASKED_FOR) else ()

    def forget(self) -> None:
        """The panes are closed. Raises `StorageError`."""
        self.workspace.pane_looks.remove()

    def _asking(self, looks: Mapping[str, PaneLook], dialog: Callable[[Agent], Dialog | None]) -> Iterator[Asked]:
        """One that is asked the same as before goes on from then."""
        last = self._last_asked() if self._is_newer_than(GOOD_FOR) else ()
        before = {(item.agent_id, item.topic): item for item in last}
        agents = self.workspace.registry.active()
        for agent_id, look in looks.items():
            if look.state in (DIALOG, LOGIN):
                shown = dialog(agents[agent_id]) if look.asks else None
                topic = LOGIN if look.asks_for_login else shown.topic if shown is not None else None
                yield before.get((agent_id, topic)) or Asked(agent_id, topic, self.clock())

    def _last_asked(self) -> Iterator[Asked]:
        found = self._read().get("asked")
        for facts in found if isinstance(found, list) else ():
            with suppress(ValueError, LookupError, TypeError, AttributeError):  # a damaged one
                yield Asked.parse(facts)

    def _continued(self, agent_id: str, host: str, state: str, before: PaneLook | None) -> PaneLook:
        """A look goes on from the one before while neither the host nor what counts about it has changed."""
        look = PaneLook(host, state, self.sessions.alive(agent_id), self.clock())
        return replace(look, since=before.since) if before is not None and look.is_like(before) else look

    def _last(self) -> dict[str, PaneLook]:
        panes = self._read().get("panes")
        looks = {agent_id: _look(pane) for agent_id, pane in (panes.items() if isinstance(panes, dict) else ())}
        return {agent_id: look for agent_id, look in looks.items() if look is not None}

    def _is_newer_than(self, length: timedelta) -> bool:
        at = parse_time(self._read().get("at"))
        return at is not None and is_recent(at, self.clock(), length)

    def _read(self) -> Mapping[str, Any]:
        record = self.workspace.pane_looks.read()
        return record if isinstance(record, dict) else {}


def _look(record: Any) -> PaneLook | None:
    """None for a damaged one."""
    if not isinstance(record, dict) or (since := parse_time(record.get("since"))) is None:
        return None
    return PaneLook(str(record.get("host")), str(record.get("state")), record.get("served") is True, since)
