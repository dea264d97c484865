"""agents.json: no field of anybody's update is lost, and damage is fixed from the copy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import AgentNotFound, AlreadyExists, StorageError
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.registry import Registry
from tests.store.support import in_processes, written

WORKER = Agent(id="worker-a", role="worker", parent_id="admin", created_at="2026-11-21T00:00:00.000000Z")


@pytest.fixture
def registry(files: Files) -> Registry:
    registry = Registry(files, files.base / "agents.json")
    registry.create()
    return registry


def raw(registry: Registry) -> dict[str, Any]:
    records: dict[str, Any] = json.loads(registry.path.read_bytes())["agents"]
    return records


def test_an_added_agent_is_there_for_everybody(registry: Registry, files: Files) -> None:
    registry.add(WORKER)
    assert registry.get("worker-a") == WORKER
    assert Registry(files, registry.path).all() == {"worker-a": WORKER}


def test_a_record_has_every_key_that_other_programs_look_for(registry: Registry) -> None:
    registry.add(Agent(id="new", role="worker"))
    record = json.loads(registry.path.read_text())["agents"]["new"]
    assert list(record)[:6] == ["id", "role", "type", "name", "parent_id", "status"]
    unset = ("session_name", "window_index", "pane_index", "pane_id", "socket_path", "pane_pid", "command", "parent_id")
    assert [record[key] for key in unset] == [None] * len(unset)


def test_making_the_registry_again_keeps_it(registry: Registry) -> None:
    registry.add(WORKER)
    registry.create()
    assert list(registry.all()) == ["worker-a"]


def test_a_known_agent_cannot_be_added_again(registry: Registry) -> None:
    registry.add(WORKER)
    with pytest.raises(AlreadyExists):
        registry.add(Agent(id="worker-a", role="admin"))
    assert registry.get("worker-a").role == "worker"


def test_an_unknown_agent_is_not_found(registry: Registry) -> None:
    with pytest.raises(AgentNotFound):
        registry.get("nobody")
    with pytest.raises(AgentNotFound):
        registry.update("nobody", status="active")


def test_a_removed_agent_keeps_its_record_and_can_be_taken_back(registry: Registry) -> None:
    registry.add(Agent(id="worker-a", pane_id="%3", extra={"team": "blue"}))
    registry.update("worker-a", status="removed")
    with pytest.raises(AgentNotFound):
        registry.get("worker-a")
    assert registry.active() == {}
    assert registry.all()["worker-a"].removed
    back = registry.add(Agent(id="worker-a", role="admin"))
    assert (back.role, back.pane_id, back.extra) == ("admin", "%3", {"team": "blue"})


def test_an_update_leaves_every_other_field_as_it_is_on_disk(registry: Registry) -> None:
    registry.add(WORKER)
    records = json.loads(registry.path.read_bytes())
    records["agents"]["worker-a"]["colour"] = "blue"
    records["note"] = "kept"
    registry.path.write_text(json.dumps(records))
    updated = registry.update("worker-a", pane_id="%7")
    assert (updated.pane_id, updated.parent_id, updated.extra) == ("%7", "admin", {"colour": "blue"})
    assert raw(registry)["worker-a"]["colour"] == "blue"
    assert json.loads(registry.path.read_bytes())["note"] == "kept"


def test_an_update_that_changes_nothing_writes_nothing(registry: Registry) -> None:
    registry.add(WORKER)
    before = written(registry.path)
    registry.update("worker-a", parent_id="admin")
    assert written(registry.path) == before


def test_a_change_of_another_process_is_seen_at_once(registry: Registry, files: Files) -> None:
    registry.add(WORKER)
    assert registry.get("worker-a").pane_id is None
    Registry(files, registry.path).update("worker-a", pane_id="%1")
    assert registry.get("worker-a").pane_id == "%1"


def _update(base: Path, field: str, times: int) -> None:
    registry = Registry(Files(base), base / "agents.json")
    for number in range(times):
        registry.update("worker-a", **{f"{field}_{number}": number})
        registry.update("worker-b", **{field: number})


def test_no_field_of_several_processes_updates_is_lost(registry: Registry, files: Files) -> None:
    for name in ("worker-a", "worker-b"):
        registry.add(Agent(id=name))
    in_processes(_update, *[(files.base, field, 10) for field in ("x", "y", "z")])
    record = raw(registry)["worker-a"]
    assert {f"{field}_{number}": number for field in "xyz" for number in range(10)}.items() <= record.items()
    assert [raw(registry)["worker-b"][field] for field in "xyz"] == [9, 9, 9]


@pytest.mark.parametrize("damage", [b"", b'{"agents": {"worker-a": {"ro', b"[]", b'{"agents": []}', b"\xff\xfe", b"{}"])
def test_a_damaged_registry_is_restored_from_its_copy_and_kept_aside(registry: Registry, damage: bytes) -> None:
    registry.add(WORKER)
    registry.path.write_bytes(damage)
    assert registry.all() == {"worker-a": WORKER}
    assert raw(registry)["worker-a"]["parent_id"] == "admin"
    assert registry.path.with_name("agents.json.damaged").read_bytes() == damage


def test_an_edit_in_place_is_waited_for(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.add(WORKER)
    text = registry.path.read_text(encoding="utf-8")
    registry.path.write_text(text[:20], encoding="utf-8")
    monkeypatch.setattr("time.sleep", lambda _: registry.path.write_text(text + "\n", encoding="utf-8"))
    registry.update("worker-a", name="Mine")
    assert registry.get("worker-a").name == "Mine"
    assert registry.damaged() == []


def test_every_damaged_registry_is_kept(registry: Registry) -> None:
    registry.add(WORKER)
    for damage in (b"one", b"two"):
        registry.path.write_bytes(damage)
        assert registry.all() == {"worker-a": WORKER}
    assert registry.damaged() == ["agents.json.1.damaged", "agents.json.damaged"]
    kept = {path.read_bytes() for path in registry.path.parent.glob("*damaged*")}
    assert kept == {b"one", b"two"}


def test_a_deleted_registry_is_restored(registry: Registry) -> None:
    registry.add(WORKER)
    registry.path.unlink()
    assert registry.get("worker-a") == WORKER
    assert registry.path.exists()


def test_with_both_lost_the_storage_has_failed_and_nothing_is_made_up(registry: Registry) -> None:
    registry.add(WORKER)
    for path in registry.path.parent.glob("agents.json*"):
        path.write_bytes(b"{")
    for act in (registry.all, lambda: registry.update("worker-a", role="owner"), lambda: registry.add(WORKER)):
        with pytest.raises(StorageError) as refusal:
            act()
        assert refusal.value.key == "error.registry_lost"
    assert registry.path.read_bytes() == b"{"


@pytest.mark.parametrize("bad", ["../x", "", "a/b", "x" * 65, ".", "a b"])
def test_an_agent_that_cannot_be_one_is_ignored(registry: Registry, bad: str) -> None:
    registry.add(WORKER)
    records = json.loads(registry.path.read_bytes())
    records["agents"][bad] = {"id": bad, "role": "owner"}
    registry.path.write_text(json.dumps(records))
    assert list(registry.all()) == ["worker-a"]


def test_the_key_is_the_agents_id_whatever_the_record_says(registry: Registry) -> None:
    registry.add(WORKER)
    registry.update("worker-a", id="owner")
    assert registry.get("worker-a").id == "worker-a"


def test_a_directory_in_the_place_of_the_registry_is_a_storage_error(registry: Registry) -> None:
    registry.path.unlink()
    registry.path.mkdir()
    with pytest.raises(StorageError):
        registry.all()


def test_an_update_keeps_records_that_are_none_of_ours(registry: Registry) -> None:
    registry.add(WORKER)
    records = {**raw(registry), "../x": {"role": "worker"}, "é": {}}
    registry.path.write_text(json.dumps({"agents": records, "note": "mine"}), encoding="utf-8")
    registry.update("worker-a", name="Ann")
    assert set(raw(registry)) == {"worker-a", "../x", "é"}
    assert set(registry.all()) == {"worker-a"}


def test_a_call_sees_one_team_and_its_own_changes(files: Files) -> None:
    registry, other = Registry(files, files.base / "agents.json"), Registry(files, files.base / "agents.json")
    registry.create()
    registry.add(Agent(id="one", role="owner"))
    with registry.read_once():
        assert set(registry.all()) == {"one"}
        other.add(Agent(id="two", role="worker"))
        assert set(registry.all()) == {"one"}
        with registry.read_once():
            assert set(registry.all()) == {"one", "two"}
        other.add(Agent(id="three", role="worker"))
        with pytest.raises(AlreadyExists):
            registry.add(Agent(id="Three", role="worker"))
        registry.update("one", name="first")
        assert registry.all()["one"].name == "first"
    assert set(registry.all()) == {"one", "two", "three"}
