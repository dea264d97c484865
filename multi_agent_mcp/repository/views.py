"""What people see of edits, reservations and worktrees beside their own commands: in `watch`, in the console, among
what waits for them, in `doctor`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.cli.rendering import ago
from multi_agent_mcp.cli.watch import Part, Row
from multi_agent_mcp.domain.text import display_id, one_line
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.repository.edits import edit_answer
from multi_agent_mcp.repository.reservations import reservation_answer, shown_patterns
from multi_agent_mcp.services.attention import Item
from multi_agent_mcp.services.doctor.tree import NOTE, PROBLEM

if TYPE_CHECKING:
    from collections.abc import Collection

    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.repository.edits import Edits
    from multi_agent_mcp.repository.reservation import FileEdit
    from multi_agent_mcp.repository.reservations import Reservations
    from multi_agent_mcp.repository.worktrees import Worktrees
    from multi_agent_mcp.services.attention import Attention
    from multi_agent_mcp.services.doctor.tree import CheckContext, Finding
    from multi_agent_mcp.texts import Texts
    from multi_agent_mcp.wiring import Services

WATCHED = 8
SHOWN_OF_AGENT = 30


def watched(services: Services, now: datetime) -> Part:
    """The last edits in `watch`."""
    edits: Edits = services.edits
    found = edits.recent()
    shared = edits.shared(found)
    rows = [edit_row(made, shared, now, services.people) for made in found[:WATCHED]]
    return Part("edits", ("ago", "agent", "path"), rows, list(map(edit_answer, found)))


def watched_reservations(services: Services, now: datetime) -> Part:
    """The reservations in `watch`."""
    reservations: Reservations = services.reservations
    found = reservations.open()
    rows: list[Row] = [
        (ago(one.created_at, now, services.people), display_id(one.agent_id), one_line(shown_patterns(one.patterns)))
        for one in found
    ]
    return Part(
        "reservations", ("ago", "agent", "path"), rows, list(map(reservation_answer, found)), [one.id for one in found]
    )


def edit_row(
    made: FileEdit, shared: Collection[tuple[str, str | None]], now: datetime, texts: Texts
) -> tuple[str, ...]:
    """A file that an agent edited; `!` before one that others edit, too."""
    mark = "! " if (made.path, made.repository) in shared else ""
    return ago(made.at, now, texts), display_id(made.agent_id), one_line(mark + made.path)


def edits_and_reservations(services: Services, agent: Agent) -> dict[str, Any]:
    """The files that an agent has edited in the last hours, newest first, each with the others who edit it, and its
    reservations."""
    edits: Edits = services.edits
    reservations: Reservations = services.reservations
    found = edits.recent()
    shared = edits.shared(found)
    mine = [edit for edit in found if edit.agent_id == agent.id][:SHOWN_OF_AGENT]
    others = (
        (edit, [name for name in shared.get((edit.path, edit.repository), ()) if name != agent.id]) for edit in mine
    )
    reserved = [one for one in reservations.open() if one.agent_id == agent.id]
    return {
        "edits": [edit_answer(edit) | {"others": names} for edit, names in others],
        "reservations": list(map(reservation_answer, reserved)),
    }


def worktree(services: Services, agent: Agent) -> dict[str, Any]:
    """An agent's worktree, if it has one."""
    known: Worktrees = services.worktrees
    return {"workspace": next((row for row in known.rows() if row["agent_id"] == agent.id), None)}


def kept(attention: Attention, _person: Agent) -> Iterator[Item]:
    """Yields an item for each worktree that was to be removed and holds work."""
    known: Worktrees = attention.contributions.service("worktrees")
    for holdings in known.kept():
        agent_id = holdings.worktree.agent_id
        text = known.why_kept(holdings)[0]
        yield Item(kind="kept", agent_id=agent_id, text=text, command=f"multi-agent-mcp workspace remove {agent_id}")


def uncommitted(attention: Attention, _person: Agent) -> Iterator[Item]:
    """Yields an item for each task that was done without files that are still not committed."""
    known: Worktrees = attention.contributions.service("worktrees")
    people = attention.session.people
    for task, delivery, files in known.left_behind():
        words = people("attention.commit", task_id=task.id)
        named = {"title": task.title, "count": delivery.uncommitted, "files": files}
        yield Item(
            kind="uncommitted",
            agent_id=delivery.agent_id,
            id=task.id,
            since=task.status_since,
            text=people("attention.uncommitted", **named),
            command=f"multi-agent-mcp task add {shlex.quote(words)} --assignee {delivery.agent_id}",
        )


def check_worktrees(context: CheckContext) -> Iterator[Finding]:
    """Worktrees whose directory is gone or that git cannot read, and those of removed agents without work in them; what
    keeps git from finishing an operation."""
    known: Worktrees = context.contributions.service("worktrees")
    if (refused := known.not_trusted()) is not None:
        yield context.found("worktrees", PROBLEM, str(refused.values["path"]), "not_trusted", **refused.values)
        return
    agents = context.agents.all()
    for worktree in known.all():
        subject, facts = worktree.agent_id, {"path": worktree.path, "branch": worktree.branch}
        try:
            state = known.state(worktree)
        except Refusal as refusal:
            reason = context.texts.sentence(refusal)
            yield context.found("worktrees", PROBLEM, subject, "worktree_unknown", **facts, reason=reason)
            continue
        if subject not in agents and not known.holdings(worktree).reasons():
            fix = partial(known.remove, subject)
            yield context.found("worktrees", NOTE, subject, "worktree_left", fix, **facts)
        elif not state.is_there:
            yield context.found("worktrees", NOTE, subject, "worktree_gone", **facts, agent_id=subject)
    for subject, path in known.left_checks():
        removes = partial(known.remove_check, subject, path)
        yield context.found("worktrees", NOTE, subject, "check_left", removes, path=path)
    for lock in known.git_locks():
        yield context.found("worktrees", PROBLEM, lock.name, "git_locked", path=lock, place=shlex.quote(str(lock)))
