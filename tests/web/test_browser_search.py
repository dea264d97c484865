"""Finding in the browser: from any page, and every result opens where it stands."""

from __future__ import annotations

from playwright.sync_api import expect

from multi_agent_mcp.services.tasks.creation import NewTask
from multi_agent_mcp.services.validation import Draft
from tests.end_to_end.support import Team
from tests.web.browsing import Person


def test_a_word_is_found_from_any_page_and_opens_where_it_stands(team: Team, person: Person) -> None:
    services = team.services
    admin = services.agents.get("admin")
    services.messages.send(
        admin, Draft(content="ログイン画面 <b>zebra</b>", subject="the login", receiver_id="worker-a")
    )
    (task,) = services.task_creation.create(admin, [NewTask(title="zebra crossing", assignee_id="worker-a")])
    session = services.sessions.open("worker-a", "task")
    execution = services.executions.begin(session.record, task.id)
    for number in range(600):
        services.executions.log(execution, "a zebra" if number == 30 else f"step {number}")

    person.visit("agents")
    person.page.keyboard.press("/")
    person.page.keyboard.type("zebra")
    person.page.keyboard.press("Enter")
    results = person.page.locator("#results li")
    expect(results).to_have_count(3)
    expect(results.locator("mark").first).to_have_text("zebra")
    expect(person.page.locator("#sought")).to_have_value("zebra")

    results.filter(has_text="the login").locator("a").click()
    expect(person.page.locator(".chosen h2")).to_have_text("the login")
    person.page.go_back()
    results.locator("a[href^='/executions']").click()
    expect(person.page.locator(".chosen .log")).to_contain_text("a zebra")
    person.page.go_back()
    results.locator("a[href^='/#tsk']").click()
    expect(person.page.locator("dialog h2")).to_have_text("zebra crossing")


def test_what_is_not_there_and_what_cannot_be_searched_for_is_said(team: Team, person: Person) -> None:
    assert team.services.session
    person.visit("search", "?q=nowhere")
    expect(person.page.locator("#state")).to_have_text(person.words("search.nothing"))
    person.visit("search", "?q=x+after:soon")
    expect(person.page.locator("#state")).to_contain_text("after:")
    assert (
        person.troubles.pop()
        == "/search: Failed to load resource: the server responded with a status of 400 (Bad Request)"
    )
    person.visit("search")
    expect(person.page.locator("#state")).to_have_text(person.words("search.ask"))
