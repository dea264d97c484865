"""The state of a working directory, in real git repositories and without git."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from multi_agent_mcp.doorbell.tmux.client import Server
from multi_agent_mcp.system.git import NO_HEAD, head_of
from multi_agent_mcp.system.temporary import checked_out
from multi_agent_mcp.system.work_state import state_of
from multi_agent_mcp.system.working_tree import files_of, lost_in_submodules, made_in, uncommitted
from tests.lies.lies import forged, git, make_later
from tests.programs import ran

COMMIT = ("-c", "user.name=x", "-c", "user.email=x@example", "commit", "-qm", "x")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    place = tmp_path / "repository"
    (place / "part").mkdir(parents=True)
    (place / "a.txt").write_text("a\n")
    (place / "link").symlink_to("a.txt")
    (place / ".gitignore").write_text("*.log\n")
    git(place, "init", "-q")
    git(place, "add", "-A")
    git(place, *COMMIT)
    return place


def test_a_clean_repository_is_its_commit_wherever_one_looks_from(repository: Path) -> None:
    state = state_of(repository)
    assert (len(state.head), state.dirty) == (40, False)
    assert state_of(repository / "part") == state
    (repository / "out.log").write_text("ignored")
    assert state_of(repository) == state


def _edit(place: Path) -> None:
    (place / "a.txt").write_text("b\n")


def _add(place: Path) -> None:
    (place / "new.txt").write_text("new")


def _hide_from_git(place: Path) -> None:
    (place / ".git" / "info" / "exclude").write_text("hidden.txt\n")
    (place / "hidden.txt").write_text("x")


def _assume_unchanged(place: Path) -> None:
    git(place, "update-index", "--assume-unchanged", "a.txt")
    _edit(place)


def _mark_all_unchanged(place: Path) -> None:
    """Git marks each file itself that it adds to an index (git-config(1))."""
    git(place, "config", "core.ignoreStat", "true")
    git(place, *COMMIT, "--allow-empty")
    _edit(place)


def _commit(place: Path) -> None:
    git(place, *COMMIT, "--allow-empty")


def _mode(place: Path) -> None:
    (place / "a.txt").chmod(0o755)


def _hide_by_a_setting(place: Path) -> None:
    rules = place.with_name("rules")
    rules.write_text("hidden.txt\n")
    git(place, "config", "core.excludesFile", str(rules))
    (place / "hidden.txt").write_text("x")


def _hide_for_this_user(place: Path) -> None:
    rules = Path(os.environ["XDG_CONFIG_HOME"]) / "git" / "ignore"
    rules.parent.mkdir(parents=True)
    rules.write_text("hidden.txt\n")
    (place / "hidden.txt").write_text("x")


def _hide_itself(place: Path) -> None:
    (place / "d").mkdir()
    (place / "d" / ".gitignore").write_text("*\n")
    (place / "d" / "hidden.txt").write_text("x")


def _replace(place: Path) -> None:
    blob = ran("git", "-C", str(place), "rev-parse", "HEAD:a.txt").stdout.strip()
    other = ran("git", "-C", str(place), "rev-parse", "HEAD:.gitignore").stdout.strip()
    git(place, "replace", blob, other)


def _look_elsewhere(place: Path) -> None:
    shutil.copytree(place, elsewhere := place.with_name("elsewhere"))
    git(place, "config", "core.worktree", str(elsewhere))
    _edit(place)


def _set_back(place: Path) -> None:
    git(place, "config", "core.checkStat", "minimal")
    git(place, "config", "core.trustctime", "false")
    changed = place / "a.txt"
    os.utime(changed, (1, 1))
    git(place, "status")  # notes the time
    other = place.with_name("other")
    other.write_text("b\n")
    os.utime(other, (1, 1))
    other.replace(changed)


def _forge_the_index(place: Path) -> None:
    forged(place, "a.txt", "b\n")
    assert git(place, "status", "--porcelain") == git(place, "diff", "HEAD") == ""


def _remove_skipped(place: Path) -> None:
    git(place, "update-index", "--skip-worktree", "a.txt")
    (place / "a.txt").unlink()


def _remove_assumed(place: Path) -> None:
    git(place, "update-index", "--assume-unchanged", "a.txt")
    (place / "a.txt").unlink()


def _untold_mode(place: Path) -> None:
    git(place, "config", "core.fileMode", "false")
    _mode(place)


def _untold_link(place: Path) -> None:
    git(place, "config", "core.symlinks", "false")
    target = (place / "link").readlink()
    (place / "link").unlink()
    (place / "link").write_text(str(target))


def _untold_case(place: Path) -> None:
    git(place, "config", "core.ignoreCase", "true")
    (place / "A.txt").write_text("a\n")


HIDING = [_hide_from_git, _hide_by_a_setting, _hide_for_this_user, _hide_itself]
FORGED = [_forge_the_index, _remove_skipped, _remove_assumed]
UNCOMMITTED = [_edit, _add, _assume_unchanged, _mark_all_unchanged, _look_elsewhere, _set_back, *FORGED]
UNTOLD = [_untold_mode, _untold_link, _untold_case] if hasattr(os, "O_TMPFILE") else []
CHANGES = [*UNCOMMITTED, *HIDING, *UNTOLD, _replace, _commit, _mode]


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_another_state(
    repository: Path, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(repository.with_name("config")))
    before = state_of(repository)
    change(repository)
    after = state_of(repository)
    assert after != before
    assert after == state_of(repository)


@pytest.mark.parametrize("change", UNCOMMITTED)
def test_what_is_not_committed_is_named_whatever_the_configuration_hides(
    repository: Path, change: Callable[[Path], None]
) -> None:
    assert uncommitted(repository) == []
    change(repository)
    assert uncommitted(repository) in (["a.txt"], ["new.txt"])


@pytest.mark.parametrize("change", FORGED)
def test_what_an_index_hides_is_seen_from_a_directory_below_too(
    repository: Path, change: Callable[[Path], None]
) -> None:
    change(repository)
    assert uncommitted(repository / "part") == ["a.txt"]
    assert not state_of(repository / "part").is_clean_at(head_of(repository))


def test_what_a_sparse_checkout_leaves_out_is_no_change(repository: Path) -> None:
    (repository / "part" / "b.txt").write_text("b\n")
    git(repository, "add", "-A")
    git(repository, *COMMIT)
    git(repository, "sparse-checkout", "set", "--no-cone", "/a.txt", "/.gitignore")
    assert not (repository / "part" / "b.txt").exists()
    assert (uncommitted(repository), state_of(repository).dirty) == ([], False)
    assert not state_of(repository).is_clean_at(head_of(repository))  # a check would miss what is left out
    (repository / "a.txt").unlink()
    assert uncommitted(repository) == ["a.txt"]


@pytest.mark.parametrize("kind", ["large", "secret"])
def test_a_file_that_a_filter_has_made_is_committed_and_known_to_be_what_was_only_with_lfs(
    repository: Path, kind: str
) -> None:
    large = "many words\n" * 99
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(large)}\nsize {len(large)}\n"
    committed = pointer if kind == "large" else "x\n"
    (repository / ".gitattributes").write_text("*.bin filter=big\n")
    stored = repository.with_name("stored")
    stored.write_text(committed)
    git(repository, "config", "filter.big.clean", f"cat {stored}")
    (repository / "a.bin").write_text(large)
    git(repository, "add", "-A")
    git(repository, *COMMIT)
    assert git(repository, "show", "HEAD:a.bin") == committed.strip()
    make_later(repository / ".git" / "index")
    assert uncommitted(repository) == []
    assert state_of(repository).is_clean_at(head_of(repository)) == (kind == "large")
    (repository / "a.bin").write_text(f"{large}more")
    assert uncommitted(repository) == ["a.bin"]
    assert state_of(repository).dirty


def test_an_index_is_made_again_without_a_hook_and_leaves_nothing(repository: Path) -> None:
    hook, ran_here = repository / ".git" / "hooks" / "post-index-change", repository.with_name("ran")
    hook.write_text(f"#!/bin/sh\ntouch {ran_here}\n")
    hook.chmod(0o755)
    git(repository, "config", "core.splitIndex", "true")
    git(repository, "update-index", "--skip-worktree", "a.txt")
    ran_here.unlink(missing_ok=True)
    _edit(repository)
    before = sorted((repository / ".git").iterdir())
    assert uncommitted(repository) == ["a.txt"]
    assert (ran_here.exists(), sorted((repository / ".git").iterdir())) == (False, before)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_it_is_asked_for_the_settings_that_git_has(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _look_elsewhere(repository)
    monkeypatch.setenv("GIT_CONFIG", os.devnull)  # git-config(1)
    assert uncommitted(repository) == ["a.txt"]


def test_an_order_of_files_that_is_missing_keeps_nobody_from_looking(repository: Path) -> None:
    git(repository, "config", "diff.orderFile", "nowhere")
    _edit(repository)
    assert uncommitted(repository) == ["a.txt"]


def test_what_tests_leave_in_their_caches_is_no_change(repository: Path) -> None:
    before = state_of(repository)
    for place in (repository / ".pytest_cache", repository / "cache"):
        place.mkdir()
        (place / ".gitignore").write_text("*\n")
        (place / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n")
    assert state_of(repository) == before
    assert uncommitted(repository) == []


def test_no_filter_of_the_repository_is_run_to_see_what_has_changed(repository: Path) -> None:
    ran_here = repository.with_name("ran")
    (repository / ".git" / "info" / "attributes").write_text("*.txt filter=a.b\n")
    git(repository, "config", "filter.a.b.clean", f"touch {ran_here}; cat")
    git(repository, "config", "filter.a.b.required", "true")
    (repository / "a.txt").write_text("b\n")
    assert state_of(repository).dirty
    assert uncommitted(repository) == ["a.txt"]
    assert not ran_here.exists()


@pytest.fixture
def module(repository: Path) -> Path:
    """A submodule of the repository."""
    library = repository.with_name("library")
    library.mkdir()
    (library / "b.txt").write_text("b\n")
    git(library, "init", "-q")
    git(library, "add", "-A")
    git(library, *COMMIT)
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "lib")
    git(repository, *COMMIT)
    return repository / "lib"


def _stage_within(module: Path) -> None:
    (module / "b.txt").write_text("c\n")
    git(module, "add", "-A")


def _edit_within(module: Path) -> None:
    (module / "b.txt").write_text("c\n")


def _hide_within(module: Path) -> None:
    git(module, "update-index", "--assume-unchanged", "b.txt")
    _edit_within(module)


def _commit_within(module: Path) -> None:
    git(module, *COMMIT, "--allow-empty")


def _ignored_by_a_setting(module: Path) -> None:
    git(module.parent, "config", "submodule.lib.ignore", "all")
    _edit_within(module)


def _no_repository(module: Path) -> None:
    (module / ".git").unlink()


def _broken(module: Path) -> None:
    (module / ".git").write_text("gitdir: nowhere\n")


WITHIN = [_stage_within, _edit_within, _add, _hide_within, _commit_within, _ignored_by_a_setting, _no_repository]


@pytest.mark.parametrize("change", [*WITHIN, _broken])
def test_every_change_within_a_submodule_is_another_state(module: Path, change: Callable[[Path], None]) -> None:
    before = state_of(module.parent)
    assert before.is_clean_at(before.head)
    assert uncommitted(module.parent) == []
    change(module)
    after = state_of(module.parent)
    assert not after.is_clean_at(before.head)
    assert after.digest != before.digest
    assert after == state_of(module.parent)
    assert uncommitted(module.parent) == ["lib"]


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_nothing_that_a_repository_names_is_run_to_see_what_has_changed_in_it(module: Path, depth: int) -> None:
    top, mark = module.parent, module.parent.with_name("ran")
    git(module, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(top.with_name("library")), "in")
    git(module, *COMMIT)
    git(top, "add", "lib")
    git(top, *COMMIT)
    place = (top, module, module / "in")[depth]
    program = top.with_name("program")
    program.write_text(f"#!/bin/sh\necho $0 $* >> {mark}\ncat\n")
    program.chmod(0o755)
    attributes = Path(ran("git", "-C", str(place), "rev-parse", "--git-path", "info/attributes").stdout.strip())
    attributes = place / attributes
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_text("*.txt filter=a=b\n")
    for key in ("core.fsmonitor", "filter.a=b.clean", "filter.a=b.process", "diff.external", "gpg.program"):
        git(place, "config", key, str(program))
    git(place, "config", "log.showSignature", "true")
    (place / ("b.txt" if depth else "a.txt")).write_text("c\n")
    (place / "b.txt").write_text("changed\n")
    assert state_of(top).dirty
    assert uncommitted(top) == (["lib"] if depth else ["a.txt", "b.txt"])
    files_of(str(top))
    lost_in_submodules(str(top), top)
    assert not mark.exists(), mark.read_text()


def test_no_program_of_the_working_directory_is_taken_for_git(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran_here = repository.with_name("ran")
    for name in ("git", "tmux"):
        program = repository / "part" / name
        program.write_text(f"#!/bin/sh\ntouch {ran_here}\n")
        program.chmod(0o755)
    monkeypatch.chdir(repository)
    monkeypatch.setenv("PATH", f"part:{os.environ['PATH']}")
    assert uncommitted(repository) == ["part/"]
    assert state_of(repository).dirty
    Server(repository.with_name("socket")).cmd("list-panes")
    assert not ran_here.exists()


def test_what_a_repository_lacks_is_not_fetched_by_a_program_that_it_names(module: Path) -> None:
    mark = module.parent.with_name("ran")
    tree = ran("git", "-C", str(module), "rev-parse", "HEAD^{tree}").stdout.strip()
    objects = Path(ran("git", "-C", str(module), "rev-parse", "--absolute-git-dir").stdout.strip(), "objects")
    (objects / tree[:2] / tree[2:]).unlink()
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "other",
        "remote.other.promisor": "true",
        "remote.other.url": f"ext::touch {mark}",
        "protocol.ext.allow": "always",
    }.items():
        git(module, "config", key, value)
    assert state_of(module.parent).dirty
    assert uncommitted(module.parent) == ["lib"]
    assert not mark.exists()


def test_no_program_of_a_repository_checks_signatures_to_see_what_was_committed(repository: Path) -> None:
    mark, program = repository.with_name("ran"), repository.with_name("program")
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    words = ran("git", "-C", str(repository), "cat-file", "commit", "HEAD").stdout
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n x\n -----END PGP SIGNATURE-----\n\n"
    signed = repository.with_name("signed")
    signed.write_text(words.replace("\n\n", f"\n{signature}", 1))
    commit = ran("git", "-C", str(repository), "hash-object", "-t", "commit", "-w", str(signed)).stdout.strip()
    git(repository, "update-ref", "-m", "commit: x", "HEAD", commit)
    git(repository, "config", "gpg.program", str(program))
    git(repository, "config", "log.showSignature", "true")
    assert commit in made_in(str(repository))
    assert not mark.exists()


def test_a_temporary_worktree_is_of_the_commit_and_leaves_nothing(repository: Path) -> None:
    head, place = head_of(repository), repository.with_name("temporary")
    (repository / "a.txt").write_text("b\n")
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    for _ in range(2):
        with checked_out(repository, place, head):
            assert state_of(place).is_clean_at(head)
            assert sorted(path.name for path in place.iterdir()) == [".git", ".gitignore", "a.txt", "link"]
            (place / "left.txt").write_text("x")
        assert not place.exists()
    with checked_out(repository, place, head), checked_out(repository, place, head):  # as after kill -9
        assert state_of(place).is_clean_at(head)


def test_the_content_of_untracked_files_counts_not_only_their_names(repository: Path) -> None:
    _add(repository)
    before = state_of(repository)
    (repository / "new.txt").write_text("old")
    assert state_of(repository) != before


def test_what_is_excluded_does_not_count(repository: Path) -> None:
    session = repository / "sessions"
    before = state_of(repository, [session])
    session.mkdir()
    (session / "x.md").write_text("x")
    assert state_of(repository, [session]) == before
    assert state_of(repository) != before


def test_without_git_or_a_commit_names_sizes_and_times_count(tmp_path: Path) -> None:
    place = tmp_path / "plain"
    place.mkdir()
    (place / "a.txt").write_text("a")
    before = state_of(place)
    assert (before.head, state_of(place)) == (NO_HEAD, before)
    (place / ".cache").mkdir()
    (place / ".cache" / "x").write_text("x")
    assert state_of(place) == before
    os.utime(place / "a.txt", (1, 1))
    assert state_of(place) != before
    git(place, "init", "-q")
    assert state_of(place).head == NO_HEAD


def test_a_hidden_change_of_the_same_size_within_the_same_second_is_seen(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "core.trustctime", "false")
    file, second = tmp_path / "a", (1_000_000_000, 1_000_000_000)
    file.write_text("one\n")
    os.utime(file, second)
    git(tmp_path, "add", "a")
    git(tmp_path, "-c", "user.name=T", "-c", "user.email=t@e", "commit", "-q", "-m", "1")
    git(tmp_path, "update-index", "--assume-unchanged", "a")
    file.write_text("two\n")
    for path in (file, tmp_path / ".git" / "index"):
        os.utime(path, second)
    assert uncommitted(tmp_path) == ["a"]
