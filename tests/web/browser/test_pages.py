"""Every page can be read, reached and named: in both themes, on a desk and on a phone, in both languages.

Each page is seen in every pair of theme and size, of size and language, and of language and theme; axe examines it in
one language, as what it asks does not depend on the words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from multi_agent_mcp.texts import LANGUAGES
from tests.end_to_end.support import Team
from tests.web.browsing import DESK, PAGES, PHONE, THEMES, Person, Theme
from tests.web.office import furnished

AXE = Axe()
MAGNIFIED = (320, 256)
"""What is left of a desk's window (WCAG 2.2, Reflow)."""
EXAMINED = """async () => {
  const options = { resultTypes: ["violations"], rules: { "color-contrast": { enabled: false } } };
  return (await axe.run(options)).violations;
}"""
"""Without contrast, which `paleTexts` measures and for which axe takes two thirds of its time."""


@pytest.fixture(params=LANGUAGES)
def team(bare: Team, request: pytest.FixtureRequest) -> Iterator[Team]:
    with furnished(bare, request.param) as told:
        yield told


class Eye:
    """Collects what is wrong wherever it is asked to look, and leaves a picture if one is wanted."""

    def __init__(self, language: str) -> None:
        self.found: dict[str, object] = {}
        self._language = language

    @property
    def views(self) -> Iterator[tuple[tuple[int, int], Theme]]:
        """Two sizes, each in a theme; one language has one half of the pairs, the other one the other half."""
        themes = THEMES if self._language == LANGUAGES[0] else reversed(THEMES)
        return zip((DESK, PHONE), themes, strict=True)

    def look(self, person: Person, name: str, theme: str) -> None:
        expect(person.page.locator("[aria-busy=true]")).to_have_count(0)  # another window, another timeline
        place = f"{name}-{self._language}-{theme}-{person.width}"
        person.leave_picture(place)
        wrong = {kind: found for kind, found in person.look("everythingAsked").items() if found}
        if self._language == LANGUAGES[0] and (findings := examined(person)):
            wrong["axe"] = [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in findings]
        if wrong:
            self.found[place] = wrong


def examined(person: Person) -> list[dict[str, Any]]:
    """What axe finds wrong."""
    if person.page.evaluate("typeof axe") == "undefined":
        person.page.evaluate(AXE.axe_script)
    found: list[dict[str, Any]] = person.page.evaluate(EXAMINED)
    return found


@pytest.fixture
def eye(team: Team) -> Eye:
    return Eye(team.services.texts.language)


def test_every_page_is_sound_in_either_theme_and_size_and_magnified_four_times(newcomer: Person, eye: Eye) -> None:
    wider = {}
    for name in (*PAGES, "agents/worker-a"):
        newcomer.visit(name)
        newcomer.choose(name)
        for size, theme in eye.views if name in PAGES else ():  # an agent's page is seen in test_agent.py
            newcomer.turn(size, theme)
            eye.look(newcomer, name, theme)
        newcomer.turn(MAGNIFIED)
        wider[name] = newcomer.look("sideways")
    assert eye.found == {}
    assert {name: pixels for name, pixels in wider.items() if pixels > 0} == {}


def test_sheets_forms_and_menus_are_sound(newcomer: Person, eye: Eye) -> None:
    for size, theme in eye.views:
        newcomer.turn(size, theme)
        newcomer.visit("board")
        newcomer.page.locator("[data-status=in_progress] .card .dots").first.click()
        expect(newcomer.page.locator("[role=menuitem]:focus")).to_have_count(1)
        eye.look(newcomer, "menu", theme)
        newcomer.page.keyboard.press("Escape")
        newcomer.button("board.new").click()
        eye.look(newcomer, "form", theme)
        newcomer.page.keyboard.press("Escape")
        newcomer.page.locator("[data-status=blocked] .card .title a").first.click()
        expect(newcomer.page.locator("dialog.sheet")).to_be_visible()
        eye.look(newcomer, "task", theme)
    assert eye.found == {}


@pytest.mark.parametrize("team", LANGUAGES[:1], indirect=True)
def test_the_theme_that_was_chosen_stays(person: Person) -> None:
    person.button("theme").click()
    root = person.page.locator("html")
    expect(root).to_have_attribute("data-theme", "dark")
    person.visit("agents")
    expect(root).to_have_attribute("data-theme", "dark")
