"""`scripts/demo --pictures DIR`: the README's pictures of the console, one of each language."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from multi_agent_mcp.texts import LANGUAGES
from tests.end_to_end.support import Team
from tests.web.browser.conftest import launched
from tests.web.browsing import Person, Windows
from tests.web.office import furnished
from tests.web.support import Web


def photograph(directory: Path) -> list[Path]:
    """`board.png` in English and `board.ja.png` in Japanese."""
    directory.mkdir(parents=True, exist_ok=True)
    made = []
    with sync_playwright() as playwright:
        browser = launched(playwright)
        for language in LANGUAGES:
            with (
                tempfile.TemporaryDirectory() as place,
                furnished(Team(Path(place), dict(os.environ)), language) as team,
                Web(team) as web,
            ):
                person = Person(Windows(browser), web, size=(1280, 760)).enter().visit("board")
                made.append(directory / ("board.png" if language == "en" else f"board.{language}.png"))
                person.page.screenshot(path=made[-1])
                person.context.close()
        browser.close()
    return made


if __name__ == "__main__":
    for picture in photograph(Path(sys.argv[1])):
        sys.stdout.write(f"{picture}\n")
