"""Tasks, notifications and interrupts over real stdio, with a real command line as the Owner
(docs/protocol.md, Tasks, Notifications, Interrupts)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from multi_agent_mcp.domain.agent import AgentSession, OwnerWait
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.server.calls import EXEMPT_FROM_INTERRUPTS
from multi_agent_mcp.server.tools import TOOLS
from multi_agent_mcp.services.questions import Asking
from tests.end_to_end.chat_support import (
    entities,
    interrupt_by_hand,
    interrupted,
    interrupts,
    new_task,
    shape,
    task_of,
    was_replaced,
)
from tests.end_to_end.support import NO_NOTICE, NOTICE, Agent, Team

pytestmark = pytest.mark.anyio

BLOCKED_ANSWER = {
    "success": True,
    "notifications": [
        {
            "id": "ntf_xxx",
            "type": "interrupt",
            "action": "blocked",
            "task_id": "tsk_xxx",
            "conversation_id": None,
            "message": "タスクのステータスがblockedに変更されました",
            "instruction": "作業を中断し、report_completedをresult='blocked'で呼び出してください",
            "created_at": "TIME",
        }
    ],
    "notification": "通知はありません",
}


def owner_moves(team: Team, task: Task, status: str) -> None:
    """Changes a status as the Owner's command does, without starting a process."""
    services = team.services
    services.task_changes.set_status(services.agents.get("owner"), task.id, status)


async def at_work(worker: Agent) -> str:
    """Hands the worker its task; returns the task's id."""
    action = await worker.call("get_next_action")
    assert action["action"] == "work", action
    return str(action["task"]["task_id"])


class TestUC010:
    """UC010: the Owner sets a running task to `blocked`, the agent stops."""

    @pytest.mark.parametrize("mode", ["auto", "legacy"])
    async def test_the_sequence_row_by_row_and_its_postconditions(self, team: Team, mode: str) -> None:
        task = new_task(team, "大きなリファクタリング")
        async with team.server("worker-a", mode=mode) as worker:
            assert await at_work(worker) == task.id
            assert task_of(team, task.id).status == "in_progress"
            # 1–3: the Owner's command; the status and the interrupt's record
            answer = team.ask("task", "status", task.id, "blocked", "--reason", "仕様を見直します")
            blocked = task_of(team, task.id)
            assert (answer["previous_status"], answer["new_status"]) == ("in_progress", "blocked")
            assert (blocked.status, blocked.blocked_reason, blocked.status_changed_by) == (
                "blocked",
                "仕様を見直します",
                "owner",
            )
            (notice,) = interrupts(team, "worker-a")
            assert (notice.id, notice.task_id, notice.read_at) == (answer["interrupt_id"], task.id, None)
            # 4, 5 and 6a: any tool, and every further one, until it is read
            await interrupted(worker, "get_my_tasks")
            await interrupted(worker, "report_task_progress", task_id=task.id, progress=50)
            await interrupted(worker, "report_completed", result="success")
            # 6, 7: the notification, and it is marked read
            told = await worker.call("get_notifications")
            assert told["notifications"][0].pop("reason") == "仕様を見直します"
            assert shape(told) == BLOCKED_ANSWER
            assert told["notifications"][0]["id"] == notice.id
            (notice,) = interrupts(team, "worker-a")
            assert notice.read_at is not None
            # 8–10: it stops and says so
            report = await worker.call("report_completed", result="blocked", summary="中断しました")
            assert report == {
                "success": True,
                "task_id": task.id,
                "status": "blocked",
                "action": "exit",
                "instruction": "このセッションのタスクは終わりました。ターンを終えて待機してください。"
                "新しい用件は [IPC] の行で知らされます。",
                "notification": NO_NOTICE,
            }
            # postconditions
            after = task_of(team, task.id)
            assert (after.status, after.completion_result, after.completion_summary) == (
                "blocked",
                "blocked",
                "中断しました",
            )
            assert after.blocked_reason == "仕様を見直します"
            (execution,) = (await worker.call("get_my_execution_history"))["executions"]
            assert (execution["status"], execution["exit_code"]) == ("failed", 1)
            assert (await worker.call("get_my_tasks"))["notification"] == NO_NOTICE
            assert (await worker.call("get_next_action"))["action"] == "exit"
        (mail,) = team.unread("admin")
        assert (mail.message_type, mail.metadata["result"], mail.content) == (
            "status_update",
            "blocked",
            "中断しました",
        )
        assert mail.subject == "owner がタスクのステータスをblockedに変更しました: 大きなリファクタリング"

    async def test_4a_an_agent_that_calls_nothing_is_told_at_its_next_call_whenever_that_is(self, team: Team) -> None:
        task = new_task(team)
        async with team.server("worker-a") as worker:
            await at_work(worker)
            owner_moves(team, task, "blocked")
            worker.kill()
            await worker.gone()
        async with team.server("worker-a") as worker:
            await interrupted(worker, "list_agents")
            (notice,) = (await worker.call("get_notifications"))["notifications"]
            assert notice["task_id"] == task.id
            assert (await worker.call("report_completed", result="blocked"))["task_id"] == task.id
        executions = team.services.workspace.executions.all("worker-a")
        assert [(item.status, item.exit_code) for item in executions] == [("failed", 1)]

    async def test_the_admin_blocks_by_its_tool_and_every_worker_on_a_part_of_it_stops(self, team: Team) -> None:
        whole = new_task(team, "whole", "admin", by="owner")
        parts = {agent_id: new_task(team, agent_id, agent_id, parent=whole.id) for agent_id in ("worker-a", "worker-b")}
        async with team.server("admin") as admin, team.server("worker-a") as a, team.server("worker-b") as b:
            for agent_id, worker in (("worker-a", a), ("worker-b", b)):
                assert await at_work(worker) == parts[agent_id].id
            moved = await admin.call("update_task_status", task_id=whole.id, status="blocked", blocked_reason="stop")
            assert (moved["previous_status"], moved["new_status"]) == ("todo", "blocked")
            for agent_id, worker in (("worker-a", a), ("worker-b", b)):
                await interrupted(worker, "list_agents")
                (notice,) = (await worker.call("get_notifications"))["notifications"]
                assert (notice["action"], notice["task_id"]) == ("blocked", parts[agent_id].id)
            assert (await admin.call("list_agents"))["notification"] == NO_NOTICE

    @pytest.mark.parametrize(
        ("action", "status", "message"),
        [
            ("cancel", "cancelled", "タスクのステータスがcancelledに変更されました"),
            ("pause", "in_progress", "一時停止が要求されました"),
            ("blocked", "blocked", "タスクのステータスがblockedに変更されました"),
        ],
    )
    async def test_the_interrupt_command(self, team: Team, action: str, status: str, message: str) -> None:
        task = new_task(team)
        async with team.server("worker-a") as worker:
            await at_work(worker)
            answer = team.ask("interrupt", "worker-a", "--action", action, "--reason", "later")
            assert (answer["action"], answer["task_id"]) == (action, task.id)
            assert task_of(team, task.id).status == status
            await interrupted(worker, "get_next_action", timeout_seconds=600)
            (notice,) = (await worker.call("get_notifications"))["notifications"]
            assert (notice["id"], notice["action"], notice["message"]) == (answer["notification_id"], action, message)
            assert notice["reason"] == "later"
            assert (await worker.call("list_agents"))["success"]

    async def test_a_pause_ends_with_the_resume_command(self, team: Team) -> None:
        task = new_task(team)
        async with team.server("worker-a") as worker:
            await at_work(worker)
            refused = team.run("resume", "worker-a", "--json")
            assert (refused.code, refused.json["error"]) == (1, "invalid_status_transition")
            assert team.run("resume", "nobody", "--json").json["error"] == "agent_not_found"
            team.ask("interrupt", "worker-a", "--action", "pause", "--reason", "昼休み")
            await interrupted(worker, "list_agents")
            assert (await worker.call("get_notifications"))["notifications"][0]["reason"] == "昼休み"
            resumed = team.ask("resume", "worker-a")
            assert (resumed["agent_id"], resumed["action"], resumed["task_id"]) == ("worker-a", "resume", task.id)
            assert (await worker.call("list_agents"))["notification"] == NOTICE
            (notice,) = (await worker.call("get_notifications"))["notifications"]
            assert (notice["id"], notice["action"], notice["message"]) == (
                resumed["notification_id"],
                "resume",
                "一時停止が解除されました",
            )
            assert "昼休み" in team.run("timeline").stdout

    async def test_reopening_takes_the_interrupt_back(self, team: Team) -> None:
        task = new_task(team)
        async with team.server("worker-a") as worker:
            await at_work(worker)
            owner_moves(team, task, "blocked")
            await interrupted(worker, "list_agents")
            owner_moves(team, task, "in_progress")
            assert (await worker.call("list_agents"))["notification"] == NOTICE  # no interrupt any more
            assert await at_work(worker) == task.id
            assert (await worker.call("get_notifications"))["notifications"] == []

    async def test_an_agent_that_has_stopped_is_told_that_its_task_was_reopened(self, team: Team) -> None:
        task = new_task(team)
        async with team.server("worker-a") as worker:
            await at_work(worker)
            owner_moves(team, task, "blocked")
            await interrupted(worker, "list_agents")
            await worker.call("get_notifications")
            await worker.call("report_completed", result="blocked")
            owner_moves(team, task, "in_progress")
            assert (await worker.call("list_agents"))["notification"] == NOTICE
            (notice,) = (await worker.call("get_notifications", mark_as_read=False))["notifications"]
            assert (notice["type"], notice["action"], notice["task_id"]) == ("status_change", "task_assigned", task.id)
            assert await at_work(worker) == task.id
            assert (await worker.call("get_notifications"))["notifications"] == []

    async def test_an_interrupt_whose_writer_was_killed_before_it_is_made_by_its_reader(self, team: Team) -> None:
        task = new_task(team)
        async with team.server("worker-a") as worker:
            await at_work(worker)
            owner_moves(team, task, "blocked")
            for path in (team.path / "notifications" / "worker-a").glob("*.md"):
                path.unlink()
        async with team.server("worker-a") as worker:
            await interrupted(worker, "list_agents")
            assert shape(await worker.call("get_notifications")) == BLOCKED_ANSWER


class TestSelfStatus:
    """The JSON of `get_my_tasks`, `get_my_execution_history`, `get_execution_log`."""

    @pytest.mark.parametrize("purpose", ["task", "chat"])
    async def test_the_documented_answers_to_the_letter_in_both_purposes(self, team: Team, purpose: str) -> None:
        done = new_task(team, "ダッシュボード実装", priority="high")
        async with team.server("worker-a", "--purpose", "task") as worker:
            assert await at_work(worker) == done.id
            await worker.call("list_agents")
            assert await worker.refused("send_message", receiver_id="nobody", content="secret") == "agent_not_found"
            await worker.call("report_completed", result="success")
        current = new_task(team, "ログイン画面修正")
        async with (
            team.server("worker-a", "--purpose", "task") as task,
            team.server("worker-a", "--purpose", purpose) as asking,
        ):
            assert await at_work(task) == current.id
            tasks = await asking.call("get_my_tasks", status="in_progress")
            assert shape(tasks) == {
                "success": True,
                "agent_id": "worker-a",
                "tasks": [
                    {
                        "task_id": "tsk_xxx",
                        "title": "ログイン画面修正",
                        "status": "in_progress",
                        "priority": "medium",
                        "created_at": "TIME",
                    }
                ],
                "total_count": 1,
                "instruction": "上記があなたに割り当てられたタスクです。",
                "notification": NO_NOTICE,
            }
            everything = await asking.call("get_my_tasks")
            assert [item["task_id"] for item in everything["tasks"]] == [current.id, done.id]
            history = await asking.call("get_my_execution_history")
            seconds = history["executions"][1].pop("duration_seconds")
            assert isinstance(seconds, float)
            assert shape(history) == {
                "success": True,
                "agent_id": "worker-a",
                "executions": [
                    {
                        "execution_id": "exec_xxx",
                        "task_id": "tsk_xxx",
                        "task_title": "ログイン画面修正",
                        "status": "running",
                        "started_at": "TIME",
                        "completed_at": None,
                        "duration_seconds": None,
                        "exit_code": None,
                        "has_log": True,
                    },
                    {
                        "execution_id": "exec_xxx",
                        "task_id": "tsk_xxx",
                        "task_title": "ダッシュボード実装",
                        "status": "completed",
                        "started_at": "TIME",
                        "completed_at": "TIME",
                        "exit_code": 0,
                        "has_log": True,
                    },
                ],
                "total_count": 2,
                "instruction": "ログ内容を確認するには get_execution_log(execution_id) を呼び出してください。",
                "notification": NO_NOTICE,
            }
            only = await asking.call("get_my_execution_history", task_id=done.id, status="completed", limit=1)
            execution_id = only["executions"][0]["execution_id"]
            await self.read_log(asking, execution_id, done)
        async with team.server("worker-b", "--purpose", purpose) as other:
            assert await other.refused("get_execution_log", execution_id=execution_id) == "unauthorized"
            assert await other.refused("get_execution_log", execution_id="exec_000000000000") == "execution_not_found"
            assert await other.refused("get_execution_log", execution_id="../x") == "invalid_id"
            assert (await other.call("get_my_execution_history"))["executions"] == []

    async def read_log(self, asking: Agent, execution_id: str, task: Task) -> None:
        log = await asking.call("get_execution_log", execution_id=execution_id)
        lines = [line.partition("] ")[2] for line in log.pop("log_content")]
        path = Path(log.pop("log_file_path"))
        assert path.is_absolute()
        assert path.read_text(encoding="utf-8").splitlines()[0].endswith(lines[0])
        assert log == {
            "success": True,
            "execution_id": execution_id,
            "task_id": task.id,
            "status": "completed",
            "total_lines": len(lines),
            "returned_lines": len(lines),
            "truncated": False,
            "instruction": "ログは以上です。",
            "notification": NO_NOTICE,
        }
        told = [line.partition(" (")[0] for line in lines]
        assert told[:3] == ["Starting task execution...", "Calling tool: get_next_action", "Tool result: success"]
        assert "Tool result: error agent_not_found" in told
        assert not any("secret" in line for line in lines)
        tail = await asking.call("get_execution_log", execution_id=execution_id, tail=2)
        assert (tail["returned_lines"], tail["total_lines"], tail["truncated"]) == (2, len(lines), True)
        assert [line.partition("] ")[2] for line in tail["log_content"]] == lines[-2:]
        assert tail["instruction"] == "ログが切り詰められています。offset を指定して続きを取得できます。"
        rest = await asking.call("get_execution_log", execution_id=execution_id, offset=3)
        assert [line.partition("] ")[2] for line in rest["log_content"]] == lines[3:]
        assert (rest["truncated"], rest["instruction"]) == (False, "ログは以上です。")
        both = await asking.refused("get_execution_log", execution_id=execution_id, tail=2, offset=3)
        assert both == "invalid_arguments"

    async def test_notifications_that_do_not_fit_are_told_next_time(self, team: Team) -> None:
        async with team.server("worker-a") as worker:
            for number in range(12):
                created = f"2026-01-01T00:00:{number:02}Z"
                team.notify("worker-a", f"n{number}.md", type="message", message="x" * 1000, created_at=created)
            seen: list[str] = []
            while (answer := await worker.call("get_notifications"))["notifications"]:
                seen += [item["id"] for item in answer["notifications"]]
                assert answer["notification"] == (NO_NOTICE if len(seen) == 12 else NOTICE)
            assert seen == [f"n{number}" for number in reversed(range(12))]


async def _prepared(team: Team) -> dict[tuple[str, str], list[tuple[str, dict[str, Any]]]]:
    """For each agent and purpose, calls that would each change something."""
    services = team.services
    admin, worker = (services.agents.get(name) for name in ("admin", "worker-a"))
    mine, other, free = (new_task(team, title, "admin", by="owner") for title in ("mine", "other", "free"))
    services.task_changes.start(admin, mine.id)
    request, _ = services.task_creation.request(worker, _request())
    conversation, _ = services.conversations.begin(worker, admin, "hello")
    mail = team.send("admin", sender="owner")
    assert mail["success"]
    bound = AgentSession(id="ses_000000000000", agent_id="admin", task_id=mine.id)
    services.delegations.delegate(admin, bound, "worker-b", "talk", None)
    services.owner_waits.begin(OwnerWait(owner_id="owner", admin_id="admin", task_id=mine.id, message_id="-"))
    question = services.questions.ask(worker, Asking(question="Which?"), None)
    services.reservations.reserve(admin, ["docs/"])
    return {
        ("admin", "task"): [
            ("get_next_action", {}),
            ("send_message", {"receiver_id": "worker-a", "content": "x"}),
            ("send_task", {"agent_id": "worker-b", "title": "t", "content": "c"}),
            ("register_agent_to_ipc", {"agent_id": "newcomer"}),
            ("report_task_progress", {"task_id": mine.id, "progress": 5}),
            ("report_task_completion", {"task_id": other.id, "status": "completed", "message": "m"}),
            ("create_tasks_batch", {"tasks": [{"title": "t"}]}),
            ("assign_task", {"task_id": free.id, "assignee_id": "worker-b"}),
            ("update_task_status", {"task_id": other.id, "status": "blocked"}),
            ("request_task", {"title": "t"}),
            ("approve_task_request", {"task_id": request.id, "approve": True}),
            ("delegate_to_chat_session", {"target_agent_id": "worker-b", "purpose": "p"}),
            ("ask", {"question": "Why?"}),
            ("answer_question", {"question_id": question.id, "answer": "a"}),
            ("hand_off", {"content": "so far"}),
            ("reserve_files", {"paths": ["src/"]}),
            ("release_files", {}),
            ("read_messages", {}),
            ("report_completed", {"result": "success"}),
        ],
        ("admin", "chat"): [
            ("get_pending_delegations", {}),
            ("start_conversation", {"target_agent_id": "worker-b", "initial_message": "hi"}),
            ("update_task_from_chat", {"task_id": other.id, "requester_id": "owner", "title": "new"}),
            ("start_task_from_chat", {"task_id": other.id, "requester_id": "owner"}),
            ("notify_task_session", {"conversation_id": conversation.id}),
            ("end_conversation", {"conversation_id": conversation.id}),
        ],
        ("owner", "task"): [("unlock_owner_wait", {"reason": "r"})],
    }


def _request() -> Any:
    from multi_agent_mcp.services.tasks.board import NewTask

    return NewTask(title="please")


class TestMiddleware:
    """docs/protocol.md, Interrupts: a replaced call had no effect, or says that it had."""

    async def test_no_tool_that_writes_has_an_effect_when_it_is_replaced_before_it_ran(self, team: Team) -> None:
        calls = await _prepared(team)
        covered = {tool for listed in calls.values() for tool, _ in listed}
        writing = {tool.name for tool in TOOLS.values() if not tool.read_only} - EXEMPT_FROM_INTERRUPTS
        assert covered == writing
        async with AsyncExitStack() as stack:
            servers = {
                (agent_id, purpose): await stack.enter_async_context(team.server(agent_id, "--purpose", purpose))
                for agent_id, purpose in calls
            }
            for agent_id in ("admin", "owner"):
                interrupt_by_hand(team, agent_id)
            before = entities(team)
            for post, listed in calls.items():
                for tool, arguments in listed:
                    await interrupted(servers[post], tool, **arguments)
                    assert entities(team) == before, tool
            for agent_id in ("admin", "owner"):
                told = (await servers[agent_id, "task"].call("get_notifications"))["notifications"]
                assert [notice["type"] for notice in told].count("interrupt") == 1
            for post in (("admin", "chat"), ("admin", "task"), ("owner", "task")):
                for tool, arguments in calls[post]:
                    before = entities(team)
                    await servers[post].call(tool, **arguments)
                    if tool == "get_next_action":  # it hands out what had been begun
                        continue
                    assert entities(team) != before, f"{tool} would have changed nothing anyway"

    async def test_an_interrupt_that_comes_meanwhile_replaces_the_answer_says_so_and_gives_the_mail_back(
        self, team: Team
    ) -> None:
        async with team.server("worker-a") as worker:
            services = team.services
            mailbox = services.workspace.mailbox("worker-a")
            for attempt in range(50):
                team.post("worker-a", f"for you {attempt}")
                result = await self._interrupted_while_reading(team, worker, mailbox.lock)
                if was_replaced(result, executed=True):
                    break
                assert was_replaced(result, executed=False)  # it came before the call had begun: once more
                await worker.call("get_notifications")
            else:
                raise AssertionError("the interrupt never came while the call was under way")
            assert len(team.unread("worker-a")) == attempt + 1
            await interrupted(worker, "read_messages")
            await worker.call("get_notifications")
            read = await worker.call("read_messages")
            assert len(read["messages"]) == attempt + 1

    async def _interrupted_while_reading(self, team: Team, worker: Agent, lock: str) -> Any:
        """`read_messages` waits for its mailbox until the interrupt is there."""
        results: list[Any] = []

        async def read() -> None:
            results.append(await worker.raw("read_messages"))

        async with anyio.create_task_group() as group:
            with team.services.workspace.locks.held(lock):
                group.start_soon(read)
                await worker.call("list_agents")  # sent after it, answered while it waits
                interrupt_by_hand(team, "worker-a", "meanwhile.md")
        return results[0]


class TestWaiting:
    """`get_next_action(timeout_seconds)`."""

    async def answered(self, worker: Agent, event: Callable[[], object]) -> Any:
        """The answer of a waiting call, and that it waited until the event."""
        answers: list[Any] = []

        async def wait() -> None:
            answers.append(await worker.raw("get_next_action", timeout_seconds=600))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                await worker.call("list_agents")
                assert answers == []
                await anyio.to_thread.run_sync(event)
        return answers[0]

    async def test_work_mail_an_approval_and_an_interrupt_end_it(self, team: Team) -> None:
        async with team.server("worker-a") as worker:
            first = await self.answered(worker, lambda: team.post("worker-a", "hello"))
            assert first.structured_content["action"] == "read_messages"
            await worker.call("read_messages")
            stopped = await self.answered(worker, lambda: team.ask("interrupt", "worker-a", "--action", "pause"))
            assert was_replaced(stopped, executed=True) or was_replaced(stopped, executed=False)
            team.ask("resume", "worker-a")
            await worker.call("get_notifications")
            requested = await worker.call("request_task", title="mine")
            approved = await self.answered(worker, lambda: team.decide("task", "approve", requested["task_id"]))
            assert approved.structured_content["action"] in ("work", "read_messages")
            await worker.call("read_messages")
            assert await at_work(worker) == requested["task_id"]
            await worker.call("report_completed", result="success")

    async def test_a_dependency_that_another_agent_finishes_ends_it(self, team: Team) -> None:
        first = new_task(team, "first", "worker-b")
        second = new_task(team, "second", dependencies=(first.id,))
        async with team.server("worker-a") as worker:
            services = team.services
            services.task_changes.start(services.agents.get("worker-b"), first.id)

            def finish() -> None:
                services.task_changes.set_status(services.agents.get("worker-b"), first.id, "done")

            answer = await self.answered(worker, finish)
            assert answer.structured_content["task"]["task_id"] == second.id

    async def test_nothing_comes_and_it_says_so(self, team: Team) -> None:
        async with team.server("worker-a") as worker:
            answer = await worker.call("get_next_action", timeout_seconds=0.2)
            assert answer["action"] == "wait"
            for bad in (-1, 601, "soon"):
                assert await worker.refused("get_next_action", timeout_seconds=bad) == "invalid_arguments"

    @pytest.mark.parametrize("mode", ["auto", "legacy"])
    async def test_a_waiting_call_that_is_aborted_keeps_the_server_neither_busy_nor_alive(
        self, team: Team, mode: str
    ) -> None:
        async def wait(worker: Agent) -> None:
            with suppress(MCPError):  # the connection is closed
                await worker.raw("get_next_action", timeout_seconds=600)

        async with anyio.create_task_group() as outliving:
            async with team.server("worker-a", mode=mode) as worker:
                async with anyio.create_task_group() as group:
                    group.start_soon(wait, worker)
                    await worker.call("list_agents")
                    group.cancel_scope.cancel()
                await worker.call("list_agents")
                outliving.start_soon(wait, worker)
                await worker.call("list_agents")
            await worker.gone()
        (session,) = team.services.workspace.sessions.all("worker-a")
        assert session.state == "ended"


def test_the_owner_does_everything_from_the_command_line(team: Team) -> None:
    first = team.ask("task", "add", "Build", "--assignee", "worker-a", "--priority", "high", "--description", "four")
    second = team.ask("task", "add", "Paint", "--depends-on", first["task_id"], "--parent", first["task_id"])
    assert (first["status"], second["status"]) == ("todo", "backlog")
    assert team.ask("task", "assign", second["task_id"], "worker-b")["previous_assignee_id"] is None
    listed = team.ask("task", "list")
    assert [item["title"] for item in listed["tasks"]] == ["Build", "Paint"]
    assert team.ask("task", "list", "--status", "backlog", "--assignee", "worker-b")["total_count"] == 1
    table = team.run("task", "list").stdout.splitlines()
    assert table[0].split() == ["タスク", "状態", "経過", "優先度", "担当", "進捗", "タイトル"]
    assert first["task_id"] in table[1]
    assert team.ask("task", "show", second["task_id"])["task"]["dependencies"] == [first["task_id"]]
    shown = team.run("task", "show", first["task_id"]).stdout
    assert all(text in shown for text in ("four", "owner: ", "status"))
    for command, code in (
        (("task", "status", first["task_id"], "done"), "invalid_status_transition"),
        (("interrupt", "worker-a", "--as", "worker-b"), "unauthorized"),
        (("log", "exec_000000000000"), "execution_not_found"),
    ):
        ran = team.run(*command, "--json")
        assert (ran.code, ran.json["error"]) == (1, code), command
    ran = team.run("interrupt", "worker-a", "--action", "dance", "--json")
    assert (ran.code, ran.json["error"]) == (2, "invalid_arguments")
    stopped = team.run("interrupt", "worker-a", "--task", first["task_id"], "--action", "cancel")
    assert (stopped.code, first["task_id"] in stopped.stdout) == (0, True)


async def test_what_an_agent_did_is_read_on_the_command_line(team: Team) -> None:
    new_task(team)
    async with team.server("worker-a") as worker:
        await at_work(worker)
    (execution,) = team.ask("log", "--agent", "worker-a")["executions"]
    assert execution["status"] == "failed"
    log = team.ask("log", execution["id"], "--tail", "2")
    assert len(log["log_content"]) == 2
    assert team.run("log", execution["id"]).stdout.splitlines()[-2:] == log["log_content"]
    assert execution["id"] in team.run("log").stdout
