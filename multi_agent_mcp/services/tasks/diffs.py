"""What a task changes (docs/protocol.md, The diff before the review): in a worktree from the commit at which its work
began to the commit that it delivers; elsewhere the files that its agent edited, as they were at its report, whose text
is kept in `receipts/{task_id}/reported.diff`."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.config import working_directory
from multi_agent_mcp.domain.patterns import can_be_below, matcher
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import InvalidArguments, Refusal
from multi_agent_mcp.session import Service
from multi_agent_mcp.settings import read_settings
from multi_agent_mcp.system.commits import shown_name
from multi_agent_mcp.system.diffs import SUBMODULE, ChangedFile, Comparison, commit_at, has_commit, sections, with_files
from multi_agent_mcp.system.file_status import tree_of
from multi_agent_mcp.system.git import git, head_of, is_ancestor, root_commit

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.tasks.delivered import DeliveredWork, DeliveryRecords

logger = logging.getLogger(__name__)

KEPT_BYTES = 1 << 20
"""So much text of a report from a shared directory is kept."""
KEPT_FILES = 2_000
KEPT = "reported.diff"


@dataclass(frozen=True)
class Difference:
    """What a task changes. `commit` is the delivered one, None in a shared directory; `at` when it was reported. Before
    that, `at` is None and it is what the worktree is at now, without what is `uncommitted`. `files` are in the order of
    a review: those in `protected` first. `earlier` counts the commits from before the task. `comparison` gives the
    files' text, or `parts` hold it, shortened for those in `cut`."""

    task_id: str
    base: str
    commit: str | None
    at: str | None
    files: tuple[ChangedFile, ...]
    protected: frozenset[str] = frozenset()
    branch: str | None = None
    uncommitted: int = 0
    earlier: int = 0
    comparison: Comparison | None = None
    parts: Mapping[str, bytes] | None = None
    cut: frozenset[str] = frozenset()

    def as_answer(self) -> dict[str, Any]:
        """Its facts as JSON values, without the text."""
        files = [
            {
                **asdict(file),
                "path": shown_path(file.path),
                "old_path": file.old_path and shown_path(file.old_path),
                "protected": file.path in self.protected,
                "cut": file.path in self.cut,
            }
            for file in self.files
        ]
        named = ("task_id", "base", "commit", "branch", "at", "uncommitted", "earlier")
        return {**{name: getattr(self, name) for name in named}, "files": files}

    def of(self, path: str) -> list[ChangedFile]:
        """The files with this path, before or after, or below it. Raises `InvalidArguments` if there are none."""
        wanted = path.removeprefix("./").rstrip("/")
        found = [
            file
            for file in self.files
            if any(one in (path, wanted) or one.startswith(f"{wanted}/") for one in file.paths)
            or path in map(shown_path, file.paths)
        ]
        if not found:
            raise InvalidArguments("not_in_diff", task_id=self.task_id, path=shown_name(path)[:200])
        return found

    def text(self, files: Sequence[ChangedFile] | None = None, most: int | None = None) -> tuple[bytes, bool]:
        """The unified text of these files, or all, in the order of `files`, and whether it was cut off after so many
        bytes. Raises `GitFailed`."""
        wanted = self.files if files is None else files
        if self.comparison is not None:
            paths = () if files is None else tuple(dict.fromkeys(path for file in files for path in file.paths))
            text, is_cut = self.comparison.text(paths, most)
            if is_cut or not self.protected:
                return text, is_cut
            ordered = self.comparison.files(paths)
            parts = dict(zip((file.path for file in ordered), sections(text, ordered), strict=True))
        else:
            parts = dict(self.parts or {})
        if files is not None and self.parts is not None and not any(parts.get(file.path) for file in files):
            raise InvalidArguments("diff_not_kept", task_id=self.task_id, path=shown_name(files[0].path)[:200])
        text = b"".join(parts.get(file.path, b"") for file in wanted)
        if most is not None and len(text) > most:
            return text[: text.rfind(b"\n", 0, most) + 1], True
        return text, any(file.path in self.cut for file in wanted)


def ordered(files: Iterable[ChangedFile], patterns: Sequence[str]) -> tuple[tuple[ChangedFile, ...], frozenset[str]]:
    """The files in the order of a review, those that match these patterns first, and the paths of those."""
    is_protected: Callable[[str], bool] = matcher(patterns) if patterns else lambda _: False
    found = list(files)
    protected = frozenset(
        file.path
        for file in found
        if any(is_protected(path) or reaches(patterns, path, file.leads_to) for path in file.paths)
    )
    return tuple(sorted(found, key=lambda file: file.path not in protected)), protected


def reaches(patterns: Sequence[str], path: str, kind: str | None) -> bool:
    """Whether these patterns can match a file below a path that git has as one entry: a `submodule`, or a symbolic
    `link`. Patterns for any depth (`*.py`) match what a link leads to as itself, so they do not count for links."""
    if kind is None:
        return False
    at_top = [one for one in patterns if "/" in one.rstrip("/") and not one.startswith("**")]
    return can_be_below(patterns if kind == SUBMODULE else at_top, path)


def shown_path(path: str) -> str:
    """A path of any bytes as text that JSON can represent."""
    return path.encode(errors="surrogateescape").decode(errors="replace")


@dataclass(eq=False)
class Diffs(Service):
    """What the tasks of one session change, on this machine."""

    records: DeliveryRecords

    def of(self, task: Task, work: DeliveredWork | None = None, *, now: bool = False) -> Difference:
        """What a task changes, or would with this `work`; `now`: in a shared directory as its files are, not as they
        were at the last report. Raises `InvalidArguments` if nobody knows, and `GitFailed`."""
        self._require_here(task)
        delivery = work or self.records.of(task)
        found = delivery if delivery is not None or task.final else self.records.look(task)
        if found is None:
            return self._kept(
                task, (self._edited(task) if now else None) or self.workspace.files.read(self._path(task.id))
            )
        if task.base is None and delivery is None:
            raise InvalidArguments("nothing_to_show", task_id=task.id, status=task.status)
        if task.base is None:
            raise InvalidArguments("no_base", task_id=task.id, commit=found.commit[:10])
        for commit in (task.base, found.commit):
            if not has_commit(self._project, commit):
                raise InvalidArguments("commit_gone", task_id=task.id, commit=commit[:10])
        base, earlier = self._beginning(task, found.commit)
        comparison = Comparison(self._project, base, found.commit)
        files, protected = ordered(comparison.files(), self._protected)
        return Difference(
            task_id=task.id,
            base=base,
            commit=found.commit,
            at=None if delivery is None else found.at,
            files=files,
            protected=protected,
            branch=found.branch,
            uncommitted=found.uncommitted,
            earlier=earlier,
            comparison=comparison,
        )

    def _beginning(self, task: Task, commit: str) -> tuple[str, int]:
        """The commit from which on the task's changes are judged, and how many commits there are from there to the
        task's beginning. Below it is only what the project has, or a done task has delivered: everything else comes
        into the project with this task."""
        project, base = self._project, str(task.base)
        if is_ancestor(project, base, "HEAD"):
            return base, 0
        tip = base if is_ancestor(project, base, commit) else commit
        known = list(self._accounted(task, tip))
        known += git(project, "merge-base", "HEAD", tip, ok=(0, 1)).split()
        counted = [(int(git(project, "rev-list", "--count", tip, f"^{one}")), one) for one in dict.fromkeys(known)]
        earlier, start = min(counted, default=(0, base))
        return start, earlier if tip == base else 0

    def _accounted(self, task: Task, tip: str) -> Iterator[str]:
        """The commits below this one that other tasks, which are done, have delivered, if that was reviewed or changes
        no protected file."""
        for one in self.records.all():
            other = self.workspace.tasks.find(one.task_id)
            if other is None or other.id == task.id or other.status != "done":
                continue
            if is_ancestor(self._project, one.commit, tip) and (other.was_reviewed or not self.brought(one.commit)):
                yield one.commit

    def brought(self, commit: str) -> frozenset[str]:
        """The protected files that a merge of this commit changes in the project. Raises `GitFailed`."""
        if not (patterns := self._protected):
            return frozenset()
        base = git(self._project, "merge-base", "HEAD", commit, ok=(0, 1))
        return ordered(Comparison(self._project, base, commit).files(), patterns)[1] if base else frozenset()

    def unseen(self, commit: str) -> list[str]:
        """The protected files that a merge of this commit changes, and that were changed so in no delivery that was
        reviewed. Raises `GitFailed`."""
        left = set(self.brought(commit))
        for one in self.records.all() if left else ():
            task = self.workspace.tasks.find(one.task_id)
            if task is None or not task.was_reviewed or not is_ancestor(self._project, one.commit, commit):
                continue
            with suppress(InvalidArguments):
                later = {path for file in Comparison(self._project, one.commit, commit).files() for path in file.paths}
                left -= self.of(task).protected - later
        return sorted(map(shown_path, left))

    def reported(self, task: Task, summary: str | None, failed: bool) -> None:
        """Records what a task delivers by its assignee's report, and what it changes where there is no worktree."""
        self.records.report(task, summary, failed=failed)
        if not task.final:
            self.keep(task)

    def keep(self, task: Task) -> None:
        """Keeps the text of what the task's agent has edited for it in a shared directory, as its files are now, in
        place of what was kept before; at most `KEPT_BYTES`. Never raises: a report must not fail for it."""
        if (text := self._edited(task)) is None:
            return
        try:
            self.workspace.files.replace(self._path(task.id), text)
        except Refusal as refusal:
            logger.warning("what %s changes is not kept: %s", task.id, refusal)

    def _edited(self, task: Task) -> bytes | None:
        """What `keep` would write; None if nothing is known to be edited, or git refuses."""
        try:
            edited: Mapping[str | None, Sequence[str]] = self.contributions.ask("edited_for", task) or {}
            if not edited or self.records.workplaces.directory(str(task.assignee_id)) is not None:
                return None
            for tree in dict.fromkeys(tree for tree in (tree_of(f"{working_directory()}/-"), self._tree) if tree):
                if paths := edited.get((root_commit(tree) or "")[:12]):
                    return self._text(task, Path(tree), paths[:KEPT_FILES])
        except (Refusal, OSError) as error:
            logger.warning("what %s changes is not known: %s", task.id, error)
        return None

    def _text(self, task: Task, tree: Path, paths: Sequence[str]) -> bytes:
        base = commit_at(tree, format_time(task.started_at or task.created_at)) or head_of(tree)
        with with_files(tree, base, paths) as comparison:
            files = comparison.files(paths)
            texts, sizes = comparison.shared_out(paths, KEPT_BYTES)
        facts: dict[str, Any] = {"at": format_time(self.clock()), "base": base}
        facts |= {"files": [asdict(file) for file in files]}
        facts |= {"kept": [len(text) for text in texts], "sizes": sizes}
        return json.dumps(facts).encode() + b"\n" + b"".join(texts)

    def _kept(self, task: Task, data: bytes | None) -> Difference:
        try:
            head, _, text = (data or b"").partition(b"\n")
            facts = json.loads(head)
            files = [ChangedFile(**file) for file in facts["files"]]
            base, at = str(facts["base"]), str(facts["at"])
            stops = list(accumulate(facts["kept"], initial=0))
            parts = {file.path: text[start:end] for file, (start, end) in zip(files, pairwise(stops), strict=True)}
            cut = frozenset(
                file.path for file, size in zip(files, facts["sizes"], strict=True) if size > len(parts[file.path])
            )
        except (ValueError, TypeError, LookupError):  # there is none, or it was written by a person
            raise InvalidArguments("nothing_to_show", task_id=task.id, status=task.status) from None
        in_order, protected = ordered(files, self._protected)
        return Difference(task.id, base, None, at, in_order, protected, parts=parts, cut=cut)

    def _require_here(self, task: Task) -> None:
        """Raises `InvalidArguments` if what the task changes is on another machine."""
        assignee = self.workspace.registry.all().get(str(task.assignee_id))
        machine = self.workspace.elsewhere(assignee)
        if machine is not None:
            raise InvalidArguments("diff_elsewhere", task_id=task.id, agent_id=task.assignee_id, machine=machine)

    def _path(self, task_id: str) -> Path:
        return self.workspace.path / "receipts" / task_id / KEPT

    @property
    def _tree(self) -> str | None:
        return tree_of(str(self.workspace.root))

    @property
    def _project(self) -> Path:
        """The working tree in which the session is. Its objects are those of all worktrees, and its attributes count,
        not what an agent has written into those of its own."""
        if (tree := self._tree) is None:
            raise InvalidArguments("no_git", path=self.workspace.root.parent)
        return Path(tree)

    @property
    def _protected(self) -> Sequence[str]:
        with suppress(Refusal):  # a session.yaml that cannot be read
            return read_settings(self.workspace.settings_path).protected
        return ()
