"""Tasks and their transitions (docs/protocol.md, Tasks; docs/format.md, Entities).

A transition returns a new task with a line more in its history and does no I/O; one that is not allowed raises
`InvalidStatusTransition` or `Unauthorized`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from graphlib import CycleError, TopologicalSorter
from typing import Any, ClassVar, Literal, get_args

from multi_agent_mcp.domain.agent import Agent, is_superior
from multi_agent_mcp.domain.entity import EPOCH, ITEM, Identified
from multi_agent_mcp.domain.history import Change, History, Line, new_value, old_value
from multi_agent_mcp.domain.proof import REVIEW, checks_in, commit_in, how_proven, is_review
from multi_agent_mcp.domain.text import quoted
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import AlreadyExists, InvalidArguments, InvalidStatusTransition, NotProven, Unauthorized

TITLE_CHARACTERS = 500


TaskStatus = Literal["backlog", "todo", "in_progress", "blocked", "review", "done", "cancelled"]
TaskPriority = Literal["low", "medium", "high", "urgent"]
ReportStatus = Literal["completed", "failed"]

TASK_STATUSES: tuple[str, ...] = get_args(TaskStatus)
TASK_PRIORITIES: tuple[str, ...] = get_args(TaskPriority)
FINAL = frozenset({"done", "cancelled"})
_PRIORITY_RANKS = {priority: rank for rank, priority in enumerate(TASK_PRIORITIES)}
_STATUS_RANKS = {
    status: rank
    for rank, status in enumerate(("in_progress", "review", "blocked", "todo", "backlog", "done", "cancelled"))
}
REFUSED = "refused"
"""The key of a history entry that holds the reason why a report was not applied."""
SUPERSEDED = "report_superseded"
"""The reason why a report was not applied that is older than what was done with the task since."""
PROOF = "proof"
"""The key of a history entry that holds why a task with conditions became done."""
BROUGHT_BY = "brought_by"
"""The key of a history entry that holds the id of the message that assigned the task."""
WITH_ASSIGNEE = frozenset({"todo", "in_progress"})
"""The statuses in which it is the assignee's turn."""
CLAIMABLE = frozenset({"backlog", "todo"})
"""The statuses in which an unassigned task can be claimed."""
INTERRUPT_ACTIONS: Mapping[str, str] = {"blocked": "blocked", "cancelled": "cancel"}
INTERRUPT, INTERRUPTED = "interrupt_id", "interrupted"
"""The keys of a history entry that stopped somebody's work: the id of the interrupt, and whom it stopped."""
UNASSIGNED = "_unassigned"
"""What stands for nobody where an assignee is named: no agent's id."""

TRANSITIONS: Mapping[str, tuple[str, ...]] = {
    "backlog": ("todo", "cancelled"),
    "todo": ("in_progress", "backlog", "blocked", "cancelled"),
    "in_progress": ("review", "done", "blocked", "todo", "cancelled"),
    "blocked": ("in_progress", "todo", "cancelled"),
    "review": ("done", "in_progress", "blocked", "cancelled"),
    "done": (),
    "cancelled": (),
}


def checklist_item(written: Any) -> Mapping[str, Any]:
    """Converts a possibly hand-written value to an item of a checklist; unknown keys stay."""
    item = written if isinstance(written, Mapping) else {"text": written}
    text = item.get("text")
    completed = str(item.get("completed")).lower() in {"true", "yes", "1"}
    return {**item, "text": "" if text is None else str(text), "completed": completed}


def history_entry(written: Any) -> Mapping[str, Any]:
    """Converts a possibly hand-written value to a line of the history; anything but a mapping is kept as `text`."""
    return written if isinstance(written, Mapping) else {"text": str(written)}


@dataclass(frozen=True, kw_only=True)
class Task(Identified):
    BODY: ClassVar[str | None] = "description"
    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"delivery", "traceparent", "reported_at", "base", "needs"})

    id: str
    title: str = ""
    status: str = "backlog"
    priority: str = "medium"
    assignee_id: str | None = None
    created_by: str = "unknown"
    parent_task_id: str | None = None
    dependencies: tuple[str, ...] = ()
    approval_status: str = "approved"
    approved_by: str | None = None
    requester_id: str | None = None
    progress: int = 0
    checklist: tuple[Mapping[str, Any], ...] = field(default=(), metadata={ITEM: checklist_item})
    blocked_reason: str | None = None
    completion_result: str | None = None
    completion_summary: str | None = None
    next_steps: str | None = None
    interrupt_id: str | None = None
    started_from_conversation_id: str | None = None
    status_changed_by: str | None = None
    status_changed_at: datetime | None = None
    created_at: datetime = EPOCH
    updated_at: datetime = EPOCH
    started_at: datetime | None = None
    completed_at: datetime | None = None
    history: History = field(default_factory=History, metadata={ITEM: history_entry})
    done_when: tuple[str, ...] = ()
    """What has to be true before it is done: names of checks, `review`, `review:AGENT`."""
    delivery: Mapping[str, Any] | None = None
    """What its assignee has said of it, while that is examined: `at`, `summary`, `next_steps`, `traceparent`, `head`
    (what is delivered, see `state_name`), and `reviews`, who has approved what."""
    traceparent: str | None = None
    """The trace of the call that created it."""
    reported_at: datetime | None = None
    """When its assignee reported its end, until that takes effect: the assignee has nothing more to do for it."""
    base: str | None = None
    """The commit at which its assignee's worktree was when its work began; None for work elsewhere."""
    needs: tuple[str, ...] = ()
    """The skills that an agent must have to claim it."""
    description: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.history, History):  # a plain sequence, as read from a file
            object.__setattr__(self, "history", History(self.history))

    @classmethod
    def made(cls, task_id: str, change: Change, *, status: str, assignee_id: str | None, **fields: Any) -> Task:
        """A new task, with the first line of its history."""
        return cls(
            id=task_id,
            status=status,
            assignee_id=assignee_id,
            created_by=change.by,
            status_changed_by=change.by,
            status_changed_at=change.at,
            created_at=change.at,
            updated_at=change.at,
            history=History([change.entry(status=[None, status], assignee_id=[None, assignee_id])]),
            **fields,
        )

    @property
    def quoted_title(self) -> str:
        """The title as a part of what we say: one harmless line (docs/protocol.md, Another's words)."""
        return quoted(self.title, TITLE_CHARACTERS)

    @property
    def final(self) -> bool:
        return self.status in FINAL

    @property
    def checks(self) -> list[str]:
        """The names of the checks that have to pass before it is done."""
        return checks_in(self.done_when)

    @property
    def is_worked_on(self) -> bool:
        """Whether it is in its assignee's hands: in progress, and its end not reported."""
        return self.status == "in_progress" and self.reported_at is None

    @property
    def is_examined(self) -> bool:
        """Whether its assignee has finished it, and its checks still have to pass."""
        return self.status == "in_progress" and self.delivery is not None

    @property
    def proof(self) -> str | None:
        """How much is known of a task that is done (see `how_proven`); None for others."""
        return how_proven(self.done_when, self._proof()) if self.status == "done" else None

    @property
    def receipts(self) -> list[str]:
        """The ids of the receipts that prove the checks of a task that is done or in review."""
        ids = self._proof().get("receipts")
        return list(map(str, ids)) if isinstance(ids, (list, tuple)) else []

    @property
    def proven_head(self) -> str | None:
        """The commit that was examined before it became done; None if nobody knows one."""
        return commit_in(self._proof().get("head")) if self.status == "done" else None

    @property
    def was_reviewed(self) -> bool:
        """Whether the task is done by a review, or by a person's word."""
        proof = self._proof() if self.status == "done" else {}
        return bool(proof.get("reviews") or proof.get("overruled"))

    def _proof(self) -> Mapping[str, Any]:
        _, line = self.latest("status") or (-1, {})
        proof = line.get(PROOF)
        return proof if isinstance(proof, Mapping) else {}

    @property
    def status_since(self) -> datetime:
        """When the task got its present status."""
        return self.status_changed_at or self.created_at

    @property
    def ended_at(self) -> datetime:
        """When a final task was finished; if a person finished it in the file, when it was last changed, as far as it
        says so."""
        return self.completed_at or self.status_changed_at or self.changed_at

    @property
    def changed_at(self) -> datetime:
        """When it was last changed, as far as its file says so."""
        return max(self.updated_at, self.created_at)

    def brought_by(self, message_id: str) -> Task:
        """A new task, marked as assigned by this message, so that its assignee needs no notification."""
        first, *rest = self.history
        return replace(self, history=History([{**first, BROUGHT_BY: message_id}, *rest]))

    def has_applied(self, message_id: str) -> bool:
        """Whether the report in that message was already applied to this task."""
        return any(REFUSED not in entry for entry in self.history.naming("message_id", message_id))

    def refused_report(self, change: Change, message_type: str, why: str) -> Task:
        """The task with a line in its history, once, about a report that could not be applied."""
        if change.message_id is not None and self.history.naming("message_id", change.message_id):
            return self
        is_kept = why == SUPERSEDED or message_type == "task_progress"  # a report of the end is still to be read
        reported_at = self.reported_at if is_kept else None
        return replace(self, reported_at=reported_at).recorded(change, report=message_type, **{REFUSED: why})

    def has_taken(self, intent_id: str | None) -> bool:
        """Whether that intent was already applied to this task."""
        return intent_id is not None and bool(self.history.naming("intent_id", intent_id))

    def history_at(self, intent_id: str) -> History:
        """The history as far as the line with which that intent was applied."""
        lines = (number for number, line in self.history.at_hand() if line.get("intent_id") == intent_id)
        return self.history.before(next(lines, len(self.history)) + 1)

    def recorded(self, change: Change, **changed: Any) -> Task:
        """The task with a further line in its history."""
        return replace(self, updated_at=change.at, history=self.history.with_line(change.entry(**changed)))

    def require_assignee(self, agent_id: str) -> None:
        """Raises `Unauthorized` for any agent but the assignee."""
        if self.assignee_id != agent_id:
            raise Unauthorized("not_assignee", task_id=self.id, assignee_id=self.assignee_id or "-")

    def require_writer(self, agent_id: str, agents: Mapping[str, Agent]) -> None:
        """Raises `Unauthorized` unless the agent is the assignee, the creator or a superior of the assignee; of a task
        without one, a superior of the creator; or an owner while that is nobody's id (docs/protocol.md, Hierarchy)."""
        if not self.concerns(agent_id, agents):
            raise Unauthorized("not_task_writer", task_id=self.id, agent_id=agent_id)

    def require_reader(self, agent_id: str, agents: Mapping[str, Agent]) -> None:
        """Raises `Unauthorized` unless the agent may write the task, and so read its conversations."""
        if not self.concerns(agent_id, agents):
            raise Unauthorized("not_task_reader", task_id=self.id, agent_id=agent_id)

    def concerns(self, agent_id: str, agents: Mapping[str, Agent]) -> bool:
        """Whether the agent may write the task, and so read its conversations."""
        if agent_id in {self.assignee_id, self.created_by}:
            return True
        whose = self.created_by if self.assignee_id is None else self.assignee_id
        if whose not in agents:
            return agent_id in agents and agents[agent_id].role == "owner"
        return is_superior(agent_id, whose, agents)

    def require_open(self) -> None:
        """Raises `InvalidStatusTransition` if the task is done or cancelled."""
        if self.final:
            raise InvalidStatusTransition("task_is_final", task_id=self.id, status=self.status)

    def require_way_to(self, status: str) -> None:
        """Raises `InvalidStatusTransition` if the table has no transition to this status."""
        if status not in TRANSITIONS.get(self.status, ()):
            allowed = ", ".join(TRANSITIONS.get(self.status, ())) or "-"
            raise InvalidStatusTransition(task_id=self.id, current=self.status, new=status, allowed=allowed)

    def move_to(self, status: str, change: Change, **noted: Any) -> Task:
        """The task after a transition of the table, with what is `noted` in its line of the history; a rejected request
        cannot move to `todo`. The further requirements
        of `in_progress` are checked by `require_startable`. Raises `InvalidStatusTransition`, and `NotProven` for a
        task with conditions unless the change carries their proof: this is the only way to `done`."""
        if status == "todo" and self.approval_status == "rejected":
            raise InvalidStatusTransition("request_rejected", task_id=self.id)
        self.require_way_to(status)
        if change.proof is None and (unproven := self._conditions_of(status)):
            raise NotProven(task_id=self.id, conditions=", ".join(unproven))
        moved = replace(
            self,
            status=status,
            status_changed_by=change.by,
            status_changed_at=change.at,
            started_at=self.started_at or (change.at if status == "in_progress" else None),
            started_from_conversation_id=(
                change.conversation_id if status == "in_progress" else self.started_from_conversation_id
            ),
            completed_at=change.at if status in FINAL else None,
            progress=100 if status == "done" else self.progress,
            blocked_reason=change.reason if status == "blocked" else None,
            interrupt_id=None,
            delivery=self.delivery if status == "review" else None,
            reported_at=None,
            base=self.base or (change.head if status == "in_progress" else None),
        )
        return moved.recorded(change, status=[self.status, status], **noted)

    def _conditions_of(self, status: str) -> Sequence[str]:
        """What has to be proven before the task may get this status. What is in review is decided by its reviewers."""
        if status == "done":
            return self.done_when or ([REVIEW] if self.status == "review" else [])
        return self.checks if status == "review" else []

    def delivered(
        self,
        change: Change,
        summary: str | None,
        next_steps: str | None,
        traceparent: str | None = None,
        head: str | None = None,
        *,
        resolves: bool = False,
    ) -> Task:
        """The task after its assignee has said that it is done: in progress, until its conditions are examined. `head`
        names what is delivered (`state_name`): of another state everything is examined and reviewed again. A task that
        is done is delivered again only where that `resolves` what kept it from being merged; what was said of it then
        is kept, if nothing else is said. Raises `InvalidStatusTransition` as `move_to("done")`."""
        if resolves:
            summary, next_steps = summary or self.completion_summary, next_steps or self.next_steps
        said = {"summary": summary, "next_steps": next_steps}
        if self.delivery is not None and (self.is_examined or self.status == "review"):
            kept = {**self.delivery, **{key: value for key, value in said.items() if value is not None}}
            if kept == self.delivery and commit_in(head) == commit_in(kept.get("head")):
                return self
            if commit_in(head) is not None and head == kept.get("head"):
                words = {key: [self.delivery.get(key), kept.get(key)] for key in said}
                changed = {key: pair for key, pair in words.items() if pair[0] != pair[1]}
                return replace(self, delivery=kept).recorded(change, said=True, **changed)
        begun = self if self.status == "blocked" else self.through_in_progress(change)
        begun = self._taken_up_again(change) if resolves and self.status == "done" else begun
        if begun.status != "in_progress":
            return begun.move_to("done", change)  # raises
        more = {"traceparent": traceparent, "head": head}
        said |= {key: value for key, value in more.items() if value is not None}
        return replace(begun, delivery={"at": format_time(change.at), **said}).recorded(change, delivered=True)

    def _taken_up_again(self, change: Change) -> Task:
        """The task that was done, in progress again: the only way back from there, which no status tool takes."""
        again = replace(self, status="in_progress", status_changed_by=change.by, status_changed_at=change.at)
        return replace(again, completed_at=None).recorded(change, status=[self.status, "in_progress"])

    def concluded(self, status: str, change: Change) -> Task:
        """The delivered task after its checks have passed (`review`, or `done` with its result) or failed
        (`in_progress`)."""
        if status == self.status == "in_progress":
            return replace(self, delivery=None).recorded(change, delivered=False)
        said, moved = self.delivery or {}, self.move_to(status, change)
        if status != "done":
            return moved
        summary, next_steps = said.get("summary"), said.get("next_steps")
        finished = replace(moved, completion_result="success")
        return replace(finished, completion_summary=summary, next_steps=next_steps) if said.get("at") else finished

    def through_in_progress(self, change: Change) -> Task:
        """The task after the transitions to `in_progress` that the table requires before `done` or `blocked`."""
        steps: Mapping[str, tuple[str, ...]] = {
            "backlog": ("todo", "in_progress"),
            "todo": ("in_progress",),
            "blocked": ("in_progress",),
            "review": ("in_progress",),
        }
        task = self
        for step in steps.get(self.status, ()):
            task = task.move_to(step, replace(change, reason=None))
        return task

    @property
    def reviews_given(self) -> Mapping[str, str]:
        """Who has approved this delivery, by review."""
        given = (self.delivery or {}).get("reviews")
        return given if isinstance(given, Mapping) else {}

    def require_review(self) -> None:
        """Raises `InvalidStatusTransition` for a task that is not, or no longer, in review: with who decided."""
        if self.status != "review":
            by, at = self.status_changed_by or self.created_by, format_time(self.changed_at)
            raise InvalidStatusTransition("review_is_over", task_id=self.id, status=self.status, by=by, at=at)

    def reviewed(self, reviews: Iterable[str], change: Change) -> Task:
        """The task in `review` with these reviews given."""
        given = {**self.reviews_given, **dict.fromkeys(reviews, change.by)}
        said = {**(self.delivery or {}), "reviews": given}
        return replace(self, delivery=said).recorded(change, reviewed=sorted(given))

    def interrupted(self, status: str, change: Change, interrupt_id: str) -> Task:
        """The task set to `blocked` or `cancelled` by somebody else, with the id of the interrupt and whom it stops, so
        that both are written at once (`interrupt_of` derives the notification from the task alone)."""
        stopped = self.move_to(status, change, **{INTERRUPT: interrupt_id, INTERRUPTED: self.assignee_id})
        return replace(stopped, interrupt_id=interrupt_id)

    def blocked_again(self, change: Change) -> Task:
        """The blocked task, blocked by somebody else now: what it waited for, such as the answer to a question, moves
        it no more."""
        again = replace(self, status_changed_by=change.by, status_changed_at=change.at, blocked_reason=change.reason)
        return again.recorded(change, status=[self.status, self.status])

    def end_reported(self, change: Change, said: str) -> Task:
        """The task after its assignee has reported its end (`completed` or `failed`), which takes effect when the
        report is read. Raises as `require_same_end`."""
        self.require_same_end(said)
        return replace(self, reported_at=change.at).recorded(change, reported=said)

    def require_same_end(self, said: str) -> None:
        """Raises `InvalidStatusTransition` if an unread report says that the task has ended otherwise."""
        lines = self.history.at_hand() if self.reported_at is not None else ()
        before = next((line["reported"] for _, line in lines if "reported" in line), said)
        if before not in (said, True):  # an earlier version did not note which
            raise InvalidStatusTransition("reported_otherwise", task_id=self.id, said=before)

    def has_been_worked_on(self, agent_id: str) -> bool:
        """Whether this agent ever had it in progress; True if its history does not tell."""
        lines = [line for line in self.history if "status" in line or "assignee_id" in line]
        holder = next((old_value(line, "assignee_id") for line in lines if "assignee_id" in line), self.assignee_id)
        for line in lines:
            holder = new_value(line, "assignee_id") if "assignee_id" in line else holder
            if holder == agent_id and "in_progress" in (old_value(line, "status"), new_value(line, "status")):
                return True
        return not any("status" in line for line in lines)

    def require_startable(self, dependencies: Mapping[str, Task | None]) -> None:
        """Raises `InvalidStatusTransition` unless the task has an assignee, is approved, and all its dependencies are
        done (docs/protocol.md, Tasks)."""
        if self.assignee_id is None:
            raise InvalidStatusTransition("no_assignee", task_id=self.id)
        if self.approval_status != "approved":
            raise InvalidStatusTransition("not_approved", task_id=self.id, approval_status=self.approval_status)
        open_ones = [
            key for key in self.dependencies if (other := dependencies.get(key)) is None or other.status != "done"
        ]
        if open_ones:
            raise InvalidStatusTransition("open_dependencies", task_id=self.id, dependencies=", ".join(open_ones))

    def edited(self, change: Change, **fields: Any) -> Task:
        """The task with another title, description, priority or `blocked_reason`; the same one if nothing differs."""
        new = {name: value for name, value in fields.items() if getattr(self, name) != value}
        return replace(self, **new).recorded(change, edited=sorted(new)) if new else self

    def assigned(self, assignee_id: str | None, change: Change) -> Task:
        """The task assigned to another agent, or to none. A task in progress or in `review` returns to `todo`; an
        interrupt is dropped, because it was for the previous assignee."""
        self.require_open()
        task = self.move_to("in_progress", change) if self.status == "review" else self
        task = task.move_to("todo", change) if task.status == "in_progress" else task
        return replace(task, assignee_id=assignee_id, interrupt_id=None, reported_at=None, base=None).recorded(
            change, assignee_id=[self.assignee_id, assignee_id]
        )

    def claimed(self, agent_id: str, change: Change, message_id: str | None = None) -> Task:
        """The unassigned task, taken by an agent, or given to it by a message: in `todo`, not begun. Raises
        `AlreadyExists` if somebody has it, and `InvalidStatusTransition` for one that waits for nobody."""
        if self.assignee_id is not None:
            raise AlreadyExists("task_claimed", task_id=self.id, assignee_id=self.assignee_id)
        if self.status not in CLAIMABLE:
            raise InvalidStatusTransition("not_claimable", task_id=self.id, status=self.status)
        task = self.move_to("todo", change) if self.status == "backlog" else self
        given = task.assigned(agent_id, change)
        if message_id is None:
            return given
        return replace(given, history=task.history.with_line({**given.history.newest[-1], BROUGHT_BY: message_id}))

    def require_pending(self) -> None:
        """Raises `InvalidStatusTransition` for what is no request, or was decided."""
        if self.approval_status != "pending":
            facts = {"status": self.status, "approval_status": self.approval_status, "by": self._last_by()}
            raise InvalidStatusTransition("already_decided", task_id=self.id, **facts)

    def _last_by(self) -> str:
        """Who has changed it last."""
        return next((str(line.get("by")) for _, line in self.history.at_hand()), self.created_by)

    def decided(self, change: Change, *, approve: bool) -> Task:
        """The request after its approval, which moves it from the backlog to `todo`, or its rejection. Raises
        `InvalidStatusTransition` if it was already decided."""
        self.require_pending()
        status = "approved" if approve else "rejected"
        task = replace(self, approval_status=status, approved_by=change.by if approve else None)
        task = task.recorded(change, approval_status=["pending", status])
        return task.move_to("todo", change) if approve and task.status == "backlog" and task.assignee_id else task

    def latest(self, *keys: str) -> tuple[int, Line] | None:
        """The number and content of the last line of the history that set one of these fields (`status`, `assignee_id`,
        `approval_status`) to its present value (for `approval_status`, to `approved`), or None."""
        now = {"status": self.status, "assignee_id": self.assignee_id, "approval_status": "approved"}
        for number, entry in self.history.at_hand():
            if any(key in entry and new_value(entry, key) == now[key] for key in keys):
                return number, entry
        return None

    def gated(self, change: Change, why: Mapping[str, Any]) -> Task:
        """The task that waits for a review, too, when it is done; `why` is in its history."""
        if any(map(is_review, self.done_when)):
            return self
        return replace(self, done_when=(*self.done_when, REVIEW)).recorded(change, gate=dict(why))

    @property
    def given_by(self) -> str:
        """Who gave it to its assignee: who assigned it, or approved that it be done; of a claimed one who made it."""
        found = self.latest("assignee_id", "approval_status")
        by = self.created_by if found is None else str(found[1].get("by"))
        return self.created_by if by == self.assignee_id else by

    def given_away_by(self, agent_id: str) -> bool:
        """Whether this agent has made the task for another one."""
        return self.created_by == agent_id and self.assignee_id not in (None, agent_id)

    @property
    def reopened(self) -> int:
        """How often the task was taken up again or changed hands, or a report was not applied; after each, its end is
        reported again."""
        return sum(map(_reopens, self.history.having("status", "assignee_id", REFUSED)))


def _reopens(line: Line) -> bool:
    """Whether the end of a task is reported again after this change: it left `blocked` or `done`, was put back or
    rejected, changed hands, or a report was not applied."""
    before, after = old_value(line, "status"), new_value(line, "status")
    if before in ("blocked", "done") or (before, after) in {("in_progress", "todo"), ("review", "in_progress")}:
        return True
    return line.get(REFUSED, SUPERSEDED) != SUPERSEDED or ("assignee_id" in line and "status" not in line)


def require_no_cycle(dependencies: Mapping[str, Sequence[str]]) -> None:
    """Raises `InvalidArguments` if dependencies, given by task id, form a cycle."""
    try:
        TopologicalSorter(dependencies).prepare()
    except CycleError as error:
        raise InvalidArguments("dependency_cycle", cycle=" → ".join(map(str, error.args[1]))) from error


def work_order(task: Task) -> tuple[int, datetime, str]:
    """A sort key: highest priority first, then oldest first. An unknown priority counts as medium."""
    return -_PRIORITY_RANKS.get(task.priority, 1), task.created_at, task.id


def status_order(task: Task) -> tuple[int, int, datetime, str]:
    """A sort key: tasks in progress first, finished ones last, after them unknown statuses; within a status in the
    order of work."""
    return _STATUS_RANKS.get(task.status, len(_STATUS_RANKS)), *work_order(task)
