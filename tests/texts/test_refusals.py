"""Every refusal, provoked by each interface that can produce it, and its text in both languages."""

from __future__ import annotations

import ast
import json
import re
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from multi_agent_mcp import errors
from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.cli.for_hosts import serve
from multi_agent_mcp.cli.main import app, run
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.hub.share_directory import socket_path
from multi_agent_mcp.services.questions import Asking
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.team.setup import TeamFile, add_missing, create_session
from multi_agent_mcp.texts import CONSOLE, LANGUAGES, PEOPLE, catalogue
from multi_agent_mcp.wiring import Services
from tests.server.seat import Seat
from tests.services.support import by_hand
from tests.test_layers import modules
from tests.texts.wording import JAPANESE, faults

Said = tuple[str, str]
"""A refusal's code and its sentence."""
NOBODY = "tsk_0123456789ab"


@dataclass
class Stage:
    """A session in one language, and the doors to it."""

    services: Services
    language: str
    _seats: dict[tuple[str | None, str], Seat] = field(default_factory=dict)

    def call(self, agent_id: str | None, tool: str, /, **arguments: Any) -> Said:
        """A tool call of a task session that must be refused."""
        return self._refused(agent_id, "task", tool, arguments)

    def chat(self, agent_id: str, tool: str, /, **arguments: Any) -> Said:
        return self._refused(agent_id, "chat", tool, arguments)

    def _refused(self, agent_id: str | None, purpose: str, tool: str, arguments: dict[str, Any]) -> Said:
        key = (agent_id, purpose)
        if key not in self._seats:
            self._seats[key] = Seat(self.services, agent_id, purpose=purpose)
        answer = self._seats[key].call(tool, **arguments)
        assert answer.get("success") is False, (tool, arguments, answer)
        return answer["error"], answer["message"]

    def command(self, *arguments: str, session: bool = True) -> Said:
        """A command that must be refused; it finds the session as whoever works beside it does."""
        where = ("--root", str(self.services.root)) if session else ()
        done = CliRunner().invoke(app, [*arguments, *where])
        assert done.exit_code != 0, (arguments, done.output)
        found = re.fullmatch(r"multi-agent-mcp: (\w+): (.*)\n", done.stderr)
        assert found is not None, (arguments, done.output, done.exception)
        return found[1], found[2]

    def task(self, assignee_id: str | None = "worker-a", **fields: Any) -> str:
        new = NewTask(title="x", assignee_id=assignee_id, **fields)
        return self.services.task_creation.create(self.agent("admin"), [new])[0].id

    def reviewed(self, reviewer_id: str) -> str:
        """A task of worker-a that waits for this agent's review."""
        task_id, worker = self.task(done_when=[f"review:{reviewer_id}"]), self.agent("worker-a")
        self.services.task_changes.set_status(worker, task_id, "in_progress")
        deliveries = self.services.deliveries
        return deliveries.conclude(deliveries.deliver(worker, task_id, "all of it")).task.id

    def conversation(self) -> str:
        found, _ = self.services.conversations.begin(self.agent("worker-a"), self.agent("worker-b"), "hello")
        return found.id

    def agent(self, agent_id: str) -> Agent:
        return self.services.agents.get(agent_id)


@pytest.fixture(params=LANGUAGES)
def stage(request: pytest.FixtureRequest, services: Services, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stage:
    language = request.param
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LC_ALL", raising=False)
    monkeypatch.setenv("LC_MESSAGES", "")
    monkeypatch.setenv("LANG", {"ja": "ja_JP.UTF-8", "en": "C.UTF-8"}[language])
    settings = services.path / "session.yaml"
    settings.write_text(settings.read_text().replace("language: en", f"language: {language}"))
    opened = open_session(services.root, "demo", clock=services.clock, notifier=services.notifier)
    return Stage(opened, language)


def a_stranger(stage: Stage) -> Said:
    """An agent of another session under the same root asks for something."""
    team = TeamFile((Agent(id="owner", role="owner"), Agent(id="stranger", parent_id="owner")))
    create_session(stage.services.root, "other", team, None)
    add_missing(open_session(stage.services.root, "other").agents, team)
    return stage.chat("worker-a", "start_task_from_chat", task_id=stage.task(), requester_id="stranger")


def an_ended_conversation(stage: Stage) -> Said:
    found = stage.conversation()
    stage.services.conversations.end(stage.agent("worker-a"), found, None)
    return stage.call("worker-a", "send_message", content="x", conversation_id=found)


def a_question(stage: Stage, **fields: Any) -> str:
    asking = Asking(question="x", **fields)
    return stage.services.questions.ask(stage.agent("worker-a"), asking, None).id


def a_question_taken_back(stage: Stage) -> Said:
    question_id = a_question(stage)
    stage.services.questions.withdraw(stage.agent("worker-a"), question_id)
    return stage.call("admin", "answer_question", question_id=question_id, answer="x")


def a_waiting_owner(stage: Stage) -> Said:
    stage.services.task_creation.send(stage.agent("owner"), "admin", "x", "y")
    return stage.call("owner", "list_agents")


def an_impatient_owner(stage: Stage) -> Said:
    stage.services.task_creation.send(stage.agent("owner"), "admin", "x", "y")
    Seat(stage.services, "owner").call("read_messages")
    return stage.call("owner", "read_messages")


def a_file_in_the_way(stage: Stage) -> Said:
    (stage.services.path / "conversations").write_text("")
    return stage.chat("worker-a", "start_conversation", target_agent_id="worker-b", initial_message="x")


def work_that_is_not_committed(stage: Stage) -> Said:
    project = stage.services.root.parent
    for call in (["init"], ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", "-C", project, *call], check=True, capture_output=True)
    worktree = stage.services.worktrees.add(stage.agent("worker-a"))
    Path(worktree.path, "new.txt").write_text("x")
    task_id = stage.task(done_when=["review"])
    stage.services.task_changes.set_status(stage.agent("worker-a"), task_id, "in_progress")
    return stage.call("worker-a", "update_task_status", task_id=task_id, status="done")


def a_reserved_file(stage: Stage) -> Said:
    settings = stage.services.workspace.settings_path
    settings.write_text(settings.read_text() + "reservations: enforce\n")
    Seat(stage.services, "worker-a").call("reserve_files", paths=["src/"])
    return stage.command("reserve", "src/app.py", "--as", "worker-b")


def a_root_for_everybody(stage: Stage) -> Said:
    stage.services.root.chmod(0o777)
    return stage.command("unread")


def shared(stage: Stage) -> Path:
    """Makes the session one of several machines, without a running relay."""
    share = stage.services.path / ".share"
    share.mkdir()
    (share / "machine.json").write_text(json.dumps({"uuid": "0" * 32, "machine": "desk", "urls": []}))
    return share


def a_hub_that_others_need(stage: Stage) -> Said:
    share = shared(stage)
    (share / "hub").mkdir()
    (share / "hub" / "users.json").write_text(json.dumps({"machines": {"desk": "U", "laptop": "U"}, "tokens": {}}))
    (share / "machine.json").write_text(json.dumps({"uuid": "0" * 32, "machine": "desk", "urls": [], "serves": True}))
    return stage.command("leave")


def a_hub_away(stage: Stage) -> Said:
    shared(stage)
    return stage.command("task", "add", "x")


def a_silent_tmux(stage: Stage) -> Said:
    """A socket on which nobody answers, as that of a tmux server that was stopped."""
    with tempfile.TemporaryDirectory() as short:
        path = f"{short}/s"
        with socket.create_server(path, family=socket.AF_UNIX):
            return stage.command("agent", "set", "worker-a", "--pane", "%1", "--socket", path)


def an_older_hub(stage: Stage) -> Said:
    with socket_path(shared(stage)) as path, socket.create_server(path, family=socket.AF_UNIX) as relay:

        def refuse() -> None:
            connection, _ = relay.accept()
            with connection, connection.makefile("rwb") as stream:
                stream.readline()
                stream.write(b'{"refused": "hub_replaced", "key": "hub_replaced"}\n')

        thread = threading.Thread(target=refuse)
        thread.start()
        said = stage.command("task", "add", "x")
        thread.join()
    return said


PROVOKED: dict[type[Refusal], Callable[[Stage], Said]] = {
    errors.InvalidId: lambda at: at.call("worker-a", "get_unread_count", agent_id="../x"),
    errors.InvalidArguments: lambda at: at.call("worker-a", "send_message", content="x", receiver_id="worker-a"),
    errors.InvalidSession: lambda at: at.call(None, "get_unread_count"),
    errors.Unauthorized: lambda at: at.call("worker-a", "get_dashboard"),
    errors.WrongSessionPurpose: lambda at: at.call("worker-a", "get_pending_delegations"),
    errors.AgentNotFound: lambda at: at.call("worker-a", "send_message", content="x", receiver_id="ghost"),
    errors.AgentNotAssignedToProject: a_stranger,
    errors.TaskNotFound: lambda at: at.call("worker-a", "update_task_status", task_id=NOBODY, status="done"),
    errors.ConversationNotFound: lambda at: at.chat("worker-a", "end_conversation", conversation_id="cnv_0123456789ab"),
    errors.DelegationNotFound: lambda at: at.chat(
        "worker-a",
        "start_conversation",
        target_agent_id="worker-b",
        initial_message="x",
        delegation_id="dlg_0123456789ab",
    ),
    errors.ExecutionNotFound: lambda at: at.call("worker-a", "get_execution_log", execution_id="exec_0123456789ab"),
    errors.MessageNotFound: lambda at: at.call("worker-a", "get_message_status", message_id="nothing"),
    errors.QuestionNotFound: lambda at: at.call(
        "worker-a", "answer_question", question_id="qst_0123456789ab", answer="x"
    ),
    errors.QuestionClosed: a_question_taken_back,
    errors.ReservationNotFound: lambda at: at.command("release", "rsv_0123456789ab"),
    errors.Reserved: a_reserved_file,
    errors.InvalidStatusTransition: lambda at: at.call(
        "worker-a", "update_task_status", task_id=at.task(), status="done"
    ),
    errors.NotProven: lambda at: at.call(
        "admin", "update_task_status", task_id=at.task(done_when=["review"]), status="done"
    ),
    errors.NotCommitted: work_that_is_not_committed,
    errors.AlreadyExists: lambda at: at.command("agent", "add", "worker-a"),
    errors.HasSubordinates: lambda at: at.command("agent", "remove", "admin"),
    errors.NotParticipant: lambda at: at.call("admin", "get_conversation_messages", conversation_id=at.conversation()),
    errors.ConversationNotActive: an_ended_conversation,
    errors.OwnerWaiting: a_waiting_owner,
    errors.PollingBlocked: an_impatient_owner,
    errors.ContentTooLarge: lambda at: at.call("admin", "send_message", content="x" * 2**21, receiver_id="owner"),
    errors.NotAnswered: lambda at: at.command("answer", "worker-a", "1", "--question", "x"),
    errors.StorageError: a_file_in_the_way,
    errors.TmuxTimeout: a_silent_tmux,
    errors.HubUnreachable: a_hub_away,
    errors.HubReplaced: an_older_hub,
    errors.UntrustedSession: a_root_for_everybody,
    errors.NoSuchSession: lambda at: at.command("unread", "--session", "nowhere"),
}


def refused_tools(at: Stage) -> Iterator[Said]:
    """Arguments, permissions and states that tools refuse."""
    mine, nobodys, conversation = at.task(), at.task(None), at.conversation()
    waiting = at.task("worker-b", dependencies=[mine])
    wrong: dict[str, Any]
    for wrong in (
        {"limit": "many"}, {"limit": 0}, {"limit": 1.5}, {"limit": 10**9}, {"unread_only": []}, {"offset": "x"},
        {"message_type": "letter"}, {"message_id": 1}, {"nonsense": 1, "limit": []}, {"message_id": "\ud800"},
    ):  # fmt: skip
        yield at.call("worker-a", "read_messages", **wrong)
    for wrong in ({}, {"content": "x", "metadata": "none"}, {"content": "x", "receiver_id": "worker-b", "priority": 7}):
        yield at.call("worker-a", "send_message", **wrong)
    nested: list[Any] = []
    for _ in range(40):
        nested = [nested]
    for metadata in ({"deep": nested}, {"infinite": float("inf")}, {"long": "x" * 9_000}):
        yield at.call("worker-a", "send_message", content="x", receiver_id="worker-b", metadata=metadata)
    for wrong in (
        {"question": " "}, {"question": "x" * 5_000}, {"choices": ["a", "a"]}, {"choices": ["a\nb"]}, {"default": "a"},
        {"deadline_minutes": -1}, {"park": True},
    ):  # fmt: skip
        yield at.call("worker-b", "ask", **{"question": "x", **wrong})
    yield at.call("owner", "ask", question="x")
    asked = a_question(at, choices=("a", "b"))
    yield at.call("admin", "answer_question", question_id=asked, answer="c")
    yield at.call("admin", "answer_question", question_id=asked, answer="a", withdraw=True)
    yield at.call("admin", "answer_question", question_id=asked, withdraw=True)
    yield at.call("worker-b", "answer_question", question_id=asked, answer="a")
    yield at.call("worker-a", "get_next_action", timeout_seconds="soon")
    yield at.call("worker-a", "get_next_action", timeout_seconds=float("nan"))
    yield at.call("worker-a", "report_task_progress", task_id=mine, checklist=["x"])
    yield at.call("worker-a", "report_task_progress", task_id=mine, checklist="x")
    yield at.call("worker-b", "report_task_progress", task_id=mine)
    yield at.call("worker-a", "report_completed", result="success")
    yield at.call("worker-b", "update_task_status", task_id=mine, status="blocked")
    yield at.call("worker-b", "update_task_status", task_id=waiting, status="in_progress")
    yield at.call("admin", "update_task_status", task_id=nobodys, status="in_progress")
    at.services.task_changes.set_status(at.agent("admin"), nobodys, "todo")
    yield at.call("admin", "update_task_status", task_id=nobodys, status="in_progress")
    yield at.call("worker-b", "get_task_conversations", task_id=mine)
    yield at.call("worker-b", "get_unread_count", agent_id="worker-a")
    yield at.call("worker-a", "get_unread_count", session_token="wrong")
    yield at.call("worker-a", "get_execution_log", execution_id="nothing")
    yield at.call("admin", "create_tasks_batch", tasks=[])
    yield at.call("admin", "create_tasks_batch", tasks=[{"title": ""}])
    yield at.call(
        "admin", "create_tasks_batch", tasks=[{"title": "x", "local_id": "a"}, {"title": "y", "local_id": "a"}]
    )
    yield at.call("admin", "create_tasks_batch", tasks=[{"title": "x", "dependencies": [NOBODY]}])
    yield at.call("admin", "create_tasks_batch", tasks=[{"title": "x", "local_id": "a", "dependencies": ["a"]}])
    for condition in ("lint", "review:..", "review:worker-b", "review:ghost", "review:admin"):
        yield at.call(
            "owner", "create_tasks_batch", tasks=[{"title": "x", "assignee_id": "admin", "done_when": [condition]}]
        )
    yield at.call("admin", "approve_task_request", task_id=at.reviewed("owner"), approve=True)
    yield at.call("worker-a", "reserve_files", paths=[])
    yield at.call("worker-a", "reserve_files", paths=["../x"])
    yield at.call("worker-a", "reserve_files", paths=["x"], minutes=-1)
    yield at.call("worker-a", "reserve_files", paths=["x"], reason="x" * 501)
    reserved = at.services.reservations.reserve(at.agent("worker-b"), ["src/"])[0]
    yield at.call("worker-a", "release_files", reservation_id=reserved.id)
    yield at.call("admin", "assign_task", task_id=mine, assignee_id="owner")
    yield at.call("admin", "send_task", agent_id="admin", title="x", content="y")
    yield at.call("admin", "approve_task_request", task_id=mine, approve=True)
    yield at.call("admin", "register_agent_to_ipc", agent_id="boss", role="owner")
    yield at.call("admin", "register_agent_to_ipc", agent_id="WORKER-A")
    yield at.call("worker-a", "delegate_to_chat_session", target_agent_id="worker-b", purpose=" ")
    yield at.call("worker-a", "delegate_to_chat_session", target_agent_id="worker-b", purpose="x" * 9_999)
    yield at.call("worker-a", "delegate_to_chat_session", target_agent_id="worker-b", purpose="x", context="x" * 9_999)
    yield at.chat("worker-a", "notify_task_session", conversation_id=conversation, related_task_id=NOBODY)
    yield at.chat("worker-a", "update_task_from_chat", task_id=mine, requester_id="worker-b")
    yield at.chat("worker-a", "update_task_from_chat", task_id=mine, requester_id="admin")
    yield at.chat("worker-a", "update_task_from_chat", task_id=mine, requester_id="admin", blocked_reason="x")
    yield at.chat("worker-a", "start_task_from_chat", task_id=nobodys, requester_id="admin")
    yield at.chat("worker-a", "start_task_from_chat", task_id=waiting, requester_id="admin")
    yield at.call(None, "authenticate", agent_id="worker-a", passkey="wrong")


def refused_commands(at: Stage) -> Iterator[Said]:
    """Yields the refusals of the command line, with a session and before there is one."""
    yield at.command("unread", "--root", "nowhere", session=False)
    for arguments in (
        "unread --as ghost", "task list --assignee ghost", "agent set admin", "agent set admin --here",
        "agent set admin --pane %9 --socket /nowhere", "timeline --from yesterday",
        f"interrupt worker-a --task {at.task('worker-b')}", "conversations x", "search from:ghost",
        "supervise", "host learn admin", "host learn admin --submit ;", "trace nothing", "answer worker-a 1",
        f"timeline --svg {at.services.path}",
    ):  # fmt: skip
        yield at.command(*arguments.split())
    for text in (
        "", "- a", "agents: [x]", "agents: [{id: a b}]", "agents: [{id: a, role: king}]", "agents: []", "agents: [\n",
        "agents: [{id: a, type: dog}]", "agents: [{id: a}, {id: A}]", "agents: [{id: a, command: 2}]", "{: : x",
        "session: s\nagents: [{id: a}]\nlimits: 1", "session: s\nagents: [{id: a}]\nlimits: {content_bytes: -1}",
        "session: s\nlanguage: fr\nagents: [{id: a}]", "session: s\nagents: [{id: a}]\nreservations: maybe",
    ):  # fmt: skip
        Path("team.yaml").write_text(text)
        yield at.command("init", "--root", "new", session=False)
    for options in (("--demo",), ("--team", "gone.yaml"), ("--team", "new.yaml", "--demo", "--admin", "claude")):
        yield at.command("init", "--root", "new", *options, session=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "")
        yield at.command("init", "--root", "new", "--team", "new.yaml", "--name", "x", session=False)
    Path(".mcp.json").write_text("[1")
    yield at.command("host-config", "claude", "--agent", "admin", "--write", "--directory", ".")
    configurations = at.services.host_configurations
    configurations.write(configurations.of("claude", "admin", Path("shared")))
    yield at.command("host-config", "claude", "--agent", "worker-a", "--write", "--directory", "shared")
    yield a_hub_that_others_need(at)


def judged(said: Said, language: str) -> list[str]:
    code, sentence = said
    wrong = faults(sentence, language)
    if language == "ja" and not JAPANESE.search(sentence):
        wrong.append("nothing in it is Japanese")
    return [f"{code}: {sentence!r}: {fault}" for fault in wrong + ["two lines"] * ("\n" in sentence)]


def kinds() -> set[type[Refusal]]:
    found = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Refusal)}
    return found - {Refusal}


def test_every_kind_of_refusal_is_provoked() -> None:
    assert PROVOKED.keys() == kinds()


@pytest.mark.parametrize("kind", PROVOKED, ids=lambda kind: kind.__name__)
def test_every_refusal_is_one_sentence_in_the_language_of_the_session(stage: Stage, kind: type[Refusal]) -> None:
    code, sentence = PROVOKED[kind](stage)
    assert code == kind.code
    assert judged((code, sentence), stage.language) == []


@pytest.mark.parametrize("provoke", [refused_tools, refused_commands])
def test_every_reason_in_it_is_in_that_language_too(stage: Stage, provoke: Callable[[Stage], Iterator[Said]]) -> None:
    heard = list(provoke(stage))
    assert len(heard) > 25
    assert [fault for said in heard for fault in judged(said, stage.language)] == []


@pytest.mark.parametrize("arguments", [["--nonsense"], ["--agent"], ["--root", ""]])
def test_a_server_refuses_its_options_in_the_language_of_the_locale(
    stage: Stage, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        serve._options(arguments)
    said = capsys.readouterr().err.strip()
    assert judged(("", said.removeprefix("multi-agent-mcp: invalid_arguments: ")), stage.language) == []


def test_doctor_speaks_the_language_of_the_session(stage: Stage) -> None:
    services = stage.services
    by_hand(services, "worker-a", "broken.md", "---\n: : :\n\t[")
    by_hand(services, "worker-a", "strange.md", "---\nsender_id: admin\n---\n\nby hand\n")
    (services.path / "ipc" / "worker-b" / "link.md").symlink_to("/nowhere")
    (services.path / "delegations").write_text("")
    (services.path / "ipc" / "ghost").mkdir()
    (services.path / ".intents").mkdir(exist_ok=True)
    (services.path / ".intents" / "x.json").write_text("none")
    services.workspace.key_path("admin").unlink()
    services.agents.registry.update("worker-a", pane_id="%3", socket_path="/nowhere", host="nonsense")
    services.agents.registry.update("worker-b", parent_id="ghost")
    findings = services.doctor(lambda _: "unknown_host").examine(verify=True)
    assert len({finding.check for finding in findings}) >= 7
    assert [fault for item in findings for fault in faults(f"{item.finding}。{item.repair}", stage.language)] == []
    said = "".join(item.finding for item in findings)
    assert bool(JAPANESE.search(said)) is (stage.language == "ja")


def test_the_dashboard_speaks_the_language_of_the_session(stage: Stage) -> None:
    stage.task()
    stage.services.dashboard.write()
    page = stage.services.workspace.dashboard_path.read_text()
    assert faults(page, stage.language) == []
    assert bool(JAPANESE.search(page)) is (stage.language == "ja")


@pytest.mark.parametrize("part", [None, CONSOLE, PEOPLE])
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_is_in_its_language(language: str, part: str | None) -> None:
    texts = catalogue(language, part)
    plain = {key: re.sub(r"\{\w+\}", "x1", texts(key)) for key in sorted(texts.keys())}
    assert {key: wrong for key, words in plain.items() if (wrong := faults(words, language))} == {}


def reasons_given() -> Iterator[str]:
    """The key of every reason that the code gives."""
    for tree in modules().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args:
                first, name = node.args[0], ast.unparse(node.func).rpartition(".")[2]
                if name in {"Reason", "refused", "Unreadable", "Unmergeable", "Unlearnable"} and isinstance(
                    first, ast.Constant
                ):
                    yield f"why.{first.value!s}"


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_reason_that_is_given_has_its_words_and_no_words_are_left_over(language: str) -> None:
    told = {key for key in sorted(catalogue(language).keys()) if key.startswith("why.")}
    made = {key for key in told if key.startswith("why.argument.")} | {"why.separator"}
    assert told - made == set(reasons_given()) - made


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("send", "RECEIVER"),
        ("nothing", "nothing"),
        ("read --limit 0", "--limit 1"),
        ("watch --messages 5000", "--messages 0 1000"),
        ("prune --older-than x", "--older-than"),
        ("unread --nonsense", "--nonsense"),
        ("unread --jsn", "--json"),
        ("unread --json=yes", "--json"),
        ("send --type", "--type"),
        ("unread admin x y", "x y"),
        ("interrupt admin --action zap", "--action blocked cancel"),
        ("--show-completion tcsh", "tcsh zsh"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused_in_the_language_of_the_locale(
    stage: Stage, arguments: str, named: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["multi-agent-mcp", *arguments.split()])
    with pytest.raises(SystemExit) as ending:
        run()
    said = capsys.readouterr().err
    assert ending.value.code == 2
    assert [word for word in named.split() if word not in said] == []
    assert faults(said.replace(named, ""), stage.language) == []
    assert bool(JAPANESE.search(said)) is (stage.language == "ja")


@pytest.mark.parametrize(
    ("variables", "language"),
    [
        ({"LANG": "ja_JP.UTF-8"}, "ja"),
        ({"LANG": "ja_JP.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "C", "LC_ALL": "ja"}, "ja"),
        ({"LANG": "ja_JP.UTF-8", "LC_MESSAGES": "en_GB.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({}, "en"),
    ],
)
def test_before_a_session_is_known_the_locale_chooses(
    variables: dict[str, str], language: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(app, ["unread"]).stderr
    assert bool(JAPANESE.search(said)) is (language == "ja")


def test_a_read_that_is_refused_is_not_called_a_change(stage: Stage) -> None:
    task_id = stage.task()
    _, read = stage.call("worker-b", "get_task_conversations", task_id=task_id)
    _, written = stage.call("worker-b", "update_task_status", task_id=task_id, status="blocked")
    assert read != written
    assert "修正" not in read
    assert "change" not in read
