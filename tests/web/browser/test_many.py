"""A team that is larger than a screen, in the browser: filters, lanes, folded rows, the palette, and what can be taken
back."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.validation import Draft
from tests.end_to_end.support import Team, wait_until
from tests.web.browsing import DESK, PHONE, Person, drag

WORKERS = [f"worker-{number:03}" for number in range(1, 9)]


@pytest.fixture
def team(bare: Team) -> Team:
    """An owner, two admins, and eight workers, of whom each has one task."""
    agents = ["{id: owner, role: owner, type: human}", "{id: north, role: admin, parent: owner}"]
    agents += ["{id: south, role: admin, parent: owner}"]
    agents += [f"{{id: {name}, parent: {'north' if name < 'worker-005' else 'south'}}}" for name in WORKERS]
    team = bare.make("session: demo\nagents:\n" + "".join(f"  - {agent}\n" for agent in agents))
    priorities = ("urgent", "low", "medium", "high")
    tasks = [
        NewTask(title=f"Dig hole {name[-1]}", assignee_id=name, priority=priorities[number % 4])
        for number, name in enumerate(WORKERS)
    ]
    team.services.task_creation.create(team.services.agents.owner(), [*tasks, NewTask(title="Fill the holes")])
    return team


def test_the_board_shows_what_is_asked_for_in_columns_and_in_lanes(team: Team, person: Person) -> None:
    page, cards = person.page, person.page.locator(".card")
    bar = page.locator("#filters")
    expect(cards).to_have_count(9)
    expect(person.card("Dig hole 1").locator(".face")).to_have_text("01")
    bar.locator("[name=words]").fill("ＨＯＬＥ dig")
    expect(cards).to_have_count(8)
    bar.locator("[name=superior]").select_option("south")
    expect(cards).to_have_count(4)
    bar.locator("[name=priority]").select_option("urgent")
    expect(cards).to_have_count(1)
    assert re.search(r"words=.*superior=south.*priority=urgent", page.url)
    page.reload()
    expect(cards).to_have_count(1)
    bar.locator("[name=words]").fill("elephant")
    expect(page.locator("#nothing")).to_contain_text(person.words("filter.nothing"))
    person.button("filter.clear").click()
    expect(cards).to_have_count(9)
    bar.locator("[name=assignee]").fill("worker-003")
    expect(cards).to_have_count(1)
    bar.locator("[name=assignee]").fill("worker-0")  # nobody yet: nothing changes
    expect(cards).to_have_count(1)
    person.button("filter.clear").click()

    bar.locator("[name=group]").select_option("superior")
    lanes = page.locator(".lane")
    expect(lanes).to_have_count(3)
    expect(lanes.nth(0)).to_contain_text("north")
    expect(lanes.nth(0).locator("summary")).to_contain_text(f"{person.words('status.todo')} 4")
    lanes.nth(1).locator("summary").click()
    expect(cards).to_have_count(4)
    bar.locator("[name=group]").select_option("priority")
    expect(lanes.first).to_contain_text(person.words("priority.urgent"))


def test_the_agents_are_filtered_and_grouped(team: Team, newcomer: Person) -> None:
    services = team.services
    (task,) = services.workspace.tasks.open("worker-002")
    services.task_changes.set_status(services.agents.owner(), task.id, "in_progress")
    page = newcomer.visit("agents").page
    rows, bar = page.locator(".agent"), page.locator("#filters")
    expect(rows).to_have_count(11)
    bar.locator("[name=words]").fill("hole 2")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("worker-002")
    bar.locator("[name=words]").fill("")
    bar.locator("[name=superior]").select_option("north")
    expect(rows).to_have_count(4)
    bar.locator("[name=priority]").select_option("low")
    expect(rows).to_have_count(1)
    newcomer.button("filter.clear").click()
    bar.locator("[name=view]").select_option("screens")
    expect(page.locator("#nothing")).to_have_text(newcomer.words("agents.no_screens"))
    newcomer.button("filter.clear").click()
    bar.locator("[name=group]").select_option("state")
    groups = page.locator(".group h2")
    expect(groups).to_contain_text([newcomer.words("agents.state.working"), newcomer.words("agents.state.gone")])


def test_many_agents_are_rows_of_a_table_that_is_sorted_and_tiles_of_screens(team: Team, newcomer: Person) -> None:
    services = team.services
    for number in range(4):
        services.agents.add(Agent(id=f"zebra-{number}", role="worker", parent_id="north"))
    (task,) = services.workspace.tasks.open("worker-002")
    services.task_changes.set_status(services.agents.owner(), task.id, "in_progress")
    page = newcomer.visit("agents").page
    rows = page.locator("table.dense tbody tr")
    expect(rows).to_have_count(15)
    assert {round(height) for height in rows.evaluate_all("rows => rows.map((row) => row.offsetHeight)")} <= {32, 33}
    newcomer.leave_picture("agents-table")
    names, state = rows.locator(".who"), page.get_by_role("button", name=newcomer.words("filter.state"))
    expect(names.first).to_contain_text("owner")
    state.click()
    expect(names.first).to_contain_text("worker-002")
    page.get_by_role("button", name=newcomer.words("stats.agent"), exact=True).click()
    page.get_by_role("button", name=newcomer.words("stats.agent"), exact=False).click()
    expect(names.first).to_contain_text("zebra-3")
    newcomer.turn(PHONE)
    newcomer.leave_picture("agents-table-phone")
    assert newcomer.look("sideways") <= 0
    newcomer.turn(DESK)
    for name in ("worker-001", "worker-002"):
        services.workspace.registry.update(name, pane_id="%9", socket_path="/nowhere")
    page.locator("[name=view]").select_option("screens")
    expect(page.locator(".tile .who")).to_contain_text(["worker-002", "worker-001"])
    expect(page.locator(".tile .screen .reason")).to_have_count(2)
    newcomer.leave_picture("agents-tiles")


def test_a_task_is_handed_over_by_typing_a_part_of_a_name_and_only_to_somebody_who_exists(
    team: Team, person: Person
) -> None:
    card = person.card("Dig hole 1")
    card.locator(".dots").click()
    person.page.get_by_role("menuitem", name=person.words("board.assignee")).click()
    field = person.page.locator("dialog[open] [name=assignee_id]")
    expect(field).to_have_value("worker-001")
    names = field.evaluate("field => [...field.list.options].map(({ value }) => value)")
    assert names[:3] == ["owner", "north", "worker-001"]
    person.answer(assignee_id="worker-9")
    assert field.evaluate("field => field.validationMessage") == person.words("agents.no_such", agent="worker-9")
    person.answer(assignee_id="worker-008")
    expect(card.locator(".who")).to_contain_text("worker-008")
    assert len(team.services.workspace.tasks.open("worker-008")) == 2


def test_a_move_is_taken_back(team: Team, person: Person) -> None:
    card = person.card("Dig hole 5")
    drag(card, person.column("in_progress"))
    expect(person.card("Dig hole 5", "in_progress")).to_be_visible()
    person.page.locator("[data-mark=undo]").click()
    expect(person.card("Dig hole 5", "todo")).to_be_visible()
    (task,) = team.services.workspace.tasks.open("worker-005")
    assert [line.get("status") for line in task.history][-2:] == [["todo", "in_progress"], ["in_progress", "todo"]]


def test_many_rows_of_a_kind_are_one_which_is_put_off_and_read_at_once(
    team: Team, people: Callable[..., Person]
) -> None:
    services = team.services
    owner = services.agents.owner()
    for task in [*services.workspace.tasks.open()][:6]:
        if task.assignee_id:
            services.task_changes.set_status(owner, task.id, "in_progress")
            services.task_changes.set_status(services.agents.get(task.assignee_id), task.id, "blocked", "no spade")
    for number in range(5):
        send(team, f"number {number}")
    person = people().enter()
    page = person.page
    fold = {kind: page.locator(f"#attention li[data-key={kind}]") for kind in ("blocked", "mail")}
    expect(fold["mail"].locator("summary b")).to_have_text("5")
    expect(fold["blocked"].locator("summary b")).to_have_text("5")
    expect(page.locator("#waiting")).to_have_text(person.words("attention.count", n="10"))
    fold["blocked"].locator("summary").click()
    expect(fold["blocked"].locator("li .says").first).to_have_text(re.compile("no spade.*Dig hole"))

    fold["blocked"].locator("li [data-mark=snooze]").first.click()
    page.get_by_role("menuitem", name=person.words("attention.hour")).click()
    expect(fold["blocked"].locator("summary b")).to_have_text("4")
    expect(page.locator("#waiting")).to_have_text(person.words("attention.count", n="9"))
    page.locator(".later summary").click()
    page.locator(".later").get_by_role("button", name=person.words("attention.wake")).click()
    expect(page.locator("#waiting")).to_have_text(person.words("attention.count", n="10"))
    fold["mail"].locator("[data-mark=read-all]").click()
    expect(fold["mail"]).to_have_count(0)
    wait_until(lambda: not services.workspace.mailbox("owner").unread(), "all is read")


def send(team: Team, content: str) -> None:
    services = team.services
    services.messages.send(services.agents.get("north"), Draft(content=content, receiver_id="owner"))


def test_the_palette_finds_pages_agents_tasks_and_does_things(team: Team, newcomer: Person) -> None:
    assert team.services.session.name
    page = newcomer.visit("stats").page
    options = page.locator("[role=option]")
    page.keyboard.press("Control+k")
    page.keyboard.type("hole 7")
    expect(options.filter(has_text="Dig hole 7")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("dialog h2")).to_have_text("Dig hole 7")
    page.go_back()
    expect(page.locator("h1")).to_have_text(newcomer.words("page.stats"))
    page.keyboard.press("Control+k")
    page.keyboard.type("006")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("worker-006")
    page.keyboard.press("Control+k")
    page.keyboard.type("new task")
    page.keyboard.press("Enter")
    newcomer.answer(title="From anywhere", assignee_id="worker-006")
    expect(page.locator("[data-part=tasks]")).to_contain_text("From anywhere")


def test_back_closes_what_is_over_the_page(team: Team, newcomer: Person) -> None:
    assert team.services.session.name
    page = newcomer.visit("agents").visit("board").page
    sheet = newcomer.open_card("Dig hole 2")
    page.go_back()
    expect(sheet).to_be_hidden()
    newcomer.button("board.new").click()
    expect(page.locator("dialog[open]")).to_be_visible()
    page.go_back()
    expect(page.locator("dialog")).to_have_count(0)
    assert page.url == f"{newcomer.web.address}/"
    newcomer.open_card("Dig hole 3")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    page.wait_for_url(f"{newcomer.web.address}/")
    newcomer.button("board.new").click()
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    assert page.url == f"{newcomer.web.address}/"


def test_whose_lanes_the_timeline_draws_is_chosen(team: Team, newcomer: Person) -> None:
    send(team, "hello")
    page = newcomer.visit("timeline").page
    lanes, arrows = page.locator("svg [data-kind=agent]"), page.locator("svg [data-kind=message]")
    expect(lanes).to_have_count(12)
    expect(arrows).to_have_count(1)
    page.locator("#choose-lanes").click()
    page.locator("#lanes-words").fill("north")
    page.locator("#lanes li:visible input").click()  # the list may be drawn again at once
    expect(lanes).to_have_count(11)
    expect(arrows).to_have_count(0)
    page.reload()
    expect(lanes).to_have_count(11)
    page.locator("#choose-lanes").click()
    page.locator("#lanes-reset").click()
    expect(lanes).to_have_count(12)


def test_a_team_is_one_lane_of_a_large_timeline_and_counts_lead_to_the_messages(team: Team, newcomer: Person) -> None:
    services = team.services
    for number in range(16):
        services.agents.add(Agent(id=f"zebra-{number:02}", role="worker", parent_id="south"))
    for number in range(101):
        send(team, f"number {number}")
    page = newcomer.visit("timeline").page
    lanes, counts = page.locator("svg [data-kind=agent]"), page.locator("svg [data-kind=count]")
    teams = page.locator("svg [data-kind=team]")
    expect(lanes).to_have_count(2)  # the owner, and those whom nobody knows
    expect(teams).to_have_text([re.compile(r"▸ north\s+\+4 "), re.compile(r"▸ south\s+\+20 ")])
    newcomer.leave_picture("timeline-folded")
    teams.last.click()
    expect(lanes).to_have_count(22)
    page.reload()
    expect(lanes).to_have_count(22)
    teams.last.click()
    expect(lanes).to_have_count(2)
    before = page.locator("svg .tl-heading").first.text_content()
    counts.first.click()
    expect(page.locator("svg .tl-heading").first).not_to_have_text(before or "")


def test_findings_that_say_the_same_are_one_row_which_names_each_when_it_is_opened(
    team: Team, newcomer: Person
) -> None:
    assert team.services.session.name
    page = newcomer.visit("health").page
    rows = page.locator("tr.many")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("×10")
    every = page.locator("tr.all")
    expect(every.locator("li")).to_have_count(0)
    every.locator("summary").click()
    expect(every.locator("li")).to_have_count(10)
    expect(every).to_contain_text("worker-008")
    newcomer.button("health.again").click()
    expect(every.locator("li")).to_have_count(10)


def test_what_an_agent_has_not_read_is_said_in_words_and_why_only_once(team: Team, newcomer: Person) -> None:
    services = team.services
    services.task_creation.create(services.agents.owner(), [NewTask(title="More", assignee_id="worker-001")])
    page = newcomer.visit("agents").page
    row = page.locator(".agent").filter(has_text="worker-001")
    expect(row.locator(".notices")).to_contain_text(newcomer.words("action.task_assigned"))
    expect(row.locator(".notice")).to_have_count(2)
    expect(row.locator(".notices .why")).to_have_count(1)
    expect(row).not_to_contain_text("task_assigned")
