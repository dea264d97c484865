"""The commands for several agents in one repository: `edits`, `reservations`, `reserve`, `release`, `workspace`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from multi_agent_mcp.cli.context import Id, SessionContext, excerpt, session_command
from multi_agent_mcp.cli.rendering import column_table, is_terminal, local_words
from multi_agent_mcp.domain.text import display_id

if TYPE_CHECKING:
    from multi_agent_mcp.domain.reservation import FileEdit, Reservation


WORKSPACE_COLUMNS: dict[str, Callable[[dict[str, Any]], object]] = {
    "agent": lambda row: display_id(row["agent_id"]),
    "branch": lambda row: row["branch"],
    "ahead": lambda row: row["ahead"],
    "behind": lambda row: row["behind"],
    "changes": lambda row: len(row["dirty"]) or "-",
    "delivered": lambda row: (
        ", ".join(f"{one['task_id']}{'✓' if one['merged'] else ''}" for one in row["delivered"]) or "-"
    ),
    "path": lambda row: row["path"],
}


@click.command()
@click.argument("path", required=False, help="A file or directory, relative to the working tree.")
@session_command()
def edits(context: SessionContext, path: str | None) -> None:
    """List who has edited which files in the last hours, the newest first; `!` marks files that several agents edit."""
    from multi_agent_mcp.services.repository.reservations import edit_answer

    service = context.services.edits
    found = service.recent(path)
    shared = service.shared(found)
    marked: dict[str, Callable[[FileEdit], object]] = {
        "at": lambda edit: local_words(edit.at, context.services.clock(), context.texts),
        "agent": lambda edit: display_id(edit.agent_id),
        "task": lambda edit: edit.task_id or "-",
        "path": lambda edit: f"{'! ' if (edit.path, edit.repository) in shared else ''}{edit.path}",
    }
    overlaps = [{"path": file, "agents": agents} for (file, _), agents in shared.items()]
    legend = [context.texts("edits.shared")] if shared and is_terminal() else []
    lines = [*column_table(context.texts, found, marked), *legend] if found else [context.texts("edits.none")]
    context.answer({"edits": list(map(edit_answer, found)), "overlaps": overlaps}, lines)


@click.command()
@click.option("--agent", "agent_id", metavar="AGENT", help="Only this agent's.")
@session_command()
def reservations(context: SessionContext, agent_id: str | None) -> None:
    """List which files are reserved, by whom and until when."""
    from multi_agent_mcp.services.repository.reservations import reservation_answer

    context.services.reservations.settle()
    chosen = context.services.agents.filtered(agent_id)
    found = [one for one in context.services.reservations.open() if chosen in (None, one.agent_id)]
    lines = column_table(context.texts, found, _columns(context)) if found else [context.texts("reserve.none")]
    context.answer({"reservations": list(map(reservation_answer, found))}, lines)


@click.command()
@click.argument("patterns", metavar="PATTERN...", nargs=-1, required=True, help="As in .gitignore; quote wildcards.")
@click.option("--reason", help="What for; shown to agents that want the same files.")
@click.option("--minutes", type=float, help="For how long (default: 60).", show_default=False)
@session_command(acting=True)
def reserve(context: SessionContext, patterns: tuple[str, ...], reason: str | None, minutes: float | None) -> None:
    """Reserve files of the repository, so that agents ask before they edit them."""
    from multi_agent_mcp.services.repository.reservations import reservation_answer, shown_patterns

    made, conflicts = context.services.reservations.reserve(context.me, patterns, reason=reason, minutes=minutes)
    texts, answer = context.texts, reservation_answer(made)
    lines = [made.id, texts("reserve.until", at=_until(made, context))]
    named = ({"agent_id": one.agent_id, "patterns": shown_patterns(one.patterns)} for one in conflicts)
    lines += [texts("reserve.conflict", **values) for values in named]
    context.answer({**answer, "conflicts": list(map(reservation_answer, conflicts))}, lines)


@click.command()
@click.argument("reservation_id", metavar="ID", type=Id("rsv"))
@session_command(acting=True)
def release(context: SessionContext, reservation_id: str) -> None:
    """End a reservation; its holder is told."""
    released = [one.id for one in context.services.reservations.release(context.me, reservation_id)]
    context.answer({"released": released}, released or [context.texts("reserve.over")])


@click.group()
def workspace() -> None:
    """Worktrees of agents that work on branches of their own: add, list, merge, remove."""


@workspace.command("list")
@session_command()
def list_workspaces(context: SessionContext) -> None:
    """List the worktrees: how far each is from the project's branch, and what its tasks delivered."""
    rows = context.services.worktrees.rows()
    lines = column_table(context.texts, rows, WORKSPACE_COLUMNS) if rows else [context.texts("workspace.none")]
    context.answer({"workspaces": rows}, lines)


@workspace.command("add")
@click.argument("agent_id", metavar="AGENT")
@session_command()
def add_workspace(context: SessionContext, agent_id: str) -> None:
    """Make an agent's worktree, and run `workspace_setup` in it; from then on `up` starts the agent there."""
    services = context.services
    agent = services.agents.here(agent_id)
    made = services.worktrees.ensure(agent)
    services.agents.change(agent.id, workspace="worktree")
    context.answer(asdict(made), [made.path, context.texts("workspace.made", branch=made.branch)])


@workspace.command("merge")
@click.argument("task_id", metavar="TASK", type=Id("tsk"))
@session_command(acting=True)
def merge_workspace(context: SessionContext, task_id: str) -> None:
    """Merge what a task delivered into the branch that the project has checked out; conflicts go to its author.

    Exit code 1 when there were conflicts; nothing has moved then.
    """
    services, texts = context.services, context.texts
    merged = services.merging.merge(context.me, services.task_changes.get(task_id))
    delivery = merged.delivery
    answer = {
        "task_id": delivery.task_id,
        "agent_id": delivery.agent_id,
        "merged": merged.commit is not None,
        "commit": merged.commit,
        "delivered": delivery.commit,
        "conflicts": list(merged.conflicts),
        "message_id": merged.message_id,
    }
    if merged.commit is not None:
        key = "workspace.was_merged" if merged.was_there else "workspace.merged"
        context.answer(answer, [texts(key, delivered=delivery.commit[:10], commit=merged.commit[:10])])
        return
    context.answer(answer, [texts("workspace.conflicts", agent_id=delivery.agent_id), *merged.conflicts])
    raise click.exceptions.Exit(1)


@workspace.command("remove")
@click.argument("agent_id", metavar="AGENT")
@session_command()
def remove_workspace(context: SessionContext, agent_id: str) -> None:
    """Remove an agent's worktree and its branch. One with changes or commits that are not merged is kept.

    Exit code 1 when it is kept.
    """
    state = context.services.worktrees.remove(agent_id)
    answer = {"agent_id": agent_id, "path": state.worktree.path, "removed": state.keeps is None, "kept": state.keeps}
    facts = {"path": state.worktree.path, "files": len(state.dirty), "commits": state.ahead}
    context.answer(answer, [context.texts(f"workspace.{state.keeps or 'removed'}", **facts)])
    if state.keeps is not None:
        raise click.exceptions.Exit(1)


def _columns(context: SessionContext) -> dict[str, Callable[[Reservation], object]]:
    return {
        "reservation": attrgetter("id"),
        "agent": lambda one: display_id(one.agent_id),
        "until": lambda one: _until(one, context),
        "task": lambda one: one.task_id or "-",
        "patterns": lambda one: ", ".join(one.patterns),
        "reason": lambda one: excerpt(one.reason or "-"),
    }


def _until(reservation: Reservation, context: SessionContext) -> str:
    until = reservation.expires_at
    return "-" if until is None else local_words(until, context.services.clock(), context.texts)
