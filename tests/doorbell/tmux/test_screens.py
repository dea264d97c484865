"""Every captured screen of the real hosts is taken for what it is (docs/hosts.md, Distinguishing the states)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.text import columns
from multi_agent_mcp.doorbell.tmux.learning import shape_of
from multi_agent_mcp.doorbell.tmux.profiles import Profiles, load_profiles
from multi_agent_mcp.doorbell.tmux.screens import Screen, classify, dialog_topic, parsed, tag_of
from multi_agent_mcp.hosts import hosts
from multi_agent_mcp.system.process import Foreground, Process

FIXTURES = Path(__file__).parents[2] / "fixtures" / "hosts"
HOSTS = {path.name for path in FIXTURES.iterdir()}
SCREENS = sorted(path.relative_to(FIXTURES).as_posix()[: -len(".meta.txt")] for path in FIXTURES.glob("*/*.meta.txt"))
LATER = FIXTURES.with_name("hosts2")
"""Captured later, as plain text: what hosts show at a limit, an error, a resume, and some of their dialogs."""
IDLE_LATER = {
    "claude": (
        "autocompacted",
        "compacted",
        "limit_apikey_429_retry",
        "limit_apikey_429_retry_after",
        "limit_credit_400",
        "limit_network",
        "limit_overloaded_529",
        "limit_server_500",
        "limit_subscription_continued_det",
        "resumed",
    ),
    "codex": ("autocompacted", "compacted", "limit_network", "limit_overloaded_503", "limit_rate_limit_429", "resumed"),
    "copilot": ("compacted", "limit_rate_429", "resume_open_elsewhere", "resumed"),
    "gemini": ("compressed", "resumed"),
    "opencode": ("resumed",),
}
STATES_LATER = {f"{host}/screen_{name}": "idle" for host, names in IDLE_LATER.items() for name in names} | {
    "claude/screen_limit_auth_401": "offline",
    "claude/screen_limit_subscription_5h": "limited",
    "claude/screen_limit_subscription_typed": "limited",
    "claude/screen_permission_hook_slow": "dialog",
    "claude/screen_plugin_first_call": "dialog",
    "claude/screen_question": "dialog",
    "claude/screen_resume_unknown_nonsense": "picker",
    "codex/screen_hooks_need_review": "dialog",
    "codex/screen_limit_usage_limit": "dialog",
    "codex/screen_permission_none": "dialog",
    "codex/screen_plugin_first_call": "dialog",
    "codex/screen_resume_open_elsewhere": "dialog",
    "codex/screen_resume_other_cwd": "dialog",
    "copilot/screen_limit_overloaded_529": "busy",
    "copilot/screen_permission": "dialog",
    "gemini/screen_limit_overloaded_503": "busy",
    "gemini/screen_limit_quota_day": "dialog",
    "gemini/screen_limit_rate_minute": "busy",
    "gemini/screen_permission": "dialog",
    "opencode/screen_limit_overloaded_529": "offline",
    "opencode/screen_limit_rate_429": "busy",
}
STATES = {
    "idle": "idle",
    "idle_fresh": "idle",
    "idle_sidebar": "idle",
    "idle_blank_frame": "idle",
    "idle_auto_mode": "idle",
    "offline": "offline",
    "offline_ended": "idle",
    "npm_shim_idle": "idle",
    "busy_thinking": "busy",
    "busy_tool": "busy",
    "busy_thinking_blank_frame": "busy",
    "busy_queued": "busy",
    "busy_queued_tab": "busy",
    "idle_draft": "draft",
    "idle_draft_multiline": "draft",
    "idle_draft_home": "draft",
    "idle_draft_menu": "draft",
    "idle_draft_sidebar": "draft",
    "busy_draft": "draft",
    "slash_menu": "slash_menu",
    "bash_mode": "bash_mode",
    "bash_mode_session": "bash_mode",
    "copy_mode": "copy_mode",
    "ctrl_c_once": "exiting",
    "login": "login",
    "transcript_mode": "transcript",
    "picker_model": "picker",
    "picker_provider": "picker",
    "picker_commands": "picker",
    "exited_dead_pane": "pane_dead",
    "dialog_login": "login",
    "login_method": "login",
    "login_status": "login",
}
ALIKE = {"claude": "copilot"}
"""Host → the host whose screens look the same; only the program distinguishes them."""
OPENCODE = ("bash", "bash_reject", "bash_sidebar", "bash_narrow", "bash_cut", "always")
META = re.compile(
    r"cmd=(?P<command>\S+) .*mode=(?P<mode>\d) .*cur(?:sor)?=(?P<x>\d+),(?P<y>\d+) cursor_flag=(?P<flag>\d) .*"
    r"dead=(?P<dead>\d) (?:status= )?title=(?P<title>.*?)(?: path=|$)"
)


def test_each_host_has_screens() -> None:
    assert hosts().keys() == HOSTS


@pytest.fixture(scope="module")
def profiles() -> Profiles:
    return load_profiles()


def process(*arguments: str) -> Process:
    """A process that was started with these arguments and has not renamed itself."""
    return Process(1, "1", Path(arguments[0].lstrip("-")).name, arguments)


def facts_of(path: Path) -> dict[str, str]:
    """What tmux said of a captured pane."""
    found = META.search(path.with_name(f"{path.name}.meta.txt").read_text(encoding="utf-8").rstrip("\n"))
    assert found is not None
    return found.groupdict()


def screen(name: str, *, attributes: bool) -> Screen:
    """A fixture as the classifier sees it; without attributes it has only the plain text to go by."""
    path = (LATER if name in STATES_LATER else FIXTURES) / name
    facts = facts_of(path)
    suffix = ".ansi.txt" if attributes else ".txt"
    lines = path.with_name(f"{path.name}{suffix}").read_text(encoding="utf-8").split("\n")
    rows, solid = parsed(lines)
    return Screen(
        rows=rows,
        solid=solid if attributes else None,
        lines=tuple(lines) if attributes else None,
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


def test_every_screen_that_was_captured_later_is_taken_for_what_it_is(profiles: Profiles) -> None:
    captured = {path.relative_to(LATER).as_posix()[: -len(".meta.txt")] for path in LATER.glob("*/*.meta.txt")}
    profile = {name: profiles.named[name.partition("/")[0]] for name in captured}
    assert {name: classify(profile[name], screen(name, attributes=False)).state for name in captured} == STATES_LATER


def test_words_typed_like_a_placeholder_are_a_draft(profiles: Profiles) -> None:
    seen = screen("claude/screen_limit_server_500", attributes=False)
    assert classify(profiles.named["claude"], replace(seen, solid=seen.rows)).state == "draft"


TOPICS = {
    "claude/dialog_trust": "trust",
    "claude/dialog_login": "login",
    "claude/dialog_bash": "permission",
    "claude/dialog_mcp": "permission",
    "claude/dialog_write": "permission",
    "claude/dialog_question": "question",
    "claude/dialog_question_new": "question",
    "claude/dialog_write_tip": "permission",
    **dict.fromkeys(
        ("claude/dialog_trust_arrows", "claude/dialog_trust_arrows_yes", "claude/dialog_trust_arrows_small"), "trust"
    ),
    **dict.fromkeys((f"claude/dialog_{name}" for name in ("server", "imports", "bypass", "api_key")), "confirm"),
    "codex/dialog_daemon": "confirm",
    "codex/dialog_trust": "trust",
    "codex/dialog_hook_trust": "hooks",
    "codex/dialog_login": "login",
    "codex/dialog_exec": "permission",
    "codex/dialog_mcp": "permission",
    "gemini/dialog_trust": "trust",
    "gemini/dialog_auth": "login",
    "gemini/dialog_bash": "permission",
    **dict.fromkeys((f"opencode/dialog_{name}" for name in OPENCODE), "permission"),
    "copilot/dialog_trust": "trust",
    "copilot/dialog_bash": "permission",
}


@pytest.mark.parametrize("name", [name for name in SCREENS if "/dialog_" in name])
def test_a_dialog_is_named_by_what_it_asks_about(profiles: Profiles, name: str) -> None:
    host = name.partition("/")[0]
    assert dialog_topic(profiles.named[host], screen(name, attributes=True)) == TOPICS.get(name)


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


@pytest.mark.parametrize("blank", ["\u3000", "\u00a0\u00a0", "\u2003"])
@pytest.mark.parametrize("host", sorted(HOSTS - {"codex"}))
def test_a_blank_that_no_host_writes_is_a_draft_also_with_the_cursor_before_it(
    profiles: Profiles, host: str, blank: str
) -> None:
    seen = screen(f"{host}/idle", attributes=True)
    shown = classify(profiles.named[host], seen)
    assert shown.state == "idle"
    row = seen.rows[seen.cursor_y][: seen.cursor_x].ljust(seen.cursor_x)
    rows = (*seen.rows[: seen.cursor_y], row + blank, *seen.rows[seen.cursor_y + 1 :])
    assert classify(profiles.named[host], replace(seen, rows=rows, solid=rows)).state == "draft"


def test_a_blank_behind_our_own_line_makes_it_a_draft() -> None:
    assert tag_of("[IPC] 新しいメッセージ: request from admin #k3x9\u3000") is None


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_of_another_host_is_never_typed_into(profiles: Profiles, name: str) -> None:
    host = name.partition("/")[0]
    for other in HOSTS - {host}:
        if ALIKE.get(other) != host:
            assert classify(profiles.named[other], screen(name, attributes=True)).state not in ("idle", "busy")


@pytest.mark.parametrize(
    ("footer", "state"),
    [
        (" ◎ Working · 21 B esc esc edit prompt          gpt-4.1", "busy"),
        (" ◎ Working                                     gpt-4.1", "busy"),
        (" ◎ Cancelling                                  gpt-4.1", "unknown"),
        (" Plan · Manual Approval · / commands           gpt-4.1", "idle"),
    ],
)
def test_copilots_footer_decides_and_one_that_nobody_knows_is_not_typed_into(
    profiles: Profiles, footer: str, state: str
) -> None:
    seen = screen("copilot/idle", attributes=True)
    rows = tuple(footer if "Manual Approval" in text else text for text in seen.rows)
    assert classify(profiles.named["copilot"], replace(seen, rows=rows, solid=rows)).state == state


def test_a_line_of_ours_beside_a_sidebar_is_ours_alone(profiles: Profiles) -> None:
    seen = screen("opencode/idle_draft_sidebar", attributes=True)
    row = "  ┃  [IPC] 新しいメッセージ: request from admin #k3x9"
    beside = f"{row}{' ' * (120 - columns(row))}Getting started"
    rows = tuple(beside if "日本語" in text else text for text in seen.rows)
    ours = replace(seen, rows=rows, solid=rows, cursor_x=columns(row))
    assert classify(profiles.named["opencode"], ours).tag == "k3x9"
    assert classify(profiles.named["opencode"], ours).state == "our_line"
    assert classify(profiles.named["opencode"], replace(ours, cursor_x=ours.cursor_x + 1)).state == "draft"


def test_a_host_that_takes_no_key_while_it_works_needs_one_at_rest(tmp_path: Path) -> None:
    (tmp_path / "claude.yaml").write_text("submit: {idle: [], busy: [Enter]}\n", encoding="utf-8")
    profiles = load_profiles(tmp_path)
    assert profiles.named["claude"] == load_profiles().named["claude"]
    takes = {name for name in HOSTS if profiles.named[name].takes_lines_while_busy}
    assert takes == {"claude", "codex"}


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
    leader = process("mine")
    found = profiles.describing(Agent(id="x"), Foreground(leader, (leader,)))
    assert found is not None
    assert found.name == "mine"


@pytest.mark.parametrize("host", [None, "gemini", "aider", "goose", "generic", "shell", 5, ["claude"]])
def test_a_host_without_a_profile_is_described_by_none(profiles: Profiles, host: Any) -> None:
    for command, script in {"node": "qwen", "MainThread": "aider", "goose": ""}.items():
        leader = process(command, *([f"/usr/bin/{script}"] if script else []))
        assert profiles.describing(Agent(id="x", host=host), Foreground(leader, (leader,))) is None


def test_what_is_never_typed_into_can_be_added_to_and_not_taken_away(tmp_path: Path) -> None:
    (tmp_path / "shell.yaml").write_text("never: false\ncommands: []\n", encoding="utf-8")
    (tmp_path / "mine.yaml").write_text("never: true\ncommands: [mine]\n", encoding="utf-8")
    profiles = load_profiles(tmp_path)
    assert {name for name in ("bash", "mine", "tee") if profiles.forbids(process(name), [])} == {"bash", "mine"}


@pytest.mark.parametrize(
    ("arguments", "forbidden"),
    [
        (["bash"], True),
        (["-zsh"], True),
        (["bash", "--norc", "-i"], True),
        (["bash", "--rcfile", "x"], True),
        (["bash", "-i", "agent.sh"], True),
        (["sh", "-s"], True),
        (["sh", "-"], True),
        (["bash", "agent.sh"], False),
        (["bash", "-lc", "agent"], False),
        (["sh", "-e", "agent.sh"], False),
        (["busybox", "sh"], True),
        (["python3.11"], True),
        (["python3", "-q"], True),
        (["python3", "-i", "agent.py"], True),
        (["python3", "-W", "ignore"], True),
        (["python3", "-Wignore", "agent.py"], False),
        (["python3", "-u", "script.py"], False),
        (["python3", "-m", "agent"], False),
        (["python3", "-m", "IPython"], True),
        (["python3", "/usr/bin/ipython3"], True),
        (["node"], True),
        (["node", "--no-warnings", "agent.js"], False),
        (["vim.basic", "agent.py"], True),
        (["less"], True),
        (["tee", "vi"], False),
    ],
)
def test_a_shell_or_an_interpreter_is_a_prompt_unless_it_was_given_something_to_run(
    profiles: Profiles, arguments: list[str], forbidden: bool
) -> None:
    plain = process(*arguments)
    renamed = replace(plain, arguments=("agent", *plain.arguments[1:]))
    assert [profiles.forbids(seen, [seen.identity]) is not None for seen in (plain, renamed)] == [forbidden, forbidden]


def test_what_hands_keys_on_to_elsewhere_is_typed_into_only_if_it_is_the_registered_program(profiles: Profiles) -> None:
    for name in ("ssh", "sudo", "su", "docker", "kubectl", "script", "dtach"):
        seen = process(name, "agent")
        assert profiles.forbids(seen, []) is not None
        assert profiles.forbids(seen, [seen.identity]) is None


def test_a_program_that_has_given_itself_a_title_is_no_prompt(profiles: Profiles) -> None:
    titled = Process(1, "1", "node", ("claude",), renamed=True)
    assert profiles.forbids(titled, []) is None
    assert profiles.forbids(replace(titled, renamed=False), []) is not None
