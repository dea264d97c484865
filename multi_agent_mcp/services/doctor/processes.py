"""Checks of processes: dead sessions, locks held for long, windows whose command fails, stuck agents, waits,
questions, events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from multi_agent_mcp.domain.question import parked_by
from multi_agent_mcp.domain.text import display_id
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.services.doctor.finding import NOTE, PROBLEM, CheckContext, Finding
from multi_agent_mcp.store.locks import LIFELONG
from multi_agent_mcp.system.file_events import Watch, instances_max

HELD_SECONDS = 1.0


def sessions(context: CheckContext) -> Iterator[Finding]:
    """Agent sessions whose process died, and their executions. The repair makes unconfirmed mail unread again."""
    for session in context.workspace.sessions.open():
        if context.sessions.is_here(session) and not context.sessions.is_running(session):
            facts = {"session_id": session.id, "count": len(session.unconfirmed)}
            yield _lost(context, session.agent_id, "died_holding" if session.unconfirmed else "died", **facts)
    for agent_id in context.workspace.executions.partitions():
        for execution in context.sessions.executions.orphans(agent_id):
            facts = {"execution_id": execution.id, "session_id": execution.session_id}
            yield _lost(context, agent_id, "orphan", **facts)


def _lost(context: CheckContext, agent_id: str, key: str, **facts: Any) -> Finding:
    return context.found("sessions", NOTE, agent_id, key, partial(context.sessions.recover, agent_id), **facts)


def locks(context: CheckContext) -> Iterator[Finding]:
    """Short-lived locks that are still held after `HELD_SECONDS`. Their process lives: the kernel releases the locks of
    dead ones."""
    locks = context.workspace.locks
    held = [name for name in locks.all_held() if not name.startswith(LIFELONG)]
    if held:
        time.sleep(HELD_SECONDS)
    for name in filter(locks.is_held, held):
        yield context.found("locks", NOTE, name, "held", seconds=f"{HELD_SECONDS:.0f}")


def windows(context: CheckContext) -> Iterator[Finding]:
    """A supervisor that has ended although work waits for it, its windows whose command died at once, and agents for
    whom it opens none."""
    if context.supervision.has_died and (agents := context.missing_sessions.waiting()):
        yield context.found("supervisor", PROBLEM, "supervise", "supervisor_ended", agents=", ".join(agents))
    for slot, window in context.missing_sessions.windows().items():
        if window.is_down and slot.purpose == "task":
            yield context.found("supervisor", NOTE, slot.agent_id, "put_down", agent_id=slot.agent_id)
    for slot, count in context.missing_sessions.dying().items():
        facts = {"purpose": slot.purpose, "count": count}
        yield context.found("supervisor", PROBLEM, slot.agent_id, "command_dies", **facts)


def stuck(context: CheckContext) -> Iterator[Finding]:
    """Stuck agents. The present content of a pane counts at once, because a doctor looks only once."""
    agents = context.stuck_agents
    looks = agents.panes.now(context.look_at)
    patience = replace(agents.patience, pane=timedelta(0))
    for agent_id, found in agents.find(looks, patience).items():
        host = found.facts.pane.host if found.facts.pane else "-"
        facts = {"what": agents.sentence(found, titled=True), "host": host, "agent_id": agent_id}
        # A team that is down may have tasks in progress without any running agent; that is no problem.
        level = PROBLEM if found.facts.alive or found.facts.pane else NOTE
        kind = found.cause if found.kind == "gone" else found.kind
        yield context.found("stuck", level, agent_id, f"stuck_{kind}", **facts)


def waits(context: CheckContext) -> Iterator[Finding]:
    """Owners that wait for an answer. The repair releases waits for agents that were removed."""
    agents = context.agents.all()
    for agent in agents.values():
        wait = context.owner_waits.of(agent.id) if agent.role == "owner" else None
        if wait is None:
            continue
        facts = {"admin_id": wait.admin_id, "since": format_time(wait.since)}
        if wait.admin_id in agents:
            yield context.found("waiting", NOTE, agent.id, "waits", **facts)
        else:
            fix = partial(context.owner_waits.release, agent.id)
            yield context.found("waiting", PROBLEM, agent.id, "waits_for_nobody", fix, **facts)


def questions(context: CheckContext) -> Iterator[Finding]:
    """Open questions of or to somebody who was never in the team, and tasks that wait for an answer although their
    question is settled or its file is lost. The repair hands such a task back."""
    workspace, agents = context.workspace, context.agents.registry.all()
    for question in workspace.questions.open():
        for agent_id in {question.asker_id, question.to_id} - agents.keys():
            yield context.found("questions", PROBLEM, question.id, "question_of_nobody", agent_id=display_id(agent_id))
    for task in workspace.tasks.open():
        question_id = parked_by(task)
        found = None if question_id is None else workspace.questions.find(question_id)
        if question_id is not None and (found is None or found.settled):
            fix = partial(context.question_effects.release, task, question_id)
            yield context.found("questions", PROBLEM, task.id, "parked_for_nothing", fix, question_id=question_id)


def events(context: CheckContext) -> Iterator[Finding]:
    """A lack of file events for all servers: without them a server polls once a second."""
    running = sum(context.sessions.is_running(session) for session in context.workspace.sessions.open())
    limit = instances_max()
    with Watch([context.workspace.path], lambda _: None) as watch:
        polls = watch.degraded is not None
    if polls or (limit is not None and running > limit):
        facts = {"servers": running, "limit": "-" if limit is None else limit, "wanted": 4 * max(running, limit or 128)}
        yield context.found("events", NOTE, "inotify", "polling", **facts)
