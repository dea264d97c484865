"""What a window's command has of the environment that tmux gives it."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest

from multi_agent_mcp.windows.shells import quoted, started

OF_A_PERSON = {"GIT_CONFIG_GLOBAL": "/home/me/.gitconfig", "PAGER": "less", "AGENT": "smith"}


def environment_of(**given: str) -> dict[str, str]:
    """What a program in a window has, of these."""
    words = started("env -0", "/bin/sh", directory=None, environment={"OURS": "x"})
    ran = subprocess.run(words, env={"PATH": os.environ["PATH"], **given}, capture_output=True, check=True)
    _, _, printed = ran.stdout.rpartition(b"\n")
    found = dict(line.split("=", 1) for line in printed.decode().split("\0") if line)
    return {name: found[name] for name in given if name in found}


@pytest.mark.parametrize(
    ("marks", "left"),
    [
        ({}, OF_A_PERSON),
        ({"CLAUDECODE": "1", "CLAUDE_CODE_MESSAGING_TOKEN": "t"}, {"GIT_CONFIG_GLOBAL": "/home/me/.gitconfig"}),
        ({"CODEX_SESSION_ID": "s"}, {"GIT_CONFIG_GLOBAL": "/home/me/.gitconfig"}),
        ({"COPILOT_LOADER_PID": "1", "GIT_CONFIG_COUNT": "3"}, {"GIT_CONFIG_GLOBAL": "/home/me/.gitconfig"}),
        ({"GEMINI_CLI": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}, {}),
    ],
    ids=["a person's shell", "Claude Code", "Codex", "Copilot CLI", "Gemini CLI"],
)
def test_what_a_host_sets_for_the_programs_it_runs_is_not_handed_on(
    marks: dict[str, str], left: dict[str, str]
) -> None:
    assert environment_of(**{**OF_A_PERSON, **marks}) == left


@pytest.mark.parametrize("shell", ["bash", "fish", "tcsh", "nu", "xonsh"])
@pytest.mark.parametrize("word", ["plain", 'it\'s "so"', "a) ; b (", "x #y"])
def test_a_shell_becomes_the_program_also_with_our_values_in_its_words(shell: str, word: str) -> None:
    """Else the shell stays a reader of the pane's terminal, and nothing is typed there."""
    command = f"agent {quoted(shell, word)}"
    run = shlex.split(started(command, f"/bin/{shell}", directory=None, environment={})[-1])
    assert run[-1] == f"exec {command}"
    two = f"{command}; agent"
    assert shlex.split(started(two, f"/bin/{shell}", directory=None, environment={})[-1])[-1] == two
