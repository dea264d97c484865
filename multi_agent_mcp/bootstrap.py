"""The one place that chooses implementations and wires them together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from multi_agent_mcp.config import Settings, read_environment, read_settings, session_names
from multi_agent_mcp.domain import ids as names
from multi_agent_mcp.domain import times
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import ChannelReport
from multi_agent_mcp.domain.stuck import Patience
from multi_agent_mcp.errors import NoSuchSession
from multi_agent_mcp.notify.channel import Notifier
from multi_agent_mcp.notify.channels.chain import ChannelChain, default_chain, pane_notifier
from multi_agent_mcp.notify.doorbell import Doorbell
from multi_agent_mcp.services.answer_budget import AnswerBudget
from multi_agent_mcp.services.mail.outbox import Outbox
from multi_agent_mcp.services.notices.derived import DerivedNotices
from multi_agent_mcp.services.notices.interrupts import Interrupts
from multi_agent_mcp.services.notices.loops import Loops
from multi_agent_mcp.services.notices.notifications import Notifications
from multi_agent_mcp.services.notices.writing import NoticeWriter
from multi_agent_mcp.services.operations import HasKinds, Operations
from multi_agent_mcp.services.sessions.agent_sessions import ACTIVITY_WRITTEN_EVERY, Sessions
from multi_agent_mcp.services.sessions.executions import Executions
from multi_agent_mcp.services.sessions.owner_waits import OwnerWaits
from multi_agent_mcp.services.tasks.board import Board
from multi_agent_mcp.services.tasks.changes import TaskChanges
from multi_agent_mcp.services.tasks.stopping import Stopping
from multi_agent_mcp.services.team.agents import Agents
from multi_agent_mcp.services.team.signatures import Signatures
from multi_agent_mcp.store.files.locks import ORDER_CHECK
from multi_agent_mcp.store.journal import Journal
from multi_agent_mcp.store.keys import KeyFile
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.texts import PEOPLE, Texts, catalogue

if TYPE_CHECKING:
    from multi_agent_mcp.hooks.answers import Hooks
    from multi_agent_mcp.host_config import HostConfiguration
    from multi_agent_mcp.notify.people import PeopleDoorbells
    from multi_agent_mcp.notify.tmux.notifier import TmuxNotifier
    from multi_agent_mcp.services.chat.conversations import Conversations
    from multi_agent_mcp.services.chat.delegations import Delegations
    from multi_agent_mcp.services.chat.human import HumanConversations
    from multi_agent_mcp.services.chat.task_operations import ChatTaskOperations
    from multi_agent_mcp.services.doctor.doctor import Doctor
    from multi_agent_mcp.services.doctor.pruning import Pruning
    from multi_agent_mcp.services.mail.search import MailSearch
    from multi_agent_mcp.services.mail.sending import Messages
    from multi_agent_mcp.services.mail.tracking import DeliveryTracking
    from multi_agent_mcp.services.overview.dashboard import Dashboard
    from multi_agent_mcp.services.overview.missing_sessions import MissingSessions
    from multi_agent_mcp.services.overview.pane_looks import LookAtPane, PaneLooks
    from multi_agent_mcp.services.overview.snapshot import Snapshots
    from multi_agent_mcp.services.overview.stuck_agents import StuckAgents
    from multi_agent_mcp.services.overview.supervisor_lock import Supervision
    from multi_agent_mcp.services.overview.timeline import Timelines
    from multi_agent_mcp.services.search.search import Search
    from multi_agent_mcp.services.tasks.approvals import Approvals
    from multi_agent_mcp.services.tasks.assignment import Assignments
    from multi_agent_mcp.services.tasks.creation import TaskCreation
    from multi_agent_mcp.services.turn.chat_action import ChatAction
    from multi_agent_mcp.services.turn.next_action import NextAction
    from multi_agent_mcp.services.turn.reading import Reading
    from multi_agent_mcp.services.turn.report_effects import Reports


@dataclass(frozen=True)
class Services:
    """Everything that works on one session directory. Made once per process."""

    workspace: Workspace
    settings: Settings
    texts: Texts
    clock: Callable[[], datetime]
    notifier: Notifier

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
        return AnswerBudget(self.settings.limits.answer_characters, self.texts("more.list"))

    @cached_property
    def agents(self) -> Agents:
        return Agents(self.workspace, self.clock)

    @cached_property
    def sessions(self) -> Sessions:
        activity_written_every = min(ACTIVITY_WRITTEN_EVERY, self.patience.silence / 4)
        return Sessions(self.workspace, self.executions, self.owner_waits, self.clock, activity_written_every)

    @cached_property
    def executions(self) -> Executions:
        return Executions(self.workspace, self.texts, self.clock)

    @cached_property
    def notice_writer(self) -> NoticeWriter:
        return NoticeWriter(
            self.workspace, self.texts, announce=lambda notice: self.doorbell.announce_notification(notice)
        )

    @cached_property
    def interrupts(self) -> Interrupts:
        return Interrupts(self.workspace, self.notice_writer, self.clock)

    @cached_property
    def derived_notices(self) -> DerivedNotices:
        return DerivedNotices(
            self.workspace, self.notice_writer, self.interrupts, self.sessions.last_activity, self.clock
        )

    @cached_property
    def loops(self) -> Loops:
        return Loops(self.workspace, self.sessions, self.notice_writer, self.clock)

    @cached_property
    def board(self) -> Board:
        return Board(self.workspace)

    @cached_property
    def task_changes(self) -> TaskChanges:
        return TaskChanges(
            self.workspace, self.agents, self.interrupts, self.derived_notices, self.operations, self.clock
        )

    @cached_property
    def stopping(self) -> Stopping:
        return Stopping(self.task_changes, self.interrupts, self.operations)

    @cached_property
    def task_creation(self) -> TaskCreation:
        from multi_agent_mcp.services.tasks.creation import TaskCreation

        return TaskCreation(
            self.workspace,
            self.agents,
            self.outbox,
            self.owner_waits,
            self.derived_notices,
            self.operations,
            self.clock,
        )

    @cached_property
    def approvals(self) -> Approvals:
        from multi_agent_mcp.services.tasks.approvals import Approvals

        return Approvals(
            self.workspace,
            self.agents,
            self.messages,
            self.outbox,
            self.derived_notices,
            self.operations,
            self.texts,
            self.clock,
        )

    @cached_property
    def next_action(self) -> NextAction:
        from multi_agent_mcp.services.turn.next_action import NextAction

        return NextAction(
            self.workspace,
            self.task_changes,
            self.approvals,
            self.assignments,
            self.executions,
            self.dashboard,
            self.operations,
            self.texts,
            self.clock,
        )

    @cached_property
    def owner_waits(self) -> OwnerWaits:
        return OwnerWaits(self.workspace, self.clock, self.audit)

    @cached_property
    def dashboard(self) -> Dashboard:
        from multi_agent_mcp.services.overview.dashboard import Dashboard

        return Dashboard(self.workspace, self.snapshots, self.texts, self.clock)

    @cached_property
    def reports(self) -> Reports:
        from multi_agent_mcp.services.turn.report_effects import Reports

        return Reports(self.workspace, self.dashboard, self.derived_notices, self.clock)

    @cached_property
    def doorbell(self) -> Doorbell:
        return Doorbell(self.workspace, self.notifications, self.notifier, self.settings, self.texts, self.clock)

    def people_doorbells(self) -> PeopleDoorbells:
        """To be run by a process that lives for long; see `notify/people.py`."""
        from multi_agent_mcp.notify.people import PeopleDoorbells

        return PeopleDoorbells(self.doorbell)

    @cached_property
    def messages(self) -> Messages:
        from multi_agent_mcp.services.mail.sending import Messages

        return Messages(
            self.workspace,
            self.agents,
            self.settings.limits,
            self.texts,
            self.clock,
            self.doorbell,
            self.outbox,
            self.operations,
            self.loops,
        )

    @cached_property
    def signatures(self) -> Signatures:
        return Signatures(self.agents)

    @cached_property
    def tracking(self) -> DeliveryTracking:
        from multi_agent_mcp.services.mail.tracking import DeliveryTracking

        return DeliveryTracking(self.workspace, self.agents)

    @cached_property
    def mail_search(self) -> MailSearch:
        from multi_agent_mcp.services.mail.search import MailSearch

        return MailSearch(self.workspace)

    @cached_property
    def search(self) -> Search:
        from multi_agent_mcp.services.search.search import Search

        return Search(self.workspace)

    @cached_property
    def outbox(self) -> Outbox:
        return Outbox(self.workspace, self.signatures, self.doorbell.announce)

    @cached_property
    def operations(self) -> Operations:
        return Operations(self.workspace, self._with_operations)

    def _with_operations(self) -> tuple[HasKinds, ...]:
        return (
            self.messages,
            self.task_creation,
            self.approvals,
            self.task_changes,
            self.stopping,
            self.conversations,
            self.next_action,
        )

    @cached_property
    def snapshots(self) -> Snapshots:
        from multi_agent_mcp.services.overview.snapshot import Snapshots

        return Snapshots(
            self.workspace,
            self.sessions,
            self.owner_waits,
            self.derived_notices,
            self.mail_search,
            self.tracking,
            self.stuck_agents,
            self.clock,
        )

    @cached_property
    def timeline(self) -> Timelines:
        from multi_agent_mcp.services.overview.timeline import Timelines

        return Timelines(self.workspace, self.mail_search, self.clock)

    @cached_property
    def conversations(self) -> Conversations:
        from multi_agent_mcp.services.chat.conversations import Conversations

        return Conversations(self.workspace, self.agents, self.messages, self.outbox, self.operations, self.clock)

    @cached_property
    def human_conversations(self) -> HumanConversations:
        from multi_agent_mcp.services.chat.human import HumanConversations

        return HumanConversations(self.workspace, self.agents, self.conversations, self.messages, self.mail_search)

    @cached_property
    def delegations(self) -> Delegations:
        from multi_agent_mcp.services.chat.delegations import Delegations

        return Delegations(
            self.workspace,
            self.agents,
            self.sessions,
            self.conversations,
            self.derived_notices,
            self.texts,
            self.clock,
        )

    @cached_property
    def chat_task_operations(self) -> ChatTaskOperations:
        from multi_agent_mcp.services.chat.task_operations import ChatTaskOperations

        return ChatTaskOperations(
            self.workspace, self.agents, self.task_changes, self.conversations, self.audit, self.clock
        )

    @cached_property
    def missing_sessions(self) -> MissingSessions:
        from multi_agent_mcp.services.overview.missing_sessions import MissingSessions

        return MissingSessions(
            self.workspace, self.agents, self.sessions, self.task_changes, self.delegations, self.clock
        )

    @property
    def patience(self) -> Patience:
        """How long an agent may be silent before it is stuck."""
        return Patience(timedelta(minutes=self.settings.limits.stuck_minutes))

    @cached_property
    def pane_looks(self) -> PaneLooks:
        from multi_agent_mcp.services.overview.pane_looks import PaneLooks

        return PaneLooks(self.workspace, self.sessions, self.clock)

    @cached_property
    def stuck_agents(self) -> StuckAgents:
        from multi_agent_mcp.services.overview.stuck_agents import StuckAgents

        return StuckAgents(
            self.workspace,
            self.sessions,
            self.derived_notices,
            self.pane_looks,
            self.texts,
            self.patience,
            self.clock,
        )

    @cached_property
    def supervision(self) -> Supervision:
        from multi_agent_mcp.services.overview.supervisor_lock import Supervision

        return Supervision(self.workspace)

    @cached_property
    def pruning(self) -> Pruning:
        from multi_agent_mcp.services.doctor.pruning import Pruning

        return Pruning(self.workspace)

    @cached_property
    def chat_action(self) -> ChatAction:
        from multi_agent_mcp.services.turn.chat_action import ChatAction

        return ChatAction(self.workspace, self.delegations, self.conversations, self.texts)

    @cached_property
    def reading(self) -> Reading:
        from multi_agent_mcp.services.turn.reading import Reading

        return Reading(
            self.workspace,
            self.agents,
            self.answer_budget,
            self.texts,
            self.clock,
            self.reports,
            self.conversations,
            self.owner_waits,
            self.signatures,
        )

    @cached_property
    def assignments(self) -> Assignments:
        from multi_agent_mcp.services.tasks.assignment import Assignments

        return Assignments(self.workspace, self.agents, self.messages, self.operations, self.texts, self.clock)

    def channels(self, agent: Agent) -> tuple[ChannelReport, ...]:
        """The agent's channels, strongest first, and why each could not ring now; see `ChannelChain.explain`."""
        return self.notifier.explain(agent) if isinstance(self.notifier, ChannelChain) else ()

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

    def doctor(self, probe: Callable[[Agent], str | None], look_at: LookAtPane | None = None) -> Doctor:
        """`probe` says why an agent's pane cannot be rung, `look_at` which host is there; None: asks tmux."""
        from multi_agent_mcp.notify.tmux.profiles import load_profiles  # only doctor needs it: servers start without
        from multi_agent_mcp.services.doctor.doctor import Doctor
        from multi_agent_mcp.services.doctor.finding import CheckContext

        profiles = load_profiles(self.root / "hosts").named.values()
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
                [profile.name for profile in profiles if not profile.never],
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

    @cached_property
    def notifications(self) -> Notifications:
        return Notifications(self.workspace, self.derived_notices, self.notice_writer, self.clock)

    @cached_property
    def hooks(self) -> Hooks:
        from multi_agent_mcp.hooks.answers import Hooks

        return Hooks(self.workspace, self.notifications, self.sessions, self.doorbell, self.texts, self.clock)


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
    return Services(workspace, settings, texts, clock, notifier or default_chain(workspace, settings, texts))
