"""`web --open`: the browser gets the link, other users of the machine do not."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.support import Team, wait_until
from tests.web.support import Visitor, Web

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BROWSER = """\
import http.client, json, re, sys, urllib.parse
page = urllib.parse.unquote(urllib.parse.urlsplit(sys.argv[1]).path)
link = urllib.parse.urlsplit(re.search('href="(.*?)"', open(page).read())[1])
console = http.client.HTTPConnection(link.netloc)
console.request("GET", f"{link.path}?{link.query}")
answer = console.getresponse()
came = {"argv": sys.argv, "status": answer.status, "cookie": answer.headers["set-cookie"]}
print(json.dumps(came), file=open(LOG, "w"))
"""
"""A browser in a terminal: whoever starts it and waits for its end waits until it has loaded the page."""


@pytest.fixture
def home(team: Team) -> Path:
    return Path(team.env["HOME"])


def _opened(home: Path) -> list[Path]:
    return [page for page in home.glob("multi-agent-mcp-*/*") if page.stat().st_size]


def _with_browser(team: Team, script: str) -> Web:
    program = team.base / "browser.py"
    program.write_text(script, encoding="utf-8")
    team.env["BROWSER"] = f"{sys.executable} {program} %s"
    return Web(team, "--open")


def test_a_browser_in_the_foreground_gets_in_and_its_arguments_show_no_secret(team: Team, home: Path) -> None:
    log = team.base / "log"
    with _with_browser(team, BROWSER.replace("LOG", repr(str(log)))) as web:
        wait_until(lambda: log.exists() and log.read_text(), "the browser has loaded the console")
        came = json.loads(log.read_text())
        assert came["status"] == 303
        name, value = came["cookie"].partition(";")[0].split("=", 1)
        assert Visitor(web.address, {name: value}).see("/session")["session"] == "demo"
        secret = web.link.partition("ticket=")[2]
        assert secret not in json.dumps(came["argv"])
        wait_until(lambda: not _opened(home), "the page is removed after use")


@pytest.fixture
def unread(team: Team) -> Iterator[Web]:
    """A console whose browser loads nothing."""
    with _with_browser(team, "") as web:
        yield web


def test_the_page_that_leads_to_the_link_is_the_owners_alone_and_gone_with_the_console(unread: Web, home: Path) -> None:
    (page,) = wait_until(lambda: _opened(home), "the page is written")
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
    unread.stop()
    assert not page.parent.exists()


def test_without_a_home_of_ones_own_the_page_is_in_another_private_place(team: Team, home: Path) -> None:
    team.env |= {"HOME": "/dev/null", "TMPDIR": str(home)}
    with _with_browser(team, ""):
        (page,) = wait_until(lambda: _opened(home), "the page is written")
        assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700


def test_a_browser_that_cannot_be_started_is_said_and_the_link_stays_good(team: Team) -> None:
    team.env["BROWSER"] = "/nowhere/browser %s"
    team.env["PATH"] = "/nowhere"
    with Web(team, "--open") as web:
        wait_until(lambda: "ブラウザを開けませんでした" in web.errors.read_text(encoding="utf-8"), "it is said")
        assert web.visitor().see("/session")["session"] == "demo"


@pytest.mark.slow
def test_a_real_browser_comes_from_the_page_to_the_board(unread: Web, browser: Browser, home: Path) -> None:
    (page,) = wait_until(lambda: _opened(home), "the page is written")
    window = browser.new_page()
    window.goto(page.as_uri())
    window.wait_for_url(f"{unread.address}/")
    window.locator("#live[data-state=on]").wait_for()
    window.close()
