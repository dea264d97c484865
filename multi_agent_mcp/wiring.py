"""The services of one session. A service is made, and its module imported, on first use: it gets the session, and the
services that its fields name.

To see who uses a service, find the classes with a field of its name, and the usages of its property.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from multi_agent_mcp.features import load
from multi_agent_mcp.store.records import KeyFile, Record
from multi_agent_mcp.texts import Texts

if TYPE_CHECKING:
    from multi_agent_mcp.contributions import Contributions
    from multi_agent_mcp.diagnosis import Diagnosis
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.delivery import ChannelReport
    from multi_agent_mcp.domain.dialog import Asked
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.doorbell.channel import Channel
    from multi_agent_mcp.doorbell.ringing import Doorbell
    from multi_agent_mcp.doorbell.thread import PeopleDoorbells
    from multi_agent_mcp.doorbell.tmux.notifier import RemotePanes, TmuxNotifier
    from multi_agent_mcp.hooks.answers import Hooks, ToolCalls
    from multi_agent_mcp.host_config import HostConfigurations
    from multi_agent_mcp.services.answer_budget import AnswerBudget
    from multi_agent_mcp.services.attention import Attention, RecentAttention
    from multi_agent_mcp.services.chat.conversations import Conversations, HumanConversations
    from multi_agent_mcp.services.chat.delegations import Delegations
    from multi_agent_mcp.services.chat.task_operations import ChatTaskOperations
    from multi_agent_mcp.services.doctor.doctor import Doctor
    from multi_agent_mcp.services.doctor.pruning import Pruning
    from multi_agent_mcp.services.glance import Glances
    from multi_agent_mcp.services.mail import DeliveryTracking, Messages, Outbox
    from multi_agent_mcp.services.mail_search import MailSearch
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.notifications.loops import Loops
    from multi_agent_mcp.services.notifications.notifications import Notifications
    from multi_agent_mcp.services.notifications.writing import Interrupts, NoticeWriter
    from multi_agent_mcp.services.operations import Operations
    from multi_agent_mcp.services.overview.listed_dialogs import ListedDialogs
    from multi_agent_mcp.services.overview.missing_sessions import MissingSessions
    from multi_agent_mcp.services.overview.pane_looks import LookAtPane, PaneLooks
    from multi_agent_mcp.services.overview.snapshot import Dashboard, Machines, Snapshots
    from multi_agent_mcp.services.overview.stuck_agents import StuckAgents
    from multi_agent_mcp.services.overview.supervision import Supervision
    from multi_agent_mcp.services.questions import QuestionEffects, Questions
    from multi_agent_mcp.services.search import Lookup, Search
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.sessions.session_records import Executions, HandOffs, OwnerWaits
    from multi_agent_mcp.services.tasks.board import Board, TaskCreation
    from multi_agent_mcp.services.tasks.changes import TaskChanges
    from multi_agent_mcp.services.tasks.checks import Checks
    from multi_agent_mcp.services.tasks.delivered import DeliveryRecords
    from multi_agent_mcp.services.tasks.deliveries import Deliveries
    from multi_agent_mcp.services.tasks.diffs import Diffs
    from multi_agent_mcp.services.tasks.gate import Gate
    from multi_agent_mcp.services.tasks.interrupting import Interrupting
    from multi_agent_mcp.services.tasks.reports import TaskReports
    from multi_agent_mcp.services.tasks.shown_states import ShownStates
    from multi_agent_mcp.services.team.agents import Agents, Signatures
    from multi_agent_mcp.services.team.approvals import Approvals
    from multi_agent_mcp.services.team.limited import LimitedAgents
    from multi_agent_mcp.services.team.rules import AgentRules
    from multi_agent_mcp.services.team.statement import Statements
    from multi_agent_mcp.services.team.workplaces import Workplaces
    from multi_agent_mcp.services.turn.answering import AnswerAction
    from multi_agent_mcp.services.turn.briefing import Briefings
    from multi_agent_mcp.services.turn.chat_action import ChatAction
    from multi_agent_mcp.services.turn.next_action import NextAction
    from multi_agent_mcp.services.turn.reading import Reading, Reports
    from multi_agent_mcp.services.turn.reminders import Reminders
    from multi_agent_mcp.services.unchanged import WhileUnchanged
    from multi_agent_mcp.services.upkeep import Upkeep
    from multi_agent_mcp.session import Session
    from multi_agent_mcp.settings import Settings
    from multi_agent_mcp.store.workspace import Workspace

T = TypeVar("T")

DIALOGS_EVERY = timedelta(seconds=5)
"""How often one of the processes that ring people looks for dialogs: an agent waits for its human meanwhile."""


class _Part(cached_property[T]):
    """A property that is computed once, even if several threads ask for it at the same time."""

    @overload
    def __get__(self, services: None, owner: type[Any] | None = None) -> Self: ...

    @overload
    def __get__(self, services: object, owner: type[Any] | None = None) -> T: ...

    def __get__(self, services: Any, owner: type[Any] | None = None) -> Any:
        if services is None:
            return self
        with services.making:
            return super().__get__(services, owner)


def part(make: Callable[[Any], T]) -> _Part[T]:
    return _Part(make)


def made(where: str, **others: str) -> Any:
    """A service by its class, which is imported on first use. Each parameter of its constructor is the member of
    `Services` with that name, or the one that `others` names for it."""

    return part(lambda services: _built(services, where, others))


def of_session(name: str) -> Any:
    return property(attrgetter(f"session.{name}"))


def _built(services: Services, where: str, others: Mapping[str, str]) -> Any:
    kind = load(where)
    code = kind.__init__.__code__
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    return kind(**{name: attrgetter(others.get(name, name))(services) for name in names})


class OfSession:
    """What the session itself has."""

    workspace: Workspace = of_session("workspace")
    settings: Settings = of_session("settings")
    texts: Texts = of_session("texts")
    people: Texts = of_session("people")
    clock: Callable[[], datetime] = of_session("clock")
    contributions: Contributions = of_session("contributions")
    root: Path = of_session("root")
    path: Path = of_session("path")
    machine: str | None = of_session("machine")


class ByName:
    """The services that need nothing but what the names of their fields say."""

    answer_budget: AnswerBudget = made(".services.answer_budget:AnswerBudget", limits="settings.limits")
    agents: Agents = made(".services.team.agents:Agents")
    signatures: Signatures = made(".services.team.agents:Signatures")
    approvals: Approvals = made(".services.team.approvals:Approvals")
    agent_rules: AgentRules = made(".services.team.rules:AgentRules")
    statements: Statements = made(".services.team.statement:Statements")
    operations: Operations = made(".services.operations:Operations")
    outbox: Outbox = made(".services.mail:Outbox", announce="doorbell.announce")
    tracking: DeliveryTracking = made(".services.mail:DeliveryTracking")
    lookup: Lookup = made(".services.search:Lookup")
    mail_search: MailSearch = made(".services.mail_search:MailSearch")
    hand_offs: HandOffs = made(".services.sessions.session_records:HandOffs")
    owner_waits: OwnerWaits = made(".services.sessions.session_records:OwnerWaits")
    interrupts: Interrupts = made(".services.notifications.writing:Interrupts", writer="notice_writer")
    reminders: Reminders = made(".services.turn.reminders:Reminders", derived="derived_notices")
    upkeep: Upkeep = made(".services.upkeep:Upkeep", derived="derived_notices", questions="question_effects")
    question_effects: QuestionEffects = made(".services.questions:QuestionEffects", derived="derived_notices")
    questions: Questions = made(".services.questions:Questions", effects="question_effects")
    limited: LimitedAgents = made(".services.team.limited:LimitedAgents")
    workplaces: Workplaces = made(".services.team.workplaces:Workplaces")
    delivery_records: DeliveryRecords = made(".services.tasks.delivered:DeliveryRecords")
    board: Board = made(".services.tasks.board:Board")
    task_changes: TaskChanges = made(
        ".services.tasks.changes:TaskChanges", derived="derived_notices", head_of="workplaces.head"
    )
    interrupting: Interrupting = made(".services.tasks.interrupting:Interrupting")
    task_creation: TaskCreation = made(
        ".services.tasks.board:TaskCreation", derived="derived_notices", settings="checks.settings"
    )
    diffs: Diffs = made(".services.tasks.diffs:Diffs", records="delivery_records")
    checks: Checks = made(".services.tasks.checks:Checks", records="delivery_records")
    gate: Gate = made(".services.tasks.gate:Gate")
    shown_states: ShownStates = made(".services.tasks.shown_states:ShownStates")
    deliveries: Deliveries = made(".services.tasks.deliveries:Deliveries", derived="derived_notices")
    task_reports: TaskReports = made(".services.tasks.reports:TaskReports")
    conversations: Conversations = made(".services.chat.conversations:Conversations")
    human_conversations: HumanConversations = made(".services.chat.conversations:HumanConversations")
    delegations: Delegations = made(".services.chat.delegations:Delegations", derived="derived_notices")
    chat_task_operations: ChatTaskOperations = made(".services.chat.task_operations:ChatTaskOperations")
    search: Search = made(".services.search:Search")
    dashboard: Dashboard = made(".services.overview.snapshot:Dashboard")
    snapshots: Snapshots = made(".services.overview.snapshot:Snapshots", derived="derived_notices")
    listed_dialogs: ListedDialogs = made(".services.overview.listed_dialogs:ListedDialogs")
    machines: Machines = made(".services.overview.snapshot:Machines")
    missing_sessions: MissingSessions = made(".services.overview.missing_sessions:MissingSessions")
    pane_looks: PaneLooks = made(".services.overview.pane_looks:PaneLooks")
    stuck_agents: StuckAgents = made(
        ".services.overview.stuck_agents:StuckAgents", derived="derived_notices", panes="pane_looks"
    )
    supervision: Supervision = made(".services.overview.supervision:Supervision")
    next_action: NextAction = made(".services.turn.next_action:NextAction")
    answering: AnswerAction = made(".services.turn.answering:AnswerAction")
    briefings: Briefings = made(".services.turn.briefing:Briefings")
    reports: Reports = made(".services.turn.reading:Reports", derived="derived_notices")
    chat_action: ChatAction = made(".services.turn.chat_action:ChatAction")
    attention: Attention = made(
        ".services.attention:Attention",
        look_at="pane_notifier.host",
        screen="pane_notifier.screen",
        dialog="panes.dialog",
        derived="derived_notices",
    )
    glances: Glances = made(".services.glance:Glances")
    recent_attention: RecentAttention = made(".services.attention:RecentAttention", examine="diagnosis.findings")
    unchanged: WhileUnchanged = made(".services.unchanged:WhileUnchanged")
    pruning: Pruning = made(".services.doctor.pruning:Pruning")
    panes: RemotePanes = made(".doorbell.tmux.notifier:RemotePanes", typist="pane_notifier")
    messages: Messages = made(".services.mail:Messages")
    sessions: Sessions = made(".services.sessions.agent_sessions:Sessions")
    executions: Executions = made(".services.sessions.session_records:Executions")
    notice_writer: NoticeWriter = made(".services.notifications.writing:NoticeWriter")
    derived_notices: DerivedNotices = made(
        ".services.notifications.derived:DerivedNotices",
        writer="notice_writer",
        last_activity="sessions.last_activity",
    )
    loops: Loops = made(".services.notifications.loops:Loops", writer="notice_writer")
    notifications: Notifications = made(
        ".services.notifications.notifications:Notifications", derived="derived_notices", writer="notice_writer"
    )
    reading: Reading = made(".services.turn.reading:Reading")
    diagnosis: Diagnosis = made(".diagnosis:Diagnosis")
    doorbell: Doorbell = made(".doorbell.ringing:Doorbell")
    hooks: Hooks = made(".hooks.answers:Hooks")
    tool_calls: ToolCalls = made(".hooks.answers:ToolCalls")
    host_configurations: HostConfigurations = made(
        ".host_config:HostConfigurations", statement_of="statements.of", rules_of="agent_rules.of"
    )


@dataclass(frozen=True)
class Services(ByName, OfSession):
    """All services of one session directory. Created once per process."""

    session: Session
    chosen_notifier: Channel | None = None
    making: RLock = field(default_factory=RLock, repr=False, compare=False)
    """Held while a service is made, so that two threads get the same one."""

    def __getattr__(self, name: str) -> Any:
        """The service of a feature that names it (`Feature.services`)."""
        for feature in self.session.features.all if "session" in vars(self) else ():
            if where := feature.services.get(name):
                with self.making:
                    if name not in vars(self):
                        vars(self)[name] = _built(self, where, {})
                return vars(self)[name]
        raise AttributeError(name)

    def __post_init__(self) -> None:
        self.session.contributions.service = partial(getattr, self)

    @cached_property
    def notifier(self) -> Channel:
        """The channel that was passed in, else the channel chain."""
        if self.chosen_notifier is not None:
            return self.chosen_notifier
        from multi_agent_mcp.doorbell.channels import default_chain  # most commands ring nobody

        return default_chain(self.workspace, self.settings, self.texts)

    def directories_of(self, agent_id: str) -> list[Path]:
        """The directories to watch for an agent: its mail, notifications, tasks and delegations, and the
        questions."""
        return [
            self.workspace.mailbox(agent_id).path,
            self.workspace.notices(agent_id).path,
            self.tasks_of(agent_id),
            self.workspace.delegations.directory(agent_id).path,
            self.workspace.questions.base,
        ]

    def tasks_of(self, agent_id: str) -> Path:
        """The directory of an agent's tasks."""
        return self.workspace.tasks.directory(agent_id).path

    def unread_mail_count(self, agent_id: str) -> int:
        """The number of unread messages. Checks the mailbox's directory, and files only if they changed."""
        return len(self.workspace.mailbox(agent_id).unread())

    def unread_mail(self, agent_id: str) -> list[Message]:
        """The unread messages, those without a subject with their content, which the index does not keep."""
        mailbox = self.workspace.mailbox(agent_id)
        return [head if head.subject else mailbox.hot.load(name) or head for name, head in mailbox.unread()]

    def people_doorbells(self) -> PeopleDoorbells:
        """The doorbells that a long-running process has to run; see `doorbell/thread.py`."""
        from multi_agent_mcp.doorbell.thread import PeopleDoorbells

        return PeopleDoorbells(self.doorbell, self.dialogs_in_panes)

    def dialogs_in_panes(self) -> tuple[Asked, ...]:
        """The dialogs that are in agents' panes on this machine, as some process has seen them a moment ago."""
        self.pane_looks.refresh(self.pane_notifier.host, self.panes.dialog, DIALOGS_EVERY)
        return self.pane_looks.asked()

    def channels(self, agent: Agent) -> tuple[ChannelReport, ...]:
        """The agent's channels, strongest first, and why each could not ring now; see `ChannelChain.explain`."""
        return self.notifier.explain(agent, is_silent=self.pane_notifier.silent.is_silent(agent.socket_path))

    def doctor(self, probe: Callable[[Agent], str | None] | None = None, look_at: LookAtPane | None = None) -> Doctor:
        """See `Diagnosis.doctor`."""
        return self.diagnosis.doctor(probe, look_at)

    @property
    def console_key(self) -> bytes:
        """The key with which the console signs its cookies, created on first use."""
        return KeyFile(self.workspace.files, self.path / ".console" / "key").ensure().encode("ascii")

    @property
    def console_port(self) -> Record:
        """The record of the port on which the console was last served."""
        return self.workspace.console_port

    @cached_property
    def pane_notifier(self) -> TmuxNotifier:
        """The channel that types into panes, even for agents whose chain does not contain it."""
        from multi_agent_mcp.doorbell.channels import pane_notifier

        return pane_notifier(self.workspace, self.settings)

    def audit(self, tool: str, **facts: object) -> None:
        """Adds a line to the audit log, durably."""
        self.session.audit(tool, **facts)
