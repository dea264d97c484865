"""What is known of the programs agents run in: profiles, one YAML file per host, data instead of code.

A file `{root}/hosts/{name}.yaml` adds a profile or replaces fields of one, so that a host's new screen is mended
without a release. A file that cannot be used is said aloud and left out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

logger = logging.getLogger(__name__)

GENERIC, SHELL = "generic", "shell"
_KEY = re.compile(r"[A-Za-z0-9-]{1,16}")
_NOT_POSIX = re.compile(r"\\[A-Za-z0-9]|\(\?|[*+?}]\?")


@dataclass(frozen=True)
class ComposerShape:
    """Where the human's line stands: the row that `prompt` begins, between a row like `above` and one like `below`.
    `column` is the cursor's in an empty one; `modes` are other prompts and the state they mean."""

    prompt: re.Pattern[str]
    above: re.Pattern[str]
    below: re.Pattern[str]
    column: int = 2
    cursor_flag: bool | None = None
    placeholder_required: bool = False
    placeholders: tuple[re.Pattern[str], ...] = ()
    modes: Mapping[str, re.Pattern[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class View:
    """Something else than the composer, recognised by one row below it (or anywhere, without one) or by the title."""

    state: str
    text: re.Pattern[str] | None = None
    title: re.Pattern[str] | None = None


@dataclass(frozen=True)
class Profile:
    """One host. Without a `composer` its screen is not read; with `never` nothing is typed."""

    name: str
    commands: tuple[str, ...] = ()
    wrappers: tuple[str, ...] = ()
    never: bool = False
    submit: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"idle": ("Enter",), "busy": ("Enter",)})
    pause_seconds: float | None = None
    composer: ComposerShape | None = None
    views: tuple[View, ...] = ()
    busy_title: re.Pattern[str] | None = None
    busy_screen: re.Pattern[str] | None = None
    gates: tuple[str, ...] = ()

    def runs_as(self, command: str) -> bool:
        """Whether this foreground command is this host."""
        return any(re.fullmatch(pattern, command) for pattern in self.commands)

    def may_run_as(self, command: str) -> bool:
        """Whether the command may be this host in an interpreter (an npm shim): only the screen can tell."""
        return command in self.wrappers


@dataclass(frozen=True)
class Profiles:
    """Every known host, by name."""

    named: Mapping[str, Profile]

    @property
    def generic(self) -> Profile:
        return self.named[GENERIC]

    @property
    def shells(self) -> str:
        """A POSIX expression of the commands that are shells."""
        return f"^({'|'.join(self.named[SHELL].commands)})$"

    def is_shell(self, command: str) -> bool:
        return self.named[SHELL].runs_as(command)

    def candidates(self, host: str | None, command: str) -> tuple[Profile, ...]:
        """The host that the agent's record names; else the one this foreground command is; else those it may be,
        for the screen to decide. None of them: `generic`."""
        if host is not None:
            return (self.named.get(host, self.generic),)
        hosts = [profile for profile in self.named.values() if profile.composer is not None or profile.never]
        if known := [profile for profile in hosts if profile.runs_as(command)]:
            return (known[0],)
        return (*(profile for profile in hosts if profile.may_run_as(command)), self.generic)


def load_profiles(extra: Path | None = None) -> Profiles:
    """The profiles that come with the program, and on top of them those in the directory `extra`."""
    data: dict[str, dict[str, Any]] = {}
    for path in _files(Path(__file__).parent):
        data[path.stem] = _read(path)
    named = {name: _profile(name, fields) for name, fields in data.items()}
    for path in _files(extra) if extra is not None else ():
        try:
            named[path.stem] = _profile(path.stem, {**data.get(path.stem, {}), **_read(path)})
        except (OSError, yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError, re.error) as error:
            logger.warning("hosts/%s is left out: %s", path.name, " ".join(str(error).split())[:200])
    return Profiles(named)


def _files(directory: Path) -> Iterable[Path]:
    return sorted(directory.glob("*.yaml")) if directory.is_dir() else ()


def _read(path: Path) -> dict[str, Any]:
    data = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe loaders
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    return data


def _profile(name: str, data: Mapping[str, Any]) -> Profile:
    busy = data.get("busy") or {}
    pause = data.get("pause_seconds")
    return Profile(
        name=name,
        commands=tuple(_posix(text) for text in data.get("commands") or ()),
        wrappers=tuple(data.get("wrappers") or ()),
        never=bool(data.get("never")),
        submit={state: _keys(keys) for state, keys in (data.get("submit") or {}).items()} or Profile(name).submit,
        pause_seconds=None if pause is None else float(pause),
        composer=_composer(data["composer"]) if data.get("composer") else None,
        views=tuple(
            View(str(view["state"]), _pattern(view.get("text")), _pattern(view.get("title")))
            for view in data.get("views") or ()
        ),
        busy_title=_pattern(busy.get("title")),
        busy_screen=_pattern(busy.get("screen")),
        gates=tuple(_posix(text) for text in data.get("gates") or ()),
    )


def _composer(data: Mapping[str, Any]) -> ComposerShape:
    return ComposerShape(
        prompt=re.compile(data["prompt"]),
        above=re.compile(data["above"]),
        below=re.compile(data["below"]),
        column=int(data.get("column", 2)),
        cursor_flag=data.get("cursor_flag"),
        placeholder_required=bool(data.get("placeholder_required")),
        placeholders=tuple(re.compile(text) for text in data.get("placeholders") or ()),
        modes={state: re.compile(text) for state, text in (data.get("modes") or {}).items()},
    )


def _keys(names: Any) -> tuple[str, ...]:
    """Names of keys for `send-keys`; nothing that tmux could read as something else."""
    keys = tuple([names] if isinstance(names, str) else names)
    if not keys or not all(_KEY.fullmatch(key) for key in keys):
        raise ValueError(f"not the names of keys: {names!r}")
    return keys


def _pattern(text: str | None) -> re.Pattern[str] | None:
    return None if text is None else re.compile(text)


def _posix(text: str) -> str:
    """An expression that Python and tmux (regcomp) read alike. tmux takes a broken one for "not on the screen"."""
    re.compile(text)
    if _NOT_POSIX.search(text):
        raise ValueError(f"not a POSIX extended expression: {text!r}")
    return text
