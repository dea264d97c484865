"""Mail: mailboxes with much unread mail, large archives, broadcasts, conversations."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.bench import Bench
from benchmarks.past import Past
from benchmarks.rows.awake import HOOK_EVENT
from benchmarks.scale.calls import called, fresh_call
from benchmarks.scale.growth import Cost
from benchmarks.team import Team
from benchmarks.timing import command_seconds
from multi_agent_mcp.services.search import SearchQuery

AFTER_TOOL = HOOK_EVENT.replace(b"PreToolUse", b"PostToolUse")


@contextmanager
def send_unserved(bench: Bench, size: int) -> Iterator[Cost]:
    """The whole command `send` to an agent without a server, beside what it has not read."""
    team = _unread(bench, size)
    yield lambda: command_seconds(team.command("send", "admin", "hello"))


@contextmanager
def hook_first(bench: Bench, size: int) -> Iterator[Cost]:
    """The whole command `hook` that knows nothing yet."""
    team = _unread(bench, size)

    def cost() -> float:
        shutil.rmtree(team.services.path / ".hooks", ignore_errors=True)
        return _hook(team)

    yield cost


@contextmanager
def hook_news(bench: Bench, size: int) -> Iterator[Cost]:
    """The whole command `hook` after one new message."""
    team = _unread(bench, size)
    _hook(team)

    def cost() -> float:
        team.send("news")
        return _hook(team)

    yield cost


@contextmanager
def hook_silent(bench: Bench, size: int) -> Iterator[Cost]:
    """The whole command `hook` with nothing to say: all of it was announced."""
    team = _unread(bench, size)
    for _ in range(3):  # a look at what has only just changed is not trusted
        _hook(team)
    yield lambda: _hook(team)


@contextmanager
def first_look(bench: Bench, size: int) -> Iterator[Cost]:
    """The whole command `unread`."""
    team = _unread(bench, size)
    yield lambda: command_seconds(team.command("unread", "admin"))


@contextmanager
def unread_page(bench: Bench, size: int) -> Iterator[Cost]:
    """A page of 50 of what is unread, by a server that has looked already."""
    team = _unread(bench, size)
    with team.server("admin") as server:
        server.call("get_unread_count")
        server.rest()
        server.call("read_messages")
        yield called(server, "read_messages")


@contextmanager
def unread_memory(bench: Bench, size: int) -> Iterator[Cost]:
    """The resident memory of a server that has looked, in megabytes."""
    team = _unread(bench, size)

    def cost() -> float:
        with team.server("admin") as server:
            server.call("get_unread_count")
            server.rest()
            return server.resident_megabytes()

    yield cost


@contextmanager
def status(bench: Bench, size: int) -> Iterator[Cost]:
    """`get_message_status` of the oldest message."""
    team = _archived(bench, size)
    with fresh_call(team, "worker", "get_message_status", message_id=team.known) as cost:
        yield cost


@contextmanager
def trace(bench: Bench, size: int) -> Iterator[Cost]:
    """The whole command `trace` of the oldest message."""
    team = _archived(bench, size)
    yield lambda: command_seconds(team.command("trace", team.known))


@contextmanager
def oldest_page(bench: Bench, size: int) -> Iterator[Cost]:
    """`read_messages` of what is older than nearly everything."""
    team = _archived(bench, size)
    archive = team.services.workspace.mailbox("admin").path / "archive"
    tenth = sorted(item.name for item in min(archive.iterdir()).iterdir())[10]
    message = next(archive.glob(f"*/{tenth}")).relative_to(archive.parent)
    with fresh_call(team, "admin", "read_messages", unread_only=False, before=str(message)) as cost:
        yield cost


@contextmanager
def broadcast(bench: Bench, size: int) -> Iterator[Cost]:
    """One broadcast to so many; the first makes their mailboxes and is not counted."""
    team = bench.lived("further agents", size, Past.agents)
    with team.server("worker") as server:
        server.rest()
        server.call("send_message", content="to all of you")
        yield called(server, "send_message", content="to all of you")


@contextmanager
def conversation(bench: Bench, size: int) -> Iterator[Cost]:
    """The newest 50 messages."""
    team = bench.lived("messages of one conversation", size, Past.conversation)
    with fresh_call(team, "worker", "get_conversation_messages", conversation_id=team.known) as cost:
        yield cost


@contextmanager
def found(bench: Bench, size: int) -> Iterator[Cost]:
    """Processor time of a search in everything once it is indexed; the 20 results are read from their files."""
    search = _archived(bench, size).services.search
    query = SearchQuery(words=("message", "note"), receiver_id="admin")
    search.find(query)

    def cost() -> float:
        began = time.process_time()
        assert search.find(query).found
        return time.process_time() - began

    yield cost


def _unread(bench: Bench, size: int) -> Team:
    return bench.lived("unread messages", size, Past.unread_mail)


def _archived(bench: Bench, size: int) -> Team:
    return bench.lived("archived messages", size, Past.archived_mail)


def _hook(team: Team) -> float:
    return command_seconds(team.command("hook", "--agent", "admin"), AFTER_TOOL)
