"""Participants: keys, roles and the hierarchy."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import (
    AgentNotFound,
    AlreadyExists,
    HasSubordinates,
    InvalidArguments,
    InvalidId,
    InvalidSession,
    StorageError,
    Unauthorized,
)
from multi_agent_mcp.wiring import Services
from tests.services.support import send, unread
from tests.store.support import umask


def key_path(services: Services, agent_id: str) -> Path:
    return services.workspace.path / "secrets" / f"{agent_id}.key"


def test_everybody_has_a_key_of_their_own_that_only_they_can_read(services: Services) -> None:
    keys = {services.agents.stored_key(agent_id) for agent_id in services.agents.all()}
    assert len(keys) == 4
    assert all(len(key) >= 32 for key in keys)
    assert stat.S_IMODE(key_path(services, "owner").stat().st_mode) == 0o600
    assert stat.S_IMODE(key_path(services, "owner").parent.stat().st_mode) == 0o700


def test_the_registry_holds_no_key(services: Services) -> None:
    text = (services.workspace.path / "agents.json").read_text()
    assert not any(services.agents.stored_key(agent_id) in text for agent_id in services.agents.all())


def test_a_careless_umask_opens_nothing(services: Services) -> None:
    with umask(0):
        services.agents.add(Agent(id="late"))
        send(services, "admin", "late", idempotency_key="k")
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in services.workspace.path.rglob("*")}
    assert {path for path, mode in modes.items() if mode & 0o077} == set()


def test_the_own_key_proves_an_agent(services: Services) -> None:
    assert services.agents.authenticate("admin", services.agents.stored_key("admin")).id == "admin"


@pytest.mark.parametrize("passkey", ["", "wrong", None, 7, "\ud800"])
def test_any_other_key_proves_nothing(services: Services, passkey: object) -> None:
    with pytest.raises(InvalidSession):
        services.agents.authenticate("admin", passkey)


def test_another_agents_key_proves_nothing(services: Services) -> None:
    with pytest.raises(InvalidSession):
        services.agents.authenticate("owner", services.agents.stored_key("admin"))


def test_an_agent_without_a_key_hash_cannot_be_proved(services: Services) -> None:
    services.agents.registry.update("admin", passkey_hash=None)
    with pytest.raises(InvalidSession):
        services.agents.authenticate("admin", services.agents.stored_key("admin"))


@pytest.mark.parametrize(
    ("agent_id", "refusal"), [("nobody", AgentNotFound), ("../admin", InvalidId), (None, InvalidId)]
)
def test_nobody_cannot_be_proved(services: Services, agent_id: object, refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        services.agents.authenticate(agent_id, "x")


def test_a_missing_key_says_so_and_a_key_that_is_a_directory_is_a_storage_error(services: Services) -> None:
    path = key_path(services, "admin")
    path.unlink()
    with pytest.raises(InvalidSession) as refusal:
        services.agents.stored_key("admin")
    assert refusal.value.key == "error.missing_passkey"
    path.mkdir()
    with pytest.raises(StorageError):
        services.agents.stored_key("admin")


def test_a_known_agent_cannot_be_added_and_keeps_its_key(services: Services) -> None:
    key = services.agents.stored_key("worker-a")
    with pytest.raises(AlreadyExists):
        services.agents.add(Agent(id="worker-a", role="admin"))
    assert services.agents.stored_key("worker-a") == key
    assert services.agents.get("worker-a").role == "worker"


def _files(services: Services) -> list[Path]:
    found = sorted(services.workspace.path.rglob("*"))
    return [path for path in found if ".locks" not in path.parts]


@pytest.mark.parametrize("in_the_way", [".locks", "agents.json.bak"], ids=["its lock", "its record"])
def test_an_agent_whose_registration_is_refused_leaves_nothing(services: Services, in_the_way: str) -> None:
    """The obstacle is found before the lock is taken, or after."""
    path = services.workspace.path / in_the_way
    path.rename(path.with_name("moved"))
    if in_the_way == ".locks":
        path.touch()
    else:
        path.mkdir()
    before = _files(services)
    with pytest.raises(StorageError):
        services.agents.add(Agent(id="late"))
    assert _files(services) == before


@pytest.mark.parametrize("agent_id", ["../x", "", "a/b", "x" * 65, "a.b"])
def test_an_id_that_could_leave_its_directory_is_refused(services: Services, agent_id: str) -> None:
    with pytest.raises(InvalidId):
        services.agents.add(Agent(id=agent_id))


def test_a_removed_agent_that_comes_back_finds_its_mail_and_its_key(services: Services) -> None:
    send(services, "admin", "worker-a")
    key = services.agents.stored_key("worker-a")
    services.agents.remove("worker-a")
    assert "worker-a" not in services.agents.all()
    with pytest.raises(AgentNotFound):
        services.agents.authenticate("worker-a", key)
    services.agents.add(Agent(id="worker-a"))
    assert services.agents.authenticate("worker-a", key).id == "worker-a"
    assert unread(services, "worker-a") == 1


def test_a_newcomer_is_below_whoever_registers_it(services: Services, admin: Agent) -> None:
    newcomer, created = services.agents.register(Agent(id="new"), by=admin)
    assert (created, newcomer.parent_id, newcomer.name) == (True, "admin", "new")
    assert [agent.id for agent in services.agents.superiors("new")] == ["admin", "owner"]


def test_registering_a_known_agent_changes_nothing(services: Services, owner: Agent) -> None:
    known, created = services.agents.register(Agent(id="worker-a", role="admin"), by=owner)
    assert (created, known.role, known.parent_id) == (False, "worker", "admin")


def test_an_admin_cannot_make_an_owner(services: Services, admin: Agent, owner: Agent) -> None:
    with pytest.raises(Unauthorized):
        services.agents.register(Agent(id="boss", role="owner"), by=admin)
    assert "boss" not in services.agents.all()
    boss, _ = services.agents.register(Agent(id="boss", role="owner"), by=owner)
    assert boss.parent_id is None


@pytest.mark.parametrize(("parent", "refusal"), [("nobody", AgentNotFound), ("../x", InvalidId)])
def test_a_parent_who_is_not_there_is_refused(
    services: Services, admin: Agent, parent: str, refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        services.agents.register(Agent(id="new", parent_id=parent), by=admin)
    assert "new" not in services.agents.all()


def test_a_cycle_or_a_hole_in_the_hierarchy_is_an_error_when_a_check_meets_it(
    services: Services, worker_a: Agent
) -> None:
    services.agents.registry.update("owner", parent_id="worker-a")
    with pytest.raises(InvalidArguments):
        services.agents.superiors("worker-b")
    services.agents.registry.update("owner", parent_id="gone")
    with pytest.raises(InvalidArguments):
        services.agents.superiors("worker-b")


def test_without_an_owner_nobody_acts_for_the_human(services: Services) -> None:
    assert services.agents.owner().id == "owner"
    for name in ("worker-a", "worker-b", "admin", "owner"):
        services.agents.remove(name)
    with pytest.raises(AgentNotFound) as refusal:
        services.agents.owner()
    assert refusal.value.key == "error.no_owner"


@pytest.mark.parametrize("newcomer", ["Worker-A", "WORKER-a"])
def test_an_id_that_differs_from_a_known_one_in_case_only_is_taken(
    services: Services, admin: Agent, newcomer: str
) -> None:
    before = sorted(services.workspace.path.rglob("*"))
    for add in (
        services.agents.add,
        services.agents.registry.add,
        lambda agent: services.agents.register(agent, by=admin),
    ):
        with pytest.raises(AlreadyExists, match="worker-a"):
            add(Agent(id=newcomer))
    assert [path for path in sorted(services.workspace.path.rglob("*")) if ".locks" not in path.parts] == [
        path for path in before if ".locks" not in path.parts
    ]


def test_a_superior_is_removed_only_after_its_subordinates(services: Services) -> None:
    services.agents.remove("worker-a")
    with pytest.raises(HasSubordinates) as refusal:
        services.agents.remove("admin")
    assert refusal.value.values == {"agent_id": "admin", "names": "worker-b"}
    assert services.agents.get("admin").status == "active"
    services.agents.remove("worker-b")
    assert services.agents.remove("admin").removed


def test_the_id_of_a_removed_agent_is_taken_for_all_spellings_but_its_own(services: Services) -> None:
    services.agents.remove("worker-a")
    with pytest.raises(AlreadyExists):
        services.agents.add(Agent(id="worker-A"))
    assert services.agents.add(Agent(id="worker-a")).id == "worker-a"


def test_an_agent_asked_for_in_another_case_is_unknown_and_gets_no_mailbox(services: Services) -> None:
    before = sorted((services.workspace.path / "ipc").iterdir())
    with pytest.raises(AgentNotFound):
        send(services, "admin", "Worker-A")
    with pytest.raises(AgentNotFound):
        services.agents.get("Worker-A")
    assert sorted((services.workspace.path / "ipc").iterdir()) == before
