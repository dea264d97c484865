"""Checks of the agents: registry, keys, hierarchy, panes, hosts, and the command that notifies people."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from importlib.util import find_spec
from itertools import combinations, islice

from multi_agent_mcp.domain.agent import Agent, by_server, sharing_panes, superiors, waking_tmux
from multi_agent_mcp.domain.message import public_key
from multi_agent_mcp.domain.overview.stuck import DIALOG
from multi_agent_mcp.domain.proof import checks_in
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import HubReplaced, HubUnreachable, Refusal, TmuxTimeout
from multi_agent_mcp.hosts import host_named
from multi_agent_mcp.services.doctor.finding import NOTE, PROBLEM, CheckContext, Finding
from multi_agent_mcp.services.overview.machines import (
    AWAY,
    CONNECTED,
    CUT_OFF,
    HERE,
    LEFT,
    REPLACED,
    SHUT_OUT,
    WITHOUT_RELAY,
    MachineRow,
    Machines,
)
from multi_agent_mcp.services.team.agents import is_passkey_of
from multi_agent_mcp.store.authority import Authority, is_marked, revision_of


def registry(context: CheckContext) -> Iterator[Finding]:
    """A registry without an owner, unusable values in it, and ids that differ only in case."""
    agents = context.agents.all()  # restores a damaged registry, which `tree` then reports
    if not any(agent.role == "owner" for agent in agents.values()):
        yield context.found("registry", PROBLEM, "agents.json", "no_owner")
    for agent_id, key, value in context.agents.registry.misfits():
        yield context.found("registry", PROBLEM, agent_id, "misfit", name=key, value=f"{value!r:.80}")
    for first, second in combinations(agents, 2):
        if first.lower() == second.lower():
            yield context.found("registry", PROBLEM, second, "differs_in_case", other=first)


def keys(context: CheckContext) -> Iterator[Finding]:
    """Keys that are missing or do not match the registry."""
    for agent_id, agent in context.agents.at_home().items():
        name = context.workspace.key_path(agent_id).name
        try:
            key = context.agents.stored_key(agent_id)
        except Refusal as refusal:
            missing = not context.workspace.key_path(agent_id).is_file()
            kind, why = ("key_missing", None) if missing else ("key_refused", context.texts.sentence(refusal))
            yield context.found("keys", PROBLEM, agent_id, kind, file=name, reason=why)
            continue
        if not is_passkey_of(agent, key):
            yield context.found("keys", PROBLEM, agent_id, "other_key", file=name)
        elif agent.public_key != (own := public_key(key)):
            fix = partial(context.agents.registry.update, agent_id, public_key=own)
            yield context.found("keys", PROBLEM, agent_id, "other_public_key", fix)


def usage(context: CheckContext) -> Iterator[Finding]:
    """Agents in hosts whose own files do not tell what their models took: the host may have changed their form."""
    hosted = {agent.id: agent.host for agent in context.agents.at_home().values() if host_named(agent.host)}
    for agent_id in context.uncounted():
        if agent_id in hosted:
            yield context.found("usage", NOTE, agent_id, "usage_unknown", host=hosted[agent_id])


def checks(context: CheckContext) -> Iterator[Finding]:
    """Checks of session.yaml whose program is missing, and conditions that name no check. Runs none."""
    settings = context.checks.settings()
    for name, check in settings.checks.items():
        if context.checks.is_found(check) is False:
            yield context.found("checks", PROBLEM, name, "check_program", program=check.program)
    wanted = dict.fromkeys(checks_in(settings.done_when), "done_when")
    wanted |= {name: task.id for task in context.workspace.tasks.open() for name in task.checks}
    for name, where in wanted.items():
        if name not in settings.checks:
            yield context.found("checks", PROBLEM, name, "check_unknown", where=where)


def telemetry(context: CheckContext) -> Iterator[Finding]:
    """Spans that are asked for and cannot be exported, because OpenTelemetry is not installed."""
    if context.checks.settings().telemetry is not None and find_spec("opentelemetry.exporter") is None:
        yield context.found("telemetry", PROBLEM, "session.yaml", "telemetry_missing")


def hierarchy(context: CheckContext) -> Iterator[Finding]:
    """Agents whose superiors cannot be determined, because of cycles or missing superiors."""
    agents = context.agents.all()
    for agent_id in agents:
        try:
            list(superiors(agent_id, agents))
        except Refusal as refusal:
            yield context.found("hierarchy", PROBLEM, agent_id, "hierarchy", reason=context.texts.sentence(refusal))


def panes(context: CheckContext) -> Iterator[Finding]:
    """Agents without a pane, in the same pane as another, or whose pane cannot be rung now; tmux servers that do not
    answer."""
    agents = context.agents.at_home()
    reasons = {agent.id: context.probe(agent) for agent in agents.values() if agent.pane_id is not None}
    silent = [agents[name] for name, reason in reasons.items() if reason == TmuxTimeout.code]
    for server, ids in by_server(silent).items():
        facts = {"agents": ", ".join(ids), "socket": server[0], "command": waking_tmux(*server)}
        yield context.found("panes", PROBLEM, ids[0], "silent_tmux", **facts)
    for ids in sharing_panes(agents.values()):
        facts = {"names": ", ".join(ids), "pane": agents[ids[-1]].pane_id, "agent_id": ids[-1]}
        yield context.found("panes", PROBLEM, ids[-1], "shared_pane", **facts)
    for agent in agents.values():
        if agent.pane_id is None:
            if agent.role != "owner":
                kind = "no_pane" if agent.command else "no_pane_no_command"
                yield context.found("panes", NOTE, agent.id, kind, agent_id=agent.id)
        elif (reason := reasons[agent.id]) and reason != TmuxTimeout.code:
            why = context.texts.why_not_rung(reason)
            facts = {"agent_id": agent.id, "pane": agent.pane_id, "reason": why, "program": context.program(agent)}
            yield context.found("panes", NOTE, agent.id, _kind(agent, reason), **facts)


def hosts(context: CheckContext) -> Iterator[Finding]:
    """Unusable profiles, and agents whose `host` has no profile: nothing is typed into their panes."""
    for file, reason in context.profiles_left_out.items():
        yield context.found("hosts", PROBLEM, f"hosts/{file}", "profile_left_out", file=file, reason=f"«{reason}»")
    for agent in context.agents.all().values():
        if agent.host is not None and agent.host not in context.hosts:
            facts = {"agent_id": agent.id, "host": f"{agent.host!r:.60}", "known": ", ".join(sorted(context.hosts))}
            yield context.found("hosts", NOTE, agent.id, "no_profile", **facts)


def hooks(context: CheckContext) -> Iterator[Finding]:
    """Hosts that do not run our hooks: they ask first whether they may, or have called our tools without running one
    since their start. Without hooks an interrupt waits for the agent's next call of our tools."""
    for agent in context.agents.at_home().values():
        if host_named(agent.host) is None or agent.may_be_human:
            continue
        facts = {"agent_id": agent.id, "host": agent.host}
        if _asks_about_hooks(context, agent):
            yield context.found("hooks", NOTE, agent.id, "hooks_asked", **facts)
            continue
        running = filter(context.sessions.is_here, context.sessions.running(agent.id))
        if any(session.called and not context.hooks_ran(session) for session in running):
            yield context.found("hooks", NOTE, agent.id, "hooks_silent", **facts)


def _asks_about_hooks(context: CheckContext, agent: Agent) -> bool:
    seen = context.look_at(agent) if agent.pane_id is not None else None
    shown = context.dialog(agent) if seen is not None and seen[1] == DIALOG else None
    return shown is not None and shown.topic == "hooks"


def notify_command(context: CheckContext) -> Iterator[Finding]:
    """A `notify_command` that cannot be run, does not contain the line, or failed last time."""
    command = context.notify_command
    if command is None:
        return
    found = partial(context.found, "notify_command")
    if not command:
        yield found(PROBLEM, "session.yaml", "bad_notify_command")
        return
    if shutil.which(command[0]) is None:
        yield found(PROBLEM, "session.yaml", "no_notify_command", program=f"{command[0]!r:.80}")
    if not any("{line}" in part for part in command[1:]):
        yield found(NOTE, "session.yaml", "notify_command_without_line")
    last = context.workspace.notify_command_failure.read()
    if isinstance(last, dict):
        facts = {"at": f"{last.get('at')!s:.40}", "failure": f"{last.get('failure')!s:.200}"}
        yield found(PROBLEM, "session.yaml", "notify_command_failed", **facts)


def _kind(agent: Agent, reason: str) -> str:
    """The key of the text that tells the remedy."""
    if reason != "unknown_host":
        return "pane_no_tmux" if reason == "no_tmux" else "pane"
    return "pane_plain" if agent.host == "plain" else "pane_unknown_host"


# Checks of several machines: the relay, the hub, machines that are away, what waits, and files against the hub.

CLOCK_SECONDS = 2.0
BEHIND = 1000
FINDINGS = {CUT_OFF: "hub_away", SHUT_OUT: "shut_out", REPLACED: "hub_replaced"}
SAMPLE = 20


def machines(context: CheckContext) -> Iterator[Finding]:
    """Problems in the exchange with other machines; nothing for a session of one machine."""
    seen = Machines(context.workspace, context.agents).look()
    if seen is None:
        return
    found = partial(context.found, "machines")
    if seen.exchange in WITHOUT_RELAY:
        yield found(PROBLEM, seen.here, seen.exchange, pid=seen.relay_pid)
        return
    if seen.exchange != CONNECTED:
        yield found(PROBLEM, seen.here, FINDINGS[seen.exchange], since=_moment(seen.since))
    if seen.unwritten is not None:
        yield found(PROBLEM, seen.here, "disk_refuses", **seen.unwritten)
    if seen.queued:
        yield found(NOTE, seen.here, "queued", count=seen.queued)
    if seen.edits:
        yield found(NOTE, seen.here, "conflicts", count=len(seen.edits))
    if seen.own_hub:  # else the hub is our own, which syncs every write
        yield found(NOTE, seen.here, "sync_unknown", version=seen.version or "-")
    for row in seen.machines:
        yield from _machine(row, found)
    yield from _sample(context, context.workspace.authority)


def _machine(row: MachineRow, found: Callable[..., Finding]) -> Iterator[Finding]:
    for trouble in row.troubles:
        if row.state != HERE or trouble != "disk":  # else it is said in detail
            yield found(PROBLEM, row.name, f"machine_{trouble}", machine=row.name, count=row.behind)
    if row.state == AWAY:
        yield found(NOTE, row.name, "machine_away" if row.since else "machine_unheard", since=_moment(row.since))
    if row.state == LEFT:
        yield found(NOTE, row.name, "machine_left", agents=", ".join(row.agents))
    if abs(row.clock_offset or 0) > CLOCK_SECONDS:
        yield found(NOTE, row.name, "clock", seconds=row.clock_offset)
    if (row.behind or 0) > BEHIND:
        yield found(NOTE, row.name, "behind", count=row.behind)


def _moment(moment: datetime | None) -> str:
    return "-" if moment is None else format_time(moment)


def _sample(context: CheckContext, authority: Authority) -> Iterator[Finding]:
    """Differences between some open tasks and their values on the hub, for equal revisions."""
    try:
        for task in islice(context.workspace.tasks.open(), SAMPLE):
            current = authority.current(f"tsk.{task.id}")
            if current is None:
                yield context.found("machines", PROBLEM, task.id, "not_on_hub")
            elif current.revision == revision_of(task) and not is_marked(task, current):
                yield context.found("machines", PROBLEM, task.id, "other_than_hub")
    except (HubUnreachable, HubReplaced):
        return  # reported already


def worktrees(context: CheckContext) -> Iterator[Finding]:
    """Worktrees whose directory is gone or that git cannot read, and those of removed agents without work in them."""
    agents = context.agents.all()
    for worktree in context.worktrees.all():
        subject, facts = worktree.agent_id, {"path": worktree.path, "branch": worktree.branch}
        try:
            state = context.worktrees.state(worktree)
        except Refusal as refusal:
            reason = context.texts.sentence(refusal)
            yield context.found("worktrees", PROBLEM, subject, "worktree_unknown", **facts, reason=reason)
            continue
        if subject not in agents and state.keeps is None:
            fix = partial(context.worktrees.remove, subject)
            yield context.found("worktrees", NOTE, subject, "worktree_left", fix, **facts)
        elif not state.is_there:
            yield context.found("worktrees", NOTE, subject, "worktree_gone", **facts, agent_id=subject)
