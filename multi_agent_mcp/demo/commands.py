"""The `demo` command."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from multi_agent_mcp.cli.context import people_texts, print_error, print_line, refuse
from multi_agent_mcp.cli.machines import require_client
from multi_agent_mcp.demo.stage import Stage
from multi_agent_mcp.errors import InvalidArguments, Refusal
from multi_agent_mcp.system.files import storage_errors
from multi_agent_mcp.texts import LANGUAGES, Texts

MACHINES = "machines"
NAMES = ("main", "interrupt", "shiritori", "proven", "gate", "question", "morning", "office", MACHINES)
"""The names of the scenes, here so that `--help` need not import `scenes`."""


@click.command()
@click.argument("scene", default="main", type=click.Choice(NAMES), help="What is played.")
@click.option("--attach", is_flag=True, help="Show the panes while the team works.")
@click.option("--keep", is_flag=True, help="Leave tmux running afterwards, and the files where they are.")
@click.option(
    "--directory",
    metavar="DIR",
    type=Path,
    help="Where the session is made, and stays (default: a temporary directory).",
)
@click.option("--language", type=click.Choice(LANGUAGES), help="Of the team (default: the locale's).")
def demo(scene: str, attach: bool, keep: bool, directory: Path | None, language: str | None) -> None:
    """Play a scene with scripted agents in real tmux panes, on a tmux server of its own; exits 1 if a step is missing.

    \b
    main: Owner → Admin → two Workers and back, each waiting for the [IPC] line in its pane.
    interrupt: the Owner blocks a running task and the agent stops.
    shiritori: a task session has its chat session play six rounds with another agent.
    proven: a worker says "done" with a failing test, learns why, mends it, and is reviewed.
    gate: a worker edits the check that judges it; its delivery waits until the Owner has looked.
    question: a worker asks, parks its task, does another; the Owner answers in the console, and it goes on.
    morning: tmux dies under a team at work; after `up` everybody goes on where it was.
    office: an afternoon of a team, in the console; goes on until Ctrl-C.
    machines: the main job across three machines, of which one is cut off, and the hub dies.

    With --keep or --directory, and if a step is missing, the session stays, beside it a picture of what happened:
    timeline.svg.

    Example: `multi-agent-mcp demo interrupt`
    """
    from multi_agent_mcp.demo.scenes import SCENES
    from multi_agent_mcp.demo.stage import Stage

    try:
        if shutil.which("tmux") is None:
            raise InvalidArguments("no_tmux")
        if scene == MACHINES:
            require_client()
        language = language or people_texts().language
        with _place(directory, stays=keep) as place:
            if scene == MACHINES:
                _play_on_machines(place, people_texts(language), stays=bool(directory or keep))
                return
            team_file, scene_type = SCENES[scene]
            with Stage(place, team_file, language, keep=keep, attach=attach) as stage:
                texts = stage.services.people
                print_line(texts("demo.attach", socket=stage.socket))
                missing = scene_type(stage).play()
                if missing or directory or keep:
                    print_line(texts("demo.kept", path=stage.services.path))
                    print_line(texts("demo.drawn", path=_draw(stage, place / "timeline.svg")))
                else:
                    print_line(texts("demo.removed", path=place))
                _judge(texts, missing, stage.screens)
    except Refusal as refusal:
        refuse(refusal)


@contextmanager
def _place(directory: Path | None, *, stays: bool) -> Iterator[Path]:
    """Yields the directory to play in. One of our own is removed at the end, unless it `stays` or a step was missing:
    then it shows why."""
    place = (directory or Path(tempfile.mkdtemp(prefix="multi-agent-mcp-demo-"))).absolute()
    try:
        yield place
    except click.exceptions.Exit:
        stays = True
        raise
    finally:
        if directory is None and not stays:
            shutil.rmtree(place, ignore_errors=True)


def _play_on_machines(place: Path, texts: Texts, *, stays: bool) -> None:
    from multi_agent_mcp.demo.machines import MachinesDemo

    missing = MachinesDemo(place, texts).play()
    if missing or stays:
        print_line(texts("demo.kept", path=place))
    _judge(texts, missing)


def _draw(stage: Stage, path: Path) -> Path:
    """Draws the session's timeline into a file, and returns its path."""
    with storage_errors(path):
        path.write_text(stage.services.timeline.drawn(stage.services.texts), encoding="utf-8")
    return path


def _judge(texts: Texts, missing: list[str], screens: Callable[[], Iterable[str]] = tuple) -> None:
    if not missing:
        print_line(texts("demo.done"))
        return
    for problem in missing:
        print_error(texts("demo.missing", what=problem))
    for line in screens():
        print_error(line)
    raise click.exceptions.Exit(1)
