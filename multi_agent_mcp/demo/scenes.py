"""The scenes of `demo` on one machine: each prepares a session, is played in tmux, and checks the result."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Self
from urllib.request import HTTPCookieProcessor, Request, build_opener

from multi_agent_mcp.cli.context import print_line
from multi_agent_mcp.cli.rendering import since, titled_table
from multi_agent_mcp.demo.stage import Stage, read_story
from multi_agent_mcp.domain.agent import Execution, HandOff
from multi_agent_mcp.domain.message import Conversation, Message
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.times import parse_time
from multi_agent_mcp.programs import python
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.windows.agent_command import examples_directory


class SceneFailed(Exception):
    """Raised when a scene cannot continue, with the reason in words."""


class Scene:
    """The main job, and the base of the other scenes: a task is delegated down, reports come back, and every agent is
    woken by its doorbell."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.services = stage.services
        self.texts = stage.services.people

    def play(self) -> list[str]:
        """Plays the scene and prints its report; returns the problems, in words."""
        try:
            self.begin()
            finished = self.wait()
        except SceneFailed as failure:
            return [str(failure)]
        for line in self.report():
            print_line(line)
        late = [] if finished else [self.late()]
        return late + [problem for problem, holds in self.checks().items() if not holds]

    def late(self) -> str:
        """Returns the problem to report if the scene does not end in time."""
        return self.texts("demo.late_some")

    def begin(self) -> None:
        """Prepares the session and starts the agents."""
        self.stage.open_windows()

    def wait(self) -> bool:
        """Waits until every expected session has logged out; returns whether all did in time."""
        directories = [f"sessions/{agent_id}" for agent_id, _ in self.sessions()]
        return self.stage.play_until(directories, self._is_over)

    def sessions(self) -> set[tuple[str, str]]:
        """Returns the agent sessions (agent, purpose) that must have ended at the end."""
        return {(agent_id, "task") for agent_id in self.stage.actors}

    def report(self) -> Iterator[str]:
        """Yields the lines of the timeline, the file tree and the dashboard."""
        yield ""
        yield from self.services.timeline.told(self.texts)
        yield ""
        yield from _tree(self.services.path)
        if self._dashboard.exists():
            yield ""
            yield self._dashboard.read_text(encoding="utf-8")

    def checks(self) -> Mapping[str, bool]:
        """Returns the conditions that must hold at the end, by the problem to report if they do not."""
        services, texts = self.services, self.texts
        arrows, tasks = services.timeline.of().arrows, services.board.all()
        rung = {arrow.receiver_id for arrow in arrows if arrow.submitted_at is not None}
        return {
            **{
                texts("demo.unread", message_type=arrow.message_type, receiver=arrow.receiver_id): False
                for arrow in arrows
                if arrow.read_at is None
            },
            **{texts("demo.not_rung", agent=name): name in rung for name in self.stage.actors},
            **{
                texts("demo.task_status", task=task.id, status=task.status, wanted="done"): task.status == "done"
                for task in tasks
            },
            texts("demo.no_task"): bool(tasks),
            texts("demo.still_waits"): services.owner_waits.of(services.agents.owner().id) is None,
            texts("demo.no_dashboard"): self._dashboard.exists(),
        }

    def create_task(self, title: str, description: str, assignee_id: str, *done_when: str) -> Task:
        new = NewTask(title=title, description=description, assignee_id=assignee_id, done_when=done_when)
        (task,) = self.services.task_creation.create(self.services.agents.owner(), [new])
        return task

    @property
    def _dashboard(self) -> Path:
        return self.services.path / "dashboard" / "dashboard.md"

    def _is_over(self) -> bool:
        ended = {(item.agent_id, item.purpose) for item in self.services.sessions.all(ended=True) if item.ended_at}
        return ended >= self.sessions()


class InterruptScene(Scene):
    """UC010 (docs/protocol.md, Interrupts): the Owner sets a running task to `blocked`; the agent's next call is
    replaced and it stops."""

    worker = "worker-a"

    def late(self) -> str:
        return self.texts("demo.late", agents=self.worker)

    def begin(self) -> None:
        title, what = self.texts("demo.refactoring"), self.texts("demo.refactoring.what")
        self.task = self.create_task(title, what, self.worker)
        super().begin()
        if not self.stage.wait_for([f"executions/{self.worker}"], self._has_called):
            raise SceneFailed(self.texts("demo.never_began", agent=self.worker))
        command = ["task", "status", self.task.id, "blocked", "--reason", self.texts("demo.refactoring.reason")]
        print_line(f"$ multi-agent-mcp {shlex.join(command)}")
        subprocess.run([*python(), *command, *self.stage.options], check=True)

    def report(self) -> Iterator[str]:
        """Yields the lines of the agent's log, and the times since the Owner's command."""
        yield from self._log(self.execution)
        yield ""
        blocked_at, completed_at = self._task_after.status_changed_at, self.execution.completed_at
        if blocked_at and self._replaced_at and completed_at:
            yield self.texts("demo.until_replaced", time=since(blocked_at, self._replaced_at))
            yield self.texts("demo.until_reported", time=since(blocked_at, completed_at))

    def checks(self) -> Mapping[str, bool]:
        """Returns the postconditions of UC010: status `blocked`, execution closed, notification read."""
        texts, task, execution = self.texts, self._task_after, self.execution
        unread = self.services.notifications.read(self.worker, "task", mark_as_read=False)
        return {
            texts("demo.task_status", task=task.id, status=task.status, wanted="blocked"): task.status == "blocked",
            texts("demo.no_result"): task.completion_result == "blocked",
            texts("demo.not_failed"): execution.status == "failed" and execution.exit_code == 1,
            texts("demo.not_replaced"): self._replaced_at is not None,
            texts("demo.notice_unread"): not unread,
        }

    @cached_property
    def execution(self) -> Execution:
        """The only execution, read once it has ended."""
        (execution,) = self.services.executions.all(self.worker)
        return execution

    @property
    def _task_after(self) -> Task:
        return self.services.task_changes.get(self.task.id)

    @property
    def _replaced_at(self) -> datetime | None:
        lines = [line for line in self._log(self.execution) if "replaced by an interrupt" in line]
        return parse_time(lines[0][1 : lines[0].index("]")]) if lines else None

    def _has_called(self) -> bool:
        """Returns whether the worker's log contains a tool call."""
        found = self.services.executions.all(self.worker)
        return any("Tool result" in line for execution in found for line in self._log(execution))

    def _log(self, execution: Execution) -> list[str]:
        return self.services.executions.read_log(execution, tail=12).lines


class MorningScene(Scene):
    """The morning after (docs/protocol.md, Briefing): the tmux server dies under a team at work; after `up` everybody
    goes on where the last hand-off says, and introduces itself to nobody again."""

    steps = 4

    def begin(self) -> None:
        for agent_id in self.stage.actors:
            self.create_task(self.texts("demo.morning"), self.texts("demo.morning.what"), agent_id)
        super().begin()
        directories = [f"handoffs/{agent_id}" for agent_id in self.stage.actors]
        if not self.stage.wait_for(directories, self._is_half_done):
            raise SceneFailed(self.texts("demo.morning.not_half"))
        print_line("$ tmux kill-server")
        self.stage.tmux.cmd("kill-server")
        print_line("$ multi-agent-mcp up")
        super().begin()

    def report(self) -> Iterator[str]:
        """Yields each agent's hand-offs, oldest first."""
        columns = ("agent", "after", "says")
        rows = [(item.agent_id, since(self._began, item.created_at), item.content) for item in self._hand_offs()]
        yield from ("", *titled_table(self.texts, columns, rows))

    def checks(self) -> Mapping[str, bool]:
        """Returns whether every step was done once, and every agent introduced itself once."""
        texts, actors = self.texts, self.stage.actors
        steps = Counter(item.agent_id for item in self._hand_offs())
        sent = Counter(
            item.sender_id for item in self.services.mail_search.page().messages if item.message_type == "request"
        )
        return {
            **{
                texts("demo.task_status", task=task.id, status=task.status, wanted="done"): task.status == "done"
                for task in self.services.board.all()
            },
            **{
                texts("demo.morning.steps", agent=name, count=steps[name]): steps[name] == self.steps for name in actors
            },
            **{texts("demo.morning.introduced", agent=name, count=sent[name]): sent[name] == 1 for name in actors},
        }

    def _hand_offs(self) -> list[HandOff]:
        return [kept.hand_off for kept in reversed(self.services.hand_offs.all())]

    @property
    def _began(self) -> datetime:
        return min(item.created_at for item in self._hand_offs())

    def _is_half_done(self) -> bool:
        steps = Counter(item.agent_id for item in self._hand_offs())
        return all(steps[agent_id] >= self.steps // 2 for agent_id in self.stage.actors)

    def _is_over(self) -> bool:
        return all(task.status == "done" for task in self.services.board.all())


SPOKEN = ("after", "who", "until_rung", "until_submitted", "until_read", "says")


class ShiritoriScene(Scene):
    """UC020 (docs/protocol.md, Delegation): a task session delegates a conversation, chat sessions hold it, the task
    session sees its end."""

    player = "worker-a"
    messages = 12

    def begin(self) -> None:
        title, what = self.texts("demo.shiritori"), self.texts("demo.shiritori.what")
        self.task = self.create_task(title, what, self.player)
        self.stage.open_windows(supervisor=True)

    def sessions(self) -> set[tuple[str, str]]:
        return {(self.player, "task"), (self.player, "chat"), ("worker-b", "chat")}

    def report(self) -> Iterator[str]:
        """Yields the lines of the conversation, with the times of every message's steps."""
        for conversation in self._conversations:
            yield ""
            facts = {"purpose": conversation.purpose, "status": conversation.status}
            delegation = conversation.delegation_id
            yield self.texts("demo.delegated", conversation=conversation.id, delegation=delegation, **facts)
            yield from titled_table(self.texts, SPOKEN, self._rows(conversation))
        yield ""
        task = self.services.task_changes.get(self.task.id)
        yield f"{task.id} {task.title}: {task.status}, {task.completion_summary}"

    def checks(self) -> Mapping[str, bool]:
        texts = self.texts
        if len(self._conversations) != 1:
            return {texts("demo.conversations", count=len(self._conversations)): False}
        (conversation,) = self._conversations
        messages = self.services.conversations.messages_of(conversation.id)
        status = self.services.task_changes.get(self.task.id).status
        return {
            texts("demo.messages", count=len(messages), wanted=self.messages): len(messages) == self.messages,
            texts("demo.conversation_status", status=conversation.status): conversation.status == "ended",
            texts("demo.task_status", task=self.task.id, status=status, wanted="done"): status == "done",
            texts("demo.not_announced"): all(self._times(item).keys() - {"stored", "read"} for item in messages),
            texts("demo.no_delegation"): conversation.delegation_id is not None,
        }

    @property
    def _conversations(self) -> list[Conversation]:
        return self.services.conversations.of_task(self.task.id)

    def _rows(self, conversation: Conversation) -> Iterable[tuple[str, ...]]:
        messages = self.services.conversations.messages_of(conversation.id)
        for message in messages:
            at = (message.created_at - messages[0].created_at).total_seconds()
            yield f"{at:7.3f} s", message.sender_id, *self._steps(message), message.content

    def _steps(self, message: Message) -> Iterable[str]:
        """Returns the times from sending to ringing, submitting and reading a message."""
        times = self._times(message)
        return (since(message.created_at, times.get(state)) for state in ("rung", "submitted", "read"))

    def _times(self, message: Message) -> dict[str, datetime | None]:
        """Returns the time of each of the message's steps."""
        (trace,) = self.services.tracking.trace(message.id)
        return {step["state"]: parse_time(step["at"]) for step in trace["steps"]}


class ProvenScene(Scene):
    """Done means proven (docs/protocol.md): a worker says "done" too early, and is done once its check has passed and
    its superior has looked at it."""

    worker = "worker-a"

    def begin(self) -> None:
        title, what = self.texts("demo.greeting"), self.texts("demo.greeting.what")
        self.task = self.create_task(title, what, self.worker, "tests", "review")
        super().begin()

    def report(self) -> Iterator[str]:
        """Yields the history of the task, and the receipts of its check."""
        command = [*python(), "task", "show", self.task.id, *self.stage.options]
        yield ""
        yield f"$ multi-agent-mcp task show {self.task.id}"
        yield from subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()

    def checks(self) -> Mapping[str, bool]:
        """Returns the postconditions: one receipt that failed, one that passed, a task that is proven, a report that
        names the receipt."""
        texts, task = self.texts, self.services.task_changes.get(self.task.id)
        receipts = self.services.checks.receipts_of(task.id)
        mailed = [message.metadata for _, message in self.services.workspace.mailbox("admin").hot.entities()]
        mailed += [message.metadata for message in self.services.workspace.mailbox("admin").history()]
        return {
            texts("demo.task_status", task=task.id, status=task.status, wanted="done"): task.status == "done",
            texts("demo.not_proven", proof=task.proof or "-"): task.proof == "proven",
            texts("demo.receipts", count=len(receipts)): [item.passed for item in receipts] == [False, True],
            texts("demo.not_named"): any(said.get("receipts") == task.receipts for said in mailed),
        }


class GateScene(Scene):
    """A worker edits the check that judges it (docs/protocol.md, Approval): its delivery waits for the Owner, who sees
    what has changed, gives the work back, restores the check, approves it, and lets it be judged again."""

    worker = "worker-a"

    def begin(self) -> None:
        title, what = self.texts("demo.greeting"), self.texts("demo.greeting.what")
        self.task = self.create_task(title, what, self.worker, "tests")
        settings = self.services.workspace.settings_path
        approved = settings.read_bytes()
        super().begin()
        if not self.stage.wait_for([f"tasks/{self.worker}"], lambda: self._task.status == "review"):
            raise SceneFailed(self.texts("demo.never_began", agent=self.worker))
        self.waits = [item["kind"] for item in json.loads(self._run("attention", "--json"))["items"]]
        self._show("attention")
        self._show("checks")
        settings.write_bytes(approved)  # as a person would, in an editor
        self._show("checks", "approve")
        self._show("task", "reject", self.task.id, "--reason", self.texts("demo.not_so"))
        if self.stage.wait_for([f"tasks/{self.worker}"], lambda: self._task.status == "review"):
            self._show("task", "approve", self.task.id)

    def report(self) -> Iterator[str]:
        """Yields the history of the task, and the receipts of its check."""
        yield f"$ multi-agent-mcp task show {self.task.id}"
        yield from self._run("task", "show", self.task.id).splitlines()

    def checks(self) -> Mapping[str, bool]:
        texts, task = self.texts, self._task
        state = self.services.approvals.look().state
        return {
            texts("demo.task_status", task=task.id, status=task.status, wanted="done"): task.status == "done",
            texts("demo.not_gated"): "checks_changed" in self.waits,
            texts("demo.not_proven", proof=task.proof or "-"): task.proof == "proven" and state == "approved",
        }

    @property
    def _task(self) -> Task:
        return self.services.task_changes.get(self.task.id)

    def _show(self, *words: str) -> None:
        print_line(f"$ multi-agent-mcp {shlex.join(words)}\n{self._run(*words)}")

    def _run(self, *words: str) -> str:
        command = [*python(), *words, *self.stage.options]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class QuestionScene(Scene):
    """A worker asks and parks its task, does another one, and goes on once the Owner has answered in the console
    (docs/protocol.md, Questions)."""

    worker = "worker-a"

    def begin(self) -> None:
        self.asking, self.other = (
            self.create_task(self.texts(f"demo.{name}"), self.texts(f"demo.{name}.what"), self.worker)
            for name in ("painting", "tidying")
        )
        super().begin()
        if not self.stage.wait_for([f"tasks/{self.worker}"], lambda: self._status(self.other) == "done"):
            raise SceneFailed(self.texts("demo.never_began", agent=self.worker))
        (question,) = self.services.questions.open()
        self.parked = self._status(self.asking)
        print_line(self.texts("demo.answering", question=question.question, answer=question.choices[0]))
        with DemoConsole(self.stage.options) as console:
            console.answer(question.id, question.choices[0])

    def report(self) -> Iterator[str]:
        """Yields the questions with their history."""
        for question in self.services.questions.about(self.asking.id):
            yield f"{question.id} {question.question} → {question.answer} ({question.answered_by})"
            yield from (f"  {line['at']} {line.get('by', '-')} {line['status']}" for line in question.history)
        task = self.services.task_changes.get(self.asking.id)
        yield f"{task.id} {task.title}: {task.status}, {task.completion_summary}"

    def checks(self) -> Mapping[str, bool]:
        texts, status = self.texts, self._status(self.asking)
        answered = [found.answered_by for found in self.services.questions.about(self.asking.id)]
        return {
            **{
                texts("demo.task_status", task=self.asking.id, status=status, wanted=wanted): status == wanted
                for status, wanted in ((self.parked, "blocked"), (status, "done"))
            },
            texts("demo.not_answered"): answered == [self.services.agents.owner().id],
        }

    def _status(self, task: Task) -> str:
        return self.services.task_changes.get(task.id).status


class DemoConsole:
    """The console in a process of its own, in which the Owner answers as a browser does."""

    def __init__(self, options: Sequence[str]) -> None:
        self._command = [*python(), "web", *options]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, encoding="utf-8")
        link = self._process.stdout.readline().strip() if self._process.stdout else ""
        self._address = link.partition("/open")[0]
        self._browser = build_opener(HTTPCookieProcessor())
        page: str = self._browser.open(link).read().decode()
        found = re.search(r'"csrf": ?"([^"]+)"', page)
        self._token = found[1] if found else ""
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def answer(self, question_id: str, answer: str) -> None:
        headers = {"Origin": self._address, "Content-Type": "application/json", "X-CSRF-Token": self._token}
        url = f"{self._address}/api/questions/{question_id}/answer"
        request = Request(url, json.dumps({"answer": answer}).encode(), headers)  # noqa: S310 - our own address
        self._browser.open(request).close()


class OfficeScene(Scene):
    """A sample session to view in the console, with one running agent, whose task can be dragged to `blocked`
    (UC010)."""

    worker = "worker-d"

    def play(self) -> list[str]:
        """Executes the story, starts the worker and serves the console until Ctrl-C, or with `attach` until the human
        detaches. Returns the problems, in words."""
        story = read_story(examples_directory() / "office.yaml", self.stage.root, self.texts.language)
        story.tell()
        self.stage.open_windows()
        works = self.stage.wait_for([f"executions/{self.worker}"], self._has_begun)
        try:
            print_line(self.texts("demo.open_link", agent=self.worker))
            sys.stdout.flush()  # the console writes the link itself
            with subprocess.Popen([*python(), "web", *self.stage.options]) as console:
                self._show(console)
        finally:
            story.end()
        return [] if works else [self.texts("demo.never_began", agent=self.worker)]

    def _has_begun(self) -> bool:
        return bool(self.services.executions.all(self.worker))

    def _show(self, console: subprocess.Popen[bytes]) -> None:
        """Waits until the console ends, and terminates it if this process is to end first."""
        try:
            if self.stage.attach:
                self.stage.play_until([f"sessions/{self.worker}"], self._is_over, float("inf"))
            else:
                console.wait()
        except KeyboardInterrupt:
            console.wait()  # it received the same Ctrl-C
        finally:
            console.terminate()


SCENES: Mapping[str, tuple[str, type[Scene]]] = {
    "main": ("team.yaml", Scene),
    "interrupt": ("interrupt.yaml", InterruptScene),
    "shiritori": ("shiritori.yaml", ShiritoriScene),
    "proven": ("proven.yaml", ProvenScene),
    "gate": ("gate.yaml", GateScene),
    "question": ("question.yaml", QuestionScene),
    "morning": ("morning.yaml", MorningScene),
    "office": ("office.yaml", OfficeScene),
}
"""The team file and the class of each scene."""


def _tree(path: Path) -> Iterator[str]:
    """Yields the paths of the files in the session directory, without dot-directories."""
    yield f"{path}/"
    for item in sorted(path.rglob("*")):
        relative = item.relative_to(path)
        if not any(part.startswith(".") for part in relative.parts) and item.is_file():
            yield f"  {relative}"
