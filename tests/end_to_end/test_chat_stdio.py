"""Two sessions of one mind over real stdio: delegation, conversations, tasks from a chat
(docs/protocol.md, Delegation, Conversations, Chat-session operations)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from multi_agent_mcp.services.team.setup import TeamFile, add_missing, create_session
from multi_agent_mcp.texts import catalogue
from tests.end_to_end.chat_support import interrupted, new_task, shape, task_of
from tests.end_to_end.support import NO_NOTICE, NOTICE, Agent, Team, Terminal, eventually, line
from tests.end_to_end.test_tools import MAY_CALL

pytestmark = pytest.mark.anyio

SEED_TEAM = """\
session: demo
agents:
  - {id: owner, role: owner, type: human}
  - {id: manager-dev, role: admin, parent: owner, name: Manager}
  - {id: worker-frontend-01, role: worker, parent: manager-dev, name: Worker Frontend 01}
  - {id: worker-qa-01, role: worker, parent: owner}
"""
WORDS = ["りんご", "ごりら", "らっぱ", "ぱんだ", "だちょう", "うさぎ"]
WORDS += ["ぎんこう", "うま", "まつり", "りす", "すいか", "かもめ"]
CHECK = """あなたのチャットセッションからの通知です。

【重要】この通知は、あなた自身が別のセッション（チャットセッション）から
送信したものです。チャットの内容を確認してください。

確認方法:
get_conversation_messages(conversation_id: "cnv_xxx") を呼び出してください。"""
DELEGATED = """会話を worker-b（AI）に移譲しました。確認方法：get_task_conversations()

【確認頻度】
タスク内に他の作業があれば、作業を進めつつ区切りで確認してください。
他の作業がなければ、確認の頻度を上げてください。
相手はAIのため、人間より応答が速い傾向があります。

【中断判断】
相手のタイプ、会話の進捗状況、応答の見込みを考慮して判断してください。
見込みがないと判断したら、タスクを blocked に変更し理由を記録して退出。"""


@pytest.fixture
def managed_team(bare: Team) -> Team:
    """An Owner, Managers and Workers, and one agent of another session directory."""
    made = bare.make(SEED_TEAM)
    stranger = Team(made.base, made.env, session="elsewhere")
    create_session(made.root, "elsewhere", TeamFile(agents=()), None)
    owner = made.services.agents.get("owner")
    add_missing(stranger.services.agents, TeamFile(agents=(type(owner)(id="stranger", role="owner"),)))
    return made


async def heard(agent: Agent) -> dict[str, Any]:
    """The one message that waits for an agent."""
    (message,) = (await agent.call("read_messages"))["messages"]
    assert isinstance(message, dict)
    return message


async def handed_out(agent: Agent) -> str:
    """The task a task session is handed."""
    return str((await agent.call("get_next_action"))["task"]["task_id"])


async def delegated(team: Team, task_session: Agent) -> str:
    new_task(team, "しりとり")
    await handed_out(task_session)
    answer = await task_session.call("delegate_to_chat_session", target_agent_id="worker-b", purpose="しりとり6往復")
    return str(answer["delegation_id"])


class TestUC020:
    """UC020: "shiritori, six rounds with worker-b" between real server processes."""

    async def test_a_conversation_of_twelve_messages_is_delegated_and_awaited(self, team: Team) -> None:
        task = new_task(team, "worker-bとしりとり")
        async with (
            team.server("worker-a", "--purpose", "task") as task_session,
            team.server("worker-a", "--purpose", "chat") as chat,
            team.server("worker-b", "--purpose", "chat") as partner,
        ):
            assert await handed_out(task_session) == task.id
            answer = await task_session.call(
                "delegate_to_chat_session",
                target_agent_id="worker-b",
                purpose="6往復しりとりを行う",
                context="ひらがなで",
            )
            assert shape(answer) == {
                "success": True,
                "delegation_id": "dlg_xxx",
                "instruction": DELEGATED,
                "notification": NO_NOTICE,
            }
            await self.waits(task_session, "pending", 0)
            conversation_id = await self.begins(chat, answer["delegation_id"], task.id)
            await self.waits(task_session, "pending", 1)
            await self.plays(chat, partner, conversation_id, task_session)
            ended = await self.waits(task_session, "ended", 12)
            assert [message["content"] for message in ended["messages"]] == WORDS
            assert (await chat.call("get_next_action"))["action"] == "exit"
            done = await task_session.call("report_completed", result="success", summary="しりとり完了: 12語")
            assert (done["status"], done["action"]) == ("done", "exit")
        assert task_of(team, task.id).status == "done"
        assert team.unread("admin")[0].content == "しりとり完了: 12語"

    async def begins(self, chat: Agent, delegation_id: str, task_id: str) -> str:
        """The chat session is handed the delegation and begins the conversation."""
        action = await chat.call("get_next_action")
        assert (action["action"], action["delegation"]["delegation_id"]) == ("process_delegation", delegation_id)
        pending = await chat.call("get_pending_delegations")
        assert shape(pending) == {
            "success": True,
            "delegations": [
                {
                    "delegation_id": "dlg_xxx",
                    "target_agent_id": "worker-b",
                    "purpose": "6往復しりとりを行う",
                    "context": "ひらがなで",
                    "task_id": "tsk_xxx",
                    "created_at": "TIME",
                }
            ],
            "notification": NO_NOTICE,
        }
        started = await chat.call("start_conversation", target_agent_id="worker-b", initial_message=WORDS[0])
        assert shape(started) == {
            "success": True,
            "conversation_id": "cnv_xxx",
            "status": "pending",
            "task_id": "tsk_xxx",
            "message_id": "msg_xxx",
            "notification": NO_NOTICE,
        }
        assert started["task_id"] == task_id
        again = {"target_agent_id": "worker-b", "initial_message": "x", "delegation_id": delegation_id}
        assert await chat.refused("start_conversation", **again) == "already_exists"
        return str(started["conversation_id"])

    async def plays(self, chat: Agent, partner: Agent, conversation_id: str, task_session: Agent) -> None:
        request = await partner.call("get_next_action")
        assert (request["action"], request["conversation_id"], request["initiator_id"]) == (
            "conversation_request",
            conversation_id,
            "worker-a",
        )
        players = (partner, chat)
        for number, word in enumerate(WORDS[1:-1]):
            me = players[number % 2]
            message = await heard(me)
            assert (message["content"], message["message_type"], message["metadata"]) == (
                WORDS[number],
                "conversation",
                {"conversation_id": conversation_id},
            )
            await me.call("send_message", conversation_id=conversation_id, content=word)
            if number == 4:
                await self.waits(task_session, "active", 6)
            assert (await players[(number + 1) % 2].call("get_next_action"))["action"] == "conversation_message"
        assert (await heard(partner))["content"] == WORDS[-2]
        ended = await partner.call("end_conversation", conversation_id=conversation_id, final_message=WORDS[-1])
        assert shape(ended) == {
            "success": True,
            "conversation_id": "cnv_xxx",
            "status": "ended",
            "instruction": catalogue("ja")("next.chat.exit"),
            "notification": NO_NOTICE,
        }
        told = await chat.call("get_next_action")
        assert (told["action"], told["conversation_ids"]) == ("conversation_ended", [conversation_id])
        assert (await heard(chat))["metadata"] == {"conversation_id": conversation_id, "ended": True}

    async def waits(self, task_session: Agent, status: str, count: int) -> dict[str, Any]:
        """`get_task_conversations` in the documented words."""
        answer = await task_session.call("get_task_conversations")
        answer.pop("unread_messages", None)  # the mailbox is the agent's, whichever of its sessions is meant
        (conversation,) = answer["conversations"]
        assert isinstance(conversation, dict)
        messages = [
            {
                "id": "msg_xxx",
                "sender_id": ("worker-a", "worker-b")[number % 2],
                "content": WORDS[number],
                "created_at": "TIME",
                "authority": ("self", "colleague")[number % 2],
            }
            for number in range(count)
        ]
        assert shape(answer) == {
            "success": True,
            "task_id": "tsk_xxx",
            "conversations": [
                {
                    "conversation_id": "cnv_xxx" if count else None,
                    "status": status,
                    "target_agent_id": "worker-b",
                    "purpose": "6往復しりとりを行う",
                    "message_count": count,
                    "messages": messages,
                    "started_at": "TIME" if count else None,
                    "ended_at": "TIME" if status == "ended" else None,
                }
            ],
            "total_conversations": 1,
            "notification": NO_NOTICE,
        }
        return conversation


class TestDeath:
    """The chat session dies at each step of a delegation; somebody else goes on from there."""

    async def died(self, chat: Agent) -> None:
        chat.kill()
        await chat.gone()

    async def nothing(self, chat: Agent) -> None:
        """It never called a tool."""

    async def takes(self, chat: Agent) -> None:
        assert len((await chat.call("get_pending_delegations"))["delegations"]) == 1

    async def is_handed_it(self, chat: Agent) -> None:
        assert (await chat.call("get_next_action"))["action"] == "process_delegation"

    @pytest.mark.parametrize("step", ["nothing", "takes", "is_handed_it"])
    async def test_before_it_began_the_delegation_is_offered_again(self, team: Team, step: str) -> None:
        async with team.server("worker-a", "--purpose", "task") as task_session:
            delegation_id = await delegated(team, task_session)
            async with team.server("worker-a", "--purpose", "chat") as chat:
                steps: dict[str, Callable[[Agent], Awaitable[None]]] = {
                    "nothing": self.nothing,
                    "takes": self.takes,
                    "is_handed_it": self.is_handed_it,
                }
                await steps[step](chat)
                await self.died(chat)
            (waiting,) = (await task_session.call("get_task_conversations"))["conversations"]
            assert (waiting["conversation_id"], waiting["status"]) == (None, "pending")
            async with team.server("worker-a", "--purpose", "chat") as chat:
                action = await chat.call("get_next_action")
                assert action["delegation"]["delegation_id"] == delegation_id
                await chat.call("start_conversation", target_agent_id="worker-b", initial_message="りんご")
            (begun,) = (await task_session.call("get_task_conversations"))["conversations"]
            assert begun["message_count"] == 1

    async def test_after_it_began_the_next_one_goes_on_with_the_conversation(self, team: Team) -> None:
        async with (
            team.server("worker-a", "--purpose", "task") as task_session,
            team.server("worker-b", "--purpose", "chat") as partner,
        ):
            await delegated(team, task_session)
            async with team.server("worker-a", "--purpose", "chat") as chat:
                started = await chat.call("start_conversation", target_agent_id="worker-b", initial_message="りんご")
                await self.died(chat)
            conversation_id = started["conversation_id"]
            assert (await heard(partner))["content"] == "りんご"
            await partner.call("send_message", conversation_id=conversation_id, content="ごりら")
            async with team.server("worker-a", "--purpose", "chat") as chat:
                assert (await chat.call("get_next_action"))["action"] == "conversation_message"
                assert (await heard(chat))["content"] == "ごりら"
                await self.died(chat)  # before it confirmed: the word comes again
            async with team.server("worker-a", "--purpose", "chat") as chat:
                assert (await chat.call("get_next_action"))["conversation_ids"] == [conversation_id]
                assert (await heard(chat))["content"] == "ごりら"
                await chat.call("end_conversation", conversation_id=conversation_id)
            (ended,) = (await task_session.call("get_task_conversations"))["conversations"]
            assert (ended["status"], ended["message_count"]) == ("ended", 2)

    async def test_two_chat_sessions_share_nothing_they_carry_out(self, team: Team) -> None:
        async with (
            team.server("worker-a", "--purpose", "task") as task_session,
            team.server("worker-a", "--purpose", "chat") as first,
            team.server("worker-a", "--purpose", "chat") as second,
        ):
            delegation_id = await delegated(team, task_session)
            await self.takes(first)
            assert (await second.call("get_pending_delegations"))["delegations"] == []
            wanted = {"target_agent_id": "worker-b", "initial_message": "x", "delegation_id": delegation_id}
            assert await second.refused("start_conversation", **wanted) == "already_exists"
            assert (await first.call("start_conversation", **wanted))["status"] == "pending"


class TestTasksFromChat:
    """Chat-session operations: every JSON answer and every error."""

    async def test_a_manager_has_a_task_started_and_changed_by_word_of_mouth(self, managed_team: Team) -> None:
        task = new_task(managed_team, "ダッシュボード実装", "worker-frontend-01", by="manager-dev")
        async with (
            managed_team.server("manager-dev", "--purpose", "chat") as manager,
            managed_team.server("worker-frontend-01", "--purpose", "chat") as worker,
        ):
            words = {"target_agent_id": "worker-frontend-01", "initial_message": "このタスクを開始してください"}
            conversation_id = (await manager.call("start_conversation", **words))["conversation_id"]
            await heard(worker)
            started = await worker.call("start_task_from_chat", task_id=task.id, requester_id="manager-dev")
            assert started == {
                "success": True,
                "task_id": task.id,
                "previous_status": "todo",
                "new_status": "in_progress",
                "requester_id": "manager-dev",
                "instruction": "タスクを開始しました。チャットセッションを終了し、"
                "タスクセッションで作業を開始してください。",
                "notification": NO_NOTICE,
            }
            updated = await manager.call(
                "update_task_from_chat",
                task_id=task.id,
                requester_id="owner",
                description="新しい要件...",
                priority="high",
            )
            assert updated == {
                "success": True,
                "task_id": task.id,
                "updated_fields": ["description", "priority"],
                "requester_id": "owner",
                "instruction": "タスクを更新しました。",
                "notification": NO_NOTICE,
            }
        after = task_of(managed_team, task.id)
        assert (after.status, after.description, after.priority) == ("in_progress", "新しい要件...", "high")
        assert after.started_from_conversation_id == conversation_id
        assert [entry.get("requester_id") for entry in after.history[1:]] == ["manager-dev", "owner"]
        audit = sorted((managed_team.path / "audit").glob("*.jsonl"))[-1].read_text(encoding="utf-8")
        entries = [entry for entry in map(json.loads, audit.splitlines()) if "requester_id" in entry]
        assert [(item["tool"], item["agent_id"], item["requester_id"], item.get("mismatch")) for item in entries] == [
            ("start_task_from_chat", "worker-frontend-01", "manager-dev", None),
            ("update_task_from_chat", "manager-dev", "owner", True),
        ]
        assert [item["last_sender_id"] for item in entries] == ["manager-dev", None]
        async with managed_team.server("worker-frontend-01") as worker:
            assert await handed_out(worker) == task.id

    async def test_a_task_is_made_discussed_and_started_in_this_order(self, managed_team: Team) -> None:
        async with (
            managed_team.server("manager-dev", "--purpose", "task") as planning,
            managed_team.server("manager-dev", "--purpose", "chat") as manager,
            managed_team.server("worker-frontend-01", "--purpose", "task") as working,
            managed_team.server("worker-frontend-01", "--purpose", "chat") as worker,
        ):
            plan = new_task(managed_team, "計画", "manager-dev", by="owner")
            assert await handed_out(planning) == plan.id
            (made,) = (await planning.call("create_tasks_batch", tasks=[{"title": "ダッシュボード"}]))["tasks"]
            task_id = made["task_id"]
            await planning.call("assign_task", task_id=task_id, assignee_id="worker-frontend-01")
            words = {"target_agent_id": "worker-frontend-01", "purpose": "詳細説明"}
            await planning.call("delegate_to_chat_session", **words)
            order = (await manager.call("get_next_action"))["delegation"]
            said = {"target_agent_id": "worker-frontend-01", "initial_message": "このタスクを開始してください"}
            await manager.call("start_conversation", **said, delegation_id=order["delegation_id"])
            assert (await working.call("get_next_action"))["action"] == "wait", "in the backlog it is nobody's turn"
            await heard(worker)
            await planning.call("update_task_status", task_id=task_id, status="todo")
            asked = {"task_id": task_id, "requester_id": "manager-dev"}
            started = await worker.call("start_task_from_chat", **asked)
            assert (started["previous_status"], started["new_status"]) == ("todo", "in_progress")
            assert await handed_out(working) == task_id
            again = await worker.call("start_task_from_chat", **asked)
            assert (again["previous_status"], again["new_status"]) == ("in_progress", "in_progress")
            assert (await working.call("get_my_tasks"))["notification"] == NO_NOTICE

    @pytest.mark.parametrize("released", [False, True], ids=["UC1", "the basic flow"])
    async def test_a_held_task_is_explained_and_then_started_from_the_chat_beside_an_idle_task_session(
        self, managed_team: Team, released: bool
    ) -> None:
        """Document 003: UC1, and the basic flow, whose second step moves the task to todo."""
        worker_id = "worker-frontend-01"
        async with (
            managed_team.server("manager-dev", "--purpose", "task") as planning,
            managed_team.server("manager-dev", "--purpose", "chat") as manager,
            managed_team.server(worker_id, "--purpose", "task") as working,
            managed_team.server(worker_id, "--purpose", "chat") as worker,
        ):
            held = [{"title": "ダッシュボード", "assignee_id": worker_id, "status": "backlog"}]
            (made,) = (await planning.call("create_tasks_batch", tasks=held))["tasks"]
            assert made["status"] == "backlog"
            asked = {"task_id": made["task_id"], "requester_id": "manager-dev"}
            assert await worker.refused("start_task_from_chat", **asked) == "invalid_status_transition"
            assert (await working.call("get_next_action"))["action"] == "wait", "it is held"
            if released:
                await planning.call("assign_task", task_id=made["task_id"], assignee_id=worker_id)
                await planning.call("update_task_status", task_id=made["task_id"], status="todo")
            await planning.call("delegate_to_chat_session", target_agent_id=worker_id, purpose="詳細説明")
            order = (await manager.call("get_next_action"))["delegation"]
            said = {"target_agent_id": worker_id, "initial_message": "このタスクを開始してください"}
            await manager.call("start_conversation", **said, delegation_id=order["delegation_id"])
            await heard(worker)
            started = await worker.call("start_task_from_chat", **asked)
            before = "todo" if released else "backlog"
            assert (started["previous_status"], started["new_status"]) == (before, "in_progress")
            await worker.call("logout")
            assert await handed_out(working) == made["task_id"]
            assert (await working.call("report_completed", result="success"))["status"] == "done"


class TestTellingTheTaskSession:
    """Chat notifications: `notify_task_session`, `_chat_notification`, `get_conversation_messages`."""

    async def test_the_documented_flow_with_its_json_to_the_letter(self, managed_team: Team) -> None:
        task = new_task(managed_team, "タスクX", "worker-frontend-01", by="manager-dev")
        async with (
            managed_team.server("manager-dev", "--purpose", "chat") as manager,
            managed_team.server("worker-frontend-01", "--purpose", "chat") as chat,
            managed_team.server("worker-frontend-01", "--purpose", "task") as worker,
        ):
            await handed_out(worker)
            order = {
                "target_agent_id": "worker-frontend-01",
                "initial_message": "今すぐタスクXの仕様を変更してください",
            }
            conversation_id = (await manager.call("start_conversation", **order))["conversation_id"]
            await heard(chat)
            answer = "承知しました。詳細を確認します。"
            await chat.call("send_message", conversation_id=conversation_id, content=answer)
            urgent = "Manager から緊急の仕様変更指示があります"
            told = await chat.call(
                "notify_task_session", conversation_id=conversation_id, message=urgent, related_task_id=task.id
            )
            assert shape(told) == {
                "success": True,
                "notification_id": "ntf_xxx",
                "target_agent_id": "worker-frontend-01",
                "conversation_id": "cnv_xxx",
                "type": "chat_session_notification",
                "instruction": "タスクセッションに通知を送信しました。次回のツール呼び出し時に通知が届きます。",
                "notification": NO_NOTICE,
            }
            beside = await worker.call("get_my_tasks")
            assert beside["notification"] == NOTICE
            assert shape(beside["_chat_notification"]) == {
                "conversation_id": "cnv_xxx",
                "message": urgent,
                "instruction": CHECK,
                "from": "self_chat_session",
                "related_task_id": "tsk_xxx",
            }
            (notice,) = (await worker.call("get_notifications"))["notifications"]
            assert (notice["type"], notice["action"], notice["conversation_id"]) == (
                "chat_session_notification",
                "check_chat",
                conversation_id,
            )
            assert "_chat_notification" not in await worker.call("get_my_tasks")
            await self.reads(worker, conversation_id, answer)
            high = await chat.call("notify_task_session", conversation_id=conversation_id, priority="high")
            assert high["type"] == "interrupt"
            await interrupted(worker, "get_my_tasks")
            (notice,) = (await worker.call("get_notifications"))["notifications"]
            assert (notice["type"], notice["action"], shape(notice["instruction"])) == (
                "interrupt",
                "check_chat",
                CHECK,
            )

    async def reads(self, worker: Agent, conversation_id: str, answer: str) -> None:
        read = await worker.call("get_conversation_messages", conversation_id=conversation_id)
        assert shape(read) == {
            "success": True,
            "conversation_id": "cnv_xxx",
            "messages": [
                {
                    "id": "msg_xxx",
                    "sender_id": "manager-dev",
                    "sender_name": "Manager",
                    "content": "今すぐタスクXの仕様を変更してください",
                    "created_at": "TIME",
                    "authority": "superior",
                },
                {
                    "id": "msg_xxx",
                    "sender_id": "worker-frontend-01",
                    "sender_name": "Worker Frontend 01",
                    "content": answer,
                    "created_at": "TIME",
                    "authority": "self",
                },
            ],
            "total_count": 2,
            "instruction": "上記のメッセージを確認し、必要に応じて対応してください。",
            "notification": NO_NOTICE,
        }
        newest = await worker.call("get_conversation_messages", conversation_id=conversation_id, limit=1)
        assert [item["content"] for item in newest["messages"]] == [answer]
        assert newest["total_count"] == 2
        for limit in (0, -1, 100_000):
            wrong = {"conversation_id": conversation_id, "limit": limit}
            assert await worker.refused("get_conversation_messages", **wrong) == "invalid_arguments"


async def test_a_task_and_a_chat_session_of_one_agent_live_side_by_side_with_the_tools_of_their_purpose(
    team: Team,
) -> None:
    async with (
        team.server("admin", "--purpose", "task") as task_session,
        team.server("admin", "--purpose", "chat") as chat,
    ):
        for purpose, agent in (("task", task_session), ("chat", chat)):
            offered = {name for name, (roles, purposes) in MAY_CALL.items() if "admin" in roles and purpose in purposes}
            assert set(await agent.tools()) == offered
        for name, (roles, purposes) in MAY_CALL.items():
            if "admin" in roles and purposes == {"task"}:
                answer = await chat.answer(name)
                assert (answer["error"], answer["message"]) == (
                    "wrong_session_purpose",
                    f"ツール {name} は task セッション専用です（現在は chat セッション）。",
                )
            if "admin" in roles and purposes == {"chat"}:
                assert await task_session.refused(name) == "wrong_session_purpose"
        listed = {item["id"]: item["alive"] for item in (await chat.call("list_agents"))["agents"]}
        assert listed["admin"]
        rows = team.ask("sessions")["sessions"]
        assert {(row["agent_id"], row["purpose"], row["alive"]) for row in rows} == {
            ("admin", "task", True),
            ("admin", "chat", True),
        }
        assert not any("token_hash" in row for row in rows)


async def test_the_purpose_of_a_session_is_chosen_by_what_waits(team: Team) -> None:
    services = team.services
    worker = services.agents.get("worker-a")
    task = new_task(team)
    services.task_changes.start(worker, task.id)
    services.conversations.begin(services.agents.get("worker-b"), worker, "hello")
    async with team.server(None) as first, team.server(None) as second, team.server(None) as third:
        chosen = []
        for agent in (first, second, third):
            answer = await agent.call("authenticate", agent_id="worker-a", passkey=team.key("worker-a"))
            chosen.append((answer["purpose"], answer["task_id"]))
        assert chosen == [("task", task.id), ("chat", None), ("task", task.id)]


async def test_conversations_are_listed_and_shown_on_the_command_line(team: Team) -> None:
    services = team.services
    worker, other = (services.agents.get(name) for name in ("worker-a", "worker-b"))
    conversation, _ = services.conversations.begin(worker, other, "りんご", purpose="しりとり")
    (listed,) = team.ask("conversations")["conversations"]
    assert (listed["id"], listed["status"], listed["message_count"]) == (conversation.id, "pending", 1)
    shown = team.ask("conversations", conversation.id)
    assert [message["content"] for message in shown["messages"]] == ["りんご"]
    table = team.run("conversations").stdout
    assert conversation.id in table
    assert "worker-a ↔ worker-b" in table
    assert team.run("conversations", "cnv_000000000000", "--json").json["error"] == "conversation_not_found"


async def test_a_person_answers_an_agents_question_at_the_command_line_and_ends_the_conversation(team: Team) -> None:
    task = new_task(team, assignee_id="admin", by="owner")
    services = team.services
    services.task_changes.start(services.agents.get("admin"), task.id)
    async with (
        team.server("admin", "--purpose", "task") as task_session,
        team.server("admin", "--purpose", "chat") as chat,
    ):
        await task_session.call("delegate_to_chat_session", target_agent_id="owner", purpose="storage")
        started = await chat.call("start_conversation", target_agent_id="owner", initial_message="Which database?")
        talk = started["conversation_id"]

        async def seen() -> tuple[str, list[tuple[str, str]]]:
            (shown,) = (await task_session.call("get_task_conversations"))["conversations"]
            assert (shown["conversation_id"], shown["message_count"]) == (talk, len(shown["messages"]))
            return shown["status"], [(message["sender_id"], message["content"]) for message in shown["messages"]]

        assert await seen() == ("pending", [("admin", "Which database?")])
        (question,) = team.ask("read")["messages"]
        assert (await seen())[0] == "active"
        team.ask("reply", question["id"], "Postgres.")
        assert await seen() == ("active", [("admin", "Which database?"), ("owner", "Postgres.")])
        shown = await task_session.call("get_conversation_messages", conversation_id=talk)
        assert not any("verified" in message for message in shown["messages"])
        (answer,) = (await chat.call("read_messages"))["messages"]
        assert answer["metadata"] == {"conversation_id": talk, "in_reply_to": question["id"]}
        team.ask("end", talk, "Good luck.")
        assert (await seen())[0] == "ended"
        assert await chat.refused("end_conversation", conversation_id=talk) == "conversation_not_active"


async def test_a_task_sent_at_the_command_line_makes_the_owners_server_wait_until_unlocked(team: Team) -> None:
    async with team.server("owner") as owner:
        sent = team.ask("send-task", "admin", "Build", "the house")
        assert sent["waiting"] is True
        assert await owner.refused("get_dashboard") == "owner_waiting"
        assert team.ask("wait", "end")["waiting_before"] is True
        assert (await owner.call("get_dashboard"))["dashboard"]["tasks"][0]["task_id"] == sent["task_id"]


@pytest.mark.tmux
async def test_words_of_a_conversation_ring_in_the_chat_sessions_pane_other_mail_in_the_task_sessions(
    team: Team, terminal: Terminal
) -> None:
    task_pane = terminal.pane(starts=True)
    chat_pane = terminal.pane(starts=True)
    async with (
        team.server("worker-a", "--purpose", "task", inside=task_pane),
        team.server("worker-b", "--purpose", "chat") as partner,
    ):
        registry = team.services.workspace.registry
        await eventually(lambda: registry.get("worker-a").pane_id == task_pane.id, "the task session's pane is known")
        async with team.server("worker-a", "--purpose", "chat", inside=chat_pane) as chat:
            words = {"target_agent_id": "worker-a", "initial_message": "りんご"}
            await partner.call("start_conversation", **words)
            await eventually(lambda: chat_pane.lines == [line("worker-b", "conversation")], "the chat session is rung")
            team.send("worker-a", "something else")
            await eventually(lambda: task_pane.lines == [line()], "the task session is rung")
            assert chat_pane.lines == [line("worker-b", "conversation")]
            assert registry.get("worker-a").pane_id == task_pane.id
            await chat.call("read_messages")
        await partner.call("start_conversation", **words)
        await eventually(
            lambda: task_pane.lines == [line(), line("worker-b", "conversation")],
            "without a chat session it rings here",
        )
        assert len(chat_pane.lines) == 1
