"""The random actions of agents. Each records its answer in the books; refusals are answers."""

from __future__ import annotations

from collections.abc import Callable

from tests.soak.host import Host
from tests.soak.lives import Reply
from tests.soak.worktrees import CONDITIONS, deliver, review

Action = Callable[[Host], object]
STATUSES = ("todo", "in_progress", "blocked", "cancelled", "done")


def act(host: Host) -> None:
    """Performs one random action of those open to this session. An interrupt is obeyed at once, as agents are told
    to."""
    choices = ACTIONS[host.role, host.purpose]
    (chosen,) = host.random.choices(list(choices), list(choices.values()))
    reply = chosen(host)
    if isinstance(reply, Reply) and reply.answer is None:
        notices(host)


def somebody(host: Host) -> str:
    return host.random.choice([agent for agent in host.stage.agents if agent != host.agent_id])


def send(host: Host) -> Reply:
    receiver = somebody(host)
    return host.send([receiver], receiver_id=receiver, priority=host.random.choice(("normal", "urgent")))


def broadcast(host: Host) -> Reply:
    return host.send([agent for agent in [*host.stage.agents, "owner"] if agent != host.agent_id])


def read(host: Host) -> Reply:
    return host.call("read_messages", limit=host.random.choice((1, 5, 50)))


def notices(host: Host) -> Reply:
    return host.call("get_notifications")


def count(host: Host) -> Reply:
    return host.call("get_unread_count")


def next_action(host: Host) -> Reply:
    reply = host.call("get_next_action")
    task = (reply.answer or {}).get("task") or {}
    if "id" in task:
        host.tasks.append(task["id"])
    return reply


def give_task(host: Host) -> Reply:
    title = f"task {host.agent_id} {host.random.getrandbits(48):x}"
    host.ledger.tasks[title] = "maybe"
    done_when = host.random.choice(CONDITIONS)
    reply = host.call("send_task", agent_id=somebody(host), title=title, content="しごと", done_when=done_when)
    _kept_task(host, title, reply)
    if reply.done and reply.answer is not None:
        host.ledger.keep("message", reply.answer["message_id"])
    return reply


def request_task(host: Host) -> Reply:
    title = f"wish {host.agent_id} {host.random.getrandbits(48):x}"
    host.ledger.tasks[title] = "maybe"
    return _kept_task(host, title, host.call("request_task", title=title))


def approve(host: Host) -> Reply:
    return host.call("approve_task_request", task_id=_a_task(host), approve=host.random.random() < 0.8)


def move(host: Host) -> Reply:
    task_id = _a_task(host)
    reply = host.call("update_task_status", task_id=task_id, status=host.random.choice(STATUSES))
    if reply.done and reply.answer is not None:
        host.ledger.moved(task_id, host.agent_id, reply.answer["previous_status"], reply.answer["new_status"])
        host.ledger.count("status changes")
    return reply


def reassign(host: Host) -> Reply:
    return host.call("assign_task", task_id=_a_task(host), assignee_id=somebody(host))


def progress(host: Host) -> Reply:
    return host.call("report_task_progress", task_id=_a_task(host), progress=host.random.randint(0, 100))


def complete(host: Host) -> Reply:
    reply = host.call("report_task_completion", task_id=_a_task(host), status="completed", message="できた")
    if reply.done and reply.answer is not None and reply.answer.get("message_id"):  # a delivery has none
        host.ledger.keep("message", reply.answer["message_id"])
    return reply


def report(host: Host) -> Reply:
    return host.call("report_completed", result=host.random.choice(("success", "failed", "blocked")))


def delegate(host: Host) -> Reply:
    return _kept(
        host, "delegation", host.call("delegate_to_chat_session", target_agent_id=somebody(host), purpose="聞く")
    )


def take(host: Host) -> Reply:
    return host.call("get_pending_delegations")


def start_talk(host: Host) -> Reply:
    other = somebody(host)
    reply = host.send([other], "start_conversation", "initial_message", target_agent_id=other)
    return _kept(host, "conversation", reply, host.conversations)


def talk(host: Host) -> Reply:
    return host.send([], conversation_id=_a_talk(host))


def end_talk(host: Host) -> Reply:
    return host.send([], "end_conversation", "final_message", conversation_id=_a_talk(host))


def wake(host: Host) -> Reply:
    priority = host.random.choice(("normal", "high"))
    reply = host.call("notify_task_session", conversation_id=_a_talk(host), priority=priority)
    return _kept(host, "notification", reply)


def _a_task(host: Host) -> str:
    known = host.stage.known_tasks
    return host.random.choice(known[-40:]) if known else "tsk_000000000000"


def _a_talk(host: Host) -> str:
    return host.random.choice(host.conversations[-5:]) if host.conversations else "cnv_000000000000"


def _kept_task(host: Host, title: str, reply: Reply) -> Reply:
    if reply.done and reply.answer is not None:
        host.ledger.tasks[title] = "acked"
        host.stage.known_tasks.append(reply.answer["task_id"])
        host.ledger.count("tasks acknowledged")
    return reply


def _kept(host: Host, kind: str, reply: Reply, known: list[str] | None = None) -> Reply:
    if reply.done and reply.answer is not None:
        host.ledger.keep(kind, reply.answer[f"{kind}_id"])
        if known is not None:
            known.append(reply.answer[f"{kind}_id"])
    return reply


EVERYBODY: dict[Action, int] = {send: 30, broadcast: 1, read: 40, notices: 8, count: 3, next_action: 6}
TASK: dict[Action, int] = {move: 10, report: 3, delegate: 3, progress: 5, complete: 4, request_task: 2, deliver: 30}
CHAT: dict[Action, int] = {take: 4, start_talk: 6, talk: 10, end_talk: 2, wake: 3}
LEADER: dict[Action, int] = {give_task: 24, approve: 4, reassign: 3, review: 20}
ACTIONS: dict[tuple[str, str], dict[Action, int]] = {
    ("worker", "task"): EVERYBODY | TASK,
    ("worker", "chat"): EVERYBODY | CHAT,
    ("admin", "task"): EVERYBODY | TASK | LEADER,
    ("admin", "chat"): EVERYBODY | CHAT | LEADER,
}
