"""The invariants that hold after any crash, at any moment (docs/protocol.md, Durability)."""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from multi_agent_mcp.domain.message import Conversation, Message
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import NoSuchSession
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.store.codec import Unreadable, codec
from multi_agent_mcp.wiring import Services
from tests.crash.stage import Aftermath, Facts, Operation, context


def complaints(operation: Operation, root: Path, told: Facts, answers: list[Facts]) -> Iterator[str]:
    """Yields every violated invariant, after the agents' next servers have recovered the session."""
    try:
        services = context(root)
    except NoSuchSession:
        yield from operation.look(Aftermath(None, told, answers, root))  # type: ignore[arg-type]
        return
    yield from torn(services)
    settle(services)
    after = Aftermath(services, told, answers, root)
    yield from operation.look(after)
    yield from twice(services)
    yield from ailing(services)
    yield from blocking(services)


def settle(services: Services, agents: Iterable[str] | None = None) -> None:
    """Recovers the session as the next server of every agent, or of these, does before its first answer."""
    services.operations.finish()
    for agent_id in services.agents.all() if agents is None else agents:
        services.sessions.recover(agent_id)
        for purpose in ("task", "chat"):
            services.notifications.refresh(agent_id, purpose)


def torn(services: Services) -> Iterator[str]:
    """Yields files that are torn or in quarantine, and scratch files in directories of entities."""
    base = services.workspace.path
    kinds = {"ipc": Message, "notifications": Notification, "tasks": Task}
    for path in sorted(base.rglob("*")):
        parts = path.relative_to(base).parts
        if parts[0].startswith(".") or not path.is_file():
            continue
        if "quarantine" in parts:
            yield f"{path.relative_to(base)} is in quarantine"
        if path.suffix == ".md" and parts[0] in kinds:
            try:
                codec(kinds[parts[0]]).decode(path.read_bytes())
            except Unreadable as error:
                yield f"{path.relative_to(base)} is torn: {error}"
        if path.suffix == ".tmp":
            yield f"{path.relative_to(base)} is no file of anybody"


def twice(services: Services) -> Iterator[str]:
    """Yields items that readers would be shown twice."""
    agents = services.agents.registry.all()
    shown = {
        "message": [message.id for agent in agents for message in services.workspace.mailbox(agent).history()],
        "notice": [notice.id for agent in agents for notice in services.workspace.notices(agent).history()],
        "task": [task.id for task in services.workspace.tasks.all()],
    }
    for kind, ids in shown.items():
        for entity_id, count in Counter(ids).items():
            if count > 1:
                yield f"{kind} {entity_id} is there {count} times"


def ailing(services: Services) -> Iterator[str]:
    """Yields intents that were not carried out, and the problems that `doctor` reports."""
    for path in services.workspace.intents.path.glob("*"):
        yield f"{path.name} was not carried out"
    for finding in services.doctor(lambda _: None).examine():
        if finding.level == "problem":
            yield f"doctor: {finding.check} {finding.subject}: {finding.finding}"


def blocking(services: Services) -> Iterator[str]:
    """Yields locks held by dead processes, and a failure of everyday work."""
    for path in services.workspace.locks.path.glob("*.lock"):
        descriptor = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield f"{path.name} is held by a dead process"
        finally:
            os.close(descriptor)
    admin, worker = services.agents.get("admin"), services.agents.get("worker-a")
    sent = services.messages.send(admin, Draft(content="still there?", receiver_id=worker.id))
    newest = Query(whole=True, unread_only=False, limit=5)
    if sent.message_id not in [item["id"] for item in services.reading.read(worker, newest)["messages"]]:
        yield "a message sent after the crash does not arrive"


def mail(services: Services, agent_id: str) -> list[Message]:
    """All mail of an agent, hot and archived."""
    return list(services.workspace.mailbox(agent_id).history())


def notices(services: Services, agent_id: str) -> list[Notification]:
    return list(services.workspace.notices(agent_id).history())


def conversations(services: Services) -> list[Conversation]:
    return services.workspace.conversations.all()
