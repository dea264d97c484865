"""The agent that this process acts for: bound by `--agent` and its key, or unbound until `authenticate`
(docs/protocol.md, Identity)."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.config import working_directory
from multi_agent_mcp.doorbell.ringing import THREAD
from multi_agent_mcp.doorbell.thread import DoorbellThread, Silence
from multi_agent_mcp.errors import InvalidSession, Refusal, TmuxTimeout
from multi_agent_mcp.system.file_events import Changes, Watch
from multi_agent_mcp.system.file_status import are_unchanged, is_settled, modified_at
from multi_agent_mcp.system.process import program_ends

if TYPE_CHECKING:
    from multi_agent_mcp.config import TmuxPane
    from multi_agent_mcp.domain.agent import Agent, AgentSession
    from multi_agent_mcp.domain.delivery import FirstPrompt
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
    from multi_agent_mcp.services.sessions.confirmation import Confirmation
    from multi_agent_mcp.services.tasks.deliveries import Examined
    from multi_agent_mcp.wiring import Services

logger = logging.getLogger(__name__)


class Briefing:
    """Whether the agent was briefed since it was bound to this process (docs/protocol.md, Briefing)."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._since = services.clock()
        self._answer: Confirmation | None = None
        """The answer that carried it, or need not."""
        self._thread_id: str | None = None
        """The host's conversation then."""

    def is_needed(self, record: AgentSession, thread_id: str | None) -> bool:
        """Whether the next answer of `get_next_action` has to carry it. One that was cancelled has not been read."""
        first = self._answer is None or self._answer.is_cancelled
        changed = None if first or self._thread_id is None or thread_id == self._thread_id else thread_id
        if first and not self._services.sessions.has_past(record):
            return False
        return self._services.hooks.needs_briefing(
            record.agent_id, record.purpose, self._since, first=first, conversation=changed
        )

    def given(self, record: AgentSession, answer: Confirmation, thread_id: str | None, *, carried: bool) -> None:
        """Records an answer that is about to be written, with the briefing or, if it was not needed, without."""
        first = self._answer is None or self._answer.is_cancelled
        if first or carried or thread_id != self._thread_id:
            self._answer, self._thread_id = answer, thread_id
            self._services.hooks.briefed(record.agent_id, record.purpose)


def _end_process() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class Binding:
    """The agent that a process acts for. `session` is None while no agent is bound.

    A program that acts for several agents (`toolkit`) has a binding for each of their sessions. `disown` is called when
    the agent's key was replaced; without it the process ends. Without `rings` ringing is left to whoever writes to the
    agent."""

    def __init__(
        self,
        services: Services,
        *,
        pane: TmuxPane | None = None,
        purpose: str | None = None,
        directory: Path | None = None,
        rings: bool = True,
        disown: Callable[[], None] | None = None,
    ) -> None:
        self.services = services
        self.session: LiveSession | None = None
        self.changed = threading.Event()
        """Set when `tools/list` has changed and the host has not been told yet."""
        self.disowned = threading.Event()
        """Set when the key was replaced of the agent that this process was started for: the process ends."""
        self.changes = Changes()
        self._pane = pane
        self._purpose = purpose
        self._only: str | None = None
        self._agent_id: str | None = None
        self._thread_id: str | None = None
        self._heard: tuple[LiveSession, str | None, Mapping[str, int]] | None = None
        """For which session, which thread and which state of the hooks' file the host's conversation is noted."""
        self._place: dict[str, Any] = {}
        """The fields of this session's pane, and its Codex thread once known: where its doorbell rings."""
        self.gives_statement = True
        """Whether the server has to give the statement, as its host has no other place for it."""
        self._briefing = Briefing(services)
        self._bound_at = services.clock()
        self._doorbell: DoorbellThread | None = None
        self._watch: Watch | None = None
        self._checking: Checking | None = None
        self._directory = directory or working_directory()
        self._rings = rings
        self._disown = disown or _end_process
        self._is_hosted = disown is None
        self._mutex = services.sessions.binding_mutex

    def bind_process(self, agent_id: str, passkey: str | None) -> None:
        """Binds the process permanently, with the passkey or else the stored key. Raises `InvalidSession`,
        `AgentNotFound`, `InvalidId`, `Unauthorized`."""
        agents = self.services.agents
        agent = agents.here(agent_id)
        self._bind(agents.authenticate(agent.id, passkey if passkey is not None else agents.stored_key(agent.id)))
        self._only = agent.id

    def authenticate(self, agent_id: str, passkey: str) -> LiveSession:
        """Binds an unbound process. Raises `InvalidSession` if it is bound, or was started for another agent, and as
        `Agents.authenticate`."""
        with self._mutex:
            if self.session is not None and self.session.is_live():
                raise InvalidSession("already_authenticated")
            if self._only not in (None, agent_id):
                raise InvalidSession("bound_elsewhere", agent_id=self._only)
            agent = self.services.agents.authenticate(agent_id, passkey)
            self._release("expired")
            session = self._bind(agent)
            self.changed.set()
            self.start_background()
            return session

    def logout(self) -> None:
        """Ends the agent session. A process started for one agent stays bound: its doorbell rings on, and its next call
        opens a new session; any other must authenticate again."""
        with self._mutex:
            if self._only is None:
                self._release()
                self.changed.set()
            elif self.session is not None:
                self.session.end()

    @property
    def stays_after_logout(self) -> bool:
        """Whether the next call after a logout opens a new session."""
        return self._only is not None

    def closes_after_logout(self, session: LiveSession) -> bool:
        """See `MissingSessions.closes_after_logout`."""
        record = session.record
        return self.services.missing_sessions.closes_after_logout(record.agent_id, record.purpose, self._own_pane)

    @property
    def identity(self) -> dict[str, str | int]:
        """The ids of the bound agent and its session, for spans."""
        if self.session is None:
            return {}
        record = self.session.record
        return {
            "multi_agent_mcp.agent.id": record.agent_id,
            "multi_agent_mcp.session.id": record.id,
            "multi_agent_mcp.purpose": record.purpose,
        }

    @property
    def told(self) -> Agent | None:
        """The bound agent, if it is this server that has to give it the statement."""
        return self.agent() if self.session is not None and self.gives_statement else None

    def agent(self) -> Agent:
        """The bound agent's current record in the registry."""
        return self.services.agents.get(self._agent_id or "")

    def acting(self) -> Agent:
        """The bound agent, for a call. Raises as `Agents.acting`."""
        return self.services.agents.acting(self._agent_id or "")

    def require_key(self) -> None:
        """Raises `InvalidSession` if the agent's key was replaced: this process has not proven the new one, and acts
        for the agent no more. One that was started for the agent ends; another must authenticate again."""
        if self._agent_id is None or (self._only is None and self.session is None):
            return
        try:
            self.services.agents.require_key(self._agent_id)
        except InvalidSession as refusal:
            logger.warning("%s", self.services.texts.sentence(refusal))
            if self._only is None:
                self.logout()
            else:
                self.disowned.set()
            raise

    def live_session(self) -> LiveSession:
        """The session of a bound process. A process started for one agent opens a new one by itself after a logout or
        an expiry: it may have waited for hours. Raises `InvalidSession` if no agent is bound, or the session has
        expired."""
        with self._mutex:
            if self.session is None:
                raise InvalidSession
            if not self.session.is_live():
                if self._only is None:
                    raise InvalidSession
                purpose = self.session.record.purpose
                self.session.end("expired")
                self._open(self._only, purpose)
            self._note_conversation(self.session)
            return self.session

    def _note_conversation(self, session: LiveSession) -> None:
        """Records the host's conversation, as its hooks or its calls have named it, in the session; again only after
        one of them has said something."""
        if self._heard is not None and self._heard[:2] == (session, self._thread_id) and are_unchanged(self._heard[2]):
            return
        record, looked_at = session.record, time.time_ns()
        path = self.services.hooks.state_path(record.agent_id, record.purpose)
        mtime = modified_at(path)
        host, conversation = self.services.hooks.conversation(record.agent_id, record.purpose, self._bound_at)
        if conversation is None and self._thread_id is not None:
            host, conversation = "codex", self._thread_id
        session.note_conversation(host, conversation)
        self._heard = (session, self._thread_id, {path: mtime}) if is_settled(mtime, looked_at) else None

    def start_background(self) -> bool:
        """Starts watching and ringing, once; returns whether it was not started yet. Called after the first answer: the
        imports needed would delay it, and a host waits only a second (docs/protocol.md, Host life cycle)."""
        with self._mutex:
            if self.session is None or self._watch is not None:
                return False
            self._watch = Watch(self.services.directories_of(self._agent_id or ""), self._directory_changed)
            if self._doorbell is not None:
                self._doorbell.start()
            else:
                self._start_watch(self._watch)
            return True

    def note_thread(self, thread_id: object) -> None:
        """Records the thread that Codex sends with every call; `codex queue` needs it to wake the agent
        (docs/hosts.md, Waking without keys). Never raises: this must not fail a call."""
        if self._agent_id is None or thread_id == self._thread_id or not isinstance(thread_id, str):
            return
        try:
            self._place["codex_thread_id"] = thread_id
            self.services.agents.note(self._agent_id, codex_thread_id=thread_id)
            self._thread_id = thread_id
        except Refusal as refusal:
            logger.warning("the thread could not be noted: %s", refusal)

    def needs_briefing(self) -> bool:
        """Whether the next answer of `get_next_action` has to carry the briefing."""
        return self.session is not None and self._briefing.is_needed(self.session.record, self._thread_id)

    def gives_next_action(self, answer: Confirmation, *, briefed: bool) -> None:
        """Called when an answer of `get_next_action` is about to be written; `briefed`: it carries the briefing."""
        if self.session is not None:
            self._briefing.given(self.session.record, answer, self._thread_id, carried=briefed)

    def _forget_thread(self, agent: Agent) -> None:
        """Removes the thread of an earlier process: Codex begins a new one, and names it only at its first turn."""
        if agent.extra.get("codex_thread_id") is not None and not self.services.sessions.served_purposes(agent.id):
            self.services.agents.note(agent.id, codex_thread_id=None)

    @property
    def checking(self) -> Checking:
        """The examinations of the tasks that the bound agent has delivered."""
        with self._mutex:
            if self._checking is None:
                self._checking = Checking(self.services, self._agent_id or "", self._directory)
                if not self._rings:
                    self.start_background()
            return self._checking

    def start_if_examined(self) -> None:
        """As `start_background`, for a program that nobody rings, if a task of the agent is being examined. Else it is
        started by what needs it: a delivery, a call that waits."""
        tasks, _ = self.services.board.listed(None, self._agent_id, only_open=True)
        if any(task.delivery for task in tasks):
            self.start_background()

    def mailbox_was_read(self) -> None:
        """Wakes the doorbell's thread, because reading may make the next doorbell due."""
        if self._doorbell is not None:
            self._doorbell.wake()

    @property
    def is_over(self) -> bool:
        """Whether a call waits in vain: the session was closed, or the program ends."""
        return self.changes.closed or program_ends()

    def close(self, *, confirm: bool = True) -> None:
        """Ends the session and the doorbell, at the end of the process. With `confirm`, for a regular end, answers that
        were written are confirmed; else their mail is requeued."""
        self.changes.close()
        with self._mutex:
            self._release(confirm=confirm)

    def _bind(self, agent: Agent) -> LiveSession:
        sessions = self.services.sessions
        self.services.agents.make_inboxes(agent.id)
        self.services.operations.finish()
        sessions.recover(agent.id)
        self._forget_thread(agent)
        session = self._open(agent.id, self._purpose)
        self._agent_id, self._thread_id, self._place = agent.id, None, {}
        self._briefing, self._bound_at = Briefing(self.services), self.services.clock()
        if self._rings:
            self._doorbell = DoorbellThread(
                self.services.doorbell,
                agent.id,
                session.record.purpose,
                prepare=self._prepare,
                silence=Silence(self._unheard_prompt, self._screen_state),
                remind=self._remind,
            )
            self._doorbell.claim()
        return session

    def _open(self, agent_id: str, purpose: str | None) -> LiveSession:
        self.session = self.services.sessions.open(agent_id, purpose, hosted=self._is_hosted)
        if self.session.record.task_id is not None:
            self.services.executions.begin(self.session.record, self.session.record.task_id)
        return self.session

    def _release(self, state: str = "ended", *, confirm: bool = True) -> None:
        try:
            if self.session is not None:
                self.session.end(state, confirm=confirm)
        finally:
            self.session = None
            if self._doorbell is not None:
                self._doorbell.close()
                self._doorbell = None
            if self._watch is not None:
                self._watch.__exit__()
                self._watch = None
            if self._checking is not None:
                self._checking.close()
                self._checking = None

    def _prepare(self) -> Mapping[str, Any]:
        """Runs in the doorbell's thread, again after a refusal: starts the watch, registers the pane. Returns `_place`.
        Raises `TmuxTimeout`, and `StorageError`."""
        agent_id = self._agent_id
        if agent_id is None:
            return self._place
        if self._watch is not None and not self._watch.runs:
            self._start_watch(self._watch)
        self._place.update(self._register_pane(agent_id) or {})
        return self._place

    def _start_watch(self, watch: Watch) -> None:
        watch.__enter__()
        self.checking.wake()  # what an earlier server has left, or came before the watch

    def _register_pane(self, agent_id: str) -> Mapping[str, Any] | None:
        """Returns the fields of this process's pane, and writes them into `agents.json` unless the agent has another
        live session, or a server of the other purpose, which keeps the registered pane while a program runs there.
        None where this process does not run in the pane that its environment names. Raises `TmuxTimeout` while tmux
        does not answer, and `StorageError`."""
        if self._pane is None:
            return None
        from multi_agent_mcp.doorbell.tmux.client import pane_place, runs_in
        from multi_agent_mcp.doorbell.tmux.snapshot import probe
        from multi_agent_mcp.doorbell.tmux.team_panes import USABLE

        place = pane_place(*self._pane) if runs_in(os.getpid(), self._pane) else None
        if place is None:
            advice = f"name its own: multi-agent-mcp agent set {agent_id} --pane %N"
            logger.warning("this does not run in pane %s, which TMUX_PANE names; %s", self._pane.pane_id, advice)
            return None
        own = self.session.record.id if self.session is not None else ""
        sessions = self.services.sessions
        others = [session for session in sessions.live(agent_id) if session.id != own]
        served = sessions.served_purposes(agent_id)
        is_only = not others and (self.session is None or served <= {self.session.record.purpose})
        agent = self.services.agents.get(agent_id)
        reason = None if is_only else probe(agent)
        if reason == TmuxTimeout.code:
            raise TmuxTimeout(socket_path=agent.socket_path)
        if is_only or reason not in USABLE:
            self.services.agents.note(agent_id, **place)
        return place

    @property
    def _own_pane(self) -> tuple[str, str] | None:
        return None if self._pane is None else (self._pane.socket_path, self._pane.pane_id)

    def _unheard_prompt(self) -> FirstPrompt | None:
        """The prompt that the host in this pane began with, while none of our tools was called."""
        session, pane = self.session, self._own_pane
        if session is None or session.record.called or pane is None:
            return None
        return self.services.missing_sessions.unheard_prompt(session.record.agent_id, session.record.purpose, pane)

    def _screen_state(self) -> str | None:
        """The state of the screen of the host in this pane; None for one without a profile."""
        pane = {key: value for key, value in self._place.items() if key != THREAD}
        seen = self.services.pane_notifier.host(replace(self.agent(), **pane))
        return None if seen is None else seen[1]

    def _remind(self) -> timedelta | None:
        """Reminds the agent of a task, in its task session."""
        if self._agent_id is None or self.session is None or self.session.record.purpose != "task":
            return None
        return self.services.reminders.look(self._agent_id, self._screen_state)

    def _directory_changed(self, directory: Path) -> None:
        with suppress(Refusal):
            self.require_key()
        if self.disowned.is_set():
            self._disown()  # it ends without a call, before it rings for the agent
            return
        if self._doorbell is not None:
            self._doorbell.wake()
        self.changes.notify()
        if self._checking is not None and directory == self.services.tasks_of(self._checking.agent_id):
            self._checking.wake()


# Examines the tasks that this server's agent has delivered, in a thread: runs their checks one at a time, and goes on
# with what an earlier server has left (docs/protocol.md, Checks).

ANSWER_SECONDS = 20.0
"""How long a call waits for the outcome; later it is a notification."""
AGAIN_SECONDS = 60.0
"""The interval of trying again what could not be examined: a full disk, a damaged session.yaml."""
OTHERS_SECONDS = 3.0
"""How long a task is left to the process that has just delivered or approved it."""
CLOSING_SECONDS = 0.5


class WaitingCall:
    """A call that waits for the outcome of one task's examination."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._given_up = False
        self._taken = False
        self._ended = threading.Event()
        self._outcome: Examined | None = None

    def takes(self) -> bool:
        """Whether the call still waits, and therefore gets the outcome, which is ready; else it becomes a
        notification."""
        with self._mutex:
            self._taken = not self._given_up
            return self._taken

    def answer(self, outcome: Examined | None) -> None:
        self._outcome = outcome
        self._ended.set()

    def wait(self) -> Examined | None:
        """The outcome; None if there is none yet, or the examination was cancelled."""
        if not self._ended.wait(ANSWER_SECONDS):
            with self._mutex:
                self._given_up = not self._taken
            if self._given_up:
                return None
            self._ended.wait()
        return self._outcome


class Checking:
    """The examinations of one agent. `wake` is called when its tasks may have changed."""

    def __init__(self, services: Services, agent_id: str, directory: Path) -> None:
        self._services = services
        self.agent_id = agent_id
        self._directory = directory
        self._since = services.clock()
        self._asked: dict[str, WaitingCall] = {}
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._mutex = threading.Lock()

    def deliver(self, assignee: Agent, task_id: str, summary: str | None, next_steps: str | None) -> Examined:
        """Delivers a task and waits for the outcome of its checks, at most `ANSWER_SECONDS`. Raises as
        `Deliveries.deliver`."""
        deliveries = self._services.deliveries
        asked = self._asked[task_id] = WaitingCall()  # first: the thread may be awake
        try:
            task = deliveries.deliver(assignee, task_id, summary, next_steps)
            if not task.checks or not task.is_examined:
                return deliveries.conclude(task)
            self.wake()
            return asked.wait() or deliveries.outcome_of(task.id)
        finally:
            self._asked.pop(task_id, None)

    def wake(self) -> None:
        """Examines what is delivered, unless nothing is."""
        self._wake.set()
        with self._mutex:
            if self._thread is None and not self._closing.is_set() and self._pending():
                self._thread = threading.Thread(target=self._run, name=f"checks-{self.agent_id}", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Ends the running check; the next server runs it again."""
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(CLOSING_SECONDS)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.clear()
            pending = self._pending()
            waits = [self._left_to_others(task) or (0.0 if self._examine(task) else AGAIN_SECONDS) for task in pending]
            if not waits:
                self._wake.wait()
            elif any(waits):
                self._wake.wait(min(filter(None, waits)))

    def _left_to_others(self, task: Task) -> float:
        """For how many seconds more a task is left to the process that has just delivered or approved it: its call gets
        the outcome, and a notification would say the same again."""
        if task.id in self._asked or task.updated_at < self._since:
            return 0.0
        passed = (self._services.clock() - task.updated_at).total_seconds()
        return max(OTHERS_SECONDS - max(passed, 0.0), 0.0)

    def _pending(self) -> list[Task]:
        try:
            return self._services.deliveries.pending(self.agent_id)
        except Refusal as refusal:
            logger.warning("it cannot be seen which tasks are to be examined: %s", refusal)
            return []

    def _examine(self, task: Task) -> bool:
        """Examines one task; returns whether it need not be tried again later."""
        asked, outcome = self._asked.get(task.id), None
        try:
            outcome = self._services.deliveries.examine(
                task.id, self._directory, self._closing.is_set, told=lambda: asked is None or not asked.takes()
            )
        except Refusal as refusal:
            logger.warning("task %s could not be examined: %s", task.id, refusal)
            return False
        except Exception:
            logger.exception("task %s could not be examined", task.id)
            return False
        finally:
            if asked is not None:
                asked.answer(outcome)
        return True
