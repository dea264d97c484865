"""Panes by the console's API: what a change there needs, and how it is switched off."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.support import Team
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
    for text in ("", " ", "x" * 101, "a\nb", "#k3x9", "\x1b[A"):
        assert guest.refused("/agents/worker-a/line", {"text": text}) == (400, "invalid_arguments")
    assert guest.see("/agents/admin/pane")["reason"] == "no_pane"
    assert keys(log) == []
