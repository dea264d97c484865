"""To which agent a host's conversation belongs if the hooks of two agents have named it, as happens where a project's
settings run one agent's hook in every host (docs/protocol.md, Continuing a conversation)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.agent import PURPOSES
from multi_agent_mcp.system.process import host_of

if TYPE_CHECKING:
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.store.workspace import Workspace


def named_by(workspace: Workspace, agent_id: str) -> set[str]:
    """The last conversations that the agent's hooks have named."""
    told = (workspace.hook_state(agent_id, purpose).facts().get("transcripts") for purpose in PURPOSES)
    return {str(name) for names in told if isinstance(names, dict) for name in names}


def is_anothers(workspace: Workspace, agent_id: str, conversation: str) -> bool:
    """Whether hooks of another agent have named the conversation, and none of this one's."""
    return conversation not in named_by(workspace, agent_id) and _is_named_by_others(workspace, agent_id, conversation)


def is_in_anothers_host(sessions: Sessions, agent_id: str, conversation: str) -> bool:
    """Whether the conversation in which this process's host calls a hook of this agent belongs to another agent, whose
    hooks have named it, too. It does if the other's server runs in this host and this agent's does not; where both run,
    or neither, if only the other's hooks have named it before."""
    if not _is_named_by_others(sessions.workspace, agent_id, conversation):
        return False
    host = host_of(os.getpid())
    running = (session for session in sessions.everywhere() if sessions.is_here(session))
    here = {session.agent_id for session in running if host_of(session.pid) == host}
    if (agent_id in here) != bool(here - {agent_id}):
        return agent_id not in here
    return conversation not in named_by(sessions.workspace, agent_id)


def _is_named_by_others(workspace: Workspace, agent_id: str, conversation: str) -> bool:
    others = (other for other in workspace.registry.all() if other != agent_id)
    return any(conversation in named_by(workspace, other) for other in others)
