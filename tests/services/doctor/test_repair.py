"""`doctor --repair` fixes what it can and loses nothing that can be read; `--verify` looks at every signature."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.services.doctor.doctor import Doctor
from multi_agent_mcp.services.doctor.tree import Finding
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.store.locks import waiter_lock
from multi_agent_mcp.wiring import Services
from tests.server.seat import Seat
from tests.services.support import by_hand, contents, mail, read, send, unread
from tests.services.tasks_support import UNKNOWN, running
from tests.store.support import confirm_read


@pytest.fixture
def doctor(services: Services) -> Doctor:
    return services.doctor(lambda _: None)


def found(doctor: Doctor, check: str, *, verify: bool = False) -> list[Finding]:
    return [finding for finding in doctor.examine(verify=verify) if finding.check == check]


def repaired(doctor: Doctor, check: str) -> list[Finding]:
    """Repairs, and checks that the finding is gone."""
    assert found(doctor, check)
    done = [finding for finding in doctor.repair(doctor.examine()) if finding.check == check]
    assert found(doctor, check) == []
    return done


def everything(services: Services) -> dict[str, bytes]:
    """The content of every readable file: messages, tasks, notifications, quarantined files."""
    return {path.name: path.read_bytes() for path in services.workspace.path.rglob("*.md")}


def test_open_modes_are_closed(services: Services, doctor: Doctor) -> None:
    base = services.workspace.path
    by_hand(services, "worker-a", "note.md", "---\nsender_id: owner\n---\n\nhello\n").chmod(0o644)
    (base / "ipc").chmod(0o755)
    base.chmod(0o755)
    services.workspace.key_path("owner").chmod(0o640)
    assert {(finding.level, finding.subject) for finding in found(doctor, "modes")} == {
        ("problem", "."),
        ("problem", "secrets/owner.key"),
        ("note", "."),
    }
    assert len(repaired(doctor, "modes")) == 4
    assert not any(path.stat().st_mode & 0o077 for path in [base, *base.rglob("*")])


def test_too_few_rights_are_given_back(services: Services, doctor: Doctor) -> None:
    send(services, "admin", "worker-a")
    (path,) = mail(services)
    path.chmod(0)
    (finding,) = repaired(doctor, "unreadable")
    assert finding.subject == str(path.relative_to(services.workspace.path))
    assert contents(read(services, "worker-a")) == ["hello"]


def test_a_dead_session_is_ended_and_its_mail_is_unread_again(services: Services, doctor: Doctor) -> None:
    send(services, "admin", "worker-a")
    session = services.sessions.open("worker-a")
    read(services, "worker-a", session.lease)
    services.workspace.sessions.update(session.record.id, lambda record: replace(record, pid_started_at="earlier"))
    (finding,) = found(doctor, "sessions")
    assert "1 message unconfirmed" in finding.finding
    assert unread(services, "worker-a") == 0
    repaired(doctor, "sessions")
    assert unread(services, "worker-a") == 1


def test_an_execution_whose_session_is_lost_is_ended(services: Services, doctor: Doctor) -> None:
    session = services.sessions.open("worker-a", "task")
    execution = services.executions.begin(session.record, UNKNOWN)
    (services.workspace.path / "sessions" / "worker-a" / f"{session.record.id}.md").write_bytes(b"")
    (finding,) = repaired(doctor, "sessions")
    assert execution.id in finding.finding
    assert not services.executions.get(None, execution.id).running


@pytest.mark.parametrize(("blocker", "reader"), [(None, "worker-a"), ("admin", "worker-a"), ("worker-a", "admin")])
def test_a_notification_that_nobody_has_written_is_written(
    services: Services, admin: Agent, doctor: Doctor, blocker: str | None, reader: str
) -> None:
    (task,) = services.task_creation.create(admin, [NewTask(title="Build", assignee_id="worker-a")])
    if blocker is not None:
        services.task_changes.start(services.agents.get("worker-a"), task.id)
        services.task_changes.set_status(services.agents.get(blocker), task.id, "blocked")
    ((name, _),) = services.workspace.notices(reader).unread()
    told = services.workspace.notices(reader).path / name
    content = told.read_bytes()
    assert found(doctor, "notifications") == []
    told.unlink()
    (finding,) = repaired(doctor, "notifications")
    assert finding.subject == task.id
    assert told.read_bytes() == content


def test_leftovers_of_killed_writers_go_and_fresh_ones_stay(services: Services, doctor: Doctor) -> None:
    scratch = services.workspace.path / ".tmp"
    old, fresh = scratch / "1.old.tmp", scratch / "2.fresh.tmp"
    for path in (old, fresh):
        path.write_text("half writ")
    past = time.time() - 7200
    os.utime(old, (past, past))
    repaired(doctor, "leftovers")
    assert not old.exists()
    assert fresh.exists()


def test_a_wait_for_somebody_who_left_is_released(services: Services, owner: Agent, doctor: Doctor) -> None:
    task = services.task_creation.send(owner, "admin", "Build", "x").task
    (waiting,) = found(doctor, "waiting")
    assert (waiting.level, waiting.fix) == ("note", None)  # a wait that can still end is nobody's to take away
    services.task_changes.set_status(owner, task.id, "cancelled")
    for name in ("worker-a", "worker-b", "admin"):
        services.agents.remove(name)
    repaired(doctor, "waiting")
    assert services.owner_waits.of("owner") is None


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/etc"), os.mkfifo], ids=["link", "pipe"])
def test_links_and_pipes_are_found_and_left_to_their_owner(
    services: Services, doctor: Doctor, make: Callable[[Path], None]
) -> None:
    path = services.workspace.path / "tasks" / "worker-a"
    path.parent.mkdir()
    make(path)
    (finding,) = found(doctor, "links")
    assert (finding.level, finding.subject, finding.fix) == ("problem", "tasks/worker-a", None)
    doctor.repair(doctor.examine())
    assert os.path.lexists(path)


def test_a_key_that_is_not_the_registered_one_is_found(services: Services, doctor: Doctor) -> None:
    services.workspace.key_path("admin").write_text("another\n")
    (finding,) = found(doctor, "keys")
    assert (finding.subject, finding.finding) == ("admin", "the key is not the registered one")


def test_a_lock_somebody_sits_on_is_found(services: Services, doctor: Doctor) -> None:
    with services.workspace.locks.held("agents"):
        assert [finding.subject for finding in found(doctor, "locks")] == ["agents"]
    assert found(doctor, "locks") == []


def test_a_lock_that_says_a_server_or_a_waiter_lives_is_no_finding(services: Services, doctor: Doctor) -> None:
    """It was reported once, with the advice to stop the process that holds the lock."""
    server = services.doorbell.serve("worker-a", "chat")
    assert server is not None
    with services.workspace.locks.lock(waiter_lock("worker-a", "chat")):
        assert len(services.workspace.locks.all_held()) == 2
        assert found(doctor, "locks") == []
    server.release()


def test_repairing_loses_nothing_that_can_be_read(services: Services, owner: Agent, doctor: Doctor) -> None:
    send(services, "admin", "worker-a")
    services.task_creation.send(owner, "admin", "Build", "x")
    by_hand(services, "worker-b", "bad.md", "no front matter")
    unread(services, "worker-b")
    (services.workspace.path / "ipc" / "ghost").mkdir()
    (services.workspace.path / "ipc" / "ghost" / "note.md").write_text("---\nsender_id: owner\n---\n\nhello\n")
    before = everything(services)
    doctor.repair(doctor.examine())
    assert everything(services) == before
    assert {finding.subject for finding in found(doctor, "files")} == {"ipc/worker-b/quarantine/bad.md", "ipc/ghost"}


def test_a_repair_that_fails_is_told_and_the_others_are_done(services: Services) -> None:
    def fail() -> None:
        raise PermissionError(13, "Permission denied")

    done: list[str] = []
    findings = [
        Finding("a", "problem", "-", "broken", "fix it", fail),
        Finding("b", "problem", "-", "broken", "fix it", lambda: done.append("b")),
        Finding("c", "problem", "-", "broken", "fix it"),
    ]
    first, second = services.doctor(lambda _: None).repair(findings)
    assert "the repair failed" in first.finding
    assert second.repair == "done: fix it"
    assert done == ["b"]


def test_a_history_whose_older_lines_were_cut_off_is_told_by_verify(services: Services, admin: Agent) -> None:
    (task,) = services.task_creation.create(admin, [NewTask(title="long")])
    for number in range(30):
        services.task_changes.assign(admin, task.id, ("worker-a", "worker-b")[number % 2])

    def histories() -> list[Finding]:
        fresh = open_session(services.workspace.root, "demo", notifier=services.notifier)
        return found(fresh.doctor(lambda _: None), "histories", verify=True)

    assert histories() == []
    path = services.workspace.tasks.history_path(task.id)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-3]) + lines[-3][:20])
    (finding,) = histories()
    assert finding.finding.startswith(f"3 of the {len(lines)} older entries")
    assert finding.subject == f"tasks/_history/{task.id}.jsonl"
    path.unlink()
    (finding,) = histories()
    assert finding.finding.startswith(f"{len(lines)} of the {len(lines)} older entries")


class TestVerify:
    def verdicts(self, services: Services) -> dict[str, str]:
        fresh = open_session(services.workspace.root, "demo", notifier=services.notifier)
        findings = found(fresh.doctor(lambda _: None), "signatures", verify=True)
        return {Path(finding.subject).name: finding.finding.partition(":")[0] for finding in findings}

    def test_what_the_program_wrote_verifies_wherever_it_lies(self, services: Services, admin: Agent) -> None:
        worker = services.agents.get("worker-a")
        services.conversations.begin(admin, worker, "first words")
        send(services, "admin", None)
        read(services, "worker-a")
        confirm_read(services.workspace.mailbox("worker-a"))
        assert self.verdicts(services) == {}

    def test_each_kind_is_told_apart(self, services: Services) -> None:
        for sender in ("admin", "worker-b", "owner"):
            send(services, sender, "worker-a")
        tampered, copied, keyless = sorted(mail(services), key=lambda path: path.read_bytes().split(b"sender_id: ")[1])
        by_hand(services, "worker-a", "by-hand.md", "---\nsender_id: owner\n---\n\nhello\n")
        tampered.write_bytes(tampered.read_bytes().replace(b"hello", b"goodbye"))
        shutil.copy(copied, services.workspace.mailbox("worker-b").path / "copied.md")
        services.agents.registry.update("worker-b", public_key=None)
        assert self.verdicts(services) == {
            "by-hand.md": "unsigned",
            tampered.name: "tampered",
            "copied.md": "misplaced",
            keyless.name: "no_key",
        }

    def test_it_is_done_only_when_asked_for(self, services: Services) -> None:
        by_hand(services, "worker-a", "note.md", "---\nsender_id: owner\n---\n\nhello\n")
        assert found(services.doctor(lambda _: None), "signatures") == []

    def test_an_archived_message_that_was_changed_is_found(self, services: Services) -> None:
        send(services, "admin", "worker-a")
        read(services, "worker-a")
        confirm_read(services.workspace.mailbox("worker-a"))
        (path,) = mail(services)
        path.write_bytes(path.read_bytes().replace(b"hello", b"goodbye"))
        assert self.verdicts(services) == {path.name: "tampered"}


def test_an_operation_nobody_can_read_is_named_and_set_aside(
    services: Services, doctor: Doctor, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {"int_a": "", "int_b": "{", "int_c": "[]", "int_d": '{"kind": "send", "facts": {}}'}
    directory = services.workspace.intents.path
    directory.mkdir(exist_ok=True)
    for name, text in texts.items():
        (directory / f"{name}.json").write_text(text, encoding="utf-8")
    assert services.operations.finish() == 0
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []
    assert {finding.subject for finding in found(doctor, "operations")} == {f".intents/{name}.json" for name in texts}
    repaired(doctor, "operations")
    kept = {path.stem: path.read_text(encoding="utf-8") for path in (directory / "quarantine").glob("*.json")}
    assert kept == texts
    assert {finding.subject for finding in found(doctor, "files")} == {
        f".intents/quarantine/{name}.json" for name in texts
    }


def test_a_file_by_hand_whose_name_is_no_id_gets_one(services: Services, doctor: Doctor) -> None:
    tasks, archive, task = services.workspace.tasks, Path("worker-a", "archive", "2026-11"), running(services)
    (tasks.base / archive).mkdir(parents=True)
    (tasks.base / "worker-a" / f"{task.id}.md").rename(tasks.base / "worker-a" / "login form.md")
    for name in ("worker-a/tsk_mine.md", "worker-a/caf\udce9.md", f"{archive}/done.md"):
        status = "done" if "archive" in name else "todo"
        header = f"id: tsk_mine\ntitle: by hand\nstatus: {status}\nassignee_id: worker-a"
        (tasks.base / name).write_text(f"---\n{header}\n---\n\nDo it\n", encoding="utf-8")
    (tasks.base / "worker-a" / ".notes.md").touch(0o600)
    (services.path / "questions").mkdir()
    (services.path / "questions" / "caf\udce9.md").write_text("---\nasker_id: admin\nto_id: owner\n---\n\nWhen?")
    assert not tasks.all("worker-a")
    assert not services.workspace.questions.all()
    assert Seat(services, "worker-a").call("get_next_action")["action"] != "work"
    assert len(repaired(doctor, "files")) == 5
    assert tasks.get(task.id).history == task.history
    by_hand = [found for found in tasks.all("worker-a") if found.id != task.id]
    assert [(found.title, found.description) for found in by_hand] == [("by hand", "Do it\n")] * 3
    assert all(tasks.get(found.id) == found for found in by_hand)
    assert [question.question for question in services.workspace.questions.all()] == ["When?"]


def test_files_with_one_id_in_several_places_are_named_and_left_alone(services: Services, doctor: Doctor) -> None:
    tasks, task = services.workspace.tasks, running(services)
    (original,) = tasks.base.glob(f"*/{task.id}.md")
    month = tasks.base / "admin" / "archive" / "2026-10"
    month.mkdir(parents=True)
    copies = [month / original.name, tasks.base / "_unassigned" / original.name]
    copies[1].parent.mkdir(exist_ok=True)
    for path in copies:
        path.write_bytes(original.read_bytes())
    doctor.repair(doctor.examine())
    (finding,) = found(doctor, "files")
    assert (finding.level, finding.fix) == ("problem", None)
    named = {finding.subject, *finding.finding.partition(": ")[2].partition("（")[0].partition(";")[0].split(", ")}
    assert named == {str(path.relative_to(services.path)) for path in (original, *copies)}
    assert all(path.read_bytes() == original.read_bytes() for path in copies)


def test_a_file_by_which_an_earlier_version_would_import_the_projects_modules_is_written_again(
    services: Services, doctor: Doctor
) -> None:
    configurations = services.host_configurations
    written = [
        *configurations.write(configurations.of("claude", "worker-a", services.root.parent)),
        *configurations.write(configurations.of("codex", "worker-b", services.root.parent)),
    ]
    assert found(doctor, "host_files") == []
    for file, _ in written:
        file.write_text(re.sub(r'"-E",\s*"-P",\s*', "", file.read_text(encoding="utf-8")).replace(" -E -P", ""))
    assert {Path(finding.finding.split(" ")[0]) for finding in found(doctor, "host_files")} == {
        file for file, _ in written
    }
    repaired(doctor, "host_files")
