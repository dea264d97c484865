"""The one place that chooses implementations and wires them together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path

from multi_agent_mcp.config import Settings, read_environment, read_settings, session_names
from multi_agent_mcp.domain import names, times
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import RungReport
from multi_agent_mcp.errors import NoSuchSession
from multi_agent_mcp.notify.base import Notifier
from multi_agent_mcp.notify.doorbell import Doorbell
from multi_agent_mcp.notify.ladder import Ladder
from multi_agent_mcp.notify.lines import doorbell_line
from multi_agent_mcp.notify.standard import pane_notifier, standard_ladder
from multi_agent_mcp.services import undertakings
from multi_agent_mcp.services.agents import Agents
from multi_agent_mcp.services.board import Board
from multi_agent_mcp.services.care.doctor import Doctor
from multi_agent_mcp.services.care.finding import Patient
from multi_agent_mcp.services.chat_tasks import ChatTasks
from multi_agent_mcp.services.chat_work import ChatWork
from multi_agent_mcp.services.conversations import Conversations
from multi_agent_mcp.services.correspondence import Correspondence
from multi_agent_mcp.services.creation import Creation
from multi_agent_mcp.services.dashboard import Dashboard
from multi_agent_mcp.services.delegations import Delegations
from multi_agent_mcp.services.executions import Executions
from multi_agent_mcp.services.glance import Glance
from multi_agent_mcp.services.hooks import Hooks
from multi_agent_mcp.services.interrupts import Interrupts
from multi_agent_mcp.services.messages import Messages
from multi_agent_mcp.services.notifications import Notifications
from multi_agent_mcp.services.post import Post
from multi_agent_mcp.services.reading import Reading
from multi_agent_mcp.services.reports import Reports
from multi_agent_mcp.services.requests import Requests
from multi_agent_mcp.services.sessions import Sessions
from multi_agent_mcp.services.signatures import Signatures
from multi_agent_mcp.services.staffing import Staffing
from multi_agent_mcp.services.tasks import Tasks
from multi_agent_mcp.services.timeline import Timelines
from multi_agent_mcp.services.tracing import Tracing
from multi_agent_mcp.services.undertakings import Carrier, Kind, Undertakings
from multi_agent_mcp.services.waiting import Waiting
from multi_agent_mcp.services.work import Work
from multi_agent_mcp.store.journal import Journal
from multi_agent_mcp.store.locks import ORDER_CHECK
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.texts import Texts, catalogue


@dataclass(frozen=True)
class Services:
    """Everything that works on one session directory. Made once per process."""

    workspace: Workspace
    settings: Settings
    texts: Texts
    clock: Callable[[], datetime]
    notifier: Notifier

    @cached_property
    def agents(self) -> Agents:
        return Agents(self.workspace, self.clock)

    @cached_property
    def sessions(self) -> Sessions:
        return Sessions(self.workspace, self.executions, self.waiting, self.clock)

    @cached_property
    def executions(self) -> Executions:
        return Executions(self.workspace, self.clock)

    @cached_property
    def interrupts(self) -> Interrupts:
        return Interrupts(self.workspace, self.texts, self.clock)

    @cached_property
    def board(self) -> Board:
        return Board(self.workspace, self.agents, self.interrupts, self.undertakings, self.clock)

    @cached_property
    def creation(self) -> Creation:
        return Creation(self.workspace, self.agents, self.post, self.waiting, self.undertakings, self.clock)

    @cached_property
    def requests(self) -> Requests:
        return Requests(
            self.workspace, self.agents, self.messages, self.post, self.undertakings, self.texts, self.clock
        )

    @cached_property
    def work(self) -> Work:
        return Work(
            self.workspace,
            self.board,
            self.requests,
            self.tasks,
            self.executions,
            self.undertakings,
            self.texts,
            self.clock,
        )

    @cached_property
    def waiting(self) -> Waiting:
        return Waiting(self.workspace, self.clock)

    @cached_property
    def dashboard(self) -> Dashboard:
        return Dashboard(self.workspace, self.sessions, self.waiting, self.clock)

    @cached_property
    def reports(self) -> Reports:
        return Reports(self.workspace, self.dashboard, self.clock)

    @cached_property
    def doorbell(self) -> Doorbell:
        return Doorbell(self.workspace, self.notifier, self.settings, self.texts, self.clock)

    @cached_property
    def messages(self) -> Messages:
        return Messages(
            self.workspace,
            self.agents,
            self.settings,
            self.texts,
            self.clock,
            self.doorbell,
            self.post,
            self.undertakings,
        )

    @cached_property
    def signatures(self) -> Signatures:
        return Signatures(self.agents)

    @cached_property
    def tracing(self) -> Tracing:
        return Tracing(self.workspace, self.agents, self.doorbell)

    @cached_property
    def correspondence(self) -> Correspondence:
        return Correspondence(self.workspace)

    @cached_property
    def post(self) -> Post:
        return Post(self.workspace, self.signatures, self.doorbell.announce)

    @cached_property
    def undertakings(self) -> Undertakings:
        """Who carries out which kind of intent."""
        carriers: dict[Kind, Carrier] = {
            undertakings.SEND: lambda intent: self.post.carry(intent),
            undertakings.CREATE_TASKS: lambda intent: self.creation.carry(intent),
            undertakings.SEND_TASK: lambda intent: self.creation.carry(intent),
            undertakings.REQUEST_TASK: lambda intent: self.creation.carry(intent),
            undertakings.DECIDE_REQUEST: lambda intent: self.requests.carry_decision(intent),
            undertakings.ASSIGN_TASK: lambda intent: self.board.carry_assignment(intent),
            undertakings.BLOCK_FAMILY: lambda intent: self.board.carry_block(intent),
            undertakings.REPORT_COMPLETED: lambda intent: self.work.carry_completion(intent),
            undertakings.BEGIN_CONVERSATION: lambda intent: self.conversations.carry_beginning(intent),
            undertakings.SAY: lambda intent: self.conversations.carry_words(intent),
            undertakings.END_CONVERSATION: lambda intent: self.conversations.carry_end(intent),
        }
        return Undertakings(self.workspace, carriers)

    @cached_property
    def glance(self) -> Glance:
        return Glance(
            self.workspace,
            self.sessions,
            self.waiting,
            self.interrupts,
            self.correspondence,
            self.tracing,
            self.clock,
        )

    @cached_property
    def timeline(self) -> Timelines:
        return Timelines(self.workspace, self.correspondence, self.doorbell, self.clock)

    @cached_property
    def conversations(self) -> Conversations:
        return Conversations(self.workspace, self.agents, self.messages, self.post, self.undertakings, self.clock)

    @cached_property
    def delegations(self) -> Delegations:
        return Delegations(self.workspace, self.agents, self.sessions, self.conversations, self.texts, self.clock)

    @cached_property
    def chat_tasks(self) -> ChatTasks:
        return ChatTasks(self.workspace, self.agents, self.board, self.conversations, self.audit, self.clock)

    @cached_property
    def staffing(self) -> Staffing:
        return Staffing(self.workspace, self.agents, self.sessions, self.board, self.delegations, self.clock)

    @cached_property
    def chat_work(self) -> ChatWork:
        return ChatWork(self.workspace, self.delegations, self.conversations, self.texts)

    @cached_property
    def reading(self) -> Reading:
        return Reading(
            self.workspace,
            self.agents,
            self.settings,
            self.texts,
            self.clock,
            self.reports,
            self.conversations,
            self.waiting,
            self.signatures,
        )

    @cached_property
    def tasks(self) -> Tasks:
        return Tasks(self.workspace, self.agents, self.messages, self.undertakings, self.texts, self.clock)

    def rungs(self, agent: Agent) -> tuple[RungReport, ...]:
        """The agent's rungs, strongest first, and why each could not ring now; see `notify.ladder.explain`."""
        return self.notifier.explain(agent) if isinstance(self.notifier, Ladder) else ()

    def doctor(self, probe: Callable[[Agent], str | None]) -> Doctor:
        """`probe` says why an agent's pane cannot be rung."""
        return Doctor(
            Patient(
                self.workspace,
                self.agents,
                self.sessions,
                self.waiting,
                self.staffing,
                self.interrupts,
                self.signatures,
                self.undertakings,
                probe,
            )
        )

    def screen(self, agent: Agent) -> str:
        """What the agent's pane shows: its host and `idle`, `busy`, `draft`, a dialog …, or why nobody can look."""
        return pane_notifier(self.workspace, self.settings).screen(agent)

    def audit(self, tool: str, **facts: object) -> None:
        """Adds a line to `audit/{YYYYMMDD}.jsonl`, durably."""
        now = self.clock()
        path = self.workspace.path / "audit" / f"{now:%Y%m%d}.jsonl"
        journal = Journal(self.workspace.files, path, durable=True)
        journal.append(at=times.format_time(now), tool=tool, **facts)

    @cached_property
    def notifications(self) -> Notifications:
        return Notifications(self.workspace, self.interrupts, self.clock)

    @cached_property
    def hooks(self) -> Hooks:
        line = partial(doorbell_line, self.texts)
        return Hooks(self.workspace, self.notifications, self.sessions, self.settings, self.texts, self.clock, line)


def open_session(
    root: Path,
    session: str,
    *,
    language: str | None = None,
    clock: Callable[[], datetime] = times.now,
    notifier: Notifier | None = None,
) -> Services:
    """The services of an existing session. Raises `InvalidId`, or `NoSuchSession` when `init` was never run."""
    if read_environment().check_locks:
        ORDER_CHECK.abort_on_violations()
    workspace = Workspace(root, names.session_name(session))
    if session not in session_names(root):  # by its exact name, also where the file system does not mind the case
        raise NoSuchSession(session=session)
    settings = read_settings(workspace.settings_path, language)
    texts = catalogue(settings.language)
    return Services(workspace, settings, texts, clock, notifier or standard_ladder(workspace, settings, texts))
