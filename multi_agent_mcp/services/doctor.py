"""`doctor`: what is wrong with a session directory, one line per finding, with what mends it."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from multi_agent_mcp.domain.agent import Agent, superiors
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.services.agents import Agents
from multi_agent_mcp.services.sessions import Sessions
from multi_agent_mcp.services.staffing import Staffing
from multi_agent_mcp.services.waiting import Waiting
from multi_agent_mcp.store.process import is_alive
from multi_agent_mcp.store.workspace import Workspace


@dataclass(frozen=True)
class Finding:
    """`level`: `problem` makes doctor fail; `note` is good to know."""

    check: str
    level: str
    subject: str
    finding: str
    repair: str = ""

    def as_answer(self) -> dict[str, Any]:
        return vars(self)


class Doctor:
    """Looks, and changes nothing. `probe` says why an agent's pane cannot be rung, or None."""

    def __init__(
        self,
        workspace: Workspace,
        agents: Agents,
        sessions: Sessions,
        waiting: Waiting,
        staffing: Staffing,
        probe: Callable[[Agent], str | None],
    ) -> None:
        self.workspace = workspace
        self.agents = agents
        self.sessions = sessions
        self.waiting = waiting
        self.staffing = staffing
        self.probe = probe

    def examine(self) -> list[Finding]:
        """Everything found, problems first. A check that itself breaks is a finding."""
        checks = (
            self._registry,
            self._keys,
            self._hierarchy,
            self._panes,
            self._files,
            self._sessions,
            self._windows,
            self._waits,
        )
        findings: list[Finding] = []
        for check in checks:
            try:
                findings += check()
            except Refusal as refusal:
                findings.append(Finding(check.__name__.strip("_"), "problem", "-", str(refusal)))
        return sorted(findings, key=lambda finding: finding.level != "problem")

    def _registry(self) -> Iterator[Finding]:
        agents = self.agents.all()  # first, because it may restore a registry that was damaged a moment ago
        for path in sorted(self.workspace.path.glob("agents.json.damaged*")):
            yield Finding(
                "registry", "note", path.name, "agents.json was damaged and restored", f"delete {path.name} when seen"
            )
        if not any(agent.role == "owner" for agent in agents.values()):
            yield Finding("registry", "problem", "agents.json", "no owner", "multi-agent-mcp agent add ID --role owner")

    def _keys(self) -> Iterator[Finding]:
        for agent_id in self.agents.all():
            path = self.workspace.key_path(agent_id)
            if not path.is_file():
                yield Finding("keys", "problem", agent_id, "the key file is missing", f"restore secrets/{path.name}")
            elif stat.S_IMODE(path.stat().st_mode) & 0o077:
                yield Finding("keys", "problem", agent_id, "others may read the key", f"chmod 600 secrets/{path.name}")

    def _hierarchy(self) -> Iterator[Finding]:
        agents = self.agents.all()
        for agent_id in agents:
            try:
                list(superiors(agent_id, agents))
            except Refusal as refusal:
                yield Finding("hierarchy", "problem", agent_id, str(refusal), "mend parent_id in agents.json")

    def _panes(self) -> Iterator[Finding]:
        for agent in self.agents.all().values():
            if agent.pane_id is None:
                if agent.role != "owner":
                    yield Finding(
                        "panes",
                        "note",
                        agent.id,
                        "no pane is registered",
                        f"agent add {agent.id} --pane %N, or serve it",
                    )
            elif reason := self.probe(agent):
                yield Finding("panes", "note", agent.id, f"pane {agent.pane_id}: {reason}", "start the agent again")

    def _files(self) -> Iterator[Finding]:
        for kind in ("ipc", "notifications", "tasks", "sessions", "owner_wait"):
            for reason in sorted((self.workspace.path / kind).rglob("quarantine/*.reason.txt")):
                file = reason.name.removesuffix(".reason.txt")
                yield Finding(
                    "files",
                    "problem",
                    str((reason.parent / file).relative_to(self.workspace.path)),
                    reason.read_text(encoding="utf-8", errors="replace").strip(),
                    "mend it and move it back one directory",
                )
        known = set(self.agents.registry.all())
        mailboxes = self.workspace.path / "ipc"
        for mailbox in sorted(mailboxes.iterdir()) if mailboxes.is_dir() else []:
            if mailbox.is_dir() and mailbox.name not in known:
                yield Finding(
                    "files", "problem", f"ipc/{mailbox.name}", "a mailbox of nobody", "agent add, or remove it"
                )

    def _sessions(self) -> Iterator[Finding]:
        for session in self.workspace.sessions.all():
            if session.ended_at is None and not is_alive(session.pid, session.pid_started_at):
                held = f", {len(session.unconfirmed)} messages unconfirmed" if session.unconfirmed else ""
                yield Finding(
                    "sessions",
                    "note",
                    session.agent_id,
                    f"{session.id} died{held}",
                    "the agent's next server takes over",
                )

    def _windows(self) -> Iterator[Finding]:
        for post, window in self.staffing.windows().items():
            if window.failures:
                finding = f"the command of its {post.purpose} session died at once, {window.failures} times in a row"
                yield Finding(
                    "supervisor", "problem", post.agent_id, finding, "mend its command in team.yaml, then init"
                )

    def _waits(self) -> Iterator[Finding]:
        for agent in self.agents.all().values():
            wait = self.waiting.of(agent.id) if agent.role == "owner" else None
            if wait is not None:
                since = format_time(wait.since)
                yield Finding(
                    "waiting", "note", agent.id, f"waits for {wait.admin_id} since {since}", "unlock_owner_wait in need"
                )
