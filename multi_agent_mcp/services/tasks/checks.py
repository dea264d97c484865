"""The checks that prove tasks: run in their assignees' working directories, each run a receipt (docs/protocol.md,
Checks).

Nothing that an agent, a task, a message or another machine says becomes part of a check's command or of its
environment, except ids. What counts is judged by what is delivered: a receipt of anything else proves nothing."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from multi_agent_mcp.config import session_names, working_directory
from multi_agent_mcp.domain.entity import new_id
from multi_agent_mcp.domain.proof import Receipt, commit_in
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.session import Service
from multi_agent_mcp.settings import Check, Settings, read_settings
from multi_agent_mcp.store.locks import CHECKING as CHECKING_LOCK
from multi_agent_mcp.system.bounded_run import Ended, cleaned_environment, run_bounded
from multi_agent_mcp.system.file_status import Memory, signature_of, tree_of
from multi_agent_mcp.system.git import GitFailed
from multi_agent_mcp.system.temporary import absent, checked_out, copy_included, temporary_of
from multi_agent_mcp.system.work_state import WorkState, state_of
from multi_agent_mcp.trace import variables

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.tasks.delivered import DeliveryRecords
    from multi_agent_mcp.services.team.agents import Signatures

OUTPUT_BYTES = 16_000
UNKNOWN = "unknown"
STILL_WANTED_SECONDS = 1.0
"""The interval of checking whether the run is still wanted."""
ALIKE = 3
"""So many failures alike of one check and state are answered by the last of them."""


@dataclass(frozen=True)
class Verdict:
    """The result of examining a task: `receipts` by check if all of them have passed for the present state; else the
    check that `failed`, with the end of its output in `reason`. Neither: the examination was cancelled. `repeated`: the
    check has failed alike so often that it was not run, and this is its last receipt."""

    receipts: Mapping[str, str] | None = None
    failed: str | None = None
    reason: str = ""
    repeated: str | None = None


@dataclass(eq=False)
class Site:
    """Where the checks of one examination run: a directory as it is, or with `commit` the files of that commit: in the
    worktree as long as they are there and nothing else is, but for what earlier checks made, else in a temporary
    worktree."""

    directory: Path
    commit: str | None
    look: Callable[[Path], WorkState]
    own: ExitStack
    """Removes the temporary worktree."""
    agent_id: str
    root: Path
    """That of the session."""
    _left: WorkState | None = None
    _tree: Path | None = None
    """The working tree that a temporary one stands for."""

    def entered(self) -> WorkState:
        """The state in which the next check begins. Raises `GitFailed`, `StorageError`."""
        state = self.look(self.directory)
        if self.commit is None or state == self._left or state.is_clean_at(self.commit):
            return state
        self._move()
        return self.look(self.directory)

    def was_changed(self, before: WorkState) -> tuple[WorkState, bool]:
        """The state that a check has left, and whether it was another before: with a commit, of the files in it."""
        after = self.look(self.directory)
        changed = before != after
        if self.commit is not None:
            changed = (before.head, before.tracked) != (after.head, after.tracked)
        self._left = None if changed else after
        return after, changed

    def _move(self) -> None:
        here = self.directory.resolve()
        top = Path(tree_of(f"{here}/-") or here)
        within = here.relative_to(top)
        self._tree = self._tree or top
        path = temporary_of(self._tree, self.agent_id)
        self.own.close()
        project = tree_of(str(self.root))  # whose sparse checkout counts, not the agent's
        self.own.enter_context(checked_out(Path(project or self._tree), path, str(self.commit)))
        if project is not None:
            copy_included(Path(project), path, but=self.root)
        self.directory = path / within

    def lacks(self) -> str | None:
        """The files that are not where the checks run now, though they are in the working tree that it stands for; None
        if they run there."""
        if self._tree is None:
            return None
        with suppress(GitFailed):
            return absent(self._tree, temporary_of(self._tree, self.agent_id), but=self.root)
        return ""


@dataclass(eq=False)
class Checks(Service):
    """The checks of this machine, their receipts, and which of them count now."""

    signatures: Signatures
    records: DeliveryRecords
    _settings: Memory = field(default_factory=Memory, init=False)

    def known(self) -> Mapping[str, Check]:
        """The checks that session.yaml names now: a person may correct them while servers run."""
        return self.settings().checks

    def settings(self) -> Settings:
        """The settings as they are now, read again when the file has changed. Raises as `read_settings`."""
        return self._settings.get(signature_of(self.workspace.settings_path), self._read_settings)

    def _read_settings(self) -> Settings:
        """The settings, without checks and conditions in a session that does without them."""
        self.workspace.files.read(self.workspace.settings_path)  # a disk that fails is no fault in the file
        settings = read_settings(self.workspace.settings_path)
        return settings if "proof" in self.session.features else replace(settings, checks={}, done_when=())

    def is_found(self, check: Check) -> bool | None:
        """Whether the check's program is there; None if that cannot be told: it is relative to a directory in which no
        check has run yet, or the shell's own word."""
        program = check.program
        if program is None or "/" not in program:
            return None if program is None else shutil.which(program) is not None
        if program.startswith("/"):
            return shutil.which(program) is not None
        known = [
            self.directory_of(agent_id) / check.directory / program for agent_id in self.workspace.registry.active()
        ]
        return any(shutil.which(path) is not None for path in dict.fromkeys(known)) or None

    def directory_of(self, agent_id: str | None) -> Path:
        """The directory in which the agent's checks last ran, else its worktree, else that of this process."""
        known = self.workspace.working_directory(agent_id or "").read()
        if isinstance(known, str) and Path(known).is_dir():
            return Path(known)
        return self.records.workplaces.directory(agent_id or "") or working_directory()

    def receipts_of(self, task_id: str) -> list[Receipt]:
        """Every receipt of a task, oldest first."""
        return sorted(self.workspace.receipts.open(task_id), key=attrgetter("order"))

    def proof_of(self, task: Task) -> dict[str, str] | None:
        """The receipts, by check, that prove all of the task's checks for what it delivers: the commit, or without a
        worktree the state of its assignee's working directory now; None if there are not such. Only receipts of this
        machine count, signed by the assignee."""
        if not task.checks:
            return {}
        commit = self.commit_of(task)
        receipts = _passed(self._newest(task, commit, self.directory_of(task.assignee_id)))
        return receipts if receipts.keys() >= set(task.checks) else None

    def commit_of(self, task: Task) -> str | None:
        """The commit that a task delivers, or would deliver now; None without a worktree. Raises `GitFailed`."""
        if (head := (task.delivery or {}).get("head")) is not None:
            return commit_in(head)
        found = self.records.of(task) or self.records.look(task)
        return None if found is None else found.commit

    def holding(self, agent_id: str, cancelled: Callable[[], bool]) -> FileLock | None:
        """The lock under which one process at a time examines this agent's tasks; None if `cancelled` came first."""
        while not cancelled():
            lock = self.workspace.locks.lock(f"{CHECKING_LOCK}-{agent_id}")
            try:
                lock.acquire(timeout=STILL_WANTED_SECONDS)
            except Timeout:
                continue
            return lock
        return None

    def examine(self, task: Task, directory: Path, cancelled: Callable[[], bool], *, afresh: bool = False) -> Verdict:
        """Runs the task's checks until each has passed for what the task delivers: a commit, or one state of the
        directory; with `afresh` also those that have. One that changed something runs again, and has failed if it does
        so twice; one that failed alike three times for the same state is not run. The caller holds the lock. Raises
        `StorageError`, `GitFailed`, `NotCommitted` for a worktree whose `.git` was replaced, and as `read_settings`."""
        directory = self.records.place(str(task.assignee_id)) or directory
        self.workspace.working_directory(str(task.assignee_id)).write(str(directory))
        with ExitStack() as own:
            return self._examined(task, self._site(task, directory, own), cancelled, afresh)

    def _site(self, task: Task, directory: Path, own: ExitStack) -> Site:
        agent_id, root = str(task.assignee_id), self.workspace.root.resolve()

        def look(place: Path) -> WorkState:
            self.records.place(agent_id)  # what git says is of the project's repository
            return self._state(place)

        return Site(directory, self.commit_of(task), look, own, agent_id, root)

    def _examined(self, task: Task, site: Site, cancelled: Callable[[], bool], afresh: bool) -> Verdict:
        fresh, changed = set[str](), set[str]()
        for _ in range(len(task.checks) + 2):
            known = self._newest(task, site.commit, site.directory)
            found = _passed(known)
            due = [name for name in task.checks if name not in found or (afresh and found[name] not in fresh)]
            if not due:
                return Verdict(receipts=found)
            for name in due:
                if not afresh and (last := _repeated(known.get(name, ()))) is not None:
                    reason = f"{self.texts('check.repeats', check=name, count=ALIKE)}\n{self.reason_of(last)}"
                    return Verdict(failed=name, reason=reason, repeated=last.id)
                receipt = self._run(task, name, site, cancelled, twice=name in changed)
                if receipt is None:
                    return Verdict()
                if not receipt.passed:
                    return Verdict(failed=name, reason=self.reason_of(receipt))
                fresh.add(receipt.id)
                if receipt.changed_during:
                    changed.add(name)
                    break
        return Verdict(failed=task.checks[-1], reason=self.texts("check.unsettled"))

    def _newest(self, task: Task, commit: str | None, directory: Path) -> dict[str, list[Receipt]]:
        """The receipts of the commit, or without one of the directory's state, by check, the newest first: those of the
        commands that this machine runs now."""
        known, found = self.known(), dict[str, list[Receipt]]()
        state = self._state(directory) if commit is None else WorkState(commit, dirty=False, digest="")
        for receipt in reversed(self.receipts_of(task.id)):
            check = known.get(receipt.check)
            is_about = receipt.is_of_commit(commit) if commit else receipt.is_of_state(state.head, state.digest)
            if is_about and check is not None and check.shown == receipt.command and self._is_genuine(receipt, task):
                found.setdefault(receipt.check, []).append(receipt)
        return {name: found[name] for name in task.checks if name in found}

    def _is_genuine(self, receipt: Receipt, task: Task) -> bool:
        """Whether the assignee's own server wrote the receipt, here: anybody can write a file."""
        is_own = receipt.agent_id == task.assignee_id and receipt.machine == self._machine
        return is_own and self.signatures.is_of(receipt.agent_id, receipt.is_signed_by)

    @property
    def _machine(self) -> str:
        return self.workspace.authority.here or os.uname().nodename

    def _run(self, task: Task, name: str, site: Site, cancelled: Callable[[], bool], *, twice: bool) -> Receipt | None:
        """Runs one check and writes its receipt; None if it was cancelled. `twice`: it has changed something before."""
        check, started_at, before = self.known().get(name), self.clock(), site.entered()
        cause = (task.delivery or {}).get("traceparent") or task.traceparent
        environment = cleaned_environment(CHECK=name, TASK=task.id) | variables(cause)
        ended = self._ended(check, site.directory, environment, cancelled)
        if ended is None:
            return None
        after, changed = site.was_changed(before)
        receipt = Receipt(
            id=new_id("rcp"),
            task_id=task.id,
            agent_id=str(task.assignee_id),
            check=name,
            command="" if check is None else check.shown,
            exit_code=ended.exit_code,
            started_at=started_at,
            finished_at=self.clock(),
            head=site.commit or after.head,
            dirty=after.dirty and site.commit is None,
            diff_sha256=after.digest,
            changed_during=changed,
            machine=self._machine,
            failure=ended.failure or ("changed_twice" if changed and twice else None),
            elsewhere=None if ended.exit_code == 0 and ended.failure is None else site.lacks(),
            protected=", ".join(map(str, (task.delivery or {}).get("protected", ()))) or None,
            number=1 + max((one.number or 0 for one in self.workspace.receipts.open(task.id)), default=0),
            output=ended.output,
        )
        key = self.signatures.agents.known_key(receipt.agent_id)
        return self.workspace.receipts.add(receipt if key is None else receipt.signed(key))

    @staticmethod
    def _ended(
        check: Check | None, directory: Path, environment: Mapping[str, str], cancelled: Callable[[], bool]
    ) -> Ended | None:
        if check is None:
            return Ended(127, "", UNKNOWN)
        place = (directory / check.directory).resolve()
        if not place.is_relative_to(directory.resolve()) or not place.is_dir():
            return Ended(126, f"{check.directory}\n", "not_started")
        return run_bounded(
            check.command,
            place,
            environment,
            seconds=check.minutes * 60,
            output_bytes=OUTPUT_BYTES,
            cancelled=_seldom(cancelled),
        )

    def reason_of(self, receipt: Receipt) -> str:
        """Why the check failed, as its agent reads it."""
        key = f"check.{receipt.failure}" if receipt.failure else "check.failed"
        why = self.texts(key, check=receipt.check, exit_code=receipt.exit_code)
        if receipt.elsewhere is not None:
            why += "\n" + self.texts("check.elsewhere", head=receipt.head[:12], files=receipt.elsewhere or "-")
        return f"{why}\n{receipt.last_lines()}".rstrip()

    def _state(self, directory: Path) -> WorkState:
        """The state of the directory, without the sessions' own files, which change all the time."""
        try:
            return state_of(directory, self._own_files(directory))
        except OSError as error:
            raise StorageError("system", reason=error) from error

    def _own_files(self, directory: Path) -> Iterable[Path]:
        root = self.workspace.root.resolve()
        if directory.resolve().is_relative_to(root):
            return [root / name for name in session_names(root)]
        return [root]


def _passed(receipts: Mapping[str, Sequence[Receipt]]) -> dict[str, str]:
    """The ids of the newest receipts, by check, as far as they prove something."""
    newest = {name: found[0] for name, found in receipts.items()}
    return {name: one.id for name, one in newest.items() if one.passed and not one.changed_during}


def _repeated(receipts: Sequence[Receipt]) -> Receipt | None:
    """The last of these receipts of one state if the newest ones are failures of the same kind, so that a further run
    would tell nothing; else None."""
    last = receipts[:ALIKE]
    kinds = {(one.exit_code, one.failure, one.passed) for one in last}
    return last[0] if len(last) == ALIKE and len(kinds) == 1 and not last[0].passed else None


def _seldom(cancelled: Callable[[], bool]) -> Callable[[], bool]:
    """The same question, which may read a file, asked once a second."""
    looked_at = 0.0

    def ask() -> bool:
        nonlocal looked_at
        now = time.monotonic()
        if now - looked_at < STILL_WANTED_SECONDS:
            return False
        looked_at = now
        return cancelled()

    return ask
