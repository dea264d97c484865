"""Every captured screen of the real hosts is taken for what it is (HOSTS.md §5)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from multi_agent_mcp.notify.hosts import Profiles, load_profiles
from multi_agent_mcp.notify.screens import Screen, classify, parsed, shape_of, tag_of

FIXTURES = Path(__file__).parents[1] / "fixtures" / "hosts"
SCREENS = sorted(path.relative_to(FIXTURES).as_posix()[: -len(".meta.txt")] for path in FIXTURES.glob("*/*.meta.txt"))
STATES = {
    "idle": "idle",
    "idle_fresh": "idle",
    "npm_shim_idle": "idle",
    "busy_thinking": "busy",
    "busy_tool": "busy",
    "busy_queued": "busy",
    "busy_queued_tab": "busy",
    "idle_draft": "draft",
    "idle_draft_multiline": "draft",
    "busy_draft": "draft",
    "slash_menu": "slash_menu",
    "bash_mode": "bash_mode",
    "copy_mode": "copy_mode",
    "ctrl_c_once": "exiting",
    "transcript_mode": "transcript",
    "picker_model": "picker",
    "exited_dead_pane": "pane_dead",
}
META = re.compile(
    r"cmd=(?P<command>\S+) .*mode=(?P<mode>\d) .*cur=(?P<x>\d+),(?P<y>\d+) cursor_flag=(?P<flag>\d) .*"
    r"dead=(?P<dead>\d) title=(?P<title>.*) path="
)


@pytest.fixture(scope="module")
def profiles() -> Profiles:
    return load_profiles()


def _facts(name: str) -> dict[str, str]:
    found = META.search((FIXTURES / f"{name}.meta.txt").read_text(encoding="utf-8"))
    assert found is not None
    return found.groupdict()


def screen(name: str, *, attributes: bool) -> Screen:
    """A fixture as the classifier sees it; without attributes it has only the plain text to go by."""
    facts = _facts(name)
    suffix = ".ansi.txt" if attributes else ".txt"
    rows, solid = parsed((FIXTURES / f"{name}{suffix}").read_text(encoding="utf-8").split("\n"))
    return Screen(
        rows=rows,
        solid=solid if attributes else None,
        cursor_x=int(facts["x"]),
        cursor_y=int(facts["y"]),
        cursor_flag=facts["flag"] == "1",
        title=facts["title"],
        dead=facts["dead"] == "1",
        in_mode=facts["mode"] == "1",
    )


@pytest.mark.parametrize("attributes", [True, False], ids=["ansi", "plain"])
@pytest.mark.parametrize("name", SCREENS)
def test_every_captured_screen_is_taken_for_what_it_is(profiles: Profiles, name: str, attributes: bool) -> None:
    host, _, state = name.partition("/")
    expected = STATES.get(state, "dialog")
    assert classify(profiles.named[host], screen(name, attributes=attributes)).state == expected


@pytest.mark.parametrize(
    "name", [name for name in SCREENS if STATES.get(name.partition("/")[2]) not in ("idle", "busy")]
)
@pytest.mark.parametrize("hidden", ["title", "mode"])
def test_nothing_else_is_idle_or_busy_even_without_its_title_or_its_mode(
    profiles: Profiles, name: str, hidden: str
) -> None:
    if hidden == "mode" and "copy_mode" in name:
        pytest.skip("copy mode shows nothing of its own: only tmux knows")
    seen = screen(name, attributes=True)
    seen = replace(seen, title="") if hidden == "title" else replace(seen, in_mode=False, dead=False)
    if not (hidden == "title" and seen.in_mode):
        assert classify(profiles.named[name.partition("/")[0]], seen).state not in ("idle", "busy")


@pytest.mark.parametrize("name", ["claude/idle_draft", "claude/idle_draft_multiline", "codex/idle_draft"])
def test_a_draft_with_the_cursor_at_its_beginning_is_a_draft(profiles: Profiles, name: str) -> None:
    seen = screen(name, attributes=True)
    row = next(number for number, text in enumerate(seen.rows) if re.match("^[❯›].(half|line)", text))
    at_home = replace(seen, cursor_x=2, cursor_y=row)
    assert classify(profiles.named[name.partition("/")[0]], at_home).state == "draft"


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_of_the_other_host_is_never_typed_into(profiles: Profiles, name: str) -> None:
    other = {"claude": "codex", "codex": "claude"}[name.partition("/")[0]]
    assert classify(profiles.named[other], screen(name, attributes=True)).state not in ("idle", "busy")


@pytest.mark.parametrize("name", SCREENS)
def test_the_foreground_command_names_the_host(profiles: Profiles, name: str) -> None:
    host, _, state = name.partition("/")
    found = profiles.candidates(None, _facts(name)["command"])
    if state == "npm_shim_idle":
        states = [classify(profile, screen(name, attributes=True)).state for profile in found if profile.composer]
        assert [profile.name for profile in found] == ["claude", "codex", "generic"]
        assert states == ["unknown", "idle"]
    elif state != "exited_dead_pane":
        assert [profile.name for profile in found] == [host]


def test_what_an_agent_writes_about_dialogs_is_no_dialog(profiles: Profiles) -> None:
    seen = screen("claude/idle", attributes=True)
    talk = (" Do you want to proceed?", " ❯ 1. Yes", " Esc to cancel")
    rows = (*talk, *seen.rows[3:])
    assert classify(profiles.named["claude"], replace(seen, rows=rows, solid=rows)).state == "idle"


def test_our_own_line_is_known_however_it_was_wrapped_and_only_alone() -> None:
    assert tag_of("[IPC] 新しいメッセージ: request\n  from admin #k3x9") == "k3x9"
    assert tag_of("[IPC] 新しいメッセージ: request from admin #k3x9 and more") is None
    assert tag_of("hi [IPC] 新しいメッセージ: request from admin #k3x9") is None
    assert tag_of("[IPC] New messages: 3") is None


def test_the_shape_of_a_screen_keeps_no_word_and_no_number() -> None:
    assert shape_of(["── Name 12 ──", "❯ ls -la 秘密", ""]) == "── xxxx 99 ──\n❯ xx -xx xx\n"


def test_a_profile_is_mended_by_a_file_and_a_broken_file_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "claude.yaml").write_text("submit: {idle: [C-m]}\n", encoding="utf-8")
    (tmp_path / "codex.yaml").write_text("gates: ['(?i)x']\n", encoding="utf-8")
    (tmp_path / "mine.yaml").write_text("commands: [mine]\ncomposer: {prompt: '^> ', above: '^$', below: '^$'}\n")
    profiles = load_profiles(tmp_path)
    assert profiles.named["claude"].submit == {"idle": ("C-m",)}
    assert profiles.named["claude"].composer is not None
    assert profiles.named["codex"] == load_profiles().named["codex"]
    assert profiles.candidates(None, "mine")[0].name == "mine"
    assert profiles.candidates("nobody", "claude") == (profiles.generic,)
