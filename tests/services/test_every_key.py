"""Every entity, with each of its keys missing, empty or of another type: everything keeps working and nothing is
lost."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.hooks.answers import Event
from multi_agent_mcp.services.doctor.tree import Finding
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.store.codec import Document, parse, render
from multi_agent_mcp.timeline.page import show_timeline
from multi_agent_mcp.web.api import agents, messages, tasks
from multi_agent_mcp.web.request import ApiRequest
from tests.crash.stage import MEMORY, Seat, context
from tests.fuzz.ground import ask

LEFT_OUT = object()
ODD_ITEMS = ["x", 1, None, ["y"], {"text": ["z"], "completed": "no", "status": {}, "at": 5}, {"status": "todo"}]
BEFORE_ALL_TIME = "0001-01-01T00:00:00+14:00"
WAYS = ("missing", "of another type", "of its type and no good")
KINDS = (
    *("ipc", "notifications", "tasks", "delegations", "conversations", "sessions", "executions", "owner_wait"),
    "questions",
)
TOOLS = (
    *("get_next_action", "get_notifications", "read_messages", "get_my_tasks", "get_my_execution_history"),
    "get_task_conversations",
)
CHAT = ("get_pending_delegations", "get_next_action", "read_messages")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory in memory if possible, where fsync costs nothing."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory, initialised: Path) -> Path:
    """A session with one entity of each kind; worker-a's server has died at work."""
    root = tmp_path_factory.mktemp("lived-in") / "root"
    shutil.copytree(initialised, root)
    services = context(root)
    owner, admin, worker = (services.agents.get(name) for name in ("owner", "admin", "worker-a"))
    services.task_creation.send(owner, "admin", "Plan", "all of it")
    services.conversations.begin(services.agents.get("worker-b"), worker, "hello")
    task_id = services.task_creation.send(admin, "worker-a", "Build", "the wall").task.id
    seat = Seat(services, "worker-a")
    seat.call("get_next_action")
    seat.call("delegate_to_chat_session", target_agent_id="worker-b", purpose="ask", context="about the wall")
    seat.call("ask", question="which?", choices=["a", "b"], default="a", deadline_minutes=60)
    services.task_changes.set_status(admin, task_id, "blocked", "wait")
    record = seat.binding.live_session().record
    services.workspace.sessions.update(record.id, lambda found: replace(found, pid_started_at="earlier"))
    return root


def entity_of(session: Path, kind: str) -> Path:
    return next(path for path in sorted((session / kind).rglob("*.md"), reverse=True) if "admin" not in path.parts)


def odd(way: str, number: int, now: object) -> object:
    """What is put in place of the value `now`: of two possibilities every other key has the other one."""
    if way == "missing":
        return (LEFT_OUT, None)[number % 2]
    if way == "of another type":
        return (1.5, {"x": ["y"]})[number % 2]
    if isinstance(now, (list, dict)):
        return ODD_ITEMS
    if isinstance(now, datetime) or str(now)[:2] == "20":
        return BEFORE_ALL_TIME
    return ("../x", "worker-b")[number % 2]


def written(path: Path, key: str, value: object) -> bytes:
    header, body = parse(path.read_bytes())
    changed = {name: item for name, item in header.items() if name != key}
    data = render(Document(changed if value is LEFT_OUT else {**changed, key: value}, body))
    path.write_bytes(data)
    return data


def everybody_works(root: Path) -> list[Finding]:
    """Servers start, tools answer, hooks and doctor look; what doctor found."""
    for agent_id, purpose, tools in (
        ("owner", "task", TOOLS),
        ("admin", "task", ("read_messages", "get_dashboard")),
        ("worker-a", "task", TOOLS),
        ("worker-a", "chat", CHAT),
    ):
        seat = Seat(context(root), agent_id, purpose)
        for tool in tools:
            assert ask(seat, tool, {}).get("error") != "invalid_id", tool
        seat.binding.close()
    services = context(root)
    console = ApiRequest(services, services.agents.owner())
    for page in (tasks.board, messages.list_conversations, agents.tree, show_timeline):
        json.dumps(page(console), allow_nan=False)
    for task in services.workspace.tasks.all():
        json.dumps(tasks.show(replace(console, path={"task_id": task.id})), allow_nan=False)
    services.hooks.answer("worker-a", "task", Event("UserPromptSubmit", "host-1"))
    services.messages.send(services.agents.get("admin"), Draft(content="still there?", receiver_id="worker-a"))
    unread = [message.content for _, message in services.workspace.mailbox("worker-a").unread(fresh=True)]
    assert "still there?" in unread
    found = services.doctor(lambda _: None).examine(verify=True)
    json.dumps([finding.as_answer() for finding in found])
    assert [finding for finding in found if finding.subject == "-"] == [], "a check that broke"
    return found


@pytest.mark.parametrize("way", WAYS)
def test_whatever_a_key_holds_everybody_goes_on_and_nothing_is_lost(way: str, lived_in: Path, place: Path) -> None:
    """All entities have their first key changed at once, then their second, and so on: one at a time would take minutes
    and find the same."""
    headers = {kind: parse(entity_of(lived_in / "demo", kind).read_bytes()).header for kind in KINDS}
    for number in range(max(map(len, headers.values()))):
        root = shutil.copytree(lived_in, place / str(number))
        chosen = {kind: list(header)[number] for kind, header in headers.items() if number < len(header)}
        paths = {kind: entity_of(root / "demo", kind) for kind in chosen}
        data = {
            kind: written(paths[kind], key, odd(way, number + KINDS.index(kind), headers[kind][key]))
            for kind, key in chosen.items()
        }
        try:
            found = {finding.subject for finding in everybody_works(root)}
        except Exception as error:
            raise AssertionError(chosen) from error
        for kind, path in paths.items():
            # an archived message has a name that says its id, whatever id it was given
            assert list((root / "demo").rglob(f"*{path.name[:15]}*")), (kind, chosen[kind])
            aside = path.parent / "quarantine" / path.name
            if aside.exists():
                assert aside.read_bytes() == data[kind], (kind, chosen[kind])
                assert str(aside.relative_to(root / "demo")) in found


@pytest.mark.parametrize("kind", ["sessions", "executions", "delegations"])
def test_a_file_without_an_agent_is_its_directorys_and_one_of_another_agent_is_set_aside(
    kind: str, lived_in: Path, place: Path
) -> None:
    root = shutil.copytree(lived_in, place / "root")
    path = entity_of(root / "demo", kind)
    written(path, "agent_id", LEFT_OUT)
    beside = path.with_name(f"{path.stem[:-4]}ffff.md")
    beside.write_bytes(path.read_bytes())
    data = written(beside, "agent_id", "worker-b")
    found = {finding.subject: finding.finding for finding in everybody_works(root)}
    assert path.exists() or list(path.parent.glob(f"archive/*/{path.name}"))
    aside = path.parent / "quarantine" / beside.name
    assert aside.read_bytes() == data
    assert "'worker-b'" in found[str(aside.relative_to(root / "demo"))]
    assert "worker-a" in found[str(aside.relative_to(root / "demo"))]


@pytest.mark.parametrize("assignee", ["../../x", "worker-a ", ""])
def test_a_task_of_nobody_who_can_be_stops_no_agent(assignee: str, lived_in: Path, place: Path) -> None:
    root = shutil.copytree(lived_in, place / "root")
    by_hand = root / "demo" / "tasks" / "worker-a" / "tsk_1234567890ac.md"
    by_hand.write_text(f"---\ntitle: by hand\nstatus: todo\nassignee_id: '{assignee}'\n---\n")
    everybody_works(root)
    task = context(root).workspace.tasks.get("tsk_1234567890ac")
    assert (task.title, task.assignee_id) == ("by hand", None)


def test_doctor_finds_what_nobody_has_looked_at_yet(lived_in: Path, place: Path) -> None:
    root = shutil.copytree(lived_in, place / "root")
    path = entity_of(root / "demo", "executions")
    written(path, "agent_id", "admin")
    subjects = {finding.subject for finding in context(root).doctor(lambda _: None).examine()}
    assert f"executions/worker-a/quarantine/{path.name}" in subjects


RECORD_KEYS = [spec.name for spec in fields(Agent) if spec.name not in ("id", "extra")]


@pytest.mark.parametrize("value", [7, [1], {"x": "y"}], ids=repr)
def test_whatever_a_record_of_the_registry_holds_everybody_goes_on_and_it_stays_there(
    value: object, lived_in: Path, place: Path
) -> None:
    """Changes every key of one agent among others at once, except those that prove its identity."""
    root = shutil.copytree(lived_in, place / "root")
    path = root / "demo" / "agents.json"
    records = json.loads(path.read_bytes())
    changed = {key: value for key in RECORD_KEYS if key not in ("passkey_hash", "public_key")}
    records["agents"]["worker-b"].update(changed)
    path.write_text(json.dumps(records), encoding="utf-8")
    said = [finding.finding for finding in everybody_works(root) if finding.subject == "worker-b"]
    assert any("parent_id" in finding for finding in said), said
    context(root).agents.registry.update("worker-b", note="seen")
    kept = json.loads(path.read_bytes())["agents"]["worker-b"]
    assert {key: kept[key] for key in changed} == changed
