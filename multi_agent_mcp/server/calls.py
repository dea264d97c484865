"""Tools, their calls, and the steps around every call.

A tool is a function whose signature is its schema, and the roles and purposes that may call it. No output schema is
advertised, because clients would reject the answers that interrupts replace. Every agent pays for the whole list in its
context, so schemas are kept minimal."""

from __future__ import annotations

import inspect
import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import mcp_types as types
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema, create_model
from pydantic_core import ErrorDetails

from multi_agent_mcp.domain.agent import PURPOSES, ROLES, Agent, Execution
from multi_agent_mcp.domain.text import one_line, quoted_lines
from multi_agent_mcp.errors import InvalidArguments, Reason, Refusal, StorageError, Unauthorized, WrongSessionPurpose
from multi_agent_mcp.hosts import hosts_arguments
from multi_agent_mcp.services.notifications.notifications import NOTHING, Pending
from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
from multi_agent_mcp.services.sessions.confirmation import Cancelled, Confirmation
from multi_agent_mcp.trace import called

if TYPE_CHECKING:
    from multi_agent_mcp.domain.notification import Notification
    from multi_agent_mcp.server.binding import Binding
    from multi_agent_mcp.services.upkeep import Stillness
    from multi_agent_mcp.texts import Texts
    from multi_agent_mcp.wiring import Services

logger = logging.getLogger(__name__)

Answer = dict[str, Any]

EVERYBODY = frozenset(ROLES)
LEADERS = frozenset({"owner", "admin"})
REPORTERS = frozenset({"worker", "admin"})
BOTH = frozenset(PURPOSES)
TASK = frozenset({"task"})
CHAT = frozenset({"chat"})
PROBLEMS = frozenset(
    {"missing", "extra", "string", "unicode", "int", "float", "finite", "bool", "dict", "model", "list", "literal"}
    | {"greater", "less"}
)
"""The kinds of invalid arguments, by the first word of pydantic's error type: `why.argument.{kind}` in the
catalogue."""
PROBLEMS_SHOWN = 5
READ_FROM_JSON = frozenset({"int", "float", "bool", "dict", "model", "list"})
"""The kinds of problems that a JSON text may solve."""
NAME_CHARACTERS = 80


Limit = Annotated[int, Field(ge=1, le=500)]
"""How many items of a list are asked for."""

UNLISTED = WithJsonSchema({"type": "string"})
"""For a filter by words that another tool's schema lists; a wrong one is answered with all of them."""


@dataclass(frozen=True)
class Tool:
    """A tool. `fn(call, …)` returns a JSON object or raises a refusal; `title` is what hosts show to people. A session
    does without the arguments, and the values of arguments (`status=review`), that it `lacks`, and the words of its
    description that are `unsaid` (`features`)."""

    fn: Callable[..., Answer]
    title: str
    roles: frozenset[str] = EVERYBODY
    purposes: frozenset[str] = BOTH
    read_only: bool = False
    always_load: bool = False
    lacks: frozenset[str] = frozenset()
    unsaid: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.fn.__name__

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """The arguments' model, from the function's signature without its first parameter."""
        parameters = list(inspect.signature(self.fn, eval_str=True).parameters.values())[1:]
        specs: dict[str, Any] = {
            parameter.name: (
                self._reduced(parameter.annotation, parameter.name),
                ... if parameter.default is inspect.Parameter.empty else parameter.default,
            )
            for parameter in parameters
            if parameter.name not in self.lacks
        }
        return create_model(self.name, __config__=ConfigDict(extra="forbid"), **specs)

    def _reduced(self, annotation: Any, name: str) -> Any:
        """The annotation of an argument without what a session does without."""
        fields, values = (
            {lacked.removeprefix(f"{name}{sign}") for lacked in self.lacks if lacked.startswith(f"{name}{sign}")}
            for sign in ".="
        )
        annotation = _without_fields(annotation, fields) if fields else annotation
        return _without_values(annotation, values) if values else annotation

    @property
    def description(self) -> str:
        """What models read of it."""
        words = inspect.cleandoc(self.fn.__doc__ or "")
        for phrase in self.unsaid:
            words = words.replace(phrase, "")
        return words

    def parse(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Validates the arguments and returns them typed, without those that a host adds for itself. Where no
        text is wanted, a text is read as JSON: some models pass objects, lists and numbers so. Where null is nothing,
        it is an argument left out: some hosts name all of them. Raises `InvalidArguments` with the first problems."""
        wanted = self.arguments.model_fields
        if not given.keys() <= wanted.keys():
            given = {name: value for name, value in given.items() if name in wanted or name not in hosts_arguments()}
        while True:
            try:
                model = self.arguments.model_validate(given)
            except ValidationError as error:
                problems = error.errors(include_url=False)
                if (read := _as_meant(given, problems)) == given:
                    raise InvalidArguments(reason=tuple(map(_problem, problems[:PROBLEMS_SHOWN]))) from error
                given = read
            else:
                typed = {name: getattr(model, name) for name in wanted}
                if wrong := [name for name in wanted if isinstance(given.get(name), bool) and _is_number(typed[name])]:
                    raise InvalidArguments(reason=tuple(Reason("argument.no_truth", name=name) for name in wrong))
                return typed

    def require_allowed(self, role: str, purpose: str) -> None:
        """Raises `Unauthorized` or `WrongSessionPurpose` with the reason."""
        if role not in self.roles:
            allowed = ", ".join(name for name in ROLES if name in self.roles)
            raise Unauthorized("role_not_allowed", tool=self.name, role=role, allowed=allowed)
        if purpose not in self.purposes:
            raise WrongSessionPurpose(tool=self.name, required="/".join(sorted(self.purposes)), purpose=purpose)

    def described(self) -> types.Tool:
        """The tool's entry in `tools/list`. It says that the tool destroys nothing: hosts assume the contrary otherwise
        (MCP, ToolAnnotations)."""
        harmless = types.ToolAnnotations(destructive_hint=False)
        return types.Tool(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=_schema(self.arguments),
            annotations=types.ToolAnnotations(read_only_hint=True) if self.read_only else harmless,
            _meta={"anthropic/alwaysLoad": True} if self.always_load else None,
        )


def _is_number(value: Any) -> bool:
    """Whether a value is a number, and no truth value, which Python and pydantic take for one."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _without_values(annotation: Any, values: Collection[str]) -> Any:
    """The annotation without these values of its literals."""
    if get_origin(annotation) is Literal:
        return Literal[tuple(value for value in get_args(annotation) if value not in values)]
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return Annotated[_without_values(inner, values), *more]
    if get_origin(annotation) in (Union, UnionType):
        return Union[tuple(_without_values(part, values) for part in get_args(annotation))]  # noqa: UP007 - computed
    return annotation


def _without_fields(annotation: Any, names: Collection[str]) -> Any:
    """The annotation of a list of models without these of their fields."""
    (model,) = get_args(annotation)
    fields: dict[str, Any] = {name: (found.annotation, found) for name, found in model.model_fields.items()}
    kept = {name: field for name, field in fields.items() if name not in names}
    items: Any = list
    return items[create_model(model.__name__, __config__=model.model_config, **kept)]


def _as_meant(given: Mapping[str, Any], problems: Iterable[ErrorDetails]) -> dict[str, Any]:
    """The arguments with what was read from the JSON texts among the problems, and without the nulls."""
    read = dict(given)
    for found in problems:
        kind, *_ = found["type"].split("_")
        text = found["input"]
        with suppress(ValueError, RecursionError, LookupError):  # of two problems with one value the first may solve it
            if kind in READ_FROM_JSON and isinstance(text, str):
                read = _replaced(read, found["loc"], json.loads(text))
            elif text is None and kind != "extra":
                read = _replaced(read, found["loc"], None)
    return read


def _replaced(value: Any, path: Sequence[int | str], new: Any) -> Any:
    """A copy of a JSON value with a new one at the path, or without the key whose value is now null."""
    if not path:
        return new
    first, *rest = path
    copy: Any = dict(value) if isinstance(value, Mapping) else list(value)
    copy[first] = _replaced(copy[first], rest, new)
    if copy[first] is None and isinstance(copy, dict):
        del copy[first]
    return copy


def _problem(found: ErrorDetails) -> Reason:
    """The reason why one argument is invalid; kinds that are not in `PROBLEMS` share one text."""
    kind, *_ = found["type"].split("_")
    kind = "unicode" if found["type"] == "string_unicode" else kind
    name = ".".join(map(str, found["loc"]))[:NAME_CHARACTERS] or "arguments"
    limits = {
        limit: int(value) if value == int(value) else value
        for limit, value in found.get("ctx", {}).items()
        if limit in ("ge", "le")
    }
    allowed = found.get("ctx", {}).get("expected", "").replace(" or ", ", ")
    known = kind if kind in PROBLEMS else "other"
    return Reason(f"argument.{known}", name=name, kind=found["type"], allowed=allowed, **limits)


def _schema(arguments: type[BaseModel]) -> dict[str, Any]:
    """The arguments' schema without what a model does not need, about half of pydantic's bytes."""
    schema = arguments.model_json_schema()
    compact: dict[str, Any] = _compact(schema, schema.pop("$defs", {}))
    return compact


def _compact(schema: Any, models: Mapping[str, Any]) -> Any:
    """The schema without what says nothing, nulls, `anyOf` of one option, and references to `models`."""
    if isinstance(schema, list):
        return [_compact(item, models) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if reference := schema.get("$ref"):
        return _compact(models[reference.removeprefix("#/$defs/")], models)
    compact: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            compact[key] = {name: _compact(item, models) for name, item in value.items()}
        elif key == "anyOf":
            options = [item for item in value if item != {"type": "null"}]
            compact |= _compact(options[0], models) if len(options) == 1 else {key: _compact(options, models)}
        elif not _says_nothing(key, value):
            compact[key] = _compact(value, models)
    return compact


def _says_nothing(key: str, value: Any) -> bool:
    """Whether a model can do without the key. Limits of numbers are in descriptions; a refusal names them, too."""
    return (
        key in ("title", "minimum", "maximum")
        or (key == "default" and value is not True)
        or (key == "additionalProperties" and value in (True, False))
    )


def written(tool: str, **arguments: Any) -> str:
    """A call of a tool as a model reads it; arguments that are None are left out."""
    given = (
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items() if value is not None
    )
    return f"{tool}({', '.join(given)})"


# One tool call: the first argument of every tool, and the call's two lines in the execution's log.


@dataclass
class Call:
    """One tool call of a bound process. A tool that counts the unread mail stores the number in `unread`, and one whose
    answer has the briefing sets `carries_briefing`. `still` is what is known if there was nothing to do beside the
    tool, and no interrupt waited, when that was last looked for."""

    binding: Binding
    session: LiveSession
    me: Agent
    confirmation: Confirmation
    still: Stillness | None = None
    unread: int | None = None
    carries_briefing: bool = False

    @property
    def services(self) -> Services:
        return self.binding.services

    @property
    def purpose(self) -> str:
        return self.session.record.purpose

    @property
    def closes_after_logout(self) -> bool:
        """Whether the supervisor opened this window for this session only, and closes it after the logout."""
        return self.binding.closes_after_logout(self.session)

    def how_to_exit(self) -> str:
        """What a session whose work is over has to do: a host that stays ends its turn, one in a window that was opened
        for this session only logs out, whereupon the window is closed."""
        key = "next.chat.exit" if self.purpose == "chat" else "next.exit"
        return self.services.texts(f"{key}.closes" if self.closes_after_logout else key)

    def after_talk(self) -> str:
        """What a chat session has to do when a conversation of its agent has ended."""
        is_over = self.services.chat_action.is_over(self.me, self.session, leaves=self.closes_after_logout)
        return self.how_to_exit() if is_over else self.services.texts("chat.ended")

    def pending(self) -> Pending:
        """What notifications wait now. Raises `StorageError`."""
        upkeep = self.services.upkeep
        self.still = upkeep.still(self.me.id, self.purpose)
        return upkeep.refresh(self.me.id, self.purpose) if self.still is None else self.still.pending

    def interrupted(self) -> bool:
        """Whether an interrupt waits, which ends a waiting call."""
        return self.pending().interrupts

    def fitting(self, answer: Answer, key: str, items: list[Any], how_to_continue: str | None = None) -> Answer:
        """See `AnswerBudget.fitting`."""
        return self.services.answer_budget.fitting(answer, key, items, how_to_continue)

    def page(
        self, answer: Answer, key: str, items: list[Any], next_call: Callable[[Any], str], *, more: bool
    ) -> Answer:
        """See `AnswerBudget.page`; `next_call` is the call that continues after an item."""
        return self.services.answer_budget.page(
            answer, key, items, lambda last: self.services.texts("more.page", call=next_call(last)), more=more
        )


class CallLog:
    """Logs a tool's name, its outcome and duration to the session's running execution; a call that opens an execution
    is logged as its first (docs/protocol.md, Executions). Arguments and answers, which may be long or secret, are never
    logged. Never raises: a log that cannot be written must not fail the call."""

    def __init__(self, call: Call, tool_name: str) -> None:
        self._call = call
        self._tool_name = tool_name
        self._began = time.monotonic()
        self._execution = self._running()
        self._write(f"Calling tool: {tool_name}")

    def close(self, outcome: str) -> None:
        """Writes the line with the outcome; to an execution that the call has opened, first that with the name."""
        if self._execution is None:
            self._execution = self._running()
            self._write(f"Calling tool: {self._tool_name}")
        milliseconds = (time.monotonic() - self._began) * 1000
        self._write(f"Tool result: {outcome} ({self._tool_name}, {milliseconds:.0f} ms)")

    def _running(self) -> Execution | None:
        still = self._call.still
        if self._call.purpose != "task" or (still is not None and not still.works):
            return None
        try:
            return self._call.services.executions.running(self._call.session.record)
        except Refusal as refusal:
            logger.warning("the execution could not be found: %s", refusal)
            return None

    def _write(self, line: str) -> None:
        if self._execution is None:
            return
        try:
            self._call.services.executions.log(self._execution, line)
        except Refusal as refusal:
            logger.warning("the execution log could not be written: %s", refusal)


# The steps around every tool call: interrupts, permission, the tool, the notification field
# (docs/protocol.md, Order of checks, Notification field).
#
# The order of checks is fixed: interrupt, token, role, purpose, owner_waiting, arguments. An answer replaced by an
# interrupt says in `_meta` whether the tool ran; its mail is made unread again.

# Builds MCP results: the same JSON object as text and as structured content (docs/protocol.md, Answers).

EXECUTED = "multi-agent-mcp/executed"


def success(answer: Answer) -> types.CallToolResult:
    """The result with `"success": true` and the tool's answer."""
    return _result({"success": True, **answer})


def refused(refusal: Refusal, texts: Texts, **notices: Any) -> types.CallToolResult:
    """The result with `isError`, the refusal's code, and one sentence that a model can act on."""
    answer = {"success": False, "error": refusal.code, "message": one_line(texts.sentence(refusal)), **notices}
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


EXEMPT_FROM_INTERRUPTS = frozenset({"get_notifications", "authenticate", "logout"})
BEFORE_BINDING = frozenset({"authenticate"})
TOLD_EVERY_SECONDS = 20.0
"""How often the features are told that calls were answered."""


class Middleware:
    """Answers tool calls. Runs on worker threads; several calls may run at once."""

    def __init__(self, binding: Binding, tools: Mapping[str, Tool]) -> None:
        self.binding = binding
        self.services = binding.services
        self.tools = tools
        self._tells_at = 0.0
        self._nothing, self._something = (self._texts(f"notification.{key}") for key in ("none", "some"))

    def call(
        self, name: str, arguments: Mapping[str, Any], confirmation: Confirmation, traceparent: object = None
    ) -> types.CallToolResult:
        """Runs one call in its turn, as a span, and returns its answer; never raises."""
        try:
            confirmation.wait_for_turn()
            with self.services.contributions.ask("recorded", name, traceparent) or called(traceparent) as made:
                result = self.answer(name, arguments, confirmation)
                made.error, made.attributes = outcome(result), self.binding.identity
            return result
        finally:
            confirmation.give_turn()

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
            still = self.services.upkeep.begin(me.id, session.record.purpose)
            call = Call(self.binding, session, me, confirmation, still)
        except Refusal as refusal:
            return refused(refusal, self._texts, notification=self._nothing)
        result = self._bound(call, self.tools[name], arguments)
        if confirmation.complete():
            self.binding.mailbox_was_read()
        if time.monotonic() >= self._tells_at:
            self._tells_at = time.monotonic() + TOLD_EVERY_SECONDS
            self.services.contributions.tell("answered")
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
            message = pending.from_chat.message
            lines = quoted_lines(message)
            notices["_chat_notification"] = {
                "conversation_id": pending.from_chat.conversation_id,
                "message": message if lines == f"> {message}".rstrip() else lines,
                "instruction": pending.from_chat.instruction,
                "from": "self_chat_session",
                "related_task_id": pending.from_chat.task_id,
            }
        if (pause := self._pause(call)) is not None:
            by = pause.sender_id or "system"
            notices["paused"] = {"by": by, "instruction": self._texts("next.paused", by=by)}
        if unread := self._unread(call):
            notices["unread_messages"] = unread
        if quarantined := self._newly_quarantined(call):
            notices["quarantined"] = quarantined
        return notices

    def _pause(self, call: Call) -> Notification | None:
        """The pause that the agent has read and that lasts, for its task session: each answer says so again."""
        if call.purpose != "task" or call.session.record.ended_at is not None:
            return None
        if call.still is not None:
            return call.still.pause
        try:
            return self.services.derived_notices.pause_of(call.me.id)
        except Refusal as refusal:
            logger.warning("whether %s is paused is not known: %s", call.me.id, refusal)
            return None

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
