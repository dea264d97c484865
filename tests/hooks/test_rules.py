"""Roles bind: what the hook before a tool refuses, and what `agent list` says of how far that holds."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp import host_rules
from multi_agent_mcp.domain.patterns import matcher
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.settings import parse_roles
from multi_agent_mcp.system.git import git
from multi_agent_mcp.windows.agent_command import command_of
from multi_agent_mcp.wiring import Services

RULES = {"edits": ["src/**", "!src/vendor/**"], "commands": {"deny": ["git push"]}}


@pytest.fixture
def tree(services: Services, tmp_path: Path) -> Path:
    place = tmp_path / "tree"
    (place / "src" / "vendor").mkdir(parents=True)
    git(place, "init", "-q")
    services.agents.registry.update("worker-a", **RULES)
    return place


def judged(services: Services, tree: Path, tool: str, who: str = "worker-a", **given: str) -> str | None:
    facts: dict[str, Any] = {"tool_name": tool, "tool_input": given, "cwd": str(tree)}
    return services.tool_calls.look(services.agents.get(who), "PreToolUse", facts, is_noted=False)


@pytest.mark.parametrize(
    ("path", "is_allowed"),
    [
        ("src/a.py", True),
        ("src/deep/a.py", True),
        ("src/vendor/a.py", False),
        ("README.md", False),
        ("src/../README.md", False),
        ("src/link/a.py", False),
        ("/etc/hosts", False),
        ("../outside.txt", False),
    ],
)
def test_only_its_own_files_are_edited(services: Services, tree: Path, path: str, is_allowed: bool) -> None:
    (tree / "src" / "link").symlink_to(tree)
    assert (judged(services, tree, "Edit", file_path=path) is None) == is_allowed
    assert (judged(services, tree, "Bash", command=f"echo x > {path}") is None) == is_allowed
    for header in ("*** Update File: ", "  *** Delete File: ", "\t*** Add File:", "*** Move to: "):
        patch = f"*** Begin Patch\n{header}{path} \n*** End Patch"
        assert (judged(services, tree, "apply_patch", command=patch) is None) == is_allowed
    assert judged(services, tree, "Edit", who="worker-b", file_path=path) is None


def test_an_agent_with_no_files_of_its_own_edits_none(services: Services, tree: Path) -> None:
    services.agents.registry.update("worker-a", edits=[])
    assert judged(services, tree, "Edit", file_path="src/a.py") is not None
    assert judged(services, tree, "Bash", command="bash -c 'echo x > src/a.py'") is not None
    assert services.agent_rules.held(services.agents.get("worker-a")).keys() == {"edits", "commands"}


def test_a_denied_command_is_not_run(services: Services, tree: Path) -> None:
    assert "git push" in str(judged(services, tree, "Bash", command="make && git -C . push"))
    assert judged(services, tree, "Bash", command="git status") is None


@pytest.mark.parametrize("lifted", ["roles: {}\n", "roles: [\n", "roles: {worker: {edits: ['**']}}\n"])
def test_a_rule_that_was_approved_is_not_lifted_by_a_change_of_the_file(
    services: Services, tree: Path, lifted: str
) -> None:
    settings = services.workspace.settings_path
    settings.write_text("roles: {worker: {edits: ['docs/**'], commands: {deny: [curl]}}}\n")
    services.approvals.approve()
    settings.write_text(lifted)
    services.agents.registry.update("worker-b", edits=["**"], commands={})
    assert judged(services, tree, "Edit", who="worker-b", file_path="src/a.py") is not None
    assert judged(services, tree, "Bash", who="worker-b", command="curl x") is not None
    assert judged(services, tree, "Edit", who="worker-b", file_path="docs/a.md") is None


@pytest.mark.parametrize("kept", ["deleted", "spoilt", "put back"])
def test_a_rule_that_was_approved_is_not_lifted_by_another_approved_json(
    services: Services, tree: Path, kept: str
) -> None:
    settings, approved = services.workspace.settings_path, services.path / "approved.json"
    settings.write_text("language: ja\n")
    services.approvals.approve()
    earlier = approved.read_text()
    settings.write_text("roles: {worker: {commands: {deny: [curl]}}}\n")
    services.approvals.approve()
    settings.write_text("language: ja\n")
    if kept == "deleted":
        approved.unlink()
    else:
        approved.write_text(earlier if kept == "put back" else "{")
    assert judged(services, tree, "Bash", who="worker-b", command="curl x") is not None
    assert services.approvals.look().state == ("changed" if kept == "put back" else "missing")


def test_an_agents_own_rules_take_the_place_of_its_roles(services: Services, tree: Path) -> None:
    settings = services.workspace.settings_path
    settings.write_text("roles: {worker: {edits: ['docs/**'], commands: {deny: [curl]}}}\n")
    assert judged(services, tree, "Edit", file_path="src/a.py") is None
    assert judged(services, tree, "Bash", command="curl x") is None
    assert judged(services, tree, "Edit", who="worker-b", file_path="src/a.py") is not None
    assert judged(services, tree, "Bash", who="worker-b", command="curl x") is not None
    assert judged(services, tree, "Bash", who="admin", command="curl x") is None


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("claude --mcp-config {mcp_config}", {"edits": "advised", "commands": "advised"}),
        ("claude --settings mine.json --mcp-config {mcp_config}", {"edits": "advised", "commands": "advised"}),
        ("codex {mcp_config}", {"edits": "enforced", "commands": "advised"}),
        ("codex --yolo {mcp_config}", {"edits": "advised", "commands": "advised"}),
        ("opencode {mcp_config}", {"edits": "advised", "commands": "advised"}),
        ("gemini {mcp_config}", {"edits": "impossible", "commands": "impossible"}),
        ("claude", {"edits": "impossible", "commands": "impossible"}),
        ("python my_agent.py", {"edits": "impossible", "commands": "impossible"}),
        (None, {"edits": "impossible", "commands": "impossible"}),
    ],
)
def test_it_is_said_how_far_each_rule_holds(
    services: Services, tree: Path, command: str | None, expected: object
) -> None:
    services.agents.change("worker-a", command=command or "")
    assert services.agent_rules.held(services.agents.get("worker-a")) == expected
    assert services.agent_rules.held(services.agents.get("worker-b")) == {}


def words_for(services: Services, tree: Path, host: str, **rules: Any) -> list[str]:
    """What `up` adds to the host's command; `{tree}` stands for the working tree."""
    services.agents.change("worker-a", command=f"{host} {{mcp_config}}")
    services.agents.registry.update("worker-a", **rules)
    services.host_configurations.of("gemini", "worker-a", tree).write(tree)
    words = shlex.split(services.host_configurations.argument(services.agents.get("worker-a"), tree))
    return [word.replace(str(tree), "{tree}") for word in words]


NOTHING: dict[str, Any] = {"edits": [], "commands": {"deny": ["*"]}}


@pytest.mark.parametrize(
    ("host", "rules", "expected"),
    [
        (
            "claude",
            RULES,
            ["Bash(git push:*)", "Edit(/{tree}/src/vendor)", "Edit(/{tree}/src/vendor/**)"],
        ),
        ("claude", NOTHING, ["Bash", "Edit", "Write", "MultiEdit", "NotebookEdit"]),
        ("copilot", RULES, ["shell(git push)", "shell(git push:*)"]),
        ("copilot", NOTHING, ["shell", "write"]),
    ],
)
def test_options_deny_what_a_host_has_them_for(
    services: Services, tree: Path, host: str, rules: dict[str, Any], expected: list[str]
) -> None:
    option = {"claude": "--disallowedTools=", "copilot": "--deny-tool="}[host]
    words = words_for(services, tree, host, **rules)
    assert [word.removeprefix(option) for word in words if word.startswith(option)] == expected


def test_codex_gets_a_permission_profile_unless_its_person_has_one(
    services: Services, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tree))
    monkeypatch.chdir(tree)
    words = words_for(services, tree, "codex", **RULES)
    (text,) = (word for word in words if ".filesystem=" in word)
    granted = tomllib.loads(text)["permissions"]["multi_agent_mcp"]["filesystem"]
    roots = granted.pop(":workspace_roots")
    assert (roots, granted) == ({".": "read"}, {"{tree}": "read", "{tree}/src": "write", "{tree}/src/vendor": "read"})
    assert "features.shell_tool=false" in words_for(services, tree, "codex", **NOTHING)
    (tree / "config.toml").write_text('default_permissions = "mine"\n')
    assert not [word for word in words_for(services, tree, "codex", **NOTHING) if "permissions" in word]
    assert services.agent_rules.held(services.agents.get("worker-a")) == {"edits": "advised", "commands": "advised"}


@pytest.mark.parametrize(
    ("path", "is_allowed"),
    [
        ("src/a", True),
        ("{tree}/src/a", True),
        ("src/vendor/a", False),
        ("src/vendors", True),
        ("{tree}/src/vendor", False),
        ("srcs/a", False),
        ("/etc/src/a", False),
        ("src/../a", False),
    ],
)
def test_gemini_cli_gets_a_policy(
    services: Services, tree: Path, monkeypatch: pytest.MonkeyPatch, path: str, is_allowed: bool
) -> None:
    monkeypatch.chdir(tree)
    words = words_for(services, tree, "gemini", **RULES)
    policy = tomllib.loads(Path(words[words.index("--admin-policy") + 1]).read_text())["rule"]
    assert (policy[0]["toolName"], policy[0]["commandPrefix"]) == (["run_shell_command"], ["git push"])
    call = json.dumps({"content": "", "file_path": path.replace("{tree}", str(tree))}, separators=(",", ":"))
    assert any(re.search(rule["argsPattern"], call) for rule in policy[1:]) != is_allowed


def test_opencodes_plugin_gets_them_and_loses_them_again(services: Services, tree: Path) -> None:
    def rules() -> Any:
        words_for(services, tree, "opencode")
        (plugin,) = (services.path / "hosts").glob("*.opencode.js")
        (line,) = (line for line in plugin.read_text().splitlines() if line.startswith("const RULES"))
        return json.loads(line.partition("=")[2].partition("//")[0])

    assert rules() == {
        "bash": ["git push", "git push *"],
        "edit": [
            ["*", False],
            ["src", True],
            ["src/*", True],
            ["src/vendor", False],
            ["src/vendor/*", False],
            ["../*", False],
        ],
    }
    services.agents.registry.update("worker-a", edits=None, commands=None)
    assert rules() == {}


@pytest.mark.parametrize("edits", [["*.md"], ["src/**", "!*.lock"], ["docs"], ["src/*.py", "!src/vendor/**"]])
def test_a_host_that_cannot_say_all_of_a_rule_allows_more_and_is_not_said_to_enforce_it(
    services: Services, tree: Path, monkeypatch: pytest.MonkeyPatch, edits: list[str]
) -> None:
    monkeypatch.chdir(tree)
    for host in ("codex", "opencode", "gemini"):
        words_for(services, tree, host, edits=edits, commands={"deny": ["*"]})
        assert services.agent_rules.held(services.agents.get("worker-a")) == {
            "edits": "advised",
            "commands": "enforced",
        }


def test_the_paths_of_patterns_are_what_the_patterns_match(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    names = ["/a", "a/**", "a/b/", "!a/b/**", "!/a/b", "/a/b/c", "**", "!a/**", "**/*"]
    files = ["a/x", "a/b/x", "a/b/c", "a/b/c/x", "x", "x/a"]
    for patterns in (list(some) for count in (1, 2, 3) for some in permutations(names, count)):
        found, is_allowed = host_rules._files(patterns, str(tmp_path)), matcher(patterns)
        assert found.is_all or "/a/b/c" in patterns  # which may become a file
        for file in files:
            above = [is_in for path, is_in in found.paths if not path or file == path or file.startswith(f"{path}/")]
            is_open = above[-1] if above else False
            assert is_open == is_allowed(file) or (is_open and not found.is_all), (patterns, file, found)


def test_every_command_can_be_denied(services: Services, tree: Path) -> None:
    services.agents.registry.update("worker-a", commands={"deny": ["*"]})
    for command in ("ls", "true && ls", "$(x)", "A=1"):
        assert judged(services, tree, "Bash", command=command) is not None
    assert judged(services, tree, "Edit", file_path="src/a.py") is None


def test_a_sandbox_counts_if_its_program_is_there_and_the_command_is_in_it_once(services: Services) -> None:
    services.agents.change("worker-a", command="cat")
    for sandbox, held in {"env {command}": "enforced", "no-such-program {command}": "impossible"}.items():
        services.agents.registry.update("worker-a", sandbox=sandbox)
        assert services.agent_rules.held(services.agents.get("worker-a")) == {"sandbox": held}
    services.agents.registry.update("worker-a", sandbox="env {command} || {command}")
    found = [item.finding for item in services.doctor().examine() if item.check == "rules"]
    assert ["worker-a.sandbox" in said for said in found] == [True]


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ({"worker": {"edit": []}}, "roles.worker.edit"),
        ({"worker": {"commands": {"deney": []}}}, "roles.worker.commands.deney"),
        ({"boss": {}}, "roles.boss"),
    ],
)
def test_a_wrong_key_of_a_rule_is_named(rules: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidArguments) as refusal:
        parse_roles(rules)
    assert refusal.value.values["reason"].values["name"] == name


def test_a_sandbox_is_around_the_hosts_command(services: Services) -> None:
    services.agents.registry.update("worker-a", sandbox="env IN={agent} {command}", prompt="")
    for command, expected in {
        "cat a": "env IN=worker-a cat a",
        "cd x && cat a": "env IN=worker-a /bin/sh -c 'cd x && cat a'",
    }.items():
        assert command_of(services, services.agents.change("worker-a", command=command)) == expected
