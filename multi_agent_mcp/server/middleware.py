"""Around every tool call: interrupts first, then who may call, then the tool, then what the agent must be told
(docs/protocol.md, Order of checks, Notification field, Interrupts).

The order of checks is fixed: interrupt, token, role, purpose, owner_waiting, arguments. A call replaced before it ran
had no effect; a call replaced after it ran says so in `_meta` and keeps nothing it had handed out marked as read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types

from multi_agent_mcp.bootstrap import Services
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import InvalidArguments, Refusal, StorageError
from multi_agent_mcp.server import replies
from multi_agent_mcp.server.binding import Binding
from multi_agent_mcp.server.call_log import CallLog
from multi_agent_mcp.server.toolbox import Answer, Tool
from multi_agent_mcp.services.notices.notifications import NOTHING, Pending
from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
from multi_agent_mcp.store.files.locks import Mutex
from multi_agent_mcp.texts import Texts

logger = logging.getLogger(__name__)

EXEMPT_FROM_INTERRUPTS = frozenset({"get_notifications", "authenticate", "logout"})
BEFORE_BINDING = frozenset({"authenticate"})


@dataclass
class Call:
    """One tool call of a bound process: what every tool is handed first. `held` collects the messages it hands out."""

    binding: Binding
    services: Services
    session: LiveSession
    me: Agent
    handing: Handing
    held: list[str] = field(default_factory=list)

    @property
    def purpose(self) -> str:
        return self.session.record.purpose

    def hold(self, files: tuple[str, ...]) -> None:
        """Notes what is about to be marked read, durably, before it is. Raises `Abandoned` when nobody waits for it."""
        if self.handing.abandoned:
            raise Abandoned
        self.session.hold(files)
        self.held.extend(files)

    def interrupted(self) -> bool:
        """Whether an interrupt waits: a call that waits for something ends then."""
        return self.services.notifications.pending(self.me.id, self.purpose).interrupts

    def fitting(self, answer: Answer, key: str, items: list[Any]) -> Answer:
        """The answer with as many of the items as an answer can hold; says so when it stops early."""
        return replies.fitting(self.services, answer, key, items)

    def newest_fitting(self, items: list[Any], characters: int) -> list[Any]:
        """The last items of a list that fit into so many characters, in their order."""
        return replies.newest_fitting(items, characters)


class Abandoned(Exception):
    """The host has cancelled the call before it had any effect."""


class Handing:
    """What a call hands out, until it is known whether the answer still has somebody to go to: a host may cancel a
    call whose thread is at work. What was handed out to nobody becomes unread again."""

    def __init__(self) -> None:
        self._mutex = Mutex("handing")
        self._session: LiveSession | None = None
        self._held: tuple[str, ...] = ()
        self.abandoned = False

    def settle(self, session: LiveSession, held: tuple[str, ...]) -> None:
        """The call's thread is done."""
        with self._mutex:
            self._session, self._held = session, held
            abandoned = self.abandoned
        if abandoned:
            session.give_back(held)

    def deliver(self) -> None:
        """The answer was written; the next call, or a regular end, confirms that it arrived."""
        if self._session is not None:
            self._session.answered(self._held)

    def abandon(self) -> None:
        """Nobody waits for the answer any more. Called on the event loop, which must not wait for a lock or a disk: the
        call's thread gives back itself, and should it be done already, another one does."""
        with self._mutex:
            self.abandoned = True
            session, held = self._session, self._held
        if session is not None and held:
            threading.Thread(target=session.give_back, args=(held,)).start()


class Middleware:
    """Answers tool calls. Runs on worker threads; several calls may be under way at once."""

    def __init__(self, binding: Binding, tools: Mapping[str, Tool]) -> None:
        self.binding = binding
        self.services = binding.services
        self.tools = tools

    def answer(self, name: str, arguments: Mapping[str, Any], handing: Handing) -> types.CallToolResult:
        """The answer to one call; never raises."""
        try:
            return self._answer(name, arguments, handing)
        except Exception as error:  # a slip of ours: the agent gets a sentence all the same
            logger.exception("the call of %s failed", name)
            failure = StorageError("internal", reason=type(error).__name__)
            return replies.failure(failure, self._texts, notification=self._texts("notification.none"))

    def _answer(self, name: str, arguments: Mapping[str, Any], handing: Handing) -> types.CallToolResult:
        if name in BEFORE_BINDING:
            return self._unbound(self.tools[name], arguments)
        try:
            session = self.binding.live_session()
            session.touch()
            self.services.operations.finish()
            call = Call(self.binding, self.services, session, self.binding.agent(), handing)
        except Refusal as refusal:
            return replies.failure(refusal, self._texts, notification=self._texts("notification.none"))
        result, held = self._bound(call, self.tools[name], arguments)
        handing.settle(session, held)
        if held:
            self.binding.mailbox_was_read()
        return result

    def _unbound(self, tool: Tool, arguments: Mapping[str, Any]) -> types.CallToolResult:
        told = {"notification": self._texts("notification.none")}
        try:
            return replies.success({**tool.fn(self.binding, **tool.parse(arguments)), **told})
        except Refusal as refusal:
            return replies.failure(refusal, self._texts, **told)

    def _bound(
        self, call: Call, tool: Tool, arguments: Mapping[str, Any]
    ) -> tuple[types.CallToolResult, tuple[str, ...]]:
        """The result, or an interrupt in its place (also one that came meanwhile), and the messages it hands out."""
        interruptible = tool.name not in EXEMPT_FROM_INTERRUPTS
        log = CallLog(call, tool.name)
        try:
            if interruptible and self._pending(call).interrupts:
                log.close("replaced by an interrupt")
                return replies.interrupted(self._texts, executed=False), ()
            outcome: Answer | Refusal = self._run(call, tool, arguments)
        except Refusal as refusal:
            outcome = refusal
        except Abandoned:
            outcome = InvalidArguments(reason="the call was cancelled")
        except Exception as error:
            logger.exception("tool %s failed", tool.name)
            outcome = StorageError("internal", reason=type(error).__name__)
        said = f"error {outcome.code}" if isinstance(outcome, Refusal) else "success"
        pending = self._pending_quietly(call)
        if interruptible and pending.interrupts:
            log.close(f"{said}, replaced by an interrupt")
            call.session.give_back(tuple(call.held))
            return replies.interrupted(self._texts, executed=True), ()
        log.close(said)
        return self._told(call, outcome, pending)

    def _run(self, call: Call, tool: Tool, arguments: Mapping[str, Any]) -> Answer:
        given = dict(arguments)
        if "session_token" in given:
            call.session.require_token(given.pop("session_token"))
        tool.require_allowed(call.me.role, call.purpose)
        self.services.owner_waits.require_allowed(call.me, tool.name)
        return tool.fn(call, **tool.parse(given))

    def _told(
        self, call: Call, outcome: Answer | Refusal, pending: Pending
    ) -> tuple[types.CallToolResult, tuple[str, ...]]:
        """The result with what the agent must be told beside it."""
        held = tuple(call.held)
        if isinstance(outcome, Refusal):
            call.session.give_back(held)
            return replies.failure(outcome, self._texts, **self._notices(call, pending)), ()
        return replies.success({**outcome, **self._notices(call, pending)}), held

    def _notices(self, call: Call, pending: Pending) -> Answer:
        told: Answer = {"notification": self._texts("notification.some" if pending.some else "notification.none")}
        if pending.from_chat is not None:
            told["_chat_notification"] = {
                "conversation_id": pending.from_chat.conversation_id,
                "message": pending.from_chat.message,
                "instruction": pending.from_chat.instruction,
                "from": "self_chat_session",
                "related_task_id": pending.from_chat.task_id,
            }
        mailbox = self.services.workspace.mailbox(call.me.id)
        try:
            if unread := len(mailbox.unread()):
                told["unread_messages"] = unread
        except Refusal as refusal:
            logger.warning("unread mail could not be counted: %s", refusal)
        if quarantined := mailbox.hot.quarantine.take_news():
            told["quarantined"] = quarantined
        return told

    def _pending(self, call: Call) -> Pending:
        return self.services.notifications.pending(call.me.id, call.purpose)

    def _pending_quietly(self, call: Call) -> Pending:
        """After the tool ran, a disk that fails now must not hide what the tool did."""
        if call.session.record.ended_at is not None:
            return NOTHING  # after logout
        try:
            return self._pending(call)
        except Refusal as refusal:
            logger.warning("notifications could not be read: %s", refusal)
            return NOTHING

    @property
    def _texts(self) -> Texts:
        return self.services.texts
