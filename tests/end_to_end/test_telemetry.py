"""Traces from a call to everything that it causes, and spans for those who want them (docs/telemetry.md)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import yaml

from multi_agent_mcp import telemetry
from multi_agent_mcp.domain.agent import Execution
from multi_agent_mcp.domain.task import Task
from tests.end_to_end.support import PATIENCE_SECONDS, Agent, Team, eventually, wait_until

pytestmark = pytest.mark.anyio

TRACE, OTHER = "4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c"
PARENT, OTHER_PARENT = "00f067aa0ba902b7", "b7ad6b7169203331"
SECRET = "the-password-is-swordfish"


def traceparent(trace: str = TRACE, parent: str = PARENT, flags: str = "01") -> str:
    return f"00-{trace}-{parent}-{flags}"


async def called(agent: Agent, given: Any, tool: str, **arguments: Any) -> types.CallToolResult:
    """A call with this in its `_meta`."""
    meta: Any = {"traceparent": given}
    return await agent.client.call_tool(tool, arguments, meta=meta)


async def call(
    agent: Agent, tool: str, *, trace: str = TRACE, parent: str = PARENT, **arguments: Any
) -> dict[str, Any]:
    """A call in a trace."""
    answer = (await called(agent, traceparent(trace, parent), tool, **arguments)).structured_content
    assert answer is not None
    assert answer["success"], answer
    return dict(answer)


def setting(team: Team, **settings: Any) -> None:
    """Adds settings to session.yaml."""
    path = team.path / "session.yaml"
    known = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    path.write_text(yaml.safe_dump({**known, **settings}), encoding="utf-8")


def spans(file: Path) -> list[dict[str, Any]]:
    """The spans in a file of OTLP, one line each batch."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    batches = [scope for line in lines for found in json.loads(line)["resourceSpans"] for scope in found["scopeSpans"]]
    return [span for batch in batches for span in batch["spans"]]


def named(file: Path, name: str) -> list[dict[str, Any]]:
    return [span for span in spans(file) if span["name"] == name]


def facts(span: dict[str, Any]) -> dict[str, Any]:
    return {item["key"]: next(iter(item["value"].values())) for item in span["attributes"]}


async def test_the_trace_of_a_call_is_kept_in_what_it_causes_and_given_to_the_checks_that_it_starts(
    team: Team, tmp_path: Path
) -> None:
    setting(team, checks={"trace": {"run": 'printf %s "$TRACEPARENT" > trace.txt'}})
    subprocess.run(["git", "init", "-q", tmp_path / "work"], env=team.env, check=True)
    async with team.server("admin") as admin, team.server("worker-a", cwd=tmp_path / "work") as worker:
        sent = await call(admin, "send_task", agent_id="worker-a", title="t", content="c", done_when=["trace"])
        (message,) = team.mailbox("worker-a")
        task = team.services.workspace.tasks.get(sent["task_id"])
        assert message.traceparent == task.traceparent == traceparent()
        await call(worker, "get_next_action", trace=OTHER)
        await worker.call("read_messages")
        await call(worker, "get_next_action", trace=OTHER)
        (execution,) = team.services.executions.all("worker-a")
        assert execution.traceparent == traceparent(OTHER)
        await call(worker, "report_completed", parent=OTHER_PARENT, result="success")
        written = tmp_path / "work" / "trace.txt"
        assert await eventually(lambda: written.exists() and written.read_text(), "the check ran") == traceparent(
            parent=OTHER_PARENT
        )


async def test_what_is_no_trace_is_not_kept(team: Team) -> None:
    async with team.server("admin") as admin:
        for given in ("", "00-0-0-01", traceparent(trace="0" * 32), f"{traceparent()}\n", 7, {"a": 1}):
            await called(admin, given, "send_message", receiver_id="worker-a", content="x")
    kept = [(message.traceparent, "traceparent" in message.extra) for message in team.mailbox("worker-a")]
    assert kept == [(None, False)] * 6


def test_commands_and_notify_commands_belong_to_the_trace_of_their_environment(team: Team, tmp_path: Path) -> None:
    told = tmp_path / "told"
    setting(team, notify_command=["sh", "-c", f'printf %s "$TRACEPARENT" > {told}', "sh", "{line}"])
    ran = team.run("send", "owner", "hello", "--as", "admin", env={"TRACEPARENT": traceparent()})
    assert ran.code == 0, ran
    (message,) = team.mailbox("owner")
    assert message.traceparent == traceparent()
    assert wait_until(lambda: told.exists() and told.read_text(), "the owner's command ran") == traceparent()


async def test_calls_messages_executions_and_tasks_become_spans_without_any_content(team: Team) -> None:
    setting(team, telemetry={"file": "spans.jsonl"})
    file = team.path / "spans.jsonl"
    async with team.server("admin") as admin, team.server("worker-a") as worker:
        sent = await call(admin, "send_task", agent_id="worker-a", title=SECRET, content=SECRET)
        await worker.call("read_messages")
        await worker.call("get_next_action")
        await worker.call("report_completed", result="success", summary=SECRET)
        assert await worker.refused("get_message_status", message_id=SECRET) == "message_not_found"
        await eventually(lambda: named(file, "tools/call get_message_status"), "the last call is exported")
    (began,) = named(file, "tools/call send_task")
    assert (began["traceId"], began["parentSpanId"], began["kind"]) == (TRACE, PARENT, 2)
    assert facts(began)["multi_agent_mcp.agent.id"] == "admin"
    (message,) = [span for span in named(file, "send") if facts(span)["messaging.destination.name"] == "worker-a"]
    (task,) = named(file, "task")
    for caused in (message, task):
        assert (caused["traceId"], caused["parentSpanId"]) == (TRACE, began["spanId"])
    assert facts(task)["multi_agent_mcp.task.id"] == sent["task_id"]
    read = [span for span in named(file, "receive") if span["parentSpanId"] == message["spanId"]]
    assert [int(span["endTimeUnixNano"]) > int(span["startTimeUnixNano"]) for span in read] == [True]
    (execution,) = named(file, "execution")
    assert facts(execution)["multi_agent_mcp.status"] == "completed"
    (refused,) = named(file, "tools/call get_message_status")
    assert (facts(refused)["error.type"], refused["status"]["code"]) == ("message_not_found", 2)
    assert SECRET not in file.read_text(encoding="utf-8")
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_caller_that_records_nothing_gets_no_spans(team: Team) -> None:
    setting(team, telemetry={"file": "spans.jsonl"})
    async with team.server("admin") as admin:
        await called(admin, traceparent(flags="00"), "send_message", receiver_id="worker-a", content="x")
        await admin.call("get_unread_count")
        await eventually(lambda: spans(team.path / "spans.jsonl"), "the other call is exported")
    assert [span["name"] for span in spans(team.path / "spans.jsonl")] == ["tools/call get_unread_count"]
    assert [message.traceparent for message in team.mailbox("worker-a")] == [traceparent(flags="00")]


@pytest.mark.parametrize("where", ["full disk", "no such directory", "silent collector", "no collector"])
async def test_calls_go_on_whatever_becomes_of_their_spans(team: Team, where: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        destinations = {
            "full disk": {"file": "/dev/full"},
            "no such directory": {"file": "no/such/directory/spans.jsonl"},
            "silent collector": {"otlp": f"http://127.0.0.1:{silent.getsockname()[1]}"},
            "no collector": {"otlp": f"http://127.0.0.1:{closed.getsockname()[1]}"},
        }
        setting(team, telemetry=destinations[where])
        async with team.server("admin") as admin:
            for number in range(5):
                await admin.call("send_message", receiver_id="worker-a", content=str(number))
        assert team.run("send", "worker-a", "5", "--as", "admin").code == 0
    assert [message.content for message in team.mailbox("worker-a")] == [str(number) for number in range(6)]


async def test_a_collector_gets_the_spans_by_otlp(team: Team) -> None:
    with socket.create_server(("127.0.0.1", 0)) as collector:
        collector.settimeout(PATIENCE_SECONDS)
        setting(team, telemetry={"otlp": f"http://127.0.0.1:{collector.getsockname()[1]}"})
        async with team.server("admin") as admin:
            await admin.call("get_unread_count")
            line, _ = await eventually(collector.accept, "the server connects")
            with line:
                line.settimeout(PATIENCE_SECONDS)
                request = line.recv(1 << 16)
                line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert request.startswith(b"POST /v1/traces HTTP/1.1\r\n")
    assert b"application/x-protobuf" in request


def test_telemetry_that_is_off_imports_nothing(team: Team) -> None:
    """In a cold process: the warm one of other tests may have imported anything."""
    program = (
        "import sys; sys.argv[1:] = ['send', 'worker-a', 'x', '--as', 'admin']\n"
        "from multi_agent_mcp.__main__ import main\n"
        "import multi_agent_mcp.server.app, multi_agent_mcp.server.tools\n"
        "try: main()\n"
        "finally: print([name for name in sys.modules"
        " if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter', 'google', 'requests'))"
        f" or name == '{telemetry.__name__}.exporting'])\n"
    )
    environment = {**team.env, "MULTI_AGENT_MCP_ROOT": str(team.root)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        cwd=team.base,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert len(team.mailbox("worker-a")) == 1


@pytest.mark.parametrize(
    "given",
    ["spans.jsonl", {}, {"file": ""}, {"file": 7}, {"otlp": "localhost:4318"}, {"file": "a", "otlp": "http://b"}],
)
def test_a_destination_that_is_none_is_refused_in_one_sentence(team: Team, given: Any) -> None:
    setting(team, telemetry=given)
    ran = team.run("send", "worker-a", "x", "--as", "admin")
    assert ran.code != 0
    assert "telemetry" in ran.stderr


def test_headers_without_a_trace_have_no_key_for_it() -> None:
    assert "traceparent" in Task.LEFT_OUT & Execution.LEFT_OUT
