"""The briefing says what an agent holds, in 1 500 characters, in both languages (docs/protocol.md, Briefing)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from multi_agent_mcp.domain.agent import HAND_OFF_CHARACTERS
from multi_agent_mcp.services.turn.briefing import BRIEFING_CHARACTERS
from multi_agent_mcp.texts import catalogue
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import read, send
from tests.services.tasks_support import again, new, open_session, running

ITEMS = [{"text": f"part {number}", "completed": number < 2} for number in range(9)]


def with_checklist(services: Services, task_id: str) -> None:
    services.workspace.tasks.update(task_id, lambda task: replace(task, checklist=tuple(ITEMS), progress=40))


def test_it_says_who_what_with_whom_and_how_to_go_on(services: Services) -> None:
    task = running(services, "Build the house")
    with_checklist(services, task.id)
    blocked = running(services, "Paint it")
    services.task_changes.set_status(services.agents.get("admin"), blocked.id, "blocked", "no paint")
    worker, other = services.agents.get("worker-a"), services.agents.get("worker-b")
    talk, _ = services.conversations.begin(worker, other, "hello", purpose="which colour")
    send(services, "admin", "worker-a")
    kept = services.hand_offs.write(worker, "The walls stand; the roof is next.", None, task.id)
    text = services.briefings.of("worker-a")
    for said in (
        "worker-a", "demo", "admin", task.id, "Build the house", "in_progress", "40%", "- [ ] part 2", "3 more",
        blocked.id, "no paint", talk.id, "worker-b", "which colour", "Unread: 1 messages", "The walls stand",
        str(kept.path), "do not introduce yourself", "get_next_action",
    ):  # fmt: skip
        assert said in text
    assert "part 1" not in text, "it is done"


def test_an_agent_with_nothing_is_told_who_it_is(services: Services) -> None:
    text = services.briefings.of("worker-b")
    assert text.splitlines()[0].startswith("You are worker-b in the team demo")
    assert "no task in hand" in text
    assert not services.briefings.holds("worker-b").has_work


def test_a_pause_and_work_given_to_others_are_part_of_it(services: Services) -> None:
    given = new(services, "Dig", "worker-b")
    owner, admin = services.agents.get("owner"), services.agents.get("admin")
    services.interrupting.interrupt(owner, admin.id, "pause", None, "we wait for the money")
    text = services.briefings.of("admin")
    assert "owner has paused you (we wait for the money)" in text
    assert f"Task that you gave to worker-b: {given.id}" in text


@pytest.mark.parametrize("language", ["ja", "en"])
def test_whatever_an_agent_holds_it_fits_and_its_hand_off_is_whole(services: Services, language: str) -> None:
    services = replace(services, session=replace(services.session, texts=catalogue(language)))
    for _ in range(7):
        task = running(services, "x" * 300)
        with_checklist(services, task.id)
    worker, other = services.agents.get("worker-a"), services.agents.get("worker-b")
    for number in range(7):
        services.conversations.begin(worker, other, "hello", purpose=f"{number}" * 900)
        new(services, "y" * 300, "worker-b", by="owner")
    content = "".join(chr(0x4E00 + number % 20_000) for number in range(HAND_OFF_CHARACTERS))
    kept = services.hand_offs.write(worker, content, None, None)
    text = services.briefings.of("worker-a")
    assert len(text) <= BRIEFING_CHARACTERS
    assert content[:600] in text
    assert content[:601] not in text
    assert str(kept.path) in text
    assert text.endswith(catalogue(language)("briefing.go_on.hook"))


def test_an_agent_with_nothing_begun_is_not_said_to_go_on_with_something(services: Services) -> None:
    new(services, "not begun", "worker-a", by="owner")
    assert services.briefings.of("worker-a").endswith(services.texts("briefing.nothing_begun"))


def test_a_hand_off_about_work_that_is_over_or_no_longer_mine_is_not_shown(services: Services, clock: Clock) -> None:
    worker, admin = services.agents.get("worker-a"), services.agents.get("admin")
    first, second = running(services, "first"), running(services, "second")
    services.hand_offs.write(worker, "of the first", first.id, None)
    clock.advance(1)
    services.hand_offs.write(worker, "of the second", second.id, None)
    assert "of the second" in services.briefings.of("worker-a")
    services.task_changes.set_status(worker, second.id, "done")
    assert "of the first" in services.briefings.of("worker-a")
    services.task_changes.assign(admin, first.id, "worker-b")
    assert "of the first" not in services.briefings.of("worker-a")
    services.task_changes.start(services.agents.get("worker-b"), first.id)
    assert "Hand-off from worker-a" in services.briefings.of("worker-b")


def test_what_was_reported_counts_before_anybody_has_read_it(services: Services, clock: Clock) -> None:
    worker, task = services.agents.get("worker-a"), running(services, "Build")
    report = services.task_reports.report_progress
    report(worker, task.id, 30, "half", [{"text": "walls", "completed": True}, {"text": "roof", "completed": False}])
    clock.advance(1)
    report(worker, task.id, None, "no news")
    for text in (services.briefings.of("worker-a"), str(services.hand_offs.derive("worker-a"))):
        assert "30%" in text
        assert "- [ ] roof" in text
    read(services, "admin")
    assert (again(services, task).progress, len(again(services, task).checklist)) == (30, 2)


def test_a_forged_report_is_not_shown(services: Services) -> None:
    task = running(services, "Build")
    send(services, "worker-b", "admin", message_type="task_progress", metadata={"task_id": task.id, "progress": 90})
    (path,) = (services.path / "ipc/admin").glob("*.md")
    path.write_text(path.read_text().replace("sender_id: worker-b", "sender_id: worker-a"))
    assert "90%" not in services.briefings.of("worker-a")


def test_of_two_tasks_in_progress_it_names_the_session_s(services: Services) -> None:
    first, second = running(services, "First"), running(services, "Second")
    session = open_session(services, "worker-a")
    session.bind_task(second.id)
    briefing = services.briefings.of("worker-a")
    assert second.id in briefing
    assert first.id not in briefing
