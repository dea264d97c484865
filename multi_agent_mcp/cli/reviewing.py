"""The commands `task diff` and `task reject`: what a task changes, and what a reviewer says of its lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from multi_agent_mcp.cli.context import Id, SessionContext, print_error, session_command
from multi_agent_mcp.cli.rendering import column_table, is_terminal, print_diff, size_words, status_words
from multi_agent_mcp.domain.proof import reason_with
from multi_agent_mcp.system.git import PLAIN_FILE, REPOSITORY

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.tasks.diffs import Difference
    from multi_agent_mcp.system.diffs import ChangedFile
    from multi_agent_mcp.texts import Texts


@click.command()
@click.argument("task_id", type=Id("tsk"))
@click.option("--stat", is_flag=True, help="Only the files, with how many lines each gains and loses.")
@click.option("--file", "path", metavar="FILE", help="Only this file, or what is below this directory.")
@session_command(acting=True)
def diff(context: SessionContext, task_id: str, stat: bool, path: str | None) -> None:
    """Show what a task changes: unified text of its delivery, or with --stat its files, protected ones first.

    Example: `multi-agent-mcp task diff tsk_1a2b --stat`
    """
    texts = context.texts
    task = context.services.task_changes.get(task_id)
    found = context.services.diffs.of(task)
    context.services.shown_states.note(context.agent(None).id, [task])
    files = list(found.files) if path is None else found.of(path)
    if context.as_json or stat:
        answer = {**found.as_answer(), "files": [one for one in found.as_answer()["files"] if _is_of(one, files)]}
        if not stat:
            text, is_cut = found.text(None if path is None else files)
            answer |= {"diff": text.decode(errors="replace"), "cut": is_cut}
        context.answer(answer, _stat_lines(found, files, texts))
        return
    text, is_cut = found.text(None if path is None else files)
    context.has_answered = True
    if is_terminal():
        if not print_diff(text.decode(errors="replace") or texts("task.diff_nothing")):
            print_error(texts("task.diff_plain", size=size_words(len(text))))
    else:
        sys.stdout.buffer.write(text)
        if not found.files:
            print_error(texts("task.diff_nothing"))
    for line in _notes(found, is_cut, texts):
        print_error(line)


@click.command()
@click.argument("task_id", type=Id("tsk"))
@click.argument("remarks", metavar="[FILE:LINE: TEXT]...", nargs=-1)
@click.option("--reason", help="Why; the remarks follow it.")
@click.option(
    "--state", help="What was reviewed: the head that was shown, if the task may have been reported again since."
)
@session_command(acting=True)
def reject(
    context: SessionContext, task_id: str, remarks: Sequence[str], reason: str | None, state: str | None
) -> None:
    """Reject a task that an agent requested for itself, or the result of one in review, with remarks on lines of its
    files (`task diff`).

    Example: `multi-agent-mcp task reject tsk_1a2b "src/app.py:12: This leaks the handle."`
    """
    words = reason_with(remarks, reason)
    task = context.services.deliveries.decide(context.person, task_id, approve=False, reason=words, state=state)
    answer = {"task_id": task.id, "approval_status": "rejected", "status": task.status, "reason": words}
    became = status_words(task.status if task.assignee_id else "rejected", context.texts)
    context.answer(answer, [f"{task.id}: {became}"])


def gate_lines(task: Task, texts: Texts) -> Iterator[str]:
    """Why a delivery waits for a review whatever its conditions were: the protected files that it changes, and checks
    that nobody has approved."""
    said = task.delivery or {}
    if files := said.get("protected"):
        yield from ("", texts("task.changes_protected", files=", ".join(map(str, files))))
    if said.get("checks_changed"):
        yield from ("", texts("task.checks_changed"))


def _is_of(record: dict[str, object], files: Sequence[ChangedFile]) -> bool:
    from multi_agent_mcp.services.tasks.diffs import shown_path

    return record["path"] in {shown_path(file.path) for file in files}


def _stat_lines(found: Difference, files: Sequence[ChangedFile], texts: Texts) -> Iterator[str]:
    columns = {
        "added": lambda file: "-" if file.added is None else f"+{file.added}",
        "removed": lambda file: "-" if file.removed is None else f"−{file.removed}",
        "path": lambda file: _path_words(found, file, texts),
    }
    if files:
        yield from column_table(texts, files, columns)
    total = {key: sum(getattr(file, key) or 0 for file in files) for key in ("added", "removed")}
    yield texts("task.diff_total", files=len(files), **total)
    yield from _notes(found, bool(found.cut), texts)


def _path_words(found: Difference, file: ChangedFile, texts: Texts) -> str:
    from multi_agent_mcp.services.tasks.diffs import shown_path

    is_binary = file.added is None and not file.submodule
    marks = {"diff_protected": file.path in found.protected, "diff_submodule": file.submodule, "diff_binary": is_binary}
    marks["diff_file_cut"] = file.path in found.cut
    said = ", ".join([*_mode_words(file, texts), *(texts(f"task.{key}") for key, holds in marks.items() if holds)])
    path = " → ".join(map(shown_path, file.paths))
    return f"{path} ({said})" if said else path


def _mode_words(file: ChangedFile, texts: Texts) -> Iterator[str]:
    """What kind of file it was and is, if that has changed, or if a new one is no plain file."""
    was, now = (texts.word("task.mode", mode) if mode else None for mode in (file.old_mode, file.mode))
    if was and now and was != now:
        yield f"{was} → {now}"
    elif was is None and now and file.mode not in (PLAIN_FILE, REPOSITORY):
        yield now


def _notes(found: Difference, is_cut: bool, texts: Texts) -> Iterator[str]:
    """What a reader has to know beside the text."""
    if found.at is None:
        yield texts("task.diff_unreported", count=found.uncommitted)
    if found.earlier:
        yield texts("task.diff_earlier", count=found.earlier)
    if is_cut and found.parts is not None:
        yield texts("task.diff_cut", files=len(found.cut))
