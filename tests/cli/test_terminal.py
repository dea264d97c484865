"""What a person sees in a terminal: tables as wide as it is, short ids, words of the language."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from datetime import timedelta
from fcntl import ioctl
from pathlib import Path

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.cli.rendering import NARROW, _short_cells, print_diff, subjects_words
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.text import columns
from multi_agent_mcp.services.questions import Asking
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.texts import catalogue
from multi_agent_mcp.usage.limit import LimitSeen
from tests.cli.conftest import Ask

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
TITLE = "A title that is far too long for what is left of a line of eighty columns beside all the other cells"


def in_terminal(width: int, *words: str, session: Path) -> list[str]:
    """What the command prints in a terminal of this width."""
    terminal, end = os.openpty()
    ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "TZ": "Asia/Tokyo", "PYTHONUTF8": "1"}
    environment.pop("COLUMNS", None)
    where = ["--root", str(session.parent), "--session", session.name] if words else []
    environment |= {"MULTI_AGENT_MCP_ROOT": str(session.parent), "MULTI_AGENT_MCP_SESSION": session.name}
    command = [sys.executable, "-m", "multi_agent_mcp", *words, *where]
    with subprocess.Popen(command, stdin=end, stdout=end, stderr=end, env=environment, close_fds=True) as process:
        os.close(end)
        said = bytearray()
        while True:
            try:
                piece = os.read(terminal, 65_536)
            except OSError:  # EIO: the other end is closed
                break
            if not piece:
                break
            said += piece
        process.wait()
    os.close(terminal)
    return _COLOURS.sub("", said.decode()).replace("\r", "").splitlines()


@pytest.fixture
def busy(ask: Ask, session: Path) -> Path:
    """A session with open and blocked tasks of several agents."""
    for number in range(5):
        ask("agent", "add", f"w{number}", "--parent", "admin")
        ask("send", f"w{number}", "hello", "--as", "admin")
    task = ask("task", "add", TITLE, "--assignee", "worker-a")["task_id"]
    ask("task", "status", task, "blocked", "--reason", "no key")
    return session


def test_a_table_is_as_wide_as_the_terminal_and_a_pipe_gets_all_of_it(busy: Path, ask: Ask) -> None:
    (task,) = ask("task", "list")["tasks"]
    narrow = in_terminal(80, "task", "list", session=busy)
    assert all(columns(line) <= 80 for line in narrow)
    assert len(narrow) == 2
    assert narrow[1].startswith(f"{task['task_id'][4:12]}  blocked")
    assert narrow[1].endswith("…")
    wide = in_terminal(200, "task", "list", session=busy)
    assert wide[1].endswith(f"{TITLE} — no key")


def test_a_language_has_its_words_for_times_and_states(busy: Path) -> None:
    settings = busy / "session.yaml"
    settings.write_text(settings.read_text().replace("language: en", "language: ja"))
    said = in_terminal(80, "task", "list", session=busy)
    assert all(columns(line) <= 80 for line in said)
    assert "ブロック中" in said[1]
    assert re.search(r"今|[0-9]+(秒|分)", said[1]), said
    attention = in_terminal(80, "attention", session=busy)
    assert all(columns(line) <= 80 for line in attention)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_bare_command_says_states_in_the_language_and_no_label_without_its_value(busy: Path, width: int) -> None:
    settings = busy / "session.yaml"
    settings.write_text(settings.read_text().replace("language: en", "language: ja"))
    said = in_terminal(width, session=busy)
    assert all(columns(line) <= width for line in said), said
    assert "タスク: ブロック中 1" in said
    whole = " ".join(said)
    assert "未読: w0 1, w1 1, w2 1, w3 1, w4 1" in whole
    assert not [line for line in said if re.search(r"\bw\d$|[:：]$", line)], said
    assert "\u00a0" not in whole


def test_a_checklist_has_boxes_and_a_long_title_is_whole(busy: Path, ask: Ask) -> None:
    words = "Before.\n- [ ] open [red]\x1b[31m\n  * [x] done\n- [ ]not an item\n```\n- [ ] code\n```\n"
    words += "mark " + 8 * "\u202e" + " zero " + 10 * "\u200b" + " and more words 1234567 that follow"
    task = ask("task", "add", TITLE, "--description", words)["task_id"]
    services = open_session(busy.parent, busy.name)
    listed = ({"text": "first [bold]", "completed": True}, {"text": "second\x1b[2J", "completed": False})
    services.workspace.tasks.update(task, lambda found: replace(found, checklist=listed))
    said = in_terminal(60, "task", "show", task, session=busy)
    assert " ".join(said[:2]) == TITLE
    assert said[said.index("   Before.") + 1 :][:3] == ["   ☐ open [red]�[31m", "     ☑ done", "   - [ ]not an item"]
    assert "   - [ ] code" in said
    assert all(columns(line) <= 60 for line in said), said
    (at,) = [at for at, line in enumerate(said) if "☑ first [bold]" in line]
    assert said[at + 1].strip() == "☐ second�[2J"
    assert said[at].index("☑") == said[at + 1].index("☐")


def test_a_table_without_rows_says_so(session: Path) -> None:
    heads, said = in_terminal(80, "log", session=session)
    assert heads.startswith("execution  agent")
    assert said == "none"


def test_rows_that_say_the_same_are_one_row_until_all_are_asked_for(busy: Path) -> None:
    found = in_terminal(80, "doctor", session=busy)
    (folded,) = [line for line in found if "×" in line]
    found = found[found.index(folded) :]  # before it, the progress of the checks is drawn and wiped
    assert "and" in folded
    assert "more" in folded
    assert all(columns(line) <= 80 for line in found)


def test_what_rings_nobody_is_said_once_for_all_of_them_without_its_code(busy: Path) -> None:
    found = in_terminal(80, "doctor", session=busy)
    assert sum("It has no command" in line for line in found) == 2  # of the owner, and of all others
    assert not any("no_pane:" in line for line in found)


def test_the_timeline_has_words_of_the_language_and_one_row_for_what_befell_many_at_once(busy: Path) -> None:
    settings = busy / "session.yaml"
    settings.write_text(settings.read_text().replace("language: en", "language: ja"))
    services = open_session(busy.parent, busy.name)
    tasks = [NewTask(title="Dig", assignee_id=f"w{number}") for number in range(5)]
    services.task_creation.create(services.agents.owner(), tasks)
    said = in_terminal(80, "timeline", session=busy)
    assert all(columns(line) <= 80 for line in said)
    assert any("依頼" in line for line in said)
    assert not any("request" in line for line in said)
    (folded,) = [line for line in said if "Dig" in line]
    assert "w0 ほか 4 件" in folded


def test_the_end_of_a_path_is_never_cut_off(busy: Path) -> None:
    services = open_session(busy.parent, busy.name)
    services.edits.note("worker-a", [f"/nowhere/{'deep/' * 20}app.py"], "/nowhere")
    said = in_terminal(80, "edits", session=busy)
    assert any(line.endswith("deep/app.py") and "…" in line for line in said), said


def test_no_number_stands_without_its_name_where_a_row_becomes_a_few_lines(busy: Path) -> None:
    said = in_terminal(60, "stats", session=busy)
    at = next(number for number, line in enumerate(said) if line.startswith("owner"))
    _, *cells = re.split(r" {2,}", " ".join(said[at : said.index("", at)]).replace(" \n", " "))
    assert len(cells) > 1
    assert [cell for cell in cells if re.match(r"\d", cell)] == [], said


LONG_NAME = "frontend-engineer-of-the-second-team"


@pytest.fixture
def crowded(busy: Path) -> Path:
    """The same in Japanese, with an agent that has a long name, and one that has met a limit."""
    settings = busy / "session.yaml"
    settings.write_text(settings.read_text().replace("language: en", "language: ja"))
    services = open_session(busy.parent, busy.name)
    services.agents.add(Agent(id=LONG_NAME, role="worker", parent_id="admin"))
    titles = ["ログイン画面の入力検証を直し、エラー文言を日本語と英語の両方で表示できるようにする" for _ in range(2)]
    given = [NewTask(title=title, assignee_id=LONG_NAME) for title in titles]
    services.task_creation.create(services.agents.owner(), given)
    services.messages.send(services.agents.get(LONG_NAME), Draft(content="あ" * 90, receiver_id="owner"))
    until = services.clock() + timedelta(hours=30)
    seen = LimitSeen(at=services.clock(), window="five_hour", until=until, source="hook")
    services.limits.saw("w0", "claude", seen)
    return busy


@pytest.mark.parametrize("width", [40, 50])
@pytest.mark.parametrize("words", [("agent", "list"), ("task", "list"), ("watch", "--once")])
def test_no_cell_is_parted_where_a_row_becomes_a_few_lines(crowded: Path, words: tuple[str, ...], width: int) -> None:
    said = in_terminal(width, *words, session=crowded)
    assert all(columns(line) <= width for line in said if LONG_NAME not in line), said
    cells = [cell.strip() for line in said for cell in line.split("  ")]
    known = {"agent": "稼働 いいえ", "task": "未着手", "watch": "進捗 ░░░░░░   0%"}
    expected = known[words[0]].split("   ")[0]
    assert [cell for cell in cells if cell.startswith(expected)], said
    if words[0] == "agent":
        assert [cell for cell in cells if re.fullmatch(r"稼働 上限到達（解除 .*\d\d:\d\d）", cell)], said
        assert "" not in said[:-1]  # rows of one line stand below each other


def test_a_title_is_whole_where_long_names_leave_little_room(crowded: Path) -> None:
    said = in_terminal(80, "task", "list", session=crowded)
    assert "エラー文言を日本語と英語の両方で表示できるようにする" in "".join(line.strip() for line in said)
    assert all(columns(line) <= 80 for line in said)


def test_watch_once_names_its_tables_and_cuts_nothing_where_there_is_room(crowded: Path) -> None:
    said = in_terminal(200, "watch", "--once", session=crowded)
    texts = catalogue("ja", "people")
    assert [line for line in said if line in {texts(f"watch.{name}") for name in ("agents", "tasks", "messages")}] == [
        texts("watch.agents"),
        texts("watch.tasks"),
        texts("watch.messages"),
    ]
    (mail,) = [line for line in said if "あああ" in line and texts("attention.kind.mail") in line]
    following = said[said.index(mail) + 1]
    assert (mail + following).count("あ") >= 90
    narrow = in_terminal(80, "watch", "--once", session=crowded)
    assert any("… → owner" in line for line in narrow), narrow


def test_what_is_not_known_has_its_name_too() -> None:
    cells = {"machine": ("machine", "laptop"), "queued": ("queued", "?"), "conflicts": ("set aside", "?")}
    said = [_COLOURS.sub("", line) for line in _short_cells(cells, 30)]
    assert said == ["laptop  queued ?  set aside ?"]
    assert [_COLOURS.sub("", line) for line in _short_cells(cells, 20)] == ["laptop  queued ?", "   set aside ?"]


def test_a_terminal_gets_the_newest_edits_and_how_to_see_the_others(busy: Path) -> None:
    services = open_session(busy.parent, busy.name)
    services.edits.note("worker-a", [f"/nowhere/{number}.py" for number in range(60)], "/nowhere")
    said = in_terminal(80, "edits", session=busy)
    assert said[-1] == services.people("task.more", count=10)
    assert len(said) < 60 < len(in_terminal(80, "edits", "--all", session=busy))


def test_fifty_agents_are_a_few_lines_each_question_with_its_choices_and_its_deadline(busy: Path, ask: Ask) -> None:
    services = open_session(busy.parent, busy.name)
    for number in range(5):
        ask("send", "owner", f"words {number}", "--as", "admin")
    for number in range(10):
        services.agents.add(Agent(id=f"more-{number}", role="worker", parent_id="admin"))
        ask("send", f"more-{number}", "hello", "--as", "admin")
    asking = Asking(question="Redis?", to_id="owner", choices=("Redis", "Postgres"), default="Redis", minutes=20)
    services.questions.ask(services.agents.get("worker-a"), asking, None)
    said = in_terminal(80, session=busy)
    words = services.people
    assert all(columns(line) <= 80 for line in said), said
    assert words("fold.more", names="", count=10).strip() in " ".join(said)
    said = in_terminal(80, "attention", session=busy)
    whole = " ".join(line.strip() for line in said)
    assert "(Redis / Postgres; in 20 min, then “Redis”)" in whole or "(Redis / Postgres; in 19 min, then" in whole, said
    (mail,) = [line for line in said if words("attention.kind.mail") in line]
    assert "×5" in mail
    everything = in_terminal(80, "attention", "--all", session=busy)
    assert sum(words("attention.kind.mail") in line for line in everything) == 5


def test_what_is_longer_than_a_line_goes_on_below_it_between_words_and_commands_stay_whole(busy: Path) -> None:
    said = in_terminal(60, "search", "title", session=busy)
    assert all(columns(line) <= 60 for line in said), said
    assert TITLE in " ".join(line.strip() for line in said)
    (line,) = [line for line in in_terminal(30, "attention", session=busy) if "→" in line][:1]
    assert "multi-agent-mcp task " in line


def test_a_terminal_gets_the_newest_of_the_timeline_and_how_to_see_what_was_earlier(busy: Path) -> None:
    services = open_session(busy.parent, busy.name)
    for number in range(120):
        services.task_creation.create(services.agents.owner(), [NewTask(title=f"Dig hole {number}")])
    said = in_terminal(80, "timeline", session=busy)
    every = in_terminal(80, "timeline", "--all", session=busy)
    assert re.fullmatch(r"… \d+ earlier \(--all\)", said[0])
    assert "Dig hole 119" in " ".join(said)
    assert len(every) > len(said)


def test_a_long_diff_is_printed_whole_and_its_beginning_in_colours(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"+line {number} of many" for number in range(20_000)]
    assert not print_diff("\n".join(lines))
    assert [line.rstrip() for line in _COLOURS.sub("", capsys.readouterr().out).splitlines()] == lines
    assert print_diff("+short\n")


@pytest.mark.parametrize("name", ["w{}", "worker-{:02}", "worker-{:02}-of-the-second-team", "{:02}" + "n" * 62])
@pytest.mark.parametrize("language", ["en", "ja"])
def test_the_number_of_those_that_are_not_named_is_never_cut(name: str, language: str) -> None:
    texts = catalogue(language, "people")
    said = subjects_words([name.format(number) for number in range(48)], texts)
    assert columns(said) <= NARROW
    assert said.endswith(texts("fold.more", names="", count=48 - said.count(",") - 1))
