"""`questions`, and `answer` with a question, as people call them (docs/protocol.md, Questions)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.question import Question
from multi_agent_mcp.services.questions import Asking
from tests.cli.conftest import Ask, Run


def asked(session: Path, asker: str = "admin", words: str = "Ship it?", **fields: Any) -> Question:
    services = open_session(session.parent, session.name)
    return services.questions.ask(services.agents.get(asker), Asking(question=words, **fields), None)


def ids(answer: dict[str, Any]) -> list[str]:
    return [question["question_id"] for question in answer["questions"]]


def test_questions_are_listed_shown_and_answered_by_number_with_a_note(session: Path, ask: Ask, run: Run) -> None:
    question, other = asked(session, choices=("no", "[red]yes[/]"), default="no"), asked(session, "worker-a")
    assert ids(ask("questions", "--to", "me", "--open")) == [question.id]
    assert ids(ask("questions", "--from", "worker-a")) == [other.id]
    listed = ask("answer")
    assert (ids(listed), listed["dialogs"]) == ([question.id], [])
    (item,) = ask("attention")["items"]
    assert (item["kind"], item["id"], item["agent_id"]) == ("question", question.id, "admin")
    assert item["question"]["choices"] == ["no", "[red]yes[/]"]
    assert item["command"] == f"multi-agent-mcp answer {question.id}"
    assert "2 [red]yes[/]" in run("watch", "--once").stdout
    shown = run("answer", question.id).stdout
    assert "Ship it?" in shown
    assert "   2  [red]yes[/]\n" in shown
    done = ask("answer", question.id, "2", "--note", "not on a Friday")
    assert [done[name] for name in ("status", "answer", "answered_by", "note")] == [
        *("answered", "[red]yes[/]", "owner"),
        "not on a Friday",
    ]
    refused = run("answer", question.id, "no")
    assert (refused.exit_code, refused.stderr.split(": ")[1]) == (1, "question_closed")
    assert [item["status"] for item in ask("questions", "--from", "admin")["questions"]] == ["answered"]
    assert ask("attention")["items"] == ask("answer")["questions"] == []


def test_a_hostile_question_commands_no_terminal_and_options_of_the_other_kind_are_refused(
    session: Path, ask: Ask, run: Run
) -> None:
    question = asked(session, words="\x1b[2J\u202edone\x07 <script>")
    for line in (run("questions").stdout, run("answer").stdout, run("answer", question.id).stdout):
        assert not {"\x1b", "\u202e", "\x07"} & set(line)
        assert "<script>" in line
    for wrong in (
        ("answer", question.id, "yes", "--question", "x"),
        ("answer", "admin", "1", "--note", "x"),
        ("answer", question.id, "--note", "x"),
        ("answer", question.id, " "),
        ("answer", question.id, "x" * 4_001),
    ):
        assert run(*wrong).stderr.startswith("multi-agent-mcp: invalid_arguments: "), wrong
    assert run("answer", "qst_nothing", "x").stderr.startswith("multi-agent-mcp: invalid_id: ")
    assert ask("answer", question.id, "1")["answer"] == "1"


def test_the_first_digits_of_a_question_are_enough_to_show_and_to_answer_it(session: Path, ask: Ask, run: Run) -> None:
    question = asked(session, words="Which colour?")
    assert ask("show", question.id[4:12])["question"]["id"] == question.id
    assert ask("answer", question.id[:9], "blue")["status"] == "answered"
    assert "blue" in run("questions").stdout


def test_a_question_is_traced_by_all_that_was_told_of_it(session: Path, ask: Ask) -> None:
    question = asked(session)
    ask("answer", question.id, "yes")
    copies = ask("trace", question.id[:9])["copies"]
    told = [(copy["receiver_id"], copy["notification"]["action"]) for copy in copies]
    assert told == [("owner", "question"), ("admin", "answered")]
