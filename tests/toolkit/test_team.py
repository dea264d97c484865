"""A team in a Python program: `Team`, its agents' methods, `Refused`, `Interrupted` (docs/python.md)."""

from __future__ import annotations

import asyncio
import copy
import fcntl
import inspect
import os
import pickle
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from multi_agent_mcp import Interrupted, Refused, Team
from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import AgentSession
from multi_agent_mcp.server.tools import TOOLS
from tests.end_to_end.support import wait_until
from tests.programs import ran

AGENTS = {"owner": "owner", "admin": "admin", "worker-a": "worker", "worker-b": "worker"}
RUNG = ("worker-a", "[IPC] New message: request from admin")


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a team, to be copied, which costs a tenth of making one."""
    directory = tmp_path_factory.mktemp("made")
    Team.create(directory, AGENTS, language="en").close()
    return directory


@pytest.fixture
def made(made_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made_once, tmp_path / "project"))


@pytest.fixture
def team(made: Path) -> Iterator[Team]:
    with Team.open(made, doorbell=False) as opened:
        yield opened


def sessions(team: Team) -> list[AgentSession]:
    return open_session(team.path.parent, team.session).sessions.all(ended=True)


def contents(answer: dict[str, Any]) -> list[str]:
    return [message["content"] for message in answer["messages"]]


def program(*lines: str) -> str:
    """A program that has a team open as `team`; its directory is the first argument."""
    first = (
        "import os, signal, sys",
        "from multi_agent_mcp import Team",
        "team = Team.open(sys.argv[1], doorbell=False)",
    )
    return "\n".join([*first, *lines])


def test_a_message_is_sent_rung_about_and_read(tmp_path: Path) -> None:
    team = Team.create(tmp_path, {"owner": "owner", "admin": "admin", "worker-a": "worker"}, language="en")
    admin, worker = team["admin"], team["worker-a"]
    admin.send_message(receiver_id="worker-a", content="hello")
    assert contents(worker.read_messages()) == ["hello"]
    assert team.rings == [RUNG]
    assert (list(team), len(team), "admin" in team, team.session) == (["owner", "admin", "worker-a"], 3, True, "demo")
    assert team.path == tmp_path / ".multi-agent-mcp" / "demo"
    assert worker.id == "worker-a"
    team.close()


def test_agents_without_a_superior_get_one_by_their_role(tmp_path: Path) -> None:
    known: dict[str, str | None] = {}
    with Team.create(tmp_path, {"w": "worker", "a": "admin", "boss": "owner", "b": "admin"}) as team:
        known = {agent.id: agent.parent_id for agent in open_session(team.path.parent, "demo").agents.all().values()}
        types = {agent.id: agent.type for agent in open_session(team.path.parent, "demo").agents.all().values()}
    assert known == {"w": "a", "a": "boss", "boss": None, "b": "boss"}
    assert types == {"w": "ai", "a": "ai", "boss": "human", "b": "ai"}


def test_agents_and_settings_are_those_of_a_team_file(tmp_path: Path) -> None:
    agents: list[dict[str, Any]] = [
        {"id": "owner", "role": "owner"},
        {"id": "admin", "role": "admin", "type": "human"},
        {"id": "w", "parent": "owner", "host": "codex", "shift": ["early"]},
    ]
    with Team.create(tmp_path / "new" / "place", agents, session="ci", language="ja", done_when=["review"]) as team:
        services = open_session(team.path.parent, "ci")
        worker = services.agents.get("w")
        assert (worker.parent_id, worker.host, worker.extra["shift"]) == ("owner", "codex", ["early"])
        assert (services.agents.get("admin").type, services.agents.get("owner").type) == ("human", "ai")
        assert (services.session.settings.language, services.session.settings.done_when) == ("ja", ("review",))


@pytest.mark.parametrize(
    ("agents", "settings", "expected"),
    [
        ({"owner": "boss"}, {}, Refused),
        ({"o w": "owner"}, {}, Refused),
        ([{"role": "owner"}], {}, Refused),
        (["owner"], {}, Refused),
        ("owner", {}, ValueError),
        (None, {}, ValueError),
        ({}, {}, ValueError),
        (iter(()), {}, ValueError),
        ([{"id": "o", "role": "owner", "note": "\ud83d"}], {}, ValueError),
        ({"o": "owner"}, {"features": ["proof"]}, Refused),
        ([{"id": "w", "parent": "nobody"}], {}, Refused),
        ([{"id": "o", "role": "owner", "since": Path()}], {}, ValueError),
        ({"o": "owner"}, {"on_limit": "perhaps"}, Refused),
        ({"o": "owner"}, {"language": "xx"}, Refused),
        ({"o": "owner"}, {"nothing": 1}, ValueError),
        ({"o": "owner"}, {"checks": {"x": object()}}, ValueError),
        ({"o": "owner"}, {"session": "../x"}, Refused),
    ],
)
def test_bad_agents_and_settings_are_refused_and_leave_nothing(
    tmp_path: Path, agents: Any, settings: dict[str, Any], expected: type[Exception]
) -> None:
    with pytest.raises(expected):
        Team.create(tmp_path / "new", agents, **settings)
    assert list(tmp_path.iterdir()) == []


def test_a_session_is_made_once_however_many_try(tmp_path: Path) -> None:
    def make(_: int) -> Team | None:
        try:
            return Team.create(tmp_path, AGENTS, language="en")
        except FileExistsError:
            return None

    with ThreadPoolExecutor(4) as pool:
        made = [team for team in pool.map(make, range(4)) if team is not None]
    assert len(made) == 1
    with pytest.raises(FileExistsError), Team.create(tmp_path, {"o": "owner"}):
        pass
    with pytest.raises(Refused, match="differs from"), Team.create(tmp_path, {"o": "owner"}, session="Demo"):
        pass
    assert list(made[0]) == list(AGENTS)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.parent in (tmp_path, made[0].path.parent)) == [
        ".gitignore",
        ".multi-agent-mcp",
        "demo",
    ]
    made[0].close()


def test_a_refusal_has_its_code_sentence_and_answer(team: Team) -> None:
    with pytest.raises(Refused) as refused:
        team["worker-a"].send_task(agent_id="admin", title="x", content="y")
    error = refused.value
    assert (error.code, error.answer["error"], error.answer["success"]) == ("unauthorized", "unauthorized", False)
    assert str(error) == f"unauthorized: {error.message}"
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own, as workers of pytest-xdist send it
    assert (copied.code, copied.message, copied.answer) == (error.code, error.message, error.answer)


def test_arguments_are_checked_as_those_of_every_call(team: Team) -> None:
    admin = team["admin"]
    admin.send_message("by position", "worker-a", subject="both")
    for wrong in ({"receiver_id": "worker-a"}, {"content": "x", "colour": "red"}, {"content": 1}):
        with pytest.raises(Refused, match="invalid_arguments"):
            admin.send_message(**wrong)
    with pytest.raises(TypeError, match="multiple values for argument 'content'"):
        admin.send_message("x", content="x")  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"^read_messages\(\) got too many positional arguments"):
        admin.read_messages(*("x" for _ in range(20)))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^send_message\(\) got bytes for argument 'content'"):
        admin.send_message(b"x", "worker-a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^create_tasks_batch\(\) got bytes for argument 'tasks'"):
        admin.create_tasks_batch([{"title": b"x"}])
    with pytest.raises(AttributeError, match="no attribute 'sing'"):
        admin.sing()  # type: ignore[attr-defined]
    assert contents(team["worker-a"].read_messages()) == ["by position"]


def test_an_interrupt_is_raised_until_it_is_read(team: Team) -> None:
    admin, worker = team["admin"], team["worker-a"]
    task = admin.create_tasks_batch(tasks=[{"title": "A", "description": "d", "assignee_id": "worker-a"}])["tasks"][0]
    assert worker.get_next_action()["action"] == "work"
    admin.update_task_status(task["task_id"], "blocked", blocked_reason="stop")
    for _ in range(2):
        with pytest.raises(Interrupted) as interrupted:
            worker.get_my_tasks()
        assert not interrupted.value.executed
        assert "get_notifications" in interrupted.value.text == str(interrupted.value)
    assert worker.logout()["success"]  # exempt, as from every host
    assert pickle.loads(pickle.dumps(interrupted.value)).text == interrupted.value.text  # noqa: S301 - our own
    assert worker.get_notifications()["notifications"][0]["task_id"] == task["task_id"]
    assert worker.report_completed(result="blocked")["status"] == "blocked"


def test_the_chat_session_has_the_tools_of_chat_sessions(team: Team) -> None:
    worker = team["worker-a"]
    with pytest.raises(Refused, match="wrong_session_purpose"):
        worker.get_pending_delegations()
    assert worker.chat.get_pending_delegations()["delegations"] == []
    assert worker.chat is worker.chat.chat
    assert {session.purpose for session in sessions(team)} == {"task", "chat"}
    assert worker.chat.logout()["success"]


def test_an_agent_has_a_method_for_each_tool(team: Team) -> None:
    worker = team["worker-a"]
    names = {name for name in dir(worker) if not name.startswith("_")} - {"id", "chat"}
    assert names == {tool.name for tool in TOOLS.values() if tool.roles} > {"send_message", "logout"}
    assert "authenticate" not in names
    assert "Send a message" in (inspect.getdoc(worker.send_message) or "")
    assert [*inspect.signature(worker.send_message).parameters][:2] == ["content", "receiver_id"]
    assert sessions(team) == []


def test_what_belongs_to_a_feature_that_is_off_is_no_method_and_no_argument(tmp_path: Path) -> None:
    with Team.create(tmp_path, AGENTS, features={"reservations": "off", "proof": "off"}) as team:
        assert not hasattr(team["worker-a"], "reserve_files")
        assert "done_when" not in inspect.signature(team["admin"].send_task).parameters


def test_two_teams_in_one_process_do_not_know_each_other(team: Team, tmp_path: Path) -> None:
    with Team.create(tmp_path, {"admin": "admin", "worker-a": "worker"}, session="other", language="en") as other:
        other["admin"].send_message(receiver_id="worker-a", content="of the other")
        team["admin"].send_message(receiver_id="worker-a", content="of the first")
        assert contents(other["worker-a"].read_messages()) == ["of the other"]
        assert contents(team["worker-a"].read_messages()) == ["of the first"]
        assert team.rings == other.rings == [RUNG]


def test_a_team_may_be_open_twice_and_a_message_is_read_once(team: Team, made: Path) -> None:
    with Team.open(made, doorbell=False) as again:
        team["admin"].send_message(receiver_id="worker-a", content="once")
        read = [opened["worker-a"].read_messages() for opened in (again, team)]
    assert [contents(answer) for answer in read] == [["once"], []]


def test_a_message_of_another_process_ends_waiting(team: Team) -> None:
    text = program("team['admin'].send_message(receiver_id='worker-a', content='from elsewhere')")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(team["worker-a"].get_next_action, timeout_seconds=60)
        wait_until(lambda: sessions(team), "the session of worker-a")
        assert ran(sys.executable, "-c", text, str(team.path)).stderr == ""
        assert waiting.result()["action"] == "read_messages"


def test_what_a_program_got_before_it_was_killed_does_not_come_again(team: Team) -> None:
    team["admin"].send_message(receiver_id="worker-a", content="hello")
    text = program(
        "print(team['worker-a'].read_messages()['count'], flush=True)", "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = ran(sys.executable, "-c", text, str(team.path))
    assert (done.stdout, done.returncode) == ("1\n", -signal.SIGKILL)
    assert contents(team["worker-a"].read_messages()) == []
    assert contents(team["worker-a"].read_messages(unread_only=False)) == ["hello"]


@pytest.mark.parametrize("moment", ["lease", "handed_over", "_put_away", "over"])
def test_what_an_interrupted_call_took_is_unread_again(team: Team, moment: str) -> None:
    """Ctrl-C when the call leases what it reads, hands it over, archives it, or has just done all that."""
    team["admin"].send_message(receiver_id="worker-a", content="hello")
    worker = team["worker-a"]
    worker.get_unread_count()

    def stop(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        over = (event, code.co_name, Path(code.co_filename).parent.name) == ("return", "run", "toolkit")
        if over if moment == "over" else (event, code.co_name) == ("call", moment):
            sys.setprofile(None)
            this = worker._unanswered[-1]  # soon the next call's is the last
            os.kill(os.getpid(), signal.SIGINT)
            wait_until(lambda: this.is_cancelled, "the interrupt")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a background job of a shell
    threading.setprofile(stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            worker.read_messages()
    finally:
        threading.setprofile(None)
        signal.signal(signal.SIGINT, before)
    assert contents(worker.read_messages()) == ["hello"]
    assert contents(worker.read_messages()) == []


def test_what_a_killed_program_left_is_removed_and_nothing_else_is(tmp_path: Path) -> None:
    names = [f".multi-agent-mcp.{name}" for name in ("unfinished-12345678", "unfinished-87654321", "old_copy")]
    for name in names:
        (tmp_path / name / "demo" / "secrets").mkdir(parents=True)
    alive = os.open(tmp_path / names[1], os.O_RDONLY)
    fcntl.flock(alive, fcntl.LOCK_EX)  # as its maker does
    Team.create(tmp_path, AGENTS).close()
    os.close(alive)
    assert {path.name for path in tmp_path.iterdir()} == {".multi-agent-mcp", *names[1:]}


def test_methods_work_in_threads_and_in_a_running_event_loop(team: Team) -> None:
    async def sent(name: str) -> None:
        for number in range(4):
            team["admin"].send_message(receiver_id="worker-a", content=f"{name} {number}")
            await asyncio.to_thread(team["admin"].send_message, receiver_id="worker-a", content=f"{name}' {number}")

    async def together() -> None:
        await asyncio.gather(*map(sent, "abc"))

    asyncio.run(together())
    with ThreadPoolExecutor(4) as pool:
        read = [pool.submit(team["worker-a"].read_messages, limit=5) for _ in range(8)]
    got = [content for answer in read for content in contents(answer.result())]
    assert sorted(got) == sorted(
        f"{name}{mark} {number}" for name in "abc" for mark in ("", "'") for number in range(4)
    )
    assert len(sessions(team)) == 2


def test_closing_ends_sessions_threads_and_waiting_calls(team: Team) -> None:
    before = set(threading.enumerate())
    worker, admin = team["worker-a"], team["admin"]
    admin.get_unread_count()
    admin.chat.get_next_action()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(worker.get_next_action, timeout_seconds=60)
        wait_until(lambda: len(sessions(team)) == 3, "the session of worker-a")
        team.close()
        assert waiting.result()["action"] == "wait"
    team.close()
    assert {session.state for session in sessions(team)} == {"ended"}
    assert set(threading.enumerate()) - before == set()
    for use in (worker.get_next_action, admin.chat.get_next_action, lambda: team["admin"], team.__enter__):
        with pytest.raises(ValueError, match="the team demo is closed"):
            use()


def test_a_program_ends_although_another_thread_waits_in_a_call(team: Team) -> None:
    text = program(
        "import threading",
        "def work():",
        "    while True:",
        "        print(team['worker-a'].get_next_action(timeout_seconds=600)['action'], flush=True)",
        "threading.Thread(target=work).start()",
        "while not team['worker-a']._unanswered: pass",
    )
    done = ran(sys.executable, "-c", text, str(team.path))
    assert (done.stdout, "the program ends" in done.stderr) == ("wait\n", True), done.stderr
    assert [session.state for session in sessions(team)] == ["ended"]


def test_a_program_ends_although_an_executor_that_nobody_shuts_down_waits_in_a_call(team: Team) -> None:
    text = program(
        "from concurrent.futures import ThreadPoolExecutor",
        "def work():",
        "    while True:",
        "        print(team['worker-a'].get_next_action(timeout_seconds=600)['action'], flush=True)",
        "executor = ThreadPoolExecutor(1)",
        "begun, queued = executor.submit(work), executor.submit(work)",
        "while not team['worker-a']._unanswered: pass",
    )
    done = ran(sys.executable, "-c", text, str(team.path))
    assert set(done.stdout.split()) == {"wait"}, done.stderr
    assert [session.state for session in sessions(team)] == ["ended"]


def test_a_program_that_ends_without_closing_ends_its_sessions(team: Team) -> None:
    done = ran(sys.executable, "-c", program("team['admin'].get_unread_count()"), str(team.path))
    assert done.stderr == ""
    assert [session.state for session in sessions(team)] == ["ended"]


def test_a_fork_can_neither_use_nor_end_what_its_parent_has_open(team: Team) -> None:
    text = program(
        "admin = team['admin']",
        "admin.get_unread_count()",
        "if os.fork() == 0:",
        "    try: admin.get_unread_count()",
        "    except ValueError as error: print(error, flush=True)",
        "    team.close()",
        "    with Team.open(sys.argv[1], doorbell=False) as own: own['worker-a'].send_message('forked', 'admin')",
        "    sys.exit()",
        "os.wait()",
        "print(admin.read_messages()['messages'][0]['content'], flush=True)",
    )
    done = ran(sys.executable, "-c", text, str(team.path))
    assert "opened by another process" in done.stdout
    assert done.stdout.endswith("forked\n"), done.stderr
    assert {session.state for session in sessions(team)} == {"ended"}


def test_an_agent_that_was_removed_is_refused_and_gone_from_the_team(team: Team, made: Path) -> None:
    worker, other = team["worker-a"], team["worker-b"]
    worker.get_unread_count()
    agents = open_session(team.path.parent, "demo").agents
    agents.remove("worker-a")
    agents.remove("worker-b")
    assert list(team) == ["owner", "admin"]
    for agent in (worker, other):
        with pytest.raises(Refused, match="agent_not_found"):
            agent.get_unread_count()
    with pytest.raises(KeyError):
        team["worker-a"]


def test_an_agent_whose_key_was_replaced_acts_again_once_it_is_asked_for_again(team: Team) -> None:
    worker = team["worker-a"]
    worker.get_unread_count()
    (team.path / "secrets" / "worker-a.key").unlink()
    open_session(team.path.parent, "demo").agents.renew_key("worker-a")
    for _ in range(2):
        with pytest.raises(Refused, match="invalid_session"):
            worker.send_message("with the old key", "admin")
    wait_until(lambda: sessions(team)[0].state == "ended", "the end of the session with the old key")
    team["worker-a"].send_message("with the new key", "admin")
    assert [(m["content"], m.get("verified")) for m in team["admin"].read_messages()["messages"]] == [
        ("with the new key", None)
    ]


def test_a_session_that_was_removed_is_refused_and_not_made_again(team: Team) -> None:
    admin = team["admin"]
    admin.get_unread_count()
    shutil.rmtree(team.path)
    uses: list[Callable[[], object]] = [lambda: admin.send_message("x", "worker-a"), lambda: team["worker-a"]]
    for use in uses:
        with pytest.raises((Refused, KeyError, OSError)):
            use()
    team.close()  # as at the end of a program whose temporary directory is gone
    assert not team.path.exists()


def test_a_session_is_found_as_the_commands_find_it(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, elsewhere = made / "src" / "deep", made.parent / "elsewhere"
    inside.mkdir(parents=True)
    elsewhere.mkdir()
    monkeypatch.chdir(inside)
    for found in (Team.open(), Team.open(inside), Team.open(str(made), "demo"), Team.open(made / ".multi-agent-mcp")):
        assert found.path == made / ".multi-agent-mcp" / "demo"
        found.close()
    for directory, session in ((elsewhere, None), (made, "other")):
        with pytest.raises(FileNotFoundError, match=r"[Ss]ession") as missing:
            Team.open(directory, session)
        assert missing.value.filename == str(directory / ".multi-agent-mcp")
    Team.create(made, {"o": "owner"}, session="other").close()
    with pytest.raises(Refused, match="demo, other"):
        Team.open(made)
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("MULTI_AGENT_MCP_ROOT", str(made / ".multi-agent-mcp"))
    monkeypatch.setenv("MULTI_AGENT_MCP_SESSION", "other")
    with Team.open() as found:
        assert found.session == "other"
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_is_open_is_neither_copied_nor_sent_to_another_process(
    team: Team, copied: Callable[[object], object]
) -> None:
    for each in (team, team["admin"], team["admin"].chat):
        with pytest.raises(TypeError, match=r"^cannot copy or pickle <.+>: open the team again"):
            copied(each)


def test_a_star_brings_the_stable_names(team: Team) -> None:
    found: dict[str, object] = {}
    exec("from multi_agent_mcp import *", found)  # noqa: S102 - the statement itself
    assert found.keys() - {"__builtins__"} == {"Interrupted", "Refused", "Team", "__version__"}


def test_ids_can_be_iterated_and_an_unknown_one_is_a_key_error(team: Team) -> None:
    with pytest.raises(KeyError, match="nobody"):
        team["nobody"]
    assert "nobody" not in team
    team["owner"].register_agent_to_ipc(agent_id="worker-c")
    assert [*team, len(team)] == [*AGENTS, "worker-c", 5]


def test_nothing_loads_until_it_is_used(team: Team) -> None:
    text = (
        "import sys; before = set(sys.modules); import multi_agent_mcp\n"
        "print(*(set(sys.modules) - before))\n"
        "from multi_agent_mcp import Team, Refused, Interrupted; print(*sys.modules)\n"
        "team = Team.open(sys.argv[1], doorbell=False); print(*sys.modules)\n"
        "team['admin'].send_message('hello', 'worker-a'); print(*sys.modules)"
    )
    package, names, opened, called = map(str.split, ran(sys.executable, "-c", text, str(team.path)).stdout.splitlines())
    assert package == ["multi_agent_mcp"]
    assert {name for name in names if name.startswith("multi_agent_mcp.")} == {
        *(f"multi_agent_mcp.{name}" for name in ("config", "environment", "errors", "texts")),
        *(f"multi_agent_mcp.toolkit{name}" for name in ("", ".team", ".agent", ".methods")),
    }
    heavy = {"mcp", "mcp_types", "pydantic", "asyncio", "watchdog", "libtmux", "nacl", "click", "starlette"}
    assert heavy & {*names, *opened} == set()
    assert {"libtmux", "multi_agent_mcp.doorbell.tmux", "uvicorn", "click"} & {*called} == set()
