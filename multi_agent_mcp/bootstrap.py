"""The one place that chooses implementations and wires them together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from importlib import import_module
from inspect import signature
from operator import attrgetter
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.config import Settings, read_environment, read_settings, session_names
from multi_agent_mcp.domain import ids as names
from multi_agent_mcp.domain import times
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import ChannelReport
from multi_agent_mcp.domain.stuck import Patience
from multi_agent_mcp.errors import NoSuchSession, Refusal
from multi_agent_mcp.store.authority import ALONE, Authority
from multi_agent_mcp.store.files.locks import ORDER_CHECK
from multi_agent_mcp.store.journal import Journal
from multi_agent_mcp.store.keys import KeyFile
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.texts import PEOPLE, Texts, catalogue

if TYPE_CHECKING:
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.domain.notification import Notification
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.hooks.answers import Hooks
    from multi_agent_mcp.host_config import HostConfiguration
    from multi_agent_mcp.hub.relay import Relay
    from multi_agent_mcp.notify.channel import Channel
    from multi_agent_mcp.notify.doorbell import Doorbell
    from multi_agent_mcp.notify.people import PeopleDoorbells
    from multi_agent_mcp.notify.tmux.notifier import TmuxNotifier
    from multi_agent_mcp.notify.tmux.panes import Panes
    from multi_agent_mcp.services.answer_budget import AnswerBudget
    from multi_agent_mcp.services.attention import Attention
    from multi_agent_mcp.services.chat.conversations import Conversations
    from multi_agent_mcp.services.chat.delegations import Delegations
    from multi_agent_mcp.services.chat.human import HumanConversations
    from multi_agent_mcp.services.chat.task_operations import ChatTaskOperations
    from multi_agent_mcp.services.doctor.doctor import Doctor
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
    from multi_agent_mcp.services.operations import HasKinds, Operations
    from multi_agent_mcp.services.overview.dashboard import Dashboard
    from multi_agent_mcp.services.overview.missing_sessions import MissingSessions
    from multi_agent_mcp.services.overview.pane_looks import LookAtPane, PaneLooks
    from multi_agent_mcp.services.overview.snapshot import Snapshots
    from multi_agent_mcp.services.overview.statistics import StatisticsOfSession
    from multi_agent_mcp.services.overview.stuck_agents import StuckAgents
    from multi_agent_mcp.services.overview.supervisor_lock import Supervision
    from multi_agent_mcp.services.overview.timeline import Timelines
    from multi_agent_mcp.services.recent_attention import RecentAttention
    from multi_agent_mcp.services.search.search import Search
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.sessions.executions import Executions
    from multi_agent_mcp.services.sessions.owner_waits import OwnerWaits
    from multi_agent_mcp.services.tasks.board import Board
    from multi_agent_mcp.services.tasks.changes import TaskChanges
    from multi_agent_mcp.services.tasks.creation import TaskCreation
    from multi_agent_mcp.services.tasks.reports import TaskReports
    from multi_agent_mcp.services.tasks.stopping import Stopping
    from multi_agent_mcp.services.team.agents import Agents
    from multi_agent_mcp.services.team.signatures import Signatures
    from multi_agent_mcp.services.turn.chat_action import ChatAction
    from multi_agent_mcp.services.turn.next_action import NextAction
    from multi_agent_mcp.services.turn.reading import Reading
    from multi_agent_mcp.services.turn.report_effects import Reports

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
    "services": "declaring_operations",
    "typist": "_pane_notifier",
    "writer": "notice_writer",
}
"""Parameters of services that are not called as the attribute of `Services` that supplies them."""


class _Service:
    """An attribute made when it is first asked for, so that a process imports only what it uses: an instance of the
    class that the annotation names, from `module`. Each of its parameters is the attribute of the same name, or the one
    in `SUPPLIED_BY`."""

    def __init__(self, module: str) -> None:
        self.module = module
        self._mutex = RLock()

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.class_name = owner.__annotations__[name]

    def __get__(self, services: Any, owner: type | None = None) -> Any:
        with self._mutex:
            if self.name not in services.__dict__:
                services.__dict__[self.name] = self._made(services)
            return services.__dict__[self.name]

    def _made(self, services: Services) -> Any:
        service = getattr(import_module(f"multi_agent_mcp.{self.module}"), self.class_name)
        parameters = signature(service).parameters
        return service(**{name: attrgetter(SUPPLIED_BY.get(name, name))(services) for name in parameters})


def _service(module: str) -> Any:
    return _Service(module)


class _Wired:
    """What is made from other services alone."""

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
    interrupts: Interrupts = _service("services.notices.interrupts")
    derived_notices: DerivedNotices = _service("services.notices.derived")
    loops: Loops = _service("services.notices.loops")
    notifications: Notifications = _service("services.notices.notifications")
    board: Board = _service("services.tasks.board")
    task_changes: TaskChanges = _service("services.tasks.changes")
    stopping: Stopping = _service("services.tasks.stopping")
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
    panes: Panes = _service("notify.tmux.panes")
    hooks: Hooks = _service("hooks.answers")


@dataclass(frozen=True)
class Services(_Wired):
    """Everything that works on one session directory. Made once per process."""

    workspace: Workspace
    settings: Settings
    texts: Texts
    clock: Callable[[], datetime]
    chosen_notifier: Channel | None = None

    @cached_property
    def notifier(self) -> Channel:
        """The one that was chosen, else the channel chain."""
        if self.chosen_notifier is not None:
            return self.chosen_notifier
        from multi_agent_mcp.notify.channels.chain import default_chain  # most commands ring nobody

        return default_chain(self.workspace, self.settings, self.texts)

    @property
    def session(self) -> str:
        """The session's id."""
        return self.workspace.session

    @property
    def root(self) -> Path:
        return self.workspace.root

    @property
    def path(self) -> Path:
        """The session's directory."""
        return self.workspace.path

    @property
    def machine(self) -> str | None:
        """This machine's name; None while the session is on one alone."""
        return self.workspace.authority.here

    def machines(self) -> dict[str, Any]:
        """What the relay last noted of the machines of the team, by name; none while there is one alone."""
        return dict(self.workspace.relay_state().get("machines", {}))

    def directories_of(self, agent_id: str) -> list[Path]:
        """What concerns an agent: its mail, its notifications, its tasks, what it delegated."""
        return [
            self.workspace.mailbox(agent_id).path,
            self.workspace.notices(agent_id).path,
            self.workspace.tasks.directory(agent_id).path,
            self.workspace.delegations.directory(agent_id).path,
        ]

    @cached_property
    def people(self) -> Texts:
        """The texts with those that only people are shown."""
        return self.texts | catalogue(self.texts.language, PEOPLE)

    @cached_property
    def answer_budget(self) -> AnswerBudget:
        from multi_agent_mcp.services.answer_budget import AnswerBudget

        return AnswerBudget(self.settings.limits.answer_characters, self.texts("more.list"))

    @cached_property
    def notice_writer(self) -> NoticeWriter:
        from multi_agent_mcp.services.notices.writing import NoticeWriter

        # Asked for when it rings: the doorbell itself needs to know what there is to be told.
        return NoticeWriter(self.workspace, self.texts, lambda notice: self.doorbell.announce_notification(notice))

    def unread_mail_count(self, agent_id: str) -> int:
        """How many messages wait; the mailbox's directory is looked at, its files only if they changed."""
        return len(self.workspace.mailbox(agent_id).unread())

    def people_doorbells(self) -> PeopleDoorbells:
        """To be run by a process that lives for long; see `notify/people.py`."""
        from multi_agent_mcp.notify.people import PeopleDoorbells

        return PeopleDoorbells(self.doorbell)

    def declaring_operations(self) -> tuple[HasKinds, ...]:
        """The services whose operations another process may have to finish."""
        return (
            self.messages,
            self.task_creation,
            self.task_changes,
            self.stopping,
            self.conversations,
            self.next_action,
        )

    @property
    def patience(self) -> Patience:
        """How long an agent may be silent before it is stuck."""
        return Patience(timedelta(minutes=self.settings.limits.stuck_minutes))

    @property
    def activity_written_every(self) -> timedelta:
        """So often that nobody takes an agent for stuck that works."""
        return min(timedelta(seconds=60), self.patience.silence / 4)

    def channels(self, agent: Agent) -> tuple[ChannelReport, ...]:
        """The agent's channels, strongest first, and why each could not ring now; see `ChannelChain.explain`."""
        return self.notifier.explain(agent)

    def host_configuration(self, host: str, agent_id: str, directory: Path | None = None) -> HostConfiguration:
        """What makes a host start this agent's server; see `host_config.host_configuration`."""
        from multi_agent_mcp.host_config import host_configuration

        return host_configuration(host, self.workspace, agent_id, directory)

    def write_host_configuration(self, configuration: HostConfiguration) -> list[tuple[Path, Path | None]]:
        """Merges it into the host's files, unless they serve another agent; see `HostConfiguration.write`."""
        from multi_agent_mcp.host_config import backups

        configuration.require_unused(own=self.path)
        return configuration.write(backups(self.workspace))

    def mcp_argument(self, agent: Agent) -> str:
        """What `{mcp_config}` in an agent's command stands for; see `host_config.mcp_argument`."""
        from multi_agent_mcp.host_config import mcp_argument

        return mcp_argument(self.workspace, agent)

    def mcp_environment(self, agent: Agent) -> dict[str, str]:
        """What `{mcp_config}` adds to the environment of an agent's command; see `host_config.mcp_environment`."""
        from multi_agent_mcp.host_config import mcp_environment

        return mcp_environment(self.workspace, agent)

    def missing_settings(self, agent: Agent) -> str | None:
        """The command to be run before `{mcp_config}` can work; see `host_config.missing_settings`."""
        from multi_agent_mcp.host_config import missing_settings

        return missing_settings(self.workspace, agent)

    @cached_property
    def recent_attention(self) -> RecentAttention:
        """For a process that shows all the time what waits for somebody."""
        from multi_agent_mcp.notify.tmux.snapshot import probe
        from multi_agent_mcp.services.recent_attention import RecentAttention

        return RecentAttention(self.attention, lambda: self.doctor(probe).examine(), self.clock)

    def doctor(self, probe: Callable[[Agent], str | None], look_at: LookAtPane | None = None) -> Doctor:
        """`probe` says why an agent's pane cannot be rung, `look_at` which host is there; None: asks tmux."""
        from multi_agent_mcp.notify.tmux.profiles import load_profiles  # only doctor needs it: servers start without
        from multi_agent_mcp.services.doctor.doctor import Doctor
        from multi_agent_mcp.services.doctor.finding import CheckContext

        profiles = load_profiles(self.root / "hosts")
        return Doctor(
            CheckContext(
                self.workspace,
                self.agents,
                self.sessions,
                self.owner_waits,
                self.missing_sessions,
                self.derived_notices,
                self.stuck_agents,
                self.signatures,
                self.operations,
                self.people,
                probe,
                look_at or self.host_in_pane,
                [profile.name for profile in profiles.named.values() if not profile.never],
                profiles.left_out,
                self.settings.notify_command,
            )
        )

    @property
    def console_key(self) -> bytes:
        """The key that the console signs its cookies with; made when it is first asked for."""
        return KeyFile(self.workspace.files, self.path / ".console" / "key").ensure().encode("ascii")

    def screen(self, agent: Agent) -> str:
        """What the agent's pane shows: its host and `idle`, `busy`, `draft`, a dialog …, or why nobody can look."""
        return self._pane_notifier.screen(agent)

    @cached_property
    def _pane_notifier(self) -> TmuxNotifier:
        from multi_agent_mcp.notify.channels.chain import pane_notifier

        return pane_notifier(self.workspace, self.settings)

    def host_in_pane(self, agent: Agent) -> tuple[str, str] | None:
        """The host that a profile describes and that has the agent's pane, and the state of its screen."""
        return self._pane_notifier.host(agent)

    def audit(self, tool: str, **facts: object) -> None:
        """Adds a line to `audit/{YYYYMMDD}.jsonl`, durably."""
        now = self.clock()
        path = self.workspace.path / "audit" / f"{now:%Y%m%d}.jsonl"
        journal = Journal(self.workspace.files, path, durable=True)
        journal.append(at=times.format_time(now), tool=tool, **facts)


class _Consequences:
    """What follows here from what another machine wrote: what the next reader would repair, and a ring. Nothing of it
    raises."""

    def __init__(self, services: Services) -> None:
        self.services = services

    def task_changed(self, task: Task) -> None:
        with suppress(Refusal):
            self.services.derived_notices.follow_up(task)

    def arrived(self, message: Message) -> None:
        self.services.doorbell.announce([message])

    def notified(self, notice: Notification) -> None:
        self.services.doorbell.announce_notification(notice)

    def moved_in(self, agent: Agent) -> None:
        with suppress(Refusal):  # the hub is gone again: the next relay does it
            if self.services.agents.known_key(agent.id) is None:
                self.services.agents.take_home(agent.id)


def relay(root: Path, session: str) -> Relay:
    """This machine's relay. Raises `InvalidArguments` for a session that is not shared."""
    from multi_agent_mcp.hub.relay import Relay
    from multi_agent_mcp.hub.relay_authority import RelayAuthority
    from multi_agent_mcp.hub.sharing import Sharing

    sharing = Sharing(root / names.session_name(session))
    authority = RelayAuthority(sharing.membership.machine)
    services = open_session(root, session, authority=authority)
    return Relay(services.workspace, sharing.share, sharing.membership, authority, _Consequences(services))


def _authority(path: Path) -> Authority:
    """The files of this machine alone, unless the session was shared. Servers and commands import no client of the
    hub: they ask their relay."""
    if not (path / ".share" / "machine.json").exists():
        return ALONE
    from multi_agent_mcp.hub.link import link_of

    return link_of(path) or ALONE


def open_session(
    root: Path,
    session: str,
    *,
    language: str | None = None,
    clock: Callable[[], datetime] = times.now,
    notifier: Channel | None = None,
    authority: Authority | None = None,
) -> Services:
    """The services of an existing session. Raises `InvalidId`, or `NoSuchSession` when `init` was never run."""
    if read_environment().check_locks:
        ORDER_CHECK.abort_on_violations()
    path = root / names.session_name(session)
    workspace = Workspace(root, names.session_name(session), authority or _authority(path))
    if session not in session_names(root):  # by its exact name, also where the file system does not mind the case
        raise NoSuchSession(session=session)
    settings = read_settings(workspace.settings_path, language)
    texts = catalogue(settings.language)
    return Services(workspace, settings, texts, clock, notifier)
