"""Settings: the environment and session.yaml, read once and complained about in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from multi_agent_mcp.config import Environment, TmuxPane, find_root, find_session, read_environment, session_names
from multi_agent_mcp.errors import InvalidArguments, NoSuchSession
from multi_agent_mcp.settings import Limits, parse_limits, read_settings, readable_settings
from multi_agent_mcp.texts import catalogue


def settings_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "demo" / "session.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_an_empty_environment_says_nothing() -> None:
    assert read_environment({}) == Environment()


def test_the_environment_names_who_and_where() -> None:
    prefix = "MULTI_AGENT_MCP_"
    given = {prefix + name: name.lower() for name in ("ROOT", "SESSION", "AGENT", "PURPOSE")}
    assert read_environment(given) == Environment("root", "session", "agent", "purpose")


@pytest.mark.parametrize(
    ("given", "pane"),
    [
        ({"TMUX": "/tmp/tmux-0/default,123,0", "TMUX_PANE": "%3"}, TmuxPane("/tmp/tmux-0/default", "%3")),  # noqa: S108
        ({"MULTI_AGENT_MCP_SOCKET": "/s", "MULTI_AGENT_MCP_PANE": "%7"}, TmuxPane("/s", "%7")),
        ({"TMUX": "/a,1,0", "TMUX_PANE": "%1", "MULTI_AGENT_MCP_PANE": "%2"}, TmuxPane("/a", "%2")),
        ({"TMUX": "/a,1,0"}, None),
        ({"TMUX_PANE": "%1"}, None),
        ({"TMUX": "/a,1,0", "TMUX_PANE": "3"}, None),
    ],
)
def test_the_pane_is_known_when_socket_and_pane_are(given: dict[str, str], pane: TmuxPane | None) -> None:
    assert read_environment(given).pane == pane


def test_the_nearest_root_above_is_taken(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert find_root(None, inner) == inner / ".multi-agent-mcp"
    (tmp_path / ".multi-agent-mcp").mkdir()
    assert find_root(None, inner) == tmp_path / ".multi-agent-mcp"
    assert find_root("/elsewhere", inner) == Path("/elsewhere")


def test_the_only_session_need_not_be_named(tmp_path: Path) -> None:
    with pytest.raises(NoSuchSession):
        find_session(None, tmp_path / "gone")
    settings_file(tmp_path, "")
    (tmp_path / "no-session").mkdir()
    assert session_names(tmp_path) == ["demo"]
    assert find_session(None, tmp_path) == "demo"
    assert find_session("other", tmp_path) == "other"
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "session.yaml").touch()
    with pytest.raises(NoSuchSession) as refusal:
        find_session(None, tmp_path)
    assert refusal.value.values["names"] == "demo, second"


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    settings = read_settings(settings_file(tmp_path, ""))
    assert (settings.language, settings.limits) == ("ja", Limits())


def test_language_and_limits_are_read_and_unknown_keys_left_alone(tmp_path: Path) -> None:
    text = "language: en\nlimits: {answer_characters: 5000, doorbell_pause_seconds: 1, new: 3}\ncolour: blue\n"
    settings = read_settings(settings_file(tmp_path, text))
    assert (settings.language, settings.limits.answer_characters) == ("en", 5000)
    assert settings.limits.doorbell_pause_seconds == 1.0
    assert read_settings(settings_file(tmp_path, text), "ja").language == "ja"


@pytest.mark.parametrize(
    "text",
    [
        "language: fr",
        "language: [ja]",
        "- a",
        "limits: 5",
        "limits: {content_bytes: 0}",
        "limits: {content_bytes: -1}",
        "limits: {content_bytes: many}",
        "limits: {content_bytes: true}",
        pytest.param("limits: {content_bytes: .inf}"),
        pytest.param("limits: {content_bytes: .nan}"),
        "limits: {content_bytes: 0.5}",
        pytest.param(f"limits: {{doorbell_pause_seconds: {'1' * 400}}}", id="more seconds than a float holds"),
        "limits: {doorbell_pause_seconds: 1.0e+300}",
        "limits: {stuck_minutes: 0}",
        "limits: {stuck_minutes: soon}",
        "language: !!bool x",
        '!!int ""',
        "!!timestamp x",
        "limits: [",
        "\x00",
    ],
)
def test_settings_that_make_no_sense_are_one_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidArguments):
        read_settings(settings_file(tmp_path, text))


def test_a_session_without_settings_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(NoSuchSession):
        read_settings(tmp_path / "demo" / "session.yaml")


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("", None),
        ("notify_command:", None),
        ('notify_command: ["ntfy", "publish", "{line}"]', ("ntfy", "publish", "{line}")),
        ("notify_command: [/opt/my push, '-x']", ("/opt/my push", "-x")),
        ("notify_command: ntfy publish", ()),
        ("notify_command: []", ()),
        ("notify_command: {a: b}", ()),
        ("notify_command: [curl, 5]", ()),
        ("notify_command: [[curl]]", ()),
        ("notify_command: ['', x]", ()),
        ("notify_command: [bin/push]", ()),
        ("notify_command: ['{line}']", ()),
        ('notify_command: [push, "a\\0b"]', ()),
    ],
)
def test_a_notify_command_that_cannot_be_run_stops_no_session(
    tmp_path: Path, text: str, command: tuple[str, ...] | None
) -> None:
    settings = read_settings(settings_file(tmp_path, f"language: en\n{text}\n"))
    assert (settings.language, settings.notify_command) == ("en", command)


@pytest.mark.parametrize("console", ["{answers: false}", "{Answer: false}", "{answer: no, x: 1}", "off", "{answer: 0}"])
def test_a_typo_does_not_leave_the_console_s_answers_on(tmp_path: Path, console: str) -> None:
    path = tmp_path / "session.yaml"
    path.write_text(f"console: {console}\n", encoding="utf-8")
    with pytest.raises(InvalidArguments, match="console"):
        read_settings(path)
    path.write_text("console: {answer: false}\n", encoding="utf-8")
    assert read_settings(path).console_answers is False


def test_a_key_of_session_yaml_that_is_given_twice_is_refused_with_its_lines(tmp_path: Path) -> None:
    (tmp_path / "session.yaml").write_text("language: en\nlimits: {}\nlanguage: ja\n")
    with pytest.raises(InvalidArguments) as refused:
        read_settings(tmp_path / "session.yaml")
    assert "language is given twice (lines 1 and 3)" in catalogue("en").sentence(refused.value)


@pytest.mark.parametrize(
    ("word", "meant"), [("yes", True), ("on", True), ("No", False), ("OFF", False), ("true", True)]
)
def test_switches_may_be_written_with_the_words_of_older_yaml(tmp_path: Path, word: str, meant: bool) -> None:
    switches = f"resume: {word}\nguard: {word}\nusage: {word}\nconsole: {{answer: {word}}}\n"
    (tmp_path / "session.yaml").write_text(switches)
    found = read_settings(tmp_path / "session.yaml")
    assert [found.resume, found.of("guard"), found.of("usage"), found.console_answers] == [meant] * 4


@pytest.mark.parametrize("bad", ["protected: {a: b}", "limits: 3", "language: xx"])
def test_of_a_file_with_a_bad_key_every_other_key_counts(tmp_path: Path, bad: str) -> None:
    said = {
        "language": "language: en",
        "limits": "limits: {stuck_minutes: 3}",
        "phone": "notify_command: [ring, '{line}']",
    }
    lines = [line for line in said.values() if not line.startswith(bad.split(":")[0])]
    (tmp_path / "session.yaml").write_text("\n".join([bad, *lines]), encoding="utf-8")
    found = readable_settings(tmp_path / "session.yaml")
    assert found.language == ("ja" if "language" in bad else "en")
    assert found.notify_command == ("ring", "{line}")
    assert found.limits.stuck_minutes == (30 if "limits" in bad else 3)


@pytest.mark.parametrize(
    ("key", "said"),
    [("return_minutes", "must be a number above 0"), ("content_bytes", "must be a number from 1")],
)
def test_a_limit_that_is_none_is_refused_with_the_numbers_that_are_taken(key: str, said: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        parse_limits({key: 0})
    assert said in catalogue("en").sentence(refused.value)
