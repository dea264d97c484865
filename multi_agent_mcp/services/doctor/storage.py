"""The disk itself, and what was cut off while it was written to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from multi_agent_mcp.services.doctor.finding import NOTE, PROBLEM, CheckContext, Finding
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.store.quarantine import Quarantine


def undertakings(patient: CheckContext) -> Iterator[Finding]:
    """Operations over several files that their process did not live to finish, and nobody has finished since."""
    for intent in patient.workspace.intents.left_behind():
        finding = f"{intent.kind} was cut off halfway"
        yield Finding("undertakings", PROBLEM, intent.id, finding, "carry it out", patient.operations.finish)
    intents = patient.workspace.intents
    for path in intents.unreadable():
        why = "it does not say what was to be done: damaged, or written by none of us"
        mend = partial(Quarantine(intents.files, intents.path).set_aside, path, why)
        yield Finding("undertakings", PROBLEM, f".intents/{path.name}", why, "set it aside into quarantine", mend)


def bad_sectors(patient: CheckContext) -> Iterator[Finding]:
    """Files that are passed over because the disk does not give them out."""
    workspace = patient.workspace
    agents = patient.agents.registry.all()
    folders: list[Directory[Any]] = [workspace.tasks.folder(shelf) for shelf in workspace.tasks.shelves()]
    for agent_id in agents:
        folders += (workspace.mailbox(agent_id).hot, workspace.notices(agent_id).hot)
    for folder in folders:
        for name in folder.passed_over():
            subject = str((folder.path / name).relative_to(workspace.path))
            yield Finding("disk", PROBLEM, subject, "the disk cannot read it", "look after the disk; it is tried again")


def hard_links(patient: CheckContext) -> Iterator[Finding]:
    """Whether the file system knows link(2)."""
    if not patient.workspace.files.has_links():
        finding = "the file system has no hard links: files are renamed into place under a lock instead"
        yield Finding("disk", NOTE, ".", finding, "nothing need be done; a local disk is faster")
