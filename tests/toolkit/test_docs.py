"""Every block of docs/python.md, as it is printed and in its order; and an agent of the examples."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from multi_agent_mcp import Team
from tests.programs import REPOSITORY, ran

BLOCKS = re.findall(r"^```python\n(.*?)^```$", (REPOSITORY / "docs" / "python.md").read_text("utf-8"), re.M | re.S)
NAMED = re.compile(r"# (\w+\.py)\n")


def test_the_programs_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = [block for block in BLOCKS if not NAMED.match(block)]
    assert len(programs) == 3
    monkeypatch.chdir(tmp_path)
    for program in programs:
        exec(compile(program, "python.md", "exec"), {"__name__": "__main__"})  # noqa: S102 - our own page


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    for block in BLOCKS:
        if named := NAMED.match(block):
            (tmp_path / named[1]).write_text(block)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'temporary'}")
    done = ran(*command, "-c", str(tmp_path / "pytest.ini"), str(tmp_path))
    assert "2 passed" in done.stdout, done.stdout


def test_a_scripted_worker_does_what_it_is_assigned_also_without_a_message(tmp_path: Path) -> None:
    with Team.create(tmp_path, {"owner": "owner", "admin": "admin", "worker-a": "worker"}) as team:
        tasks = [{"title": title, "assignee_id": "worker-a"} for title in ("one", "two")]
        made = team["owner"].create_tasks_batch(tasks)["tasks"]
        names = {"ROOT": team.path.parent, "SESSION": team.session, "AGENT": "worker-a"}
        environment = {**os.environ, **{f"MULTI_AGENT_MCP_{key}": str(value) for key, value in names.items()}}
        worker = (sys.executable, str(REPOSITORY / "examples" / "agents" / "worker.py"))
        done = subprocess.run(worker, env=environment, input="[IPC] New\n", text=True, capture_output=True, check=False)
        assert done.stdout.endswith("logged out\n"), (done.stdout, done.stderr)
        reports = [message["metadata"]["task_id"] for message in team["admin"].read_messages()["messages"]]
        assert {task["task_id"] for task in made} == set(reports)
