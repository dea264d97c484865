"""The machines of a team for views: which are up or away since when, and what waits on each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.hosts.dialog import Asked
from multi_agent_mcp.domain.times import from_timestamp, json_values, parse_time

if TYPE_CHECKING:
    from multi_agent_mcp.services.team.agents import Agents
    from multi_agent_mcp.store.workspace import Workspace

HERE, UP, AWAY, UNKNOWN, LEFT = "here", "up", "away", "unknown", "left"
CONNECTED, CUT_OFF, SHUT_OUT = "connected", "cut_off", "shut_out"
REPLACED, NO_RELAY, RELAY_HANGS = "replaced", "no_relay", "relay_hangs"
WITHOUT_RELAY = (NO_RELAY, RELAY_HANGS)


@dataclass(frozen=True, kw_only=True)
class MachineRow:
    """One machine. `state` is `here`, `up`, `away`, `unknown` while this machine is cut off or has only begun to
    listen, or `left` for one that takes part no more although agents are at home there. `since` is when it came up, or
    was last heard from if it is away. `behind` is the number of changes that it lacks, `queued` of messages that wait
    there for the hub, `conflicts` of edits set aside there; `clock_offset` is its clock's difference in seconds; None
    where unknown. `troubles` are what it reports to be wrong: `disk` (it refuses what other machines write), `double`
    (another relay says that it is this machine). `agents` are those at home there; `asking` those of them that wait for
    a human in a pane, while it is `up`."""

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
    """The machines of a team. `here` is this machine's name; `exchange` its state towards the hub: `connected`,
    `cut_off`, `shut_out` (the hub does not know its key), `replaced`, `no_relay` or `relay_hangs` (it does not answer),
    `since` then. `relay_pid` is the relay's process, as last noted. `serves`: the hub runs here; `own_hub`: it is the
    user's own. `queued` is the number of messages that wait for the hub, `pending` of files still to be examined; None
    without a relay that counts them. `edits` are those set aside here, newest first, each with its `path` and `at`.
    `unwritten` is what the disk refuses here (`path`, `reason`, `since`)."""

    here: str
    exchange: str
    since: datetime | None = None
    relay_pid: int | None = None
    serves: bool = False
    own_hub: bool = False
    version: str | None = None
    urls: tuple[str, ...] = ()
    position: int = 0
    queued: int | None = None
    pending: int | None = None
    edits: tuple[Mapping[str, str], ...] = ()
    unwritten: Mapping[str, str] | None = None
    machines: tuple[MachineRow, ...] = ()

    def as_answer(self) -> dict[str, Any]:
        """The fields as JSON-ready values, with the machines by name."""
        answer = asdict(self, dict_factory=json_values)
        return answer | {"machines": {row.pop("name"): row for row in answer["machines"]}}


@dataclass(eq=False)
class Machines:
    """Reads the state of all machines from this machine's files."""

    workspace: Workspace
    agents: Agents

    def look(self) -> TeamOfMachines | None:
        """The machines of the team; None for a session of one machine."""
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
            own_hub=bool(state.get("own_hub")),
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
        """The state of each machine, by name; empty for a session of one machine."""
        found = self.look()
        return {} if found is None else {row.name: row.state for row in found.machines}

    def known_until(self) -> dict[str, datetime | None]:
        """Until when it is known what the machines do that cannot be heard of now; of the others it is."""
        found = self.look()
        rows = () if found is None else found.machines
        silent = (row for row in rows if row.state in (AWAY, UNKNOWN))
        return {row.name: row.since if row.state == AWAY or found is None else found.since for row in silent}

    def homes(self) -> dict[str, Home]:
        """The home of each agent, by id, including removed agents: their messages still exist."""
        states = self.states()
        agents = self.workspace.registry.all().values()
        return {agent.id: Home(agent.machine, states.get(agent.machine, UNKNOWN)) for agent in agents if agent.machine}

    def _last_noted(self) -> datetime | None:
        at = self.workspace.relay_state.noted_at
        return from_timestamp(at) if at else None

    def _rows(
        self, here: str, exchange: str, state: Mapping[str, Any], queued: int | None, edits: int
    ) -> list[MachineRow]:
        homes, known, members = self.agents.by_machine(), state.get("machines", {}), state.get("members", ())
        rows = []
        for name in sorted({here, *homes, *known, *members}, key=lambda name: (name != here, name)):
            facts = known.get(name, {})
            stands = HERE if name == here else _state(facts, exchange, is_listening=not state.get("listened"))
            if members and name not in members and stands == AWAY:
                stands = LEFT
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
            if row.agents or name in members or row.state in (HERE, UP):
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
