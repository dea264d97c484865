"""A team's windows in tmux: recorded before they are opened, recognised by the marks on their panes.

`up`, `down` and the supervisor hold one lock while they look and act. A process that is killed between opening a window
and noting its pane leaves the intent and the mark, and the next look joins the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from multi_agent_mcp.bootstrap import Services
from multi_agent_mcp.notify.tmux.team_panes import NewWindow, OwnPane, Panes, executed, tmux_session
from multi_agent_mcp.services.overview.missing_sessions import OWN_SLOTS, Slot, Window


class TeamWindows:
    """The windows of one team. New ones are opened on the tmux server at `socket_path`, with `joins` rather beside
    those that are open; these are found on every server that a record or a registered pane names."""

    def __init__(
        self, services: Services, socket_path: str, config_file: str | None = None, *, joins: bool = False
    ) -> None:
        self.services = services
        self.records = services.missing_sessions
        self.tmux_session = tmux_session(services.root, services.session)
        self._panes = Panes(socket_path, self.tmux_session, config_file)
        self._joins = joins
        self.found: list[OwnPane] = []
        self.living: dict[Slot, OwnPane] = {}

    @property
    def socket_path(self) -> str:
        """The tmux server on which new windows are opened."""
        return self._panes.socket_path

    @property
    def has_windows(self) -> bool:
        """Whether the team has something to be looked at on that server, be it an ended program's last lines."""
        return any(pane.socket_path == self.socket_path for pane in self.found)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the lock, with `found` and `living` as tmux has them. Raises `InvalidArguments` when tmux does not
        answer."""
        with self.services.supervision.locked():
            self.look()
            self._reconcile()
            yield

    def look(self) -> None:
        """Finds what is open, and with `joins` the server it is on. Raises `InvalidArguments` when tmux does not
        answer."""
        self.found = [pane for socket_path in self._sockets() for pane in self._on(socket_path).all()]
        self.living = {Slot.of(pane.label): pane for pane in self.found if not pane.dead}
        if self._joins and self.living and all(pane.socket_path != self.socket_path for pane in self.found):
            self._panes = self._on(next(iter(self.living.values())).socket_path)

    def open(
        self, slot: Slot, command: str, *, failures: int = 0, stays: bool = False, remains: bool = False
    ) -> OwnPane | None:
        """Opens a window, or finds it open. When its program ends, its pane goes, or `remains`: then one that ended at
        once is returned, too, and those kept earlier go. Else None for a program that ended at once. Raises
        `InvalidArguments` when tmux is missing or refuses."""
        new = NewWindow(slot.label, slot.window_name, executed(command), environment_of(self.services, slot), remains)
        self.records.record(slot, {"socket_path": self.socket_path}, failures, stays=stays)
        pane = self._panes.open(new)
        if pane in self.found or (pane is not None and pane.dead and not remains):
            pane = None  # it was kept when an earlier program of this slot ended
        if pane is None or pane.dead:
            self.records.record_failure(slot, Window({}, self.services.clock(), 0 if stays else failures + 1))
        else:
            self.living[slot] = pane
            self.records.record_pane(slot, pane.place)
        if pane is not None:
            if stays:  # the supervisor's attempts leave nothing behind: what `up` kept says more
                self.close_kept(slot)
            self.found.append(pane)
        return pane

    def close(self, pane: OwnPane) -> None:
        """Closes a pane and forgets it: no agent is rung there any more."""
        self._on(pane.socket_path).close(pane)
        self.records.forget(Slot.of(pane.label))
        for agent in self.services.agents.all().values():
            if (agent.socket_path, agent.pane_id) == (pane.socket_path, pane.pane_id):
                self.services.agents.change(agent.id, pane_id=None, pane_pid=None)

    def close_kept(self, slot: Slot) -> None:
        """Closes the panes that were found with an ended program; only after a new one is there, for with its last
        window a tmux session goes, and with that whoever looks at it."""
        for pane in self.found:
            if pane.dead and Slot.of(pane.label) == slot:
                self._on(pane.socket_path).close(pane)

    def _reconcile(self) -> None:
        """Notes what was opened by a process that was killed before it could, and forgets what it did not open."""
        for slot, pane in self.living.items():
            window = self.records.window(slot)
            if window is None or window.pane.get("pane_id") != pane.pane_id:
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

    def _on(self, socket_path: str) -> Panes:
        return Panes(socket_path, self.tmux_session)


def environment_of(services: Services, slot: Slot) -> dict[str, str]:
    """The environment by which a window's command finds its session, its agent and purpose, and the file of a host that
    takes `{mcp_config}` by a variable."""
    environment = {"MULTI_AGENT_MCP_ROOT": str(services.root), "MULTI_AGENT_MCP_SESSION": services.session}
    if slot not in OWN_SLOTS:
        environment |= {"MULTI_AGENT_MCP_AGENT": slot.agent_id, "MULTI_AGENT_MCP_PURPOSE": slot.purpose}
        environment |= services.host_configurations.environment(services.agents.get(slot.agent_id))
    return environment
