"""Finding in the browser: from any page, and every result opens at its place."""

from __future__ import annotations

from playwright.sync_api import expect

from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.validation import Draft
from tests.end_to_end.support import Team
from tests.web.browsing import Person


def test_a_word_is_found_from_any_page_and_opens_where_it_stands(team: Team, newcomer: Person) -> None:
    services = team.services
    admin = services.agents.get("admin")
    services.messages.send(
        admin, Draft(content="ログイン画面 <b>zebra</b>", subject="the login", receiver_id="worker-a")
    )
    services.messages.send(admin, Draft(content="a zebra without a subject", receiver_id="worker-a"))
    (task,) = services.task_creation.create(admin, [NewTask(title="zebra crossing", assignee_id="worker-a")])
    session = services.sessions.open("worker-a", "task")
    execution = services.executions.begin(session.record, task.id)
    for number in range(600):
        services.executions.log(execution, "a zebra" if number == 30 else f"step {number}")

    newcomer.visit("agents")
    newcomer.page.keyboard.press("/")
    newcomer.page.keyboard.type("zebra")
    newcomer.page.keyboard.press("Enter")
    results = newcomer.page.locator("#results li")
    expect(results).to_have_count(4)
    expect(results.filter(has_text="without a subject")).to_contain_text(newcomer.words("messages.no_subject"))
    expect(results.locator("mark").first).to_have_text("zebra")
    expect(newcomer.page.locator("#sought")).to_have_value("zebra")

    results.filter(has_text="the login").locator("a").click()
    expect(newcomer.page.locator(".chosen h2")).to_have_text("the login")
    newcomer.page.go_back()
    results.locator("a[href^='/executions']").click()
    expect(newcomer.page.locator(".chosen .log")).to_contain_text("a zebra")
    newcomer.page.go_back()
    results.locator("a[href^='/#tsk']").click()
    expect(newcomer.page.locator("dialog h2")).to_have_text("zebra crossing")


def test_what_is_not_there_and_what_cannot_be_searched_for_is_said(team: Team, newcomer: Person) -> None:
    assert team.services.session.name
    newcomer.visit("search", "?q=nowhere")
    expect(newcomer.page.locator("#state")).to_have_text(newcomer.words("search.nothing"))
    newcomer.visit("search", "?q=x+after:soon")
    expect(newcomer.page.locator("#state")).to_contain_text("after:")
    assert (
        newcomer.troubles.pop()
        == "/search: Failed to load resource: the server responded with a status of 400 (Bad Request)"
    )
    newcomer.visit("search")
    expect(newcomer.page.locator("#state")).to_have_text(newcomer.words("search.ask"))
