"""`answer`: what a host asks in its pane, and the key that answers it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from multi_agent_mcp.cli.main import app
from multi_agent_mcp.domain.dialog import Dialog
from multi_agent_mcp.domain.times import format_time, now
from multi_agent_mcp.doorbell.tmux.client import pane_place
from multi_agent_mcp.wiring import Services
from tests.conformance.stage import Stage
from tests.doorbell.tmux.asker import asker_command
from tests.end_to_end.support import wait_until

pytestmark = pytest.mark.tmux
Run = Callable[..., Any]


@pytest.fixture
def asked(services: Services, tmp_path: Path) -> Iterator[Services]:
    """worker-a's host asks something."""
    with Stage(0) as stage:
        log, size = tmp_path / "asker.log", ("-x", "100", "-y", "40")
        pane = stage.tmux("new-session", "-d", *size, "-P", "-F", "#{pane_id}", asker_command(log))
        wait_until(log.exists, "it has begun")
        services.agents.change("worker-a", host="claude", **(pane_place(stage.socket, pane) or {}))
        wait_until(services.panes.dialogs, "it asks")
        yield services


def said(services: Services, *arguments: str, code: int = 0) -> str:
    return run(services, "answer", *arguments, code=code)


def run(services: Services, *arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, [*arguments, "--root", str(services.root)])
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


def test_the_question_and_its_choices_are_shown_with_the_command_that_answers(asked: Services) -> None:
    lines = said(asked, "worker-a").splitlines()
    assert lines[0] == "worker-a asks for permission:"
    assert "   Bash command 0" in lines
    assert "   1  Yes" in lines
    assert "   2  Yes, and don't ask again (it will not ask again)" in lines
    question = asked.panes.dialogs()["worker-a"].id
    how = "to answer: multi-agent-mcp answer worker-a CHOICE"
    assert lines[-1] == f"{how} (more than a minute from now, or in a script, add: --question {question})"
    assert said(asked).splitlines() == lines
    assert said(asked, "admin").startswith("admin asks nothing that can be answered from here")


def test_an_answer_is_pressed_once_said_and_on_record(asked: Services) -> None:
    (shown,) = json.loads(said(asked, "--json"))["dialogs"]
    came = json.loads(said(asked, "worker-a", "3", "--question", shown["id"], "--json"))
    assert (came["state"], came["screen"]) == ("answered", "dialog")
    refused = json.loads(said(asked, "worker-a", "1", "--question", shown["id"], "--json", code=1))
    assert refused["error"] == "not_answered"
    *_, journal = sorted((asked.path / "audit").iterdir())  # whose approval is of the day the team was made
    (line,) = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    assert [line[name] for name in ("tool", "by", "agent_id", "choice", "label", "state")] == [
        *("answer", "owner", "worker-a", "3", "No", "answered"),
    ]
    assert "Bash command 0" in line["dialog"]["text"]


def test_an_answer_is_in_the_timeline_with_who_gave_it_to_what_and_when(asked: Services) -> None:
    (shown,) = json.loads(said(asked, "--json"))["dialogs"]
    before = now()
    said(asked, "worker-a", "3", "--question", shown["id"])
    found = json.loads(run(asked, "timeline", "--json"))["answers"]
    assert [(item["by"], item["agent_id"], item["choice"], item["label"], item["state"]) for item in found] == [
        ("owner", "worker-a", "3", "No", "answered"),
    ]
    assert "Bash command 0" in found[0]["question"]
    assert format_time(before) <= found[0]["at"] <= format_time(now())
    lines = run(asked, "timeline").splitlines()
    (line,) = [line for line in lines if "owner → worker-a" in line]
    assert "question answered" in line
    assert "3 No ← Bash command 0" in line
    assert asked.timeline.of(end=before).answers == ()


def test_an_answer_to_a_question_that_was_not_listed_is_refused_with_what_is_asked_and_how_to_answer(
    asked: Services,
) -> None:
    refused = said(asked, "worker-a", "1", code=1)
    assert "invalid_arguments: Which question? worker-a asks: «Bash command 0 touch a touch b" in refused
    question = asked.panes.dialogs()["worker-a"].id
    assert f"multi-agent-mcp answer worker-a 1 --question {question}" in refused
    assert asked.panes.dialogs()["worker-a"].text.startswith("Bash command 0")


@pytest.mark.parametrize("listing", [("answer", "worker-a"), ("attention",)])
def test_a_question_that_was_just_listed_to_the_same_person_is_answered_without_its_id(
    asked: Services, listing: tuple[str, ...]
) -> None:
    run(asked, *listing, "--as", "admin")
    assert "Which question?" in said(asked, "worker-a", "3", code=1)
    assert "Bash command 0" in run(asked, *listing)
    assert "pressed 3 (No)" in said(asked, "worker-a", "3")


def test_neither_another_question_than_the_listed_one_nor_one_listed_long_ago_is_answered(asked: Services) -> None:
    said(asked, "worker-a")
    first = asked.panes.dialogs()["worker-a"]
    os.kill(asked.agents.get("worker-a").pane_pid or 0, signal.SIGUSR1)
    wait_until(lambda: asked.panes.dialogs().get("worker-a") not in (None, first), "it asks something else")
    assert "rm -rf /" in said(asked, "worker-a", "1", code=1)
    said(asked, "worker-a")
    record = asked.workspace.listed_dialogs("owner")
    (listed,) = record.read().values()
    record.write({"worker-a": {**listed, "at": format_time(now() - timedelta(seconds=61))}})
    assert "Which question?" in said(asked, "worker-a", "1", code=1)
    record.write(["damaged"])
    assert "Which question?" in said(asked, "worker-a", "1", code=1)
    assert "rm -rf /" in asked.panes.dialogs()["worker-a"].text


def test_a_tmux_that_does_not_answer_is_never_taken_for_a_host_that_asks_nothing(asked: Services) -> None:
    said(asked, "worker-a")
    question = asked.panes.dialogs()["worker-a"].id
    agent = asked.agents.get("worker-a")
    os.kill(agent.tmux_pid or 0, signal.SIGSTOP)
    try:
        for words in ((), ("1",), ("1", "--question", question)):
            sentence = said(asked, "worker-a", *words, code=1)
            assert "tmux_timeout" in sentence
            assert str(agent.socket_path) in sentence
            refused = json.loads(said(asked, "worker-a", *words, "--json", code=1))
            assert (refused["success"], refused["error"]) == (False, "tmux_timeout")
        examined = json.loads(run(asked, "doctor", "--json", code=1))
        (found,) = [item for item in examined["findings"] if str(agent.socket_path) in item["finding"]]
        assert (found["check"], found["level"], found["subject"]) == ("panes", "problem", "worker-a")
        assert f"kill -CONT {agent.tmux_pid}" in found["repair"]
    finally:
        os.kill(agent.tmux_pid or 0, signal.SIGCONT)


@pytest.fixture
def strange(asked: Services, tmp_path: Path) -> Services:
    """worker-a's host asks something that no profile describes."""
    (tmp_path / "asker.log.strange").touch()
    os.kill(int(asked.agents.get("worker-a").pane_pid or 0), signal.SIGUSR1)
    wait_until(lambda: not asked.panes.dialogs() and _undescribed(asked), "it asks something else")
    return asked


def _undescribed(services: Services) -> Mapping[str, Dialog]:
    return services.panes.undescribed(services.agents.all().values())


def at_terminal(services: Services, typed: str, *words: str) -> str:
    """What `answer` says in a terminal in which this is typed once it asks."""
    terminal, end = os.openpty()
    command = [sys.executable, "-m", "multi_agent_mcp", "answer", *words, "--root", str(services.root)]
    with subprocess.Popen(command, stdin=end, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        os.close(end)
        os.write(terminal, typed.encode())
        said, _ = process.communicate(timeout=60)
    os.close(terminal)
    return said.decode()


def test_a_question_that_no_profile_describes_is_shown_with_its_rows_and_the_way_to_press_keys(
    strange: Services,
) -> None:
    for lines in (said(strange, "worker-a").splitlines(), said(strange).splitlines()):
        assert lines[0] == "worker-a asks something that no profile describes. Its screen:"
        assert "    ❯ Never" in lines
        assert lines[-1].endswith('multi-agent-mcp answer worker-a --keys "Down Enter"')
    (shown,) = json.loads(said(strange, "worker-a", "--json"))["undescribed"]
    assert (shown["agent_id"], "Perhaps" in shown["text"]) == ("worker-a", True)
    assert "multi-agent-mcp answer worker-a" in run(strange, "attention")


def test_keys_are_pressed_in_a_terminal_once_the_screen_was_shown_and_confirmed(
    strange: Services, tmp_path: Path
) -> None:
    came = at_terminal(strange, "y\n", "worker-a", "--keys", "Down Enter")
    assert "❯ Never" in came
    assert "worker-a: pressed Down Enter; its host is now: asking" in came
    assert keys(tmp_path) == ["\x1b[B", "\r"]
    *_, journal = sorted((strange.path / "audit").iterdir())  # whose approval is of the day the team was made
    line = json.loads(journal.read_text(encoding="utf-8"))
    assert (line["by"], line["choice"], "Perhaps" in line["dialog"]["text"]) == ("owner", "Down Enter", True)


@pytest.mark.parametrize("typed", ["n\n", "\n"])
def test_keys_that_are_not_confirmed_are_not_pressed(strange: Services, tmp_path: Path, typed: str) -> None:
    assert "Press Down Enter in the pane of worker-a?" in at_terminal(
        strange, typed, "worker-a", "--keys", "Down Enter"
    )
    assert keys(tmp_path) == []


def test_keys_outside_a_terminal_and_what_are_no_keys_are_refused(strange: Services, tmp_path: Path) -> None:
    wrong = ("kill-server", "Enter " * 21, "Enter ; kill-server", "-l", " ")
    assert all("--keys takes up to 20 keys" in said(strange, "worker-a", "--keys", keys, code=1) for keys in wrong)
    assert "needs a terminal" in said(strange, "worker-a", "--keys", "Enter", code=1)
    assert "needs a terminal" in said(strange, "worker-a", "--keys", "Enter", "--json", code=1)
    assert "give one of them" in said(strange, "worker-a", "1", "--keys", "Enter", code=1)
    assert "give one of them" in said(strange, "worker-a", "--keys", "Enter", "--question", "0123456789ab", code=1)
    assert keys(tmp_path) == []


def test_no_keys_are_pressed_on_a_screen_that_has_changed_since_it_was_shown(strange: Services, tmp_path: Path) -> None:
    agent = strange.agents.get("worker-a")
    shown = strange.panes.typist.asking(agent, ("Enter",))
    assert shown is not None
    before = len(drawn(tmp_path))
    os.kill(int(agent.pane_pid or 0), signal.SIGUSR1)
    wait_until(lambda: len(drawn(tmp_path)) > before, "it draws another row")
    wait_until(lambda: strange.panes.typist.asking(agent, ("Enter",)) != shown, "it is seen")
    came = strange.panes.answer(agent, shown.id, "Enter", strange.agents.owner(), ("Enter",))
    assert (came.state, came.reason) == ("refused", "other_dialog")
    assert keys(tmp_path) == []


def keys(directory: Path) -> list[str]:
    """The keys that the host got."""
    return [event["key"] for event in _events(directory) if event["event"] == "key"]


def drawn(directory: Path) -> list[dict[str, Any]]:
    return [event for event in _events(directory) if event["event"] == "drawn"]


def _events(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "asker.log").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("question", ["", "  "])
def test_an_empty_question_is_refused_even_for_a_question_that_was_just_listed(asked: Services, question: str) -> None:
    said(asked, "worker-a")
    assert "invalid_arguments" in said(asked, "worker-a", "2", "--question", question, code=1)
    assert "Bash command 0" in asked.panes.dialogs()["worker-a"].text


def test_a_key_whose_effect_is_not_known_has_been_pressed_and_is_no_failure(asked: Services, tmp_path: Path) -> None:
    said(asked, "worker-a")
    late = tmp_path / "asker.log.late"
    late.touch()
    wait_until(lambda: any(event["event"] == "late" for event in _events(tmp_path)), "it does not read any more")
    pressed = json.loads(said(asked, "worker-a", "3", "--json"))
    assert (pressed["success"], pressed["state"], pressed["reason"]) == (True, "pressed", "not_taken")
