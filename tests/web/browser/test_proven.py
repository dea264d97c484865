"""Done means proven, in a real browser: a task's receipts on its page, and the column of what waits for a review."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.wiring import Services
from tests.end_to_end.support import Team
from tests.web.browsing import Person, drag

TITLE = "ログイン画面を作る"
LIES = "AssertionError: <b>no</b> test passes"


@pytest.fixture
def services(team: Team) -> Services:
    """The services, with a check that fails until the work is mended."""
    settings = team.services.workspace.settings_path
    check = f"test -e mended || {{ echo '{LIES}'; exit 3; }}; echo all pass"
    settings.write_text(f'{settings.read_text()}\nchecks:\n  tests: "{check}"\n')
    team.services.approvals.approve()
    return open_session(team.root, team.session)


def delivered(services: Services, work: Path, *done_when: str) -> Task:
    """A task of worker-a that it says is done, after its checks have run."""
    worker = services.agents.get("worker-a")
    found = services.workspace.tasks.open("worker-a")
    new = NewTask(title=TITLE, assignee_id="worker-a", done_when=done_when)
    task = found[0] if found else services.task_creation.create(services.agents.owner(), [new])[0]
    if not found:
        services.task_changes.start(worker, task.id)
    task = services.deliveries.deliver(worker, task.id, "all of it")
    if task.checks:
        services.deliveries.examine(task.id, work, lambda: False)
    else:
        services.deliveries.conclude(task)
    return services.task_changes.get(task.id)


def test_a_tasks_page_shows_how_its_checks_went(services: Services, person: Person, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    assert delivered(services, work, "tests", "review").status == "in_progress"
    expect(person.card(TITLE, "in_progress")).to_be_visible()
    sheet = person.open_card(TITLE)
    (receipt,) = sheet.locator(".receipts > li").all()
    expect(receipt.locator("summary")).to_contain_text("tests")
    expect(receipt.locator("summary .chip")).to_have_text("exit 3")
    expect(receipt.locator("summary")).to_contain_text(" s · ")
    expect(receipt.locator("pre")).to_have_text(LIES)
    expect(receipt.locator("pre")).to_be_visible()
    (work / "mended").touch()
    assert delivered(services, work).status == "review"
    expect(sheet.locator(".receipts > li")).to_have_count(2)
    newest = sheet.locator(".receipts > li").first
    expect(newest.locator("summary .chip")).to_have_text(person.words("board.passed"))
    newest.locator("summary").click()
    expect(newest.locator("pre")).to_have_text("all pass")


def by_mouse(person: Person, card: Locator, status: str) -> None:
    drag(card, person.column(status))


def by_keys(person: Person, card: Locator, status: str) -> None:
    """Space lifts the card, an arrow carries it to the next column, Enter lays it down. A card that is drawn again
    meanwhile is taken once more."""
    key = "ArrowRight" if status == "done" else "ArrowLeft"
    for _ in range(5):
        card.focus()
        person.page.keyboard.press("Space")
        for _ in range(6):
            if "aimed" in (person.column(status).get_attribute("class") or ""):
                person.page.keyboard.press("Enter")
                return
            person.page.keyboard.press(key)
        person.page.keyboard.press("Escape")
    raise AssertionError(f"the card is never carried to {status}")


@pytest.mark.parametrize("move", [by_mouse, by_keys])
def test_a_review_is_decided_by_moving_the_card(
    services: Services, person: Person, tmp_path: Path, move: Callable[[Person, Locator, str], None]
) -> None:
    task = delivered(services, tmp_path, "review")
    expect(person.card(TITLE, "review")).to_be_visible()
    move(person, person.card(TITLE, "review"), "in_progress")
    person.page.locator("dialog[open] textarea").fill("The button is missing.")
    sent: list[str] = []
    person.page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    person.page.locator("dialog[open] form").evaluate("form => { form.requestSubmit(); form.requestSubmit(); }")
    expect(person.page.locator("dialog[open]")).to_have_count(0)
    assert len(sent) == 1
    expect(person.card(TITLE, "in_progress")).to_be_visible()
    (told,) = services.notifications.waiting("worker-a")
    assert (told.action, told.reason) == ("review_rejected", "The button is missing.")
    assert delivered(services, tmp_path).status == "review"
    expect(person.card(TITLE, "review")).to_be_visible()
    move(person, person.card(TITLE, "review"), "done")
    expect(person.card(TITLE, "done")).to_be_visible()
    assert services.task_changes.get(task.id).proof == "proven"
    sheet = person.open_card(TITLE)
    expect(sheet.locator(".chip.proof-proven")).to_have_text(person.words("board.proof.proven"))
