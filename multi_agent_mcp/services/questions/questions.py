"""Asking, answering, taking back and listing questions (docs/protocol.md, Questions)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import Agent, is_superior, nearest_superior
from multi_agent_mcp.domain.entity import age, as_json
from multi_agent_mcp.domain.ids import entity_id, new_id
from multi_agent_mcp.domain.question import (
    CHOICE_CHARACTERS,
    CHOICES_MAX,
    DEFAULTED,
    MINUTES_MAX,
    NOTE_CHARACTERS,
    QUESTION_CHARACTERS,
    Question,
)
from multi_agent_mcp.domain.text import one_line
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import InvalidArguments, Unauthorized
from multi_agent_mcp.services.validation import require_text, require_words, words_or_none

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.questions.effects import QuestionEffects
    from multi_agent_mcp.services.team.agents import Agents
    from multi_agent_mcp.store.workspace import Workspace

PAGE = 200


@dataclass(frozen=True, kw_only=True)
class Asking:
    """A question as its asker gives it. `to_id` None means the nearest superior; `minutes` is the time to answer."""

    question: str
    to_id: str | None = None
    choices: Sequence[str] = ()
    default: str | None = None
    minutes: float | None = None
    park: bool = False

    def require_sound(self) -> None:
        """Raises `InvalidArguments` for what could not be shown, chosen or awaited."""
        _require_size("question", self.question, QUESTION_CHARACTERS)
        if len(self.choices) > CHOICES_MAX or len(set(self.choices)) < len(self.choices):
            raise InvalidArguments("bad_choices", most=CHOICES_MAX)
        for choice in self.choices:
            _require_size("choices", choice, CHOICE_CHARACTERS)
            if one_line(choice) != choice:
                raise InvalidArguments("choice_hidden")
        if self.default is not None and not self.choices:
            raise InvalidArguments("default_without_choices")
        if self.default is not None and self.default not in self.choices:
            raise InvalidArguments("default_no_choice", allowed=" / ".join(self.choices))
        if self.minutes is not None and not 0 < self.minutes <= MINUTES_MAX:
            raise InvalidArguments("bad_deadline", most=MINUTES_MAX)


@dataclass(eq=False)
class Questions:
    """The questions of one session."""

    workspace: Workspace
    agents: Agents
    effects: QuestionEffects
    audit: Callable[..., None]
    clock: Callable[[], datetime]

    def ask(self, asker: Agent, asking: Asking, task: Task | None) -> Question:
        """Asks a question about the asker's task in hand. One that is open already is not asked again: it is returned.
        Raises `InvalidArguments`, `AgentNotFound`, `AgentNotAssignedToProject`."""
        asking.require_sound()
        if asking.park and task is None:
            raise InvalidArguments("park_without_task")
        now = self.clock()
        question = Question(
            id=new_id("qst"),
            asker_id=asker.id,
            to_id=self._addressee(asker, asking.to_id).id,
            task_id=None if task is None else task.id,
            park=asking.park,
            choices=tuple(asking.choices),
            default=asking.default,
            deadline=None if asking.minutes is None else now + timedelta(minutes=asking.minutes),
            created_at=now,
            history=({"at": format_time(now), "by": asker.id, "status": [None, "open"]},),
            question=asking.question,
        )
        open_already = self.workspace.questions.open()
        known = next((found for found in open_already if found.park == question.park and found.repeats(question)), None)
        if known is None:
            known = self.workspace.questions.add(question)
            self.audit("ask", agent_id=asker.id, question_id=known.id, to_id=known.to_id, task_id=known.task_id)
        return self.effects.follow(known, acting=True)

    def answer(self, actor: Agent, question_id: str, answer: str, note: str | None = None) -> Question:
        """Answers a question; of several answers at once one wins. Raises `QuestionNotFound`, `QuestionClosed`,
        `Unauthorized` unless the actor is the addressee or its superior, and `InvalidArguments`."""
        note = _sound_note(note)
        question = self.get(question_id)
        if actor.id != question.to_id and not self._is_above(actor.id, question.to_id):
            raise Unauthorized("not_addressee", question_id=question.id, agent_id=question.to_id)
        question.require_open()
        _require_size("answer", answer, QUESTION_CHARACTERS)
        return self._settle(question, lambda found: found.answered(actor.id, self.clock(), answer, note), actor)

    def withdraw(self, actor: Agent, question_id: str, note: str | None = None) -> Question:
        """Takes a question back. Raises `QuestionNotFound`, `QuestionClosed`, and `Unauthorized` unless the actor has
        asked it."""
        note = _sound_note(note)
        question = self.get(question_id)
        if actor.id != question.asker_id:
            raise Unauthorized("not_asker", question_id=question.id, agent_id=question.asker_id)
        return self._settle(question, lambda found: found.withdrawn(actor.id, self.clock(), note=note), actor)

    def get(self, question_id: object) -> Question:
        """The question with this id. Raises `InvalidId` or `QuestionNotFound`."""
        return self.workspace.questions.get(entity_id("qst", question_id))

    def owed_by(self, agent_id: str) -> list[Question]:
        """The open questions to an agent, those with the earliest deadline first."""
        self.effects.look()
        return [question for question in self.open() if question.to_id == agent_id]

    def of_person(self, person_id: str) -> list[Question]:
        """The open questions to a person, and the overdue ones that the person is told of, in the same order."""
        owed, now = self.owed_by(person_id), self.clock()
        overdue = (question for question in self.open() if question.is_due(now) and question not in owed)
        return [*owed, *(question for question in overdue if self.effects.told_of_overdue(question) == person_id)]

    def asked_by(self, agent_id: str) -> list[Question]:
        """The open questions of an agent, in the same order."""
        return [question for question in self.open() if question.asker_id == agent_id]

    def open(self) -> list[Question]:
        """The open questions, those with the earliest deadline first."""
        return list(self.workspace.questions.open_in_order())

    def about(self, task_id: str) -> list[Question]:
        """All questions about a task, oldest first."""
        found = [question for question in self.open() if question.task_id == task_id]
        return sorted([*found, *self.workspace.questions.closed(group=task_id)], key=age)

    def listed(
        self, *, to_id: str | None = None, asker_id: str | None = None, only_open: bool = False, limit: int
    ) -> tuple[list[Question], bool]:
        """Questions to and from these agents: open ones first, then those settled last; and whether there are more."""
        self.effects.look()
        questions = self.open() if only_open else chain(self.open(), self._settled())
        wanted = (
            question
            for question in questions
            if to_id in (None, question.to_id) and asker_id in (None, question.asker_id)
        )
        found = list(islice(wanted, limit + 1))
        return found[:limit], len(found) > limit

    def _settled(self) -> Iterator[Question]:
        """The settled questions, those settled last first, read as far as they are wanted."""
        for offset in count(0, PAGE):
            page = self.workspace.questions.closed(offset=offset, limit=PAGE)
            yield from page
            if len(page) < PAGE:
                return

    def _settle(self, question: Question, change: Callable[[Question], Question], actor: Agent) -> Question:
        def settled(found: Question) -> Question:
            advanced = self.effects.advanced(found)  # its deadline may have passed while nobody looked
            return advanced if advanced.status == DEFAULTED else change(advanced)

        done = self.workspace.questions.update(question.id, settled)
        self.effects.follow(done, acting=True)
        if done.status == DEFAULTED:
            done.require_open()
        self.audit("answer_question", agent_id=actor.id, question_id=done.id, status=done.status, to_id=done.to_id)
        return done

    def _addressee(self, asker: Agent, to_id: str | None) -> Agent:
        if to_id is None:
            superior = nearest_superior(asker.id, self.agents.all())
            if superior is None:
                raise InvalidArguments("nobody_to_ask")
            return superior
        target = self.agents.participant(to_id)
        if target.id == asker.id:
            raise InvalidArguments("to_oneself")
        return target

    def _is_above(self, agent_id: str, of: str) -> bool:
        return of in self.agents.registry.all() and is_superior(agent_id, of, self.agents.registry.all())


def as_answer(question: Question) -> dict[str, Any]:
    """A question for people and programs, with its whole history."""
    told = {name: value for name, value in as_json(question).items() if name != "id"}
    return {"question_id": question.id, **told, "question": question.question, "note": question.note}


def _require_size(name: str, text: str, most: int) -> None:
    require_text(name, text)
    require_words(name, text)
    if len(text) > most:
        raise InvalidArguments("too_long", name=name, limit=most)


def _sound_note(note: str | None) -> str | None:
    note = words_or_none("note", note)
    if note is not None:
        _require_size("note", note, NOTE_CHARACTERS)
    return note
