"""A person at the console with a real browser, all of whose errors are reported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Dialog, Error, Locator, Page, Request, Route, expect

from multi_agent_mcp.texts import CONSOLE, PEOPLE, catalogue
from tests.end_to_end.support import PATIENCE_SECONDS
from tests.web.support import Web

PAGES = (
    *("board", "agents", "files", "messages", "conversations", "timeline"),
    *("executions", "stats", "health", "search"),
)
DESK = (1280, 800)
PHONE = (390, 844)
Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")
IN_PAGE = (Path(__file__).parent / "in_page.js").read_text(encoding="utf-8")
LEAVE = """async () => {
  const lies = () => Boolean(history.state?.sheets || history.state?.deep);
  const isGoingBack = () => lies() && !document.querySelector("dialog[open]");
  const gone = new Promise((went) => { addEventListener("popstate", went, { once: true }); setTimeout(went, 1000); });
  if (isGoingBack()) await gone;
  if (isGoingBack()) return false;
  try { localStorage.clear(); sessionStorage.clear(); } catch { /* an empty page has none */ }
  location.replace("about:blank");
  return true;
}"""
"""What the page does itself: it keeps its process then, which is dear to start. After a sheet was closed the window is
still going back to the page below it; on an empty page it would go back to the console of somebody who has left."""

expect.set_options(timeout=PATIENCE_SECONDS * 1000)


class Windows:
    """The windows of a browser, each with cookies of its own. They serve one person after another: to open one costs
    more than to load a page."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._free: list[Page] = []

    def take(self) -> Page:
        """A window without cookies that shows an empty page."""
        return self._free.pop() if self._free else self._browser.new_context().new_page()

    def give_back(self, page: Page) -> None:
        """Takes from the window whatever its person has left in it; one that does not obey is closed."""
        try:
            page.unroute_all(behavior="ignoreErrors")
            for other in page.context.pages:
                if other is not page:
                    other.close()
            has_left = page.evaluate(LEAVE)
            if has_left:
                page.wait_for_url("about:blank")
                page.context.clear_cookies()
                page.mouse.move(-1, -1)
        except Error:
            has_left = False
        if has_left:
            self._free.append(page)
        else:
            page.context.close()


class Person:
    """Has a window of a browser to itself. `troubles` must be empty at the end: errors on the browser's console (a
    refusal by the Content-Security-Policy is one), dialogs that scripts opened, requests to other hosts."""

    def __init__(self, windows: Windows, web: Web, *, size: tuple[int, int] = DESK, theme: Theme = "light") -> None:
        self.web = web
        language = web.team.services.texts.language
        self.words = catalogue(language, PEOPLE) | catalogue(language, CONSOLE)
        self.troubles: list[str] = []
        self._windows = windows
        self._prepared = False
        self.page = windows.take()
        self.context = self.page.context
        self.context.set_default_timeout(PATIENCE_SECONDS * 1000)
        self.turn(size, theme)
        self.page.on("console", self._console)
        self.page.on("pageerror", self._error)
        self.page.on("dialog", self._dialog)
        self.context.on("request", self._request)

    def leave(self) -> None:
        """Gives the window back."""
        if self._prepared:
            self.context.close()
            return
        self._windows.give_back(self.page)
        self.context.remove_listener("request", self._request)
        for event, listener in (("console", self._console), ("pageerror", self._error), ("dialog", self._dialog)):
            self.page.remove_listener(event, listener)

    def prepare(self, script: str) -> None:
        """Runs a script before those of every page; nobody else gets this window afterwards."""
        self.context.add_init_script(script)
        self._prepared = True

    def admit(self) -> Person:
        """Gets the cookie for which the one-time link is exchanged, and looks at nothing yet."""
        for name, value in self.web.visitor().cookies.items():
            self.context.add_cookies([{"name": name, "value": value, "url": self.web.address}])
        return self

    def enter(self) -> Person:
        """Opens a one-time link; only the newest one is good, so one person after the other."""
        self.page.goto(self.web.link)
        self.is_live()
        return self

    def beside(self, other: Person) -> Person:
        """Opens the console with the cookie of another person."""
        self.context.add_cookies(other.context.cookies())  # type: ignore[arg-type]
        return self.visit("board")

    def visit(self, name: str, anchor: str = "") -> Person:
        """Goes to a page and waits until it has looked at everything once."""
        address = f"{self.web.address}/{'' if name == 'board' else name}"
        if self.page.url.partition("#")[0] == address:
            self.page.goto("about:blank")  # the same page with another anchor is not loaded again
        self.page.goto(f"{address}{anchor}")
        self.is_live()
        expect(self.page.locator("[aria-busy=true]")).to_have_count(0)
        return self

    def turn(self, size: tuple[int, int], theme: Theme = "light") -> None:
        """Changes the size of the window or the colour theme."""
        self.page.set_viewport_size({"width": size[0], "height": size[1]})
        self.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        # the page is told of its new size with the next frame
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    @property
    def width(self) -> int:
        """The width of the window in pixels."""
        size = self.page.viewport_size
        assert size is not None
        return size["width"]

    def choose(self, name: str) -> None:
        """Opens the first item on pages with items to open."""
        if name in ("messages", "conversations", "executions"):
            self.page.locator(".rows a").first.click()
            expect(self.page.locator(".chosen h2")).to_be_visible()

    def is_live(self, state: str = "on") -> None:
        expect(self.page.locator("#live")).to_have_attribute("data-state", state)

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies that admit this person."""
        return {cookie["name"]: cookie["value"] for cookie in self.context.cookies()}

    def hold(self, address: str) -> list[Route]:
        """Requests to the address wait, in the list that is returned, until the test lets them go on."""
        held: list[Route] = []
        self.page.route(address, lambda route: held.append(route))
        return held

    def column(self, status: str) -> Locator:
        return self.page.locator(f".column[data-status={status}]")

    def card(self, title: str, status: str | None = None) -> Locator:
        """A card, in a column if one is named."""
        return self.page.locator(f"[data-status={status}] .card" if status else ".card").filter(has_text=title)

    def button(self, key: str, **values: str) -> Locator:
        """A button by its words' key in the catalogue."""
        return self.page.get_by_role("button", name=self.words(key, **values), exact=True)

    def answer(self, **fields: str) -> None:
        """Fills the open form and sends it."""
        form = self.page.locator("dialog[open] form")
        for name, text in fields.items():
            field = form.locator(f"[name={name}]")
            if field.evaluate("element => element.tagName") == "SELECT":
                field.select_option(text)
            else:
                field.fill(text)
        form.locator("button[type=submit]").click()

    def await_closed(self) -> None:
        """Waits until the form that was sent has closed: what it did may be seen before, and it goes back in the
        history, which would end the way to another page."""
        self.page.wait_for_function("() => !document.querySelector('dialog.small[open]') && !history.state?.sheets")

    def open_card(self, title: str) -> Locator:
        """Opens the details of a task. Its link is clicked at once, without a mouse: a card is drawn again when its
        agent reports, and a button pressed on one link and released on the next is no click."""
        self.card(title).locator(".title a").evaluate("(link) => link.click()")
        sheet = self.page.locator("dialog.sheet:not(.small)[open]")
        expect(sheet).to_be_visible()
        return sheet

    def leave_picture(self, name: str) -> None:
        """Of the window, for a person to look at, in the directory that `PICTURES` (environment) names. Otherwise no
        picture is drawn: it costs as much as all that is asked of a page."""
        if directory := os.environ.get("PICTURES"):
            self.page.screenshot(path=Path(directory, f"{name}.png"))

    def look(self, function: str) -> Any:
        """Returns the result of a function in `in_page.js`, run on the page."""
        return self.page.evaluate(f"() => {{ {IN_PAGE}; return {function}(); }}")

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(f"{urlsplit(self.page.url).path}: {message.text}")

    def _error(self, error: Error) -> None:
        self.troubles.append(str(error))

    def _dialog(self, dialog: Dialog) -> None:
        self.troubles.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme != "data" and address.netloc != urlsplit(self.web.address).netloc:
            self.troubles.append(f"a request to {request.url}")


def drag(card: Locator, column: Locator) -> None:
    """Drags with the mouse as a person does: press, move over the column, release."""
    card.drag_to(column, target_position={"x": 40, "y": 60})
