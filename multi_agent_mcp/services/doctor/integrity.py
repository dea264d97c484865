"""What the files say: unfinished operations, missing notifications, signatures; and what the disk does to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.sanitize import display_id
from multi_agent_mcp.services.doctor.finding import NOTE, PROBLEM, CheckContext, Finding
from multi_agent_mcp.services.team.signatures import Verdict
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.store.quarantine import Quarantine

VERDICTS: Mapping[Verdict, tuple[str, str, str]] = {
    "unsigned": (NOTE, "it bears no signature: written by hand, or by an older program", "ask {sender} in doubt"),
    "tampered": (PROBLEM, "its signature is not {sender}'s of this text: changed or forged", "ask {sender}"),
    "no_key": (PROBLEM, "signed, but there is no key of {sender} to check it with", "restore the key, or ask"),
    "misplaced": (PROBLEM, "genuine, but sent to {receiver}: somebody copied it here", "ask {sender}"),
}
"""Verdict → level, finding, repair."""


def operations(context: CheckContext) -> Iterator[Finding]:
    """Operations over several files whose process was killed halfway, and which no reader has finished since."""
    for intent in context.workspace.intents.left_behind():
        finding = f"{intent.kind} was cut off halfway"
        yield Finding("undertakings", PROBLEM, intent.id, finding, "carry it out", context.operations.finish)
    intents = context.workspace.intents
    for path in intents.unreadable():
        finding = "it does not describe an operation: damaged, or written by another program"
        mend = partial(Quarantine(intents.files, intents.path).set_aside, path, finding)
        yield Finding("undertakings", PROBLEM, f".intents/{path.name}", finding, "move it into quarantine", mend)


def bad_sectors(context: CheckContext) -> Iterator[Finding]:
    """Files that the disk fails to read; readers skip them."""
    workspace = context.workspace
    agents = context.agents.registry.all()
    folders: list[Directory[Any]] = [workspace.tasks.directory(shelf) for shelf in workspace.tasks.partitions()]
    for agent_id in agents:
        folders += (workspace.mailbox(agent_id).hot, workspace.notices(agent_id).hot)
    for folder in folders:
        for name in folder.passed_over():
            subject = str((folder.path / name).relative_to(workspace.path))
            yield Finding("disk", PROBLEM, subject, "the disk cannot read it", "look after the disk; it is tried again")


def hard_links(context: CheckContext) -> Iterator[Finding]:
    """Whether the file system supports link(2)."""
    if not context.workspace.files.has_links():
        finding = "the file system has no hard links: files are renamed into place under a lock instead"
        yield Finding("disk", NOTE, ".", finding, "nothing need be done; a local disk is faster")


def notifications(context: CheckContext) -> Iterator[Finding]:
    """Tasks whose notifications were not written, because the writer was killed before it."""
    for task in context.workspace.tasks.open():
        for notice in context.derived.missing(task):
            finding = f"{notice.target_agent_id} has no notification of it: {notice.action}"
            repair = partial(context.derived.ensure, task)
            yield Finding("notifications", PROBLEM, task.id, finding, "write the notification", repair)


def signatures(context: CheckContext) -> Iterator[Finding]:
    """Messages that do not verify: unread, read, archived, and the copies in conversations."""
    for folder, mailbox_of in _folders(context):
        for name in sorted(folder.entries(fresh=True)):
            message = folder.load(name)
            if message is not None:
                yield from _judged(context, folder.path / name, message, mailbox_of)


def _folders(context: CheckContext) -> Iterator[tuple[Directory[Message], str | None]]:
    for agent_id in context.agents.registry.all():
        for folder in context.workspace.mailbox(agent_id).directories():
            yield folder, agent_id
    for conversation_id in context.workspace.conversations.partitions():
        yield context.workspace.conversation_messages(conversation_id), None


def _judged(context: CheckContext, path: Path, message: Message, mailbox_of: str | None) -> Iterator[Finding]:
    verdict = context.signatures.verdict(message, mailbox_of)
    if verdict == "signed":
        return
    level, finding, repair = VERDICTS[verdict]
    words = {"sender": display_id(message.sender_id), "receiver": display_id(message.receiver_id)}
    subject = str(path.relative_to(context.workspace.path))
    yield Finding("signatures", level, subject, f"{verdict}: {finding.format(**words)}", repair.format(**words))
