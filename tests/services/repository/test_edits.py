"""Edits: noted by the hooks of five hosts, told once to those who edit one file."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.cli.for_hosts import hook
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.hooks import first_look
from multi_agent_mcp.hooks.answers import Event
from multi_agent_mcp.hosts import tool_inputs
from multi_agent_mcp.repository import edit_log
from multi_agent_mcp.wiring import Services
from tests.services.tasks_support import moved, running

INPUTS = Path(__file__).parents[2] / "fixtures" / "hosts2"


def repository(place: Path) -> Path:
    """A repository with one commit."""
    place.mkdir(parents=True)
    named = (["config", "user.name", "T"], ["config", "user.email", "t@example.org"])
    for call in (["init", "-q", "-b", "main"], *named, ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *call], cwd=place, check=True)
    return place


def edited(services: Services, agent_id: str, path: Path | str, tool: str = "Edit", event: str = "PostToolUse") -> Any:
    """What a host's hook answers after an edit: the quick look first, as `hook` does."""
    facts = {"hook_event_name": event, "tool_name": tool, "tool_input": {"file_path": str(path)}, "cwd": "/"}
    noted = first_look.look_at_call(str(services.path), agent_id, facts)
    if noted.is_done:
        return None
    return services.hooks.answer(agent_id, "task", Event(event, facts=facts, is_noted=noted.is_noted))


def told(services: Services, agent_id: str) -> list[Notification]:
    unread = services.workspace.notices(agent_id).unread(fresh=True)
    return [notice for _, notice in unread if notice.action == "edit_overlap"]


def lines(services: Services, agent_id: str) -> list[dict[str, Any]]:
    text = (services.path / ".edits" / f"{agent_id}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("host", "edits"),
    [
        ("claude", ["a.txt", "sub/b.txt"]),
        ("codex", ["a.txt", "b.txt"]),
        ("gemini", ["a.txt", "b.txt"]),
        ("copilot", ["a.txt", "b.txt"]),
    ],
)
def test_the_hooks_of_a_host_say_what_was_edited(services: Services, host: str, edits: list[str]) -> None:
    for line in (INPUTS / host / "edits.jsonl").read_text().splitlines():
        facts = json.loads(line)
        facts["hook_event_name"] = hook.OTHER_NAMES.get(facts["hook_event_name"], facts["hook_event_name"])
        if facts["hook_event_name"] == "PostToolUse":
            services.hooks.answer("worker-a", "task", Event("PostToolUse", host=host, facts=facts))
    assert [line["path"] for line in lines(services, "worker-a")] == edits


def test_opencodes_plugin_says_what_was_edited() -> None:
    facts = {"tool_name": "write", "tool_input": {"filePath": "/project/b.txt", "content": "x"}, "cwd": "/project"}
    assert first_look.tool_call(facts, tool_inputs()).paths == ["/project/b.txt"]


def test_a_patch_in_a_shell_names_the_files_that_it_moves() -> None:
    patch = "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: a.txt\n*** Move to: b/c.txt\n*** End Patch\nEOF"
    facts = {"tool_name": "Bash", "tool_input": {"command": patch}, "cwd": "/project"}
    assert first_look.tool_call(facts, tool_inputs()).paths == ["/project/a.txt", "/project/b/c.txt"]


def test_a_patch_in_a_shell_is_noted_before_it_is_made_as_codex_runs_no_hook_after_it(
    services: Services, tmp_path: Path
) -> None:
    tree = repository(tmp_path / "project")
    running(services)
    running(services, assignee_id="worker-b")
    edited(services, "worker-a", tree / "a.txt")
    patch = "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch\nEOF"
    facts = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": patch}, "cwd": str(tree)}
    noted = first_look.look_at_call(str(services.path), "worker-b", facts)
    assert not noted.is_done
    services.hooks.answer("worker-b", "task", Event("PreToolUse", host="codex", facts=facts))
    assert [line["path"] for line in lines(services, "worker-b")] == ["a.txt"]
    assert (len(told(services, "worker-a")), len(told(services, "worker-b"))) == (1, 1)


def test_two_who_edit_one_file_are_told_once_in_an_episode(services: Services, tmp_path: Path) -> None:
    tree = repository(tmp_path / "project")
    mine, theirs = running(services), running(services, assignee_id="worker-b")
    edited(services, "worker-a", tree / "src/app.py")
    assert told(services, "worker-a") == []
    for _ in range(3):
        edited(services, "worker-b", tree / "src/app.py")
        edited(services, "worker-a", tree / "src/app.py")
    assert [line["task_id"] for line in lines(services, "worker-a")] == [mine.id] * 4
    (to_a,), (to_b,) = told(services, "worker-a"), told(services, "worker-b")
    assert (to_a.reason, to_a.task_id) == ("src/app.py is being edited by worker-b, too.", mine.id)
    assert (to_b.sender_id, to_b.task_id) == ("worker-a", theirs.id)
    edited(services, "worker-b", tree / "docs/other.md")
    edited(services, "worker-a", tree / "docs/other.md")
    assert len(told(services, "worker-a")) == 2


def test_worktrees_of_one_repository_have_the_same_files_and_other_repositories_have_not(
    services: Services, tmp_path: Path
) -> None:
    tree, other = repository(tmp_path / "project"), repository(tmp_path / "other")
    subprocess.run(["git", "worktree", "add", "-q", "-b", "side", str(tmp_path / "side")], cwd=tree, check=True)
    subprocess.run(["git", "-C", str(other), "commit", "-q", "--amend", "-m", "another", "--allow-empty"], check=True)
    running(services)
    running(services, assignee_id="worker-b")
    edited(services, "worker-a", tree / "a.txt")
    edited(services, "worker-b", other / "a.txt")
    assert told(services, "worker-b") == []
    edited(services, "worker-b", tmp_path / "side" / "a.txt")
    assert len(told(services, "worker-b")) == 1


def test_those_whose_task_is_over_or_whose_edit_was_hours_ago_do_not_count(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = repository(tmp_path / "project")
    mine = running(services)
    edited(services, "worker-b", tree / "a.txt")  # works on no task
    edited(services, "worker-a", tree / "a.txt")
    running(services, assignee_id="worker-b")
    moved(services, mine, "done")
    edited(services, "worker-b", tree / "a.txt")
    assert told(services, "worker-a") == told(services, "worker-b") == []
    running(services)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 241 * 60)
    edited(services, "worker-a", tree / "b.txt")
    monkeypatch.undo()
    edited(services, "worker-b", tree / "b.txt")
    assert told(services, "worker-b") == []


def test_a_told_overlap_is_silent_beside_ten_thousand_lines(services: Services, tmp_path: Path) -> None:
    tree = repository(tmp_path / "project")
    running(services)
    running(services, assignee_id="worker-b")
    for agent_id in ("worker-a", "worker-b", "worker-a"):
        edited(services, agent_id, tree / "a.txt")
    repositories = edit_log.settings(str(services.path))["repositories"]  # type: ignore[index]
    many = [edit_log.Edited(f"src/{number}.py", *repositories.values()) for number in range(5_000)]
    for agent_id in ("admin", "worker-b"):
        edit_log.append(str(services.path), agent_id, many, None)
    facts = {"hook_event_name": "PostToolUse", "tool_name": "Edit", "tool_input": {"file_path": str(tree / "a.txt")}}
    assert first_look.look_at_call(str(services.path), "worker-a", facts) == (True, True)


def test_where_reservations_are_enforced_an_edit_of_a_reserved_file_is_denied(
    services: Services, tmp_path: Path, reopened: Callable[..., Services]
) -> None:
    tree = repository(tmp_path / "project")
    services = reopened(reservations="enforce")
    services.agents.change("worker-a", name="Ada")
    made, _ = services.reservations.reserve(services.agents.get("worker-a"), ["src/"], reason="the login")
    answer = edited(services, "worker-b", tree / "src/app.py", event="PreToolUse")["hookSpecificOutput"]
    assert answer["permissionDecision"] == "deny"
    assert answer["permissionDecisionReason"].startswith("src/app.py was not edited: Ada (worker-a) has reserved src/")
    assert edited(services, "worker-a", tree / "src/app.py", event="PreToolUse") is None
    assert edited(services, "worker-b", tree / "docs/a.md", event="PreToolUse") is None
    services.reservations.release(services.agents.get("worker-a"), made.id)
    assert edited(services, "worker-b", tree / "src/app.py", event="PreToolUse") is None


def test_where_they_are_not_enforced_nothing_is_denied(services: Services, tmp_path: Path) -> None:
    services.reservations.reserve(services.agents.get("worker-a"), ["a.txt"])
    assert edited(services, "worker-b", repository(tmp_path / "project") / "a.txt", event="PreToolUse") is None


def test_edits_are_listed_with_the_files_that_several_edit(services: Services, tmp_path: Path) -> None:
    tree = repository(tmp_path / "project")
    running(services)
    running(services, assignee_id="worker-b")
    for agent_id, path in (("worker-a", "src/a.py"), ("worker-b", "src/a.py"), ("worker-b", "b.md")):
        edited(services, agent_id, tree / path)
    found = services.edits.recent()
    assert [(edit.agent_id, edit.path) for edit in found] == [
        ("worker-b", "b.md"),
        ("worker-b", "src/a.py"),
        ("worker-a", "src/a.py"),
    ]
    assert [edit.agent_id for edit in services.edits.recent("src")] == ["worker-b", "worker-a"]
    assert [(path, agents) for (path, _), agents in services.edits.shared(found).items()] == [
        ("src/a.py", ["worker-a", "worker-b"])
    ]


def test_an_edit_is_judged_by_the_file_that_it_reaches_however_it_is_spelled(
    services: Services, tmp_path: Path, reopened: Callable[..., Services], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = repository(tmp_path / "project")
    monkeypatch.chdir(tree)
    monkeypatch.setenv("HOME", str(tree))
    services = reopened(reservations="enforce")
    (tree / "src").mkdir()
    (tree / "src/a b.py").touch()
    (tree / "link.py").symlink_to("src/a b.py")
    services.reservations.reserve(services.agents.get("worker-a"), ["src/", "caf\u00e9.md", "app/[slug]/page.tsx"])
    spelled = ("link.py", f"file://{tree}/src/a%20b.py", "~/src/a b.py", "cafe\u0301.md", "app/[slug]/page.tsx")
    for path in (one if one.startswith(("file:", "~")) else tree / one for one in spelled):
        assert edited(services, "worker-b", path, event="PreToolUse") is not None, path
    assert edited(services, "worker-b", tree / "app/s/page.ts", event="PreToolUse") is None


def test_what_breaks_one_judge_leaves_the_others_and_an_interrupt(
    services: Services, tmp_path: Path, reopened: Callable[..., Services]
) -> None:
    tree = repository(tmp_path / "project")
    services = reopened(reservations="enforce")
    bad, good = (
        services.reservations.reserve(services.agents.get("worker-a"), [name])[0] for name in ("src/", "docs/")
    )
    services.reservations.kept.update(bad.id, lambda one: replace(one, patterns=("[!a-\\]z]", "*[z-a]")))
    assert edited(services, "worker-b", tree / "docs/a.md", event="PreToolUse") is not None
    assert edited(services, "worker-b", tree / "src/a.py", event="PreToolUse") is None
    found = [one for one in services.doctor(lambda _: None).examine() if one.subject == bad.id]
    assert [one.check for one in found] == ["reservations"] * 2
    assert good in services.reservations.conflicts_of(replace(good, agent_id="worker-b"))
    settings = Path(edit_log.directory(str(services.workspace.path))) / "hook.json"
    edited(services, "worker-b", tree / "src/a.py", event="PreToolUse")
    settings.write_text(settings.read_text().replace('"tools": {', '"tools": 1, "x": {'))
    services.interrupting.interrupt(services.agents.get("admin"), "worker-b", "pause", None, None)
    call = {"tool_name": "Edit", "tool_input": {"file_path": str(tree / "src/a.py")}, "cwd": "/"}
    answer = services.hooks.answer("worker-b", "task", Event("PreToolUse", facts=call))
    assert answer is not None
    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"
