"""The question that an agent answers next (docs/protocol.md, Questions)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.entity import plain_value
from multi_agent_mcp.domain.text import quoted
from multi_agent_mcp.services.turn.briefing import ITEM_CHARACTERS, LINES_SHOWN
from multi_agent_mcp.session import Service
from multi_agent_mcp.texts import json_size, shortened

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.question import Question
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.answer_budget import AnswerBudget
    from multi_agent_mcp.services.questions import Questions
    from multi_agent_mcp.services.team.agents import Signatures


INSTRUCTION_CHARACTERS = 400


@dataclass(eq=False)
class AnswerAction(Service):
    """Chooses the question that an agent is to answer next, in a session of either purpose."""

    questions: Questions
    answer_budget: AnswerBudget
    signatures: Signatures
    _handed_out: dict[str, datetime] = field(default_factory=dict, init=False)
    """When this process first handed a question out."""
    _asked_at: dict[str, datetime] = field(default_factory=dict, init=False)
    """When a question was last asked in this process, be it one that was open already."""

    def next_action(self, agent: Agent) -> dict[str, Any] | None:
        """The question with the earliest deadline, else the oldest; None without one. One that the agent cannot answer
        yet, as it has asked somebody itself since it was handed out, waits for that answer."""
        question = self._next(agent)
        if question is None:
            return None
        self._handed_out.setdefault(question.id, self.clock())
        about = {
            "question_id": question.id,
            "choices": list(question.choices),
            "asker_id": question.asker_id,
            "authority": self.signatures.standing(question.asker_id, agent.id),
            "deadline": plain_value(question.deadline),
            "default": question.default,
            "task_id": question.task_id,
        }
        shown = shortened(question.question, self.answer_budget.characters - json_size(about) - INSTRUCTION_CHARACTERS)
        whole = {} if shown == question.question else {"question_file": self._file(question)}
        key = "next.answer_question.choose" if question.choices else "next.answer_question"
        instruction = self.texts(key, question_id=question.id)
        return {"action": "answer_question", "instruction": instruction, **about, "question": shown, **whole}

    def asked(self, question: Question) -> None:
        """Notes that a question was asked: what was handed out to its asker waits for the answer."""
        self._asked_at[question.id] = self.clock()

    def has_more(self, agent: Agent) -> bool:
        return self._next(agent) is not None

    def section(self, agent: Agent, _task: Task | None) -> str | None:
        """The section of the briefing about open questions: those to the agent, then its own."""
        owed, asked = self.questions.owed_by(agent.id), self.questions.asked_by(agent.id)
        lines = [self._line("owed", question) for question in owed] + [self._line("asked", item) for item in asked]
        if len(lines) > LINES_SHOWN:
            lines[LINES_SHOWN:] = [self.texts("briefing.more", count=len(lines) - LINES_SHOWN)]
        return "\n".join(lines) or None

    def _line(self, side: str, question: Question) -> str:
        facts = {"question_id": question.id, "question": quoted(question.question, ITEM_CHARACTERS)}
        if side == "asked":
            return self.texts("briefing.asked", agent_id=question.to_id, **facts)
        standing = self.signatures.standing(question.asker_id, question.to_id)
        by = self.texts(f"authority.{standing}", agent_id=question.asker_id)
        return self.texts("briefing.owed", by=by, **facts)

    def _next(self, agent: Agent) -> Question | None:
        owed = self.questions.owed_by(agent.id)
        asked = self.questions.asked_by(agent.id)
        asked_at = max((self._asked_at.get(question.id, question.created_at) for question in asked), default=None)
        return next((question for question in owed if not self._is_passed_on(question, asked_at)), None)

    def _is_passed_on(self, question: Question, asked_at: datetime | None) -> bool:
        handed_out = self._handed_out.get(question.id)
        return handed_out is not None and asked_at is not None and asked_at >= handed_out

    def _file(self, question: Question) -> str:
        return str(self.workspace.questions.base / f"{question.id}.md")
