"""`host-config`: the exact configuration that makes a host start an agent's server."""

from __future__ import annotations

from typing import Annotated

import typer

from multi_agent_mcp.cli.door import Json, Root, Session, desk
from multi_agent_mcp.services.hosts import HOSTS, host_configuration
from multi_agent_mcp.services.messages import require_choice


def host_config(
    host: Annotated[str, typer.Argument(metavar="HOST", help=f"One of {', '.join(HOSTS)}.")],
    agent: Annotated[str, typer.Option(metavar="ID", help="The agent.")],
    root: Root = None,
    session: Session = None,
    as_json: Json = False,
) -> None:
    """Print the configuration for Claude Code, Codex or Gemini CLI."""
    with desk(root, session, as_json=as_json) as opened:
        require_choice("host", host, HOSTS)
        configuration = host_configuration(host, opened.services.workspace, opened.services.agents.get(agent).id)
        opened.show(configuration.as_answer(), configuration.lines())
