"""The definition of a tool: a function whose signature is its schema, and the roles and purposes that may call it.

No output schema is advertised, because clients would reject the answers that the middleware replaces. Every agent pays
for the whole list in its context, so schemas are kept minimal.
"""

from __future__ import annotations

import inspect
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import mcp_types as types
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, WithJsonSchema, create_model
from pydantic_core import ErrorDetails

from multi_agent_mcp.domain.agent import PURPOSES, ROLES
from multi_agent_mcp.errors import InvalidArguments, Reason, Refusal, Unauthorized, WrongSessionPurpose
from multi_agent_mcp.services.notifications.notifications import NOTHING

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.session import Execution
    from multi_agent_mcp.server.binding import Binding
    from multi_agent_mcp.services.notifications.notifications import Pending
    from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
    from multi_agent_mcp.services.sessions.confirmation import Confirmation
    from multi_agent_mcp.services.upkeep import Stillness
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
    {"missing", "extra", "string", "int", "float", "finite", "bool", "dict", "model", "list", "literal"}
    | {"greater", "less"}
)
"""The kinds of invalid arguments, by the first word of pydantic's error type: `why.argument.{kind}` in the
catalogue."""
PROBLEMS_SHOWN = 5
NAME_CHARACTERS = 80


def from_json_text(value: Any) -> Any:
    """A validator that parses JSON text: some models pass objects and lists so."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


UNLISTED = WithJsonSchema({"type": "string"})
"""For a filter by words that another tool's schema lists; a wrong one is answered with all of them."""

JsonObject = Annotated[dict[str, Any], BeforeValidator(from_json_text)]


@dataclass(frozen=True)
class Tool:
    """A tool. `fn(call, …)` returns a JSON object or raises a refusal; `title` is what hosts show to people."""

    fn: Callable[..., Answer]
    title: str
    roles: frozenset[str] = EVERYBODY
    purposes: frozenset[str] = BOTH
    read_only: bool = False
    always_load: bool = False

    @property
    def name(self) -> str:
        return self.fn.__name__

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """The arguments' model, from the function's signature without its first parameter."""
        parameters = list(inspect.signature(self.fn, eval_str=True).parameters.values())[1:]
        specs: dict[str, Any] = {
            parameter.name: (
                parameter.annotation,
                ... if parameter.default is inspect.Parameter.empty else parameter.default,
            )
            for parameter in parameters
        }
        return create_model(self.name, __config__=ConfigDict(extra="forbid"), **specs)

    def parse(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Validates the arguments and returns them typed. Raises `InvalidArguments` with the first problems."""
        try:
            model = self.arguments.model_validate(given)
        except ValidationError as error:
            problems = error.errors(include_url=False)[:PROBLEMS_SHOWN]
            raise InvalidArguments(reason=tuple(map(_problem, problems))) from error
        return {name: getattr(model, name) for name in type(model).model_fields}

    def require_allowed(self, role: str, purpose: str) -> None:
        """Raises `Unauthorized` or `WrongSessionPurpose` with the reason."""
        if role not in self.roles:
            allowed = ", ".join(name for name in ROLES if name in self.roles)
            raise Unauthorized("role_not_allowed", tool=self.name, role=role, allowed=allowed)
        if purpose not in self.purposes:
            raise WrongSessionPurpose(tool=self.name, required="/".join(sorted(self.purposes)), purpose=purpose)

    def described(self) -> types.Tool:
        """The tool's entry in `tools/list`. Nothing that a tool does destroys what was there, which hosts assume of one
        that says nothing (MCP, ToolAnnotations)."""
        harmless = types.ToolAnnotations(destructive_hint=False)
        return types.Tool(
            name=self.name,
            title=self.title,
            description=inspect.cleandoc(self.fn.__doc__ or ""),
            input_schema=_schema(self.arguments),
            annotations=types.ToolAnnotations(read_only_hint=True) if self.read_only else harmless,
            _meta={"anthropic/alwaysLoad": True} if self.always_load else None,
        )


def _problem(found: ErrorDetails) -> Reason:
    """The reason why one argument is invalid; kinds that are not in `PROBLEMS` share one text."""
    kind, *_ = found["type"].split("_")
    name = ".".join(map(str, found["loc"]))[:NAME_CHARACTERS] or "arguments"
    limits = {
        limit: int(value) if value == int(value) else value
        for limit, value in found.get("ctx", {}).items()
        if limit in ("ge", "le")
    }
    allowed = found.get("ctx", {}).get("expected", "").replace(" or ", ", ")
    known = kind if kind in PROBLEMS else "other"
    return Reason(f"argument.{known}", name=name, kind=found["type"], allowed=allowed, **limits)


def by_name(tools: Iterable[Tool]) -> Mapping[str, Tool]:
    return {tool.name: tool for tool in tools}


def _schema(arguments: type[BaseModel]) -> dict[str, Any]:
    """The arguments' schema without what a model does not need, about half of pydantic's bytes."""
    schema = arguments.model_json_schema()
    compact: dict[str, Any] = _compact(schema, schema.pop("$defs", {}))
    return compact


def _compact(schema: Any, models: Mapping[str, Any]) -> Any:
    """The schema without titles, nulls, obvious limits and defaults, `anyOf` of one option, and references to
    `models`."""
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
        elif not _says_nothing(key, value, schema):
            compact[key] = _compact(value, models)
    return compact


def _says_nothing(key: str, value: Any, schema: Mapping[str, Any]) -> bool:
    return (
        key == "title"
        or (key == "default" and (not value or "enum" in schema))
        or (key == "minimum" and value in (0, 1))
        or (key == "additionalProperties" and value in (True, False))
    )


# One tool call: the first argument of every tool, and the call's two lines in the execution's log.


@dataclass
class Call:
    """One tool call of a bound process. A tool that counts the unread mail stores the number in `unread`, and one whose
    answer has the briefing sets `carries_briefing`. `still` is what is known if there was nothing to do beside the tool
    when it was last looked for."""

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

    def pending(self) -> Pending:
        """What notifications wait now. Raises `StorageError`."""
        upkeep = self.services.upkeep
        self.still = upkeep.still(self.me.id)
        return NOTHING if self.still is not None else upkeep.refresh(self.me.id, self.purpose)

    def interrupted(self) -> bool:
        """Whether an interrupt waits, which ends a waiting call."""
        return self.pending().interrupts

    def fitting(self, answer: Answer, key: str, items: list[Any], how_to_continue: str | None = None) -> Answer:
        """See `AnswerBudget.fitting`."""
        return self.services.answer_budget.fitting(answer, key, items, how_to_continue)


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
