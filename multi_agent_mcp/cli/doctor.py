"""`doctor` and `prune`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any

import click

from multi_agent_mcp.cli.context import WRONG_USE, SessionContext, refuse, session_command
from multi_agent_mcp.cli.output import titled_table
from multi_agent_mcp.errors import InvalidArguments, Refusal

if TYPE_CHECKING:
    from multi_agent_mcp.bootstrap import Services
    from multi_agent_mcp.services.doctor.finding import Finding
    from multi_agent_mcp.texts import Texts

Answer = dict[str, Any]
LONGEST_AGE_DAYS = 365_000.0
"""Older than any file can be; the calendar ends not far beyond."""


@click.command()
@click.option("--repair", is_flag=True, help="Mend what can be mended; nothing readable is lost.")
@click.option("--verify", is_flag=True, help="Check the signature of every message, too.")
@session_command()
def doctor(context: SessionContext, repair: bool, verify: bool) -> None:
    """Report what is wrong with a session, and how to mend it; explain who can be rung, and how.

    Exit code 1 when there is a problem, 0 when there is none (notes are none).
    """
    from multi_agent_mcp.notify.tmux.profiles import load_profiles
    from multi_agent_mcp.notify.tmux.snapshot import probe
    from multi_agent_mcp.services.doctor.finding import PROBLEM

    services = context.services
    profiles = load_profiles(services.root / "hosts")
    examined = services.doctor(partial(probe, profiles=profiles))
    findings = examined.examine(verify=verify)
    repaired = examined.repair(findings) if repair else []
    left = examined.examine(verify=verify) if repaired else findings
    problems = sum(finding.level == PROBLEM for finding in left)
    answer: Answer = {
        "findings": [finding.as_answer() for finding in left],
        "problems": problems,
        "repaired": [finding.as_answer() for finding in repaired],
        "doorbells": _doorbells(services),
    }
    context.answer(answer, _lines(services, left, repaired, answer["doorbells"]))
    if problems:
        raise click.exceptions.Exit(1)


def _doorbells(services: Services) -> list[Answer]:
    """Every recipient's channels, strongest first, and what its pane shows."""
    try:
        agents = services.agents.all().values()
    except Refusal:
        return []  # the findings say why
    return [
        {
            "agent_id": agent.id,
            "host": agent.host,
            "screen": services.screen(agent),
            "rungs": [{"rung": channel.name, "reason": channel.reason} for channel in services.channels(agent)],
        }
        for agent in agents
    ]


def _lines(services: Services, left: list[Finding], repaired: list[Finding], doorbells: list[Answer]) -> Iterator[str]:
    texts = services.people
    for finding in repaired:
        facts = {name: getattr(finding, name) for name in ("check", "subject", "finding", "repair")}
        yield texts("doctor.done", **facts)
    if left:
        findings = [
            (texts(f"level.{item.level}"), item.check, item.subject, item.finding, item.repair) for item in left
        ]
        yield from titled_table(texts, ("level", "check", "subject", "finding", "repair"), findings)
    else:
        yield texts("doctor.clean")
    channels = [
        (doorbell["agent_id"], doorbell["screen"], rung["rung"], _now(texts, rung["reason"]))
        for doorbell in doorbells
        for rung in doorbell["rungs"]
    ]
    if channels:
        yield ""
        yield from titled_table(texts, ("recipient", "screen", "rung", "now"), channels)


def _now(texts: Texts, reason: str | None) -> str:
    return texts("doctor.can_ring") if reason is None else texts.why_not_rung(reason)


@click.command()
@click.option(
    "--older-than", metavar="DAYS", default=30.0, type=click.FloatRange(0), help="Only what is older than this."
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@session_command()
def prune(context: SessionContext, older_than: float, dry_run: bool) -> None:
    """Delete archived mail, ended agent sessions and other finished things. Unread mail and tasks always stay."""
    if isnan(older_than):  # no range excludes it
        wrong = InvalidArguments("bad_number", name="--older-than", limits="≥ 0")
        refuse(wrong, context.services.people, as_json=context.as_json, code=WRONG_USE)
    services = context.services
    age = timedelta(days=min(older_than, LONGEST_AGE_DAYS))
    items = services.pruning.prunable(services.clock(), age)
    if not dry_run:
        services.pruning.delete(items)
    files = [str(item.path.relative_to(services.path)) for item in items]
    size = sum(item.size for item in items)
    done = services.people("prune.would" if dry_run else "prune.deleted", count=len(items), size=size)
    context.answer(
        {"deleted": not dry_run, "files": files, "bytes": size},
        [*files, done],
    )
