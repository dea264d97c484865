"""The places of entities."""

from __future__ import annotations

from pathlib import Path

import pytest

from multi_agent_mcp.domain.ids import session_name
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.session import AgentSession
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.workspace import Workspace
from tests.store.support import NOON, message, put


@pytest.fixture
def bare(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, session_name("demo"))


def test_every_entity_lies_where_the_documentation_says(bare: Workspace) -> None:
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


def test_a_message_without_a_receiver_is_for_whose_mailbox_it_lies_in(bare: Workspace) -> None:
    put(bare.path / "ipc" / "worker-a" / "note.md", "---\nsubject: x\n---\n\nhi")
    ((_, note),) = bare.mailbox("worker-a").unread()
    assert note.receiver_id == "worker-a"


@pytest.mark.parametrize("status", ["done", "cancelled", "todo", "blocked"])
def test_finished_tasks_are_still_listed_and_found(bare: Workspace, status: str) -> None:
    task = bare.tasks.add(Task(id="tsk_0123456789ab", status=status, title="status: done", description="status: done"))
    assert bare.tasks.all() == [task]
    assert bare.tasks.get(task.id) == task
