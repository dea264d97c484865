"""The command `why` (docs/protocol.md, Who did this): from lines of a file to the commits
that they come from, and from the trailers of these to task, agent, review, receipts, questions and who asked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.cli.rendering import local_time
from multi_agent_mcp.config import working_directory
from multi_agent_mcp.domain.entity import plain_value
from multi_agent_mcp.domain.text import display_id, one_line
from multi_agent_mcp.errors import InvalidArguments, Refusal
from multi_agent_mcp.repository.named_commits import COMMITS_SHOWN, named_commits
from multi_agent_mcp.services.questions import as_answer
from multi_agent_mcp.system.git import git

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.texts import Texts
    from multi_agent_mcp.wiring import Services

_BLAMED = re.compile(r"^([0-9a-f]{40,64}) \d+ \d+ (\d+)$", re.MULTILINE)


def followed(services: Services, place: str) -> dict[str, Any]:
    """Where the lines of `FILE` or `FILE:LINE` come from. Raises `InvalidArguments` for a file that git does not know,
    or that has no such line."""
    path, line = _place(place)
    near = next(above for above in path.parents if above.is_dir())
    counts = _blamed(path, near, line)
    new = sum(counts.pop(one) for one in list(counts) if not one.strip("0"))
    commits = [
        {
            **one,
            "lines": counts[one["commit"]],
            "task": _task(services, one["task_id"]),
            "others": [{"task_id": name, "task": _task(services, name)} for name in one["task_ids"][1:]],
        }
        for one in (named_commits(near, "--no-walk=sorted", *counts) if counts else ())
    ][:COMMITS_SHOWN]
    file = place if line is None else place.rpartition(":")[0]
    return {"path": file, "line": line, "commits": commits, "uncommitted_lines": new}


def followed_lines(answer: Mapping[str, Any], texts: Texts) -> Iterator[str]:
    """The same for people; nothing for an empty file."""
    for number, one in enumerate(answer["commits"]):
        yield from ("", *_lines(one, texts)) if number else _lines(one, texts)
    if count := answer["uncommitted_lines"]:
        yield texts("blame.uncommitted", count=count)


def _place(words: str) -> tuple[Path, int | None]:
    file, _, number = words.rpartition(":")
    base = Path(working_directory())
    if file and number.isdecimal() and not (base / words).exists():
        return base / file, int(number)
    return base / words, None


def _blamed(path: Path, near: Path, line: int | None) -> Counter[str]:
    """How many lines come from each commit; of a file that a sparse checkout leaves out, as it is committed. `near` is
    the directory of the file that is there. Raises `InvalidArguments` for a file that git does not know, or has no such
    line."""
    only = () if line is None else ("-L", f"{line},{line}")
    name = str(path.relative_to(near))
    try:
        is_left_out = git(near, "ls-files", "-t", "--", f":(literal){name}").startswith("S ") and not path.exists()
        found = git(near, "blame", "--incremental", *only, *(("HEAD",) if is_left_out else ()), "--", name)
    except Refusal as refusal:
        raise InvalidArguments("not_blamed", path=one_line(str(path)), said=refusal.values.get("said")) from refusal
    counts: Counter[str] = Counter()
    for commit, count in _BLAMED.findall(found):
        counts[commit] += int(count)
    return counts


def _task(services: Services, task_id: str | None) -> dict[str, Any] | None:
    """What is known of the task; None for a commit of none, or of one that this session does not have."""
    task = next(iter(services.board.existing([task_id])), None)
    if task is None:
        return None
    reviews = [line for line in task.history if "reviewed" in line]
    found = {
        "task_id": task.id,
        "title": task.title,
        "status": task.status,
        "proof": task.proof,
        "assignee_id": task.assignee_id,
        "created_by": task.created_by,
        "asked_by": _asked_by(services, task),
        "reviews": [{key: plain_value(line.get(key)) for key in ("at", "by")} for line in reviews],
        "receipts": [item.as_answer() for item in services.checks.receipts_of(task.id)],
        "questions": [as_answer(one) for one in services.questions.about(task.id)],
    }
    return services.session.features.shown("task", found)


def _asked_by(services: Services, task: Task) -> str:
    """The person who asked for the task, or for one that it is a part of; else who made the first of them."""
    agents, seen, found = services.agents.known(), set[str](), task.created_by
    one: Task | None = task
    while one is not None and one.id not in seen:
        seen.add(one.id)
        found = one.created_by
        for name in filter(None, (one.created_by, one.approved_by)):
            if (agent := agents.get(name)) is not None and (agent.type == "human" or agent.role == "owner"):
                return name
        one = next(iter(services.board.existing([one.parent_task_id])), None)
    return found


def _lines(one: dict[str, Any], texts: Texts) -> Iterator[str]:
    by = display_id(one["agent_id"]) if one["agent_id"] else one["author"]
    yield one_line(f"{one['commit'][:10]}  {local_time(one['at'], texts)}  {by}: {one['subject']}")
    if one["task_id"] is None:
        yield f"  {texts('blame.no_task')}"
        return
    for named in (one, *one["others"]):
        yield from _task_lines(named["task_id"], named["task"], texts)


def _task_lines(task_id: str, task: dict[str, Any] | None, texts: Texts) -> Iterator[str]:
    if task is None:
        yield f"  {texts('blame.task_unknown', task_id=task_id)}"
        return
    said = (task["status"], *filter(None, [task.get("proof")]))
    yield "  " + one_line(f"{task['task_id']} {task['title']} ({', '.join(said)})")
    yield f"  {texts('blame.asked', agent_id=display_id(task['asked_by']))}"
    for review in task.get("reviews", ()):
        yield f"  {texts('blame.reviewed', agent_id=display_id(review['by']))}"
    for receipt in task.get("receipts", ()):
        yield "  " + one_line(texts("blame.receipt", check=receipt["check"], receipt_id=receipt["id"]))
    for asked in task["questions"]:
        yield "  " + one_line(texts("blame.question", question=asked["question"], answer=asked["answer"] or "-"))
