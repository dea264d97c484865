"""What is known of the programs agents run in: profiles, one YAML file per host, data instead of code.

A file `{root}/hosts/{name}.yaml` adds a profile or replaces fields of one, so that a host's new screen is fixed
without a release. A file that cannot be used is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from multi_agent_mcp.config import NOT_YAML, load_yaml
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.notify.tmux.profiles.choices import ChoiceShape, choice_shape
from multi_agent_mcp.system.foreground import Foreground, Process, foreground

PLAIN, SHELL = "plain", "shell"
"""The profile an agent's record may declare for a program that reads lines; the list of shells."""
UNKNOWN_HOST = "unknown_host"
"""The reason for a program that no profile describes, and for one that has taken the place of a registered one."""
PROMPT = "{prompt}"
"""Where a command line takes the first prompt."""
LONGEST_PAUSE = 10
"""Seconds."""
Never = Literal["always", "unless_registered"]
_KEY = re.compile(r"[A-Za-z0-9-]{1,16}")
_NOT_POSIX = re.compile(r"(?<!\\)(\\\\)*(\\[A-Za-z0-9]|\(\?|[*+?}]\?)")


@dataclass(frozen=True)
class ComposerShape:
    """Where the human's line stands: the row that `prompt` begins, between a row like `above` and one like `below`.
    `column` is the cursor's in an empty one, counted from the prompt; `modes` are other prompts and the state they
    mean. With a `frame` every row begins with the prompt, the text has so many blank rows above and below it, and what
    stands right of `below` is not the composer's. Placeholders are told apart by being faint, or by their words."""

    prompt: re.Pattern[str]
    above: re.Pattern[str]
    below: re.Pattern[str]
    column: int = 2
    cursor_flag: bool | None = None
    frame: tuple[int, int] | None = None
    placeholder_required: bool = False
    placeholder_faint: bool = True
    placeholders: tuple[re.Pattern[str], ...] = ()
    modes: Mapping[str, re.Pattern[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class View:
    """Something else than the composer, recognised by one row below it (or anywhere, without one), by one close above
    it, or by the title."""

    state: str
    text: re.Pattern[str] | None = None
    title: re.Pattern[str] | None = None
    above: re.Pattern[str] | None = None


@dataclass(frozen=True)
class Profile:
    """One host. Without a `composer` its screen is not read. With `never` it is a list of programs that are not typed
    into: `always`, or `unless_registered` for an agent that is declared plain; `interpreters` are those that are on the
    list only while they were given nothing to run. `submit` are the keys that enter a line, for each state; a host
    with none for `busy` is typed into at rest only. `prompt` is how its command line takes a first prompt. `dialogs`
    are the words by which people are told what one is about, `choices` how one is answered from elsewhere;
    `environment` are the variables by which its user chooses an account or an address."""

    name: str
    commands: tuple[str, ...] = ()
    interpreters: tuple[str, ...] = ()
    never: Never | None = None
    submit: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"idle": ("Enter",), "busy": ("Enter",)})
    pause_seconds: float | None = None
    composer: ComposerShape | None = None
    views: tuple[View, ...] = ()
    busy_title: re.Pattern[str] | None = None
    busy_screen: re.Pattern[str] | None = None
    gates: tuple[str, ...] = ()
    prompt: str | None = None
    dialogs: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    choices: ChoiceShape | None = None
    environment: tuple[str, ...] = ()

    @property
    def takes_lines_while_busy(self) -> bool:
        """Whether a line may be typed and entered while it works."""
        return bool(self.submit.get("busy", self.submit["idle"]))

    def runs_as(self, command: str) -> bool:
        """Whether this command is this host."""
        return _matches(self.commands, command)


@dataclass(frozen=True)
class Profiles:
    """Every known host, by name, and the lists of programs that are never typed into."""

    named: Mapping[str, Profile]
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The files that cannot be used, and why."""

    def describing(self, agent: Agent, command: str, seen: Foreground) -> Profile | None:
        """The profile by which this agent's pane may be looked at: that of the host which the foreground command is,
        or which runs behind it, as behind an npm shim; it must be the one that the agent's record names, if that names
        one. Else `plain`, where the record says so."""
        for profile in self.named.values():
            meant = profile.composer is not None and agent.host in (None, PLAIN, profile.name)
            if meant and (profile.runs_as(command) or any(self._covers(profile, process) for process in seen.readers)):
                return profile
        return self.named[PLAIN] if agent.host == PLAIN else None

    def started_by(self, program: str) -> Profile | None:
        """The profile of the host that this program is."""
        hosts = (profile for profile in self.named.values() if not profile.never)
        return next((profile for profile in hosts if profile.runs_as(program)), None)

    def forbids(self, process: Process, registered: Sequence[str]) -> Profile | None:
        """The list of programs never to be typed into that has this one. `registered` are the identities of what read
        the terminal when the pane was registered, for an agent that is declared plain."""
        for profile in self.named.values():
            excused = profile.never == "unless_registered" and process.identity in registered
            if profile.never and not excused and self._covers(profile, process):
                return profile
        return None

    def program(self, process: Process) -> str | None:
        """The name by which a profile can know this program: of an interpreter what it was given to run. None where it
        was given a text or nothing."""
        if self._interprets({process.executable, process.name}):
            return process.program or None
        return process.executable or None

    def _covers(self, profile: Profile, process: Process) -> bool:
        """Whether the process is one of these programs, whatever it calls itself."""
        names = {process.executable, process.name}
        waits = process.program is None and not process.renamed
        if waits and any(_matches(profile.interpreters, name) for name in names):
            return True
        if process.program and self._interprets(names):
            names.add(process.program)
        return any(map(profile.runs_as, names))

    def _interprets(self, names: Iterable[str]) -> bool:
        return any(_matches(profile.interpreters, name) for profile in self.named.values() for name in names)


def recognise(agent: Agent, pane_pid: int, command: str, profiles: Profiles) -> Profile | str:
    """Whether the program that has the pane may be typed into: the profile by which its screen is to be read, or the
    reason why nothing is typed there whatever it shows. What cannot be found out counts as unknown."""
    seen = foreground(pane_pid)
    if seen is None:
        return UNKNOWN_HOST
    registered = _registered(agent)
    for process in seen.readers:
        if (listed := profiles.forbids(process, registered)) is not None:
            return SHELL if listed.name == SHELL else UNKNOWN_HOST
    profile = profiles.describing(agent, command, seen)
    if profile is None or (profile.name == PLAIN and not _still_there(agent, seen)):
        return UNKNOWN_HOST
    return profile


def _registered(agent: Agent) -> list[str]:
    """Who read the terminal when the pane was registered. agents.json is anybody's to edit."""
    return agent.pane_program if agent.host == PLAIN and isinstance(agent.pane_program, list) else []


def _still_there(agent: Agent, seen: Foreground) -> bool:
    """Whether nobody but the registered program reads the terminal. A record that does not name it, as of a window that
    was opened for the agent's command, means the pane's own process and what that runs itself."""
    if registered := _registered(agent):
        return set(seen.identities) <= set(map(str, registered))
    return seen.leader.pid == agent.pane_pid


def load_profiles(extra: Path | None = None) -> Profiles:
    """The profiles that come with the program, and on top of them those in the directory `extra`. Never raises for what
    is there: `left_out` names it."""
    data: dict[str, dict[str, Any]] = {}
    for path in _files(Path(__file__).parent):
        data[path.stem] = _read(path)
    named = {name: parse_profile(name, fields) for name, fields in data.items()}
    plain, left_out = named[PLAIN], {}
    for path in _files(extra) if extra is not None else ():
        try:
            if named.get(path.stem, plain).never:
                raise ValueError("what is never typed into can be added to by another file, not changed")
            named[path.stem] = parse_profile(path.stem, {**data.get(path.stem, {}), **_read(path)})
        except (OSError, re.error, *NOT_YAML) as error:
            left_out[path.name] = " ".join(str(error).split())[:200] or type(error).__name__
    return Profiles(named, left_out)


def _files(directory: Path) -> Iterable[Path]:
    return sorted(directory.glob("*.yaml")) if directory.is_dir() else ()


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError("not a regular file")  # a pipe would be waited for
    data = load_yaml(path)
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    return data


def parse_profile(name: str, data: Mapping[str, Any]) -> Profile:
    """The profile that a file's fields describe. Raises what `load_profiles` catches."""
    busy = data.get("busy") or {}
    return Profile(
        name=name,
        commands=tuple(_posix(text) for text in data.get("commands") or ()),
        interpreters=tuple(_posix(text) for text in data.get("interpreters") or ()),
        never=_never(data.get("never")),
        submit=_submit(data["submit"]) if data.get("submit") else Profile(name).submit,
        pause_seconds=_pause(data.get("pause_seconds")),
        composer=composer_shape(data["composer"]) if data.get("composer") else None,
        views=tuple(
            View(_untypeable(view["state"]), *(_pattern(view.get(part)) for part in ("text", "title", "above")))
            for view in data.get("views") or ()
        ),
        busy_title=_pattern(busy.get("title")),
        busy_screen=_pattern(busy.get("screen")),
        gates=tuple(_posix(text) for text in data.get("gates") or ()),
        prompt=_prompt(data.get("prompt")),
        dialogs={topic: re.compile(text) for topic, text in (data.get("dialogs") or {}).items()},
        choices=choice_shape(data["choices"]) if data.get("choices") else None,
        environment=tuple(_posix(text) for text in data.get("environment") or ()),
    )


def composer_shape(data: Mapping[str, Any]) -> ComposerShape:
    """The composer that `composer:` describes."""
    return ComposerShape(
        prompt=re.compile(data["prompt"]),
        above=re.compile(data["above"]),
        below=re.compile(data["below"]),
        column=int(data.get("column", 2)),
        cursor_flag=data.get("cursor_flag"),
        frame=_frame(data.get("frame")),
        placeholder_required=bool(data.get("placeholder_required")),
        placeholder_faint=bool(data.get("placeholder_faint", True)),
        placeholders=tuple(re.compile(text) for text in data.get("placeholders") or ()),
        modes={_untypeable(state): re.compile(text) for state, text in (data.get("modes") or {}).items()},
    )


def _untypeable(state: Any) -> str:
    """The state that a view or a mode stands for; only an empty composer may be typed into."""
    if not isinstance(state, str) or state in ("idle", "busy", "our_line"):
        raise ValueError(f"not the state of a view: {state!r}")
    return state


def _pause(value: Any) -> float | None:
    if value is None:
        return None
    if not 0 <= (seconds := float(value)) <= LONGEST_PAUSE:
        raise ValueError(f"pause_seconds: {value!r} is not between 0 and {LONGEST_PAUSE}")
    return seconds


def _frame(rows: Any) -> tuple[int, int] | None:
    if rows is None:
        return None
    top, bottom = map(int, rows)
    return top, bottom


def _submit(data: Mapping[str, Any]) -> Mapping[str, tuple[str, ...]]:
    """The keys for each state. At rest there is one: without any a line could not be entered."""
    submit = {state: _keys(names) for state, names in data.items()}
    if not submit.get("idle"):
        raise ValueError("submit: names no key for idle")
    return submit


def _keys(names: Any) -> tuple[str, ...]:
    """Names of keys for `send-keys`; nothing that tmux could read as something else."""
    keys = tuple([names] if isinstance(names, str) else names)
    if not all(_KEY.fullmatch(key) for key in keys):
        raise ValueError(f"not the names of keys: {names!r}")
    return keys


def _prompt(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or PROMPT not in value):
        raise ValueError(f"prompt: {value!r} does not say where {PROMPT} belongs")
    return value


def _never(value: Any) -> Never | None:
    if value not in (None, False, True, *get_args(Never)):
        raise ValueError(f"never: {value!r} is none of {', '.join(get_args(Never))}")
    return "always" if value is True else value or None


def _matches(patterns: Iterable[str], name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    return None if text is None else re.compile(text)


def _posix(text: str) -> str:
    """An expression that Python and tmux (regcomp) read alike. tmux takes a broken one for "not on the screen"."""
    re.compile(text)
    if _NOT_POSIX.search(text):
        raise ValueError(f"not a POSIX extended expression: {text!r}")
    return text
