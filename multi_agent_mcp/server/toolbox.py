"""The definition of a tool: a function whose signature is its schema, and the roles and purposes that may call it.

No output schema is advertised, because clients would reject the answers that the middleware replaces. Every agent pays
for the whole list in its context, so schemas are kept minimal.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import mcp_types as types
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, create_model
from pydantic_core import ErrorDetails

from multi_agent_mcp.domain.agent import PURPOSES, ROLES
from multi_agent_mcp.errors import InvalidArguments, Reason, Unauthorized, WrongSessionPurpose

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


JsonObject = Annotated[dict[str, Any], BeforeValidator(from_json_text)]


@dataclass(frozen=True)
class Tool:
    """A tool. `fn(call, …)` returns a JSON object or raises a refusal."""

    fn: Callable[..., Answer]
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
        """The tool's entry in `tools/list`."""
        return types.Tool(
            name=self.name,
            description=inspect.cleandoc(self.fn.__doc__ or ""),
            input_schema=_compact(self.arguments.model_json_schema()),
            annotations=types.ToolAnnotations(read_only_hint=True) if self.read_only else None,
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


def _compact(schema: Any) -> Any:
    """The schema without titles, nulls and `anyOf` of one option: 40 % fewer bytes, nothing that a model needs."""
    if isinstance(schema, list):
        return [_compact(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    compact: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            compact[key] = {name: _compact(item) for name, item in value.items()}
        elif key == "anyOf":
            options = [item for item in value if item != {"type": "null"}]
            compact |= _compact(options[0]) if len(options) == 1 else {key: _compact(options)}
        elif not _says_nothing(key, value):
            compact[key] = _compact(value)
    return compact


def _says_nothing(key: str, value: Any) -> bool:
    return (
        key == "title"
        or (key == "default" and value in (None, ""))
        or (key == "additionalProperties" and value in (True, False))
    )
