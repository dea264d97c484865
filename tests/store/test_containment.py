"""Symbolic links, pipes and names in hand-written files: nothing leads out of a session directory, nothing hangs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import InvalidArguments, InvalidId, Refusal, StorageError
from multi_agent_mcp.wiring import Services
from tests.services.support import by_hand, contents, read, send, unread

NOTE = "---\nsender_id: owner\n---\n\nfrom outside\n"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory that is none of ours, with a file in it."""
    path = tmp_path / "outside"
    path.mkdir()
    (path / "note.md").write_text(NOTE)
    return path


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(item.relative_to(path)): item.read_bytes() for item in path.rglob("*") if item.is_file()}


def lead_out(services: Services, name: str, outside: Path) -> None:
    """Puts a link in the place of a directory of the session."""
    path = services.workspace.path / name
    if path.exists():
        shutil.move(path, outside.parent / f"moved-{path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(outside)


@pytest.mark.parametrize("name", ["ipc", "ipc/worker-a", ".tmp", ".locks", "secrets"])
def test_nothing_is_sent_through_a_link_that_leads_out(services: Services, outside: Path, name: str) -> None:
    lead_out(services, name, outside)
    before = snapshot(outside)
    fresh = open_session(services.workspace.root, "demo", notifier=services.notifier)
    if name == "secrets":
        send(fresh, "admin", "worker-a")  # no key can be read: unsigned
        assert read(fresh, "worker-a")["messages"][0]["verified"] is False
    else:
        with pytest.raises(StorageError):
            send(fresh, "admin", "worker-a") if name != ".locks" else read(fresh, "worker-a")
    assert snapshot(outside) == before


def test_a_mailbox_that_leads_out_is_refused_to_its_reader_too(services: Services, outside: Path) -> None:
    lead_out(services, "ipc/worker-a", outside)
    with pytest.raises(StorageError) as refused:
        read(services, "worker-a")
    assert refused.value.key == "error.leads_out"
    assert sorted(snapshot(outside)) == ["note.md"]


def test_a_mailbox_that_is_moved_out_and_linked_while_it_is_used_is_refused(services: Services, outside: Path) -> None:
    send(services, "admin", "worker-a", content="before")
    assert unread(services, "worker-a") == 1
    mailbox = services.workspace.path / "ipc" / "worker-a"
    moved = mailbox.rename(outside / "moved")
    mailbox.symlink_to(moved)
    before = snapshot(outside)
    for use in (lambda: send(services, "admin", "worker-a"), lambda: read(services, "worker-a")):
        with pytest.raises(StorageError):
            use()
    assert snapshot(outside) == before


def test_a_link_within_the_session_is_followed(services: Services) -> None:
    mailbox = services.workspace.mailbox("worker-a").path
    elsewhere = services.workspace.path / "elsewhere"
    shutil.move(mailbox, elsewhere)
    mailbox.symlink_to(elsewhere)
    send(services, "admin", "worker-a")
    assert contents(read(services, "worker-a")) == ["hello"]


def test_a_root_reached_by_a_link_is_as_good_as_any(services: Services, tmp_path: Path) -> None:
    link = tmp_path / "shortcut"
    link.symlink_to(services.workspace.root)
    through = open_session(link, "demo", notifier=services.notifier)
    send(through, "admin", "worker-a")
    assert contents(read(services, "worker-a")) == ["hello"]


def test_a_session_that_is_a_link_out_of_its_root_is_refused(services: Services, tmp_path: Path) -> None:
    shutil.move(services.workspace.path, tmp_path / "moved")
    services.workspace.path.symlink_to(tmp_path / "moved")
    fresh = open_session(services.workspace.root, "demo", notifier=services.notifier)
    with pytest.raises(StorageError):
        fresh.agents.all()


def test_a_link_in_place_of_a_message_is_ignored(services: Services, outside: Path) -> None:
    (services.workspace.mailbox("worker-a").path / "link.md").symlink_to(outside / "note.md")
    assert unread(services, "worker-a") == 0
    assert read(services, "worker-a")["messages"] == []
    assert services.workspace.mailbox("worker-a").find("link") is None


@pytest.mark.parametrize("name", ["agents.json", "secrets/admin.key"])
@pytest.mark.parametrize("make", ["link", "pipe", "directory"])
def test_a_file_we_need_that_is_none_is_refused_and_never_waited_for(
    services: Services, tmp_path: Path, name: str, make: str
) -> None:
    path = services.workspace.path / name
    shutil.move(path, tmp_path / "moved")
    makers: dict[str, Callable[[], None]] = {
        "link": lambda: path.symlink_to(tmp_path / "moved"),
        "pipe": lambda: os.mkfifo(path),
        "directory": path.mkdir,
    }
    makers[make]()
    fresh = open_session(services.workspace.root, "demo", notifier=services.notifier)
    with pytest.raises(StorageError):
        fresh.agents.stored_key(fresh.agents.get("admin").id)


def test_settings_that_are_a_link_are_refused(services: Services, tmp_path: Path) -> None:
    shutil.move(services.workspace.settings_path, tmp_path / "moved")
    services.workspace.settings_path.symlink_to(tmp_path / "moved")
    with pytest.raises(InvalidArguments):
        open_session(services.workspace.root, "demo")


def test_an_archive_that_leads_out_is_neither_read_nor_pruned(services: Services, outside: Path) -> None:
    lead_out(services, "ipc/worker-a/archive", outside.parent)  # then `outside` looks like a month
    assert contents(read(services, "worker-a", unread_only=False)) == []
    found = services.pruning.prunable(datetime.now(UTC) + timedelta(days=900), timedelta(0))
    assert [item.name for item in found if item.kind == "ipc"] == []


def test_a_quarantine_that_leads_out_takes_nothing(services: Services, outside: Path) -> None:
    lead_out(services, "ipc/worker-a/quarantine", outside)
    path = by_hand(services, "worker-a", "bad.md", "no front matter")
    before = snapshot(outside)
    with pytest.raises(StorageError):
        unread(services, "worker-a")
    assert path.exists()
    assert snapshot(outside) == before


def test_a_shelf_of_tasks_that_is_a_link_hides_no_other_task(services: Services, owner: Agent, outside: Path) -> None:
    services.task_creation.send(owner, "admin", "Build", "x")
    (services.workspace.path / "tasks" / "worker-a").symlink_to(outside)
    assert [task.title for task in services.workspace.tasks.all()] == ["Build"]


def test_a_log_is_where_we_wrote_it_whatever_its_file_says(services: Services, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("a secret\n")
    partition = services.workspace.path / "executions" / "worker-a"
    partition.mkdir(parents=True)
    header = f"id: exec_0123456789ab\nagent_id: worker-a\nlog_file_path: {tmp_path}/secret.txt\n"
    (partition / "exec_0123456789ab.md").write_text(f"---\n{header}---\n\n")
    execution = services.executions.get("worker-a", "exec_0123456789ab")
    assert services.executions.read_log(execution).lines == []
    (partition / "logs").mkdir()
    (partition / "logs" / "exec_0123456789ab.log").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(StorageError):
        services.executions.read_log(execution)


@pytest.mark.parametrize("name", ["../../x", "..", "a/b", ".hidden", "a\nb"])
def test_an_assignee_that_is_no_name_is_none_and_blocks_nobody(services: Services, name: str) -> None:
    partition = services.workspace.path / "tasks" / "worker-a"
    partition.mkdir(parents=True)
    header = f"id: tsk_0123456789ab\nassignee_id: {name!r}\nstatus: blocked\ninterrupt_id: ntf_0123456789ab\n"
    (partition / "tsk_0123456789ab.md").write_text(f"---\n{header}---\n\n")
    services.derived_notices.repair("worker-a")
    services.workspace.tasks.update("tsk_0123456789ab", lambda task: task)
    (found,) = services.workspace.root.parent.rglob("*.md")
    assert found == services.workspace.path / "tasks" / "_unassigned" / "tsk_0123456789ab.md"


@pytest.mark.parametrize("name", ["../../x", "..", "a/b", "", "a\x00b", "ü", "a" * 65])
def test_no_path_is_made_of_a_name_that_is_none(services: Services, name: str) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: services.workspace.mailbox(name),
        lambda: services.workspace.notices(name),
        lambda: services.workspace.tasks.directory(name),
    ]
    for attempt in attempts:
        with pytest.raises((InvalidId, Refusal)):
            attempt()
