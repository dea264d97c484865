"""What `doctor` looks at: leases, and what waits for somebody who does not exist (docs/protocol.md, Whoever is
free)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.agent import ROLES
from multi_agent_mcp.domain.slot import Slot
from multi_agent_mcp.domain.text import display_id, named, one_line
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.pool.claims import lacking_skills
from multi_agent_mcp.pool.feature import OFFERS
from multi_agent_mcp.pool.free import ANY
from multi_agent_mcp.services.doctor.tree import NOTE, PROBLEM

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.pool.free import Free
    from multi_agent_mcp.pool.leases import Leases
    from multi_agent_mcp.pool.offer import Offer
    from multi_agent_mcp.services.doctor.tree import CheckContext, Finding


def leases(context: CheckContext) -> Iterator[Finding]:
    """Files of leases whose processes are dead, or that cannot be read."""
    known: Leases = context.contributions.service("leases")
    for name in known.stale():
        yield context.found("leases", PROBLEM, name, "lease_of_nobody", partial(known.remove, name))


def pool(context: CheckContext) -> Iterator[Finding]:
    """What waits for those who are not there or not awake, tasks that need what nobody can do, and more agents at work
    than `at_most`."""
    agents = context.agents.all()
    yield from _offers(context)
    for task in context.workspace.tasks.open():
        if task.needs and (lacking := _nobody_has(task, list(agents.values()))):
            facts = {"task_id": task.id, "title": one_line(task.title), "skills": named(", ".join(lacking))}
            yield context.found("pool", PROBLEM, task.id, "skills_of_nobody", **facts)
    most = context.session.settings.at_most
    here = [one.id for one in context.agents.at_home().values() if not one.may_be_human]
    at_work = [agent_id for agent_id in here if context.sessions.served_purposes(agent_id)]
    if isinstance(most, int) and len(at_work) > most:
        facts = {"most": str(most), "count": str(len(at_work)), "agents": ", ".join(at_work)}
        yield context.found("pool", NOTE, "at_most", "more_than_at_most", **facts)


def _offers(context: CheckContext) -> Iterator[Finding]:
    """What waits for whoever is free, if nobody is meant, or is awake or will be started."""
    free: Free = context.contributions.service("free")
    for offer in context.workspace.collection(OFFERS).open():
        subject, to = offer.about or offer.id, named(offer.to)
        try:
            meant = free.meant(offer.sender_id, offer.to)
        except Refusal:
            yield _of_nobody(context, offer)
            continue
        if not any(map(free.is_awake, meant)):
            able = [one.id for one in meant if one.command is not None and context.workspace.is_here(one)]
            may_open = context.missing_sessions.may_open
            if not context.supervision.is_running() or not any(may_open(Slot(name, "task")) for name in able):
                facts = {"to": to, "agents": ", ".join(one.id for one in meant), "agent_id": next(iter(able), "")}
                yield context.found("pool", NOTE, subject, "nobody_awake" if able else "nobody_awake_by_hand", **facts)


def _of_nobody(context: CheckContext, offer: Offer) -> Finding:
    """An offer for which nobody is meant. Nobody will ever be below a removed sender: the repair ends its offer."""
    subject, to, sender_id = offer.about or offer.id, named(offer.to), offer.sender_id
    if offer.to != ANY:
        return context.found("pool", PROBLEM, subject, "waits_for_no_agent", to=to, role=_role(offer.to))
    if sender_id in context.agents.all():
        return context.found("pool", PROBLEM, subject, "waits_for_nobody_below", agent_id=sender_id)
    offers, now = context.workspace.collection(OFFERS), context.session.clock()
    fix = partial(offers.update, offer.id, lambda found: found.handed(now))
    return context.found("pool", PROBLEM, subject, "sender_was_removed", fix, agent_id=display_id(sender_id))


def _role(to: str) -> str:
    role = to.removeprefix("@")
    return role if role in ROLES else "worker"


def _nobody_has(task: Task, agents: list[Agent]) -> list[str]:
    """What an unassigned task needs and no one agent can do: what the best of them lacks."""
    if task.assignee_id is not None:
        return []
    return min((lacking_skills(agent, task) for agent in agents), key=len, default=list(task.needs))
