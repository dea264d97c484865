"""Reading, writing and deciding in the browser, and the arrival of new mail without a reload."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from multi_agent_mcp.domain.agent import OwnerWait
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft
from tests.end_to_end.support import Team, wait_until
from tests.web.browsing import Person
from tests.web.support import at_work


def test_a_message_is_written_and_its_way_is_followed(team: Team, newcomer: Person) -> None:
    newcomer.visit("messages")
    newcomer.button("messages.write").click()
    newcomer.answer(receiver_id="worker-a", subject="Login", content="Please *look* at it.", priority="high")
    expect(newcomer.page.locator(".toast")).to_contain_text("worker-a")
    (message,) = wait_until(lambda: team.mailbox("worker-a"), "the message")
    assert (message.sender_id, message.subject, message.content) == ("owner", "Login", "Please *look* at it.")

    newcomer.page.locator("[data-box=sent]").click()
    newcomer.page.locator(".rows a").click()
    expect(newcomer.page.locator(".chosen .words em")).to_have_text("look")
    expect(newcomer.page.locator(".way .state-read")).to_have_count(0)
    words = newcomer.page.locator(".chosen .words em").element_handle()
    services = team.services
    services.reading.read(services.agents.get("worker-a"), Query())
    expect(newcomer.page.locator(".way .state-read")).to_have_count(1)
    assert words.evaluate("element => element.isConnected"), "what was selected in it is lost"


def test_all_that_two_agents_wrote_is_reached_by_keyboard(team: Team, newcomer: Person) -> None:
    services = team.services
    admin = services.agents.get("admin")
    for number in range(130):
        services.messages.send(admin, Draft(content=f"number {number}", receiver_id="worker-a"))
    newcomer.visit("messages", "#box=all")
    newcomer.choose("messages")
    shown = newcomer.page.locator(".thread li")
    expect(shown).to_have_count(20)
    earlier = newcomer.button("messages.earlier")
    earlier.focus()
    newcomer.page.keyboard.press("Enter")
    expect(shown).to_have_count(120)
    expect(earlier).to_be_focused()
    newcomer.page.keyboard.press("Enter")
    expect(shown).to_have_count(130)
    expect(earlier).to_have_count(0)
    expect(newcomer.page.locator(".chosen :focus")).to_have_text(newcomer.words("messages.beginning"))
    newcomer.page.keyboard.press("Shift+Tab")
    newcomer.page.keyboard.press("Enter")
    expect(newcomer.page.locator(".chosen .words")).to_have_text("number 0")
    expect(shown).to_have_count(130)
    expect(shown.last.locator("a")).to_be_focused()


def test_a_message_of_somebody_who_is_no_agent_is_shown(team: Team, newcomer: Person) -> None:
    header = ["id: by-hand-1", "sender_id: a,stranger", "receiver_id: worker-a", "message_type: request"]
    team.drop(team.path / "ipc" / "worker-a" / "note.md", "\n".join(["---", *header, "---", "", "hello"]))
    newcomer.visit("messages", "#box=all&id=by-hand-1")
    expect(newcomer.page.locator(".chosen .words")).to_have_text("hello")


def test_why_a_message_got_no_further_is_said_in_words_and_what_has_none_says_itself(
    team: Team, newcomer: Person
) -> None:
    team.post("worker-a")
    (message,) = team.mailbox("worker-a")
    log = team.services.workspace.delivery_log("worker-a")
    for reason in ("a_screen_of_mine", "failed_OSError", "<b>"):
        facts = {"at": "2026-11-21T00:00:00Z", "messages": [message.id]}
        log.append(state="deferred", reason=reason, **facts)
    newcomer.visit("messages", f"#box=all&id={message.id}")
    told = newcomer.page.locator(".way .hint")
    broken = newcomer.words("reason.failed", error="OSError")
    expect(told).to_have_text([newcomer.words("reason.no_pane"), "a_screen_of_mine", broken, "<b>"])
    expect(told.first).to_have_attribute("title", "no_pane")


def test_a_message_is_read_and_answered_and_the_title_counts_decisions_alone(team: Team, newcomer: Person) -> None:
    newcomer.visit("messages")
    team.post("owner", "Which database?")
    expect(newcomer.page).to_have_title(newcomer.words("page.messages") + " · demo")
    expect(newcomer.page.locator("#badge-messages")).to_have_text("1")
    newcomer.page.locator(".rows a").click()
    expect(newcomer.page.locator(".chosen .words")).to_have_text("Which database?")
    expect(newcomer.page).to_have_title(newcomer.words("page.messages") + " · demo")
    expect(newcomer.page.locator("#badge-messages")).to_be_hidden()
    assert team.unread("owner") == []
    box = newcomer.page.locator(".answer textarea")
    box.fill("Postgres.")
    team.post("owner", "Never mind?")
    expect(newcomer.page.locator(".rows li")).to_have_count(2)
    expect(box).to_have_value("Postgres.")
    newcomer.button("messages.reply").click()
    expect(box).to_have_value("")
    (answer,) = wait_until(lambda: team.mailbox("admin"), "the answer")
    assert (answer.content, answer.message_type, answer.subject) == ("Postgres.", "response", "")
    box.fill("Postgres.")
    box.press("Control+Enter")
    wait_until(lambda: len(team.mailbox("admin")) == 2, "the same words again are another message")


def test_what_is_not_sent_yet_stays_while_something_else_is_read(team: Team, newcomer: Person) -> None:
    for text in ("one", "two"):
        team.post("owner", text)
    newcomer.visit("messages")
    rows, box = newcomer.page.locator(".rows a"), newcomer.page.locator(".answer textarea")
    rows.first.click()
    expect(newcomer.page.locator(".chosen .words")).to_have_text("two")
    box.fill("half a sen")
    rows.last.click()
    expect(newcomer.page.locator(".chosen .words")).to_have_text("one")
    expect(box).to_have_value("")
    rows.first.click()
    expect(box).to_have_value("half a sen")


def test_a_person_starts_a_conversation_says_something_and_ends_it(team: Team, newcomer: Person) -> None:
    services = team.services
    (task,) = services.task_creation.create(services.agents.owner(), [NewTask(title="Dig", assignee_id="worker-a")])
    newcomer.visit("conversations")
    newcomer.button("conversations.start").click()
    newcomer.answer(target_agent_id="worker-a", purpose="depth", task_id=task.id, content="How *deep*?")
    expect(newcomer.page.locator(".bubble em")).to_have_text("deep")
    (talk,) = services.conversations.all()
    assert (talk.initiator_id, talk.task_id, talk.status) == ("owner", task.id, "pending")
    services.conversations.say(services.agents.get("worker-a"), talk.id, Draft(content="Two metres."))
    expect(newcomer.page.locator(".bubble").last).to_have_text("Two metres.")
    wait_until(lambda: not team.unread("owner"), "what is shown has been read")
    newcomer.page.locator(".answer textarea").fill("Enough.")
    newcomer.button("conversations.say").click()
    expect(newcomer.page.locator(".bubble").last).to_have_text("Enough.")
    newcomer.button("conversations.end").click()
    newcomer.answer(final_message="Thanks.")
    expect(newcomer.page.locator(".chosen .chip").first).to_have_text(newcomer.words("conversations.ended"))
    expect(newcomer.page.locator(".answer")).to_have_count(0)
    wait_until(lambda: len(team.mailbox("worker-a")) == 3, "the last words arrive")  # after the end was written down
    assert [message.content for message in team.mailbox("worker-a")] == ["How *deep*?", "Enough.", "Thanks."]


def test_showing_an_agents_first_words_makes_its_conversation_active(team: Team, newcomer: Person) -> None:
    services = team.services
    talk, _ = services.conversations.begin(services.agents.get("admin"), services.agents.owner(), "Which database?")
    newcomer.visit("conversations", f"#{talk.id}")
    expect(newcomer.page.locator(".chosen .chip").first).to_have_text(newcomer.words("conversations.active"))
    assert team.unread("owner") == []
    newcomer.visit("messages")
    newcomer.page.locator(".rows a").click()
    newcomer.page.locator(".answer textarea").fill("Postgres.")
    newcomer.button("messages.reply").click()
    (answer,) = wait_until(lambda: team.mailbox("admin"), "the answer")
    assert (answer.message_type, answer.metadata["conversation_id"]) == ("conversation", talk.id)
    services.conversations.end(services.agents.get("admin"), talk.id)
    expect(newcomer.page.locator(".chosen")).to_contain_text(newcomer.words("messages.conversation_over"))
    expect(newcomer.page.locator(".answer")).to_have_count(0)


def test_somebody_elses_mail_is_looked_at_and_stays_unread(team: Team, newcomer: Person) -> None:
    team.post("worker-a", "for worker-a alone")
    newcomer.visit("messages", "#box=inbox&whose=worker-a")
    newcomer.page.locator(".rows a").click()
    expect(newcomer.page.locator(".chosen .words")).to_have_text("for worker-a alone")
    assert len(team.unread("worker-a")) == 1


def test_requests_are_approved_and_rejected(team: Team, person: Person) -> None:
    services = team.services
    worker = services.agents.get("worker-a")
    yes, _ = services.task_creation.request(worker, NewTask(title="a good idea"))
    no, _ = services.task_creation.request(worker, NewTask(title="a bad idea"))
    waiting = person.page.locator("#attention li")
    expect(waiting).to_have_count(2)  # the requests; the mail that asks for the decisions says nothing else
    waiting.filter(has_text="a good idea").locator("[data-mark=approve]").click()
    expect(waiting).to_have_count(1)
    waiting.filter(has_text="a bad idea").locator("[data-mark=reject]").click()
    person.answer(reason="too early")
    expect(waiting.filter(has=person.page.locator("[data-mark=reject]"))).to_have_count(0)
    expect(person.card("a good idea", "todo")).to_be_visible()
    expect(person.card("a bad idea")).to_contain_text(person.words("board.rejected"))
    board = team.services.task_changes
    assert (board.get(yes.id).approval_status, board.get(yes.id).status) == ("approved", "todo")
    assert board.get(no.id).approval_status == "rejected"


def test_a_task_is_made_and_handed_out(team: Team, person: Person) -> None:
    person.button("board.new").click()
    person.answer(title="Write it down", description="- one\n- two", priority="urgent")
    card = person.card("Write it down", "backlog")
    expect(card).to_contain_text(person.words("priority.urgent"))
    sheet = person.open_card("Write it down")
    expect(sheet.locator(".prose li")).to_have_text(["one", "two"])
    sheet.get_by_role("button", name=person.words("board.assignee")).click()
    person.page.locator("dialog.small [name=assignee_id]").fill("worker-b")
    person.page.locator("dialog.small button[type=submit]").click()
    expect(sheet).to_contain_text("worker-b")
    (task,) = team.services.workspace.tasks.all()
    assert (task.assignee_id, task.priority) == ("worker-b", "urgent")


def test_the_owners_wait_is_released(team: Team, newcomer: Person) -> None:
    newcomer.visit("agents")
    wait = OwnerWait(owner_id="owner", admin_id="admin", task_id="tsk_000000000000", message_id="x")
    team.services.owner_waits.begin(wait)
    newcomer.page.locator("[data-mark=release]").click()
    expect(newcomer.page.locator("[data-mark=release]")).to_have_count(0)
    assert team.services.owner_waits.of("owner") is None


def test_a_conversation_is_followed_as_it_is_held(team: Team, newcomer: Person) -> None:
    services = team.services
    two = services.agents.get("worker-a"), services.agents.get("worker-b")
    newcomer.visit("conversations")
    talk, _ = services.conversations.begin(*two, "りんご", purpose="しりとり")
    newcomer.page.locator(".rows a").click()
    expect(newcomer.page.locator(".bubble")).to_have_text(["りんご"])
    first = newcomer.page.locator(".bubble").element_handle()
    services.conversations.say(two[1], talk.id, Draft(content="ごりら"))
    expect(newcomer.page.locator(".bubble")).to_have_text(["りんご", "ごりら"])
    assert first.evaluate("element => element.isConnected"), "what was selected in it is lost"
    services.conversations.end(two[0], talk.id)
    expect(newcomer.page.locator(".chosen .chip").first).to_have_text(newcomer.words("conversations.ended"))


def test_a_log_is_followed_and_keeps_what_was_selected(team: Team, newcomer: Person) -> None:
    executions = team.services.executions
    with at_work(team) as execution:
        newcomer.visit("executions", f"#{execution.id}")
        lines = newcomer.page.locator(".log span")
        expect(lines).to_have_count(1)
        lines.first.select_text()
        selected = newcomer.page.evaluate("getSelection().toString().trim()")
        assert "Starting" in selected
        for number in range(3):
            executions.log(execution, f"Tool call: number {number}")
        expect(lines).to_have_count(4)
        expect(lines.last).to_contain_text("number 2")
        assert newcomer.page.evaluate("getSelection().toString().trim()") == selected
        executions.finish(execution)
        expect(newcomer.page.locator(".chosen .chip")).to_have_text(newcomer.words("executions.completed"))


def test_executions_are_everybodys_or_those_of_one_agent(team: Team, newcomer: Person) -> None:
    for agent_id in ("worker-a", "worker-b"):
        with at_work(team, agent_id):
            pass
    newcomer.visit("executions")
    whose, rows = newcomer.page.locator("#filters [name=agent]"), newcomer.page.locator(".rows .first bdi")
    expect(whose).to_have_attribute("placeholder", newcomer.words("executions.everybody"))
    expect(rows).to_have_count(2)
    whose.fill("worker-b")
    expect(rows).to_have_text(["worker-b"])
    whose.fill("")
    expect(rows).to_have_count(2)


def test_every_execution_is_reached_however_many_there_are(team: Team, newcomer: Person) -> None:
    services = team.services
    (task,) = services.task_creation.create(services.agents.owner(), [NewTask(title="Again", assignee_id="worker-a")])
    session = services.sessions.open("worker-a", "task")
    for _ in range(205):
        services.executions.finish(services.executions.begin(session.record, task.id))
    session.end()
    newcomer.visit("executions")
    rows, more = newcomer.page.locator(".rows li"), newcomer.page.locator("#more")
    for shown in (50, 150, 205):
        expect(rows).to_have_count(shown)
        if shown < 205:
            more.click()
    expect(more).to_be_hidden()
    expect(rows.last).to_contain_text("Again")


def test_a_long_log_that_grows_while_it_is_fetched_holds_every_line_once(team: Team, newcomer: Person) -> None:
    executions = team.services.executions
    with at_work(team) as execution:
        newcomer.visit("executions", f"#{execution.id}")
        lines = newcomer.page.locator(".log span")
        expect(lines).to_have_count(1)
        held = newcomer.hold("**/log?offset=*")
        for number in range(600):  # more than one answer holds
            executions.log(execution, f"Tool call: number {number}")
        executions.finish(execution)
        expect(newcomer.page.locator(".rows .chip")).to_have_text(newcomer.words("executions.completed"))
        held.pop(0).continue_()
        expect(lines).to_have_count(501)
        newcomer.page.unroute("**/log?offset=*")  # lets go whatever is held
        expect(newcomer.page.locator(".chosen .chip")).to_have_text(newcomer.words("executions.completed"))
        expect(lines.last).to_contain_text("completed")
        numbers = re.findall(r"number (\d+)", newcomer.page.locator(".log").inner_text())
        assert [int(number) for number in numbers] == list(range(600))


def test_every_click_on_more_shows_more(team: Team, person: Person) -> None:
    services = team.services
    for _ in range(2):
        services.task_creation.create(services.agents.owner(), [NewTask(title="one of many")] * 130)
    column = person.column("backlog")
    expect(column.locator(".count")).to_have_text("260")
    for shown in (30, 130, 230, 260):
        expect(column.locator(".card")).to_have_count(shown)
        if shown < 260:
            column.locator(".more").click()
    expect(column.locator(".more")).to_be_hidden()
