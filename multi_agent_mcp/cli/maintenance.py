"""The commands `doctor`, `prune` and `trust`."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from multi_agent_mcp.cli.context import (
    JSON,
    SessionContext,
    people_texts,
    print_answer,
    print_line,
    refuse,
    session_command,
)
from multi_agent_mcp.cli.rendering import (
    Styled,
    alike,
    folded,
    is_terminal,
    local_times,
    size_words,
    subjects_words,
    titled_table,
    words_of_code,
)
from multi_agent_mcp.errors import InvalidArguments, Refusal, Unauthorized
from multi_agent_mcp.texts import Texts

if TYPE_CHECKING:
    from multi_agent_mcp.services.doctor.pruning import Prunable, Pruning
    from multi_agent_mcp.services.doctor.tree import Finding, Track
    from multi_agent_mcp.wiring import Services

Answer = dict[str, Any]
FINDINGS = ("level", "check", "subject", "finding", "repair")
LONGEST_AGE_DAYS = 365_000.0
"""An age greater than that of any file, within the range of `datetime`."""


@click.group(invoke_without_command=True, subcommand_metavar="[trust PATH]")
@click.option("--repair", is_flag=True, help="Repair what can be repaired; nothing readable is lost.")
@click.option("--verify", is_flag=True, help="Check the signature of every message and the history of every task, too.")
@session_command(in_any_case=True)
def doctor(context: SessionContext, repair: bool, verify: bool) -> None:
    """Report what is wrong with a session, and how to repair it; explain who can be rung, and how.

    Exit code 1 when there is a problem, 0 when there is none (notes are none).

    Example: `multi-agent-mcp doctor --repair`
    """
    from multi_agent_mcp.services.doctor.tree import PROBLEM

    services = context.services
    examined = services.doctor()
    with _tracked(context) as track:
        findings = examined.examine(verify=verify, track=track)
        repaired = examined.repair(findings) if repair else []
        left = examined.examine(verify=verify, track=track) if repaired else findings
    problems = sum(finding.level == PROBLEM for finding in left)
    answer: Answer = {
        "findings": [finding.as_answer() for finding in left],
        "problems": problems,
        "repaired": [finding.as_answer() for finding in repaired],
        "doorbells": _doorbells(services),
        "usage": examined.usage.as_answer(),
    }
    context.answer(answer, _lines(services.people, left, repaired, answer))
    if problems:
        raise click.exceptions.Exit(1)


@contextmanager
def _tracked(context: SessionContext) -> Iterator[Track]:
    """Shows the progress of the checks on a terminal; yields the function that reports it."""
    from multi_agent_mcp.services.doctor.tree import untracked

    if context.as_json or not sys.stdout.isatty():
        yield untracked
        return
    from rich.progress import BarColumn, Progress, TextColumn  # rich takes 40 ms to import

    texts = context.texts
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}"))
    with Progress(*columns, transient=True) as progress:
        yield lambda items, name, total: progress.track(items, total, description=texts(f"doctor.{name}"))


def _doorbells(services: Services) -> list[Answer]:
    """Returns for each agent of this machine its channels, strongest first, and its pane's state."""
    try:
        agents = services.agents.at_home().values()
    except Refusal:
        return []  # the findings say why
    return [
        {
            "agent_id": agent.id,
            "host": agent.host,
            "command": agent.command,
            "screen": services.pane_notifier.screen(agent),
            "rungs": [{"rung": channel.name, "reason": channel.reason} for channel in services.channels(agent)],
        }
        for agent in agents
    ]


def _lines(texts: Texts, left: list[Finding], repaired: list[Finding], answer: Answer) -> Iterator[str]:
    for finding in repaired:
        facts = {name: getattr(finding, name) for name in ("subject", "finding", "repair")}
        yield texts("doctor.done", check=words_of_code("checked", finding.check, texts), **facts)
    names = [doorbell["agent_id"] for doorbell in answer["doorbells"]]
    groups = folded(left, lambda item: _alike(item, names)) if is_terminal() else [[item] for item in left]
    rows = [_finding_row(group, texts) for group in groups]
    yield from titled_table(texts, FINDINGS, rows) if rows else [texts("doctor.clean")]
    if repairable := sum(finding.fix is not None for finding in left):
        yield texts("doctor.repairable", count=repairable)
    channels = [
        (doorbell["agent_id"], doorbell["screen"], rung["rung"], _now(texts, doorbell, rung["reason"]))
        for doorbell in answer["doorbells"]
        for rung in doorbell["rungs"]
    ]
    if channels:
        yield ""
        same = folded(_merged(channels), _same) if is_terminal() else [[row] for row in channels]
        shown = [_channel_row(group, texts) for group in same]
        yield from titled_table(texts, ("recipient", "screen", "rung", "now"), shown)
    yield ""
    used = [(item["kind"], item["files"], size_words(item["bytes"])) for item in answer["usage"]]
    yield from titled_table(texts, ("directory", "files", "size"), used)


def _merged(channels: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yields the rows of channels, those of an agent that say the same as one."""
    of: dict[tuple[str, str, str], list[str]] = {}
    for agent_id, screen, rung, now in channels:
        of.setdefault((agent_id, screen, now), []).append(rung)
    yield from ((agent_id, screen, ", ".join(rungs), now) for (agent_id, screen, now), rungs in of.items())


def _channel_row(group: Sequence[Sequence[str]], texts: Texts) -> tuple[str, ...]:
    """A row of channels. Why no host is seen in a pane is said where the pane is a channel."""
    _, screen, rungs, now = group[0]
    names = ", ".join(words_of_code("channel", rung, texts) for rung in rungs.split(", "))
    seen = screen if not is_terminal() else texts.screen(screen) if ": " in screen else "-"
    return subjects_words([row[0] for row in group], texts), seen, names, now


def _same(row: Sequence[str]) -> object:
    """Equal for the rows of channels that say the same to different agents."""
    agent_id, screen, rungs, now = row
    return screen, rungs, alike(now, agent_id)


def _alike(finding: Finding, names: Iterable[str]) -> object:
    """Equal for findings that say the same of different agents or files."""
    subject = (finding.subject, *(name for name in names if name in finding.finding))
    return finding.check, finding.level, alike(finding.finding, *subject), alike(finding.repair, *subject)


def _finding_row(group: Sequence[Finding], texts: Texts) -> tuple[str, ...]:
    first = group[0]
    level = texts(f"level.{first.level}") + (f" ×{len(group)}" if len(group) > 1 else "")
    subjects = subjects_words([item.subject for item in group], texts)
    style = "bold red" if first.level == "problem" else "yellow"
    return (
        Styled(level, style),
        words_of_code("checked", first.check, texts),
        subjects,
        local_times(first.finding, texts),
        first.repair,
    )


def _now(texts: Texts, doorbell: Answer, reason: str | None) -> str:
    if reason is None:
        return texts("doctor.can_ring")
    words = texts.words_of(reason)
    if reason == "no_pane" and not doorbell["command"]:  # `up` would open none
        words = texts("doctor.no_command", agent_id=doorbell["agent_id"])
    return words if is_terminal() or words == reason else f"{reason}: {words}"


@doctor.command()
@click.argument("path")
@JSON
def trust(path: str, as_json: bool) -> None:
    """Use a root directory, or a team.yaml, although somebody else owns it or may write to it.

    Whoever can write there can run programs as you. This holds as long as PATH belongs to the same user.

    Example: `multi-agent-mcp doctor trust /srv/team/.multi-agent-mcp`
    """
    from multi_agent_mcp.system.ownership import trust as trust_path

    texts = people_texts()
    try:
        if not path:
            raise InvalidArguments("trust_no_root", path="''")
        _require_person()
        owner, noted = trust_path(Path(path))
    except Refusal as refusal:
        refuse(refusal, texts, as_json=as_json)
    facts = {"path": str(Path(path).absolute()), "owner": owner, "file": str(noted)}
    print_answer(facts, [texts("trust.done", **facts)], as_json=as_json)


def _require_person() -> None:
    """Raises `Unauthorized` in an agent's hands, as far as its session is known here and can be entered."""
    from multi_agent_mcp.bootstrap import open_session
    from multi_agent_mcp.config import find_root, read_environment, working_directory

    given = read_environment()
    try:
        services = open_session(find_root(given.root, working_directory()), given.session, in_any_case=True)
    except Refusal:
        if given.agent is not None:
            raise Unauthorized("only_people_approve", agent_id=given.agent) from None
    else:
        services.approvals.require_person()


@click.command()
@click.option(
    "--older-than", metavar="DAYS", default=30.0, type=click.FloatRange(0), help="Only what is older than this."
)
@click.option("--dry-run", is_flag=True, help="Only show what may be deleted.")
@session_command()
def prune(context: SessionContext, older_than: float, dry_run: bool) -> None:
    """Delete what is over: archived mail and tasks, ended sessions, executions, conversations, old logs.

    Unread mail and unfinished tasks always stay. A dry run does not read the archives: what somebody put there
    and nobody has read is listed but would stay.

    Example: `multi-agent-mcp prune --older-than 30 --dry-run`
    """
    if isnan(older_than):  # no range excludes it
        context.wrong_use("bad_number", name="--older-than", limits="≥ 0")
    services, age = context.services, timedelta(days=min(older_than, LONGEST_AGE_DAYS))
    gone: Counter[str] = Counter()
    items = services.pruning.prunable(services.clock(), age, reads_archives=not dry_run)
    names = _deleted(services.pruning, items, gone, dry_run=dry_run)
    context.has_answered = True
    if context.as_json:
        _print_json(names, gone, dry_run=dry_run)
        return
    for name in names:
        print_line(name)
    print_line(services.people("prune.would" if dry_run else "prune.deleted", count=gone["files"], size=gone["bytes"]))


def _deleted(pruning: Pruning, items: Iterable[Prunable], gone: Counter[str], *, dry_run: bool) -> Iterator[str]:
    """Deletes the items one by one, unless it is a dry run, adds files and bytes to `gone`, and yields each name."""
    for item in items:
        if not dry_run:
            pruning.delete(item)
        gone["files"] += 1
        gone["bytes"] += item.size
        yield item.name


def _print_json(names: Iterable[str], gone: Counter[str], *, dry_run: bool) -> None:
    """Prints the JSON answer incrementally, as there may be millions of files."""
    write = sys.stdout.write
    write(f'{{\n  "success": true,\n  "deleted": {json.dumps(not dry_run)},\n  "files": [')
    for number, name in enumerate(names):
        write(f"{',' if number else ''}\n    {json.dumps(name)}")
    write(f'\n  ],\n  "bytes": {gone["bytes"]}\n}}\n')
