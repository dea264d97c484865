"""What agents with worktrees do: commit, deliver, review; and a person who merges. The books name each commit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from multi_agent_mcp.system.git import git
from tests.end_to_end.support import COMMAND, Team
from tests.soak.disturbers import Disturber
from tests.soak.host import Host
from tests.soak.lives import Reply

CHECK, GOOD = "tests", "good"
CONDITIONS: tuple[list[str], ...] = ([], [], [CHECK], ["review"], [CHECK, "review"])
SETTINGS = f"checks: {{{CHECK}: 'grep -qs {GOOD} pieces/$MULTI_AGENT_MCP_TASK.txt'}}"
IGNORED = "/*\n!/pieces/\n"


@dataclass(frozen=True)
class Commit:
    task_id: str
    agent_id: str
    at: float


@dataclass(frozen=True)
class Said:
    """A delivery as its agent said it: with the worktree at `head`; `status` is what the answer said, None for none."""

    task_id: str
    head: str
    summary: str
    state: str
    status: str | None = None
    check: str | None = None


@dataclass
class Work:
    """The worktrees of the workers, and the books of what was done in them. Each is written by one thread."""

    project: Path
    places: dict[str, Path] = field(default_factory=dict)
    commits: dict[str, Commit] = field(default_factory=dict)
    said: list[Said] = field(default_factory=list)
    reviews: dict[str, set[str]] = field(default_factory=dict)
    """Task → who may have approved it."""
    merged: dict[str, str | None] = field(default_factory=dict)
    """Task → the commit that was said to be merged; None for a merge that was killed."""
    conflicts: dict[str, list[str]] = field(default_factory=dict)
    """Agent → its tasks whose delivery could not be merged."""


def founded(team: Team, workers: list[str]) -> Work:
    """A repository around the session, and the workers' worktrees."""
    project = team.base
    (project / ".gitignore").write_text(IGNORED)
    (project / "pieces").mkdir()
    (project / "pieces" / "shared.txt").write_text("begun\n")
    git(project, "init", "-q", "-b", "main")
    for name, value in (("name", "T"), ("email", "t@example.org")):
        git(project, "config", f"user.{name}", value)
    git(project, "add", "-A")
    git(project, "commit", "-qm", "begun")
    services = team.services
    places = {one: Path(services.worktrees.ensure(services.agents.get(one)).path) for one in workers}
    return Work(project, places, conflicts={one: [] for one in workers})


def deliver(host: Host) -> Reply:
    """Takes up the next task, commits something for it, and says that it is done; or delivers again what could not be
    merged."""
    work = host.stage.work
    if work.conflicts.get(host.agent_id) and host.random.random() < 0.7:
        return _resolve(host, work.conflicts[host.agent_id].pop())
    reply = host.call("get_my_tasks")
    open_ones = [
        one["task_id"] for one in (reply.answer or {}).get("tasks", ()) if one["status"] in ("todo", "in_progress")
    ]
    if not open_ones:
        return reply
    task_id = open_ones[0]
    reply = host.call("update_task_status", task_id=task_id, status="in_progress")
    if reply.answer is None:
        return reply
    if reply.done:
        host.ledger.moved(task_id, host.agent_id, reply.answer["previous_status"], reply.answer["new_status"])
        if host.agent_id in work.places:
            _commit(host, task_id)
    return _say_done(host, task_id)


def _commit(host: Host, task_id: str) -> None:
    """Commits what the check of the task wants, or something else; on the branch as it is, or at the project's."""
    work = host.stage.work
    place = work.places[host.agent_id]
    git(place, "reset", "-q", "--hard")
    git(place, "clean", "-fdq", "pieces")
    if host.random.random() < 0.5:
        git(place, "checkout", "-q", "--detach", "main")
    word = GOOD if host.random.random() < 0.8 else "bad"
    (place / "pieces" / f"{task_id}.txt").write_text(f"{word} {host.random.getrandbits(48):x}\n")
    if host.random.random() < 0.2:
        (place / "pieces" / "shared.txt").write_text(f"{task_id} {host.random.getrandbits(48):x}\n")
    _made(host, task_id, place)
    if host.random.random() < 0.1:
        (place / "pieces" / "left.txt").write_text("not committed\n")


def _made(host: Host, task_id: str, place: Path) -> None:
    git(place, "add", "-A")
    git(place, "commit", "-q", "--allow-empty", "-m", task_id)
    made_at = int(git(place, "log", "-1", "--format=%ct"))
    host.stage.work.commits[git(place, "rev-parse", "HEAD")] = Commit(task_id, host.agent_id, made_at)
    host.ledger.count("commits")


def _resolve(host: Host, task_id: str) -> Reply:
    place = host.stage.work.places[host.agent_id]
    git(place, "reset", "-q", "--hard")
    git(place, "clean", "-fdq", "pieces")
    delivered = next((one.head for one in reversed(host.stage.work.said) if one.task_id == task_id), "HEAD")
    git(place, "checkout", "-q", "--detach", delivered)
    git(place, "merge", "--no-commit", "-q", "-X", "ours", "main", ok=(0, 1, 128))
    _made(host, task_id, place)
    host.ledger.count("resolutions")
    return _say_done(host, task_id)


def _say_done(host: Host, task_id: str) -> Reply:
    work = host.stage.work
    place = work.places.get(host.agent_id)
    head = "" if place is None else git(place, "rev-parse", "HEAD")
    summary = f"did {host.name} {host.random.getrandbits(48):x}"
    work.said.append(Said(task_id, head, summary, "maybe"))
    reply = host.call("report_completed", result="success", summary=summary, task_id=task_id)
    answer = reply.answer or {}
    if reply.done:
        work.said.append(Said(task_id, head, summary, "acked", answer["status"], answer.get("check")))
        host.ledger.count(f"deliveries: {answer['status']}")
    elif answer:
        host.ledger.count(f"deliveries: {reply.error}")
    return reply


def review(host: Host) -> Reply:
    """Reads what is to be reviewed, and approves or rejects one of it."""
    reply = host.call("get_notifications")
    notices = (reply.answer or {}).get("notifications", ())
    host.reviews += [one["task_id"] for one in notices if one["action"] == "review_requested"]
    if not host.reviews:
        return reply
    task_id = host.random.choice(host.reviews[-6:])
    is_good = host.random.random() < 0.75
    if is_good:
        host.stage.work.reviews.setdefault(task_id, set()).add(host.agent_id)
    words = {} if is_good else {"reason": "not yet"}
    reply = host.call("approve_task_request", task_id=task_id, approve=is_good, **words)
    if reply.done and reply.answer is not None:
        host.ledger.count(f"reviews: {reply.answer['approval_status']}")
    return reply


class Merger(Disturber):
    """A person who merges what was delivered; some of the commands are killed."""

    pause = (0.2, 1.0)

    def disturb(self) -> None:
        work = self.stage.work
        known = [said for said in work.said if said.head and said.status in ("done", "review")]
        waiting = [said for said in known[-60:] if work.merged.get(said.task_id) is None]
        if not waiting:
            return
        self._merge(self.random.choice(waiting).task_id)

    def _merge(self, task_id: str) -> None:
        stage, work = self.stage, self.stage.work
        command = [*COMMAND, "workspace", "merge", task_id, "--root", str(stage.team.root), "--json"]
        with subprocess.Popen(
            command, env=stage.team.env, cwd=stage.team.base, stdout=subprocess.PIPE, start_new_session=True
        ) as running:
            if self.random.random() < 0.3 and not self._ended(running, self.random.uniform(0.2, 1.5)):
                work.merged.setdefault(task_id, None)
                stage.ledger.killed.add(running.pid)
                os.kill(running.pid, signal.SIGKILL)
                stage.ledger.count("kills of merges")
                return
            answer = json.loads(running.communicate()[0])
        if not answer["success"]:
            stage.ledger.count(f"merges: {answer['error']}")
        elif answer["merged"]:
            work.merged[task_id] = answer["delivered"]
            stage.ledger.count("merges")
        else:
            work.conflicts[answer["agent_id"]].append(task_id)
            stage.ledger.count("merges: conflicts")

    @staticmethod
    def _ended(running: subprocess.Popen[bytes], seconds: float) -> bool:
        try:
            running.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True
