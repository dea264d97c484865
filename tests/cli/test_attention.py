"""`attention` as people call it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Ask, Run


def test_what_waits_is_listed_with_what_helps_and_gone_once_it_is_done(ask: Ask, run: Run) -> None:
    assert run("attention").stdout == "nothing waits for you\n"
    ask("send", "owner", "which colour?", "--as", "admin", "--subject", "colours")
    (item,) = ask("attention")["items"]
    assert (item["kind"], item["agent_id"], item["text"]) == ("mail", "admin", "colours")
    assert item["command"] == "multi-agent-mcp read"
    assert "colours" in run("attention").stdout
    ask("read")
    assert ask("attention")["items"] == []


def test_a_session_yaml_that_cannot_be_read_is_listed_beside_what_waits(run: Run, session: Path) -> None:
    run("send", "owner", "which colour?", "--as", "admin", "--subject", "colours")
    with (session / "session.yaml").open("a") as file:
        file.write("protected: {a: b}\n")
    said = run("attention").stdout
    assert "colours" in said
    assert "protected" in said
    assert "protected" in run("doctor").stdout
    assert run("task", "list").exit_code == 1


@pytest.mark.parametrize(
    ("written", "locale", "spoken"),
    [
        ("language: [\n", "C.UTF-8", "en"),
        ("language: [\n", "ja_JP.UTF-8", "ja"),
        ("language: klingon\n", "C.UTF-8", "en"),
        ("language: ja\nprotected: {a: b}\n", "C.UTF-8", "ja"),
        ("language: en\nprotected: {a: b}\n", "ja_JP.UTF-8", "en"),
        ("protected: {a: b}\n", "C.UTF-8", "ja"),
    ],
    ids=lambda value: value.strip().replace("\n", ", "),
)
def test_every_command_speaks_one_language_where_session_yaml_cannot_be_read(
    run: Run, session: Path, monkeypatch: pytest.MonkeyPatch, written: str, locale: str, spoken: str
) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    (session / "session.yaml").write_text(written)
    for command in (["doctor"], ["attention"], ["task", "list"], ["up"], ["watch", "--once"], ["answer"]):
        said = run(*command)
        words = said.stdout + said.stderr
        assert (re.search("[ぁ-ん]", words) is not None) == (spoken == "ja"), words
