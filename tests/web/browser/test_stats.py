"""The figures in the browser."""

from __future__ import annotations

from playwright.sync_api import expect

from multi_agent_mcp.services.tasks.board import NewTask
from tests.end_to_end.support import Team
from tests.web.browsing import Person


def test_the_figures_of_the_chosen_days_are_drawn_and_follow_the_work(team: Team, newcomer: Person) -> None:
    services = team.services
    owner = services.agents.owner()
    (task,) = services.task_creation.create(owner, [NewTask(title="<b>bold</b>", assignee_id="worker-a")])
    services.task_changes.set_status(owner, task.id, "in_progress")

    newcomer.visit("stats")
    expect(newcomer.page.locator(".chart")).to_have_count(3)
    expect(newcomer.page.locator(".chart").nth(1).locator("figcaption b")).to_have_text("0")
    services.task_changes.set_status(owner, task.id, "done")
    expect(newcomer.page.locator(".chart").nth(1).locator("figcaption b")).to_have_text("1")
    expect(newcomer.page.locator(".chart").nth(1).locator("[aria-label*='worker-a: 1']")).to_have_count(1)
    expect(newcomer.page.locator("table.tasks a")).to_have_text("<b>bold</b>")

    newcomer.button("stats.days", n="30").click()
    expect(newcomer.page.locator(".chart").first.locator(".plot li")).to_have_count(30)
    newcomer.page.reload()
    expect(newcomer.page.locator(".chart").first.locator(".plot li")).to_have_count(30)
    newcomer.page.locator("table.tasks a").click()
    expect(newcomer.page.locator("dialog h2")).to_have_text("<b>bold</b>")
