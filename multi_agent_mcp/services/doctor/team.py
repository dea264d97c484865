"""Who takes part: the registry, the keys, the hierarchy, the panes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import combinations

from multi_agent_mcp.domain.agent import Agent, superiors
from multi_agent_mcp.domain.signature import public_key
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.services.doctor.finding import NOTE, PROBLEM, CheckContext, Finding, in_words
from multi_agent_mcp.services.team.agents import is_passkey_of


def registry(patient: CheckContext) -> Iterator[Finding]:
    """A registry that was damaged, names no owner, or holds what nobody can use."""
    agents = patient.agents.all()  # first, because it may restore a registry that was damaged a moment ago
    for path in sorted(patient.workspace.path.glob("agents.json.damaged*")):
        yield Finding(
            "registry", NOTE, path.name, "agents.json was damaged and restored", f"delete {path.name} when seen"
        )
    if not any(agent.role == "owner" for agent in agents.values()):
        yield Finding("registry", PROBLEM, "agents.json", "no owner", "multi-agent-mcp agent add ID --role owner")
    for agent_id, key, value in patient.agents.registry.misfits():
        finding = f"{key} is of a type that it cannot be, and counts as none: {value!r:.80}"
        yield Finding("registry", PROBLEM, agent_id, finding, "mend it in agents.json")
    for first, second in combinations(agents, 2):
        if first.lower() == second.lower():
            finding = f"it differs from {first} in case only: on some disks both have the same mailbox"
            yield Finding("registry", PROBLEM, second, finding, "give one another id in agents.json")


def keys(patient: CheckContext) -> Iterator[Finding]:
    """Keys that are missing, or are not the ones the registry knows."""
    for agent_id, agent in patient.agents.all().items():
        name = patient.workspace.key_path(agent_id).name
        try:
            key = patient.agents.stored_key(agent_id)
        except Refusal as refusal:
            missing = not patient.workspace.key_path(agent_id).is_file()
            reason = "the key file is missing" if missing else in_words(refusal)
            yield Finding("keys", PROBLEM, agent_id, reason, f"restore secrets/{name}")
            continue
        if not is_passkey_of(agent, key):
            yield Finding("keys", PROBLEM, agent_id, "the key is not the registered one", f"restore secrets/{name}")
        elif agent.public_key != (own := public_key(key)):
            mend = partial(patient.agents.registry.update, agent_id, public_key=own)
            yield Finding(
                "keys", PROBLEM, agent_id, "the public key is not its key's", "write its own into agents.json", mend
            )


def hierarchy(patient: CheckContext) -> Iterator[Finding]:
    """Cycles and holes: whoever looks for a superior there is refused."""
    agents = patient.agents.all()
    for agent_id in agents:
        try:
            list(superiors(agent_id, agents))
        except Refusal as refusal:
            yield Finding("hierarchy", PROBLEM, agent_id, in_words(refusal), "mend parent_id in agents.json")


def panes(patient: CheckContext) -> Iterator[Finding]:
    """Agents whose pane is unknown, or cannot be rung at this moment."""
    for agent in patient.agents.all().values():
        if agent.pane_id is None:
            if agent.role != "owner":
                repair = f"multi-agent-mcp agent set {agent.id} --pane %N, or serve it"
                yield Finding("panes", NOTE, agent.id, "no pane is registered", repair)
        elif reason := patient.probe(agent):
            yield Finding("panes", NOTE, agent.id, f"pane {agent.pane_id}: {reason}", _repair(agent, reason))


def _repair(agent: Agent, reason: str) -> str:
    if reason != "unknown_host":
        return "start the agent again"
    if agent.host == "plain":
        return f"start its program again, then register its pane: multi-agent-mcp agent set {agent.id} --pane %N"
    declare = f"a program that reads lines: multi-agent-mcp agent set {agent.id} --host plain"
    return f"{declare}; else describe its screen in hosts/NAME.yaml beside the sessions (docs/hosts.md)"
