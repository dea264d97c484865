"""Profiles of the programs that agents run in: data instead of code, one YAML file per host.

A file `{root}/hosts/{name}.yaml` adds a profile or replaces fields of one, so that no release is needed when a host's
screen changes. Files that cannot be used are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.dialog import Choice
from multi_agent_mcp.hosts import PLAIN, descriptions
from multi_agent_mcp.system.process import Foreground, Process, foreground
from multi_agent_mcp.yaml_files import NOT_YAML, load_yaml

# The description of the choices of a host's dialogs: `choices` in a profile (docs/hosts.md, Correcting a profile).

LASTING = re.compile(
    r"don['’]t ask|\balways\b|\ballow all\b|\bremember\b|\bin (the )?future\b|\bfuture sessions\b|\bthe rest of\b"
    r"|\b(for|during|from|in) this (session|conversation|chat|project|folder|directory|repo)|^yes, and (?!tell\b)"
    r"|^trust\b|\bI trust\b|\bnever show\b",
    re.IGNORECASE,
)
"""Words of choices after which a host does not ask again. They change between versions; showing a choice as lasting
that is not does less harm than the reverse."""


@dataclass(frozen=True)
class ChoiceShape:
    """The appearance of a dialog about one of `topics`. It reaches from below the nearest row like `top`, or from the
    first row like `begin`, to the lowest row. Its choices are numbered rows like `row`, with the groups `mark` (empty
    unless marked), `key` (which picks the choice) and `label`; only rows like `below` may follow. Where one of them is
    like `enter`, a key may only mark its choice: Up and Down move the mark, Enter picks. `frame` is the side of its
    box, which is not part of the text. Choices that match `LASTING` or `lasting` mean that the host will not ask again;
    those that match `in_pane` need more than a key, so they can be chosen in the pane only.

    Alternatively all choices are in one row like `across`, with the group `labels` (separated by three blanks) and, if
    the row tells the right edge of the box, `edge`. The marked choice has another background; Left and Right move the
    mark, Enter picks. A box of `tallest` rows, its edges included, may have been cut off by its host. Choices with
    letters for keys are in the lowest row, like `letters`: `labels` has each letter with its words, separated alike.
    Choices without keys are the rows of the lowest block, all like `unnumbered` (the groups `mark` and `label`); Up and
    Down move the mark, Enter picks."""

    topics: frozenset[str]
    below: re.Pattern[str]
    lasting: re.Pattern[str] | None = None
    row: re.Pattern[str] | None = None
    enter: re.Pattern[str] | None = None
    across: re.Pattern[str] | None = None
    letters: re.Pattern[str] | None = None
    unnumbered: re.Pattern[str] | None = None
    tallest: int = 0
    top: re.Pattern[str] | None = None
    begin: re.Pattern[str] | None = None
    in_pane: re.Pattern[str] | None = None
    frame: str = ""

    def choice(self, key: str, label: str) -> Choice:
        found = (pattern.search(label) for pattern in (LASTING, self.lasting) if pattern is not None)
        return Choice(key, label, any(found))


def choice_shape(data: Mapping[str, Any]) -> ChoiceShape:
    """Parses the field `choices`. Raises the errors that `load_profiles` catches."""
    if ("row" in data) == ("across" in data):
        raise ValueError("choices: one of row and across says where they stand")
    if ("top" in data) == ("begin" in data):
        raise ValueError("choices: one of top and begin says where a dialog begins")
    return ChoiceShape(
        topics=frozenset(map(str, data["topics"])),
        below=re.compile(data["below"]),
        lasting=re.compile(data["lasting"]) if "lasting" in data else None,
        row=_with_groups(data, "row", {"mark", "key", "label"}),
        enter=re.compile(data["enter"]) if "enter" in data else None,
        across=_with_groups(data, "across", {"labels", "edge"}),
        letters=_with_groups(data, "letters", {"labels"}),
        unnumbered=_with_groups(data, "unnumbered", {"mark", "label"}),
        tallest=int(data.get("tallest", 0)),
        top=re.compile(data["top"]) if "top" in data else None,
        begin=re.compile(data["begin"]) if "begin" in data else None,
        in_pane=re.compile(data["in_pane"]) if "in_pane" in data else None,
        frame=str(data.get("frame", "")),
    )


def _with_groups(data: Mapping[str, Any], name: str, groups: set[str]) -> re.Pattern[str] | None:
    if name not in data:
        return None
    found = re.compile(data[name])
    if set(found.groupindex) != groups:
        raise ValueError(f"choices: {name} has not the groups {', '.join(sorted(groups))}")
    return found


SHELL = "shell"
"""The names of two profiles: of a program that reads lines, as an agent's record may declare, and of the shells."""
UNKNOWN_HOST = "unknown_host"
"""The reason for a program that no profile describes, and for one that has replaced the registered program."""
PROMPT = "{prompt}"
"""The placeholder for the first prompt in a command line."""
LONGEST_PAUSE = 10
"""Seconds."""
Never = Literal["always", "unless_registered"]
_KEY = re.compile(r"[A-Za-z0-9-]{1,16}")
_NOT_POSIX = re.compile(r"(?<!\\)(\\\\)*(\\[A-Za-z0-9]|\(\?|[*+?}]\?)")


@dataclass(frozen=True)
class ComposerShape:
    """The appearance of a composer: a row that begins with `prompt`, between a row like `above` and one like `below`.
    `column` is the cursor's in an empty composer, counted from the prompt; `modes` maps states to the other prompts
    that mean them. With a `frame` every row begins with the prompt, the text has that many blank rows above and below,
    and nothing right of `below` is part of it. Placeholders are recognised by faint text, or by their words."""

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
    """A view other than the composer, recognised by one row below the composer (`text`; anywhere if there is none), by
    one close above it, or by the title."""

    state: str
    text: re.Pattern[str] | None = None
    title: re.Pattern[str] | None = None
    above: re.Pattern[str] | None = None


@dataclass(frozen=True)
class Profile:
    """One host. Its program is known by the file that runs, an executable or an interpreter's script: by its path, like
    one of `files`, or else by its name, like one of `commands`. Without a `composer` its screen is not read. With
    `never` it is a list of programs that are not typed
    into, `always` or `unless_registered` for an agent declared plain; `interpreters` are listed only while they run no
    program. `submit` holds the keys that enter a line, by state; a host with none for `busy` is typed into only when
    idle. `prompt` is its command line's form for a first prompt. `dialogs` maps topics to the words that tell them,
    `choices` describes dialogs that can be answered from elsewhere; `environment` are patterns of the variables with
    which users choose an account or an address."""

    name: str
    commands: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
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
    limits: tuple[re.Pattern[str], ...] = ()
    """What the screen shows when a usage limit was met; the words may name its reset."""

    @property
    def takes_lines_while_busy(self) -> bool:
        """Whether a line may be typed and entered while the host works."""
        return bool(self.submit.get("busy", self.submit["idle"]))

    def runs_as(self, command: str) -> bool:
        """Whether a command of this name is this host."""
        return _matches(self.commands, command)


@dataclass(frozen=True)
class Profiles:
    """Every known host, by name, and the lists of programs that are never typed into."""

    named: Mapping[str, Profile]
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The names of unusable files, with the reasons."""

    def describing(self, agent: Agent, seen: Foreground) -> Profile | None:
        """The profile for this agent's pane: that of the host that leads the foreground or runs behind its leader (as
        behind an npm shim), provided that the agent's record names no other host; else `plain` if the record says so.
        """
        for profile in self.named.values():
            meant = profile.composer is not None and agent.host in (None, PLAIN, profile.name)
            if meant and any(self._runs(profile, process) for process in seen.readers):
                return profile
        return self.named[PLAIN] if agent.host == PLAIN else None

    def started_by(self, program: str) -> Profile | None:
        """The profile of the host with this program name, or None."""
        hosts = (profile for profile in self.named.values() if not profile.never)
        return next((profile for profile in hosts if profile.runs_as(program)), None)

    def forbids(self, process: Process, registered: Sequence[str]) -> Profile | None:
        """The list of programs never typed into that contains this process, or None. `registered` are the identities of
        the terminal's readers when the pane was registered, for an agent declared plain."""
        for profile in self.named.values():
            excused = profile.never == "unless_registered" and process.identity in registered
            if profile.never and not excused and self._covers(profile, process):
                return profile
        return None

    def program(self, process: Process) -> str | None:
        """The program name for a profile, by what the system says: of an interpreter, the program that it runs; None if
        it runs a text or nothing."""
        if self._interprets({process.executable}):
            return process.program or None
        return process.executable or None

    def _runs(self, profile: Profile, process: Process) -> bool:
        """Whether the process is this host. What it calls itself does not count (`exec -a`, a title)."""
        if profile.files:
            interprets = self._interprets({process.executable})
            return _matches(profile.files, process.script if interprets else process.file)
        name = self.program(process)
        return name is not None and profile.runs_as(name)

    def _covers(self, profile: Profile, process: Process) -> bool:
        """Whether the process is one of the profile's programs, whatever it calls itself."""
        names = {process.executable, process.name}
        waits = process.program is None and not process.renamed
        if waits and any(_matches(profile.interpreters, name) for name in names):
            return True
        if process.program and self._interprets(names):
            names.add(process.program)
        return any(map(profile.runs_as, names))

    def _interprets(self, names: Iterable[str]) -> bool:
        return any(_matches(profile.interpreters, name) for profile in self.named.values() for name in names)


def recognise(agent: Agent, pane_pid: int, profiles: Profiles) -> Profile | str:
    """The profile for the program in the pane if it may be typed into, else the reason why not, whatever its screen
    shows. A program that cannot be determined is an unknown host."""
    seen = foreground(pane_pid)
    if seen is None:
        return UNKNOWN_HOST
    registered = _registered(agent)
    for process in seen.readers:
        if (listed := profiles.forbids(process, registered)) is not None:
            return SHELL if listed.name == SHELL else UNKNOWN_HOST
    profile = profiles.describing(agent, seen)
    if profile is None or (profile.name == PLAIN and not _still_there(agent, seen)):
        return UNKNOWN_HOST
    return profile


def _registered(agent: Agent) -> list[str]:
    """The readers of the terminal when the pane was registered. Anybody may edit agents.json, so types are checked."""
    return agent.pane_program if agent.host == PLAIN and isinstance(agent.pane_program, list) else []


def _still_there(agent: Agent, seen: Foreground) -> bool:
    """Whether only the registered program reads the terminal. If the record names none, as for a window opened for the
    agent's command, the pane's own process must lead the foreground."""
    if registered := _registered(agent):
        return set(seen.identities) <= set(map(str, registered))
    return seen.leader.pid == agent.pane_pid


def load_profiles(extra: Path | None = None) -> Profiles:
    """Loads the profiles of the package and on top of them those in the directory `extra`, whose unusable files are
    named in `left_out`, never raised."""
    data = descriptions()
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
        raise ValueError("not a regular file")  # opening a pipe would block
    data = load_yaml(path)
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    return data


def parse_profile(name: str, data: Mapping[str, Any]) -> Profile:
    """Parses the fields of a profile's file. Raises the errors that `load_profiles` catches."""
    busy = data.get("busy") or {}
    return Profile(
        name=name,
        commands=tuple(_posix(text) for text in data.get("commands") or ()),
        files=tuple(_posix(text) for text in data.get("files") or ()),
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
        limits=tuple(re.compile(text, re.MULTILINE) for text in (data.get("limits") or {}).get("screen") or ()),
    )


def composer_shape(data: Mapping[str, Any]) -> ComposerShape:
    """Parses the field `composer`."""
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
    """Checks the state of a view or mode: one that may be typed into raises `ValueError`."""
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
    """Parses the keys for each state; `idle` needs one, or no line could be entered."""
    submit = {state: _keys(names) for state, names in data.items()}
    if not submit.get("idle"):
        raise ValueError("submit: names no key for idle")
    return submit


def _keys(names: Any) -> tuple[str, ...]:
    """Checks names of keys for `send-keys`, so that tmux cannot take them for anything else."""
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
    """Checks that Python and tmux (regcomp(3)) read an expression alike; to tmux, an invalid one never matches."""
    re.compile(text)
    if _NOT_POSIX.search(text):
        raise ValueError(f"not a POSIX extended expression: {text!r}")
    return text
