"""Text written by agents does no harm in the browser: no dialog, no error, no external request, no broken layout."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.validation import Draft
from tests.end_to_end.support import Team
from tests.web.browsing import DESK, PAGES, PHONE, Person

UNSEEN = "\u202e\u2066\u2069\u200b\x07\U000e0041"
BIDI = f"{UNSEEN}evil{UNSEEN}"
MARKUP = (
    "<script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)>"
    "<a href='javascript:alert(4)'>click</a><iframe src='https://example.org/'></iframe>"
    "![seen](https://example.org/pixel.png) [link](javascript:alert(5)) <style>*{display:none}</style>"
    "</title></textarea></script>\"'`{{7*7}}${alert(6)}"
)
CROWDED = "w" * 80 + f" {MARKUP}{BIDI}\n\n" + "w" * 400
"""A long word begins the titles, which are its first 400 characters, and a longer one ends the text."""
MILLION = f"# {MARKUP}\n\n{BIDI}\n\n" + "x" * 999_000
"""For the pages that show whole texts; the others show titles."""


def write_everywhere(team: Team, text: str) -> None:
    """The text wherever an agent may write one; a title is one line."""
    services = team.services
    owner, worker, other = (services.agents.get(name) for name in ("owner", "worker-a", "worker-b"))
    title = text[:400].replace("\n", " ")
    services.workspace.registry.update("worker-a", name=title)
    parent, blocked = services.task_creation.create(
        owner, [NewTask(title=title, description=text, assignee_id="worker-a") for _ in range(2)]
    )
    parent, _ = services.task_changes.start(worker, parent.id)
    session = services.sessions.open("worker-a", "task")
    services.next_action.begin(session, parent)
    execution = services.executions.running(session.record)
    assert execution is not None
    services.executions.log(execution, text)
    services.task_reports.report_progress(worker, parent.id, 50, text[:5000], [{"text": title, "completed": True}])
    services.task_changes.set_status(owner, blocked.id, "cancelled", text[:5000])
    services.task_creation.request(worker, NewTask(title=title))
    services.messages.send(worker, Draft(content=text, subject=title, receiver_id="owner"))
    talk, _ = services.conversations.begin(worker, other, text, purpose=title, task_id=parent.id)
    services.conversations.say(other, talk.id, Draft(content=text))
    services.next_action.report_completed(worker, session, "failed", text[:1000], text[:1000])
    session.end()


@pytest.mark.parametrize(
    ("text", "pages"),
    [(CROWDED, PAGES), (MILLION, ("board", "messages", "conversations", "executions"))],
    ids=["markup and long words", "a million"],
)
def test_what_agents_write_stays_text_on_every_page(
    team: Team, newcomer: Person, text: str, pages: tuple[str, ...]
) -> None:
    write_everywhere(team, text)
    for name in pages:
        newcomer.visit(name)
        newcomer.choose(name)
        if name == "board":
            newcomer.page.locator("[data-status=blocked] .card .title a").click()
            expect(newcomer.page.locator("dialog.sheet")).to_be_visible()
        for size in (DESK, PHONE):
            newcomer.turn(size)
            assert (newcomer.look("sideways"), newcomer.look("cutOff")) == (0, []), (name, size)
        assert newcomer.page.locator("main script, main iframe, main img, [onerror]").count() == 0
        assert not set(UNSEEN) & set(newcomer.page.locator("body").inner_text()), name


WIDE_TABLE = "|" * 257 + "\n" + "|-" * 256 + "|\n" + "|\n" * 256 + "\n"
"""1 300 characters that are 66 000 cells."""


def test_a_conversation_of_wide_tables_is_drawn_and_its_beginning_fetched_on_demand(
    team: Team, newcomer: Person
) -> None:
    services = team.services
    one, other = services.agents.get("worker-a"), services.agents.get("worker-b")
    talk, _ = services.conversations.begin(one, other, "the beginning " * 100)
    for number in range(50):
        content = f"number {number}\n\n" + WIDE_TABLE * 15
        services.conversations.say(one if number % 2 else other, talk.id, Draft(content=content[:20_000]))
    newcomer.visit("conversations", f"#{talk.id}")
    messages = newcomer.page.locator(".talk > li")
    expect(messages).to_have_count(51)
    expect(messages.last).to_contain_text("number 49")
    expect(messages.last.locator("pre")).to_have_count(1)
    expect(messages.last.locator(".hint")).to_have_text(newcomer.words("as_written"))
    messages.first.get_by_role("button").click()
    expect(messages.first.get_by_role("button")).to_have_count(0)
    assert messages.first.inner_text().count("the beginning") == 100
    expect(messages.first.locator("[tabindex]")).to_be_focused()
    services.conversations.say(one, talk.id, Draft(content="and one more"))
    expect(messages).to_have_count(52)
    assert messages.first.inner_text().count("the beginning") == 100, "what was fetched stays"
    assert newcomer.page.locator("main *").count() < 5_000


def test_an_address_that_names_nothing_says_so(newcomer: Person) -> None:
    for name, anchor in (("board", "#tsk_000000000000"), ("messages", "#id=<img src=x onerror=alert(1)>")):
        newcomer.visit(name, anchor)
        expect(newcomer.page.locator(".toast.bad")).to_be_visible()
        assert [trouble for trouble in newcomer.troubles if "404" not in trouble] == []
        assert len(newcomer.troubles) == 1, "what is not there is asked for once"
        newcomer.troubles.clear()
