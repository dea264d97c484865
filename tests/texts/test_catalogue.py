"""The catalogue: the documented words exactly, and every sentence fillable."""

from __future__ import annotations

import re
import string
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from multi_agent_mcp import texts
from multi_agent_mcp.domain.delivery import DeliveryState
from multi_agent_mcp.domain.task import TASK_STATUSES
from multi_agent_mcp.doorbell.tmux.profiles import load_profiles
from multi_agent_mcp.doorbell.tmux.screens import BUSY, DIALOG, DRAFT, IDLE, OURS, UNKNOWN
from multi_agent_mcp.errors import (
    AgentNotFound,
    InvalidArguments,
    InvalidId,
    NoSuchSession,
    PollingBlocked,
    Refusal,
    StorageError,
)
from multi_agent_mcp.features.ours import OURS as FEATURES
from multi_agent_mcp.hosts import hosts
from multi_agent_mcp.texts import CONSOLE, LANGUAGES, PEOPLE, catalogue

SEEDS = {
    "notification.none": "通知はありません",
    "notification.some": "【重要】通知があります。get_notifications を呼び出して確認してください。",
    "notification.interrupt": "通知があります。\n\n1. get_notifications() を呼び出して詳細を確認してください\n"
    "2. 通知の指示に従ってください",
    "doorbell.one": "[IPC] 新しいメッセージ: {message_type} from {sender_id}",
    "doorbell.title": "Multi-Agent MCP",
}


OF_AGENTS = re.compile(
    r"state\.agent\.|agents\.state\.|watch\.(interrupted|paused|limited|stuck|away|waiting|alive|off)\b"
)


@pytest.mark.parametrize("language", LANGUAGES)
def test_states_of_agents_and_of_tasks_have_their_own_words(language: str) -> None:
    known = catalogue(language, PEOPLE) | catalogue(language, CONSOLE)
    of_tasks = {known(f"{kind}.{status}").lower() for kind in ("state", "status") for status in TASK_STATUSES}
    of_agents = {known(key).lower() for key in known.keys() if OF_AGENTS.match(key)}  # noqa: SIM118
    assert (len(of_agents) > 10, of_agents & of_tasks) == (True, set())


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_code_that_doctor_and_attention_show_has_words(language: str) -> None:
    views = [view.state for profile in load_profiles().named.values() for view in profile.views]
    codes = {
        "checked": {name for feature in FEATURES for name in (*feature.checks, *feature.verifications)},
        "attention.kind": {name for feature in FEATURES for name in feature.attention},
        "channel": {name for host in hosts().values() for name in host.channels},
        "screen": {IDLE, BUSY, DRAFT, OURS, DIALOG, UNKNOWN, *views},
    }
    known = catalogue(language) | catalogue(language, PEOPLE)
    assert {f"{kind}.{code}" for kind in codes for code in codes[kind]} - known.keys() == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_whoever_sends_is_told_of_each_state_also_without_a_reason(language: str) -> None:
    known = catalogue(language, PEOPLE)
    assert {f"sent.{state}" for state in get_args(DeliveryState)} - known.keys() == set()


@pytest.mark.parametrize("key", SEEDS)
def test_japanese_texts_are_the_documented_words(key: str) -> None:
    assert catalogue("ja")(key) == SEEDS[key]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_is_text_and_can_be_filled(language: str) -> None:
    words = catalogue(language)
    for key in sorted(words.keys()):
        names = {name for _, name, _, _ in string.Formatter().parse(words(key)) if name}
        filled = words(key, **dict.fromkeys(names, "{hostile}")) if names else words(key)
        assert filled.strip()
        assert filled.count("{hostile}") >= len(names)


@pytest.mark.parametrize("language", ["ja", "en"])
def test_no_text_names_a_program_that_only_a_clone_has(language: str) -> None:
    words = catalogue(language, PEOPLE)
    assert [key for key in words.keys() if "scripts/" in words(key)] == []  # noqa: SIM118 - a catalogue is no mapping


@pytest.mark.parametrize("file", sorted(Path(texts.__file__).parent.glob("*.yaml")), ids=lambda file: file.name)
def test_no_key_is_in_a_file_twice(file: Path) -> None:
    keys = re.findall(r"^([\w.]+):", file.read_text(encoding="utf-8"), re.MULTILINE)
    assert [key for key, count in Counter(keys).items() if count > 1] == []


def test_values_with_braces_are_not_filled_again() -> None:
    assert catalogue("en")("doorbell.one", message_type="{x}", sender_id="{0}") == "[IPC] New message: {x} from {0}"


def test_words_follow_the_number_that_they_are_about() -> None:
    said = [catalogue("en", "people")("task.lacks", count=count) for count in (1, 2)]
    assert said == ["1 file was not committed, so not delivered", "2 files were not committed, so not delivered"]


@pytest.mark.parametrize("part", [None, "people", "console"])
def test_nothing_is_said_of_one_in_the_plural(part: str | None) -> None:
    words, numbers = catalogue("en", part), ("n", "count", "ahead", "dirty", "added")
    plural = {}
    for key in words.keys() - {"demo.conversations", "demo.messages", "demo.morning.introduced"}:  # of what is not one
        names = re.findall(r"\{(\w+)[:}]", words(key))
        said = words(key, **{name: 1 if name in numbers else "x" for name in names})
        if re.search(r"\b1 (?!is\b|was\b|ms\b|has\b|asks\b)[a-z]+s\b", said):
            plural[key] = said
    assert plural == {}


def test_an_unknown_language_falls_back_to_japanese() -> None:
    assert catalogue("fr").language == "ja"
    assert catalogue("en").language == "en"


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (AgentNotFound(agent_id="bob"), "bob"),
        (InvalidId(value="'../x'"), "../x"),
        (InvalidArguments(reason="because"), "because"),
        (InvalidArguments("bad_text", name="subject"), "subject"),
        (StorageError(path="x.md", reason="No space left on device"), "No space left on device"),
        (NoSuchSession(session="demo"), "demo"),
        (PollingBlocked(), "[IPC]"),
    ],
)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_refusal_becomes_one_sentence_that_names_what_was_wrong(refusal: Refusal, words: str, language: str) -> None:
    sentence = catalogue(language).sentence(refusal)
    assert words in sentence
    assert "\n" not in sentence


def test_a_refusal_in_a_log_is_its_code_with_its_facts() -> None:
    assert str(AgentNotFound(agent_id="bob")) == "agent_not_found: agent_not_found(agent_id='bob')"
    assert NoSuchSession(session="x").key == "error.no_such_session"
