"""Ways in which an agent's "done" is not true, and a place to try them: a git repository, a session beside it, and a
task whose check is the repository's `check.sh`."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import NotProven
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.wiring import Services
from tests.programs import ran

CHECKS = """\
checks:
  tests: {run: "sh check.sh", minutes: 0.02}
"""
HONEST = "test -f tests.txt && grep -q good code.txt && ! grep -q bad code.txt\n"


@dataclass(frozen=True)
class Place:
    """A session, the working directory of worker-a, and a task that worker-a works on."""

    services: Services
    directory: Path
    task: Task

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)

    def says_done(self) -> Task:
        """The assignee says that it is done; its server examines that."""
        services, worker = self.services, self.services.agents.get("worker-a")
        services.deliveries.deliver(worker, self.task.id, "All tests pass.")
        services.deliveries.examine(self.task.id, self.directory, lambda: False)
        return services.task_changes.get(self.task.id)

    def superior_says_done(self) -> None:
        try:
            self.services.deliveries.set_status(self.services.agents.get("admin"), self.task.id, "done")
        except NotProven:
            return

    def after_start(self, act: Callable[[], None]) -> None:
        """Does something as soon as the check runs."""
        started = self.directory / ".git" / "started"
        waiting = f"while ! test -e {started}.done; do sleep 0.01; done"
        self.write("check.sh", f"touch {started}; {HONEST.strip()} || exit 1; {waiting}\n")

        def wait() -> None:
            while not started.exists():
                threading.Event().wait(0.005)
            act()
            Path(f"{started}.done").touch()

        threading.Thread(target=wait, daemon=True).start()


def failing_tests(at: Place) -> None:
    at.write("code.txt", "bad\n")


def deleted_tests(at: Place) -> None:
    (at.directory / "tests.txt").unlink()


def deleted_check(at: Place) -> None:
    (at.directory / "check.sh").unlink()


def hanging(at: Place) -> None:
    at.write("check.sh", "trap '' TERM INT HUP; sleep 300; exit 0\n")


def printing(at: Place) -> None:
    at.write("check.sh", "yes 'everything passed' | head -c 1000000000; exit 1\n")


def killing(at: Place) -> None:
    at.write("check.sh", "kill -9 $PPID; exit 0\n")


def forking_away(at: Place) -> None:
    at.write("check.sh", "setsid sh -c 'sleep 300; echo bad > code.txt' & exit 0\n")


def changing(at: Place) -> None:
    at.write("check.sh", "date +%N >> log.txt; exit 0\n")


def edited_meanwhile(at: Place) -> None:
    at.after_start(lambda: at.write("code.txt", "good\nbad\n"))


KINDS = (
    failing_tests,
    deleted_tests,
    deleted_check,
    hanging,
    printing,
    killing,
    forking_away,
    changing,
    edited_meanwhile,
)


@contextmanager
def place(services: Services, directory: Path, conditions: tuple[str, ...] = ("tests",)) -> Iterator[Place]:
    """The place, in this directory, which does not exist yet and is removed."""
    directory.mkdir()
    worker, admin = services.agents.get("worker-a"), services.agents.get("admin")
    settings = services.workspace.settings_path
    if "checks:" not in settings.read_text():
        settings.write_text(settings.read_text() + CHECKS)
        services.approvals.approve()
    (made,) = services.task_creation.create(
        admin, [NewTask(title="Build", assignee_id=worker.id, done_when=conditions)]
    )
    at = Place(services, directory, services.task_changes.start(worker, made.id)[0])
    for name, text in (("check.sh", HONEST), ("tests.txt", "tests\n"), ("code.txt", "good\n")):
        at.write(name, text)
    git(directory, "init", "-q")
    git(directory, "add", "-A")
    git(directory, "-c", "user.name=x", "-c", "user.email=x@example", "commit", "-qm", "one")
    try:
        yield at
    finally:
        shutil.rmtree(directory)


def git(directory: Path, *arguments: str) -> str:
    """The output of git, without the blanks around it."""
    done = ran("git", "-C", str(directory), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def forged(place: Path, name: str, text: str) -> None:
    """Writes a file, and an index that says that it is as it was committed."""
    old = git(place, "rev-parse", f"HEAD:{name}")
    (place / name).write_text(text)
    git(place, "add", name)
    new, index = git(place, "rev-parse", f":{name}"), Path(git(place, "rev-parse", "--absolute-git-dir"), "index")
    entries = index.read_bytes()[:-20].replace(bytes.fromhex(new), bytes.fromhex(old))
    index.write_bytes(entries + hashlib.sha1(entries, usedforsecurity=False).digest())
    make_later(index)


def make_later(index: Path) -> None:
    """As if the index was written some time after the files, so that git looks at none of them again."""
    os.utime(index, (later := time.time() + 9, later))


def processes_in(directory: Path) -> list[str]:
    """The commands that still run in the directory."""
    found = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout.splitlines()
    pids = [line.split(maxsplit=1) for line in found]
    return [args for pid, args in pids if _works_in(pid, directory)]


def _works_in(pid: str, directory: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == directory
    except OSError:
        return False
