"""`doctor` and `prune`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from multi_agent_mcp.cli.door import Json, Root, Session, desk, table
from multi_agent_mcp.services.pruning import Pruning


def doctor(root: Root = None, session: Session = None, as_json: Json = False) -> None:
    """Report what is wrong with a session, and how to mend it. Exit code 1 when there is a problem."""
    from multi_agent_mcp.notify.tmux import probe  # libtmux takes 70 ms to import

    with desk(root, session, as_json=as_json) as opened:
        services = opened.services
        findings = services.doctor(probe).examine()
        rows = [(item.level, item.check, item.subject, item.finding, item.repair) for item in findings]
        clean = [services.texts("doctor.clean")]
        lines = table(("level", "check", "subject", "finding", "repair"), rows) if rows else clean
        problems = sum(item.level == "problem" for item in findings)
        opened.show({"findings": [item.as_answer() for item in findings], "problems": problems}, lines)
        if problems:
            raise typer.Exit(1)


def prune(
    older_than: Annotated[float, typer.Option(metavar="DAYS", min=0, help="Only what is older than this.")] = 30.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    root: Root = None,
    session: Session = None,
    as_json: Json = False,
) -> None:
    """Delete archived mail, ended agent sessions and other finished things. Unread mail and tasks always stay."""
    with desk(root, session, as_json=as_json) as opened:
        pruning = Pruning(opened.services.workspace)
        items = pruning.prunable(opened.services.clock(), timedelta(days=older_than))
        if not dry_run:
            pruning.delete(items)
        base = opened.services.workspace.path
        answer = {
            "deleted": not dry_run,
            "files": [str(item.path.relative_to(base)) for item in items],
            "bytes": sum(item.size for item in items),
        }
        verb = "would be deleted" if dry_run else "deleted"
        opened.show(answer, [*answer["files"], f"{len(items)} files, {answer['bytes']} bytes {verb}"])  # type: ignore[misc]
