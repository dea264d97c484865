"""The configuration files by which a host starts an agent's server and runs its hooks (docs/hosts.md, What hosts do):
what `hosts/*.yaml` says, filled with an agent's values."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import dropwhile, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp import __version__
from multi_agent_mcp.config import home_of, working_directory
from multi_agent_mcp.errors import InvalidArguments, StorageError
from multi_agent_mcp.host_files import IDENTITY, HostFile, Identity, imports_from_the_project, merge_of, whole
from multi_agent_mcp.host_rules import NO_RULES, HostRules, compiled
from multi_agent_mcp.hosts import SERVER_NAME, Host, hosts
from multi_agent_mcp.programs import child_environment, python
from multi_agent_mcp.session import Service, Session
from multi_agent_mcp.system.file_status import tree_of
from multi_agent_mcp.system.other_files import apply_change, read_external

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.hosts import StatementPlace
    from multi_agent_mcp.settings import Rules
    from multi_agent_mcp.store.workspace import Workspace

HOOK_SECONDS = 10
STATEMENT = "MULTI_AGENT_MCP_STATEMENT"
"""Names the file of an agent's statement for Gemini CLI."""
EVENTS = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "PreCompact")
_PLACEHOLDER = re.compile(r"\{([\w./]+)\}")


def own_file(workspace: Workspace, agent_id: str, name: str) -> Path:
    """Returns the path of a file or directory of this agent alone."""
    return workspace.path / "hosts" / f"{agent_id}.{name}"


def values(
    host: Host, workspace: Workspace, agent_id: str, statement: str = "", rules: HostRules = NO_RULES
) -> dict[str, Any]:
    """Returns the values of the placeholders in the host's data. For Gemini CLI and Codex's hooks they name no agent,
    as the environment does: Codex asks its user once about each text of a hook. Our server does not give a `statement`
    that the host has."""
    where = ["--root", str(workspace.root), "--session", workspace.session, "--agent", agent_id]
    serve, hook = [*python(), "serve"], [*python(), "hook", "--host", host.name]
    served = [*serve, *(["--no-statement"] if statement else []), *where]
    identity = dict(zip(IDENTITY, (str(workspace.root), workspace.session, agent_id), strict=True))
    found: dict[str, Any] = {
        "program": sys.executable,
        "server": served,
        "serve": served[1:],
        "statement": statement,
        "statement_word": shlex.quote(statement),
        "serve_anyone": serve[1:],
        "identity": identity,
        "whoever": {name: f"${name}" for name in IDENTITY},
        "who": " ".join(f"{name}={shlex.quote(value)}" for name, value in identity.items()),
        "hook": shlex.join([*hook, *where]),
        "hook_anyone": shlex.join(hook),
        "hook_words": json.dumps([*hook, *where], ensure_ascii=False),
        "hook_milliseconds": HOOK_SECONDS * 1000,
        "version": __version__,
        "permission": "{}",
        "context_files": [*_context_files(), f"${STATEMENT}"],
        **rules.values,
    }
    places = (host.configuration.statement, host.configuration.rules)
    for name in (*host.configuration.own, *(name for place in places if place is not None for name in place.own)):
        path = own_file(workspace, agent_id, name)
        found |= {name: shlex.quote(str(path)), f"{name}_uri": path.as_uri()}
        found[f"{name}_list"] = [str(path)]
        if "/" in name:
            found[name.partition("/")[0]] = shlex.quote(str(path.parent))
    for name, table in host.configuration.shared.items():
        if name.endswith(".toml"):
            found["server_options"] = _server_options(filled(table, found))
            found["hook_options"] = _hook_options(found["hook_anyone"])
            found["developer_option"] = _developer_option(statement)
    return found


def _context_files() -> list[str]:
    """Returns the names of context files that Gemini CLI's person has chosen at home, which those of a directory
    replace."""
    chosen: Any = None
    with suppress(ValueError, StorageError, AttributeError):  # with comments, or none of its form: its own default
        text = (read_external(_gemini_home() / "settings.json") or b"{}").decode()
        chosen = json.loads(text).get("context", {}).get("fileName")
    return [chosen] if isinstance(chosen, str) else list(map(str, chosen or ["GEMINI.md"]))


def _gemini_home() -> Path:
    return home_of("GEMINI_CLI_HOME", "~") / ".gemini"


def _of_codex(key: str) -> Any:
    """Returns what Codex's person has set, in the project or else at home; None for nothing."""
    for directory in (working_directory() / ".codex", home_of("CODEX_HOME", "~/.codex")):
        with suppress(ValueError, StorageError):  # Codex says so itself
            found = tomllib.loads((read_external(directory / "config.toml") or b"").decode())
            if found.get(key):
                return found[key]
    return None


def _has_permissions() -> bool:
    """Returns whether Codex's person has chosen a permission profile, whose place ours would take."""
    return _of_codex("default_permissions") is not None


def _developer_option(statement: str) -> str:
    """Returns the statement as Codex's `-c` option, after what its person has there, which an option would replace."""
    own = str(_of_codex("developer_instructions") or "")
    said = "\n\n".join(filter(None, (own, statement)))
    return f"-c {shlex.quote(f'developer_instructions={toml_value(said)}')}"


def filled(data: Any, known: Mapping[str, Any]) -> Any:
    """Returns the data with its placeholders filled; a text that is a single placeholder becomes the value itself.
    Unknown placeholders, such as `{mcp_config}`, stay."""
    if isinstance(data, dict):
        return {key: filled(value, known) for key, value in data.items()}
    if isinstance(data, list):
        return [filled(item, known) for item in data]
    if not isinstance(data, str):
        return data
    if (whole := _PLACEHOLDER.fullmatch(data)) is not None:
        return known.get(whole[1], data)
    return _PLACEHOLDER.sub(lambda found: str(known.get(found[1], found[0])), data)


def _server_options(table: dict[str, Any]) -> str:
    """Returns the server as Codex's `-c` options for a shell. They name the variables of the pane, as it starts servers
    with a minimal environment; and a `-c` option keeps the agent in its own TUI, so that it is the right pane."""
    prefix = f"mcp_servers.{SERVER_NAME}"
    flat = {**table, **{f"env.{name}": value for name, value in table["env"].items()}}
    del flat["env"]
    # the purpose is set in windows that the supervisor opens
    flat["env_vars"] = ["MULTI_AGENT_MCP_PURPOSE", "TMUX", "TMUX_PANE"]
    return " ".join(f"-c {shlex.quote(f'{prefix}.{key}={toml_value(value)}')}" for key, value in flat.items())


def _hook_options(command: str) -> str:
    """Returns the hooks as Codex's `-c` options, with the same text for all agents: it remembers one approval for all
    hooks from options."""
    groups = toml_value([{"hooks": [{"type": "command", "command": command, "timeout": HOOK_SECONDS}]}])
    return " ".join(f"-c {shlex.quote(f'hooks.{event}={groups}')}" for event in EVENTS)


def toml_value(value: Any) -> str:
    """Returns a string, number, boolean, list or mapping as TOML, whose strings are written as in JSON, in UTF-8."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


MCP_CONFIG = "{mcp_config}"
"""The placeholder for the host's configuration in an agent's command."""
UNDESCRIBED, SERVER_FILE = "claude", "{mcp.json}"
"""The host whose form of a server's file programs without a description get, and that file."""


@dataclass(frozen=True)
class HostConfiguration:
    """The files of a host, and the command that then starts it."""

    host: str
    files: tuple[HostFile, ...]
    start: str

    def as_answer(self) -> dict[str, Any]:
        files = [{"file": str(item.path), "content": item.content} for item in self.files]
        return {"host": self.host, **(files[0] if files else {}), "files": files, "start": self.start}

    def lines(self) -> Iterator[str]:
        for item in self.files:
            yield f"# {item.path}"
            yield item.content
        yield f"# then (sh, bash, zsh): {self.start}" if self.files else self.start

    def require_unused(self, own: Path) -> None:
        """Raises `InvalidArguments` if a file already serves another agent, which must not be replaced. Files below
        `own` belong to this agent alone."""
        for item in self.files:
            for other in () if item.path.is_relative_to(own) else item.other_agents():
                raise InvalidArguments("other_agent_there", file=item.path, agent_id=other.agent_id)

    def write(self, backups: Path) -> list[tuple[Path, Path | None]]:
        """Merges our entries into the files, or changes none of them if one cannot be merged. Returns the files that
        changed, each with its backup. Raises as `HostFile.change`."""
        changes = [item.change() for item in self.files]
        return [(change.path, apply_change(change, backups)) for change in changes if change.changes]


class HostConfigurations(Service):
    """The configurations of one session's agents."""

    def __init__(
        self,
        session: Session,
        statement_of: Callable[[Agent], str],
        rules_of: Callable[[Agent], Sequence[Rules]],
    ) -> None:
        super().__init__(session)
        self._statement_of = statement_of
        self._rules_of = rules_of

    def of(
        self, host: str, agent_id: str, directory: Path | None = None, works_in: Path | None = None
    ) -> HostConfiguration:
        """Returns the configuration of a host for one agent: in the files of a directory, or for None in the agent's
        own files (or command-line options), as one that works there. For a host that reads only its directory, None is
        the current one."""
        known, template = hosts()[host], hosts()[host].configuration
        statement = "" if directory is not None or template.is_of_directory else self._statement(known, agent_id)
        place = template.statement
        agent = self.workspace.registry.all().get(agent_id)
        rules = self.rules(known, agent, works_in) if directory is None and agent is not None else NO_RULES
        filling = values(known, self.workspace, agent_id, statement, rules)
        filling["mcp_config"] = filled(_words(template.words, place if statement else None, rules), filling)
        start = f"{place.start if place is not None and statement else ''}{template.start}"
        if directory is not None or template.is_of_directory:
            start = template.start_shared
        filling["directory"] = shlex.quote(str(directory))
        files = (
            HostFile(path, merge_of(name, filled(content, filling)))
            for path, name, content in self._files(known, agent_id, directory)
        )
        return HostConfiguration(host, tuple(files), filled(start, filling))

    def _files(self, host: Host, agent_id: str, directory: Path | None) -> Iterator[tuple[Path, str, Any]]:
        """Yields the path of each file of a configuration, its name, and what its content is filled from."""
        template, place = host.configuration, host.configuration.statement
        if directory is not None or template.is_of_directory:
            yield from (((directory or Path()) / name, name, content) for name, content in template.shared.items())
        else:
            own = {**(place.own if place is not None else {}), **template.own}
            yield from ((own_file(self.workspace, agent_id, name), name, content) for name, content in own.items())

    def write(self, configuration: HostConfiguration) -> list[tuple[Path, Path | None]]:
        """Merges the configuration into the host's files, unless they serve another agent; see `require_unused` and
        `write` of `HostConfiguration`."""
        configuration.require_unused(own=self.workspace.path)
        return configuration.write(self._backups)

    def argument(self, agent: Agent, directory: Path | None = None) -> str:
        """Returns the shell words for `{mcp_config}` in the command of an agent that works in this directory (default:
        the current one), and writes the files that they name. An unknown program, and a command that brings its own
        settings, get only the file of the server in Claude Code's format. Raises `InvalidArguments` if the host reads
        only its directory, which is not configured."""
        if (command := self.missing_settings(agent)) is not None:
            title, file = hosts()[host_of_agent(agent)].title, self.of(host_of_agent(agent), agent.id).files[0].path
            raise InvalidArguments("host_not_configured", title=title, command=command, file=file)
        known = hosts().get(host_of_agent(agent))
        used = known or hosts()[UNDESCRIBED]
        statement = self._statement(used, agent.id) if known is not None else ""
        rules = NO_RULES if known is None else self.rules(known, agent, directory)
        if used.configuration.own:
            self.of(used.name, agent.id, works_in=directory).write(self._backups)
        words = SERVER_FILE if known is None or self.brings_settings(agent) else used.configuration.words
        words = _words(words, used.configuration.statement if statement else None, rules)
        filling = values(used, self.workspace, agent.id, statement, rules)
        self._write_others(used, agent, filling, rules)
        return str(filled(words, filling))

    def brings_settings(self, agent: Agent) -> bool:
        """Returns whether an agent's command brings settings of its own, so that its host has none of our hooks."""
        known = hosts().get(host_of_agent(agent))
        return known is not None and known.configuration.settings_option in words_of(agent.command or "")

    def binding(self, agent: Agent, directory: Path | None = None) -> tuple[frozenset[str], bool]:
        """Returns the rules to which an agent's host holds it by itself where it works in this directory (default: the
        current one), and whether its rules reach the host at all, by its own settings or our hooks."""
        host = hosts().get(host_of_agent(agent))
        if host is None or MCP_CONFIG not in (agent.command or "") or self.missing_settings(agent) is not None:
            return frozenset(), False
        rules = self.rules(host, agent, directory)
        return rules.bound, rules != NO_RULES or not self.brings_settings(agent)

    def rules(self, host: Host, agent: Agent, directory: Path | None = None) -> HostRules:
        """Returns the agent's rules in the host's own permission settings, as far as it has them and nothing of the
        agent's command, nor of its person's, takes their place."""
        place, given = host.configuration.rules, _given(agent)
        if place is None or given is None or given & {*place.not_beside}:
            return NO_RULES
        if (place.form == "profile" and _has_permissions()) or (place.form == "policy" and _SYSTEM_POLICIES.is_dir()):
            return NO_RULES
        works_in = os.path.realpath(directory or working_directory())
        tree = tree_of(f"{works_in}/x") or works_in
        return compiled(place, self._rules_of(agent), tree, is_at_top=tree == works_in)

    def _write_others(self, host: Host, agent: Agent, filling: Mapping[str, Any], rules: HostRules) -> None:
        """Writes the agent's files beside its configuration: of its rules, and of its statement where the host has its
        configuration from a directory."""
        place, stated = host.configuration.rules, host.configuration.statement
        files = {**(place.own if place is not None and rules.words else {})}
        if stated is not None and stated.named and filling["statement"]:
            files |= stated.own
        for name, content in files.items():
            path = own_file(self.workspace, agent.id, name)
            HostConfiguration(host.name, (HostFile(path, whole(filled(content, filling))),), "").write(self._backups)

    def _statement(self, host: Host, agent_id: str) -> str:
        """Returns the agent's statement, if the host has a place for it that nothing of the agent's command fills, and
        none of its quotes would cut the statement; else "": its server gives it."""
        agent, place = self.workspace.registry.all().get(agent_id), host.configuration.statement
        if agent is None or place is None:
            return ""
        given = _given(agent)
        return "" if given is None or given & {*place.not_beside} else self._statement_of(agent)

    def environment(self, agent: Agent) -> dict[str, str]:
        """Returns the variables that pass `{mcp_config}` to a host without an option for it."""
        known = hosts().get(host_of_agent(agent))
        if known is None or MCP_CONFIG not in (agent.command or ""):
            return {}
        own = known.configuration.environment.items()
        place = known.configuration.statement if self._statement(known, agent.id) else None
        directories = {
            variable: _lengthened(variable, own_file(self.workspace, agent.id, name).parent)
            for variable, name in (place.directories if place is not None else {}).items()
        }
        named = {
            variable: os.path.relpath(own_file(self.workspace, agent.id, name).absolute(), _gemini_home())
            for variable, name in (place.named if place is not None else {}).items()
        }
        return {variable: str(own_file(self.workspace, agent.id, name)) for variable, name in own} | directories | named

    def missing_settings(self, agent: Agent) -> str | None:
        """Returns the command to run before `{mcp_config}` can work, or None. What a host reads only in its directory
        is not written without being asked for, as it is not this agent's alone."""
        known = hosts().get(host_of_agent(agent))
        if known is None or not known.configuration.is_of_directory or MCP_CONFIG not in (agent.command or ""):
            return None
        try:
            is_there = not self.of(known.name, agent.id).files[0].change().changes
        except InvalidArguments:  # the command reports the error in the file
            is_there = False
        return None if is_there else f"multi-agent-mcp host-config {known.name} --agent {agent.id} --write"

    def outdated(self) -> Iterator[tuple[str, str, Path, Callable[[], object]]]:
        """Yields the files that an earlier version has written, with the host, the agent, and a function that writes
        them again: what they start may import modules of the project (docs/security.md, The project's modules). Looks
        at the agents' own files, and at the shared ones beside the session's root."""
        is_old = cache(imports_from_the_project)  # of several hosts and all agents, there are few files
        for agent_id, host, directory in product(self.workspace.registry.all(), hosts(), (None, self._project)):
            if not any(is_old(path) for path, *_ in self._files(hosts()[host], agent_id, directory)):
                continue
            configuration = self.of(host, agent_id, directory)
            mine = Identity(str(self.workspace.root), self.workspace.session, agent_id)
            for item in configuration.files:
                if is_old(item.path) and mine in (item.agents or {mine}):
                    yield host, agent_id, item.path, partial(self.write, configuration)

    @property
    def _project(self) -> Path:
        return self.workspace.root.parent

    @property
    def _backups(self) -> Path:
        """The directory for copies of changed files, outside of the user's repository."""
        return self.workspace.path / "hosts" / "backups"


_SYSTEM_POLICIES = Path("/etc/gemini-cli/policies")
"""Where there are such, Gemini CLI ignores those of an option."""


def _given(agent: Agent) -> set[str] | None:
    """Returns the words of an agent's command, and what is before a `=` in them; None if `{mcp_config}` is within
    quotes, which those of a statement or a rule would end."""
    words = words_of(agent.command or "")
    if any(MCP_CONFIG in word and len(word.split()) > 1 for word in words):
        return None
    return {part for word in words for part in (word, word.partition("=")[0])}


def _words(words: str, place: StatementPlace | None, rules: HostRules = NO_RULES) -> str:
    """Returns the words for `{mcp_config}` with those that give the statement, and the rules."""
    return " ".join(filter(None, (words, place.words if place is not None else "", rules.words)))


def _lengthened(variable: str, directory: Path) -> str:
    """Returns the value of a variable that lists directories, with one more."""
    return ",".join(filter(None, (child_environment().get(variable), str(directory))))


def words_of(command: str) -> list[str]:
    """Returns the words of a command, as far as it is one of sh(1)."""
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def program_of(command: str) -> str:
    """Returns the program at the beginning of a command, or after `env NAME=VALUE …`."""
    words = words_of(command)
    if words and Path(words[0]).name == "env":
        after = next(dropwhile(_ASSIGNMENT.match, words[1:]), "-")
        return words[0] if after.startswith("-") else after
    return words[0] if words else ""


_ASSIGNMENT = re.compile(r"\w+=")


def program_name(command: str) -> str:
    """Returns the name of that program."""
    return Path(program_of(command)).name


def host_of_agent(agent: Agent) -> str:
    """Returns the host that a person named, else the command's program, else, if that is no known host, the recorded
    one: it may be that of an earlier command."""
    program = program_name(agent.command or "")
    return next((name for name in (agent.declared_host, program, agent.host) if name and name in hosts()), program)
