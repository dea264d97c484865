"""Decides which process rings an agent, and when, and records what became of it (docs/protocol.md, When to ring).

The recipient's own server holds the lock `serving-{agent}-{purpose}` for as long as it lives and rings its own pane,
also for files that were written by a person. A sender that finds these locks free rings itself. A waiter in the host
wakes the agent without pressing a key. All of them decide under the lock `doorbell-{agent}`, from the delivery log,
and record the outcome there, so that an item is announced once. An item is a message or a notification.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from multi_agent_mcp.domain.agent import PURPOSES, Agent, owners, superiors
from multi_agent_mcp.domain.delivery import (
    NAMED,
    About,
    Delivery,
    DoorbellItem,
    Due,
    FirstPrompt,
    Item,
    Pauses,
    Ring,
    UnreadItem,
    UnreadNotification,
    due,
    item_ids_of,
)
from multi_agent_mcp.domain.entity import EPOCH, entity_id
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.notification import ASKED, Notification
from multi_agent_mcp.domain.times import format_time, is_recent, parse_time
from multi_agent_mcp.doorbell.channel import HOOK, LINE_GONE, Channel, about, doorbell_line
from multi_agent_mcp.errors import ConversationNotFound, InvalidId, Refusal, TmuxTimeout
from multi_agent_mcp.session import Service, Session
from multi_agent_mcp.store.locks import serving_lock, waiter_lock
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.files import storage_errors

if TYPE_CHECKING:
    from filelock import FileLock

    from multi_agent_mcp.domain.dialog import Asked
    from multi_agent_mcp.domain.message import Conversation


@dataclass(frozen=True)
class RingLog:
    """The delivery logs of one session's agents. A ring that was left to a waiter counts as pending for the time
    `recent`. Errors are `StorageError`."""

    workspace: Workspace
    clock: Callable[[], datetime]
    recent: timedelta

    def last(self, agent_id: str, counts: Callable[[Mapping[str, Any]], bool]) -> Ring | None:
        """The newest ring that reached the agent and for whose entry `counts` is true."""
        entries = filter(counts, self.workspace.delivery_log(agent_id).rings())
        rings = (Ring.of(entry) for entry in entries if entry.get("state") in ("rung", "submitted"))
        return next(filter(None, rings), None)

    def record(self, agent: Agent, decision: Due[DoorbellItem], delivery: Delivery, began: datetime) -> None:
        """Adds the outcome of an attempt that started at `began`, unless the log already says the same."""
        log = self.workspace.delivery_log(agent.id)
        about = [item.id for item in decision.items[:NAMED]]
        if delivery.state == "stored":
            if unrecorded := log.without_deferral(about, delivery.reason):
                self.defer(agent.id, unrecorded, delivery.reason)
            return
        if delivery.reason == HOOK and self._is_left_to_waiter(agent.id, about):
            return
        facts = {"pane": agent.pane_id, "attempt": decision.attempt, **_until(decision.items)}
        log.add("rung", began, about, reason=delivery.reason, **facts)
        if delivery.state == "submitted":
            entered = began + delivery.entered_after if delivery.entered_after else self.clock()
            log.add("submitted", entered, about, **facts)

    def defer(self, agent_id: str, about: Collection[str], reason: str | None) -> None:
        """Adds that nobody was rung about these items, and the reason."""
        self.workspace.delivery_log(agent_id).add("deferred", self.clock(), about, reason=reason)

    def found_silent(self, agent_id: str, since: datetime) -> bool:
        """Whether the newest entry says that the agent's tmux did not answer, not before `since`: who has waited for
        the doorbell meanwhile need not wait for tmux, too."""
        newest = next(self.workspace.delivery_log(agent_id).newest_first(), {})
        at = parse_time(newest.get("at"))
        return newest.get("reason") == TmuxTimeout.code and at is not None and at >= since

    def announced_by_waiter(self, agent_id: str, item: UnreadItem) -> bool:
        """Whether a waiter has announced an item that was just stored, if the agent ever had one. Entries from before
        it was made are not read: there is one for each message to an agent that nobody rings. Another machine's clock
        may be ahead of ours."""
        if not any(self.workspace.locks.was_taken(waiter_lock(agent_id, purpose)) for purpose in PURPOSES):
            return False
        since = item.created_at if item.created_at <= self.clock() else EPOCH
        entries = self.workspace.delivery_log(agent_id).newest_first()
        later = takewhile(lambda entry: (parse_time(entry.get("at")) or since) >= since, entries)
        rings = (Ring.of(entry) for entry in later if entry.get("reason") == HOOK and entry.get("state") == "rung")
        return any(ring.announced(item) for ring in rings if ring is not None)

    def _is_left_to_waiter(self, agent_id: str, about: Collection[str]) -> bool:
        """Whether the newest entry already says that a waiter announces all of these items."""
        newest = next(self.workspace.delivery_log(agent_id).rings(), {})
        ring = Ring.of(newest)
        recent = ring is not None and is_recent(ring.at, self.clock(), self.recent)
        return recent and newest.get("reason") == HOOK and set(about) <= set(item_ids_of(newest))


def _until(items: Sequence[UnreadItem]) -> dict[str, str]:
    """For an entry about more items than it names, the time of the newest of them; see `Ring`."""
    return {"until": format_time(max(item.created_at for item in items))} if len(items) > NAMED else {}


BROADCAST_THREADS = 8
PROBE_SECONDS = 0.02  # longer than a sender takes to probe the serving lock
THREAD = "codex_thread_id"
KEYS = "tmux"
"""The channel that types into panes."""
OUTSTANDING = "doorbell_outstanding"
"""The reason for which nobody is rung while an earlier ring was not heard yet."""
CHAT_BEGINS_WITHIN = timedelta(seconds=30)
"""How long a task session is not rung about a conversation while a window for a chat session is being opened."""
PERMANENT = frozenset({"no_pane", "no_desktop", "not_human", "no_tmux", "no_doorbell"})
"""Reasons that no waiting resolves, only a change of the agent's record in `agents.json`."""

TAKEN_AWAY = frozenset({"pane_gone", "pane_changed", "tmux_gone", "tmux_restarted"})
"""Reasons that say that the pane is not the one any more in which the agent was."""


class NotificationSource(Protocol):
    """The unread notifications of agents, as the doorbell needs them."""

    def repair(self, agent_id: str) -> None:
        """Writes notifications that a killed process did not write, and marks obsolete ones read. Never raises."""

    def waiting(self, agent_id: str) -> Sequence[Notification]:
        """The unread notifications of an agent that still apply, for sessions of either purpose. Writes nothing."""
        ...

    def ringing(self, agent_id: str) -> Sequence[Notification]:
        """Those of `waiting` that ring the agent now. Writes nothing."""
        ...

    def is_paused(self, agent_id: str) -> bool:
        """Whether the agent is paused. Writes nothing."""
        ...

    def due_after(self) -> timedelta | None:
        """After what time a repair has something to do although no file changes: a deadline. None if never."""
        ...


class Hold(Protocol):
    """A reason to hold back the rings for an agent, which no notification could make work: a usage limit of its host.
    It never raises."""

    reason: ClassVar[str]
    """Why nobody is rung, as delivery logs say it."""

    @property
    def has_ring_to_come(self) -> bool:
        """Whether the agent is rung at its end, even if nothing is unread."""
        ...

    @property
    def lasts(self) -> bool:
        """Whether nothing may be rung now."""
        ...

    def decides(self, unread: Callable[[], Sequence[DoorbellItem]]) -> bool:
        """Whether it still decides about rings, with these unread items."""
        ...

    def take_due(
        self, agent: Agent, purpose: str | None, unread: Callable[[], Sequence[DoorbellItem]], pauses: Pauses
    ) -> Due[DoorbellItem]:
        """Returns what is due now, and when something is due next. What is over by now is ended."""
        ...

    def rung(self) -> None:
        """The ring at its end was made."""


class Doorbell(Service):
    """Rings the agents of one session through the channels of `notifier`, and records it in their delivery logs."""

    def __init__(
        self,
        session: Session,
        notifier: Channel,
    ) -> None:
        super().__init__(session)
        self.notifier = notifier
        self.pauses = Pauses(
            timedelta(seconds=session.settings.limits.doorbell_pause_seconds),
            timedelta(seconds=session.settings.limits.doorbell_pause_max_seconds),
        )
        self.log = RingLog(session.workspace, session.clock, self.pauses.shortest)

    @cached_property
    def notifications(self) -> NotificationSource:
        """Made when it is first needed: a sender that rings nobody does not wait for its module."""
        found: NotificationSource = self.contributions.service("notifications")
        return found

    # Who rings? A living server holds `serving-{agent}-{purpose}`, a kernel lock that ends with its process, however
    # that ends. A sender finds it held and leaves the ringing to the server, which sees the file anyway; it finds it
    # free and rings itself. A server that dies between the sender's look and its own ringing rings nobody, and its
    # successor does so when it starts, from the files. A server that starts between look and ringing meets the sender
    # under `doorbell-{agent}`, where the second of the two finds the first one's line in the delivery log and is
    # silent. So an item is announced at least once by whoever lives, and not twice by two who do not know of each
    # other.
    def announce(self, messages: Sequence[Message]) -> dict[str, Delivery]:
        """Rings for messages that were just stored, unless the recipient's own server does. Never raises."""
        items = {message.receiver_id: message for message in messages}
        outcomes = {agent_id: self._without_ringing(agent_id, item) for agent_id, item in items.items()}
        to_ring = {agent_id: items[agent_id] for agent_id, outcome in outcomes.items() if outcome is None}
        if len(to_ring) < 2:
            rung = list(map(self._rung_about, to_ring, to_ring.values()))
        else:
            from concurrent.futures import ThreadPoolExecutor  # here: most messages have one receiver

            with ThreadPoolExecutor(min(len(to_ring), BROADCAST_THREADS)) as pool:
                rung = list(pool.map(self._rung_about, to_ring, to_ring.values()))
        return {agent_id: outcome or rung.pop(0) for agent_id, outcome in outcomes.items()}

    def announce_notification(self, notice: Notification) -> None:
        """Rings for a notification that was just stored, unless the recipient's own server does. Never raises."""
        agent_id, item = notice.target_agent_id, UnreadNotification.of(notice)
        if notice.action == ASKED and self._ring_phone(agent_id, item):
            return
        if not notice.rings or (notice.waits_for_resumption and self.notifications.is_paused(agent_id)):
            return
        if self._without_ringing(agent_id, item) is None:
            delivery = self._rung_about(agent_id, item)
            if delivery.reason == OUTSTANDING:  # a sender is told the reason, but here nobody asks
                with suppress(Refusal):
                    self.log.defer(agent_id, [item.id], OUTSTANDING)

    def announce_questions(self, agent_id: str) -> None:
        """Rings a person's phone about unread questions that nobody has rung it about, as when their asker was killed.
        Never raises."""
        with suppress(Refusal):
            for notice in self.notifications.waiting(agent_id):
                if notice.action == ASKED:
                    self._ring_phone(agent_id, UnreadNotification.of(notice))

    def announce_dialog(self, asked: Asked) -> None:
        """Rings the nearest person above an agent, once, about a dialog in the agent's pane. Never raises."""
        from multi_agent_mcp.domain.stuck import DIALOG, LOGIN  # here: who only sends mail sees no dialogs

        with suppress(Refusal):
            person = self._person_above(asked.agent_id)
            if person is not None:
                line = self.texts("doorbell.dialog", agent_id=asked.agent_id)
                what = About(LOGIN if asked.topic == LOGIN else DIALOG, asked.agent_id)
                self._ring_once(person, asked.ring_id, line, what, self.notifier.ring)

    def _person_above(self, agent_id: str) -> Agent | None:
        """The nearest superior on this machine that is a person, else an Owner that is; None without one."""
        agents = self.workspace.registry.all()
        with suppress(Refusal):  # an unknown agent, or a broken hierarchy
            found = [*superiors(agent_id, agents), *owners(agents)]
            return next((agent for agent in found if self._is_person(agent)), None)
        return None

    def _is_person(self, agent: Agent) -> bool:
        """Whether the agent is a person on this machine; an Owner of type `ai` with a server is a program."""
        if agent.removed or not agent.may_be_human or not self.workspace.is_here(agent):
            return False
        return agent.type == "human" or not self.workspace.served_purposes(agent.id)

    def _ring_phone(self, agent_id: str, item: UnreadNotification) -> bool:
        """Rings a person's phone about a question at once, whatever else is outstanding, as somebody waits. Returns
        whether it rang, now or before, and there is no pane that a line is to be typed into. Never raises."""
        try:
            agent = self.workspace.registry.get(agent_id)
            if not self._is_person(agent):
                return False
            rang = self._ring_once(agent, item.id, doorbell_line(self.texts, [item]), about([item]))
            return rang and agent.pane_id is None
        except Refusal:
            return False

    def _ring_once(
        self, agent: Agent, item_id: str, line: str, what: About, otherwise: Callable[..., Delivery] | None = None
    ) -> bool:
        """Rings a person's phone, or, without one, `otherwise`, unless this item was rung about before; returns whether
        it has been. The entry counts as one about all that the ring before announced, so that none of it is announced
        again."""
        with self.workspace.locks.held(f"doorbell-{agent.id}"):
            if any(item_id in item_ids_of(entry) for entry in self.workspace.delivery_log(agent.id).rings()):
                return True
            began, last = self.clock(), self.log.last(agent.id, lambda entry: entry.get("pane") is None)
            delivery = self.notifier.ring_at_once(agent, line, what)
            if delivery is None and otherwise is not None:
                delivery = otherwise(agent, line, what)
            if delivery is None or delivery.state == "stored":
                return False
            items = [item_id, *(last.item_ids if last is not None else ())][:NAMED]
            attempt = last.attempt if last is not None else 1
            log = self.workspace.delivery_log(agent.id)
            log.add("rung", began, items, reason=delivery.reason, pane=None, attempt=attempt)
            return True

    def serve(self, agent_id: str, purpose: str) -> FileLock | None:
        """Takes the lock by which the agent's server of this purpose does the ringing; None when it is already held."""
        from filelock import Timeout  # here: commands that send do not serve

        lock = self.workspace.locks.lock(serving_lock(agent_id, purpose))
        with storage_errors(self.workspace.locks.path):
            try:
                lock.acquire(timeout=PROBE_SECONDS)
            except Timeout:
                return None
        return lock

    def ring(
        self,
        agent_id: str,
        purpose: str | None = None,
        place: Mapping[str, Any] | None = None,
        stored: DoorbellItem | None = None,
    ) -> tuple[Delivery | None, Due[DoorbellItem]]:
        """Rings if anything unread is due. Returns the outcome (None: nothing was due) and what is due next.

        A server passes its purpose and its own pane: while an agent's task and chat sessions both live, each rings in
        its own pane, for its own items. A sender passes the item it has `stored` and rings in the registered pane, for
        items that a task session reads.

        Mail and notifications are read only when a ring may be due and, by a sender, when the agent can be rung:
        a thousand senders do not read a thousand messages each.
        """
        agent = self._agent(agent_id, purpose, place)
        if agent.pane_id is None and stored is None and (reason := self.notifier.check(agent)) in PERMANENT:
            return Delivery("stored", reason), Due()
        asked = self.clock()
        with self.workspace.locks.held(f"doorbell-{agent_id}"):
            if stored is not None and self.log.found_silent(agent_id, asked):
                self.log.defer(agent_id, [stored.id], TmuxTimeout.code)
                return Delivery("stored", TmuxTimeout.code), Due((stored,))
            if (hold := self._hold(agent_id, purpose)) is not None:
                return self._ring_held(agent, purpose, hold)
            last = self.log.last(agent_id, lambda entry: entry.get("pane") == agent.pane_id)
            if (resting := self._resting(agent_id, last)) is not None:
                return None, Due(after=resting)
            if stored is not None and self.notifier.check(agent) is not None:
                return self._ring_about(agent, Due((stored,)))
            delivery, decision = self._ring_if_due(agent, purpose, [last])
            if delivery is None and not decision.after and not self.workspace.unread_count(agent_id):
                self.notifier.clear(agent)
            return delivery, decision

    def wake(self, agent_id: str, purpose: str, announced: Ring | None) -> tuple[str | None, Due[DoorbellItem]]:
        """As `ring`, for a waiter in the agent's host, which wakes the agent itself: returns the line to wake it with,
        or None when nothing is due. `announced` is the last announcement by the host's hooks. Rings in the log that
        were left to a waiter do not count: they have not happened yet."""
        with self.workspace.locks.held(f"doorbell-{agent_id}"):
            agent = self._agent(agent_id)
            if (hold := self._hold(agent_id, purpose)) is not None:
                decision = self._take_due(hold, agent, purpose)
            else:
                elsewhere = self.log.last(agent_id, lambda entry: entry.get("reason") != HOOK)
                decision = self._decide(agent_id, purpose, [announced, elsewhere])
            if not decision.items:
                return None, decision
            self.log.record(agent, decision, Delivery("rung", HOOK), self.clock())
            if hold is not None:
                hold.rung()
            return doorbell_line(self.texts, decision.items), decision

    def has_ring_to_come(self, agent_id: str) -> bool:
        """Whether the agent is rung at the end of what holds its rings."""
        hold = self._held_by(agent_id)
        return hold is not None and hold.has_ring_to_come

    def _held_by(self, agent_id: str) -> Hold | None:
        found: Hold | None = self.contributions.hold(agent_id)
        return found

    def _hold(self, agent_id: str, purpose: str | None) -> Hold | None:
        """What decides about rings for an agent in place of what is unread; None if nothing does."""
        hold = self._held_by(agent_id)
        return hold if hold is not None and hold.decides(partial(self._unread_for, agent_id, purpose)) else None

    def _ring_held(self, agent: Agent, purpose: str | None, hold: Hold) -> tuple[Delivery | None, Due[DoorbellItem]]:
        """As `ring`, for an agent whose rings are held: nothing until the end, then one ring."""
        decision = self._take_due(hold, agent, purpose)
        if not decision.items:
            return None, decision
        delivery, decision = self._ring_about(agent, decision)
        if delivery.state != "stored" and delivery.reason != HOOK:  # a waiter has it still to do
            hold.rung()
        return delivery, decision

    def _take_due(self, hold: Hold, agent: Agent, purpose: str | None) -> Due[DoorbellItem]:
        return hold.take_due(agent, purpose, partial(self._unread_for, agent.id, purpose), self.pauses)

    def ring_again(self, agent_id: str) -> tuple[Delivery | None, Due[DoorbellItem]]:
        """As `ring`, for a person without a server, but only about items that no ring has announced yet: a person who
        is away need not be reminded all night."""
        place = self._agent(agent_id).pane_id
        last = self.log.last(agent_id, lambda entry: entry.get("pane") == place)
        if all(last is not None and last.announced(item) for item in self._unread(agent_id)):
            return None, Due()
        return self.ring(agent_id)

    def version(self, agent_id: str) -> tuple[int, frozenset[str]]:
        """A value that changes whenever the agent's unread mail or notifications change."""
        mailbox = self.workspace.mailbox(agent_id).hot
        mailbox.entries()
        return mailbox.version, frozenset(notice.id for notice in self.notifications.waiting(agent_id))

    def finish(
        self, agent_id: str, purpose: str | None = None, place: Mapping[str, Any] | None = None
    ) -> Delivery | None:
        """Enters a line that an earlier ring left in the composer, also when its mail was read meanwhile: the line
        would be merged with the human's next words. `stored`, with the reason, means: try again later; None: there is
        no such line (any more). Raises as `ring`."""
        agent = self._agent(agent_id, purpose, place)
        with self.workspace.locks.held(f"doorbell-{agent_id}"):
            began = self.clock()
            last = self.log.last(agent_id, lambda entry: entry.get("pane") == agent.pane_id)
            delivery = self.notifier.finish(agent)
            if delivery.reason == LINE_GONE:
                return None
            if unread := self._unread_for(agent_id, purpose):
                self.log.record(agent, Due(tuple(unread), last.attempt if last else 1), delivery, began)
            return delivery

    def meant_for(self, agent_id: str, purpose: str | None, items: Sequence[Item]) -> list[Item]:
        """Those items that are to be announced to the session of this purpose: not those that the agent's other living
        session announces, or that only the other purpose can read. With the purpose None (a sender), those for the
        session that would begin in the registered pane."""
        mine = purpose or "task"
        living = {mine} if purpose is None else {mine, *self._other_served(agent_id, mine)}
        left = self._left_to_chat(agent_id, purpose, items)
        return [item for item in items if item.id not in left and mine in self._rung_in(agent_id, item, living)]

    def _left_to_chat(self, agent_id: str, purpose: str | None, items: Sequence[Item]) -> dict[str, timedelta]:
        """The items that a task session is not rung about, as a chat session is about to begin, by id; for how long."""
        if purpose != "task" or self._other_served(agent_id, purpose):
            return {}
        begin_chats = (item for item in items if _begins_chat(item) and self._ended_by(item) is None)
        ages = {item.id: max(self.clock() - item.created_at, timedelta(0)) for item in begin_chats}
        left = {item_id: CHAT_BEGINS_WITHIN - age for item_id, age in ages.items() if age < CHAT_BEGINS_WITHIN}
        return left if left and self.contributions.ask("opens_chat", agent_id) else {}

    def _rung_in(self, agent_id: str, item: UnreadItem, living: Collection[str]) -> Collection[str]:
        """The purposes of the living sessions that are rung about an item: the first that can read it. The end of a
        conversation concerns the chat session, and the delegator's task session, which waits for it; a person has no
        sessions to tell apart."""
        talk = self._ended_by(item)
        if talk is None or self.workspace.registry.get(agent_id).may_be_human:
            return [purpose for purpose in item.purposes if purpose in living][:1]
        awaits = talk.delegation_id is not None and talk.initiator_id == agent_id
        return {"chat", "task"}.intersection(living) if awaits else {"chat"}.intersection(living)

    def _ended_by(self, item: UnreadItem) -> Conversation | None:
        """The conversation that has ended, if this is the message that says so."""
        if not isinstance(item, Message) or not item.claims_end:
            return None
        try:
            talk = self.workspace.conversations.get(entity_id("cnv", item.metadata["conversation_id"]))
        except (InvalidId, ConversationNotFound):
            return None
        return talk if talk.status == "ended" else None

    def _nobody_to_ring(self, agent_id: str, item: UnreadItem, living: Collection[str]) -> str | None:
        """The reason when no session that is rung about the item lives; it is rung about when one begins."""
        if self._rung_in(agent_id, item, living):
            return None
        has_ended = self._ended_by(item) is not None
        return "no_chat_session" if has_ended or "chat" in item.purposes else "no_task_session"

    def repeat(self, agent_id: str, prompt: FirstPrompt, place: Mapping[str, Any]) -> Delivery | None:
        """Repeats, in the session's own pane, a prompt that was not heard; None if that was done before, or if the
        agent has no such channel."""
        (purpose,) = prompt.purposes
        agent = self._agent(agent_id, purpose, place)
        with self.workspace.locks.held(f"doorbell-{agent_id}"):
            steps = self.workspace.delivery_log(agent_id).steps().get(prompt.id, ())
            is_held = self._hold(agent_id, purpose) is not None
            if (
                is_held
                or any(step.get("state") != "deferred" for step in steps)
                or KEYS not in self.notifier.names(agent)
            ):
                return None
            only_keys = replace(agent, extra={**agent.extra, "ladder": [KEYS]})  # no waiter knows of prompts
            return self._ring_about(only_keys, Due((prompt,)))[0]

    def _decide(self, agent_id: str, purpose: str | None, rings: Iterable[Ring | None]) -> Due[DoorbellItem]:
        unread = self._unread(agent_id)
        decision = due(self.meant_for(agent_id, purpose, unread), rings, self.clock(), self.pauses)
        left = self._left_to_chat(agent_id, purpose, unread).values()
        if decision.items or not left:
            return decision
        return replace(decision, after=min(filter(None, (decision.after, *left))))

    def _ring_if_due(
        self, agent: Agent, purpose: str | None, rings: Iterable[Ring | None]
    ) -> tuple[Delivery | None, Due[DoorbellItem]]:
        decision = self._decide(agent.id, purpose, rings)
        return self._ring_about(agent, decision) if decision.items else (None, decision)

    def _ring_about(self, agent: Agent, decision: Due[DoorbellItem]) -> tuple[Delivery, Due[DoorbellItem]]:
        began = self.clock()
        delivery = self.notifier.ring(agent, doorbell_line(self.texts, decision.items), about(decision.items))
        self.log.record(agent, decision, delivery, began)
        return delivery, decision

    def _agent(self, agent_id: str, purpose: str | None = None, place: Mapping[str, Any] | None = None) -> Agent:
        """The agent's record with the addresses of its session of this purpose: its own pane, waiter and Codex thread.
        The registry knows the thread only while the agent has one session."""
        agent = self.workspace.registry.get(agent_id)
        if purpose is None:
            return agent
        pane, extra = dict(place or {}), {**agent.extra, "purpose": purpose}
        if THREAD in pane or self._other_served(agent_id, purpose):
            extra[THREAD] = pane.pop(THREAD, None)
        return replace(agent, **pane, extra=extra)

    def _other_served(self, agent_id: str, purpose: str) -> set[str]:
        """The other purpose, in a set, if a server of the agent with that purpose lives."""
        return self.workspace.served_purposes(agent_id) - {purpose}

    def _unread(self, agent_id: str) -> list[DoorbellItem]:
        mailbox, notices = self.workspace.mailbox(agent_id), self.workspace.notices(agent_id)
        source = self.notifications  # before the locks, as it may have to be made
        with self.workspace.locks.held(mailbox.lock):  # never in the middle of a reading, with half of it marked read
            messages = [message for _, message in mailbox.unread()]
        with self.workspace.locks.held(notices.lock):
            ringing = source.ringing(agent_id)
        return [*messages, *map(UnreadNotification.of, ringing)]

    def _unread_for(self, agent_id: str, purpose: str | None) -> list[DoorbellItem]:
        return self.meant_for(agent_id, purpose, self._unread(agent_id))

    def _resting(self, agent_id: str, last: Ring | None) -> timedelta | None:
        """How long not to ring yet, because an item announced by the last ring is certainly unread; see `due`."""
        if last is None or not (remaining := last.rests_for(self.clock(), self.pauses)):
            return None
        inboxes = (self.workspace.mailbox(agent_id), self.workspace.notices(agent_id))
        return remaining if any(inbox.any_unread(last.item_ids) for inbox in inboxes) else None

    def _without_ringing(self, agent_id: str, item: DoorbellItem) -> Delivery | None:
        """The delivery of an item that was just stored, if this process rings nobody about it; None if it may ring."""
        try:
            agent = self.workspace.registry.get(agent_id)
            if not self.workspace.is_here(agent):
                return Delivery("stored", "other_machine")  # the agent's home machine rings
            if (hold := self._held_by(agent_id)) is not None and hold.lasts:
                return self._deferred(agent_id, item, hold.reason)
            served = self.workspace.served_purposes(agent_id)
            reason = self._nobody_to_ring(agent_id, item, served or {"task"})
            if reason is None and served:
                return Delivery("stored", "recipient_server_rings")
            if reason is None and agent.pane_id is None:  # a pane is checked under the doorbell's lock
                reason = self.notifier.check(agent)
            return None if reason is None else self._deferred(agent_id, item, reason)
        except Refusal as refusal:
            return Delivery("stored", refusal.code)

    def _deferred(self, agent_id: str, item: DoorbellItem, reason: str) -> Delivery:
        """Notes why nobody was rung about an item, unless a waiter was faster, woke its host with it, and has ended: it
        records this before, so the lock for ringing is not needed here."""
        if self.log.announced_by_waiter(agent_id, item):
            return Delivery("rung", HOOK)
        self.log.defer(agent_id, [item.id], reason)
        return Delivery("stored", reason)

    def _rung_about(self, agent_id: str, item: DoorbellItem) -> Delivery:
        try:
            delivery, decision = self.ring(agent_id, stored=item)
        except Refusal as refusal:
            return Delivery("stored", refusal.code)
        announced = delivery is not None and any(about.id == item.id for about in decision.items)
        return delivery if delivery and announced else Delivery("stored", OUTSTANDING)


def _begins_chat(item: UnreadItem) -> bool:
    """Whether a chat session is rung about the item rather than a task session, which can read it, too."""
    return tuple(item.purposes) == ("chat", "task")
