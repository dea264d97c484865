"""Opens a session: chooses its authority, and hands its services out (`wiring`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.config import find_session, is_without_settings, read_environment, session_names
from multi_agent_mcp.domain import times
from multi_agent_mcp.domain.entity import session_name
from multi_agent_mcp.environment import locale_language
from multi_agent_mcp.errors import InvalidArguments, NoSuchSession, Refusal
from multi_agent_mcp.features.chosen import chosen, require_sound, texts_of
from multi_agent_mcp.services.team.upgrade import upgrade
from multi_agent_mcp.session import Session
from multi_agent_mcp.settings import read_settings, readable_settings
from multi_agent_mcp.store.authority import ALONE, Authority
from multi_agent_mcp.store.locks import ORDER_CHECK
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.ownership import require_entered, require_own, require_root_entered
from multi_agent_mcp.texts import Texts, catalogue
from multi_agent_mcp.wiring import Services

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.dialog import Asked
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.domain.notification import Notification
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.doorbell.channel import Channel
    from multi_agent_mcp.features import Features
    from multi_agent_mcp.hub.relay import Relay


class LocalConsequences:
    """The local effects of another machine's writes: the repairs that the next reader would make, and doorbells. The
    methods never raise."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._moving: set[str] = set()

    def task_changed(self, task: Task) -> None:
        with suppress(Refusal):
            self.services.derived_notices.follow_up(task)
            self.services.derived_notices.end_former(task)

    def questions_changed(self) -> None:
        self.services.question_effects.look()

    def arrived(self, message: Message) -> None:
        self.services.doorbell.announce([message])

    def notified(self, notice: Notification) -> None:
        with suppress(Refusal):
            self.services.derived_notices.end_superseded(notice)
            if self.services.derived_notices.applies(notice):
                self.services.doorbell.announce_notification(notice)

    def edited(self, agent_id: str) -> None:
        self.services.contributions.tell("edits_arrived", agent_id)

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
        self.services.question_effects.look()
        return self.services.pane_looks.asked()


def relay(root: Path, session: str) -> Relay:
    """This machine's relay. Raises `InvalidArguments` for a session that is not shared."""
    from multi_agent_mcp.hub.relay import Relay, RelayAuthority
    from multi_agent_mcp.hub.sharing import Sharing

    sharing = Sharing(root / session_name(session))
    authority = RelayAuthority(sharing.membership.machine)
    services = open_session(root, session, authority=authority)
    return Relay(services.workspace, sharing.share, sharing.membership, authority, LocalConsequences(services))


def _authority(path: Path) -> Authority:
    """The authority of a session: the relay if the session is shared, else this machine's locks. Servers and commands
    ask the relay, so they import no client of the hub."""
    if not (path / ".share" / "machine.json").exists():
        return ALONE
    from multi_agent_mcp.hub.share_directory import relay_client_of

    return relay_client_of(path) or ALONE


def open_session(
    root: Path,
    session: str | None,
    *,
    language: str | None = None,
    clock: Callable[[], datetime] = times.now,
    notifier: Channel | None = None,
    authority: Authority | None = None,
    in_any_case: bool = False,
) -> Services:
    """Opens an existing session; None means the only one below the root. Raises `UntrustedSession`, `InvalidId`,
    `NoSuchSession` if `init` was never run, and as `read_settings`, unless it is to be opened `in_any_case`: with what
    can be read of session.yaml, and the refusal among what is wrong (`Session.wrong_features`)."""
    if read_environment().check_locks:
        ORDER_CHECK.abort_on_violations()
    require_entered(root)
    if session is None:
        require_root_entered(root)
    require_own(root)
    name = session_name(find_session(session, root))
    require_entered(root, root / name)
    require_own(root, root / "hosts", root / name)
    workspace = Workspace(root, name, authority or _authority(root / name))
    is_left = in_any_case and is_without_settings(workspace.path)
    if not is_left and name not in session_names(root):  # by its exact name, even on file systems that ignore case
        raise NoSuchSession(
            "no_settings" if is_without_settings(workspace.path) else None, session=name, root=root.name
        )
    upgrade(workspace)
    unread: list[Refusal] = []
    try:
        settings = read_settings(workspace.settings_path, language)
    except (InvalidArguments, NoSuchSession) as refusal:
        settings, unread = readable_settings(workspace.settings_path, locale_language()), [refusal]
        if not in_any_case:
            refusal.language = settings.language
            raise
    features, wrong = chosen(settings.features, settings.switched)

    def with_features(features: Features) -> Services:
        texts = Texts(settings.language, texts_of(features, settings.language)) | catalogue(settings.language)
        return Services(Session(workspace, settings, texts, clock, features, (*unread, *wrong)), notifier)

    services = with_features(features)
    if "proof" not in features and services.approvals.keep_proof():  # nobody but a person switches it off
        rest = {name: value for name, value in settings.features.items() if name != "proof"}
        return with_features(chosen(rest, settings.switched)[0])
    return services


def require_features(services: Services, wanted: Any) -> None:
    """Raises `InvalidArguments` if something is wrong with these `features:`, or if a feature is to be off of which
    something is open."""
    features = require_sound(wanted)
    for feature, ids in services.contributions.still_open(features).items():
        raise InvalidArguments("feature_in_use", name=feature, ids=", ".join(ids))
