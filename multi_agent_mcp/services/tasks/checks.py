"""Checks: runs the commands that session.yaml names, and keeps a receipt of each run (docs/protocol.md, Checks).

Nothing that an agent, a task, a message or another machine says becomes part of a command or of its environment, but
ids. What counts is judged by the state of the agent's working directory: a receipt of another state proves nothing.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import Timeout

from multi_agent_mcp.config import Settings, read_settings, session_names
from multi_agent_mcp.domain.entity import age
from multi_agent_mcp.domain.ids import new_id
from multi_agent_mcp.domain.proof import Receipt
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.locks import CHECKING
from multi_agent_mcp.system.bounded_run import Ended, cleaned_environment, run_bounded
from multi_agent_mcp.system.file_status import Signature, signature_of
from multi_agent_mcp.system.git import WorkState, state_of
from multi_agent_mcp.trace import variables

if TYPE_CHECKING:
    from filelock import FileLock

    from multi_agent_mcp.config import Check
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.team.agents import Signatures
    from multi_agent_mcp.store.workspace import Workspace
    from multi_agent_mcp.texts import Texts

OUTPUT_BYTES = 16_000
UNKNOWN = "unknown"
STILL_WANTED_SECONDS = 1.0
"""The interval of checking whether the run is still wanted."""


@dataclass(frozen=True)
class Verdict:
    """The result of examining a task: `receipts` by check if all of them have passed for the present state; else the
    check that `failed`, with the end of its output in `reason`. Neither: the examination was cancelled."""

    receipts: Mapping[str, str] | None = None
    failed: str | None = None
    reason: str = ""


@dataclass(eq=False)
class Checks:
    """The checks of this machine, their receipts, and which of them count now."""

    workspace: Workspace
    signatures: Signatures
    texts: Texts
    clock: Callable[[], datetime]
    worktree_of: Callable[[str], Path | None]
    """The directory of an agent's worktree."""
    _settings: Settings = field(default_factory=Settings, init=False)
    _read_at: Signature | None = field(default=None, init=False)

    def known(self) -> Mapping[str, Check]:
        """The checks that session.yaml names now: a person may correct them while servers run."""
        return self.settings().checks

    def settings(self) -> Settings:
        """The settings as they are now, read again when the file has changed. Raises as `read_settings`."""
        found = signature_of(self.workspace.settings_path)
        if found is None or found != self._read_at:
            self.workspace.files.read(self.workspace.settings_path)  # a disk that fails is no fault in the file
            self._settings, self._read_at = read_settings(self.workspace.settings_path), found
        return self._settings

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
        return self.worktree_of(agent_id or "") or Path.cwd()

    def receipts_of(self, task_id: str) -> list[Receipt]:
        """Every receipt of a task, oldest first."""
        return sorted(self.workspace.receipts.open(task_id), key=age)

    def proof_of(self, task: Task) -> dict[str, str] | None:
        """The receipts, by check, that prove all of the task's checks for the state of its assignee's working directory
        now; None if there are not such. Only receipts of this machine count, signed by the assignee."""
        if not task.checks:
            return {}
        receipts = self._current(task, self._state(self.directory_of(task.assignee_id)))
        return receipts if receipts.keys() >= set(task.checks) else None

    def holding(self, agent_id: str, cancelled: Callable[[], bool]) -> FileLock | None:
        """The lock under which one process at a time examines this agent's tasks; None if `cancelled` came first."""
        while not cancelled():
            lock = self.workspace.locks.lock(f"{CHECKING}-{agent_id}")
            try:
                lock.acquire(timeout=STILL_WANTED_SECONDS)
            except Timeout:
                continue
            return lock
        return None

    def examine(self, task: Task, directory: Path, cancelled: Callable[[], bool], *, afresh: bool = False) -> Verdict:
        """Runs the task's checks in the directory until each has passed for one state of it; with `afresh` also those
        that have. One that changed something runs again, and has failed if it does so twice. The caller holds the lock.
        Raises `StorageError`, and as `read_settings`."""
        self.workspace.working_directory(str(task.assignee_id)).write(str(directory))
        fresh, changed = set[str](), set[str]()
        for _ in range(len(task.checks) + 2):
            found = self._current(task, self._state(directory))
            due = [name for name in task.checks if name not in found or (afresh and found[name] not in fresh)]
            if not due:
                return Verdict(receipts=found)
            for name in due:
                receipt = self._run(task, name, directory, cancelled, twice=name in changed)
                if receipt is None:
                    return Verdict()
                if not receipt.passed:
                    return Verdict(failed=name, reason=self.reason_of(receipt))
                fresh.add(receipt.id)
                if receipt.changed_during:
                    changed.add(name)
                    break
        return Verdict(failed=task.checks[-1], reason=self.texts("check.unsettled"))

    def _current(self, task: Task, state: WorkState) -> dict[str, str]:
        return {
            receipt.check: receipt.id
            for receipt in self.receipts_of(task.id)
            if receipt.check in task.checks
            and receipt.proves(state.head, state.digest)
            and self._is_genuine(receipt, task)
        }

    def _is_genuine(self, receipt: Receipt, task: Task) -> bool:
        """Whether the assignee's own server wrote the receipt, here: anybody can write a file."""
        is_own = receipt.agent_id == task.assignee_id and receipt.machine == self._machine
        return is_own and self.signatures.is_of(receipt.agent_id, receipt.is_signed_by)

    @property
    def _machine(self) -> str:
        return self.workspace.authority.here or os.uname().nodename

    def _run(
        self, task: Task, name: str, directory: Path, cancelled: Callable[[], bool], *, twice: bool
    ) -> Receipt | None:
        """Runs one check and writes its receipt; None if it was cancelled. `twice`: it has changed something before."""
        check, started_at, before = self.known().get(name), self.clock(), self._state(directory)
        cause = (task.delivery or {}).get("traceparent") or task.traceparent
        environment = cleaned_environment(CHECK=name, TASK=task.id) | variables(cause)
        ended = self._ended(check, directory, environment, cancelled)
        if ended is None:
            return None
        after = self._state(directory)
        changed = before != after
        receipt = Receipt(
            id=new_id("rcp"),
            task_id=task.id,
            agent_id=str(task.assignee_id),
            check=name,
            command="" if check is None else check.shown,
            exit_code=ended.exit_code,
            started_at=started_at,
            finished_at=self.clock(),
            head=after.head,
            dirty=after.dirty,
            diff_sha256=after.digest,
            changed_during=changed,
            machine=self._machine,
            failure=ended.failure or ("changed_twice" if changed and twice else None),
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
