"""The everyday operations of a team, to be tried on a machine with a fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.wiring import Services

PAYLOAD = "x" * 20_000


def context(root: Path) -> Services:
    return open_session(root, "demo", notifier=Recorder())


def deeds(services: Services) -> Mapping[str, Callable[[], object]]:
    """Name → operation. Each is done whole, or refused with a code and not done at all."""
    admin, worker = services.agents.get("admin"), services.agents.get("worker-a")

    def converse() -> None:
        services.conversations.begin(worker, services.agents.get("worker-b"), PAYLOAD)

    def hand_over() -> None:
        services.owner_waits.release("owner")  # of an earlier round: while there is one there is no other
        services.task_creation.send(services.agents.owner(), "admin", "Build", PAYLOAD)

    return {
        "send": lambda: services.messages.send(admin, Draft(content=PAYLOAD, receiver_id="worker-a")),
        "broadcast": lambda: services.messages.send(admin, Draft(content=PAYLOAD)),
        "send_task": hand_over,
        "batch": lambda: services.task_creation.create(admin, [NewTask(title=n, description=PAYLOAD) for n in "abc"]),
        "request": lambda: services.task_creation.request(worker, NewTask(title="Test", description=PAYLOAD)),
        "conversation": converse,
        "read": lambda: services.reading.read(worker, Query(limit=1)),
        "session": lambda: services.sessions.open("worker-a", "task"),
        "pause": lambda: services.interrupts.pause("worker-a", None),
    }


def tried(services: Services) -> dict[str, str]:
    """Runs every operation; returns its result: `done`, or the code it was refused with."""
    outcomes = {}
    for name, deed in deeds(services).items():
        try:
            deed()
            outcomes[name] = "done"
        except Refusal as refusal:
            outcomes[name] = refusal.code
    return outcomes


def entities(root: Path) -> dict[str, bytes]:
    """The content of every entity file, by its path before it was archived, without dot-directories."""
    base = root / "demo"
    found = {path.relative_to(base): path for path in base.rglob("*.md")}
    return {
        re.sub("archive/[0-9-]+/", "", str(name)): path.read_bytes()
        for name, path in found.items()
        if not name.parts[0].startswith(".")
    }


def nothing_is_half_done(root: Path) -> None:
    """A broadcast is with everybody or nobody, a task with its mail, a conversation with its words."""
    services = context(root)
    services.operations.finish()
    assert list(services.workspace.intents.path.glob("*")) == []
    copies = [len(list(services.workspace.mailbox(name).history())) for name in ("owner", "admin", "worker-b")]
    mail = {name: list(services.workspace.mailbox(name).history()) for name in ("owner", "admin", "worker-b")}
    shared = [{message.metadata.get("broadcast_id") for message in box} - {None} for box in mail.values()]
    assert shared[0] == shared[2], copies
    assigned = {message.metadata["task_id"] for message in mail["admin"] if message.message_type == "task_assign"}
    assert assigned == {task.id for task in services.workspace.tasks.all("admin")}
    for conversation in services.workspace.conversations.all():
        assert len(services.conversations.messages_of(conversation.id)) == 1
    begun = {conversation.id for conversation in services.workspace.conversations.all()}
    directories = {path.name for path in services.workspace.conversations.base.glob("cnv_*")}
    assert directories == begun, "a directory of no conversation"
    assert len(services.workspace.tasks.all("_unassigned")) % 3 == 0
