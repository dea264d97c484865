"""`questions`: lists what agents and people ask each other; and what `answer` does with a question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from multi_agent_mcp.cli.context import SessionContext, excerpt, indented, session_command, text_of
from multi_agent_mcp.cli.rendering import (
    Styled,
    duration_words,
    is_terminal,
    local_time,
    local_words,
    status_words,
    titled_table,
)
from multi_agent_mcp.domain.text import display_id, one_line
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.services.questions.questions import as_answer

if TYPE_CHECKING:
    from datetime import datetime

    from multi_agent_mcp.domain.question import Question
    from multi_agent_mcp.texts import Texts

HEAD = ("id", "status", "from", "to", "for", "until", "question")
PREFIX = "qst_"
ME = "me"


@click.command()
@click.option("--open", "only_open", is_flag=True, help="Only those that wait for an answer.")
@click.option("--to", "to_id", metavar="AGENT", help="Only those to this agent; `me` is you.")
@click.option("--from", "asker_id", metavar="AGENT", help="Only those of this agent; `me` is you.")
@click.option("--limit", default=50, type=click.IntRange(1, 10_000), help="How many, open ones first.")
@session_command(acting=True)
def questions(context: SessionContext, only_open: bool, to_id: str | None, asker_id: str | None, limit: int) -> None:
    """List questions: who owes whom an answer, until when, and what was answered."""
    names = [_agent(context, name) for name in (to_id, asker_id)]
    found, more = context.services.questions.listed(to_id=names[0], asker_id=names[1], only_open=only_open, limit=limit)
    answer = {"questions": [as_answer(question) for question in found], "has_more": more}
    context.answer(answer, _table(found, context.services.clock(), context.texts, more=more))


def _agent(context: SessionContext, name: str | None) -> str | None:
    if name is None:
        return None
    return context.agent(None).id if name == ME else context.services.agents.get(name).id


def _table(found: Iterable[Question], now: datetime, texts: Texts, *, more: bool) -> Iterator[str]:
    rows = [_row(question, now, texts) for question in found]
    yield from titled_table(texts, HEAD, rows) if rows else [texts("questions.none")]
    if more:
        yield texts("questions.more")


def _row(question: Question, now: datetime, texts: Texts) -> tuple[str, ...]:
    until = "-" if question.deadline is None else local_words(question.deadline, now, texts)
    is_due = question.is_due(now)
    status = Styled(texts("questions.overdue"), "bold red") if is_due else status_words(question.status, texts)
    words = question.question if question.answer is None else f"{question.question} → {question.answer}"
    length = duration_words(max((question.answered_at or now) - question.created_at, timedelta(0)), texts)
    names = display_id(question.asker_id), display_id(question.to_id)
    return question.id, status, *names, length, until, one_line(words) if is_terminal() else excerpt(words)


def lines_of(question: Question, texts: Texts) -> Iterator[str]:
    """Yields a question as it is shown to somebody who may answer it, with its choices and the command for that."""
    names = {"asker_id": display_id(question.asker_id), "to_id": display_id(question.to_id)}
    yield texts("question.asks", question_id=question.id, **names)
    yield from indented(question.question)
    yield ""
    for number, choice in enumerate(question.choices, 1):
        mark = texts("question.default") if choice == question.default else ""
        yield f"   {number}  {one_line(choice)}{mark}"
    if question.deadline is not None:
        yield texts("question.until", deadline=local_time(format_time(question.deadline), texts))
    if question.settled:
        answer = one_line(question.answer or "-")
        yield texts("question.settled", status=question.status, answer=answer, by=question.answered_by or "-")
    else:
        kind = "CHOICE" if question.choices else "TEXT"
        yield texts("question.how", command=f"multi-agent-mcp answer {question.id} {kind}")


def answer_question(context: SessionContext, question_id: str, words: str | None, note: str | None) -> None:
    """Answers a question, by one of its choices or its number; shows it without `words`."""
    services, texts = context.services, context.texts
    question = services.questions.get(question_id)
    if words is None:
        if note is not None:
            raise InvalidArguments("note_without_answer")
        context.answer({"questions": [as_answer(question)]}, lines_of(question, texts))
        return
    given = text_of(words)
    done = services.questions.answer(context.agent(None), question.id, chosen(question, given), note)
    told = texts("question.answered", question_id=done.id, answer=one_line(done.answer or ""), asker_id=done.asker_id)
    context.answer(as_answer(done), [told])


def chosen(question: Question, given: str) -> str:
    """The choice with this number, unless the number is itself a choice; else what was given."""
    if given in question.choices or not (given.isascii() and given.isdecimal()):
        return given
    number = int(given[:3])
    return question.choices[number - 1] if 1 <= number <= len(question.choices) else given
