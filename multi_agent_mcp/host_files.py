"""The files of hosts into which our entries are merged beside those of others: JSON, and tables of Codex's TOML."""

from __future__ import annotations

import json
import math
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import tomlkit
import tomlkit.items
from tomlkit.exceptions import TOMLKitError

from multi_agent_mcp.errors import InvalidArguments, Reason
from multi_agent_mcp.hosts import SERVER_NAME
from multi_agent_mcp.system.other_files import FileChange, read_external

AGENT = "MULTI_AGENT_MCP_AGENT"
IDENTITY = ("MULTI_AGENT_MCP_ROOT", "MULTI_AGENT_MCP_SESSION", AGENT)
_START = re.compile(rb"""(\S+?)["',\s]+-m["',\s]+multi_agent_mcp\b""")
"""How a host's file starts our program, and the word before."""


def is_our_hook(hook: object) -> bool:
    """Returns whether an entry in a host's file is a hook that we wrote, for any agent."""
    return isinstance(hook, dict) and " multi_agent_mcp hook --host " in str(hook.get("command"))


SERVERS = "mcp_servers"
"""The table of servers in Codex's TOML."""


class Unmergeable(Exception):
    """Raised for a file into which our entries cannot be merged."""

    def __init__(self, key: str, /, **values: str) -> None:
        self.reason = Reason(key, **values)
        super().__init__(self.reason)


def imports_from_the_project(path: Path) -> bool:
    """Returns whether a file starts our program as an earlier version did, with the working directory on its path."""
    return any(not found[1].endswith(b"-P") for found in _START.finditer(read_external(path) or b""))


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
    """Returns a merge that sets our table in a TOML document, whose other tables and comments stay as they are."""

    def merge(before: bytes | None) -> bytes:
        text = _decoded(before or b"")
        old, document = _parsed_toml(text)
        servers = _table(old.get(SERVERS, {}))
        if servers.get(SERVER_NAME) == wanted and before is not None:
            return before
        if SERVER_NAME in servers and not any(_identities(servers[SERVER_NAME])):
            raise Unmergeable("foreign_entry", name=f"[{SERVERS}.{SERVER_NAME}]")
        if SERVERS not in document:
            document[SERVERS] = tomlkit.table(is_super_table=True)
        if isinstance(document[SERVERS], tomlkit.items.InlineTable):
            raise Unmergeable("table_changes_others")  # on its one line there is no room for a table
        document[SERVERS][SERVER_NAME] = _as_toml(wanted)
        new = tomlkit.dumps(document)
        if tomllib.loads(new) != {**old, SERVERS: {**servers, SERVER_NAME: dict(wanted)}}:
            raise Unmergeable("table_changes_others")  # a fault in the library must not damage a person's settings
        return new.encode()

    return merge


def _as_toml(wanted: Mapping[str, Any]) -> tomlkit.items.Table:
    """Returns a table, with mappings in it on one line."""
    table = tomlkit.table()
    for key, value in wanted.items():
        inner = tomlkit.inline_table()
        table.add(key, inner.update(value) or inner if isinstance(value, Mapping) else tomlkit.item(value))
    return table


def agents_in(data: bytes | None, *, toml: bool) -> set[Identity]:
    """Returns the agents named in a file's servers and hooks."""
    parsed = _parsed_toml(_decoded(data or b""))[0] if toml else _parsed_json(data)
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
        old = [old] if where == "fileName" and isinstance(old, str) else old
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


def _parsed_toml(text: str) -> tuple[dict[str, Any], tomlkit.TOMLDocument]:
    """Parses TOML: as plain values, and as a document that keeps comments and order. Raises `Unmergeable`."""
    try:
        return tomllib.loads(text), tomlkit.parse(text)
    except (tomllib.TOMLDecodeError, TOMLKitError, RecursionError) as error:
        raise Unmergeable("no_toml", problem=str(error)) from error


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Unmergeable("no_table", name=SERVERS)
    return value


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unmergeable("no_utf8") from error


@dataclass(frozen=True)
class HostFile:
    """One file of a host. `merge` makes its new content from the old one."""

    path: Path
    merge: Merge

    @property
    def content(self) -> str:
        """The content if the file does not exist yet."""
        return self.merge(None).decode().rstrip("\n")

    @property
    def agents(self) -> set[Identity]:
        """The agents that the file names; none if it cannot be read as what it should be."""
        try:
            return agents_in(read_external(self.path), toml=self.path.suffix == ".toml")
        except Unmergeable:
            return set()

    def other_agents(self) -> set[Identity]:
        """Returns the agents of existing sessions that the file serves and that writing it would cut off; none if our
        content names no agent."""
        mine = agents_in(self.merge(None), toml=self.path.suffix == ".toml")
        found = self.agents if mine else set()  # `change` raises for a file that cannot be merged
        return {other for other in found - mine if Path(other.root, other.session).is_dir()}

    def change(self) -> FileChange:
        """Returns the change of the file. Raises `InvalidArguments` if its content cannot be merged with ours, and
        `StorageError` if it cannot be read."""
        before = read_external(self.path)
        try:
            return FileChange(self.path, before, self.merge(before))
        except Unmergeable as error:
            raise InvalidArguments("bad_host_file", file=self.path, reason=error.reason) from error


def merge_of(name: str, content: Any) -> Merge:
    """Returns the merge for a file: text, and a plugin's files in a directory of their own, are ours and replaced;
    tables and JSON entries are merged into the user's file."""
    if isinstance(content, str):
        return whole(content)
    if "/" in name and not name.startswith("."):
        return whole(as_json(content))
    return toml_merge(content) if name.endswith(".toml") else json_merge(content)
