"""A session directory for measurements, and mailboxes with a history."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.wire import Server
from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain import times
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.domain.entity import new_id, new_message_id
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.doorbell.tmux.client import pane_place
from multi_agent_mcp.services.team import setup as teams
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft

SESSION = "bench"
MEMBERS = (
    Agent(id="owner", role="owner", type="human"),
    Agent(id="admin", role="admin", parent_id="owner", host="plain"),  # `cat`, in the rows with a pane
    Agent(id="worker", parent_id="admin"),
)
PAGE = 50
KILOBYTE = "0123456789abcde\n" * 64


class Team:
    """Owner, admin and worker in `{directory}/bench`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.known: Any = None
        """A value returned by the function that wrote the session's history; see `Bench.lived`."""
        self.services = open_session(root, SESSION, notifier=Recorder(Delivery("stored", "no_pane")))

    @classmethod
    def made(cls, root: Path) -> Team:
        """A new team under this root."""
        teams.create_session(root, SESSION, teams.TeamFile(MEMBERS), None)
        team = cls(root)
        teams.add_missing(team.services.agents, teams.TeamFile(MEMBERS))
        return team

    def server(self, agent_id: str, **environment: str) -> Server:
        """This agent's server process, as a host starts it."""
        command = [sys.executable, "-m", "multi_agent_mcp", "serve"]
        command += ["--root", str(self.root), "--session", SESSION, "--agent", agent_id]
        return Server(command, environment)

    def rings_in(self, agent_id: str, socket: str, pane_id: str) -> None:
        """Has the agent's doorbell ring in this pane, in which its server need not run."""
        self.services.agents.change(agent_id, **(pane_place(socket, pane_id) or {}))

    def command(self, *words: str) -> list[str]:
        """A command of a person about this team."""
        return [sys.executable, "-m", "multi_agent_mcp", *words, "--root", str(self.root), "--session", SESSION]

    def send(self, content: str = KILOBYTE) -> Message:
        """The worker writes to the admin. Returns the message as it is in the mailbox."""
        sent = self.services.messages.send(
            self.services.agents.get("worker"), Draft(content=content, receiver_id="admin")
        )
        found = self.services.workspace.mailbox("admin").find(sent.message_id)
        assert found is not None
        return found[1]

    def live_through(self, count: int) -> None:
        """The admin gets and reads so many messages, page by page, through the same services as in life; only
        fsync is left out."""
        with unsynced():
            for begin in range(0, count, PAGE):
                for number in range(begin, min(begin + PAGE, count)):
                    self._put(self._message(number, count))
                self._read_all()
        assert self.services.unread_mail_count("admin") == 0

    def plan(self, count: int) -> None:
        """Adds this many tasks, one changed each minute: of five, three are done, one is in progress and one is in
        `todo`."""
        with unsynced():
            for number in range(count):
                begun = Change(by="worker", at=times.now() - timedelta(minutes=count - number))
                task = Task.made(new_id("tsk"), begun, status="todo", assignee_id="worker", title=f"task {number}")
                if number % 5:
                    task = task.move_to("in_progress", begun)
                if number % 5 > 1:
                    task = task.move_to("done", begun)
                self.services.workspace.tasks.add(task)
                located = self.services.workspace.tasks.locate(task.id)
                assert located is not None
                os.utime(located.directory.path / f"{task.id}.md", times=(begun.at.timestamp(),) * 2)

    def _message(self, number: int, count: int) -> Message:
        """The past is spread out: one message a minute."""
        return Message(
            id=new_message_id(),
            sender_id="worker",
            receiver_id="admin",
            subject=f"message {number}",
            created_at=times.now() - timedelta(minutes=count - number),
            content=KILOBYTE,
        )

    def _put(self, message: Message) -> None:
        try:
            self.services.workspace.mailbox("admin").deliver(message)
        except FileExistsError:
            self._put(replace(message, created_at=message.created_at + timedelta(seconds=1)))

    def _read_all(self) -> None:
        admin = self.services.agents.get("admin")
        while self.services.reading.read(admin, Query(whole=True))["count"]:
            pass


@contextmanager
def unsynced() -> Iterator[None]:
    """A past need not survive a power cut while it is being made up."""
    with patch.object(os, "fsync"):
        yield
