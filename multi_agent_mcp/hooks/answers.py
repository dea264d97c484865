"""Answers a host's events with JSON: interrupts before any tool of the agent, mail and notifications once each
(docs/protocol.md, Hooks).

So an interrupt reaches an agent at its next call of any tool, Bash and Edit included, not only of our own tools.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import Agent, AgentSession
from multi_agent_mcp.domain.delivery import DoorbellItem, Due, UnreadNotification
from multi_agent_mcp.domain.message import Message, reading_order
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.doorbell.channel import doorbell_line
from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.features import called
from multi_agent_mcp.hooks import first_look
from multi_agent_mcp.hooks.first_look import ToolCall, tool_call
from multi_agent_mcp.hooks.memory import FORGOTTEN, NANOSECONDS, START, ChangedMail, HookState, HostMemory, Unread, ids
from multi_agent_mcp.hosts import BEGINNINGS, host_named, tool_inputs
from multi_agent_mcp.services.notifications.notifications import Notifications, as_answer
from multi_agent_mcp.services.sessions.host_conversations import is_in_anothers_host
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.workspace import Mailbox
from multi_agent_mcp.system.process import host_of

if TYPE_CHECKING:
    from multi_agent_mcp.doorbell.ringing import Doorbell
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.sessions.session_records import HandOffs
    from multi_agent_mcp.services.turn.briefing import Briefings


logger = logging.getLogger(__name__)

LINES_MAX = 5
"""The most messages or notifications that are announced one by one; more are announced by their number."""


NEW = ("startup", "new")
"""The sources of a conversation that knows nothing yet; after any other it has forgotten something."""
RESUMED = ("resume", "fork")
COMPACTIONS = ("PreCompact", "PostCompact")


@dataclass(frozen=True)
class Event:
    """An event in the host, for which it calls `hook`. `host` is the host's name if the hook's command line gives it,
    `transcript` the file in which the host keeps the conversation, `source` what a SessionStart says that the
    conversation begins by, `is_subagents`: a subagent's, which has a conversation of its own. `facts` is all that the
    host says, `is_noted` whether the edits of its call are in the log already, `is_anothers` whether it comes from the
    host of another agent."""

    name: str
    host_session: str | None = None
    host: str | None = None
    transcript: str | None = None
    source: str | None = None
    is_subagents: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    is_noted: bool = False
    is_anothers: bool = False

    @property
    def beginnings(self) -> Sequence[str]:
        """The sources of a SessionStart whose answer the host passes to the model."""
        known = host_named(self.host)
        return BEGINNINGS if known is None else known.briefed_at

    @property
    def forgets(self) -> bool:
        """Whether the model forgets now what it knew, or is about to, without a SessionStart that says so."""
        if self.is_subagents:
            return False
        if self.name == "SessionStart":
            return self.source not in (None, *NEW)
        return self.name in COMPACTIONS and "compact" not in self.beginnings

    @property
    def is_heard(self) -> bool:
        """Whether the host passes the answer's context to the model."""
        if self.is_subagents:
            return False
        if self.name == "SessionStart":
            return (self.source or NEW[0]) in self.beginnings
        return self.name in ("PostToolUse", "UserPromptSubmit")


@dataclass(eq=False)
class Hooks(Service):
    """Answers the hooks of one session's agents. What is seldom needed is made then: a host waits for what it
    imports."""

    notifications: Notifications
    sessions: Sessions
    doorbell: Doorbell
    tool_calls: ToolCalls

    @property
    def briefings(self) -> Briefings:
        found: Briefings = self.contributions.service("briefings")
        return found

    @cached_property
    def _host_pid(self) -> int:
        """The process id of the host of this process."""
        return host_of(os.getpid())

    def answer(self, agent_id: str, purpose: str, event: Event) -> dict[str, Any] | None:
        """The JSON that the hook prints, or None if there is nothing to announce.

        Mail and notifications are announced once, and the end of a turn is prevented once for each interrupt or urgent
        message; native tools are denied until the interrupt has been read. Raises `AgentNotFound`.
        """
        agent = self.workspace.registry.get(agent_id)
        why_not = self.tool_calls.look(agent, event.name, event.facts, is_noted=event.is_noted)
        if not event.is_subagents:
            with _alone(agent):
                self.contributions.tell("heard", agent_id, event.host, event.facts)
        if (event.name in COMPACTIONS or event.source == "compact") and not event.is_subagents:
            self._derive_hand_off(agent_id, purpose)
        with self.workspace.locks.held(_lock(agent_id)):
            # before reading: later items are not missed
            look = first_look.boxes_now(str(self.workspace.path), agent_id)
            state, seen = self._state(agent_id, purpose), look["seen"][0]
            event = self._own(event, agent_id, state)
            notices, mail = self._notices(agent_id, purpose), self._mail(agent_id, state, seen)
            unread = Unread(notices, self._meant(agent_id, purpose, [item.message for item in mail]))
            before, state.host = state.host, self._seen(event, state.host)
            briefing = self._briefing(agent_id, purpose, event, state)
            answer = self._decided(event.name, unread, state) or _denied(event.name, why_not)
            answer = _with_briefing(answer, event, briefing)
            state.in_conversation(event.host_session, event.host, event.transcript)
            speaks = state.speaks(unread)
            state.remember(mail, notices, seen)
            look = first_look.dated(look, str(self.workspace.path), agent_id)
            self._write(agent_id, purpose, {**look, "speaks": speaks, **state.facts()})
        if (before.host, before.session, before.pid) != (state.host.host, state.host.session, state.host.pid):
            self._note_conversation(agent_id, purpose, state.host)
        self._note_host(agent, event)
        return answer

    # The briefing: told once per occasion, by a hook or by the server's `get_next_action`

    def needs_briefing(
        self, agent_id: str, purpose: str, since: datetime, *, first: bool, conversation: str | None
    ) -> bool:
        """Whether the next answer of `get_next_action` has to carry the briefing: on an occasion that no hook could
        use, or at the first one of a server that runs since `since`, unless a hook of the same host has told it. The
        `conversation` is the host's new one, if the server has seen it change."""
        host = self._state(agent_id, purpose).host
        if host.due or (conversation is not None and host.session != conversation):
            return True
        return first and not (host.told_at and host.is_of(self._host_pid, since))

    def briefed(self, agent_id: str, purpose: str) -> None:
        """Records that an answer carries the briefing, or that the server's first one need not. Never raises: at worst
        the agent is notified twice."""
        try:
            with self.workspace.locks.held(_lock(agent_id)):
                state = self._state(agent_id, purpose)
                if state.host.due or state.host.told_at:
                    state.host = replace(state.host, due="", told_at="")
                    self._write(agent_id, purpose, state.facts())  # without `seen`, as in `wake`
        except Refusal as refusal:
            logger.warning("it could not be recorded that %s is briefed: %s", agent_id, refusal)

    def state_path(self, agent_id: str, purpose: str) -> str:
        """The path of the file that decides `conversation`."""
        return first_look.state_path(str(self.workspace.path), agent_id, purpose)

    def conversation(self, agent_id: str, purpose: str, since: datetime) -> tuple[str | None, str | None]:
        """The host of a server that runs since `since`, and that host's own id of its conversation, as far as hooks
        have told."""
        host = self._state(agent_id, purpose).host
        return (host.host, host.session) if host.is_of(self._host_pid, since) else (None, None)

    def have_run(self, session: AgentSession) -> bool:
        """Whether the host of a session has run a hook of ours since it started that session's server."""
        path = str(self.workspace.path)
        state = first_look.read_state(path, session.agent_id, session.purpose)
        looked_at, began = state.get("looked_at"), session.created_at.timestamp() * NANOSECONDS
        is_newer = isinstance(looked_at, int) and looked_at >= began
        return is_newer or HookState.of(state).host.is_of(host_of(session.pid), session.created_at)

    def _own(self, event: Event, agent_id: str, state: HookState) -> Event:
        """The event; without its conversation, which is forgotten, if it turns out to be another agent's."""
        conversation = event.host_session
        if conversation in (None, state.host_session) or event.is_subagents:
            return event
        if not is_in_anothers_host(self.sessions, agent_id, str(conversation)):
            return event
        state.transcripts.pop(str(conversation), None)
        return replace(event, host_session=None, transcript=None, is_anothers=True)

    def _seen(self, event: Event, host: HostMemory) -> HostMemory:
        """What is known of the host with this event. A new conversation in a process whose host does not announce it
        is an occasion for the briefing."""
        if event.is_anothers:
            return host
        conversation = None if event.is_subagents else event.host_session
        seen = host.seen(event.host, conversation, self._host_pid, self.clock())
        has_changed = seen.pid == host.pid and host.session not in (None, seen.session)
        return replace(seen, due=FORGOTTEN) if has_changed and not event.beginnings else seen

    def _briefing(self, agent_id: str, purpose: str, event: Event, state: HookState) -> str | None:
        """The briefing, if it is due now or since an earlier event, and the host passes it on; records in `state`
        whether it was shown or is due."""
        begins, now = event.name == "SessionStart" and not event.forgets, format_time(self.clock())
        if event.forgets or (begins and self._has_work(agent_id, purpose, state)):
            state.host = replace(state.host, due=START if begins or event.source in RESUMED else FORGOTTEN)
        elif begins and event.is_heard:
            state.host = replace(state.host, told_at=now)
        if not (state.host.due and event.is_heard):
            return None
        told_at = now if state.host.due == START else state.host.told_at
        state.host = replace(state.host, due="", told_at=told_at, briefed=state.host.session)
        return self.briefings.of(agent_id, purpose)

    def _has_work(self, agent_id: str, purpose: str, state: HookState) -> bool:
        """Whether there is anything to go on with in a new conversation that was not briefed yet."""
        known = state.host.session is not None and state.host.briefed == state.host.session
        return not known and self.briefings.holds(agent_id, purpose).has_work

    def _derive_hand_off(self, agent_id: str, purpose: str) -> None:
        """Writes a hand-off from the files. Never raises: this must not lose an answer."""
        try:
            if purpose == "task":
                hand_offs: HandOffs = self.contributions.service("hand_offs")
                hand_offs.derive(agent_id)
        except Refusal as refusal:
            logger.warning("no hand-off of %s could be derived: %s", agent_id, refusal)

    def _note_conversation(self, agent_id: str, purpose: str, host: HostMemory) -> None:
        """Records the host's conversation in the agent's running sessions of this purpose. Their processes do so, too,
        with their next call: they might write their files at the same time."""
        try:
            for session in self.sessions.running(agent_id):
                if session.purpose == purpose and self.sessions.is_here(session):
                    self.workspace.sessions.update(
                        session.id, lambda found: found.in_conversation(host.host, host.session)
                    )
        except Refusal as refusal:
            logger.warning("the host's conversation could not be recorded: %s", refusal)

    def wake(self, agent_id: str, purpose: str) -> tuple[str | None, Due[DoorbellItem]]:
        """Returns the line that wakes an idle agent, or None if none is due, and what is due next. Records the ring."""
        self.notifications.repair(agent_id)
        if not self.workspace.unread_count(agent_id) and not self.doorbell.has_ring_to_come(agent_id):
            return None, Due()
        with self.workspace.locks.held(_lock(agent_id)):
            state = self._state(agent_id, purpose)
            line, decision = self.doorbell.wake(agent_id, purpose, state.ring)
            if line is not None:
                state.rung(self.clock(), (item.id for item in decision.items), decision.attempt)
                self._write(agent_id, purpose, state.facts())  # without `seen`: the next hook looks again
        return line, decision

    def _decided(self, event: str, unread: Unread, state: HookState) -> dict[str, Any] | None:
        """The answer to one event; records in `state` the items that it announces."""
        fresh = unread.without(state.announced)
        if event == "PreToolUse" and unread.interrupts:
            if fresh.interrupts:
                state.announce(ids(fresh.interrupts), self.clock())
            reason = self._interrupt_words("hook.denied", unread.interrupts)
            return _for_event(event, permissionDecision="deny", permissionDecisionReason=reason)
        if event in ("PostToolUse", "UserPromptSubmit") and fresh.all_ids:
            state.announce(fresh.all_ids, self.clock())
            return _for_event(event, additionalContext=self._words(fresh))
        if event == "Stop" and (pressing := unread.pressing - state.stopped):
            state.stopped |= pressing
            state.announce(pressing, self.clock())
            announced = unread.without(unread.all_ids - pressing)
            return {"decision": "block", "reason": self._words(announced, "hook.not_yet")}
        return None

    def _words(self, unread: Unread, opening: str | None = None) -> str:
        parts = [self.texts(opening)] if opening else []
        if interrupts := unread.interrupts:
            parts.append(self._interrupt_words(None, interrupts))
        elif unread.notices:
            parts.append(self._lines(list(map(UnreadNotification.of, unread.notices)), "notification.some"))
        if unread.mail:
            parts.append(self._lines(unread.mail, "hook.mail"))
        return "\n\n".join(parts)

    def _lines(self, items: Sequence[DoorbellItem], advice: str) -> str:
        groups = [[item] for item in items] if len(items) <= LINES_MAX else [items]
        return "\n".join([*(doorbell_line(self.texts, group) for group in groups), self.texts(advice)])

    def _interrupt_words(self, opening: str | None, interrupts: Sequence[Notification]) -> str:
        parts = [self.texts(opening)] if opening else []
        parts += map(self._interrupt_said, interrupts[:LINES_MAX])
        return "\n\n".join([*parts, self.texts("notification.interrupt")])

    def _interrupt_said(self, notice: Notification) -> str:
        shown = as_answer(notice, self.texts)
        return f"{shown['message']}\n{shown['instruction']}".strip()

    def _notices(self, agent_id: str, purpose: str) -> list[Notification]:
        """The unread notifications to announce, newest first."""
        self.notifications.repair(agent_id)
        return [notice for notice in reversed(self.notifications.ringing(agent_id)) if notice.meant_for(purpose)]

    def _mail(self, agent_id: str, state: HookState, seen: int) -> list[ChangedMail]:
        """The unread mail that arrived or changed since all mail was announced, and older urgent mail that still has to
        prevent the end of a turn. After the first look this is little, however much is unread."""
        mailbox, since = self.workspace.mailbox(agent_id), state.since(seen)
        names = first_look.changed_since(str(mailbox.path), since) if since else mailbox.hot.names()
        unread = self._unread(mailbox, [*dict.fromkeys([*names, *state.urgent])], seen)
        state.announced |= {item.message.id for item in unread if item.name in state.urgent and item.name not in names}
        return unread

    def _unread(self, mailbox: Mailbox, names: Sequence[str], seen: int) -> list[ChangedMail]:
        try:
            return [ChangedMail(*found) for found in mailbox.unread_among(names)] if names else []
        except (StorageError, ValueError):  # a bad sector, which the index skips, or an invalid name
            return [ChangedMail(name, message, seen) for name, message in mailbox.unread()]

    def _meant(self, agent_id: str, purpose: str, mail: Sequence[Message]) -> list[Message]:
        """The mail in reading order, without what the agent's other living session announces."""
        return sorted(self.doorbell.meant_for(agent_id, purpose, mail), key=reading_order)

    def _note_host(self, agent: Agent, event: Event) -> None:
        """Records the agent's host, unless a person named one, and the thread of a host that takes lines into it in the
        registry, for the channel chain. Never raises: this must not lose an answer."""
        thread = event.host_session if _has_queue(event.host or agent.host) else None
        is_known = agent.seen_in(event.host).get("host") in (None, agent.host)
        if is_known and thread in (None, agent.extra.get("codex_thread_id")):
            return
        threads = {} if thread is None else {"codex_thread_id": thread}
        try:
            self.workspace.registry.revise(agent.id, lambda known: known.seen_in(event.host) | threads)
        except Refusal as refusal:
            logger.warning("the host could not be noted: %s", refusal)

    def _state(self, agent_id: str, purpose: str) -> HookState:
        return HookState.of(first_look.read_state(str(self.workspace.path), agent_id, purpose))

    def _write(self, agent_id: str, purpose: str, facts: Mapping[str, Any]) -> None:
        path = str(self.workspace.path)
        if facts != first_look.read_state(path, agent_id, purpose):
            target = Path(first_look.state_path(path, agent_id, purpose))
            self.workspace.files.replace(target, json.dumps(facts).encode(), durable=False)


def _denied(event: str, why_not: str | None) -> dict[str, Any] | None:
    if why_not is None:
        return None
    return _for_event(event, permissionDecision="deny", permissionDecisionReason=why_not)


def _with_briefing(answer: dict[str, Any] | None, event: Event, briefing: str | None) -> dict[str, Any] | None:
    """The answer with the briefing before what else it says to the model."""
    if briefing is None:
        return answer
    said = answer["hookSpecificOutput"]["additionalContext"] if answer is not None else None
    return _for_event(event.name, additionalContext="\n\n".join(filter(None, [briefing, said])))


def _for_event(event: str, **output: str) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **output}}


def _has_queue(host: str | None) -> bool:
    """Whether the host takes lines into a thread of its own, which is then to be recorded."""
    known = host_named(host)
    return known is not None and "codex_queue" in known.channels


def _lock(agent_id: str) -> str:
    return f"hooks-{agent_id}"


@contextmanager
def _alone(agent: Agent) -> Iterator[None]:
    """A judge of a call for itself: whatever breaks it (a file written by a person, a bug), the others judge, and
    interrupts are told."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - see above
        logger.warning("a call of %s was not looked at: %s", agent.id, error)


@dataclass(eq=False)
class ToolCalls(Service):
    """Judges calls that are to be made; passes on those that were made, or of which no hook will tell afterwards."""

    def look(self, agent: Agent, event: str, facts: Mapping[str, Any], *, is_noted: bool) -> str | None:
        """Returns why the call of an event must not be made, or None. Passes on which files a call has edited; whether
        that is noted already says `is_noted`. `facts` is what the host says. Never raises: an interrupt must reach the
        agent all the same."""
        if event not in ("PreToolUse", "PostToolUse") or "tool_input" not in facts:
            return None
        call: ToolCall | None = None
        with _alone(agent):
            call = tool_call(facts, self.contributions.ask("tools_of_hosts") or tool_inputs())
        if call is None:
            return None
        if event == "PreToolUse":
            for where in self.session.features.each("judges"):
                with _alone(agent):
                    if (why_not := called(where, self, agent, call)) is not None:
                        return str(why_not)
        if event == "PostToolUse" or call.patches_in_shell:
            with _alone(agent):
                self.contributions.tell("edited", agent.id, call, is_noted and event == "PostToolUse")
        return None
