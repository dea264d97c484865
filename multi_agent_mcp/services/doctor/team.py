"""The agents: registry, keys, hierarchy, panes, and the command that reaches people."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from itertools import combinations

from multi_agent_mcp.domain.agent import Agent, superiors
from multi_agent_mcp.domain.signature import public_key
from multi_agent_mcp.errors import InvalidArguments, Refusal
from multi_agent_mcp.services.doctor.finding import NOTE, PROBLEM, CheckContext, Finding, in_words
from multi_agent_mcp.services.team.agents import is_passkey_of


def registry(context: CheckContext) -> Iterator[Finding]:
    """A registry that names no owner, or holds what cannot be used."""
    agents = context.agents.all()  # restores a damaged registry, which the check of the tree then reports
    if not any(agent.role == "owner" for agent in agents.values()):
        yield Finding("registry", PROBLEM, "agents.json", "no owner", "multi-agent-mcp agent add ID --role owner")
    for agent_id, key, value in context.agents.registry.misfits():
        finding = f"{key} is of a type that it cannot be, and counts as none: {value!r:.80}"
        yield Finding("registry", PROBLEM, agent_id, finding, "mend it in agents.json")
    for first, second in combinations(agents, 2):
        if first.lower() == second.lower():
            finding = f"it differs from {first} in case only: on some disks both have the same mailbox"
            yield Finding("registry", PROBLEM, second, finding, "give one another id in agents.json")


def keys(context: CheckContext) -> Iterator[Finding]:
    """Keys that are missing or do not match the registry."""
    for agent_id, agent in context.agents.all().items():
        name = context.workspace.key_path(agent_id).name
        try:
            key = context.agents.stored_key(agent_id)
        except Refusal as refusal:
            missing = not context.workspace.key_path(agent_id).is_file()
            reason = "the key file is missing" if missing else in_words(refusal)
            yield Finding("keys", PROBLEM, agent_id, reason, f"restore secrets/{name}")
            continue
        if not is_passkey_of(agent, key):
            yield Finding("keys", PROBLEM, agent_id, "the key is not the registered one", f"restore secrets/{name}")
        elif agent.public_key != (own := public_key(key)):
            mend = partial(context.agents.registry.update, agent_id, public_key=own)
            yield Finding(
                "keys", PROBLEM, agent_id, "the public key is not its key's", "write its own into agents.json", mend
            )


def hierarchy(context: CheckContext) -> Iterator[Finding]:
    """Cycles and missing superiors: looking for a superior there is refused."""
    agents = context.agents.all()
    for agent_id in agents:
        try:
            list(superiors(agent_id, agents))
        except Refusal as refusal:
            yield Finding("hierarchy", PROBLEM, agent_id, in_words(refusal), "mend parent_id in agents.json")


def panes(context: CheckContext) -> Iterator[Finding]:
    """Agents without a pane, or whose pane cannot be rung now."""
    for agent in context.agents.all().values():
        if agent.pane_id is None:
            if agent.role != "owner":
                repair = f"multi-agent-mcp agent set {agent.id} --pane %N, or serve it"
                yield Finding("panes", NOTE, agent.id, "no pane is registered", repair)
        elif reason := context.probe(agent):
            yield Finding("panes", NOTE, agent.id, f"pane {agent.pane_id}: {reason}", _repair(agent, reason))


def hosts(context: CheckContext) -> Iterator[Finding]:
    """Agents whose `host` no profile describes: nothing is typed into their panes."""
    for agent in context.agents.all().values():
        if agent.host is not None and agent.host not in context.hosts:
            named = f"multi-agent-mcp agent set {agent.id} --host NAME ({', '.join(sorted(context.hosts))})"
            repair = f"{named}; or describe its screen in hosts/NAME.yaml beside the sessions (docs/hosts.md)"
            yield Finding("hosts", NOTE, agent.id, f"no profile is named {agent.host!r:.60}", repair)


def notify_command(context: CheckContext) -> Iterator[Finding]:
    """The command that people are rung with: can it be run, does it say what waits, did it work last."""
    command = context.notify_command
    if command is None:
        return
    note = partial(Finding, "notify_command", subject="session.yaml")
    if not command:
        repair = 'write it as a list, the program first: ["ntfy", "publish", "my-topic", "{line}"]'
        yield note(level=PROBLEM, finding=in_words(InvalidArguments("bad_notify_command")), repair=repair)
        return
    if shutil.which(command[0]) is None:
        repair = "install it, or give its absolute path"
        yield note(level=PROBLEM, finding=f"there is no program {command[0]!r:.80} to run", repair=repair)
    if not any("{line}" in part for part in command[1:]):
        repair = 'add "{line}" to its arguments, unless it is to make a noise only'
        yield note(level=NOTE, finding="no argument holds {line}: it does not say what waits", repair=repair)
    last = context.workspace.notify_command_failure.read()
    if isinstance(last, dict):
        finding = f"it failed at {last.get('at')!s:.40}: {last.get('failure')!s:.200}"
        yield note(level=PROBLEM, finding=finding, repair="try it in a shell; the next ring that works ends this")


def _repair(agent: Agent, reason: str) -> str:
    if reason != "unknown_host":
        return "start the agent again"
    if agent.host == "plain":
        return f"start its program again, then register its pane: multi-agent-mcp agent set {agent.id} --pane %N"
    declare = f"a program that reads lines: multi-agent-mcp agent set {agent.id} --host plain"
    return f"{declare}; else describe its screen in hosts/NAME.yaml beside the sessions (docs/hosts.md)"
