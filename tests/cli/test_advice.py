"""Advice helps: every text of the catalogue that names a command is brought about, its command is run as it is printed,
and what it was about is gone.

A new text that names a command fails `test_every_text_that_names_a_command_is_followed_somewhere` until it is in one of
the three lists: `PLAYED` (here, in this process), `ELSEWHERE` (it takes a tmux server, a hub or another user, so a test
beside those follows it), or `NO_ADVICE` (it says what a command does, and nothing is amiss).
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import string
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.cli.main import COMMANDS
from multi_agent_mcp.config import ROOT_NAME
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.services.attention import KINDS
from multi_agent_mcp.services.questions import Asking
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.texts import LANGUAGES, PEOPLE, Texts, catalogue
from multi_agent_mcp.wiring import Services
from tests.cli.conftest import TEAM, Run

PROGRAM = "multi-agent-mcp"
NAMES = [name for group in COMMANDS.values() for name in group]
NAMED = re.compile(rf"{PROGRAM} [a-z]|\{{command\}}|`(?:{'|'.join(NAMES)}|git|pip) [^`]*`")
HALF_NAMED = re.compile(
    rf"(?<!{PROGRAM} )(?<![`\w-])"
    r"(?:agent (?:add|set|list|move)\b|workspace (?:add|list|merge|remove)\b|task (?:list|show|approve|verify)\b"
    r"|host learn\b|host-config\b|(?:share|relay|init|doctor) --|(?:then|run|and) (?:init|up|down|restart)\b)"
)


def texts_of(language: str) -> Texts:
    return catalogue(language) | catalogue(language, PEOPLE)


def advising(language: str = "en") -> set[str]:
    texts = texts_of(language)
    return {key for key in sorted(texts.keys()) if NAMED.search(texts(key))}


def pattern(text: str) -> re.Pattern[str]:
    """What a text looks like when it is filled."""
    parts = (re.escape(words) + (".+?" if name is not None else "") for words, name, _, _ in _parsed(text))
    ends = r"[^\n]*" if text.rstrip().endswith("}") else ""  # a value at the end is whole
    return re.compile("".join(parts).replace("\\ ", r"\s+") + ends, re.DOTALL)


def _parsed(text: str) -> Iterator[tuple[str, str | None, Any, Any]]:
    return iter(string.Formatter().parse(text.rstrip()))


class Stage:
    """A project with a team.yaml, and the command line in it."""

    def __init__(self, run: Run, project: Path) -> None:
        self.run = run
        self.project = project

    @property
    def path(self) -> Path:
        return self.project / ROOT_NAME / "demo"

    @property
    def services(self) -> Services:
        return open_session(self.path.parent, "demo")

    def made(self, **agents: Any) -> None:
        """Makes the session, with further settings of its agents."""
        team = yaml.safe_load(TEAM)
        for agent in team["agents"]:
            agent |= agents.get(agent["id"].replace("-", "_"), {})
        (self.project / "team.yaml").write_text(yaml.safe_dump(team), encoding="utf-8")
        self.done("init")

    def done(self, *arguments: str) -> str:
        """What a command printed that has to succeed."""
        result = self.run(*arguments)
        assert result.exit_code == 0, (arguments, result.output)
        return str(result.output)

    def asked(self, *arguments: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.done(*arguments, "--json"))
        return answer

    def found(self, key: str, *arguments: str) -> str | None:
        """The text of this key in what the command prints."""
        match = pattern(texts_of("en")(key)).search(self.run(*arguments).output)
        return match and match[0]

    def says(self, key: str, *arguments: str) -> str:
        said = self.found(key, *arguments)
        assert said is not None, (key, self.run(*arguments).output)
        return said

    def follow(self, said: str, command: str, /, *more: str, **words: str) -> str:
        """Runs a command of what was said, with words in place of those that a person has to fill in, and `more`."""
        assert f"{PROGRAM} {command}" in " ".join(said.split()), (said, command)
        return self.done(*(words.get(word, word) for word in shlex.split(command)), *more)

    def helps(self, key: str, arguments: str, command: str, /, **words: str) -> None:
        """The command `arguments` says the text of this key; once its `command` was run, it does not any more."""
        asks = shlex.split(arguments)
        self.follow(self.says(key, *asks), command, **words)
        assert self.found(key, *asks) is None

    def git(self, *arguments: str, at: Path | None = None) -> None:
        named = ("-c", "user.name=T", "-c", "user.email=t@example.org")
        subprocess.run(["git", *named, *arguments], cwd=at or self.project, check=True, capture_output=True)

    def repository(self) -> None:
        self.git("init", "-q", "-b", "main")
        (self.project / "a.txt").write_text("one\n")
        self.git("add", "a.txt")
        self.git("commit", "-q", "-m", "first")


@pytest.fixture
def stage(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    for name, value in {
        "LC_ALL": "C.UTF-8",
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }.items():
        monkeypatch.setenv(name, value)
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("git", "sh", "cat"):  # and no tmux: nothing here may touch one
        (tools / tool).symlink_to(str(shutil.which(tool)))
    monkeypatch.setenv("PATH", str(tools))
    return Stage(run, tmp_path)


Play = Callable[[Stage], None]
PLAYED: dict[str, Play] = {}


def plays(*keys: str) -> Callable[[Play], Play]:
    def noted(play: Play) -> Play:
        PLAYED.update(dict.fromkeys(keys, play))
        return play

    return noted


# No session, or a damaged one


@plays("error.no_session_yet")
def nothing_there(stage: Stage) -> None:
    (stage.project / "team.yaml").write_text(TEAM)
    stage.helps("error.no_session_yet", "unread", "init")


@plays("status.first_steps")
def the_very_first(stage: Stage) -> None:
    (stage.project / "bin" / "claude").symlink_to("/bin/true")
    stage.helps("status.first_steps", "", "init")


@plays("error.no_such_session")
def another_name(stage: Stage) -> None:
    stage.made()
    stage.helps("error.no_such_session", "unread --session other", "init --session other")


@plays("error.no_settings")
def no_settings(stage: Stage) -> None:
    stage.made()
    stage.done("send", "admin", "hello")
    (stage.path / "session.yaml").unlink()
    for asks in ("", "unread --session demo"):
        assert stage.found("error.no_settings", *asks.split()) is not None
    stage.helps("error.no_settings", "unread", "init --session demo")
    assert "hello" in stage.done("read", "--as", "admin")


@plays("error.registry_lost")
def no_registry(stage: Stage) -> None:
    stage.made()
    stage.done("send", "admin", "hello")
    for name in ("agents.json", "agents.json.bak"):
        (stage.path / name).unlink()
    stage.helps("error.registry_lost", "unread", "init")
    assert "hello" in stage.done("read", "--as", "admin")


@plays("error.session_gone")
def removed_under_a_process(stage: Stage) -> None:
    stage.made()
    services = stage.services
    shutil.rmtree(stage.path.parent)
    with pytest.raises(Refusal) as refused:
        services.agents.registry.all()
    stage.follow(services.texts.sentence(refused.value), "init")
    assert "admin" in stage.services.agents.all()


@plays("error.missing_passkey")
def no_passkey(stage: Stage) -> None:
    stage.made()
    stage.services.agents.key_file("admin").unlink()
    with pytest.raises(Refusal) as refused:
        stage.services.agents.stored_key("admin")
    stage.follow(stage.services.texts.sentence(refused.value), "init")
    assert stage.services.agents.stored_key("admin")


@plays("error.untrusted_session")
def open_to_everybody(stage: Stage) -> None:
    stage.made()
    stage.project.chmod(0o755)
    stage.path.parent.chmod(0o777)
    said = stage.says("error.untrusted_session", "unread")
    stage.done(*after_program(said[said.index(f"{PROGRAM} doctor trust") :]))
    stage.done("unread")


# What `init` says


@plays("error.no_hosts")
def no_host_on_path(stage: Stage) -> None:
    stage.helps("error.no_hosts", "init", "init --demo")


@plays("error.team_exists")
def a_team_is_there(stage: Stage) -> None:
    stage.made()
    stage.follow(stage.says("error.team_exists", "init", "--demo"), "init")


@plays("init.team_written")
def a_new_team(stage: Stage) -> None:
    said = stage.says("init.team_written", "init", "--demo")
    (stage.project / "team.yaml").write_text(TEAM.replace("demo", "other"))
    stage.follow(said, "init")
    assert (stage.path.parent / "other" / "session.yaml").is_file()


@plays("init.left_out")
def one_that_is_not_in_the_team(stage: Stage) -> None:
    stage.made()
    stage.done("agent", "add", "guest", "--parent", "admin")
    stage.helps("init.left_out", "init", "agent remove ID", ID="guest")


@plays("init.kept_settable")
def one_that_was_set(stage: Stage) -> None:
    stage.made()
    stage.services.workspace.registry.update("admin", prompt="Read the plan.")
    assert "admin: kept as it was, although team.yaml differs: prompt (in agents.json)" in stage.done("init")
    stage.done("agent", "set", "worker-a", "--command", "cat", "--skills", "ui")
    said = stage.says("init.kept_settable", "init")
    assert "differs: command, skills (in agents.json; command, skills also by: " in said
    stage.follow(said, "agent set worker-a", "--command", "", "--skills", "")
    assert stage.found("init.kept_settable", "init") is None


@plays("init.instructions")
def instructions(stage: Stage) -> None:
    stage.made()
    stage.follow(stage.says("init.instructions", "init", "--agents-md"), "init --no-agents-md")
    assert not (stage.project / "AGENTS.md").exists()


@plays("init.first")
def a_host_that_reads_one_file_only(stage: Stage) -> None:
    (stage.project / "team.yaml").write_text(
        TEAM.replace("id: worker-a", 'id: worker-a, command: "gemini {mcp_config}"')
    )
    said = stage.says("init.first", "init")
    stage.done(*shlex.split(said.partition(f"{PROGRAM} ")[2]))
    assert stage.found("init.first", "init") is None


# What `doctor` says


@plays("repair.no_owner")
def nobody_owns_it(stage: Stage) -> None:
    stage.made()
    for name in ("worker-a", "admin", "owner"):
        stage.services.agents.remove(name)
    stage.helps("repair.no_owner", "doctor", "agent add ID --role owner", ID="boss")


@plays("repair.key_missing")
def a_key_that_is_gone(stage: Stage) -> None:
    stage.made()
    stage.services.agents.key_file("admin").unlink()
    stage.helps("repair.key_missing", "doctor", "init")


@plays("repair.key_refused")
def a_key_that_cannot_be_read(stage: Stage) -> None:
    stage.made()
    key = stage.services.agents.key_file("admin")
    key.rename(key.with_suffix(".old"))
    key.mkdir()
    said = stage.says("repair.key_refused", "doctor")
    key.rename(key.with_suffix(".away"))
    stage.follow(said, "init")
    assert stage.found("repair.key_refused", "doctor") is None


@plays("repair.other_key")
def a_key_that_is_another(stage: Stage) -> None:
    stage.made()
    key = stage.services.agents.key_file("admin")
    key.write_text("another\n")
    said = stage.says("repair.other_key", "doctor")
    key.unlink()
    stage.follow(said, "init")
    assert stage.found("repair.other_key", "doctor") is None


@plays("repair.no_profile")
def a_host_that_is_not_known(stage: Stage) -> None:
    """Whose description in hosts/ is gone."""
    stage.made(worker_a={"command": "frobnicator"})
    stage.services.agents.note("worker-a", host="frobnicator", host_by="person")
    stage.helps("repair.no_profile", "doctor", "agent set worker-a --host NAME", NAME="claude")


@plays("repair.no_pane_no_command", "repair.no_pane")
def no_pane(stage: Stage) -> None:
    """That `up` then opens one, tests/end_to_end/test_up.py shows."""
    stage.made(admin={"command": "cat"})
    stage.helps("repair.no_pane_no_command", "doctor", "agent set worker-a --command COMMAND", COMMAND="cat")
    assert f"{PROGRAM} up" in stage.says("repair.no_pane", "doctor")


@plays("task.waits", "repair.waits", "error.owner_waiting", "attention:wait")
def an_owner_who_waits(stage: Stage) -> None:
    stage.made()
    assert f"`{PROGRAM} wait end`" in stage.done("send-task", "admin", "Build", "it")
    assert stage.says("repair.waits", "doctor")
    (item,) = items(stage, "wait")
    refused = texts_of("en")("error.owner_waiting", admin_id="admin")
    assert f"{PROGRAM} read" in refused
    assert {f"{PROGRAM} wait end" in words for words in (item["command"], refused)} == {True}
    stage.follow(refused, "wait end")
    assert stage.found("repair.waits", "doctor") is None
    assert items(stage, "wait") == []


@plays("repair.question_of_nobody")
def a_question_of_nobody(stage: Stage) -> None:
    stage.made()
    question_id = asked(stage).id
    (path,) = stage.path.glob(f"questions/**/{question_id}.md")
    path.write_text(path.read_text().replace("asker_id: admin", "asker_id: ghost"))
    stage.helps("repair.question_of_nobody", "doctor", "agent add ghost")


@plays("repair.skills_of_nobody", "repair.waits_for_no_agent", "repair.waits_for_nobody_below")
def what_nobody_can_take(stage: Stage) -> None:
    stage.made()
    admin, new = stage.services.agents.get("admin"), NewTask(title="Build", needs=["go"])
    (task,) = stage.services.task_creation.create(admin, [new], None)
    stage.helps("repair.skills_of_nobody", "doctor", f"task assign {task.id} AGENT", AGENT="worker-a")
    stage.done("task", "status", task.id, "cancelled")
    stage.done("send", "@worker", "who has time?")
    stage.done("agent", "remove", "worker-a")
    stage.helps("repair.waits_for_no_agent", "doctor", "agent add ID --role worker", ID="worker-c")
    stage.done("agent", "add", "worker-d", "--parent", "admin")
    stage.done("send", "@any", "and who of you?", "--as", "admin")
    stage.done("agent", "remove", "worker-d")
    stage.helps("repair.waits_for_nobody_below", "doctor", "agent add ID --parent admin", ID="worker-e")


@plays("repair.task_of_nobody")
def tasks_of_nobody(stage: Stage) -> None:
    stage.made()
    for command in ("task assign {} AGENT", "task status {} cancelled"):
        services = stage.services
        admin, new = services.agents.get("admin"), NewTask(title="Build", assignee_id="worker-a")
        (task,) = services.task_creation.create(admin, [new], None)
        path = stage.path / "tasks" / "worker-a" / f"{task.id}.md"
        ghosts = stage.path / "tasks" / "ghost"
        ghosts.mkdir(exist_ok=True)
        path.replace(ghosts / path.name)
        text = (ghosts / path.name).read_text().replace("assignee_id: worker-a", "assignee_id: ghost")
        (ghosts / path.name).write_text(text)
        assert task.id in stage.done("attention")
        stage.helps("repair.task_of_nobody", "doctor", command.format(task.id), AGENT="worker-a")


@plays("repair.no_agent")
def a_mailbox_of_nobody(stage: Stage) -> None:
    stage.made()
    (stage.path / "ipc" / "ghost").mkdir()
    stage.helps("repair.no_agent", "doctor", "agent add ghost")


@plays("repair.telemetry_missing")
def telemetry_without_its_library(stage: Stage) -> None:
    stage.made()
    settings = stage.path / "session.yaml"
    before = settings.read_text()
    settings.write_text(f"{before}telemetry: {{file: spans.jsonl}}\n")
    if stage.found("repair.telemetry_missing", "doctor") is None:
        pytest.skip("OpenTelemetry is installed")
    settings.write_text(before)
    assert stage.found("repair.telemetry_missing", "doctor") is None


@plays("doctor.repairable", "attention:doctor")
def what_can_be_repaired(stage: Stage) -> None:
    stage.made()
    stage.services.agents.key_file("admin").chmod(0o644)
    (item,) = items(stage, "doctor")
    said = stage.says("doctor.repairable", *shlex.split(item["command"].removeprefix(f"{PROGRAM} ")))
    stage.follow(said, "doctor --repair")
    assert stage.found("doctor.repairable", "doctor") is None
    assert items(stage, "doctor") == []


# Worktrees


@plays("error.no_repository")
def no_repository(stage: Stage) -> None:
    stage.made()
    assert "`git init` there and commit" in stage.says("error.no_repository", "workspace", "add", "worker-a")
    stage.repository()
    stage.done("workspace", "add", "worker-a")


@plays("error.no_worktree", "workspace.none")
def no_worktree(stage: Stage) -> None:
    stage.repository()
    stage.made()
    assert "`workspace add AGENT`" in stage.says("workspace.none", "workspace", "list")
    stage.helps("error.no_worktree", "workspace remove worker-a", "workspace add worker-a")
    stage.done("workspace", "add", "worker-a")
    assert stage.found("workspace.none", "workspace", "list") is None


@plays("repair.worktree_gone")
def a_worktree_that_is_gone(stage: Stage) -> None:
    stage.repository()
    stage.made()
    shutil.rmtree(stage.asked("workspace", "add", "worker-a")["path"])
    stage.helps("repair.worktree_gone", "doctor", "workspace add worker-a")


@plays("attention:kept", "workspace.dirty", "workspace.unmerged")
def a_worktree_that_holds_work(stage: Stage) -> None:
    stage.repository()
    stage.made()
    made = stage.asked("workspace", "add", "worker-a")
    place = Path(made["path"])
    (place / "new.txt").write_text("new\n")
    stage.done("agent", "remove", "worker-a")
    (item,) = items(stage, "kept")
    assert stage.found("workspace.dirty", *after_program(item["command"])) is not None
    stage.git("add", "-A", at=place)
    stage.git("commit", "-q", "-m", "more", at=place)
    said = stage.says("workspace.unmerged", *after_program(item["command"]))
    command = said.partition("`git merge ")[2].partition("`")[0]
    assert command == made["branch"]
    stage.git("merge", "-q", command)
    stage.follow(said, "workspace remove worker-a")
    assert items(stage, "kept") == []
    assert (stage.project / "new.txt").read_text() == "new\n"


@plays("attention:uncommitted")
def a_task_that_was_done_without_its_files(stage: Stage) -> None:
    stage.repository()
    stage.made()
    place = Path(stage.asked("workspace", "add", "worker-a")["path"])
    task_id = stage.asked("task", "add", "Dig", "--assignee", "worker-a")["task_id"]
    (place / "new.txt").write_text("new\n")
    stage.done("task", "status", task_id, "in_progress")
    assert "new.txt" in stage.done("task", "status", task_id, "done")
    assert stage.asked("task", "list")["tasks"][0]["uncommitted"] == 1
    assert "1 file" in stage.done("task", "list")
    assert stage.services.dashboard.data()["tasks"][0]["uncommitted"] == 1
    stage.services.dashboard.write()
    assert "done (reported; 1 file not committed)" in stage.services.workspace.dashboard_path.read_text()
    (item,) = items(stage, "uncommitted")
    assert (item["id"], "new.txt" in item["text"]) == (task_id, True)
    stage.done(*after_program(item["command"]))
    stage.git("add", "-A", at=place)
    stage.git("commit", "-q", "-m", "more", at=place)
    assert items(stage, "uncommitted") == []


@plays("workspace.ignored", "workspace.throw_away")
def a_worktree_whose_work_is_given_up(stage: Stage) -> None:
    stage.repository()
    stage.made()
    place = Path(stage.asked("workspace", "add", "worker-a")["path"])
    (stage.project / ".git" / "info" / "exclude").write_text("*.log\n")
    (place / "x.log").write_text("x\n")
    (place / "a.txt").write_text("two\n")
    stage.git("commit", "-qam", "second", at=place)
    stage.says("workspace.ignored", "workspace", "remove", "worker-a")
    assert stage.found("workspace.ignored", "workspace", "remove", "worker-a", "--discard") is None
    said = stage.says("workspace.throw_away", "workspace", "remove", "worker-a", "--discard")
    subprocess.run(["sh", "-c", said.partition("`")[2].partition("`")[0]], check=True, capture_output=True)
    stage.follow(said, "workspace remove worker-a")


@plays("task.delivered")
def a_delivery_to_merge(stage: Stage) -> None:
    task_id = delivered(stage)
    stage.helps("task.delivered", f"task show {task_id}", f"workspace merge {task_id}")


@plays("repair.bad_pattern")
def a_pattern_that_cannot_be_read(stage: Stage) -> None:
    stage.made()
    made = stage.asked("reserve", "src/**")["reservation_id"]
    (path,) = stage.path.glob(f"reservations/**/{made}.md")
    path.write_text(path.read_text().replace("src/**", "src/[z-a]*"))
    stage.helps("repair.bad_pattern", "doctor", f"release {made}")


@plays("error.which_reservation")
def several_reservations(stage: Stage) -> None:
    stage.made()
    for name in ("a.txt", "b.txt"):
        stage.done("reserve", name)
    said = stage.says("error.which_reservation", "release")
    listed = json.loads(stage.follow(said, "reservations", "--json"))["reservations"]
    stage.done("release", listed[0]["reservation_id"])
    stage.done("release")
    assert stage.asked("reservations")["reservations"] == []
    assert stage.run("release").exit_code == 1


# Mail, tasks, questions


@plays("error.unknown_command")
def a_command_that_is_none(stage: Stage) -> None:
    said = texts_of("en")("error.unknown_command", name="frobnicate")
    assert "attention" in stage.follow(said, "help")


@plays("error.agent_not_found")
def a_stranger(stage: Stage) -> None:
    stage.made()
    assert "worker-a" in stage.follow(stage.says("error.agent_not_found", "send", "nobody", "hello"), "agent list")


@plays("more.history")
def more_history(stage: Stage) -> None:
    stage.made()
    for number in range(3):
        stage.services.messages.send(stage.services.agents.get("admin"), mail(f"number {number}"))
    said = stage.says("more.history", "read", "--all", "--limit", "2")
    shown = stage.follow(said, said.partition(f"{PROGRAM} ")[2])
    assert "number 0" in shown
    assert "number 2" not in shown


@plays("more.unread")
def more_mail(stage: Stage) -> None:
    stage.made()
    for number in range(60):
        stage.services.messages.send(stage.services.agents.get("admin"), mail(f"{number} {'x' * 600}"))
    said = stage.says("more.unread", "read")
    while f"{PROGRAM} read" in said:
        said = stage.follow(f"{PROGRAM} read", "read")
    assert stage.asked("unread")["unread_count"] == 0


@plays("question.how", "attention:question")
def a_question(stage: Stage) -> None:
    stage.made()
    question = asked(stage)
    (item,) = items(stage, "question")
    command = f"answer {question.id} TEXT"
    stage.follow(stage.says("question.how", *after_program(item["command"])), command, TEXT="blue")
    assert items(stage, "question") == []


@plays("attention:mail", "status.next")
def unread_mail(stage: Stage) -> None:
    stage.made()
    stage.done("send", "owner", "hello", "--as", "admin")
    (item,) = items(stage, "mail")
    assert stage.says("status.next") == f"next: {item['command']}"
    stage.done(*after_program(item["command"]))
    assert items(stage, "mail") == []
    assert item["command"] not in stage.run().output


@plays("status.more")
def much_waits(stage: Stage) -> None:
    stage.made()
    for number in range(7):
        task_id = stage.asked("task", "add", f"Dig {number}", "--assignee", "worker-a")["task_id"]
        stage.done("task", "status", task_id, "blocked", "--reason", f"{'x' * number} is missing")
    said = stage.says("status.more")
    assert said.startswith("… 2 more")
    assert "Dig 6" in stage.follow(said, "attention")


@plays("attention:conversation")
def a_talk(stage: Stage) -> None:
    stage.made()
    stage.done("conversation", "start", "owner", "shall I?", "--as", "admin")
    (item,) = items(stage, "conversation")
    stage.done(*after_program(item["command"]))
    assert items(stage, "conversation") == []


@plays("attention:request")
def a_request(stage: Stage) -> None:
    stage.made()
    services = stage.services
    services.task_creation.request(services.agents.get("worker-a"), NewTask(title="Dig"))
    (item,) = items(stage, "request")
    stage.done(*after_program(item["command"]))
    assert items(stage, "request") == []


@plays("attention:review")
def a_review(stage: Stage) -> None:
    stage.made()
    task_id = stage.asked("task", "add", "Build", "--assignee", "admin", "--done-when", "review")["task_id"]
    for status in ("in_progress", "done"):
        stage.run("task", "status", task_id, status, "--as", "admin")
    (item,) = items(stage, "review")
    stage.done(*after_program(item["command"]))
    assert items(stage, "review") == []


@plays("attention:blocked", "task.unblock")
def a_blocked_task(stage: Stage) -> None:
    stage.made()
    task_id = stage.asked("task", "add", "Dig", "--assignee", "worker-a")["task_id"]
    stage.done("task", "status", task_id, "blocked", "--reason", "no spade")
    (item,) = items(stage, "blocked")
    said = stage.says("task.unblock", *after_program(item["command"]))
    stage.follow(said, f"task status {task_id} todo")
    assert items(stage, "blocked") == []


@plays("repair.hooks_silent")
def no_hooks(stage: Stage) -> None:
    stage.made(worker_a={"host": "claude"})
    session = stage.services.sessions.open("worker-a")
    session.touch()
    said = stage.says("repair.hooks_silent", "doctor")
    stage.follow(said, "host-config claude --agent worker-a --write")
    written = json.loads((stage.path / "hosts" / "worker-a.settings.json").read_text())
    command = written["hooks"]["SessionStart"][0]["hooks"][0]["command"]
    event = json.dumps({"hook_event_name": "SessionStart", "session_id": "c-1", "source": "startup"})
    subprocess.run(["sh", "-c", command], input=event, text=True, check=True, capture_output=True)  # as the host does
    assert stage.found("repair.hooks_silent", "doctor") is None


@plays("interrupt.sent.pause")
def an_agent_that_was_told_to_pause(stage: Stage) -> None:
    stage.made()
    said = stage.says("interrupt.sent.pause", "interrupt", "worker-a", "--action", "pause")
    assert [item["agent_id"] for item in items(stage, "paused")] == ["worker-a"]
    stage.follow(said, "resume worker-a")
    assert items(stage, "paused") == []


@plays("attention:paused")
def a_paused_agent(stage: Stage) -> None:
    stage.made()
    stage.done("interrupt", "worker-a", "--action", "pause")
    (item,) = items(stage, "paused")
    stage.done(*after_program(item["command"]))
    assert items(stage, "paused") == []


def after_program(command: str) -> list[str]:
    return shlex.split(command.removeprefix(f"{PROGRAM} "))


def items(stage: Stage, kind: str) -> list[dict[str, Any]]:
    return [item for item in stage.asked("attention")["items"] if item["kind"] == kind]


def mail(content: str) -> Any:
    from multi_agent_mcp.services.validation import Draft

    return Draft(content=content, receiver_id="owner")


def asked(stage: Stage) -> Any:
    services = stage.services
    return services.questions.ask(services.agents.get("admin"), Asking(question="Which colour?", to_id="owner"), None)


def delivered(stage: Stage) -> str:
    """The id of a task that worker-a has delivered in its worktree."""
    stage.repository()
    stage.made()
    place = Path(stage.asked("workspace", "add", "worker-a")["path"])
    task_id: str = stage.asked("task", "add", "Build", "--assignee", "worker-a")["task_id"]
    stage.done("task", "status", task_id, "in_progress", "--as", "worker-a")
    (place / "a.txt").write_text("two\n")
    stage.git("commit", "-qam", "second", at=place)
    stage.done("task", "status", task_id, "done", "--as", "worker-a")
    return task_id


def by(place: str, *keys: str) -> dict[str, str]:
    return dict.fromkeys(keys, place)


ON_WINDOWS = "end_to_end/test_advice_on_windows.py::test_what_is_said_of"
ELSEWHERE: Mapping[str, str] = {
    "repair.nobody_awake": "pool/test_leases.py::"
    "test_doctor_says_what_waits_while_nobody_who_could_have_it_is_awake_or_will_be_started",
    "error.task_not_told": "pool/test_offers.py::test_a_task_is_traced_by_what_told_of_it",
    **by(
        "pool/test_leases.py::test_people_see_which_leases_are_waited_for_and_end_a_command",
        *("attention:lease", "attention:circle", "error.no_such_lease"),
    ),
    "error.no_persons_key": "services/tasks/test_gate.py::test_without_a_persons_key_an_approval_made_elsewhere_counts",
    "attention:checks_changed": "services/tasks/test_gate.py::test_a_changed_check_is_run_and_waits_for_a_review",
    "task.checks_changed": "cli/test_repository.py::test_why_follows_a_line_to_task_agent_and_who_asked",
    "checks.state.changed": "services/tasks/test_gate.py::test_a_changed_check_is_run_and_waits_for_a_review",
    "rules.state.changed": "features/test_off.py::test_what_agents_may_do_is_approved_without_proof_too",
    "rules.state.missing": "features/test_off.py::test_what_agents_may_do_is_approved_without_proof_too",
    "checks.state.missing": "services/tasks/test_gate.py::test_a_changed_check_is_run_and_waits_for_a_review",
    **by(
        "cli/test_repository.py::test_a_repository_of_another_user_is_named_with_git_s_own_cure_which_helps",
        *("error.not_trusted", "repair.not_trusted"),
    ),
    "error.commit_in_progress": "services/repository/test_commits.py::"
    "test_a_rebase_and_conflicts_are_left_to_who_began_them",
    "error.no_session_windows": "end_to_end/test_up.py::"
    "test_windows_of_a_deleted_session_are_named_by_up_and_closed_by_down",
    "error.former_windows": "end_to_end/test_up.py::"
    "test_windows_of_a_deleted_session_are_none_of_the_new_one_at_its_place",
    "repair.misnamed_pane": "end_to_end/test_doorbell.py::"
    "test_a_server_that_was_started_from_a_pane_but_outside_of_it_has_no_pane",
    **by(
        "end_to_end/test_advice_on_windows.py::"
        "test_an_agent_that_stays_in_the_shared_directory_is_named_until_it_is_restarted",
        *("up.outside", "workspace.made_later", "error.worktree_in_use"),
    ),
    # on a real tmux
    **by(
        f"{ON_WINDOWS}_windows_helps",
        *("error.attach_no_team", "error.attach_no_window", "repair.put_down", "repair.pane", "attention:ended"),
        "sent.up_starts",
    ),
    **by(
        f"{ON_WINDOWS}_options_of_a_persons_tmux_helps",
        *("repair.destroy_unattached", "repair.exit_unattached", "repair.synchronize_panes"),
    ),
    **by(f"{ON_WINDOWS}_a_single_window_helps", "up.unsupervised"),
    **by(
        f"{ON_WINDOWS}_a_team_that_is_down_or_without_its_supervisor_helps", "attention:down", "repair.supervisor_ended"
    ),
    **by(
        "end_to_end/test_up.py::test_attach_shows_an_agents_window_and_touches_no_other_tmux_server",
        *("error.attach_no_terminal", "error.attach_other_server", "attention:stuck", "attention:login"),
        *("repair.stuck_login", "repair.stuck_silent", "repair.stuck_unanswered", "repair.stuck_untaken"),
        *("repair.pane_held", "repair.stuck_dialog"),
    ),
    **by(
        "end_to_end/test_up.py::test_restart_ends_an_agents_program_and_starts_its_command_again_in_its_window",
        "agent.until_restart",
        "init.new_keys",
    ),
    **by(
        "end_to_end/test_up.py::test_what_cannot_be_restarted_is_one_sentence_and_goes_on",
        *("error.restart_no_command", "error.restart_elsewhere"),
    ),
    **by(
        "end_to_end/test_up.py::test_inside_tmux_the_terminal_is_shown_who_asks_and_elsewhere_how_to_attach",
        "up.attach",
    ),
    **by(
        "end_to_end/test_up.py::test_variables_that_a_running_tmux_server_keeps_back_are_named_and_never_shown",
        "up.remedy",
    ),
    **by("end_to_end/test_up.py::test_up_says_of_everybody_whether_they_are_ready_or_what_they_wait_for", "init.next"),
    **by("end_to_end/test_windows.py::test_the_second_supervisor_says_who_runs_and_ends", "error.supervise_outside"),
    **by(
        "end_to_end/test_continuing.py::test_a_team_goes_on_after_its_tmux_server_died_and_says_of_everybody_how",
        "up.not_continued",
    ),
    **by("end_to_end/test_first_screen.py::test_every_command_works", *("init.next_scripted", "sent.first")),
    **by(
        "end_to_end/test_commands.py::test_an_agents_pane_is_set_as_doctor_advises",
        *("doctor.no_command", "reason.no_pane", "repair.pane_by_hand", "repair.pane_plain"),
    ),
    **by("end_to_end/test_windows.py::test_a_pane_registered_for_a_second_agent_is_warned_of", "repair.shared_pane"),
    **by("end_to_end/test_windows.py::test_down_in_a_copy_leaves_the_windows_and_names_them", "down.strange"),
    **by(
        "end_to_end/test_windows.py::test_down_of_one_agent_keeps_it_closed_whatever_waits_until_up",
        "down.until",
    ),
    **by(
        "end_to_end/test_windows.py::test_a_tmux_that_hangs_is_one_sentence_and_starts_nobody_twice",
        *("repair.silent_tmux", "attention:tmux"),
    ),
    **by(
        "end_to_end/test_supervisor.py::test_a_command_that_dies_at_once_rests_doctor_says_so_and_it_is_tried_again",
        "repair.command_dies",
    ),
    **by(
        "end_to_end/test_host_learn.py::test_doctor_offers_it_and_names_a_profile_that_cannot_be_used",
        *("repair.pane_unknown_host", "reason.unknown_host", "why.learn_pane"),
    ),
    **by("end_to_end/test_host_learn.py::test_what_was_learned_rings_at_rest_and_nowhere_else", "learn.written"),
    **by(
        "end_to_end/test_host_config.py::test_a_gemini_command_is_refused_until_its_directory_has_the_settings",
        *("error.host_not_configured", "host_config.then"),
    ),
    **by(f"{ON_WINDOWS}_a_host_without_our_server_helps", "repair.stuck_no_server"),
    # the commands of the line above, which follows them
    "up.unconfigured": "end_to_end/test_up.py::test_one_whose_server_does_not_come_is_not_ready",
    **by(
        "end_to_end/test_host_config.py::"
        "test_a_file_that_could_be_committed_is_named_with_the_line_that_has_git_ignore_it",
        "host_config.not_ignored",
    ),
    **by(
        "end_to_end/test_waiter.py::test_the_waiter_wakes_on_new_mail_with_the_doorbells_line_and_is_armed_until_then",
        "reason.no_hook",
    ),
    **by(
        "end_to_end/test_plugin.py::"
        "test_without_an_agent_it_says_how_to_make_a_team_and_with_one_it_is_the_agents_server",
        "error.not_of_a_team",
    ),
    **by(
        "cli/test_answer.py::test_the_question_and_its_choices_are_shown_with_the_command_that_answers",
        *("answer.how", "attention:dialog", "repair.hooks_asked"),
    ),
    **by(
        "cli/test_answer.py::test_keys_are_pressed_in_a_terminal_once_the_screen_was_shown_and_confirmed",
        "answer.by_keys",
    ),
    **by(
        "cli/test_answer.py::"
        "test_an_answer_to_a_question_that_was_not_listed_is_refused_with_what_is_asked_and_how_to_answer",
        "error.answer_which",
    ),
    **by(
        "usage/test_budgets.py::test_a_task_s_budget_pauses_once_with_the_numbers_and_tells_the_superior",
        *("attention:budget", "notice.budget_reached.instruction"),
    ),
    **by(
        "services/repository/test_worktrees.py::test_what_is_only_in_a_worktree_keeps_it_and_is_named_until_it_is_given_up",
        *("workspace.in_progress", "workspace.locked"),
    ),
    **by(
        "services/repository/test_worktrees.py::test_what_only_the_submodule_of_a_worktree_has_keeps_it",
        "workspace.submodules",
    ),
    **by(
        "services/repository/test_proven.py::"
        "test_a_conflict_that_is_resolved_as_its_mail_says_is_checked_and_reviewed_again",
        *("merge.conflict", "error.not_resolved", "task.returned"),
    ),
    **by(
        "services/repository/test_worktrees.py::"
        "test_commits_of_a_task_that_never_reported_keep_what_is_above_from_being_merged",
        "error.contains_unfinished",
    ),
    **by(
        "services/repository/test_worktrees.py::"
        "test_work_in_review_keeps_its_worktree_and_is_not_advised_to_be_merged_by_git",
        *("workspace.unmerged_done", "workspace.unmerged_others"),
    ),
    **by(
        "services/repository/test_worktrees.py::test_a_task_in_progress_keeps_its_clean_worktree_until_it_is_over",
        "workspace.tasks",
    ),
    **by(
        "services/repository/test_worktrees.py::test_commits_of_an_unfinished_task_are_taken_out_as_the_refusal_says",
        "error.contains_cancelled",
    ),
    **by(
        "services/repository/test_proven.py::"
        "test_what_failed_alike_three_times_is_not_run_again_and_the_superior_is_told",
        "notice.check_repeats.instruction",
    ),
    # with other users
    **by(
        "system/test_ownership.py::test_a_session_that_one_may_not_enter_is_not_said_to_be_missing",
        "error.closed_session",
    ),
    **by("system/test_ownership.py::test_with_sudo_the_callers_sessions_are_not_ones_own", "error.users_session"),
    # with a hub
    **by("cli/test_machines.py::test_what_needs_a_shared_session_shares_none", "error.not_shared"),
    **by(
        "hub/test_troubles.py::test_a_relay_that_hangs_is_ended_and_another_one_started",
        *("error.relay_hangs", "error.relay_unclear", "reason.relay_hangs", "repair.relay_hangs"),
        *("machines.relay_hangs", "attention:machine"),
    ),
    **by(
        "hub/test_troubles.py::test_a_relay_that_hangs_is_ended_and_another_one_started",
        *("error.no_relay", "reason.no_relay", "repair.no_relay", "machines.no_relay"),
    ),
    **by(
        "hub/test_sharing.py::test_a_machine_that_was_shut_out_comes_back_as_it_is_told",
        *("error.shut_out", "reason.shut_out", "repair.shut_out", "machines.shut_out"),
    ),
    **by(
        "hub/test_sharing.py::test_a_reseed_takes_what_a_machine_has_that_is_further_on",
        *("error.hub_replaced", "reason.hub_replaced", "repair.hub_replaced", "machines.replaced"),
    ),
    "down.relay": "hub/test_asking.py::test_a_question_is_forgotten_once_nobody_looks_at_its_pane_any_more",
    **by("hub/test_sharing.py::test_the_hubs_machine_does_not_end_the_team_unasked", "error.leave_ends_team"),
    **by("hub/test_sharing.py::test_a_name_of_a_machine_that_has_left_can_be_had_again", "error.machine_exists"),
    **by("hub/test_sharing.py::test_who_takes_part_already_is_told_what_to_run", "error.shared_already"),
    **by(
        "hub/test_sharing.py::test_join_that_is_interrupted_says_that_the_machine_has_joined",
        *("join.to_start", "join.next"),
    ),
    **by("hub/test_security.py::test_a_token_is_good_once_and_for_a_free_name", "error.token_used"),
    **by("hub/test_security.py::test_a_printed_line_is_a_token", "error.bad_token"),
    **by("hub/test_sharing.py::test_a_machine_has_a_new_key_and_the_old_one_is_refused", "error.renewed_here"),
    **by("hub/test_machines.py::test_nobody_acts_for_an_agent_of_another_machine", "error.other_home"),
    **by(
        "hub/test_sharing.py::test_a_machine_takes_the_hubs_new_address_from_a_new_token",
        *("machines.cut_off", "repair.hub_away"),
    ),
    **by(
        "hub/test_sharing.py::test_a_reseed_leaves_out_what_one_machine_has_written_on_all_machines",
        *("repair.hub_filled_by", "error.hub_no_room"),
    ),
    **by(
        "hub/test_sharing.py::test_a_machine_that_has_filled_its_part_of_what_all_share_stops_only_itself",
        *("repair.hub_part_full", "error.hub_part_full"),
    ),
    **by(
        "hub/test_sharing.py::test_who_has_filled_what_all_share_is_named_where_the_hub_is",
        *("finding.hub_filled", "error.hub_full_shared", "reason.hub_full_shared"),
    ),
    **by(
        "hub/test_security.py::test_the_logs_of_another_machine_occupy_no_more_than_they_may",
        *("machines.logs", "repair.machine_logs"),
    ),
    **by(
        "hub/test_security.py::test_what_a_machine_says_of_the_hub_stops_nobody_and_it_can_be_shut_out",
        *("machines.older", "repair.machine_older"),
    ),
    **by(
        "hub/test_security.py::test_a_hub_that_ended_because_of_its_configuration_returns_to_the_last_good_one",
        *("repair.hub_earlier", "machines.hub_earlier"),
    ),
    **by(
        "hub/test_security.py::test_why_a_hub_does_not_start_is_said_everywhere_and_share_does_not_wait_for_it",
        *("repair.hub_down", "machines.hub_down"),
    ),
    **by("hub/test_full_disks.py::test_join_ends_with_one_sentence_when_its_relay_dies", "error.relay_gone"),
    **by(
        "hub/test_full_disks.py::test_join_that_is_interrupted_says_that_the_rest_still_comes",
        *("join.goes_on", "error.not_complete"),
    ),
    **by(
        "hub/test_troubles.py::test_a_full_disk_ends_no_relay_and_is_in_every_doctor",
        *("machines.disk", "repair.machine_disk"),
    ),
    **by(
        "hub/test_troubles.py::test_two_relays_with_the_key_of_one_machine_are_noticed_and_a_copy_takes_no_agents",
        *("machines.double", "repair.machine_double"),
    ),
    **by(
        "hub/test_machines.py::test_an_agent_moves_and_what_it_signed_before_is_still_its_own",
        *("agent.moved", "finding.machine_left", "error.no_such_machine"),
    ),
    "error.restart_terminal": "end_to_end/test_up.py::"
    "test_an_agent_that_a_person_has_started_in_a_plain_terminal_is_not_started_twice",
    "repair.lost_tmux": "end_to_end/test_up.py::"
    "test_where_another_mount_hides_the_socket_nobody_is_started_twice_and_down_ends_the_team",
    **by(
        "end_to_end/test_up.py::test_behind_a_socket_that_another_server_has_taken_nobody_is_started_twice_and_down_ends"
        "_who_lives_there",
        "error.tmux_lost",
    ),
    **by(
        "hub/test_asking.py::test_a_question_in_a_pane_of_another_machine_is_listed_and_answered_there",
        "attention.there",
    ),
}
NO_ADVICE: Mapping[str, str] = {
    "attention:limited": "it goes on by itself; the command shows its window",
    "attention:undelivered": "`trace` shows each step of the message; the reason says what helps",
    "error.no_machines_extra": "of another program: pip",
    "error.no_nats_server": "of another program: pip",
    "dashboard.left_out": "where the others are",
    "error.internal": "a report of ours is wanted, and `doctor` finds what is on the disk",
    "finding.conflicts": "where their names are; `repair.conflicts` says what helps",
    "guard.clean": "to an agent, of git's commands",
    "guard.stash": "to an agent, of git's commands",
    "guard.switch": "to an agent, of git's commands",
    "up.newer": "a screen may be unknown; when one is, `answer` shows it",
    "hook.ruled_out": "to an agent, of a command that a rule denies",
    "why.no_sandbox": "what team.yaml lacks; `{command}` is there",
    "team.file": "the comments of a new team.yaml",
}


def test_every_text_that_names_a_command_is_followed_somewhere() -> None:
    wanted = advising() | {f"attention:{kind}" for kind in KINDS}
    known = [*PLAYED, *ELSEWHERE, *NO_ADVICE]
    assert sorted(wanted - set(known)) == []
    assert sorted(key for key in set(known) - wanted if "," not in key) == []  # (a comma: a second way of one text)
    assert len(known) == len(set(known))


@pytest.mark.parametrize("play", dict.fromkeys(PLAYED.values()), ids=lambda play: play.__name__)
def test_following_it_helps(stage: Stage, play: Play) -> None:
    play(stage)


def test_advice_that_other_tests_follow_is_followed_by_tests_that_exist() -> None:
    for place in dict.fromkeys(ELSEWHERE.values()):
        file, _, name = place.partition("::")
        assert f"def {name}(" in (Path(__file__).parents[1] / file).read_text(encoding="utf-8"), place


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_command_is_named_as_it_is_typed(language: str) -> None:
    """So that it can be copied; a test above sees it, too."""
    texts = texts_of(language)
    assert {key for key in sorted(texts.keys()) if HALF_NAMED.search(texts(key))} == set()
    assert advising("en") ^ advising(language) == set()
