"""Several processes against a model: any calls, races and deaths, and everybody is told what the model says.

`SOAK_EXAMPLES=500 pytest tests/soak/test_machine.py` looks at more sequences, and at other ones each time.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.doorbell.channel import Recorder
from tests.end_to_end.quiet import quiet_environment
from tests.end_to_end.support import SESSION, Team
from tests.soak.ledger import tag_of, tagged
from tests.soak.lives import Died, Nursery, Reply, Seated
from tests.soak.model import Agent, Job, Model

EXAMPLES, STEPS = 12, 30
AGENTS = ("admin", "worker-a", "worker-b")
WORKERS = ("worker-a", "worker-b")
FINAL_MOVES = ("done", "cancelled")
agents, workers = st.sampled_from(AGENTS), st.sampled_from(WORKERS)
statuses = st.sampled_from(("todo", "in_progress", "blocked", "cancelled", "done"))


class Machine(RuleBasedStateMachine):
    """One team of an admin and two workers; each has at most one living server."""

    nursery: ClassVar[Nursery]
    template: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.root = self.template.with_name("copy")
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.template, self.root)
        self.model = Model({agent_id: Agent() for agent_id in AGENTS})
        self.living: dict[str, Seated] = {}
        self.messages = 0

    @rule(sender=agents, receiver=agents, size=st.integers(0, 3))
    def send(self, sender: str, receiver: str, size: int) -> None:
        if sender == receiver:
            return
        reply = self.call(sender, "send_message", receiver_id=receiver, content=self.tagged(size))
        if reply.answer is not None:
            self.model.agents[receiver].unread.add(reply.answer["message_id"])

    @rule(sender=agents)
    def broadcast(self, sender: str) -> None:
        content = self.tagged(1)
        if self.call(sender, "send_message", content=content).answer is not None:
            for receiver in set(AGENTS) - {sender}:
                self.model.agents[receiver].unread |= self.ids(receiver, content)

    @rule(agent_id=agents)
    def read(self, agent_id: str) -> None:
        reply = self.call(agent_id, "read_messages")
        if reply.answer is not None:
            ids = [message["id"] for message in reply.answer["messages"]]
            assert sorted(ids) == sorted(self.model.agents[agent_id].reads())

    @rule(agent_id=agents)
    def get_notifications(self, agent_id: str) -> None:
        expected = self.model.pending(agent_id)
        reply = self.call(agent_id, "get_notifications")
        assert reply.answer is not None
        stops = [notice for notice in reply.answer["notifications"] if notice["type"] == "interrupt"]
        told = [(notice["task_id"], notice["action"]) for notice in stops]  # the model knows nothing of other kinds
        assert sorted(told) == sorted((notice.task_id, notice.action) for notice in expected)
        for notice in expected:
            notice.told = True
        self.model.agents[agent_id].last_notices = expected

    @rule(worker=workers)
    def give_task(self, worker: str) -> None:
        reply = self.call("admin", "send_task", agent_id=worker, title="t", content="c")
        if reply.answer is not None:
            self.model.jobs[reply.answer["task_id"]] = Job("todo", worker)
            self.model.agents[worker].unread.add(reply.answer["message_id"])

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), by_admin=st.booleans(), status=statuses)
    def move(self, data: st.DataObject, by_admin: bool, status: str) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.model.jobs)))
        by = "admin" if by_admin else self.model.jobs[task_id].assignee
        allowed = self.model.may_move(task_id, status)
        reply = self.call(by, "update_task_status", task_id=task_id, status=status)
        if reply.answer is not None and allowed:
            self.model.move(task_id, status, by)
        elif reply.answer is not None:
            assert reply.error == "invalid_status_transition"

    @precondition(lambda self: any(job.status == "in_progress" for job in self.model.jobs.values()))
    @rule(data=st.data())
    def race(self, data: st.DataObject) -> None:
        """Assignee and admin end the same task at once: one of them wins."""
        running = sorted(task_id for task_id, job in self.model.jobs.items() if job.status == "in_progress")
        task_id = data.draw(st.sampled_from(running))
        worker = self.model.jobs[task_id].assignee
        if self.model.pending(worker):
            return
        runners = {"admin": "cancelled", worker: "done"}
        for agent_id, status in runners.items():
            self.server(agent_id).begin("update_task_status", task_id=task_id, status=status)
        replies = {agent_id: self.server(agent_id).answer() for agent_id in runners}
        for agent_id in runners:
            self.model.agents[agent_id].confirmed()
        winner = "admin" if self.status(task_id) == "cancelled" else worker
        self.model.move(task_id, runners[winner], winner)
        assert [agent_id for agent_id, reply in replies.items() if reply.done] in ([winner], [])
        assert winner == worker or replies["admin"].done  # the worker's answer may be replaced by the interrupt

    @rule(agent_id=agents)
    def kill(self, agent_id: str) -> None:
        if agent_id in self.living:
            self.bury(agent_id)

    @rule(agent_id=agents)
    def end(self, agent_id: str) -> None:
        if agent_id in self.living:
            self.living.pop(agent_id).end()
            self.model.agents[agent_id].confirmed()

    @rule(sender=agents, receiver=agents)
    def send_and_die(self, sender: str, receiver: str) -> None:
        """Kills the sender at a random moment of a call: the message must exist once and whole, or not at all."""
        if sender == receiver or self.model.pending(sender):
            return
        content = self.tagged(3)
        server = self.server(sender)
        server.begin("send_message", receiver_id=receiver, content=content)
        server.kill()
        try:
            answered: Reply | None = server.answer()
        except Died:
            answered = None
        # Whether the call began, and so confirmed what was handed out before, nobody knows: the files say it.
        self.bury(sender, began=True)
        found = self.ids(receiver, content)
        assert len(found) == 1 if answered is not None else len(found) <= 1
        self.model.agents[receiver].unread |= found

    @invariant()
    def mailboxes_hold_what_was_sent(self) -> None:
        for agent_id, agent in self.model.agents.items():
            assert len(list((self.root / SESSION / "ipc" / agent_id).rglob("*.md"))) == len(agent.unread | agent.read)

    def teardown(self) -> None:
        for agent_id in list(self.living):
            self.living.pop(agent_id).end()
        services = open_session(self.root, SESSION, notifier=Recorder())
        assert [item for item in services.doctor(lambda _: None).examine() if item.level == "problem"] == []
        mail = [item for agent_id in AGENTS for item in services.workspace.mailbox(agent_id).history()]
        assert [item for item in mail if item.message_type != "task_assign" and not tag_of(item.content)] == []  # torn

    def call(self, agent_id: str, tool: str, /, **arguments: Any) -> Reply:
        """Calls a tool; the call must be replaced exactly when an interrupt is pending. An answer confirms the previous
        one."""
        interrupted = bool(self.model.pending(agent_id)) and tool != "get_notifications"
        reply = self.server(agent_id).call(tool, **arguments)
        self.model.agents[agent_id].confirmed()
        assert (reply.answer is None) is interrupted
        assert not (interrupted and reply.executed)
        return reply

    def server(self, agent_id: str) -> Seated:
        if agent_id not in self.living:
            self.living[agent_id] = self.nursery.seat(self.root, agent_id)
        return self.living[agent_id]

    def bury(self, agent_id: str, *, began: bool = False) -> None:
        """Kills the server with SIGKILL if it still runs, then requeues unconfirmed items, as the next server does
        first."""
        server = self.living.pop(agent_id)
        server.kill()
        server.gone()
        agent = self.model.agents[agent_id]
        services = open_session(self.root, SESSION, notifier=Recorder())
        services.sessions.recover(agent_id)
        unread = {message.id for _, message in services.workspace.mailbox(agent_id).unread()}
        if began and agent.last_mail and not agent.last_mail & unread:
            agent.last_mail = set()
        if began and agent.last_notices and not services.workspace.notices(agent_id).unread():
            agent.last_notices = []
        agent.died()
        assert unread == agent.unread

    def tagged(self, size: int) -> str:
        self.messages += 1
        return tagged(f"m-{self.messages}", size)

    def ids(self, receiver: str, content: str) -> set[str]:
        """The ids of all messages in a mailbox with this content."""
        services = open_session(self.root, SESSION, notifier=Recorder())
        return {item.id for item in services.workspace.mailbox(receiver).history() if item.content == content}

    def status(self, task_id: str) -> str:
        return open_session(self.root, SESSION, notifier=Recorder()).workspace.tasks.get(task_id).status


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    short = Path(tempfile.mkdtemp(prefix="mam-", dir="/tmp"))  # a socket's path holds a hundred bytes
    with Nursery(short, quiet_environment(short)) as started:
        yield started
    shutil.rmtree(short)


@pytest.mark.slow
def test_every_process_is_told_what_the_model_says(nursery: Nursery, tmp_path: Path) -> None:
    class Here(Machine):
        pass

    Here.nursery, Here.template = nursery, Team(tmp_path, {}).make().root
    wanted = os.environ.get("SOAK_EXAMPLES")
    chosen = settings(
        max_examples=int(wanted or EXAMPLES),
        stateful_step_count=STEPS,
        derandomize=wanted is None,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Here, settings=chosen)
