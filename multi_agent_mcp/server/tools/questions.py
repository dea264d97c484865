"""Tools for questions (docs/protocol.md, Questions)."""

from __future__ import annotations

from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.server.calls import Answer, Call, Tool
from multi_agent_mcp.services.questions import Asking


def ask(
    call: Call,
    question: str,
    to_id: str | None = None,
    choices: list[str] | None = None,
    default: str | None = None,
    deadline_minutes: float | None = None,
    park: bool = False,
) -> Answer:
    """Ask your superior (or to_id) for a decision. park: your task waits, you get other work.
    default, one of the choices, is taken at the deadline."""
    asking = Asking(
        question=question,
        to_id=to_id,
        choices=choices or (),
        default=default,
        minutes=deadline_minutes,
        park=park,
    )
    asked, instruction = call.services.next_action.ask(call.me, call.session, asking)
    return {"question_id": asked.id, "to_id": asked.to_id, "instruction": instruction}


def answer_question(
    call: Call, question_id: str, answer: str | None = None, note: str | None = None, withdraw: bool = False
) -> Answer:
    """Answer a question to you or an agent below you, or withdraw your own."""
    if withdraw and answer is not None:
        raise InvalidArguments("answer_and_withdraw")
    if withdraw:
        closed = call.services.questions.withdraw(call.me, question_id, note)
    else:
        closed = call.services.questions.answer(call.me, question_id, answer or "", note)
    return {"question_id": closed.id, "status": closed.status}


TOOLS = (Tool(ask, "Ask"), Tool(answer_question, "Answer question"))
