"""`kill -9` at bad moments: what was acknowledged stays, what was not heard comes again
(docs/protocol.md, Durability, Confirmation)."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.store.codec import codec
from tests.end_to_end.processes import is_whole
from tests.end_to_end.support import COMMAND, Agent, Ran, Team, run, wait_until, workers

ROUNDS = 5
ACKNOWLEDGED = (1, 7, 19)  # how many each sender was told about when it is killed


@contextmanager
def onlooker(inbox: Path) -> Iterator[list[str]]:
    """Reads every file of a mailbox as soon as it can be seen; gathers the names of those that were not whole."""
    broken: list[str] = []
    seen: set[str] = set()
    enough = threading.Event()

    def look() -> None:
        while not enough.is_set():
            for path in inbox.iterdir():
                if path.is_file() and path.name not in seen:
                    seen.add(path.name)
                    if not _is_whole_file(path):
                        broken.append(path.name)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield broken
    finally:
        enough.set()
        thread.join()
    assert seen, "nothing was ever seen"


def _is_whole_file(path: Path) -> bool:
    if path.suffix != ".md":
        return False
    try:
        return is_whole(codec(Message).decode(path.read_bytes()).content)
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it is not whole
        return False


def _acknowledged(process: subprocess.Popen[str], count: int) -> list[str]:
    """Kills a sender once it has been told of `count` messages; everything it was told of."""
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(count)]
    process.kill()
    told += process.stdout.readlines()
    return [line.strip() for line in told if line.endswith("\n")]


def test_whatever_a_killed_sender_was_told_is_stored_once_and_whole(team: Team) -> None:
    acknowledged: list[str] = []
    with onlooker(team.path / "ipc" / "worker-a") as broken:
        for _ in range(ROUNDS):
            senders = ("owner", "admin", "worker-b")
            jobs = [("send", str(team.root), team.session, sender, "worker-a", "100000") for sender in senders]
            with workers(team, jobs) as running:
                for process, count in zip(running, ACKNOWLEDGED, strict=True):
                    acknowledged += _acknowledged(process, count)
    assert broken == []
    stored = Counter(message.id for message in team.mailbox("worker-a"))
    assert set(acknowledged) <= set(stored)
    assert set(stored.values()) == {1}
    assert len(acknowledged) >= ROUNDS * sum(ACKNOWLEDGED)
    assert not (team.path / "ipc" / "worker-a" / "quarantine").exists()
    assert team.send("worker-a", "locks of the dead are free")["message_id"]


@pytest.mark.anyio
async def test_messages_whose_reader_is_killed_before_its_next_call_are_unread_again(team: Team) -> None:
    for content in ("one", "two"):
        team.post("worker-a", content)
    for _ in range(3):
        async with team.server("worker-a") as worker:
            assert await _read(worker) == ["one", "two"]
            assert team.unread("worker-a") == []
            worker.kill()
            await worker.gone()
    async with team.server("worker-a") as worker:
        assert (await worker.call("get_unread_count"))["unread_count"] == 2
        assert await _read(worker) == ["one", "two"]


@pytest.mark.anyio
async def test_only_the_last_answer_of_a_killed_reader_comes_again(team: Team) -> None:
    for content in ("one", "two", "three"):
        team.post("worker-a", content)
    async with team.server("worker-a") as worker:
        assert await _read(worker, limit=1) == ["one"]
        assert await _read(worker, limit=1) == ["two"]
        worker.kill()
        await worker.gone()
    async with team.server("worker-a") as worker:
        assert await _read(worker) == ["two", "three"]
        assert (await worker.call("list_agents"))["success"]
        worker.kill()
        await worker.gone()
    async with team.server("worker-a") as worker:
        assert await _read(worker) == []


@pytest.mark.anyio
async def test_a_killed_reader_that_only_peeked_has_consumed_nothing(team: Team) -> None:
    team.post("worker-a", "one")
    async with team.server("worker-a") as worker:
        assert await _read(worker, mark_as_read=False) == ["one"]
        assert len(team.unread("worker-a")) == 1
        worker.kill()
        await worker.gone()
    assert len(team.unread("worker-a")) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_reader_that_is_asked_to_end_has_consumed_its_answer(team: Team, number: signal.Signals) -> None:
    team.post("worker-a", "one")
    async with team.server("worker-a") as worker:
        assert await _read(worker) == ["one"]
        worker.kill(number)
        await worker.gone()
    async with team.server("worker-a") as worker:
        assert await _read(worker) == []


@pytest.mark.anyio
async def test_a_reader_whose_host_closes_its_input_or_logs_out_has_consumed_its_answer(team: Team) -> None:
    team.post("worker-a", "one")
    async with team.server("worker-a") as worker:
        assert await _read(worker) == ["one"]
    wait_until(lambda: not team.services.sessions.live("worker-a"), "the session ends")
    team.post("worker-a", "two")
    async with team.server("worker-a") as worker:
        assert await _read(worker) == ["two"]
        await worker.call("logout")
        worker.kill()
        await worker.gone()
    async with team.server("worker-a") as worker:
        assert await _read(worker) == []


@pytest.mark.anyio
async def test_messages_of_a_killed_reader_count_as_unread_for_the_command_line_once_it_looks(team: Team) -> None:
    team.post("worker-a", "one")
    async with team.server("worker-a") as worker:
        assert await _read(worker) == ["one"]
        worker.kill()
        await worker.gone()
    assert [message["content"] for message in team.ask("read", "worker-a")["messages"]] == ["one"]
    assert team.ask("read", "worker-a")["messages"] == []


@pytest.mark.anyio
async def test_a_living_servers_unconfirmed_answer_is_not_handed_out_again_by_a_second_server(team: Team) -> None:
    team.post("worker-a", "one")
    async with team.server("worker-a") as first:
        assert await _read(first) == ["one"]
        async with team.server("worker-a") as second:
            assert await _read(second) == []


def test_a_command_that_cannot_print_says_so_and_has_consumed_nothing(team: Team) -> None:
    team.post("worker-a", "one")
    done = _in_shell(team, "read worker-a > /dev/full")
    assert done.code == 1
    assert done.stderr.strip() == "multi-agent-mcp: storage_error: No space left on device"
    assert len(team.unread("worker-a")) == 1
    assert _in_shell(team, "unread worker-a > /dev/full").code == 1


def test_a_command_whose_output_nobody_takes_has_consumed_nothing(team: Team) -> None:
    for _ in range(3):
        team.post("worker-a", "x" * 100_000)  # more than a pipe holds
    done = _in_shell(team, "read worker-a | head -n 1")
    assert len(done.stdout.splitlines()) == 1
    assert len(team.unread("worker-a")) == 3


def _in_shell(team: Team, command: str) -> Ran:
    env = {**team.env, "MULTI_AGENT_MCP_ROOT": str(team.root)}
    return run(["sh", "-c", f"{' '.join(COMMAND)} {command}"], env=env, cwd=team.base)


async def _read(agent: Agent, **arguments: object) -> list[str]:
    return [message["content"] for message in (await agent.call("read_messages", **arguments))["messages"]]


@pytest.mark.anyio
async def test_a_session_file_without_an_agent_keeps_no_server_from_starting(team: Team) -> None:
    team.post("worker-a", "first")
    async with team.server("worker-a") as reader:
        await reader.call("read_messages")
        reader.kill()
        await reader.gone()
    for path in (team.path / "sessions" / "worker-a").glob("*.md"):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not line.startswith("agent_id:")), encoding="utf-8")
    async with team.server("worker-a") as reader:
        answer = await reader.call("read_messages")
        assert [message["content"] for message in answer["messages"]] == ["first"]
