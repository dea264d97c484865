"""`search` as people call it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Ask, Run


def test_what_was_said_is_found_and_shown_with_its_file(ask: Ask, run: Run) -> None:
    ask("send", "admin", "please look at the ログイン画面 today", "--subject", "screens")
    (found,) = ask("search", "ログイン", "from:owner", "to:admin")["results"]
    assert (found["kind"], found["title"], found["sender_id"]) == ("message", "screens", "owner")
    said = run("search", "ログイン").stdout
    assert "message  owner → admin  screens" in said
    assert found["path"] in said
    assert run("search", "ログアウト").stdout == "nothing found\n"


def test_more_than_asked_for_is_named(ask: Ask, run: Run) -> None:
    for number in range(3):
        ask("send", "admin", f"the same {number}")
    assert ask("search", "the same", "--limit", "2")["has_more"] is True
    assert "--limit" in run("search", "the same", "--limit", "2").stdout
    assert ask("search", "the same", "--limit", "3")["has_more"] is False


@pytest.mark.parametrize(("arguments", "named"), [((" ",), "from:"), (("x", "after:soon"), "after:")])
def test_what_cannot_be_searched_for_is_refused_in_a_sentence(
    ask: Ask, run: Run, arguments: tuple[str, ...], named: str
) -> None:
    assert ask("unread")["success"] is True
    result = run("search", *arguments)
    assert (result.exit_code, "invalid_arguments" in result.stderr, named in result.stderr) == (1, True, True)


def test_where_no_index_can_be_made_the_files_are_searched(ask: Ask) -> None:
    ids = [ask("send", "admin", f"words {number}")["message_id"] for number in range(3)]
    with_index = ask("search", "words", "--limit", "2")
    ask("search", "x", "--rebuild")
    for file in Path(".multi-agent-mcp/demo/.search").iterdir():
        file.unlink()
    Path(".multi-agent-mcp/demo/.search").rmdir()
    Path(".multi-agent-mcp/demo/.search").write_text("in the way")
    assert ask("search", "words", "--limit", "2") == with_index
    assert [found["id"] for found in with_index["results"]] == ids[:0:-1]
    assert ask("search", "words", "after:2999-01-01")["results"] == []
