"""The commands for several agents in one repository."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.services.tasks.board import NewTask
from tests.cli.conftest import Ask, Run


def test_files_are_reserved_listed_and_released(ask: Ask, run: Run) -> None:
    assert run("reservations").stdout == "No files are reserved.\n"
    made = ask("reserve", "src/", "*.md", "--reason", "release", "--minutes", "5")
    assert (made["agent_id"], made["patterns"], made["conflicts"]) == ("owner", ["src/", "*.md"], [])
    other = run("reserve", "README.md", "--as", "worker-a").stdout.splitlines()
    assert other[2] == "owner has reserved src/, *.md, too; both of you are notified."
    listed = ask("reservations")["reservations"]
    assert [one["reservation_id"] for one in listed] == [made["reservation_id"], other[0]]
    assert [one["agent_id"] for one in ask("reservations", "--agent", "worker-a")["reservations"]] == ["worker-a"]
    assert "src/, *.md" in run("reservations").stdout
    assert ask("release", made["reservation_id"])["released"] == [made["reservation_id"]]
    assert run("release", made["reservation_id"]).stdout == "It had ended already.\n"
    assert run("release", "rsv_000000000000").exit_code == 1
    assert run("reserve", "../x").exit_code == 1


def test_edits_are_listed(ask: Ask, run: Run, session: Path) -> None:
    assert run("edits").stdout.startswith("No edits are known")
    services = open_session(session.parent, session.name)
    services.edits.note("worker-a", ["/nowhere/src/app.py"], "/nowhere")
    (edit,) = ask("edits", "src")["edits"]
    assert (edit["path"], edit["agent_id"], edit["task_id"]) == ("src/app.py", "worker-a", None)
    assert ask("edits", "docs") == {"success": True, "edits": [], "overlaps": []}
    assert "src/app.py" in run("edits").stdout


Git = Callable[..., str]


@pytest.fixture
def git(session: Path) -> Git:
    """Runs git in the project, which has one commit."""
    project = session.parent.parent

    def git(*arguments: str, at: Path = project) -> str:
        named = ("-c", "user.name=T", "-c", "user.email=t@example.org")
        return subprocess.run(["git", *named, *arguments], cwd=at, check=True, capture_output=True, text=True).stdout

    git("init", "-q", "-b", "main")
    (project / "a.txt").write_text("one\n")
    git("add", "a.txt")
    git("commit", "-q", "-m", "first")
    return git


def test_a_diff_is_bytes_in_a_pipe_and_a_rejection_names_its_lines(ask: Ask, run: Run, session: Path, git: Git) -> None:
    place = Path(ask("workspace", "add", "worker-a")["path"])
    task_id = ask("task", "add", "Build", "--assignee", "worker-a", "--done-when", "review")["task_id"]
    assert run("task", "diff", task_id).stderr.startswith("multi-agent-mcp: invalid_arguments: What task")
    run("task", "status", task_id, "in_progress", "--as", "worker-a")
    assert run("task", "diff", task_id).stderr.startswith("multi-agent-mcp: it changes nothing\n")
    (place / "a.txt").write_bytes(b"\x1b[31mred\xff\r\n")
    (place / "a.txt").chmod(0o755)
    (place / "new.txt").write_text("new\n")
    (place / "way").symlink_to("a.txt")
    git("add", "-A", at=place)
    git("commit", "-qm", "second", at=place)
    assert run("task", "diff", task_id).stderr.startswith("multi-agent-mcp: not reported yet")
    run("task", "status", task_id, "done", "--as", "worker-a")
    plain = subprocess.run(["git", "diff", "HEAD~1", "HEAD"], cwd=place, check=True, capture_output=True).stdout
    printed = run("task", "diff", task_id)
    assert (printed.stdout_bytes, printed.stderr) == (plain, "")
    stat = run("task", "diff", task_id, "--stat").stdout.splitlines()
    kinds = ["a.txt (file → executable file)", "new.txt", "way (symbolic link)"]
    assert [line.split(maxsplit=2) for line in stat[1:4]] == [
        ["+1", f"−{int(n == 0)}", kind] for n, kind in enumerate(kinds)
    ]
    assert stat[4] == "3 files changed: +3 −1"
    found = ask("task", "diff", task_id, "--file", "new.txt")
    assert [file["path"] for file in found["files"]] == ["new.txt"]
    assert found["diff"].startswith("diff --git a/new.txt b/new.txt")
    assert "diff" not in ask("task", "diff", task_id, "--stat")
    assert run("task", "diff", task_id, "--file", "x").exit_code == 1
    assert run("task", "reject", task_id, "no line").exit_code == 1
    given = ask("task", "reject", task_id, "a.txt:1: no colours", "new.txt:1: why?", "--reason", "Please:")
    assert (given["status"], given["reason"]) == ("in_progress", "Please:\na.txt:1: no colours\nnew.txt:1: why?")
    assert "a.txt:1: no colours" in run("read", "--as", "worker-a").stdout


def test_a_worktree_is_made_merged_from_and_removed(ask: Ask, run: Run, session: Path, git: Git) -> None:
    project = session.parent.parent
    assert run("workspace", "list").stdout.startswith("There are no worktrees")
    place = Path(ask("workspace", "add", "worker-a")["path"])
    ask("workspace", "add", "admin")
    task_id = ask("task", "add", "Build", "--assignee", "worker-a")["task_id"]
    assert run("workspace", "merge", task_id).exit_code == 1
    (place / "a.txt").write_text("two\n")
    git("commit", "-qam", "second", at=place)
    for status in ("in_progress", "done"):
        run("task", "status", task_id, status, "--as", "worker-a")
    assert run("workspace", "remove", "worker-a").stdout.startswith(f"Kept: {place} has 1 commits that are not merged.")
    assert [item["kind"] for item in ask("attention")["items"] if item["agent_id"] == "worker-a"] == ["kept"]
    merged = ask("workspace", "merge", task_id)
    assert (merged["merged"], merged["conflicts"]) == (True, [])
    assert (project / "a.txt").read_text() == "two\n"
    assert ask("task", "show", task_id)["task"]["delivery"]["merged"]
    row = ask("workspace", "list")["workspaces"][1]
    assert [one["merged"] for one in row["delivered"]] == [True]
    assert ask("workspace", "remove", "worker-a")["removed"]
    assert (place.exists(), place.parent.exists()) == (False, True)
    assert ask("workspace", "remove", "admin")["removed"]
    assert not place.parent.exists()


def test_a_repository_of_another_user_is_named_with_git_s_own_cure_which_helps(
    ask: Ask, run: Run, session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = session.parent.parent
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    named = ("-c", "user.name=T", "-c", "user.email=t@example.org")
    for call in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *named, *call], cwd=project, check=True)
    services = open_session(session.parent, session.name)
    services.agents.change("worker-a", workspace="worktree")
    made = services.worktrees.ensure(services.agents.get("worker-a"))
    admin, worker = services.agents.get("admin"), services.agents.get("worker-a")
    (task,) = services.task_creation.create(admin, [NewTask(title="x", assignee_id="worker-a")])
    services.task_changes.set_status(worker, task.id, "in_progress")
    subprocess.run(["git", *named, "commit", "-q", "--allow-empty", "-m", "work"], cwd=made.path, check=True)
    services.deliveries.set_status(worker, task.id, "done")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    commands = (["init"], ["workspace", "add", "admin"], ["workspace", "merge", task.id], ["doctor"])
    for command in commands:
        said = " ".join(run(*command).output.split())
        assert said.count("belongs to another user") == 1, (command, said)
        assert "fatal:" not in said
        assert f"git config --global --add safe.directory {project}" in said
    for place in (project, made.path):  # git trusts each for itself
        cure = f"git config --global --add safe.directory {place}"
        assert cure in " ".join(run("doctor").output.split())
        subprocess.run(["/bin/sh", "-c", cure], check=True)
    assert "another user" not in run("doctor").output
    assert ask("workspace", "merge", task.id)["merged"]


def test_why_follows_a_line_to_task_agent_and_who_asked(ask: Ask, run: Run, session: Path, git: Git) -> None:
    place = Path(ask("workspace", "add", "worker-a")["path"])
    with (session / "session.yaml").open("a") as settings:
        settings.write("checks: {tests: git --version}\nprotected: [b.txt]\n")
    task_id = ask("task", "add", "Colours", "--assignee", "worker-a", "--done-when", "tests")["task_id"]
    ask("task", "status", task_id, "in_progress", "--as", "worker-a")
    (place / "b.txt").write_text("red\nblue\n")
    git("add", "-A", at=place)
    git("commit", "-qm", "Add colours", at=place)
    run("task", "status", task_id, "done", "--as", "worker-a")
    shown = run("task", "show", task_id).stdout  # nobody has approved the check, and b.txt is protected
    assert "It changes protected files: b.txt" in shown
    assert "Its checks are not as a person has approved them" in shown
    assert "commits" in shown
    assert "Add colours" in shown
    assert "Add colours" in run("show", task_id).stdout
    ask("task", "approve", task_id)
    (place / "b.txt").write_text("red\nblue\ngreen\n")
    (commit,) = ask("why", f"{place}/b.txt:2")["commits"]
    assert (commit["task_id"], commit["agent_id"], commit["lines"]) == (task_id, "worker-a", 1)
    task = commit["task"]
    assert (task["status"], task["asked_by"], [one["by"] for one in task["reviews"]]) == ("done", "owner", ["owner"])
    assert [one["check"] for one in task["receipts"]] == ["tests"]
    whole = ask("why", f"{place}/b.txt")
    assert ([one["lines"] for one in whole["commits"]], whole["uncommitted_lines"]) == ([2], 1)
    said = run("why", f"{place}/b.txt").stdout
    assert "asked for by owner" in said
    assert "reviewed by owner" in said
    assert "1 line is not committed." in said
    assert "no task is named" in run("why", "a.txt").stdout
    for unknown in ("gone.txt", "b.txt:9", "nowhere/x"):
        assert run("why", unknown).exit_code == 1


def committed(ask: Ask, git: Git, place: Path, title: str) -> str:
    """A task whose worker has committed a line of it; returns its id."""
    task_id = ask("task", "add", title, "--assignee", "worker-a")["task_id"]
    ask("task", "status", task_id, "in_progress", "--as", "worker-a")
    with (place / "b.txt").open("a") as file:
        file.write(f"{title}\n")
    git("add", "-A", at=place)
    git("commit", "-qm", f"Add {title}", at=place)
    ask("task", "status", task_id, "blocked", "--as", "worker-a", "--reason", "next")
    return str(task_id)


def test_why_follows_a_file_that_a_sparse_checkout_leaves_out(ask: Ask, run: Run, session: Path, git: Git) -> None:
    big = session.parent.parent / "big" / "deep"
    big.mkdir(parents=True)
    (big / "y").write_text("red\nblue\n")
    (big.parent / "z").write_text("green\n")
    git("add", "big")
    git("commit", "-qm", "Add what is big")
    for skips in (["set", "--no-cone", "/*", "!/big/deep/"], ["set", "--cone", "--sparse-index"]):
        git("sparse-checkout", *skips)
        assert not (big / "y").exists()
        (commit,) = ask("why", "big/deep/y:2")["commits"]
        assert (commit["subject"], commit["lines"]) == ("Add what is big", 1)
        for unknown in ("big/deep/y:3", "big/deep/x", "big"):
            assert run("why", unknown).exit_code == 1
    (session.parent.parent / "a.txt").unlink()
    assert run("why", "a.txt").exit_code == 1


def test_why_follows_commits_that_were_moved_and_says_which_task_is_not_there(
    ask: Ask, run: Run, session: Path, git: Git
) -> None:
    project, place = session.parent.parent, Path(ask("workspace", "add", "worker-a")["path"])
    ids = [committed(ask, git, place, title) for title in ("red", "blue")]
    first, second = git("log", "--reverse", "--format=%H", "main..HEAD", at=place).split()

    def told(line: int) -> tuple[str, str, str | None]:
        (commit,) = ask("why", f"b.txt:{line}")["commits"]
        assert commit["commit"] not in (first, second), "it was moved"
        return commit["task_id"], commit["agent_id"], commit["task"] and commit["task"]["title"]

    (project / "c.txt").write_text("meanwhile\n")
    git("add", "c.txt")
    git("commit", "-qm", "Go on")
    git("cherry-pick", "-x", first, second)
    git("commit", "--amend", "-qm", git("log", "-1", "--format=%B").replace("Add blue", "Add a better blue"))
    assert [told(1), told(2)] == [(ids[0], "worker-a", "red"), (ids[1], "worker-a", "blue")]
    git("checkout", "-q", "-b", "moved", first)
    git("commit", "--amend", "-q", "--no-edit", "--date=2001-01-01T00:00")
    git("rebase", "-q", "main~2")
    assert told(1) == (ids[0], "worker-a", "red")

    git("checkout", "-q", "-b", "squashed", "main~2")
    git("merge", "--squash", "-q", second)
    git("commit", "-q", "--no-edit")
    (commit,) = ask("why", "b.txt")["commits"]
    assert sorted([commit["task_id"], *(one["task_id"] for one in commit["others"])]) == sorted(ids)
    said = run("why", "b.txt").stdout
    assert f"  {ids[0]} red (blocked)\n" in said
    assert f"  {ids[1]} blue (blocked)\n" in said
    assert len(ask("task", "show", ids[0])["task"]["commits"]) >= 3

    (project / "b.txt").write_text("forged\n")
    git("commit", "-qam", "Forge\n\nTask: tsk_ffffffffffff\nAgent: worker-a")
    (commit,) = ask("why", "b.txt")["commits"]
    assert (commit["task_id"], commit["task"]) == ("tsk_ffffffffffff", None)
    assert "tsk_ffffffffffff is named, but this session has no such task" in run("why", "b.txt").stdout
