"""The commands about agents (`agent add|set|list|approve|remove|move|brief`) and about their files in one repository:
`edits`, `reservations`, `reserve`, `release`, `workspace`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from operator import itemgetter
from typing import Any

import click

from multi_agent_mcp.cli.context import OptionOf, SessionContext, print_error, session_command
from multi_agent_mcp.cli.rendering import approval_line, change_lines, column_table, moment_words, words_of_code
from multi_agent_mcp.domain.agent import AGENT_TYPES, PURPOSES, ROLES, Agent, sharing_panes
from multi_agent_mcp.domain.entity import agent_id as parse_agent_id
from multi_agent_mcp.domain.text import display_id, one_line
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.hosts import host_alone, with_configuration
from multi_agent_mcp.services.team.setup import require_usable
from multi_agent_mcp.texts import Texts

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
SKILLS = click.option(
    "--skills",
    cls=OptionOf,
    feature="free",
    help="What it can do, separated by commas: it is given tasks that need nothing else.",
)


@click.group()
def agent() -> None:
    """Who takes part: add, set, list, approve, remove, move."""


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
@SKILLS
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
    skills: str | None,
) -> None:
    """Register an agent: its record, its mailbox, its key.

    Example: `multi-agent-mcp agent add worker-c --role worker --parent admin`
    """
    context.services.approvals.require_person()
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
        extra=_named_skills(skills),
    )
    require_usable(agent, context.services.root, context.services.settings.shell)
    with context.services.approvals.following() as followed:
        added = context.services.agents.add(agent)
        followed.agents.append(added)
    key = str(context.services.agents.key_file(added.id))
    lines = [context.texts("agent.added", agent_id=added.id, role=added.role, key=key)]
    if followed.others:
        changed = replace(context.services.approvals.look(), state="changed", changed=followed.others)
        lines.append(approval_line(changed, context.services.session.features, context.texts))
    answer = {"agent_id": added.id, "key_file": key, **place, **agent.extra}
    context.answer(answer | ({"not_approved": list(followed.others)} if followed.others else {}), lines)


@agent.command("set")
@AGENT_ID
@click.option("--here", is_flag=True, help="Its doorbell rings in the pane of this terminal.")
@PANE
@SOCKET
@HOST
@COMMAND
@NAME
@SKILLS
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
    skills: str | None,
) -> None:
    """Change what is registered for an agent; an empty text takes a value away.

    Example: `multi-agent-mcp agent set worker-a --command 'codex {mcp_config}'`
    """
    texts = {"host": host, "command": command and with_configuration(command), "name": name}
    changed: dict[str, Any] = {key: value for key, value in texts.items() if value is not None}
    changed |= _named_skills(skills)
    if (here and pane) or (socket and not pane) or not (here or pane or changed):
        raise InvalidArguments("nothing_to_set")
    changed |= _pane_fields(_pane_here() if here else pane, socket)
    agents = context.services.agents
    context.services.approvals.require_person(but=None if command or host or skills is not None else agent_id)
    started = host_alone(command) if command and host is None else None
    if started is not None and agents.get(agent_id).declared_host not in (None, started.name):
        changed["host"] = started.name  # else it would be started with the options of the other one
    command_before = agents.get(agent_id).command
    wanted = replace(agents.get(agent_id), host=host, command=texts["command"])
    require_usable(wanted, context.services.root, context.services.settings.shell)
    agent = agents.change(agent_id, **changed)
    for ids in sharing_panes(agents.at_home().values()) if "pane_id" in changed else ():
        if agent.id in ids:
            print_error(context.texts("agent.shared_pane", names=", ".join(ids), pane=agent.pane_id))
    shown = {key: agent.extra[key] if key == "skills" else getattr(agent, key) for key in changed}
    words = {
        key: ", ".join(value) if isinstance(value, list) else str(value)
        for key, value in shown.items()
        if value is not None
    }
    lines = [f"{agent.id}: {key}: {one_line(words.get(key, '')) or '-'}" for key in shown]
    if agent.command != command_before and context.services.sessions.alive(agent.id):
        lines.append(context.texts("agent.until_restart", agent_id=agent.id))
    context.answer({"agent_id": agent.id, **shown}, lines)


def _named_skills(given: str | None) -> dict[str, list[str]]:
    """The skills as the agent's record has them; none for an empty text. Empty if they are not to be changed."""
    if given is None:
        return {}
    from multi_agent_mcp.services.validation import require_skills  # here: few commands need it

    return {"skills": list(require_skills(given.split(",") if given.strip() else (), "skills"))}


@agent.command("list")
@session_command()
def list_agents(context: SessionContext) -> None:
    """Show the agents, whether their servers run, their panes and their unread mail.

    Example: `multi-agent-mcp agent list`
    """
    records = [agent_facts(context, agent) for agent in context.services.agents.all().values()]
    texts, now = context.texts, context.services.clock()
    columns: dict[str, Callable[[dict[str, Any]], object]] = {
        "id": itemgetter("id"),
        "role": lambda record: words_of_code("role", record["role"], texts),
        "type": lambda record: words_of_code("type", record["type"], texts),
        "parent": lambda record: display_id(record["parent_id"]),
        **({} if context.services.machine is None else {"machine": lambda record: display_id(record["machine"])}),
        "alive": lambda record: _alive(record, now, texts),
        "unread": itemgetter("unread"),
        **({"rules": _held_words} if any("rules" in record for record in records) else {}),
        "pane": lambda record: record["pane_id"] or "-",
    }
    context.answer({"agents": records}, column_table(texts, records, columns))


@agent.command("approve")
@session_command()
def approve_agents(context: SessionContext) -> None:
    """Approve what session.yaml and team.yaml say now of what agents may do, and of all else that only a person
    decides.

    Example: `multi-agent-mcp agent approve`
    """
    approve_all(context)


def approve_all(context: SessionContext) -> None:
    """Shows what differs from what was approved last, and approves it."""
    approvals = context.services.approvals
    content = approvals.content()
    changed = change_lines(approvals.differences(content))
    approval = approvals.approve(content)
    line = approval_line(approval, context.services.session.features, context.texts)
    context.answer({"approval": approval.as_answer()}, [*changed, line])


@agent.command()
@AGENT_ID
@click.option("--hand-over", is_flag=True, help="Give its open tasks to its superior; it is refused while it has some.")
@session_command()
def remove(context: SessionContext, agent_id: str, *, hand_over: bool) -> None:
    """Take an agent out: nobody can write to it any more, and its window is closed. Its files stay; its superior gets
    what waited for it.

    Example: `multi-agent-mcp agent remove worker-a --hand-over`
    """
    services, texts = context.services, context.texts
    services.approvals.require_person()
    agent = services.agents.require_removable(agent_id)
    with services.agents.leaving(agent.id):
        handed = services.task_changes.hand_over(agent.id, services.agents.owner()) if hand_over else []
        removed = services.agents.remove(agent.id)
    lines = [texts("agent.handed_over", task_id=task.id, agent_id=task.assignee_id) for task in handed]
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
    """Print what an agent reads when its host has forgotten it: who it is, what it holds, its last hand-off.

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
    if (limit := services.limited.now(agent.id)) is not None:
        now["limited_until"] = limit.until_said
    if services.pane_looks.is_offline(agent.id):
        now["offline"] = True
    if held := services.agent_rules.held(agent):
        now["rules"] = held
    if skills := agent.extra.get("skills"):
        now["skills"] = skills
    return {name: getattr(agent, name) for name in WHO} | home | now | {name: getattr(agent, name) for name in WHERE}


def _held_words(record: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {hold}" for name, hold in record.get("rules", {}).items()) or "-"


def _alive(record: dict[str, Any], now: datetime, texts: Texts) -> str:
    if record.get("offline"):
        return texts("agent.offline")
    if "limited_until" in record:
        return texts("agent.limited", until=moment_words(record["limited_until"], now, texts))
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
    is distinguished. Raises `InvalidArguments` and `TmuxTimeout`."""
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
    context.services.approvals.require_person()
    if machine not in context.services.machines.states():
        raise InvalidArguments("no_such_machine", name=machine)
    if context.services.sessions.alive(agent_id):
        raise InvalidArguments("still_running", agent_id=agent_id)
    moved = agents.move(agent_id, machine)
    lines = [context.texts("agent.moved", agent_id=moved.id, machine=machine)]
    context.answer({"agent_id": moved.id, "machine": machine}, lines)
