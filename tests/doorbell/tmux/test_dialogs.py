"""Dialogs and their choices, as the profiles read them (docs/protocol.md, Answering a dialog)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from multi_agent_mcp.doorbell.tmux.dialogs import read_dialog
from multi_agent_mcp.doorbell.tmux.profiles import Profiles, load_profiles, parse_profile
from multi_agent_mcp.doorbell.tmux.screens import Screen, parsed
from multi_agent_mcp.yaml_files import NOT_YAML
from tests.doorbell.tmux.test_screens import FIXTURES, SCREENS, screen

READ = {
    "claude/dialog_question": ("question", "Which one?", "1 2 4"),
    "claude/dialog_bash": ("permission", "touch /home/dev/proj1/fx-claude/x", "1 2* 3"),
    "claude/dialog_mcp": ("permission", "Destructive probe", "1 2* 3"),
    "claude/dialog_write": ("permission", "1 hi", "1 2* 3"),
    "claude/dialog_trust": ("trust", "/home/dev/proj1/fx-claude2", "1* 2"),
    "claude/dialog_question_new": ("question", "Which colour?", "1 2 4"),
    "claude/dialog_write_tip": ("permission", "Do you want to create x.txt?", "1 2* 3"),
    "codex/dialog_exec": ("permission", "$ touch /home/dev/proj1/fx-codex/x", "1 2* 3"),
    "codex/dialog_mcp": ("permission", 'run tool "destructive"', "1 2* 3* 4"),
    "codex/dialog_trust": ("trust", "/home/dev/proj1/fx-codex3", "1* 2"),
    "codex/dialog_hook_trust": ("hooks", "2 hooks are new or changed", "1 2* 3"),
    "codex/dialog_daemon": ("confirm", "This session requires hooks to be disabled", "1 2 3"),
    "gemini/dialog_bash": ("permission", "touch x", "1 2* 3"),
    "gemini/dialog_auth": ("login", "How would you like to authenticate", "1 2 3"),
    "gemini/dialog_trust": ("trust", "Do you trust the files in this folder?", "1* 2* 3"),
    "copilot/dialog_bash": ("permission", "touch x", "1 2*"),
    "copilot/dialog_trust": ("trust", "/home/dev/a/project", "1 2* 3"),
}
"""Topic, part of the text, and the choices; lasting ones are marked by a star. Other screens offer no choices."""
LATER = {
    "claude/screen_permission_hook_slow": ("permission", "touch made_by_slow", "1=1 2*=2 3*=3 4=4"),
    "claude/screen_plugin_first_call": ("permission", "Says who you are.", "1=1 2*=2 3=3"),
    "claude/screen_question": ("question", "Which colour?", "1=1 2=2 4=4"),
    "codex/screen_hooks_need_review": ("hooks", "11 hooks are new", "1=Enter 2*=Down,Enter 3=Down,Down,Enter"),
    "codex/screen_limit_usage_limit": (
        "limit",
        "Switch to gpt-6-luna for lower credit usage?",
        "1=Enter 2=Down,Enter 3*=Down,Down,Enter",
    ),
    "codex/screen_permission_none": ("permission", "$ touch made", "1=1 2*=2 3=3"),
    "codex/screen_plugin_first_call": (
        "permission",
        'run tool "note"?',
        "1=Enter 2*=Down,Enter 3*=Down,Down,Enter 4=Down,Down,Down,Enter",
    ),
    "codex/screen_resume_open_elsewhere": ("resume", "is open in another app", "r=r f=f"),
    "codex/screen_resume_other_cwd": (
        "resume",
        "Current = your current working directory",
        "1=Enter 2=Down,Enter 3*=Down,Down,Enter 4*=Down,Down,Down,Enter",
    ),
    "copilot/screen_permission": ("permission", "touch made", "1=1 2*=2"),
    "gemini/screen_permission": ("permission", "touch made", "1=1 2*=2 3=3"),
    "gemini/screen_limit_quota_day": ("limit", "Usage limit reached for gemini-2.5-flash.", "1=1 2=2"),
}
"""Dialogs of `fixtures/hosts2`, captured later and as plain text: topic, part of the text, and the choices, each with
the keys that pick it."""
BY_COLOUR = {
    "opencode/dialog_bash": (
        "$ touch x; sleep 6",
        "1 2* 3",
        {"1": "Enter", "2": "Right Enter", "3": "Right Right Enter"},
    ),
    "opencode/dialog_bash_reject": (
        "$ touch x; sleep 6",
        "1 2* 3",
        {"1": "Left Left Enter", "2": "Left Enter", "3": "Enter"},
    ),
    "opencode/dialog_bash_sidebar": ("$ touch x; sleep 6", "1 2* 3", {"3": "Enter"}),
    "opencode/dialog_bash_narrow": ("$ touch x; sleep 6", "1 2* 3", {"3": "Enter"}),
    "opencode/dialog_always": ("- touch *", "1* 2", {"1": "Enter", "2": "Right Enter"}),
}
"""Dialogs whose selected choice is shown by colour only: part of the text, the choices, and the keys that select
them."""

BY_ARROWS = {
    "claude/dialog_trust_arrows": ("trust", "/home/dev/aproject", "1=Enter 2*=Down,Enter"),
    "claude/dialog_trust_arrows_yes": ("trust", "/home/dev/aproject", "1=Up,Enter 2*=Enter"),
    "claude/dialog_trust_arrows_small": ("trust", "Quick safety check", "1=Enter 2*=Down,Enter"),
    "claude/dialog_server": (
        "confirm",
        "New MCP server found in this project: foo",
        "1=Up,Up,Enter 2*=Up,Enter 3=Enter",
    ),
    "claude/dialog_imports": ("confirm", "/home/dev/imported.md", "1=Enter 2*=Down,Enter"),
    "claude/dialog_bypass": ("confirm", "you accept all responsibility", "1=Enter 2*=Down,Enter"),
    "claude/dialog_api_key": ("confirm", "Do you want to use this API key?", "1=Up,Enter 2=Enter"),
}
"""Dialogs whose choices have no keys: topic, part of the text, and the choices, by their place, with the keys that pick
them."""


@pytest.fixture(scope="module")
def profiles() -> Profiles:
    return load_profiles()


@pytest.mark.parametrize("attributes", [True, False], ids=["ansi", "plain"])
@pytest.mark.parametrize("name", SCREENS)
def test_choices_are_read_from_dialogs_and_offered_on_no_other_screen(
    profiles: Profiles, name: str, attributes: bool
) -> None:
    shown = read_dialog(profiles.named[name.partition("/")[0]], screen(name, attributes=attributes))
    if name not in READ | BY_ARROWS and (name not in BY_COLOUR or not attributes):
        assert shown is None
        return
    if name in BY_ARROWS:
        return  # with the keys of their choices, below
    topic, text, choices = READ[name] if name in READ else ("permission", *BY_COLOUR[name][:2])
    assert shown is not None
    assert shown.dialog.topic == topic
    assert text in shown.dialog.text
    assert " ".join(f"{choice.key}{'*' * choice.lasting}" for choice in shown.dialog.choices) == choices


@pytest.mark.parametrize("name", LATER | BY_ARROWS)
def test_every_dialog_that_was_captured_later_is_read_with_the_keys_of_its_choices(
    profiles: Profiles, name: str
) -> None:
    topic, text, choices = (LATER | BY_ARROWS)[name]
    seen = later_screen(name) if name in LATER else screen(name, attributes=False)
    shown = read_dialog(profiles.named[name.partition("/")[0]], seen)
    assert shown is not None
    assert shown.dialog.topic == topic
    assert text in shown.dialog.text
    read = (f"{choice.key}{'*' * choice.lasting}={','.join(choice.keys)}" for choice in shown.dialog.choices)
    assert " ".join(read) == choices


def later_screen(name: str) -> Screen:
    """A fixture of `hosts2`, whose facts name the cursor otherwise."""
    path = FIXTURES.with_name("hosts2") / name
    found = re.search(
        r"cursor=(\d+),(\d+) cursor_flag=(\d) .* title=(.*)", path.with_name(f"{path.name}.meta.txt").read_text("utf-8")
    )
    assert found is not None
    rows, _ = parsed(path.with_name(f"{path.name}.txt").read_text("utf-8").split("\n"))
    return Screen(
        rows, cursor_x=int(found[1]), cursor_y=int(found[2]), cursor_flag=found[3] == "1", title=found[4].strip()
    )


def test_where_enter_picks_the_mark_is_moved_from_where_it_stands(profiles: Profiles) -> None:
    seen, profile = screen("codex/dialog_hook_trust", attributes=True), profiles.named["codex"]
    rows = tuple(row.replace("› 1.", "  1.").replace("  2.", "› 2.") for row in seen.rows)
    first, moved = read_dialog(profile, seen), read_dialog(profile, replace(seen, rows=rows))
    assert first is not None
    assert moved is not None
    assert [choice.keys for choice in moved.dialog.choices] == [("Up", "Enter"), ("Enter",), ("Down", "Enter")]
    assert moved.dialog.id == first.dialog.id


@pytest.mark.parametrize(
    ("label", "lasts"),
    [
        ("Yes", False),
        ("Yes, proceed", False),
        ("Yes, just this once", False),
        ("Yes, and tell Claude what to do next", False),
        ("No, and tell Codex what to do differently", False),
        ("No, continue without running it", False),
        ("Yes, and don’t ask again for: touch", True),
        ("Yes, and allow Claude to edit its own settings for this session", True),
        ("Yes, allow reading from Downloads/ during this session", True),
        ("Yes, allow reading from /x from this project", True),
        ("Yes, and allow access to /x and touch commands", True),
        ("Yes, grant these permissions for this session", True),
        ("Yes, and allow this host in the future", True),
        ("No, and block this host in the future", True),
        ("Yes, and remember this directory", True),
    ],
)
def test_what_a_host_will_not_ask_again_is_said_to_last(profiles: Profiles, label: str, lasts: bool) -> None:
    for name in ("claude", "codex"):
        shape = profiles.named[name].choices
        assert shape is not None
        assert shape.choice("1", label).lasting is lasts


@pytest.mark.parametrize("name", BY_COLOUR)
def test_a_choice_that_is_told_by_its_colour_is_picked_by_moving_the_mark(profiles: Profiles, name: str) -> None:
    shown = read_dialog(profiles.named["opencode"], screen(name, attributes=True))
    assert shown is not None
    assert BY_COLOUR[name][2].items() <= {choice.key: " ".join(choice.keys) for choice in shown.dialog.choices}.items()
    assert "┃" not in shown.dialog.text
    assert "OpenCode" not in shown.dialog.text.replace("until OpenCode is restarted", "")


def test_the_same_question_has_one_id_wherever_the_mark_is_and_however_wide_the_pane(profiles: Profiles) -> None:
    names = [name for name in BY_COLOUR if "dialog_bash" in name]
    shown = [read_dialog(profiles.named["opencode"], screen(name, attributes=True)) for name in names]
    assert len({found.dialog.id for found in shown if found is not None}) == 1


@pytest.mark.parametrize("name", BY_COLOUR)
@pytest.mark.parametrize("change", ["nothing marked", "all marked", "the lower edge is gone", "a row below", "cut off"])
def test_a_box_that_is_not_whole_or_has_not_one_mark_is_not_offered(profiles: Profiles, name: str, change: str) -> None:
    seen, profile = screen(name, attributes=True), profiles.named["opencode"]
    shown, lines = read_dialog(profile, seen), list(seen.lines or ())
    assert shown is not None
    row = next(number for number, text in enumerate(seen.rows) if "select  enter" in text or "Reject" in text)
    edge = max(number for number, text in enumerate(seen.rows) if text.strip().startswith("┃"))
    match change:
        case "nothing marked":
            lines[row] = re.sub("\x1b\\[[0-9;]*m", "", lines[row])
        case "all marked":
            lines[row] = re.sub(
                "(Allow once|Allow always|Reject|Confirm|Cancel)", "\x1b[48;5;9m\\1\x1b[49m", lines[row]
            )
        case "the lower edge is gone":
            del lines[edge]
        case "a row below":
            lines.insert(edge, "  ┃  and more")
        case "cut off":
            lines[shown.first + 1 : shown.first + 1] = ["  ┃  more"] * 8
    rows, solid = parsed(lines)
    assert read_dialog(profile, replace(seen, rows=rows, solid=solid, lines=tuple(lines))) is None


@pytest.mark.parametrize("name", BY_ARROWS)
@pytest.mark.parametrize(
    ("pattern", "by"),
    [
        ("❯ ", "  "),  # nothing marked
        ("^( +)  (?=(Yes, |Use this and|No \\())", "\\1❯ "),  # two marked
        ("^( +)  (?=(Yes, |Use this and|No \\())", "\\1↓ "),  # more below than is shown
        ("^( +)❯ ", "\\1❯ 1. "),  # with a number
        ("^( +)❯ ", "\\1 ❯ "),  # not below one another
        (" Enter to confirm .*", ""),  # not whole
        ("^(?= *Enter to confirm)", "   Only once\\n"),  # a row between choices and hint
        ("^( +❯?  ?)(?=(No, exit|Use this MCP|No, disable|Yes$))", "\\1" + "long " * 23),  # may be two rows
    ],
)  # fmt: skip
def test_rows_without_numbers_are_choices_only_where_no_doubt_is_left(
    profiles: Profiles, name: str, pattern: str, by: str
) -> None:
    profile, seen = profiles.named["claude"], screen(name, attributes=False)
    low, high = seen.row_of("❯ ") - 3, "\n".join(seen.rows)
    assert read_dialog(profile, seen) is not None
    head, rows = high.split("\n")[:low], "\n".join(high.split("\n")[low:])
    changed = [*head, *re.sub(pattern, by, rows, flags=re.MULTILINE).split("\n")]
    if changed == list(seen.rows):
        changed = [row.replace("❯", " ") for row in changed]  # what would be marked a second time is marked
    assert read_dialog(profile, replace(seen, rows=tuple(changed))) is None


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
    marks, low = "❯›●", "\n".join(seen.rows[shown.first :])
    found = re.search(f"([{marks}]) ([1-9])[.]", low)
    assert found is not None
    mark, last = found[1], "1" if found[2] == "2" else "2"
    rows: Callable[[str], str] = {
        "a row below": lambda row: row,
        "a number missing": lambda row: row.replace(" 1. ", " 2. ", 1),
        "nothing marked": lambda row: row.translate(dict.fromkeys(map(ord, marks), " ")),
        "two marked": lambda row: row.replace(f"  {last}. ", f"{mark} {last}. "),
    }[change]
    changed = [rows(row) if at >= shown.first else row for at, row in enumerate(seen.rows)]
    if change == "a row below":
        changed.insert(shown.last + 1, "  something new")
    assert read_dialog(profile, replace(seen, rows=tuple(changed))) is None


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
        {"across": "(?P<labels>Yes)(?P<edge>$)"},
        {"row": None},
        {"row": None, "across": "(?P<labels>Yes)"},
    ],
)
def test_choices_that_are_not_described_whole_make_no_profile(wrong: dict[str, str | None]) -> None:
    whole = {
        "topics": ["trust"],
        "top": "^─",
        "row": "^(?P<mark>.)(?P<key>[1-9])(?P<label>.+)",
        "below": "x",
    }
    assert parse_profile("x", {"choices": whole}).choices is not None
    with pytest.raises((re.error, *NOT_YAML)):
        parse_profile("x", {"choices": {name: text for name, text in {**whole, **wrong}.items() if text is not None}})
