"""Nothing is wider than its window: not ten neighbours on one file, nor a line of two hundred characters."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.services.questions import Asking
from multi_agent_mcp.services.tasks.board import NewTask
from tests.end_to_end.support import Team
from tests.web.browsing import PAGES, Person

WIDTHS = (390, 1024, 1440)
LINE = "src/" + "long-name/" * 19 + "end.py"
NEIGHBOURS = [f"neighbour-with-a-name-{number:02d}" for number in range(10)]


@pytest.fixture
def crowded(team: Team) -> Team:
    """A team in which ten agents edit one file and are asked, told and blocked in lines of 200 characters."""
    services, project = team.services, team.root.parent
    owner = services.agents.owner()
    for name in NEIGHBOURS:
        services.agents.add(Agent(id=name, role="worker", parent_id="admin"))
        worker = services.agents.get(name)
        (task,) = services.task_creation.create(owner, [NewTask(title=LINE, description=LINE, assignee_id=name)])
        services.task_changes.start(worker, task.id)
        services.edits.note(name, [str(project / LINE), str(project / "shared.py")], str(project))
        asking = Asking(question=LINE, to_id=owner.id, choices=(LINE[:100], "no"), default="no", minutes=30)
        services.questions.ask(worker, asking, services.task_changes.get(task.id))
    services.task_changes.set_status(worker, task.id, "blocked", LINE)
    services.reservations.reserve(worker, [LINE], reason=LINE)
    team.post(owner.id, LINE)
    return team


def test_no_page_is_wider_than_its_window(crowded: Team, newcomer: Person) -> None:
    person, wider = newcomer, dict[str, object]()
    task = next(task for task in crowded.services.workspace.tasks.open() if task.title == LINE)
    for page in (*PAGES, f"agents/{NEIGHBOURS[0]}", "board#task"):
        name, _, anchor = page.partition("#")
        person.visit(name, f"#{task.id}" if anchor else "")
        if anchor:
            expect(person.page.locator("dialog[open]")).to_be_visible()
        for width in WIDTHS:
            person.turn((width, 900))
            expect(person.page.locator("[aria-busy=true]")).to_have_count(0)
            person.leave_picture(f"wide-{page.replace('/', '-')}-{width}")
            sideways, cut = person.look("sideways"), person.look("cutOff")
            if sideways > 0 or cut:
                wider[f"{page}-{width}"] = (sideways, cut)
    assert wider == {}
