"""The list of items waiting for the human, in the browser: shown at once, removed automatically, and answered there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect

from multi_agent_mcp.services.questions import Asking
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.usage.limit import LimitSeen
from tests.end_to_end.support import COMMAND, Team, wait_until
from tests.web.asking import Opened, asks, keys
from tests.web.browsing import Person

HEARS = """
Object.defineProperty(document, "hidden", { get: () => window.away === true });
window.heard = [];
window.Notification = class {
  static permission = "default";
  static async requestPermission() { window.Notification.permission = "granted"; return "granted"; }
  constructor(title, { body }) { window.heard.push([title, body]); }
  addEventListener() {}
};
"""
"""A browser that notes its notifications, and a page that can be sent to the background."""


def test_what_waits_is_there_at_once_and_gone_when_it_is_solved_elsewhere(team: Team, person: Person) -> None:
    services, waiting = team.services, person.page.locator("#attention li")
    owner, worker = services.agents.owner(), services.agents.get("worker-a")
    expect(person.page.locator("#waiting")).to_have_text(person.words("attention.nothing"))
    (task,) = services.task_creation.create(owner, [NewTask(title="<i>dig</i>", assignee_id="worker-a")])
    services.task_changes.set_status(owner, task.id, "in_progress")
    services.task_changes.set_status(worker, task.id, "blocked", "no <u>spade</u>")
    expect(waiting).to_have_count(1)
    expect(waiting.locator(".says")).to_have_attribute("title", re.compile("no <u>spade</u>.*<i>dig</i>"))
    team.post("owner", "Which colour?")
    expect(waiting).to_have_count(2)
    expect(person.page.locator("#badge-board")).to_be_hidden()  # neither is a decision
    services.questions.ask(services.agents.get("admin"), Asking(question="Which spade?"), None)
    expect(waiting).to_have_count(3)
    asking = person.page.locator(".state[data-mark=asking]")
    expect(asking).to_have_text(person.words("glance.asking", count=1))
    asking.click()
    expect(waiting).to_have_count(1)
    asking.click()
    expect(waiting).to_have_count(3)
    expect(person.page.locator("#badge-board")).to_have_text("1")
    expect(person.page).to_have_title("(1) " + person.words("page.board") + " · demo")

    waiting.filter(has_text="Which colour?").locator("[data-mark=open]").click()
    expect(person.page.locator(".chosen .words")).to_have_text("Which colour?")
    expect(person.page).to_have_title("(1) " + person.words("page.messages") + " · demo")
    (open_one,) = services.questions.open()
    services.questions.answer(owner, open_one.id, "the blue one")
    expect(person.page.locator("#badge-board")).to_be_hidden()


@pytest.mark.tmux
def test_a_hosts_question_is_read_and_answered_from_here(
    team: Team, opened: Opened, tmp_path: Path, person: Person
) -> None:
    log = asks(team, opened, tmp_path)
    asked = person.page.locator("#attention li")
    expect(asked.locator("pre")).to_contain_text("Bash command 0")
    expect(asked.locator(".choices button")).to_have_count(3)
    lasting = asked.get_by_role("button", name=person.words("attention.lasting"))
    expect(lasting).to_contain_text("Yes, and don't ask again")
    asked.locator("[data-mark=choice-1]").click()
    expect(asked.locator("[data-mark=choice-1]")).to_have_attribute("aria-pressed", "true")
    person.page.locator(".toast [data-mark=undo]").click()
    asked.locator("[data-mark=choice-3]").click()
    person.page.goto("about:blank")  # whoever leaves has said it
    wait_until(lambda: keys(log) == ["3"], "the host was answered")


def test_what_is_new_is_told_while_the_page_is_in_the_background_if_that_was_asked_for(
    team: Team, people: Callable[..., Person]
) -> None:
    person = people()
    person.prepare(HEARS)
    person.enter()
    page = person.page
    page.evaluate("away = true")
    team.post("owner", "not told of")
    expect(page.locator("#attention li")).to_have_count(1)
    page.evaluate("away = false")
    page.locator(".notify").click()
    expect(page.locator(".notify")).to_have_attribute("aria-pressed", "true")
    page.evaluate("away = true")
    team.post("owner", "Which colour?")
    expect(page.locator("#attention li")).to_have_count(2)
    assert page.evaluate("heard") == [[f"demo: {person.words('attention.kind.mail')} · admin", "Which colour?"]]
    page.locator(".notify").click()
    team.post("owner", "hello again")
    expect(page.locator("#attention li")).to_have_count(3)
    assert page.evaluate("heard.length") == 1


def test_questions_are_answered_by_a_key_or_in_a_box_and_are_in_the_thread_of_their_task(
    team: Team, person: Person
) -> None:
    services, waiting, page = team.services, person.page.locator("#attention li"), person.page
    admin = services.agents.get("admin")
    (task,) = services.task_creation.create(services.agents.owner(), [NewTask(title="dig", assignee_id="admin")])
    services.task_changes.start(admin, task.id)
    asking = Asking(question="<b>Where</b>?", choices=("here", "\\n<i>there</i>"), park=True)
    question = services.questions.ask(admin, asking, services.task_changes.get(task.id))
    expect(waiting.locator(".asked .words")).to_have_text("<b>Where</b>?")
    expect(waiting.locator("[data-mark=choice-2]")).to_be_enabled()
    assert waiting.first.evaluate("row => row.offsetHeight") <= 60, "it is one row, with its choices"
    waiting.locator(".asked > input").fill("not too deep")
    page.locator("#waiting").click()
    page.keyboard.press("2")  # nothing has the focus: the question to be seen gets it
    expect(waiting.locator(".asked")).to_be_focused()
    assert services.questions.get(question.id).answer is None
    page.keyboard.press("2")
    expect(waiting.locator("[data-mark=choice-2]")).to_have_attribute("aria-pressed", "true")
    page.locator(".toast [data-mark=undo]").click()
    expect(waiting.locator("[data-mark=choice-2]")).to_be_enabled()
    assert services.questions.get(question.id).answer is None
    waiting.locator("[data-mark=choice-2]").click()
    page.goto("about:blank")  # whoever leaves has said it
    person.visit("board")
    expect(waiting).to_have_count(0)
    done = services.questions.get(question.id)
    assert (done.answer, done.answered_by, done.note) == ("\\n<i>there</i>", "owner", "not too deep")
    assert services.task_changes.get(task.id).status == "in_progress"
    free = services.questions.ask(admin, Asking(question="How deep?"), task)
    services.questions.ask(admin, Asking(question="How wide?"), task)
    expect(waiting.locator("textarea")).to_have_count(2)
    one = waiting.filter(has_text="How deep?")
    one.locator("textarea").fill("1 m")
    one.locator(".asked [type=submit]").press("Enter")
    expect(waiting).to_have_count(1)
    expect(waiting.locator(".asked")).to_be_focused()
    is_new = "import('/static/answering.js').then(({ answerable }) => answerable('x', document.createElement('p')))"
    assert page.evaluate(f"{is_new}.then((one) => one.matches('.is-new[aria-disabled=true]'))")
    assert services.questions.get(free.id).answer == "1 m"
    page.goto(f"{page.url.partition('#')[0]}#{task.id}")
    talk = page.locator(".talk")
    expect(talk).to_contain_text("<b>Where</b>?")
    expect(talk).to_contain_text("not too deep")
    expect(talk).to_contain_text("1 m")


def test_digits_answer_in_a_tasks_sheet_and_u_takes_it_back(team: Team, person: Person) -> None:
    services, page = team.services, person.page
    admin = services.agents.get("admin")
    (task,) = services.task_creation.create(services.agents.owner(), [NewTask(title="dig", assignee_id="admin")])
    services.task_changes.start(admin, task.id)
    asking = Asking(question="Where?", choices=("here", "there"))
    question = services.questions.ask(admin, asking, services.task_changes.get(task.id))
    sheet = person.open_card("dig")
    second = sheet.locator("[data-mark=choice-2]")
    expect(second).to_be_enabled()
    sheet.locator(".asked").scroll_into_view_if_needed()
    page.keyboard.press("2")
    expect(sheet.locator(".asked")).to_be_focused()
    page.keyboard.press("2")
    expect(second).to_have_attribute("aria-pressed", "true")
    page.locator(".toast [data-mark=undo]").click()  # it does not lie behind the sheet
    expect(second).to_be_enabled()
    second.click()
    page.keyboard.press("u")
    expect(second).to_be_enabled()
    page.keyboard.press("g")
    page.keyboard.press("a")
    expect(sheet).to_be_visible()  # other keys do nothing below it
    assert services.questions.get(question.id).answer is None
    sheet.get_by_role("button", name=person.words("board.move"), exact=True).click()
    page.get_by_role("menuitem", name=person.words("status.todo")).click()
    expect(sheet.locator(".acts .chip").first).to_have_text(person.words("status.todo"))


def test_when_a_limit_ends_is_said_by_the_readers_clock(team: Team, newcomer: Person) -> None:
    until = datetime.now(UTC) + timedelta(hours=3)
    services = team.services
    seen = LimitSeen(at=datetime.now(UTC), window="five_hour", until=until, source="hook")
    services.limits.saw("worker-a", "claude", seen)
    row = newcomer.visit("agents").page.locator("[data-key=worker-a]")
    expect(row).to_contain_text(newcomer.words("agents.limited"))
    expect(row).not_to_contain_text("UTC")


def test_leases_that_are_waited_for_are_listed_and_their_commands_ended(team: Team, person: Person) -> None:
    page, command = person.page, [*COMMAND, "lease", "build", "--root", str(team.root), "--", "sleep", "600"]
    known = team.services.leases
    having = subprocess.Popen(command, env=team.env, stdout=subprocess.DEVNULL)
    wait_until(lambda: [one.state for one in known.all()] == ["held"], "one has it")
    waiting = [subprocess.Popen(command, env=team.env, stdout=subprocess.DEVNULL) for _ in range(2)]
    try:
        person.visit("health")
        rows = page.locator("#leases tbody tr")
        expect(rows).to_have_count(3)
        expect(rows.first).to_contain_text("sleep 600")
        last = known.all()[-1]
        page.locator(f'[data-mark="end-{last.pid}"]').click()
        expect(rows).to_have_count(2)
        person.visit("")
        (item,) = page.locator("#attention li").filter(has_text="build").all()
        expect(item.locator(".chip")).to_have_text(person.words("attention.kind.lease"))
        page.locator(f'[data-mark="end-{having.pid}"]').click()
        expect(page.locator("#attention li").filter(has_text="build")).to_have_count(0)
        assert having.wait(30) != 0
    finally:
        for process in (having, *waiting):
            process.terminate()
            process.wait()
