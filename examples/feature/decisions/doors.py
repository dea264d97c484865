"""The tool for agents, and the command for people."""

from __future__ import annotations

import click

from decisions.rules import Decisions
from multi_agent_mcp.cli.context import Id, SessionContext, excerpt, session_command
from multi_agent_mcp.domain.entity import as_json
from multi_agent_mcp.server.calls import Answer, Call, Tool


def note_decision(call: Call, decision: str) -> Answer:
    """Note a decision that you have taken without asking; your human looks at it later."""
    noted = Decisions(call.services.session).note(call.me, decision, call.session.record.task_id)
    return {"decision_id": noted.id}


TOOLS = (Tool(note_decision, "Note decision"),)


@click.command()
@click.option("--seen", metavar="ID", type=Id("dcn"), help="Mark one as seen.")
@session_command()
def decisions(context: SessionContext, seen: str | None) -> None:
    """What agents have decided by themselves, and what you have not seen yet."""
    service = Decisions(context.services.session)
    if seen is not None:
        service.see(seen)
    found = service.open()
    answer = {"decisions": [as_json(one) for one in found]}
    lines = [f"{one.id}  {one.agent_id}  {excerpt(one.text)}" for one in found]
    context.answer(answer, lines or [context.texts("decisions.none")])
