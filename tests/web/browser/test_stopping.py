"""UC010 (docs/protocol.md, Interrupts): a person moves a running task to `blocked`, and the agent stops and reports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Locator, expect

from multi_agent_mcp.services.tasks.board import NewTask
from tests.end_to_end.support import PATIENCE_SECONDS, REPOSITORY, Team, wait_until
from tests.web.browsing import Person, drag

BUSY_WORKER = REPOSITORY / "examples" / "agents" / "busy_worker.py"
TITLE = "大きなリファクタリング"
REASON = "仕様を見直します"


@contextmanager
def busy(team: Team) -> Iterator[subprocess.Popen[bytes]]:
    """An agent in a process of its own that goes on with its task until an interrupt replaces an answer."""
    services = team.services
    services.task_creation.create(services.agents.owner(), [NewTask(title=TITLE, assignee_id="worker-a")])
    who = {"MULTI_AGENT_MCP_ROOT": str(team.root), "MULTI_AGENT_MCP_SESSION": team.session}
    process = subprocess.Popen(
        [sys.executable, BUSY_WORKER],
        env={**team.env, **who, "MULTI_AGENT_MCP_AGENT": "worker-a"},
        cwd=team.base,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def by_keys(person: Person, card: Locator) -> None:
    """Tab to the cards, arrows to this one, Space, one column to the right, Enter."""
    for _ in range(30):
        person.page.keyboard.press("Tab")
        if person.page.locator(".card:focus").count():
            break
    expect(card).to_be_focused()
    for key in ("Space", "ArrowRight"):
        person.page.keyboard.press(key)
    expect(person.column("blocked")).to_have_class("column status-blocked may aimed")
    person.page.keyboard.press("Enter")


def by_menu(person: Person, card: Locator) -> None:
    card.focus()
    person.page.keyboard.press("m")
    person.page.get_by_role("menuitem", name=person.words("status.blocked")).focus()
    person.page.keyboard.press("Enter")


def give_reason(person: Person) -> None:
    """Answers the form that opens for the reason of a block."""
    person.page.locator("dialog[open] textarea").fill(REASON)
    person.page.keyboard.press("Tab")
    person.page.locator("dialog[open] button[type=submit]").press("Enter")
    expect(person.card(TITLE, "blocked").locator(".reason")).to_have_text(REASON)
    person.await_closed()


def test_a_task_is_blocked_by_keys_and_by_its_menu(team: Team, person: Person) -> None:
    services = team.services
    (task,) = services.task_creation.create(services.agents.owner(), [NewTask(title=TITLE, assignee_id="worker-a")])
    for move in (by_keys, by_menu):
        services.task_changes.start(services.agents.get("worker-a"), task.id)
        card = person.card(TITLE, "in_progress")
        expect(card).to_be_visible()
        move(person, card)
        give_reason(person)
        assert services.task_changes.get(task.id).blocked_reason == REASON
        services.task_changes.set_status(services.agents.owner(), task.id, "todo")


@pytest.mark.slow
def test_a_task_moved_to_blocked_stops_its_agent_and_the_report_comes_back(team: Team, person: Person) -> None:
    with busy(team) as agent:
        card = person.card(TITLE, "in_progress")
        expect(card).to_be_visible()
        drag(card, person.column("blocked"))
        give_reason(person)

        sheet = person.open_card(TITLE)
        expect(sheet).to_contain_text("指示により中断しました。")
        expect(sheet.locator(".history")).to_contain_text(person.words("board.result"))
        assert agent.wait(PATIENCE_SECONDS) == 0
    (task,) = team.services.workspace.tasks.all()
    assert (task.status, task.completion_result, task.blocked_reason) == ("blocked", "blocked", REASON)
    sheet.locator("a[href^='/executions#']").click()
    expect(person.page.locator(".chosen .chip")).to_have_text(person.words("executions.failed"))
    expect(person.page.locator(".log")).to_contain_text("replaced by an interrupt")
    assert not [notice for _, notice in team.services.workspace.notices("worker-a").unread()]


def test_an_agent_is_stopped_from_the_agents_page(team: Team, newcomer: Person) -> None:
    """That a call of the agent is replaced, and it reports and logs out, is the same as after a move to `blocked`."""
    services = team.services
    (task,) = services.task_creation.create(services.agents.owner(), [NewTask(title=TITLE, assignee_id="worker-a")])
    session = services.sessions.open("worker-a", "task")
    services.task_changes.start(services.agents.get("worker-a"), task.id)
    newcomer.visit("agents")
    row = newcomer.page.locator("[data-key=worker-a]")
    expect(row).to_contain_text(TITLE)
    row.locator("[data-mark=stop]").click()
    newcomer.answer(action="cancel", reason=REASON)
    (notice,) = wait_until(lambda: services.workspace.notices("worker-a").unread(), "a notification")
    assert (notice[1].action, notice[1].task_id, notice[1].reason) == ("cancel", task.id, REASON)
    assert team.services.task_changes.get(task.id).status == "cancelled"
    session.end()
    expect(row).to_contain_text(newcomer.words("agents.gone"))


def test_an_agent_is_asked_to_pause(team: Team, person: Person) -> None:
    services = team.services
    (task,) = services.task_creation.create(services.agents.owner(), [NewTask(title=TITLE, assignee_id="worker-a")])
    services.task_changes.start(services.agents.get("worker-a"), task.id)
    person.open_card(TITLE).get_by_role("button", name=person.words("board.pause")).click()
    person.answer(reason=REASON)
    expect(person.page.locator(".toast")).to_contain_text("worker-a")
    (notice,) = wait_until(lambda: team.services.workspace.notices("worker-a").unread(), "a notification")
    assert (notice[1].action, notice[1].reason) == ("pause", REASON)
    assert team.services.task_changes.get(task.id).status == "in_progress"
    person.await_closed()
    person.visit("agents")
    row = person.page.locator("[data-key=worker-a]")
    expect(row).to_contain_text(REASON)
    row.locator("[data-mark=resume]").click()
    expect(row).not_to_contain_text(REASON)
    assert [notice.action for _, notice in services.workspace.notices("worker-a").unread()] == ["resume"]


def test_a_column_that_refuses_says_why_while_the_card_is_over_it(team: Team, person: Person) -> None:
    services = team.services
    services.task_creation.create(services.agents.owner(), [NewTask(title=TITLE)])
    card, done = person.card(TITLE, "backlog"), person.column("done")
    card.hover()
    person.page.mouse.down()
    done.hover(position={"x": 40, "y": 80})
    done.hover(position={"x": 40, "y": 90})
    expect(done.locator(".refusal")).to_be_visible()
    expect(done.locator(".refusal")).not_to_be_empty()
    expect(person.column("todo")).to_have_class("column status-todo may")
    person.page.mouse.up()
    expect(done.locator(".refusal")).to_be_hidden()
    assert [task.status for task in team.services.workspace.tasks.all()] == ["backlog"]


def test_a_refused_column_is_told_to_somebody_who_does_not_see_it(team: Team, person: Person) -> None:
    services = team.services
    services.task_creation.create(services.agents.owner(), [NewTask(title=TITLE)])
    person.card(TITLE).focus()
    for key in ("Space", "ArrowRight", "ArrowRight", "Enter"):
        person.page.keyboard.press(key)
    said = person.page.locator("#announcer")
    expect(said).to_contain_text(person.words("status.in_progress"))
    person.page.keyboard.press("Escape")
    expect(said).to_have_text(person.words("board.put_back"))
    assert [task.status for task in team.services.workspace.tasks.all()] == ["backlog"]
