"""Readers of what a person may have written: front matter, registry, settings, team file, journals, entity files."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import AgentSession, Execution, OwnerWait
from multi_agent_mcp.domain.entity import Entity, as_json
from multi_agent_mcp.domain.message import Conversation, Delegation, Message
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.errors import InvalidArguments, InvalidId, InvalidSession, Refusal
from multi_agent_mcp.services.team.setup import add_missing, create_session, read_team
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.store.codec import Unreadable, codec
from tests.fuzz.ground import AGENT, ask, context, fresh, seat
from tests.fuzz.looking import look_everywhere
from tests.fuzz.strategies import JSON, TEXT, YAML_VALUES, documents

KINDS: dict[type[Entity], str] = {
    Message: f"ipc/{AGENT}/20261121_000000_00000000.md",
    Notification: f"notifications/{AGENT}/20261121_000000_00000000.md",
    Task: f"tasks/{AGENT}/tsk_0123456789ab.md",
    Delegation: f"delegations/{AGENT}/dlg_0123456789ab.md",
    Conversation: "conversations/cnv_0123456789ab/conversation.md",
    AgentSession: f"sessions/{AGENT}/ses_0123456789ab.md",
    Execution: f"executions/{AGENT}/exec_0123456789ab.md",
    OwnerWait: "owner_wait/owner.md",
}
STATES = [
    f".doorbell/{AGENT}.jsonl",
    f".hooks/{AGENT}.json",
    f".supervisor/{AGENT}-task.json",
    ".intents/int_0123456789ab.json",
    f"ipc/{AGENT}/quarantine/.told",
    "audit/20261121.jsonl",
]
BOMBS = st.sampled_from(["[", "9", '{"pid": 1e999, "kind": "send", "facts": {}}']).map(
    lambda piece: (piece * (100_000 if piece == "[" else 5_000 if piece == "9" else 1)).encode()
)


def keys_of(kind: type[Entity]) -> list[str]:
    return [spec.name for spec in fields(kind)]


@st.composite
def written(draw: st.DrawFn) -> tuple[type[Entity], bytes]:
    kind = draw(st.sampled_from(list(KINDS)))
    return kind, draw(documents(keys_of(kind)))


@given(case=written())
def front_matter(case: tuple[type[Entity], bytes]) -> None:
    """Reading is an entity or `Unreadable`; an entity that was read can be shown as JSON, written, and read again."""
    kind, data = case
    required = {"id": "x"} if kind is not OwnerWait else {}
    try:
        entity = codec(kind).decode(data, **required)
    except Unreadable:
        return
    json.dumps(as_json(entity), allow_nan=False).encode()
    again = codec(kind).encode(entity)
    assert codec(kind).decode(again, **required) == entity
    assert codec(kind).encode(codec(kind).decode(again, **required)) == again


@given(case=written())
def entity_files(case: tuple[type[Entity], bytes]) -> None:
    """A file that a person puts anywhere breaks no entrance. It is not lost, and set aside only if nobody can read it,
    or if it says that it belongs to another agent than its directory's."""
    kind, data = case
    root = fresh()
    path = root / "demo" / KINDS[kind]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    look_everywhere(root)
    readable, elsewhere = True, False
    try:
        entity = codec(kind).decode(data, agent_id=AGENT, **({} if kind is OwnerWait else {"id": path.stem}))
        elsewhere = getattr(entity, "agent_id", AGENT) != AGENT
    except Unreadable:
        readable = False
    aside = path.parent / "quarantine" / path.name
    if (readable and not elsewhere) or not data:
        assert not aside.exists(), (aside.parent / f"{path.name}.reason.txt").read_text()
        assert is_kept(path, data, root / "demo")
    else:
        assert path.exists() or aside.read_bytes() == data


def is_kept(path: Path, data: bytes, root: Path) -> bool:
    """Whether the file that was put there is somewhere: a message whose name says another id than it has gets a name of
    its own in the archive."""
    if path.exists() or any(path.name == item.name for item in root.rglob("*.md")):
        return True
    kind = Message if path.parts[-3] == "ipc" else Notification
    archived = (codec(kind).decode(item.read_bytes()) for item in path.parent.glob("archive/*/*.md"))
    return codec(kind).decode(data, id=path.stem).id in {entity.id for entity in archived}


RECORDS = st.dictionaries(
    st.sampled_from(["id", "role", "type", "name", "parent_id", "status", "pane_id", "socket_path", "pane_pid", "own"]),
    st.one_of(JSON, TEXT, st.sampled_from(["owner", "admin", "removed", "human", "%1", "worker-a"])),
    max_size=4,
)
PEOPLE = st.dictionaries(
    st.sampled_from(["owner", "admin", AGENT, "worker-b", "new", "../x", "", "é"]), RECORDS | JSON, max_size=5
)


@given(people=st.one_of(PEOPLE, PEOPLE, JSON), around=JSON)
def registry(people: Any, around: Any) -> None:
    """agents.json with anything in it: refusals at most, and an update loses no record of anybody."""
    root = fresh()
    path = root / "demo" / "agents.json"
    original = json.loads(path.read_bytes())
    given_people = {**original["agents"], **people} if isinstance(people, dict) else people
    path.write_text(json.dumps({"agents": given_people, "more": around}), encoding="utf-8")
    look_everywhere(root, lenient=True)
    services = context(root)
    try:
        services.workspace.registry.update("owner", fuzzed=1)
    except Refusal:
        return
    after = json.loads(path.read_bytes())
    if isinstance(given_people, dict) and all(isinstance(record, dict) for record in given_people.values()):
        assert set(after["agents"]) == set(given_people)
        assert "more" in after
        assert after["agents"]["owner"]["fuzzed"] == 1
    else:
        assert list((root / "demo").glob("agents.json.damaged*"))


@given(data=st.one_of(st.binary(max_size=60), YAML_VALUES.map(str.encode)))
def registry_bytes(data: bytes) -> None:
    """agents.json that is none is kept as `.damaged`, and restored."""
    root = fresh()
    path = root / "demo" / "agents.json"
    before = set(json.loads(path.read_bytes())["agents"])
    path.write_bytes(data)
    assert set(context(root).agents.all()) == before
    assert [item.read_bytes() for item in (root / "demo").glob("agents.json.damaged*")] == [data]


SETTINGS = ["language", "limits", "content_bytes", "answer_characters", "id"]
LIMITS = [
    "content_bytes",
    "answer_characters",
    "doorbell_pause_seconds",
    "doorbell_pause_max_seconds",
    "submit_pause_seconds",
]
NUMBERS = st.sampled_from(["1", "0.5", "1.0e+300", "1" * 400, "9000", "-1", ".inf", ".nan", "1e3", "true", "100000"])


@given(
    lines=st.lists(st.tuples(st.sampled_from(SETTINGS), YAML_VALUES), max_size=3),
    limits=st.lists(
        st.tuples(st.sampled_from(LIMITS), NUMBERS | YAML_VALUES), max_size=3, unique_by=lambda item: item[0]
    ),
)
def settings_file(lines: list[tuple[str, str]], limits: list[tuple[str, str]]) -> None:
    """session.yaml with anything in it is refused, or a session that works."""
    root = fresh()
    text = "\n".join(f"{key}: {value}" for key, value in lines)
    if limits:
        text += "\nlimits:\n" + "\n".join(f"  {key}: {value}" for key, value in limits)
    (root / "demo" / "session.yaml").write_bytes(text.encode(errors="replace"))
    try:
        services = context(root)
    except (InvalidArguments, InvalidSession):
        return
    admin = services.agents.get("admin")
    services.messages.send(admin, Draft(content="x", receiver_id=AGENT))
    ask(seat(root), "read_messages", {})


TEAM_KEYS = ["id", "role", "type", "name", "parent", "parent_id", "command", "host", "own"]
MEMBERS = st.lists(
    st.dictionaries(st.sampled_from(TEAM_KEYS), YAML_VALUES.map(lambda value: value.replace("\n", " ")), max_size=4),
    max_size=3,
)


@given(
    members=MEMBERS,
    head=st.lists(st.tuples(st.sampled_from(["session", "language", "limits", "own"]), YAML_VALUES), max_size=2),
)
def team_file(members: list[dict[str, str]], head: list[tuple[str, str]]) -> None:
    """team.yaml with anything in it is refused, or becomes a team whose registry can be read."""
    root = fresh()
    lines = [f"{key}: {value}" for key, value in head] + ["agents:"]
    for number, member in enumerate(members):
        lines.append(f"  - id: a{number}" if "id" not in member else f"  - id: {member['id']}")
        lines += [f"    {key}: {value}" for key, value in member.items() if key != "id"]
    path = root / "team.yaml"
    path.write_bytes("\n".join(lines).encode(errors="replace"))
    try:
        team = read_team(path)
        create_session(root, "other", team, None)
        services = open_session(root, "other", notifier=Recorder())
        add_missing(services.agents, team)
    except (InvalidArguments, InvalidId):
        return
    assert {agent.id for agent in team.agents} <= set(services.agents.all())


FACTS = st.dictionaries(
    st.sampled_from(
        [
            "at",
            "messages",
            "attempt",
            "state",
            "reason",
            "ring",
            "told",
            "stopped",
            "seen",
            "speaks",
            "pid",
            "kind",
            "facts",
            "pane",
            "opened_at",
        ]
    ),
    st.one_of(JSON, st.sampled_from(["2026-11-21T21:46:01Z", "rung", "send", ["x"], [[1]], -5, 10**400, "task"])),
)


@given(
    name=st.sampled_from(STATES),
    content=st.one_of(
        st.one_of(FACTS, JSON).map(lambda value: json.dumps(value).encode()), st.binary(max_size=60), BOMBS
    ),
)
def state_files(name: str, content: bytes) -> None:
    """Derived files with anything in them are passed over."""
    root = fresh()
    path = root / "demo" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    look_everywhere(root)
