"""Open pages stay true: to each other, over a restart of the server, and in the picture of the session."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from playwright.sync_api import expect

from multi_agent_mcp.services.tasks.board import NewTask
from tests.end_to_end.support import Team
from tests.web.browsing import Person, drag
from tests.web.support import Visitor, Web


def add(team: Team, title: str) -> None:
    services = team.services
    services.task_creation.create(services.agents.owner(), [NewTask(title=title, assignee_id="worker-a")])


def test_two_browsers_see_what_either_does(team: Team, people: Callable[..., Person]) -> None:
    one = people().enter()
    other = people(theme="dark").beside(one)
    add(team, "for both")
    for person in (one, other):
        expect(person.card("for both", "todo")).to_be_visible()
    drag(one.card("for both"), one.column("in_progress"))
    expect(other.card("for both", "in_progress")).to_be_visible()
    team.ask("task", "status", team.services.workspace.tasks.all()[0].id, "blocked", "--reason", "by command")
    for person in (one, other):
        expect(person.card("for both", "blocked").locator(".reason")).to_have_text("by command")


def test_nothing_moves_under_the_pointer_while_a_card_is_dragged(team: Team, people: Callable[..., Person]) -> None:
    add(team, "carried")
    one = people().enter()
    other = people().beside(one)
    column = one.column("in_progress")
    one.card("carried").hover()
    one.page.mouse.down()
    column.hover()
    column.hover()  # the browser tells of a drag at the second move
    team.ask("task", "assign", team.services.workspace.tasks.all()[0].id, "worker-b")
    add(team, "meanwhile")
    expect(other.card("meanwhile", "todo")).to_be_visible()
    expect(other.card("carried").locator(".who")).to_contain_text("worker-b")
    expect(one.card("meanwhile")).to_have_count(0)
    expect(one.card("carried").locator(".who")).to_contain_text("worker-a")
    one.page.mouse.up()
    expect(one.card("carried", "in_progress")).to_be_visible()
    expect(one.card("meanwhile", "todo")).to_be_visible()


def test_a_card_that_changes_while_it_is_clicked_is_opened(team: Team, people: Callable[..., Person]) -> None:
    add(team, "pressed")
    one = people().enter()
    other = people().beside(one)
    one.card("pressed").locator(".title a").hover()
    one.page.mouse.down()
    team.ask("task", "assign", team.services.workspace.tasks.all()[0].id, "worker-b")
    expect(other.card("pressed").locator(".who")).to_contain_text("worker-b")
    expect(one.card("pressed").locator(".who")).to_contain_text("worker-a")
    one.page.mouse.up()
    expect(one.page).to_have_url(re.compile("#tsk_"))
    expect(one.card("pressed").locator(".who")).to_contain_text("worker-b")


def test_nothing_is_lost_while_the_server_is_killed_and_started_again(team: Team, web: Web, person: Person) -> None:
    add(team, "before")
    expect(person.card("before")).to_be_visible()
    web.stop(signal.SIGKILL)
    person.is_live("off")
    add(team, "meanwhile")
    team.post("owner", "meanwhile")
    assert all("ERR_" in trouble for trouble in person.troubles), person.troubles
    web.start()
    person.is_live()
    expect(person.card("meanwhile", "todo")).to_be_visible()
    expect(person.page.locator("#badge-messages")).to_have_text("1")
    expect(person.page.locator("#attention li")).to_have_count(1)  # which moves the board down
    drag(person.card("meanwhile"), person.column("in_progress"))
    expect(person.card("meanwhile", "in_progress")).to_be_visible()
    person.troubles.clear()  # of the connection that was refused meanwhile


def test_what_was_typed_is_kept_until_it_has_arrived(team: Team, web: Web, newcomer: Person) -> None:
    newcomer.visit("messages")
    newcomer.button("messages.write").click()
    form = newcomer.page.locator("dialog[open] form")
    expect(form).to_be_visible()
    web.stop(signal.SIGKILL)
    newcomer.is_live("off")
    newcomer.answer(receiver_id="worker-a", content="typed with care")
    expect(form.locator("[role=alert]")).to_contain_text(newcomer.words("unknown_error"))
    expect(form.locator("[name=content]")).to_have_value("typed with care")
    web.start()
    newcomer.is_live()
    newcomer.troubles.clear()  # of the connection that was refused meanwhile
    form.locator("button[type=submit]").click()
    expect(form).to_have_count(0)
    assert [message.content for message in team.mailbox("worker-a")] == ["typed with care"]


def test_while_the_server_is_away_what_is_shown_stays_and_every_click_says_why_it_cannot(
    team: Team, web: Web, newcomer: Person
) -> None:
    team.post("owner", "read me in peace")
    newcomer.visit("messages")
    newcomer.choose("messages")
    shown = newcomer.page.locator(".chosen .words")
    expect(shown).to_have_text("read me in peace")
    web.stop(signal.SIGKILL)
    newcomer.is_live("off")
    for box in ("sent", "all"):
        newcomer.page.locator(f"[data-box={box}]").click()
    expect(newcomer.page.locator(".toast.bad")).to_contain_text(newcomer.words("unknown_error"))  # once
    expect(shown).to_have_text("read me in peace")
    assert all("ERR_" in trouble for trouble in newcomer.troubles), newcomer.troubles
    web.start()
    newcomer.is_live()
    newcomer.troubles.clear()  # of the connection that was refused meanwhile
    newcomer.button("messages.write").click()
    expect(newcomer.page.locator("dialog[open] form")).to_be_visible()


def test_what_changes_before_a_page_is_connected_is_on_it(team: Team, web: Web, person: Person) -> None:
    held = person.hold("**/api/events*")
    person.page.goto(web.address)
    expect(person.page.locator("[aria-busy=true]")).to_have_count(0)
    with Visitor(web.address, person.cookies).listen() as events:
        next(events)
        add(team, "in between")
        while "tasks" not in next(events)[1]:
            pass
    held.pop().continue_()
    expect(person.card("in between")).to_be_visible()


def test_a_look_that_failed_is_repeated_as_soon_as_the_page_is_connected(team: Team, web: Web, person: Person) -> None:
    add(team, "at the second look")
    held = person.hold("**/api/events*")
    person.page.route("**/api/tasks*", lambda route: route.abort())
    person.page.goto(web.address)
    expect(person.page.locator(".toast.bad")).to_be_visible()
    person.page.unroute("**/api/tasks*")
    held.pop().continue_()
    expect(person.card("at the second look")).to_be_visible()
    person.troubles.clear()  # of the answer that never came


def test_the_picture_is_zoomed_moved_asked_and_saved(team: Team, newcomer: Person, tmp_path: Path) -> None:
    add(team, "drawn")
    team.post("worker-a", "an arrow")
    newcomer.visit("timeline")
    picture = newcomer.page.locator("#picture")
    bar = picture.locator("[data-kind=task]").first
    bar.hover()
    expect(newcomer.page.locator("#tip")).to_contain_text("drawn")
    before = picture.locator("svg").inner_html()
    newcomer.page.locator("#zoom-in").click()
    expect(newcomer.page.locator("#periods [aria-pressed=true]")).to_have_count(0)
    expect(picture.locator("svg")).not_to_have_js_property("innerHTML", before)
    for display in ("none", ""):  # a window that has no size for a moment
        newcomer.page.evaluate("(it) => { picture.style.display = it; dispatchEvent(new Event('resize')); }", display)
    expect(picture).to_have_attribute("aria-busy", "false")
    picture.focus()
    newcomer.page.keyboard.press("ArrowLeft")
    newcomer.page.keyboard.press("Home")
    with newcomer.page.expect_download() as download:
        newcomer.page.locator("#save").click()
    saved = tmp_path / "timeline.svg"
    download.value.save_as(saved)
    assert download.value.suggested_filename == "demo-timeline.svg"
    assert "drawn" in "".join(ElementTree.parse(saved).getroot().itertext())  # noqa: S314 - our own picture
