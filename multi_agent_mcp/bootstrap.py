"""Chooses all implementations and wires them together; services made of other services alone are listed in
`service_container`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from multi_agent_mcp.config import Settings, find_session, read_environment, read_settings, session_names
from multi_agent_mcp.domain import ids as names
from multi_agent_mcp.domain import times
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import ChannelReport
from multi_agent_mcp.domain.stuck import Patience
from multi_agent_mcp.errors import NoSuchSession, Refusal
from multi_agent_mcp.service_container import WiredServices, made
from multi_agent_mcp.store.authority import ALONE, Authority
from multi_agent_mcp.store.files.locks import ORDER_CHECK
from multi_agent_mcp.store.keys import KeyFile
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.ownership import require_own
from multi_agent_mcp.texts import PEOPLE, Texts, catalogue

if TYPE_CHECKING:
    from multi_agent_mcp.domain.dialog import Asked
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.domain.notification import Notification
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.hub.relay import Relay
    from multi_agent_mcp.notify.channel import Channel
    from multi_agent_mcp.notify.people import PeopleDoorbells
    from multi_agent_mcp.notify.tmux.notifier import TmuxNotifier
    from multi_agent_mcp.services.doctor.doctor import Doctor
    from multi_agent_mcp.services.operations import HasKinds
    from multi_agent_mcp.services.overview.pane_looks import LookAtPane
    from multi_agent_mcp.services.recent_attention import RecentAttention
    from multi_agent_mcp.store.json_file import Record


@dataclass(frozen=True)
class Services(WiredServices):
    """All services of one session directory. Created once per process."""

    workspace: Workspace
    settings: Settings
    texts: Texts
    clock: Callable[[], datetime]
    chosen_notifier: Channel | None = None

    @cached_property
    def notifier(self) -> Channel:
        """The channel that was passed in, else the channel chain."""
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
        """This machine's name; None unless the session is shared."""
        return self.workspace.authority.here

    def directories_of(self, agent_id: str) -> list[Path]:
        """The directories to watch for an agent: its mail, notifications, tasks and delegations."""
        return [
            self.workspace.mailbox(agent_id).path,
            self.workspace.notices(agent_id).path,
            self.workspace.tasks.directory(agent_id).path,
            self.workspace.delegations.directory(agent_id).path,
        ]

    @cached_property
    def people(self) -> Texts:
        """The texts, including those for people only."""
        return self.texts | catalogue(self.texts.language, PEOPLE)

    def ring_about(self, notice: Notification) -> None:
        """See `Doorbell.announce_notification`. The doorbell is looked up only here, because it depends on the services
        that write notifications."""
        self.doorbell.announce_notification(notice)

    def unread_mail_count(self, agent_id: str) -> int:
        """The number of unread messages. Checks the mailbox's directory, and files only if they changed."""
        return len(self.workspace.mailbox(agent_id).unread())

    def people_doorbells(self) -> PeopleDoorbells:
        """The doorbells that a long-running process has to run; see `notify/people.py`."""
        from multi_agent_mcp.notify.people import PeopleDoorbells

        return PeopleDoorbells(self.doorbell)

    def declaring_operations(self) -> tuple[HasKinds, ...]:
        """The services that declare operations, which another process may have to finish."""
        return (
            self.messages,
            self.task_creation,
            self.task_changes,
            self.interrupting,
            self.conversations,
            self.next_action,
        )

    @property
    def patience(self) -> Patience:
        """How long an agent may be silent before it is stuck."""
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
        from multi_agent_mcp.services.recent_attention import RecentAttention

        return RecentAttention(self.attention, lambda: self.doctor().examine(), self.clock)

    def doctor(self, probe: Callable[[Agent], str | None] | None = None, look_at: LookAtPane | None = None) -> Doctor:
        """The doctor. `probe` returns why an agent's pane cannot be rung, `look_at` the host in it; by default both ask
        tmux."""
        from multi_agent_mcp.notify.tmux.profiles import load_profiles  # imported here: servers do not need it
        from multi_agent_mcp.services.doctor.doctor import Doctor
        from multi_agent_mcp.services.doctor.finding import CheckContext
        from multi_agent_mcp.system.foreground import running_files

        profiles = load_profiles(self.root / "hosts")
        given = {
            "texts": self.people,
            "probe": probe or self.pane_notifier.probe,
            "program": lambda agent: running_files(agent.pane_pid),
            "look_at": look_at or self.host_in_pane,
            "hosts": [profile.name for profile in profiles.named.values() if not profile.never],
            "profiles_left_out": profiles.left_out,
            "notify_command": self.settings.notify_command,
        }
        return Doctor(made(CheckContext, self, given))

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
        from multi_agent_mcp.notify.channels.chain import pane_notifier

        return pane_notifier(self.workspace, self.settings)

    def host_in_pane(self, agent: Agent) -> tuple[str, str] | None:
        """The host in the agent's pane, if it has a profile, and the state of its screen; else None."""
        return self.pane_notifier.host(agent)

    def audit(self, tool: str, **facts: object) -> None:
        """Adds a line to the audit log, durably."""
        self.workspace.audit_log.add(self.clock(), tool, **facts)


class LocalConsequences:
    """The local effects of another machine's writes: the repairs that the next reader would make, and doorbells. The
    methods never raise."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._moving: set[str] = set()

    def task_changed(self, task: Task) -> None:
        with suppress(Refusal):
            self.services.derived_notices.follow_up(task)
            self.services.derived_notices.settle_former(task)

    def arrived(self, message: Message) -> None:
        self.services.doorbell.announce([message])

    def notified(self, notice: Notification) -> None:
        with suppress(Refusal):
            if self.services.derived_notices.is_news(notice):
                self.services.doorbell.announce_notification(notice)

    def moved_in(self, agent: Agent) -> None:
        try:
            if self.services.workspace.is_here(self.services.agents.get(agent.id)):
                self.services.agents.take_home(agent.id)
        except Refusal:  # the hub is away or slow: tried again, because the agent cannot sign until then
            self._moving.add(agent.id)

    def look_after_agents(self) -> tuple[Asked, ...]:
        for agent_id in [*self._moving]:
            with suppress(Refusal):  # the agent was removed meanwhile
                self._moving.discard(agent_id)
                self.moved_in(self.services.agents.get(agent_id))
        with suppress(Refusal):  # tried again at the next look
            self.services.sessions.recover_dead()
        return self.services.pane_looks.asked()


def relay(root: Path, session: str) -> Relay:
    """This machine's relay. Raises `InvalidArguments` for a session that is not shared."""
    from multi_agent_mcp.hub.relay import Relay
    from multi_agent_mcp.hub.relay_authority import RelayAuthority
    from multi_agent_mcp.hub.sharing import Sharing

    sharing = Sharing(root / names.session_name(session))
    authority = RelayAuthority(sharing.membership.machine)
    services = open_session(root, session, authority=authority)
    return Relay(services.workspace, sharing.share, sharing.membership, authority, LocalConsequences(services))


def _authority(path: Path) -> Authority:
    """The authority of a session: the relay if the session is shared, else this machine's locks. Servers and commands
    ask the relay, so they import no client of the hub."""
    if not (path / ".share" / "machine.json").exists():
        return ALONE
    from multi_agent_mcp.hub.relay_client import relay_client_of

    return relay_client_of(path) or ALONE


def open_session(
    root: Path,
    session: str | None,
    *,
    language: str | None = None,
    clock: Callable[[], datetime] = times.now,
    notifier: Channel | None = None,
    authority: Authority | None = None,
) -> Services:
    """Opens an existing session; None means the only one below the root. Raises `UntrustedSession`, `InvalidId`,
    `NoSuchSession` if `init` was never run, and as `read_settings`."""
    if read_environment().check_locks:
        ORDER_CHECK.abort_on_violations()
    require_own(root)
    name = names.session_name(find_session(session, root))
    require_own(root, root / "hosts", root / name)
    workspace = Workspace(root, name, authority or _authority(root / name))
    if name not in session_names(root):  # by its exact name, even on file systems that ignore case
        raise NoSuchSession(session=name)
    settings = read_settings(workspace.settings_path, language)
    texts = catalogue(settings.language)
    return Services(workspace, settings, texts, clock, notifier)
