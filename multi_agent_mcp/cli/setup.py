"""`init` makes a session directory from a team.yaml, and a team.yaml if there is none."""

from __future__ import annotations

import json
import re
import string
import sys
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from multi_agent_mcp.cli.context import (
    JSON,
    ROOT,
    SESSION,
    people_texts,
    print_answer,
    print_error,
    print_line,
    refuse,
    system_errors,
)
from multi_agent_mcp.cli.rendering import approval_line, change_lines, is_terminal
from multi_agent_mcp.config import (
    ROOT_NAME,
    find_root,
    read_environment,
    require_utf8,
    session_names,
    working_directory,
)
from multi_agent_mcp.domain.agent import Agent, superiors
from multi_agent_mcp.domain.entity import as_name, differing_in_case, session_name
from multi_agent_mcp.domain.text import one_line
from multi_agent_mcp.errors import AlreadyExists, InvalidArguments, Reason, Refusal, Unauthorized
from multi_agent_mcp.host_config import program_name
from multi_agent_mcp.hosts import hosts
from multi_agent_mcp.system.other_files import FileChange, apply_change
from multi_agent_mcp.system.ownership import require_entered, require_own
from multi_agent_mcp.texts import LANGUAGES, Texts

if TYPE_CHECKING:
    from multi_agent_mcp.features import Features
    from multi_agent_mcp.services.team.approvals import Approval
    from multi_agent_mcp.services.team.setup import TeamUpdate
    from multi_agent_mcp.wiring import Services

# The team.yaml that `init` writes if there is none: for the hosts on PATH, or of scripted agents.

NewAgent = dict[str, str]
OWNER = {"id": "owner", "role": "owner", "type": "human"}
SCRIPTED = "{{python}} -E {{examples}}/agents/{role}.py"
"""The command of a scripted agent."""


SETTABLE = ("host", "command", "name", "skills")
"""What `agent set` changes of what `init` keeps."""


def write_team(path: Path, name: str, language: str, agents: list[NewAgent]) -> None:
    """Writes a team.yaml with comments, which belongs to the project and holds no secret. Raises `StorageError`, also
    if the file exists by now."""
    lines = [f"  - {{{', '.join(f'{key}: {_scalar(value)}' for key, value in agent.items())}}}" for agent in agents]
    text = people_texts()("team.file", session=json.dumps(name), language=language, agents="\n".join(lines))
    apply_change(FileChange(path, None, text.encode(), is_public=True), path.parent)


def host_agents(admin: str | None, workers: str | None) -> list[NewAgent]:
    """Returns an Owner, an admin and workers with these hosts, else with those on PATH. Raises `InvalidArguments`."""
    found = [name for name, program in hosts().items() if program.is_installed]
    if not (found or (admin and workers)):
        known = ", ".join(f"{program.title} (`{program.install}`)" for program in hosts().values())
        raise InvalidArguments("no_hosts", known=known)
    admin = admin or found[0]
    names = workers.split(",") if workers else [found[0], found[1 % len(found)]]
    return _team(hosts()[admin].command, [hosts()[name].command for name in names])


def scripted_agents() -> list[NewAgent]:
    """Returns an Owner and the scripted agents of the examples, which need no installation and no account."""
    agents = _team(SCRIPTED.format(role="admin"), [SCRIPTED.format(role="worker")] * 2)
    return [agent if agent is OWNER else {**agent, "host": "plain"} for agent in agents]


def name_of(directory: Path) -> str:
    """Returns a session name for a directory: its name without accents and characters that names may not contain."""
    plain = re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFKD", directory.name))
    return as_name(plain, "team")


def _team(admin: str, workers: list[str]) -> list[NewAgent]:
    if len(workers) > len(string.ascii_lowercase):
        raise InvalidArguments("bad_parameter", name="--workers")
    below = [
        {"id": f"worker-{letter}", "role": "worker", "parent": "admin", "command": command}
        for letter, command in zip(string.ascii_lowercase, workers, strict=False)
    ]
    return [OWNER, {"id": "admin", "role": "admin", "parent": "owner", "command": admin}, *below]


def _scalar(value: str) -> str:
    """Returns a value as YAML: plain words as they are, others in quotes."""
    return value if re.fullmatch("[a-z-]+", value) else json.dumps(value, ensure_ascii=False)


TEAM_FILE = "team.yaml"
Consent = Literal["yes", "asked", "script"]
"""How a person approves: in advance, when asked in a terminal, or by having approved all there was before."""
SAID_IN_THE_PROJECT = ("questions", "reservations", "worktrees")
"""The features of which the block in the project's AGENTS.md has a line: `agents_md.{feature}`."""


@dataclass(frozen=True)
class NewTeam:
    """The options for a new team.yaml."""

    admin: str | None = None
    workers: str | None = None
    name: str | None = None
    demo: bool = False


@dataclass(frozen=True)
class TeamPaths:
    """The paths of a team: its file, and the root of its session."""

    team: Path
    root: Path


@dataclass(frozen=True)
class Decided:
    """What became of the approval. `values`: the lines of what was approved without having been shown before.
    `is_here`: whether somebody on this machine can approve."""

    approval: Approval
    values: Sequence[str] = ()
    is_here: bool = True

    def lines(self, features: Features, texts: Texts) -> Iterator[str]:
        if self.values:
            yield from (texts("init.approved"), *self.values)
        if self.is_here and self.approval.state != "approved":
            yield approval_line(self.approval, features, texts)


@dataclass(frozen=True, kw_only=True)
class Made:
    """The result of `init`. `new_team`: the team.yaml is new. `first`: a command that a host needs before `up`.
    `running`: the agents whose command has changed while they run. `unknown`: keys of team.yaml that are nothing to us.
    `instructions`: the files of the project to which our block was added, or from which it was `taken_out`."""

    place: TeamPaths
    new_team: bool
    session: str
    agents: Mapping[str, Agent]
    update: TeamUpdate
    first: str | None
    texts: Texts
    features: Features
    decided: Decided
    running: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    instructions: tuple[Path, ...] = ()
    taken_out: bool = False

    @property
    def path(self) -> Path:
        return self.place.root / self.session

    def as_answer(self) -> dict[str, object]:
        team = {"team": str(self.place.team), "team_written": self.new_team}
        return {
            "session": self.session,
            "path": str(self.path),
            **team,
            "agents": list(self.agents),
            "first": self.first,
            "instructions": list(map(str, self.instructions)),
            "approval": self.decided.approval.as_answer(),
            "unknown_keys": list(self.unknown),
            "approved": [line.strip() for line in self.decided.values],
            **asdict(self.update),
        }

    def lines(self) -> Iterator[str]:
        texts, update = self.texts, self.update
        if self.new_team:
            yield texts("init.team_written", path=self.place.team)
        yield texts("init.done", path=self.path, count=len(self.agents), added=len(update.added))
        for name, keys in update.changed.items():
            yield texts("init.changed", name=name, keys=", ".join(keys))
        for name in self.running:
            yield texts("agent.until_restart", agent_id=name)
        yield from self._kept()
        if update.new_keys:
            yield texts("init.new_keys", names=", ".join(update.new_keys))
        if named := [key for key in self.unknown if not key.startswith("x-")]:
            yield texts("init.unknown_keys", keys=", ".join(map(one_line, named)))
        if update.left_out:
            yield texts("init.left_out", names=", ".join(update.left_out))
        for file in self.instructions:
            yield texts("init.instructions_out" if self.taken_out else "init.instructions", path=file)
        yield from self.decided.lines(self.features, texts)
        if self.first is not None or self.new_team or update.added:
            yield from self._next_steps({agent.command for agent in self.agents.values() if agent.command})

    def _kept(self) -> Iterator[str]:
        texts, update = self.texts, self.update
        for name, keys in update.kept.items():
            told = name in update.told_before
            if name in self.agents and not told:
                settable = ", ".join(key for key in keys if key in SETTABLE)
                text = "init.kept_settable" if settable else "init.kept"
                yield texts(text, name=name, keys=", ".join(keys), settable=settable)
            elif not told and (commented := [key for key in keys if key not in update.unnamed]):
                yield texts("init.settings_kept", name=name, keys=", ".join(commented))
        if update.unnamed:
            yield texts("init.settings_unnamed", keys=", ".join(update.unnamed))

    def _next_steps(self, commands: Collection[str]) -> Iterator[str]:
        for program in hosts().values() if self.new_team else ():
            if program.command in commands and not program.is_installed:
                yield self.texts("init.not_installed", title=program.title, install=program.install)
        if self.first is not None:
            yield self.texts("init.first", command=self.first)
        is_only_one = len(session_names(self.place.root)) == 1
        if self.new_team and is_only_one and any("{examples}" in command for command in commands):
            yield self.texts("init.next_scripted")
        elif commands:
            yield self.texts("init.next", option="" if is_only_one else f" --session {self.session}")


class _Hosts(click.Choice[str]):
    """Several of the choices, separated by commas."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return ",".join(super(_Hosts, self).convert(name.strip(), param, ctx) for name in value.split(","))


@click.command()
@click.option("--team", metavar="FILE", type=Path, help="The team: session, language, agents (default: team.yaml).")
@click.option(
    "--admin", type=click.Choice(hosts()), help="For a new team.yaml: the admin's host (default: one on PATH)."
)
@click.option(
    "--workers",
    metavar="HOST,…",
    type=_Hosts(hosts()),
    help="For a new team.yaml: a worker for each (default: two on PATH).",
)
@click.option("--name", help="For a new team.yaml: the session's name (default: the directory's).")
@click.option("--demo", is_flag=True, help="For a new team.yaml: scripted agents, to try it without an account.")
@click.option(
    "--agents-md/--no-agents-md",
    default=None,
    help="Add what the project's agents have to know of the team to AGENTS.md (and CLAUDE.md), or take it out.",
)
@click.option("--language", type=click.Choice(LANGUAGES), help="Default: team.yaml's; for a new one the locale's.")
@click.option("--yes", is_flag=True, help="Approve, unasked, what agents may do and when work is proven.")
@ROOT
@SESSION
@JSON
def init(
    team: Path | None,
    language: str | None,
    root: str | None,
    session: str | None,
    as_json: bool,
    agents_md: bool | None,
    yes: bool,
    **new: Any,
) -> None:
    """Make a session for a team; without a team.yaml, write one for the hosts on PATH.

    Run again, it takes over what has changed in team.yaml, and keeps keys, mail and tasks. In a terminal it shows what
    has to be approved (see `agent approve`) and asks.

    Example: `multi-agent-mcp init --admin claude --workers codex,gemini`
    """
    try:
        with system_errors():
            asks = not as_json and sys.stdin.isatty() and is_terminal()
            consent: Consent = "yes" if yes else "asked" if asks else "script"
            made = _init(team, root, session, language, NewTeam(**new), consent)
            made = replace(made, instructions=_instructed(made, wanted=agents_md), taken_out=agents_md is False)
    except Refusal as refusal:
        refuse(refusal, as_json=as_json)
    print_answer(made.as_answer(), made.lines(), as_json=as_json)


def _init(
    team: Path | None, root: str | None, session: str | None, language: str | None, new: NewTeam, consent: Consent
) -> Made:
    environment = read_environment()
    place = _place(team, root or environment.root)
    require_entered(place.root)
    require_own(place.root)  # before a team.yaml is written for it
    session = environment.session if session is None else session
    is_wanted = new != NewTeam()
    is_new = not place.team.exists() and (team is None or is_wanted)
    if is_new:
        _write_team(place, new, session, language)
    elif is_wanted:
        raise InvalidArguments("team_exists", file=place.team)
    return _made(place, session, language, consent, new_team=is_new)


def _instructed(made: Made, *, wanted: bool | None) -> tuple[Path, ...]:
    """Adds the block to the project's files, or takes it out; None: leaves them as they are. Returns what changed."""
    if wanted is None:
        return ()
    from multi_agent_mcp.project_instructions import ProjectInstructions

    files = ProjectInstructions(made.place.team.absolute().parent, made.path / "hosts" / "backups")
    if not wanted:
        return tuple(files.remove())
    programs = {program_name(agent.command or "") for agent in made.agents.values()}
    lines = {name: made.texts(f"agents_md.{name}") if name in made.features else "" for name in SAID_IN_THE_PROJECT}
    block = made.texts("agents_md.block", **lines)
    return tuple(files.add(block, for_claude="claude" in programs))


def _place(team: Path | None, root: str | None) -> TeamPaths:
    """Returns the place of the team.yaml in the current directory, or beside the nearest root; if there is none, of a
    new one in the current directory, with its own root."""
    here = working_directory() if root or read_environment().root else Path.cwd()
    nearest = find_root(root, here)
    if team is not None or root is not None or (here / TEAM_FILE).exists():
        return TeamPaths(team or here / TEAM_FILE, nearest)
    if (nearest.parent / TEAM_FILE).exists():
        return TeamPaths(nearest.parent / TEAM_FILE, nearest)
    return TeamPaths(here / TEAM_FILE, here / ROOT_NAME)


def _write_team(place: TeamPaths, new: NewTeam, session: str | None, language: str | None) -> None:

    require_utf8(place.root)  # before writing a file
    if new.demo and (new.admin or new.workers):
        raise InvalidArguments("demo_with_hosts")
    sessions = session_names(place.root)
    usual = sessions[0] if len(sessions) == 1 else name_of(place.team.parent)
    name = next(given for given in (new.name, session, usual) if given is not None)
    if (other := differing_in_case(name, sessions)) is not None:  # before writing a file with an impossible name
        raise AlreadyExists("differs_in_case", name=name, known=other)
    agents = scripted_agents() if new.demo else host_agents(new.admin, new.workers)
    write_team(place.team, session_name(name), language or people_texts().language, agents)


def _made(place: TeamPaths, session: str | None, language: str | None, consent: Consent, *, new_team: bool) -> Made:
    from multi_agent_mcp.bootstrap import open_session, require_features
    from multi_agent_mcp.services.team.setup import (
        create_session,
        features_after,
        read_team,
        require_known_hosts,
        update_session,
    )

    team = read_team(place.team)
    name = team.session if session is None else session
    if name is None:
        raise InvalidArguments("bad_team", file=place.team.name, reason=Reason("no_session_named"))
    require_known_hosts(team.agents, place.root)
    create_session(place.root, name, team, language)
    before = open_session(place.root, name)
    require_features(before, features_after(before.agents, team))
    stands = before.approvals.look().state == "approved" or before.approvals.is_first()
    update = update_session(before.agents, team, language)
    services = open_session(place.root, name)  # in its language after the update
    agents = services.agents.all()
    for agent_id in update.added:
        _warn_about_hierarchy(agent_id, agents, services.texts)
    if (refused := services.contributions.ask("refusal")) is not None:
        print_error(services.texts.sentence(refused))
    first = next(filter(None, map(services.host_configurations.missing_settings, agents.values())), None)
    return Made(
        place=place,
        new_team=new_team,
        session=name,
        agents=agents,
        update=update,
        first=first,
        texts=services.people,
        features=services.session.features,
        unknown=team.unknown,
        decided=_decided(services, consent, stands=stands, new_team=new_team),
        running=tuple(name for name, keys in update.changed.items() if "command" in keys and _runs(services, name)),
    )


def _runs(services: Services, name: str) -> bool:
    return name in services.agents.all() and services.sessions.alive(name)


def _decided(services: Services, consent: Consent, *, stands: bool, new_team: bool) -> Decided:
    """Approves what is there now, if a person says so, or, unasked, if it `stands`: if all was approved before, or the
    session is new. What `init` itself has made up, and what changes nothing, needs no question."""
    approvals = services.approvals
    try:
        content = approvals.content()
        values = [] if new_team else list(change_lines(approvals.differences(content)))
        approvals.require_signer()
        is_asked = consent == "asked" and bool(values)
        is_wanted = _agreed(values, services.people) if is_asked else stands or consent == "yes"
        if is_wanted:
            return Decided(approvals.approve(content), () if is_asked else values)
    except InvalidArguments:
        return Decided(approvals.look(), is_here=False)
    except Unauthorized:
        pass
    return Decided(approvals.look())


def _agreed(values: Sequence[str], texts: Texts) -> bool:
    """Shows what has to be approved and asks; no answer is no."""
    for line in (texts("init.approves"), *values):
        print_line(line)
    try:
        return click.confirm(texts("init.approve"))
    except click.Abort:
        print_line()
        return False


def _warn_about_hierarchy(agent_id: str, agents: Mapping[str, Agent], texts: Texts) -> None:
    try:
        list(superiors(agent_id, agents))
    except Refusal as refusal:
        print_error(texts.sentence(refusal))
