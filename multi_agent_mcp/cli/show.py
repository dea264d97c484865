"""`show`: anything by its id, or by the beginning of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from multi_agent_mcp.cli.agents import agent_facts
from multi_agent_mcp.cli.context import SessionContext, indented, session_command
from multi_agent_mcp.cli.rendering import local_time
from multi_agent_mcp.domain.entity import as_json
from multi_agent_mcp.domain.text import display_id, one_line

if TYPE_CHECKING:
    from multi_agent_mcp.domain.entity import Entity
    from multi_agent_mcp.texts import Texts

SECRETS = ("token_hash",)
APART = ("title", "subject", "history")
"""Fields that are not among the others: they stand above or below them."""
WIDTH = 26


@click.command()
@click.argument("id_", metavar="ID", help="Of anything, or its first digits; an agent's name, too.")
@session_command()
def show(context: SessionContext, id_: str) -> None:
    """Show a task, message, conversation, execution, notification … by its id, or by the first digits of it."""
    services = context.services
    agent = services.agents.all().get(id_)
    if agent is not None:
        facts = agent_facts(context, agent)
        context.answer({"kind": "agent", "id": agent.id, "agent": facts}, field_lines(facts, context.texts))
        return
    kind, place = services.lookup.find(id_)
    facts = {name: value for name, value in as_json(place.entity).items() if name not in SECRETS}
    path = str(place.path.relative_to(services.path))
    lines = entity_lines(place.entity, context.texts, {"path": path})
    context.answer({"kind": kind.name, "id": place.id, "path": path, kind.name: facts}, lines)


def entity_lines(entity: Entity, texts: Texts, facts: dict[str, Any] | None = None) -> Iterator[str]:
    """Yields an entity for people: its fields, as far as it has them, then its title, its text and its history. `facts`
    are further fields."""
    fields = {name: value for name, value in as_json(entity).items() if name not in SECRETS}
    body = entity.BODY or ""
    known = {name: value for name, value in fields.items() if name not in (*APART, body)}
    yield from field_lines(known | (facts or {}), texts)
    if title := fields.get("title") or fields.get("subject"):
        yield from ("", one_line(str(title)))
    if text := fields.get(body):
        yield from ("", *indented(str(text)))
    if history := fields.get("history"):
        yield ""
        yield from (_change(entry, texts) for entry in history)


def field_lines(fields: Mapping[str, Any], texts: Texts) -> Iterator[str]:
    """Yields the fields that have a value, one a line."""
    for name, value in fields.items():
        if value not in (None, "", [], {}):
            yield f"{name + ':':{WIDTH}}{one_line(local_time(value, texts))}"


def _change(entry: Mapping[str, Any], texts: Texts) -> str:
    """A line of a history: when, who, and each field with its value before and after."""
    facts = ", ".join(f"{key} {_arrow(value)}" for key, value in entry.items() if key not in ("at", "by"))
    return one_line(f"{local_time(entry.get('at', '-'), texts)}  {display_id(str(entry.get('by', '-')))}: {facts}")


def _arrow(value: Any) -> str:
    if isinstance(value, list):
        return " → ".join(map(_arrow, value))
    return "-" if value in (None, "") else str(value)
