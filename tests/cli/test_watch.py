"""The live screen of `watch`: it fits whatever terminal it is in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from multi_agent_mcp.cli.rendering import Styled, ago
from multi_agent_mcp.cli.screen.listings import row_text
from multi_agent_mcp.cli.watch import ATTENTION, Part, meter, screen, shares, state
from multi_agent_mcp.domain.agent import Agent, OwnerWait
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.stuck import AgentFacts, Stuck
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.repository.reservation import FileEdit
from multi_agent_mcp.repository.views import edit_row
from multi_agent_mcp.services.attention import Item
from multi_agent_mcp.services.overview.snapshot import AgentRow, MessageRow, Snapshot
from multi_agent_mcp.texts import PEOPLE, catalogue

ENGLISH = catalogue("en") | catalogue("en", PEOPLE)
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m[red]red[/red]\r\n\u202eevil\x00"


def agent(name: str = "worker", **fields: object) -> AgentRow:
    known: dict[str, object] = {
        "agent": Agent(id=name, role="worker"),
        "depth": 2,
        "running": (),
        "unread": 3,
        "interrupts": 0,
        "pause": None,
        "task": Task.made(
            "tsk_1", Change(by="admin", at=NOW), title="ログイン画面を作る", status="todo", assignee_id=name
        ),
        "wait": None,
        "alive": True,
        "active_at": NOW - timedelta(seconds=4),
    }
    return AgentRow(**{**known, **fields})  # type: ignore[arg-type]


def task(title: str = "とても長い題名の仕事がここにある" * 5, status: str = "in_progress") -> Task:
    return Task(id="tsk_1", title=title, status=status, assignee_id="worker", progress=40, created_at=NOW)


def message(subject: str = "件名") -> MessageRow:
    return MessageRow(
        id="m",
        sender_id="admin",
        receiver_id="worker",
        message_type="task_assign",
        subject=subject,
        created_at=NOW - timedelta(minutes=3, seconds=5),
        state="stored",
        reason="no_pane",
    )


def seen(agents: int = 4, tasks: int = 3, messages: int = 20, text: str | None = None) -> Snapshot:
    return Snapshot(
        session="demo",
        at=NOW,
        counts={"in_progress": tasks, "done": 7},
        agents=tuple(agent(text or f"worker-{number}") for number in range(agents)),
        tasks=tuple(task(text) if text else task() for _ in range(tasks)),
        messages=tuple(message(text) if text else message() for _ in range(messages)),
    )


def waits(count: int, text: str = "Do you want to proceed?") -> list[Item]:
    return [Item(kind="dialog", agent_id=text if text == HOSTILE else "worker-a", text=text, command="x")] * count


def drawn(
    what: Snapshot,
    width: int,
    height: int,
    language: str = "en",
    items: Sequence[Item] = (),
    edited: Sequence[Part] = (),
) -> list[str]:
    console = Console(file=StringIO(), width=width, height=height, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(screen(what, items, catalogue(language) | catalogue(language, PEOPLE), height, edited))
    return capture.get().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 12), (200, 60), (80, 8), (20, 5)])
@pytest.mark.parametrize("what", [seen(), seen(12, 40, 50), seen(0, 0, 0), seen(3, 3, 3, HOSTILE)])
def test_it_never_takes_more_than_the_terminal_has(what: Snapshot, width: int, height: int) -> None:
    for language in ("en", "ja"):
        for items in (waits(0), waits(1), waits(30, HOSTILE)):
            lines = drawn(what, width, height, language, items)
            assert len(lines) <= height
            assert all(cell_len(line) <= width for line in lines)


def test_eighty_by_twenty_four_shows_something_of_everything_and_says_how_much_more_there_is() -> None:
    text = "\n".join(drawn(seen(12, 40, 50), 80, 24))
    for told in (
        "nothing waits for you · in_progress 40 · done 7",
        "worker-0",
        "ログイン画面を作る",
        "██░░░░  40%",
        "admin → worker",
        "q quits",
    ):
        assert told in text
    assert "… 6 more" in text
    assert "… 35 more" in text


def test_what_an_agent_wrote_commands_nothing_and_is_no_markup() -> None:
    text = "\n".join(drawn(seen(3, 3, 3, HOSTILE), 120, 30, items=waits(2, HOSTILE)))
    assert not set(text) & set(map(chr, [*range(10), *range(0x0B, 0x20), *range(0x7F, 0xA0), 0x202E]))
    assert "[red]red[/red]" in text


def test_what_waits_for_the_human_comes_first_and_its_number_is_in_the_heading() -> None:
    lines = drawn(seen(), 80, 24, items=waits(2))
    assert lines[0] == "demo · waits for you: 2 · in_progress 3 · done 7"
    (first, *_) = [line for line in lines[1:] if line]
    assert first.startswith("Waits for you")
    assert sum("question" in line and "Do you want to proceed?" in line for line in lines) == 2
    quiet = drawn(seen(), 80, 24)
    assert quiet[0] == "demo · nothing waits for you · in_progress 3 · done 7"
    assert not any("Waits for you" in line for line in quiet)


def test_what_waits_is_said_in_narrow_terminals_and_gets_most_of_the_room() -> None:
    for language in ("en", "ja"):
        many = [replace(waits(1)[0], kind="request") for _ in range(86)]
        lines = drawn(seen(50, 80, 20), 60, 24, language, items=many)
        assert "86" in lines[0]
        assert sum("Do you want to proceed?" in line for line in lines) >= 3


def test_a_narrow_screen_has_the_number_of_a_bar() -> None:
    console = Console(file=StringIO(), width=50, height=40, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(screen(seen(1, 1, 1), [], ENGLISH, 40, width=50))
    assert " 40% " in capture.get()
    assert "██" not in capture.get()


def test_room_is_shared_by_need() -> None:
    assert shares([3, 50, 50], 19) == [3, 8, 8]
    assert shares([1, 1, 1], 19) == [1, 1, 1]
    assert shares([5, 5, 5], -3) == [0, 0, 0]
    assert shares([50, 50, 50], 10, [3, 1, 1]) == [6, 2, 2]


def test_states_ages_and_progress_are_told_in_a_few_letters() -> None:
    assert state(agent(), NOW, ENGLISH) == "alive 4 s"
    assert state(agent(interrupts=1), NOW, ENGLISH) == "interrupted"
    wait = OwnerWait(owner_id="owner", admin_id="admin", task_id="tsk_1", message_id="msg_1", since=NOW)
    assert state(agent(alive=False, wait=wait), NOW, ENGLISH) == "waiting"
    assert state(agent(alive=False), NOW, ENGLISH) == "off"
    stuck = Stuck("unanswered", NOW, NOW, AgentFacts())
    assert state(agent(stuck=stuck), NOW, ENGLISH) == "stuck: unanswered"
    assert [ago(NOW - timedelta(seconds=count), NOW, ENGLISH) for count in (0, 7, 200, 7_300)] == [
        "now",
        "7 s",
        "3 min",
        "2 h",
    ]
    assert [meter(progress) for progress in (-5, 50, 1_000)] == ["░░░░░░   0%", "███░░░  50%", "██████ 100%"]


def test_a_row_of_the_screen_keeps_the_styles_of_its_cells() -> None:
    line = row_text(
        (state(agent(interrupts=1), NOW, ENGLISH), Styled("進行中", "cyan"), "plain"), [12, 8, 6], ATTENTION[:3]
    )
    assert {(line.plain[span.start : span.end].strip(), span.style) for span in line.spans} == {
        ("interrupted", "bold red"),
        ("進行中", "cyan"),
    }


def test_it_shows_who_edited_what_and_marks_what_several_edit() -> None:
    edits = [FileEdit(path, None, name, None, NOW - timedelta(minutes=2)) for path, name in EDITED]
    rows = [edit_row(edit, {("src/a.py", None)}, NOW, ENGLISH) for edit in edits]
    part = Part("edits", ("ago", "agent", "path"), rows, None)
    lines = drawn(seen(agents=1, tasks=1, messages=1), 80, 24, edited=[part])
    begins = next(index for index, line in enumerate(lines) if line.startswith("Edits"))
    assert [line.split() for line in lines[begins + 1 : begins + 4]] == [
        ["2", "min", "a", "!", "src/a.py"],
        ["2", "min", "b", "!", "src/a.py"],
        ["2", "min", "b", "src/b.py"],
    ]


EDITED = (("src/a.py", "a"), ("src/a.py", "b"), ("src/b.py", "b"))
