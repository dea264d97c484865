"""Operations on agent sessions, the registry and new session directories."""

from __future__ import annotations

from collections.abc import Iterator

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.services.team.setup import add_missing, create_session
from multi_agent_mcp.wiring import Services
from tests.conftest import TEAM
from tests.crash.operations.judging import whole
from tests.crash.operations.mail import a_message
from tests.crash.operations.reports import with_work
from tests.crash.stage import Aftermath, Deed, Facts, Operation, context


def begin(deed: Deed) -> None:
    deed.acknowledge({"session": deed.seat("worker-a").binding.live_session().record.id})


def begun(after: Aftermath) -> Iterator[str]:
    """Yields effects of a server killed at its start that impede others."""
    if after.services.sessions.live("worker-a"):
        yield "a dead session counts as living"
    if any(run.running for run in after.services.executions.history("worker-a")[0]):
        yield "an execution of a dead session still runs"


def leave(deed: Deed) -> None:
    seat = deed.seat("worker-a")
    seat.call("read_messages")
    deed.acknowledge(seat.call("logout"))


def with_work_and_mail(services: Services) -> Facts:
    message = a_message("please", services.clock())
    services.workspace.mailbox("worker-a").deliver(message)
    return with_work(services) | {"id": message.id}


def left(after: Aftermath) -> Iterator[str]:
    yield from begun(after)
    found = after.services.workspace.mailbox("worker-a").find(after.told["id"])
    if found is None:
        yield "the message is gone"
    elif after.answer is not None and found[1].read_at is None:
        yield "logged out, and the message comes again"


def add(deed: Deed) -> None:
    added = deed.services.agents.add(Agent(id="worker-c", role="worker", parent_id="admin"))
    deed.acknowledge({"agent_id": added.id})


def added(after: Aftermath) -> Iterator[str]:
    known = "worker-c" in after.services.agents.all()
    yield from whole(after, agent=int(known))
    if known:
        after.services.agents.authenticate("worker-c", after.services.agents.stored_key("worker-c"))
    else:
        after.services.agents.add(Agent(id="worker-c", role="worker", parent_id="admin"))


def update(deed: Deed) -> None:
    deed.services.workspace.registry.update("worker-a", pane_id="%7", command="claude")
    deed.acknowledge({"done": True})


def updated(after: Aftermath) -> Iterator[str]:
    record = after.services.agents.get("worker-a")
    yield from whole(after, pane=int(record.pane_id == "%7"), command=int(record.command == "claude"))
    if record.passkey_hash is None or record.parent_id != "admin":
        yield "other fields were lost"


def remove(deed: Deed) -> None:
    deed.acknowledge({"status": deed.services.agents.remove("worker-b").status})


def removed(after: Aftermath) -> Iterator[str]:
    yield from whole(after, removed=int("worker-b" not in after.services.agents.all()))


def init(deed: Deed) -> None:
    create_session(deed.root, "demo", TEAM, "en")
    add_missing(context(deed.root).agents, TEAM)
    deed.acknowledge({"done": True})


def initialised(after: Aftermath) -> Iterator[str]:
    """Yields parts of a session that a second `init` did not complete after the first one was killed."""
    if after.answer is not None and len(after.services.agents.all()) < len(TEAM.agents):
        yield "acknowledged, and agents are missing"
    create_session(after.root, "demo", TEAM, "en")
    services = context(after.root)
    add_missing(services.agents, TEAM)
    if list(services.agents.all()) != [agent.id for agent in TEAM.agents]:
        yield f"a second init made {list(services.agents.all())}"
    for agent_id in services.agents.all():
        services.agents.authenticate(agent_id, services.agents.stored_key(agent_id))


OPERATIONS = (
    Operation("session_start", begin, begun, with_work),
    Operation("session_end", leave, left, with_work_and_mail, (("worker-a", "task"),)),
    Operation("agent_add", add, added),
    Operation("registry_update", update, updated),
    Operation("agent_remove", remove, removed),
    Operation("init", init, initialised, bare=True),
)
