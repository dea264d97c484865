"""A review in a real browser: what was said, checked and changed, remarks on lines, and what became of a decision."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.system.git import git
from multi_agent_mcp.wiring import Services
from tests.end_to_end.support import Team
from tests.web.browsing import Person

TITLE = "Mend the login"
COLOURS = "printf '\\033[31mFAILED\\033[0m tests/test_login.py\\n'; printf 'ok %0.s' $(seq 200); echo THE-END"
NAME = "src/<b>\u202ename.py"


@pytest.fixture
def services(team: Team) -> Services:
    """The services, in a repository, with a check that prints colours and a long line."""
    project = team.root.parent
    git(project, "init", "-q", "-b", "main")
    for key, value in {"user.name": "T", "user.email": "t@example.org"}.items():
        git(project, "config", key, value)
    (project / "login.py").write_text("def login():\n    pass\n")
    (project / ".gitignore").write_text("*\n!*.py\n")
    git(project, "add", "login.py", ".gitignore", "--force")
    git(project, "commit", "-q", "-m", "first")
    settings = team.services.workspace.settings_path
    settings.write_text(f"{settings.read_text()}\nchecks:\n  tests:\n    run: |-\n      {COLOURS}\n")
    team.services.approvals.approve()
    return open_session(team.root, team.session)


@pytest.fixture
def delivered(services: Services) -> Task:
    """A task of worker-a in review, whose commit changes two files."""
    worker = services.agents.get("worker-a")
    place = Path(services.worktrees.ensure(worker).path)
    new = NewTask(title=TITLE, assignee_id=worker.id, done_when=("tests", f"review:{services.agents.owner().id}"))
    (task,) = services.task_creation.create(services.agents.owner(), [new])
    services.task_changes.start(worker, task.id)
    (place / "login.py").write_text("def login(name):\n    <script>alert(1)</script>\n")
    (place / "login.py").chmod(0o755)
    (place / NAME).parent.mkdir()
    (place / NAME).write_text("".join(f"line {number}\n" for number in range(1200)))
    git(place, "add", "--force", "login.py", "src")
    git(place, "commit", "-q", "-m", "mend")
    services.deliveries.deliver(worker, task.id, "The login takes a name.", "Log out next.")
    services.deliveries.examine(task.id, place, lambda: False)
    return services.task_changes.get(task.id)


def test_a_review_shows_all_there_is_and_its_remarks_reach_the_author(
    services: Services, delivered: Task, person: Person
) -> None:
    assert delivered.status == "review"
    sheet = person.open_card(TITLE)
    for said in ("The login takes a name.", "Log out next.", delivered.delivery["head"][:10]):  # type: ignore[index]
        expect(sheet).to_contain_text(said)
    sheet.locator(".receipts summary").click()
    output = sheet.locator(".receipts pre")
    expect(output).to_contain_text("FAILED tests/test_login.py")
    expect(output).to_contain_text("THE-END")
    assert "\ufffd" not in output.inner_text()
    assert output.evaluate("pre => pre.scrollWidth <= pre.clientWidth && pre.clientWidth < innerWidth")
    files = sheet.locator(".file")
    expect(files).to_have_count(2)
    expect(files.first).to_contain_text("+2 −2")
    expect(files.first).to_contain_text(f"{person.words('review.mode.100644')} → {person.words('review.mode.100755')}")
    files.first.locator("summary").click()
    line = files.first.locator(".row.added", has_text="<script>")
    line.locator("button").click()
    files.first.locator("textarea").fill("No markup,\nplease.")
    sheet.locator('[data-mark="reject"]').click()
    form = person.page.locator("dialog[open]").last
    expect(form).to_contain_text(person.words("review.go_along", n=1))
    form.locator("textarea").fill("Once more:")
    form.locator("[type=submit]").click()
    toast = person.page.locator(".toast")
    expect(toast).to_have_text(person.words("review.given_back", title=TITLE, agent="worker-a"))
    (told,) = services.notifications.waiting("worker-a")
    assert told.reason == "Once more:\nlogin.py:2: No markup, please."
    expect(sheet.locator(".chip.status-in_progress").first).to_be_visible()


def test_a_long_file_is_shown_in_pieces_and_a_dropped_remark_comes_back_by_keys_alone(
    services: Services, delivered: Task, person: Person
) -> None:
    page, keyboard = person.page, person.page.keyboard
    person.card(TITLE).locator(".title a").press("Enter")
    sheet = page.locator("dialog.sheet:not(.small)[open]")
    long = sheet.locator(".file").nth(1)
    long.locator("summary").press("Enter")
    rows, more = long.locator(".row"), long.locator("[data-mark=more]")
    expect(more).to_be_visible()
    first = rows.count()
    assert first <= 500
    more.press("Enter")
    assert rows.count() > first
    expect(more).to_be_focused()
    more.press("Enter")
    expect(more).to_have_count(0)
    expect(long.locator(".row.added")).to_have_count(1200)
    assert long.evaluate("file => file.contains(document.activeElement)")
    long.locator(".number").nth(1100).press("Enter")
    box = long.locator("textarea")
    expect(box).to_be_focused()
    keyboard.type("Why so many?")
    keyboard.press("Tab")
    keyboard.press("Shift+Tab")
    expect(box).to_be_focused()
    keyboard.press("Shift+Tab")
    keyboard.press("Enter")  # the button that drops it
    expect(box).to_have_count(0)
    expect(long.locator(".number").nth(1100)).to_be_focused()
    expect(page.locator(".toast")).to_contain_text(":1101")
    keyboard.press("u")
    expect(box).to_have_value("Why so many?")
    keyboard.press("Tab")
    keyboard.press("Enter")  # on the next line: another remark, nothing dropped
    expect(box).to_have_count(2)
    sheet.locator('[data-mark="reject"]').press("Enter")
    expect(page.locator("dialog[open]").last).to_contain_text(person.words("review.go_along", n=1))
    page.locator("dialog[open] [type=submit]").last.press("Enter")
    expect(page.locator(".toast").last).to_have_text(person.words("review.given_back", title=TITLE, agent="worker-a"))
    (told,) = services.notifications.waiting("worker-a")
    assert told.reason is not None
    assert told.reason.endswith(":1101: Why so many?")


def test_what_was_approved_says_so_and_is_merged_from_the_sheet(
    services: Services, delivered: Task, person: Person
) -> None:
    sheet = person.open_card(TITLE)
    sheet.locator('[data-mark="approve"]').press("Enter")
    expect(person.page.locator(".toast")).to_have_text(person.words("review.done", title=TITLE))
    sheet.get_by_role("button", name=person.words("review.merge"), exact=True).press("Enter")
    expect(person.page.locator(".toast").last).to_contain_text(
        person.words("review.merged", title=TITLE, commit="")[:20]
    )
    worktree = services.worktrees.of("worker-a")
    assert worktree is not None
    expect(sheet).to_contain_text(person.words("board.merged", branch=worktree.branch))
    expect(sheet.get_by_role("button", name=person.words("review.merge"), exact=True)).to_have_count(0)
    project = services.root.parent
    assert "login(name)" in git(project, "show", "main:login.py")


def test_an_approval_whose_checks_run_again_says_so_where_it_waits(
    services: Services, delivered: Task, person: Person
) -> None:
    checks = services.workspace.settings_path
    checks.write_text(checks.read_text().replace("FAILED", "AGAIN"))  # the receipts are of another command now
    row = person.page.locator("#attention li", has=person.page.locator(".attention-review"))
    row.locator('[data-mark="approve"]').click()
    expect(person.page.locator(".toast")).to_have_text(person.words("review.rechecks", title=TITLE))
    expect(row).to_contain_text(person.words("review.rechecking"))
    expect(row.locator('[data-mark="approve"]')).to_have_count(0)
    expect(person.open_card(TITLE)).to_contain_text(person.words("review.rechecking"))


def test_what_was_not_kept_whole_of_a_report_from_a_shared_directory_is_said(team: Team, person: Person) -> None:
    services, project = team.services, team.root.parent
    git(project, "init", "-q", "-b", "main")
    for key, value in {"user.name": "T", "user.email": "t@example.org"}.items():
        git(project, "config", key, value)
    git(project, "commit", "-q", "--allow-empty", "-m", "first")
    services, worker = open_session(team.root, team.session), services.agents.get("worker-a")
    new = NewTask(title=TITLE, assignee_id=worker.id, done_when=("review:owner",))
    (task,) = services.task_creation.create(services.agents.owner(), [new])
    services.task_changes.start(worker, task.id)
    (project / "long.txt").write_text("line\n" * 300_000)
    services.edits.note(worker.id, [str(project / "long.txt")], str(project))
    services.deliveries.conclude(services.deliveries.deliver(worker, task.id, "Long."))
    file = person.open_card(TITLE).locator(".file")
    expect(file).to_contain_text(person.words("review.file_cut"))
    page_text = services.diffs.of(services.task_changes.get(task.id)).as_answer()
    assert [one["cut"] for one in page_text["files"]] == [True]
