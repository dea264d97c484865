"""`host-config`: the exact configuration that makes a host start an agent's server and run its hooks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from multi_agent_mcp.cli.context import SessionContext, session_command
from multi_agent_mcp.config import expanded
from multi_agent_mcp.host_config import HostConfiguration
from multi_agent_mcp.hosts import hosts
from multi_agent_mcp.texts import Texts


@click.command()
@click.argument("host", type=click.Choice(hosts()), help="The program that the agent runs in.")
@click.option("--agent", metavar="ID", required=True, help="The agent.")
@click.option("--write", is_flag=True, help="Write the files; existing content is kept.")
@click.option(
    "--directory",
    metavar="DIR",
    type=Path,
    help="Write into this directory, whose files the host reads automatically (default: files of the agent alone).",
)
@session_command()
def host_config(context: SessionContext, host: str, agent: str, write: bool, directory: Path | None) -> None:
    """Print the configuration of a host for an agent, or write it."""
    agent_id = context.services.agents.here(agent).id
    where = expanded(directory).absolute() if directory else None
    configurations = context.services.host_configurations
    configuration = configurations.of(host, agent_id, where)
    if not write:
        context.answer(configuration.as_answer(), configuration.lines())
        return
    backups = dict(configurations.write(configuration))
    files = [{"file": str(file), "backup": str(backup) if backup else None} for file, backup in backups.items()]
    lines = _written_lines(configuration, backups, context.texts)
    context.answer({**configuration.as_answer(), "written": files}, lines)


def _written_lines(configuration: HostConfiguration, backups: dict[Path, Path | None], texts: Texts) -> Iterator[str]:
    for item in configuration.files:
        backup = backups.get(item.path)
        written = "backup" if backup else "written"
        yield texts(f"host_config.{written if item.path in backups else 'unchanged'}", path=item.path, backup=backup)
    yield texts("host_config.then", command=configuration.start)
