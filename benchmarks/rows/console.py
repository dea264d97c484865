"""The Owner's console in a real browser: loading time, update latency and smoothness."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time

from playwright.sync_api import BrowserContext, Page

from benchmarks.bench import Bench
from benchmarks.browser import chromium, console, painted
from benchmarks.table import Finding
from benchmarks.team import Team
from benchmarks.timing import in_turns, ms, seconds
from multi_agent_mcp.services.tasks.board import NewTask

LOADS = 7
CHANGES = 15
FRAMES = 180
LONG_FRAME = 50  # milliseconds; what the Long Tasks API calls long


def first_paint(bench: Bench) -> Finding:
    """From asking for the page to its cards on the screen, in a browser that knows the files already."""
    crowded, empty = bench.planned, bench.team()
    with chromium() as browser, console(crowded, browser) as (many, there), console(empty, browser) as (none, here):
        measured, floor = in_turns(LOADS, lambda: _load(many, there), lambda: _load(none, here))
    return Finding(measured, ms(measured), f"{ms(floor)} (empty board)")


def seen(bench: Bench) -> Finding:
    """A task is made by this process; the page hears of it from the web server's."""
    team = bench.planned
    with chromium() as browser, console(team, browser) as (context, address):
        page = context.new_page()
        painted(page, address)
        page.locator("#live[data-state=on]").wait_for()
        numbers = itertools.count()
        measured, floor = in_turns(CHANGES, lambda: _until_seen(team, page, f"news {next(numbers)}"), _started)
    return Finding(measured / floor, ms(measured), f"{ms(floor)} python -c pass")


def scrolling(bench: Bench) -> Finding:
    """Frames that took longer than 50 ms while a column with many loaded cards is scrolled through."""
    with chromium() as browser, console(bench.planned, browser) as (context, address):
        page = context.new_page()
        painted(page, address)
        column = page.locator(".column[data-status=done]")
        while (loaded := column.locator(".card").count()) < bench.scale.cards:
            column.locator(".more").click()
            column.locator(".card").nth(loaded).wait_for(state="attached")
        frames = sorted(page.evaluate(_SCROLL, FRAMES))
    long = sum(frame > LONG_FRAME for frame in frames)
    return Finding(long, f"{loaded} cards, median frame {frames[len(frames) // 2]:.0f} ms, longest {frames[-1]:.0f} ms")


_SCROLL = """async (count) => {
  const frames = [];
  const next = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const step = document.documentElement.scrollHeight / count;
  let last = await next();
  for (let number = 0; number < count; number += 1) {
    window.scrollBy(0, step);
    const now = await next();
    frames.push(now - last);
    last = now;
  }
  return frames;
}"""


def _load(context: BrowserContext, address: str) -> float:
    page = context.new_page()
    taken = painted(page, address)
    page.close()
    return taken


def _until_seen(team: Team, page: Page, title: str) -> float:
    """Seconds from the task being stored until its card is in the page."""
    services = team.services
    services.task_creation.create(services.agents.get("owner"), [NewTask(title=title, priority="urgent")])
    stored = time.time()
    page.locator(".card", has_text=title).first.wait_for(state="attached")
    came = page.evaluate("(title) => Object.entries(window.came).find(([label]) => label.startsWith(title))[1]", title)
    return max(float(came) / 1000 - stored, 0.0)


def _started() -> float:
    return seconds(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True))
