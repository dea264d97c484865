"""`host-config`: files that make a host start an agent's server and run its hooks, put beside what is there."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.domain.slot import Slot
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.system.git import git
from multi_agent_mcp.windows.agent_command import command_of
from multi_agent_mcp.windows.window_registry import environment_of
from tests.end_to_end.support import COMMAND, Team, run

EVENTS = ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "PreCompact"]
OF_CLAUDE = [*EVENTS, "StopFailure", "Notification"]
FILES = {
    "claude": [".mcp.json", ".claude/settings.local.json"],
    "codex": [".codex/config.toml", ".codex/hooks.json"],
    "gemini": [".gemini/settings.json"],
    "opencode": ["opencode.json"],
    "copilot": [".github/mcp.json"],
}
THEIR_HOOK = {"type": "command", "command": "their-hook", "timeout": 3}
THEIRS: dict[str, Any] = {
    ".mcp.json": {"mcpServers": {"other": {"command": "x"}, "ipc": {"cwd": "/y", "env": {"A": "b"}}}, "日本": [1.5]},
    ".claude/settings.local.json": {
        "permissions": {"allow": ["Bash(ls)"], "deny": ["WebFetch"]},
        "hooks": {"Stop": [{"matcher": "", "hooks": [THEIR_HOOK]}], "Notification": [{"hooks": [THEIR_HOOK]}]},
    },
    ".codex/hooks.json": {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [THEIR_HOOK]}]}, "x": None},
    ".gemini/settings.json": {
        "theme": "dark",
        "mcpServers": {"other": {"url": "http://localhost"}},
        "hooks": {"BeforeTool": [{"matcher": "x", "hooks": [THEIR_HOOK]}]},
    },
    "opencode.json": {"model": "m", "mcp": {"other": {"type": "remote", "url": "http://localhost"}}},
    ".github/mcp.json": {"mcpServers": {"other": {"command": "x", "args": []}}},
}
THEIR_TOML = '# mine\nmodel = "m"\n\n[mcp_servers.other]\ncommand = "x"  # keep\n'


def write(team: Team, host: str, agent: str = "worker-a") -> dict[str, Any]:
    return team.ask("host-config", host, "--agent", agent, "--write", "--directory", team.base / "work")


def test_a_file_that_could_be_committed_is_named_with_the_line_that_has_git_ignore_it(team: Team) -> None:
    work = team.base / "work [#1]"
    work.mkdir()
    git(team.base, "init", "-q")
    write_there = ("host-config", "gemini", "--agent", "worker-a", "--write", "--directory", work)
    named = team.ask(*write_there)["not_ignored"]
    assert named == [str(work / ".gemini" / "settings.json")]
    (line,) = (line for line in team.run(*write_there).stdout.splitlines() if "info/exclude" in line)
    subprocess.run(["sh", "-c", line[line.index("printf") :]], check=True)
    assert ".gemini" not in git(team.base, "status", "--porcelain", "--untracked-files=all")
    assert team.ask(*write_there)["not_ignored"] == []


def test_a_file_is_not_named_outside_of_repositories_or_once_it_is_committed(team: Team) -> None:
    assert write(team, "gemini")["not_ignored"] == []
    git(team.base, "init", "-q")
    git(team.base, "add", "work")
    assert write(team, "gemini")["not_ignored"] == []
    assert team.ask("host-config", "claude", "--agent", "worker-a", "--write")["not_ignored"] == []


def put_theirs(team: Team) -> Path:
    """A directory in which every host is configured already."""
    work = team.base / "work"
    for name, value in {**THEIRS, ".codex/config.toml": None}.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(THEIR_TOML if value is None else json.dumps(value), encoding="utf-8")
    return work


def read(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    parsed = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    assert isinstance(parsed, dict)
    return parsed


def holds(value: Any, part: Any) -> bool:
    """Whether nothing of `part` has been lost in `value`."""
    if isinstance(part, dict):
        return all(key in value and holds(value[key], item) for key, item in part.items())
    return all(item in value for item in part) if isinstance(part, list) else bool(value == part)


@pytest.mark.parametrize("host", FILES)
def test_writing_keeps_what_is_there_and_a_second_time_changes_nothing(team: Team, host: str) -> None:
    work = put_theirs(team)
    before = {name: (work / name).read_bytes() for name in FILES[host]}
    parsed = {name: read(work / name) for name in FILES[host]}
    written = write(team, host)["written"]
    assert [item["file"] for item in written] == [str(work / name) for name in FILES[host]]
    for name, item in zip(FILES[host], written, strict=True):
        assert Path(item["backup"]).read_bytes() == before[name]
        assert Path(item["backup"]).parent == team.path / "hosts" / "backups"
        assert holds(read(work / name), parsed[name])
    after = {name: (work / name).read_bytes() for name in FILES[host]}
    assert write(team, host)["written"] == []
    assert {name: (work / name).read_bytes() for name in FILES[host]} == after
    assert not list(work.rglob("*.bak*"))


@pytest.mark.parametrize("host", FILES)
def test_the_second_agent_never_replaces_the_first(team: Team, host: str) -> None:
    work = put_theirs(team)
    write(team, host)
    after = {name: (work / name).read_bytes() for name in FILES[host]}
    refused = team.run("host-config", host, "--agent", "worker-b", "--write", "--directory", work)
    if host == "gemini":  # one file for every agent: its environment says which one it is
        assert refused.code == 0
        assert {name: (work / name).read_bytes() for name in FILES[host]} == after
        return
    assert (refused.code, refused.stdout) == (1, "")
    assert "worker-a" in refused.stderr
    assert "--directory" in refused.stderr
    assert {name: (work / name).read_bytes() for name in FILES[host]} == after


@pytest.mark.parametrize("host", ["claude", "codex"])
def test_each_agent_has_a_configuration_of_its_own_unless_a_directory_is_named(team: Team, host: str) -> None:
    before = set(team.base.iterdir())
    starts = {}
    for agent_id in ("worker-a", "worker-b", "worker-a"):
        told = team.ask("host-config", host, "--agent", agent_id, "--write")
        assert all(Path(item["file"]).is_relative_to(team.path / "hosts") for item in told["files"])
        assert all(f'"{agent_id}"' in Path(item["file"]).read_text() for item in told["files"][:1])
        starts[agent_id] = told["start"]
    assert starts["worker-a"] != starts["worker-b"]
    assert set(team.base.iterdir()) == before


def test_an_agent_whose_session_is_gone_is_in_nobodys_way(team: Team) -> None:
    work = put_theirs(team)
    gone = {"MULTI_AGENT_MCP_ROOT": "/gone", "MULTI_AGENT_MCP_SESSION": "demo", "MULTI_AGENT_MCP_AGENT": "worker-b"}
    (work / ".mcp.json").write_text(json.dumps({"mcpServers": {"ipc": {"command": "x", "env": gone}}}))
    assert len(write(team, "claude")["written"]) == 2


@pytest.mark.parametrize("host", FILES)
def test_what_is_printed_is_what_is_written_where_there_was_nothing(team: Team, host: str) -> None:
    (team.base / "work").mkdir()
    shown = team.ask("host-config", host, "--agent", "worker-a", "--directory", team.base / "work")
    assert not list((team.base / "work").iterdir())
    written = write(team, host)
    assert [item["backup"] for item in written["written"]] == [None] * len(FILES[host])
    for item in shown["files"]:
        assert Path(item["file"]).read_text(encoding="utf-8").rstrip("\n") == item["content"]


@pytest.mark.parametrize(
    ("name", "spoilt"),
    [
        (".mcp.json", "{"),
        (".mcp.json", "[]"),
        (".mcp.json", '{"mcpServers": []}'),
        (".mcp.json", '{"a": 1, "a": 2}'),
        (".mcp.json", '{"a": 1e400}'),
        (".mcp.json", '{"mcpServers": {"ipc": {"command": "mine"}}}'),
        ("opencode.json", '{"mcp": {"ipc": {"type": "remote", "url": "http://localhost"}}}'),
        (".claude/settings.local.json", '{"hooks": {"Stop": {}}}'),
        (".claude/settings.local.json", "{} // comment"),
        (".codex/config.toml", "= 1"),
        (".codex/config.toml", '[mcp_servers.ipc]\ncommand = "mine"\n'),
        (".codex/config.toml", "mcp_servers = {}\n"),
        (".codex/config.toml", f"a = {'[' * 5_000}{']' * 5_000}\n"),
        (".codex/hooks.json", '{"hooks": 3}'),
        (".gemini/settings.json", "\xff"),
    ],
)
def test_a_file_that_cannot_be_merged_into_is_one_sentence_and_nothing_changes(
    team: Team, name: str, spoilt: str
) -> None:
    work = put_theirs(team)
    (work / name).write_text(spoilt, encoding="latin-1")
    before = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    host = next(host for host, names in FILES.items() if name in names)
    refused = team.run("host-config", host, "--agent", "worker-a", "--write", "--directory", work)
    assert (refused.code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("multi-agent-mcp: invalid_arguments: ")
    assert name in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert {path: path.read_bytes() for path in work.rglob("*") if path.is_file()} == before


def test_a_pipe_in_place_of_a_file_is_not_waited_for(team: Team) -> None:
    work = put_theirs(team)
    (work / ".mcp.json").unlink()
    os.mkfifo(work / ".mcp.json")
    refused = team.run("host-config", "claude", "--agent", "worker-a", "--write", "--directory", work)
    assert refused.code == 1
    assert refused.stderr.startswith("multi-agent-mcp: storage_error: ")
    assert (work / ".mcp.json").is_fifo()


def test_a_lone_surrogate_in_a_file_is_kept(team: Team) -> None:
    work = put_theirs(team)
    (work / ".mcp.json").write_text('{"half": "\\ud83d", "whole": "\\ud83d\\ude00"}')
    write(team, "claude")
    assert holds(read(work / ".mcp.json"), {"half": "\ud83d", "whole": "😀"})


def test_a_linked_file_stays_a_link_and_its_mode_is_kept(team: Team) -> None:
    work = put_theirs(team)
    real = team.base / "dotfiles.json"
    (work / ".mcp.json").rename(real)
    real.chmod(0o640)
    (work / ".mcp.json").symlink_to(real)
    write(team, "claude")
    assert (work / ".mcp.json").is_symlink()
    assert "ipc" in read(real)["mcpServers"]
    assert real.stat().st_mode & 0o777 == 0o640


def test_claude_gets_its_server_its_hooks_and_the_waiter(team: Team) -> None:
    config, settings = (json.loads(item["content"]) for item in _shown(team, "claude")["files"])
    entry = config["mcpServers"]["ipc"]
    assert (entry["type"], entry["alwaysLoad"], entry["env"]["MULTI_AGENT_MCP_AGENT"]) == ("stdio", True, "worker-a")
    assert settings["permissions"]["allow"] == ["mcp__ipc"]
    assert list(settings["hooks"]) == OF_CLAUDE
    for event, (group,) in settings["hooks"].items():
        waiting = [hook for hook in group["hooks"] if hook.get("asyncRewake")]
        assert len(waiting) == (event in ("SessionStart", "Stop"))
        assert all(hook["command"].endswith(" --wait") for hook in waiting)


def test_the_hooks_of_the_files_run_as_they_are_there(team: Team) -> None:
    team.ask("interrupt", "worker-a", "--as", "admin")
    for host in ("claude", "codex"):
        hooks = json.loads(_shown(team, host, "--directory", "work")["files"][-1]["content"])["hooks"]
        command = hooks["PreToolUse"][0]["hooks"][0]["command"]
        event = b'{"hook_event_name": "PreToolUse", "tool_name": "Bash", "session_id": "thread-9"}'
        assert '"deny"' in run(["sh", "-c", command], env=team.env, cwd=team.base, stdin=event).stdout
    assert team.services.agents.get("worker-a").extra["codex_thread_id"] == "thread-9"


def test_the_hook_of_gemini_cli_speaks_its_dialect(team: Team) -> None:
    team.services.agents.change("worker-a", host="")
    team.ask("interrupt", "worker-a", "--as", "admin")
    team.send("worker-a", "the figures")
    env = {**team.env, "MULTI_AGENT_MCP_ROOT": str(team.services.root), "MULTI_AGENT_MCP_SESSION": "demo"}
    env["MULTI_AGENT_MCP_AGENT"] = "worker-a"
    hooks = json.loads(_shown(team, "gemini")["files"][0]["content"])["hooks"]

    def answer(event: str, tool: str = "run_shell_command") -> Any:
        command = hooks[event][0]["hooks"][0]["command"]
        said = json.dumps({"hook_event_name": event, "tool_name": tool, "session_id": "s"}).encode()
        return json.loads(run(["sh", "-c", command], env=env, cwd=team.base, stdin=said).stdout or "null")

    command = hooks["BeforeTool"][0]["hooks"][0]["command"]
    a_human = run(["sh", "-c", command], env=team.env, cwd=team.base, stdin=b'{"hook_event_name": "BeforeTool"}')
    assert (a_human.code, a_human.stdout, a_human.stderr) == (0, "", "")
    assert answer("BeforeTool", "mcp_ipc_read_messages") is None
    assert answer("BeforeTool")["decision"] == "deny"
    told = answer("AfterTool")["hookSpecificOutput"]
    assert told["hookEventName"] == "AfterTool"
    assert "[IPC]" in told["additionalContext"]
    assert answer("AfterAgent")["decision"] == "block"
    assert answer("AfterTool") is None
    assert team.services.agents.get("worker-a").host == "gemini"


def test_the_hook_of_copilot_cli_speaks_its_dialect(team: Team) -> None:
    team.ask("interrupt", "worker-a", "--as", "admin")
    *_, hooks_file = _shown(team, "copilot")["files"]
    hooks = json.loads(hooks_file["content"])["hooks"]

    def answer(event: str, tool: str = "Bash") -> Any:
        said = json.dumps({"hook_event_name": event, "tool_name": tool, "session_id": "s"}).encode()
        return json.loads(run(["sh", "-c", hooks[event][0]["bash"]], env=team.env, cwd=team.base, stdin=said).stdout)

    assert answer("PreToolUse")["hookSpecificOutput"]["permissionDecision"] == "deny"
    team.send("worker-a", "the figures")
    assert "[IPC]" in answer("PostToolUse")["additionalContext"]
    assert answer("Stop")["decision"] == "block"


def test_codexs_options_say_the_same_as_its_file_and_pass_the_panes_variables_on(team: Team) -> None:
    shown = _shown(team, "codex")
    printed = subprocess.run(
        ["sh", "-c", 'codex() { for option; do printf "%s\\n" "$option"; done; }; ' + shown["start"]],
        env=team.env,
        capture_output=True,
        encoding="utf-8",
        check=True,
    ).stdout.splitlines()
    given = tomllib.loads("\n".join(option for option in printed if option != "-c"))
    assert given["developer_instructions"] == team.services.statements.of(team.services.agents.get("worker-a"))
    options = given["mcp_servers"]["ipc"]
    assert options.pop("env_vars") == ["MULTI_AGENT_MCP_PURPOSE", "TMUX", "TMUX_PANE"]
    table = tomllib.loads(_shown(team, "codex", "--directory", "work")["content"])["mcp_servers"]["ipc"]
    options["args"].remove("--no-statement")
    assert options == table
    assert table["required"] is True
    assert table["default_tools_approval_mode"] == "approve"


def test_a_command_in_a_team_is_given_what_its_host_takes(team: Team) -> None:
    services = team.services
    agent = replace(services.agents.get("worker-a"), prompt="")
    hosts = services.workspace.path / "hosts"
    stated = f"--append-system-prompt {shlex.quote(services.statements.of(agent))}"
    for command, expected in {
        "cat {mcp_config}": f"cat {hosts}/worker-a.mcp.json",
        "claude --mcp-config {mcp_config}": (
            f"claude --mcp-config {hosts}/worker-a.mcp.json --settings {hosts}/worker-a.settings.json {stated}"
        ),
        "claude --settings x --mcp-config {mcp_config}": (
            f"claude --settings x --mcp-config {hosts}/worker-a.mcp.json {stated}"
        ),
        "claude --append-system-prompt mine --mcp-config {mcp_config} --settings x": (
            f"claude --append-system-prompt mine --mcp-config {hosts}/worker-a.mcp.json --settings x"
        ),
        "sh -c 'claude --settings x --mcp-config {mcp_config}'": (
            f"sh -c 'claude --settings x --mcp-config {hosts}/worker-a.mcp.json'"
        ),
    }.items():
        services.agents.change("worker-a", command=command)
        assert command_of(services, replace(agent, command=command)) == expected
    assert read(hosts / "worker-a.mcp.json")["mcpServers"]["ipc"]["command"] == COMMAND[0]
    assert list(read(hosts / "worker-a.settings.json")["hooks"]) == OF_CLAUDE
    copilot = replace(agent, command="copilot {mcp_config}")
    file = hosts / "worker-a.copilot.json"
    options = f"--additional-mcp-config @{file} --plugin-dir {hosts}/worker-a.copilot --allow-tool=ipc"
    assert command_of(services, copilot) == f"copilot {options}"
    assert read(file)["mcpServers"]["ipc"]["args"][-1] == "worker-a"
    opencode = replace(agent, command="cd x && opencode {mcp_config}", host="opencode")
    assert command_of(services, opencode) == "cd x && opencode "
    (file,) = map(Path, services.host_configurations.environment(opencode).values())
    assert read(file)["mcp"]["ipc"]["command"][-1] == "worker-a"
    (plugin,) = read(file)["plugin"]
    assert plugin == (hosts / "worker-a.opencode.js").as_uri()
    assert '"--agent", "worker-a"]' in (hosts / "worker-a.opencode.js").read_text(encoding="utf-8")
    assert services.host_configurations.environment(replace(opencode, command="opencode")) == {}
    codex = command_of(services, replace(agent, command="codex {mcp_config}")) or ""
    assert shlex.split(codex)[:2] == ["codex", "-c"]


def test_codexs_options_hold_hooks_that_are_the_same_for_every_agent(team: Team) -> None:
    services = team.services
    found: list[dict[str, Any]] = []
    for agent_id in ("worker-a", "worker-b"):
        agent = replace(services.agents.get(agent_id), prompt="", command="codex {mcp_config}")
        words = shlex.split(command_of(services, agent) or "")[1:]
        options = [word for word in words if word.startswith("hooks.")]
        assert words.count("-c") * 2 == len(words)
        found.append(tomllib.loads("\n".join(options))["hooks"])
    assert found[0] == found[1]
    assert list(found[0]) == EVENTS
    command = found[0]["PreToolUse"][0]["hooks"][0]["command"]
    team.ask("interrupt", "worker-a", "--as", "admin")
    event = b'{"hook_event_name": "PreToolUse", "tool_name": "Bash", "session_id": "thread-9"}'
    env = {**team.env, **environment_of(services, Slot("worker-a", "task"))}
    assert '"deny"' in run(["sh", "-c", command], env=env, cwd=team.base, stdin=event).stdout


def test_a_gemini_command_is_refused_until_its_directory_has_the_settings(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(team.base)
    agent = replace(team.services.agents.get("worker-a"), command="gemini {mcp_config}", prompt="")
    with pytest.raises(InvalidArguments, match="host_not_configured"):
        command_of(team.services, agent)
    assert not (team.base / ".gemini").exists()
    team.ask("host-config", "gemini", "--agent", "worker-a", "--write")
    assert command_of(team.services, agent) == "gemini "


def _shown(team: Team, host: str, *where: str) -> dict[str, Any]:
    return team.ask("host-config", host, "--agent", "worker-a", *where)
