"""`watch` as an application: what it shows, what its keys do, and that each is a command."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest
from textual.pilot import Pilot

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.cli.main import app, commands_of
from multi_agent_mcp.cli.screen.actions import Subject, actions_of, command_line, led
from multi_agent_mcp.cli.screen.app import WatchScreen
from multi_agent_mcp.cli.screen.lines import whole_parts
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.dialog import Choice, Dialog
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.question import Question
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.text import columns
from multi_agent_mcp.features import Features
from multi_agent_mcp.features.ours import ALL, OURS
from multi_agent_mcp.services.attention import Item
from multi_agent_mcp.services.tasks.board import NewTask
from tests.cli.conftest import Ask, Run
from tests.cli.test_watch import HOSTILE, agent, message

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
Look = Callable[[], list[str]]


@asynccontextmanager
async def standing(session: Path, width: int = 80, height: int = 24) -> AsyncIterator[tuple[Pilot[None], WatchScreen]]:
    """The application on this session, once it has looked at it."""
    screen = WatchScreen(open_session(session.parent, session.name), messages=20)
    async with screen.run_test(size=(width, height)) as pilot:
        await until(lambda: "demo · " in "".join(lines(screen)[:2]), pilot)
        yield pilot, screen
    screen.close()
    assert screen.error is None


async def until(holds: Callable[[], object], pilot: Pilot[None]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await pilot.pause(0.02)


def lines(screen: WatchScreen) -> list[str]:
    return ["".join(segment.text for segment in strip) for strip in screen.screen._compositor.render_strips()]


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scene())


def test_a_key_shows_its_command_which_enter_runs_and_the_list_follows(ask: Ask, session: Path) -> None:
    task_id = ask("task", "add", "[red]Build[/red] it", "--assignee", "worker-a")["task_id"]

    async def scene() -> None:
        async with standing(session) as (pilot, screen):
            await pilot.press("tab", "tab", "b", *"-no bricks", "é")
            await until(lambda: "bricks" in lines(screen)[-3], pilot)
            command = f"multi-agent-mcp task status --reason '-no bricksé' {task_id} blocked"
            assert lines(screen)[-3].rstrip() == f"$ {command}"
            assert "[red]Build[/red] it" in "\n".join(lines(screen))
            assert ask("task", "show", task_id)["task"]["status"] == "todo"
            await pilot.press("enter")
            await until(lambda: "blocked 1" in "".join(lines(screen)[:2]), pilot)
            await until(lambda: f"{task_id} blocked done {task_id}" in " ".join("".join(lines(screen)).split()), pilot)

    play(scene)
    shown = ask("task", "show", task_id)["task"]
    assert (shown["status"], shown["blocked_reason"]) == ("blocked", "-no bricksé")


def test_escape_leaves_a_command_and_letters_that_are_typed_are_no_keys(ask: Ask, session: Path) -> None:
    async def scene() -> None:
        async with standing(session) as (pilot, screen):
            await pilot.press("tab", "down", "s", *"quit", "escape")
            assert screen.is_running
            assert lines(screen)[-2].strip() == ""
            await pilot.press("s", "enter")  # there is nothing to send
            assert lines(screen)[-3].startswith("$ multi-agent-mcp send admin")
            await pilot.press("escape", "q")

    play(scene)
    assert ask("watch", "--once")["messages"] == []


def test_what_an_agent_wrote_commands_nothing_and_is_no_markup(ask: Ask, session: Path) -> None:
    ask("task", "add", HOSTILE.replace("\x00", "").replace("\r\n", " "), "--assignee", "worker-a")
    ask("send", "owner", HOSTILE.replace("\x00", ""), "--as", "admin")

    async def scene() -> None:
        async with standing(session) as (pilot, screen):
            for keys in ("o", "escape,tab,tab", "o", "escape,tab"):
                await pilot.press(*keys.split(","))
                await until(lambda: "[red]red[/red]" in "".join(lines(screen)), pilot)
                assert not set("".join(lines(screen))) & set(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0x202E]))

    play(scene)


def test_the_name_of_the_list_that_is_shown_is_to_be_seen_at_any_width(session: Path) -> None:
    async def scene() -> None:
        async with standing(session, width=30) as (pilot, screen):
            assert not any("Messages" in line for line in lines(screen)[:4])
            await pilot.press("tab", "tab", "tab")
            await until(lambda: any("Messages" in line for line in lines(screen)[:4]), pilot)

    play(scene)


def test_words_narrow_a_list_until_escape_and_keys_act_on_what_is_left(ask: Ask, session: Path) -> None:
    ids = [
        ask("task", "add", f"{name} it", "--assignee", "worker-a")["task_id"]
        for name in ("Build", "ＰＡＩＮＴ", "Sell")
    ]

    async def scene() -> None:
        async with standing(session) as (pilot, screen):
            await pilot.press("tab", "tab", "slash", *"paint")
            await until(lambda: "1/3: paint" in "".join(lines(screen)), pilot)
            await pilot.press("enter", "g", *"admin")
            assert lines(screen)[-3].startswith(f"$ multi-agent-mcp task assign {ids[1]} admin")
            assert not any("Build it" in line for line in lines(screen))
            await pilot.press("escape", "escape")
            await until(lambda: any("Build it" in line for line in lines(screen)), pilot)
            await pilot.press("slash", *"sell", "escape")
            assert any("Build it" in line for line in lines(screen))
            await pilot.press("n", *"New")
            assert lines(screen)[-3].startswith("$ multi-agent-mcp task add New")
            await pilot.press("escape", "q")

    play(scene)


@pytest.mark.parametrize("language", ["en", "ja"])
def test_the_last_line_says_how_to_end_at_any_width(run: Run, tmp_path: Path, language: str) -> None:
    team = f"session: demo\nlanguage: {language}\nagents:\n  - {{id: owner, role: owner, type: human}}\n"
    (tmp_path / "team.yaml").write_text(team + "  - {id: admin, role: admin, parent: owner}\n", encoding="utf-8")
    assert run("init").exit_code == 0
    session = tmp_path / ".multi-agent-mcp" / "demo"

    async def scene() -> None:
        async with standing(session) as (pilot, screen):
            await pilot.press("tab", "down")
            for width, height in ((80, 24), (40, 12), (30, 8)):
                await pilot.resize_terminal(width, height)
                await pilot.pause()
                last = lines(screen)[-1].rstrip()
                assert last.endswith("q quits" if language == "en" else "q で終了")
                assert columns(last) <= width
            await pilot.press("p", "escape", "tab", "shift+tab", "down", "ctrl+c")
            await until(lambda: not screen.is_running, pilot)

    play(scene)


@pytest.mark.parametrize("language", ["en", "ja"])
def test_forty_columns_have_the_numbers_and_a_key_that_says_all_keys(run: Run, tmp_path: Path, language: str) -> None:
    team = f"session: demo\nlanguage: {language}\nagents:\n  - {{id: owner, role: owner, type: human}}\n"
    (tmp_path / "team.yaml").write_text(team + "  - {id: frontend-engineer, role: admin, parent: owner}\n")
    assert run("init").exit_code == 0
    session = tmp_path / ".multi-agent-mcp" / "demo"
    title = "ログイン画面の入力検証を直す" if language == "ja" else "Mend the checks of the login page"
    services = open_session(session.parent, session.name)
    new = NewTask(title=title, assignee_id="frontend-engineer")
    (task,) = services.task_creation.create(services.agents.owner(), [new])
    services.task_changes.start(services.agents.get("frontend-engineer"), task.id)
    services.workspace.tasks.update(task.id, lambda found: replace(found, progress=45))

    async def scene() -> None:
        async with standing(session, 40) as (pilot, screen):
            await pilot.press("tab", "tab")
            await until(lambda: any(" 45%  " in line for line in lines(screen)), pilot)
            (row,) = [line for line in lines(screen) if " 45%  " in line]
            assert columns(row.partition("%  ")[2].rstrip()) > 12
            assert "? " in lines(screen)[-1]
            await pilot.press("question_mark")
            await until(lambda: f"multi-agent-mcp task assign {task.id}" in flat(lines(screen)), pilot)
            await pilot.press("escape")
            await until(lambda: any(" 45%  " in line for line in lines(screen)), pilot)

    def flat(said: list[str]) -> str:
        return " ".join(" ".join(said).split())

    play(scene)


# Which keys there are for what.


def asking(item: Item, **facts: Any) -> Subject:
    return Subject(id="x", item=item, agent=agent("worker-a"), **facts)


def task(**fields: Any) -> Task:
    return Task(id="tsk_000000000001", title="t", assignee_id="worker-a", created_at=NOW, **fields)


QUESTION = Question(id="qst_000000000001", asker_id="worker-a", to_id="owner", question="?", choices=("-1", "Redis"))
DIALOG = Dialog("permission", "Proceed?", (Choice("1", "Yes"), Choice("n", "No")))
PAUSED = Notification(id="ntf_000000000001", type="interrupt", target_agent_id="worker-a", created_at=NOW)


def item(kind: str, command: str = "multi-agent-mcp doctor", **fields: Any) -> Item:
    return Item(kind=kind, agent_id="worker-a", text="x", command=command, **fields)


SUBJECTS = {
    "question": (asking(item("question", question=QUESTION)), "1 2 a s b p c n"),
    "dialog": (asking(item("dialog", dialog=DIALOG)), "1 a s b p c n"),
    "dialog elsewhere": (asking(item("dialog", dialog=DIALOG, machine="desk")), "s b p c n"),
    "review": (asking(item("review"), task=task(status="review", delivery={"head": "a" * 40})), "y x d b g s p c n"),
    "checks to run": (
        asking(item("review", "multi-agent-mcp task verify tsk_1", approved=True), task=task(status="review")),
        "h y x d b g s p c n",
    ),
    "request": (asking(item("request"), task=task(status="backlog", approval_status="pending")), "y x g s b p c n"),
    "blocked": (asking(item("blocked"), task=task(status="blocked")), "d b g s p c n"),
    "mail": (asking(item("mail", id="m")), "s b p c n"),
    "budget": (asking(item("budget", "multi-agent-mcp resume worker-a --tokens 100000")), "r s b p c n"),
    "doctor": (asking(item("doctor")), "s b p c h n"),
    "another's program": (asking(item("doctor", "sudo rm -rf /")), "s b p c n"),
    "an unfinished command": (asking(item("doctor", 'multi-agent-mcp reply x "…"')), "s b p c n"),
    "agent in a pane": (Subject(id="x", agent=agent(agent=Agent(id="a", role="worker", pane_id="%1"))), "s b p t c n"),
    "paused agent": (Subject(id="x", agent=agent(pause=PAUSED, task=None)), "s r c n"),
    "person": (Subject(id="x", agent=agent(agent=Agent(id="p", role="owner", type="human"))), "s n"),
    "oneself": (Subject(id="x", agent=agent("owner")), "n"),
    "message": (Subject(id="m", message=message(), agent=agent("admin")), "s b p c n"),
    "to merge": (Subject(id="t", task=task(status="done"), is_merge=True), "m d n"),
    "reservation": (Subject(id="rsv_1", listed="rsv_1"), "e n"),
    "nothing": (None, ""),
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_key_is_a_command_as_the_command_line_takes_it(name: str) -> None:
    subject, keys = SUBJECTS[name]
    actions = actions_of(subject, "owner", ALL)
    assert " ".join(action.key for action in actions) == keys
    for action in actions:
        for typed in ("", "-x", "what is said"):
            if typed or not action.needs:
                parsed(led(action.filled(typed), ["--root", "/somewhere"]), typed if action.asks else "")


def parsed(words: list[str], typed: str) -> None:
    """Parses a command as it would be run; somewhere in it is what was typed."""
    assert shlex.split(command_line(words))[1:] == words
    context, command = click.Context(app), app
    while isinstance(command, click.Group) and not words[0].startswith("-"):
        found = command.get_command(context, words.pop(0))
        assert found is not None
        command = found  # type: ignore[assignment]
    given = command.make_context("x", words).params
    assert given["root"] == "/somewhere"
    assert not typed or typed in given.values()


def test_the_keys_of_features_that_are_off_are_nowhere() -> None:
    without = Features(
        tuple(feature for feature in OURS if not feature.optional),
        tuple(feature for feature in OURS if feature.optional),
    )
    known = {name for commands in commands_of(without).values() for name in commands}
    for subject, _ in SUBJECTS.values():
        assert {action.words[0] for action in actions_of(subject, "owner", without)} <= known
    merges = item("doctor", "multi-agent-mcp workspace merge worker-a")
    assert [one.key for one in actions_of(asking(merges), "owner", ALL)] == ["s", "b", "p", "c", "h", "n"]
    assert [one.key for one in actions_of(asking(merges), "owner", without)] == ["s", "b", "p", "c", "n"]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_heading_has_whole_numbers_and_a_checklist_boxes_at_any_width(ask: Ask, session: Path, width: int) -> None:
    words = "- [ ] open\n- [x] [bold]done[/] \x1b[31m"
    for number in range(3):
        ask("task", "add", f"Number {number}", "--description", words)

    async def scene() -> None:
        async with standing(session, width, 40) as (pilot, screen):
            await pilot.press("tab", "tab")
            await until(lambda: "☐ open" in "\n".join(lines(screen)), pilot)
            shown = "\n".join(lines(screen))
            assert "☑ [bold]done[/] �[31m" in shown
            strips = screen.screen._compositor.render_strips()
            titles = [part.style for strip in strips for part in strip if part.text.strip().startswith("Number ")]
            assert any(style is not None and style.bold for style in titles)

    play(scene)
    counted = "demo · waits for you: 24 · backlog 18 · to do 137"
    assert whole_parts(counted, 49) == counted
    assert whole_parts(counted, 48) == "demo · waits for you: 24 · backlog 18 · …"
    assert whole_parts(counted, 3) == "demo · …"
