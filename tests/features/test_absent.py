"""The package without the folder of an optional feature: what it brings is nowhere, and the rest works as before
(docs/architecture.md, Optional folders)."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

import multi_agent_mcp
from multi_agent_mcp.features import Feature, Features
from multi_agent_mcp.features.ours import OURS
from multi_agent_mcp.server.tools import tools_of
from tests.cli.conftest import TEAM
from tests.end_to_end.conftest import anyio_backend, env, terminal  # noqa: F401 - fixtures
from tests.end_to_end.support import Ran, Terminal, run, wait_until
from tests.test_layers import OPTIONAL

PACKAGE = Path(multi_agent_mcp.__file__).parent
IN_A_PANE = TEAM.replace("parent: owner}", "parent: owner, host: plain, command: tee typed}")


class Copy:
    """A copy of the package in a directory of its own, and a project with a session."""

    def __init__(self, place: Path, without: tuple[str, ...]) -> None:
        self.place, self.project = place / "lib", place / "project"
        shutil.copytree(PACKAGE, self.place / "multi_agent_mcp")
        for folder in without:
            shutil.rmtree(self.place / "multi_agent_mcp" / folder)
        self.project.mkdir()
        (self.project / "team.yaml").write_text(IN_A_PANE, encoding="utf-8")

    @property
    def env(self) -> dict[str, str]:
        here = {"PYTHONPATH": str(self.place), "HOME": str(self.project), "LC_ALL": "C.UTF-8", "TERM": "dumb"}
        return {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **here}

    def run(self, *words: str, stdin: bytes = b"") -> Ran:
        command = [sys.executable, "-P", "-m", "multi_agent_mcp", *words]
        return run(command, env=self.env, cwd=self.project, stdin=stdin)

    def json(self, *words: str) -> dict[str, Any]:
        ran = self.run(*words, "--json")
        assert ran.code == 0, ran
        return ran.json

    @asynccontextmanager
    async def server(self, agent_id: str, *more: str) -> Any:
        root = self.project / ".multi-agent-mcp"
        words = ["-P", "-m", "multi_agent_mcp", "serve", "--agent", agent_id, "--root", str(root), *more]
        parameters = StdioServerParameters(command=sys.executable, args=words, env=self.env, cwd=self.project)
        async with Client(stdio_client(parameters)) as client:

            async def call(name: str, **arguments: Any) -> dict[str, Any]:
                answer: dict[str, Any] = (await client.call_tool(name, arguments)).structured_content
                return answer

            yield client, call


def of_folder(folder: str) -> tuple[Feature, ...]:
    records = vars(import_module(f"multi_agent_mcp.{folder}.feature")).values()
    return tuple(one for one in OURS if one in records or folder in one.requires)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "without", [*((folder,) for folder in OPTIONAL), OPTIONAL][: len(OPTIONAL) + (len(OPTIONAL) > 1)], ids="+".join
)
async def test_work_is_handed_down_stopped_and_reported_without_its_folder(
    tmp_path: Path,
    terminal: Terminal,  # noqa: F811
    without: tuple[str, ...],
) -> None:
    copy = Copy(tmp_path, without)
    gone = Features(tuple(feature for folder in without for feature in of_folder(folder)))
    unread = "".join(f"{key}: [nothing, reads, this]\n" for key, _ in gone.each("settings"))
    (copy.project / "team.yaml").write_text(IN_A_PANE + unread, encoding="utf-8")
    assert copy.run("init").code == 0
    opened = copy.run("up", "--socket", terminal.socket, "--no-wait", "--no-watch", "--no-supervisor", "admin")
    assert opened.code == 0, opened
    listed = copy.run("--help").stdout.split()
    assert not {name for name, _ in gone.each("commands")} & {*listed}
    for name in {name for name, _ in gone.each("commands")}:
        assert copy.run(name).code == 2, name
    for name, options in gone.each("options"):
        said = copy.run(*name.split(), "--help").stdout
        assert not [one for one in options if f"--{one.replace('_', '-')}" in said]
    async with AsyncExitStack() as stack:
        admin, of_admin = await stack.enter_async_context(copy.server("admin"))
        _, of_worker = await stack.enter_async_context(copy.server("worker-a"))
        names = {tool.name for tool in (await admin.list_tools()).tools}
        assert not names & tools_of(gone).keys()
        assert copy.run("send-task", "admin", "All", "build it").code == 0
        wait_until(lambda: "[IPC]" in (copy.project / "typed").read_text(encoding="utf-8"), "the line in the pane")
        (message,) = (await of_admin("read_messages"))["messages"]
        assert message["sender_id"] == "owner"
        created = await of_admin("create_tasks_batch", tasks=[{"title": "A part", "assignee_id": "worker-a"}])
        (part,) = [task["task_id"] for task in created["tasks"]]
        await of_worker("get_notifications")
        assert (await of_worker("get_next_action"))["task"]["task_id"] == part
        stopped = await of_admin("update_task_status", task_id=part, status="blocked", blocked_reason="wait")
        assert stopped["success"]
        event = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "git stash"}}
        denied = copy.run("hook", "--agent", "worker-a", "--host", "claude", stdin=json.dumps(event).encode())
        assert "deny" in denied.stdout, denied
        assert (await of_worker("get_notifications"))["notifications"][0]["type"] == "interrupt"
        assert (await of_worker("report_completed", result="blocked"))["action"] == "exit"
        await of_admin("update_task_status", task_id=part, status="todo")
        await of_worker("get_notifications")
        assert (await of_worker("get_next_action"))["action"] == "work"
        await of_worker("delegate_to_chat_session", target_agent_id="admin", purpose="ask for the colour")
        _, of_chat = await stack.enter_async_context(copy.server("worker-a", "--purpose", "chat"))
        (asked,) = (await of_chat("get_pending_delegations"))["delegations"]
        talk = await of_chat("start_conversation", target_agent_id="admin", initial_message="Which colour?")
        *_, message = (await of_admin("read_messages"))["messages"]
        assert (message["content"], asked["purpose"]) == ("Which colour?", "ask for the colour")
        await of_chat("notify_task_session", conversation_id=talk["conversation_id"], message="I asked")
        assert (await of_worker("get_notifications"))["notifications"][-1]["type"] == "chat_session_notification"
        assert (await of_chat("end_conversation", conversation_id=talk["conversation_id"]))["status"] == "ended"
        (told,) = (await of_worker("get_task_conversations", task_id=part))["conversations"]
        assert told["status"] == "ended"
        assert (await of_worker("report_completed", result="success", summary="built"))["status"] == "done"
        assert (await of_admin("send_message", receiver_id="owner", content="done"))["success"]
    assert copy.run("down").code == 0
    assert [one["content"] for one in copy.json("read")["messages"]] == ["done"]
    found = copy.json("doctor")["findings"]
    assert not {one["check"] for one in found} & {name for name, _ in gone.each("checks")}
    assert not [one for one in found if one["level"] == "problem"]
    assert copy.json("watch", "--once")["agents"]
    assert copy.run("attention").code == 0
