"""What proves that a task is done: its conditions, and the receipts of checks (docs/protocol.md, Done means proven).

A task names checks, never commands. A condition is the name of a check, `review` (by the assignee's nearest superior),
or `review:AGENT`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, ClassVar

from multi_agent_mcp.domain.agent import Agent, is_superior, owners, superiors
from multi_agent_mcp.domain.entity import EPOCH, Identified, fields_of, is_name
from multi_agent_mcp.domain.message import is_data_signed_by, signed_data
from multi_agent_mcp.domain.text import as_printed
from multi_agent_mcp.errors import AgentNotFound, InvalidArguments

REVIEW = "review"
CONDITIONS_MAX = 20
LEADERS = frozenset({"owner", "admin"})

PROVEN, REPORTED, OVERRULED = "proven", "reported", "overruled"
"""How much is known of a task that is done: its conditions were met; its assignee said so; a person said so although
they were not met."""


@dataclass(frozen=True, kw_only=True)
class Receipt(Identified):
    """One run of a check, written once. `head`, `dirty` and `diff_sha256` are the working directory after it (see
    `system/git.py`); `changed_during`: it was another one before. `failure` says why a run counts as failed
    whatever its exit code; `number` counts the task's receipts from 1, None in those of an earlier version;
    `elsewhere`: it failed in a temporary worktree, without these files."""

    BODY: ClassVar[str | None] = "output"
    BEGAN: ClassVar[str] = "started_at"
    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"failure", "signature", "number", "elsewhere", "protected"})

    id: str
    task_id: str = ""
    agent_id: str = ""
    check: str = ""
    command: str = ""
    exit_code: int | None = None
    started_at: datetime = EPOCH
    finished_at: datetime = EPOCH
    head: str = "none"
    dirty: bool = True
    diff_sha256: str = ""
    changed_during: bool = False
    machine: str | None = None
    failure: str | None = None
    signature: str | None = None
    number: int | None = None
    elsewhere: str | None = None
    protected: str | None = None
    """The protected files that the delivery changes."""
    output: str = ""

    @property
    def order(self) -> tuple[int, datetime, str]:
        """A sort key, oldest first. Times come after the number: a clock can be set back, or show two runs the same."""
        return self.number or 0, self.started_at, self.id

    @property
    def passed(self) -> bool:
        return self.exit_code == 0 and self.failure is None

    @property
    def seconds(self) -> float:
        return max((self.finished_at - self.started_at).total_seconds(), 0.0)

    def is_of_state(self, head: str, digest: str) -> bool:
        """Whether the working directory was in this state after the run."""
        return (self.head, self.diff_sha256) == (head, digest)

    def is_of_commit(self, commit: str) -> bool:
        """Whether the check ran on the files of this commit and no others."""
        return self.head == commit and not self.dirty

    def last_lines(self, lines: int = 20, characters: int = 1_500) -> str:
        """The end of its output, readable."""
        return "\n".join(as_printed(self.output).rstrip().splitlines()[-lines:])[-characters:]

    def as_answer(self) -> dict[str, Any]:
        """Its fields as JSON values, with the last lines of the output."""
        named = [spec.name for spec in fields(self) if spec.name not in ("signature", "extra", "output")]
        shown = fields_of(self, *named)
        return {**shown, "seconds": self.seconds, "passed": self.passed, "last_lines": self.last_lines()}

    def signed(self, key: str) -> Receipt:
        return replace(self, signature=signed_data(self._signed_bytes(), key))

    def is_signed_by(self, public: str) -> bool:
        return is_data_signed_by(self._signed_bytes(), self.signature, public)

    def _signed_bytes(self) -> bytes:
        added = (
            name for name in ("number", "elsewhere", "protected") if getattr(self, name) is None
        )  # later than signatures
        apart = {"signature", "extra", *added}
        named = [spec.name for spec in fields(self) if spec.name not in apart]
        return json.dumps(fields_of(self, *named), sort_keys=True).encode()


def state_name(commit: str, at: str, *, is_whole: bool) -> str:
    """The name of what a delivery consists of, which its reviews are of: with `is_whole` the commit is all of it; else
    nobody knows what is in a shared directory, and each report is another one."""
    return commit if is_whole else f"{commit[:12]}@{at}"


def commit_in(head: Any) -> str | None:
    """The commit that a delivery of this name consists of; None for one from a shared directory."""
    return None if head is None or "@" in str(head) else str(head)


_REMARK = re.compile(r"(?![^:]*:0+:)[^:\s>].*?:[0-9]{1,9}(?::[0-9]{1,9})?: *\S.*")


def is_remark(line: str) -> bool:
    """Whether a line is a remark of a reviewer on a line of a file: `src/app.py:12: This leaks the handle.`"""
    return _REMARK.fullmatch(line) is not None


def has_remarks(reason: str | None) -> bool:
    """Whether a line of the reason for which a review was rejected is a remark."""
    return any(map(is_remark, (reason or "").splitlines()))


def reason_with(remarks: Iterable[str], reason: str | None = None) -> str | None:
    """The reason for a rejection: its words, then a line for each remark. Raises `InvalidArguments` for a remark that
    does not name a line of a file, or takes more than one line itself."""
    lines = []
    for remark in remarks:
        if len(remark.splitlines()) != 1 or not is_remark(remark):
            raise InvalidArguments("bad_remark", remark=f"{remark!r:.80}")
        lines.append(remark)
    return "\n".join([*([reason] if reason and reason.strip() else []), *lines]) or None


def is_review(condition: str) -> bool:
    return condition == REVIEW or condition.startswith(f"{REVIEW}:")


def checks_in(conditions: Iterable[str]) -> list[str]:
    """The names of the checks among the conditions."""
    return [condition for condition in conditions if not is_review(condition)]


def reviews_in(conditions: Iterable[str]) -> list[str]:
    """The reviews among the conditions."""
    return [condition for condition in conditions if is_review(condition)]


def require_conditions(conditions: Sequence[str], checks: Collection[str]) -> tuple[str, ...]:
    """The conditions, each once. Raises `InvalidArguments` for one that is neither a review nor a known check."""
    found = tuple(dict.fromkeys(conditions))
    if len(found) > CONDITIONS_MAX:
        raise InvalidArguments("too_many_conditions", limit=CONDITIONS_MAX)
    for condition in found:
        if is_review(condition):
            named = condition.partition(":")[2]
            if condition != REVIEW and not is_name(named):
                raise InvalidArguments("bad_reviewer", name=f"{condition:.80}")
        elif condition not in checks:
            raise InvalidArguments("unknown_check", name=f"{condition:.80}", known=", ".join(checks) or "-")
    return found


def require_reviewers(
    conditions: Iterable[str], assignee_id: str | None, agents: Mapping[str, Agent], given_by: str | None = None
) -> None:
    """Raises `AgentNotFound` or `InvalidArguments` unless each named reviewer is an owner or admin and not the
    assignee, and somebody is there for a `review`. Whoever gives conditions to its own task may name its superiors
    only."""
    for condition in reviews_in(conditions):
        named = condition.partition(":")[2]
        if named:
            agent = agents.get(named)
            if agent is None or agent.removed:
                raise AgentNotFound(agent_id=named)
            if agent.role not in LEADERS:
                raise InvalidArguments("no_reviewer_role", agent_id=named, role=agent.role)
        if assignee_id is not None and (named == assignee_id or reviewer_of(condition, assignee_id, agents) is None):
            raise InvalidArguments("reviews_oneself", agent_id=assignee_id)
        if named and given_by is not None and given_by == assignee_id and not is_superior(named, given_by, agents):
            raise InvalidArguments("reviewer_not_above", agent_id=named, assignee_id=given_by)


def applicable(conditions: Iterable[str], assignee_id: str | None, agents: Mapping[str, Agent]) -> tuple[str, ...]:
    """The session's conditions for a task of this assignee: without reviews for which nobody is there."""
    return tuple(
        condition
        for condition in conditions
        if assignee_id is None or not is_review(condition) or reviewer_of(condition, assignee_id, agents) is not None
    )


def reviewer_of(condition: str, assignee_id: str, agents: Mapping[str, Agent]) -> str | None:
    """The agent that is to review: the named one; if it was removed or is the assignee itself, as for `review`, the
    nearest superior of the assignee that is an admin or owner, else an Owner. None if there is none."""
    named = agents.get(condition.partition(":")[2])
    if named is not None and not named.removed and named.id != assignee_id:
        return named.id
    try:
        above = [agent for agent in superiors(assignee_id, agents) if agent.role in LEADERS and not agent.removed]
    except (AgentNotFound, InvalidArguments):  # the hierarchy is broken
        above = []
    return next((agent.id for agent in (*above, *owners(agents)) if agent.id != assignee_id), None)


def how_proven(done_when: Sequence[str], proof: Mapping[str, Any]) -> str:
    """Which of `PROVEN`, `REPORTED`, `OVERRULED` a finished task is, by the proof in its history."""
    if not done_when or not proof:
        return REPORTED
    return OVERRULED if proof.get("overruled") else PROVEN
