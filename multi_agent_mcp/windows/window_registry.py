"""What a team has open in tmux: noted before it is opened, known again by the marks on its panes.

`up`, `down` and the supervisor hold one lock while they look and act. A process that is killed between opening a window
and noting its pane leaves the intent and the mark, and the next look joins the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from multi_agent_mcp.bootstrap import Services
from multi_agent_mcp.notify.tmux.windows import OwnPane, Panes, executed, tmux_session
from multi_agent_mcp.services.overview.missing_sessions import SUPERVISOR, Slot, Window


class TeamWindows:
    """The windows of one team. New ones are opened on the tmux server at `socket_path`; those that are open are found
    on every server that a record or a registered pane names."""

    def __init__(
        self, services: Services, socket_path: str, config_file: str | None = None, *, remain: bool = False
    ) -> None:
        self.services = services
        self.records = services.missing_sessions
        self._project = tmux_session(services.root, services.session)
        self._panes = Panes(socket_path, self._project, config_file, remain=remain)
        self.found: list[OwnPane] = []
        self.living: dict[Slot, OwnPane] = {}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the lock, with `found` and `living` as tmux has them. Raises `InvalidArguments` when tmux does not
        answer."""
        with self.services.supervision.locked():
            self.found = [pane for socket_path in self._sockets() for pane in self._on(socket_path).all()]
            self.living = {Slot.of(pane.label): pane for pane in self.found if not pane.dead}
            self._reconcile()
            yield

    def open(
        self, slot: Slot, command: str, environment: Mapping[str, str], *, failures: int = 0, stays: bool = False
    ) -> OwnPane | None:
        """Opens a window, or finds it open; None when its command ended at once. Raises `InvalidArguments` when tmux is
        missing or refuses."""
        self.records.record(slot, {"socket_path": self._panes.socket_path}, failures, stays=stays)
        pane = self._panes.open(slot.label, slot.window_name, executed(command), environment)
        if pane is None:
            self.records.record_failure(slot, Window({}, self.services.clock(), 0 if stays else failures + 1))
        else:
            self.living[slot] = pane
            self.records.record_pane(slot, pane.place)
        return pane

    def close(self, pane: OwnPane) -> None:
        """Closes a pane and forgets it: no agent is rung there any more."""
        self._on(pane.socket_path).close(pane)
        self.records.forget(Slot.of(pane.label))
        for agent in self.services.agents.all().values():
            if (agent.socket_path, agent.pane_id) == (pane.socket_path, pane.pane_id):
                self.services.agents.change(agent.id, pane_id=None, pane_pid=None)

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
        supervisor = self.records.window(SUPERVISOR)
        return self.records.windows() | ({SUPERVISOR: supervisor} if supervisor is not None else {})

    def _sockets(self) -> list[str]:
        recorded = [window.pane.get("socket_path") for window in self._recorded().values()]
        registered = [agent.socket_path for agent in self.services.agents.all().values()]
        paths = (self._panes.socket_path, *recorded, *registered)
        return list(dict.fromkeys(path for path in paths if path and isinstance(path, str)))

    def _on(self, socket_path: str) -> Panes:
        return Panes(socket_path, self._project)
