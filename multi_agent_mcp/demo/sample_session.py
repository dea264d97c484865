"""A sample session from `examples/office.yaml`: its steps are executed by the services, at the times given there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import OwnerWait
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.domain.times import now
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.texts import LANGUAGES

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
    from multi_agent_mcp.wiring import Services

Step = Mapping[str, Any]


@dataclass
class Story:
    """A story whose steps are executed in a session. Its agents stay logged in, as this process, until `end`."""

    root: Path
    session: str
    tasks: Mapping[str, str]
    steps: list[Step]
    began: datetime = field(default_factory=now)
    _ids: dict[str, str] = field(default_factory=dict)
    _sessions: dict[str, LiveSession] = field(default_factory=dict)

    def tell(self) -> None:
        """Executes all steps, at times before `began`."""
        self._now = self.began
        silent = Recorder(Delivery("stored", "no_pane"))  # the agents of a story have no panes
        self._services = open_session(self.root, self.session, clock=lambda: self._now, notifier=silent)
        for step in self.steps:
            self._now = self.began - timedelta(minutes=step["at"])
            getattr(self, f"_{step['do']}")(self._services, self._services.agents.get(step["by"]), step)
        self._now = self.began
        for session in self._sessions.values():
            session.touch()

    def end(self) -> None:
        for session in self._sessions.values():
            session.end()

    def _create(self, services: Services, me: Agent, step: Step) -> None:
        new = NewTask(
            title=self.tasks[step["task"]], assignee_id=step.get("to"), priority=step.get("priority", "medium")
        )
        (task,) = services.task_creation.create(me, [new], self._ids.get(step.get("parent", "")))
        self._ids[step["task"]] = task.id

    def _request(self, services: Services, me: Agent, step: Step) -> None:
        task, _ = services.task_creation.request(me, NewTask(title=self.tasks[step["task"]]))
        self._ids[step["task"]] = task.id

    def _start(self, services: Services, me: Agent, step: Step) -> None:
        task, _ = services.task_changes.start(me, self._ids[step["task"]])
        services.next_action.begin(self._logged_in(services, me), task)

    def _progress(self, services: Services, me: Agent, step: Step) -> None:
        items = [{"text": text, "completed": number < step["done"]} for number, text in enumerate(step["items"])]
        percent = 100 * step["done"] // len(items)
        services.task_reports.report_progress(me, self._ids[step["task"]], percent, checklist=items)
        self._read(services, services.agents.get(str(me.parent_id)), step)
        running = services.executions.running(self._logged_in(services, me).record)
        if running is not None:
            services.executions.log(running, f"Tool call: report_task_progress progress={percent}")

    def _report(self, services: Services, me: Agent, step: Step) -> None:
        session = self._logged_in(services, me)
        services.next_action.report_completed(me, session, step["result"], step["say"], None)
        session.end()
        del self._sessions[me.id]

    def _heed(self, services: Services, me: Agent, step: Step) -> None:  # noqa: ARG002 - steps are called alike
        services.notifications.read(me.id, "task")

    def _block(self, services: Services, me: Agent, step: Step) -> None:
        services.task_changes.set_status(me, self._ids[step["task"]], "blocked", step["say"])

    def _cancel(self, services: Services, me: Agent, step: Step) -> None:
        services.task_changes.set_status(me, self._ids[step["task"]], "cancelled", step["say"])

    def _send(self, services: Services, me: Agent, step: Step) -> None:
        services.messages.send(me, Draft(content=step["say"], subject=step["subject"], receiver_id=step["to"]))

    def _read(self, services: Services, me: Agent, step: Step) -> None:  # noqa: ARG002 - steps are called alike
        self._now += timedelta(seconds=21)
        services.reading.read(me, Query(whole=True, polling=False))

    def _talk(self, services: Services, me: Agent, step: Step) -> None:
        two = (me, services.agents.get(step["to"]))
        first, *others = step["lines"]
        task_id = self._ids[step["task"]]
        talk, _ = services.conversations.begin(*two, first, purpose=step["purpose"], task_id=task_id)
        for number, line in enumerate(others, 1):
            self._now += timedelta(seconds=75)
            services.conversations.say(two[number % 2], talk.id, Draft(content=line))
        for one in two:
            services.reading.read(one, Query(whole=True, polling=False))

    def _wait(self, services: Services, me: Agent, step: Step) -> None:
        wait = OwnerWait(owner_id=me.id, admin_id=step["to"], task_id=self._ids[step["task"]], since=self._now)
        services.owner_waits.begin(wait)

    def _logged_in(self, services: Services, agent: Agent) -> LiveSession:
        if agent.id not in self._sessions:
            self._sessions[agent.id] = services.sessions.open(agent.id, "task")
        return self._sessions[agent.id]


def read_story(path: Path, root: Path, language: str) -> Story:
    """Reads the story in a team file, in one language."""
    told = _in_language(yaml.safe_load(path.read_bytes()), language)
    return Story(root, told["session"], told["tasks"], told["steps"])


def _in_language(told: Any, language: str) -> Any:
    """Replaces every `{en: …, ja: …}` by its text in one language, recursively."""
    if isinstance(told, dict):
        if told.keys() == set(LANGUAGES):
            return told[language]
        return {key: _in_language(value, language) for key, value in told.items()}
    return [_in_language(item, language) for item in told] if isinstance(told, list) else told
