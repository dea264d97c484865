"""Processes: dead sessions, locks held for long, windows whose command fails, waits, file events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.services.doctor.finding import NOTE, PROBLEM, CheckContext, Finding
from multi_agent_mcp.services.sessions.agent_sessions import is_running
from multi_agent_mcp.store.files.locks import LIFELONG
from multi_agent_mcp.system.file_events import Watch

HELD_SECONDS = 1.0


def sessions(context: CheckContext) -> Iterator[Finding]:
    """Agent sessions whose process died. The repair makes unread again what they did not confirm."""
    for session in context.workspace.sessions.all():
        if session.ended_at is None and not is_running(session):
            held = f", {len(session.unconfirmed)} messages unconfirmed" if session.unconfirmed else ""
            yield _lost_session(context, session.agent_id, f"{session.id} died{held}")
    for agent_id in context.workspace.executions.partitions():
        for execution in context.sessions.executions.orphans(agent_id):
            finding = f"{execution.id} is running, and its session {execution.session_id} is lost"
            yield _lost_session(context, agent_id, finding)


def _lost_session(context: CheckContext, agent_id: str, finding: str) -> Finding:
    repair = partial(context.sessions.recover, agent_id)
    return Finding("sessions", NOTE, agent_id, finding, "end it; the agent's next server does so, too", repair)


def locks(context: CheckContext) -> Iterator[Finding]:
    """Locks that are normally held for a moment, and are still held. A dead process is no reason: the kernel releases
    its locks."""
    locks = context.workspace.locks
    held = [name for name in locks.all_held() if not name.startswith(LIFELONG)]
    if held:
        time.sleep(HELD_SECONDS)
    for name in filter(locks.is_held, held):
        finding = f"held for {HELD_SECONDS:.0f} s and longer"
        yield Finding("locks", NOTE, name, finding, "look again; a process that hangs has it: stop that one")


def windows(context: CheckContext) -> Iterator[Finding]:
    """Windows of the supervisor whose command ended at once."""
    for slot, window in context.missing_sessions.windows().items():
        if window.failures:
            finding = f"the command of its {slot.purpose} session died at once, {window.failures} times in a row"
            yield Finding("supervisor", PROBLEM, slot.agent_id, finding, "mend its command in team.yaml, then init")


def waits(context: CheckContext) -> Iterator[Finding]:
    """Owners that wait for an answer. The repair releases a wait for an agent that was removed."""
    agents = context.agents.all()
    for agent in agents.values():
        wait = context.owner_waits.of(agent.id) if agent.role == "owner" else None
        if wait is None:
            continue
        since = format_time(wait.since)
        if wait.admin_id in agents:
            finding = f"waits for {wait.admin_id} since {since}"
            yield Finding("waiting", NOTE, agent.id, finding, "unlock_owner_wait in need")
        else:
            finding = f"waits since {since} for {wait.admin_id}, who takes part no more"
            repair = partial(context.owner_waits.release, agent.id)
            yield Finding("waiting", PROBLEM, agent.id, finding, "release the wait-lock", repair)


def events(context: CheckContext) -> Iterator[Finding]:
    """Whether file events work; without them every server polls once a second."""
    with Watch([context.workspace.path], lambda _: None) as watch:
        if watch.degraded is not None:
            repair = "raise fs.inotify.max_user_instances and fs.inotify.max_user_watches (sysctl)"
            yield Finding("events", NOTE, "inotify", watch.degraded, repair)
