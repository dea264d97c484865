"""The hosts: what is particular to a program that agents run in is data, one YAML file per host in this directory.

A file has the fields of a `Host`, which `init`, `up`, hooks and doorbells go by, and those of the host's screens
(`doorbell/tmux/profiles.py`). Files without a `configuration` are lists of programs that are not hosts. To add a host,
add its file, and fixtures of its screens.

`plugin` is what `scripts/plugins` makes the host's plugin of, with the same values, but for the program on PATH: its
`files`, where its `skill` is, and the files at the top of the repository by which the host finds it (`marketplace`).
The variables that are `passed` to the server have the form of `identity`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from multi_agent_mcp.domain.entity import is_name
from multi_agent_mcp.yaml_files import load_yaml

SERVER_NAME = "ipc"
"""The name of our server in hosts' configurations."""
WITHOUT_A_HOST = ("tmux", "notify_command", "desktop", "status_line")
"""The channels of an agent whose host names none."""
PLAIN = "plain"
"""The host of an agent whose program reads lines."""
BEGINNINGS = ("startup", "new", "resume", "clear", "compact", "fork")
"""The sources of a SessionStart, in whichever host."""
AT_TOP = "top_level"
_DIRECTORY = Path(__file__).parent


class StatementPlace(NamedTuple):
    """The field `configuration.statement`: the `words`, files of the agent (`own`), variables whose list of
    directories, parted by commas, is lengthened (`directories`), and variables that name a file relative to the host's
    home (`named`) by which the host gets the statement beside its person's own instructions. A command with one of the
    words `not_beside` has instructions that ours would replace: it gets none. `start` goes before the command of a
    person."""

    words: str = ""
    own: Mapping[str, Any] = {}
    directories: Mapping[str, str] = {}
    not_beside: Sequence[str] = ()
    start: str = ""
    named: Mapping[str, str] = {}


class RulesPlace(NamedTuple):
    """The field `configuration.rules`: in which `form` (`host_rules.py`) the host's own permission settings have an
    agent's rules, by the `option` or the `words` of its command and files of the agent (`own`): what denies a command
    (`command`, with `{words}`), every one, the editing of a `{path}` (`edit`), and of any. `binds_shell`: its shell
    cannot edit otherwise either. A command with one of the words `not_beside` has settings that ours would replace."""

    form: str
    option: str = ""
    words: str = ""
    own: Mapping[str, Any] = {}
    command: Sequence[str] = ()
    every_command: Sequence[str] = ()
    edit: Sequence[str] = ()
    every_edit: Sequence[str] = ()
    binds_shell: bool = False
    not_beside: Sequence[str] = ()


@dataclass(frozen=True)
class Configuration:
    """The field `configuration`: `own` are the files of one agent ({session}/hosts/AGENT.NAME), `shared` the files that
    the host reads in a directory automatically. `words` replace {mcp_config} in a command, with the variables of
    `environment`. `start` is the command with which a person starts the host, `start_shared` the one in such a
    directory. `{name}` is replaced by one of our values (`host_config.py`), or by the path of one of the files. A
    command with `settings_option` brings its own settings: it gets our server only. `statement` says how the host gets
    the statement; without it our server gives it. `rules` says how its own settings have an agent's rules."""

    words: str
    start: str
    start_shared: str
    own: Mapping[str, Any] = field(default_factory=dict)
    shared: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    settings_option: str | None = None
    statement: StatementPlace | None = None
    rules: RulesPlace | None = None

    @property
    def is_of_directory(self) -> bool:
        """Whether the host reads only the files of its directory, which all agents there share."""
        return not (self.own or self.words)


class HookAnswers(NamedTuple):
    """The field `hook_answers`: where the host looks for a `refusal` and for an `addition` to the context
    (`top_level`, else in `hookSpecificOutput`), and whether the `event` is named as it was asked."""

    refusal: str | None = None
    addition: str | None = None
    event: str | None = None

    def of(self, answer: dict[str, Any], asked: object) -> dict[str, Any]:
        """Returns an answer of ours in the host's form; `asked` is the host's name of the event."""
        output = answer.get("hookSpecificOutput", {})
        if self.addition == AT_TOP and "additionalContext" in output:
            return {"additionalContext": output["additionalContext"]}
        if self.refusal == AT_TOP and output.get("permissionDecision") == "deny":
            return {"decision": "deny", "reason": output["permissionDecisionReason"]}
        return {"hookSpecificOutput": {**output, "hookEventName": asked}} if self.event and output else answer


class Resume(NamedTuple):
    """The field `resume`: the `words` that continue a conversation, added after the program's name, and the words of a
    command that chooses a conversation itself. `elsewhere`: it works from another directory than the conversation's;
    `configured`: only with our configuration is nothing lost. `refusal` are the words of a host that does not have the
    conversation any more: what else ends it, such as a server of ours that cannot start, is no reason to give one up.
    In `running`, a directory in the host's home (`home`, or what `variable` names), each of its processes has a file
    that names its conversation."""

    words: str
    own_words: Sequence[str] = ()
    elsewhere: bool = False
    configured: bool = False
    refusal: str = "(?!)"
    running: str | None = None
    home: str = "~"
    variable: str = ""

    def is_refused(self, lines: Iterable[str]) -> bool:
        """Whether the last lines of an ended host say that it refused to continue the conversation."""
        return any(re.search(self.refusal, line) for line in lines)


@dataclass(frozen=True, kw_only=True)
class Host:
    """One host. `command` is what `up` runs for an agent; the first prompt is added to it in the form of the field
    `prompt`. `channels` are the ways of ringing its agents, the strongest first; `briefed_at` are the sources of its
    SessionStart at which the model gets our hook's answer; for others the briefing waits for a later event; `resume` is
    how it continues a conversation; `inherited` are the variables that it sets for the programs that it runs, which say
    that they run inside it: a host that is started by one of them must not see these; `proven` is the newest version
    that `scripts/test-hosts` has played."""

    name: str
    title: str
    install: str
    proven: str
    command: str
    configuration: Configuration
    channels: Sequence[str]
    hook_answers: HookAnswers
    briefed_at: Sequence[str] = ()
    resume: Resume | None = None
    inherited: Sequence[str] = ()

    @property
    def is_installed(self) -> bool:
        return shutil.which(self.name) is not None


@cache
def description(name: str) -> Mapping[str, Any]:
    """Returns the fields of one file of the package, which are not to be changed."""
    fields: Mapping[str, Any] = load_yaml(_DIRECTORY / f"{name}.yaml")
    return fields


def descriptions() -> Mapping[str, Mapping[str, Any]]:
    """Returns the fields of every file of the package, by the file's name."""
    return {path.stem: description(path.stem) for path in sorted(_DIRECTORY.glob("*.yaml"))}


def tool_inputs() -> dict[str, dict[str, list[str]]]:
    """Returns which tools of all hosts edit files (`edits`: the key of a path; `patches`: of a patch), and which run
    commands (`shells`): each tool's name with the keys of its input."""
    found: dict[str, dict[str, list[str]]] = {kind: {} for kind in ("edits", "patches", "shells")}
    for fields in descriptions().values():
        for kind, tools in found.items():
            for tool, key in fields.get(kind, {}).items():
                keys = tools.setdefault(tool, [])
                keys += [key] if key not in keys else []
    return found


@cache
def hosts_arguments() -> frozenset[str]:
    """Returns the `arguments` that hosts add to every tool's for themselves, and send along with a call."""
    return frozenset(name for fields in descriptions().values() for name in fields.get("arguments", ()))


@cache
def channels() -> Sequence[str]:
    """Returns the names of the channels by which any host's agents are rung."""
    named = (name for fields in descriptions().values() for name in fields.get("channels", ()))
    return tuple(dict.fromkeys((*WITHOUT_A_HOST, *named)))


def hosts() -> Mapping[str, Host]:
    """Returns the hosts by name, in the order of their `preference`."""
    ranked = sorted((fields["preference"], name) for name, fields in descriptions().items() if _is_host(fields))
    return {name: _host(name) for _, name in ranked}


def described(root: Path) -> Sequence[str]:
    """Returns the names of hosts that an agent may have: ours, `plain`, and a person's own in `hosts/` below the root
    (docs/hosts.md)."""
    own = (path.stem for path in sorted((root / "hosts").glob("*.yaml")))
    return tuple(dict.fromkeys((*hosts(), PLAIN, *own)))


def host_named(name: object) -> Host | None:
    """Returns the host of this name, reading only its own file; None for any other value, as agents.json may have."""
    if not isinstance(name, str) or not is_name(name) or not (_DIRECTORY / f"{name}.yaml").is_file():
        return None
    return _host(name) if _is_host(description(name)) else None


def with_configuration(command: str) -> str:
    """Returns the command that `up` runs for a host of which only the program is named: the program alone would start
    without our server. Any other command is returned as it is."""
    host = host_alone(command)
    return command if host is None else host.command.replace(host.name, command.strip(), 1)


def host_alone(command: str) -> Host | None:
    """Returns the host that a command starts without any options; None for any other command."""
    words = command.split()
    return host_named(Path(words[0]).name) if len(words) == 1 else None


def _is_host(fields: Mapping[str, Any]) -> bool:
    return "configuration" in fields


def _configuration(
    statement: Mapping[str, Any] | None = None, rules: Mapping[str, Any] | None = None, **fields: Any
) -> Configuration:
    place, ruled = StatementPlace(**statement) if statement else None, RulesPlace(**rules) if rules else None
    return Configuration(**fields, statement=place, rules=ruled)


@cache
def _host(name: str) -> Host:
    fields = description(name)
    return Host(
        name=name,
        title=fields["title"],
        install=fields["install"],
        proven=fields["proven"],
        command=fields["command"],
        configuration=_configuration(**fields["configuration"]),
        channels=tuple(fields.get("channels", WITHOUT_A_HOST)),
        hook_answers=HookAnswers(**fields.get("hook_answers", {})),
        briefed_at=tuple(fields.get("briefed_at", ())),
        resume=Resume(**fields["resume"]) if "resume" in fields else None,
        inherited=tuple(fields.get("inherited", ())),
    )
