"""The verdict of a soak: compares the books of the hosts with the files of the session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.notification import PAUSING, TASK_ASSIGNED, Notification
from multi_agent_mcp.domain.task import FINAL, Task
from multi_agent_mcp.domain.times import parse_time
from multi_agent_mcp.store.codec import Unreadable, codec
from tests.crash.invariants import settle, twice
from tests.soak.ledger import Ledger, Sent, tag_of
from tests.soak.stage import Stage


def complaints(stage: Stage) -> Iterator[str]:
    """Yields everything that is wrong, after the recovery that the agents' next servers do at their start."""
    services = stage.team.services
    settle(services)
    for agent_id in services.agents.all():
        services.unread_mail_count(agent_id)  # this sets unreadable files aside
        services.workspace.notices(agent_id).unread()
    books = stage.ledger
    mail = {agent_id: _boxed(stage, "ipc", agent_id, Message) for agent_id in services.agents.all()}
    notices = {agent_id: _boxed(stage, "notifications", agent_id, Notification) for agent_id in services.agents.all()}
    yield from twice(services)
    boxes = notices.values()
    yield from handed_twice(books, {item.id for box in boxes for item in box if item.action == TASK_ASSIGNED})
    yield from messages(books, mail)
    yield from kept(books, "message", [message.id for box in mail.values() for message in box])
    yield from kept(books, "notification", [notice.id for box in notices.values() for notice in box])
    yield from kept(books, "conversation", [item.id for item in services.workspace.conversations.all()])
    yield from kept(books, "delegation", [item.id for item in services.workspace.delegations.all()])
    for agent_id in services.agents.all():
        box = notices[agent_id]  # others are settled
        standing = [one for one in box if services.derived_notices.applies(one) and not was_overtaken(one, box)]
        yield from delivered(books, agent_id, [*mail[agent_id], *standing])
        unread = sum(message.read_at is None for message in mail[agent_id])
        if unread != services.unread_mail_count(agent_id):
            yield f"{agent_id} has {unread} unread files and is told of {services.unread_mail_count(agent_id)}"
    yield from tasks(books, services.workspace.tasks.all())
    yield from told_of_interrupts(stage, notices)
    known = {task.id: task for task in services.workspace.tasks.all()}
    for agent_id, box in notices.items():
        yield from unseen(books, agent_id, box, known)
    yield from registry(stage)
    yield from quarantine(stage)
    yield from remains(stage)


def messages(books: Ledger, mail: dict[str, list[Any]]) -> Iterator[str]:
    """Yields acknowledged messages that do not exist exactly once, and others that are not whole or not sent to all or
    none."""
    found: dict[str, Counter[str]] = {}
    for agent_id, messages in mail.items():
        for message in messages:
            tag = tag_of(message.content)
            if tag is not None:
                found.setdefault(tag, Counter())[agent_id] += 1
            elif " " in message.content and message.content.partition(" ")[0] in books.messages:
                yield f"{message.id} of {agent_id} is not whole"
    for tag, sent in books.messages.items():
        yield from _letter(tag, sent, found.get(tag, Counter()))


def _letter(tag: str, sent: Sent, found: Counter[str]) -> Iterator[str]:
    if any(count > 1 for count in found.values()):
        yield f"message {tag} is there twice: {dict(found)}"
    if sent.state == "never" and found:
        yield f"message {tag} was refused and is there"
    if sent.receivers and found and set(found) != sent.receivers:
        yield f"message {tag} has reached {sorted(found)} of {sorted(sent.receivers)}"
    if sent.state == "acked" and not found:
        yield f"message {tag} was acknowledged and is LOST"


def kept(books: Ledger, kind: str, there: list[str]) -> Iterator[str]:
    counted = Counter(there)
    for entity_id in sorted(books.kept.get(kind, ())):
        if counted[entity_id] != 1:
            yield f"{kind} {entity_id} was acknowledged and is there {counted[entity_id]} times: LOST or twice"


def handed_twice(books: Ledger, offered: Collection[str] = ()) -> Iterator[str]:
    """Yields items that were handed out once more although the first reader lived on, but for those that may be
    `offered` again: the end of a session announces again the tasks that it had read of and not begun."""
    for (agent_id, item), count in books.handed.items():
        if count > 1 and item not in offered:
            yield f"{agent_id} was handed {item} twice"


def delivered(books: Ledger, agent_id: str, things: list[Any]) -> Iterator[str]:
    """Yields items that were consumed without having been handed out."""
    for thing in things:
        if thing.read_at is not None and (agent_id, thing.id) not in books.handed:
            yield f"{thing.id} of {agent_id} is marked read and was handed to nobody: LOST"


def was_overtaken(notice: Notification, box: list[Notification]) -> bool:
    """Whether a pause was over, or its resumption followed by another pause, before it was marked read. The files that
    say so may be archived, where the product looks no more."""
    if notice.action not in PAUSING or notice.read_at is None:
        return False
    opposites = (other for other in box if other.action in PAUSING and other.action != notice.action)
    return any(notice.created_at < other.created_at <= notice.read_at for other in opposites)


def tasks(books: Ledger, there: list[Task]) -> Iterator[str]:
    titles = Counter(task.title for task in there)
    for title, state in books.tasks.items():
        if titles[title] > 1 or (state == "acked" and titles[title] != 1):
            yield f"task {title!r} ({state}) is there {titles[title]} times"
    for task in there:
        yield from history(task)
    made = Counter(
        (task.id, entry["by"], *entry["status"]) for task in there for entry in task.history if "status" in entry
    )
    for move, count in books.moves.items():
        if made[move] < count:
            yield f"an acknowledged move is not in the task's history: {move}"


def history(task: Task) -> Iterator[str]:
    """Yields lines that do not begin with the status in which the previous one ended, and a last line that is not the
    task's status."""
    for key in ("status", "assignee_id"):
        changes = [entry[key] for entry in task.history if key in entry]
        for before, after in pairwise(changes):
            if before[1] != after[0]:
                yield f"task {task.id}: {key} jumps from {before[1]} to {after[0]}"
        if changes and changes[-1][1] != getattr(task, key):
            yield f"task {task.id}: {key} is {getattr(task, key)}, its history says {changes[-1][1]}"


def told_of_interrupts(stage: Stage, notices: dict[str, list[Any]]) -> Iterator[str]:
    """Yields standing interrupts without a notification; `delivered` checks that each was told or is unread."""
    there = {notice.id for box in notices.values() for notice in box}
    for task in stage.team.services.workspace.tasks.all():
        if task.interrupt_id is not None and task.assignee_id is not None and task.interrupt_id not in there:
            yield f"the interrupt {task.interrupt_id} of task {task.id} is LOST"


def unseen(books: Ledger, agent_id: str, box: list[Notification], tasks: Mapping[str, Task]) -> Iterator[str]:
    """Yields interrupts that were marked read while they stood, without having been handed out; `delivered` looks only
    at those that stand at the end."""
    resumed = [notice.created_at for notice in box if notice.action == "resume"]
    for notice in filter(lambda notice: notice.interrupts, box):
        books.count("interrupts")
        task = tasks.get(notice.task_id or "")
        if notice.read_at is None or (agent_id, notice.id) in books.handed or notice.action == "check_chat":
            continue
        if notice.action == "pause" and task is not None and _was_final(task, notice.created_at):
            continue  # the task was finished while its agent was being paused: it never stood
        ends = [*resumed] if notice.action == "pause" else []
        ends += _ends(notice, task) if task is not None else []
        over_at = min((end for end in ends if end > notice.created_at), default=None)
        if over_at is None or notice.read_at < over_at:
            yield f"the interrupt {notice.id} ({notice.action}) of {agent_id} was read UNSEEN at {notice.read_at}: LOST"


def _was_final(task: Task, moment: datetime) -> bool:
    """Whether the task was finished or cancelled at this time."""
    changes = [entry for entry in task.history if "status" in entry]
    earlier = [entry["status"][1] for entry in changes if (parse_time(entry.get("at")) or moment) <= moment]
    return bool(earlier) and earlier[-1] in FINAL


def _ends(notice: Notification, task: Task) -> Iterator[datetime]:
    """The times of the changes of a task after which its interrupt applies no more."""
    for entry in task.history:
        before, after = entry.get("status", (None, None))
        ends_pause = after in FINAL or (before == "blocked" and after is not None)
        at = parse_time(entry.get("at"))
        if at is not None and (ends_pause if notice.action == "pause" else {"status", "assignee_id"} & entry.keys()):
            yield at


def registry(stage: Stage) -> Iterator[str]:
    agents = stage.team.services.workspace.registry.all()
    if set(agents) != {*stage.agents, "owner"}:
        yield f"agents.json names {sorted(agents)}"
    for agent_id, number in stage.ledger.notes.items():
        if agents[agent_id].extra.get("soak_note") != number:
            yield f"agents.json has lost a note of {agent_id}"
    if damaged := sorted(path.name for path in stage.team.path.glob("agents.json.damaged*")):
        yield f"agents.json was damaged: {damaged}"


def quarantine(stage: Stage) -> Iterator[str]:
    """Yields the difference between the quarantined files and those that were broken on purpose."""
    aside = [path.name for path in stage.team.path.rglob("quarantine/*.md")]
    if sorted(aside) != sorted(stage.ledger.broken):
        yield f"quarantine differs from what was broken by {sorted(set(aside) ^ stage.ledger.broken)}"


def remains(stage: Stage) -> Iterator[str]:
    """Yields leftovers: scratch files of processes that were not killed, held locks, intents not carried out."""
    files = stage.team.services.workspace.files
    for path in files.scratch.glob("*"):
        if int(path.name.partition(".")[0]) not in stage.ledger.killed:
            yield f"{path.name} was left by a process that was not killed"
    for name in files.locks.all_held():
        yield f"the lock {name} is held"
    for intent in (stage.team.path / ".intents").glob("*"):
        yield f"{intent.name} was not carried out"
    yield from processes(stage)


def processes(stage: Stage) -> Iterator[str]:
    """Yields servers that outlived their hosts, and tracebacks that servers wrote."""
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(stage.team.base).encode() in command.read_bytes() and b"serve" in command.read_bytes():
                yield f"process {command.parent.name} was left"
        except OSError:
            continue
    for errors in stage.team.base.glob("*.stderr"):
        said = errors.read_text(encoding="utf-8")
        if "Traceback" in said:
            yield f"{errors.name}: {said[said.index('Traceback') :][:3000]}"


def _boxed(stage: Stage, kind: str, agent_id: str, entity_type: type[Any]) -> list[Any]:
    """Every file of an inbox, its archive too, read without the store."""
    box = stage.team.path / kind / agent_id
    found = []
    for path in [*box.glob("*.md"), *box.glob("archive/*/*.md")]:
        try:
            found.append(codec(entity_type).decode(path.read_bytes(), id=path.stem))
        except Unreadable as error:
            stage.ledger.complain(f"{path.name} of {agent_id} cannot be read: {error}")
    return found
