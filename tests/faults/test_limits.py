"""Limits of the process and the machine, and clocks that do what they like."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft
from tests.conftest import Clock
from tests.faults.everyday import context, entities, nothing_is_half_done
from tests.programs import ran

NO_INOTIFY = 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"'


def test_with_too_many_open_files_everything_is_refused_with_a_code_and_nothing_is_lost(broken: Path) -> None:
    before = entities(broken)
    done = ran(sys.executable, "-m", "tests.faults.starved", str(broken))
    assert done.returncode == 0, done.stderr
    first, *starved, last = json.loads(done.stdout)
    assert set(first.values()) == set(last.values()) == {"done"}
    assert set(starved[0].values()) == {"storage_error"}
    assert {code for outcomes in starved for code in outcomes.values()} <= {"done", "storage_error"}
    nothing_is_half_done(broken)
    assert before.keys() <= entities(broken).keys()


def test_without_inotify_a_server_polls_and_says_so(broken: Path) -> None:
    shell = ("unshare", "--user", "--map-root-user", "sh", "-c", NO_INOTIFY, "sh")
    if (tried := ran(*shell, "true")).returncode != 0:
        pytest.skip(f"no user namespaces here: {tried.stderr.strip()}")
    done = ran(*shell, sys.executable, "-m", "tests.faults.polling", str(broken))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["noticed"]
    assert "looking once a second" in found["degraded"]
    assert found["degraded"] in done.stderr
    assert any("look once a second" in finding for finding in found["findings"])


def test_with_inotify_nothing_is_said_about_polling(broken: Path) -> None:
    done = ran(sys.executable, "-m", "tests.faults.polling", str(broken))
    found = json.loads(done.stdout)
    assert found["noticed"]
    assert found["degraded"] is None
    assert not any("look once a second" in finding for finding in found["findings"])


def test_a_clock_that_jumps_back_an_hour_loses_nothing_and_ends_no_session(broken: Path) -> None:
    clock = Clock()
    services = open_session(broken, "demo", clock=clock, notifier=Recorder())
    admin, worker = services.agents.get("admin"), services.agents.get("worker-a")
    session = services.sessions.open("worker-a", "task")
    task = services.task_changes.start(worker, services.task_creation.send(admin, "worker-a", "Build", "it").task.id)[0]
    clock.advance(-3600)
    session.touch()
    services.messages.send(admin, Draft(content="earlier", receiver_id="worker-a"))
    services.task_changes.set_status(admin, task.id, "blocked", "stop")
    assert session.is_live()
    assert services.notifications.refresh("worker-a", "task").interrupts
    answer = services.reading.read(worker, Query(), session.lease)
    assert sorted(item["content"] for item in answer["messages"]) == ["earlier", "first", "it"]
    session.requeue(session.record.unconfirmed)
    assert services.unread_mail_count("worker-a") == 3
    clock.advance(2 * 3600)
    services.task_changes.set_status(admin, task.id, "todo")
    assert not services.notifications.refresh("worker-a", "task").interrupts
    assert services.executions.history("worker-a")[0] == []


def test_files_from_the_future_are_read_and_what_comes_after_them_is_seen(broken: Path) -> None:
    """Sets directories and files one hour ahead, as they are after the clock was set back."""
    services = context(broken)
    box = services.workspace.mailbox("worker-a")
    ahead = datetime.now(UTC).timestamp() + 3600
    for path in [*box.path.glob("*.md"), box.path]:
        os.utime(path, (ahead, ahead))
    assert services.unread_mail_count("worker-a") == 1
    services.messages.send(services.agents.get("admin"), Draft(content="second", receiver_id="worker-a"))
    os.utime(box.path, (ahead, ahead))
    assert services.unread_mail_count("worker-a") == 2
    (box.path / "torn.md").write_text("---\nsender_id: admin\n", encoding="utf-8")
    os.utime(box.path / "torn.md", (ahead, ahead))
    answer = services.reading.read(services.agents.get("worker-a"), Query())
    assert [item["content"] for item in answer["messages"]] == ["first", "second"]
    assert box.hot.quarantine.take_news() == 1


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo", "Pacific/Kiritimati", "Europe/Berlin"])
def test_a_time_zone_changes_no_time_and_no_name(broken: Path, zone: str) -> None:
    command = (sys.executable, "-m", "multi_agent_mcp")
    where = ("--root", str(broken), "--session", "demo", "--json")
    before = datetime.now(UTC) - timedelta(seconds=1)
    sent = ran(*command, "send", "worker-b", "hello", *where, TZ=zone)
    assert sent.returncode == 0, sent.stderr
    (path,) = context(broken).workspace.mailbox("worker-b").path.glob("*.md")
    stamped = datetime.strptime(path.name[:15], "%Y%m%d_%H%M%S").replace(tzinfo=UTC)
    assert before.replace(microsecond=0) <= stamped <= datetime.now(UTC)
    # A naive time in the hour that summer time skips in Berlin and repeats in New York is UTC like any other.
    for hand, moment in (("spring.md", "2026-03-29T02:30:00"), ("autumn.md", "2026-11-01T01:30:00")):
        (path.parent / hand).write_text(f"---\nsender_id: owner\ncreated_at: {moment}\n---\n\n{hand}\n", "utf-8")
    read = json.loads(ran(*command, "read", "worker-b", *where, TZ=zone).stdout)
    assert [item["content"].strip() for item in read["messages"]] == ["spring.md", "autumn.md", "hello"]
    assert read["messages"][0]["created_at"] == "2026-03-29T02:30:00.000000Z"
    assert read["messages"][2]["created_at"] >= format_time(before)
