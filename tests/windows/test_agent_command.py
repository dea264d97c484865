"""The command in an agent's window: placeholders through a real shell, and the first prompt of the host."""

from __future__ import annotations

import itertools
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import PERSON, PURPOSES, ROLES, Agent
from multi_agent_mcp.doorbell.tmux.team_panes import executed
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.texts import LANGUAGES
from multi_agent_mcp.windows.agent_command import command_of, first_prompt, left_out
from multi_agent_mcp.wiring import Services

SHOW = """#!/bin/sh
for argument; do printf '%s\\0' "$argument"; done
"""
HOSTILE = (
    'it\'s "quoted" `id` $(id) $HOME ${HOME} \\ \\n ~ * ? [a] {prompt} {root} !! # ; & | < >',
    "two\nlines\n\n  and a blank one\n",
    "日本語の指示「get_next_action」を呼び出す 🦊",
    "-- -p --flag",
    "''",
)


@pytest.fixture
def worker(services: Services) -> Agent:
    return services.agents.get("worker-a")


@pytest.fixture
def host(tmp_path: Path) -> str:
    """The path of a program named `claude` that shows its arguments."""
    program = tmp_path / "a place" / "claude"
    program.parent.mkdir()
    program.write_text(SHOW, encoding="utf-8")
    program.chmod(0o755)
    return f"'{program}'"


def arguments(services: Services, agent: Agent, purpose: str = "task") -> list[str]:
    """The arguments that the agent's program receives when tmux's shell runs its command."""
    command = command_of(services, agent, purpose)
    assert command is not None
    ran = subprocess.run(["sh", "-c", executed(command)], capture_output=True, encoding="utf-8", check=True)
    assert ran.stderr == ""
    return ran.stdout.split("\0")[:-1]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_prompt_says_who_one_is_and_to_call_get_next_action_for_each_role_and_purpose(
    services: Services, language: str
) -> None:
    services = open_session(services.root, services.session.name, language=language)
    prompts = set()
    for role, purpose in itertools.product(ROLES, PURPOSES):
        agent = Agent(id="agent-7", role=role, parent_id="boss-9")
        prompt = first_prompt(services, agent, purpose)
        assert all(word in prompt for word in ("agent-7", "boss-9", role, "demo", "get_next_action", "[IPC]"))
        assert "{" not in prompt
        prompts.add(prompt.replace(role, "ROLE"))
        alone = first_prompt(services, replace(agent, parent_id=None), purpose)
        assert services.texts("prompt.nobody") in alone
        assert "None" not in alone
    assert len(prompts) > len(ROLES)
    assert first_prompt(services, Agent(id="a", role="king"), "task")


def test_a_host_with_a_profile_gets_the_prompt_of_its_windows_purpose(
    services: Services, worker: Agent, host: str
) -> None:
    worker = replace(worker, command=f"{host} --allowedTools x")
    for purpose in PURPOSES:
        expected = ["--allowedTools", "x", "--", first_prompt(services, worker, purpose)]
        assert arguments(services, worker, purpose) == expected


@pytest.mark.parametrize("prompt", HOSTILE)
@pytest.mark.parametrize(
    "template",
    ["{}", "env A=1 B='b c' {}", "{} {{prompt}}", "{} '{{prompt}}'", '{} "{{prompt}}"', "true; {} {{prompt}}"],
)
def test_the_prompt_of_the_team_file_arrives_as_one_argument_whatever_it_holds(
    services: Services, worker: Agent, host: str, template: str, prompt: str
) -> None:
    worker = replace(worker, command=template.format(host), prompt=prompt)
    assert arguments(services, worker) == ([prompt] if "{{prompt}}" in template else ["--", prompt])


@pytest.mark.parametrize("template", ["{} a", "{} a {{prompt}}", "{} a '{{prompt}}'"])
@pytest.mark.parametrize("prompt", ["", "   ", " \n\t"])
def test_an_empty_prompt_is_none(services: Services, worker: Agent, host: str, template: str, prompt: str) -> None:
    assert arguments(services, replace(worker, command=template.format(host), prompt=prompt)) == ["a"]


@pytest.mark.parametrize(
    "command",
    [
        "cat",
        "python claude",
        "env -i claude",
        "A=1 claude",
        "claude; sh",
        "cd /tmp && claude",
        "claude # mine",
        "bash",
    ],
)
def test_a_command_whose_author_alone_knows_where_a_prompt_belongs_is_left_as_it_is(
    services: Services, worker: Agent, command: str
) -> None:
    assert command_of(services, replace(worker, command=command)) == command


@pytest.mark.parametrize(
    ("command", "lacks"),
    [
        ("env A=1 B='x y' C= claude {mcp_config}", []),
        ("/usr/bin/env -i claude {mcp_config}", ["up.unprompted", "up.unhooked"]),
        ("A=1 /opt/codex {mcp_config} {prompt}", ["up.unhooked"]),
        ("cd /tmp && claude {mcp_config}", ["up.unprompted", "up.unhooked"]),
        ("claude {mcp_config} # mine", ["up.unprompted"]),
        ("claude {mcp_config}", []),
        ("cat claude", []),
        ("echo 'x; claude' # claude", []),
    ],
)
def test_what_a_host_within_another_command_starts_without_is_said_and_a_declared_host_gets_its_hooks(
    services: Services, worker: Agent, command: str, lacks: list[str]
) -> None:
    worker = replace(worker, command=command)
    assert list(left_out(services, worker)) == lacks
    declared = replace(worker, host="claude", host_by=PERSON)
    assert "up.unhooked" not in left_out(services, declared)
    assert ("--settings" in str(command_of(services, declared))) == ("{mcp_config}" in command)
    assert left_out(services, replace(worker, prompt="")).keys() == {*lacks} - {"up.unprompted"}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("opencode -c", "opencode -c --prompt 'go on'"),
        ("gemini -y", "gemini -y -i 'go on'"),
        ("copilot", "copilot -i 'go on'"),
    ],
)
def test_each_host_takes_its_prompt_in_its_own_way(
    services: Services, worker: Agent, command: str, expected: str
) -> None:
    assert command_of(services, replace(worker, command=command, prompt="go on")) == expected


def test_a_profile_of_ones_own_says_how_another_host_takes_a_prompt(services: Services, worker: Agent) -> None:
    worker = replace(worker, command="goose --yolo", prompt="go on")
    hosts = services.root / "hosts"
    hosts.mkdir()
    (hosts / "goose.yaml").write_text('commands: [goose]\nprompt: "-i {prompt}"\n', encoding="utf-8")
    assert command_of(services, worker) == "goose --yolo -i 'go on'"
    (hosts / "goose.yaml").write_text("commands: [goose]\nprompt: -i\n", encoding="utf-8")
    assert command_of(services, worker) == "goose --yolo"


@pytest.mark.parametrize(
    "fields", [{"command": "cat \0"}, {"command": "claude", "prompt": "\0"}, {"command": "cat \ud800"}]
)
def test_what_no_program_can_be_given_is_one_sentence(
    services: Services, worker: Agent, fields: dict[str, str]
) -> None:
    with pytest.raises(InvalidArguments, match=r"bad_(command|text)"):
        command_of(services, replace(worker, **fields))  # type: ignore[arg-type]  # agents.json is anybody's to edit


@pytest.mark.parametrize(
    ("command", "plain"),
    [
        ("cat 'a; b' \"c | d\" e\\;f", True),
        ("cat; cat", False),
        ("A='b c' cat", False),
        ("exec cat", False),
        ("cat \"it's\" ; echo 'x'", False),
    ],
)
def test_only_a_plain_command_replaces_its_shell(command: str, plain: bool) -> None:
    assert executed(command) == (f"exec {command}" if plain else command)
