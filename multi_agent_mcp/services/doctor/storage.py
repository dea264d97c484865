"""The disk itself, and what was cut off while it was written to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from multi_agent_mcp.services.doctor.finding import NOTE, PROBLEM, CheckContext, Finding
from multi_agent_mcp.store.directory import Directory


def undertakings(patient: CheckContext) -> Iterator[Finding]:
    """Operations over several files that their process did not live to finish, and nobody has finished since."""
    for intent in patient.workspace.intents.left_behind():
        finding = f"{intent.kind} was cut off halfway"
        yield Finding("undertakings", PROBLEM, intent.id, finding, "carry it out", patient.operations.finish)


def bad_sectors(patient: CheckContext) -> Iterator[Finding]:
    """Files that are passed over because the disk does not give them out."""
    workspace = patient.workspace
    agents = patient.agents.registry.all()
    directories: list[Directory[Any]] = [
        workspace.tasks.directory(partition) for partition in workspace.tasks.partitions()
    ]
    for agent_id in agents:
        directories += (workspace.mailbox(agent_id).hot, workspace.notices(agent_id).hot)
    for directory in directories:
        for name in directory.passed_over():
            subject = str((directory.path / name).relative_to(workspace.path))
            yield Finding("disk", PROBLEM, subject, "the disk cannot read it", "look after the disk; it is tried again")


def hard_links(patient: CheckContext) -> Iterator[Finding]:
    """Whether the file system knows link(2)."""
    if not patient.workspace.files.has_links():
        finding = "the file system has no hard links: files are renamed into place under a lock instead"
        yield Finding("disk", NOTE, ".", finding, "nothing need be done; a local disk is faster")
