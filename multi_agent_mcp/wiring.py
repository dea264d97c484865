"""The services of one session. A service is made, and its module imported, on first use: it gets the session, and the
services that its fields name.

To see who uses a service, find the classes with a field of its name, and the usages of its property.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from multi_agent_mcp.features import called, load
from multi_agent_mcp.features.contributions import Contributions
from multi_agent_mcp.store.records import KeyFile, Record
from multi_agent_mcp.texts import Texts

if TYPE_CHECKING:
    from multi_agent_mcp.config import Settings
    from multi_agent_mcp.domain.agent import Agent, AgentSession
    from multi_agent_mcp.domain.delivery import ChannelReport
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.domain.question import Asked
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.doorbell.channel import Channel
    from multi_agent_mcp.doorbell.ringing import Doorbell
    from multi_agent_mcp.doorbell.thread import PeopleDoorbells
    from multi_agent_mcp.doorbell.tmux.notifier import Panes, TmuxNotifier
    from multi_agent_mcp.features import Features
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
    from multi_agent_mcp.services.search import Lookup, Search
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.sessions.session_records import Executions, HandOffs, OwnerWaits
    from multi_agent_mcp.services.tasks.board import Board, TaskCreation
    from multi_agent_mcp.services.tasks.changes import Interrupting, TaskChanges, TaskReports
    from multi_agent_mcp.services.tasks.checks import Checks
    from multi_agent_mcp.services.tasks.delivered import Delivery, DeliveryRecords
    from multi_agent_mcp.services.tasks.deliveries import Deliveries
    from multi_agent_mcp.services.tasks.diffs import Diffs
    from multi_agent_mcp.services.team.agents import Agents, Signatures
    from multi_agent_mcp.services.team.statement import Statements
    from multi_agent_mcp.services.team.workplaces import Workplaces
    from multi_agent_mcp.services.turn.next_action import AnswerAction, Briefings, ChatAction, NextAction, Section
    from multi_agent_mcp.services.turn.reading import Reading, Reports
    from multi_agent_mcp.services.turn.reminders import Reminders
    from multi_agent_mcp.services.upkeep import Upkeep
    from multi_agent_mcp.services.usage.limits import Limits
    from multi_agent_mcp.services.usage.usage import Budgets, Usage
    from multi_agent_mcp.session import Session
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


def made(where: str, **others: str) -> Any:
    """A service by its class, which is imported on first use. Each parameter of its constructor is the member of
    `Services` with that name, or the one that `others` names for it."""

    return part(lambda services: _built(services, where, others))


def _built(services: Services, where: str, others: Mapping[str, str]) -> Any:
    kind = load(where)
    code = kind.__init__.__code__
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    return kind(**{name: attrgetter(others.get(name, name))(services) for name in names})


class ByName:
    """The services that need nothing but what the names of their fields say."""

    answer_budget: AnswerBudget = made(".services.answer_budget:AnswerBudget", limits="settings.limits")
    agents: Agents = made(".services.team.agents:Agents")
    signatures: Signatures = made(".services.team.agents:Signatures")
    statements: Statements = made(".services.team.statement:Statements")
    operations: Operations = made(".services.operations:Operations", services="applying_operations")
    outbox: Outbox = made(".services.mail:Outbox", announce="doorbell.announce")
    tracking: DeliveryTracking = made(".services.mail:DeliveryTracking")
    lookup: Lookup = made(".services.search:Lookup")
    mail_search: MailSearch = made(".services.mail:MailSearch")
    hand_offs: HandOffs = made(".services.sessions.session_records:HandOffs")
    owner_waits: OwnerWaits = made(".services.sessions.session_records:OwnerWaits")
    interrupts: Interrupts = made(".services.notifications.writing:Interrupts", writer="notice_writer")
    reminders: Reminders = made(".services.turn.reminders:Reminders", derived="derived_notices")
    upkeep: Upkeep = made(".services.upkeep:Upkeep", derived="derived_notices", questions="question_effects")
    question_effects: QuestionEffects = made(".services.questions:QuestionEffects", derived="derived_notices")
    questions: Questions = made(".services.questions:Questions", effects="question_effects")
    workplaces: Workplaces = made(".services.team.workplaces:Workplaces")
    delivery_records: DeliveryRecords = made(".services.tasks.delivered:DeliveryRecords")
    board: Board = made(".services.tasks.board:Board")
    task_changes: TaskChanges = made(
        ".services.tasks.changes:TaskChanges", derived="derived_notices", head_of="workplaces.head"
    )
    interrupting: Interrupting = made(".services.tasks.changes:Interrupting")
    task_creation: TaskCreation = made(
        ".services.tasks.board:TaskCreation", derived="derived_notices", settings="checks.settings"
    )
    diffs: Diffs = made(".services.tasks.diffs:Diffs", records="delivery_records")
    checks: Checks = made(".services.tasks.checks:Checks", records="delivery_records")
    deliveries: Deliveries = made(".services.tasks.deliveries:Deliveries", derived="derived_notices")
    task_reports: TaskReports = made(".services.tasks.changes:TaskReports", delivered="report_delivery")
    conversations: Conversations = made(".services.chat:Conversations")
    human_conversations: HumanConversations = made(".services.chat:HumanConversations")
    delegations: Delegations = made(".services.chat:Delegations", derived="derived_notices")
    chat_task_operations: ChatTaskOperations = made(".services.chat:ChatTaskOperations")
    search: Search = made(".services.search:Search")
    dashboard: Dashboard = made(".services.overview.snapshot:Dashboard")
    snapshots: Snapshots = made(".services.overview.snapshot:Snapshots", derived="derived_notices")
    timeline: Timelines = made(".services.overview.timeline:Timelines")
    statistics: StatisticsOfSession = made(".services.overview.timeline:StatisticsOfSession")
    usage: Usage = made(".services.usage.usage:Usage")
    limits: Limits = made(".services.usage.limits:Limits", writer="notice_writer")
    listed_dialogs: ListedDialogs = made(".services.overview.supervision:ListedDialogs")
    machines: Machines = made(".services.overview.snapshot:Machines")
    missing_sessions: MissingSessions = made(".services.overview.supervision:MissingSessions")
    pane_looks: PaneLooks = made(".services.overview.supervision:PaneLooks")
    stuck_agents: StuckAgents = made(
        ".services.overview.supervision:StuckAgents", derived="derived_notices", panes="pane_looks"
    )
    supervision: Supervision = made(".services.overview.supervision:Supervision")
    next_action: NextAction = made(".services.turn.next_action:NextAction")
    answering: AnswerAction = made(".services.turn.next_action:AnswerAction")
    briefings: Briefings = made(".services.turn.next_action:Briefings", further="sections")
    reports: Reports = made(".services.turn.reading:Reports", derived="derived_notices")
    chat_action: ChatAction = made(".services.turn.next_action:ChatAction")
    attention: Attention = made(
        ".services.attention:Attention", look_at="host_in_pane", dialog="panes.dialog", derived="derived_notices"
    )
    recent_attention: RecentAttention = made(".services.attention:RecentAttention", examine="examined")
    unchanged: WhileUnchanged = made(".services.attention:WhileUnchanged")
    pruning: Pruning = made(".services.doctor.tree:Pruning")
    panes: Panes = made(".doorbell.tmux.notifier:Panes", typist="pane_notifier")
    tool_calls: ToolCalls = made(".hooks.answers:ToolCalls")
    host_configurations: HostConfigurations = made(".host_config:HostConfigurations", statement_of="statements.of")


@dataclass(frozen=True)
class Services(ByName):
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

    @cached_property
    def contributions(self) -> Contributions:
        return Contributions(self.session.features, self.workspace.collection, partial(getattr, self))

    @cached_property
    def notifier(self) -> Channel:
        """The channel that was passed in, else the channel chain."""
        if self.chosen_notifier is not None:
            return self.chosen_notifier
        from multi_agent_mcp.doorbell.channels import default_chain  # most commands ring nobody

        return default_chain(self.workspace, self.settings, self.texts)

    @property
    def workspace(self) -> Workspace:
        return self.session.workspace

    @property
    def settings(self) -> Settings:
        return self.session.settings

    @property
    def texts(self) -> Texts:
        return self.session.texts

    @property
    def people(self) -> Texts:
        """The texts, including those for people only."""
        return self.session.people

    @property
    def clock(self) -> Callable[[], datetime]:
        return self.session.clock

    @property
    def root(self) -> Path:
        return self.session.root

    @property
    def path(self) -> Path:
        """The session's directory."""
        return self.session.path

    @property
    def machine(self) -> str | None:
        """This machine's name; None unless the session is shared."""
        return self.session.machine

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
        """The services that apply operations, which another process may have to finish, whatever is off by now."""
        return tuple(getattr(self, name) for feature in self.session.features.all for name in feature.operations)

    def named(self, where: str) -> Callable[..., Any]:
        """What a feature names: `service.method` of a service here, or a function of a module, given the session."""
        return partial(called, where, self.session) if ":" in where else attrgetter(where)(self)

    def still_open(self, features: Features) -> dict[str, Sequence[str]]:
        """The features that are known here, and are not among these, of which something is open, with its ids."""
        left_out = (one for one in self.session.features.all if one.name not in features and one.still_open)
        found = {one.name: self.named(one.still_open)() for one in left_out}
        return {name: ids for name, ids in found.items() if ids}

    def sections(self) -> Iterator[Section]:
        """The sections of the briefing that the features add."""
        return map(self.named, self.session.features.each("briefing"))

    def channels(self, agent: Agent) -> tuple[ChannelReport, ...]:
        """The agent's channels, strongest first, and why each could not ring now; see `ChannelChain.explain`."""
        return self.notifier.explain(agent, is_silent=self.pane_notifier.silent.is_silent(agent.socket_path))

    def examined(self) -> list[Finding]:
        """The findings of `doctor`, examined again only when something has changed, or after some minutes."""
        from multi_agent_mcp.services.attention import EXAMINE_EVERY

        return self.unchanged.get("findings", lambda: self.doctor().examine(), good_for=EXAMINE_EVERY)

    def doctor(self, probe: Callable[[Agent], str | None] | None = None, look_at: LookAtPane | None = None) -> Doctor:
        """The doctor. `probe` returns why an agent's pane cannot be rung, `look_at` the host in it; by default both ask
        tmux."""
        from multi_agent_mcp.doorbell.tmux.client import (
            harmful_options,
            misnamed,
        )  # imported here: servers do not need them
        from multi_agent_mcp.doorbell.tmux.profiles import load_profiles
        from multi_agent_mcp.services.doctor.doctor import Doctor
        from multi_agent_mcp.services.doctor.tree import CheckContext
        from multi_agent_mcp.system.process import running_files

        profiles = load_profiles(self.root / "hosts")
        context = CheckContext(
            session=self.session,
            agents=self.agents,
            sessions=self.sessions,
            owner_waits=self.owner_waits,
            missing_sessions=self.missing_sessions,
            supervision=self.supervision,
            derived=self.derived_notices,
            question_effects=self.question_effects,
            stuck_agents=self.stuck_agents,
            signatures=self.signatures,
            checks=self.checks,
            operations=self.operations,
            probe=probe or self.pane_notifier.probe,
            program=lambda agent: running_files(agent.pane_pid),
            look_at=look_at or self.host_in_pane,
            misnamed=misnamed,
            harmful_options=harmful_options,
            hosts=[profile.name for profile in profiles.named.values() if not profile.never],
            profiles_left_out=profiles.left_out,
            contributions=self.contributions,
            dialog=self.pane_notifier.dialog,
            hooks_ran=lambda session: self.hooks.have_run(session),
            uncounted=self.usage.unread_agents,
            outdated_files=self.host_configurations.outdated,
            still_open=lambda: self.still_open(self.session.features),
        )
        features = self.session.features
        checks, verifications = (
            {name: partial(called, where) for name, where in features.each(field)}
            for field in ("checks", "verifications")
        )
        return Doctor(context, checks, verifications)

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
        self.session.audit(tool, **facts)

    @part
    def messages(self) -> Messages:
        from multi_agent_mcp.services.mail import Messages

        return Messages(
            self.session,
            agents=self.agents,
            outbox=self.outbox,
            operations=self.operations,
            after_sending=(self.loops.after_sending, *([self.telemetry.sent] if self.exports_spans else ())),
        )

    @property
    def exports_spans(self) -> bool:
        """Whether spans are exported: if not, most commands need not import what makes them."""
        return self.settings.telemetry is not None and "telemetry" in self.session.features

    @part
    def telemetry(self) -> Telemetry:
        from multi_agent_mcp.telemetry.recording import Telemetry

        destination = self.settings.telemetry
        if destination is None or not self.exports_spans:
            return Telemetry(open_exporter=None)

        def opened() -> Export:
            from multi_agent_mcp.telemetry.exporting import exporter

            return exporter(destination, self.session.name, self.path)

        return Telemetry(open_exporter=opened)

    @part
    def sessions(self) -> Sessions:
        from multi_agent_mcp.services.sessions.agent_sessions import Sessions

        return Sessions(
            self.session,
            executions=self.executions,
            owner_waits=self.owner_waits,
            ended=self.session_ended,
            settle_hand_offs=lambda agent_id: self.hand_offs.settle(agent_id),
        )

    @part
    def executions(self) -> Executions:
        from multi_agent_mcp.services.sessions.session_records import Executions

        told = [self.telemetry.finished] if self.exports_spans else ()
        return Executions(self.session, *told)

    @part
    def notice_writer(self) -> NoticeWriter:
        from multi_agent_mcp.services.notifications.writing import NoticeWriter

        return NoticeWriter(self.session, find_ring=lambda: self.doorbell.announce_notification)

    @part
    def derived_notices(self) -> DerivedNotices:
        from multi_agent_mcp.services.notifications.notifications import DerivedNotices

        return DerivedNotices(
            self.session,
            writer=self.notice_writer,
            interrupts=self.interrupts,
            last_activity=self.sessions.last_activity,
            follow_questions=self.follow_questions,
            finished=self.finish_delivery,
            changed=self.telemetry.changed if self.exports_spans else None,
        )

    @part
    def loops(self) -> Loops:
        from multi_agent_mcp.services.notifications.writing import Loops

        return Loops(self.session, is_alive=lambda agent_id: self.sessions.alive(agent_id), writer=self.notice_writer)

    @part
    def notifications(self) -> Notifications:
        from multi_agent_mcp.services.notifications.notifications import Notifications

        return Notifications(
            self.session,
            derived=self.derived_notices,
            writer=self.notice_writer,
            settle=self.contributions.settle,
            next_deadline=lambda: self.question_effects.next_deadline(),
        )

    def report_delivery(self, task: Task, summary: str | None = None, *, failed: bool = False) -> None:
        """Records what a task delivers by its assignee's report; a stat(2) each where there are no worktrees and the
        agent has edited nothing."""
        if (self.path / ".workspaces").is_dir():
            self.delivery_records.report(task, summary, failed=failed)
        if not task.final and (self.path / ".edits" / f"{task.assignee_id}.jsonl").exists():
            self.diffs.keep(task)

    def reported_delivery(self, task: Task) -> Delivery | None:
        """What a task delivers by its last report; a stat(2) as above."""
        return self.delivery_records.of(task) if (self.path / ".workspaces").is_dir() else None

    def left_behind(self, task: Task) -> Sequence[str]:
        """The files that were not committed when a task was last reported; a stat(2) as above."""
        found = self.reported_delivery(task)
        return () if found is None else found.files

    def uncommitted_count(self, task: Task) -> int:
        """How many files were not committed, so that a task that is done did not deliver them; a stat(2) as above."""
        found = self.reported_delivery(task) if task.status == "done" else None
        return 0 if found is None else found.uncommitted

    def finish_delivery(self, task: Task) -> None:
        """Closes the executions of a task that is done, and records what it delivers, unless that was reported; a
        stat(2) as above."""
        self.executions.finish_task(task)
        if (self.path / ".workspaces").is_dir():
            self.delivery_records.finish(task)

    @part
    def budgets(self) -> Budgets:
        from multi_agent_mcp.services.usage.usage import Budgets

        return Budgets(
            self.session,
            usage=self.usage,
            interrupts=self.interrupts,
            is_supervised=lambda: self.supervision.running() is not None,
        )

    @part
    def reading(self) -> Reading:
        from multi_agent_mcp.services.turn.reading import Reading

        return Reading(
            self.session,
            agents=self.agents,
            budget=self.answer_budget,
            reports=self.reports,
            conversations=self.conversations,
            owner_waits=self.owner_waits,
            signatures=self.signatures,
            marked_read=self.telemetry.read if self.exports_spans else None,
        )

    @part
    def doorbell(self) -> Doorbell:
        from multi_agent_mcp.doorbell.ringing import Doorbell

        return Doorbell(
            self.session,
            find_notifications=lambda: self.notifications,
            notifier=self.notifier,
            opens_chat=self.opens_chat,
            find_limits=lambda: self.limits,
            is_at_work=self.is_at_work,
        )

    def is_at_work(self, agent: Agent) -> bool:
        """Whether the agent's host works, by its screen."""
        from multi_agent_mcp.domain.stuck import BUSY

        seen = self.host_in_pane(agent) if agent.pane_id is not None else None
        return seen is not None and seen[1] == BUSY

    def opens_chat(self, agent_id: str) -> bool:
        """Whether a supervisor runs that opens a chat window for an agent to whom a conversation's message came."""
        from multi_agent_mcp.services.overview.supervision import Slot

        return self.supervision.running() is not None and self.missing_sessions.may_open(Slot(agent_id, "chat"))

    @part
    def hooks(self) -> Hooks:
        from multi_agent_mcp.hooks.answers import Hooks

        return Hooks(
            self.session,
            notifications=self.notifications,
            sessions=self.sessions,
            doorbell=self.doorbell,
            tool_calls=self.tool_calls,
            limits=self.limits,
            find_briefings=lambda: self.briefings,
            find_hand_offs=lambda: self.hand_offs,
        )
