"""The stage of the demos: a separate tmux server with a team of scripted agents, and a session that has a past."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import yaml

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import Agent, OwnerWait
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.domain.times import now
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.doorbell.tmux.client import Server
from multi_agent_mcp.doorbell.tmux.team_panes import tmux_session
from multi_agent_mcp.errors import AlreadyExists
from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.team.setup import add_missing, create_session, read_team
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.system.file_events import Changes, Watch
from multi_agent_mcp.texts import LANGUAGES
from multi_agent_mcp.windows.agent_command import examples_directory
from multi_agent_mcp.windows.up_down import Startup
from multi_agent_mcp.windows.window_registry import TeamWindows
from multi_agent_mcp.wiring import Services

SECONDS = 120.0
LOOK_AGAIN_SECONDS = 0.5
ENDING = (signal.SIGTERM, signal.SIGHUP)


def _leave(number: int, _: object) -> None:
    """Exits so that tmux is stopped, which the signal's default action would not do. Further signals are ignored, so
    that they do not interrupt the clean-up."""
    _ignore_endings()
    raise SystemExit(128 + number)


def _ignore_endings() -> None:
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


class Stage:
    """Makes the session in `directory` and a tmux server, with its socket in a short temporary directory (a Unix
    socket's path is limited to about 100 characters). Unless `keep`, the server is stopped at the end, also after a
    signal. With `attach` the panes are shown in this terminal while it waits."""

    def __init__(
        self, directory: Path, team_file: str, language: str, *, keep: bool = False, attach: bool = False
    ) -> None:
        self.root = directory / ".multi-agent-mcp"
        self.language = language
        self.keep = keep
        self.attach = attach
        self._team = read_team(examples_directory() / team_file)
        if (path := self.root / (self._team.session or "demo")).exists():
            raise AlreadyExists(name=path)  # an existing team with its own mail and tasks

    def __enter__(self) -> Self:
        for number in ENDING:
            signal.signal(number, _leave)
        create_session(self.root, self.session, self._team, self.language)
        add_missing(self.services.agents, self._team)
        self._sockets = Path(tempfile.mkdtemp(prefix="mam-", dir="/tmp"))  # last: after a raise nothing removes it
        self.socket = self._sockets / "tmux"
        return self

    def __exit__(self, *_: object) -> None:
        _ignore_endings()
        if not self.keep:
            self.tmux.cmd("kill-server")
            shutil.rmtree(self._sockets, ignore_errors=True)

    @property
    def session(self) -> str:
        return self._team.session or "demo"

    @cached_property
    def services(self) -> Services:
        return open_session(self.root, self.session)

    @property
    def tmux(self) -> Server:
        return Server(self.socket, config_file="/dev/null")

    @property
    def actors(self) -> list[str]:
        """The agents with a command in the team file."""
        return [agent.id for agent in self._team.agents if agent.command is not None]

    @property
    def options(self) -> list[str]:
        """The options with which a command finds the session."""
        return ["--root", str(self.root), "--session", self.session]

    def open_windows(self, *, supervisor: bool = False) -> None:
        """Opens one window per actor. The pane of a finished actor stays, for inspection."""
        windows = TeamWindows(self.services, str(self.socket), "/dev/null")
        Startup(windows).open(supervisor=supervisor, owner=False)

    def wait_for(self, directories: Iterable[str], happened: Callable[[], bool], seconds: float = SECONDS) -> bool:
        """Waits, by file events in directories of the session, until `happened` is true; returns whether it was in
        time."""
        changes = Changes()
        deadline = time.monotonic() + seconds
        with Watch([self.services.path / name for name in directories], lambda _: changes.notify()):
            while True:
                seen = changes.count
                if happened():
                    return True
                if time.monotonic() > deadline:
                    return False
                changes.wait(seen, LOOK_AGAIN_SECONDS)

    def play_until(self, directories: Iterable[str], happened: Callable[[], bool], seconds: float = SECONDS) -> bool:
        """As `wait_for`; with `attach` the panes are shown meanwhile, at most until the human detaches."""
        if not self.attach:
            return self.wait_for(directories, happened, seconds)
        outcome: list[bool] = []

        def wait() -> None:
            outcome.append(self.wait_for(directories, happened, seconds))
            self.tmux.cmd("detach-client", "-s", f"={tmux_session(self.root, self.session)}")

        waiter = threading.Thread(target=wait, daemon=True)  # a signal ends us without it
        waiter.start()
        subprocess.run(["tmux", "-S", str(self.socket), "attach"], check=False)
        waiter.join()
        return outcome[0]

    def screens(self) -> Iterator[str]:
        """Yields the text in the panes, to report a failed demo."""
        for agent in self.services.agents.all().values():
            if agent.pane_id is not None:
                yield f"--- {agent.id}"
                yield from self.tmux.pane(agent.pane_id).capture_pane()


Step = Mapping[str, Any]


@dataclass
class Story:
    """A story, as `examples/office.yaml` has one, whose steps are executed by the services, at the times
    given there. Its agents stay logged in, as this process, until `end`."""

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
