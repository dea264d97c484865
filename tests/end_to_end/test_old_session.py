"""A session directory that version 0.1 wrote is opened, read and carried on as if this version had written it.

`tests/fixtures/sessions/version-0.1.tar.gz` is the office demo of that version (an afternoon of a team: tasks in every
status, a conversation, an Owner who waits, an interrupt), with two more messages to agents and a pause by its command
line; then nobody was running.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.end_to_end.support import REPOSITORY, Team

ARCHIVE = REPOSITORY / "tests" / "fixtures" / "sessions" / "version-0.1.tar.gz"

pytestmark = pytest.mark.anyio


@pytest.fixture
def office(bare: Team) -> Team:
    bare.session = "office"
    bare.root.mkdir(exist_ok=True)
    with tarfile.open(ARCHIVE) as archive:
        if hasattr(tarfile, "tar_filter"):
            archive.extractall(bare.root, filter="tar")  # keeps the modes
        else:  # Python before 3.11.4 knows no filters, and keeps them anyway
            archive.extractall(bare.root)  # noqa: S202 - it is ours
    return bare


def ids(directory: Path) -> set[str]:
    """The names of all entity files below a directory, wherever they were moved: their ids are in them."""
    return {path.name for path in directory.rglob("*.md")}


async def test_what_the_old_version_wrote_is_shown_whole(office: Team) -> None:
    before = ids(office.path)
    tasks = {task["task_id"]: task["status"] for task in office.ask("task", "list")["tasks"]}
    assert sorted(tasks.values()) == sorted(
        ["in_progress"] * 4 + ["backlog"] * 3 + ["todo"] * 2 + ["done"] * 2 + ["blocked", "cancelled"]
    )
    (talk,) = office.ask("conversations")["conversations"]
    assert (talk["status"], talk["message_count"]) == ("active", 3)
    assert office.ask("unread")["unread_count"] == 2
    findings = office.ask("doctor", "--verify")["findings"]
    assert [finding["check"] for finding in findings if finding["level"] == "problem"] == []
    assert ids(office.path) == before, "looking changes nothing"


def test_what_is_over_is_moved_to_its_place_once(office: Team) -> None:
    office.ask("unread")
    lying = [path for kind in ("ipc", "notifications", "tasks") for path in (office.path / kind).glob("*/*.md")]
    said = {path: path.read_text(encoding="utf-8") for path in lying}
    assert said
    assert not [path for path, text in said.items() if "\nread_at: '" in text or "\nstatus: done" in text]
    assert list((office.path / "ipc").glob("*/archive/*/*.md"))
    back = min((office.path / "ipc").glob("*/archive/*/*.md"))
    mailbox = office.services.workspace.mailbox(back.parents[2].name)
    before = len(mailbox.unread())
    back.rename(mailbox.path / back.name)
    office.ask("unread")
    assert len(mailbox.unread()) == before + 1, "what is put back is read again: it is not moved a second time"


async def test_old_mail_is_genuine_and_ends_the_owners_old_wait(office: Team) -> None:
    async with office.server("owner") as owner:
        assert await owner.refused("list_agents") == "owner_waiting"
        messages = (await owner.call("read_messages"))["messages"]
        assert len(messages) == 2
        assert all("verified" not in message for message in messages), "HMACs of the first version still verify"
        await owner.call("list_agents")
    assert office.ask("unread")["unread_count"] == 0


async def test_an_agent_goes_on_where_it_was(office: Team) -> None:
    async with office.server("worker-c", "--purpose", "task") as paused:
        assert (await paused.raw("get_my_tasks")).structured_content is None, "the old pause interrupts"
        (notice,) = (await paused.call("get_notifications"))["notifications"]
        assert notice["action"] == "pause"
        (task,) = (await paused.call("get_my_tasks", status="in_progress"))["tasks"]
        await paused.call("report_task_completion", task_id=task["task_id"], status="completed", message="done")
    async with office.server("worker-a", "--purpose", "task") as worker:
        (message,) = (await worker.call("read_messages"))["messages"]
        assert message["content"] == "Please look at the login form once more."
        (talk,) = (await worker.call("get_task_conversations"))["conversations"]
        assert (talk["status"], talk["message_count"]) == ("active", 3)
    async with office.server("admin") as admin:
        answer = await admin.call("read_messages")
        assert answer["dashboard_updated"] is True
        (done,) = [row for row in office.ask("task", "list")["tasks"] if row["task_id"] == task["task_id"]]
        assert done["status"] == "done"
