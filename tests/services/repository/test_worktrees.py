"""Worktrees over a real git: made, delivered from, merged, and never removed with work in them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.patterns import matcher
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import InvalidArguments, StorageError
from multi_agent_mcp.hooks.first_look import ToolCall, relative_paths
from multi_agent_mcp.repository.merging import MoveBranch
from multi_agent_mcp.repository.worktree import Worktree
from multi_agent_mcp.repository.worktrees import PORT_BASE, SETUP_BYTES, AddWorktree, RemoveWorktree
from multi_agent_mcp.services.operations import Run
from multi_agent_mcp.services.team.setup import add_missing, create_session
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.system.git import GitFailed, git
from multi_agent_mcp.wiring import Services
from tests.conftest import TEAM, Clock
from tests.server.seat import Seat
from tests.services.repository.conftest import NAMED
from tests.services.support import read
from tests.services.tasks_support import again, moved, new, running


def made(services: Services, agent_id: str = "worker-a") -> Worktree:
    found: Worktree = services.worktrees.ensure(services.agents.get(agent_id))
    return found


def commit(worktree: Worktree, name: str, content: str) -> str:
    Path(worktree.path, name).write_text(content)
    git(worktree.path, "add", "-A")
    git(worktree.path, "commit", "-q", "-m", f"change {name}")
    return git(worktree.path, "rev-parse", "HEAD")


def done(services: Services, agent_id: str = "worker-a") -> Task:
    return moved(services, running(services, assignee_id=agent_id), "done")


def is_clean(project: Path) -> bool:
    return git(project, "status", "--porcelain") == ""


def test_it_is_made_beside_the_project_with_what_it_needs(
    services: Services, project: Path, reopened: Callable[..., Services]
) -> None:
    services = reopened(workspace="worktree", workspace_setup='echo "$MULTI_AGENT_MCP_PORT_BASE" >> .env')
    (project / ".env").write_text("KEY=1\n")
    (project / ".worktreeinclude").write_text(".env\n")
    agent = services.agents.get("worker-a")
    assert services.worktrees.wants(agent)
    worktree = made(services)
    assert Path(worktree.path) == project.parent / f"{project.name}-worktrees" / "demo-worker-a"
    assert git(worktree.path, "symbolic-ref", "--short", "HEAD") == worktree.branch == "mam/demo/worker-a"
    made(services)  # the setup runs once
    assert Path(worktree.path, ".env").read_text() == f"KEY=1\n{worktree.port_base}\n"
    assert services.worktrees.environment("worker-a") == {PORT_BASE: str(worktree.port_base)}
    assert made(services, "worker-b").port_base != worktree.port_base
    assert git(project, "status", "--porcelain") == "?? .worktreeinclude"


def test_a_team_in_a_subdirectory_works_in_that_of_the_worktree(project: Path, services: Services) -> None:
    app = project / "packages" / "app"
    app.mkdir(parents=True)
    (app / "package.json").write_text("{}\n")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "app")
    create_session(app / ".multi-agent-mcp", "inner", TEAM, "en")
    inner = open_session(app / ".multi-agent-mcp", "inner", clock=services.clock, notifier=services.notifier)
    add_missing(inner.agents, TEAM)
    agent = inner.agents.get("worker-a")
    worktree = inner.worktrees.set_up(inner.worktrees.add(agent))
    assert (worktree.place, worktree.directory) == ("packages/app", f"{worktree.path}/packages/app")
    assert inner.workplaces.directory("worker-a") == Path(worktree.path, "packages", "app")
    assert inner.checks.directory_of("worker-a") == Path(worktree.path, "packages", "app")
    shutil.rmtree(Path(worktree.path, "packages"))
    assert worktree.directory == worktree.path


def test_an_agent_in_a_subdirectory_reserves_and_checks_what_is_there(
    project: Path, services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = project / "packages" / "app"
    (app / "src").mkdir(parents=True)
    (app / "src" / "a.py").write_text("good\n")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "app")
    create_session(app / ".multi-agent-mcp", "inner", TEAM, "en")
    place = app / ".multi-agent-mcp" / "inner" / "session.yaml"
    place.write_text("reservations: enforce\nchecks: {tests: {run: grep good a.py, directory: src}}\n")
    inner = open_session(app / ".multi-agent-mcp", "inner", clock=services.clock, notifier=services.notifier)
    add_missing(inner.agents, TEAM)
    worktree = inner.worktrees.set_up(inner.worktrees.add(inner.agents.get("worker-a")))
    monkeypatch.chdir(worktree.directory)
    inner.reservations.reserve(inner.agents.get("worker-a"), ["src/**"], minutes=5)
    (held,) = inner.reservations.open()
    edited = ToolCall(paths=[f"{app}/src/a.py"], cwd=str(app))
    assert relative_paths(edited) == ["packages/app/src/a.py"]
    assert matcher(held.patterns)("packages/app/src/a.py")
    outcomes = []
    for goes_on in (False, True):
        task = moved(inner, new(inner, done_when=["tests", "review"]), "in_progress")
        inner.deliveries.deliver(inner.agents.get("worker-a"), task.id, "done")
        if goes_on:
            Path(worktree.directory, "src", "a.py").write_text("half way\n")
        inner.deliveries.examine(task.id, tmp_path, lambda: False)
        outcomes.append(again(inner, task).status)
    assert outcomes == ["review", "review"]


@pytest.mark.parametrize("other", ["mam", "mam/demo", "mam/demo/worker-a/more"])
def test_a_branch_in_the_way_of_ours_is_named_and_renaming_it_helps(
    services: Services, project: Path, other: str
) -> None:
    git(project, "branch", other)
    with pytest.raises(InvalidArguments) as refusal:
        made(services)
    said = services.texts.sentence(refusal.value)
    subprocess.run(["/bin/sh", "-c", said.partition("that: ")[2]], check=True, capture_output=True)
    assert made(services).branch == "mam/demo/worker-a"


def test_a_worktree_counts_that_git_has_made_whatever_a_hook_says_of_it(services: Services, project: Path) -> None:
    hook = project / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    assert is_clean(Path(made(services).path))


def test_the_repository_s_hooks_run_at_what_is_a_person_s_and_not_as_our_branch_goes(
    services: Services, project: Path
) -> None:
    hooks, log = project / ".git" / "hooks", project.parent / "hooks.log"
    for name in ("post-checkout", "reference-transaction"):
        (hooks / name).write_text(f'#!/bin/sh\necho {name} "$1" >>{log}\n[ "$1" != prepared ] || ! [ -e {log}.no ]\n')
        (hooks / name).chmod(0o755)
    worktree = made(services)
    assert {line.split()[0] for line in log.read_text().splitlines()} == {"post-checkout", "reference-transaction"}
    commit(worktree, "b.txt", "theirs\n")
    owner, task = services.agents.get("owner"), done(services)
    Path(f"{log}.no").touch()
    before = git(project, "rev-parse", "HEAD")
    with pytest.raises(GitFailed):
        services.merging.merge(owner, task)
    assert git(project, "rev-parse", "HEAD") == before, "the hook forbids it"
    Path(f"{log}.no").unlink()
    assert services.merging.merge(owner, task).commit is not None
    log.unlink()
    Path(f"{log}.no").touch()
    assert services.worktrees.remove("worker-a").keeps is None
    assert git(project, "branch", "--list", "mam/*") == ""
    assert not log.exists()


def test_a_worktree_that_git_cannot_fill_leaves_nothing_behind(services: Services, project: Path) -> None:
    (project / ".gitattributes").write_text("a.txt filter=missing\n")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "filtered")
    git(project, "config", "filter.missing.smudge", "no-such-program")
    git(project, "config", "filter.missing.required", "true")
    with pytest.raises(GitFailed):
        made(services)
    assert services.worktrees.all() == []
    assert git(project, "branch", "--list", "mam/*") == ""
    git(project, "config", "--unset", "filter.missing.required")
    assert Path(made(services).path, "a.txt").exists()


def test_a_repository_with_a_sparse_checkout_of_its_own_is_merged_into_and_worked_in(
    services: Services, project: Path
) -> None:
    for name in ("in", "out"):
        (project / name).mkdir()
        (project / name / "x.txt").write_text("x\n")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "two parts")
    git(project, "sparse-checkout", "set", "--cone", "in")
    worktree = made(services)
    assert services.worktrees.holdings(worktree).keeps is None
    git(worktree.path, "sparse-checkout", "disable")
    Path(worktree.path, "out", "x.txt").write_text("y\n")
    commit(worktree, "in/x.txt", "y\n")
    merged = services.merging.merge(services.agents.get("owner"), done(services))
    assert merged.commit is not None
    assert ((project / "in" / "x.txt").read_text(), (project / "out").exists()) == ("y\n", False)
    assert git(project, "show", "HEAD:out/x.txt") == "y"
    assert is_clean(project)


def test_a_setup_that_fails_is_said_and_tried_again(
    services: Services, project: Path, reopened: Callable[..., Services]
) -> None:
    services = reopened(workspace_setup=["sh", "-c", "echo oops; test -e go"])
    with pytest.raises(InvalidArguments) as refusal:
        made(services)
    assert "oops" in services.texts.sentence(refusal.value)
    worktree = services.worktrees.of("worker-a")
    assert worktree is not None
    assert worktree.setup == "failed"
    Path(worktree.path, "go").touch()
    assert made(services).setup == "done"


def test_ignored_files_are_copied_as_gitignore_would_name_them_and_no_others(services: Services, project: Path) -> None:
    for name in ("keys/a.pem", "keys/b.txt", "deep/keys/c.pem", "out/d.env", "#e", "f "):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
    deep = "a/" * 30
    (project / deep).mkdir(parents=True)
    (project / deep / "z").touch()
    (project / ".git" / "info" / "exclude").write_text("*\n!/plain.pem\n")
    (project / "plain.pem").write_text("work that is not committed, here or there")
    patterns = ["# keys", "keys/*.pem  ", "plain.pem", "out/", "!*.txt", "\\#e", "f\\ ", "", "**/a/" * 50 + "b", "[a-"]
    (project / ".worktreeinclude").write_text("\r\n".join(patterns))
    worktree = made(services)
    copied = git(worktree.path, "ls-files", "--others", "-z").split("\0")
    assert is_clean(Path(worktree.path))
    assert sorted(filter(None, copied)) == ["#e", "f ", "keys/a.pem", "out/d.env"]


def test_of_what_a_setup_prints_the_end_is_kept(
    services: Services, project: Path, reopened: Callable[..., Services]
) -> None:
    loud = shlex.join([sys.executable, "-c", "for _ in range(40): print('y' * 999_999)"])
    services = reopened(workspace_setup=f"{loud}; echo the end; exit 3")
    tracemalloc.start()
    with pytest.raises(InvalidArguments) as refusal:
        made(services)
    assert "the end" in services.texts.sentence(refusal.value)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    log = services.workspace.path / ".workspaces" / "worker-a.log"
    assert log.stat().st_size == SETUP_BYTES
    assert log.read_bytes().endswith(b"the end\n")


def test_what_a_setup_leaves_running_is_not_waited_for(
    services: Services, project: Path, reopened: Callable[..., Services]
) -> None:
    services = reopened(workspace_setup="sleep 1000 & echo $! > pid; echo begun")
    worktree = made(services)
    os.kill(int(Path(worktree.path, "pid").read_text()), signal.SIGKILL)
    assert (services.workspace.path / ".workspaces" / "worker-a.log").read_bytes() == b"begun\n"


def test_what_a_task_delivered_is_merged_and_the_clean_checkout_follows(services: Services, project: Path) -> None:
    worktree = made(services)
    task = running(services)
    delivered = commit(worktree, "b.txt", "two\n")
    task = moved(services, task, "done")
    commit(worktree, "c.txt", "of the next task\n")
    merged = services.merging.merge(services.agents.get("owner"), task)
    assert merged.delivery.commit == delivered
    assert git(project, "for-each-ref", "refs/multi-agent-mcp/") == ""
    assert git(project, "rev-parse", "HEAD") == merged.commit
    assert git(project, "rev-list", "--parents", "-1", "HEAD").split()[2] == delivered
    assert (project / "b.txt").read_text() == "two\n"
    assert not (project / "c.txt").exists()
    assert is_clean(project)
    assert services.merging.merge(services.agents.get("owner"), task).was_there
    (row,) = services.worktrees.rows()
    assert (row["ahead"], row["delivered"]) == (1, [{"task_id": task.id, "commit": delivered, "merged": True}])


def test_a_dirty_checkout_refuses_the_merge_and_nothing_moves(services: Services, project: Path) -> None:
    worktree = made(services)
    commit(worktree, "a.txt", "theirs\n")
    task = done(services)
    (project / "a.txt").write_text("mine\n")
    before = git(project, "rev-parse", "HEAD")
    with pytest.raises(InvalidArguments) as refusal:
        services.merging.merge(services.agents.get("owner"), task)
    assert "a.txt" in services.texts.sentence(refusal.value)
    assert (git(project, "rev-parse", "HEAD"), (project / "a.txt").read_text()) == (before, "mine\n")


def test_an_unknown_file_that_would_be_overwritten_refuses_it_too(services: Services, project: Path) -> None:
    worktree = made(services)
    commit(worktree, "b.txt", "theirs\n")
    task = done(services)
    (project / "b.txt").write_text("mine\n")
    with pytest.raises(Exception, match=r"b\.txt"):
        services.merging.merge(services.agents.get("owner"), task)
    assert (project / "b.txt").read_text() == "mine\n"
    assert services.workspace.intents.left_behind() == []


def test_an_ignored_file_that_would_be_overwritten_refuses_it_too(services: Services, project: Path) -> None:
    worktree = made(services)
    Path(worktree.path, "ign").mkdir()
    commit(worktree, "ign/secret", "theirs\n")
    task = done(services)
    (project / ".git" / "info" / "exclude").write_text("ign\n")
    for precious in (project / "ign" / "secret", project / "ign"):
        precious.parent.mkdir(exist_ok=True)
        precious.write_text("precious\n")
        with pytest.raises(InvalidArguments) as refusal:
            services.merging.merge(services.agents.get("owner"), task)
        assert str(precious.relative_to(project)) in services.texts.sentence(refusal.value)
        assert precious.read_text() == "precious\n"
        precious.unlink()
        if precious.parent != project:
            precious.parent.rmdir()
    assert services.merging.merge(services.agents.get("owner"), task).commit is not None


def wrapped(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Puts a program before git in the path that may do something else; `$GIT` is the real one."""
    real = shutil.which("git")
    (directory / "git").write_text(f'#!/bin/sh\nGIT={real}\n{script}\nexec "$GIT" "$@"\n')
    (directory / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def test_a_lock_of_git_right_after_the_branch_has_moved_takes_it_back(
    services: Services, project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    worktree = made(services)
    commit(worktree, "b.txt", "theirs\n")
    task = done(services)
    before, lock = git(project, "rev-parse", "HEAD"), project / ".git" / "index.lock"
    script = f'case "$*" in *update-ref*{before}) "$GIT" "$@"; test -e {lock} || >{lock}; exit;; esac'
    wrapped(tmp_path_factory.mktemp("bin"), monkeypatch, script)
    with pytest.raises(GitFailed):
        services.merging.merge(services.agents.get("owner"), task)
    assert lock.exists()
    assert (git(project, "rev-parse", "HEAD"), is_clean(project)) == (before, True)
    assert services.workspace.intents.left_behind() == []
    lock.unlink()
    monkeypatch.undo()
    assert services.merging.merge(services.agents.get("owner"), task).commit is not None
    assert is_clean(project)


def test_a_checkout_that_was_cut_off_in_the_middle_is_finished_by_the_next_command(
    services: Services, project: Path
) -> None:
    worktree = made(services)
    Path(worktree.path, "b.txt").write_text("theirs\n" * 9)
    Path(worktree.path, "a.txt").unlink()
    delivered = commit(worktree, "c.txt", "whole\n")
    old, tree = git(project, "rev-parse", "HEAD"), str(project)
    operation = MoveBranch(tree=tree, ref="refs/heads/main", old=old, new=delivered)
    git(project, "update-ref", "refs/heads/main", delivered)
    (project / "a.txt").unlink()  # as far as git had come
    (project / "c.txt").write_text("whole\n")
    (project / "b.txt").write_text("theirs\nthe")
    (project / ".git" / "index.lock").touch()
    services.workspace.intents.rest(services.workspace.intents.write(operation.KIND, operation.facts()))
    assert services.operations.finish() == 0
    findings = [one.finding for one in services.doctor(lambda _: None).examine() if one.level == "problem"]
    assert any("move_branch" in one for one in findings)
    assert any("index.lock" in one for one in findings)
    (project / ".git" / "index.lock").unlink()
    assert services.operations.finish() == 1
    assert is_clean(project)
    assert (project / "b.txt").read_text() == "theirs\n" * 9


def test_what_contains_work_of_a_task_that_is_not_done_is_not_merged(services: Services, project: Path) -> None:
    worktree = made(services)
    admin = services.agents.get("admin")
    first = running(services)
    commit(worktree, "rejected.txt", "x\n")
    report(services, first)
    services.task_changes.set_status(admin, first.id, "todo")
    second = running(services, title="second")
    commit(worktree, "good.txt", "x\n")
    second = moved(services, second, "done")
    with pytest.raises(InvalidArguments) as refusal:
        services.merging.merge(services.agents.get("owner"), second)
    assert first.id in services.texts.sentence(refusal.value)
    assert not (project / "rejected.txt").exists()
    services.delivery_records.report(again(services, first))
    moved(services, moved(services, again(services, first), "in_progress"), "done")
    assert services.merging.merge(services.agents.get("owner"), second).commit is not None


@pytest.mark.parametrize("end", ["blocked", "todo", "cancelled", "in_progress", "reassigned"])
def test_commits_of_a_task_that_never_reported_keep_what_is_above_from_being_merged(
    services: Services, clock: Clock, project: Path, end: str
) -> None:
    worktree, admin = made(services), services.agents.get("admin")
    first = running(services)
    commit(worktree, "half.txt", "x\n")
    clock.advance(1)
    if end == "reassigned":
        services.task_changes.assign(admin, first.id, "worker-b")
    elif end != "in_progress":
        services.task_changes.set_status(admin, first.id, end)
    second = running(services, title="second")
    clock.advance(1)
    commit(worktree, "good.txt", "x\n")
    second = moved(services, second, "done")
    assert second.base == git(worktree.path, "rev-parse", "HEAD~1")
    with pytest.raises(InvalidArguments) as refusal:
        services.merging.merge(services.agents.get("owner"), second)
    said = services.texts.sentence(refusal.value)
    assert f"{first.id} ({again(services, first).status})" in said
    assert not (project / "half.txt").exists()
    if end == "cancelled":
        assert "Finish" not in said
        assert "`git -C" not in said
        assert "`git rebase`" in said
        return
    subprocess.run(["/bin/sh", "-c", said.split("`")[-2]], check=True, capture_output=True)
    assert services.merging.merge(services.agents.get("owner"), second).was_there
    assert (project / "half.txt").exists()


def test_commits_of_an_unfinished_task_are_taken_out_as_the_refusal_says(services: Services, project: Path) -> None:
    worktree, owner = made(services), services.agents.get("owner")
    first = running(services)
    commit(worktree, "half.txt", "x\n")
    services.task_changes.set_status(services.agents.get("admin"), first.id, "cancelled")
    second = running(services, title="second")
    commit(worktree, "good.txt", "x\n")
    second = moved(services, second, "done")
    with pytest.raises(InvalidArguments, match="contains_cancelled"):
        services.merging.merge(owner, second)
    git(worktree.path, "rebase", "-q", "--onto", "HEAD~2", "HEAD~1")
    services.deliveries.set_status(services.agents.get("worker-a"), second.id, "done")
    assert services.merging.merge(owner, again(services, second)).commit is not None
    assert (project / "good.txt").exists()
    assert not (project / "half.txt").exists()


def test_what_was_committed_for_a_blocked_task_after_leaving_for_the_project_s_branch_is_not_merged(
    services: Services, clock: Clock, project: Path
) -> None:
    worktree, owner = made(services), services.agents.get("owner")
    delivered = running(services)
    commit(worktree, "delivered.txt", "x\n")
    moved(services, delivered, "done")
    clock.advance(1)
    blocked = running(services, title="blocked")
    git(worktree.path, "checkout", "-q", "--detach", "main")
    commit(worktree, "half.txt", "x\n")
    clock.advance(1)
    moved(services, blocked, "blocked")
    next_one = moved(services, running(services, title="next"), "done")
    with pytest.raises(InvalidArguments, match="contains_unfinished") as refusal:
        services.merging.merge(owner, next_one)
    assert blocked.id in services.texts.sentence(refusal.value)
    assert not (project / "half.txt").exists()
    assert services.merging.merge(owner, again(services, delivered)).commit is not None


def test_a_blocked_task_s_commits_are_not_those_of_a_later_one_that_began_on_another_line(
    services: Services, clock: Clock, project: Path
) -> None:
    worktree, owner = made(services), services.agents.get("owner")
    blocked = running(services)
    commit(worktree, "half.txt", "x\n")
    clock.advance(1)
    moved(services, blocked, "blocked")
    above = running(services, title="above")
    commit(worktree, "above.txt", "x\n")
    clock.advance(1)
    above = moved(services, above, "done")
    git(worktree.path, "checkout", "-q", "--detach", "main")
    other = running(services, title="other")
    commit(worktree, "other.txt", "x\n")
    clock.advance(1)
    other = moved(services, other, "done")
    last = running(services, title="last")
    clock.advance(1)
    moved(services, last, "done")
    assert services.merging.merge(owner, other).commit is not None
    git(worktree.path, "checkout", "-q", worktree.branch)
    with pytest.raises(InvalidArguments, match="contains_unfinished") as refusal:
        services.merging.merge(owner, above)
    assert blocked.id in services.texts.sentence(refusal.value)
    assert not (project / "half.txt").exists()


def test_a_commit_made_during_two_tasks_is_held_against_neither(
    services: Services, clock: Clock, project: Path
) -> None:
    worktree = made(services)
    first, second = running(services), running(services, title="second")
    commit(worktree, "good.txt", "x\n")
    clock.advance(1)
    first = moved(services, first, "done")
    assert services.merging.merge(services.agents.get("owner"), first).commit is not None
    assert again(services, second).status == "in_progress"


def test_commits_of_another_agent_s_unfinished_task_are_seen_and_those_of_done_ones_are_welcome(
    services: Services, project: Path
) -> None:
    mine, theirs, owner = made(services), made(services, "worker-b"), services.agents.get("owner")
    other = running(services, assignee_id="worker-b")
    commit(theirs, "theirs.txt", "x\n")
    task = running(services)
    git(mine.path, "merge", "-q", theirs.branch)
    commit(mine, "mine.txt", "x\n")
    task = moved(services, task, "done")
    with pytest.raises(InvalidArguments, match=other.id):
        services.merging.merge(owner, task)
    moved(services, other, "done")
    assert services.merging.merge(owner, task).commit is not None


def test_a_task_for_which_nothing_was_committed_is_never_called_merged(services: Services, project: Path) -> None:
    worktree = made(services)
    Path(worktree.path, "b.txt").write_text("not committed\n")
    task = done(services)
    with pytest.raises(InvalidArguments, match="nothing_committed"):
        services.merging.merge(services.agents.get("owner"), task)
    delivered = services.worktrees.delivered(task.id)
    assert delivered is not None
    assert (delivered["merged"], delivered["uncommitted"]) == (False, 1)


def test_a_merge_is_signed_and_its_message_checked_where_the_person_says_so(services: Services, project: Path) -> None:
    worktree = made(services)
    commit(worktree, "b.txt", "theirs\n")
    task = done(services)
    owner, hooks, before = services.agents.get("owner"), project / ".git" / "hooks", git(project, "rev-parse", "HEAD")
    for name, script in (("commit-msg", 'echo "no" >&2; exit 1'), ("pre-merge-commit", "exit 1")):
        (hooks / name).write_text(f"#!/bin/sh\n{script}\n")
        (hooks / name).chmod(0o755)
    with pytest.raises(InvalidArguments, match="hook_refused"):
        services.merging.merge(owner, task)
    (hooks / "commit-msg").write_text('#!/bin/sh\necho "Change-Id: I1" >>"$1"\n')
    git(project, "config", "commit.gpgsign", "true")
    git(project, "config", "gpg.format", "ssh")
    git(project, "config", "user.signingkey", str(project / "no-key"))
    with pytest.raises(InvalidArguments, match="not_signed"):
        services.merging.merge(owner, task)
    assert git(project, "rev-parse", "HEAD") == before
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", project / ".git" / "key"], check=True)
    git(project, "config", "user.signingkey", str(project / ".git" / "key.pub"))
    merged = services.merging.merge(owner, task)
    written = git(project, "cat-file", "commit", str(merged.commit))
    assert "BEGIN SSH SIGNATURE" in written
    assert written.endswith("Change-Id: I1")
    assert merged.hooks == ("pre-merge-commit",)


def test_where_only_fast_forwards_are_wanted_the_branch_is_moved_to_the_delivery(
    services: Services, project: Path
) -> None:
    worktree = made(services)
    delivered = commit(worktree, "b.txt", "theirs\n")
    task = done(services)
    git(project, "config", "merge.ff", "only")
    git(project, "commit", "-q", "--allow-empty", "-m", "mine")
    with pytest.raises(InvalidArguments, match="no_fast_forward"):
        services.merging.merge(services.agents.get("owner"), task)
    git(project, "reset", "-q", "--hard", "HEAD~1")
    assert services.merging.merge(services.agents.get("owner"), task).commit == delivered
    assert is_clean(project)


def test_a_conflict_goes_to_its_author_and_its_resolution_is_merged(services: Services, project: Path) -> None:
    worktree = made(services)
    commit(worktree, "a.txt", "theirs\n")
    task = done(services)
    (project / "a.txt").write_text("mine\n")
    git(project, "commit", "-qam", "mine")
    merged = services.merging.merge(services.agents.get("owner"), task)
    assert (merged.commit, merged.conflicts) == (None, ("a.txt",))
    (message,) = [one for one in read(services, "worker-a")["messages"] if "Conflict" in one["subject"]]
    assert (message["id"], message["sender_id"]) == (merged.message_id, "owner")
    assert "- a.txt" in message["content"]
    assert is_clean(project)
    named = re.search(r"`(git [^`]+)`", message["content"])
    assert named is not None
    subprocess.run(shlex.split(named[1]), cwd=worktree.path, check=False, capture_output=True)
    resolved = commit(worktree, "a.txt", "both\n")
    commit(worktree, "later.txt", "not yet\n")
    assert services.merging.merge(services.agents.get("owner"), task).delivery.commit == resolved
    assert (project / "a.txt").read_text() == "both\n"
    assert not (project / "later.txt").exists()


def test_nothing_with_changes_or_commits_is_removed(services: Services, project: Path) -> None:
    worktree = made(services)
    Path(worktree.path, "new.txt").write_text("x")
    assert services.worktrees.remove("worker-a").keeps == "dirty"
    assert [state.worktree.agent_id for state in services.worktrees.kept()] == ["worker-a"]
    commit(worktree, "new.txt", "x")
    assert services.worktrees.remove("worker-a").keeps == "unmerged"
    task = done(services)
    services.merging.merge(services.agents.get("owner"), task)
    assert services.worktrees.remove("worker-a").keeps is None
    assert not Path(worktree.path).exists()
    assert git(project, "branch", "--list", "mam/*") == ""
    assert list(services.worktrees.kept()) == []
    assert services.worktrees.all() == []


def _detached(at: Path) -> None:
    git(at, "checkout", "-q", "--detach")
    git(at, "commit", "-q", "--allow-empty", "-m", "of a day")


def _detached_and_left(at: Path) -> None:
    _detached(at)
    git(at, "switch", "-q", "mam/demo/worker-a")


def _on_a_second_branch(at: Path) -> None:
    git(at, "switch", "-q", "-c", "side")
    git(at, "commit", "-q", "--allow-empty", "-m", "of a day")


def _on_a_second_branch_and_left(at: Path) -> None:
    _on_a_second_branch(at)
    git(at, "switch", "-q", "mam/demo/worker-a")


def _on_a_renamed_branch(at: Path) -> None:
    git(at, "branch", "-m", "renamed")
    git(at, "commit", "-q", "--allow-empty", "-m", "of a day")


def _ignored(at: Path) -> None:
    Path(at, "ign").mkdir()
    Path(at, "ign", "results.csv").write_text("1\n")


def _assumed_unchanged(at: Path) -> None:
    git(at, "update-index", "--assume-unchanged", "a.txt")
    Path(at, "a.txt").write_text("mine\n")


def _skipped(at: Path) -> None:
    git(at, "update-index", "--skip-worktree", "a.txt")
    Path(at, "a.txt").write_text("mine\n")


def _rebasing(at: Path) -> None:
    git(at, "rebase", "-q", "-x", "false", "--root", ok=(1,))


def _bisecting(at: Path) -> None:
    git(at, "bisect", "start")


def _locked(at: Path) -> None:
    git(at, "worktree", "lock", ".")


@pytest.mark.parametrize(
    ("change", "reason", "named"),
    [
        (_detached, "unmerged", "1 commits"),
        (_detached_and_left, "unmerged", "1 commits"),
        (_on_a_second_branch, "unmerged", "side"),
        (_on_a_second_branch_and_left, "unmerged", "side"),
        (_on_a_renamed_branch, "unmerged", "renamed"),
        (_ignored, "ignored", "ign/"),
        (_assumed_unchanged, "dirty", "a.txt"),
        (_skipped, "dirty", "a.txt"),
        (_rebasing, "in_progress", "rebase --abort"),
        (_bisecting, "in_progress", "bisect reset"),
        (_locked, "locked", "worktree unlock"),
    ],
)
def test_what_is_only_in_a_worktree_keeps_it_and_is_named_until_it_is_given_up(
    services: Services, project: Path, change: Callable[[Path], None], reason: str, named: str
) -> None:
    worktree = made(services)
    (project / ".git" / "info" / "exclude").write_text("ign/\n")
    change(Path(worktree.path))
    holdings = services.worktrees.remove("worker-a", discards=reason != "ignored")
    first, *_, last = services.worktrees.why_kept(holdings)
    assert (holdings.keeps, Path(worktree.path).is_dir()) == (reason, True)
    assert named in first
    helps = (first if reason in ("in_progress", "locked") else last).split("`")[-2]
    subprocess.run(["/bin/sh", "-c", helps], check=True, capture_output=True)
    assert services.worktrees.remove("worker-a").keeps is None
    assert services.worktrees.all() == []


def test_ignored_files_are_discarded_on_demand_and_copies_of_the_projects_are_none(
    services: Services, project: Path, reopened: Callable[..., Services]
) -> None:
    (project / ".env").write_text("KEY=1\n")
    (project / ".worktreeinclude").write_text(".env\n")
    worktree = made(services)
    assert services.worktrees.holdings(worktree).keeps is None
    Path(worktree.path, ".env").write_text("KEY=2\n")
    assert services.worktrees.remove("worker-a").ignored == (".env",)
    assert services.worktrees.remove("worker-a", discards=True).reasons(discards=True) == ()
    assert not Path(worktree.path).exists()


def test_a_removal_that_was_cut_off_is_finished_though_files_are_gone_already(
    services: Services, project: Path
) -> None:
    worktree = made(services)
    head = git(worktree.path, "rev-parse", "HEAD")
    operation = RemoveWorktree(
        agent_id="worker-a", tree=str(project), path=worktree.path, branch=worktree.branch, head=head
    )
    services.workspace.intents.rest(services.workspace.intents.write(operation.KIND, operation.facts()))
    Path(worktree.path).rename(f"{worktree.path}.removed")
    Path(f"{worktree.path}.removed", "a.txt").unlink()
    assert services.operations.finish() == 1
    assert services.worktrees.all() == []
    assert not Path(f"{worktree.path}.removed").exists()
    assert git(project, "branch", "--list", "mam/*") == ""
    assert len(git(project, "worktree", "list").splitlines()) == 1


def test_a_lock_of_git_in_the_middle_of_a_removal_leaves_it_to_the_next_command(
    services: Services, project: Path
) -> None:
    worktree = made(services)
    lock = project / ".git" / "refs" / "heads" / f"{worktree.branch}.lock"
    lock.touch()
    with pytest.raises(StorageError):
        services.worktrees.remove("worker-a")
    (finding,) = (one for one in services.doctor(lambda _: None).examine() if one.check == "operations")
    assert "remove_worktree" in finding.finding
    lock.unlink()
    assert services.operations.finish() == 1
    assert services.worktrees.all() == []


@pytest.fixture
def with_submodule(services: Services, project: Path, tmp_path: Path) -> Worktree:
    library = tmp_path / "library"
    git(tmp_path, "init", "-q", "-b", "main", str(library))
    git(library, *NAMED, "commit", "-q", "--allow-empty", "-m", "first")
    allowed = ("-c", "protocol.file.allow=always")
    git(project, *allowed, "submodule", "--quiet", "add", str(library), "lib")
    git(project, "commit", "-qm", "with a submodule")
    worktree = made(services)
    git(worktree.path, *allowed, "submodule", "--quiet", "update", "--init")
    return worktree


def test_a_submodule_s_worktrees_are_beside_what_contains_it(services: Services, project: Path, tmp_path: Path) -> None:
    around = tmp_path / "around"
    around.mkdir()
    git(around, "init", "-q")
    git(around, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(project), "lib")
    root = around / "lib" / ".multi-agent-mcp"
    create_session(root, "inner", TEAM, None)
    inner = open_session(root, "inner")
    add_missing(inner.agents, TEAM)
    assert Path(made(inner).path) == tmp_path / "around-lib-worktrees" / "inner-worker-a"
    assert "worktrees" not in git(around, "status", "--porcelain")


def test_a_worktree_with_a_submodule_is_removed(services: Services, with_submodule: Worktree) -> None:
    assert services.worktrees.remove("worker-a").keeps is None
    assert not Path(with_submodule.path).exists()
    assert services.worktrees.all() == []


def test_what_only_the_submodule_of_a_worktree_has_keeps_it(
    services: Services, project: Path, with_submodule: Worktree
) -> None:
    inner = Path(with_submodule.path, "lib")
    git(inner, "switch", "-q", "-c", "mine")
    git(inner, *NAMED, "commit", "-q", "--allow-empty", "-m", "mine")
    git(inner, "switch", "-q", "--detach", "origin/main")
    holdings = services.worktrees.remove("worker-a")
    assert (holdings.reasons(), holdings.submodules) == (("submodules",), ("lib",))
    git(project / "lib", "-c", "protocol.file.allow=always", "fetch", "-q", str(inner), "mine:mine")
    assert services.worktrees.remove("worker-a").keeps is None


def test_an_agent_that_runs_keeps_its_worktree(services: Services, project: Path) -> None:
    made(services)
    seat = Seat(services, "worker-a")
    with pytest.raises(InvalidArguments):
        services.worktrees.remove("worker-a")
    seat.binding.close()
    assert services.worktrees.remove("worker-a").keeps is None


def test_a_worktree_that_was_begun_by_a_killed_process_is_finished(services: Services, project: Path) -> None:
    operation = services.worktrees._addition(services.agents.get("worker-a"), None)
    Path(operation.path).mkdir(parents=True)  # as far as git had come
    made_again = services.worktrees.apply_addition(operation, Run("int_000000000000", again=True))
    assert services.worktrees.apply_addition(operation, Run("int_000000000000", again=True)) == made_again
    assert git(made_again.path, "status", "--porcelain") == ""
    assert len(git(project, "worktree", "list").splitlines()) == 2


def test_a_worktree_whose_directory_is_gone_is_made_again_with_its_commits(services: Services, project: Path) -> None:
    worktree = made(services)
    head = commit(worktree, "b.txt", "two\n")
    git(project, "worktree", "remove", "--force", worktree.path)
    assert services.worktrees.state(worktree).is_there is False
    assert replace(made(services), setup=None) == replace(worktree, setup=None)
    assert git(worktree.path, "rev-parse", "HEAD") == head


def test_a_report_says_what_was_not_committed(services: Services, project: Path) -> None:
    worktree = made(services)
    running(services)
    seat = Seat(services, "worker-a")
    Path(worktree.path, "b.txt").write_text("x")
    assert "1 file " in seat.call("report_completed", result="success")["uncommitted"]
    (mail,) = read(services, "admin")["messages"]
    assert mail["metadata"]["uncommitted"] == ["b.txt"]


def test_a_session_outside_of_every_repository_takes_none_from_where_it_is_called(
    services: Services, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path_factory.mktemp("elsewhere") / "checkout"
    for call in (["init", "-q", str(checkout)], ["-C", str(checkout), "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *NAMED, *call], check=True)
    for place in (services.root.parent, checkout):
        monkeypatch.chdir(place)
        with pytest.raises(InvalidArguments, match="no_repository"):
            made(services)
    assert services.worktrees.all() == []
    assert [path.name for path in checkout.parent.iterdir()] == ["checkout"]


@pytest.mark.parametrize(
    ("command", "is_refused"),
    [
        ("git stash", True),
        ("cd src && git -C . stash pop", True),
        ("git stash list", False),
        ("git switch main", True),
        ("git checkout main", True),
        ("git checkout main --", True),
        ("git checkout @{-1}", True),
        (f"cat <<E >f\n{'git is fine, no stash' * 20_000}\nE\ngit switch main", True),
        ("git checkout -b mine", False),
        ("git switch -c mine main", False),
        ("git checkout main -- a.txt", False),
        ("git checkout a.txt", False),
        ("git commit -m 'git stash is bad'", False),
        ("echo git; ls", False),
        ("echo git stash", False),
        ("echo `git stash`", True),
        ('echo "now $(git stash)"', True),
        ("echo '$(git stash)'", False),
        ('bash -lc "cd . && git stash"', True),
        ("eval 'git stash'", True),
        ("git \\\nstash", True),
        ("git st\\ash", True),
        ("'gi't sta''sh", True),
        ("LC_ALL=C sudo -u me git stash", True),
        ("if true; then git stash; fi", True),
        ("cat >notes.md <<'E'\ngit stash\nE", False),
        ("bash <<E\ngit stash\nE", True),
        ("git commit -m 'it is\n git stash'", False),
        ("cd /; git stash", False),
        ("git log --grep 'unfinished", False),
    ],
)
def test_the_guard_refuses_what_takes_work_from_others(
    services: Services, project: Path, command: str, is_refused: bool
) -> None:
    agent = services.agents.get("worker-a")
    assert services.guard.why_not(agent, command, str(project)) is None
    worktree = made(services)
    assert (services.guard.why_not(agent, command, worktree.path) is not None) == is_refused
    assert services.guard.why_not(services.agents.get("worker-b"), command, str(project)) is None


def test_the_guard_of_a_team_protects_its_repository_only(
    services: Services, project: Path, tmp_path: Path, reopened: Callable[..., Services]
) -> None:
    services = reopened(guard=True)
    elsewhere = tmp_path / "elsewhere"
    subprocess.run(["git", "init", "-q", str(elsewhere)], check=True)
    agent = services.agents.get("worker-b")
    assert "git commit" in str(services.guard.why_not(agent, "git stash", str(project)))
    assert services.guard.why_not(agent, "git stash", str(elsewhere)) is None
    off = reopened(guard=False)
    made(off)
    assert off.guard.why_not(off.agents.get("worker-a"), "git stash", str(project)) is None


@pytest.mark.parametrize(
    ("command", "is_refused"),
    [
        ("git clean -fdx", True),
        ("git clean -xdf .", True),
        ("git clean -ffdX", True),
        ("git clean -d -f -x -q", True),
        ("git clean -fdxqi", True),
        ("cd src && git clean -fdx .. && ls", True),
        ("bash -c 'git -C .. clean -fdx'", False),
        ("git clean -fd", False),
        ("git clean -fdx src", False),
        ("git clean -fdx -e .multi-agent-mcp", False),
        ("echo git clean -fdx", False),
    ],
)
def test_cleaning_is_refused_to_everybody_where_it_would_take_the_session(
    services: Services, project: Path, reopened: Callable[..., Services], command: str, is_refused: bool
) -> None:
    (project / "src").mkdir()
    (project / "src" / "old.o").touch()
    agent = services.agents.get("worker-b")
    why_not = services.guard.why_not(agent, command, str(project))
    assert (why_not is not None) == is_refused
    assert why_not is None or str(services.root) in why_not
    assert reopened(guard=False).guard.why_not(agent, command, str(project)) is None


def test_cleaning_is_refused_where_it_would_take_a_worktree_and_allowed_in_ones_own(
    services: Services, project: Path
) -> None:
    worktree = made(services)
    agent = services.agents.get("worker-a")
    assert services.guard.why_not(agent, "git clean -fdx", worktree.path) is None
    moved_to = project / "trees"
    git(project, "worktree", "move", worktree.path, str(moved_to))
    services.worktrees._note(replace(worktree, path=str(moved_to)))
    why_not = services.guard.why_not(agent, f"git -C {project} clean -ffd", worktree.path)
    assert why_not is not None
    assert str(moved_to) in why_not


def test_an_operation_survives_its_file(services: Services) -> None:
    operation = AddWorktree(agent_id="a", tree="/t", path="/p", branch="b", base="c", port_base=1)
    assert AddWorktree.of(operation.facts()) == operation


def test_what_is_delivered_is_the_commit_of_the_last_report_whoever_made_the_first(
    services: Services, project: Path
) -> None:
    first, second = made(services), made(services, "worker-b")
    task = running(services)
    commit(first, "half.txt", "x\n")
    report(services, task)
    task, _ = services.task_changes.assign(services.agents.get("admin"), task.id, "worker-b")
    assert services.worktrees.delivery(task.id) is None
    good = commit(second, "good.txt", "x\n")
    report(services, moved(services, task, "in_progress"))
    better = commit(second, "good.txt", "y\n")
    report(services, task)
    commit(second, "later.txt", "of the next task\n")
    services.reading.read(services.agents.get("admin"), Query())
    assert again(services, task).status == "done"
    delivery = services.worktrees.delivery(task.id)
    assert delivery is not None
    assert (delivery.agent_id, delivery.commit) == ("worker-b", better)
    services.merging.merge(services.agents.get("owner"), again(services, task))
    assert (project / "good.txt").read_text() == "y\n"
    assert good != better
    assert not (project / "half.txt").exists()


@pytest.mark.parametrize("end", ["cancelled", "todo", "failed"])
def test_what_is_cancelled_given_back_or_failed_is_not_delivered(services: Services, project: Path, end: str) -> None:
    worktree = made(services)
    task = running(services)
    commit(worktree, "half.txt", "x\n")
    report(services, task)
    if end == "failed":
        services.task_reports.report_completion(services.agents.get("worker-a"), task.id, "failed", "it is not")
    else:
        services.task_changes.set_status(services.agents.get("admin"), task.id, end)
    assert services.worktrees.delivery(task.id) is None
    with pytest.raises(InvalidArguments):
        services.merging.merge(services.agents.get("owner"), again(services, task))


def test_what_only_waits_to_be_read_is_not_merged(services: Services, project: Path) -> None:
    worktree = made(services)
    task = running(services)
    commit(worktree, "a.txt", "x\n")
    report(services, task)
    with pytest.raises(InvalidArguments) as refusal:
        services.merging.merge(services.agents.get("owner"), again(services, task))
    said = services.texts.sentence(refusal.value)
    assert "was reported as done, but is not done yet (in_progress)" in said


def test_what_waits_for_its_review_is_not_merged_and_called_so(services: Services, project: Path) -> None:
    worktree = made(services)
    task = moved(services, new(services, done_when=("review",)), "in_progress")
    commit(worktree, "a.txt", "x\n")
    worker = services.agents.get("worker-a")
    task = services.deliveries.conclude(services.deliveries.deliver(worker, task.id, "x")).task
    with pytest.raises(InvalidArguments) as refusal:
        services.merging.merge(services.agents.get("owner"), task)
    assert "waits for its review (review)" in services.texts.sentence(refusal.value)


@pytest.mark.parametrize("call", [["switch", "-q", "-c", "side"], ["checkout", "-q", "--detach"]])
def test_work_on_another_branch_or_on_none_is_delivered_from_there(
    services: Services, project: Path, call: list[str]
) -> None:
    worktree = made(services)
    task = running(services)
    git(worktree.path, *call)
    there = commit(worktree, "b.txt", "two\n")
    task = moved(services, task, "done")
    merged = services.merging.merge(services.agents.get("owner"), task)
    assert (merged.delivery.commit, merged.was_there) == (there, False)
    assert (project / "b.txt").exists()


def test_a_report_that_is_over_or_another_s_changes_no_record(services: Services, project: Path) -> None:
    worktree = made(services)
    task = running(services)
    first = commit(worktree, "a.txt", "x\n")
    task = moved(services, task, "done")
    commit(worktree, "a.txt", "y\n")
    services.delivery_records.report(task)
    services.delivery_records.finish(task)
    found = services.worktrees.delivery(task.id)
    assert found is not None
    assert found.commit == first


def report(services: Services, task: Task) -> None:
    """The assignee's report by mail, which takes effect when it is read."""
    services.task_reports.report_completion(services.agents.get(str(task.assignee_id)), task.id, "completed", "done")


def test_work_in_review_keeps_its_worktree_and_is_not_advised_to_be_merged_by_git(
    services: Services, project: Path
) -> None:
    worktree, worker = made(services), services.agents.get("worker-a")
    git(worktree.path, "switch", "-q", "-c", "loose")
    commit(worktree, "loose.txt", "x\n")
    git(worktree.path, "switch", "-q", "mam/demo/worker-a")
    finished = running(services, title="finished")
    commit(worktree, "good.txt", "x\n")
    finished = moved(services, finished, "done")
    task = moved(services, new(services, done_when=("review",)), "in_progress")
    git(worktree.path, "switch", "-q", "-c", "side")
    commit(worktree, "unseen.txt", "x\n")
    task = services.deliveries.conclude(services.deliveries.deliver(worker, task.id, "x")).task
    holdings = services.worktrees.remove("worker-a")
    assert holdings.reasons() == ("unmerged", "tasks")
    said = "\n".join(services.worktrees.why_kept(holdings))
    assert f"multi-agent-mcp workspace merge {finished.id}" in said
    assert f"not done ({task.id})" in said
    assert said.partition("`git merge ")[2].partition("`")[0] == "loose"
    git(project, "merge", "-q", "loose")
    services.merging.merge(services.agents.get("owner"), finished)
    services.task_changes.set_status(services.agents.get("admin"), task.id, "cancelled")
    holdings = services.worktrees.remove("worker-a")
    assert holdings.reasons() == ("unmerged",)
    first, _ = services.worktrees.why_kept(holdings)
    assert "`git merge side`" in first


def test_a_task_in_progress_keeps_its_clean_worktree_until_it_is_over(services: Services, project: Path) -> None:
    made(services)
    task = running(services)
    holdings = services.worktrees.remove("worker-a")
    assert holdings.reasons() == ("tasks",)
    assert task.id in services.worktrees.why_kept(holdings)[0]
    services.task_changes.set_status(services.agents.get("admin"), task.id, "cancelled")
    assert services.worktrees.remove("worker-a").keeps is None


def test_how_far_its_rules_hold_is_said_of_the_files_where_it_works(services: Services, project: Path) -> None:
    worktree = made(services)
    services.agents.change("worker-a", command="codex {mcp_config}")
    services.agents.registry.update("worker-a", edits=["src/**", "!src/vendor"])
    held = services.agent_rules.held
    assert held(services.agents.get("worker-a")) == {"edits": "advised"}  # nobody knows what src/vendor will be
    Path(worktree.path, "src", "vendor").mkdir(parents=True)
    assert held(services.agents.get("worker-a")) == {"edits": "enforced"}
