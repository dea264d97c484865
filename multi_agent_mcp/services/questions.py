"""Asking, answering, taking back and listing questions, and what follows from them (docs/protocol.md, Questions)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import WHOEVER, Agent, is_superior, nearest_superior, superiors
from multi_agent_mcp.domain.entity import age, as_json, entity_id, is_name, new_id
from multi_agent_mcp.domain.notification import ASKED, DEADLOCK
from multi_agent_mcp.domain.question import (
    CHOICE_CHARACTERS,
    CHOICES_MAX,
    DEFAULTED,
    MINUTES_MAX,
    NOTE_CHARACTERS,
    QUESTION_CHARACTERS,
    WITHDRAWN,
    Question,
    answered_notice,
    asked_notice,
    cycles,
    deadlock_notice,
    is_over_for,
    is_parked_by,
    overdue_notice,
    parked,
    unparked,
)
from multi_agent_mcp.domain.text import QUOTED_CHARACTERS, looks, one_line, quoted
from multi_agent_mcp.domain.times import format_time, parse_time
from multi_agent_mcp.errors import InvalidArguments, Refusal, StorageError, Unauthorized
from multi_agent_mcp.services.validation import require_text, require_words, words_or_none
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.domain.notification import Notification
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.team.agents import Agents
    from multi_agent_mcp.store.directory import Directory

logger = logging.getLogger(__name__)

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
            if one_line(choice) != choice or not looks(choice):
                raise InvalidArguments("choice_hidden")
        seen: dict[str, str] = {}
        for choice in self.choices:
            if (twin := seen.setdefault(looks(choice), choice)) is not choice:
                raise InvalidArguments("choices_alike", first=f"{twin!a:.80}", second=f"{choice!a:.80}")
        if self.default is not None and not self.choices:
            raise InvalidArguments("default_without_choices")
        if self.default is not None and self.default not in self.choices:
            raise InvalidArguments("default_no_choice", allowed=" / ".join(self.choices))
        if self.minutes is not None and not 0 < self.minutes <= MINUTES_MAX:
            raise InvalidArguments("bad_deadline", most=MINUTES_MAX)


@dataclass(eq=False)
class Questions(Service):
    """The questions of one session."""

    agents: Agents
    effects: QuestionEffects

    def still_open(self) -> list[str]:
        """The open questions."""
        return [question.id for question in self.workspace.questions.open()]

    def ask(self, asker: Agent, asking: Asking, task: Task | None) -> Question:
        """Asks a question about the asker's task in hand. One that is open already is not asked again: it is returned.
        Raises `InvalidArguments`, `AgentNotFound`, `AgentNotAssignedToProject`."""
        asking.require_sound()
        to_id = self._addressee(asker, asking.to_id)
        if asking.park and task is None:
            raise InvalidArguments("park_without_task")
        now = self.clock()
        question = Question(
            id=new_id("qst"),
            asker_id=asker.id,
            to_id=to_id,
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
            if to_id.startswith(WHOEVER):
                self.contributions.ask("offer_item", asker, to_id, question.id)
            known = self.workspace.questions.add(question)
            self.session.audit("ask", agent_id=asker.id, question_id=known.id, to_id=known.to_id, task_id=known.task_id)
        followed = self.effects.follow(known, acting=True)
        if not followed.to_id.startswith(WHOEVER) and not followed.park:
            return followed
        self.contributions.tell("waiting")
        return self.get(followed.id)

    def answer(self, actor: Agent, question_id: str, answer: str, note: str | None = None) -> Question:
        """Answers a question; of several answers at once one wins. Raises `QuestionNotFound`, `QuestionClosed`,
        `Unauthorized` unless the actor is the addressee or its superior (the asker's, while it waits for whoever is
        free), and `InvalidArguments`."""
        note = _sound_note(note)
        question = self.get(question_id)
        whose = question.asker_id if question.to_id.startswith(WHOEVER) else question.to_id
        if actor.id != question.to_id and not self._is_above(actor.id, whose):
            raise Unauthorized("not_addressee", question_id=question.id, agent_id=question.to_id)
        question.require_open()
        _require_size("answer", answer, QUESTION_CHARACTERS)
        return self._close(question, lambda found: found.answered(actor.id, self.clock(), answer, note), actor)

    def withdraw(self, actor: Agent, question_id: str, note: str | None = None) -> Question:
        """Takes a question back. Raises `QuestionNotFound`, `QuestionClosed`, and `Unauthorized` unless the actor has
        asked it."""
        note = _sound_note(note)
        question = self.get(question_id)
        if actor.id != question.asker_id:
            raise Unauthorized("not_asker", question_id=question.id, agent_id=question.asker_id)
        return self._close(question, lambda found: found.withdrawn(actor.id, self.clock(), note=note), actor)

    def get(self, question_id: object) -> Question:
        """The question with this id. Raises `InvalidId` or `QuestionNotFound`."""
        return self.workspace.questions.get(entity_id("qst", question_id))

    def owed_by(self, agent_id: str) -> list[Question]:
        """The open questions to an agent, those with the earliest deadline first."""
        self.effects.look()
        return [question for question in self.open() if question.to_id == agent_id]

    def of_person(self, person_id: str) -> list[Question]:
        """The open questions to a person, and the overdue ones that the person is notified of, in the same order."""
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
        """Questions to and from these agents: open ones first, then those closed last; and whether there are more."""
        self.effects.look()
        questions = self.open() if only_open else chain(self.open(), self._closed())
        wanted = (
            question
            for question in questions
            if to_id in (None, question.to_id) and asker_id in (None, question.asker_id)
        )
        found = list(islice(wanted, limit + 1))
        return found[:limit], len(found) > limit

    def _closed(self) -> Iterator[Question]:
        """The closed questions, those closed last first, read as far as they are wanted."""
        for offset in count(0, PAGE):
            page = self.workspace.questions.closed(offset=offset, limit=PAGE)
            yield from page
            if len(page) < PAGE:
                return

    def _close(self, question: Question, change: Callable[[Question], Question], actor: Agent) -> Question:
        def closed(found: Question) -> Question:
            advanced = self.effects.advanced(found)  # its deadline may have passed while nobody looked
            return advanced if advanced.status == DEFAULTED else change(advanced)

        done = self.workspace.questions.update(question.id, closed)
        self.effects.follow(done, acting=True)
        if done.status == DEFAULTED:
            done.require_open()
        self.session.audit(
            "answer_question", agent_id=actor.id, question_id=done.id, status=done.status, to_id=done.to_id
        )
        return done

    def _addressee(self, asker: Agent, to_id: str | None) -> str:
        if (to_id or "").startswith(WHOEVER) and self.contributions.ask("meant", asker, to_id) is not None:
            return str(to_id)
        if to_id is None:
            superior = nearest_superior(asker.id, self.agents.all())
            if superior is None:
                raise InvalidArguments("nobody_to_ask")
            return superior.id
        target = self.agents.participant(to_id)
        if target.id == asker.id:
            raise InvalidArguments("to_oneself")
        return target.id

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


# What follows from questions: who is notified, the asker's parked task, deadlines, circles (docs/protocol.md,
# Questions).
#
# All of it follows from the questions' files, so that any process can carry on where another was killed. A closed
# question stays where open ones are until its asker is notified; so whoever looks there sees all that is left to do.

QUESTION_CHARACTERS_SHOWN = 1_000
"""How much of a question its addressee's notification shows; `get_next_action` hands it out whole."""


@dataclass(eq=False)
class QuestionEffects(Service):
    """Carries out what follows from the questions of one session. Everything done twice has no further effect."""

    derived: DerivedNotices
    _told: set[str] = field(default_factory=set, init=False)
    _parked: set[str] = field(default_factory=set, init=False)
    _seen: Mapping[Directory[Any], int] | None = field(default=None, init=False)
    """The versions of the directories when all questions were followed; as `DerivedNotices` notes it, no `Memory`."""
    _seen_agents: Mapping[str, Agent] | None = field(default=None, init=False)
    _next_deadline: datetime | None = field(default=None, init=False)

    def look(self) -> None:
        """As `follow_all`; costs a few stat(2) while nothing has changed and no deadline has passed."""
        with suppress(Refusal):  # what cannot be read is logged there
            if self.is_as_seen():
                return
        self.follow_all()

    def follow_all(self) -> None:
        """Follows every question that is open, or closed and not archived. Never raises: the next look tries again."""
        try:
            self._follow(*self._found())
        except Refusal as refusal:
            logger.warning("questions could not be followed: %s", refusal)

    def next_deadline(self) -> datetime | None:
        """When something is to be done although no file changes; None if never."""
        return self._next_deadline

    def judged(self, agents: Mapping[str, Agent]) -> Mapping[Directory[Any], int] | None:
        """The versions of the directories as they were when all questions were followed, for these agents; None if they
        were not."""
        return self._seen if self._seen_agents is agents else None

    def follow(self, question: Question, *, acting: bool = False) -> Question:
        """Does what follows from this question now, and returns it as it is then. Agents of other machines are told
        there, unless this process is `acting`: it has just asked or answered. Raises `StorageError`."""
        if self.advanced(question) is not question:
            question = self.workspace.questions.update(question.id, self.advanced)
        if question.closed:
            self._finish(question, acting=acting)
        else:
            self._await_answer(question, acting=acting)
        return question

    def is_as_seen(self) -> bool:
        """Whether nothing has changed, and no deadline has passed, since all questions were followed."""
        if self._seen is None or self.workspace.registry.all() is not self._seen_agents:
            return False
        if self._next_deadline is not None and self._next_deadline <= self.clock():
            return False
        return all(directory.looked() == version for directory, version in self._seen.items())

    def _found(self) -> tuple[Mapping[str, Agent], dict[Directory[Any], int], list[Question]]:
        """The team, the directories with their versions before the questions are followed, and the questions."""
        with self.workspace.files.looks.once():
            agents, home = self.workspace.registry.all(), self.workspace.questions.whole.home
            seen: dict[Directory[Any], int] = {home: home.looked()}
            questions = [question for _, question in home.entities()]
            for asker_id in {question.asker_id for question in questions if question.task_id} & agents.keys():
                directory = self.workspace.tasks.directory(asker_id)
                seen[directory] = directory.looked()
            return agents, seen, questions

    def _follow(
        self, agents: Mapping[str, Agent], seen: Mapping[Directory[Any], int], questions: Iterable[Question]
    ) -> None:
        failed, followed = False, []
        for question in questions:
            try:
                followed.append(self.follow(question))
            except Refusal as refusal:
                failed = True
                logger.warning("the question %s could not be followed: %s", question.id, refusal)
        self._tell_of_circles(followed)
        now = self.clock()
        ahead = [found.deadline for found in followed if found.deadline and not found.closed and found.deadline > now]
        self._next_deadline = min(ahead, default=None)
        self._seen, self._seen_agents = None if failed else seen, agents

    def advanced(self, question: Question) -> Question:
        """The question after what happens to it by itself: its default is taken, its task is over, its asker or its
        addressee was removed. The same question if nothing has."""
        if question.closed:
            return question
        now, task = self.clock(), self._task(question)
        ended_at = _over_since(task) if task is not None and is_over_for(task, question) else None
        if question.is_due(now) and question.default is not None and (ended_at or now) >= (question.deadline or now):
            return question.defaulted()
        if ended_at is not None:
            return question.withdrawn(None, now, why="task_over")
        if self._is_removed(question.asker_id):
            return question.withdrawn(None, now, why="asker_removed")
        if not self._is_removed(question.to_id):
            return question
        heir = self._heir(question)
        return question.withdrawn(None, now, why="nobody_left") if heir is None else question.readdressed(heir, now)

    def _heir(self, question: Question) -> str | None:
        """The agent that answers for one that was removed: the nearest one above it that is not the asker."""
        agents = self.workspace.registry.all()
        found = nearest_superior(question.to_id, agents)
        if found is not None and found.id == question.asker_id:
            found = nearest_superior(found.id, agents)
        return None if found is None else found.id

    def _is_removed(self, agent_id: str) -> bool:
        agent = self.workspace.registry.all().get(agent_id)
        return agent is not None and agent.removed

    def _await_answer(self, question: Question, *, acting: bool) -> None:
        if question.park and question.id not in self._parked:
            self._park(question)
        self._tell(asked_notice(question), question, acting=acting)
        if question.is_due(self.clock()):
            self._tell(overdue_notice(question, self.told_of_overdue(question)), question, acting=acting)

    def _park(self, question: Question) -> None:
        if self._task(question) is not None:
            excerpt = quoted(question.question)
            reason = self.texts("question.parked", question_id=question.id, to_id=question.to_id, question=excerpt)
            self.workspace.tasks.update(str(question.task_id), lambda task: parked(task, question, reason))
        self._parked.add(question.id)

    def _finish(self, question: Question, *, acting: bool) -> None:
        """Hands the task back, tells the asker, and archives the question: in this order, so that an archived question
        has nothing left to do."""
        task = self._task(question) if question.park else None
        if task is not None and is_parked_by(task, question):
            came_back = self.workspace.tasks.update(task.id, lambda found: unparked(found, question))
            self.derived.tell([came_back])
        if (notice := answered_notice(question)) is not None:
            self._tell(notice, question, acting=acting)
        self.workspace.questions.retire(question.id)
        self.derived.end_these([asked_notice(question), overdue_notice(question, self.told_of_overdue(question))])
        self._parked.discard(question.id)

    def release(self, task: Task, question_id: str) -> None:
        """Hands back a task that waits for a question which is not open any more, or whose file is lost."""
        asker_id = task.assignee_id or task.created_by
        lost = Question(id=question_id, asker_id=asker_id, answered_at=self.clock())
        question = self.workspace.questions.find(question_id) or lost
        self.derived.tell([self.workspace.tasks.update(task.id, lambda found: unparked(found, question))])

    def told_of_overdue(self, question: Question) -> str:
        """The addressee's nearest superior, else the asker."""
        with suppress(Refusal):  # an unknown agent, or a broken hierarchy
            for superior in superiors(question.to_id, self.workspace.registry.all()):
                if not superior.removed:
                    return superior.id
        return question.asker_id

    def _tell_of_circles(self, questions: Iterable[Question]) -> None:
        waiting = [question for question in questions if question.park and not question.closed]
        for circle in cycles(waiting):
            if all((task := self._task(question)) and is_parked_by(task, question) for question in circle):
                names = [*(question.asker_id for question in circle), circle[0].asker_id]
                for told in self.concerned(names):
                    notice = replace(deadlock_notice(circle, told), reason=" → ".join(names))
                    self._tell(notice, circle[0], acting=False)

    def concerned(self, names: Iterable[str]) -> list[str]:
        """These agents, and the nearest superiors of any that are not among them."""
        agents, known = self.workspace.registry.all(), dict.fromkeys(names)
        above = (nearest_superior(name, agents) for name in known)
        return list(known | dict.fromkeys(agent.id for agent in above if agent is not None))

    def _tell(self, notice: Notification, question: Question, *, acting: bool) -> None:
        """Writes a notification once, and rings."""
        target = self.workspace.registry.active().get(notice.target_agent_id)
        if notice.id in self._told or target is None or not (acting or self.workspace.is_here(target)):
            return
        self.derived.writer.put(self._worded(notice, question))
        self._told.add(notice.id)

    def _worded(self, notice: Notification, question: Question) -> Notification:
        key = f"notice.{notice.action}"
        if notice.action == DEADLOCK:
            return self.derived.writer.worded(notice, key)
        facts = {
            "question_id": question.id,
            "asker_id": question.asker_id,
            "to_id": question.to_id,
            "answer": quoted(question.answer or ""),
            "by": question.answered_by or "-",
        }
        excerpt = quoted(question.question, QUOTED_CHARACTERS if question.closed else QUESTION_CHARACTERS_SHOWN)
        message = f"{key}.{question.status}" if question.status in (DEFAULTED, WITHDRAWN) else f"{key}.message"
        wanted = "choose" if question.choices and f"{key}.choose" in self.texts else "instruction"
        task = self._task(question) if notice.action == "answered" else None
        wanted = "blocked" if task is not None and task.status == "blocked" else wanted
        wanted = "again" if question.status == WITHDRAWN else wanted
        return replace(
            notice,
            choices=question.choices if notice.action == ASKED and question.choices else None,
            message=self.texts(message, question=excerpt, **facts),
            instruction=self.texts(f"{key}.{wanted}", **facts),
        )

    def _task(self, question: Question) -> Task | None:
        """The question's task; None without one, or if it is not here (yet)."""
        if question.task_id is None:
            return None
        if is_name(question.asker_id) and (found := self.workspace.tasks.indexed(question.task_id, question.asker_id)):
            return found
        with suppress(StorageError):
            return self.workspace.tasks.find(question.task_id)
        return None


def _over_since(task: Task) -> datetime:
    """When the task ended, or went to another agent."""
    if task.final:
        return task.status_since
    _, line = task.latest("assignee_id") or (-1, {})
    return parse_time(line.get("at")) or task.updated_at
