"""From a host's event to the JSON that it is answered: interrupts before any tool of the agent, mail and notifications
once each (docs/protocol.md, Hooks).

So an interrupt reaches an agent at its next tool call of any kind, Bash and Edit included, and not only at the next
call of one of our own tools.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery, DoorbellItem, Due, UnreadMessage, UnreadNotification
from multi_agent_mcp.domain.message import reading_order
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.hooks import state_file
from multi_agent_mcp.hooks.state import HookState, Unread, ids
from multi_agent_mcp.notify.channel import HOOK, Channel
from multi_agent_mcp.notify.doorbell import Doorbell
from multi_agent_mcp.notify.wording import doorbell_line
from multi_agent_mcp.services.notices.notifications import Notifications, as_answer
from multi_agent_mcp.services.sessions.agent_sessions import Sessions
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.texts import Texts

logger = logging.getLogger(__name__)

LINES_MAX = 5
"""So many messages or notifications are announced one by one, more by their number."""


@dataclass(frozen=True)
class Event:
    """One call of `hook`: what happens in the host. `host` is its name where the hook's command line gives it."""

    name: str
    host_session: str | None = None
    host: str | None = None


class Hooks:
    """Answers the hooks of one session's agents."""

    def __init__(
        self,
        workspace: Workspace,
        notifications: Notifications,
        sessions: Sessions,
        doorbell: Doorbell,
        texts: Texts,
        clock: Callable[[], datetime],
    ) -> None:
        self.workspace = workspace
        self.notifications = notifications
        self.sessions = sessions
        self.doorbell = doorbell
        self.texts = texts
        self.clock = clock

    def answer(self, agent_id: str, purpose: str, event: Event) -> dict[str, Any] | None:
        """What the hook prints as JSON, or None when there is nothing to say.

        Mail and notifications are announced once, a stop is prevented once for each interrupt or urgent message; a
        native tool is denied until the interrupt has been read. Raises `AgentNotFound`.
        """
        agent = self.workspace.registry.get(agent_id)
        with self.workspace.locks.held(_lock(agent_id)):
            seen = self._seen(agent_id)  # first: what comes meanwhile is then looked at again
            state = self._state(agent_id, purpose)
            unread = self._unread(agent_id, purpose)
            state.forget_all_but(unread.all_ids)
            answer = self._decided(event.name, unread, state)
            state.host_session = event.host_session or state.host_session
            self._write(agent_id, purpose, {**seen, "speaks": state.speaks(unread), **state.facts()})
        self._note_host(agent, event)
        return answer

    def wake(self, agent_id: str, purpose: str) -> tuple[str | None, Due[DoorbellItem]]:
        """The line that wakes an idle agent, if one is due, recorded as rung; and what is to be done next."""
        self.notifications.repair(agent_id)
        if not self.workspace.unread_count(agent_id):
            return None, Due()
        with self.workspace.locks.held(_lock(agent_id)):
            state = self._state(agent_id, purpose)
            waker = Waker()
            _, decision = self.doorbell.ring_from_waiter(agent_id, purpose, state.ring, waker)
            if waker.line is not None:
                state.rung(self.clock(), (item.id for item in decision.items), decision.attempt)
                self._write(agent_id, purpose, state.facts())  # without what was seen: the next hook looks again
        return waker.line, decision

    def _decided(self, event: str, unread: Unread, state: HookState) -> dict[str, Any] | None:
        """The answer to one event; notes in `state` what it announces."""
        fresh = unread.without(state.announced)
        if event == "PreToolUse" and unread.interrupts:
            state.announced |= ids(unread.interrupts)
            if fresh.interrupts:
                state.rung(self.clock(), state.announced)
            reason = self._interrupt_words("hook.denied", unread.interrupts)
            return _for_event(event, permissionDecision="deny", permissionDecisionReason=reason)
        if event in ("PostToolUse", "UserPromptSubmit") and fresh.all_ids:
            state.announced |= fresh.all_ids
            state.rung(self.clock(), state.announced)
            return _for_event(event, additionalContext=self._words(fresh))
        if event == "Stop" and (pressing := unread.pressing - state.stopped):
            state.stopped |= pressing
            state.announced |= pressing
            state.rung(self.clock(), state.announced)
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
            parts.append(self._lines(list(map(UnreadMessage.of, unread.mail)), "hook.mail"))
        return "\n\n".join(parts)

    def _lines(self, items: Sequence[DoorbellItem], advice: str) -> str:
        groups = [[item] for item in items] if len(items) <= LINES_MAX else [items]
        return "\n".join([*(doorbell_line(self.texts, group) for group in groups), self.texts(advice)])

    def _interrupt_words(self, opening: str | None, interrupts: Sequence[Notification]) -> str:
        parts = [self.texts(opening)] if opening else []
        shown = map(as_answer, interrupts[:LINES_MAX])
        parts += [f"{notice['message']}\n{notice['instruction']}".strip() for notice in shown]
        return "\n\n".join([*parts, self.texts("notification.interrupt")])

    def _unread(self, agent_id: str, purpose: str) -> Unread:
        """The unread mail and notifications, without what the agent's other living session announces. An agent is not
        told of its own doings, but stopped by every interrupt."""
        self.notifications.repair(agent_id)
        waiting = [notice for notice in self.notifications.waiting(agent_id) if notice.meant_for(purpose)]
        notices = [notice for notice in reversed(waiting) if notice.rings or notice.interrupts]
        mail = [message for _, message in self.workspace.mailbox(agent_id).unread()]
        meant = ids(self.doorbell.meant_for(agent_id, purpose, list(map(UnreadMessage.of, mail))))
        return Unread(notices, sorted((message for message in mail if message.id in meant), key=reading_order))

    def _note_host(self, agent: Agent, event: Event) -> None:
        """Which host the agent runs in, and Codex's thread: the channel chain depends on them. Not worth losing an
        answer for."""
        changes: dict[str, Any] = {} if event.host in (None, agent.host) else {"host": event.host}
        if event.host_session is not None and "codex" in (event.host, agent.host):
            changes["codex_thread_id"] = event.host_session
        if all(changes[key] == agent.extra.get(key) for key in changes):
            return
        try:
            self.workspace.registry.update(agent.id, **changes)
        except Refusal as refusal:
            logger.warning("the host could not be noted: %s", refusal)

    def _seen(self, agent_id: str) -> dict[str, Any]:
        """What the state file is compared with the next time; see `state_file.surely_silent`."""
        settled = state_file.settled_now(str(self.workspace.path), agent_id)
        boxes = (self.workspace.mailbox(agent_id), self.workspace.notices(agent_id))
        unread = [sorted(name for name, _ in box.unread()) for box in boxes]
        return {"seen": settled, "unread": unread}

    def _state(self, agent_id: str, purpose: str) -> HookState:
        return HookState.of(state_file.read_state(str(self.workspace.path), agent_id, purpose))

    def _write(self, agent_id: str, purpose: str, facts: Mapping[str, Any]) -> None:
        path = str(self.workspace.path)
        if facts != state_file.read_state(path, agent_id, purpose):
            target = Path(state_file.state_path(path, agent_id, purpose))
            self.workspace.files.replace(target, json.dumps(facts).encode(), durable=False)


class Waker(Channel):
    """What a waiter rings with: it keeps the line, for the host that started it."""

    name = HOOK

    def __init__(self) -> None:
        self.line: str | None = None

    def check(self, agent: Agent) -> None:
        """The waiter itself asks."""

    def ring(self, agent: Agent, line: str) -> Delivery:  # noqa: ARG002 - a waiter has one agent
        self.line = line
        return Delivery("rung", HOOK)


def _for_event(event: str, **output: str) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **output}}


def _lock(agent_id: str) -> str:
    return f"hooks-{agent_id}"
