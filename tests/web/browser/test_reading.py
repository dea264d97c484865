"""Reading in the browser: the first entry is open, a task's messages are grouped, every action has a key."""

from __future__ import annotations

from playwright.sync_api import expect

from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft
from tests.end_to_end.support import Team
from tests.web.browsing import DESK, PHONE, Person


def test_the_first_entry_is_shown_where_there_is_room_and_counts_as_read_by_nobody(
    team: Team, newcomer: Person
) -> None:
    team.post("owner", "Which colour?")
    newcomer.visit("messages")
    words, first = newcomer.page.locator(".chosen .words"), newcomer.page.locator(".rows a").first
    expect(words).to_have_text("Which colour?")
    expect(first).to_have_attribute("aria-current", "true")
    team.post("owner", "And which size?")
    expect(newcomer.page.locator(".rows a")).to_have_count(2)
    expect(words).to_have_text("Which colour?")  # the open entry stays while it is read
    assert len(team.unread("owner")) == 2
    newcomer.turn(PHONE)
    expect(newcomer.page.locator(".chosen")).to_be_hidden()
    expect(first).to_be_visible()
    newcomer.turn(DESK)
    newcomer.page.keyboard.press("k")
    expect(words).to_have_text("And which size?")
    expect(newcomer.page.locator(".rows .unread")).to_have_count(1)
    assert [message.content for message in team.unread("owner")] == ["Which colour?"]


def test_every_page_has_a_key_but_not_while_somebody_writes(team: Team, person: Person) -> None:
    team.services.task_creation.create(team.services.agents.owner(), [NewTask(title="x", assignee_id="worker-a")])
    person.page.keyboard.press("?")
    expect(person.page.locator("dialog .keys div")).to_have_count(17)
    person.page.keyboard.press("Escape")
    person.card("x").focus()
    person.page.keyboard.type("gm")
    expect(person.page.locator("body")).to_have_attribute("data-page", "messages")
    person.is_live()
    person.page.keyboard.type("/gs?")
    expect(person.page.locator("#sought")).to_have_value("gs?")
    expect(person.page.locator("body")).to_have_attribute("data-page", "messages")


def test_the_request_the_reports_and_the_result_of_a_task_stand_together(team: Team, newcomer: Person) -> None:
    services = team.services
    admin, worker = services.agents.get("admin"), services.agents.get("worker-a")
    description = "Please:\n\n- [ ] dig\n- [ ] fill"
    (task,) = services.task_creation.create(
        admin, [NewTask(title="hole", description=description, assignee_id="worker-a")]
    )
    services.messages.send(admin, Draft(content="about <b>another</b> task", receiver_id="worker-a"))
    services.task_reports.report_progress(worker, task.id, 50, "It is *deep*.", [{"text": "dig", "completed": True}])
    services.reading.read(admin, Query())
    newcomer.visit("board")
    sheet = newcomer.open_card("hole")
    expect(sheet.locator(".talk li")).to_have_count(1)
    expect(sheet.locator(".talk .bubble em")).to_have_text("deep")
    expect(sheet.locator(".tally").first).to_have_text("1 / 2")
    expect(sheet.locator(".prose").first).to_have_text("Please:")  # the list itself is shown once
    expect(sheet.locator(".checklist li").nth(1)).to_contain_text(newcomer.words("board.not_reported"))
    services.task_reports.report_completion(worker, task.id, "completed", "All done.")
    expect(sheet.locator(".talk li")).to_have_count(2)
    sheet.locator(".talk a").last.click()
    expect(newcomer.page.locator(".chosen .words")).to_contain_text("All done.")
