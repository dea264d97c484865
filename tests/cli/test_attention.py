"""`attention` as people call it."""

from __future__ import annotations

from pathlib import Path

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
