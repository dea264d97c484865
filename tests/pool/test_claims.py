"""Claiming tasks that nobody has (docs/protocol.md, Whoever is free)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from multi_agent_mcp import Refused
from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.cli.main import app
from multi_agent_mcp.domain.agent import ROLES, Agent
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.pool.claims import lacking_skills
from multi_agent_mcp.pytest_plugin import MakeTeam
from multi_agent_mcp.server.tools import TOOLS, tools_for, tools_of
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.texts import catalogue
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.planned import planned
from tests.pool.conftest import SeatOf
from tests.server.seat import Seat

PROCESSES, TASKS = 16, 200
BUDGET_BYTES = 12_288


def made(services: Services, by: Agent, title: str = "part", **fields: object) -> Task:
    (task,) = services.task_creation.create(by, [NewTask(title=title, **fields)])  # type: ignore[arg-type]
    return task


def test_the_most_urgent_task_of_a_superior_is_claimed_and_waits_to_be_begun(
    pooled: Services, seat: SeatOf, owner: Agent, admin: Agent
) -> None:
    made(pooled, admin, "later")
    urgent = made(pooled, owner, "first", priority="urgent")
    answer = seat("worker-a").call("claim_task")
    assert (answer["success"], answer["task_id"], answer["status"]) == (True, urgent.id, "todo")
    task = pooled.workspace.tasks.get(urgent.id)
    assert (task.status, task.assignee_id, task.given_by) == ("todo", "worker-a", "owner")
    assert pooled.derived_notices.waiting("worker-a") == []
    assert seat("worker-a").call("get_next_action")["task"]["task_id"] == urgent.id


def test_what_somebody_has_is_not_claimed_again_and_nothing_to_claim_is_no_error(agent_team: MakeTeam) -> None:
    team = agent_team(pool="on")
    (task_id,) = planned(team, "part", assignee_id=None)
    assert team["worker-a"].claim_task(task_id)["task_id"] == task_id
    for agent_id in ("worker-b", "worker-a"):
        with pytest.raises(Refused, match="already_exists"):
            team[agent_id].claim_task(task_id)
    nothing = team["worker-b"].claim_task()
    assert (nothing["success"], nothing["task_id"]) == (True, None)
    assert [task["task_id"] for task in team["worker-a"].get_my_tasks()["tasks"]] == [task_id]


def test_only_what_a_superior_has_made_and_what_can_be_begun_is_claimed(
    pooled: Services, seat: SeatOf, owner: Agent, admin: Agent, worker_a: Agent
) -> None:
    first = made(pooled, admin, "first")
    behind = made(pooled, admin, "behind", dependencies=[first.id], priority="urgent")
    own = made(pooled, worker_a, "own", priority="urgent")
    for task, code in ((behind, "invalid_status_transition"), (own, "unauthorized")):
        assert seat("worker-b").call("claim_task", task_id=task.id)["error"] == code
    assert seat("admin").call("claim_task", task_id=first.id)["error"] == "unauthorized"
    pooled.task_changes.set_status(admin, made(pooled, admin, priority="urgent").id, "cancelled")
    reviewed = made(pooled, owner, done_when=["review:admin"], priority="low")
    assert seat("admin").call("claim_task", task_id=reviewed.id)["error"] == "invalid_arguments"
    assert seat("worker-b").call("claim_task")["task_id"] == first.id
    assert seat("admin").call("claim_task")["task_id"] is None
    assert seat("worker-a").call("claim_task", task_id=reviewed.id)["success"]


def test_a_task_is_claimed_by_whoever_has_the_skills_that_it_needs(agent_team: MakeTeam) -> None:
    agents = [{"id": name, "role": name.partition("-")[0]} for name in ("owner", "admin", "worker-a", "worker-b")]
    team = agent_team([*agents[:3], {**agents[3], "skills": ["UI", "python"]}], pool="on")
    (task_id,) = planned(team, "screen", assignee_id=None, needs=["ui", "ui"])
    assert "needs:\n- ui\n" in next(team.path.glob(f"tasks/*/{task_id}.md")).read_text().replace("  - ", "- ")
    assert team["worker-a"].get_next_action()["action"] == "wait"
    with pytest.raises(Refused, match="unauthorized"):
        team["worker-a"].claim_task(task_id)
    assert team["worker-b"].claim_task()["task_id"] == task_id
    for needs in (["  "], ["a\nb"], ["x" * 65]):
        with pytest.raises(Refused, match="invalid_arguments"):
            planned(team, "x", assignee_id=None, needs=needs)


def test_a_worker_with_nothing_to_do_is_offered_what_it_could_claim(agent_team: MakeTeam) -> None:
    team = agent_team(pool="on")
    worker, (task_id,) = team["worker-a"], planned(team, "part", assignee_id=None)
    offered = worker.get_next_action()
    assert (offered["action"], offered["task_id"], offered["task"]["title"]) == ("claim", task_id, "part")
    assert task_id in offered["instruction"]
    assert team["admin"].get_next_action()["action"] == "wait"
    planned(team, "mine")
    worker.get_notifications()
    assert worker.get_next_action()["action"] == "work"
    assert worker.report_completed("success")["instruction"] == catalogue("en")("next.exit.more")


def test_its_tools_are_listed_where_there_is_a_pool_within_the_budget(services: Services, pooled: Services) -> None:
    assert not {"claim_task", "notify_when"} & TOOLS.keys()
    assert "claim_task" not in tools_of(services.session.features)
    tools = tools_of(pooled.session.features)
    for role in ROLES:
        for purpose in ("task", "chat"):
            listed = [
                tool.described().model_dump(by_alias=True, exclude_none=True, mode="json")
                for tool in tools_for(tools, role, purpose)
            ]
            assert (
                len(json.dumps({"tools": listed}, ensure_ascii=False, separators=(",", ":")).encode()) <= BUDGET_BYTES
            )
            names = {tool["name"] for tool in listed}
            assert ("claim_task" in names) == (role != "owner" and purpose == "task")


def test_without_a_pool_nothing_is_offered(services: Services, admin: Agent) -> None:
    made(services, admin)
    assert services.contributions.next_action(services.agents.get("worker-a"), "task", before_work=False) is None


def test_what_names_the_tool_is_withdrawn_when_the_pool_is_switched_off(
    pooled: Services, seat: SeatOf, admin: Agent
) -> None:
    seat("worker-a")
    made(pooled, admin)
    assert [notice.action for notice in pooled.derived_notices.waiting("worker-a")] == ["task_claimable"]
    path = pooled.path / "session.yaml"
    path.write_text(path.read_text().replace("pool: 'on'", "pool: 'off'"))
    off = open_session(pooled.root, "demo", notifier=Recorder())
    assert Seat(off, "worker-a").call("get_notifications")["notifications"] == []
    assert off.workspace.notices("worker-a").unread() == []


def test_sixteen_processes_that_claim_two_hundred_tasks_have_two_hundred_winners(
    pooled: Services, admin: Agent, root: Path
) -> None:
    with pooled.workspace.files.in_bulk(durable=False):
        tasks = pooled.task_creation.create(admin, [NewTask(title=f"part {number}") for number in range(TASKS)])
    command = [sys.executable, "-m", "tests.pool.claimer", str(root), str(PROCESSES)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    won = [line.split() for line in ran.stdout.splitlines()]
    assert sorted(task_id for _, task_id in won) == sorted(task.id for task in tasks)
    assert {pooled.workspace.tasks.get(task_id).assignee_id == agent_id for agent_id, task_id in won} == {True}


def test_one_idle_worker_is_rung_for_a_task_and_the_next_only_if_nobody_takes_it(
    pooled: Services, seat: SeatOf, admin: Agent, clock: Clock
) -> None:
    def told() -> dict[str, list[str | None]]:
        return {
            name: [one.task_id for one in pooled.derived_notices.waiting(name) if one.action == "task_claimable"]
            for name in ("worker-a", "worker-b")
        }

    seat("worker-a"), seat("worker-b")
    first = made(pooled, admin)
    assert told() == {"worker-a": [first.id], "worker-b": []}
    second = made(pooled, admin, needs=["ui"])
    pooled.agents.registry.update("worker-b", skills=["ui"])
    pooled.claim_rings.look()
    assert told() == {"worker-a": [first.id], "worker-b": [second.id]}
    assert seat("worker-b").call("claim_task", task_id=first.id)["success"]
    assert told()["worker-a"] == []
    third = made(pooled, admin)
    assert told() == {"worker-a": [third.id], "worker-b": [second.id]}
    seat("worker-b").call("get_notifications"), seat("worker-b").call("get_next_action")
    assert seat("worker-b").call("report_completed", result="success")["instruction"] == pooled.texts("next.exit.more")
    assert told()["worker-b"] == []
    seat("worker-a").call("get_notifications")
    for seconds, rung in ((119, []), (2, [third.id])):
        clock.advance(seconds)
        pooled.claim_rings.look()
        assert told() == {"worker-a": [], "worker-b": rung}
    clock.advance(500)
    pooled.claim_rings.look()
    assert told() == {"worker-a": [], "worker-b": [third.id]}


def test_people_name_the_skills_of_an_agent_by_command(services: Services, admin: Agent) -> None:
    run, root = CliRunner(), ["--root", str(services.root), "--json"]
    added = run.invoke(app, ["agent", "add", "carl", "--parent", "admin", "--skills", "python, ui", *root])
    assert json.loads(added.output)["skills"] == ["python", "ui"], added.output
    (task,) = services.task_creation.create(admin, [NewTask(title="page", needs=["ui", "css"])])
    assert lacking_skills(services.agents.get("carl"), task) == ["css"]
    changed = run.invoke(app, ["agent", "set", "carl", "--skills", "css,UI", *root])
    assert json.loads(changed.output)["skills"] == ["css", "UI"]
    assert lacking_skills(services.agents.get("carl"), task) == []
    listed = json.loads(run.invoke(app, ["agent", "list", *root]).output)["agents"]
    assert [one["skills"] for one in listed if "skills" in one] == [["css", "UI"]]
    assert run.invoke(app, ["agent", "set", "carl", "--skills", "a,,b", *root]).exit_code == 1
    assert json.loads(run.invoke(app, ["agent", "set", "carl", "--skills", "", *root]).output)["skills"] == []
    assert "--skills" in run.invoke(app, ["agent", "set", "--help"]).output
