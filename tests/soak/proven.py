"""The verdict on what was delivered: no summary is lost, nothing is merged that was not delivered, and what is proven
is true when it is looked at again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from multi_agent_mcp.domain.history import new_value, old_value
from multi_agent_mcp.domain.proof import PROVEN
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.times import parse_time
from multi_agent_mcp.system.git import git, is_ancestor
from tests.soak.stage import Stage
from tests.soak.worktrees import CHECK, GOOD, Commit, Work

MARGIN_SECONDS = 2.0


def complaints(stage: Stage) -> Iterator[str]:
    tasks = {task.id: task for task in stage.team.services.workspace.tasks.all()}
    yield from summaries(stage)
    yield from merges(stage.work, tasks)
    for task in tasks.values():
        if task.status == "done" and task.proof == PROVEN and task.done_when:
            stage.ledger.count("proven")
            yield from proofs(stage.work, task)


def summaries(stage: Stage) -> Iterator[str]:
    """Yields acknowledged summaries that are nowhere, and those of a review that no reviewer was told."""
    files = [*stage.team.path.rglob("*.md"), *stage.team.path.rglob("*.jsonl")]
    everything = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)
    told = "\n".join(
        path.read_text(encoding="utf-8", errors="replace")
        for path in files
        if path.is_relative_to(stage.team.path / "notifications")
    )
    for said in stage.work.said:
        if said.state != "acked":
            continue
        stage.ledger.count("summaries")
        if said.summary not in everything and said.status in ("review", "done"):
            yield f"the summary {said.summary!r} of {said.task_id} ({said.status}) is LOST"
        elif said.status == "review" and said.check in (None, "passed") and said.summary not in told:
            yield f"no reviewer was told the summary {said.summary!r} of {said.task_id}: LOST"


def merges(work: Work, tasks: Mapping[str, Task]) -> Iterator[str]:
    """Yields what was merged and not delivered: commits that no report named, of tasks that are not done."""
    for task_id, commit in work.merged.items():
        task = tasks[task_id]
        if commit is None:
            continue
        if task.status != "done":
            yield f"{task_id} was merged and is {task.status}: NOT DELIVERED"
        if commit not in {said.head for said in work.said if said.task_id == task_id} and not _others_said(work, task):
            yield f"{commit} was merged for {task_id}, whose agent never said so: NOT DELIVERED"
        if not is_ancestor(work.project, commit, "main"):
            yield f"{task_id} was said to be merged, and {commit} is not: NOT MERGED"
    for commit in set(git(work.project, "rev-list", "main").split()) & work.commits.keys():
        made = work.commits[commit]
        if tasks[made.task_id].status != "done" and _is_alone(made, tasks):
            yield f"{commit} of {made.task_id} ({tasks[made.task_id].status}) was merged: NOT DELIVERED"


def _others_said(work: Work, task: Task) -> bool:
    """Whether the task became done by another way than a report to which these books belong."""
    last = next(line for line in reversed(task.history) if new_value(line, "status") == "done")
    reports = {said.summary for said in work.said if said.task_id == task.id}
    return not reports or old_value(last, "status") != "review"


def _is_alone(made: Commit, tasks: Mapping[str, Task]) -> bool:
    """Whether the agent worked on this task, and on no other, when it made the commit: otherwise nobody knows whose it
    is."""
    return {task.id for task in tasks.values() if _worked_on(task, made)} == {made.task_id}


def _worked_on(task: Task, made: Commit) -> bool:
    """Whether the agent may have worked on a task at that time."""
    moments = [(parse_time(line.get("at")), line) for line in task.history if "status" in line]
    for number, (began, line) in enumerate(moments):
        if new_value(line, "status") != "in_progress" or began is None:
            continue
        later = (at for at, after in moments[number + 1 :] if old_value(after, "status") == "in_progress")
        ended = next(later, None)
        if _seconds(began) - MARGIN_SECONDS <= made.at and (
            ended is None or made.at <= _seconds(ended) + MARGIN_SECONDS
        ):
            return line.get("by") == made.agent_id or task.assignee_id == made.agent_id
    return False


def _seconds(moment: datetime) -> float:
    return moment.timestamp()


def proofs(work: Work, task: Task) -> Iterator[str]:
    """Yields conditions of a task that was proven that are not met by the commit of its proof."""
    head = task.proven_head
    if CHECK in task.done_when and task.assignee_id in work.places:
        name = f"{head}:pieces/{task.id}.txt"
        if not git(work.project, "cat-file", "blob", name, ok=(0, 128)).startswith(GOOD):
            yield f"{task.id} is proven by {head}, whose check fails: FALSE"
        if head not in {said.head for said in work.said if said.task_id == task.id}:
            yield f"{task.id} is proven by {head}, which nobody has reported: FALSE"
    if "review" in task.done_when and not work.reviews.get(task.id):
        yield f"{task.id} is proven, and nobody has approved it: FALSE"
