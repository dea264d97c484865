"""Items waiting for the human: each is listed once, the most urgent first, and only while it is waiting."""

from __future__ import annotations

from datetime import timedelta
from threading import Event

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.dialog import Choice, Dialog
from multi_agent_mcp.domain.slot import Slot
from multi_agent_mcp.services.attention import Attention, Item, RecentAttention
from multi_agent_mcp.services.background import PartsDone
from multi_agent_mcp.services.doctor.tree import NOTE, PROBLEM, Finding
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services import tasks_support as support
from tests.services.support import by_hand, read, send
from tests.services.tasks_support import moved, running


class Panes:
    """Simulated panes; a test sets what the pane of `worker-a` shows."""

    def __init__(self, services: Services) -> None:
        self.shows: tuple[str, str] | str | None = None
        self.dialog: Dialog | None = None
        self.attention = Attention(
            services.session,
            services.stuck_agents,
            services.task_changes,
            services.tracking,
            services.pane_looks,
            services.limited,
            self.look_at,
            self.screen,
            lambda _: self.dialog,
            services.machines,
            services.missing_sessions,
            services.supervision,
            services.owner_waits,
            services.derived_notices,
            services.questions,
        )
        services.workspace.registry.update("worker-a", pane_id="%7", socket_path="/nowhere/s", host="claude")

    def look_at(self, agent: Agent) -> tuple[str, str] | None:
        return self.shows if agent.id == "worker-a" and isinstance(self.shows, tuple) else None

    def screen(self, agent: Agent) -> str:
        return self.shows if agent.id == "worker-a" and isinstance(self.shows, str) else "no_pane"


@pytest.fixture
def panes(services: Services) -> Panes:
    return Panes(services)


def waiting(services: Services, panes: Panes, *findings: Finding) -> list[Item]:
    return panes.attention.of(services.agents.owner(), findings)


def kinds(items: list[Item]) -> list[str]:
    return [item.kind for item in items]


def test_nothing_waits_in_a_team_at_peace(services: Services, panes: Panes) -> None:
    panes.shows = ("claude", "idle")
    running(services)
    assert waiting(services, panes) == []


def test_a_task_that_an_idle_agent_has_read_of_and_does_not_begin_waits_for_the_human(
    services: Services, panes: Panes, clock: Clock
) -> None:
    panes.shows = ("claude", "idle")
    support.open_session(services, "worker-a")
    support.new(services)
    services.notifications.read("worker-a", "task")
    assert waiting(services, panes) == []
    clock.advance(1800)
    (item,) = waiting(services, panes)
    assert (item.kind, item.agent_id) == ("stuck", "worker-a")


def test_the_worst_comes_first_and_everything_goes_when_it_is_solved(
    services: Services, panes: Panes, clock: Clock
) -> None:
    owner, admin = services.agents.owner(), services.agents.get("admin")
    task = running(services)
    moved(services, task, "blocked")
    request = services.task_creation.request(admin, NewTask(title="may I"))[0]
    send(services, "admin", "owner", "a question", subject="which colour?")
    services.conversations.begin(admin, owner, "let us talk")
    panes.shows = ("claude", "dialog")
    found = waiting(services, panes, Finding("keys", PROBLEM, "agents", "is broken"), Finding("locks", NOTE, "x", "y"))
    assert kinds(found) == ["dialog", "request", "conversation", "blocked", "mail", "doctor"]
    assert {item.command.split()[0] for item in found} == {"multi-agent-mcp"}
    assert request.title in found[1].text

    panes.shows = ("claude", "idle")
    services.task_changes.decide(owner, request.id, approve=True)
    read(services, "owner")
    services.task_changes.set_status(admin, task.id, "cancelled")
    assert waiting(services, panes) == []


def test_a_pane_whose_program_ended_waits_to_be_started_again(services: Services, panes: Panes) -> None:
    panes.shows = "pane_dead"
    (item,) = waiting(services, panes)
    assert (item.kind, item.agent_id, item.command) == ("ended", "worker-a", "multi-agent-mcp up worker-a")


def test_a_program_that_ended_is_not_listed_beside_a_living_pane_of_its_agent(services: Services, panes: Panes) -> None:
    panes.shows = "pane_dead"
    place = {"socket_path": "/nowhere/s", "pane_id": "%9", "pane_pid": 99}
    services.missing_sessions.record(Slot("worker-a", "chat"), place, 0)
    panes.attention.screen = lambda agent: "claude: idle" if agent.pane_id == "%9" else "pane_dead"
    assert waiting(services, panes) == []
    panes.attention.screen = lambda _: "pane_dead"
    assert kinds(waiting(services, panes)) == ["ended"]


def test_a_team_that_is_down_with_work_is_said_to_be_down_once_with_the_command(
    services: Services, panes: Panes, clock: Clock
) -> None:
    for agent_id in ("admin", "worker-a"):
        services.agents.change(agent_id, command="claude")
    panes.shows = "pane_dead"
    assert kinds(waiting(services, panes)) == ["ended"]
    running(services)
    send(services, "admin", "worker-a", "hello")
    clock.advance(3600)
    (item,) = waiting(services, panes)
    assert (item.kind, item.command) == ("down", "multi-agent-mcp up")
    assert item.text == "the team is not running: up (work waits for worker-a)"
    panes.shows = ("claude", "idle")
    assert "down" not in kinds(waiting(services, panes))
    panes.shows = "unknown_host"
    assert "down" not in kinds(waiting(services, panes))
    panes.shows = "pane_gone"
    services.supervision.begin()
    assert "down" not in kinds(waiting(services, panes))


def test_a_supervisor_that_has_died_is_said_when_work_waits_for_it(services: Services, panes: Panes) -> None:
    def findings() -> list[str]:
        return [found.finding for found in services.doctor(lambda _: None).examine() if found.check == "supervisor"]

    services.agents.change("worker-a", command="claude")
    panes.shows = ("claude", "idle")
    services.workspace.supervision.write({"pid": 1 << 30, "pid_started_at": "1"})
    assert (kinds(waiting(services, panes)), findings()) == ([], []), "nothing waits"
    running(services)
    (item,) = waiting(services, panes)
    assert (item.kind, item.agent_id, item.command) == ("ended", None, "multi-agent-mcp up")
    assert item.text == "the supervisor has ended: up (work waits for worker-a)"
    assert findings() == ["the supervisor has ended, and only it opens windows for the work that waits (worker-a)"]
    services.supervision.begin()
    assert (kinds(waiting(services, panes)), findings()) == ([], [])


def test_a_command_that_died_at_once_is_said_until_its_agent_runs(services: Services, panes: Panes) -> None:
    recent = RecentAttention(
        services.session,
        panes.attention,
        lambda *_, **__: services.doctor(lambda _: None).examine(),
        services.unchanged,
    )
    recent.found([])
    services.missing_sessions.record(Slot("worker-a", "task"), {}, 3)
    (item,) = recent.of(services.agents.owner())
    assert item.text == "worker-a: the command of its task session died at once, 3 times in a row"
    panes.shows = ("claude", "dialog")
    recent.look_again()
    assert kinds(recent.of(services.agents.owner())) == ["dialog"]
    panes.shows = None
    recent.look_again()
    support.open_session(services, "worker-a")
    assert recent.of(services.agents.owner()) == []
    assert [found for found in services.doctor(lambda _: None).examine() if found.check == "supervisor"] == []


def test_a_paused_agent_whose_host_works_on_is_shown_so(services: Services, panes: Panes, clock: Clock) -> None:
    services.interrupts.pause("worker-a", None, sender_id="admin", reason="lunch")
    panes.shows = ("claude", "busy")
    assert waiting(services, panes)[0].text == "paused by admin: “lunch”"
    clock.advance(61)
    (found,) = (item for item in waiting(services, panes) if item.kind == "paused")
    assert found.text == "claude works on nevertheless: paused by admin: “lunch”"
    panes.shows = ("claude", "idle")
    (found,) = (item for item in waiting(services, panes) if item.kind == "paused")
    assert found.text == "paused by admin: “lunch”"


def test_who_is_paused_and_the_owners_own_wait_are_listed_with_the_commands_that_end_them(
    services: Services, panes: Panes
) -> None:
    owner = services.agents.owner()
    services.interrupts.pause("worker-a", None, sender_id="admin", reason="lunch")
    services.task_creation.send(owner, "admin", "colour", "which?")
    found = waiting(services, panes)
    assert [(item.kind, item.agent_id, item.command) for item in found] == [
        ("paused", "worker-a", "multi-agent-mcp resume worker-a"),
        ("wait", "admin", "multi-agent-mcp wait end"),
    ]
    assert found[0].text == "paused by admin: “lunch”"
    assert waiting_for(services, panes, "admin") == ["paused"]
    services.interrupting.resume(owner, "worker-a")
    services.owner_waits.unlock(owner, owner)
    assert waiting(services, panes) == []


def waiting_for(services: Services, panes: Panes, agent_id: str) -> list[str]:
    items = panes.attention.of(services.agents.get(agent_id))
    return [item.kind for item in items if item.kind != "mail"]


def test_mail_that_could_not_be_announced_waits_once_for_each_agent(
    services: Services, panes: Panes, clock: Clock
) -> None:
    for _ in range(3):
        sent = send(services, "admin", "worker-b", "hello")
    services.workspace.delivery_log("worker-b").add("deferred", clock.now, [sent.message_id], reason="draft")
    assert waiting(services, panes) == []  # a doorbell may still be at it
    clock.advance(60)
    first = services.workspace.mailbox("worker-b").unread()
    ids = [message.id for _, message in first]
    services.workspace.delivery_log("worker-b").add("deferred", clock.now, ids, reason="draft")
    (item,) = waiting(services, panes)
    assert (item.kind, item.agent_id) == ("undelivered", "worker-b")
    assert "3" in item.text


def test_an_agent_that_asks_something_is_not_told_of_again_as_stuck_or_unreachable(
    services: Services, panes: Panes, clock: Clock
) -> None:
    support.open_session(services, "worker-a")
    running(services)
    sent = send(services, "admin", "worker-a", "hello")
    services.workspace.delivery_log("worker-a").add("deferred", clock.now, [sent.message_id], reason="dialog")
    clock.advance(3600)
    panes.shows = ("claude", "dialog")
    assert kinds(waiting(services, panes)) == ["dialog"]
    panes.shows = ("claude", "login")
    assert kinds(waiting(services, panes)) == ["login"]
    panes.shows = ("claude", "idle")
    assert "stuck" in kinds(waiting(services, panes))


def test_how_long_it_has_asked_is_known_from_what_the_supervisor_saw(
    services: Services, panes: Panes, clock: Clock
) -> None:
    panes.shows = ("claude", "dialog")
    services.pane_looks.refresh(panes.look_at)
    clock.advance(timedelta(minutes=1).total_seconds())
    (item,) = waiting(services, panes)
    assert (item.kind, item.since) == ("dialog", clock.now - timedelta(minutes=1))


def test_a_question_is_as_old_as_itself_and_not_as_the_one_before_it(
    services: Services, panes: Panes, clock: Clock
) -> None:
    panes.shows, panes.dialog = ("claude", "dialog"), Dialog("permission", "one?", (Choice("1", "Yes"),))
    services.pane_looks.refresh(panes.look_at, lambda _: panes.dialog)
    clock.advance(40)
    (item,) = waiting(services, panes)
    assert item.since == clock.now - timedelta(seconds=40)
    panes.dialog = Dialog("permission", "another?", (Choice("1", "Yes"),))
    (item,) = waiting(services, panes)
    assert item.since is None
    services.pane_looks.refresh(panes.look_at, lambda _: panes.dialog)
    clock.advance(5)
    (item,) = waiting(services, panes)
    assert item.since == clock.now - timedelta(seconds=5)


def test_what_needs_a_look_at_a_window_of_the_team_names_the_command_that_shows_it(
    services: Services, panes: Panes
) -> None:
    panes.shows = ("claude", "login")
    (item,) = waiting(services, panes)
    agent = services.agents.get("worker-a")
    assert item.command == f"tmux -S {agent.socket_path} attach -t {agent.pane_id}"  # a person opened it
    services.missing_sessions.record(Slot("worker-a", "task"), {"pane_id": agent.pane_id, "socket_path": "/s"}, 0)
    (item,) = waiting(services, panes)
    assert item.command == "multi-agent-mcp attach worker-a"


def test_how_long_a_question_has_stood_is_known_to_who_has_seen_it(
    services: Services, panes: Panes, clock: Clock
) -> None:
    recent = RecentAttention(services.session, panes.attention, lambda *_, **__: [], services.unchanged)
    panes.shows, panes.dialog = ("claude", "dialog"), Dialog("permission", "one?", (Choice("1", "Yes"),))

    def age() -> float | None:
        clock.advance(10)
        item = next(item for item in recent.of(services.agents.owner()) if item.kind == "dialog")
        return None if item.since is None else (clock.now - item.since).total_seconds()

    assert [age(), age(), age()] == [None, 10, 20]
    panes.dialog = Dialog("permission", "another?", (Choice("1", "Yes"),))
    assert [age(), age()] == [None, 10]


def test_a_tmux_that_does_not_answer_is_said_once_for_all_of_its_panes(
    services: Services, panes: Panes, clock: Clock
) -> None:
    services.workspace.registry.update("worker-a", tmux_pid=77)
    services.workspace.registry.update("worker-b", pane_id="%8", socket_path="/nowhere/s", tmux_pid=77)
    sent = send(services, "admin", "worker-a", "hello")
    services.workspace.delivery_log("worker-a").add("deferred", clock.now, [sent.message_id], reason="tmux_timeout")
    clock.advance(60)
    panes.attention.screen = lambda _: "tmux_timeout"
    (item,) = waiting(services, panes)
    assert (item.kind, item.agent_id, item.command) == ("tmux", None, "kill -CONT 77")
    assert "worker-a, worker-b" in item.text


def test_mail_without_a_subject_is_known_by_its_words_however_long(services: Services, panes: Panes) -> None:
    send(services, "admin", "owner", "which colour? " * 50)
    (item,) = waiting(services, panes)
    assert item.text.startswith("which colour? which")


def test_an_agent_whose_program_has_ended_is_not_told_of_again_as_stuck(
    services: Services, panes: Panes, clock: Clock
) -> None:
    support.open_session(services, "worker-a")
    running(services)
    clock.advance(3600)
    panes.shows = "pane_dead"
    assert kinds(waiting(services, panes)) == ["ended"]


def test_whoever_shows_attention_all_the_time_looks_seldom_and_waits_for_no_examination(
    services: Services, panes: Panes, clock: Clock
) -> None:
    begun, go_on = Event(), Event()
    finding = Finding("disk", PROBLEM, "a file", "is lost", "find it")

    def examine(progress: PartsDone, *, anyway: bool) -> list[Finding]:
        progress.total = 3
        begun.set()
        go_on.wait(60)
        return [finding] * (1 + anyway)

    recent, owner = (
        RecentAttention(services.session, panes.attention, examine, services.unchanged),
        services.agents.owner(),
    )
    assert recent.of(owner) == []
    assert begun.wait(60)
    panes.shows = ("claude", "dialog")
    assert recent.of(owner) == []
    recent.look_again()
    assert kinds(recent.of(owner)) == ["dialog"]
    panes.shows = None
    clock.advance(3)
    assert recent.of(owner) == []
    recent.found([finding])
    assert kinds(recent.of(owner)) == ["doctor"]
    running = recent.examined(0, anyway=True)
    assert running is not None
    assert running.as_answer() == {"count": 0, "total": 3}
    go_on.set()
    assert recent.examined(60) is None
    assert recent.findings == (finding, finding), "what was asked for meanwhile was examined after that"


def test_a_question_that_a_profile_describes_comes_with_its_words_and_choices(services: Services, panes: Panes) -> None:
    panes.shows = ("claude", "dialog")
    panes.dialog = Dialog("permission", "rm -r build\nDo you want to proceed?", (Choice("1", "Yes"), Choice("2", "No")))
    (item,) = waiting(services, panes)
    assert (item.kind, item.command) == ("dialog", "multi-agent-mcp answer worker-a")
    assert item.text.endswith("rm -r build Do you want to proceed?”")
    assert [choice["label"] for choice in item.as_answer()["dialog"]["choices"]] == ["Yes", "No"]


def test_of_much_mail_the_oldest_is_shown_and_the_rest_is_counted(
    services: Services, panes: Panes, clock: Clock
) -> None:
    for number in range(53):
        clock.advance(1)
        send(services, "admin", "owner", "x", subject=f"number {number}")
    items = waiting(services, panes)
    assert [item.text for item in items] == [*(f"number {number}" for number in range(50)), "more unread mail: 3"]


def test_mail_whose_task_is_no_text_hides_nothing(services: Services, panes: Panes) -> None:
    by_hand(
        services, "owner", "odd.md", "---\nsubject: odd\nmetadata: {task_id: [1], conversation_id: {a: 1}}\n---\n\nx"
    )
    assert [item.text for item in waiting(services, panes)] == ["odd"]
    assert list(services.pruning.prunable(services.clock(), timedelta(days=1))) == []
