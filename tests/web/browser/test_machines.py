"""A team on several machines in the browser: homes of agents, absent machines, waiting messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import expect

from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.texts import LANGUAGES
from tests.end_to_end.support import Team
from tests.hub.support import DESK, LAPTOP, Machines, eventually, machines
from tests.web.browsing import DESK as WIDE
from tests.web.browsing import PHONE, THEMES, Person, Theme


class OnOneMachine(Team):
    """The team as one of the machines has it."""

    def __init__(self, base: Path, env: dict[str, str], machine: str) -> None:
        super().__init__(base, env)
        self.machine = machine

    @property
    def root(self) -> Path:
        return self.base / self.machine


@pytest.fixture(scope="module", params=LANGUAGES)
def made(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Machines]:
    with ThreadPoolExecutor(1) as thread:  # in this one Playwright's event loop runs
        making = machines(tmp_path_factory.mktemp("machines"), LAPTOP, language=request.param)
        yield thread.submit(making.__enter__).result()
        thread.submit(making.__exit__, None, None, None).result()


@pytest.fixture
def seat() -> str:
    """The machine at which the person sits."""
    return DESK


@pytest.fixture
def team(made: Machines, env: dict[str, str], seat: str) -> Team:
    services = made[DESK].services
    services.task_creation.create(services.agents.owner(), [NewTask(title="Dig", assignee_id="worker-a")])
    eventually(lambda: services.machines.states() == {DESK: "here", LAPTOP: "up"})
    return OnOneMachine(made.base, env, seat)


def faults(person: Person, *pages: str, themes: Sequence[Theme] = THEMES) -> dict[str, object]:
    """Accessibility problems on these pages, by picture: what cannot be read, reached or named. The desk is seen in
    the first theme, the phone in the second."""
    found: dict[str, object] = {}
    for name in pages:
        person.visit(name)
        for size, theme in zip((WIDE, PHONE), themes, strict=True):
            person.turn(size, theme)
            place = f"shared-{name}-{person.web.team.services.texts.language}-{theme}-{person.width}"
            person.leave_picture(place)
            wrong = {kind: seen for kind, seen in person.look("everythingAsked").items() if seen}
            found |= {place: wrong} if wrong else {}
    person.turn(WIDE)
    return found


@pytest.mark.parametrize("made", ["ja"], indirect=True)
def test_whose_machine_is_which_who_is_away_and_what_waits(made: Machines, team: Team, person: Person) -> None:
    page, words = person.page, person.words
    home = person.card("Dig").locator(".home")
    expect(home).to_have_text(f"@{LAPTOP}")
    person.visit("machines")
    laptop = page.locator(f"#machine-{LAPTOP}")
    expect(page.locator(".machine h2")).to_have_text([DESK, LAPTOP])
    expect(laptop.locator(".chip")).to_have_text(words("machines.state.up"))
    expect(laptop.locator(".at-home")).to_contain_text("worker-a")
    expect(page.locator("#exchange")).to_contain_text(words("machines.connected"))

    made[LAPTOP].sharing.stop_relay()  # seen without a reload
    expect(laptop.locator(".chip")).to_have_text(words("machines.state.away"))
    expect(laptop.locator("header time")).to_be_visible()
    services = team.services
    draft = Draft(content="for later", receiver_id="worker-a")
    sent = services.messages.send(services.agents.owner(), draft)
    expect(laptop.locator(".stands dt")).to_have_text(words("machines.behind"))

    edit = team.path / "agents.yaml"
    edit.write_text("mine", encoding="utf-8")
    team.services.workspace.conflicts.keep_file(edit)
    assert faults(person, "agents", "board", "machines") == {}
    expect(page.locator("#edits code")).to_have_text(f"quarantine/{edit.name}")

    person.visit("board")
    expect(home).to_have_class("home is-away")
    waiting = page.locator("#attention li").filter(has_text=LAPTOP)
    waiting.locator("[data-mark=open]").click()
    expect(page.locator(".machine.is-meant h2")).to_have_text(LAPTOP)

    person.visit("messages", f"#box=all&id={sent.message_id}")
    expect(page.locator(".way li")).to_contain_text([words("state.stored"), words("state.on_hub")])
    person.visit("agents", "#pane=worker-a")
    expect(page.locator("dialog .screen")).to_have_text(words("pane.elsewhere", machine=LAPTOP))
    page.keyboard.press("Escape")
    row = page.locator(".agent").filter(has_text="worker-a")
    expect(row).to_contain_text(words("agents.elsewhere", machine=LAPTOP))
    expect(row.locator(".marks")).to_contain_text(words("agents.away"))
    made[LAPTOP].start()
    expect(row.locator(".marks")).not_to_contain_text(words("agents.away"))
    expect(row.locator(".home")).to_have_class("home")
    person.visit("timeline")
    expect(page.locator("svg [data-kind=agent][data-id=worker-a]")).to_contain_text(LAPTOP)


@pytest.mark.parametrize("made", ["en"], indirect=True)
def test_what_waits_because_this_machine_is_cut_off_says_so(made: Machines, team: Team, newcomer: Person) -> None:
    page, words = newcomer.page, newcomer.words
    assert faults(newcomer, "agents", "board", "machines", themes=THEMES[::-1]) == {}
    made[DESK].sharing.stop_relay()
    expect(page.locator("#exchange")).to_contain_text(words("machines.no_relay"))
    expect(page.locator(f"#machine-{LAPTOP} .chip")).to_have_text(words("machines.state.unknown"))
    newcomer.visit("agents")
    page.locator(".agent").filter(has_text="worker-a").locator("[data-mark=stop]").click()
    newcomer.answer(action="pause", reason="lunch")
    reason = words("reason.no_relay")
    expect(page.locator(".toast")).to_have_text(words("agents.queued", agent="worker-a", reason=reason))
    newcomer.await_closed()
    newcomer.visit("board")
    expect(page.locator("#attention li").first).to_contain_text(words("attention.no_relay"))
    made[DESK].start()
    eventually(lambda: "lunch" in [item.reason for item in made[LAPTOP].services.notifications.waiting("worker-a")])
    expect(page.locator("#attention li").filter(has_text=words("attention.no_relay"))).to_have_count(0)


@pytest.mark.parametrize("made", ["en"], indirect=True)
@pytest.mark.parametrize("seat", [LAPTOP])
def test_what_only_the_owners_machine_may_do_is_shown_elsewhere_with_that_machine(
    made: Machines, team: Team, person: Person
) -> None:
    desk, waiting = made[DESK].services, person.page.locator("#attention li")
    admin = desk.agents.get("admin")
    desk.messages.send(admin, Draft(content="look at this", receiver_id="owner"))
    desk.task_creation.request(admin, NewTask(title="may I"))
    for words in ("look at this", "may I"):
        row = waiting.filter(has_text=words)
        expect(row.locator(".hint")).to_have_text(person.words("attention.there", machine=DESK))
        expect(row.get_by_role("button", name=person.words("attention.copy"))).to_be_visible()
        expect(row.locator("[data-mark=approve]")).to_have_count(0)
