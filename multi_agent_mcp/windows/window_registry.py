"""A team's windows in tmux: recorded before they are opened, recognised by the marks on their panes."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multi_agent_mcp.config import tmux_socket, working_directory
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.entity import age
from multi_agent_mcp.domain.slot import OWN_SLOTS, Slot
from multi_agent_mcp.domain.task import WITH_ASSIGNEE
from multi_agent_mcp.doorbell.tmux.snapshot import probe
from multi_agent_mcp.doorbell.tmux.team_panes import (
    USABLE,
    NewWindow,
    OwnPane,
    TeamPanes,
    last_lines,
    reach,
    tmux_session,
)
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.host_config import MCP_CONFIG, own_file, program_name
from multi_agent_mcp.hosts import hosts
from multi_agent_mcp.programs import child_environment
from multi_agent_mcp.services.overview.missing_sessions import Window
from multi_agent_mcp.system.process import end, is_child
from multi_agent_mcp.trace import current, variables
from multi_agent_mcp.windows.agent_command import END_SECONDS, is_prompted, with_terminal
from multi_agent_mcp.windows.shells import SH, are_too_long, read_from, started
from multi_agent_mcp.wiring import Services


@dataclass(frozen=True)
class Lost:
    """A program that lives on a tmux server that cannot be reached. `is_ours`: in a window that we opened."""

    slot: Slot
    place: Mapping[str, Any]
    is_ours: bool

    @property
    def pid(self) -> int:
        return int(self.place["pane_pid"])


class TeamWindows:
    """The windows of one team. Open ones are found on every tmux server that a record or a registered pane names. New
    ones are opened on the server at `socket_path`, or with `joins` on the server of the open ones, if any.

    `up`, `down` and the supervisor hold one lock while they look and act. If a process is killed between opening a
    window and recording its pane, the next look matches the recorded intent with the mark."""

    def __init__(
        self, services: Services, socket_path: str, config_file: str | None = None, *, joins: bool = False
    ) -> None:
        self.services = services
        self.records = services.missing_sessions
        self.tmux_session = tmux_session(services.root, services.session.name)
        self._made_for = hashlib.sha256(services.settings.created_at.encode()).hexdigest()[:12]
        self._panes = TeamPanes(socket_path, self.tmux_session, config_file, made_for=self._made_for)
        self._joins = joins
        self.found: list[OwnPane] = []
        self.living: dict[Slot, OwnPane] = {}
        self.moved: list[Slot] = []
        self.strange: dict[str, list[Slot]] = {}
        self.lost: list[Lost] = []
        self.former: list[OwnPane] = []

    @property
    def socket_path(self) -> str:
        """The tmux server on which new windows are opened."""
        return self._panes.socket_path

    @property
    def has_windows(self) -> bool:
        """Whether the team has panes on that server, including those of ended programs."""
        return any(pane.socket_path == self.socket_path for pane in self.found)

    @property
    def is_any_recorded(self) -> bool:
        """Whether a record names a pane, or the intent to open one, which may be gone by now."""
        return any(window.pane for window in self._recorded().values())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the lock, with `found` and `living` brought up to date. If the session's directory was moved, closes
        the windows opened before, whose programs work in the former one, and lists them in `moved`; if the former one
        exists, this may be a copy: then they stay open, in `strange` by that directory. Raises `InvalidArguments` if
        tmux does not answer."""
        with self.services.supervision.locked():
            self.look()
            self._close_moved()
            self._reconcile()
            yield

    def look(self) -> None:
        """Finds the open panes, and with `joins` adopts their server. Raises `InvalidArguments` if tmux does not
        answer."""
        self.lost = list(self._unreached())
        found = [pane for socket_path in self._sockets() for pane in self._on(socket_path).all()]
        self.former = [pane for pane in found if self._is_former(pane)]
        self.found = [pane for pane in found if pane not in self.former]
        self.living = {Slot.of(pane.label): pane for pane in self.found if not pane.dead}
        if self._joins and self.living and all(pane.socket_path != self.socket_path for pane in self.found):
            self._panes = self._on(next(iter(self.living.values())).socket_path)

    def _is_former(self, pane: OwnPane) -> bool:
        """Whether the pane was opened for a session that was deleted, at the place of this one: its hosts have keys and
        tasks that are gone. What is recorded here is this one's, also if session.yaml was made again."""
        window = self.records.window(Slot.of(pane.label))
        is_recorded = window is not None and window.pane.get("pane_pid") == pane.pane_pid
        return pane.made_for not in ("", self._made_for) and not is_recorded

    def require_no_former(self) -> None:
        """Raises `InvalidArguments` while windows of a deleted session at this place are open: two agents would work on
        what one is to work on."""
        names = sorted({Slot.of(pane.label).window_name for pane in self.former})
        if names:
            raise InvalidArguments("former_windows", names=", ".join(names))

    def close_former(self) -> list[str]:
        """Closes those windows; returns their names."""
        for pane in self.former:
            self._on(pane.socket_path).close(pane)
        return [Slot.of(pane.label).window_name for pane in self.former]

    def open(
        self,
        slot: Slot,
        command: str,
        *,
        failures: int = 0,
        stays: bool = False,
        remains: bool = False,
        continues: str | None = None,
    ) -> OwnPane | None:
        """Opens a window, or finds it open, and returns its pane. When the program ends, the pane closes, or with
        `remains` is kept. A program that ends at once gives None, or with `remains` its kept pane. With `stays` (for
        `up`), panes kept from earlier programs are closed; `continues` is the conversation that the command continues.
        Raises `InvalidArguments` if tmux is missing or refuses."""
        told: dict[str, Any] = {"stays": stays, "continues": continues}
        told["prompted"] = is_prompted(self.services, slot, command)
        new = self._new(slot, command, str(working_directory()), remains=remains)
        self.records.record(slot, {"socket_path": self.socket_path}, failures, **told)
        pane = self._panes.open(new)
        if pane in self.found or (pane is not None and pane.dead and not remains):
            pane = None  # kept from an earlier program of this slot
        if pane is not None and stays:  # not for the supervisor's attempts: a pane that `up` kept is more informative
            self.close_kept(slot)
        return self._opened(slot, pane, 0 if stays else failures + 1)

    def restart(self, pane: OwnPane, command: str, *, continues: str | None = None) -> OwnPane | None:
        """Ends the program of an open pane and runs the command there instead, so that the window keeps its place and
        its viewers; see `open` for the result. Raises `InvalidArguments` if tmux refuses."""
        slot = Slot.of(pane.label)
        window = self.records.window(slot)
        told: dict[str, Any] = {"stays": window is None or window.stays, "continues": continues}
        told["prompted"] = is_prompted(self.services, slot, command)
        new = self._new(slot, command)
        self.records.record(slot, {"socket_path": pane.socket_path}, 0, **told)
        self.found.remove(pane)
        self.living.pop(slot, None)
        return self._opened(slot, self._on(pane.socket_path).restart(pane, new), 0)

    def end_program(self, pane: OwnPane) -> None:
        """Ends the program of an open pane, which stays for `restart`."""
        self._on(pane.socket_path).keep(pane)
        end(pane.pane_pid, signal.SIGHUP, END_SECONDS)

    def _new(self, slot: Slot, command: str, directory: str | None = None, *, remains: bool = False) -> NewWindow:
        """The window of a slot: in its agent's worktree, else in `directory`. Raises `InvalidArguments` if its program
        could not work there: tmux would start it elsewhere and say nothing."""
        worktree = None if slot in OWN_SLOTS else self.services.workplaces.of(slot.agent_id)
        directory = None if slot in OWN_SLOTS else directory if worktree is None else worktree.directory
        if directory is not None and not (os.path.isdir(directory) and os.access(directory, os.X_OK)):  # noqa: PTH112
            raise InvalidArguments("no_directory", directory=directory)
        words = started(
            command, self.shell_of(slot), directory=directory, environment=environment_of(self.services, slot)
        )
        if are_too_long(words):
            workspace = self.services.workspace
            path = own_file(workspace, slot.label, "window.sh")
            workspace.files.replace(path, words[-1].encode("utf-8", "surrogateescape"), durable=False)
            words = read_from(path)
        return NewWindow(slot.label, slot.window_name, words, remains, directory)

    def shell_of(self, slot: Slot) -> str:
        """What reads the command of a slot's window: /bin/sh, or with `shell: default` the shell of the person whose
        tmux it is. Raises `InvalidArguments` when tmux is missing or refuses, and `TmuxTimeout`."""
        if slot in OWN_SLOTS:
            return SH
        given = self.services.agents.get(slot.agent_id).extra.get("shell", self.services.session.settings.shell)
        return self._panes.default_shell() if given == "default" else SH

    def _opened(self, slot: Slot, pane: OwnPane | None, failures: int) -> OwnPane | None:
        """Records the pane that was opened for a slot, or the failures if its program has ended at once."""
        if pane is None or pane.dead:
            self.records.record_failure(slot, Window(pane={}, opened_at=self.services.clock(), failures=failures))
        else:
            self.living[slot] = pane
            self.records.record_pane(slot, pane.place)
            self._forget_former_host(slot)
        if pane is not None:
            self.found.append(pane)
        return pane

    def _forget_former_host(self, slot: Slot) -> None:
        """Forgets a host that was recorded of an earlier program: hooks of that one may have recorded it after the
        command had changed, and the new one's screen would not be read as its own."""
        if slot in OWN_SLOTS:
            return
        agent = self.services.agents.get(slot.agent_id)
        program = program_name(agent.command or "")
        if program in hosts() and agent.declared_host is None and agent.host not in (None, program):
            self.services.agents.note(agent.id, host=None)

    def close(self, pane: OwnPane) -> None:
        """Closes a pane and removes it from the records and from the agent registered there."""
        self._close(self._on(pane.socket_path), pane)

    def _close(self, panes: TeamPanes, pane: OwnPane) -> None:
        panes.close(pane)
        if not self.records.is_down(slot := Slot.of(pane.label)):
            self.records.forget(slot)
        for agent in self.services.agents.all().values():
            if (agent.socket_path, agent.pane_id) == (pane.socket_path, pane.pane_id):
                self.services.agents.change(agent.id, pane_id=None, pane_pid=None)

    def kept_lines(self, slot: Slot) -> list[str]:
        """The last lines of the slot's ended programs whose panes were kept."""
        dead = (pane for pane in self.found if pane.dead and Slot.of(pane.label) == slot)
        return [line for pane in dead for line in last_lines(pane.socket_path, pane.pane_id)]

    def close_kept(self, slot: Slot) -> None:
        """Closes a slot's panes with an ended program. Call it after a new pane is open: tmux ends a session, and
        detaches its clients, with its last window."""
        for pane in self.found:
            if pane.dead and Slot.of(pane.label) == slot:
                self._on(pane.socket_path).close(pane)

    def runs_elsewhere(self, slot: Slot) -> bool:
        """Whether the slot's agent runs in a pane or a terminal that is not the team's, with its server or without:
        where a person has started it, or has registered a pane for it."""
        if slot in self.living:
            return False
        agent = self.services.agents.get(slot.agent_id)
        is_of_chat = "chat" in self.services.sessions.served_purposes(agent.id)
        if slot.purpose == "task" and not is_of_chat and self.is_in_other_pane(agent):
            return True
        return with_terminal(self.services, agent.id, slot.purpose) is not None

    def is_in_other_pane(self, agent: Agent) -> bool:
        """Whether the agent's program runs in a registered pane that the team did not open."""
        own = {(pane.socket_path, pane.pane_id) for pane in self.found}
        return (agent.socket_path, agent.pane_id) not in own and is_reachable(agent)

    def require_reached(self, slot: Slot) -> None:
        """Raises `InvalidArguments` for a slot whose program lives on a tmux server that cannot be reached: started
        again, it would run twice."""
        for lost in self.lost:
            if lost.slot == slot:
                where = {"socket_path": lost.place["socket_path"], "tmux_pid": lost.place["tmux_pid"]}
                is_own = slot in OWN_SLOTS
                facts = {"pid": lost.pid, "name": slot.window_name, "agents": "" if is_own else f" {slot.agent_id}"}
                raise InvalidArguments("tmux_lost", **where, **facts)

    def end_lost(self, agent_ids: Collection[str] = ()) -> list[str]:
        """Ends the programs in windows of ours on tmux servers that cannot be reached, as closing the window would: of
        these agents, or all. Returns the names of the windows; `lost` is then what still runs there."""
        ended = []
        for lost in list(self.lost):
            slot = lost.slot
            if agent_ids and (slot in OWN_SLOTS or slot.agent_id not in agent_ids):
                continue
            if not (lost.is_ours and end(lost.pid, signal.SIGHUP, END_SECONDS)):
                continue
            if not self.records.is_down(slot):
                self.records.forget(slot)
            agent = self.services.agents.all().get(slot.agent_id)
            if agent is not None and agent.pane_pid == lost.pid:
                self.services.agents.change(agent.id, pane_id=None, pane_pid=None)
            self.lost.remove(lost)
            ended.append(slot.window_name)
        return ended

    def _unreached(self) -> Iterator[Lost]:
        """The programs in recorded windows and registered panes that live on a tmux server that cannot be reached."""
        servers: dict[tuple[str, int, str | None], bool] = {}
        for lost in self._with_servers():
            place = lost.place
            if not is_child(lost.pid, place["tmux_pid"]):
                continue
            server = str(place["socket_path"]), place["tmux_pid"], place.get("tmux_server")
            if server not in servers:
                servers[server] = reach(*server)
            if not servers[server]:
                yield lost

    def _with_servers(self) -> Iterator[Lost]:
        """The recorded windows and registered panes of which the tmux server is known. A copy of the session records
        the windows of the one that it was copied from: they are not its own."""
        here = os.path.realpath(self.services.path)
        recorded = {slot: window for slot, window in self._recorded().items() if window.directory in (None, here)}
        known = {slot: window.pane for slot, window in recorded.items()}
        for agent in self.services.agents.at_home().values():
            slot = Slot(agent.id, "task")
            place = {name: getattr(agent, name) for name in ("socket_path", "pane_pid", "tmux_pid", "tmux_server")}
            is_ours = slot in known and known[slot].get("pane_pid") == agent.pane_pid
            if is_ours:
                known.pop(slot)
            if all(place[name] is not None for name in ("socket_path", "pane_pid", "tmux_pid")):
                yield Lost(slot, place, is_ours)
        for slot, pane in known.items():
            if isinstance(pane.get("pane_pid"), int) and isinstance(pane.get("tmux_pid"), int):
                yield Lost(slot, pane, is_ours=True)

    def _close_moved(self) -> None:
        here = os.path.realpath(self.services.path)
        windows = [window for window in self._recorded().values() if window.directory not in (None, here)]
        places = {(str(window.directory), window.pane.get("socket_path")) for window in windows if window.pane}
        for directory, socket_path in sorted(places, key=str):
            former = Path(directory)
            panes = TeamPanes(str(socket_path), tmux_session(former.parent, former.name))
            if former.exists():
                self.strange.setdefault(directory, []).extend(Slot.of(pane.label) for pane in panes.all())
                continue
            for pane in panes.all():
                self._close(panes, pane)
                self.moved.append(Slot.of(pane.label))

    def _reconcile(self) -> None:
        """Records panes that a killed process opened but did not record, and drops intents without a pane."""
        for slot, pane in self.living.items():
            window = self.records.window(slot)
            if window is None or window.pane != pane.place:
                self.records.record_pane(slot, pane.place)
        for slot, window in self._recorded().items():
            if window.intended and slot not in self.living:
                self.records.record_failure(slot, window)

    def _recorded(self) -> dict[Slot, Window]:
        own = {slot: window for slot in OWN_SLOTS if (window := self.records.window(slot)) is not None}
        return self.records.windows() | own

    def _sockets(self) -> list[str]:
        recorded = [window.pane.get("socket_path") for window in self._recorded().values()]
        registered = [agent.socket_path for agent in self.services.agents.all().values()]
        paths = (self.socket_path, *recorded, *registered)
        return list(dict.fromkeys(path for path in paths if path and isinstance(path, str)))

    def _on(self, socket_path: str) -> TeamPanes:
        return TeamPanes(socket_path, self.tmux_session, made_for=self._made_for)


def is_reachable(agent: Agent) -> bool:
    """Whether a program runs in the agent's registered pane that may be the agent's."""
    return agent.pane_id is not None and probe(agent) in USABLE


def last_socket(services: Services) -> str | None:
    """The socket of the tmux server on which agents were registered last, even if their windows are closed by now; None
    if none is recorded whose directory exists."""
    recorded = [agent.socket_path for agent in services.agents.at_home().values()]
    return next((path for path in recorded if path and Path(path).parent.is_dir()), None)


def team_windows(services: Services, socket: str | None = None) -> TeamWindows:
    """The team's windows; new ones on the tmux server at `socket`, else where the team's are or were."""
    path = str(Path(socket).absolute()) if socket else last_socket(services) or tmux_socket()
    return TeamWindows(services, path, joins=socket is None)


def _trace_of_work(services: Services, slot: Slot) -> str | None:
    """The trace of the newest open task of the agent that a window is opened for."""
    if slot.purpose != "task":
        return None
    tasks = sorted(services.workspace.tasks.open(slot.agent_id), key=age, reverse=True)
    return next((task.traceparent for task in tasks if task.status in WITH_ASSIGNEE and task.traceparent), None)


def environment_of(services: Services, slot: Slot) -> dict[str, str]:
    """Returns the variables that tell a window's command its session, agent and purpose, the configuration file of a
    host that takes `{mcp_config}` from a variable, and a plugin of ours that there is such a configuration."""
    environment = {"MULTI_AGENT_MCP_ROOT": str(services.root), "MULTI_AGENT_MCP_SESSION": services.session.name}
    environment |= {name: value for name, value in child_environment().items() if name == "PATH"}
    if slot not in OWN_SLOTS:
        environment |= variables(current() or _trace_of_work(services, slot))
        environment |= {"MULTI_AGENT_MCP_AGENT": slot.agent_id, "MULTI_AGENT_MCP_PURPOSE": slot.purpose}
        agent = services.agents.get(slot.agent_id)
        environment |= services.host_configurations.environment(agent)
        if MCP_CONFIG in (agent.command or ""):
            environment["MULTI_AGENT_MCP_CONFIGURED"] = "yes"
        environment |= services.workplaces.environment(slot.agent_id)
    return environment
