"""A team's windows on other people's machines: their shell, their tmux.conf, their paths. Every host gets its words
byte for byte, works where it should, and sees the variables of the terminal that ran `up`."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.services.team.setup import add_missing, create_session, read_team
from multi_agent_mcp.windows.agent_command import command_of
from multi_agent_mcp.windows.shells import quoted
from multi_agent_mcp.windows.up_down import Startup, close_team
from multi_agent_mcp.windows.window_registry import TeamWindows
from tests.end_to_end.support import wait_until
from tests.programs import PACKAGES

pytestmark = [pytest.mark.tmux]

PROMPT = "Don't stop.\nThe share is \\\\server\\x; say \"done\"!\n\n$HOME `id` ~ * {a} [b] #S <c> | & 日本 '''"
HOST = """\
#!/bin/sh
{ pwd -P; env; } > "$HOME/$MULTI_AGENT_MCP_AGENT.seen"
printf '%s\\0' "$@" > "$HOME/$MULTI_AGENT_MCP_AGENT.words.new"
mv "$HOME/$MULTI_AGENT_MCP_AGENT.words.new" "$HOME/$MULTI_AGENT_MCP_AGENT.words"
exec cat
"""
STARTING = {
    ".zshenv": "export SEEN_BY_SHELL=yes PATH=/usr/bin:/bin",
    ".tcshrc": "setenv SEEN_BY_SHELL yes",
    ".config/fish/config.fish": "set -gx SEEN_BY_SHELL yes; set -gx PATH /usr/bin /bin",
}
"""What a person's shell reads when it starts."""
ODD = """\
set -g no-such-option 1
set -g destroy-unattached on
set -s exit-unattached on
set -g detach-on-destroy off
set -g default-terminal no-such-terminal
set -g terminal-overrides ',*:cols@'
set-hook -g after-new-window 'set destroy-unattached on; set -s exit-unattached on'
set-hook -g client-attached 'kill-session'
set-hook -g session-created 'set destroy-unattached on'
set -g default-size 20x5
set -g default-command 'echo no'
set -g remain-on-exit on
set -g base-index 1
set -g pane-base-index 1
set -g renumber-windows on
set -g automatic-rename on
set -g set-titles on
set -g lock-after-time 1
set -g assume-paste-time 0
set -g wrap-search off
set -g window-size smallest
set -g update-environment 'CLAUDECODE PATH MULTI_AGENT_MCP_AGENT'
set-environment -g CODEX_SANDBOX seatbelt
set-environment -g NO_COLOR 1
set-environment -g GIT_DIR /elsewhere/.git
set-environment -g MULTI_AGENT_MCP_AGENT somebody
"""
CONFIGURATIONS = {"plain": "", "odd": ODD}
PATHS = {"short": "p", "strange": 'C# & co/ä/日本/it\'s "so" #[x] #{y} run#(z)\n '}
SHELLS = ("sh", "bash", "zsh", "fish", "tcsh", "nu", "xonsh")
ROWS = cycle(
    [
        *(("plain", "short", "shared", "sh"), ("odd", "strange", "worktree", "default")),
        *(("odd", "short", "worktree", "sh"), ("plain", "strange", "shared", "default")),
        *(("plain", "strange", "worktree", "sh"), ("odd", "short", "shared", "default")),
    ]
)
PAIRS = [(shell, *next(ROWS)) for shell in SHELLS for _ in range(2)]
"""Each shell with each value of the others, which meet each other on the way: configuration, path, workspace, and what
reads the command."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    for name, text in STARTING.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text + "\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CLAUDECODE", "1")
    for name in ("TMUX", "TMUX_PANE", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A socket's path may have no more than 107 characters."""
    with tempfile.TemporaryDirectory(prefix="mam-", dir="/tmp") as directory:
        yield Path(directory)


def git(place: Path, *words: str) -> None:
    call = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *words]
    subprocess.run(call, cwd=place, check=True, capture_output=True)


@pytest.mark.parametrize(("shell", "configuration", "path", "workspace", "reads"), PAIRS)
def test_hosts_start_as_they_should_whatever_shell_configuration_and_path(
    home: Path,
    tmp_path: Path,
    short_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    shell: str,
    configuration: str,
    path: str,
    workspace: str,
    reads: str,
) -> None:
    program = shutil.which(shell) or pytest.skip(f"{shell} is not installed (scripts/setup installs what it can)")
    project = tmp_path / PATHS[path]
    project.mkdir(parents=True)
    commands = {}
    for host in ("claude", "codex"):
        file = tmp_path / "node_modules" / PACKAGES[host] / host
        file.parent.mkdir(parents=True)
        file.write_text(HOST, encoding="utf-8")
        file.chmod(0o755)
        word = quoted(program if reads == "default" else "/bin/sh", str(file))
        call = f"^{word}" if (shell, reads) == ("nu", "default") else word
        commands[host] = f"{call} {{mcp_config}} -- {{prompt}}"
    git(project, "init", "-q")
    git(project, "commit", "-q", "--allow-empty", "-m", "first")
    agents = [
        {"id": host, "parent": "owner", "host": host, "command": command, "prompt": PROMPT}
        for host, command in commands.items()
    ]
    agents.insert(0, {"id": "owner", "role": "owner", "type": "human"})  # the last one's host is not waited for
    made = {"language": "en", "workspace": workspace, "shell": reads, "agents": agents}
    (project / "team.yaml").write_text(json.dumps(made), encoding="utf-8")
    monkeypatch.chdir(project)
    team = read_team(project / "team.yaml")
    create_session(project / ".multi-agent-mcp", "demo", team, None)
    services = open_session(project / ".multi-agent-mcp", "demo")
    add_missing(services.agents, team)
    conf = tmp_path / "tmux.conf"
    conf.write_text(f"set -g default-shell {program}\n{CONFIGURATIONS[configuration]}", encoding="utf-8")
    windows = TeamWindows(services, str(short_directory / "s"), str(conf))
    startup = Startup(windows)
    try:
        startup.open(supervisor=False, owner=False)
        assert [state.state for state in startup.states] == ["no_command", "starting", "starting"], startup.states
        for agent_id in commands:
            words = home / f"{agent_id}.words"
            wait_until(words.exists, f"{agent_id} has started")
            given = words.read_text(encoding="utf-8").split("\0")[:-1]
            plain = replace(services.agents.get(agent_id), command=f"{agent_id} {{mcp_config}}")
            assert given == shlex.split(command_of(services, plain) or "")[1:]
            assert given[-1] == PROMPT
            seen = (home / f"{agent_id}.seen").read_text(encoding="utf-8")
            worktree = services.worktrees.of(agent_id)
            assert (worktree is not None) == (workspace == "worktree")
            assert seen.startswith(os.path.realpath(project if worktree is None else worktree.directory) + "\n")
            assert f"\nMULTI_AGENT_MCP_AGENT={agent_id}\n" in seen
            assert not any(f"\n{name}=" in seen for name in ("CLAUDECODE", "CODEX_SANDBOX", "NO_COLOR", "GIT_DIR"))
            if reads == "sh":
                assert f"\nPATH={os.environ['PATH']}\n" in seen
                assert "SEEN_BY_SHELL" not in seen
            elif shell in ("zsh", "tcsh", "fish"):
                assert "\nSEEN_BY_SHELL=yes\n" in seen
        covered = ["tmux", "-S", windows.socket_path, "list-panes", "-a", "-F", "#{pane_in_mode}"]
        modes = subprocess.run(covered, capture_output=True, text=True, check=True).stdout.split()
        assert modes == ["0", "0"], "what tmux says of tmux.conf covers no pane"
    finally:
        assert sorted(close_team(windows)) == sorted(commands)
        subprocess.run(["tmux", "-S", windows.socket_path, "kill-server"], capture_output=True, check=False)
