"""Panes by the console's API: what a change there needs, and how it is switched off."""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from multi_agent_mcp.doorbell.tmux.notifier import LOOK_SECONDS
from tests.conformance.stage import Stage
from tests.end_to_end.support import Team, wait_until
from tests.web.asking import Opened, asks, keys
from tests.web.support import Guest

pytestmark = pytest.mark.tmux


def test_a_console_that_is_told_to_be_silent_presses_nothing(team: Team, opened: Opened, tmp_path: Path) -> None:
    log = asks(team, opened, tmp_path)
    settings = team.services.workspace.settings_path
    settings.write_text(settings.read_text(encoding="utf-8") + "console: {answer: false}\n", encoding="utf-8")
    guest = Guest(team)
    shown = guest.see("/agents/worker-a/pane")
    assert shown["dialog"]["topic"] == "permission"
    assert '"answers": false' in guest.get("/agents").text
    assert guest.see(f"/agents/worker-a/pane?seen={shown['state']}").keys() == {"success", "state"}
    answer = {"dialog_id": shown["dialog"]["id"], "choice": "1"}
    assert guest.refused("/agents/worker-a/answer", answer) == (403, "unauthorized")
    assert guest.refused("/agents/worker-a/line", {"text": "hello"}) == (403, "unauthorized")
    assert keys(log) == []


def test_an_answer_needs_the_very_question_and_a_line_is_one(team: Team, opened: Opened, tmp_path: Path) -> None:
    log, guest = asks(team, opened, tmp_path), Guest(team)
    assert guest.refused("/agents/worker-a/answer", {"dialog_id": "x", "choice": "1"}) == (409, "not_answered")
    assert guest.refused("/agents/admin/answer", {"dialog_id": "x", "choice": "1"}) == (409, "not_answered")
    assert guest.refused("/agents/worker-a/answer", {"choice": "1"}) == (400, "invalid_arguments")
    assert guest.refused("/agents/ghost/answer", {"dialog_id": "x", "choice": "1"}) == (404, "agent_not_found")
    for text in ("", " ", "x" * 101, "a\nb", "#k3x9", "\x1b[A", "x\ud800y", "\u200b", "a\u202eb", "\u26a0\ufe0f stop"):
        assert guest.refused("/agents/worker-a/line", {"text": text}) == (400, "invalid_arguments")
    assert guest.see("/agents/admin/pane")["reason"] == "no_pane"
    assert keys(log) == []


@pytest.mark.parametrize("question", ["pane", "scrollback"])
def test_a_pane_that_is_closed_is_said_to_be(team: Team, own_tmux: Stage, opened: Opened, question: str) -> None:
    opened("exec sleep 600")
    closed = team.services.agents.get("worker-a").pane_id or ""
    own_tmux.tmux("new-session", "-d", "exec sleep 600")  # the server lives on
    guest = Guest(team)
    assert guest.see("/agents/worker-a/pane")["attach"].endswith(f"attach -t {closed}")
    own_tmux.tmux("kill-pane", "-t", closed)
    wait_until(lambda: "screen" not in guest.see(f"/agents/worker-a/{question}"), "it is gone")
    shown = guest.see(f"/agents/worker-a/{question}")
    assert (shown["reason"], shown.get("attach")) == ("pane_gone", None)


def test_however_many_look_a_pane_is_captured_four_times_a_second(
    team: Team, opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened("exec sleep 600")
    calls, wrapper = tmp_path / "calls", tmp_path / "bin" / "tmux"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\necho "$*" >> {calls}\nexec {shutil.which("tmux")} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    guest, began = Guest(team), time.monotonic()
    with ThreadPoolExecutor(6) as people:
        for _ in range(4):
            list(people.map(guest.see, ["/agents/worker-a/pane"] * 6))
    looks = 1 + (time.monotonic() - began) // LOOK_SECONDS
    assert 2 <= calls.read_text(encoding="utf-8").count("capture-pane") <= 2 * looks
