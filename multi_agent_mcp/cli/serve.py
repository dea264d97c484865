"""`serve`: the stdio MCP server of one agent."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.cli.door import Root, Session, refuse
from multi_agent_mcp.config import find_root, find_session, read_environment
from multi_agent_mcp.domain.agent import PURPOSES
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.services.messages import require_choice
from multi_agent_mcp.texts import DEFAULT_LANGUAGE, LANGUAGES, catalogue

WRONG_USE = 2


def serve(
    root: Root = None,
    session: Session = None,
    agent: Annotated[
        str | None, typer.Option(metavar="ID", help="The agent this process is; without it: authenticate first.")
    ] = None,
    purpose: Annotated[str | None, typer.Option(help=f"One of {', '.join(PURPOSES)} (default: by what waits).")] = None,
    language: Annotated[str | None, typer.Option(help=f"One of {', '.join(LANGUAGES)}.")] = None,
) -> None:
    """Run an agent's MCP server on standard input and output. Hosts start it; see host-config."""
    logging.basicConfig(format="multi-agent-mcp: %(message)s", level=logging.WARNING)
    texts = catalogue(language or DEFAULT_LANGUAGE)
    try:
        environment = read_environment()
        where = find_root(root or environment.root, Path.cwd())
        chosen = purpose or environment.purpose
        if chosen is not None:
            require_choice("purpose", chosen, PURPOSES)
        services = open_session(where, find_session(session or environment.session, where), language=language)
        texts = services.texts
        from multi_agent_mcp.server.binding import Binding

        binding = Binding(services, pane=environment.pane, purpose=chosen)
        if agent or environment.agent:
            binding.bind_process(agent or environment.agent or "", environment.passkey)
    except Refusal as refusal:
        refuse(refusal, texts, as_json=False, code=WRONG_USE)
    from multi_agent_mcp.server.app import run  # imports mcp, which takes half a second

    run(binding)
