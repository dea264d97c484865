"""What a server does at every call beside running its tool: it finishes what killed processes left, sees to what the
features name, ends what has run out, and looks for notifications (docs/protocol.md, Order of checks)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.session import Service
from multi_agent_mcp.system.file_status import are_unchanged, is_settled, modified_at

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.notification import Notification
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.notifications.notifications import Notifications, Pending
    from multi_agent_mcp.services.operations import Operations
    from multi_agent_mcp.services.questions import QuestionEffects
    from multi_agent_mcp.store.directory import Directory


@dataclass(frozen=True, kw_only=True)
class Stillness:
    """The finding that nothing is to be done for an agent, what is `pending` for it, and what both depend on: the
    modification times `seen`, the team as it was, and the time `until`, before which no deadline passes. `works`: an
    execution of the agent runs. There are no intents, and no files that features see to, while `empty` are the
    modification times where they are; None: there may be. `pause`: the pause that the agent has read and that lasts.

    No `Memory` keeps it: which directories it depends on is found while it is made, and a part of it, `empty`, may be
    over before the rest."""

    pending: Pending
    seen: Mapping[str, int]
    empty: Mapping[str, int] | None
    agents: Mapping[str, Agent]
    until: datetime | None
    works: bool
    pause: Notification | None = None


@dataclass(eq=False)
class Upkeep(Service):
    """The upkeep of one session's calls. While nothing changes, it costs a stat(2) for each directory that matters."""

    operations: Operations
    notifications: Notifications
    derived: DerivedNotices
    questions: QuestionEffects
    _known: dict[tuple[str, str], Stillness] = field(default_factory=dict, init=False)
    _looked: set[str] = field(default_factory=set, init=False)
    """The agents whose directories were looked at since their last answer."""

    def still(self, agent_id: str, purpose: str) -> Stillness | None:
        """What is known of an agent, and pending for a session of this purpose; None if it has to be looked at."""
        known = self._known.get((agent_id, purpose))
        if known is None or known.agents is not self.workspace.registry.all():
            return None
        if known.until is not None and known.until <= self.clock():
            return None
        return known if are_unchanged(known.seen) else None

    def begin(self, agent_id: str, purpose: str) -> Stillness | None:
        """Does what comes before a call's tool, but for the notifications. Returns as `still`; never raises."""
        known = self.still(agent_id, purpose)
        if known is not None and known.empty is not None and are_unchanged(known.empty):
            return known
        self.operations.finish()
        for path, where in self.contributions.upkeep(agent_id):
            if modified_at(path):
                self.contributions.call(where, agent_id)
        known = self.still(agent_id, purpose)  # what was finished may have written a notification
        if known is not None:
            self._known[agent_id, purpose] = known = replace(known, empty=self._empty(agent_id))
        return known

    # Each notification is judged by what is looked at after it was found: so its directory is the first one of a look.
    # What is to be written, and read again afterwards, is done between two looks.
    def refresh(self, agent_id: str, purpose: str) -> Pending:
        """See `Notifications.refresh`. Remembers what is pending while nothing changes."""
        self._looked.add(agent_id)
        with self.workspace.files.looks.once():
            self.workspace.notices(agent_id).hot.looked()
            may_expire = self._may_expire()
            is_followed = self.questions.is_as_seen()
            if not may_expire and is_followed and self.derived.is_repaired(agent_id):
                return self._judged(agent_id, purpose)
        if may_expire:
            self.contributions.end_expired()
        if not is_followed:
            self.questions.follow_all()
        has_changed = self.derived.ensure_all(agent_id)
        with self.workspace.files.looks.once():
            if has_changed:
                self.derived.end(agent_id)
            return self._judged(agent_id, purpose, may_expire=self._may_expire())

    def _may_expire(self) -> bool:
        """Whether there is something that may end although no file changes."""
        return any(place.open() for place, _ in self.contributions.expiring)

    def _judged(self, agent_id: str, purpose: str, *, may_expire: bool = False) -> Pending:
        pending, places = self.notifications.pending(agent_id, purpose)
        self._known.pop((agent_id, purpose), None)
        with suppress(Refusal, OSError):
            is_known = places is not None and not may_expire
            if is_known and (found := self._stillness(agent_id, pending, places or ())) is not None:
                self._known[agent_id, purpose] = found
        return pending

    def unread_mail(self, agent_id: str) -> int:
        """The number of unread messages. Checks the mailbox's directory, and files only if they changed."""
        return len(self.workspace.mailbox(agent_id).unread())

    def newly_quarantined(self, agent_id: str) -> int:
        """The number of the agent's files quarantined since its last answer. Only a round that looked at its other
        directories can have found one there, but each call counts the mail."""
        workspace = self.workspace
        places: list[Directory[Any]] = [workspace.mailbox(agent_id).hot]
        if agent_id in self._looked:
            self._looked.discard(agent_id)
            places += (workspace.notices(agent_id).hot, workspace.tasks.directory(agent_id))
            places.append(workspace.delegations.directory(agent_id))
        return sum(place.quarantine.take_news() for place in places)

    # A round is trusted until something changes that it has looked at. So of each directory it takes the modification
    # time for which the index is good (`Directory.good_for`: none if the last change is too recent to tell a further
    # one from it), and only if the index is still the one that was judged: another thread may have found a change
    # meanwhile, which nobody has judged yet. Where a process may die without changing a directory, nothing is still as
    # long as there is a file: an intent that somebody works on, a notification that is handed out, something that may
    # expire.
    def _stillness(self, agent_id: str, pending: Pending, places: Iterable[Directory[Any]]) -> Stillness | None:
        workspace, agents = self.workspace, self.workspace.registry.all()
        derived, questions = self.derived.judged(agent_id, agents), self.questions.judged(agents)
        inbox, executions = workspace.notices(agent_id), workspace.executions.directory(agent_id)
        expiring = [place.home for place, _ in self.contributions.expiring]
        here: list[Directory[Any]] = [inbox.hot, executions, *expiring, *places]
        versions = {directory: directory.looked() for directory in here}
        if derived is None or questions is None:
            return None
        if inbox.is_handed_out():
            return None
        works = bool(workspace.executions.open(agent_id))
        versions |= {**derived, **questions}
        good_for = {str(directory.path): directory.good_for(version) for directory, version in versions.items()}
        seen = {path: mtime for path, mtime in good_for.items() if mtime is not None}
        if len(seen) < len(good_for):
            return None
        pause, deadline = self.derived.pause_of(agent_id), self.questions.next_deadline()
        return Stillness(
            pending=pending,
            seen=seen,
            empty=self._empty(agent_id),
            agents=agents,
            until=deadline,
            works=works,
            pause=pause,
        )

    def _empty(self, agent_id: str) -> dict[str, int] | None:
        """The modification times of the intents' directory and of the files that features see to, if there are none
        of either and this can be relied on."""
        intents, looked_at = self.workspace.intents.path, time.time_ns()
        kept = [path for path, _ in self.contributions.upkeep(agent_id)]
        with suppress(Refusal, OSError):
            seen = {path: modified_at(path) for path in (str(intents), *kept)}
            is_known = all(is_settled(mtime, looked_at) for mtime in seen.values())
            if is_known and not any(seen[path] for path in kept) and not self.workspace.files.names(intents):
                return seen
        return None
