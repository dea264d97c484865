"""Questions: those of and to an agent, and answering one (docs/protocol.md, Questions)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multi_agent_mcp.services.questions import as_answer

if TYPE_CHECKING:
    from multi_agent_mcp.web.request import ApiRequest


def page(call: ApiRequest) -> dict[str, Any]:
    """Questions, open ones first, then those settled last. `?to=` and `?from=` select by agent, `?open=1` those that
    wait for an answer, `?limit=` how many."""
    found, more = call.services.questions.listed(
        to_id=call.agent_id("to"),
        asker_id=call.agent_id("from"),
        only_open=call.parameter("open") is not None,
        limit=call.limit,
    )
    return {"questions": [as_answer(question) for question in found], "has_more": more}


def answer(call: ApiRequest) -> dict[str, Any]:
    """Answers a question, with a note if one is given."""
    done = call.services.questions.answer(
        call.me, call.path["question_id"], call.text("answer"), call.optional_text("note")
    )
    return {"question": as_answer(done)}
