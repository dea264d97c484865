"""The page Files in a real browser: who edits what, reservations, worktrees, and what can be done about them."""

from __future__ import annotations

from playwright.sync_api import expect

from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.usage.limit import LimitSeen
from multi_agent_mcp.wiring import Services
from tests.usage.support import took
from tests.web.browser.test_review import TITLE, delivered, services  # noqa: F401 - fixtures
from tests.web.browsing import DESK, PHONE, Person


def edit(services: Services, agent_id: str, *paths: str) -> None:  # noqa: F811
    project = services.workspace.root.parent
    services.edits.note(agent_id, [str(project / path) for path in paths], str(project))


def test_files_show_conflicts_first_are_found_by_words_released_and_merged(
    services: Services,  # noqa: F811
    delivered: Task,  # noqa: F811
    person: Person,
) -> None:
    owner, page = services.agents.owner(), person.page
    services.deliveries.decide(owner, delivered.id, approve=True)
    task, other = services.task_creation.create(
        owner, [NewTask(title="One", assignee_id="worker-a"), NewTask(title="Two", assignee_id="admin")]
    )
    services.task_changes.start(services.agents.get("worker-a"), task.id)
    services.task_changes.start(services.agents.get("admin"), other.id)
    edit(services, "worker-a", "pyproject.toml", "src/one.py")
    edit(services, "admin", "src/one.py", "src/<img src=x onerror=alert(1)>.py")
    services.reservations.reserve(services.agents.get("admin"), ["src/db/**"], reason="The schema changes.")
    person.visit("files")
    edited, reserved, worktrees = (page.locator("#files section").nth(index) for index in range(3))
    expect(edited.locator("tbody tr")).to_have_count(3)
    expect(edited.locator("tbody tr").first).to_contain_text("src/one.py")
    expect(edited.locator("tbody tr").first).to_contain_text(person.words("files.several"))
    expect(reserved.locator("tbody tr")).to_contain_text("src/db/**")
    for size in (DESK, PHONE):
        person.turn(size)
        person.leave_picture(f"files-{person.width}")
        assert person.look("sideways") <= 0
    person.turn(DESK)
    reserved.locator('[data-mark="release"]').click()
    expect(reserved).to_be_hidden()
    assert services.reservations.open() == []
    row = worktrees.locator("tbody tr")
    expect(row).to_contain_text("mam/")
    expect(row).to_contain_text(TITLE)
    row.locator(f'[data-mark="merge-{delivered.id}"]').click()
    expect(page.locator(".toast").last).to_contain_text(TITLE)
    expect(row).to_contain_text(person.words("files.merged", n=1))
    page.locator('input[name="words"]').fill("PYPROJECT")
    expect(edited.locator("tbody tr")).to_have_count(1)
    expect(worktrees).to_be_hidden()


def test_many_files_are_folded_and_small_on_a_phone(services: Services, person: Person) -> None:  # noqa: F811
    (task,) = services.task_creation.create(services.agents.owner(), [NewTask(title="One", assignee_id="worker-a")])
    services.task_changes.start(services.agents.get("worker-a"), task.id)
    edit(services, "worker-a", *(f"src/{number:02d}.py" for number in range(25)))
    rows = person.visit("files").page.locator("table.edited tbody tr")
    expect(rows).to_have_count(20)
    person.button("more").click()
    expect(rows).to_have_count(25)
    person.turn(PHONE)
    assert max(rows.evaluate_all("rows => rows.map((row) => row.offsetHeight)")) <= 70


def test_each_part_of_the_line_of_states_shows_what_it_counts_and_nothing_else(
    services: Services,  # noqa: F811
    delivered: Task,  # noqa: F811
    person: Person,
) -> None:
    owner, admin, page = services.agents.owner(), services.agents.get("admin"), person.page
    (task,) = services.task_creation.create(owner, [NewTask(title="One", assignee_id="admin")])
    services.task_changes.start(admin, task.id)
    edit(services, "admin", "pyproject.toml")
    services.limits.saw("admin", "claude", LimitSeen(at=services.clock(), window="five_hour", source="hook"))
    services.messages.send(admin, Draft(content="hello", receiver_id="owner"))
    (services.root / "prices.yaml").write_text("currency: EUR\nper_million:\n  m-1: {input: 10, output: 0}\n")
    took(services, "admin", 1_000_000)
    person.visit("board")
    waiting, states = page.locator("#attention > ul > li"), page.locator(".states .state")
    expect(states).to_contain_text([person.words(f"glance.{name}", count=1) for name in ("working", "reviews")])
    expect(waiting).to_have_count(3)
    for name in ("reviews", "limited"):
        states.and_(page.locator(f"[data-mark={name}]")).click()
        expect(waiting).to_have_count(1)
    services.deliveries.decide(owner, delivered.id, approve=True)
    page.locator("[data-mark=working]").click()
    expect(page.locator(".agent")).to_contain_text(["admin"])
    expect(page.locator(".agent")).to_have_count(1)
    person.visit("board")
    page.locator("[data-mark=spent]").click()
    expect(page.locator(".totals")).to_contain_text("10.00 EUR")
    person.visit("files", "?show=merge")
    worktrees = page.locator("#files section:visible")
    expect(worktrees).to_have_count(1)
    expect(worktrees.locator("tbody tr")).to_contain_text([TITLE])
    worktrees.locator(f'[data-mark="merge-{delivered.id}"]').click()
    expect(worktrees).to_have_count(0)
    expect(page.locator("#files .empty")).to_have_text(person.words("files.not_found"))


def test_a_few_letters_in_their_order_find_an_agent_or_a_page(person: Person) -> None:
    page = person.page
    page.keyboard.press("Control+k")
    first = page.locator(".palette li").first
    for letters, name in {
        "wka": "worker-a",
        "wrkra": "worker-a",
        "amn": "admin",
        "timel": person.words("page.timeline"),
    }.items():
        page.locator(".palette input").fill(letters)
        expect(first).to_contain_text(name)
    page.locator(".palette input").fill("xyzw")
    expect(page.locator(".palette li")).to_have_count(1)


def test_search_and_palette_find_who_edits_a_path(services: Services, person: Person) -> None:  # noqa: F811
    page = person.page
    edit(services, "worker-a", "pyproject.toml")
    page.keyboard.press("Control+k")
    page.locator(".palette input").fill("pyproj")
    entry = page.locator(".palette li", has_text="pyproject.toml")
    expect(entry).to_contain_text("worker-a")
    entry.click()
    expect(page.locator("#files tbody tr")).to_contain_text("worker-a")
    page.locator("#sought").fill("pyproject")
    page.locator("#sought").press("Enter")
    expect(page.locator("#results li").first).to_contain_text("worker-a")
