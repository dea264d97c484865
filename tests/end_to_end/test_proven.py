"""Done means proven, over real servers: checks that fail, that pass, that outlive their server; reviews."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.system.git import git
from tests.end_to_end.support import TEAM, Team, eventually

pytestmark = pytest.mark.anyio

CHECKS = """\
checks:
  tests: {{run: "sh {work}/check.sh", minutes: 1}}
  slow: {{run: "echo $$ > {work}/pid; cat {work}/pipe; env > {work}/env", minutes: 1}}
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    (place / "check.sh").write_text(f"test -e {place}/mended || {{ echo 'no test passes'; exit 1; }}\n")
    os.mkfifo(place / "pipe")
    return place


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The working directory of the worker; no git repository."""
    place = tmp_path / "tree"
    place.mkdir()
    return place


@pytest.fixture
def proven(bare: Team, work: Path) -> Team:
    return bare.make(TEAM + CHECKS.format(work=work))


def begun(team: Team, *conditions: str) -> str:
    added = ("task", "add", "Build", "--assignee", "worker-a", "--as", "admin", "--done-when", ",".join(conditions))
    return str(team.ask(*added)["task_id"])


def actions(answer: dict[str, Any]) -> list[str]:
    return [notice["action"] for notice in answer["notifications"]]


async def test_a_worker_learns_why_mends_it_is_reviewed_and_done(proven: Team, work: Path, tree: Path) -> None:
    task_id = begun(proven, "tests", "review")
    async with proven.server("worker-a", cwd=tree) as worker, proven.server("admin") as admin:
        assert (await worker.call("get_next_action"))["task"]["done_when"] == ["tests", "review"]
        failed = await worker.call("report_completed", result="success", summary="All tests pass.")
        assert (failed["check"], failed["failed_check"], failed["status"]) == ("failed", "tests", "in_progress")
        assert (failed["action"], "no test passes" in failed["last_lines"]) == ("work", True)
        assert await admin.refused("update_task_status", task_id=task_id, status="done") == "not_proven"
        (work / "mended").touch()
        passed = await worker.call("report_completed", result="success", summary="Now they do.")
        assert (passed["check"], passed["status"], passed["action"]) == ("passed", "review", "exit")
        assert actions(await admin.call("get_notifications")) == ["review_requested"]
        review = await admin.call("get_next_action")
        assert (review["action"], review["tasks"][0]["summary"]) == ("review", "Now they do.")
        rejected = await admin.call("approve_task_request", task_id=task_id, approve=False, reason="Not in git.")
        assert (rejected["approval_status"], rejected["status"]) == ("rejected", "in_progress")
        assert (await worker.call("report_completed", result="success", summary="And now."))["status"] == "review"
        await admin.call("approve_task_request", task_id=task_id, approve=True)
        await eventually(lambda: proven.ask("task", "show", task_id)["task"]["proof"] == "proven", "it is done")
        (report,) = (await admin.call("read_messages"))["messages"]
        shown = proven.ask("task", "show", task_id)["task"]
        assert (report["message_type"], report["metadata"]["proof"]) == ("task_complete", "proven")
        assert report["metadata"]["receipts"] == [shown["receipts"][-1]["id"]]
        assert [receipt["passed"] for receipt in shown["receipts"]] == [False, True]


async def test_a_check_ends_with_its_server_and_the_next_one_runs_it_again(
    proven: Team, work: Path, tree: Path
) -> None:
    task_id = begun(proven, "slow")
    pid = work / "pid"
    async with proven.server("worker-a", env={"MULTI_AGENT_MCP_NOTE": "x", "GIT_DIR": "/nowhere"}, cwd=tree) as worker:
        await worker.call("get_next_action")
        proven.services.deliveries.deliver(proven.services.agents.get("worker-a"), task_id, "ready")
        await eventually(pid.exists, "the check runs")
        assert (await worker.call("get_next_action"))["action"] == "wait"
        assert proven.services.checks.receipts_of(task_id) == []
        worker.kill()
        await eventually(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists(), "the check is killed")
    pid.unlink()
    async with proven.server("worker-a", cwd=tree) as worker:
        await eventually(pid.exists, "the check runs again")
        (work / "pipe").write_text("go on\n")
        await eventually(lambda: proven.ask("task", "show", task_id)["task"]["status"] == "done", "it is done")
        assert actions(await worker.call("get_notifications")) == ["check_passed"]
    assert not [line for line in (work / "env").read_text().splitlines() if re.search("PASSKEY|NOTE|GIT_DIR", line)]


async def test_checks_run_in_the_agents_worktree_and_their_receipt_names_its_commit(bare: Team) -> None:
    team = bare.make(f"{TEAM}checks: {{built: test -e built}}\n")
    for call in (["init", "-q", "-b", "main"], ["config", "user.name", "T"], ["config", "user.email", "t@example.org"]):
        git(team.base, *call)
    git(team.base, "commit", "-q", "--allow-empty", "-m", "first")
    tree = Path(team.ask("workspace", "add", "worker-a")["path"])
    (tree / "built").touch()
    for call in (["add", "built"], ["commit", "-q", "-m", "built"]):
        git(tree, *call)
    task_id = begun(team, "built")
    team.ask("task", "status", task_id, "in_progress", "--as", "worker-a")
    assert team.ask("task", "verify", task_id)["check"] == "passed", "nothing is built where this command runs"
    async with team.server("worker-a", cwd=tree) as worker:
        assert (await worker.call("report_completed", result="success", summary="Built."))["status"] == "done"
    heads = {receipt["head"] for receipt in team.ask("task", "show", task_id)["task"]["receipts"]}
    assert heads == {git(tree, "rev-parse", "HEAD")}
    assert not (team.base / "built").exists()


def test_a_person_lists_checks_verifies_and_overrules(proven: Team, work: Path) -> None:
    listed = proven.ask("checks")["checks"]
    assert [(check["name"], check["minutes"], check["found"]) for check in listed] == [
        ("tests", 1.0, True),
        ("slow", 1.0, None if listed[1]["program"] is None else True),
    ]
    task_id = begun(proven, "tests")
    proven.ask("task", "status", task_id, "in_progress", "--as", "worker-a")
    assert proven.run("task", "verify", task_id).code == 1
    assert proven.run("task", "status", task_id, "done", "--force").code == 1
    assert proven.ask("task", "status", task_id, "done", "--force", "--reason", "seen")["new_status"] == "done"
    assert proven.ask("task", "show", task_id)["task"]["proof"] == "overruled"
    (work / "mended").touch()
    assert proven.ask("task", "verify", task_id)["check"] == "passed"
