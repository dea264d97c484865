"""Several processes in one session directory (docs/protocol.md, Files)."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import anyio
import pytest

from multi_agent_mcp.domain.entity import EPOCH
from multi_agent_mcp.services.validation import Draft
from tests.end_to_end.processes import is_whole
from tests.end_to_end.support import Agent, Team, eventually, eventually_answers, outcome, workers
from tests.web.support import Guest

SENDERS = 8
EACH = 40
UPDATERS = 6
UPDATES = 20


def test_eight_processes_send_into_one_mailbox_and_no_message_is_lost_or_doubled(team: Team) -> None:
    senders = ["owner", "admin", "worker-b", *(f"sender-{number}" for number in range(SENDERS - 3))]
    for sender in senders[3:]:
        team.ask("agent", "add", sender, "--parent", "admin")
    jobs = [("send", str(team.root), team.session, sender, "worker-a", str(EACH)) for sender in senders]
    with workers(team, jobs) as running:
        acknowledged = [message_id for process in running for message_id in outcome(process)]
    stored = team.mailbox("worker-a")
    assert len(acknowledged) == SENDERS * EACH
    assert Counter(message.id for message in stored) == Counter(acknowledged)
    assert all(is_whole(message.content) for message in stored)
    assert Counter(message.sender_id for message in stored) == dict.fromkeys(senders, EACH)
    assert len({message.content for message in stored}) == SENDERS * EACH
    assert team.ask("unread", "worker-a")["unread_count"] == SENDERS * EACH


def test_the_diary_of_a_mailbox_nobody_reads_notes_each_deferral_once(team: Team) -> None:
    with workers(team, [("send", str(team.root), team.session, "admin", "worker-a", "50")]) as (process,):
        sent = outcome(process)
    log = (team.path / ".doorbell" / "worker-a.jsonl").read_text(encoding="utf-8")
    assert {message_id: log.count(message_id) for message_id in sent} == dict.fromkeys(sent, 1)


def test_the_audit_log_is_only_ever_appended_to(team: Team) -> None:
    for number in range(30):
        team.services.audit("test", number=number, reason="x" * 100_000)
    *_, log = sorted((team.path / "audit").iterdir())  # the approval of the team may be of an earlier day
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [line["number"] for line in lines if line["tool"] == "test"] == list(range(30))


def test_updates_of_one_agent_by_several_processes_lose_no_field(team: Team) -> None:
    jobs = [
        ("update", str(team.root), team.session, "worker-a", f"field_{number}", str(UPDATES))
        for number in range(UPDATERS)
    ]
    with workers(team, jobs) as running:
        while any(process.poll() is None for process in running):
            seen = json.loads((team.path / "agents.json").read_text(encoding="utf-8"))
            assert set(seen["agents"]) == {"owner", "admin", "worker-a", "worker-b"}
        read_back = [outcome(process) for process in running]
    assert read_back == [[str(number) for number in range(1, UPDATES + 1)]] * UPDATERS
    record = json.loads((team.path / "agents.json").read_text(encoding="utf-8"))["agents"]["worker-a"]
    assert [record[f"field_{number}"] for number in range(UPDATERS)] == [UPDATES] * UPDATERS
    assert record["passkey_hash"].startswith("sha256:")


@pytest.mark.anyio
async def test_servers_of_one_session_see_each_others_work_at_once(team: Team) -> None:
    async with (
        team.server("admin") as admin,
        team.server("worker-a", mode="legacy") as first,
        team.server("worker-b") as second,
    ):
        for number in range(5):
            await admin.call("send_message", receiver_id="worker-a", content=f"ask {number}")
            (asked,) = (await first.call("read_messages"))["messages"]
            await first.call("send_message", receiver_id="worker-b", content=asked["content"] + ", passed on")
            (passed,) = (await second.call("read_messages"))["messages"]
            await second.call("send_message", receiver_id="admin", content=passed["content"] + ", answered")
            (answer,) = (await admin.call("read_messages"))["messages"]
            assert answer["content"] == f"ask {number}, passed on, answered"
            assert answer["sender_id"] == "worker-b"
        await admin.call("register_agent_to_ipc", agent_id="newcomer")
        await second.call("send_message", receiver_id="newcomer", content="welcome")


@pytest.mark.anyio
async def test_two_servers_of_one_agent_share_its_mailbox_and_each_message_is_handed_out_once(team: Team) -> None:
    async with team.server("worker-a") as first, team.server("worker-a") as second:
        for number in range(6):
            team.services.messages.send(
                team.services.agents.get("admin"), Draft(content=str(number), receiver_id="worker-a")
            )
        handed_out: list[str] = []
        for agent in (first, second) * 3:
            answer = await agent.call("read_messages", limit=1)
            handed_out += [message["content"] for message in answer["messages"]]
        assert handed_out == [str(number) for number in range(6)]
        assert (await first.call("get_unread_count"))["unread_count"] == 0


@pytest.mark.anyio
async def test_an_expired_or_ended_session_makes_room_and_list_agents_says_who_lives(team: Team) -> None:
    async with team.server("admin") as admin:
        async with team.server("worker-a") as worker:
            assert await _alive(admin) == {"admin", "worker-a"}
            worker.kill()
            await worker.gone()
        assert await _alive(admin) == {"admin"}
        async with team.server("worker-a"):
            assert await _alive(admin) == {"admin", "worker-a"}
        await eventually(lambda: not team.services.sessions.live("worker-a"), "the session ends with its process")
        assert await _alive(admin) == {"admin"}


@pytest.mark.anyio
async def test_an_agent_whose_session_expired_is_alive_wherever_that_is_shown(team: Team) -> None:
    async with team.server("admin") as admin, team.server("worker-a"):
        (session,) = team.services.sessions.live("worker-a")
        team.services.workspace.sessions.update(session.id, lambda found: replace(found, expires_at=EPOCH))
        dashboard = (await admin.call("get_dashboard"))["dashboard"]["agents"]
        shown = {
            "list_agents": await _alive(admin),
            "get_dashboard": _living(dashboard),
            "agent list": _living(team.ask("agent", "list")["agents"]),
            "watch": _living(team.ask("watch")["agents"]),
            "sessions": {row["agent_id"] for row in team.ask("sessions")["sessions"] if row["alive"]},
            "console": _living((await anyio.to_thread.run_sync(lambda: Guest(team).see("/agents")))["agents"]),
        }
        assert shown == {place: {"admin", "worker-a"} for place in shown}


@pytest.mark.anyio
async def test_a_hand_written_file_is_a_message_and_an_unreadable_one_is_set_aside(team: Team) -> None:
    async with team.server("worker-a") as worker:
        inbox = team.path / "ipc" / "worker-a"
        team.drop(inbox / "note.md", "---\nsender_id: admin\ncreated_at: 2026-01-01 10:00:00\n---\n\nby hand\n")
        team.drop(inbox / "broken.md", "---\nsubject: [\n---\n\nlost?\n")
        team.drop(inbox / "ignored.txt", "not a message")
        team.drop(inbox / ".hidden.md", "---\nid: x\n---\n\nhidden")
        answer = await worker.call("read_messages")
        (note,) = answer["messages"]
        assert (note["id"], note["sender_id"], note["content"]) == ("note", "admin", "by hand\n")
        assert note["created_at"] == "2026-01-01T10:00:00.000000Z"
        assert answer["quarantined"] == 1
        assert (inbox / "quarantine" / "broken.md").is_file()
        assert (inbox / "quarantine" / "broken.md.reason.txt").read_text(encoding="utf-8").strip()
        assert "quarantined" not in await worker.call("read_messages")
        assert (inbox / "ignored.txt").exists()
        assert (inbox / ".hidden.md").exists()


@pytest.mark.anyio
async def test_a_message_of_a_mebibyte_arrives_whole_in_slices(team: Team) -> None:
    content = "".join(f"{number:07d}\n" for number in range((1 << 20) // 8))
    async with team.server("admin") as admin, team.server("worker-a") as worker:
        sent = await admin.call("send_message", receiver_id="worker-a", content=content)
        (message,) = (await worker.call("read_messages"))["messages"]
        assert (message["content_truncated"], message["content_length"]) == (True, len(content))
        parts = [message["content"]]
        while message["content_truncated"] and len(parts) < 10:
            offset = sum(map(len, parts))
            answer = await worker.call("read_messages", message_id=sent["message_id"], offset=offset)
            (message,) = answer["messages"]
            parts.append(message["content"])
        assert content.startswith("".join(parts))
        last = await worker.call("read_messages", message_id=sent["message_id"], offset=len(content) - 16)
        assert last["messages"][0]["content"] == content[-16:]
        assert team.mailbox("worker-a")[0].content == content


@pytest.mark.anyio
async def test_many_messages_come_in_answers_that_fit_and_none_is_left_out(team: Team) -> None:
    jobs = [("send", str(team.root), team.session, sender, "worker-a", "20") for sender in ("admin", "worker-b")]
    with workers(team, jobs) as running:
        sent = {message_id for process in running for message_id in outcome(process)}
    async with team.server("worker-a") as worker:
        seen: list[str] = []

        async def read() -> dict[str, object]:
            answer = await worker.call("read_messages")
            assert bool(answer.get("truncated")) == bool(answer["unread_remaining"])
            seen.extend(message["id"] for message in answer["messages"])
            return answer

        await eventually_answers(read, lambda answer: not answer["unread_remaining"], "everything is read")
        assert len(seen) == len(sent)
        assert set(seen) == sent


async def _alive(agent: Agent) -> set[str]:
    return _living((await agent.call("list_agents"))["agents"])


def _living(agents: list[dict[str, Any]]) -> set[str]:
    return {item["id"] for item in agents if item["alive"]}
