"""Operations on values that several machines share or exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.history import new_value
from multi_agent_mcp.services.questions import Asking
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.wiring import Services
from tests.crash.invariants import mail, notices
from tests.crash.machines import FREE, SharedOperation
from tests.hub.support import DESK, HOMES, LAPTOP


def tasks_for_worker(services: Services, names: Sequence[str]) -> Sequence[str]:
    """Creates one task for each moment."""
    new = [NewTask(title=name, assignee_id="worker-a") for name in names]
    return [task.id for task in services.task_creation.create(services.agents.get("admin"), new)]


def start(services: Services, task_id: str) -> object:
    return services.task_changes.set_status(services.agents.get("worker-a"), task_id, "in_progress")


def started(services: Services, task_id: str) -> Mapping[str, int]:
    task = services.workspace.tasks.get(task_id)
    lines = [line for line in task.history if new_value(line, "status") == "in_progress"]
    return {"status": int(task.status == "in_progress"), "line": len(lines)}


def tasks_in_progress(services: Services, names: Sequence[str]) -> Sequence[str]:
    ids, worker = tasks_for_worker(services, names), services.agents.get("worker-a")
    for task_id in ids:
        services.task_changes.set_status(worker, task_id, "in_progress")
    return ids


def block(services: Services, task_id: str) -> object:
    return services.task_changes.set_status(services.agents.get("admin"), task_id, "blocked", "stop")


def blocked(services: Services, task_id: str) -> Mapping[str, int]:
    found = [item for item in notices(services, "worker-a") if item.task_id == task_id and item.action == "blocked"]
    return {"status": int(services.workspace.tasks.get(task_id).status == "blocked"), "interrupt": len(found)}


def cancel(services: Services, task_id: str) -> object:
    return services.task_changes.set_status(services.agents.get("admin"), task_id, "cancelled", "stop")


def cancelled(services: Services, task_id: str) -> Mapping[str, int]:
    found = [item for item in notices(services, "worker-a") if item.task_id == task_id and item.action == "cancel"]
    return {"status": int(services.workspace.tasks.get(task_id).status == "cancelled"), "interrupt": len(found)}


def dropped(services: Services, task_id: str) -> Mapping[str, int]:
    return {"status": int(services.workspace.tasks.get(task_id).status == "cancelled")}


def create(services: Services, title: str) -> object:
    new = [NewTask(title=title, assignee_id="worker-a")]
    return services.task_creation.create(services.agents.get("admin"), new)


def created(services: Services, title: str) -> Mapping[str, int]:
    return {"task": [task.title for task in services.workspace.tasks.all()].count(title)}


def unclaimed(services: Services, names: Sequence[str]) -> Sequence[str]:
    new = [NewTask(title=name) for name in names]
    return [task.id for task in services.task_creation.create(services.agents.get("admin"), new)]


def claim(services: Services, task_id: str) -> object:
    return services.claims.claim(services.agents.get("worker-a"), task_id)


def claimed(services: Services, task_id: str) -> Mapping[str, int]:
    task = services.workspace.tasks.get(task_id)
    lines = [line for line in task.history if new_value(line, "assignee_id") == "worker-a"]
    return {"holder": int(task.assignee_id == "worker-a"), "line": len(lines)}


def offer(services: Services, words: str) -> object:
    return services.questions.ask(services.agents.get("admin"), Asking(question=words, to_id="@any"), None)


def offered(services: Services, words: str) -> Mapping[str, int]:
    found = [question for question in services.workspace.questions.all() if question.question == words]
    return {"question": len(found), "holder": sum(question.to_id in FREE for question in found)}


def send(services: Services, words: str) -> object:
    return services.messages.send(services.agents.get("worker-a"), Draft(content=words, receiver_id="admin"))


def sent(services: Services, words: str) -> Mapping[str, int]:
    return {"message": [item.content for item in mail(services, "admin")].count(words)}


def broadcast(services: Services, words: str) -> object:
    return services.messages.send(services.agents.get("worker-a"), Draft(content=words))


def heard(services: Services, words: str) -> Mapping[str, int]:
    return {agent_id: [item.content for item in mail(services, agent_id)].count(words) for agent_id in HOMES[DESK]}


def conversations(services: Services, names: Sequence[str]) -> Sequence[str]:
    admin, worker = services.agents.get("admin"), services.agents.get("worker-a")
    return [services.conversations.begin(admin, worker, name)[0].id for name in names]


def say(services: Services, conversation_id: str) -> object:
    words = Draft(content=f"answer in {conversation_id}")
    return services.conversations.say(services.agents.get("worker-a"), conversation_id, words)


def said(services: Services, conversation_id: str) -> Mapping[str, int]:
    words = f"answer in {conversation_id}"
    copies = [item.content for item in services.conversations.messages_of(conversation_id)]
    return {"message": sent(services, words)["message"], "copy": copies.count(words)}


def agent_ids(_: Services, names: Sequence[str]) -> Sequence[str]:
    return [f"new-{number}-of-{len(names)}" for number, _ in enumerate(names)]


def add_agent(services: Services, agent_id: str) -> object:
    return services.agents.add(Agent(id=agent_id, parent_id="admin"))


def agent_added(services: Services, agent_id: str) -> Mapping[str, int]:
    return {"agent": int(agent_id in services.agents.all())}


SHARED = {
    operation.name: operation
    for operation in (
        SharedOperation("shared_status", LAPTOP, start, started, tasks_for_worker),
        SharedOperation("shared_block", DESK, block, blocked, tasks_in_progress),
        SharedOperation("shared_cancel", DESK, cancel, cancelled, tasks_in_progress),
        SharedOperation("shared_drop", DESK, cancel, dropped, unclaimed),
        SharedOperation("shared_create", DESK, create, created),
        SharedOperation("shared_claim", LAPTOP, claim, claimed, unclaimed),
        SharedOperation("shared_offer", DESK, offer, offered),
        SharedOperation("shared_send", LAPTOP, send, sent),
        SharedOperation("shared_broadcast", LAPTOP, broadcast, heard),
        SharedOperation("shared_say", LAPTOP, say, said, conversations),
        SharedOperation("shared_agent", LAPTOP, add_agent, agent_added, agent_ids, is_repeated=True),
    )
}
