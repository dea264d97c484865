"""The command `checks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from multi_agent_mcp.cli.context import SessionContext, session_command
from multi_agent_mcp.cli.rendering import titled_table

if TYPE_CHECKING:
    from multi_agent_mcp.config import Check

COLUMNS = ("check", "found", "minutes", "directory", "command")
FOUND = {True: "checks.found", False: "checks.missing", None: "checks.unknown"}


@click.command()
@session_command()
def checks(context: SessionContext) -> None:
    """List what this machine runs when a task that names it is called done; runs nothing."""
    service, texts = context.services.checks, context.texts
    settings = service.settings()
    listed = [(check, service.is_found(check)) for check in settings.checks.values()]
    rows = [
        (check.name, texts(FOUND[found]), f"{check.minutes:g}", check.directory, check.shown) for check, found in listed
    ]
    answer = {"checks": [_record(check, found) for check, found in listed], "done_when": list(settings.done_when)}
    always = texts("checks.always", conditions=", ".join(settings.done_when) or "-")
    context.answer(answer, [*(titled_table(texts, COLUMNS, rows) if rows else [texts("checks.none")]), always])


def _record(check: Check, found: bool | None) -> dict[str, Any]:
    run = check.run if isinstance(check.run, str) else list(check.run)
    place = {"minutes": check.minutes, "directory": check.directory}
    return {"name": check.name, "run": run, **place, "program": check.program, "found": found}
