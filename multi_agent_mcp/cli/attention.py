"""`attention`, `answer` and `questions`: what waits for the human, and what is asked and answered."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import click

from multi_agent_mcp.cli.context import SessionContext, excerpt, indented, print_line, session_command, text_of
from multi_agent_mcp.cli.next_step import next_line
from multi_agent_mcp.cli.rendering import (
    Styled,
    ago,
    folded,
    is_terminal,
    local_time,
    local_words,
    status_words,
    subjects_words,
    titled_table,
)
from multi_agent_mcp.cli.watch import choice_words, choices, kind_alone, kind_words, said
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.dialog import Answered, Dialog
from multi_agent_mcp.domain.question import Question
from multi_agent_mcp.domain.text import display_id, one_line, shortened
from multi_agent_mcp.domain.times import duration_words, format_time
from multi_agent_mcp.errors import InvalidArguments, NotAnswered, Refusal
from multi_agent_mcp.services.attention import Item
from multi_agent_mcp.services.questions import as_answer as question_answer
from multi_agent_mcp.texts import Texts

# `answer`: answers a question, or shows what hosts ask in their panes and answers it by pressing a key.


@click.command()
@click.argument("asked", metavar="[QUESTION_ID|AGENT]", required=False)
@click.argument("choice", metavar="[CHOICE|TEXT]", required=False)
@click.option("--note", metavar="TEXT", help="What you add to the answer of a question.")
@click.option(
    "--question",
    metavar="ID",
    help="The id that was shown with what a host asks. Only needed if that was more than a minute ago, or in a script: "
    "if the host asks something else by now, no key is pressed.",
)
@click.option(
    "--keys",
    metavar="KEYS",
    help='Press these keys, as in "Down Enter", where no choices are listed. The screen is shown first, and you '
    "confirm; only in a terminal.",
)
@session_command(acting=True)
def answer(
    context: SessionContext,
    asked: str | None,
    choice: str | None,
    note: str | None,
    question: str | None,
    keys: str | None,
) -> None:
    """Answer a question, or what a host asks in its pane. Without arguments: list what is asked; without
    an answer: show one.

    A host is answered by the key of one of the choices that are listed with what it asks; a question by one of its
    choices (or its number), or freely if it has none.

    Example: `multi-agent-mcp answer worker-a 1`
    """
    if asked is None:
        _show_all(context)
        return
    if asked not in context.services.agents.all():
        asked = context.services.lookup.full_id(asked, "qst")
    if asked.startswith(PREFIX):
        if question is not None or keys is not None:
            raise InvalidArguments("option_of_hosts", name="--question" if keys is None else "--keys")
        answer_question(context, asked, choice, note)
        return
    if note is not None:
        raise InvalidArguments("option_of_questions", name="--note")
    _answered_there(context, asked, choice, question, keys)
    agent = context.services.agents.here(asked)
    if keys is not None:
        if choice is not None or question is not None:
            raise InvalidArguments("keys_alone")
        _press_keys(context, agent, keys)
        return
    if choice is None:
        _show(context, agent)
        return
    if question is not None and not question.strip():
        raise InvalidArguments("empty", name="--question")
    _press(context, agent, question or _listed(context, agent, choice), choice)


def list_dialogs(context: SessionContext, asked: Mapping[str, Dialog]) -> Iterator[str]:
    """Yields the lines that show what hosts ask, by agent id, and records that the acting person was shown it."""
    with suppress(Refusal):  # nobody acts: neither an Owner nor `--as`
        context.services.listed_dialogs.note(context.agent(None).id, asked)
    for agent_id, dialog in asked.items():
        yield from _lines(agent_id, dialog, context.services.people)


def _show_all(context: SessionContext) -> None:
    panes, texts = context.services.panes, context.texts
    asked = panes.dialogs()
    others = panes.undescribed(context.services.agents.all().values())
    owed = context.services.questions.owed_by(context.agent(None).id)
    lines = [*list_dialogs(context, asked), *undescribed_lines(others, texts)]
    lines += [line for question in owed for line in lines_of(question, texts)]
    unseen = panes.unseen()
    lines += [texts("answer.unseen", agent_id=agent_id) for agent_id in unseen]
    questions = [question_answer(question) for question in owed]
    answer = {"dialogs": dialogs_answer(asked), "undescribed": _rows_answer(others)}
    context.answer(answer | {"unseen": unseen, "questions": questions}, lines or [texts("answer.nobody")])


def _show(context: SessionContext, agent: Agent) -> None:
    dialog, texts = context.services.panes.asked(agent), context.texts
    asked = {} if dialog is None else {agent.id: dialog}
    others = context.services.panes.undescribed([] if asked else [agent])
    lines = [*list_dialogs(context, asked), *undescribed_lines(others, texts)]
    if not lines:
        screen = texts.screen(context.services.pane_notifier.screen(agent))
        lines = [texts("answer.nothing", agent_id=agent.id, screen=screen)]
    context.answer({"dialogs": dialogs_answer(asked), "undescribed": _rows_answer(others)}, lines)


def undescribed_lines(others: Mapping[str, Dialog], texts: Texts) -> Iterator[str]:
    """Yields the lines that show what hosts ask that no profile describes: rows of their screens, and the way out."""
    for agent_id, dialog in others.items():
        yield texts("answer.undescribed", agent_id=agent_id)
        yield from indented(dialog.text)
        yield ""
        yield texts("answer.by_keys", command=f'multi-agent-mcp answer {agent_id} --keys "Down Enter"')


def _rows_answer(others: Mapping[str, Dialog]) -> list[dict[str, Any]]:
    return [{"agent_id": agent_id, "text": dialog.text} for agent_id, dialog in others.items()]


def dialogs_answer(asked: Mapping[str, Dialog]) -> list[dict[str, Any]]:
    """What hosts ask, for JSON."""
    return [{"agent_id": agent_id, **dialog.as_answer()} for agent_id, dialog in asked.items()]


def _lines(agent_id: str, dialog: Dialog, texts: Texts) -> Iterator[str]:
    yield texts("answer.asks", agent_id=agent_id, topic=texts.asks_about(dialog.topic))
    yield from indented(dialog.text)
    yield ""
    for choice in dialog.choices:
        yield f"   {choice.key}  {choice_words(choice, texts)}"
    if any("current directory" in choice.label.lower() for choice in dialog.choices):
        yield texts("answer.current_directory")
    if dialog.topic == "hooks":
        yield texts("answer.hooks")
    yield texts("answer.how", command=f"multi-agent-mcp answer {agent_id} CHOICE", question=dialog.id)


def _listed(context: SessionContext, agent: Agent, choice: str) -> str:
    """The id of the question that is in the agent's pane, if it was listed to this person a moment ago, or the
    person confirms it at a terminal. Raises `NotAnswered` if there is no such question or choice, `TmuxTimeout`,
    and `InvalidArguments`, which says what is asked, if it is neither listed nor confirmed."""
    dialog, texts = context.services.panes.asked(agent), context.texts
    if dialog is None or dialog.choice(choice) is None:
        raise _refused(agent, "no_dialog" if dialog is None else "no_such_choice", texts)
    if context.services.listed_dialogs.of(context.agent(None).id, agent.id) == dialog.id:
        return dialog.id
    if context.as_json or not sys.stdin.isatty():
        command = f"multi-agent-mcp answer {agent.id} {choice} --question {dialog.id}"
        words = " ".join(dialog.text.split())
        raise InvalidArguments(
            "answer_which", agent_id=agent.id, question=words, choices=choices(dialog, texts), command=command
        )
    for line in _lines(agent.id, dialog, texts):
        print_line(line)
    click.confirm(choice, abort=True)
    return dialog.id


KEYS = re.compile(r"(Up|Down|Left|Right|Enter|Escape|Tab|BTab|Space|Home|End|PPage|NPage|[A-Za-z0-9])")
"""The keys that `--keys` takes, as tmux names them."""
MOST_KEYS = 20


def _press_keys(context: SessionContext, agent: Agent, words: str) -> None:
    """Shows the agent's screen and presses the keys once the person has confirmed, if it is still the same then. Raises
    `InvalidArguments` for other keys, and outside a terminal; `NotAnswered` where the host asks nothing."""
    keys, texts = words.split(), context.texts
    if not 1 <= len(keys) <= MOST_KEYS or not all(map(KEYS.fullmatch, keys)):
        raise InvalidArguments("bad_keys", most=MOST_KEYS)
    if context.as_json or not sys.stdin.isatty():
        raise InvalidArguments("keys_terminal", agent_id=agent.id)
    context.services.panes.asked(agent)  # raises if its tmux does not answer
    shown = context.services.panes.typist.asking(agent, keys)
    if shown is None:
        raise _refused(agent, "no_dialog", texts)
    for line in indented(shown.text):
        print_line(line)
    click.confirm(texts("answer.confirm", keys=" ".join(keys), agent_id=agent.id), abort=True)
    came = context.services.panes.answer(agent, shown.id, shown.choices[0].key, context.agent(None), keys)
    if came.state == "refused":
        raise _refused(agent, came.reason or "", texts)
    facts = {"agent_id": agent.id, "keys": " ".join(keys)}
    done = texts("answer.keys_done", **facts, screen=texts.word("screen", came.screen or "-"))
    words = (
        done
        if came.state == "answered"
        else texts("answer.keys_pressed", **facts, reason=texts.words_of(came.reason or ""))
    )
    context.answer({"agent_id": agent.id, **came.as_answer()}, [words])


def _press(context: SessionContext, agent: Agent, question: str, choice: str) -> None:
    texts = context.texts
    # anybody at this machine may press a key in its panes, even with another home machine
    came = context.services.panes.answer(agent, question, choice, context.agent(None))
    if came.state == "refused":
        raise _refused(agent, came.reason or "", texts)
    lines = [_outcome(agent, came, choice, texts), *([] if context.as_json else next_line(context))]
    context.answer({"agent_id": agent.id, **came.as_answer()}, lines)


def _refused(agent: Agent, reason: str, texts: Texts) -> NotAnswered:
    return NotAnswered(agent_id=agent.id, reason=texts.words_of(reason))


def _outcome(agent: Agent, came: Answered, choice: str, texts: Texts) -> str:
    picked = came.dialog.choice(choice) if came.dialog is not None else None
    facts = {"agent_id": agent.id, "choice": choice, "label": picked.label if picked is not None else ""}
    if came.state == "answered":
        return texts("answer.done", **facts, screen=texts.word("screen", came.screen or "-"))
    return texts("answer.pressed", **facts, reason=texts.words_of(came.reason or ""))


HEAD = ("for", "agent", "what", "says", "command")
SAID_COLUMNS = 120
"""Of what waits, in a pipe, where a row is one line; `--json` has the whole text."""
KIND_STYLES = {
    **dict.fromkeys(("dialog", "login", "down", "ended", "tmux"), "bold red"),
    **dict.fromkeys(("machine", "stuck", "request", "conversation", "blocked", "undelivered"), "yellow"),
}


@click.command()
@click.option("--all", "everything", is_flag=True, help="One line for each item, also where many are of one kind.")
@session_command(acting=True, in_any_case=True)
def attention(context: SessionContext, everything: bool) -> None:
    """List everything that waits for you, the worst first, each with what helps: questions in panes, stuck agents,
    requests to decide, blocked tasks, what could not be announced, mail, what `doctor` finds. Many of one kind that is
    not to be decided are one line.

    Example: `multi-agent-mcp attention`
    """
    services = context.services
    items = services.attention.of(context.agent(None), services.doctor().examine())
    answer = {"items": [item.as_answer() for item in items]}
    asked = {item.agent_id: item.dialog for item in items if item.agent_id is not None and item.dialog is not None}
    shown = [[item] for item in items] if everything else folded(items, kind_alone)
    lines = [*attention_lines(shown, services.clock(), services.people), *([""] if asked else [])]
    context.answer(answer, [*lines, *list_dialogs(context, asked)])


def attention_lines(shown: Iterable[Sequence[Item]], now: datetime, texts: Texts) -> Iterator[str]:
    """Yields groups of items as a table, each on one line, or the line that nothing waits."""
    rows = [_row(group, now, texts) for group in shown]
    return titled_table(texts, HEAD, rows) if rows else iter([texts("attention.nothing")])


def _row(group: Sequence[Item], now: datetime, texts: Texts) -> tuple[str, ...]:
    item = group[0]
    since = ago(item.since, now, texts)
    command = item.command
    if item.machine is not None:
        command = texts("attention.there", machine=item.machine, command=command)
    who = subjects_words([each.agent_id or "-" for each in group], texts)
    if len(group) > 1:
        command = "multi-agent-mcp read" if item.kind == "mail" else "multi-agent-mcp attention --all"
    says = said(item, texts) if item.dialog is not None else one_line(item.text)
    says += f" {due}" if (due := _due(item.question, now, texts)) else ""
    says += " …" if len({each.text for each in group}) > 1 else ""
    if not is_terminal():  # which lays long texts out
        says = shortened(says, SAID_COLUMNS)
    return since, who, Styled(kind_words(group, texts), KIND_STYLES.get(item.kind, "")), says, command


def _due(question: Question | None, now: datetime, texts: Texts) -> str:
    """The choices of a question, and what comes of it at its deadline, and when."""
    if question is None:
        return ""
    parts = [" / ".join(map(one_line, question.choices))]
    if question.deadline is not None:
        time = duration_words(abs(question.deadline - now), texts)
        key = "late" if question.is_due(now) else "due" if question.default is None else "due_default"
        parts.append(texts(f"attention.{key}", time=time, answer=one_line(question.default or "")))
    words = "; ".join(filter(None, parts))
    return f"({words})" if words else ""


# `questions`: lists what agents and people ask each other; and what `answer` does with a question.

QUESTIONS = ("id", "status", "from", "to", "for", "until", "question")
PREFIX = "qst_"
ME = "me"


@click.command()
@click.option("--open", "only_open", is_flag=True, help="Only those that wait for an answer.")
@click.option("--to", "to_id", metavar="AGENT", help="Only those to this agent; `me` is you.")
@click.option("--from", "asker_id", metavar="AGENT", help="Only those of this agent; `me` is you.")
@click.option("--limit", default=50, type=click.IntRange(1, 10_000), help="How many, open ones first.")
@session_command(acting=True)
def questions(context: SessionContext, only_open: bool, to_id: str | None, asker_id: str | None, limit: int) -> None:
    """List questions: who owes whom an answer, until when, and what was answered.

    Example: `multi-agent-mcp questions --from worker-a`
    """
    names = [_agent(context, name) for name in (to_id, asker_id)]
    found, more = context.services.questions.listed(to_id=names[0], asker_id=names[1], only_open=only_open, limit=limit)
    answer = {"questions": [question_answer(question) for question in found], "has_more": more}
    context.answer(answer, _table(found, context.services.clock(), context.texts, more=more))


def _agent(context: SessionContext, name: str | None) -> str | None:
    if name is None:
        return None
    return context.agent(None).id if name == ME else context.services.agents.get(name).id


def _table(found: Iterable[Question], now: datetime, texts: Texts, *, more: bool) -> Iterator[str]:
    rows = [_question_row(question, now, texts) for question in found]
    yield from titled_table(texts, QUESTIONS, rows) if rows else [texts("questions.none")]
    if more:
        yield texts("questions.more")


def _question_row(question: Question, now: datetime, texts: Texts) -> tuple[str, ...]:
    until = "-" if question.deadline is None else local_words(question.deadline, now, texts)
    is_due = question.is_due(now)
    status = Styled(texts("questions.overdue"), "bold red") if is_due else status_words(question.status, texts)
    words = question.question if question.answer is None else f"{question.question} → {question.answer}"
    length = duration_words(max((question.answered_at or now) - question.created_at, timedelta(0)), texts)
    names = display_id(question.asker_id), display_id(question.to_id)
    return question.id, status, *names, length, until, one_line(words) if is_terminal() else excerpt(words)


def _answered_there(
    context: SessionContext, agent_id: str, choice: str | None, question: str | None, keys: str | None
) -> None:
    """Runs the same command where the agent is at home, if there is a way; see `machines set`."""
    from multi_agent_mcp.cli.machines import run_there

    options = {"--question": question, "--keys": keys}
    given = [word for name, value in options.items() if value is not None for word in (name, value)]
    words = ["answer", *given, *(["--json"] if context.as_json else [])]
    run_there(context, agent_id, words, *([choice] if choice is not None else []), terminal=sys.stdin.isatty())


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
    if question.closed:
        answer = one_line(question.answer or "-")
        status = status_words(question.status, texts)
        yield texts("question.closed", status=status, answer=answer, by=question.answered_by or "-")
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
        context.answer({"questions": [question_answer(question)]}, lines_of(question, texts))
        return
    given = text_of(words)
    done = services.questions.answer(context.agent(None), question.id, chosen(question, given), note)
    told = texts("question.answered", question_id=done.id, answer=one_line(done.answer or ""), asker_id=done.asker_id)
    context.answer(question_answer(done), [told])


def chosen(question: Question, given: str) -> str:
    """The choice with this number, unless the number is itself a choice; else what was given."""
    if given in question.choices or not (given.isascii() and given.isdecimal()):
        return given
    number = int(given[:3])
    return question.choices[number - 1] if 1 <= number <= len(question.choices) else given
