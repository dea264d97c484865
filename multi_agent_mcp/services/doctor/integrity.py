"""Whether the files say what was meant: interrupts nobody was told of, messages their senders did not write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.sanitize import display_id
from multi_agent_mcp.services.doctor.finding import NOTE, PROBLEM, CheckContext, Finding
from multi_agent_mcp.services.team.signatures import Verdict
from multi_agent_mcp.store.directory import Directory

VERDICTS: Mapping[Verdict, tuple[str, str, str]] = {
    "unsigned": (NOTE, "it bears no signature: written by hand, or by an older program", "ask {sender} in doubt"),
    "tampered": (PROBLEM, "its signature is not {sender}'s of this text: changed or forged", "ask {sender}"),
    "no_key": (PROBLEM, "signed, but there is no key of {sender} to check it with", "restore the key, or ask"),
    "misplaced": (PROBLEM, "genuine, but sent to {receiver}: somebody copied it here", "ask {sender}"),
}
"""What each verdict is worth, says and asks for."""


def interrupts(patient: CheckContext) -> Iterator[Finding]:
    """Tasks that were blocked or cancelled and whose assignee was not told: the writer was killed in between."""
    for task in patient.workspace.tasks.open():
        if task.interrupt_id is not None and patient.interrupts.is_missing(task):
            finding = f"{task.assignee_id} was not told that it is {task.status}"
            repair = partial(patient.interrupts.ensure, task)
            yield Finding("interrupts", PROBLEM, task.id, finding, "write the notification", repair)


def signatures(patient: CheckContext) -> Iterator[Finding]:
    """Every message, read, unread or archived, and the copies in conversations, that does not verify."""
    for directory, mailbox_of in _directories(patient):
        for name in sorted(directory.entries(fresh=True)):
            message = directory.load(name)
            if message is not None:
                yield from _judged(patient, directory.path / name, message, mailbox_of)


def _directories(patient: CheckContext) -> Iterator[tuple[Directory[Message], str | None]]:
    for agent_id in patient.agents.registry.all():
        for directory in patient.workspace.mailbox(agent_id).directories():
            yield directory, agent_id
    for conversation_id in patient.workspace.conversations.partitions():
        yield patient.workspace.conversation_messages(conversation_id), None


def _judged(patient: CheckContext, path: Path, message: Message, mailbox_of: str | None) -> Iterator[Finding]:
    verdict = patient.signatures.verdict(message, mailbox_of)
    if verdict == "signed":
        return
    level, finding, repair = VERDICTS[verdict]
    words = {"sender": display_id(message.sender_id), "receiver": display_id(message.receiver_id)}
    subject = str(path.relative_to(patient.workspace.path))
    yield Finding("signatures", level, subject, f"{verdict}: {finding.format(**words)}", repair.format(**words))
