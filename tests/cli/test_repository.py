"""The commands for several agents in one repository."""

from __future__ import annotations

from pathlib import Path

from multi_agent_mcp.bootstrap import open_session
from tests.cli.conftest import Ask, Run


def test_files_are_reserved_listed_and_released(ask: Ask, run: Run) -> None:
    assert run("reservations").stdout == "No files are reserved.\n"
    made = ask("reserve", "src/", "*.md", "--reason", "release", "--minutes", "5")
    assert (made["agent_id"], made["patterns"], made["conflicts"]) == ("owner", ["src/", "*.md"], [])
    other = run("reserve", "README.md", "--as", "worker-a").stdout.splitlines()
    assert other[2] == "owner has reserved src/, *.md, too; both of you are told."
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
