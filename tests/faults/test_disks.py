"""Disks that are full, read-only, broken, slow, or know no hard links: an error with a code, never a loss or a hang."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp import Refused, Team
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft
from tests.end_to_end.support import COMMAND, Ran, run
from tests.faults.everyday import context, deeds, entities, nothing_is_half_done, tried

WRITING = ("send", "broadcast", "send_task", "batch", "request", "conversation")


def test_a_full_disk_refuses_with_a_code_and_loses_nothing(mounted: Callable[[str], Path]) -> None:
    root = mounted("rw")
    before = entities(root)
    filler = root / "filler"
    size = os.statvfs(root).f_bavail * os.statvfs(root).f_frsize
    filler.write_bytes(bytes(size))
    outcomes = tried(context(root))
    assert {outcomes[name] for name in WRITING} == {"storage_error"}
    assert entities(root) == before
    filler.unlink()
    nothing_is_half_done(root)
    assert entities(root) == before
    assert set(tried(context(root)).values()) == {"done"}


def test_a_program_is_refused_on_a_full_disk_and_goes_on_once_there_is_room(mounted: Callable[[str], Path]) -> None:
    root = mounted("rw")
    with Team.open(root, doorbell=False) as team, Team.open(root, doorbell=False) as other:
        assert other["owner"].get_unread_count()["success"]
        filler = root / "filler"
        filler.write_bytes(bytes(os.statvfs(root).f_bavail * os.statvfs(root).f_frsize))
        with pytest.raises(Refused, match="storage_error"):
            team["admin"].send_message("hello", "worker-b")
        with pytest.raises((Refused, OSError), match="No space left on device"):
            Team.create(root.parent / "new", {"owner": "owner"})
        with pytest.raises(Refused, match="storage_error"):
            other.close()
        assert sorted(path.name for path in root.parent.iterdir()) == ["root"]
        filler.unlink()
        assert team["admin"].send_message("hello", "worker-b")["success"]
        assert team["worker-a"].read_messages()["messages"][0]["content"] == "first"
    Team.create(root.parent / "new", {"owner": "owner"}).close()


@pytest.mark.parametrize("kilobytes", range(4, 132, 16))
def test_a_disk_that_fills_up_halfway_leaves_nothing_half_done(mounted: Callable[[str], Path], kilobytes: int) -> None:
    root = mounted("rw")
    before = entities(root)
    filler = root / "filler"
    free = os.statvfs(root).f_bavail * os.statvfs(root).f_frsize
    filler.write_bytes(bytes(max(free - kilobytes * 1024, 0)))
    outcomes = tried(context(root))
    assert {"storage_error"} <= set(outcomes.values()) <= {"done", "storage_error"}
    filler.unlink()
    nothing_is_half_done(root)
    after = entities(root)
    assert before.keys() <= after.keys()
    assert set(tried(context(root)).values()) == {"done"}


def test_a_read_only_tree_can_be_looked_at_and_refuses_the_rest_with_a_code(mounted: Callable[[str], Path]) -> None:
    root = mounted("ro")
    before = entities(root)
    services = context(root)
    assert services.operations.finish() == 0
    assert set(tried(services).values()) == {"storage_error"}
    assert services.unread_mail_count("worker-a") == 1
    peeked = services.reading.select(services.agents.get("worker-a"), Query(mark_as_read=False))
    assert [item.content for item in peeked.slices] == ["first"]
    assert services.dashboard.data()["tasks"] == []
    services.doctor(lambda _: None).examine()
    assert entities(mounted("rw")) == before


def test_the_commands_that_look_can_look_at_a_read_only_tree(mounted: Callable[[str], Path]) -> None:
    root = mounted("ro")

    def ran(*command: str) -> Ran:
        return run([*COMMAND, *command, "--root", str(root)], env=dict(os.environ), cwd=root)

    peeked = ran("read", "worker-a", "--peek", "--json")
    assert [message["content"] for message in peeked.json["messages"]] == ["first"]
    assert [found["path"].split("/")[1] for found in ran("search", "first", "--json").json["results"]] == ["worker-a"]
    assert ran("read", "worker-a").code == 1
    findings = ran("doctor", "--json").json["findings"]
    (finding,) = (item for item in findings if "this user may write" in item["repair"])
    assert "Read-only file system" in finding["finding"]
    assert "(path=" not in finding["finding"]
    assert finding["repair"]


def a_bad_sector(monkeypatch: pytest.MonkeyPatch, bad: Path) -> None:
    """Reading this file fails as a broken disk does; there is no FUSE to be had everywhere."""
    real = os.open

    def fails(path: Any, *arguments: Any, **options: Any) -> int:
        if os.fspath(path) in (os.fspath(bad), bad.name):  # the latter by its directory's descriptor
            raise OSError(errno.EIO, os.strerror(errno.EIO), os.fspath(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", fails)


def test_a_file_the_disk_cannot_read_hides_no_other_and_comes_back_with_the_disk(
    broken: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    services = context(broken)
    worker = services.agents.get("worker-a")
    (bad,) = services.workspace.mailbox("worker-a").path.glob("*.md")
    services.messages.send(services.agents.get("admin"), Draft(content="second", receiver_id="worker-a"))
    with monkeypatch.context() as patched:
        a_bad_sector(patched, bad)
        fresh = context(broken)
        assert [item["content"] for item in fresh.reading.read(worker, Query())["messages"]] == ["second"]
        assert "Input/output error" in caplog.text
        assert fresh.workspace.mailbox("worker-a").hot.skipped() == [bad.name]
        assert bad.exists()
        found = [finding.subject for finding in fresh.doctor(lambda _: None).examine() if finding.check == "disk"]
        assert found == [f"ipc/worker-a/{bad.name}"]
    assert [item["content"] for item in fresh.reading.read(worker, Query())["messages"]] == ["first"]


def test_a_registry_the_disk_cannot_read_is_an_error_with_a_code(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_bad_sector(monkeypatch, broken / "demo" / "agents.json")
    with pytest.raises(StorageError):
        context(broken).agents.all()


def test_without_hard_links_every_promise_is_kept(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    services = context(broken)
    assert set(tried(services).values()) == {"done"}
    nothing_is_half_done(broken)
    files, path = services.workspace.files, broken / "demo" / "exclusive.md"
    files.create(path, b"one")
    with pytest.raises(FileExistsError):
        files.create(path, b"two")
    assert path.read_bytes() == b"one"
    other = path.with_name("other.md")
    files.create(other, b"two")
    assert files.relocate([(other, path)]) == [path.with_name("exclusive.1.md")]
    assert (path.read_bytes(), path.with_name("exclusive.1.md").read_bytes()) == (b"one", b"two")
    assert not other.exists()
    assert any("no hard links" in finding.finding for finding in services.doctor(lambda _: None).examine())


def test_on_a_slow_disk_everything_is_done_late_and_nothing_is_lost(
    broken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, syncs = os.fsync, []

    def slow(descriptor: int) -> None:
        syncs.append(descriptor)
        time.sleep(0.02)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    assert set(tried(context(broken)).values()) == {"done"}
    assert len(syncs) > len(WRITING)
    nothing_is_half_done(broken)


def test_a_lock_that_is_held_too_long_is_an_error_with_a_code(
    broken: Path, worker_lock: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("multi_agent_mcp.store.locks.LOCK_SECONDS", 0.2)
    services = context(broken)
    worker_lock(services.workspace.mailbox("worker-a").lock)
    with pytest.raises(StorageError) as refused:
        services.reading.read(services.agents.get("worker-a"), Query())
    assert refused.value.key == "error.lock_timeout"
    assert services.unread_mail_count("worker-a") == 1


@pytest.fixture
def worker_lock(broken: Path) -> Callable[[str], None]:
    """Returns a function that takes a lock through another opening of the session and keeps it."""
    held: list[Any] = []

    def hold(name: str) -> None:
        lock = context(broken).workspace.locks.lock(name)
        lock.acquire()
        held.append(lock)

    return hold


def test_ten_thousand_files_in_one_folder_are_all_there(broken: Path) -> None:
    services = context(broken)
    box = services.workspace.mailbox("worker-a")
    ((name, first),) = box.unread()
    unread = (box.path / name).read_text(encoding="utf-8")
    read = unread.replace("read_at: null", "read_at: '2026-11-02T00:00:00.000000Z'", 1)
    month = box.path / "archive" / "2026-11"
    month.mkdir(parents=True)
    for number in range(9_999):
        copy, place = (unread, box.path) if number < 500 else (read, month)
        name = f"20261101_000000_{number:08x}.md"
        (place / name).write_text(copy.replace(first.id, f"{number:08x}{first.id[8:]}"), encoding="utf-8")
    assert services.unread_mail_count("worker-a") == 501
    answer = services.reading.read(services.agents.get("worker-a"), Query(limit=50))
    assert answer["count"] + answer["unread_remaining"] == 501
    assert answer["truncated"]
    assert deeds(services)["send"]()
    assert len(list(box.path.glob("archive/*/*.md"))) == 9_499 + answer["count"]
    assert len(list(box.path.rglob("*.md"))) == 10_001


def test_an_agent_is_added_whole_or_not_at_all_on_a_full_disk(mounted: Callable[[str], Path]) -> None:
    root = mounted("rw")
    filler = root / "filler"
    filler.write_bytes(bytes(os.statvfs(root).f_bavail * os.statvfs(root).f_frsize))
    services = context(root)
    with pytest.raises(StorageError):
        services.agents.add(Agent(id="worker-c", role="worker", parent_id="admin"))
    assert "worker-c" not in context(root).agents.all()
    filler.unlink()
    context(root).agents.add(Agent(id="worker-c", role="worker", parent_id="admin"))
