"""`agent add|list|remove`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from multi_agent_mcp.cli.door import Desk, Json, Root, Session, desk, table
from multi_agent_mcp.config import read_environment
from multi_agent_mcp.domain.agent import AGENT_TYPES, ROLES, Agent
from multi_agent_mcp.domain.names import agent_id as parse_agent_id
from multi_agent_mcp.domain.plain import named
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.services.drafts import require_choice

app = typer.Typer(help="Who takes part: add, list, remove.", no_args_is_help=True)

AgentId = Annotated[str, typer.Argument(metavar="ID")]


@app.command()
def add(
    agent_id: AgentId,
    role: Annotated[str, typer.Option(help=f"One of {', '.join(ROLES)}.")] = "worker",
    type: Annotated[str, typer.Option(help=f"One of {', '.join(AGENT_TYPES)}.")] = "ai",
    parent: Annotated[str | None, typer.Option(metavar="ID", help="The agent's superior.")] = None,
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    command: Annotated[str | None, typer.Option(help="What `up` starts in the agent's window.")] = None,
    host: Annotated[str | None, typer.Option(help="claude, codex, or plain: a program that reads lines.")] = None,
    pane: Annotated[str | None, typer.Option(metavar="%N", help="The tmux pane its doorbell rings in.")] = None,
    socket: Annotated[
        str | None, typer.Option(metavar="PATH", help="The pane's tmux socket (default: this terminal's).")
    ] = None,
    root: Root = None,
    session: Session = None,
    as_json: Json = False,
) -> None:
    """Register an agent: its record, its mailbox, its key."""
    with desk(root, session, as_json=as_json) as opened:
        require_choice("role", role, ROLES)
        require_choice("type", type, AGENT_TYPES)
        place = _pane_fields(pane, socket)
        if parent is not None:
            opened.services.agents.get(parent)
        agent = Agent(
            id=parse_agent_id(agent_id),
            role=role,
            type=type,
            parent_id=parent,
            name=name or "",
            command=command,
            host=host,
            **place,
        )
        added = opened.services.agents.add(agent)
        key = str(opened.services.workspace.key_path(added.id))
        opened.show({"agent_id": added.id, "key_file": key, **place}, [f"{added.id}: {added.role}, key in {key}"])


@app.command("list")
def list_agents(root: Root = None, session: Session = None, as_json: Json = False) -> None:
    """Show the agents, whether their servers run, their panes and their unread mail."""
    with desk(root, session, as_json=as_json) as opened:
        records = [_record(opened, agent) for agent in opened.services.agents.all().values()]
        head = ("id", "role", "type", "parent", "alive", "unread", "pane")
        rows = [
            (
                record["id"],
                record["role"],
                record["type"],
                named(record["parent_id"]),
                "yes" if record["alive"] else "no",
                record["unread"],
                record["pane_id"] or "-",
            )
            for record in records
        ]
        opened.show({"agents": records}, table(head, rows))


@app.command()
def remove(agent_id: AgentId, root: Root = None, session: Session = None, as_json: Json = False) -> None:
    """Take an agent out: nobody can write to it any more. Its files stay."""
    with desk(root, session, as_json=as_json) as opened:
        removed = opened.services.agents.remove(agent_id)
        opened.show({"agent_id": removed.id}, [f"{removed.id} is removed; its files stay"])


def _record(opened: Desk, agent: Agent) -> dict[str, Any]:
    return {
        "id": agent.id,
        "role": agent.role,
        "type": agent.type,
        "name": agent.name,
        "parent_id": agent.parent_id,
        "status": agent.status,
        "alive": opened.services.sessions.alive(agent.id),
        "unread": opened.services.reading.unread_count(agent.id),
        "pane_id": agent.pane_id,
        "socket_path": agent.socket_path,
        "session_name": agent.session_name,
        "window_index": agent.window_index,
        "pane_index": agent.pane_index,
    }


def _pane_fields(pane: str | None, socket: str | None) -> dict[str, Any]:
    """What is registered for `--pane`: found on its tmux server now, so that a later pane of that number is not it."""
    if pane is None:
        return {}
    from multi_agent_mcp.notify.tmux import default_socket, pane_place  # libtmux takes 70 ms to import

    here = read_environment().pane
    socket_path = socket or (here.socket_path if here else default_socket())
    place = pane_place(socket_path, pane)
    if place is None:
        raise InvalidArguments(reason=f"there is no pane {pane} on the tmux server at {socket_path}")
    return place
