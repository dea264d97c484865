"""The places of entities."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest

from multi_agent_mcp.domain.agent import AgentSession
from multi_agent_mcp.domain.entity import session_name
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.locks import LOCK_SECONDS
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.file_events import Watch
from tests.store.support import NOON, message, put


@pytest.fixture
def bare(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path, session_name("demo"))
    workspace.make()
    return workspace


def test_every_entity_is_where_the_documentation_says(bare: Workspace) -> None:
    bare.mailbox("worker-a").deliver(message(1, created_at=NOON))
    bare.notices("worker-a").deliver(Notification(id="ntf_0123456789ab", created_at=NOON))
    bare.tasks.add(Task(id="tsk_0123456789ab"))
    bare.tasks.add(Task(id="tsk_0123456789ac", assignee_id="worker-a"))
    bare.sessions.add(AgentSession(id="ses_0123456789ab", agent_id="worker-a"))
    assert sorted(str(path.relative_to(bare.path)) for path in bare.path.rglob("*.md")) == [
        "ipc/worker-a/20261121_120000_00000001.md",
        "notifications/worker-a/20261121_120000_01234567.md",
        "sessions/worker-a/ses_0123456789ab.md",
        "tasks/_unassigned/tsk_0123456789ab.md",
        "tasks/worker-a/tsk_0123456789ac.md",
    ]


def test_a_newcomers_mailbox_is_there_before_the_first_message(bare: Workspace) -> None:
    bare.make_inboxes("worker-a")
    assert (bare.path / "ipc" / "worker-a").is_dir()
    assert (bare.path / "notifications" / "worker-a").is_dir()


def test_a_mailbox_that_cannot_be_made_is_a_storage_error(bare: Workspace) -> None:
    put(bare.path / "ipc", "in the way")
    with pytest.raises(StorageError):
        bare.make_inboxes("worker-a")


def test_a_message_without_a_receiver_is_for_whose_mailbox_it_is_in(bare: Workspace) -> None:
    put(bare.path / "ipc" / "worker-a" / "note.md", "---\nsubject: x\n---\n\nhi")
    ((_, note),) = bare.mailbox("worker-a").unread()
    assert note.receiver_id == "worker-a"


@pytest.mark.parametrize("status", ["done", "cancelled", "todo", "blocked"])
def test_finished_tasks_are_still_listed_and_found(bare: Workspace, status: str) -> None:
    task = bare.tasks.add(Task(id="tsk_0123456789ab", status=status, title="status: done", description="status: done"))
    assert bare.tasks.all() == [task]
    assert bare.tasks.get(task.id) == task


def test_a_session_that_was_moved_away_is_not_made_again(bare: Workspace) -> None:
    bare.path.rename(bare.root / "moved")
    started = monotonic()
    writes: list[Callable[[], object]] = [
        lambda: bare.mailbox("worker-a").deliver(message(1, created_at=NOON)),
        lambda: bare.files.append(bare.path / "audit" / "log.jsonl", "{}"),
        lambda: bare.make_inboxes("worker-a"),
        lambda: bare.locks.held("windows").__enter__(),
        lambda: bare.locks.lock("serving-worker-a"),
        lambda: Watch([bare.path / "ipc" / "worker-a"], lambda _: None).__enter__(),
    ]
    for write in writes:
        with pytest.raises(StorageError) as refused:
            write()
        assert refused.value.key == "error.directory_gone"
    assert not bare.path.exists()
    assert monotonic() - started < LOCK_SECONDS
