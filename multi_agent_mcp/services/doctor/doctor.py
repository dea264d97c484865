"""The command `doctor`: runs the checks of a session, of which those of processes and agents are here, and repairs
their findings."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import combinations, islice
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.agent import WHOEVER, Agent, by_server, sharing_panes, superiors, waking_tmux
from multi_agent_mcp.domain.delivery import LIFELESS
from multi_agent_mcp.domain.message import public_key
from multi_agent_mcp.domain.proof import checks_in
from multi_agent_mcp.domain.question import parked_by
from multi_agent_mcp.domain.stuck import DIALOG
from multi_agent_mcp.domain.text import display_id, one_line
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import HubReplaced, HubUnreachable, InvalidSession, Refusal, StorageError, TmuxTimeout
from multi_agent_mcp.hosts import host_named
from multi_agent_mcp.services.background import PartsDone
from multi_agent_mcp.services.doctor.tree import NOTE, PROBLEM, CheckContext, DiskUsage, Finding, Track, untracked
from multi_agent_mcp.services.overview.snapshot import (
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
    TeamOfMachines,
)
from multi_agent_mcp.services.team.agents import is_passkey_of
from multi_agent_mcp.settings import parse_rules
from multi_agent_mcp.store.authority import Authority, revision_of
from multi_agent_mcp.store.locks import LIFELONG
from multi_agent_mcp.system.file_events import Watch, instances_max
from multi_agent_mcp.system.host_versions import newer_hosts
from multi_agent_mcp.system.process import identity

HELD_SECONDS = 1.0


def sessions(context: CheckContext) -> Iterator[Finding]:
    """Agent sessions whose process died, and their executions. The repair makes unconfirmed mail unread again."""
    for session in context.workspace.sessions.open():
        if context.sessions.is_here(session) and not context.sessions.is_running(session):
            facts = {"session_id": session.id, "count": len(session.unconfirmed)}
            yield _lost(context, session.agent_id, "died_holding" if session.unconfirmed else "died", **facts)
    for agent_id in context.workspace.executions.partitions():
        for execution in context.sessions.executions.orphans(agent_id):
            facts = {"execution_id": execution.id, "session_id": execution.session_id}
            yield _lost(context, agent_id, "orphan", **facts)


def _lost(context: CheckContext, agent_id: str, key: str, **facts: Any) -> Finding:
    return context.found("sessions", NOTE, agent_id, key, partial(context.sessions.recover, agent_id), **facts)


def locks(context: CheckContext) -> Iterator[Finding]:
    """Short-lived locks that are still held after `HELD_SECONDS`. Their process lives: the kernel releases the locks of
    dead ones."""
    locks = context.workspace.locks
    held = [name for name in locks.all_held() if not name.startswith(LIFELONG)]
    if held:
        time.sleep(HELD_SECONDS)
    for name in filter(locks.is_held, held):
        yield context.found("locks", NOTE, name, "held", seconds=f"{HELD_SECONDS:.0f}")


def windows(context: CheckContext) -> Iterator[Finding]:
    """A supervisor that has ended although work waits for it, its windows whose command died at once, and agents for
    whom it opens none."""
    if context.supervision.has_died and (agents := context.missing_sessions.waiting()):
        yield context.found("supervisor", PROBLEM, "supervise", "supervisor_ended", agents=", ".join(agents))
    for slot, window in context.missing_sessions.windows().items():
        if window.is_down and slot.purpose == "task":
            yield context.found("supervisor", NOTE, slot.agent_id, "put_down", agent_id=slot.agent_id)
    for slot, count in context.missing_sessions.dying().items():
        facts = {"purpose": slot.purpose, "count": count, "agent_id": slot.agent_id}
        yield context.found("supervisor", PROBLEM, slot.agent_id, "command_dies", **facts)


def stuck(context: CheckContext) -> Iterator[Finding]:
    """Stuck agents. The present content of a pane counts at once, because a doctor looks only once."""
    agents = context.stuck_agents
    looks = agents.panes.now(context.look_at)
    patience = replace(agents.patience, pane=timedelta(0))
    for agent_id, found in agents.find(looks, patience).items():
        host = found.facts.pane.host if found.facts.pane else "-"
        facts = {"what": agents.sentence(found, titled=True), "host": host, "agent_id": agent_id}
        # A team that is down may have tasks in progress without any running agent; that is no problem.
        level = PROBLEM if found.facts.alive or found.facts.pane else NOTE
        kind = found.cause if found.kind == "gone" else found.kind
        yield context.found("stuck", level, agent_id, f"stuck_{kind}", **facts)


def waits(context: CheckContext) -> Iterator[Finding]:
    """Owners that wait for an answer. The repair releases waits for agents that were removed."""
    agents = context.agents.all()
    for agent in agents.values():
        wait = context.owner_waits.of(agent.id) if agent.role == "owner" else None
        if wait is None:
            continue
        facts = {"admin_id": wait.admin_id, "since": format_time(wait.since)}
        if wait.admin_id in agents:
            yield context.found("waiting", NOTE, agent.id, "waits", **facts)
        else:
            fix = partial(context.owner_waits.release, agent.id)
            yield context.found("waiting", PROBLEM, agent.id, "waits_for_nobody", fix, **facts)


def questions(context: CheckContext) -> Iterator[Finding]:
    """Open questions of or to somebody who was never in the team, and tasks that wait for an answer although their
    question is closed or its file is lost. The repair hands such a task back."""
    workspace, agents = context.workspace, context.agents.registry.all()
    for question in workspace.questions.open():
        for agent_id in {question.asker_id, question.to_id} - agents.keys():
            if agent_id.startswith(WHOEVER):
                continue
            yield context.found("questions", PROBLEM, question.id, "question_of_nobody", agent_id=display_id(agent_id))
    for task in workspace.tasks.open():
        question_id = parked_by(task)
        found = None if question_id is None else workspace.questions.find(question_id)
        if question_id is not None and (found is None or found.closed):
            fix = partial(context.question_effects.release, task, question_id)
            yield context.found("questions", PROBLEM, task.id, "parked_for_nothing", fix, question_id=question_id)


def tasks(context: CheckContext) -> Iterator[Finding]:
    """Open tasks of somebody who is not in the team."""
    agents = context.agents.all()
    for task in context.workspace.tasks.open():
        if task.assignee_id is not None and task.assignee_id not in agents:
            facts = {"agent_id": display_id(task.assignee_id), "title": one_line(task.title)}
            yield context.found("tasks", PROBLEM, task.id, "task_of_nobody", task_id=task.id, **facts)


def events(context: CheckContext) -> Iterator[Finding]:
    """A lack of file events for all servers: without them a server polls once a second."""
    running = sum(context.sessions.is_running(session) for session in context.workspace.sessions.open())
    limit = instances_max()
    with Watch([context.workspace.path], lambda _: None) as watch:
        polls = watch.degraded is not None
    if polls or (limit is not None and running > limit):
        facts = {"servers": running, "limit": "-" if limit is None else limit, "wanted": 4 * max(running, limit or 128)}
        yield context.found("events", NOTE, "inotify", "polling", **facts)


# Checks of the agents: registry, keys, hierarchy, panes, hosts, and the command that notifies people.


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
            missing = isinstance(refusal, InvalidSession)
            kind, why = ("key_missing", None) if missing else ("key_refused", context.texts.sentence(refusal))
            fix = partial(context.agents.renew_key, agent_id) if missing else None
            yield context.found("keys", PROBLEM, agent_id, kind, fix, file=name, reason=why)
            continue
        if not is_passkey_of(agent, key):
            yield context.found("keys", PROBLEM, agent_id, "other_key", file=name)
        elif agent.public_key != (own := public_key(key)):
            fix = partial(context.agents.registry.update, agent_id, public_key=own)
            yield context.found("keys", PROBLEM, agent_id, "other_public_key", fix)


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


def features(context: CheckContext) -> Iterator[Finding]:
    """A session.yaml that cannot be read, what is wrong with `features:`, and features that are off although something
    of them is open: switched off by a person in session.yaml, as `init` refuses that."""
    for refusal in context.session.wrong_features:
        kind = "bad_features" if refusal.key == "error.bad_features" else "bad_settings"
        yield context.found("features", PROBLEM, "session.yaml", kind, reason=context.texts.sentence(refusal))
    for name, ids in context.still_open().items():
        yield context.found("features", PROBLEM, name, "feature_in_use", name=name, ids=", ".join(ids))


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
    answer, and those with options that harm agents."""
    agents = context.agents.at_home()
    reasons = {agent.id: context.probe(agent) for agent in agents.values() if agent.pane_id is not None}
    silent = [agents[name] for name, reason in reasons.items() if reason == TmuxTimeout.code]
    for server, ids in by_server(silent).items():
        facts = {"agents": ", ".join(ids), "socket": server[0], "command": waking_tmux(*server)}
        yield context.found("panes", PROBLEM, ids[0], "silent_tmux", **facts)
    there = [agents[name] for name, reason in reasons.items() if reason != TmuxTimeout.code]
    for option, names, command in context.harmful_options(there):
        facts = {"agents": ", ".join(names), "command": command}
        yield context.found("panes", PROBLEM, names[0], option.replace("-", "_"), **facts)
    for ids in sharing_panes(agents.values()):
        facts = {"names": ", ".join(ids), "pane": agents[ids[-1]].pane_id, "agent_id": ids[-1]}
        yield context.found("panes", PROBLEM, ids[-1], "shared_pane", **facts)
    for agent in agents.values():
        if agent.pane_id is None:
            named = next(filter(None, (context.misnamed(one.pid) for one in context.sessions.running(agent.id))), None)
            if named is not None:
                yield context.found("panes", PROBLEM, agent.id, "misnamed_pane", agent_id=agent.id, pane=named)
            elif agent.role != "owner":
                kind = "no_pane" if agent.command else "no_pane_no_command"
                yield context.found("panes", NOTE, agent.id, kind, agent_id=agent.id)
        elif (reason := reasons[agent.id]) and reason != TmuxTimeout.code:
            why = context.texts.why_not_rung(reason)
            facts = {"agent_id": agent.id, "pane": agent.pane_id, "reason": why, "program": context.program(agent)}
            facts |= {"socket": agent.socket_path, "pid": str(agent.tmux_pid)}
            yield context.found("panes", NOTE, agent.id, _kind(agent, reason), **facts)


def hosts(context: CheckContext) -> Iterator[Finding]:
    """Unusable profiles, and agents whose `host` has no profile: nothing is typed into their panes."""
    for file, reason in context.profiles_left_out.items():
        yield context.found("hosts", PROBLEM, f"hosts/{file}", "profile_left_out", file=file, reason=f"«{reason}»")
    for agent in context.agents.all().values():
        if agent.host is not None and agent.host not in context.hosts:
            facts = {"agent_id": agent.id, "host": f"{agent.host!r:.60}", "known": ", ".join(sorted(context.hosts))}
            yield context.found("hosts", NOTE, agent.id, "no_profile", **facts)
    for host in newer_hosts(agent.command for agent in context.agents.at_home().values()):
        facts = {"title": host.title, "version": host.version, "proven": host.proven}
        yield context.found("hosts", NOTE, host.host, "newer_host", **facts)


def rules(context: CheckContext) -> Iterator[Finding]:
    """Rules of agents that cannot be read, and those that their hosts are not held to."""
    for agent in context.agents.at_home().values():
        try:
            parse_rules(agent.extra, agent.id)
        except Refusal as refusal:
            yield context.found("rules", PROBLEM, agent.id, "bad_rules", reason=context.texts.sentence(refusal))
    with suppress(Refusal):  # of a session.yaml that cannot be read something else is said
        for agent in context.agents.at_home().values():
            for name, hold in context.contributions.service("agent_rules").held(agent).items():
                if hold != "enforced":
                    yield context.found("rules", NOTE, agent.id, f"rule_{hold}", rule=name)


def host_files(context: CheckContext) -> Iterator[Finding]:
    """Files of hosts, written by an earlier version, that start our program where it could import the project's
    modules."""
    seen = set[Path]()
    for host, agent_id, path, fix in context.outdated_files():
        if path not in seen:
            yield context.found(
                "host_files", NOTE, agent_id, "outdated_file", fix, file=path, host=host, agent_id=agent_id
            )
        seen.add(path)


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
    command = context.session.settings.notify_command
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
    if last := context.workspace.notify_command_failure.facts():
        facts = {"at": f"{last.get('at')!s:.40}", "failure": f"{last.get('failure')!s:.200}"}
        yield found(PROBLEM, "session.yaml", "notify_command_failed", **facts)


def _kind(agent: Agent, reason: str) -> str:
    """The key of the text that tells the remedy."""
    if reason == "unknown_host":
        return "pane_plain" if agent.host == "plain" else "pane_unknown_host"
    if reason == "no_tmux":
        return "pane_no_tmux"
    if reason not in LIFELESS:
        return "pane_held"
    if reason == "tmux_gone" and agent.tmux_server and identity(agent.tmux_pid or 0) == agent.tmux_server:
        return "lost_tmux"
    return "pane" if agent.command else "pane_by_hand"


# Checks of several machines: the relay, the hub, machines that are away, what waits, and files against the hub.

CLOCK_SECONDS = 2.0
BEHIND = 1000
FINDINGS = {CUT_OFF: "hub_away", SHUT_OUT: "shut_out", REPLACED: "hub_replaced"}
SAMPLE = 20
HALF_FULL, NEARLY_FULL = 50, 90


def machines(context: CheckContext) -> Iterator[Finding]:
    """Problems in the exchange with other machines; nothing for a session of one machine."""
    seen = Machines(context.session, context.agents).look()
    if seen is None:
        return
    found = partial(context.found, "machines")
    if seen.exchange in WITHOUT_RELAY:
        yield found(PROBLEM, seen.here, seen.exchange, pid=seen.relay_pid)
        return
    if seen.exchange != CONNECTED:
        yield found(PROBLEM, seen.here, FINDINGS[seen.exchange], **seen.tried, since=_moment(seen.since))
    if seen.hub_finding is not None:
        yield found(PROBLEM, seen.here, seen.hub_finding, **seen.hub_words)
    yield from _here(seen, found)
    for row in seen.machines:
        yield from _machine(row, found)
    yield from _sample(context, context.workspace.authority)


def _here(seen: TeamOfMachines, found: Callable[..., Finding]) -> Iterator[Finding]:
    """What is to be said of this machine, and of the hub as it is seen here."""
    if seen.unwritten is not None:
        yield found(PROBLEM, seen.here, "disk_refuses", **seen.unwritten)
    if seen.filled is not None:
        yield from _filled(seen.filled, found, seen.here)
    if seen.queued:
        yield found(NOTE, seen.here, "queued", count=seen.queued)
    if seen.edits:
        yield found(NOTE, seen.here, "conflicts", count=len(seen.edits))
    if seen.own_hub:  # else the hub is our own, which syncs every write
        yield found(NOTE, seen.here, "sync_unknown", version=seen.version or "-")


def _filled(filled: Mapping[str, Any], found: Callable[..., Finding], here: str) -> Iterator[Finding]:
    """How full what all share is; where the hub runs, who has filled it, and who may write no more of it."""
    for machine in filled.get("full", ()):
        yield found(PROBLEM, machine, "hub_part_full", machine=machine)
    if filled["percent"] <= HALF_FULL:
        return
    level = PROBLEM if filled["percent"] >= NEARLY_FULL else NOTE
    by, facts = Counter(filled["by"]), {"percent": filled["percent"]}
    if by:
        ((filler, most),) = by.most_common(1)
        yield found(level, filler, "hub_filled_by", machine=filler, share=100 * most // (by.total() or 1), **facts)
    else:
        yield found(level, here, "hub_filled", **facts)


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
            elif current.revision == revision_of(task) and not context.workspace.tasks.is_as_on_hub(task, current):
                yield context.found("machines", PROBLEM, task.id, "other_than_hub")
    except (HubUnreachable, HubReplaced):
        return  # reported already


# Running the checks that the features name, and the repairs of what they find.

Check = Callable[[CheckContext], Iterable[Finding] | None]


class Doctor:
    """Examines a session; changes nothing unless asked to repair."""

    def __init__(self, context: CheckContext, checks: Mapping[str, Check], verifications: Mapping[str, Check]) -> None:
        self.context = context
        self.checks = checks
        self.verifications = verifications
        """Checks that read every message and every task, and run only when asked for."""

    @property
    def usage(self) -> DiskUsage:
        """The disk usage of the session's files, as of the last examination."""
        return self.context.usage

    def examine(
        self, *, verify: bool = False, track: Track = untracked, progress: PartsDone | None = None
    ) -> list[Finding]:
        """Runs the checks, which are the parts of the `progress`, and returns all findings, problems first. A check
        that fails is a finding, too."""
        progress = progress or PartsDone()
        self.context = replace(self.context, track=track, usage=DiskUsage())
        checks = {**self.checks, **(self.verifications if verify else {})}
        progress.total = len(checks)
        found: dict[tuple[str, str], Finding] = {}
        for name, check in checks.items():
            for finding in self._run(name, check):
                found.setdefault(
                    (finding.subject, finding.finding), finding
                )  # a failure of several checks is reported once
            progress.told()
        return sorted(found.values(), key=lambda finding: finding.level != PROBLEM)

    def repair(self, findings: list[Finding]) -> list[Finding]:
        """Repairs the findings that have a `fix`. Returns these findings, with the outcome of the repair."""
        repaired = []
        for finding in findings:
            if finding.fix is None:
                continue
            try:
                finding.fix()
            except (Refusal, OSError) as error:
                texts = self.context.texts
                why = texts.sentence(error) if isinstance(error, Refusal) else error
                words = texts("doctor.repair_failed", finding=finding.finding, reason=why)
                repaired.append(replace(finding, finding=words))
            else:
                repaired.append(replace(finding, repair=self.context.texts("doctor.repaired", repair=finding.repair)))
        return repaired

    def _run(self, name: str, check: Check) -> list[Finding]:
        found: list[Finding] = []
        try:
            found.extend(check(self.context) or ())
        except OSError as error:
            path = Path(os.fsdecode(error.filename)).name if error.filename else name
            found.append(self._broken(name, StorageError(path=path, reason=error)))
        except Refusal as refusal:
            found.append(self._broken(name, refusal))
        return found

    def _broken(self, name: str, refusal: Refusal) -> Finding:
        kind = "storage" if isinstance(refusal, StorageError) else "refused"
        return self.context.found(name, PROBLEM, "-", kind, reason=self.context.texts.sentence(refusal))
