"""The limits of a worker, tested with every tool and every argument over real stdio: it cannot speak as another agent,
read another's mail, change another's work, release the Owner's lock, raise its own role, or leave the session
directory."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from click.testing import CliRunner

from multi_agent_mcp.cli.main import app
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.pytest_plugin import MakeTeam
from multi_agent_mcp.server.tools import TOOLS
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.store.codec import codec
from tests.end_to_end.support import COMMAND, Agent, Team, eventually

pytestmark = pytest.mark.anyio

SECRET = "nobody-but-the-two-of-them"
IMPERSONATIONS = ("sender_id", "caller_id", "as", "by", "from", "created_by", "role", "root", "session", "purpose")
NAMES_NOBODY_HAS = ("../worker-b", "../../demo/ipc/worker-b", "/etc/passwd", "..", ".", "", "worker-b\x00", "wоrker-b")
HANDS_BACK_IDENTITY = {"logout", "authenticate"}


class Stage:
    """A team in which the other agents have secrets, and the files of theirs that must not change."""

    def __init__(self, team: Team) -> None:
        self.team = team
        services = team.services
        owner, admin, worker_b = (services.agents.get(name) for name in ("owner", "admin", "worker-b"))
        self.ids: list[str] = ["owner", "admin", "worker-b"]
        (own,) = services.task_creation.create(admin, [NewTask(title="mine", assignee_id="worker-a")])
        (other,) = services.task_creation.create(
            admin, [NewTask(title="theirs", description=SECRET, assignee_id="worker-b")]
        )
        talk, _ = services.conversations.begin(admin, worker_b, SECRET, purpose=SECRET)
        execution = services.executions.begin(services.sessions.open("worker-b", "task").record, other.id)
        services.executions.log(execution, SECRET)
        services.task_creation.send(owner, "admin", "whole", SECRET)
        self.ids += [other.id, talk.id, execution.id]
        self.ids += [message.id for name in ("admin", "worker-b") for message in team.mailbox(name)]
        self.own_task = own.id
        self.before = self.theirs()

    def theirs(self) -> dict[str, bytes]:
        """The files of others; the wait-lock and the registry too."""
        kinds = ("tasks/worker-b", "tasks/admin", "executions/worker-b", "owner_wait", "secrets")
        paths = [path for kind in kinds for path in (self.team.path / kind).rglob("*") if path.is_file()]
        paths += [path for path in self.mail() if self.sender(path) != "worker-a"]
        return {str(path): path.read_bytes() for path in paths}

    def roles(self) -> dict[str, tuple[str, str | None]]:
        return {key: (agent.role, agent.parent_id) for key, agent in self.team.services.agents.registry.all().items()}

    def mail(self) -> Iterator[Path]:
        for kind in ("ipc", "conversations"):
            for path in (self.team.path / kind).rglob("*.md"):
                if path.name != "conversation.md" and "worker-a" not in path.parts:
                    yield path

    def sender(self, path: Path) -> str:
        return codec(Message).decode(path.read_bytes()).sender_id


@pytest.fixture
def stage(team: Team) -> Stage:
    return Stage(team)


def filled(schema: dict[str, Any], stage: Stage) -> dict[str, Any]:
    """The minimal arguments that a tool accepts."""
    return {name: _value(name, schema["properties"][name], stage) for name in schema.get("required", ())}


def _value(name: str, spec: dict[str, Any], stage: Stage) -> Any:
    options = [spec, *spec.get("anyOf", ())]
    for option in options:
        if "enum" in option:
            return option["enum"][0]
    kind = next((option["type"] for option in options if option.get("type") not in (None, "null")), "string")
    if kind == "string":
        return {"task_id": stage.own_task, "requester_id": "admin"}.get(name, "worker-b" if "agent" in name else "x")
    return {"integer": 1, "number": 0, "boolean": True, "array": [], "object": {}}[kind]


def takes_text(spec: dict[str, Any]) -> bool:
    return any(option.get("type") == "string" and "enum" not in option for option in (spec, *spec.get("anyOf", ())))


def attempts(tools: dict[str, types.Tool], stage: Stage, purpose: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields calls of every tool the worker has, with each argument set to a value of another agent; those that it has
    for either purpose are given names that nobody has for one of them."""
    for name, tool in tools.items():
        if name in HANDS_BACK_IDENTITY:
            continue
        least = filled(tool.input_schema, stage)
        for argument, spec in tool.input_schema.get("properties", {}).items():
            if takes_text(spec):
                named = () if purpose == "chat" and "task" in TOOLS[name].purposes else NAMES_NOBODY_HAS
                for value in (*stage.ids, *named):
                    yield name, {**least, argument: value}


async def tried(agent: Agent, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    result = await agent.raw(tool, **arguments)
    answer = result.structured_content or {}
    assert SECRET not in json.dumps(answer, ensure_ascii=False), (tool, arguments)
    return answer


@pytest.mark.parametrize("purpose", ["task", "chat"])
async def test_no_argument_of_any_tool_reaches_what_belongs_to_others(stage: Stage, purpose: str) -> None:
    roles = stage.roles()
    outside = set(stage.team.base.iterdir())
    async with stage.team.server("worker-a", "--purpose", purpose) as worker:
        count = 0
        for tool, arguments in attempts(await worker.tools(), stage, purpose):
            await tried(worker, tool, arguments)
            count += 1
        assert count > 200
    assert stage.roles() == roles
    assert stage.theirs() == stage.before
    assert stage.team.services.owner_waits.of("owner") is not None
    assert {path for path in stage.team.base.iterdir() if not path.name.endswith(".stderr")} == outside
    services = stage.team.services
    written = [codec(Message).decode(path.read_bytes()) for path in stage.mail() if stage.sender(path) == "worker-a"]
    assert written  # it may speak, in its own name
    assert {services.signatures.verdict(message) for message in written} == {"signed"}


@pytest.mark.parametrize("purpose", ["task", "chat"])
async def test_no_tool_takes_a_caller_a_role_or_another_place(stage: Stage, purpose: str) -> None:
    async with stage.team.server("worker-a", "--purpose", purpose) as worker:
        for name, tool in (await worker.tools()).items():
            least = filled(tool.input_schema, stage)
            for argument in IMPERSONATIONS:
                if argument not in tool.input_schema.get("properties", {}):
                    answer = await tried(worker, name, {**least, argument: "owner"})
                    assert answer["error"] == "invalid_arguments", (name, argument)
    assert stage.theirs() == stage.before


async def test_a_worker_may_call_no_tool_of_its_superiors_whatever_it_is_given(stage: Stage) -> None:
    arguments = {"agent_id": "worker-a", "role": "owner", "parent_id": "owner", "task_id": stage.own_task}
    roles = stage.roles()
    async with stage.team.server("worker-a", "--purpose", "task") as worker:
        hidden = sorted(set(TOOLS) - set(await worker.tools()) - HANDS_BACK_IDENTITY)
        for name in hidden:
            answer = await tried(worker, name, arguments)
            assert answer["error"] in ("unauthorized", "wrong_session_purpose"), name
    assert "unlock_owner_wait" in hidden
    assert "register_agent_to_ipc" in hidden
    assert stage.roles() == roles
    assert stage.team.services.owner_waits.of("owner") is not None


async def test_a_workers_process_becomes_nobody_else_even_with_the_right_key(stage: Stage) -> None:
    async with stage.team.server("worker-a") as worker:
        key = stage.team.key("admin")
        assert await worker.refused("authenticate", agent_id="admin", passkey=key) == "invalid_session"
        await worker.call("logout")
        assert await worker.refused("authenticate", agent_id="admin", passkey=key) == "invalid_session"
        token = (await worker.call("authenticate", agent_id="worker-a", passkey=stage.team.key("worker-a")))["role"]
        assert token == "worker"


async def test_a_test_that_serves_an_agent_is_a_persons_and_decides(team: Team) -> None:
    async with team.server("worker-a") as worker:
        await worker.call("get_my_tasks")
        assert team.ask("agent", "add", "worker-z", "--parent", "admin")["agent_id"] == "worker-z"
        acting = team.run("agent", "add", "worker-y", "--json", env={"MULTI_AGENT_MCP_AGENT": "worker-a"})
        assert (acting.code, acting.json["error"]) == (1, "unauthorized")


HOST = """
unless (my $served = fork) { exec @ARGV[2..$#ARGV] }
select undef, undef, undef, 0.05 until -e $ARGV[0];
system $ARGV[1];
wait;
"""
"""A host in Perl: beside its agent's server it runs a shell's line when a file is there."""


async def test_what_an_agents_host_starts_decides_nothing(team: Team) -> None:
    go, said = team.base / "go", team.base / "said"
    command = shlex.join([*COMMAND, "agent", "add", "worker-z", "--json", "--root", str(team.root)])
    host = ("perl", "-e", HOST, str(go), f"{command} > {said}.new; mv {said}.new {said}")
    async with team.server("worker-a", starter=host) as worker:
        await worker.call("get_my_tasks")
        go.touch()
        await eventually(said.exists, "the host has run the command")
        assert json.loads(said.read_text())["error"] == "unauthorized"


def test_a_program_that_uses_team_is_a_persons_and_so_is_the_terminal_it_was_started_from(agent_team: MakeTeam) -> None:
    team = agent_team()
    team["worker-a"].get_my_tasks()
    done = CliRunner().invoke(app, ["agent", "add", "worker-z", "--root", str(team.path.parent)])
    assert done.exit_code == 0, done.output
