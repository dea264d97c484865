"""YAML files that a person has written: no key twice, and YAML 1.2's words."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import yaml

from multi_agent_mcp.errors import Reason

_BOOL = "tag:yaml.org,2002:bool"
NOT_YAML = (yaml.YAMLError, ArithmeticError, LookupError, ValueError, TypeError, AttributeError, RecursionError)
"""The errors that PyYAML raises for invalid files: its constructors do not check (`!!bool x`, `!!int ""`)."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A safe loader with YAML 1.2's words: `no`, `on` and dates are texts, as whoever writes a name means them."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, form) for tag, form in rules if tag not in (_BOOL, "tag:yaml.org,2002:timestamp")]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(_BOOL, re.compile("true|True|TRUE|false|False|FALSE"), list("tTfF"))


class _Doubled(yaml.MarkedYAMLError):
    """Raised for a key that a mapping has twice: a parser would drop what the first says."""


def load_yaml(path: Path) -> Any:
    """Loads a YAML file written by a person. Raises `OSError` and `NOT_YAML`."""
    loader = _Loader(path.read_bytes())
    try:
        document = loader.get_single_node()
        if document is None:
            return None
        _require_single_keys(document)
        return loader.construct_document(document)
    finally:
        loader.dispose()


def _require_single_keys(document: yaml.Node) -> None:
    """Raises `_Doubled`. Before anything is constructed, as merging (`<<`) then doubles keys that may differ."""
    seen, waiting = set(), [document]
    while waiting:
        node = waiting.pop()
        if id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
            continue
        lines: dict[tuple[str, str], int] = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (first := lines.get((key.tag, key.value))) is not None:
                    raise _Doubled(context=str(first), problem=key.value, problem_mark=key.start_mark)
                lines[key.tag, key.value] = key.start_mark.line + 1
            waiting.append(value)


def at_line(path: Path, reason: Reason) -> Reason:
    """The reason for a refusal, with the line in which what it names (`agents` are named by their ids) is; as it is,
    if that is not there."""
    name, found = reason.values.get("name"), None
    with suppress(OSError, *NOT_YAML):
        loader = _Loader(path.read_bytes())
        try:
            found = _line_of(loader.get_single_node(), str(name)) if name else None
        finally:
            loader.dispose()
    return reason if found is None else Reason("at_line", reason=reason, line=found)


def _line_of(node: yaml.Node | None, name: str) -> int | None:
    """The line of `checks.tests.run` or `worker-a.ladder[0]`, or of the part of that which is there."""
    if isinstance(node, yaml.SequenceNode) and (place := re.match(r"\[(\d+)\]", name)):
        return int(node.value[int(place[1])].start_mark.line) + 1
    fields = node.value if isinstance(node, yaml.MappingNode) else ()
    parts = [(key.value, key.start_mark.line + 1, value) for key, value in fields if isinstance(key, yaml.ScalarNode)]
    for agents in [value for key, _, value in parts if key == "agents"]:
        records = agents.value if isinstance(agents, yaml.SequenceNode) else ()
        parts += [(_id_of(record), record.start_mark.line + 1, record) for record in records]
    for key, line, value in sorted(parts, key=lambda part: -len(part[0])):
        rest = name.removeprefix(key)
        if key and name.startswith(key) and (not rest or rest[0] in ".["):
            return _line_of(value, rest.lstrip(".")) or line
    return None


def _id_of(record: yaml.Node) -> str:
    fields = record.value if isinstance(record, yaml.MappingNode) else ()
    return next((str(value.value) for key, value in fields if key.value == "id"), "")


def truth(value: Any) -> Any:
    """The truth value that a person has written: `yes` and `on` are true, as in YAML 1.1. Other values as they are."""
    words = {"yes": True, "on": True, "no": False, "off": False}
    return words.get(value.lower(), value) if isinstance(value, str) else value


def yaml_problem(error: Exception) -> OSError | Reason:
    """The reason for a refusal after `load_yaml` failed: the place of the syntax error, or the `OSError`."""
    if isinstance(error, OSError):
        return error
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return Reason("no_yaml")
    if isinstance(error, _Doubled):
        return Reason("doubled_key", name=f"{error.problem:.60}", line=mark.line + 1, first=error.context)
    problem = getattr(error, "problem", None) or ""
    return Reason("no_yaml_at", line=mark.line + 1, column=mark.column + 1, problem=problem)
