"""An agent's own page: what it does, what was said to it and by it, its log and its screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from multi_agent_mcp.services.tasks.board import NewTask
from tests.end_to_end.support import Team
from tests.web.asking import Opened, asks
from tests.web.browsing import DESK, PHONE, THEMES, Person


@pytest.mark.tmux
def test_everything_about_an_agent_is_on_its_page(team: Team, opened: Opened, newcomer: Person, tmp_path: Path) -> None:
    services = team.services
    admin, owner = services.agents.get("admin"), services.agents.owner()
    first, second = (NewTask(title=title, assignee_id="worker-a") for title in ("<i>dig</i>", "fill it in"))
    held, waiting = services.task_creation.create(admin, [first, second])
    session = services.sessions.open("worker-a", "task")
    services.task_changes.set_status(owner, held.id, "in_progress")
    services.task_changes.set_status(owner, waiting.id, "blocked", "no <u>spade</u>")
    services.executions.log(services.executions.begin(session.record, held.id), "the <b>first</b> spit")
    team.post("worker-a", "Dig deeper")
    services.human_conversations.start(services.agents.get("worker-b"), "worker-a", "How deep?", "the depth")
    asks(team, opened, tmp_path)

    newcomer.visit("agents").page.locator(".agent a", has_text="worker-a").click()
    part = {
        name: newcomer.page.locator(f"[data-part={name}]")
        for name in ("tasks", "mail", "conversations", "log", "screen")
    }
    expect(newcomer.page.locator("h1")).to_have_text("worker-a")
    expect(part["tasks"].locator(".in-hand a")).to_have_text("<i>dig</i>")
    expect(part["tasks"].locator(".reason")).to_have_text("no <u>spade</u>")
    expect(part["mail"]).to_contain_text("Dig deeper")
    expect(part["conversations"]).to_contain_text("the depth")
    expect(part["log"]).to_contain_text("the <b>first</b> spit")
    expect(part["screen"].locator(".screen")).to_contain_text("Do you want to proceed?")
    expect(part["screen"].locator(".choices button")).to_have_count(3)
    wrong: dict[str, object] = {}
    for size, theme in zip((DESK, PHONE), THEMES, strict=True):
        newcomer.turn(size, theme)
        newcomer.leave_picture(f"agent-{theme}-{newcomer.width}")
        wrong |= {f"{theme} {kind}": found for kind, found in newcomer.look("everythingAsked").items() if found}
    assert wrong == {}

    services.task_changes.set_status(owner, held.id, "done")
    expect(part["tasks"].locator(".in-hand")).to_have_count(0)
    session.end()
    newcomer.visit("agents/admin").page.locator(".below summary").click()
    newcomer.page.locator(".below a", has_text="worker-b").click()
    expect(newcomer.page.locator("h1")).to_have_text("worker-b")


def test_an_agent_that_was_removed_has_a_page_and_a_stranger_has_none(team: Team, newcomer: Person) -> None:
    team.post("worker-b", "Farewell")
    team.services.agents.remove("worker-b")
    newcomer.visit("agents/worker-b")
    expect(newcomer.page.locator("#agent .chip")).to_have_text(newcomer.words("agent.removed"))
    expect(newcomer.page.locator("[data-part=mail]")).to_contain_text("Farewell")
    reply = newcomer.page.request.get(f"{newcomer.web.address}/agents/nobody")
    assert reply.status == 404
