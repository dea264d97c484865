"""What is in an archive on one machine is in it on all, and what several machines make under one id is the same, to the
byte, wherever and in whatever order they hear of each other."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from multi_agent_mcp.domain.agent import OwnerWait
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.notification import Notification, derived_id
from multi_agent_mcp.services.tasks.board import NewTask
from tests.hub.support import DESK, LAPTOP, SHED, Machine, Machines, eventually, free_port
from tests.hub.test_machines import send, task_for
from tests.hub.test_security import LETTER, STAMP, as_machine, publishes

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MONTHLY = ("tasks", "executions", "handoffs")
SAME = (*MONTHLY, "notifications", "conversations", "delegations", "owner_wait", "questions", "ipc")
OF_THE_HUB = re.compile(rb"^hub: .*\n", re.MULTILINE)


def tree(machine: Machine) -> dict[str, bytes]:
    """Every file that all machines have, with its place; without the hub's mark, which is set a moment later."""
    found = {}
    for directory in SAME:
        for path in (machine.path / directory).rglob("*.md"):
            if "quarantine" not in path.parts and path.exists():
                found[str(path.relative_to(machine.path))] = OF_THE_HUB.sub(b"", path.read_bytes())
    return found


def are_equal(*members: Machine) -> bool:
    first, *others = map(tree, members)
    return all(first == other for other in others)


def become_equal(*members: Machine) -> None:
    try:
        eventually(lambda: are_equal(*members))
    except AssertionError:
        first, *others = map(tree, members)
        for other in others:
            assert sorted(first) == sorted(other)
            assert first == other
        raise


def archived(machine: Machine, directory: str, name: str) -> bool:
    return any("archive" in path.parts for path in (machine.path / directory).rglob(name))


@contextmanager
def apart(laptop: Machine) -> Iterator[None]:
    """The laptop is away from the hub."""
    assert laptop.wire is not None
    laptop.wire.cut()
    eventually(lambda: not laptop.sharing.status()["connected"])
    try:
        yield
    finally:
        laptop.wire.heal()


def told(machine: Machine, notice: Notification, words: str, at: datetime = NOON) -> None:
    """Makes the notification here, in its own words."""
    writer = machine.services.notice_writer
    assert writer.put_first(replace(notice, reason=words, created_at=at))


def of_a_cause(*cause: object) -> Notification:
    return Notification(id=derived_id(*cause), target_agent_id="worker-a", type="status_change", action="agent_stuck")


def test_an_incomplete_message_stays_as_the_hub_has_it_where_the_relay_was_killed(two: Machines) -> None:
    desk, laptop, name = two[DESK], two[LAPTOP], "incomplete.md"
    subject = laptop.sharing.membership.names.own(LAPTOP, "msg", "admin", name)
    as_machine(laptop, lambda client: client.request(subject, LETTER, 2, headers=STAMP))
    copies = [machine.path / "ipc" / "admin" / name for machine in (desk, laptop)]
    eventually(lambda: all(copy.exists() for copy in copies))
    desk.signal(signal.SIGKILL)  # the next relay looks at all files that were changed lately
    (desk.path / "ipc" / "worker-a" / "later.md").write_text("---\nsender_id: admin\n---\n\nnoticed later")
    desk.sharing.start_relay()
    eventually(lambda: laptop.has("worker-a", "noticed later"))
    assert [copy.read_bytes() for copy in copies] == [LETTER, LETTER]


IN_ANOTHER_FORM = {
    "cnv.cnv_a00000000000": b"---\nid: x\ninitiator_id: worker-a\ntarget_id: admin\nstatus: ended\n---\n",
    "tsk.tsk_a00000000000": b"---\ntitle: Short\nassignee_id: admin\nnewer: kept\nstatus: done\n---\n\nwords",
    "tsk.tsk_b00000000000": b"---\n{title: Flow, assignee_id: admin, status: done}\n---\n\nwords",
    "tsk.tsk_c00000000000": b"---\r\ntitle: Lines\r\nassignee_id: a b\r\n---\r\n\r\nwords",
    "tsk.tsk_d00000000000": b"---\nid: tsk_b00000000000\ntitle: Another's name\nstatus: done\n---\n\nwords",
    "tsk.tsk_e00000000000": b"---\nneeds:\n" + 60 * b"- one\n" + b"? title\n: Many lines\n---\n\nwords",
}
"""Values of a machine with another version, or of another program's: what they leave out has its default."""


def test_a_value_in_another_form_than_ours_is_no_edit_by_hand_for_a_relay_that_was_killed(two: Machines) -> None:
    desk, laptop, authority = two[DESK], two[LAPTOP], two[DESK].services.workspace.tasks.authority
    names = laptop.sharing.membership.names
    publishes(laptop, *((names.shared(key), data) for key, data in IN_ANOTHER_FORM.items()))
    become_equal(desk, laptop)
    before = {key: authority.current(key) for key in IN_ANOTHER_FORM}
    for machine in (desk, laptop):
        machine.signal(signal.SIGKILL)  # the next relay looks at all files that were changed lately
        words = f"---\nsender_id: admin\n---\n\nfrom {machine.name}"
        (machine.path / "ipc" / "worker-a" / f"{machine.name}.md").write_text(words)
        machine.sharing.start_relay()
    for machine in (desk, laptop):
        eventually(lambda machine=machine: all(machine.has("worker-a", f"from {each}") for each in (DESK, LAPTOP)))  # type: ignore[misc]
        eventually(lambda machine=machine: not machine.sharing.status()["pending"])  # type: ignore[misc]
    assert {key: authority.current(key) for key in IN_ANOTHER_FORM} == before
    become_equal(desk, laptop)
    assert [path for machine in (desk, laptop) for path in machine.path.rglob("quarantine/*")] == []
    assert "other_than_hub" not in [found.finding for found in desk.services.doctor(lambda _: None).examine()]


OF_A_NEWER_VERSION = [
    (LAPTOP, "executions/worker-a/exec_0123456789ab.md", b"agent_id: worker-a", b"task_id: tsk_0123456789ab"),
    (LAPTOP, "sessions/worker-a/ses_0123456789ab.md", b"agent_id: worker-a", b"started_at: 2026-11-21T12:00:00Z"),
    (DESK, "owner_wait/owner.md", b"admin_id: admin", b"since: 2026-11-21T12:00:00Z"),
]


@pytest.mark.parametrize(("home", "file", "one", "other"), OF_A_NEWER_VERSION)
def test_what_the_home_of_an_agent_writes_is_elsewhere_to_the_byte_whatever_its_form(
    two: Machines, home: str, file: str, one: bytes, other: bytes
) -> None:
    path, elsewhere = (two[name].path / file for name in (home, LAPTOP if home == DESK else DESK))
    path.parent.mkdir(parents=True, exist_ok=True)
    for lines in ((one, b"newer: {kept: yes}", other), (other, one, b"newer: {kept: yes}")):
        path.write_bytes(b"---\n" + b"\n".join(lines) + b"\n---\n")
        eventually(lambda: elsewhere.exists() and elsewhere.read_bytes() == path.read_bytes())
    path.unlink()
    if path.parent.name == "owner_wait":
        eventually(lambda: not elsewhere.exists())
    else:
        elsewhere.unlink()  # what was pruned stays elsewhere


@pytest.mark.parametrize("first", [DESK, LAPTOP])
@pytest.mark.parametrize("apart_by", [timedelta(0), timedelta(seconds=7)], ids=["same-name", "other-name"])
def test_a_notification_that_two_machines_have_made_apart(two: Machines, first: str, apart_by: timedelta) -> None:
    desk, laptop = two[DESK], two[LAPTOP]
    notice = of_a_cause("both", first, apart_by)
    with apart(laptop):
        for machine in (desk, laptop):
            is_first = machine.name == first
            words, at = ("a", NOON) if is_first else ("b", NOON + apart_by)
            told(machine, notice, f"{words} said on {machine.name}", at)
        assert not are_equal(desk, laptop)
    become_equal(desk, laptop)
    (found,) = [item for item in desk.services.workspace.notices("worker-a").history() if item.id == notice.id]
    assert found.reason == f"a said on {first}"


def test_one_that_was_read_where_its_agent_is_at_home_stays_read_with_the_other_s_words(two: Machines) -> None:
    desk, laptop = two[DESK], two[LAPTOP]
    notice = of_a_cause("read")
    with apart(laptop):
        told(desk, notice, "a")
        told(laptop, notice, "b", NOON + timedelta(seconds=3))
        services = laptop.services
        assert services.notifications.read("worker-a", "task")
    become_equal(desk, laptop)
    (found,) = [item for item in desk.services.workspace.notices("worker-a").history() if item.id == notice.id]
    assert (found.reason, found.read_at is not None) == ("a", True)


def test_what_is_ended_says_so_on_every_machine(desk: Machine, laptop: Machine) -> None:
    task_id = task_for(desk, "worker-a")
    eventually(lambda: laptop.services.workspace.tasks.find(task_id))
    services = desk.services
    services.task_changes.assign(services.agents.get("admin"), task_id, "admin")
    eventually(lambda: any(item.settled for item in desk.services.workspace.notices("worker-a").history()))
    become_equal(desk, laptop)


def interrupted(desk: Machine, laptop: Machine) -> None:
    """A task in hand is cancelled: it is over before its agent's machine has told the agent."""
    task_id = task_for(desk, "worker-a")
    eventually(lambda: laptop.services.workspace.tasks.find(task_id))
    services = laptop.services
    services.task_changes.start(services.agents.get("worker-a"), task_id)
    eventually(lambda: desk.services.workspace.tasks.get(task_id).status == "in_progress")
    cancel(desk, task_id)
    for machine in (desk, laptop):
        eventually(lambda machine=machine: archived(machine, "tasks", f"{task_id}.md"))  # type: ignore[misc]


def withdrawn(desk: Machine, laptop: Machine) -> None:
    """A task that its agent has not begun is cancelled while its announcement is unread."""
    task_id = task_for(desk, "worker-a")
    eventually(lambda: laptop.services.workspace.tasks.find(task_id))
    cancel(desk, task_id)
    for machine in (desk, laptop):
        eventually(lambda machine=machine: archived(machine, "tasks", f"{task_id}.md"))  # type: ignore[misc]


def cancel(machine: Machine, task_id: str) -> None:
    services = machine.services
    services.task_changes.set_status(services.agents.get("admin"), task_id, "cancelled")


def paused(desk: Machine, laptop: Machine) -> None:
    """A pause ends before its agent has heard of it, and another one after that."""
    services = desk.services
    admin = services.agents.get("admin")
    for is_read in (False, True):
        pause = services.interrupting.interrupt(admin, "worker-a", "pause", None, None)
        assert pause is not None
        eventually(lambda pause=pause: laptop.services.workspace.notices("worker-a").find(pause.id))  # type: ignore[misc]
        if is_read:
            laptop.services.notifications.read("worker-a", "task")
            eventually(lambda: laptop.services.notifications.is_paused("worker-a"))
        services.interrupting.resume(admin, "worker-a")
        eventually(lambda: not laptop.services.notifications.is_paused("worker-a"))
        laptop.services.notifications.read("worker-a", "task")
    eventually(lambda: not list((desk.path / "notifications" / "worker-a").glob("*.md")))


def handed_over(desk: Machine, laptop: Machine) -> None:
    services = desk.services
    for words in ("the roof is next", "the cellar is next"):
        services.hand_offs.write(services.agents.get("admin"), words, None, None)
    eventually(lambda: len(laptop.services.hand_offs.all("admin")) >= 2)
    eventually(lambda: list((laptop.path / "handoffs" / "admin" / "archive").rglob("*.md")))


@contextmanager
def delegating(desk: Machine) -> Iterator[tuple[str, str]]:
    """The ids of a delegation of admin and of its conversation, while both sessions are open."""
    services = desk.services
    admin, session = services.agents.get("admin"), services.sessions.open("admin", "task")
    delegation, _ = services.delegations.delegate(admin, session.record, "worker-a", "to agree", None)
    chat = services.sessions.open("admin", "chat")
    talk, _ = services.delegations.start_conversation(
        admin, chat.record, "worker-a", "hello", delegation_id=delegation.id
    )
    yield delegation.id, talk.id
    for opened in (session, chat):
        opened.end()


def delegated(desk: Machine, laptop: Machine) -> None:
    with delegating(desk) as (delegation_id, talk_id):
        eventually(lambda: laptop.services.workspace.conversations.find(talk_id))
        laptop.services.conversations.end(laptop.services.agents.get("worker-a"), talk_id)
    for machine in (desk, laptop):
        eventually(lambda machine=machine: archived(machine, "delegations", f"{delegation_id}.md"))  # type: ignore[misc]


def waited(desk: Machine, laptop: Machine) -> None:
    waits = desk.services.owner_waits
    waits.begin(OwnerWait(owner_id="owner", admin_id="admin", message_id="msg_0123456789ab", since=NOON))
    eventually(lambda: laptop.services.owner_waits.of("owner"))
    waits.release("owner")
    eventually(lambda: archived(laptop, "owner_wait", "*_owner.md"))


def cancelled_by_one_that_was_killed(desk: Machine, laptop: Machine) -> None:
    """Whoever cancels a task in hand is killed before its agent is told, which the next reader here does."""
    task_id = task_for(desk, "worker-a")
    eventually(lambda: laptop.services.workspace.tasks.find(task_id))
    laptop.services.task_changes.start(laptop.services.agents.get("worker-a"), task_id)
    eventually(lambda: desk.services.workspace.tasks.get(task_id).status == "in_progress")
    change = Change(by="admin", at=desk.services.clock())
    with apart(laptop):
        cancelled = desk.services.workspace.tasks.update(task_id, lambda task: task.move_to("cancelled", change))
        desk.services.derived_notices.tell([cancelled])
    for machine in (desk, laptop):
        eventually(lambda machine=machine: archived(machine, "tasks", f"{task_id}.md"))  # type: ignore[misc]


def agreed_by_one_that_was_killed(desk: Machine, laptop: Machine) -> None:
    """Whoever ends the conversation of a delegation is killed before it has put that away."""
    with delegating(desk) as (delegation_id, talk_id):
        pass
    desk.services.workspace.conversations.update(talk_id, lambda found: found.end("admin", desk.services.clock()))
    for machine in (desk, laptop):
        eventually(lambda machine=machine: archived(machine, "delegations", f"{delegation_id}.md"))  # type: ignore[misc]


KILLED = [cancelled_by_one_that_was_killed, agreed_by_one_that_was_killed]


@pytest.mark.parametrize("end", [interrupted, withdrawn, paused, handed_over, delegated, waited, *KILLED])
def test_what_is_over(two: Machines, end: Callable[[Machine, Machine], None]) -> None:
    end(two[DESK], two[LAPTOP])
    become_equal(two[DESK], two[LAPTOP])


def aged(desk: Machine) -> None:
    """A task that was cancelled months ago."""
    services = desk.services
    admin = services.agents.get("admin")
    (task,) = services.task_creation.create(admin, [NewTask(title="Old")])
    services.task_changes.set_status(admin, task.id, "cancelled")
    (path,) = (desk.path / "tasks").rglob(f"{task.id}.md")
    os.utime(path, (1_778_000_000, 1_778_000_000))
    (path.parent.parent / "2026-05").mkdir()
    path.rename(path.parent.parent / "2026-05" / path.name)


def put_in_may(desk: Machine) -> list[Path]:
    """A task, an execution and a hand-off in the archive of May, whose files were copied later. Returns where they
    are."""
    services = desk.services
    admin, session = services.agents.get("admin"), services.sessions.open("admin", "task")
    tasks = services.task_creation.create(admin, [NewTask(title="Copied", assignee_id="admin")])
    services.task_changes.start(admin, tasks[0].id)
    services.executions.begin(session.record, tasks[0].id)
    services.hand_offs.write(admin, "the roof is next", None, None)
    services.task_changes.set_status(admin, tasks[0].id, "cancelled")
    session.end()
    services.hand_offs.write(admin, "the cellar is next", None, None)
    services.sessions.recover("admin")
    found = [path for each in MONTHLY for path in (desk.path / each).rglob("archive/*/*.md")]
    for path in found:
        (path.parent.parent / "2026-05").mkdir(exist_ok=True)
        path.rename(path.parent.parent / "2026-05" / path.name)
    return [path.parent.parent / "2026-05" / path.name for path in found]


def test_what_was_copied_or_edited_in_a_month_is_in_that_month_everywhere(tmp_path: Path) -> None:
    made, places = Machines(tmp_path, free_port()), list[Path]()
    try:
        made.begin(lambda desk: places.extend(put_in_may(desk)))
        desk, laptop = made[DESK], made.add(LAPTOP)
        assert {path.relative_to(desk.path).parts[0] for path in places} == {*MONTHLY}
        for path in places:
            eventually((laptop.path / path.relative_to(desk.path)).exists)
        become_equal(desk, laptop)
        for path in places:
            path.write_text(path.read_text().replace("\n---\n", "\nnote: edited\n---\n", 1))
        become_equal(desk, laptop)
    finally:
        made.close()


def test_a_machine_that_joins_has_all_of_it_in_the_same_places(tmp_path: Path) -> None:
    made = Machines(tmp_path, free_port())
    try:
        made.begin(aged)
        desk, laptop = made[DESK], made.add(LAPTOP)
        eventually(lambda: list((laptop.path / "tasks").rglob("archive/2026-05/tsk_*.md")))
        made.complete()
        become_equal(desk, laptop)
        for end in (interrupted, paused, handed_over, delegated, waited):
            end(desk, laptop)
        with apart(laptop):
            for machine, seconds in ((desk, 0), (laptop, 5)):
                told(machine, of_a_cause("same"), machine.name)
                told(machine, of_a_cause("other"), machine.name, NOON + timedelta(seconds=seconds))
        become_equal(desk, laptop)
        shed = made.add(SHED)
        made.complete()
        send(desk, "admin", "worker-b", "the last one")
        eventually(lambda: shed.has("worker-b", "the last one"))
        become_equal(desk, laptop, shed)
    finally:
        made.close()
