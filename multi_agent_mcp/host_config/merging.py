"""Merges our entries into files that also have others: those are kept, and merging again changes nothing."""

from __future__ import annotations

import json
import math
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from multi_agent_mcp.errors import Reason
from multi_agent_mcp.host_config.templates import AGENT, IDENTITY, SERVER_NAME, is_our_hook, toml_table

BEGIN = "# >>> multi-agent-mcp >>> written by `multi-agent-mcp host-config`"
END = "# <<< multi-agent-mcp <<<"
TABLE = f"mcp_servers.{SERVER_NAME}"


class Unmergeable(Exception):
    """Raised for a file into which our entries cannot be merged."""

    def __init__(self, key: str, /, **values: str) -> None:
        self.reason = Reason(key, **values)
        super().__init__(self.reason)


class Identity(NamedTuple):
    """The identity of an agent among all sessions of this machine."""

    root: str
    session: str
    agent_id: str


Merge = Callable[[bytes | None], bytes]
_SERVERS_BY = frozenset({"command", "url", "httpUrl"})
"""The keys of which an entry for a server has one; an entry without them was written by a person to add to ours."""


def json_merge(wanted: Mapping[str, Any]) -> Merge:
    """Returns a merge into a JSON object, key by key."""

    def merge(before: bytes | None) -> bytes:
        old = _parsed_json(before)
        _require_ours(old, wanted)
        new = _merged(old, wanted, "")
        if before is not None and new == old:
            return before
        return as_json(new).encode(errors="backslashreplace")  # a lone surrogate becomes JSON's escape for it

    return merge


def whole(wanted: str) -> Merge:
    """Returns a merge that replaces the whole file, as all of it is ours."""
    return lambda before: wanted.encode()  # noqa: ARG005 - whatever was there


def toml_merge(wanted: Mapping[str, Any]) -> Merge:
    """Returns a merge that replaces or appends the table between our markers; other tables keep their values."""

    def merge(before: bytes | None) -> bytes:
        text = _decoded(before or b"")
        old = _parsed_toml(text)
        if BEGIN not in text and SERVER_NAME in _table(old.get("mcp_servers", {})):
            raise Unmergeable("foreign_entry", name=f"[{TABLE}]")
        new = _with_block(text, f"{BEGIN}\n{toml_table(TABLE, wanted)}\n{END}\n")
        expected = {**old, "mcp_servers": {**_table(old.get("mcp_servers", {})), SERVER_NAME: dict(wanted)}}
        if _parsed_toml(new) != expected:
            raise Unmergeable("table_changes_others")
        return new.encode()

    return merge


def agents_in(data: bytes | None, *, toml: bool) -> set[Identity]:
    """Returns the agents named in a file's servers and hooks."""
    parsed = _parsed_toml(_decoded(data or b"")) if toml else _parsed_json(data)
    return {identity for identity in _identities(parsed) if all(identity) and not identity.agent_id.startswith("$")}


def _identities(value: Any) -> Iterator[Identity]:
    if isinstance(value, list):
        for item in value:
            yield from _identities(item)
    if not isinstance(value, dict):
        return
    if AGENT in value:
        yield Identity(*(str(value.get(name, "")) for name in IDENTITY))
    if is_our_hook(value):
        yield _of_hook(value["command"])
    for item in value.values():
        yield from _identities(item)


def _of_hook(command: str) -> Identity:
    try:
        words = shlex.split(command)
    except ValueError:  # a person has changed it
        return Identity("", "", "")
    given = dict(pairwise(words))
    return Identity(given.get("--root", ""), given.get("--session", ""), given.get("--agent", ""))


def _require_ours(old: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raises `Unmergeable` if a server that is not ours has our name."""
    for key, servers in wanted.items():
        present = old.get(key)
        if not isinstance(present, dict) or SERVER_NAME not in servers:
            continue
        entry = present.get(SERVER_NAME)
        if isinstance(entry, dict) and entry.keys() & _SERVERS_BY and not any(_identities(entry)):
            raise Unmergeable("foreign_entry", name=f"{key}.{SERVER_NAME}")


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def _merged(old: Any, wanted: Any, where: str) -> Any:
    """Returns `old` merged with `wanted`: objects key by key; missing items are appended to lists, except command
    lines, which are replaced; our hooks replace our earlier ones. Raises `Unmergeable`."""
    if isinstance(wanted, Mapping):
        if not isinstance(old, dict):
            raise Unmergeable("no_object", name=where)
        merge = _merged_hooks if where == "hooks" else _merged
        return {
            **old,
            **{key: merge(old[key], value, key) if key in old else value for key, value in wanted.items()},
        }
    if isinstance(wanted, list) and where not in ("args", "command"):
        if not isinstance(old, list):
            raise Unmergeable("no_list", name=where)
        return [*old, *(item for item in wanted if item not in old)]
    return wanted


def _merged_hooks(old: Any, wanted: list[dict[str, Any]], event: str) -> list[Any]:
    """Returns an event's groups, unchanged if our hooks are as wanted; else ours are removed and appended again."""
    if not isinstance(old, list):
        raise Unmergeable("no_list", name=f"hooks.{event}")
    present = [hook for group in old for hook in _hooks_of(group) if is_our_hook(hook)]
    if present == [hook for group in wanted for hook in group["hooks"]]:
        return old
    others = [_without_ours(group) for group in old]
    return [*(group for group in others if group is not None), *wanted]


def _without_ours(group: Any) -> Any:
    """Returns the group without our hooks; None if it has no others."""
    hooks = _hooks_of(group)
    kept = [hook for hook in hooks if not is_our_hook(hook)]
    if len(kept) == len(hooks):
        return group
    return {**group, "hooks": kept} if kept else None


def _hooks_of(group: Any) -> list[Any]:
    hooks = group.get("hooks") if isinstance(group, dict) else None
    return hooks if isinstance(hooks, list) else []


def _with_block(text: str, block: str) -> str:
    head, begin, rest = text.partition(BEGIN)
    if not begin:
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        return f"{text}{gap}{block}"
    _, end, tail = rest.partition(END)
    if not end or BEGIN in tail:
        raise Unmergeable("markers_damaged")
    return head + block + tail.removeprefix("\r").removeprefix("\n")


def _parsed_json(data: bytes | None) -> dict[str, Any]:
    """Parses a JSON object; an empty file is an empty object. Raises `Unmergeable`, also for a duplicate key, as one of
    its values would be lost."""
    if data is None or not data.strip():
        return {}
    try:
        value = json.loads(_decoded(data), object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        raise Unmergeable("no_plain_json") from error
    if not isinstance(value, dict):
        raise Unmergeable("no_json_object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Unmergeable("key_twice")
    return found


def _finite(number: str) -> float:
    """Parses a number. Raises `ValueError` for NaN and infinity, which JSON cannot represent."""
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(number)
    return value


def _parsed_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Unmergeable("no_toml", problem=str(error)) from error


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Unmergeable("no_table", name="mcp_servers")
    return value


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unmergeable("no_utf8") from error
