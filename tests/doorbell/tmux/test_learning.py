"""The profiles that `host learn` derives from captures of real hosts, as if these hosts were unknown."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from multi_agent_mcp.doorbell.tmux import learning
from multi_agent_mcp.doorbell.tmux.learning import Screens, Unlearnable, composer_fields, confused, profile_fields
from multi_agent_mcp.doorbell.tmux.profiles import Profile, load_profiles, parse_profile
from multi_agent_mcp.doorbell.tmux.screens import TYPEABLE, Screen, classify
from tests.doorbell.tmux.test_screens import SCREENS, STATES, screen

DIALOGS = {"claude": "dialog_bash", "codex": "dialog_exec", "copilot": "dialog_bash", "gemini": "dialog_bash"}
DRAFTS = dict.fromkeys(("claude", "codex"), "half typed draft")


def captured(host: str) -> dict[str, list[Screen]]:
    names = {"idle": "idle_fresh", "draft": "idle_draft", "busy": "busy_thinking", "dialog": DIALOGS[host]}
    return {step: [screen(f"{host}/{name}", attributes=True)] for step, name in {**names, "rest": "idle"}.items()}


def learned(screens: Screens) -> Profile:
    fields = profile_fields(screens, "stranger", "Enter", next(iter(learning.busy_signs(screens)), None))
    return parse_profile("stranger", yaml.safe_load(yaml.safe_dump(fields, allow_unicode=True)))


@pytest.mark.parametrize("host", DIALOGS)
def test_only_what_is_at_rest_is_taken_for_rest(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "DRAFT_TEXT", DRAFTS.get(host, learning.DRAFT_TEXT))
    screens = captured(host)
    profile = learned(screens)
    found = learning.verdicts(profile, screens)
    assert found == {"idle": "idle", "draft": "draft", "busy": "busy", "dialog": "dialog", "rest": "idle"}
    assert not profile.takes_lines_while_busy
    shown = {name: classify(profile, screen(name, attributes=True)).state for name in SCREENS if name.startswith(host)}
    assert shown[f"{host}/idle"] == "idle"
    typeable = {name for name, state in shown.items() if state in TYPEABLE}
    assert {STATES.get(name.partition("/")[2], "dialog") for name in typeable} <= set(TYPEABLE)


def test_a_row_below_the_composer_that_was_not_learned_makes_the_screen_unknown() -> None:
    screens = captured("gemini")
    profile, (idle,) = learned(screens), screens["idle"]
    blank = next(number for number in range(len(idle.rows) - 1, 0, -1) if idle.rows[number]) + 1
    other = replace(idle, rows=(*idle.rows[:blank], " Delete everything? y/n", *idle.rows[blank + 1 :]))
    assert (classify(profile, idle).state, classify(profile, other).state) == ("idle", "unknown")


def test_whatever_a_dialog_says_can_be_learned() -> None:
    screens = captured("copilot")
    rows = (
        *[""] * 30,
        r" Delete C:\Users\new, #{all} (?P<x>) of it?+? [a-z] {2} $HOME | ^x \\d # % ~",
        " press 1 or 2 \\",
        "",
        "",
    )
    screens["dialog"] = [replace(screens["dialog"][0], rows=rows, cursor_flag=False)]
    assert classify(learned(screens), screens["dialog"][0]).state == "dialog"
    other = replace(screens["dialog"][0], rows=tuple(row.replace("press 1 or", "press 3 or") for row in rows[31:]))
    assert classify(learned(screens), other).state == "dialog"


def moved(screens: Screens) -> Screens:
    """The screens with the cursor parked at another place while the host is at rest."""
    return {**screens, "idle": [replace(screens["idle"][0], cursor_x=0)]}


def undrafted(screens: Screens) -> Screens:
    return {**screens, "draft": screens["idle"]}


@pytest.mark.parametrize(("change", "reason"), [(moved, "learn_idle"), (undrafted, "learn_draft")])
def test_screens_that_show_no_composer_are_refused(change: Callable[[Screens], Screens], reason: str) -> None:
    with pytest.raises(Unlearnable) as refused:
        composer_fields(change(captured("copilot")))
    assert refused.value.reason.key == reason


def test_work_that_cannot_be_told_from_rest_is_a_confusion() -> None:
    screens = captured("copilot")
    screens["busy"] = screens["idle"]
    assert learning.busy_signs(screens) == []
    assert confused(learning.verdicts(learned(screens), screens)) == "busy"


@pytest.mark.parametrize(
    "fields",
    [
        "views: [{state: idle, text: x}]",
        "views: [{state: [], text: x}]",
        "composer: {prompt: '^>', above: '', below: '', modes: {busy: '^!'}}",
        "pause_seconds: .inf",
        "pause_seconds: -1",
        "commands: ['(?i)x']",
        "composer: [",
        "!!int ''",
        "composer: {prompt: '[', above: '', below: ''}",
        "- a",
        "\x00",
    ],
)
def test_a_profile_that_cannot_be_used_is_named_and_changes_nothing(tmp_path: Path, fields: Any) -> None:
    (tmp_path / "mine.yaml").write_text(fields, encoding="utf-8")
    found = load_profiles(tmp_path)
    assert list(found.left_out) == ["mine.yaml"]
    assert found.named == load_profiles().named


def test_a_pipe_among_the_profiles_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mine.yaml")
    assert list(load_profiles(tmp_path).left_out) == ["mine.yaml"]
