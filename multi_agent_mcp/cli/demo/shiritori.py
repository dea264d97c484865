"""UC020 (docs/protocol.md, Delegation): a task session delegates a conversation, chat sessions hold it, the task
session sees its end."""

from __future__ import annotations

from multi_agent_mcp.cli.context import say, table
from multi_agent_mcp.cli.demo.stage import Stage
from multi_agent_mcp.cli.timeline import since
from multi_agent_mcp.domain.conversation import Conversation
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.times import parse_time
from multi_agent_mcp.services.tasks.creation import NewTask

PLAYER = "worker-a"
MESSAGES = 12
SESSIONS = {(PLAYER, "task"), (PLAYER, "chat"), ("worker-b", "chat")}


def play(stage: Stage, seconds: float, attach: bool) -> list[str]:
    """Plays it and prints the conversation with its times. Returns what is missing."""
    services = stage.services
    new = NewTask(title="worker-bとしりとり", description="6往復のしりとりをしてください。", assignee_id=PLAYER)
    (task,) = services.task_creation.create(services.agents.owner(), [new])
    stage.open_windows(supervisor=True)
    watched = [f"sessions/{agent_id}" for agent_id in ("worker-a", "worker-b")]

    def over() -> bool:
        ended = {(item.agent_id, item.purpose) for item in services.workspace.sessions.all() if item.ended_at}
        return ended >= SESSIONS

    finished = stage.attach_until(watched, over, seconds) if attach else stage.wait_for(watched, over, seconds)
    conversations = services.conversations.of_task(task.id)
    for conversation in conversations:
        _print(stage, conversation)
    say()
    after = services.task_changes.get(task.id)
    say(f"{after.id} {after.title}: {after.status}, {after.completion_summary}")
    late = [] if finished else ["not every session logged out in time"]
    return late + _missing(stage, conversations, after.status)


def _print(stage: Stage, conversation: Conversation) -> None:
    messages = stage.services.conversations.messages_of(conversation.id)
    say()
    say(f"{conversation.id} {conversation.purpose}: {conversation.status}, delegated as {conversation.delegation_id}")
    rows = [_row(stage, item, messages[0]) for item in messages]
    for line in table(("at", "who", "says", "rung", "submitted", "read"), rows):
        say(line)


def _row(stage: Stage, message: Message, first: Message) -> tuple[str, ...]:
    mail = stage.services.workspace.mailbox(message.receiver_id).find(message.id)
    steps = {str(step["state"]): parse_time(step["at"]) for step in stage.services.tracking.steps(message)}
    return (
        f"{(message.created_at - first.created_at).total_seconds():7.3f} s",
        message.sender_id,
        message.content,
        since(message.created_at, steps.get("rung")),
        since(message.created_at, steps.get("submitted")),
        since(message.created_at, mail[1].read_at if mail else None),
    )


def _missing(stage: Stage, conversations: list[Conversation], status: str) -> list[str]:
    if len(conversations) != 1:
        return [f"{len(conversations)} conversations, not one"]
    (conversation,) = conversations
    messages = stage.services.conversations.messages_of(conversation.id)
    rung = [item for item in messages if stage.services.tracking.steps(item)]
    wanted = {
        f"{len(messages)} messages, not {MESSAGES}": len(messages) == MESSAGES,
        f"the conversation is {conversation.status}, not ended": conversation.status == "ended",
        f"the task is {status}, not done": status == "done",
        "a message was not announced by a doorbell": len(rung) == len(messages),
        "the conversation has no delegation": conversation.delegation_id is not None,
    }
    return [problem for problem, holds in wanted.items() if not holds]
