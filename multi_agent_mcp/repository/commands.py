"""The commands about files in one repository: `edits`, `reservations`, `reserve`, `release`, `workspace`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from multi_agent_mcp.cli.context import Id, SessionContext, excerpt, session_command
from multi_agent_mcp.cli.rendering import column_table, is_terminal, local_words
from multi_agent_mcp.domain.text import display_id
from multi_agent_mcp.errors import InvalidArguments, Reason
from multi_agent_mcp.repository.edits import edit_answer
from multi_agent_mcp.repository.reservations import reservation_answer, shown_patterns
from multi_agent_mcp.repository.why import followed, followed_lines
from multi_agent_mcp.system.process import directory_of

if TYPE_CHECKING:
    from multi_agent_mcp.repository.reservation import FileEdit, Reservation

EDITS_SHOWN = 50
"""How many edits a terminal gets at most, unless `--all` is given."""
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
@click.option("--all", "everything", is_flag=True, help=f"All of them; a terminal gets {EDITS_SHOWN} otherwise.")
@session_command()
def edits(context: SessionContext, path: str | None, everything: bool) -> None:
    """List who has edited which files in the last hours, the newest first; `!` marks files that several agents edit.

    Example: `multi-agent-mcp edits src/login.py`
    """
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
    shown = found if everything or not is_terminal() else found[:EDITS_SHOWN]
    legend += [context.texts("task.more", count=len(found) - len(shown))] if len(shown) < len(found) else []
    lines = [*column_table(context.texts, shown, marked), *legend] if found else [context.texts("edits.none")]
    context.answer({"edits": list(map(edit_answer, found)), "overlaps": overlaps}, lines)


@click.command()
@click.option("--agent", "agent_id", metavar="AGENT", help="Only this agent's.")
@session_command()
def reservations(context: SessionContext, agent_id: str | None) -> None:
    """List which files are reserved, by whom and until when.

    Example: `multi-agent-mcp reservations`
    """
    context.services.reservations.end_over()
    chosen = context.services.agents.filtered(agent_id)
    found = [one for one in context.services.reservations.open() if chosen in (None, one.agent_id)]
    lines = (
        column_table(context.texts, found, _reservation_columns(context)) if found else [context.texts("reserve.none")]
    )
    context.answer({"reservations": list(map(reservation_answer, found))}, lines)


@click.command()
@click.argument("patterns", metavar="PATTERN...", nargs=-1, required=True, help="As in .gitignore; quote wildcards.")
@click.option("--reason", help="What for; shown to agents that want the same files.")
@click.option("--minutes", type=float, help="For how long (default: 60).", show_default=False)
@session_command(acting=True)
def reserve(context: SessionContext, patterns: tuple[str, ...], reason: str | None, minutes: float | None) -> None:
    """Reserve files of the repository, so that agents ask before they edit them.

    Example: `multi-agent-mcp reserve 'src/db/**' --minutes 30`
    """
    made, conflicts = context.services.reservations.reserve(context.me, patterns, reason=reason, minutes=minutes)
    texts, answer = context.texts, reservation_answer(made)
    lines = [made.id, texts("reserve.until", at=_until(made, context))]
    named = ({"agent_id": one.agent_id, "patterns": shown_patterns(one.patterns)} for one in conflicts)
    lines += [texts("reserve.conflict", **values) for values in named]
    context.answer({**answer, "conflicts": list(map(reservation_answer, conflicts))}, lines)


@click.command()
@click.argument("reservation_id", metavar="[ID]", required=False, type=Id("rsv"))
@session_command(acting=True)
def release(context: SessionContext, reservation_id: str | None) -> None:
    """End a reservation, which may be omitted if there is only one; its holder is notified.

    Example: `multi-agent-mcp release`
    """
    if reservation_id is None:
        context.services.reservations.end_over()
        found = context.services.reservations.open()
        if len(found) != 1:
            raise InvalidArguments("which_reservation", ids=", ".join(one.id for one in found) or Reason("nothing"))
        reservation_id = found[0].id
    released = [one.id for one in context.services.reservations.release(context.me, reservation_id)]
    context.answer({"released": released}, released or [context.texts("reserve.over")])


@click.command()
@click.argument("place", metavar="FILE[:LINE]", help="A file of the repository, and a line in it.")
@session_command()
def why(context: SessionContext, place: str) -> None:
    """Say for which task a line of a file was written, or all of its lines: by whom, who asked for it, who reviewed it
    with which receipts of its checks, and what was asked meanwhile.

    Example: `multi-agent-mcp why a.txt:1`
    """
    answer = followed(context.services, place)
    context.answer(answer, list(followed_lines(answer, context.texts)) or [context.texts("blame.nothing")])


@click.group()
def workspace() -> None:
    """Worktrees of agents that work on branches of their own: add, list, merge, remove."""


@workspace.command("list")
@session_command()
def list_workspaces(context: SessionContext) -> None:
    """List the worktrees: how far each is from the project's branch, and what its tasks delivered.

    Example: `multi-agent-mcp workspace list`
    """
    rows = context.services.worktrees.rows()
    lines = column_table(context.texts, rows, WORKSPACE_COLUMNS) if rows else [context.texts("workspace.none")]
    context.answer({"workspaces": rows}, lines)


@workspace.command("add")
@click.argument("agent_id", metavar="AGENT")
@session_command()
def add_workspace(context: SessionContext, agent_id: str) -> None:
    """Make an agent's worktree, and run `workspace_setup` in it; from its next start the agent works there.

    Example: `multi-agent-mcp workspace add worker-a`
    """
    services = context.services
    agent = services.agents.here(agent_id)
    runs = services.sessions.alive(agent.id) or (agent.pane_pid and directory_of(agent.pane_pid) is not None)
    is_elsewhere = bool(runs) and services.worktrees.of(agent.id) is None
    made = services.worktrees.ensure(agent)
    services.agents.change(agent.id, workspace="worktree")
    key = "workspace.made_later" if is_elsewhere else "workspace.made"
    lines = [made.path, context.texts(key, branch=made.branch, agent_id=agent.id)]
    context.answer({**asdict(made), "restart": is_elsewhere}, lines)


@workspace.command("merge")
@click.argument("task_id", metavar="TASK", type=Id("tsk"))
@session_command(acting=True)
def merge_workspace(context: SessionContext, task_id: str) -> None:
    """Merge what a task delivered into the branch that the project has checked out; conflicts go to its author.

    Exit code 1 when there were conflicts; nothing has moved then.

    Example: `multi-agent-mcp workspace merge tsk_1a2b`
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
        "hooks_not_run": list(merged.hooks),
    }
    if merged.commit is not None:
        key = "workspace.was_merged" if merged.was_there else "workspace.merged"
        lines = [texts(key, delivered=delivery.commit[:10], commit=merged.commit[:10])]
        lines += [texts("workspace.hooks", hooks=", ".join(merged.hooks))] if merged.hooks else []
        context.answer(answer, lines)
        return
    context.answer(answer, [texts("workspace.conflicts", agent_id=delivery.agent_id), *merged.conflicts])
    raise click.exceptions.Exit(1)


@workspace.command("remove")
@click.argument("agent_id", metavar="AGENT")
@click.option("--discard", is_flag=True, help="Files that git ignores are no reason to keep it.")
@session_command()
def remove_workspace(context: SessionContext, agent_id: str, *, discard: bool) -> None:
    """Remove an agent's worktree and its branch. One in which something would be lost is kept: changes, commits that
    are not merged, a rebase that is not finished, ignored files.

    Exit code 1 when it is kept; what is in it is named then, with the commands that help.

    Example: `multi-agent-mcp workspace remove worker-a`
    """
    worktrees = context.services.worktrees
    holdings = worktrees.remove(agent_id, discards=discard)
    path, reasons = holdings.worktree.path, holdings.reasons(discards=discard)
    answer = {
        "agent_id": agent_id,
        "path": path,
        "removed": not reasons,
        "kept": reasons[0] if reasons else None,
        "reasons": list(reasons),
        "ignored": list(holdings.ignored),
        "unmerged": list(holdings.unmerged.names),
    }
    lines = worktrees.why_kept(holdings, discards=discard)
    context.answer(answer, lines or [context.texts("workspace.removed", path=path)])
    if reasons:
        raise click.exceptions.Exit(1)


def _reservation_columns(context: SessionContext) -> dict[str, Callable[[Reservation], object]]:
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
