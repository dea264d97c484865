"""Leases: what only so many commands of a machine may use at once (a build, a GPU, a port), in the order in which they
came (docs/protocol.md, Whoever is free).

Each command has a file in `.leases/` from its coming to its end. Its place is its name, which begins with the time and
is given under a lock. A file counts as long as a process that it names lives, so a lease is free again whatever ends
it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from multi_agent_mcp.config import read_environment
from multi_agent_mcp.domain.times import format_time, parse_time
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.session import Service
from multi_agent_mcp.settings import CHECK_NAME
from multi_agent_mcp.store.records import Record
from multi_agent_mcp.system.process import is_alive, own_start, started_at

if TYPE_CHECKING:
    from pathlib import Path

    from multi_agent_mcp.services.team.approvals import Approvals

LOCK = "leasing"
AGAIN_SECONDS = 0.2
"""How often a command that waits looks whether it is its turn: nothing tells of another process's death."""
COMMAND_SHOWN = 60
"""How many characters of a command lists show."""


@dataclass(frozen=True, kw_only=True)
class CommandLease:
    """A command that has a lease, or waits for one. `within` are the leases that it holds already, by the commands
    around it; `child` is the command's own process, `pid` that of ours which started it."""

    ticket: str
    name: str
    slots: int
    agent_id: str | None
    command: str
    since: str
    pid: int
    pid_started_at: str | None
    within: tuple[str, ...] = ()
    held_at: str | None = None
    child: int | None = None
    child_started_at: str | None = None

    @property
    def lives(self) -> bool:
        own = is_alive(self.pid, self.pid_started_at)
        return own or (self.child is not None and is_alive(self.child, self.child_started_at))

    @property
    def state(self) -> str:
        return "held" if self.held_at else "waits"

    @property
    def began(self) -> datetime | None:
        return parse_time(self.held_at or self.since)


@dataclass(eq=False)
class Leases(Service):
    """The leases of this machine."""

    approvals: Approvals

    def all(self) -> list[CommandLease]:
        """Those of living commands, in their order; the files of dead ones are removed."""
        found = []
        for name in self.workspace.files.names(self._place):
            lease = self._read(name)
            if lease is not None and lease.lives:
                found.append(lease)
            elif lease is not None or not name.endswith(".json"):
                self.remove(name)
        return found

    def stale(self) -> list[str]:
        """The files of dead commands, and those that cannot be read; removes none."""
        known = ((name, self._read(name)) for name in self.workspace.files.names(self._place))
        return [name for name, lease in known if lease is None or not lease.lives]

    def remove(self, name: str) -> None:
        """Removes the file of a command that is dead."""
        self.workspace.files.remove(self._place / name)

    def ask(self, name: str, slots: int, command: Sequence[str]) -> CommandLease:
        """Takes a place in the order for a command, which waits then. Raises `InvalidArguments` for no name, and where
        the command would wait for itself: in a circle of commands that hold what others of them wait for."""
        if not CHECK_NAME.fullmatch(name):
            raise InvalidArguments("no_lease_name", name=f"{name!r:.80}")
        environment = read_environment()
        within = environment.leases
        with self.workspace.locks.held(LOCK):
            known = self.all()
            full = sum(one.name == name and one.held_at is not None for one in known) >= slots
            if full and (circle := circle_of(name, within, known)):
                raise InvalidArguments("lease_circle", circle=" → ".join(circle))
            lease = CommandLease(
                ticket=f"{self._next(known):020d}-{os.getpid()}",
                name=name,
                slots=slots,
                agent_id=environment.agent,
                command=" ".join(command),
                since=format_time(self.clock()),
                pid=os.getpid(),
                pid_started_at=own_start(),
                within=within,
            )
            self._write(lease)
        return lease

    def wait(self, lease: CommandLease) -> CommandLease:
        """Waits for its turn, and returns the lease as held."""
        while not self._is_next(lease):
            time.sleep(AGAIN_SECONDS)
        held = replace(lease, held_at=format_time(self.clock()))
        self._write(held)
        return held

    def started(self, lease: CommandLease, child: int) -> None:
        """Notes the command's process: the lease is held as long as it lives, even if ours is killed."""
        self._write(replace(lease, child=child, child_started_at=started_at(child)))

    def stop(self, process: str) -> CommandLease:
        """Ends the command that has a lease, or waits for one, by a signal to its process, or ours that started it;
        with it ends the lease. Raises `Unauthorized` in the hands of another agent than the command's,
        `InvalidArguments` for no such process."""
        found = next((one for one in self.all() if process in (str(one.pid), str(one.child))), None)
        if found is None:
            raise InvalidArguments("no_such_lease", pid=f"{process:.20}")
        self.approvals.require_person(but=found.agent_id)
        ours = is_alive(found.pid, found.pid_started_at)
        with suppress(ProcessLookupError):
            os.kill(found.pid if ours or found.child is None else found.child, signal.SIGTERM)
        return found

    def end(self, lease: CommandLease) -> None:
        self.workspace.files.remove(self._file(lease).path)

    def held_by(self, lease: CommandLease) -> str:
        """The variable's value for what the command starts."""
        return ",".join(dict.fromkeys((*lease.within, lease.name)))

    def _is_next(self, lease: CommandLease) -> bool:
        before = [one for one in self.all() if one.name == lease.name and one.ticket < lease.ticket]
        return len(before) < lease.slots

    def _next(self, known: Sequence[CommandLease]) -> int:
        """A number after all that are known, also if the clock was set back."""
        return max([time.time_ns(), *(int(one.ticket.partition("-")[0]) + 1 for one in known)])

    @property
    def _place(self) -> Path:
        return self.workspace.path / ".leases"

    def _file(self, lease: CommandLease) -> Record:
        return Record(self.workspace.files, self._place / f"{lease.ticket}.json")

    def _write(self, lease: CommandLease) -> None:
        self._file(lease).write(asdict(lease), durable=False)

    def _read(self, name: str) -> CommandLease | None:
        facts = Record(self.workspace.files, self._place / name).read()
        with suppress(TypeError, ValueError, AttributeError):
            lease = CommandLease(**{**facts, "within": tuple(map(str, facts.get("within") or ()))})
            if name == f"{lease.ticket}.json" and int(lease.ticket.partition("-")[0]) >= 0 and lease.slots > 0:
                return lease
        return None


def as_answer(lease: CommandLease) -> dict[str, object]:
    """The lease for JSON."""
    shown = ("name", "slots", "agent_id", "command", "since", "held_at", "pid", "within")
    return {"state": lease.state, **{key: value for key, value in asdict(lease).items() if key in shown}}


def circle_of(name: str, within: Sequence[str], known: Sequence[CommandLease]) -> list[str]:
    """The circle that would close if who holds `within` waited for `name`: each name is held by who waits for the next;
    empty if there is none."""
    waits = [(held, one.name) for one in known if one.held_at is None for held in one.within]

    def paths(at: str, seen: tuple[str, ...]) -> Iterator[list[str]]:
        if at in within:
            yield [*seen, at]
            return
        for held, wanted in waits:
            if held == at and wanted not in seen:
                yield from paths(wanted, (*seen, at))

    found = next(paths(name, ()), None)
    return [] if found is None else [found[-1], *found]
