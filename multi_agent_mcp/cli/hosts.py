"""Commands about the programs that agents run in: `host-config` writes what makes one start our server, `host learn`
describes an unknown one."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from multi_agent_mcp.cli.context import SessionContext, print_line, session_command
from multi_agent_mcp.config import expanded
from multi_agent_mcp.domain.text import one_line
from multi_agent_mcp.errors import AlreadyExists, InvalidArguments, Reason
from multi_agent_mcp.hosts import hosts
from multi_agent_mcp.system.other_files import FileChange, apply_change
from multi_agent_mcp.texts import Texts

if TYPE_CHECKING:
    from multi_agent_mcp.doorbell.tmux.learning import UnknownProgram
    from multi_agent_mcp.doorbell.tmux.screens import Screen
    from multi_agent_mcp.host_config import HostConfiguration


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
