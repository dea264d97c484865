"""The services of one session, and what each is made of. A service is made, and its module imported, on first use.

To see who uses a service, find the usages of its property.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from multi_agent_mcp.domain.agent import Agent, AgentSession, nearest_superior
from multi_agent_mcp.domain.times import local_zone
from multi_agent_mcp.store.records import KeyFile, Record
from multi_agent_mcp.texts import PEOPLE, Texts, catalogue

if TYPE_CHECKING:
    from multi_agent_mcp.config import Settings
    from multi_agent_mcp.domain.delivery import ChannelReport
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.domain.question import Asked
    from multi_agent_mcp.domain.stuck import Patience
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.doorbell.channel import Channel
    from multi_agent_mcp.doorbell.ringing import Doorbell
    from multi_agent_mcp.doorbell.thread import PeopleDoorbells
    from multi_agent_mcp.doorbell.tmux.notifier import Panes, TmuxNotifier
    from multi_agent_mcp.hooks.answers import Hooks, ToolCalls
    from multi_agent_mcp.host_config import HostConfigurations
    from multi_agent_mcp.services.answer_budget import AnswerBudget
    from multi_agent_mcp.services.attention import Attention, RecentAttention, WhileUnchanged
    from multi_agent_mcp.services.chat import ChatTaskOperations, Conversations, Delegations, HumanConversations
    from multi_agent_mcp.services.doctor.doctor import Doctor
    from multi_agent_mcp.services.doctor.tree import Finding, Pruning
    from multi_agent_mcp.services.mail import DeliveryTracking, MailSearch, Messages, Outbox
    from multi_agent_mcp.services.notifications.notifications import DerivedNotices, Notifications
    from multi_agent_mcp.services.notifications.writing import Interrupts, Loops, NoticeWriter
    from multi_agent_mcp.services.operations import HasOperations, Operations
    from multi_agent_mcp.services.overview.snapshot import Dashboard, Machines, Snapshots
    from multi_agent_mcp.services.overview.supervision import (
        ListedDialogs,
        LookAtPane,
        MissingSessions,
        PaneLooks,
        StuckAgents,
        Supervision,
    )
    from multi_agent_mcp.services.overview.timeline import StatisticsOfSession, Timelines
    from multi_agent_mcp.services.questions import QuestionEffects, Questions
    from multi_agent_mcp.services.repository.guard import Guard
    from multi_agent_mcp.services.repository.merging import Merging
    from multi_agent_mcp.services.repository.reservations import Edits, Reservations
    from multi_agent_mcp.services.repository.worktrees import Worktrees
    from multi_agent_mcp.services.search import Lookup, Search
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.sessions.session_records import Executions, HandOffs, OwnerWaits
    from multi_agent_mcp.services.tasks.board import Board, TaskCreation
    from multi_agent_mcp.services.tasks.changes import Interrupting, TaskChanges, TaskReports
    from multi_agent_mcp.services.tasks.delivered import DeliveryRecords
    from multi_agent_mcp.services.tasks.deliveries import Checks, Deliveries
    from multi_agent_mcp.services.team.agents import Agents, Signatures
    from multi_agent_mcp.services.turn.next_action import AnswerAction, Briefings, ChatAction, Holds, NextAction
    from multi_agent_mcp.services.turn.reading import Reading, Reports
    from multi_agent_mcp.services.upkeep import Upkeep
    from multi_agent_mcp.services.usage.limits import Limits
    from multi_agent_mcp.services.usage.usage import Budgets, Usage
    from multi_agent_mcp.store.workspace import Workspace
    from multi_agent_mcp.telemetry.recording import Export, Telemetry

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


@dataclass(frozen=True)
class Services:
    """All services of one session directory. Created once per process."""

    workspace: Workspace
    settings: Settings
    texts: Texts
    clock: Callable[[], datetime]
    chosen_notifier: Channel | None = None
    making: RLock = field(default_factory=RLock, repr=False, compare=False)
    """Held while a service is made, so that two threads get the same one."""

    @cached_property
    def notifier(self) -> Channel:
        """The channel that was passed in, else the channel chain."""
        if self.chosen_notifier is not None:
            return self.chosen_notifier
        from multi_agent_mcp.doorbell.channels import default_chain  # most commands ring nobody

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
        """This machine's name; None unless the session is shared."""
        return self.workspace.authority.here

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

    @cached_property
    def people(self) -> Texts:
        """The texts, including those for people only."""
        return self.texts | catalogue(self.texts.language, PEOPLE)

    def follow_questions(self) -> None:
        """See `QuestionEffects.look`. It is looked up only here, because it depends on the derived notifications."""
        self.question_effects.look()

    def session_ended(self, session: AgentSession) -> None:
        """Announces again what the session has read and not begun. The notifications are looked up only here, because
        they depend on the sessions."""
        if session.purpose == "task":
            self.derived_notices.offer_again(session.agent_id)

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
        """The dialogs that stand in agents' panes on this machine, as some process has seen them a moment ago."""
        self.pane_looks.refresh(self.host_in_pane, self.panes.dialog, DIALOGS_EVERY)
        return self.pane_looks.asked()

    def applying_operations(self) -> tuple[HasOperations, ...]:
        """The services that apply operations, which another process may have to finish."""
        return (
            self.messages,
            self.task_creation,
            self.task_changes,
            self.interrupting,
            self.deliveries,
            self.conversations,
            self.next_action,
            self.worktrees,
            self.merging,
        )

    @property
    def patience(self) -> Patience:
        """How long an agent may be silent before it is stuck."""
        from multi_agent_mcp.domain.stuck import Patience

        return Patience(timedelta(minutes=self.settings.limits.stuck_minutes))

    @property
    def activity_written_every(self) -> timedelta:
        """The interval of recording an agent's activity, short enough that no working agent seems stuck."""
        return min(timedelta(seconds=60), self.patience.silence / 4)

    def channels(self, agent: Agent) -> tuple[ChannelReport, ...]:
        """The agent's channels, strongest first, and why each could not ring now; see `ChannelChain.explain`."""
        return self.notifier.explain(agent, is_silent=self.pane_notifier.silent.is_silent(agent.socket_path))

    @cached_property
    def recent_attention(self) -> RecentAttention:
        """The items that wait for somebody, cached for processes that show them continually."""
        from multi_agent_mcp.services.attention import RecentAttention

        return RecentAttention(self.attention, self.examined, self.unchanged, self.clock)

    @cached_property
    def unchanged(self) -> WhileUnchanged:
        """What processes that show views continually have computed already."""
        from multi_agent_mcp.services.attention import WhileUnchanged

        return WhileUnchanged(self.workspace, self.sessions, self.clock)

    def examined(self) -> list[Finding]:
        """The findings of `doctor`, examined again only when something has changed, or after some minutes."""
        from multi_agent_mcp.services.attention import EXAMINE_EVERY

        return self.unchanged.get("findings", lambda: self.doctor().examine(), good_for=EXAMINE_EVERY)

    def doctor(self, probe: Callable[[Agent], str | None] | None = None, look_at: LookAtPane | None = None) -> Doctor:
        """The doctor. `probe` returns why an agent's pane cannot be rung, `look_at` the host in it; by default both ask
        tmux."""
        from multi_agent_mcp.doorbell.tmux.profiles import load_profiles  # imported here: servers do not need it
        from multi_agent_mcp.services.doctor.doctor import Doctor
        from multi_agent_mcp.services.doctor.tree import CheckContext
        from multi_agent_mcp.system.process import running_files

        profiles = load_profiles(self.root / "hosts")
        context = CheckContext(
            self.workspace,
            self.agents,
            self.sessions,
            self.owner_waits,
            self.missing_sessions,
            self.supervision,
            self.derived_notices,
            self.question_effects,
            self.stuck_agents,
            self.signatures,
            self.checks,
            self.operations,
            self.people,
            probe or self.pane_notifier.probe,
            lambda agent: running_files(agent.pane_pid),
            look_at or self.host_in_pane,
            [profile.name for profile in profiles.named.values() if not profile.never],
            profiles.left_out,
            self.settings.notify_command,
            self.worktrees,
            self.pane_notifier.dialog,
            lambda session: self.hooks.have_run(session),
            self.usage.unread_agents,
            self.host_configurations.outdated,
        )
        return Doctor(context)

    @property
    def console_key(self) -> bytes:
        """The key with which the console signs its cookies, created on first use."""
        return KeyFile(self.workspace.files, self.path / ".console" / "key").ensure().encode("ascii")

    @property
    def console_port(self) -> Record:
        """The record of the port on which the console was last served."""
        return self.workspace.console_port

    def screen(self, agent: Agent) -> str:
        """The host in the agent's pane and its state (`idle`, `busy`, `draft`, a dialog …), or why it cannot be
        seen."""
        return self.pane_notifier.screen(agent)

    @cached_property
    def pane_notifier(self) -> TmuxNotifier:
        """The channel that types into panes, even for agents whose chain does not contain it."""
        from multi_agent_mcp.doorbell.channels import pane_notifier

        return pane_notifier(self.workspace, self.settings)

    def host_in_pane(self, agent: Agent) -> tuple[str, str] | None:
        """The host in the agent's pane, if it has a profile, and the state of its screen; else None."""
        return self.pane_notifier.host(agent)

    def audit(self, tool: str, **facts: object) -> None:
        """Adds a line to the audit log, durably."""
        self.workspace.audit_log.add(self.clock(), tool, **facts)

    @part
    def answer_budget(self) -> AnswerBudget:
        from multi_agent_mcp.services.answer_budget import AnswerBudget

        return AnswerBudget(self.settings.limits, self.texts)

    @part
    def agents(self) -> Agents:
        from multi_agent_mcp.services.team.agents import Agents

        return Agents(self.workspace, self.clock)

    @part
    def signatures(self) -> Signatures:
        from multi_agent_mcp.services.team.agents import Signatures

        return Signatures(self.agents)

    @part
    def operations(self) -> Operations:
        from multi_agent_mcp.services.operations import Operations

        return Operations(self.workspace, self.applying_operations)

    @part
    def outbox(self) -> Outbox:
        from multi_agent_mcp.services.mail import Outbox

        return Outbox(self.workspace, self.signatures, self.doorbell.announce)

    @part
    def messages(self) -> Messages:
        from multi_agent_mcp.services.mail import Messages

        return Messages(
            self.workspace,
            self.agents,
            self.settings.limits,
            self.texts,
            self.clock,
            self.outbox,
            self.operations,
            (self.loops.after_sending, *([self.telemetry.sent] if self.exports_spans else ())),
        )

    @property
    def exports_spans(self) -> bool:
        """Whether spans are exported: if not, most commands need not import what makes them."""
        return self.settings.telemetry is not None

    @part
    def telemetry(self) -> Telemetry:
        from multi_agent_mcp.telemetry.recording import Telemetry

        destination = self.settings.telemetry
        if destination is None:
            return Telemetry(None)

        def opened() -> Export:
            from multi_agent_mcp.telemetry.exporting import exporter

            return exporter(destination, self.session, self.path)

        return Telemetry(opened)

    @part
    def tracking(self) -> DeliveryTracking:
        from multi_agent_mcp.services.mail import DeliveryTracking

        return DeliveryTracking(self.workspace, self.agents)

    @part
    def lookup(self) -> Lookup:
        from multi_agent_mcp.services.search import Lookup

        return Lookup(self.workspace)

    @part
    def mail_search(self) -> MailSearch:
        from multi_agent_mcp.services.mail import MailSearch

        return MailSearch(self.workspace)

    @part
    def sessions(self) -> Sessions:
        from multi_agent_mcp.services.sessions.agent_sessions import Sessions

        return Sessions(
            self.workspace,
            self.executions,
            self.owner_waits,
            self.clock,
            self.activity_written_every,
            self.session_ended,
            lambda agent_id: self.hand_offs.settle(agent_id),
        )

    @part
    def executions(self) -> Executions:
        from multi_agent_mcp.services.sessions.session_records import Executions

        told = [self.telemetry.finished] if self.exports_spans else ()
        return Executions(self.workspace, self.texts, self.clock, *told)

    @part
    def hand_offs(self) -> HandOffs:
        from multi_agent_mcp.services.sessions.session_records import HandOffs

        return HandOffs(self.workspace, self.executions, self.mail_search, self.signatures, self.texts, self.clock)

    @part
    def owner_waits(self) -> OwnerWaits:
        from multi_agent_mcp.services.sessions.session_records import OwnerWaits

        return OwnerWaits(self.workspace, self.signatures, self.clock, self.audit)

    @part
    def notice_writer(self) -> NoticeWriter:
        from multi_agent_mcp.services.notifications.writing import NoticeWriter

        return NoticeWriter(self.workspace, self.texts, lambda: self.doorbell.announce_notification)

    @part
    def interrupts(self) -> Interrupts:
        from multi_agent_mcp.services.notifications.writing import Interrupts

        return Interrupts(self.workspace, self.notice_writer, self.clock)

    @part
    def derived_notices(self) -> DerivedNotices:
        from multi_agent_mcp.services.notifications.notifications import DerivedNotices

        return DerivedNotices(
            self.workspace,
            self.notice_writer,
            self.interrupts,
            self.sessions.last_activity,
            self.follow_questions,
            self.clock,
            self.finish_delivery,
            self.telemetry.changed if self.exports_spans else None,
        )

    @part
    def loops(self) -> Loops:
        from multi_agent_mcp.services.notifications.writing import Loops

        return Loops(self.workspace, lambda agent_id: self.sessions.alive(agent_id), self.notice_writer, self.clock)

    @part
    def notifications(self) -> Notifications:
        from multi_agent_mcp.services.notifications.notifications import Notifications

        return Notifications(
            self.workspace,
            self.derived_notices,
            self.notice_writer,
            self.clock,
            self.settle_reservations,
            lambda: self.question_effects.next_deadline(),
        )

    @part
    def upkeep(self) -> Upkeep:
        from multi_agent_mcp.services.upkeep import Upkeep

        return Upkeep(
            self.workspace,
            self.operations,
            self.limits,
            self.notifications,
            self.derived_notices,
            self.question_effects,
            self.clock,
        )

    @part
    def question_effects(self) -> QuestionEffects:
        from multi_agent_mcp.services.questions import QuestionEffects

        return QuestionEffects(self.workspace, self.derived_notices, self.texts, self.clock)

    @part
    def questions(self) -> Questions:
        from multi_agent_mcp.services.questions import Questions

        return Questions(self.workspace, self.agents, self.question_effects, self.audit, self.clock)

    @part
    def reservations(self) -> Reservations:
        from multi_agent_mcp.services.repository.reservations import Reservations

        return Reservations(
            self.workspace,
            self.sessions,
            self.notice_writer,
            self.settings.repository.enforces,
            self.has_lost_pane,
            self.clock,
        )

    @part
    def worktrees(self) -> Worktrees:
        from multi_agent_mcp.services.repository.worktrees import Worktrees

        return Worktrees(
            self.workspace,
            self.settings.repository,
            self.operations,
            self.delivery_records,
            lambda one: self.sessions.alive(one),
        )

    @part
    def delivery_records(self) -> DeliveryRecords:
        from multi_agent_mcp.services.tasks.delivered import DeliveryRecords

        return DeliveryRecords(self.workspace, self.worktree_directory, self.clock)

    @part
    def merging(self) -> Merging:
        from multi_agent_mcp.services.repository.merging import Merging

        return Merging(self.workspace, self.worktrees, self.messages, self.operations, self.texts)

    def proof_section(self, holds: Holds) -> str | None:
        """What is to be proven of an agent's task, and what waits for its review, for its briefing."""
        task, reviews = holds.row.task, self.deliveries.waiting_for(holds.row.agent.id)
        lines = []
        if task is not None and task.done_when:
            key = "briefing.examined" if task.is_examined else "briefing.done_when"
            lines.append(self.texts(key, conditions=", ".join(task.done_when)))
        if reviews:
            lines.append(self.texts("briefing.reviews", count=len(reviews), task_id=reviews[0].id))
        return "\n".join(lines) or None

    def limits_section(self, holds: Holds) -> str | None:
        """The agents of an agent that have met a usage limit, and its own budgets of tokens, for its briefing."""
        me, agents = holds.row.agent, self.workspace.registry.all()
        limited = [limit for limit in self.limits.all().values() if nearest_superior(limit.agent_id, agents) == me]
        lines = [self.limits.sentence(limit) for limit in limited]
        lines += [self.budgets.sentence(budget) for budget in self.budgets.of(me)]
        return "\n".join(lines) or None

    def worktree_section(self, holds: Holds) -> str | None:
        """The briefing's words about the worktree in which an agent works."""
        worktree = self.worktrees.of(holds.row.agent.id)
        return None if worktree is None else self.texts("prompt.worktree", branch=worktree.branch).strip()

    @part
    def guard(self) -> Guard:
        from multi_agent_mcp.services.repository.guard import Guard

        return Guard(self.worktrees, self.texts)

    def worktree_directory(self, agent_id: str) -> Path | None:
        """The directory of an agent's worktree; a stat(2) where there are none."""
        found = self.worktrees.of(agent_id) if (self.path / ".workspaces").is_dir() else None
        return Path(found.path) if found is not None and Path(found.path).is_dir() else None

    def report_delivery(self, task: Task, *, failed: bool = False) -> None:
        """Records what a task delivers by its assignee's report; a stat(2) where there are no worktrees."""
        if (self.path / ".workspaces").is_dir():
            self.delivery_records.report(task, failed=failed)

    def finish_delivery(self, task: Task) -> None:
        """Records what a task that is done delivers, unless that was reported; a stat(2) as above."""
        if (self.path / ".workspaces").is_dir():
            self.delivery_records.finish(task)

    @part
    def edits(self) -> Edits:
        from multi_agent_mcp.services.repository.reservations import Edits

        return Edits(self.workspace, self.notice_writer, self.settings.limits.edit_overlap_minutes, self.clock)

    def settle_reservations(self) -> None:
        """Ends the reservations that have run out; a stat(2) where there are none."""
        if self.workspace.reservations.open():
            self.reservations.settle()

    def has_lost_pane(self, agent: Agent) -> bool:
        """Whether no program of the agent runs in the pane where it is registered."""
        from multi_agent_mcp.services.attention import LIFELESS

        return agent.pane_id is None or self.pane_notifier.probe(agent) in LIFELESS

    @part
    def board(self) -> Board:
        from multi_agent_mcp.services.tasks.board import Board

        return Board(self.workspace)

    @part
    def task_changes(self) -> TaskChanges:
        from multi_agent_mcp.services.tasks.changes import TaskChanges

        return TaskChanges(
            self.workspace,
            self.agents,
            self.messages,
            self.interrupts,
            self.derived_notices,
            self.operations,
            self.texts,
            self.clock,
        )

    @part
    def interrupting(self) -> Interrupting:
        from multi_agent_mcp.services.tasks.changes import Interrupting

        return Interrupting(self.task_changes, self.interrupts, self.operations)

    @part
    def task_creation(self) -> TaskCreation:
        from multi_agent_mcp.services.tasks.board import TaskCreation

        return TaskCreation(
            self.workspace,
            self.agents,
            self.messages,
            self.owner_waits,
            self.derived_notices,
            self.operations,
            self.checks.settings,
            self.texts,
            self.clock,
        )

    @part
    def checks(self) -> Checks:
        from multi_agent_mcp.services.tasks.deliveries import Checks

        return Checks(self.workspace, self.signatures, self.texts, self.clock, self.worktree_directory)

    @part
    def deliveries(self) -> Deliveries:
        from multi_agent_mcp.services.tasks.deliveries import Deliveries

        return Deliveries(
            self.workspace,
            self.task_changes,
            self.task_reports,
            self.checks,
            self.executions,
            self.owner_waits,
            self.derived_notices,
            self.operations,
            self.clock,
        )

    @part
    def task_reports(self) -> TaskReports:
        from multi_agent_mcp.services.tasks.changes import TaskReports

        return TaskReports(self.workspace, self.agents, self.messages, self.texts, self.report_delivery)

    @part
    def conversations(self) -> Conversations:
        from multi_agent_mcp.services.chat import Conversations

        return Conversations(self.workspace, self.agents, self.messages, self.outbox, self.operations, self.clock)

    @part
    def human_conversations(self) -> HumanConversations:
        from multi_agent_mcp.services.chat import HumanConversations

        return HumanConversations(self.workspace, self.agents, self.conversations, self.messages, self.mail_search)

    @part
    def delegations(self) -> Delegations:
        from multi_agent_mcp.services.chat import Delegations

        return Delegations(
            self.workspace, self.agents, self.sessions, self.conversations, self.derived_notices, self.texts, self.clock
        )

    @part
    def chat_task_operations(self) -> ChatTaskOperations:
        from multi_agent_mcp.services.chat import ChatTaskOperations

        return ChatTaskOperations(
            self.workspace, self.agents, self.task_changes, self.conversations, self.audit, self.clock
        )

    @part
    def search(self) -> Search:
        from multi_agent_mcp.services.search import Search

        return Search(self.workspace, self.agents)

    @part
    def dashboard(self) -> Dashboard:
        from multi_agent_mcp.services.overview.snapshot import Dashboard

        return Dashboard(self.workspace, self.snapshots, self.usage, self.texts, self.clock)

    @part
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
            self.limits,
            self.clock,
        )

    @part
    def timeline(self) -> Timelines:
        from multi_agent_mcp.services.overview.timeline import Timelines

        return Timelines(self.workspace, self.mail_search, self.clock)

    @part
    def statistics(self) -> StatisticsOfSession:
        from multi_agent_mcp.services.overview.timeline import StatisticsOfSession

        return StatisticsOfSession(self.workspace, self.timeline, self.clock)

    @part
    def usage(self) -> Usage:
        from multi_agent_mcp.services.usage.usage import Usage

        return Usage(self.workspace, self.settings.usage, self.limits, self.clock)

    @part
    def budgets(self) -> Budgets:
        from multi_agent_mcp.services.usage.usage import Budgets

        return Budgets(
            self.usage,
            self.interrupts,
            self.settings.limits,
            self.texts,
            local_zone(),
            self.clock,
            lambda: self.supervision.running() is not None,
        )

    @part
    def limits(self) -> Limits:
        from multi_agent_mcp.services.usage.limits import Limits

        return Limits(self.workspace, self.notice_writer, self.settings.on_limit, self.texts, local_zone(), self.clock)

    @part
    def listed_dialogs(self) -> ListedDialogs:
        from multi_agent_mcp.services.overview.supervision import ListedDialogs

        return ListedDialogs(self.workspace, self.clock)

    @part
    def machines(self) -> Machines:
        from multi_agent_mcp.services.overview.snapshot import Machines

        return Machines(self.workspace, self.agents)

    @part
    def missing_sessions(self) -> MissingSessions:
        from multi_agent_mcp.services.overview.supervision import MissingSessions

        return MissingSessions(
            self.workspace, self.agents, self.sessions, self.task_changes, self.delegations, self.clock
        )

    @part
    def pane_looks(self) -> PaneLooks:
        from multi_agent_mcp.services.overview.supervision import PaneLooks

        return PaneLooks(self.workspace, self.sessions, self.clock)

    @part
    def stuck_agents(self) -> StuckAgents:
        from multi_agent_mcp.services.overview.supervision import StuckAgents

        return StuckAgents(
            self.workspace,
            self.sessions,
            self.derived_notices,
            self.task_changes,
            self.pane_looks,
            self.limits,
            self.texts,
            self.patience,
            self.clock,
        )

    @part
    def supervision(self) -> Supervision:
        from multi_agent_mcp.services.overview.supervision import Supervision

        return Supervision(self.workspace)

    @part
    def next_action(self) -> NextAction:
        from multi_agent_mcp.services.turn.next_action import NextAction

        return NextAction(
            self.workspace,
            self.task_changes,
            self.task_reports,
            self.answering,
            self.deliveries,
            self.executions,
            self.dashboard,
            self.operations,
            self.hand_offs,
            self.texts,
            self.clock,
        )

    @part
    def answering(self) -> AnswerAction:
        from multi_agent_mcp.services.turn.next_action import AnswerAction

        return AnswerAction(self.workspace, self.questions, self.answer_budget, self.texts, self.clock)

    @part
    def briefings(self) -> Briefings:
        """The briefings; other subjects add their sections here."""
        from multi_agent_mcp.services.turn.next_action import Briefings

        return Briefings(
            self.workspace,
            self.snapshots,
            self.delegations,
            self.hand_offs,
            self.texts,
            (self.answering.section, self.proof_section, self.limits_section, self.worktree_section),
        )

    @part
    def reports(self) -> Reports:
        from multi_agent_mcp.services.turn.reading import Reports

        return Reports(self.workspace, self.dashboard, self.derived_notices, self.clock)

    @part
    def chat_action(self) -> ChatAction:
        from multi_agent_mcp.services.turn.next_action import ChatAction

        return ChatAction(self.workspace, self.delegations, self.conversations, self.answering, self.texts)

    @part
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
            self.telemetry.read if self.exports_spans else None,
        )

    @part
    def attention(self) -> Attention:
        from multi_agent_mcp.services.attention import Attention

        return Attention(
            self.workspace,
            self.stuck_agents,
            self.task_changes,
            self.tracking,
            self.pane_looks,
            self.host_in_pane,
            self.screen,
            self.panes.dialog,
            self.machines,
            self.missing_sessions,
            self.supervision,
            self.owner_waits,
            self.derived_notices,
            self.worktrees,
            self.questions,
            self.people,
            self.clock,
        )

    @part
    def pruning(self) -> Pruning:
        from multi_agent_mcp.services.doctor.tree import Pruning

        return Pruning(self.workspace)

    @part
    def doorbell(self) -> Doorbell:
        from multi_agent_mcp.doorbell.ringing import Doorbell

        return Doorbell(
            self.workspace,
            lambda: self.notifications,
            self.notifier,
            self.settings,
            self.texts,
            self.clock,
            self.opens_chat,
            lambda: self.limits,
            self.is_at_work,
        )

    def is_at_work(self, agent: Agent) -> bool:
        """Whether the agent's host works, by its screen."""
        seen = self.host_in_pane(agent) if agent.pane_id is not None else None
        return seen is not None and seen[1] == "busy"

    def opens_chat(self, agent_id: str) -> bool:
        """Whether a supervisor runs that opens a chat window for an agent to whom a conversation's message came."""
        from multi_agent_mcp.services.overview.supervision import Slot

        return self.supervision.running() is not None and self.missing_sessions.may_open(Slot(agent_id, "chat"))

    @part
    def panes(self) -> Panes:
        from multi_agent_mcp.doorbell.tmux.notifier import Panes

        return Panes(self.workspace, self.pane_notifier, self.audit)

    @part
    def host_configurations(self) -> HostConfigurations:
        from multi_agent_mcp.host_config import HostConfigurations

        return HostConfigurations(self.workspace)

    @part
    def hooks(self) -> Hooks:
        from multi_agent_mcp.hooks.answers import Hooks

        return Hooks(
            self.workspace,
            self.notifications,
            self.sessions,
            self.doorbell,
            self.tool_calls,
            self.limits,
            self.texts,
            self.clock,
            lambda: self.briefings,
            lambda: self.hand_offs,
        )

    @part
    def tool_calls(self) -> ToolCalls:
        from multi_agent_mcp.hooks.answers import ToolCalls

        return ToolCalls(self.edits, self.reservations, lambda: self.guard, self.texts)
