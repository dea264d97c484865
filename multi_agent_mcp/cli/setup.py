"""What sets a team up: `init` makes a session directory from a team.yaml, and a team.yaml if there is none;
`host-config` writes what makes a host start our server, `host learn` describes an unknown one."""

from __future__ import annotations

import json
import re
import string
import sys
import time
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import yaml

from multi_agent_mcp.cli.context import (
    JSON,
    ROOT,
    SESSION,
    SessionContext,
    people_texts,
    print_answer,
    print_error,
    print_line,
    refuse,
    session_command,
    system_errors,
)
from multi_agent_mcp.cli.rendering import approval_line, change_lines, is_terminal
from multi_agent_mcp.config import (
    ROOT_NAME,
    expanded,
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
from multi_agent_mcp.host_config import HostConfiguration, program_name
from multi_agent_mcp.hosts import hosts
from multi_agent_mcp.system.other_files import FileChange, apply_change
from multi_agent_mcp.system.ownership import require_entered, require_own
from multi_agent_mcp.texts import LANGUAGES, Texts

if TYPE_CHECKING:
    from multi_agent_mcp.doorbell.tmux.learning import UnknownProgram
    from multi_agent_mcp.doorbell.tmux.screens import Screen
    from multi_agent_mcp.features import Features
    from multi_agent_mcp.services.team.approvals import Approval
    from multi_agent_mcp.services.team.setup import TeamUpdate
    from multi_agent_mcp.wiring import Services

# The team.yaml that `init` writes if there is none: for the hosts on PATH, or of scripted agents.

NewAgent = dict[str, str]
OWNER = {"id": "owner", "role": "owner", "type": "human"}
SCRIPTED = "{{python}} -E {{examples}}/agents/{role}.py"
"""The command of a scripted agent."""


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
    `instructions`: the files of the project to which our block was added, or from which it was taken."""

    place: TeamPaths
    new_team: bool
    session: str
    agents: Mapping[str, Agent]
    update: TeamUpdate
    first: str | None
    texts: Texts
    features: Features
    decided: Decided
    instructions: tuple[Path, ...] = ()

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
        yield from self._kept()
        if update.new_keys:
            yield texts("init.new_keys", names=", ".join(update.new_keys))
        if update.left_out:
            yield texts("init.left_out", names=", ".join(update.left_out))
        for file in self.instructions:
            yield texts("init.instructions", path=file)
        yield from self.decided.lines(self.features, texts)
        if self.first is not None or self.new_team or update.added:
            yield from self._next_steps({agent.command for agent in self.agents.values() if agent.command})

    def _kept(self) -> Iterator[str]:
        texts, update = self.texts, self.update
        for name, keys in update.kept.items():
            told = name in update.told_before
            if name in self.agents and not told:
                yield texts("init.kept", name=name, keys=", ".join(keys))
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
        if is_only_one and any("{examples}" in command for command in commands):
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
@click.option("--yes", is_flag=True, help="Approve what decides when work is proven and what agents may do, unasked.")
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
            made = replace(made, instructions=_instructed(made, wanted=agents_md))
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
    from multi_agent_mcp.services.team.setup import create_session, features_after, read_team, update_session

    team = read_team(place.team)
    name = team.session if session is None else session
    if name is None:
        raise InvalidArguments("bad_team", file=place.team.name, reason=Reason("no_session_named"))
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
        decided=_decided(services, consent, stands=stands, new_team=new_team),
    )


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


@click.command()
@click.argument("host", type=click.Choice(hosts()), help="The program that the agent runs in.")
@click.option("--agent", metavar="ID", required=True, help="The agent.")
@click.option("--write", is_flag=True, help="Write the files; existing content is kept.")
@click.option(
    "--directory",
    metavar="DIR",
    type=Path,
    help="Write into this directory, whose files the host reads automatically (default: files of the agent alone).",
)
@session_command()
def host_config(context: SessionContext, host: str, agent: str, write: bool, directory: Path | None) -> None:
    """Print the configuration of a host for an agent, or write it.

    Example: `multi-agent-mcp host-config claude --agent worker-a`
    """
    from multi_agent_mcp.system.git import way_to_ignore

    agent_id = context.services.agents.here(agent).id
    where = expanded(directory).absolute() if directory else None
    configurations = context.services.host_configurations
    configuration = configurations.of(host, agent_id, where)
    if not write:
        context.answer(configuration.as_answer(), configuration.lines())
        return
    backups = dict(configurations.write(configuration))
    files = [{"file": str(file), "backup": str(backup) if backup else None} for file, backup in backups.items()]
    ways = {item.path: way for item in configuration.files if (way := way_to_ignore(item.path)) is not None}
    lines = _written_lines(configuration, backups, ways, context.texts)
    context.answer({**configuration.as_answer(), "written": files, "not_ignored": list(map(str, ways))}, lines)


def _written_lines(
    configuration: HostConfiguration, backups: dict[Path, Path | None], ways: Mapping[Path, str], texts: Texts
) -> Iterator[str]:
    """The lines for people; `ways` are those of having git ignore the files that it does not."""
    for item in configuration.files:
        backup = backups.get(item.path)
        written = "backup" if backup else "written"
        yield texts(f"host_config.{written if item.path in backups else 'unchanged'}", path=item.path, backup=backup)
    for path, way in ways.items():
        yield texts("host_config.not_ignored", path=path, command=way)
    yield texts("host_config.then", command=configuration.start)


# `host learn`: makes a profile for a program that has none, from screens that its user shows.

FRAMES, FRAME_SECONDS = 5, 0.2
"""The number of captures in each step, and their interval: signs of work may be missing from a capture, or move."""
KEY = re.compile("((C-|M-|S-)*Enter|Tab|C-[jm])")
"""The keys that may enter a line, as tmux names them; any other could interrupt the agent (docs/protocol.md, Typing
into a pane, No other keys)."""
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


@click.group()
def host() -> None:
    """The programs that agents run in: learn."""


@host.command()
@click.argument("agent_id", metavar="AGENT")
@click.option("--name", metavar="NAME", help="The profile's name (default: the program's).")
@click.option("--submit", default="Enter", metavar="KEY", help="The key that enters a line, as tmux names it.")
@session_command(json=False)
def learn(context: SessionContext, agent_id: str, name: str | None, submit: str) -> None:
    """Describe the program in an agent's pane, so that its doorbell can ring there.

    You show it at rest, with a draft, at work and with a question; nothing is typed into it meanwhile.

    Example: `multi-agent-mcp host learn worker-a`
    """
    from multi_agent_mcp.doorbell.tmux.learning import UnknownProgram

    if not KEY.fullmatch(submit):
        raise InvalidArguments("bad_parameter", name="--submit")
    agent = context.services.agents.here(agent_id)
    program = UnknownProgram.in_pane_of(agent, context.services.root / "hosts")
    name = name or re.sub("[^a-z0-9_-]+", "-", Path(program.name).stem.lower()).strip("-_")[:32]
    _require_new(name, program)
    Lesson(context, program, submit).run(name)


def _require_new(name: str, program: UnknownProgram) -> None:
    if not NAME.fullmatch(name):
        raise InvalidArguments("bad_parameter", name="--name")
    file = program.directory / f"{name}.yaml"
    if name in program.profiles.named or file.exists():
        raise AlreadyExists("profile_exists", name=name, file=file)


class Lesson:
    """The dialogue with the user: shows five screens, confirms what they mean, and writes the profile."""

    def __init__(self, context: SessionContext, program: UnknownProgram, key: str) -> None:
        self.services = context.services
        self.texts = context.texts
        self.program = program
        self.key = key
        self.screens: dict[str, list[Screen]] = {}
        self.sign: str | None = None

    def run(self, name: str) -> None:
        """Runs the dialogue. Raises `InvalidArguments`, with nothing written, if the user ends it or the screens cannot
        be distinguished."""
        from multi_agent_mcp.doorbell.tmux.learning import STEPS, confused, profile_fields, verdicts
        from multi_agent_mcp.doorbell.tmux.profiles import parse_profile

        self._say("begin", agent_id=self.program.agent.id, program=self.program.name, pane=self.program.agent.pane_id)
        for step in STEPS:
            self._show(step)
        fields = profile_fields(self.screens, self.program.name, self.key, self.sign)
        text = yaml.safe_dump(fields, allow_unicode=True, sort_keys=False, width=120)
        found = verdicts(parse_profile(name, yaml.safe_load(text)), self.screens)
        for step, state in found.items():
            self._say("verdict", step=self.texts(f"learn.name.{step}"), state=state)
        if (wrong := confused(found)) is not None:
            step_name = self.texts(f"learn.name.{wrong}")
            raise InvalidArguments("not_learned", reason=Reason("learn_confused", step=step_name, state=found[wrong]))
        file = self.program.directory / f"{name}.yaml"
        self._require(self._ask("write", file=file, key=self.key))
        self._write(file, text)

    def _show(self, step: str) -> None:
        """Captures the screen of a step, again until the user agrees with what was recognised."""
        from multi_agent_mcp.doorbell.tmux.learning import Unlearnable

        while True:
            self._ask(step, key=self.key, draft=_draft_text())
            self.screens[step] = list(self._captured())
            try:
                agreed = self._agreed(step)
            except Unlearnable as error:
                self._say("again", reason=self.texts.reason(error.reason))
                continue
            if agreed:
                return

    def _agreed(self, step: str) -> bool:
        """Prints what was recognised so far and asks whether it is right. Raises `Unlearnable`."""
        from multi_agent_mcp.doorbell.tmux import learning

        if step == "busy":
            return self._agreed_sign()
        shown = self.screens[step][-1]
        facts: dict[str, Any] = {"row": shown.rows[shown.cursor_y].strip() or "-"}
        if step in ("draft", "rest"):
            placeholders = learning.composer_fields(self.screens)["placeholders"]
            facts |= {"prefix": learning.prefix(self.screens), "placeholders": ", ".join(placeholders) or "-"}
        if step == "dialog":
            facts["rows"] = " | ".join(map(str.strip, learning.dialog_rows(self.screens))) or "-"
        self._say(f"saw.{step}", **facts)
        return self._ask("right") == ""

    def _agreed_sign(self) -> bool:
        """Asks which phrase shows that the program works; none is needed if its title does. Raises `Unlearnable`."""
        from multi_agent_mcp.doorbell.tmux.learning import Unlearnable, busy_signs, busy_titles

        signs, title = busy_signs(self.screens), busy_titles(self.screens)
        if not signs and title is None:
            raise Unlearnable("learn_busy")
        self._say("saw.busy", title=title or "-")
        for number, sign in enumerate(signs, 1):
            print_line(f"   {number}) {sign}")
        answer = self._ask("sign") if signs else self._ask("right")
        chosen = int(answer or "1") if re.fullmatch("[0-9]?", answer) else 0
        self.sign = signs[chosen - 1] if 1 <= chosen <= len(signs) else None
        return self.sign is not None or (not signs and answer == "")

    def _captured(self) -> Iterator[Screen]:
        for number in range(FRAMES):
            if number:
                time.sleep(FRAME_SECONDS)
            yield self.program.capture()

    def _write(self, file: Path, text: str) -> None:
        agent = self.program.agent
        head = f"# Learned by `multi-agent-mcp host learn {agent.id}`; docs/hosts.md, Learning a host.\n"
        apply_change(FileChange(file, None, (head + text).encode()), file.parent)
        if agent.host not in (None, "plain", file.stem):
            self.services.agents.change(agent.id, host=file.stem)
        self._say("written", file=file, agent_id=agent.id)

    def _ask(self, key: str, /, **values: Any) -> str:
        """Asks the user and returns the answer, "" for Enter or yes. Raises `InvalidArguments` at the end of the input,
        and for `q`."""
        self._say(key, **values)
        answer = sys.stdin.readline()
        if not answer or answer.strip().lower() == "q":
            raise InvalidArguments("not_learned", reason=Reason("learn_ended"))
        answer = answer.strip().lower()
        return "" if answer in ("y", "yes", "はい") else answer

    def _require(self, answer: str) -> None:
        if answer:
            raise InvalidArguments("not_learned", reason=Reason("learn_ended"))

    def _say(self, key: str, /, **values: Any) -> None:
        print_line(one_line(self.texts(f"learn.{key}", **values)))
        sys.stdout.flush()


def _draft_text() -> str:
    from multi_agent_mcp.doorbell.tmux.learning import DRAFT_TEXT

    return DRAFT_TEXT
