"""The commands about agents (`agent add|set|list|remove|move`, `brief`) and about their files in one repository:
`edits`, `reservations`, `reserve`, `release`, `workspace`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import click

from multi_agent_mcp.cli.context import Id, SessionContext, excerpt, print_error, session_command
from multi_agent_mcp.cli.rendering import column_table, is_terminal, local_time, local_words, words_of_code
from multi_agent_mcp.domain.agent import AGENT_TYPES, PURPOSES, ROLES, Agent, sharing_panes
from multi_agent_mcp.domain.entity import agent_id as parse_agent_id
from multi_agent_mcp.domain.text import display_id, one_line
from multi_agent_mcp.errors import InvalidArguments, Reason
from multi_agent_mcp.hosts import host_alone, with_configuration
from multi_agent_mcp.system.process import directory_of
from multi_agent_mcp.texts import Texts

if TYPE_CHECKING:
    from multi_agent_mcp.domain.reservation import FileEdit, Reservation

WHO = ("id", "role", "type", "name", "parent_id", "status")
WHERE = ("pane_id", "socket_path", "session_name", "window_index", "pane_index")
"""The fields of an agent in the JSON of `list`, before and after its current state."""

AGENT_ID = click.argument("agent_id", metavar="ID")
NAME = click.option("--name", help="A name for people.")
COMMAND = click.option(
    "--command",
    help="What `up` starts in the agent's window. The name of a host alone (codex) stands for all that it needs.",
)
HOST = click.option("--host", help="The program (claude, codex, …), or plain: one that reads lines.")
PANE = click.option("--pane", metavar="%N", help="The tmux pane its doorbell rings in.")
SOCKET = click.option("--socket", metavar="PATH", help="The pane's tmux socket (default: this terminal's).")


@click.group()
def agent() -> None:
    """Who takes part: add, set, list, remove, move."""


@agent.command()
@AGENT_ID
@click.option("--role", default="worker", type=click.Choice(ROLES), help="Its place in the team.")
@click.option("--type", default="ai", type=click.Choice(AGENT_TYPES), help="What it is.")
@click.option("--parent", metavar="ID", help="The agent's superior.")
@NAME
@COMMAND
@HOST
@PANE
@SOCKET
@session_command()
def add(
    context: SessionContext,
    agent_id: str,
    role: str,
    type: str,
    parent: str | None,
    name: str | None,
    command: str | None,
    host: str | None,
    pane: str | None,
    socket: str | None,
) -> None:
    """Register an agent: its record, its mailbox, its key.

    Example: `multi-agent-mcp agent add worker-c --role worker --parent admin`
    """
    place = _pane_fields(pane, socket)
    if parent is not None:
        context.services.agents.get(parent)
    agent = Agent(
        id=parse_agent_id(agent_id),
        role=role,
        type=type,
        parent_id=parent,
        name=name or "",
        command=command and with_configuration(command),
        host=host,
        **place,
    )
    added = context.services.agents.add(agent)
    key = str(context.services.agents.key_file(added.id))
    line = context.texts("agent.added", agent_id=added.id, role=added.role, key=key)
    context.answer({"agent_id": added.id, "key_file": key, **place}, [line])


@agent.command("set")
@AGENT_ID
@click.option("--here", is_flag=True, help="Its doorbell rings in the pane of this terminal.")
@PANE
@SOCKET
@HOST
@COMMAND
@NAME
@session_command()
def set_agent(
    context: SessionContext,
    agent_id: str,
    here: bool,
    pane: str | None,
    socket: str | None,
    host: str | None,
    command: str | None,
    name: str | None,
) -> None:
    """Change what is registered for an agent; an empty text takes a value away.

    Example: `multi-agent-mcp agent set worker-a --command 'codex {mcp_config}'`
    """
    texts = {"host": host, "command": command and with_configuration(command), "name": name}
    changed = {key: value for key, value in texts.items() if value is not None}
    if (here and pane) or (socket and not pane) or not (here or pane or changed):
        raise InvalidArguments("nothing_to_set")
    changed |= _pane_fields(_pane_here() if here else pane, socket)
    agents = context.services.agents
    started = host_alone(command) if command and host is None else None
    if started is not None and agents.get(agent_id).declared_host not in (None, started.name):
        changed["host"] = started.name  # else it would be started with the options of the other one
    agent = agents.change(agent_id, **changed)
    for ids in sharing_panes(agents.at_home().values()) if "pane_id" in changed else ():
        if agent.id in ids:
            print_error(context.texts("agent.shared_pane", names=", ".join(ids), pane=agent.pane_id))
    shown = {key: getattr(agent, key) for key in changed}
    context.answer(
        {"agent_id": agent.id, **shown},
        [f"{agent.id}: {key}: {'-' if value is None else one_line(str(value))}" for key, value in shown.items()],
    )


@agent.command("list")
@session_command()
def list_agents(context: SessionContext) -> None:
    """Show the agents, whether their servers run, their panes and their unread mail.

    Example: `multi-agent-mcp agent list`
    """
    records = [agent_facts(context, agent) for agent in context.services.agents.all().values()]
    texts = context.texts
    columns: dict[str, Callable[[dict[str, Any]], object]] = {
        "id": itemgetter("id"),
        "role": lambda record: words_of_code("role", record["role"], texts),
        "type": lambda record: words_of_code("type", record["type"], texts),
        "parent": lambda record: display_id(record["parent_id"]),
        **({} if context.services.machine is None else {"machine": lambda record: display_id(record["machine"])}),
        "alive": lambda record: _alive(record, texts),
        "unread": itemgetter("unread"),
        "pane": lambda record: record["pane_id"] or "-",
    }
    context.answer({"agents": records}, column_table(texts, records, columns))


@agent.command()
@AGENT_ID
@click.option("--hand-over", is_flag=True, help="Give its open tasks to its superior; it is refused while it has some.")
@session_command()
def remove(context: SessionContext, agent_id: str, *, hand_over: bool) -> None:
    """Take an agent out: nobody can write to it any more, and its window is closed. Its files stay; its superior gets
    the reviews and questions that waited for it.

    Example: `multi-agent-mcp agent remove worker-a --hand-over`
    """
    services, texts = context.services, context.texts
    agent = services.agents.require_removable(agent_id)
    handed = services.task_changes.hand_over(agent.id, services.agents.owner()) if hand_over else []
    lines = [texts("agent.handed_over", task_id=task.id, agent_id=task.assignee_id) for task in handed]
    removed = services.agents.remove(agent.id)
    services.derived_notices.hand_over()
    closed = _closed_windows(context, removed.id)
    lines += [texts("agent.removed", agent_id=removed.id)]
    lines += [texts("down.closed", names=", ".join(closed))] if closed else []
    answer = {"agent_id": removed.id, "handed_over": [task.id for task in handed], "closed": closed}
    context.answer(answer, lines)


def _closed_windows(context: SessionContext, agent_id: str) -> list[str]:
    """Closes the windows that were opened for a removed agent; returns their names."""
    windows = context.services.missing_sessions.windows()
    if not any(slot.agent_id == agent_id and window.pane for slot, window in windows.items()):
        return []
    from multi_agent_mcp.windows.up_down import close_agents
    from multi_agent_mcp.windows.window_registry import team_windows

    return close_agents(team_windows(context.services), [agent_id])


@agent.command()
@AGENT_ID
@click.option("--purpose", default="task", type=click.Choice(PURPOSES), help="Of which of its sessions.")
@session_command()
def brief(context: SessionContext, agent_id: str, purpose: str) -> None:
    """Print what an agent is told when its host has forgotten it: who it is, what it holds, its last hand-off.

    Example: `multi-agent-mcp agent brief worker-a`
    """
    services = context.services
    agent = services.agents.get(agent_id)
    holds = services.briefings.holds(agent.id, purpose)
    text, kept = services.briefings.text(holds), holds.hand_off
    answer = {
        "agent_id": agent.id,
        "purpose": purpose,
        "briefing": text,
        "task_id": holds.row.task.id if holds.row.task else None,
        "handoff_id": kept.hand_off.id if kept else None,
        "path": str(kept.path.absolute()) if kept else None,
    }
    context.answer(answer, text.splitlines())


def agent_facts(context: SessionContext, agent: Agent) -> dict[str, Any]:
    """An agent's record for JSON, with whether its server runs and its number of unread messages."""
    services = context.services
    now: dict[str, Any] = {"alive": services.sessions.alive(agent.id), "unread": services.unread_mail_count(agent.id)}
    home = {"machine": agent.machine} if services.machine is not None else {}
    if (limit := services.limits.now(agent.id)) is not None:
        now["limited_until"] = limit.until_said
    if services.pane_looks.is_offline(agent.id):
        now["offline"] = True
    return {name: getattr(agent, name) for name in WHO} | home | now | {name: getattr(agent, name) for name in WHERE}


def _alive(record: dict[str, Any], texts: Texts) -> str:
    if record.get("offline"):
        return texts("agent.offline")
    if "limited_until" in record:
        return texts("agent.limited", until=local_time(record["limited_until"], texts))
    return texts("answer.yes" if record["alive"] else "answer.no")


def _pane_here() -> str:
    from multi_agent_mcp.config import read_environment
    from multi_agent_mcp.doorbell.tmux.client import own_pane

    named = read_environment().pane
    if named is not None and own_pane() is None:
        raise InvalidArguments("pane_not_here", pane=named.pane_id)
    if named is None:
        raise InvalidArguments("no_pane_here")
    return named.pane_id


def _pane_fields(pane: str | None, socket: str | None) -> dict[str, Any]:
    """Returns the fields to register for `--pane`, with the pane's process, so that a later pane with the same number
    is told apart. Raises `InvalidArguments` and `TmuxTimeout`."""
    if pane is None:
        return {}
    from multi_agent_mcp.config import read_environment, tmux_socket
    from multi_agent_mcp.doorbell.tmux.client import pane_place

    here = read_environment().pane
    socket_path = socket or (here.socket_path if here else tmux_socket())
    place = pane_place(socket_path, pane)
    if place is None:
        raise InvalidArguments("no_such_pane", pane=pane, socket_path=socket_path)
    return place


@agent.command()
@AGENT_ID
@click.option("--to", "machine", metavar="MACHINE", required=True, help="Its new home; see `machines`.")
@session_command()
def move(context: SessionContext, agent_id: str, machine: str) -> None:
    """Give an agent another home: from then on its server, its pane and its key are on that machine.

    Example: `multi-agent-mcp agent move worker-a --to mac`
    """
    agents = context.services.agents
    if machine not in context.services.machines.states():
        raise InvalidArguments("no_such_machine", name=machine)
    if context.services.sessions.alive(agent_id):
        raise InvalidArguments("still_running", agent_id=agent_id)
    moved = agents.move(agent_id, machine)
    lines = [context.texts("agent.moved", agent_id=moved.id, machine=machine)]
    context.answer({"agent_id": moved.id, "machine": machine}, lines)


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
    """List who has edited which files in the last hours, the newest first; `!` marks files that several agents edit.

    Example: `multi-agent-mcp edits src/login.py`
    """
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
    """List which files are reserved, by whom and until when.

    Example: `multi-agent-mcp reservations`
    """
    from multi_agent_mcp.services.repository.reservations import reservation_answer

    context.services.reservations.settle()
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
    from multi_agent_mcp.services.repository.reservations import reservation_answer, shown_patterns

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
    """End a reservation, which may be omitted if there is only one; its holder is told.

    Example: `multi-agent-mcp release`
    """
    if reservation_id is None:
        context.services.reservations.settle()
        found = context.services.reservations.open()
        if len(found) != 1:
            raise InvalidArguments("which_reservation", ids=", ".join(one.id for one in found) or Reason("nothing"))
        reservation_id = found[0].id
    released = [one.id for one in context.services.reservations.release(context.me, reservation_id)]
    context.answer({"released": released}, released or [context.texts("reserve.over")])


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
