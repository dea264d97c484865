"""What a host's hooks are told: interrupts before any tool of the agent, mail and notifications once each
(docs/protocol.md, Hooks).

So an interrupt reaches an agent at its next tool call of any kind, Bash and Edit included, and not only at the next
call of one of our own tools.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from multi_agent_mcp.config import Settings
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Due, Ring, UnreadMessage, due, message_ids_of
from multi_agent_mcp.domain.message import Message, reading_order
from multi_agent_mcp.domain.times import format_time, is_recent, parse_time
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.hooks import state_file as state_file
from multi_agent_mcp.hooks.state import HookState, UnreadItems, ids
from multi_agent_mcp.services.notices.notifications import Notifications
from multi_agent_mcp.services.sessions.agent_sessions import Sessions
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.texts import Texts

logger = logging.getLogger(__name__)

BY_HOOK = "hook"
"""The reason that stands in the diary beside what a waiter rang about, as the ladder's rung has it."""

LINES_MAX = 5
"""So many messages are announced one by one, more by their number."""


@dataclass(frozen=True)
class Event:
    """One call of `hook`: what happens in the host. `host` is its name where the hook's command line says it."""

    name: str
    host_session: str | None = None
    host: str | None = None


class Hooks:
    """Answers the hooks of one session's agents. `line` makes the doorbell's line."""

    def __init__(
        self,
        workspace: Workspace,
        notifications: Notifications,
        sessions: Sessions,
        settings: Settings,
        texts: Texts,
        clock: Callable[[], datetime],
        line: Callable[[Sequence[UnreadMessage]], str],
    ) -> None:
        self.workspace = workspace
        self.notifications = notifications
        self.sessions = sessions
        self.pause = timedelta(seconds=settings.limits.doorbell_pause_seconds)
        self.longest_pause = timedelta(seconds=settings.limits.doorbell_pause_max_seconds)
        self.texts = texts
        self.clock = clock
        self.line = line

    def answer(self, agent_id: str, purpose: str, event: Event) -> dict[str, Any] | None:
        """What the hook prints as JSON, or None when there is nothing to say.

        Mail and notifications are told once, a stop is prevented once for each interrupt or urgent message; a native
        tool is denied until the interrupt has been read. Raises `AgentNotFound`.
        """
        agent = self.workspace.registry.get(agent_id)
        with self.workspace.locks.held(_lock(agent_id)):
            seen = self._seen(agent_id)  # first: what comes meanwhile is then looked at again
            state = HookState.of(state_file.read_state(str(self.workspace.path), agent_id, purpose))
            news = self._news(agent_id, purpose)
            state.forget_all_but(news.all_ids)
            answer = self._said(event.name, news, state)
            state.host_session = event.host_session or state.host_session
            self._write(agent_id, purpose, {**seen, **state.facts(news)})
        self._note_host(agent, event)
        return answer

    def doorbell(self, agent_id: str, purpose: str) -> tuple[str | None, Due]:
        """The line that wakes an idle agent, if one is due, noted as rung; and what is due next. As in a pane, one
        is outstanding at a time, and it is repeated after growing pauses until the mail is read."""
        mailbox = self.workspace.mailbox(agent_id)
        if not mailbox.unread():
            return None, Due()
        with self.workspace.locks.held(_lock(agent_id)), self.workspace.locks.held(f"doorbell-{agent_id}"):
            state = HookState.of(state_file.read_state(str(self.workspace.path), agent_id, purpose))
            mail = self._mail(agent_id, purpose)
            now = self.clock()
            rings = filter(None, [state.ring, self._rung_elsewhere(agent_id)])
            last = max(rings, key=lambda ring: (ring.at <= now, ring.at), default=None)  # first those before a set-back
            decision = due(map(_waiting, mail), last, now, self.pause, self.longest_pause)
            if not decision.messages:
                return None, decision
            state.rung(self.clock(), (message.id for message in decision.messages), decision.attempt)
            news = UnreadItems(self._notices(agent_id, purpose), mail)
            self._write(agent_id, purpose, state.facts(news))  # nothing is known to be seen: the next one looks
            self._note_ring(agent_id, decision)
        return self.line(decision.messages), decision

    def _rung_elsewhere(self, agent_id: str) -> Ring | None:
        """The last doorbell that another rung of the ladder got across, whoever rang it."""
        for entry in self.workspace.doorbells(agent_id).newest_first(without=b'"deferred"'):
            if entry.get("reason") != BY_HOOK and (ring := Ring.of(entry)) is not None:
                return ring
        return None

    def _note_ring(self, agent_id: str, decision: Due) -> None:
        """Into the diary, so that nobody who finds the waiter gone a moment later rings a second time. Who found it
        armed has noted the same already."""
        diary = self.workspace.doorbells(agent_id)
        about = [message.id for message in decision.messages]
        newest = next(diary.newest_first(without=b'"deferred"'), {})
        at = parse_time(newest.get("at"))
        recent = at is not None and is_recent(at, self.clock(), self.pause)
        if not (recent and newest.get("reason") == BY_HOOK and set(about) <= set(message_ids_of(newest))):
            pane = self.workspace.registry.get(agent_id).pane_id
            facts = {"pane": pane, "attempt": decision.attempt, "messages": about}
            diary.append(state="rung", at=format_time(self.clock()), reason=BY_HOOK, **facts)

    def _said(self, event: str, news: UnreadItems, state: HookState) -> dict[str, Any] | None:
        """The answer to one event; notes in `state` what is told."""
        fresh = news.without(state.told)
        if event == "PreToolUse" and news.interrupts:
            state.told |= ids(news.interrupts)
            told = self._interrupt_words("hook.denied", news.interrupts)
            return _for_event(event, permissionDecision="deny", permissionDecisionReason=told)
        if event in ("PostToolUse", "UserPromptSubmit") and fresh.all_ids:
            state.told |= fresh.all_ids
            if fresh.mail:
                state.rung(self.clock(), (message.id for message in news.mail))
            return _for_event(event, additionalContext=self._words(fresh))
        if event == "Stop" and (pressing := news.pressing - state.stopped):
            state.stopped |= pressing
            state.told |= pressing
            told_now = news.without(news.all_ids - pressing)
            if told_now.mail:
                state.rung(self.clock(), (message.id for message in told_now.mail))
            return {"decision": "block", "reason": self._words(told_now, "hook.not_yet")}
        return None

    def _words(self, news: UnreadItems, opening: str | None = None) -> str:
        parts = [self.texts(opening)] if opening else []
        if interrupts := news.interrupts:
            parts.append(self._interrupt_words(None, interrupts))
        elif news.notices:
            parts.append(self.texts("notification.some"))
        if news.mail:
            single = [[message] for message in news.mail] if len(news.mail) <= LINES_MAX else [news.mail]
            lines = [self.line([_waiting(message) for message in messages]) for messages in single]
            parts.append("\n".join([*lines, self.texts("hook.mail")]))
        return "\n\n".join(parts)

    def _interrupt_words(self, opening: str | None, interrupts: Sequence[Mapping[str, Any]]) -> str:
        parts = [self.texts(opening)] if opening else []
        parts += [f"{notice['message']}\n{notice['instruction']}".strip() for notice in interrupts[:LINES_MAX]]
        return "\n\n".join([*parts, self.texts("notification.interrupt")])

    def _news(self, agent_id: str, purpose: str) -> UnreadItems:
        return UnreadItems(self._notices(agent_id, purpose), self._mail(agent_id, purpose))

    def _notices(self, agent_id: str, purpose: str) -> list[dict[str, Any]]:
        if not self.notifications.refresh(agent_id, purpose).some:
            return []
        return self.notifications.read(agent_id, purpose, mark_as_read=False)

    def _mail(self, agent_id: str, purpose: str) -> list[Message]:
        """The unread mail, without what the agent's other living session is to be told (as the doorbell does)."""
        mail = [message for _, message in self.workspace.mailbox(agent_id).unread()]
        if mail and any(session.purpose != purpose for session in self.sessions.live(agent_id)):
            mail = [message for message in mail if _waiting(message).purpose == purpose]
        return sorted(mail, key=reading_order)

    def _note_host(self, agent: Agent, event: Event) -> None:
        """Which host the agent runs in, and Codex's thread: the doorbell's ladder goes by them. Not worth losing an
        answer for."""
        news: dict[str, Any] = {} if event.host in (None, agent.host) else {"host": event.host}
        if event.host_session is not None and "codex" in (event.host, agent.host):
            news["codex_thread_id"] = event.host_session
        if all(news[key] == agent.extra.get(key) for key in news):
            return
        try:
            self.workspace.registry.update(agent.id, **news)
        except Refusal as refusal:
            logger.warning("the host could not be noted: %s", refusal)

    def _seen(self, agent_id: str) -> dict[str, Any]:
        """What the state file is compared with the next time; see `state_file.surely_silent`."""
        changed = state_file.seen_now(str(self.workspace.path), agent_id)
        boxes = (self.workspace.mailbox(agent_id), self.workspace.notices(agent_id))
        unread = [sorted(name for name, _ in box.unread()) for box in boxes]
        return {"seen": state_file.trustworthy(changed), "unread": unread}

    def _write(self, agent_id: str, purpose: str, facts: Mapping[str, Any]) -> None:
        path = str(self.workspace.path)
        if facts != state_file.read_state(path, agent_id, purpose):
            target = Path(state_file.state_path(path, agent_id, purpose))
            self.workspace.files.replace(target, json.dumps(facts).encode(), durable=False)


def _waiting(message: Message) -> UnreadMessage:
    return UnreadMessage(message.id, message.sender_id, message.message_type)


def _for_event(event: str, **output: str) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **output}}


def _lock(agent_id: str) -> str:
    return f"hooks-{agent_id}"
