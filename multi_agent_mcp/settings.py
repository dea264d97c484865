"""The settings of a session: `session.yaml`, and what team.yaml says of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from multi_agent_mcp.errors import InvalidArguments, NoSuchSession, Reason, Refusal
from multi_agent_mcp.features import attempted, load
from multi_agent_mcp.features.chosen import chosen
from multi_agent_mcp.features.ours import OURS
from multi_agent_mcp.texts import DEFAULT_LANGUAGE, LANGUAGES
from multi_agent_mcp.yaml_files import NOT_YAML, at_line, load_yaml, truth, yaml_problem

PROGRAM = re.compile(r"/[^{}]+|[^/{}]+")
"""A name on PATH or an absolute path: a relative path would depend on the sender's working directory."""
CHECK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
CHECK_MINUTES_MAX = 24 * 60
PLAIN_WORD = re.compile(r"[\w./+-]+")
SHELL_WORDS = frozenset(
    [".", ":", "[", "case", "cd", "command", "eval", "exec", "exit", "export", "for", "if", "set", "until", "while"]
)
"""Words of sh(1) that are no programs of their own, or not always."""
LIMIT_MAX = 10**9
"""Thirty years, a gigabyte: larger values are mistakes, and date arithmetic overflows not far beyond."""
TOKENS_MAX = 10**12
Parser = Callable[[Any, str], Any]
"""Parses the value of a key, whose name it gets for a refusal. Raises `InvalidArguments`."""


@dataclass(frozen=True)
class Limits:
    """`limits:` in session.yaml. Sizes in bytes or characters, times in seconds or minutes, as named."""

    content_bytes: int = 1 << 20
    answer_characters: int = 9_000
    doorbell_pause_seconds: float = 30.0
    doorbell_pause_max_seconds: float = 900.0
    submit_pause_seconds: float = 0.15
    stuck_minutes: float = 30.0
    tokens_per_day: int = 0
    tokens_per_task: int = 0
    """Budgets of each agent; 0: none."""
    edit_overlap_minutes: float = 240.0
    return_minutes: float = 0.0
    """After how long what nobody takes, or whose agent is gone, is somebody else's; 0: never."""


@dataclass(frozen=True)
class Check:
    """One of `checks:` in session.yaml: a command that this machine runs when a task that names it is called done."""

    name: str
    run: str | tuple[str, ...]
    """A command for the shell, or a program with its arguments."""
    minutes: float = 10.0
    directory: str = "."
    """Relative to the agent's working directory, and within it."""

    @property
    def command(self) -> list[str]:
        return ["/bin/sh", "-c", self.run] if isinstance(self.run, str) else list(self.run)

    @property
    def program(self) -> str | None:
        """The program that it starts; None for a command of the shell whose first word is none."""
        if not isinstance(self.run, str):
            return self.run[0]
        first = self.run.split(maxsplit=1)[0]
        return first if PLAIN_WORD.fullmatch(first) and first not in SHELL_WORDS else None

    @property
    def shown(self) -> str:
        """The command as one would type it."""
        return self.run if isinstance(self.run, str) else shlex.join(self.run)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One session's settings."""

    language: str = DEFAULT_LANGUAGE
    limits: Limits = field(default_factory=Limits)
    notify_command: tuple[str, ...] | None = None
    """See `parse_notify_command`. None if not set; empty if the value is invalid, which `doctor` reports."""
    console_answers: bool = True
    """Whether the console may press keys in agents' panes."""
    resume: bool = True
    """Whether agents go on with their last conversations when they are started."""
    checks: Mapping[str, Check] = field(default_factory=dict)
    done_when: tuple[str, ...] = ()
    """The conditions of tasks that are created without any (docs/protocol.md, Done means proven)."""
    shell: str = "sh"
    """What reads agents' commands: `sh`, or `default`, the shell of the person whose tmux it is."""
    statement: bool = True
    """Whether agents' hosts have the statement (docs/protocol.md, Statement)."""
    protected: tuple[str, ...] = ()
    """Patterns of files: what changes such a file needs a review, whatever its conditions are."""
    roles: Mapping[str, Any] = field(default_factory=dict)
    """The rules of agents by role; see `parse_rules`."""
    features: Any = None
    """What is on and off, as it is written there; see `features.chosen`."""
    created_at: str = ""
    """When the session was made, as it is written there: what tells it from an earlier one at the same place."""
    at_most: int | str | None = None
    """How many agents are at work at once; see `parse_at_most`."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """The keys of features that are written there (`Feature.settings`), parsed."""

    def of(self, key: str, default: Any = None) -> Any:
        """What a key of a feature says; the default if it is not written."""
        return self.given.get(key, default)

    @property
    def return_minutes(self) -> float | None:
        """After how long work comes back; None: never."""
        return self.limits.return_minutes or None

    @property
    def switched(self) -> frozenset[str]:
        """The keys that switch a feature on."""
        return frozenset(feature.switch for feature in OURS if feature.switch and self.of(feature.switch))


def refused(why: str, **values: Any) -> InvalidArguments:
    """The refusal of what a file says of the settings."""
    return InvalidArguments("bad_settings", reason=Reason(why, **values))


def read_settings(path: Path, language: str | None = None) -> Settings:
    """Reads `session.yaml`; unknown keys are ignored. Raises `NoSuchSession`, and `InvalidArguments` for invalid
    content."""
    if path.is_symlink():
        raise refused("link")
    try:
        data = load_yaml(path) or {}
    except FileNotFoundError as error:
        raise NoSuchSession(session=path.parent.name) from error
    except (*NOT_YAML, OSError) as error:
        raise InvalidArguments("bad_settings", reason=yaml_problem(error)) from error
    if not isinstance(data, dict):
        raise refused("no_mapping")
    try:
        return _settings_in(data, language)
    except InvalidArguments as refusal:
        if isinstance(reason := refusal.values.get("reason"), Reason):
            refusal.values["reason"] = at_line(path, reason)
        raise


def _settings_in(data: Mapping[str, Any], language: str | None = None) -> Settings:
    said = data.get("language")
    chosen = language or (DEFAULT_LANGUAGE if said is None else said)
    if chosen not in LANGUAGES:
        raise InvalidArguments("bad_language", language=repr(chosen)[:40], allowed=", ".join(LANGUAGES))
    return replace(settings_of(data), language=chosen, notify_command=_notify_command(data))


def readable_settings(path: Path, language: str = DEFAULT_LANGUAGE) -> Settings:
    """What can be read of `session.yaml`: a key that cannot has its default, and so has every key of a file that cannot
    be read at all; a language that cannot be read is this one. Never raises."""
    with suppress(Refusal):
        return read_settings(path)
    data: Any = None
    sound: dict[str, Any] = {}
    with suppress(OSError, *NOT_YAML):
        data = None if path.is_symlink() else load_yaml(path)
    for key in data if isinstance(data, dict) else ():
        with suppress(Refusal, *NOT_YAML):
            _settings_in({"features": data.get("features"), key: data[key]})
            sound[key] = data[key]
    knows_language = isinstance(data, dict) and ("language" in sound or "language" not in data)
    return _settings_in(sound, None if knows_language else language)


def _notify_command(data: Mapping[str, Any]) -> tuple[str, ...] | None:
    try:
        return parse_notify_command(data.get("notify_command"))
    except InvalidArguments:
        return ()  # not fatal: people are rung by the other channels


def parse_notify_command(given: Any) -> tuple[str, ...] | None:
    """Parses `notify_command` of session.yaml or team.yaml: a program and its arguments, in which `{line}` stands for
    the doorbell's line (docs/protocol.md, Channels). Raises `InvalidArguments`."""
    if given is None:
        return None
    usable = isinstance(given, list) and all(isinstance(part, str) and "\0" not in part for part in given)
    if not usable or not given or not PROGRAM.fullmatch(given[0]):
        raise InvalidArguments("bad_notify_command")
    return tuple(given)


def parse_console(given: Any, name: str = "console") -> bool:
    """Parses `console` of session.yaml or team.yaml; returns whether `answer` allows keys. Raises
    `InvalidArguments`."""
    if given is None:
        return True
    if not isinstance(given, dict):
        raise refused("no_mapping_in", name=name)
    if unknown := sorted(map(str, given.keys() - {"answer"})):  # a typo must not leave enabled what was to be disabled
        raise refused("unknown_key", name=f"{name}.{unknown[0]}")
    answers = truth(given.get("answer", True))
    if not isinstance(answers, bool):
        raise refused("no_bool", name=f"{name}.answer")
    return answers


def is_word(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


def parse_choice(given: Any, name: str, allowed: tuple[str, ...]) -> str:
    """Parses one of several words; the first is the default. Raises `InvalidArguments`."""
    if given is None:
        return allowed[0]
    if given not in allowed:
        raise refused("no_choice", name=name, value=f"{given!r:.60}", allowed=", ".join(allowed))
    return str(given)


def parse_switch(given: Any, name: str, words: str = "on, off") -> bool:
    """Parses a switch that is on by default: on or off in whatever `words`, with or without quotes. Raises
    `InvalidArguments`."""
    given = truth(given)
    if not isinstance(given, bool | None):
        raise refused("no_choice", name=name, value=f"{given!r:.60}", allowed=words)
    return given is not False


AUTO = "auto"
AGENTS_MAX = 10_000


def parse_at_most(given: Any, name: str) -> int | str | None:
    """Parses how many agents are at work at once: a number, `AUTO` (as many as the machine has room for), or None (all
    of them). Raises `InvalidArguments`."""
    if given is None or given == AUTO:
        return given and AUTO
    if type(given) is int and 0 < given <= AGENTS_MAX:
        return given
    raise refused("no_at_most", name=name, most=AGENTS_MAX)


SHELLS = ("sh", "default")


def parse_checks(given: Any, name: str = "checks") -> dict[str, Check]:
    """Parses `checks` of session.yaml or team.yaml: commands by name, or mappings with `run`, `minutes` and
    `directory`. Raises `InvalidArguments`."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise refused("no_mapping_in", name=name)
    return {str(key): _check(key, said if isinstance(said, dict) else {"run": said}) for key, said in given.items()}


def _check(name: Any, said: Mapping[str, Any]) -> Check:
    if not isinstance(name, str) or name == "review" or not CHECK_NAME.fullmatch(name):
        raise refused("no_check_name", name=f"{name!r:.80}")
    if unknown := sorted(map(str, said.keys() - {"run", "minutes", "directory"})):
        raise refused("unknown_key", name=f"checks.{name}.{unknown[0]}")
    run, minutes, directory = (
        said.get("run"),
        said.get("minutes", Check.minutes),
        said.get("directory", Check.directory),
    )
    parts = [run] if isinstance(run, str) else run
    if not isinstance(parts, list) or not parts or not all(map(_is_argument, parts)) or not parts[0].strip():
        raise refused("no_command", name=f"checks.{name}.run")
    if not isinstance(minutes, (int, float)) or isinstance(minutes, bool) or not 0 < minutes <= CHECK_MINUTES_MAX:
        raise refused("no_minutes", name=f"checks.{name}.minutes", limit=CHECK_MINUTES_MAX)
    if not _is_argument(directory) or directory.startswith("/") or ".." in Path(directory).parts:
        raise refused("not_within", name=f"checks.{name}.directory")
    return Check(name, run if isinstance(run, str) else tuple(parts), float(minutes), directory)


def _is_argument(part: Any) -> bool:
    return isinstance(part, str) and "\0" not in part


def parse_done_when(given: Any, _name: str = "done_when") -> tuple[str, ...]:
    """Parses `done_when` of session.yaml or team.yaml: a list of conditions, or one. Whether they are known is judged
    when a task is created. Raises `InvalidArguments`."""
    conditions = [given] if isinstance(given, str) else [] if given is None else given
    if not isinstance(conditions, list) or not all(map(_is_argument, conditions)):
        raise refused("no_conditions")
    return tuple(part.strip() for condition in conditions for part in condition.split(",") if part.strip())


def parse_patterns(given: Any, name: str) -> tuple[str, ...]:
    """Parses a list of patterns of files, or one, of session.yaml or team.yaml. Raises `InvalidArguments`."""
    patterns = [given] if isinstance(given, str) else [] if given is None else given
    if not isinstance(patterns, list):
        raise refused("no_list", name=name)
    for place, pattern in enumerate(patterns):
        if not is_word(pattern):
            raise refused("no_text", name=f"{name}[{place}]")
    return tuple(patterns)


@dataclass(frozen=True)
class Rules:
    """What an agent may do: `edits`, patterns of the files that it may edit; `deny`, the first words of commands that
    it may not run; `sandbox`, the command around its host's. None, and no `deny`: not ruled."""

    edits: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    sandbox: str | None = None


RULES = ("edits", "commands", "sandbox")


def parse_rules(given: Mapping[str, Any], name: str) -> Rules:
    """Parses the keys `edits`, `commands` and `sandbox` of a role or an agent. Raises `InvalidArguments`."""
    commands, sandbox = given.get("commands"), given.get("sandbox")
    commands = {} if commands is None else commands
    if not isinstance(commands, dict):
        raise refused("no_mapping_in", name=f"{name}.commands")
    if unknown := sorted(map(str, commands.keys() - {"deny"})):
        raise refused("unknown_key", name=f"{name}.commands.{unknown[0]}")
    if sandbox is not None and (not is_word(sandbox) or sandbox.count("{command}") != 1):
        raise refused("no_sandbox", name=f"{name}.sandbox")
    edits = None if given.get("edits") is None else parse_patterns(given["edits"], f"{name}.edits")
    return Rules(edits, parse_patterns(commands.get("deny"), f"{name}.commands.deny"), sandbox)


def parse_roles(given: Any, name: str = "roles") -> Mapping[str, Any]:
    """Parses `roles` of session.yaml or team.yaml: rules by role, as they are there. Raises `InvalidArguments`."""
    roles = {} if given is None else given
    if not isinstance(roles, dict):
        raise refused("no_mapping_in", name=name)
    for role, rules in roles.items():
        if not isinstance(rules, dict):
            raise refused("no_mapping_in", name=f"{name}.{role}")
        unknown = sorted(map(str, rules.keys() - {*RULES}))
        if role not in ("owner", "admin", "worker") or unknown:
            raise refused("unknown_key", name=".".join([name, str(role), *unknown[:1]]))
        parse_rules(rules, f"{name}.{role}")
    return roles


def parse_limits(given: Any, name: str = "limits") -> Limits:
    """Parses `limits` of session.yaml or team.yaml; unknown keys are ignored. Raises `InvalidArguments`."""
    if given is None:
        return Limits()
    if not isinstance(given, dict):
        raise refused("no_mapping_in", name=name)
    known = {spec.name: type(getattr(Limits, spec.name)) for spec in fields(Limits)}
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            continue
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        most = TOKENS_MAX if key.startswith("tokens_") else LIMIT_MAX
        if not is_number or not 0 < value <= most or not known[key](value):
            facts = {"name": f"{name}.{key}", "limit": most}
            raise refused("no_fraction", **facts) if known[key] is float else refused("no_number", **facts)
        values[key] = known[key](value)
    return Limits(**values)


KEYS: Mapping[str, tuple[str, Parser]] = {
    "limits": ("limits", parse_limits),
    "console": ("console_answers", parse_console),
    "resume": ("resume", partial(parse_switch, words="true, false")),
    "checks": ("checks", parse_checks),
    "done_when": ("done_when", parse_done_when),
    "shell": ("shell", partial(parse_choice, allowed=SHELLS)),
    "statement": ("statement", parse_switch),
    "protected": ("protected", parse_patterns),
    "roles": ("roles", parse_roles),
    "features": ("features", lambda given, _: given),
    "created_at": ("created_at", lambda given, _: str(given or "")),
    "at_most": ("at_most", parse_at_most),
}
"""The keys of session.yaml: the field of `Settings` that each gives, and its parser, which gets the value and the key.
`language` and `notify_command` are read apart, and features have others (`feature_keys`)."""


def feature_keys(features: Any = None) -> Mapping[str, str]:
    """The keys that features have, those of other packages that `features:` names among them, with their parsers."""
    return {key: where for feature in chosen(features)[0].all for key, where in feature.settings.items()}


def settings_of(data: Mapping[str, Any]) -> Settings:
    """The settings that session.yaml or team.yaml states, but for the language and `notify_command`. Raises
    `InvalidArguments`."""
    said = {field: parse(data[key], key) for key, (field, parse) in KEYS.items() if key in data}
    keys = feature_keys(data.get("features"))
    return Settings(**said, given={key: parsed(where, data[key], key) for key, where in keys.items() if key in data})


def parsed(where: str, value: Any, name: str) -> Any:
    """What the parser of a feature makes of a value; None if it is of another package and fails. Raises
    `InvalidArguments`."""

    def parse() -> Any:
        try:
            return load(where)(value, name)
        except InvalidArguments as refusal:
            return refusal

    found = attempted(where, parse, None)
    if isinstance(found, InvalidArguments):
        raise found
    return found
