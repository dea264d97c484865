"""An agent's rules in its host's own permission settings (docs/hosts.md, Rules in a host): the field `rules` of
`hosts/*.yaml`, filled. What a host cannot say the hook before a tool judges alone."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from multi_agent_mcp.domain.patterns import EXCEPTION
from multi_agent_mcp.domain.shell import EVERY_COMMAND

if TYPE_CHECKING:
    from multi_agent_mcp.hosts import RulesPlace
    from multi_agent_mcp.settings import Rules

EXPRESSION_MAX = 2_048
"""Gemini CLI ignores longer regular expressions."""
PROFILE = "multi_agent_mcp"
_PATTERN_SIGNS = re.compile(r"[*?\[\\]")


class HostRules(NamedTuple):
    """How a host gets the rules: `words` in place of `{mcp_config}`, `values` in its files. `bound` are the rules that
    the host itself then enforces on every call of its model."""

    words: str = ""
    values: Mapping[str, Any] = {}
    bound: frozenset[str] = frozenset()


NO_RULES = HostRules()


class _Files(NamedTuple):
    """The files that may be edited: of the paths, relative to the working tree, at or above a file, the longest one
    tells whether it is one. `is_all`: the patterns say no more than this; else they allow less."""

    paths: Sequence[tuple[str, bool]]
    is_all: bool


class _Ruled(NamedTuple):
    """What an agent may not run, which files of `tree` it may edit (None: all), and whether it works at its top."""

    denied: Sequence[str]
    files: _Files | None
    tree: str
    is_at_top: bool


def compiled(place: RulesPlace, rules: Sequence[Rules], tree: str, *, is_at_top: bool) -> HostRules:
    """The rules for a host that works in this working tree. Of several with `edits` the last counts, what was approved,
    and is not `bound`: the hook judges by each."""
    edits = list(dict.fromkeys(one.edits for one in rules if one.edits is not None))
    denied = tuple(dict.fromkeys(command for one in rules for command in one.deny))
    if not edits and not denied:
        return NO_RULES
    files = _files(edits[-1], tree) if edits else None
    found = _FORMS[place.form](place, _Ruled(denied, files, tree, is_at_top))
    bound = set(found.bound) if len(edits) < 2 else set(found.bound) - {"edits"}
    if EVERY_COMMAND in denied:
        bound.add("commands")
    elif not place.binds_shell:
        bound.discard("edits")
    return found._replace(bound=frozenset(bound))


def _files(edits: Sequence[str], tree: str) -> _Files:
    """As `domain.matching.matches` has it: of the patterns that match a file's whole path (`src/**`) the last counts,
    and only where there is none the last that matches a directory above it (`/src`)."""
    whole: dict[str, bool] = {}
    above: dict[str, bool] = {}
    guessed: set[str] = set()
    is_all = True
    for pattern in edits:
        path, is_included = _plain(pattern), not pattern.startswith(EXCEPTION)
        is_all = is_all and path is not None
        if path is None and not is_included:
            continue
        if path is None or pattern.endswith("*"):
            found = whole
        else:
            guessed |= set() if Path(tree, path).exists() else {path}
            found = whole if Path(tree, path).is_file() or (is_included and path in guessed) else above
        for other in [other for other in found if _is_within(other, path or "")]:
            del found[other]
        found[path or ""] = is_included

    def is_covered(path: str, by: Mapping[str, bool]) -> bool:
        return any(_is_within(path, other) for other in by if other != path)

    paths = sorted({**{path: above[path] for path in above if not is_covered(path, whole)}, **whole}.items())
    # whether it becomes a file or a directory is not known
    is_all = is_all and not any(is_covered(path, whole) or is_covered(path, above) for path in guessed)
    return _Files([one for one in paths if one[1] or _above(paths, one[0])], is_all)


def _plain(pattern: str) -> str | None:
    """The path which, with all that is below it, is what a pattern matches; None if there is no one such path."""
    text = pattern.removeprefix(EXCEPTION)
    if text in ("*", "**", "/**", "**/*"):
        return ""
    if "/" not in text.rstrip("/"):
        return None  # at any depth
    path = text.removesuffix("/**").strip("/")
    return None if _PATTERN_SIGNS.search(path) else path


def _is_within(path: str, above: str) -> bool:
    return not above or path == above or path.startswith(f"{above}/")


def _above(paths: Sequence[tuple[str, bool]], path: str) -> bool:
    """Whether something above the path is included."""
    return any(is_included and _is_within(path, other) for other, is_included in paths if other != path)


def _options(place: RulesPlace, ruled: _Ruled) -> HostRules:
    """Options that each deny one thing, and can make no exceptions: Claude Code's and Copilot CLI's."""
    denied = [form.format(words=words) for words in ruled.denied for form in place.command]
    if EVERY_COMMAND in ruled.denied:
        denied = [*place.every_command]
    bound = set()
    if ruled.files is not None and not any(is_included for _, is_included in ruled.files.paths):
        denied += place.every_edit
        bound = {"edits"} if ruled.files.is_all else set()
    elif ruled.files is not None:
        kept = [path for path, is_included in ruled.files.paths if not is_included]
        whole = [path for path in kept if not any(_is_within(one, path) for one, is_in in ruled.files.paths if is_in)]
        at = [re.sub(_PATTERN_SIGNS, r"\\\g<0>", f"{ruled.tree}/{path}") for path in whole]
        denied += [form.format(path=path) for path in at for form in place.edit]
    words = " ".join(shlex.quote(f"{place.option}={one}") for one in denied)
    return HostRules(words, bound=frozenset(bound))


def _plugin(place: RulesPlace, ruled: _Ruled) -> HostRules:
    """What OpenCode's plugin of ours sets after all settings were read."""
    commands = ["*"] if EVERY_COMMAND in ruled.denied else ruled.denied
    permission: dict[str, Any] = {"bash": [form.format(words=words) for words in commands for form in place.command]}
    if ruled.files is not None:
        paths = [("*", False)]
        for path, is_included in ruled.files.paths:
            paths += [(pattern, is_included) for pattern in ((path, f"{path}/*") if path else ("*",))]
        permission["edit"] = [*paths, ("../*", False)]
    bound = frozenset({"edits"} if ruled.files is not None and ruled.files.is_all else ())
    return HostRules("", {"permission": json.dumps(permission, ensure_ascii=False)}, bound)


def _policy(place: RulesPlace, ruled: _Ruled) -> HostRules:
    """A file of Gemini CLI's policy engine, whose expressions are matched with a call's arguments as JSON."""
    bound: frozenset[str] = frozenset()
    rules: list[dict[str, Any]] = []
    if EVERY_COMMAND in ruled.denied:
        rules.append({"toolName": place.every_command})
    elif ruled.denied:
        rules.append({"toolName": place.every_command, "commandPrefix": ruled.denied})
    if (files := ruled.files) is not None:
        is_any = any(is_included for _, is_included in files.paths)
        expressions = (_not_among(files, ruled), r'"file_path":"[^"]*\.\.') if is_any else ()
        if fits := all(len(one) <= EXPRESSION_MAX for one in expressions):
            rules += [{"toolName": place.every_edit, "argsPattern": one} for one in expressions]
        rules += [] if is_any else [{"toolName": place.every_edit}]
        bound = frozenset({"edits"} if files.is_all and fits else ())
    text = "".join(
        "[[rule]]\n" + "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in rule.items())
        for rule in ({**rule, "decision": "deny", "priority": 999} for rule in rules)
    )
    return HostRules(place.words, {"policy": text}, bound)


def _not_among(files: _Files, ruled: _Ruled) -> str:
    """The expression for every path that is not one of the files. It repeats no group: Gemini CLI takes such ones for
    slow, and ignores them."""
    among = []
    for beginning in (f"{ruled.tree}/", *([""] if ruled.is_at_top else [])):
        for path, is_included in files.paths:
            if is_included:
                at = f"{'' if beginning else '(?!/)'}{_quoted(beginning + path)}{_END if path else ''}"
                among.append(at + "".join(_but(files, path)))
    return f'"file_path":"(?!{"|".join(among)})'


_END = '(?=[/"])'


def _but(files: _Files, path: str) -> Iterator[str]:
    for other, is_included in files.paths:
        if not is_included and other != path and _is_within(other, path):
            yield f"(?!{_quoted(other.removeprefix(path) if path else other)}{_END})"


def _quoted(path: str) -> str:
    return re.escape(json.dumps(path, ensure_ascii=False)[1:-1])


def _profile(place: RulesPlace, ruled: _Ruled) -> HostRules:
    """Codex's permission profile, which the system holds every command to as well."""
    settings: list[str] = [*place.every_command] if EVERY_COMMAND in ruled.denied else []
    if ruled.files is not None:
        granted: dict[str, Any] = {":workspace_roots": {".": "read"}, ruled.tree: "read"}
        granted |= {f"{ruled.tree}/{path}".rstrip("/"): ("read", "write")[is_in] for path, is_in in ruled.files.paths}
        settings += [f'default_permissions="{PROFILE}"', f'permissions.{PROFILE}.extends=":workspace"']
        settings.append(f"permissions.{PROFILE}.filesystem={_inline(granted)}")
    bound = frozenset({"edits"} if ruled.files is not None and ruled.files.is_all else ())
    return HostRules(" ".join(f"{place.option} {shlex.quote(one)}" for one in settings), bound=bound)


def _inline(value: Any) -> str:
    """A mapping as TOML on one line, whose keys are no bare ones."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_inline(item)}" for key, item in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


_FORMS: Mapping[str, Callable[[RulesPlace, _Ruled], HostRules]] = {
    "options": _options,
    "plugin": _plugin,
    "policy": _policy,
    "profile": _profile,
}
