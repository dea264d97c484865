"""`doctor` looks and changes nothing."""

from __future__ import annotations

import os
import pty
import shutil
import signal
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.dialog import Dialog
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.hooks.answers import Event
from multi_agent_mcp.services.doctor.tree import Finding
from multi_agent_mcp.system import file_events
from multi_agent_mcp.system.process import running_files
from multi_agent_mcp.wiring import Services
from tests.end_to_end.support import wait_until
from tests.services.support import by_hand, read, send, unread
from tests.services.tasks_support import open_session
from tests.store.support import confirm_read

MONTH = timedelta(days=30)


def examine(services: Services, pane: str | None = None) -> list[Finding]:
    return services.doctor(lambda _: pane).examine()


def problems(services: Services) -> set[tuple[str, str]]:
    return {(finding.check, finding.subject) for finding in examine(services) if finding.level == "problem"}


def notes(services: Services) -> set[tuple[str, str]]:
    return {(finding.check, finding.subject) for finding in examine(services) if finding.level == "note"}


def test_a_fresh_session_has_no_problem(services: Services) -> None:
    assert problems(services) == set()
    assert notes(services) == {("panes", "admin"), ("panes", "worker-a"), ("panes", "worker-b")}


def test_looking_changes_nothing(services: Services) -> None:
    send(services, "admin", "worker-a")
    before = {path: path.stat().st_mtime_ns for path in services.workspace.path.rglob("*") if path.is_file()}
    examine(services)
    after = {path: path.stat().st_mtime_ns for path in services.workspace.path.rglob("*") if path.is_file()}
    assert after == before


def test_keys_that_are_missing_or_open_are_problems(services: Services) -> None:
    services.workspace.key_path("admin").unlink()
    services.workspace.key_path("owner").chmod(0o644)
    assert problems(services) == {("keys", "admin"), ("modes", "secrets/owner.key")}


@pytest.mark.parametrize(
    ("command", "failure", "told"),
    [
        (None, None, []),
        (("true", "{line}"), None, []),
        ((), None, [("problem", "is not a list of strings")]),
        (("no-such-program", "{line}"), None, [("problem", "there is no program 'no-such-program' to run")]),
        (("true", "ding"), None, [("note", "no argument contains {line}")]),
        (("true", "{line}"), "exit 3", [("problem", "it failed at 2026-11-21T21:46:01Z: exit 3")]),
        (("true", "{line}"), "x\x1b" * 500, [("problem", "it failed at 2026")]),
    ],
)
def test_a_notify_command_that_cannot_reach_anybody_is_told_of(
    services: Services, command: tuple[str, ...] | None, failure: str | None, told: list[tuple[str, str]]
) -> None:
    settings = replace(services.settings, notify_command=command)
    if failure is not None:
        services.workspace.notify_command_failure.write({"at": "2026-11-21T21:46:01Z", "failure": failure})
    found = [
        item
        for item in examine(replace(services, session=replace(services.session, settings=settings)))
        if item.check == "notify_command"
    ]
    assert [item.level for item in found] == [level for level, _ in told]
    assert all(text in item.finding and item.repair for item, (_, text) in zip(found, told, strict=True))
    assert all(len(item.finding) < 300 for item in found)


def test_a_broken_hierarchy_is_a_problem_for_everybody_below(services: Services) -> None:
    services.agents.registry.update("admin", parent_id="worker-a")
    found = examine(services)
    assert {finding.subject for finding in found if finding.level == "problem"} == {"admin", "worker-a", "worker-b"}
    said = {finding.finding for finding in found if finding.check == "hierarchy"}
    assert said == {f"The hierarchy of agents has a cycle at {name}." for name in ("admin", "worker-a")}


def test_without_an_owner_there_is_a_problem(services: Services) -> None:
    services.agents.registry.update("owner", status="removed")
    assert ("registry", "agents.json") in problems(services)


def test_records_that_differ_in_case_only_are_a_problem(services: Services) -> None:
    path = services.workspace.path / "agents.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"worker-b": {', '"Worker-A": {'), encoding="utf-8")
    clashes = [item for item in examine(services) if item.check == "registry"]
    assert [(item.level, item.subject) for item in clashes] == [("problem", "Worker-A")]
    assert "worker-a" in clashes[0].finding


def _look_everywhere(services: Services) -> None:
    for collection in (services.workspace.tasks, services.workspace.executions, services.workspace.delegations):
        collection.all()
    unread(services, "worker-a")


@pytest.mark.parametrize("name", ["executions", "delegations", "tasks", "ipc/worker-a"])
def test_a_file_where_a_directory_belongs_is_named(services: Services, name: str) -> None:
    place = services.workspace.path / name
    shutil.rmtree(place, ignore_errors=True)
    place.write_bytes(b"")
    found = examine(services)
    assert ("tree", name) in {(finding.check, finding.subject) for finding in found if finding.level == "problem"}
    assert {Path(name).name in finding.finding for finding in found if finding.subject == "-"} == {True}
    with pytest.raises(StorageError) as refused:
        _look_everywhere(services)
    assert services.texts.sentence(refused.value).find(Path(name).name) > 0


def test_what_is_of_the_wrong_kind_is_named_and_a_log_of_rings_hides_nothing(services: Services) -> None:
    log = services.path / ".doorbell" / "worker-a.jsonl"
    log.mkdir(parents=True)
    archive = services.path / "ipc" / "worker-a" / "archive"
    archive.write_bytes(b"")
    assert problems(services) == {("tree", ".doorbell/worker-a.jsonl"), ("tree", "ipc/worker-a/archive")}
    send(services, "admin", "worker-a")
    assert services.timeline.of().arrows


def test_quarantined_files_and_mailboxes_of_nobody_are_problems(services: Services) -> None:
    by_hand(services, "worker-a", "bad.md", "no front matter")
    assert unread(services, "worker-a") == 0
    (services.workspace.path / "ipc" / "ghost").mkdir()
    assert problems(services) == {("files", "ipc/worker-a/quarantine/bad.md"), ("files", "ipc/ghost")}


def test_a_registry_that_was_restored_is_worth_a_note_and_a_lost_one_is_a_problem(services: Services) -> None:
    path = services.workspace.path / "agents.json"
    path.write_text("{")
    assert ("registry", "agents.json.damaged") in notes(services)
    for lost in services.workspace.path.glob("agents.json*"):
        lost.write_text("{")
    (lost_one,) = (finding.finding for finding in examine(services) if finding.level == "problem")
    assert lost_one.startswith("agents.json cannot be read, and neither can its copy. Still there: secrets/.")


def test_a_dead_session_and_a_waiting_owner_are_worth_a_note(services: Services, owner: Agent) -> None:
    session = services.sessions.open("worker-a")
    services.workspace.sessions.update(session.record.id, lambda found: replace(found, pid_started_at="earlier"))
    services.task_creation.send(owner, "admin", "Build", "x")
    assert {("sessions", "worker-a"), ("waiting", "owner")} <= notes(services)


def test_a_host_that_no_profile_describes_is_worth_a_note(services: Services) -> None:
    for agent_id, host in (("admin", "nonsense"), ("worker-a", "claude"), ("worker-b", "plain")):
        services.agents.registry.update(agent_id, host=host)
    (finding,) = (item for item in examine(services) if item.check == "hosts")
    assert (finding.level, finding.subject, finding.finding) == ("note", "admin", "no profile is named 'nonsense'")
    assert "claude, codex, copilot, gemini, opencode, plain" in finding.repair


def test_a_host_that_calls_tools_and_runs_no_hook_has_not_trusted_them(services: Services) -> None:
    services.agents.registry.update("worker-a", host="codex")
    session = open_session(services, "worker-a")
    assert [item for item in examine(services) if item.check == "hooks"] == [], "it has called nothing yet"

    session.touch()
    session.touch()
    assert session.record.called
    (finding,) = (item for item in examine(services) if item.check == "hooks")
    assert (finding.level, finding.subject) == ("note", "worker-a")
    assert "/hooks" in finding.repair
    assert "{mcp_config}" in finding.repair

    services.hooks.answer("worker-a", "task", Event("UserPromptSubmit", "c-1", "codex"))
    assert [item for item in examine(services) if item.check == "hooks"] == []


def test_a_host_that_asks_about_hooks_is_to_be_answered(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    services.agents.registry.update("worker-a", host="codex", pane_id="%3", socket_path="/nowhere")
    doctor = services.doctor(lambda _: "dialog", lambda _: ("codex", "dialog"))
    asked = Dialog("hooks", "Hooks need review", ())
    doctor.context = replace(doctor.context, dialog=lambda _: asked)
    (finding,) = (item for item in doctor.examine() if item.check == "hooks")
    assert finding.repair == "multi-agent-mcp answer worker-a"


def test_a_pane_that_cannot_be_rung_is_worth_a_note(services: Services) -> None:
    services.agents.registry.update("worker-a", pane_id="%3", socket_path="/nowhere")
    (finding,) = (item for item in examine(services, "pane_gone") if item.subject == "worker-a")
    assert (finding.level, finding.finding) == ("note", "pane %3: pane_gone: Its pane has been closed.")
    (finding,) = (item for item in examine(services, "no_tmux") if item.subject == "worker-a")
    assert finding.repair.startswith("install tmux")


def test_a_stranger_in_a_pane_is_named_by_the_files_that_run(services: Services) -> None:
    pid, descriptor = pty.fork()
    if pid == 0:
        os.execvp("bash", ["bash", "--norc", "-c", "exec -a claude cat"])  # noqa: S606 - the child becomes cat
    services.agents.registry.update("worker-a", pane_id="%3", socket_path="/nowhere", pane_pid=pid)
    cat = os.path.realpath(shutil.which("cat") or "")
    try:
        wait_until(lambda: running_files(pid) == cat, "bash has become cat")
        (finding,) = (item for item in examine(services, "unknown_host") if item.subject == "worker-a")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(descriptor)
    assert finding.finding.endswith(f"There runs: {cat}.")
    assert "host learn worker-a" in finding.repair
    assert "`files` in hosts/NAME.yaml" in finding.repair


def test_an_agent_that_up_starts_is_to_be_started_and_another_to_be_registered(services: Services) -> None:
    services.agents.change("worker-a", command="cat")
    repairs = {item.subject: item.repair for item in examine(services) if item.check == "panes"}
    assert repairs["worker-a"].startswith("multi-agent-mcp up;")
    assert repairs["worker-b"].startswith("multi-agent-mcp agent set worker-b --pane %N")


def test_agents_in_one_pane_are_a_problem(services: Services) -> None:
    place = {"pane_id": "%3", "socket_path": "/nowhere", "tmux_pid": 7, "pane_pid": 8}
    services.agents.registry.update("worker-a", **place)
    services.agents.registry.update("worker-b", **place | {"tmux_pid": 9})  # another server, after a restart
    assert ("panes", "worker-b") not in problems(services)
    services.agents.registry.update("worker-b", **place)
    (finding,) = (item for item in examine(services) if item.level == "problem")
    assert finding.finding.startswith("worker-a, worker-b are registered in the same pane %3")
    assert "agent set worker-b --pane" in finding.repair


def test_it_says_what_takes_how_much(services: Services) -> None:
    for _ in range(2):
        send(services, "admin", "worker-a")
    read(services, "worker-a", limit=1)
    confirm_read(services.workspace.mailbox("worker-a"))
    doctor = services.doctor(lambda _: None)
    for _ in range(2):
        doctor.examine()
        usage = {item["kind"]: item["files"] for item in doctor.usage.as_answer()}
        assert {kind: usage[kind] for kind in ("ipc", "ipc/archive", "secrets")} == {
            "ipc": 1,
            "ipc/archive": 1,
            "secrets": 4,
        }


def test_more_servers_than_the_system_has_file_events_for_are_worth_a_note(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = tmp_path / "max_user_instances"
    monkeypatch.setattr(file_events, "INSTANCES", allowed)
    for agent_id in ("worker-a", "worker-b"):
        services.sessions.open(agent_id)
    for limit in ("2", "1"):
        allowed.write_text(limit)
        found = [item for item in examine(services) if item.check == "events"]
        assert len(found) == (limit == "1")
    assert "2 run here" in found[0].finding
    assert "sysctl fs.inotify.max_user_instances=8" in found[0].repair
