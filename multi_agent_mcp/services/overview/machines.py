"""The machines of a team for views: which are up, which are away since when, what waits where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from multi_agent_mcp.domain.dialog import Asked
from multi_agent_mcp.domain.times import from_timestamp, json_values, parse_time
from multi_agent_mcp.services.team.agents import Agents
from multi_agent_mcp.store.workspace import Workspace

HERE, UP, AWAY, UNKNOWN = "here", "up", "away", "unknown"
CONNECTED, CUT_OFF, SHUT_OUT = "connected", "cut_off", "shut_out"
REPLACED, NO_RELAY, RELAY_HANGS = "replaced", "no_relay", "relay_hangs"
WITHOUT_RELAY = (NO_RELAY, RELAY_HANGS)


@dataclass(frozen=True, kw_only=True)
class MachineRow:
    """One machine. `state`: `here`, `up`, `away`, or `unknown` while this one is cut off, or has only begun to listen.
    `since`: from when on it was heard of; of one that is away, when it was for the last time. `behind`: how many
    changes it does not have yet, `queued`: how many messages wait there for the hub, `conflicts`: how many edits are
    set aside there, `clock_offset`: how much its clock differs (seconds); None where nobody knows. `troubles`: what it
    says that is wrong with it: `disk` (it does not take what other machines write), `double` (another relay says that
    it is this machine). `agents`: who is at home there; `asking`: which of them wait for a human in a pane there, as
    long as it is `up`."""

    name: str
    state: str
    since: datetime | None = None
    behind: int | None = None
    queued: int | None = None
    conflicts: int | None = None
    clock_offset: float | None = None
    troubles: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    asking: tuple[Asked, ...] = ()


@dataclass(frozen=True)
class Home:
    """An agent's machine, and its `state` as in `MachineRow`."""

    machine: str
    state: str


@dataclass(frozen=True, kw_only=True)
class TeamOfMachines:
    """`here` is this machine; `exchange` how it stands with the hub: `connected`, `cut_off`, `shut_out` (the hub does
    not know its key), `replaced`, `no_relay` or `relay_hangs` (it is there and does not answer), and `since` when.
    `relay_pid`: its process, as it last said. `queued`: how many messages wait for it, `pending`: how many files are
    still to be looked at; None while no relay counts them. `edits`: what is set aside here, newest first, each with its
    `path` and `at`. `unwritten`: what the disk does not take here (`path`, `reason`), `since` when."""

    here: str
    exchange: str
    since: datetime | None = None
    relay_pid: int | None = None
    serves: bool = False
    version: str | None = None
    urls: tuple[str, ...] = ()
    position: int = 0
    queued: int | None = None
    pending: int | None = None
    edits: tuple[Mapping[str, str], ...] = ()
    unwritten: Mapping[str, str] | None = None
    machines: tuple[MachineRow, ...] = ()

    def as_answer(self) -> dict[str, Any]:
        """As JSON-ready values; the machines by name."""
        answer = asdict(self, dict_factory=json_values)
        return answer | {"machines": {row.pop("name"): row for row in answer["machines"]}}


@dataclass(eq=False)
class Machines:
    """Looks; asks nobody but the files."""

    workspace: Workspace
    agents: Agents

    def look(self) -> TeamOfMachines | None:
        """None while the session is on one machine alone."""
        here = self.workspace.authority.here
        if here is None:
            return None
        state = self.workspace.relay_state.read()
        edits = tuple(self.workspace.conflicts.standing())
        exchange = _exchange(state)
        counted = state if exchange not in WITHOUT_RELAY else {}
        return TeamOfMachines(
            here=here,
            exchange=exchange,
            since=parse_time(state.get("since")) if exchange not in WITHOUT_RELAY else self._last_noted(),
            relay_pid=state.get("pid"),
            serves=bool(state.get("serves")),
            version=state.get("version"),
            urls=tuple(state.get("urls", ())),
            position=int(state.get("position", 0)),
            queued=counted.get("queued"),
            pending=counted.get("pending"),
            edits=edits,
            unwritten=counted.get("unwritten"),
            machines=tuple(self._rows(here, exchange, state, counted.get("queued"), len(edits))),
        )

    def states(self) -> dict[str, str]:
        """Machine → its state; none while there is one alone."""
        found = self.look()
        return {} if found is None else {row.name: row.state for row in found.machines}

    def known_until(self) -> dict[str, datetime | None]:
        """Until when it is known what the machines do that cannot be heard of now; of the others it is."""
        found = self.look()
        rows = () if found is None else found.machines
        silent = (row for row in rows if row.state in (AWAY, UNKNOWN))
        return {row.name: row.since if row.state == AWAY or found is None else found.since for row in silent}

    def homes(self) -> dict[str, Home]:
        """Agent → its home; of removed ones, too: their messages are still there."""
        states = self.states()
        agents = self.workspace.registry.all().values()
        return {agent.id: Home(agent.machine, states.get(agent.machine, UNKNOWN)) for agent in agents if agent.machine}

    def _last_noted(self) -> datetime | None:
        at = self.workspace.relay_state.noted_at
        return from_timestamp(at) if at else None

    def _rows(
        self, here: str, exchange: str, state: Mapping[str, Any], queued: int | None, edits: int
    ) -> list[MachineRow]:
        homes, known = self.agents.by_machine(), state.get("machines", {})
        rows = []
        for name in sorted({here, *homes, *known}, key=lambda name: (name != here, name)):
            facts = known.get(name, {})
            stands = HERE if name == here else _state(facts, exchange, is_listening=not state.get("listened"))
            asking = map(Asked.parse, facts.get("asking", ()) if stands == UP else ())
            row = MachineRow(
                name=name,
                state=stands,
                since=parse_time(facts.get("since")),
                behind=facts.get("behind"),
                queued=queued if name == here else facts.get("queued"),
                conflicts=edits if name == here else facts.get("conflicts"),
                clock_offset=facts.get("clock_offset"),
                troubles=tuple(facts.get("troubles", ()) if stands in (HERE, UP) else ()),
                agents=tuple(homes.get(name, ())),
                asking=tuple(item for item in asking if item.agent_id in homes.get(name, ())),
            )
            if row.agents or row.state in (HERE, UP):  # nobody waits for one that has left
                rows.append(row)
        return rows


def _exchange(state: Mapping[str, Any]) -> str:
    if not state["relay"]:
        return RELAY_HANGS if state["hangs"] else NO_RELAY
    if state.get("replaced"):
        return REPLACED
    if state.get("connected"):
        return CONNECTED
    return SHUT_OUT if state.get("shut_out") else CUT_OFF


def _state(facts: Mapping[str, Any], exchange: str, *, is_listening: bool) -> str:
    if exchange in (CUT_OFF, SHUT_OUT, *WITHOUT_RELAY) or (is_listening and not facts):
        return UNKNOWN
    return UP if facts.get("up") else AWAY
