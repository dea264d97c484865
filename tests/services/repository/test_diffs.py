"""What a task changes, over a real git: from a worktree and from a shared directory, whatever the files are."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.repository.worktree import Worktree
from multi_agent_mcp.services.doctor.pruning import Pruning
from multi_agent_mcp.services.tasks import diffs
from multi_agent_mcp.services.tasks.diffs import KEPT_BYTES, Difference
from multi_agent_mcp.system.git import git
from multi_agent_mcp.wiring import Services
from tests.server.seat import Seat
from tests.services.repository.conftest import NAMED
from tests.services.tasks_support import again, moved, new, running

HOSTILE = (b"-x.txt", b"with\nnewline", b"\x1b[31mred", b"\xe2\x80\xaereversed", b"bytes\xff", b"a b/c d")


def made(services: Services) -> Worktree:
    found: Worktree = services.worktrees.ensure(services.agents.get("worker-a"))
    return found


def commit(place: str | Path, message: str = "work") -> str:
    git(place, "add", "-A")
    git(place, "commit", "-q", "--allow-empty", "-m", message)
    return git(place, "rev-parse", "HEAD")


def of(services: Services, task: Task) -> Difference:
    return services.diffs.of(again(services, task))


def words(found: Difference) -> str:
    return found.text()[0].decode(errors="surrogateescape")


def test_it_is_from_where_the_work_began_to_the_delivered_commit(services: Services, project: Path) -> None:
    place = Path(made(services).path)
    first = running(services, "other work")
    (place / "before.txt").write_text("other work\n")
    began = commit(place)
    moved(services, first, "done")
    task = running(services)
    (place / "a.txt").write_text("two\nthree\n")
    delivered = commit(place)
    assert of(services, task).at is None  # what the worktree is at, not reported yet
    task = moved(services, task, "done")
    (place / "later.txt").write_text("after the report\n")
    commit(place)
    found = of(services, task)
    assert (found.base, found.commit, found.branch) == (began, delivered, "mam/demo/worker-a")
    assert [(file.path, file.status, file.added, file.removed) for file in found.files] == [("a.txt", "M", 2, 1)]
    plain = subprocess.run(["git", "diff", began, delivered], cwd=project, check=True, capture_output=True).stdout
    assert found.text() == (plain, False)
    assert found.at is not None


def test_each_kind_of_change_is_named_and_has_its_own_text(services: Services, project: Path) -> None:
    (project / "moved.txt").write_text("".join(f"{number}\n" for number in range(100)))
    (project / "gone.txt").write_text("gone\n")
    (project / "typed.txt").write_text("a file\n")
    (project / "run.sh").write_text("true\n")
    commit(project)
    place = Path(made(services).path)
    task = running(services)
    git(place, "mv", "moved.txt", "new name.txt")
    (place / "gone.txt").unlink()
    (place / "typed.txt").unlink()
    (place / "typed.txt").symlink_to("a.txt")
    (place / "run.sh").chmod(0o755)
    (place / "binary").write_bytes(bytes(range(256)))
    (place / "long.txt").write_text("".join(f"line {number}\n" for number in range(10_000)))
    inner = place / "inner"
    inner.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=inner, check=True)
    subprocess.run(["git", *NAMED, "commit", "-q", "--allow-empty", "-m", "inner"], cwd=inner, check=True)
    subprocess.run(["git", "-c", "advice.addEmbeddedRepo=false", "add", "-A"], cwd=place, check=True)
    git(place, "commit", "-q", "-m", "all kinds")
    found = of(services, task)
    kinds = {file.path: (file.status, file.old_path, file.added, file.submodule) for file in found.files}
    assert kinds["new name.txt"] == ("R", "moved.txt", 0, False)
    assert kinds["gone.txt"] == ("D", None, 0, False)
    assert kinds["typed.txt"][0] == "T"
    assert kinds["binary"] == ("A", None, None, False)
    assert kinds["long.txt"] == ("A", None, 10_000, False)
    assert kinds["inner"][3]
    modes = {file.path: (file.old_mode, file.mode) for file in found.files}
    assert modes["run.sh"] == ("100644", "100755")
    assert modes["typed.txt"] == ("100644", "120000")
    assert modes["inner"] == (None, "160000")
    assert modes["gone.txt"] == ("100644", None)
    for file in found.files:
        text = found.text([file])[0].decode()
        assert text.startswith("diff --git ")
        assert text.count("diff --git ") == (2 if file.status == "T" else 1)
    assert "rename from moved.txt" in found.text(found.of("moved.txt"))[0].decode()
    cut, is_cut = found.text(found.of("long.txt"), most=1_000)
    assert is_cut
    assert len(cut) <= 1_000
    assert cut.endswith(b"\n")


def test_names_of_any_bytes_are_found_and_harmless(services: Services, project: Path) -> None:
    place = made(services).path
    task = running(services)
    for name in HOSTILE:
        path = Path(place, name.decode(errors="surrogateescape"))
        path.parent.mkdir(exist_ok=True)
        path.write_text("diff --git a/x b/x\n--- a/x\n")
    commit(place)
    found = of(services, task)
    assert {file.path for file in found.files} == {name.decode(errors="surrogateescape") for name in HOSTILE}
    for file in found.files:
        text = found.text(found.of(file.path))[0]
        assert text.count(b"+diff --git a/x b/x") == 1
    with pytest.raises(InvalidArguments, match="not_in_diff"):
        found.of("nowhere.txt")
    assert [file.path for file in found.of("a b/")] == ["a b/c d"]
    found.as_answer()


def test_protected_files_come_first_in_list_and_text(
    services: Services, project: Path, reopened: Callable[..., Services]
) -> None:
    place = Path(made(services).path)
    task = running(services)
    for name in ("src/app.py", "tests/test_app.py", "zoo.txt"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("new\n")
    commit(place)
    found = of(reopened(protected=["tests/**"]), task)
    assert [file.path for file in found.files] == ["tests/test_app.py", "src/app.py", "zoo.txt"]
    assert found.protected == {"tests/test_app.py"}
    text = words(found)
    assert text.index("b/tests/test_app.py") < text.index("b/src/app.py") < text.index("b/zoo.txt")


def test_what_was_committed_between_two_tasks_belongs_to_the_next_delivery(services: Services, project: Path) -> None:
    place = Path(made(services).path)
    (place / "before.txt").write_text("no task in hand\n")
    commit(place)
    task = running(services)
    (place / "a.txt").write_text("two\n")
    commit(place)
    task = moved(services, task, "done")
    found = of(services, task)
    assert (found.earlier, found.base) == (1, git(project, "rev-parse", "HEAD"))
    assert [file.path for file in found.files] == ["a.txt", "before.txt"]
    later = running(services, "later")
    (place / "a.txt").write_text("three\n")
    commit(place)
    found = of(services, later)
    assert (found.earlier, [file.path for file in found.files]) == (0, ["a.txt"])


def test_settings_and_attributes_of_nobody_change_the_text(services: Services, project: Path) -> None:
    place = Path(made(services).path)
    task = running(services)
    (place / ".gitattributes").write_text("*.txt -diff\n")  # would hide the change from its reviewer
    (place / "a.txt").write_text("two\n")
    commit(place)
    usual = words(of(services, task))
    assert "+two" in usual
    ran = project.parent / "ran"
    for key, value in {
        "diff.external": f"touch {ran}",
        "diff.noprefix": "true",
        "diff.mnemonicPrefix": "true",
        "diff.context": "0",
        "diff.orderFile": "/nonexistent",
        "color.diff": "always",
        "diff.renames": "false",
    }.items():
        git(project, "config", key, value)
    assert words(of(services, task)) == usual
    assert not ran.exists()


def test_what_cannot_be_compared_is_said_in_one_sentence(services: Services, project: Path) -> None:
    place = Path(made(services).path)
    waiting = new(services, "waits")

    def refused(task: Task) -> str:
        with pytest.raises(InvalidArguments) as found:
            of(services, task)
        sentence = services.texts.sentence(found.value)
        assert sentence.endswith(".")
        assert "\n" not in sentence
        return found.value.key

    assert refused(waiting) == "error.nothing_to_show"
    task = running(services)
    (place / "a.txt").write_text("two\n")
    lost = commit(place)
    task = moved(services, task, "done")
    git(place, "reset", "-q", "--hard", "HEAD~1")
    git(place, "reflog", "expire", "--expire=now", "--all")
    git(project, "gc", "-q", "--prune=now")
    assert [file.path for file in of(services, task).files] == ["a.txt"]  # a ref of ours holds it
    git(project, "update-ref", "-d", f"refs/multi-agent-mcp/demo/{task.id}")
    git(project, "gc", "-q", "--prune=now")
    assert git(project, "cat-file", "-t", lost, ok=(0, 128)) == ""
    assert refused(task) == "error.commit_gone"
    without = running(services, "without base")
    commit(place, "empty")
    moved(services, without, "done")
    services.workspace.tasks.update(without.id, lambda found: found.__class__(**{**vars(found), "base": None}))
    assert refused(without) == "error.no_base"


@pytest.fixture
def shared(services: Services, project: Path) -> Task:
    """A task whose agent has edited files of the project itself, in all ways."""
    (project / "gone.txt").write_text("gone\n")
    commit(project)
    task = running(services, done_when=("review",))
    (project / "a.txt").write_text("two\n")
    (project / "fresh.txt").write_text("fresh\n")
    (project / "others.txt").write_text("by somebody else\n")
    (project / ".env").write_text("ignored\n")
    (project / "gone.txt").unlink()
    paths = [str(project / name) for name in ("a.txt", "fresh.txt", ".env", "gone.txt")]
    services.edits.note("worker-a", paths, str(project))
    return task


def test_in_a_shared_directory_it_is_what_the_agent_edited_as_it_was_at_the_report(
    services: Services, project: Path, shared: Task
) -> None:
    status = git(project, "status", "--porcelain")
    Seat(services, "worker-a").call("report_completed", result="success", summary="done", task_id=shared.id)
    assert git(project, "status", "--porcelain") == status
    (project / "a.txt").write_text("changed after the report\n")
    found = of(services, shared)
    assert [(file.path, file.status) for file in found.files] == [
        (".env", "A"), ("a.txt", "M"), ("fresh.txt", "A"), ("gone.txt", "D"),
    ]  # fmt: skip
    assert found.commit is None
    assert found.at is not None
    text = words(found)
    assert "+two" in text
    assert "others.txt" not in text
    assert "changed after" not in text
    assert words(found) != found.text(found.of("fresh.txt"))[0].decode()


HIDING = "* -diff\n"


def test_no_attribute_anywhere_hides_a_change(
    services: Services, project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shared: Task
) -> None:
    config = tmp_path / "config"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config))
    named = tmp_path / "named"
    places = (named, config / "git/attributes", project / ".gitattributes", project / ".git/info/attributes")
    for path in places:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(HIDING)
    git(project, "config", "core.attributesFile", str(named))
    Seat(services, "worker-a").call("report_completed", result="success", summary="done", task_id=shared.id)
    found = of(services, shared)
    assert "+two" in found.text(found.of("a.txt"))[0].decode()
    git(project, "checkout", "-q", "a.txt")
    place = Path(made(services).path)
    task = running(services, "in a worktree")
    (place / "a.txt").write_text("three\n")
    commit(place)
    assert "+three" in words(of(services, task))


def test_of_so_many_files_that_nothing_is_kept_of_one_that_is_said(
    services: Services, project: Path, shared: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diffs, "KEPT_BYTES", 300)
    (project / "a.txt").write_text("line\n" * 600)
    Seat(services, "worker-a").call("report_completed", result="success", summary="done", task_id=shared.id)
    found = of(services, shared)
    nothing = [file for file in found.files if not (found.parts or {})[file.path]]
    assert nothing
    assert {file.path for file in nothing} <= found.cut
    with pytest.raises(InvalidArguments, match="diff_not_kept"):
        found.text(nothing[:1])


def test_what_was_kept_is_bounded_and_goes_with_the_receipts(services: Services, project: Path, shared: Task) -> None:
    (project / "a.txt").write_text("line\n" * 600_000)  # before the others in the order of names
    Seat(services, "worker-a").call("report_completed", result="success", summary="done", task_id=shared.id)
    kept = services.path / "receipts" / shared.id / "reported.diff"
    assert kept.stat().st_size < KEPT_BYTES + 10_000
    found = of(services, shared)
    assert found.text()[1]
    assert [file.added for file in found.of("a.txt")] == [600_000]
    assert found.cut == {"a.txt"}
    assert "+fresh" in found.text(found.of("fresh.txt"))[0].decode()
    assert len(found.text(found.of("a.txt"))[0]) > KEPT_BYTES // 2
    assert "reported.diff" not in str(services.diagnosis.findings())  # doctor takes it for what it is
    pruning = Pruning(services.session)

    def prunable() -> list[str]:
        later = services.clock() + timedelta(days=3_650)
        return [item.kind for item in pruning.prunable(later, timedelta(days=1)) if item.name.endswith(kept.name)]

    assert prunable() == []
    services.deliveries.decide(services.agents.get("admin"), shared.id, approve=True)
    assert prunable() == ["receipts"]
