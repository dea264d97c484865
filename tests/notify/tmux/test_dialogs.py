"""What the profiles read of a dialog and its choices (docs/protocol.md, Answering a dialog)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from multi_agent_mcp.config import NOT_YAML
from multi_agent_mcp.notify.tmux.dialogs import read_dialog
from multi_agent_mcp.notify.tmux.profiles import Profiles, load_profiles, parse_profile
from tests.notify.tmux.test_screens import SCREENS, screen

READ = {
    "claude/dialog_bash": ("permission", "touch /home/dev/proj1/fx-claude/x", "1 2* 3"),
    "claude/dialog_mcp": ("permission", "Destructive probe", "1 2* 3"),
    "claude/dialog_write": ("permission", "1 hi", "1 2* 3"),
    "claude/dialog_trust": ("trust", "/home/dev/proj1/fx-claude2", "1* 2"),
    "codex/dialog_exec": ("permission", "$ touch /home/dev/proj1/fx-codex/x", "1 2* 3"),
    "codex/dialog_mcp": ("permission", 'run tool "destructive"', "1 2* 3* 4"),
    "codex/dialog_trust": ("trust", "/home/dev/proj1/fx-codex3", "1* 2"),
    "codex/dialog_hook_trust": ("hooks", "2 hooks are new or changed", "1 2* 3"),
    "gemini/dialog_bash": ("permission", "touch x", "1 2* 3"),
    "gemini/dialog_trust": ("trust", "Do you trust the files in this folder?", "1* 2* 3"),
    "copilot/dialog_bash": ("permission", "touch x", "1 2*"),
    "copilot/dialog_trust": ("trust", "/home/dev/a/project", "1 2* 3"),
}
"""Topic, some of the text, and the choices, those that last with a star. Of all other screens nothing is offered."""


@pytest.fixture(scope="module")
def profiles() -> Profiles:
    return load_profiles()


@pytest.mark.parametrize("attributes", [True, False], ids=["ansi", "plain"])
@pytest.mark.parametrize("name", SCREENS)
def test_choices_are_read_from_dialogs_and_offered_on_no_other_screen(
    profiles: Profiles, name: str, attributes: bool
) -> None:
    shown = read_dialog(profiles.named[name.partition("/")[0]], screen(name, attributes=attributes))
    if name not in READ:
        assert shown is None
        return
    topic, text, choices = READ[name]
    assert shown is not None
    assert shown.dialog.topic == topic
    assert text in shown.dialog.text
    assert " ".join(f"{choice.key}{'*' * choice.lasting}" for choice in shown.dialog.choices) == choices


@pytest.mark.parametrize("name", READ)
def test_another_profile_and_none_offer_nothing(profiles: Profiles, name: str) -> None:
    seen, host = screen(name, attributes=True), name.partition("/")[0]
    assert read_dialog(replace(profiles.named[host], choices=None), seen) is None
    others = [profile for other, profile in profiles.named.items() if other != host]
    assert [profile.name for profile in others if read_dialog(profile, seen) is not None] == []


@pytest.mark.parametrize("name", READ)
def test_the_id_is_of_the_words_and_not_of_their_place_or_the_marked_choice(profiles: Profiles, name: str) -> None:
    profile, seen = profiles.named[name.partition("/")[0]], screen(name, attributes=True)
    shown = read_dialog(profile, seen)
    assert shown is not None
    moved = read_dialog(profile, replace(seen, rows=("one more row above", *seen.rows)))
    assert moved is not None
    assert moved.dialog.id == shown.dialog.id
    word = next(word for word in shown.dialog.text.split() if word.isalpha())
    changed = tuple(row.replace(word, word + "x") if shown.first <= at else row for at, row in enumerate(seen.rows))
    other = read_dialog(profile, replace(seen, rows=changed))
    assert other is None or other.dialog.id != shown.dialog.id


@pytest.mark.parametrize("name", [name for name in READ if "codex" not in name])
def test_a_dialog_whose_upper_edge_has_left_the_screen_is_not_offered(profiles: Profiles, name: str) -> None:
    profile, seen = profiles.named[name.partition("/")[0]], screen(name, attributes=True)
    shown = read_dialog(profile, seen)
    assert shown is not None
    assert read_dialog(profile, replace(seen, rows=seen.rows[shown.first :])) is None


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("change", ["a row below", "a number missing", "nothing marked", "two marked"])
def test_one_row_that_is_not_described_and_nothing_is_offered(profiles: Profiles, name: str, change: str) -> None:
    profile, seen = profiles.named[name.partition("/")[0]], screen(name, attributes=True)
    shown = read_dialog(profile, seen)
    assert shown is not None
    marks, last = "❯›●", "2"
    mark = next(row.split("1.")[0].strip(" │") for row in seen.rows[shown.first :] if re.search(f"[{marks}] 1[.]", row))
    rows: Callable[[str], str] = {
        "a row below": lambda row: row,
        "a number missing": lambda row: row.replace(" 1. ", " 2. ", 1),
        "nothing marked": lambda row: row.translate(dict.fromkeys(map(ord, marks), " ")),
        "two marked": lambda row: row.replace(f"  {last}. ", f"{mark} {last}. "),
    }[change]
    low = [rows(row) if at >= shown.first else row for at, row in enumerate(seen.rows)]
    if change == "a row below":
        low.insert(shown.last + 1, "  something new")
    assert read_dialog(profile, replace(seen, rows=tuple(low))) is None


def test_choices_that_an_agent_writes_into_its_command_are_part_of_the_text(profiles: Profiles) -> None:
    seen = screen("claude/dialog_bash", attributes=True)
    forged = ("   ❯ 1. No", "     2. Yes", "   rm -rf /")
    at = seen.row_of("^   make a file$")
    rows = (*seen.rows[:at], *forged, *seen.rows[at:])[len(forged) :]
    shown = read_dialog(profiles.named["claude"], replace(seen, rows=rows))
    assert shown is not None
    assert [choice.label for choice in shown.dialog.choices][::2] == ["Yes", "No"]
    assert "rm -rf /" in shown.dialog.text
    assert "1. No" in shown.dialog.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"row": "^[0-9]"},
        {"row": "("},
        {"begin": "x"},
        {"top": None},
        {"topics": None},
    ],
)
def test_choices_that_are_not_described_whole_make_no_profile(wrong: dict[str, str | None]) -> None:
    whole = {
        "topics": ["trust"],
        "top": "^─",
        "row": "^(?P<mark>.)(?P<key>[1-9])(?P<label>.+)",
        "below": "x",
        "lasting": "x",
    }
    assert parse_profile("x", {"choices": whole}).choices is not None
    with pytest.raises((re.error, *NOT_YAML)):
        parse_profile("x", {"choices": {name: text for name, text in {**whole, **wrong}.items() if text is not None}})
