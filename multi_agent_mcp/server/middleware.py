"""The steps around every tool call: interrupts, permission, the tool, the notification field
(docs/protocol.md, Order of checks, Notification field).

The order of checks is fixed: interrupt, token, role, purpose, owner_waiting, arguments. An answer replaced by an
interrupt says in `_meta` whether the tool ran; its mail is made unread again.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import mcp_types as types

from multi_agent_mcp.errors import InvalidArguments, Refusal, StorageError
from multi_agent_mcp.server.toolbox import Call, CallLog
from multi_agent_mcp.services.notifications.notifications import NOTHING, Pending
from multi_agent_mcp.services.sessions.confirmation import Cancelled, Confirmation

if TYPE_CHECKING:
    from multi_agent_mcp.server.binding import Binding
    from multi_agent_mcp.server.toolbox import Answer, Tool
    from multi_agent_mcp.texts import Texts

# Builds MCP results: the same JSON object as text and as structured content (docs/protocol.md, Answers).

EXECUTED = "multi-agent-mcp/executed"


def success(answer: Answer) -> types.CallToolResult:
    """The result with `"success": true` and the tool's answer."""
    return _result({"success": True, **answer})


def refused(refusal: Refusal, texts: Texts, **notices: Any) -> types.CallToolResult:
    """The result with `isError`, the refusal's code, and one sentence that a model can act on."""
    answer = {"success": False, "error": refusal.code, "message": texts.sentence(refusal), **notices}
    return _result(answer, is_error=True)


def interrupted(texts: Texts, *, executed: bool) -> types.CallToolResult:
    """The result that replaces a tool's answer while an interrupt waits (docs/protocol.md, Interrupts)."""
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=texts("notification.interrupt"))],
        _meta={EXECUTED: executed},
    )


def outcome(result: types.CallToolResult) -> str | None:
    """The code of a refusal, `interrupted`, or None for success."""
    if result.structured_content is None:
        return "interrupted"
    return result.structured_content.get("error") if result.is_error else None


def _result(answer: Answer, *, is_error: bool = False) -> types.CallToolResult:
    text = json.dumps(answer, ensure_ascii=False)
    if (plain := text.encode(errors="replace").decode()) != text:  # a path need not be UTF-8
        text, answer = plain, json.loads(plain)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=answer, is_error=is_error
    )


logger = logging.getLogger(__name__)

EXEMPT_FROM_INTERRUPTS = frozenset({"get_notifications", "authenticate", "logout"})
BEFORE_BINDING = frozenset({"authenticate"})


class Middleware:
    """Answers tool calls. Runs on worker threads; several calls may run at once."""

    def __init__(self, binding: Binding, tools: Mapping[str, Tool]) -> None:
        self.binding = binding
        self.services = binding.services
        self.tools = tools
        self._nothing, self._something = (self._texts(f"notification.{key}") for key in ("none", "some"))

    def answer(self, name: str, arguments: Mapping[str, Any], confirmation: Confirmation) -> types.CallToolResult:
        """Runs one call and returns its answer; never raises."""
        try:
            with self.services.agents.read_once():
                return self._answer(name, arguments, confirmation)
        except Refusal as refusal:  # after the tool, as the disk has changed meanwhile
            confirmation.requeue()
            return refused(refusal, self._texts, notification=self._nothing)
        except Exception as error:  # a bug of ours: the agent still gets a sentence
            logger.exception("the call of %s failed", name)
            confirmation.requeue()
            failure = StorageError("internal", reason=type(error).__name__)
            return refused(failure, self._texts, notification=self._nothing)

    def _answer(self, name: str, arguments: Mapping[str, Any], confirmation: Confirmation) -> types.CallToolResult:
        if name in BEFORE_BINDING:
            return self._unbound(self.tools[name], arguments)
        try:
            self.binding.require_key()
            session = self.binding.live_session()
            session.touch()
            confirmation.open(session)
            me = self.binding.acting()
            call = Call(self.binding, session, me, confirmation, self.services.upkeep.begin(me.id))
        except Refusal as refusal:
            return refused(refusal, self._texts, notification=self._nothing)
        result = self._bound(call, self.tools[name], arguments)
        if confirmation.complete():
            self.binding.mailbox_was_read()
        if time.monotonic() >= self.services.budgets.next_look:
            self.services.budgets.look()
        return result

    def _unbound(self, tool: Tool, arguments: Mapping[str, Any]) -> types.CallToolResult:
        notices = {"notification": self._nothing}
        try:
            return success({**tool.fn(self.binding, **tool.parse(arguments)), **notices})
        except Refusal as refusal:
            return refused(refusal, self._texts, **notices)

    def _bound(self, call: Call, tool: Tool, arguments: Mapping[str, Any]) -> types.CallToolResult:
        """The tool's result, or the interrupt that replaces it, even one that arrived while the tool ran."""
        interruptible = tool.name not in EXEMPT_FROM_INTERRUPTS
        log = CallLog(call, tool.name)
        outcome = self._outcome(call, tool, arguments, interruptible=interruptible)
        if outcome is None:
            log.close("replaced by an interrupt")
            return interrupted(self._texts, executed=False)
        logged = f"error {outcome.code}" if isinstance(outcome, Refusal) else "success"
        pending = self._pending_after(call)
        if interruptible and pending.interrupts:
            log.close(f"{logged}, replaced by an interrupt")
            call.confirmation.requeue()
            return interrupted(self._texts, executed=True)
        log.close(logged)
        if isinstance(outcome, Refusal):
            call.confirmation.requeue()
            return refused(outcome, self._texts, **self._notices(call, pending))
        if tool.name == "get_next_action":
            self.binding.gives_next_action(call.confirmation, briefed=call.carries_briefing)
        return success({**outcome, **self._notices(call, pending)})

    def _outcome(
        self, call: Call, tool: Tool, arguments: Mapping[str, Any], *, interruptible: bool
    ) -> Answer | Refusal | None:
        """The tool's answer or refusal; None if the tool did not run because an interrupt waits."""
        try:
            if interruptible and call.still is None and call.interrupted():
                return None
            return self._run(call, tool, arguments)
        except Refusal as refusal:
            return refusal
        except Cancelled:
            return InvalidArguments("cancelled")
        except Exception as error:
            logger.exception("tool %s failed", tool.name)
            return StorageError("internal", reason=type(error).__name__)

    def _run(self, call: Call, tool: Tool, arguments: Mapping[str, Any]) -> Answer:
        given = dict(arguments)
        if "session_token" in given:
            call.session.require_token(given.pop("session_token"))
        tool.require_allowed(call.me.role, call.purpose)
        if call.me.role == "owner":
            self.services.owner_waits.require_allowed(call.me, tool.name)
        return tool.fn(call, **tool.parse(given))

    def _notices(self, call: Call, pending: Pending) -> Answer:
        """The fields about notifications and unread mail that are added to the answer."""
        notices: Answer = {"notification": self._something if pending.some else self._nothing}
        if pending.from_chat is not None:
            notices["_chat_notification"] = {
                "conversation_id": pending.from_chat.conversation_id,
                "message": pending.from_chat.message,
                "instruction": pending.from_chat.instruction,
                "from": "self_chat_session",
                "related_task_id": pending.from_chat.task_id,
            }
        if unread := self._unread(call):
            notices["unread_messages"] = unread
        if quarantined := self._newly_quarantined(call):
            notices["quarantined"] = quarantined
        return notices

    def _unread(self, call: Call) -> int:
        if call.unread is not None:
            return call.unread
        try:
            return self.services.upkeep.unread_mail(call.me.id)
        except Refusal as refusal:
            logger.warning("unread mail could not be counted: %s", refusal)
            return 0

    def _newly_quarantined(self, call: Call) -> int:
        try:
            return self.services.upkeep.newly_quarantined(call.me.id)
        except Refusal as refusal:
            logger.warning("quarantined mail could not be counted: %s", refusal)
            return 0

    def _pending_after(self, call: Call) -> Pending:
        """The pending notifications after the tool ran. Never raises: a failing disk must not hide the tool's
        result."""
        if call.session.record.ended_at is not None:
            return NOTHING  # after logout
        try:
            return call.pending()
        except Refusal as refusal:
            logger.warning("notifications could not be read: %s", refusal)
            return NOTHING

    @property
    def _texts(self) -> Texts:
        return self.services.texts
