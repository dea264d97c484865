"""Tools for authentication and the list of agents."""

from __future__ import annotations

from multi_agent_mcp.domain.agent import Agent, AgentType, Role
from multi_agent_mcp.domain.ids import agent_id as parse_agent_id
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.server.binding import Binding
from multi_agent_mcp.server.toolbox import LEADERS, Answer, Call, Tool

CALLS_SECONDS = 0.5


def authenticate(binding: Binding, agent_id: str, passkey: str) -> Answer:
    """Bind this server to an agent. Needed once, before any other tool."""
    session = binding.authenticate(agent_id, passkey)
    record = session.record
    return {
        "session_token": session.token,
        "agent_id": record.agent_id,
        "role": binding.agent().role,
        "purpose": record.purpose,
        "task_id": record.task_id,
        "expires_at": format_time(record.expires_at),
    }


def logout(call: Call) -> Answer:
    """End this agent session. Only needed where an instruction says so."""
    # Earlier calls get their answers first; a host that reads none does not read this one either.
    call.confirmation.wait_for_earlier(CALLS_SECONDS)
    call.session.refuse_leases()
    call.confirmation.wait_for_answers()
    kind = _after_logout(call)
    call.binding.logout()
    return {"message": call.services.texts(f"logout.{kind}")}


def _after_logout(call: Call) -> str:
    """What follows a logout, as the key of a text: `closes`, `more` (work waits, which nobody would be rung about who
    has read of it), `stays` or `done`."""
    if call.closes_after_logout:
        return "closes"
    if not call.binding.stays_after_logout:
        return "done"
    turn = call.services.chat_action if call.purpose == "chat" else call.services.next_action
    return "more" if turn.has_more(call.me, call.session) else "stays"


def register_agent_to_ipc(
    call: Call,
    agent_id: str,
    role: Role = "worker",
    type: AgentType = "ai",
    parent_id: str | None = None,
    name: str | None = None,
) -> Answer:
    """Register an agent before it starts, so that it can get mail. parent_id defaults to you."""
    newcomer = Agent(id=parse_agent_id(agent_id), role=role, type=type, parent_id=parent_id, name=name or "")
    agent, created = call.services.agents.register(newcomer, by=call.me)
    return {"agent_id": agent.id, "created": created}


def list_agents(call: Call) -> Answer:
    """List the agents you can write to, and whether their server runs."""
    limits = call.services.limits.all()
    agents = [
        {
            "id": agent.id,
            "role": agent.role,
            "type": agent.type,
            "parent_id": agent.parent_id,
            "status": agent.status,
            "alive": call.services.sessions.alive(agent.id),
            **({"limited_until": limits[agent.id].until_said} if agent.id in limits else {}),
        }
        for agent in call.services.agents.all().values()
    ]
    return call.fitting({}, "agents", agents)


TOOLS = (
    Tool(authenticate, "Authenticate", roles=frozenset()),
    Tool(logout, "Log out"),
    Tool(register_agent_to_ipc, "Register agent", roles=LEADERS),
    Tool(list_agents, "List agents", read_only=True),
)
