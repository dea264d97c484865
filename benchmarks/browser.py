"""The console of a team in a real browser."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from benchmarks.team import SESSION, Team

# Runs before anything of the page: when the board has been painted for the first time, and when each card came, in
# milliseconds since the epoch.
WATCHER = """
const now = () => performance.timeOrigin + performance.now();
window.painted = null;
window.came = {};
new MutationObserver(() => {
  for (const card of document.querySelectorAll(".card")) window.came[card.getAttribute("aria-label")] ??= now();
  if (window.painted === null && document.querySelector("#columns[aria-busy=false]")) {
    window.painted = 0;
    requestAnimationFrame(() => setTimeout(() => { window.painted = performance.now(); }));
  }
}).observe(document, { childList: true, subtree: true, attributes: true, attributeFilter: ["aria-busy"] });
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """The machine's own chromium."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        raise FileNotFoundError("no chromium is installed")
    root = ["--no-sandbox"] if os.geteuid() == 0 else []  # chromium refuses to sandbox root's pages
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=root)
        yield browser
        browser.close()


@contextmanager
def console(team: Team, browser: Browser) -> Iterator[tuple[BrowserContext, str]]:
    """Somebody who has just opened the link of the team's `web`, and its address."""
    where = ["--root", str(team.root), "--session", SESSION]
    command = [sys.executable, "-m", "multi_agent_mcp", "web", *where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as server:
        assert server.stdout is not None
        link = server.stdout.readline().strip()
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        context.add_init_script(WATCHER)
        try:
            painted(context.new_page(), link)
            yield context, f"http://{urlsplit(link).netloc}/"
        finally:
            context.close()
            server.terminate()


def painted(page: Page, address: str) -> float:
    """Seconds from asking for the board until its cards have been painted."""
    page.goto(address)
    taken = page.evaluate(
        """async () => {
          while (!window.painted) await new Promise((resolve) => setTimeout(resolve, 5));
          return window.painted;
        }"""
    )
    return float(taken) / 1000
