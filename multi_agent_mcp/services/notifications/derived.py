"""Notifications that follow from the files of tasks, delegations and entities of other kinds, and from nothing else
(docs/protocol.md, Notifications).

So no change is left without its notifications: if the writer of such a file was killed before it had written them, the
next reader writes the same ones; those whose cause is over are ended, that is, marked read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

from multi_agent_mcp.domain.history import old_value
from multi_agent_mcp.domain.notification import (
    OF_DELEGATION,
    OF_TASK,
    PAUSING,
    REVIEW_REQUESTED,
    TASK_ASSIGNED,
    TASK_BLOCKED,
    TASK_WITHDRAWN,
    Following,
    Notification,
    announcement_of,
    arrival_of,
    assignment_of,
    following,
    interrupt_of,
    owed_withdrawal,
    rejection_of,
    tells,
    told_of_block,
    update_of,
    was_reopened,
    withdrawal_of,
)
from multi_agent_mcp.domain.proof import REVIEW, reviewer_of, reviews_in
from multi_agent_mcp.domain.stuck import AGENT_STUCK
from multi_agent_mcp.domain.task import UNASSIGNED, WITH_ASSIGNEE, Task
from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.features import attempted, load
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.inbox import file_name
from multi_agent_mcp.store.partition import WHOLE

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.message import Delegation
    from multi_agent_mcp.domain.notification import Rules
    from multi_agent_mcp.features import Kind
    from multi_agent_mcp.services.notifications.writing import Interrupts, NoticeWriter
    from multi_agent_mcp.store.collection import Collection as Entities
    from multi_agent_mcp.store.directory import Directory

logger = logging.getLogger(__name__)


class Checked(NamedTuple):
    """A task whose notifications were ensured. It need not be examined again while the index returns the same objects
    for the task and its dependencies, and its notifications are known to be written."""

    task: Task
    awaited: tuple[Task | None, ...]
    notices: frozenset[str]


class Judgement(NamedTuple):
    """Whether a notification applies. That stays so while the agents and the directories at `places` are as they were;
    None: it depends on more."""

    applies: bool
    places: tuple[Directory[Any], ...] | None


@dataclass(eq=False)
class DerivedNotices(Service):
    """Writes the notifications of tasks and delegations, repairs missing ones, and tells which still apply."""

    writer: NoticeWriter
    interrupts: Interrupts
    last_activity: Callable[[str], datetime | None]
    """The time of an agent's last call."""
    _looked_at: dict[str, dict[Directory[Any], int]] = field(default_factory=dict, init=False)
    """By agent, the versions of the directories at the last `repair`. That it was done is no value for a `Memory`; and
    which directories count is known only from the tasks."""
    _written: set[str] = field(default_factory=set, init=False)
    _checked: dict[str, dict[str, Checked]] = field(default_factory=dict, init=False)
    _checked_for: Mapping[str, Agent] | None = field(default=None, init=False)

    def ensure(self, task: Task) -> list[Notification]:
        """Writes the task's present notifications, unless they exist (even read and archived). Returns them, possibly
        without those that this process wrote before."""
        return [self._put(notice) for notice in self._of(task, self._written)]

    def missing(self, task: Task) -> list[Notification]:
        """The task's present notifications that do not exist, even if this process wrote them; changes no file."""
        lacking = [notice for notice in self._of(task, written=()) if not self.writer.is_there(notice)]
        self._written.difference_update(notice.id for notice in lacking)
        return lacking

    def announced(self, task: Task) -> list[Notification]:
        """The unread notifications by which its assignee hears of a task; changes no file."""
        mine = self.waiting(task.assignee_id) if task.assignee_id is not None else []
        return [notice for notice in mine if notice.action == TASK_ASSIGNED and notice.task_id == task.id]

    def tell_delegation(self, delegation: Delegation) -> None:
        """As `tell`, for a delegation."""
        try:
            for notice in following(OF_DELEGATION, delegation, self.workspace.registry.all()):
                self._put_once(notice)
        except Refusal as refusal:
            logger.warning("a delegation is not told yet: %s", refusal)

    # The order in which this looks is what makes it safe:
    #
    # 1. The versions of the directories are noted before their entities are judged. What changes meanwhile has another
    #    version, so the next call looks again; noted afterwards, it would be taken for judged.
    # 2. What follows is written before the versions are kept, and before anything is marked read. They are kept in this
    #    process alone: killed anywhere, it leaves no note, the next one does all of it again, and everything done twice
    #    has no further effect.
    # 3. Whether a notification follows still is judged by files that are read after it was found (`applies`): so the
    #    tasks are read again for that. One that was handed over since, or blocked, may be what it is about.
    def repair(self, agent_id: str) -> None:
        """Ensures what follows for an agent from its tasks and delegations, from questions and from entities of other
        packages, and ends what is obsolete. While nothing changes, this costs a stat(2) for the registry, their
        directories, and each directory with a dependency of its tasks or a task that a question is about."""
        self.contributions.tell("looked")
        if self.ensure_all(agent_id):
            self.end(agent_id)

    def ensure_all(self, agent_id: str) -> bool:
        """Ensures what follows for an agent, but from questions; returns whether something may have changed."""
        with self.workspace.tasks.read_once():
            if self.is_repaired(agent_id):
                return False
            agents, workspace = self.workspace.registry.all(), self.workspace
            if agents is not self._checked_for:  # somebody else may be told, as a reviewer was removed
                self._looked_at.clear()
                self._checked.clear()
                self._checked_for = agents
            others = {_place(workspace.collection(kind), agent_id): rules for kind, rules in self._others}
            mine = workspace.tasks.directory(agent_id)
            places: list[Directory[Any]] = [mine, workspace.questions.whole.home, *others]
            seen = {directory: directory.looked() for directory in places}
            tasks = [task for _, task in mine.entities()]
            still_open = self._unfinished(tasks)
            for awaited in still_open.values():
                directory = workspace.tasks.directory(awaited.assignee_id or UNASSIGNED)
                seen.setdefault(directory, directory.looked())
            entities = [(rules, entity) for place, rules in others.items() for _, entity in place.entities()]
        self._check(agent_id, tasks, still_open)
        for rules, entity in entities:
            for notice in following(rules, entity, agents):
                if notice.target_agent_id == agent_id:
                    self._put_once(notice)
        self._looked_at[agent_id] = seen
        return True

    def is_repaired(self, agent_id: str) -> bool:
        """Whether nothing that `repair` judges has changed since it did so for this agent."""
        seen = self.judged(agent_id, self.workspace.registry.all())
        return seen is not None and all(directory.looked() == version for directory, version in seen.items())

    def judged(self, agent_id: str, agents: Mapping[str, Agent]) -> Mapping[Directory[Any], int] | None:
        """The versions of the directories as they were at the last `repair` for this agent, among these agents; None if
        there was none."""
        return self._looked_at.get(agent_id) if self._checked_for is agents else None

    def _unfinished(self, tasks: Iterable[Task]) -> dict[str, Task]:
        """The tasks that these depend on and that are not done yet."""
        awaited = {key for task in tasks for key in task.dependencies}
        if not awaited:
            return {}
        return {task.id: task for task in self.workspace.tasks.open() if task.id in awaited and task.status != "done"}

    def _check(self, agent_id: str, tasks: Iterable[Task], still_open: Mapping[str, Task]) -> None:
        """Ensures the notifications of those tasks that have changed, or whose dependencies have, since last time."""
        worked_on = {execution.task_id for execution in self.workspace.executions.open(agent_id)}
        before, now = self._checked.get(agent_id, {}), {}
        for task in tasks:
            awaited = tuple(map(still_open.get, task.dependencies))
            known = before.get(task.id)
            if known is None or not self._is_as_before(known, task, awaited):
                waits = any(awaited) and task.status in ("todo", "backlog")  # then it has no notifications yet
                known = Checked(
                    task, awaited, frozenset(() if waits else map(self._put_once, self._of(task, self._written)))
                )
            if task.id not in worked_on:
                now[task.id] = known
        self._checked[agent_id] = now

    def _is_as_before(self, known: Checked, task: Task, awaited: tuple[Task | None, ...]) -> bool:
        return known.task is task and all(map(is_, known.awaited, awaited)) and known.notices <= self._written

    def tell(self, tasks: Iterable[Task]) -> None:
        """As `ensure`, for several tasks, but never raises: the next reader tries again."""
        try:
            notices = {notice.id: notice for task in tasks for notice in self._of(task, self._written)}
            self.writer.put_all((notice, text_of(notice)) for notice in notices.values())
            self._written.update(notices)
        except Refusal as refusal:
            logger.warning("not everybody who must be notified of a task has been: %s", refusal)

    def follow_up(self, *tasks: Task) -> None:
        """Writes the notifications of changed tasks and of tasks that depended on them, and ends the changed tasks'
        earlier ones."""
        self.contributions.tell("task_changed", tasks)
        done = {task.id for task in tasks if task.status == "done"}
        for task in tasks:
            if task.id in done:
                self.contributions.tell("task_done", task)
        self.tell([*tasks, *(self._waiting_for(done) if done else ())])
        agents = self.workspace.registry.all()
        concerned = {name for task in tasks for name in (task.assignee_id or "", *told_of_block(task, agents))}
        concerned.update(name for task in tasks for name in self._former_reviewers(task))
        for agent_id in concerned & self.workspace.registry.active().keys():
            self.end(agent_id, about={task.id for task in tasks})
        if self.workspace.authority.here is not None:  # else when the agent's next session begins
            with suppress(Refusal):  # other machines have archived it
                for task in (task for task in tasks if task.final):
                    self.workspace.tasks.put_away(task.id)
        self._follow_any_questions()

    def _follow_any_questions(self) -> None:
        """Follows the questions, unless there are none, open or closed: then the next `repair` is early enough."""
        with suppress(Refusal):  # what cannot be read is logged there
            if not self.workspace.questions.whole.home.entities():
                return
        self.contributions.tell("looked")

    def hand_over(self) -> None:
        """Tells those who take over what an agent that was just removed had to do: reviews, and answers."""
        self.tell(task for task in self.workspace.tasks.open() if task.status == "review")
        self.contributions.tell("looked")

    def end_former(self, task: Task) -> None:
        """Ends a task's notifications for its former assignees: another machine may have reassigned it."""
        former = [old_value(line, "assignee_id") for _, line in task.history.at_hand()]
        for agent_id in self.workspace.registry.active().keys() & set(map(str, former)):
            self.end(agent_id, about={task.id})

    def offer_again(self, agent_id: str) -> None:
        """Makes the assignments that an agent has read unread again while it has not begun those tasks: the session
        that read them is over, and nobody would be rung about them any more. Never raises, like `end`."""
        try:
            inbox = self.workspace.notices(agent_id)
            waiting = [task for task in self.workspace.tasks.open(agent_id) if task.status == "todo"]
            with self.workspace.locks.held(inbox.lock):
                inbox.bring_back({arrival.notice_id for arrival in map(arrival_of, waiting) if arrival is not None})
        except Refusal as refusal:
            logger.warning("tasks of %s that nobody has begun are not announced again: %s", agent_id, refusal)

    def end_superseded(self, by: Notification) -> None:
        """Ends what a notification that just arrived supersedes, or that one if it does not apply."""
        if by.action in PAUSING or not self.applies(by):
            self.end(by.target_agent_id)

    def end(
        self,
        agent_id: str,
        *,
        taken_up: Task | None = None,
        handed_out: bool = False,
        about: Collection[str] | None = None,
    ) -> None:
        """Marks read an agent's notifications that do not apply any more, and those of the task's content and
        assignment that the agent has `taken_up` with this version of it, of those with a reason only if it was
        `handed_out` with that (`words_with`); with `about`, only those about the tasks with
        these ids. Never raises: such notifications are not shown anyway, and the next reader tries again. Those of an
        agent with another home are that machine's to end."""
        try:
            if self.workspace.elsewhere(self.workspace.registry.all().get(agent_id)) is not None:
                return
            inbox = self.workspace.notices(agent_id)
            told = set() if taken_up is None else _ids_told_by(taken_up, handed_out=handed_out)
            if self._over(agent_id, told, about):
                with self.workspace.locks.held(inbox.lock):
                    self.workspace.files.looks.again()
                    inbox.end(self._over(agent_id, told, about), self.clock())
                    self.workspace.files.looks.again()
        except Refusal as refusal:
            logger.warning("notifications of %s that are over are not marked read yet: %s", agent_id, refusal)

    def end_these(self, notices: Iterable[Notification]) -> None:
        """As `end`, for notifications whose cause is known to be over."""
        here = {agent.id for agent in self.workspace.registry.active().values() if self.workspace.is_here(agent)}
        try:
            for notice in (notice for notice in notices if notice.target_agent_id in here):
                inbox = self.workspace.notices(notice.target_agent_id)
                with self.workspace.locks.held(inbox.lock):
                    inbox.end([file_name(notice)], self.clock())
        except Refusal as refusal:
            logger.warning("notifications that are over are not marked read yet: %s", refusal)

    def waiting(self, agent_id: str) -> list[Notification]:
        """The unread notifications of an agent that still apply, for sessions of either purpose. Writes nothing."""
        return [notice for _, notice in self.workspace.notices(agent_id).unread() if self.applies(notice)]

    def applies(self, notice: Notification) -> bool:
        """Whether a notification is still to be shown: not when its cause is over or has recurred since.

        Judged by files that are read after the notification was found, never by what a caller has written: since then
        another process may have changed them, and the notification may be about that."""
        return self.judge(notice).applies

    def judge(self, notice: Notification) -> Judgement:
        """As `applies`, with the directories that this depends on."""
        agents = self.workspace.registry.all()
        if notice.target_agent_id not in agents or (notice.sender_id or notice.target_agent_id) not in agents:
            return Judgement(True, ())  # written by a person: it may name anything as an agent
        if notice.action == AGENT_STUCK:
            return Judgement(self._is_stuck(notice), None)
        if (known := self._rules.get(notice.action or "")) is None:
            return Judgement(True, ())  # it follows from nothing that could change
        kind, rule = known
        if rule.feature and rule.feature not in self.session.features:
            return Judgement(False, ())  # it names a tool of that feature
        causes, places = self._causes(notice, kind, rule)
        return Judgement(causes is None or any(rule.is_cause(notice, cause, agents) for cause in causes), places)

    @cached_property
    def _kinds(self) -> list[tuple[Kind, Rules]]:
        """The kinds of entities from which something follows. Files of a feature that is off are still there."""
        kinds = (kind for feature in self.session.features.all for kind in feature.kinds if kind.follows)
        return [(kind, _of_other_package(kind.follows) if kind.entity else load(kind.follows)) for kind in kinds]

    @cached_property
    def _rules(self) -> Mapping[str, tuple[Kind, Following]]:
        """What follows from entities of all kinds, by the action of its notifications."""
        return {action: (kind, rule) for kind, rules in self._kinds for action, rule in rules.items()}

    @cached_property
    def _others(self) -> list[tuple[Kind, Rules]]:
        """The kinds other than tasks that say themselves what is to be written."""
        return [
            found for found in self._kinds if found[1] is not OF_TASK and any(rule.of for rule in found[1].values())
        ]

    def _causes(
        self, notice: Notification, kind: Kind, rule: Following
    ) -> tuple[Sequence[Any] | None, tuple[Directory[Any], ...] | None]:
        """The entities from which a notification may follow, and the directories where they were found (None: by more
        than those). No entities at all (None) if it names none, or one that is not here (yet)."""
        if kind.directory == "notifications":
            place: Directory[Any] = self.workspace.notices(notice.target_agent_id).hot
        else:
            collection: Entities[Any] = self.workspace.collection(kind)
            if not rule.from_all and hasattr(notice, field := f"{kind.name}_id"):
                return self._cause(collection, getattr(notice, field), notice)
            place = _place(collection, notice.target_agent_id)
        found = [entity for _, entity in place.entities()]
        return [found] if rule.from_all else found, (place,)

    def _cause(
        self, collection: Entities[Any], entity_id: str | None, notice: Notification
    ) -> tuple[Sequence[Any] | None, tuple[Directory[Any], ...] | None]:
        """The entity that a notification names: from the disk for an interrupt, else preferably from the index, because
        there may be many unread notifications."""
        if entity_id is None:
            return None, ()
        holder = notice.sender_id if notice.action in (TASK_BLOCKED, REVIEW_REQUESTED) else notice.target_agent_id
        partition = WHOLE if collection.layout.is_whole else holder
        if not notice.interrupts and partition is not None:
            indexed = collection.indexed(entity_id, partition)
            if indexed is not None:
                return [indexed], (collection.directory(partition),)
        found = collection.find(entity_id)
        return None if found is None else [found], None

    def pause_of(self, agent_id: str) -> Notification | None:
        """The agent's current pause, read or unread, or None."""
        newest = self.interrupts.newest_of_pausing(agent_id)
        return newest if newest is not None and newest.action == "pause" and self.applies(newest) else None

    def _is_stuck(self, notice: Notification) -> bool:
        """Whether the agent is still stuck: not if it has made a call since, or its task was reassigned or moved."""
        if (agent_id := notice.sender_id) is None:
            return True
        active_at = self.last_activity(agent_id)
        if active_at is not None and active_at > notice.created_at:
            return False
        task = self.workspace.tasks.indexed(notice.task_id, agent_id) if notice.task_id is not None else None
        if notice.task_id is None or task is None:
            return notice.task_id is None
        return task.status in WITH_ASSIGNEE and task.status_since <= notice.created_at

    def _over(self, agent_id: str, told: Collection[str], about: Collection[str] | None) -> list[str]:
        inbox = self.workspace.notices(agent_id)
        return [
            name
            for name, notice in inbox.unread_or_in_force()
            if about is None or notice.task_id in about
            if not self.applies(notice) or any(tells(notice.id, known) for known in told)
        ]

    def _put_once(self, notice: Notification) -> str:
        """Writes a notification unless it exists; returns its id. Most exist: they need no words."""
        if notice.id not in self._written:
            if self.writer.is_there(notice):
                self._written.add(notice.id)
            else:
                self._put(notice)
        return notice.id

    def _put(self, notice: Notification) -> Notification:
        written = self.writer.put(notice, text_of(notice))
        self._written.add(notice.id)
        return written

    def _of(self, task: Task, written: Collection[str]) -> Iterator[Notification]:
        """A task's present notifications that are owed; an assignment that is `written` is left out."""
        for notice in following(OF_TASK, task, self.workspace.registry.all()):
            owed: Notification | None = notice
            if notice.action == TASK_ASSIGNED:
                owed = self._assignment_of(task, written)
            elif notice.action == TASK_WITHDRAWN:
                owed = self._withdrawal_of(task)
            if owed is not None:
                yield owed

    # Why nobody who has read an announcement misses its withdrawal: a reader marks it read under the inbox's lock, and
    # judges within that lock whether it applies. Whoever asks here has written the task's change before, so the lock
    # comes to it either after such a reading, which it sees, or before it, and then the announcement applies no more.
    # Killed before it has asked, the next reader asks the same, as the announcement says whether it was handed out.
    def _withdrawal_of(self, task: Task) -> Notification | None:
        """The notification that a waiting task was blocked or cancelled, for an assignee that knows of the task."""
        agent = self.workspace.registry.active().get(task.assignee_id or "")
        if withdrawal_of(task) is None or agent is None or self.workspace.elsewhere(agent) is not None:
            return None  # of another machine's agent only that machine knows for certain what it has read
        inbox = self.workspace.notices(agent.id)
        with self.workspace.locks.held(inbox.lock):
            return owed_withdrawal(task, lambda notice_id: (found := inbox.find(notice_id)) and found[1])

    def is_untold(self, task: Task) -> bool:
        """Whether the agent that a blocked task was taken from has not read its interrupt yet."""
        stop = interrupt_of(task) if task.status == "blocked" else None
        if stop is None or stop.target_agent_id != task.assignee_id:
            return False
        return self.workspace.notices(stop.target_agent_id).any_unread(frozenset([stop.id]))

    def _assignment_of(self, task: Task, written: Collection[str]) -> Notification | None:
        """The task's assignment, or None; None, too, if it is `written` already, to save reading the dependencies."""
        arrival = arrival_of(task)
        if arrival is None or arrival.notice_id in written or self._has_execution(task):
            return None
        return assignment_of(task, {key: self._found(key) for key in task.dependencies})

    def is_begun(self, task: Task) -> bool:
        """Whether a task in progress is in its assignee's hands: it has begun it, rather than others moved it there."""
        return announcement_of(task) is None or self._has_execution(task)

    def _has_execution(self, task: Task) -> bool:
        """Whether the assignee is working on the task. A block ends that, even if its report is still awaited, as does
        its return to `todo`."""
        if task.status != "in_progress":
            return False
        running = self.workspace.executions.open(task.assignee_id)
        return any(item.task_id == task.id and not was_reopened(task, item.started_at) for item in running)

    def _found(self, task_id: str) -> Task | None:
        """The task, or None; None, too, for an id that is no file name, in a hand-written file."""
        with suppress(StorageError):
            return self.workspace.tasks.find(task_id)
        return None

    def _former_reviewers(self, task: Task) -> set[str]:
        """The agents that were asked to review a task, when its review has just ended or one of several was given."""
        _, line = task.latest("status") or (-1, {})
        if "review" not in (task.status, old_value(line, "status")):
            return set()
        agents = self.workspace.registry.all()
        asked = reviews_in(task.done_when) or [REVIEW]
        return {reviewer_of(condition, task.assignee_id or "", agents) or "" for condition in asked}

    def _waiting_for(self, done: Collection[str]) -> list[Task]:
        return [waiting for waiting in self.workspace.tasks.open() if not set(waiting.dependencies).isdisjoint(done)]


def _ids_told_by(task: Task, *, handed_out: bool) -> set[str]:
    """The ids of the notifications that tell an assignee nothing new once it has this version of the task."""
    arrival, told = arrival_of(task), [update_of(task), rejection_of(task) if handed_out else None]
    return {*([arrival.notice_id] if arrival else []), *(notice.id for notice in told if notice is not None)}


def _of_other_package(where: str) -> Rules:
    """The rules of a kind of another package. Where one fails, nothing follows, and what was written stays."""

    def guarded(rule: Following) -> Following:
        def of(entity: Any, agents: Mapping[str, Agent]) -> list[Notification | None]:
            nothing: list[Notification | None] = []
            return attempted(where, lambda: [*(rule.of(entity, agents) if rule.of is not None else ())], nothing)

        def stands(notice: Notification, entity: Any, agents: Mapping[str, Agent]) -> bool:
            return attempted(where, lambda: rule.is_cause(notice, entity, agents), otherwise=True)

        return Following(of, stands, rule.from_all)

    rules: Rules = attempted(where, lambda: load(where), {})
    return {action: guarded(rule) for action, rule in rules.items()}


def _place(collection: Entities[Any], agent_id: str) -> Directory[Any]:
    """Where the open entities are that concern an agent: all of a kind that is not parted by agents."""
    return collection.directory(WHOLE if collection.layout.is_whole else agent_id)


def text_of(notice: Notification) -> str:
    """The key of the texts of a notification that follows from a task or a delegation."""
    kind = "interrupt" if notice.interrupts else "notice"
    return f"{kind}.{notice.action}"
