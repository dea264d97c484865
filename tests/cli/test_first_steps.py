"""Output for new users: without arguments, with `help`, and before there is a session."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from multi_agent_mcp.cli import looking, next_step
from multi_agent_mcp.cli.up_down import summary
from multi_agent_mcp.services.questions import Asking
from multi_agent_mcp.services.team.setup import create_session
from multi_agent_mcp.windows.readiness import READY, AgentState
from multi_agent_mcp.wiring import Services
from tests.cli.conftest import Ask, Run
from tests.server.seat import Seat
from tests.team import TEAM

LOCALES = {"ja": "ja_JP.UTF-8", "en": "C.UTF-8"}


@pytest.fixture(params=LOCALES)
def language(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.setenv(name, LOCALES[request.param])
    return str(request.param)


def test_without_a_session_it_names_the_first_commands_in_the_language_of_the_locale(run: Run, language: str) -> None:
    shown = run()
    assert shown.exit_code == 0
    for command in ("multi-agent-mcp init ", "multi-agent-mcp up ", "multi-agent-mcp send admin"):
        assert command in shown.stdout
    assert ("セッションがありません" in shown.stdout) == (language == "ja")


@pytest.mark.parametrize("command", ["unread", "up", "doctor", "task list", "send admin hello"])
def test_what_needs_a_session_says_how_to_make_one(run: Run, language: str, command: str) -> None:
    refused = run(*command.split())
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "multi-agent-mcp init" in refused.stderr
    assert ("作成してください" in refused.stderr) == (language == "ja")


def test_who_is_not_registered_is_said_with_the_command_that_shows_who_is(run: Run, session: Path) -> None:
    refused = run("send", "nobody", "hello")
    assert refused.stderr.endswith("See multi-agent-mcp agent list.\n")


def test_with_a_session_it_tells_its_state_and_what_to_do_next(run: Run, ask: Ask) -> None:
    assert run().stdout.splitlines()[-1] == 'next: multi-agent-mcp send admin "…"'
    ask("agent", "set", "admin", "--command", "cat")
    ask("send", "owner", "Shall I?", "--as", "admin")
    task_id = ask("task", "add", "Dig", "--assignee", "worker-a")["task_id"]
    ask("task", "status", task_id, "blocked", "--reason", "no spade")
    *counted, head, blocked, _, last = run().stdout.splitlines()
    assert counted == ["demo: 3 agents; running: -", "unread: owner 1", "tasks: blocked 1", ""]
    assert head.split() == ["for", "agent", "what", "says", "command"]
    assert blocked.split(maxsplit=3)[1:3] == ["worker-a", "blocked"]
    assert blocked.endswith(f"“no spade” (task “Dig”)  multi-agent-mcp task show {task_id}")
    assert last == "next: multi-agent-mcp read"
    ask("read")
    assert run().stdout.splitlines()[-1] == "next: multi-agent-mcp up"


def test_reading_an_empty_mailbox_leads_on(run: Run, session: Path, ask: Ask) -> None:
    assert run("read").stdout.splitlines() == [
        "messages: 0; still unread: 0",
        'next: multi-agent-mcp send admin "…"',
    ]
    assert run("read", "admin").stdout.splitlines() == ["messages: 0; still unread: 0"], (
        "it is not the Owner's next step"
    )
    assert "next" not in ask("read")


def test_the_first_message_says_where_the_answer_comes(run: Run, session: Path, ask: Ask) -> None:
    assert "multi-agent-mcp read" in run("send", "admin", "Build it.").stdout.splitlines()[-1]
    assert "multi-agent-mcp read" not in run("send", "worker-a", "Build it.", "--as", "admin").stdout
    ask("send", "owner", "Done.", "--as", "admin")
    assert "multi-agent-mcp read" not in run("send", "admin", "Thanks.").stdout


def test_while_the_team_works_the_next_command_shows_it(services: Services, session: Path, run: Run, ask: Ask) -> None:
    seat = services.sessions.open("worker-a")
    task_id = ask("task", "add", "Dig", "--assignee", "worker-a")["task_id"]
    assert run("read").stdout.splitlines()[-1] == "next: multi-agent-mcp watch"
    ask("task", "status", task_id, "cancelled")
    assert run("read").stdout.splitlines()[-1] == 'next: multi-agent-mcp send worker-a "…"'
    del seat


def test_who_is_kept_from_work_is_said_and_nobody_who_is_is_offered_work(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MULTI_AGENT_MCP_ROOT", str(services.root))
    agents, seats = services.agents, [services.sessions.open(name) for name in ("admin", "worker-a", "worker-b")]
    services.interrupting.interrupt(agents.owner(), "admin", "pause", None, "wait for the specification")
    Seat(services, "admin").call("get_notifications")
    services.questions.ask(agents.get("worker-a"), Asking(question="Which colour?", to_id="owner"), None)

    def said() -> str:
        seen = services.snapshots.take(messages=0)
        return "\n".join(looking.lines(seen, services.attention.of(agents.owner()), services.people))

    (question,) = services.questions.of_person("owner")
    asked = said()
    assert "running: admin (paused), worker-a, worker-b\n" in asked
    assert f"next: multi-agent-mcp answer {question.id}" in asked
    assert "multi-agent-mcp resume admin" in asked
    services.questions.answer(agents.owner(), question.id, "blue")
    assert 'next: multi-agent-mcp send worker-a "…"' in said()
    del seats


def test_scripted_agents_are_given_a_task_which_is_all_they_answer(services: Services) -> None:
    services.agents.change("admin", command="{python} {examples}/agents/admin.py")
    windows = SimpleNamespace(services=services)
    ready = AgentState("admin", READY)
    startup = SimpleNamespace(only=(), states=[ready], attach_command=None, is_fine=True, windows=windows)
    wanted = 'multi-agent-mcp send-task admin "…" "…"'
    assert list(summary(startup, services.people))[-1] == f"next: {wanted}"  # type: ignore[arg-type]
    assert next_step.first_command(services.agents.get("worker-a")) == 'multi-agent-mcp send worker-a "…"'


def test_of_several_sessions_the_next_command_names_the_one_that_was_opened(services: Services) -> None:
    create_session(services.root, "second", TEAM, "en")
    windows = SimpleNamespace(services=services)
    ready = AgentState("admin", READY)
    startup = SimpleNamespace(only=(), states=[ready], attach_command=None, is_fine=True, windows=windows)
    said = list(summary(startup, services.people))[-1]  # type: ignore[arg-type]
    assert said == 'next: multi-agent-mcp send admin "…" --session demo'


def test_of_several_sessions_one_must_be_named(run: Run, session: Path) -> None:
    assert run("init", "--session", "other").exit_code == 0
    for arguments in ((), ("unread",)):
        refused = run(*arguments)
        assert refused.exit_code == 1
        assert "--session" in refused.stderr
        assert "demo, other" in refused.stderr


def test_help_explains_a_command_and_refuses_an_unknown_one(run: Run) -> None:
    assert run("help", "task", "add").stdout == run("task", "add", "--help").stdout
    assert run("help").stdout == run("--help").stdout
    assert run("help", "nothing").exit_code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_a_shell(run: Run, shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    asked = run("--show-completion")
    assert asked.exit_code == 0
    assert "_MULTI_AGENT_MCP_COMPLETE" in asked.stdout
    assert run("--show-completion", shell).stdout == asked.stdout
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    for refused in (run("--show-completion", "tcsh"), run("--show-completion")):
        assert (refused.exit_code, "'tcsh'" in refused.stderr) == (2, True)
