"""Processes and what they leave: dead sessions, held locks, windows that die at once, waits, file events."""

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


def sessions(patient: CheckContext) -> Iterator[Finding]:
    """Agent sessions whose process died: what they were handed and did not confirm is unread again once repaired."""
    for session in patient.workspace.sessions.all():
        if session.ended_at is None and not is_running(session):
            held = f", {len(session.unconfirmed)} messages unconfirmed" if session.unconfirmed else ""
            repair = partial(patient.sessions.recover, session.agent_id)
            finding = f"{session.id} died{held}"
            yield Finding(
                "sessions", NOTE, session.agent_id, finding, "end it; the agent's next server does so, too", repair
            )
    for agent_id in patient.workspace.executions.partitions():
        for execution in patient.sessions.executions.orphans(agent_id):
            finding = f"{execution.id} is running, and its session {execution.session_id} is lost"
            repair = partial(patient.sessions.recover, agent_id)
            yield Finding("sessions", NOTE, agent_id, finding, "end it; the agent's next server does so, too", repair)


def locks(patient: CheckContext) -> Iterator[Finding]:
    """Locks that are held for a moment normally, and were not let go. The kernel takes them back from dead processes;
    only a file system without flock(2) can leave an orphan, and says so by refusing locks (`lock_timeout`)."""
    locks = patient.workspace.locks
    held = [name for name in locks.all_held() if not name.startswith(LIFELONG)]
    if held:
        time.sleep(HELD_SECONDS)
    for name in filter(locks.is_held, held):
        finding = f"held for {HELD_SECONDS:.0f} s and longer"
        yield Finding("locks", NOTE, name, finding, "look again; a process that hangs has it: stop that one")


def windows(patient: CheckContext) -> Iterator[Finding]:
    """What the supervisor opened and what died at once."""
    for post, window in patient.missing_sessions.windows().items():
        if window.failures:
            finding = f"the command of its {post.purpose} session died at once, {window.failures} times in a row"
            yield Finding("supervisor", PROBLEM, post.agent_id, finding, "mend its command in team.yaml, then init")


def waits(patient: CheckContext) -> Iterator[Finding]:
    """Owners that wait for an answer; one that nobody is left to give is released by a repair."""
    agents = patient.agents.all()
    for agent in agents.values():
        wait = patient.owner_waits.of(agent.id) if agent.role == "owner" else None
        if wait is None:
            continue
        since = format_time(wait.since)
        if wait.admin_id in agents:
            finding = f"waits for {wait.admin_id} since {since}"
            yield Finding("waiting", NOTE, agent.id, finding, "unlock_owner_wait in need")
        else:
            finding = f"waits since {since} for {wait.admin_id}, who takes part no more"
            repair = partial(patient.owner_waits.release, agent.id)
            yield Finding("waiting", PROBLEM, agent.id, finding, "release the wait-lock", repair)


def events(patient: CheckContext) -> Iterator[Finding]:
    """Whether file events are to be had; without them every server looks once a second."""
    with Watch([patient.workspace.path], lambda _: None) as watch:
        if watch.degraded is not None:
            repair = "raise fs.inotify.max_user_instances and fs.inotify.max_user_watches (sysctl)"
            yield Finding("events", NOTE, "inotify", watch.degraded, repair)
