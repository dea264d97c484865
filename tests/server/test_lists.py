"""Lists that are longer than an answer: each says how to go on, and can be read to its end."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp import Refused
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.pytest_plugin import MakeTeam
from multi_agent_mcp.server.calls import Answer
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.planned import planned
from tests.server.seat import Seat
from tests.services.support import send

_CALL = re.compile(r"(\w+)\(([^)]*)\)")
_ARGUMENT = re.compile(r'(\w+)=("[^"]*"|\d+|true|false)')


def calls_in(how_to_continue: str) -> list[tuple[str, dict[str, str]]]:
    """The calls that an answer names, with their arguments as a model would repeat them."""
    return [
        (tool, {name: value.strip('"') for name, value in _ARGUMENT.findall(arguments)})
        for tool, arguments in _CALL.findall(how_to_continue)
    ]


def pages(seat: Seat, tool: str, **arguments: Any) -> Iterator[Answer]:
    """The answers of a caller that does what they say, until one is not truncated."""
    while True:
        answer = seat.call(tool, **arguments)
        assert answer["success"], answer
        yield answer
        if "truncated" not in answer:
            return
        (named, arguments), *_ = calls_in(answer["how_to_continue"])
        assert named == tool


@pytest.fixture
def seat(services: Services) -> Seat:
    return Seat(services, "worker-a")


def begin_talk(services: Services, with_id: str = "worker-b", **about: Any) -> str:
    one, other = services.agents.get("worker-a"), services.agents.get(with_id)
    conversation, _ = services.conversations.begin(one, other, "word 0", **about)
    return conversation.id


def say(services: Services, clock: Clock, conversation_id: str, numbers: range) -> None:
    for number in numbers:
        clock.advance(0.4)
        speaker = services.agents.get(("worker-a", "worker-b")[number % 2])
        services.conversations.say(speaker, conversation_id, Draft(content=f"word {number}"))


@pytest.mark.parametrize("limit", [None, 7, 500])
def test_a_conversation_can_be_followed_to_its_first_message(
    services: Services, clock: Clock, seat: Seat, limit: int | None
) -> None:
    talk = begin_talk(services)
    say(services, clock, talk, range(1, 70))
    given = {} if limit is None else {"limit": limit}
    read: list[str] = []
    for number, answer in enumerate(pages(seat, "get_conversation_messages", conversation_id=talk, **given)):
        assert answer["total_count"] == 70
        assert number < 12
        read = [message["content"] for message in answer["messages"]] + read
    assert read == [f"word {number}" for number in range(70)]


def test_messages_of_one_second_and_of_one_moment_come_once_each(services: Services, seat: Seat) -> None:
    talk = begin_talk(services)
    for number in range(1, 40):  # the clock stands still
        services.conversations.say(services.agents.get("worker-a"), talk, Draft(content=f"word {number}"))
    read = [
        message["content"]
        for answer in pages(seat, "get_conversation_messages", conversation_id=talk, limit=6)
        for message in answer["messages"]
    ]
    assert sorted(read) == sorted(f"word {number}" for number in range(40))


def test_an_unknown_place_to_go_on_from_is_refused(agent_team: MakeTeam) -> None:
    team = agent_team()
    worker: Any = team["worker-a"]
    talk = worker.chat.start_conversation("worker-b", "word 0")["conversation_id"]
    (task_id,) = planned(team, "T")
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("get_conversation_messages", {"conversation_id": talk, "before": "no such"}, "message_not_found"),
        ("get_my_tasks", {"before": "tsk_0123456789ab"}, "task_not_found"),
        ("get_my_tasks", {"before": "../x"}, "invalid_id"),
        ("get_my_execution_history", {"before": "exec_0123456789ab"}, "execution_not_found"),
        ("get_task_conversations", {"task_id": task_id, "before": "cnv_0123456789ab"}, "conversation_not_found"),
    ]
    for tool, arguments, code in wrong:
        with pytest.raises(Refused, match=f"^{code}"):
            getattr(worker, tool)(**arguments)


def test_the_conversations_of_a_task_and_their_messages_can_be_read_to_the_end(
    services: Services, clock: Clock, seat: Seat
) -> None:
    (task,) = services.task_creation.create(services.agents.get("admin"), [NewTask(title="T", assignee_id="worker-a")])
    talks = []
    for _ in range(30):
        clock.advance(1)
        talks.append(begin_talk(services, task_id=task.id, purpose="p" * 60))
    say(services, clock, talks[11], range(1, 60))
    seen: list[str] = []
    words: dict[str, list[str]] = {}
    for answer in pages(seat, "get_task_conversations", task_id=task.id):
        assert answer["total_conversations"] == 30
        page = answer["conversations"]
        seen = [item["conversation_id"] for item in page] + seen
        words |= {item["conversation_id"]: [one["content"] for one in item["messages"]] for item in page}
        cut = [item["conversation_id"] for item in page if item.get("messages_truncated")]
        rest = [given for tool, given in calls_in(answer.get("how_to_continue", "")) if "conversation_id" in given]
        assert [given["conversation_id"] for given in rest] == cut
        for given in rest:
            for older in pages(seat, "get_conversation_messages", **given):
                words[given["conversation_id"]] = [one["content"] for one in older["messages"]] + words[
                    given["conversation_id"]
                ]
    assert seen == talks
    assert words[talks[11]] == [f"word {number}" for number in range(60)]
    assert all(said == ["word 0"] for talk, said in words.items() if talk != talks[11])


def test_who_may_read_the_conversations_of_a_task_may_go_on_in_one_of_them(services: Services, clock: Clock) -> None:
    (task,) = services.task_creation.create(services.agents.get("admin"), [NewTask(title="T", assignee_id="worker-a")])
    talk = begin_talk(services, task_id=task.id)
    say(services, clock, talk, range(1, 60))
    superior = Seat(services, "admin")
    answer = superior.call("get_task_conversations", task_id=task.id)
    ((tool, given),) = calls_in(answer["how_to_continue"])
    older = list(pages(superior, tool, **given))
    assert older[-1]["messages"][0]["content"] == "word 0"
    stranger = Seat(services, "worker-b")  # takes part
    assert stranger.call("get_conversation_messages", conversation_id=talk)["success"]
    private = begin_talk(services)
    assert superior.call("get_conversation_messages", conversation_id=private)["error"] == "not_participant"


def test_many_delegations_that_wait_can_be_read_to_the_end(services: Services, seat: Seat, clock: Clock) -> None:
    for number in range(40):
        clock.advance(1)
        seat.call("delegate_to_chat_session", target_agent_id="worker-b", purpose=f"{number} " + "x" * 400)
    purposes = [
        item["purpose"].split()[0]
        for answer in pages(seat, "get_task_conversations")
        for item in answer["conversations"]
    ]
    assert purposes == [str(number) for number in range(40)]


@pytest.mark.parametrize("limit", [None, 9, 500])
def test_my_tasks_can_be_read_to_the_end_open_ones_first(
    services: Services, clock: Clock, seat: Seat, admin: Agent, limit: int | None
) -> None:
    new = [NewTask(title=f"{number} " + "x" * 150, assignee_id="worker-a") for number in range(50)]
    made = services.task_creation.create(admin, new)
    for task in made[::2]:
        clock.advance(1)
        services.task_changes.set_status(services.agents.get("worker-a"), task.id, "cancelled")
    given = {} if limit is None else {"limit": limit}
    found = [item for answer in pages(seat, "get_my_tasks", **given) for item in answer["tasks"]]
    assert sorted(item["task_id"] for item in found) == sorted(task.id for task in made)
    assert [item["status"] for item in found] == ["todo"] * 25 + ["cancelled"] * 25
    only = [item for answer in pages(seat, "get_my_tasks", status="cancelled", **given) for item in answer["tasks"]]
    assert [item["task_id"] for item in only] == [item["task_id"] for item in found[25:]]


def test_a_task_that_went_to_another_agent_is_no_place_to_go_on_from(agent_team: MakeTeam) -> None:
    team = agent_team()
    (task_id,) = planned(team, "T", assignee_id="worker-b")
    team["admin"].update_task_status(task_id, "cancelled")
    with pytest.raises(Refused, match="task_not_found"):
        team["worker-a"].get_my_tasks(before=task_id)


@pytest.mark.parametrize("limit", [None, 9, 500])
def test_my_executions_can_be_read_to_the_end_newest_first(
    services: Services, clock: Clock, seat: Seat, admin: Agent, limit: int | None
) -> None:
    (task,) = services.task_creation.create(admin, [NewTask(title="T", assignee_id="worker-a")])
    begun = []
    for _ in range(40):
        clock.advance(2)
        begun.append(services.executions.begin(seat.binding.live_session().record, task.id))
        services.executions.finish(begun[-1])
    begun.append(services.executions.begin(seat.binding.live_session().record, task.id))
    given = {} if limit is None else {"limit": limit}
    found = [item for answer in pages(seat, "get_my_execution_history", **given) for item in answer["executions"]]
    assert [item["execution_id"] for item in found] == [execution.id for execution in begun[::-1]]
    about = {"task_id": task.id, "status": "completed", **given}
    only = [item for answer in pages(seat, "get_my_execution_history", **about) for item in answer["executions"]]
    assert [item["execution_id"] for item in only] == [execution.id for execution in begun[-2::-1]]


def test_a_team_of_a_hundred_can_be_listed_to_its_last_agent(services: Services, seat: Seat, admin: Agent) -> None:
    newcomers = [Agent(id=f"worker-{number:03}", role="worker", parent_id="admin") for number in range(100)]
    for newcomer in newcomers:
        services.agents.register(newcomer, by=admin)
    listed = [item["id"] for answer in pages(seat, "list_agents") for item in answer["agents"]]
    assert listed == list(services.agents.all())
    assert len(listed) > 100
    assert seat.call("list_agents", after="nobody")["error"] == "agent_not_found"


def test_the_tasks_of_the_dashboard_can_be_read_to_the_end(services: Services, admin: Agent) -> None:
    new = [NewTask(title=f"{number} " + "x" * 150, assignee_id="worker-a") for number in range(60)]
    made = services.task_creation.create(admin, new)
    seat = Seat(services, "admin")
    answers = list(pages(seat, "get_dashboard"))
    found = [item["task_id"] for answer in answers for item in answer["dashboard"]["tasks"]]
    assert sorted(found) == sorted(task.id for task in made)
    assert ["agents" in answer["dashboard"] for answer in answers] == [True] + [False] * (len(answers) - 1)
    assert seat.call("get_dashboard", after="tsk_0123456789ab")["error"] == "task_not_found"


def test_odd_files_in_an_archive_hide_no_message(services: Services, seat: Seat, tmp_path: Path) -> None:
    for number in range(4):
        send(services, "admin", "worker-a", f"note {number}")
    seat.call("read_messages")
    seat.call("get_unread_count")  # confirms: the messages move to the archive
    *files, kept = sorted((services.workspace.mailbox("worker-a").path / "archive").rglob("*.md"))
    assert len(files) == 3
    link, pipe, plug = files
    for path in files:
        path.unlink()
    link.symlink_to(tmp_path / "elsewhere.md")
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as server:
        directory = os.open(plug.parent, os.O_RDONLY)  # the address of a socket is short
        server.bind(f"/proc/self/fd/{directory}/{plug.name}")
        os.close(directory)
    answer = seat.call("read_messages", unread_only=False)
    assert [message["id"][:8] in kept.name for message in answer["messages"]] == [True], answer
