"""An agent's pane in the browser: its screen, its question, a line, and what a hostile program shows there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.conformance.stage import Stage
from tests.end_to_end.support import Team
from tests.web.asking import Opened, asks, keys
from tests.web.browsing import DESK, PHONE, Person, Theme

pytestmark = pytest.mark.tmux
HOSTILE = (
    "\x1b[2J\x1b[H\x1b[1;31mred\x1b[0m \x1b[7minverse\x1b[0m 日本語|end",
    "\x1b[97;44mwhite on blue\x1b[0m \x1b[30;42mblack on green\x1b[0m \x1b[44mon blue\x1b[0m",
    "\x1b[93;103myellow on yellow\x1b[0m",
    "<script>document.title='owned'</script><img src=x onerror=alert(1)>",
    "abc \u202egnp.exe\u202c \u2066x\u2069 \u05d0\u05d1\u05d2 1 2 3",
    "\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\ \x1b]0;owned\x07",
    "┌ Permission ──────────┐ [Approve] [Reject]",
)


def sheet(person: Person) -> Locator:
    person.visit("agents")
    person.page.locator("[data-mark=pane]").first.click()
    return person.page.locator("dialog[open]")


def test_a_question_is_read_and_answered_with_one_click(
    team: Team, opened: Opened, newcomer: Person, tmp_path: Path
) -> None:
    log = asks(team, opened, tmp_path)
    shown = sheet(newcomer)
    expect(shown.locator(".question pre")).to_contain_text("Bash command 0")
    expect(shown.locator(".question button")).to_have_count(3)
    lasting = shown.locator(".question button").filter(has=newcomer.page.locator(".chip"))
    expect(lasting).to_have_text(f"2Yes, and don't ask again{newcomer.words('attention.lasting')}")
    expect(shown.locator(".screen")).to_contain_text("Do you want to proceed?")
    expect(shown.locator(".attach code")).to_contain_text("attach -t %")
    assert newcomer.page.url.endswith("#pane=worker-a")
    wrong: dict[str, object] = {}
    looks: tuple[tuple[str, tuple[int, int], Theme], ...]
    looks = (("desk", DESK, "light"), ("dark", DESK, "dark"), ("phone", PHONE, "light"))
    for name, size, theme in looks:
        newcomer.turn(size, theme)
        newcomer.leave_picture(f"pane-{name}")
        wrong |= {f"{name} {kind}": found for kind, found in newcomer.look("everythingAsked").items() if found}
    assert wrong == {}
    shown.locator("[data-mark=choice-3]").click()
    expect(newcomer.page.locator("#toasts")).to_contain_text(
        newcomer.words("attention.answered", agent="worker-a", label="No")
    )
    expect(shown.locator(".question pre")).to_contain_text("Bash command 1")
    assert keys(log) == ["3"]
    journal = max((team.services.path / "audit").iterdir()).read_text(encoding="utf-8")
    line = json.loads(journal.splitlines()[-1])
    assert (line["tool"], line["by"], line["choice"], line["label"]) == ("answer", "owner", "3", "No")
    newcomer.visit("timeline")
    drawn = newcomer.page.locator("[data-kind=answer] title")
    expect(drawn).to_contain_text(["owner → worker-a: 3 No\nBash command 0"])
    newcomer.leave_picture("timeline-answer")


def test_a_second_click_does_not_answer_the_next_question_that_nobody_has_read(
    team: Team, opened: Opened, newcomer: Person, tmp_path: Path
) -> None:
    log = asks(team, opened, tmp_path)
    shown = sheet(newcomer)
    first = shown.locator("[data-mark=choice-1]")
    expect(first).to_be_enabled()
    spot = first.bounding_box()
    assert spot is not None
    newcomer.page.mouse.click(spot["x"] + 10, spot["y"] + 10)
    expect(shown.locator(".question pre")).to_contain_text("Bash command 1")
    for _ in range(3):
        newcomer.page.mouse.click(spot["x"] + 10, spot["y"] + 10)
    expect(first).to_be_enabled()
    assert keys(log) == ["1"]


def test_a_line_is_typed_into_an_idle_composer_only(
    team: Team, opened: Opened, newcomer: Person, tmp_path: Path
) -> None:
    log = asks(team, opened, tmp_path)
    shown = sheet(newcomer)
    shown.locator("[name=line]").fill("hello")
    shown.locator("form.line button").click()
    expect(newcomer.page.locator("#toasts")).to_contain_text(newcomer.words("reason.dialog"))
    expect(shown.locator("[name=line]")).to_have_value("hello")
    assert keys(log) == []


def test_a_hostile_screen_is_text_in_its_frame(opened: Opened, newcomer: Person, tmp_path: Path) -> None:
    program = tmp_path / "hostile.py"
    program.write_text(
        f"import time\nprint({chr(10).join(HOSTILE)!r}, flush=True)\ntime.sleep(600)\n", encoding="utf-8"
    )
    opened(f"exec {sys.executable} -X utf8 {program}")
    shown = sheet(newcomer)
    screen = shown.locator(".screen")
    expect(screen).to_contain_text("<script>document.title='owned'</script><img src=x onerror=alert(1)>")
    expect(shown.locator(".question")).to_have_count(0)
    expect(screen.locator("a, button, img, script, input")).to_have_count(0)
    text = screen.inner_text()
    assert not set(text) & set("\u202e\u202c\u2066\u2069\x1b\x07")
    assert newcomer.page.title() != "owned"
    red = screen.locator(".bold").first
    expect(red).to_have_text("red")
    assert red.evaluate("one => getComputedStyle(one).color") == "rgb(255, 123, 114)"
    assert newcomer.look("paleTexts") == []
    cells = screen.locator(".cells")
    expect(cells).to_have_text(["日", "本", "語"])
    one = screen.evaluate("one => { const i = one.querySelector('.cursor'); return i.getBoundingClientRect().width }")
    assert cells.first.evaluate("one => one.getBoundingClientRect().width") == pytest.approx(2 * one, abs=0.1)
    newcomer.leave_picture("pane-hostile")
    shown.locator("figcaption button").click()
    back = newcomer.page.locator("dialog[open] .screen").last
    expect(back).to_contain_text("Approve")


FLOOD = """
import itertools, sys, time
for frame in itertools.count():
    rows = [f"\\x1b[38;5;{row % 256}m{row:3} {'x' * 294}" for row in range(2, 99)]
    marked = "\\x1b[38;5;196m\\x1b[48;5;21mnoe\\u0308l\\x1b[0m e\\u0301 か\\u3099|"
    page = "<button data-mark=choice-1>1 Yes</button> \\x1b[?1049h\\x1b[?1000h\\x1b]52;c;b3duZWQ=\\x07"
    sys.stdout.write("\\x1b[H" + "\\r\\n".join([marked, f"{page} {frame:9}", *rows]))
    sys.stdout.flush()
    time.sleep(1 / 60)
"""


def test_a_large_pane_that_changes_all_the_time_stays_in_its_frame(
    opened: Opened, own_tmux: Stage, team: Team, newcomer: Person, tmp_path: Path
) -> None:
    program = tmp_path / "flood.py"
    program.write_text(FLOOD, encoding="utf-8")
    opened(f"exec {sys.executable} -X utf8 {program}")
    pane = str(team.services.agents.get("worker-a").pane_id)
    own_tmux.tmux("resize-window", "-t", pane, "-x", "300", "-y", "100")
    screen = sheet(newcomer).locator(".screen")
    expect(screen.locator(".row")).to_have_count(100)
    first = screen.locator(".row").first
    expect(first).to_contain_text("noe\u0308l e\u0301 か\u3099|")
    expect(screen.locator(".cells").first).to_have_text("か\u3099")
    expect(first.locator("span").first).to_have_css("color", "rgb(255, 255, 255)")
    expect(first.locator("span").first).to_have_css("background-color", "rgb(0, 0, 255)")
    counter = screen.locator(".row").nth(1)
    before = counter.inner_text()
    expect(counter).not_to_have_text(before)  # it lives
    expect(screen.locator("button")).to_have_count(0)
    for size in (DESK, PHONE):
        newcomer.turn(size)
        assert newcomer.page.evaluate("document.documentElement.scrollWidth") <= newcomer.width
        assert screen.evaluate("one => one.scrollWidth > one.clientWidth")  # what does not fit is scrolled to
    newcomer.page.keyboard.press("Escape")
    expect(newcomer.page.locator("dialog[open]")).to_have_count(0)


def test_a_pane_that_is_gone_is_said(own_tmux: Stage, opened: Opened, newcomer: Person) -> None:
    opened("exec sleep 600")
    shown = sheet(newcomer)
    expect(shown.locator(".screen .row").first).to_be_attached()
    own_tmux.tmux("kill-server")
    expect(shown.locator(".screen .reason")).to_be_visible()
    expect(shown.locator(".question")).to_have_count(0)
