"""Many calls at once, interrupted and cancelled: each is answered soon, and nothing that nobody got stays hidden."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
from tests.end_to_end.support import COMMAND, PATIENCE_SECONDS, Team, wait_until

SOON_SECONDS = 6.0
"""A call takes milliseconds; a lock that two wait for is given up after ten seconds."""
ROUNDS = 3


class Host:
    """A host that writes requests without waiting for answers. `slowest` is the longest that one took."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._answers: dict[int, dict[str, Any]] = {}
        self._sent: dict[int, float] = {}
        self._number = 0
        self.slowest = 0.0
        threading.Thread(target=self._listen, daemon=True).start()

    def ask(self, method: str, **params: Any) -> int:
        self._number += 1
        self._sent[self._number] = time.monotonic()
        self.tell({"id": self._number, "method": method, "params": params})
        return self._number

    def call(self, tool: str, **arguments: Any) -> int:
        return self.ask("tools/call", name=tool, arguments=arguments)

    def cancel(self, number: int) -> None:
        self.tell({"method": "notifications/cancelled", "params": {"requestId": number}})

    def tell(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()

    def results(self, *numbers: int) -> list[dict[str, Any]]:
        """The results of these calls; none may be an error of the protocol."""
        wait_until(lambda: set(numbers) <= set(self._answers), f"the calls {numbers} are answered")
        for number in numbers:
            assert "result" in self._answers[number], self._answers[number]
        return [self._answers[number]["result"] for number in numbers]

    def read(self) -> list[str]:
        """The contents of all messages that were handed over by any answer."""
        return [text for answer in list(self._answers.values()) for text in contents(answer.get("result") or {})]

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            if answer.get("id") in self._sent:
                self.slowest = max(self.slowest, time.monotonic() - self._sent[answer["id"]])
                self._answers[answer["id"]] = answer


@contextmanager
def served(team: Team, agent_id: str) -> Iterator[Host]:
    errors = team.base / "storm.stderr"
    arguments = [*COMMAND, "serve", "--root", str(team.root), "--session", team.session, "--agent", agent_id]
    with errors.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(arguments, env=team.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file)
    host = Host(process)
    host.results(
        host.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "s", "version": "1"})
    )
    host.tell({"method": "notifications/initialized"})
    host.slowest = 0.0
    try:
        yield host
    finally:
        process.communicate(timeout=PATIENCE_SECONDS)
    assert "Traceback" not in errors.read_text(encoding="utf-8"), errors.read_text(encoding="utf-8")


def contents(result: Mapping[str, Any]) -> list[str]:
    return [message["content"] for message in (result.get("structuredContent") or {}).get("messages", [])]


def test_parallel_reads_that_an_interrupt_replaces_are_answered_at_once_and_lose_nothing(team: Team) -> None:
    services = team.services
    mailbox = services.workspace.mailbox("worker-a")
    posted = [f"mail {number:02d}" for number in range(45)]
    for content in posted:
        team.post("worker-a", content)
    with served(team, "worker-a") as host:
        for _ in range(ROUNDS):
            before = len(mailbox.unread())
            reads = [host.call("read_messages", limit=15) for _ in range(3)]
            wait_until(lambda: len(mailbox.unread()) < before, "one of them has begun to mark")  # noqa: B023
            services.interrupts.pause("worker-a", None)
            replaced = host.results(*reads)
            assert any(not contents(result) for result in replaced)
            host.results(host.call("get_notifications"))
            again = [content for result in replaced for content in contents(result)]
            for content in again:
                team.post("worker-a", content)
        while contents(host.results(host.call("read_messages"))[0]):
            pass
        assert set(host.read()) == set(posted)
        assert host.slowest < SOON_SECONDS


def test_mail_of_cancelled_reads_is_unread_at_once_and_the_next_call_does_not_wait(team: Team) -> None:
    posted = [f"mail {number:02d}" for number in range(20)]
    for content in posted:
        team.post("worker-a", content)
    with served(team, "worker-a") as host:
        reads = [host.call("read_messages", limit=2) for _ in range(3)]
        for _ in range(60):  # so that some are at work when they are cancelled
            reads.append(host.call("read_messages", limit=2))
            host.cancel(reads[-4])
        for read in reads[-3:]:
            host.cancel(read)

        def all_read() -> bool:
            host.results(host.call("read_messages"))
            return len(host.read()) >= len(posted)

        wait_until(all_read, "what nobody got is unread")
        assert sorted(host.read()) == posted
        assert host.slowest < SOON_SECONDS


def test_the_call_after_a_cancelled_read_finds_its_mail(team: Team) -> None:
    with served(team, "worker-a") as host:
        for number in range(25):
            team.post("worker-a", f"mail {number}")
            host.cancel(host.call("read_messages"))
            (result,) = host.results(host.call("read_messages"))
            assert contents(result) == [f"mail {number}"]
        assert host.slowest < SOON_SECONDS  # it once grew by half a second with each that was cancelled: 12 s


def test_a_logout_confirms_what_was_answered_just_before_it(team: Team) -> None:
    for number in range(6):
        team.post("worker-a", f"mail {number}")
        with served(team, "worker-a") as host:
            host.results(host.call("read_messages"), host.call("logout"))
            handed_out = host.read()
        unread = [message.content for _, message in team.services.workspace.mailbox("worker-a").unread(fresh=True)]
        assert sorted([*handed_out, *unread]) == [f"mail {number}"]
        if unread:
            team.ask("read", "worker-a")


def test_giving_back_while_somebody_reads_waits_for_nobody(team: Team) -> None:
    """The deadlock in small: one thread gives back and another reads, each stopped at the point where it waits."""
    services = team.services
    session: LiveSession = services.sessions.open("worker-a")
    session.lease((services.workspace.mailbox("worker-a").reference("one.md"),))
    giving = threading.Thread(target=session.requeue, args=(session.record.unconfirmed,), daemon=True)
    with services.workspace.locks.held(services.workspace.mailbox("worker-a").lock):
        giving.start()
        giving.join(0.2)  # it waits for the mailbox; whatever it holds meanwhile
        held = threading.Thread(target=session.lease, args=(("ipc/worker-a/two.md",),), daemon=True)
        held.start()
        held.join(SOON_SECONDS)
        assert not held.is_alive()
    giving.join(SOON_SECONDS)
    assert session.record.unconfirmed == ("ipc/worker-a/two.md",)
