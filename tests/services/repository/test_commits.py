"""What our server commits for an agent whose sandbox cannot, over a real git."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from multi_agent_mcp.errors import InvalidArguments, NotCommitted
from multi_agent_mcp.repository.worktree import Worktree
from multi_agent_mcp.services.team.setup import read_team
from multi_agent_mcp.system.commits import CommitPlace, commit_all
from multi_agent_mcp.system.git import GitFailed, git
from multi_agent_mcp.wiring import Services
from tests.server.seat import Seat
from tests.services.repository.conftest import NAMED
from tests.services.repository.test_worktrees import commit, made
from tests.services.tasks_support import again, moved, new

ODD = ("with blank", "line\nbreak", os.fsdecode(b"latin-\xe9"), "-n", '"quoted"', "日本語")


@pytest.fixture
def asked(services: Services, project: Path, reopened: Callable[..., Services]) -> Services:
    """A session whose server commits; a hook of each kind that git would run on the way would fail."""
    services = reopened(commit="server")
    made(services)
    made(services, "worker-b")
    for name in ("pre-commit", "commit-msg", "post-commit", "post-index-change", "reference-transaction"):
        hook = project / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch '{project}/.git/ran'\nexit 1\n")
        hook.chmod(0o755)
    return services


@pytest.fixture
def tree(asked: Services) -> Path:
    return Path(place_of(asked).tree)


def place_of(services: Services) -> CommitPlace:
    place = services.workplaces.commit_place("worker-a")
    assert place is not None
    return place


def report(services: Services, tool: str = "report_completed", *conditions: str, **facts: str) -> dict[str, object]:
    """The assignee calls a task of its done."""
    task = moved(services, new(services, title="Mend it", done_when=conditions), "in_progress")
    named = {} if tool == "report_completed" else {"task_id": task.id}
    return {"task": task, **Seat(services, "worker-a").call(tool, None, **named, **facts)}


def refused(services: Services) -> str:
    """The key of the refusal; nothing was committed or staged."""
    place = place_of(services)
    before = git(place.tree, "rev-parse", "HEAD"), git(place.tree, "ls-files", "--stage")
    with pytest.raises(NotCommitted) as refusal:
        commit_all(place, "x")
    assert (git(place.tree, "rev-parse", "HEAD"), git(place.tree, "ls-files", "--stage")) == before
    return refusal.value.key


@pytest.mark.parametrize(
    ("tool", "facts"),
    [
        ("report_completed", {"result": "success", "summary": "By hand.\nTwice."}),
        ("report_task_completion", {"status": "completed", "message": "By hand.\nTwice."}),
    ],
)
@pytest.mark.parametrize("conditions", [(), ("review",)])
def test_what_is_left_is_committed_as_the_task_is_reported(
    asked: Services, project: Path, tree: Path, tool: str, facts: dict[str, str], conditions: tuple[str, ...]
) -> None:
    (tree / "a.txt").write_text("two\n")
    (tree / ".env").write_text("KEY=1\n")
    answer = report(asked, tool, *conditions, **facts)
    task = answer["task"]
    assert answer["committed"] == git(tree, "rev-parse", "HEAD")
    assert "uncommitted" not in answer
    assert git(tree, "log", "-1", "--format=%an <%ae>|%B") == (
        f"T <t@example.org>|Mend it\n\nBy hand.\nTwice.\n\nTask: {task.id}\nAgent: worker-a\n"  # type: ignore[attr-defined]
    )
    assert git(tree, "status", "--porcelain") == ""
    assert git(tree, "show", "--format=", "--name-only", "HEAD") == "a.txt"
    assert git(project, "status", "--porcelain") == ""
    held = ("for-each-ref", "--format=%(objectname)", "refs/multi-agent-mcp/")
    assert git(project, *held) == answer["committed"]
    git(project, "-c", "core.hooksPath=/dev/null", "merge", "-q", "--ff-only", str(answer["committed"]))
    asked.delivery_records.release_merged()
    assert git(project, *held) == ""
    assert not (project / ".git" / "ran").exists()


def test_nobody_commits_for_an_agent_that_does_not_ask_for_it(services: Services, project: Path) -> None:
    del project
    worktree = made(services)
    Path(worktree.path, "a.txt").write_text("two\n")
    answer = report(services, result="success")
    assert "committed" not in answer
    assert "1 file " in str(answer["uncommitted"])
    assert git(worktree.path, "status", "--porcelain") == " M a.txt"


def test_files_of_every_kind_are_committed_as_git_would(asked: Services, tree: Path) -> None:
    for name in ("gone", "empty", "moved", "file", "inside/one"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text(f"{name}\n" * 9)
    git(tree, "add", "-A")
    git(tree, "-c", "core.hooksPath=/dev/null", "commit", "-q", "-m", "before")
    (tree / "gone").unlink()
    (tree / "moved").rename(tree / "there")
    (tree / "empty").unlink()
    (tree / "empty").mkdir()
    (tree / "file").unlink()
    (tree / "file").mkdir()
    (tree / "file" / "deeper").write_text("1\n")
    shutil.move(tree / "inside", tree / "other")
    (tree / "inside").symlink_to("other")
    (tree / "link").symlink_to("nowhere")
    (tree / "run").write_text("#!/bin/sh\n")
    (tree / "run").chmod(0o755)
    for name in ODD:
        (tree / name).write_text("odd\n")
    made_by_us = commit_all(place_of(asked), "x")
    listed = git(tree, "ls-tree", "-r", "HEAD")
    git(tree, "-c", "core.hooksPath=/dev/null", "reset", "-q", "--soft", "HEAD~1")
    git(tree, "-c", "core.hooksPath=/dev/null", "add", "-A")
    assert git(tree, "write-tree") == git(tree, "rev-parse", f"{made_by_us}^{{tree}}")
    assert "100755 blob" in listed
    assert listed.count("120000 blob") == 2


def test_what_is_staged_or_on_no_branch_is_committed_too(asked: Services, tree: Path) -> None:
    git(tree, "-c", "core.hooksPath=/dev/null", "checkout", "-q", "--detach")
    (tree / "new").write_text("1\n")
    git(tree, "-c", "core.hooksPath=/dev/null", "add", "new")
    (tree / "new").unlink()
    assert commit_all(place_of(asked), "x") is None  # the file is as in the commit: gone
    assert git(tree, "status", "--porcelain") == ""
    (tree / "new").write_text("2\n")
    assert commit_all(place_of(asked), "x") == git(tree, "rev-parse", "HEAD")
    assert git(tree, "show", "HEAD:new") == "2"


def test_a_filter_is_named_and_not_run(asked: Services, project: Path, tree: Path) -> None:
    git(project, "config", "filter.lfs.clean", f"touch '{project}/.git/ran'; cat")
    (tree / ".gitattributes").write_text("*.bin filter=lfs\n*.txt text eol=crlf\n")
    (tree / "b.txt").write_bytes(b"one\r\ntwo\r\n")
    assert commit_all(place_of(asked), "x") is not None
    assert git(tree, "cat-file", "-s", "HEAD:b.txt") == "8"  # line ends are git's own work
    (tree / "a.bin").write_text("1\n")
    assert refused(asked) == "error.commit_filter"
    answer = report(asked, result="success")
    assert "filter=lfs" in str(answer["uncommitted"])
    assert "a.bin" in str(answer["uncommitted"])
    answer = report(asked, "report_completed", "review", result="success")
    assert answer["error"] == "not_committed"
    assert "filter=lfs" in str(answer["message"])
    assert not (project / ".git" / "ran").exists()


def test_repositories_inside_are_left_alone(asked: Services, project: Path, tree: Path) -> None:
    inner, quiet, ran = tree / "inner", ("-c", "core.hooksPath=/dev/null"), project / ".git" / "ran"

    def is_left_alone() -> bool:
        git(inner, "config", "core.fsmonitor", f"touch '{ran}'; false")
        key = refused(asked)
        git(inner, "config", "--unset", "core.fsmonitor")
        return key == "error.commit_repository" and not ran.exists()

    git(tree.parent, "init", "-q", str(inner))
    git(inner, *NAMED, "commit", "-q", "--allow-empty", "-m", "1")
    assert is_left_alone()
    git(tree, "-c", "advice.addEmbeddedRepo=false", *quiet, "add", "inner")
    assert is_left_alone()
    git(tree, *quiet, "commit", "-q", "-m", "a submodule")
    assert commit_all(place_of(asked), "x") is None
    git(inner, *NAMED, "commit", "-q", "--allow-empty", "-m", "2")
    assert is_left_alone()
    shutil.rmtree(inner)
    assert refused(asked) == "error.commit_repository"


def test_a_rebase_and_conflicts_are_left_to_who_began_them(asked: Services, tree: Path) -> None:
    quiet = ("-c", "core.hooksPath=/dev/null")
    base = git(tree, "rev-parse", "HEAD")
    git(tree, *quiet, "checkout", "-q", "-b", "other")
    for branch, content in (("other", "2\n"), ("mam/demo/worker-a", "3\n")):
        git(tree, *quiet, "checkout", "-q", branch)
        (tree / "a.txt").write_text(content)
        git(tree, *quiet, "commit", "-q", "-a", "-m", content)
    git(tree, *quiet, "rebase", "-q", "other", ok=(0, 1))
    assert refused(asked) == "error.commit_in_progress"
    git(tree, *quiet, "rebase", "--abort")
    (tree / "a.txt").write_text("4\n")
    git(tree, *quiet, "stash", "-q")
    git(tree, *quiet, "reset", "-q", "--hard", base)
    git(tree, *quiet, "stash", "apply", "-q", ok=(0, 1))
    assert refused(asked) == "error.commit_unmerged"


def test_only_the_worktree_that_the_repository_knows_is_committed_to(
    asked: Services, project: Path, tree: Path
) -> None:
    link = (tree / ".git").read_text()
    other = asked.worktrees.of("worker-b")
    assert other is not None
    forged = project.parent / "forged"
    git(project.parent, "clone", "-q", str(project), str(forged))
    for target in (f"{project}/.git", f"{forged}/.git", Path(other.path, ".git").read_text().split()[1]):
        (tree / ".git").write_text(f"gitdir: {target}\n")
        (tree / "a.txt").write_text("two\n")
        assert refused(asked) == "error.commit_elsewhere"
    (tree / ".git").write_text(link)
    assert commit_all(place_of(asked), "x") is not None
    with pytest.raises(NotCommitted):
        commit_all(CommitPlace(str(project), "worker-a", f"{project}/.git"), "x")


def test_a_lock_of_another_git_leaves_everything_as_it_was(asked: Services, tree: Path) -> None:
    (tree / "a.txt").write_text("two\n")
    lock = Path(git(tree, "rev-parse", "--absolute-git-dir"), "index.lock")
    lock.touch()
    with pytest.raises(GitFailed, match=r"index\.lock"):
        commit_all(place_of(asked), "x")
    answer = report(asked, result="success")
    assert "index.lock" in str(answer["uncommitted"])
    lock.unlink()
    assert git(tree, "status", "--porcelain") == " M a.txt"
    assert commit_all(place_of(asked), "x") is not None


@pytest.mark.parametrize("step", ["update-index --add", "write-tree", "commit-tree", "--index-info", "update-ref"])
def test_a_server_that_was_killed_after_any_step_leaves_it_to_the_next_report(
    asked: Services, tree: Path, step: str, tmp_path: Path
) -> None:
    (tree / "a.txt").unlink()
    (tree / "new").write_text("1\n")
    place, real = place_of(asked), shutil.which("git")
    killer = tmp_path / "bin" / "git"
    killer.parent.mkdir()
    killer.write_text(f'#!/bin/sh\n{real} "$@"\ncode=$?\ncase "$*" in *\'{step}\'*) kill -9 $PPID;; esac\nexit $code\n')
    killer.chmod(0o755)
    if (child := os.fork()) == 0:
        os.environ["PATH"] = f"{killer.parent}:{os.environ['PATH']}"
        commit_all(place, "x")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    answer = report(asked, result="success")
    assert "uncommitted" not in answer
    assert git(tree, "status", "--porcelain") == ""
    assert git(tree, "ls-tree", "--name-only", "HEAD").split() == [".gitignore", "new"]
    assert git(tree, "rev-list", "--count", "HEAD", "--not", "main") == "1"


def test_a_commit_without_a_name_of_the_user_has_the_agent_s(
    asked: Services, project: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("user.name", "user.email"):
        git(project, "config", "--unset", key)
    git(project, "config", "user.useConfigOnly", "true")
    monkeypatch.setenv("HOME", str(project.parent))
    (tree / "a.txt").write_text("two\n")
    assert commit_all(place_of(asked), "x") is not None
    assert git(tree, "log", "-1", "--format=%an <%ae>") == "worker-a <worker-a@localhost>"


def test_an_agent_s_own_setting_wins_and_others_are_refused(
    asked: Services, services: Services, tree: Path, tmp_path: Path
) -> None:
    del tree
    branch = asked.workplaces.of("worker-a").branch  # type: ignore[union-attr]
    assert asked.workplaces.prompt("worker-a") == asked.texts("prompt.worktree.committed", branch=branch)
    asked.workspace.registry.update("worker-a", commit="agent")
    assert asked.workplaces.commit_place("worker-a") is None
    asked.workspace.registry.update("worker-a", commit="server")
    assert services.workplaces.commit_place("worker-a") is not None
    assert services.workplaces.commit_place("admin") is None
    team = tmp_path / "team.yaml"
    team.write_text("commit: server\nagents: [{id: a, commit: agent}]\n")
    assert read_team(team).settings["commit"] == "server"
    for text in ("commit: yes\nagents: [{id: a}]\n", "agents: [{id: a, commit: me}]\n"):
        team.write_text(text)
        with pytest.raises(InvalidArguments, match="agent, server"):
            read_team(team)


def test_a_second_report_names_the_commit_again(asked: Services, tree: Path) -> None:
    worktree: Worktree | None = asked.worktrees.of("worker-a")
    assert worktree is not None
    (tree / "a.txt").write_text("two\n")
    answer = report(asked, "report_completed", "review", result="success")
    seat = Seat(asked, "worker-a")
    second = seat.call("report_completed", None, result="success", task_id=again(asked, answer["task"]).id)  # type: ignore[arg-type]
    assert second["committed"] == answer["committed"]
    git(tree, "config", "core.hooksPath", "/dev/null")
    assert "committed" not in report(asked, result="success") | {"head": commit(worktree, "b", "1")}
