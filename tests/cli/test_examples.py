"""Every command's help has an example, and it works as it is printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from multi_agent_mcp.cli.main import app
from multi_agent_mcp.config import ROOT_NAME
from multi_agent_mcp.features.ours import ALL
from tests.cli.conftest import Run
from tests.cli.test_advice import Stage, stage  # noqa: F401 - a fixture
from tests.cli.test_options import COMMANDS

EXAMPLE = re.compile(r"^ *Example: `multi-agent-mcp ([^`]+)`$", re.MULTILINE)
ELSEWHERE = {
    *("up", "attach", "down", "restart", "supervise", "answer", "host learn", "demo"),  # a tmux server
    *("share", "join", "machines", "leave", "relay", "agent move"),  # a hub
    *("web", "doctor trust"),  # they go on for ever; another user
}
"""What takes more than this process: how their examples are written is looked at here, and other tests run them."""
FIRST = ("init", "host-config", "agent list", "workspace add", "task add", "task assign", "send-task", "wait end")
LAST = ("conversation end", "workspace merge", "workspace remove", "agent remove", "prune")


def example(name: str) -> list[str]:
    found = EXAMPLE.search(COMMANDS[name].help or "")
    assert found is not None, f"{name} has no example"
    return shlex.split(found[1].partition(" < ")[0])


def named() -> list[str]:
    return [name for name in COMMANDS if name not in ("serve", "hook")]


@pytest.mark.parametrize("name", named())
def test_every_command_has_an_example_that_is_written_as_it_takes_it(name: str) -> None:
    words = example(name)
    context, command = click.Context(app), app
    while isinstance(command, click.Group) and words:
        below = command.get_command(context, words[0])
        if below is None:
            break
        command, words = below, words[1:]  # type: ignore[assignment]
    assert command.callback is COMMANDS[name].callback or command.name == COMMANDS[name].name
    command.make_context(name, words)


def test_the_examples_work(stage: Stage, tmp_path: Path) -> None:  # noqa: F811
    for tool in ("claude", "codex", "gemini"):
        (tmp_path / "bin" / tool).touch(mode=0o755)
    stage.repository()
    here = [name for name in named() if name not in ELSEWHERE]
    assert {*FIRST, *LAST} <= set(here)
    known: dict[str, str] = {}
    for name in (*FIRST, *(name for name in here if name not in (*FIRST, *LAST)), *LAST):
        if name == "task add":
            known = things(stage)
        given = known | {"tsk_1a2b": known[name]} if name in known else known
        stage.done(*(given.get(word, word) for word in example(name)))


def things(project: Stage) -> dict[str, str]:
    """What examples are about, in place of the ids in them, or by the command that needs one of its own."""
    (settings,) = project.project.glob(f"{ROOT_NAME}/*/session.yaml")
    settings.write_text(settings.read_text() + "checks: {tests: git --version}\n")
    project.done("checks", "approve")
    place = Path(project.asked("workspace", "list")["workspaces"][0]["path"])

    def delivered(title: str, *more: str) -> str:
        task_id: str = project.asked("task", "add", title, "--assignee", "worker-a", *more)["task_id"]
        project.done("task", "status", task_id, "in_progress", "--as", "worker-a")
        (place / "a.txt").write_text(title)
        project.git("commit", "-qam", title, at=place)
        project.run("task", "status", task_id, "done", "--as", "worker-a")
        return task_id

    def begun(agent: str = "worker-a", *more: str) -> str:
        task_id: str = project.asked("task", "add", "Words", "--assignee", agent, *more)["task_id"]
        project.done("task", "status", task_id, "in_progress", "--as", agent)
        return task_id

    in_review = begun("admin", "--done-when", "review")
    project.run("task", "status", in_review, "done", "--as", "admin")
    proven, reviewed, merged = (
        delivered("Colours", "--done-when", "tests"),
        delivered("Tests", "--done-when", "review"),
        delivered("Login"),
    )
    sent = project.asked("send", "owner", "Which database?", "--as", "worker-a")
    talk = project.asked("conversation", "start", "worker-a", "How far are you?")
    return {
        "1a2b3c4d": sent["message_id"],
        "cnv_1a2b": talk["conversation_id"],
        "task verify": proven,
        "task approve": reviewed,
        "workspace merge": merged,
        "task diff": merged,
        "task reject": in_review,
        "task status": begun(),
        "tsk_1a2b": project.asked("task", "add", "Words")["task_id"],
    }


@pytest.mark.parametrize(("former", "now"), dict(ALL.each("former_commands")).items())
def test_the_name_that_a_command_had_goes_on_working_and_is_listed_nowhere(run: Run, former: str, now: str) -> None:
    assert run(former, "--help").output.splitlines()[2:] == run(*now.split(), "--help").output.splitlines()[2:]
    assert former not in app.list_commands(click.Context(app))
