"""Services made from other services alone, one line each; each is created, and its module imported, on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import Parameter, signature
from operator import attrgetter
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from multi_agent_mcp.hooks.answers import Hooks
    from multi_agent_mcp.host_config.configuration import HostConfigurations
    from multi_agent_mcp.notify.doorbell import Doorbell
    from multi_agent_mcp.notify.tmux.pane_actions import Panes
    from multi_agent_mcp.services.answer_budget import AnswerBudget
    from multi_agent_mcp.services.attention import Attention
    from multi_agent_mcp.services.chat.conversations import Conversations
    from multi_agent_mcp.services.chat.delegations import Delegations
    from multi_agent_mcp.services.chat.human import HumanConversations
    from multi_agent_mcp.services.chat.task_operations import ChatTaskOperations
    from multi_agent_mcp.services.doctor.pruning import Pruning
    from multi_agent_mcp.services.mail.outbox import Outbox
    from multi_agent_mcp.services.mail.search import MailSearch
    from multi_agent_mcp.services.mail.sending import Messages
    from multi_agent_mcp.services.mail.tracking import DeliveryTracking
    from multi_agent_mcp.services.notices.derived import DerivedNotices
    from multi_agent_mcp.services.notices.interrupts import Interrupts
    from multi_agent_mcp.services.notices.loops import Loops
    from multi_agent_mcp.services.notices.notifications import Notifications
    from multi_agent_mcp.services.notices.writing import NoticeWriter
    from multi_agent_mcp.services.operations import Operations
    from multi_agent_mcp.services.overview.dashboard import Dashboard
    from multi_agent_mcp.services.overview.listed_dialogs import ListedDialogs
    from multi_agent_mcp.services.overview.machines import Machines
    from multi_agent_mcp.services.overview.missing_sessions import MissingSessions
    from multi_agent_mcp.services.overview.pane_looks import PaneLooks
    from multi_agent_mcp.services.overview.snapshot import Snapshots
    from multi_agent_mcp.services.overview.statistics import StatisticsOfSession
    from multi_agent_mcp.services.overview.stuck_agents import StuckAgents
    from multi_agent_mcp.services.overview.supervisor_lock import Supervision
    from multi_agent_mcp.services.overview.timeline import Timelines
    from multi_agent_mcp.services.search.search import Search
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.sessions.executions import Executions
    from multi_agent_mcp.services.sessions.owner_waits import OwnerWaits
    from multi_agent_mcp.services.tasks.board import Board
    from multi_agent_mcp.services.tasks.changes import TaskChanges
    from multi_agent_mcp.services.tasks.creation import TaskCreation
    from multi_agent_mcp.services.tasks.interrupting import Interrupting
    from multi_agent_mcp.services.tasks.reports import TaskReports
    from multi_agent_mcp.services.team.agents import Agents
    from multi_agent_mcp.services.team.signatures import Signatures
    from multi_agent_mcp.services.turn.chat_action import ChatAction
    from multi_agent_mcp.services.turn.next_action import NextAction
    from multi_agent_mcp.services.turn.reading import Reading
    from multi_agent_mcp.services.turn.report_effects import Reports

T = TypeVar("T")

SUPPLIED_BY = {
    "after_sending": "loops.after_sending",
    "announce": "doorbell.announce",
    "budget": "answer_budget",
    "derived": "derived_notices",
    "dialog": "panes.dialog",
    "last_activity": "sessions.last_activity",
    "limits": "settings.limits",
    "look_at": "host_in_pane",
    "panes": "pane_looks",
    "ring": "ring_about",
    "services": "declaring_operations",
    "typist": "pane_notifier",
    "writer": "notice_writer",
}
"""Parameters of services whose name differs from that of the attribute of `Services` that supplies them."""


def made(make: Callable[..., T], services: object, given: Mapping[str, Any] | None = None) -> T:
    """Calls `make`: each parameter without a default is taken from `given`, else from the attribute of `services` named
    in `SUPPLIED_BY`, by default that of the same name."""
    known = dict(given or {})
    for name, parameter in signature(make).parameters.items():
        if name not in known and parameter.default is Parameter.empty:
            known[name] = attrgetter(SUPPLIED_BY.get(name, name))(services)
    return make(**known)


class _Service:
    """A descriptor whose value is an instance of the class named by its annotation, from `module`, made on first
    use."""

    def __init__(self, module: str) -> None:
        self.module = module
        self._mutex = RLock()

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.class_name = owner.__annotations__[name]

    def __get__(self, services: Any, owner: type | None = None) -> Any:
        with self._mutex:
            if self.name not in services.__dict__:
                module = import_module(f"multi_agent_mcp.{self.module}")
                services.__dict__[self.name] = made(getattr(module, self.class_name), services)
            return services.__dict__[self.name]


def _service(module: str) -> Any:
    return _Service(module)


class WiredServices:
    """The services, by directory, from the lowest layer up."""

    answer_budget: AnswerBudget = _service("services.answer_budget")
    agents: Agents = _service("services.team.agents")
    signatures: Signatures = _service("services.team.signatures")
    operations: Operations = _service("services.operations")
    outbox: Outbox = _service("services.mail.outbox")
    messages: Messages = _service("services.mail.sending")
    tracking: DeliveryTracking = _service("services.mail.tracking")
    mail_search: MailSearch = _service("services.mail.search")
    sessions: Sessions = _service("services.sessions.agent_sessions")
    executions: Executions = _service("services.sessions.executions")
    owner_waits: OwnerWaits = _service("services.sessions.owner_waits")
    notice_writer: NoticeWriter = _service("services.notices.writing")
    interrupts: Interrupts = _service("services.notices.interrupts")
    derived_notices: DerivedNotices = _service("services.notices.derived")
    loops: Loops = _service("services.notices.loops")
    notifications: Notifications = _service("services.notices.notifications")
    board: Board = _service("services.tasks.board")
    task_changes: TaskChanges = _service("services.tasks.changes")
    interrupting: Interrupting = _service("services.tasks.interrupting")
    task_creation: TaskCreation = _service("services.tasks.creation")
    task_reports: TaskReports = _service("services.tasks.reports")
    conversations: Conversations = _service("services.chat.conversations")
    human_conversations: HumanConversations = _service("services.chat.human")
    delegations: Delegations = _service("services.chat.delegations")
    chat_task_operations: ChatTaskOperations = _service("services.chat.task_operations")
    search: Search = _service("services.search.search")
    dashboard: Dashboard = _service("services.overview.dashboard")
    snapshots: Snapshots = _service("services.overview.snapshot")
    timeline: Timelines = _service("services.overview.timeline")
    statistics: StatisticsOfSession = _service("services.overview.statistics")
    listed_dialogs: ListedDialogs = _service("services.overview.listed_dialogs")
    machines: Machines = _service("services.overview.machines")
    missing_sessions: MissingSessions = _service("services.overview.missing_sessions")
    pane_looks: PaneLooks = _service("services.overview.pane_looks")
    stuck_agents: StuckAgents = _service("services.overview.stuck_agents")
    supervision: Supervision = _service("services.overview.supervisor_lock")
    next_action: NextAction = _service("services.turn.next_action")
    reports: Reports = _service("services.turn.report_effects")
    chat_action: ChatAction = _service("services.turn.chat_action")
    reading: Reading = _service("services.turn.reading")
    attention: Attention = _service("services.attention")
    pruning: Pruning = _service("services.doctor.pruning")
    doorbell: Doorbell = _service("notify.doorbell")
    panes: Panes = _service("notify.tmux.pane_actions")
    host_configurations: HostConfigurations = _service("host_config.configuration")
    hooks: Hooks = _service("hooks.answers")
