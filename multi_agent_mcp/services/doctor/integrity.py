"""Checks of file contents (unfinished operations, missing notifications, signatures, histories) and of the disk."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.sanitize import display_id
from multi_agent_mcp.errors import Reason
from multi_agent_mcp.services.doctor.finding import NOTE, PROBLEM, CheckContext, Finding
from multi_agent_mcp.store.collection import Collection
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.store.quarantine import Quarantine


def operations(context: CheckContext) -> Iterator[Finding]:
    """Operations whose process was killed midway, and which no reader has finished since; unreadable intents."""
    for intent in context.workspace.intents.left_behind():
        finish = context.operations.finish
        yield context.found("undertakings", PROBLEM, intent.id, "cut_off", finish, kind=intent.kind)
    intents = context.workspace.intents
    for path in intents.unreadable():
        reason = Reason("no_intent")
        fix = partial(Quarantine(intents.files, intents.path).set_aside, path, reason)
        yield context.found("undertakings", PROBLEM, f".intents/{path.name}", "no_intent", fix, reason=reason)


def unreadable(context: CheckContext) -> Iterator[Finding]:
    """Files that the disk fails to read, which readers skip. Reads all open entities, so that unreadable files are
    quarantined now, not when an agent needs them; finished tasks and read mail are too many for that."""
    workspace = context.workspace
    collections: tuple[Collection[Any], ...] = (
        workspace.tasks,
        workspace.sessions,
        workspace.executions,
        workspace.delegations,
        workspace.conversations,
    )
    directories: list[Directory[Any]] = [
        workspace.owner_waits,
        *(collection.directory(name) for collection in collections for name in collection.partitions()),
        *(workspace.mailbox(agent_id).hot for agent_id in context.agents.registry.all()),
        *(workspace.notices(agent_id).hot for agent_id in context.agents.registry.all()),
    ]
    for directory in directories:
        for name in directory.skipped():
            subject = str((directory.path / name).relative_to(workspace.path))
            yield context.found("disk", PROBLEM, subject, "bad_sector")


def hard_links(context: CheckContext) -> Iterator[Finding]:
    """A file system without link(2)."""
    if not context.workspace.files.has_links():
        yield context.found("disk", NOTE, ".", "no_hard_links")


def notifications(context: CheckContext) -> Iterator[Finding]:
    """Tasks whose notifications were not written, because the writer was killed before."""
    for task in context.workspace.tasks.open():
        for notice in context.derived.missing(task):
            fix = partial(context.derived.ensure, task)
            facts = {"agent_id": notice.target_agent_id, "action": notice.action}
            # The next reader writes the notification; until then a missing interrupt does not stop its agent.
            level = PROBLEM if notice.interrupts else NOTE
            yield context.found("notifications", level, task.id, "not_told", fix, **facts)


def signatures(context: CheckContext) -> Iterator[Finding]:
    """Messages that do not verify: unread, read, archived, and the copies in conversations."""
    found = (
        (directory.path / name, message, mailbox_of)
        for directory, mailbox_of in _directories(context)
        for name, message in directory.each()
    )
    total = context.usage.files("ipc", "ipc/archive", "conversations")
    for path, message, mailbox_of in context.track(found, "messages", total):
        yield from _judged(context, path, message, mailbox_of)


def histories(context: CheckContext) -> Iterator[Finding]:
    """Tasks whose older history is incomplete: a file that was cut off, or edited by hand."""
    for agent_id in context.workspace.tasks.partitions():
        for task in context.workspace.tasks.all(agent_id):
            if missing := len(task.history) - sum(1 for _ in task.history):
                path = context.workspace.tasks.history_path(task.id).relative_to(context.workspace.path)
                facts = {"missing": missing, "earlier": task.history.earlier, "task_id": task.id}
                yield context.found("histories", PROBLEM, str(path), "history_cut", **facts)


def _directories(context: CheckContext) -> Iterator[tuple[Directory[Message], str | None]]:
    for agent_id in context.agents.registry.all():
        for directory in context.workspace.mailbox(agent_id).directories():
            yield directory, agent_id
    for conversation_id in context.workspace.conversations.partitions():
        yield context.workspace.conversation_messages(conversation_id), None


def _judged(context: CheckContext, path: Path, message: Message, mailbox_of: str | None) -> Iterator[Finding]:
    verdict = context.signatures.verdict(message, mailbox_of)
    if verdict == "signed":
        return
    level = NOTE if verdict == "unsigned" else PROBLEM
    facts = {"sender": display_id(message.sender_id), "receiver": display_id(message.receiver_id)}
    yield context.found("signatures", level, str(path.relative_to(context.workspace.path)), verdict, **facts)
