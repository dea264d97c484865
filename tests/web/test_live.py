"""Changes are sent to open pages, whichever process made them, and a lost connection misses none."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator

import pytest

from multi_agent_mcp.domain.agent import OwnerWait
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.web.live import TOPIC_OF_DIRECTORY, Live
from tests.end_to_end.support import PATIENCE_SECONDS, Team
from tests.web.support import Visitor, Web, at_work

Events = Iterator[tuple[str, list[str]]]


def until(events: Events, topic: str) -> str:
    """The id of the event that names the topic; fails when the stream falls silent."""
    return next(event_id for event_id, topics in events if topic in topics)


def add_task(team: Team, assignee_id: str | None = "worker-a") -> None:
    services = team.services
    services.task_creation.create(services.agents.owner(), [NewTask(title="x", assignee_id=assignee_id)])


def interrupt(team: Team) -> None:
    services = team.services
    services.interrupting.interrupt(services.agents.owner(), "worker-a", "pause", None, None)


def talk(team: Team) -> None:
    services = team.services
    services.conversations.begin(services.agents.get("worker-a"), services.agents.get("worker-b"), "hello")


def begin_execution(team: Team) -> None:
    with at_work(team):
        pass


def wait_for_admin(team: Team) -> None:
    services = team.services
    services.owner_waits.begin(
        OwnerWait(owner_id="owner", admin_id="admin", task_id="tsk_000000000000", message_id="x")
    )


CHANGES: dict[str, tuple[str, Callable[[Team], object]]] = {
    "a message": ("messages", lambda team: team.post("worker-a")),
    "a file by hand": ("messages", lambda team: team.drop(team.path / "ipc" / "admin" / "note.md", "---\n---\n\nhi")),
    "a task": ("tasks", add_task),
    "an interrupt": ("notifications", interrupt),
    "a conversation": ("conversations", talk),
    "an execution": ("executions", begin_execution),
    "a wait-lock": ("agents", wait_for_admin),
    "a newcomer": ("agents", lambda team: team.services.workspace.registry.update("admin", name="Ann")),
    "a command": ("tasks", lambda team: team.ask("task", "add", "by command")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_page_is_told_what_any_process_changes(team: Team, visitor: Visitor, change: str) -> None:
    topic, act = CHANGES[change]
    with visitor.listen() as events:
        next(events)
        act(team)
        assert until(events, topic)


def test_a_first_connection_is_told_nothing_it_does_not_know(visitor: Visitor) -> None:
    with visitor.listen() as events:
        _, topics = next(events)
    assert topics == []


def test_a_page_that_reconnects_is_told_what_changed_meanwhile(team: Team, visitor: Visitor) -> None:
    with visitor.listen() as events:
        last, _ = next(events)
    with visitor.listen() as other:
        next(other)
        team.post("worker-a")
        until(other, "messages")
    with visitor.listen(last) as events:
        _, topics = next(events)
    assert "messages" in topics
    assert "tasks" not in topics


def test_a_page_that_connects_late_is_told_what_changed_since_it_was_rendered(team: Team, visitor: Visitor) -> None:
    rendered = visitor.facts()["event"]
    with visitor.listen() as other:
        next(other)
        team.post("worker-a")
        until(other, "messages")
    with visitor.listen(since=rendered) as events:
        _, topics = next(events)
    assert topics == ["messages"]


def test_what_changes_while_a_page_is_being_told_is_told_next(team: Team) -> None:
    async def told() -> list[str]:
        async with Live(team.path) as live:
            events = live.events(None)
            await anext(events)
            first = await anext(events)  # the stream is held here, as by a page that reads slowly
            position = live.position
            await asyncio.to_thread(team.post, "worker-a")
            while live.position == position:
                await asyncio.sleep(0)
            async with asyncio.timeout(PATIENCE_SECONDS):
                return [first, await anext(events)]

    first, second = asyncio.run(told())
    assert "data: []" in first
    assert 'data: ["messages"]' in second


def test_after_a_restart_a_page_looks_at_everything_again(web: Web, visitor: Visitor) -> None:
    with visitor.listen() as events:
        last, _ = next(events)
        web.stop(signal.SIGKILL)
    web.start()
    with visitor.listen(last) as events:
        _, topics = next(events)
    assert topics == sorted(set(TOPIC_OF_DIRECTORY.values()))


@pytest.mark.parametrize("number", ["9" * 5000, "\xb2", "-1", "", "9" * 18])
def test_an_event_id_that_nobody_gave_out_is_no_trouble(team: Team, visitor: Visitor, number: str) -> None:
    boot = visitor.facts()["event"].partition("-")[0]
    with visitor.listen(f"{boot}-{number}") as events:
        next(events)
        team.post("worker-a")
        assert until(events, "messages")


def test_two_pages_hear_the_same(team: Team, visitor: Visitor) -> None:
    with visitor.listen() as one, visitor.listen() as other:
        next(one), next(other)
        team.post("worker-a")
        assert until(one, "messages")
        assert until(other, "messages")


def test_looking_changes_nothing(team: Team, visitor: Visitor) -> None:
    with visitor.listen() as events:
        team.post("owner", "hello")
        until(events, "messages")
        add_task(team, None)  # nobody's: a notification would be an event of its own, perhaps a late one
        last = until(events, "tasks")
        for path in ("/session", "/tasks", "/agents", "/messages", "/conversations", "/executions", "/timeline"):
            visitor.see(path)
        services = team.services
        services.messages.send(services.agents.get("admin"), Draft(content="the end", receiver_id="worker-b"))
        told = next(events)
    assert last != told[0]
    assert told[1] == ["messages"]
