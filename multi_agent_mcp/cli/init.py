"""`init`: a session directory from a team.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from multi_agent_mcp.cli.context import JSON, ROOT, SESSION, refuse
from multi_agent_mcp.cli.output import print_error, print_json, print_line
from multi_agent_mcp.domain.agent import Agent, superiors
from multi_agent_mcp.errors import InvalidArguments, Reason, Refusal
from multi_agent_mcp.texts import LANGUAGES, Texts

TEAM = click.option(
    "--team", metavar="FILE", default=Path("team.yaml"), type=Path, help="The team: session, language, agents."
)
LANGUAGE = click.option("--language", help=f"One of {', '.join(LANGUAGES)}.")


@click.command()
@TEAM
@ROOT
@SESSION
@LANGUAGE
@JSON
def init(team: Path, root: str | None, session: str | None, language: str | None, as_json: bool) -> None:
    """Make a session directory for a team; a second time, add what is new and keep keys and mail."""
    try:
        path, agents, added, texts = _make_session(team, root, session, language)
    except Refusal as refusal:
        refuse(refusal, as_json=as_json)
    if as_json:
        print_json({"success": True, "session": path.name, "path": str(path), "added": added, "agents": list(agents)})
    else:
        print_line(texts("init.done", path=path, count=len(agents), added=len(added)))


def _make_session(
    team: Path, root: str | None, session: str | None, language: str | None
) -> tuple[Path, Mapping[str, Agent], list[str], Texts]:
    """The session's directory, its agents, the ids of the new ones, and its texts."""
    from multi_agent_mcp.bootstrap import open_session
    from multi_agent_mcp.config import find_root, read_environment
    from multi_agent_mcp.services.team.setup import add_missing, create_session, read_team

    environment = read_environment()
    where = find_root(root or environment.root, Path.cwd())
    parsed = read_team(team)
    name = next((found for found in (session, environment.session, parsed.session) if found is not None), None)
    if name is None:
        raise InvalidArguments("bad_team", reason=Reason("no_session_named"))
    if language is not None and language not in LANGUAGES:
        raise InvalidArguments("bad_language", language=repr(language)[:40], allowed=", ".join(LANGUAGES))
    path = create_session(where, name, parsed, language)
    services = open_session(where, name)
    added = add_missing(services.agents, parsed)
    agents = services.agents.all()
    for agent_id in added:
        _warn_about_hierarchy(agent_id, agents, services.texts)
    return path, agents, added, services.people


def _warn_about_hierarchy(agent_id: str, agents: Mapping[str, Agent], texts: Texts) -> None:
    try:
        list(superiors(agent_id, agents))
    except Refusal as refusal:
        print_error(texts.sentence(refusal))
