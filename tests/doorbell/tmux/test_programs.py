"""Which program a host is: the file that runs decides, not what it calls itself (docs/hosts.md, Nothing is typed into a
stranger)."""

from __future__ import annotations

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.doorbell.tmux.profiles import Profiles, load_profiles
from multi_agent_mcp.system.process import Foreground, Process

NODE = "/usr/bin/node"
INSTALLED = {
    "claude": (
        "/usr/lib/node_modules/@anthropic-ai/claude-code/bin/claude.exe",
        "/home/a/.nvm/versions/node/v22.1.0/lib/node_modules/@anthropic-ai/claude-code-linux-x64/claude",
        "/home/a/.local/share/claude/versions/2.1.330",
        "/opt/homebrew/Caskroom/claude-code/2.1.330/claude",
        "/home/a/.local/share/mise/installs/claude/2.1.330/claude",
        "/nix/store/0a1b-claude-code-2.1.330/bin/.claude-wrapped",
        "/usr/bin/claude",
    ),
    "codex": (
        "/usr/local/lib/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
        "/opt/homebrew/Caskroom/codex/0.169.0/codex-aarch64-apple-darwin",
        "/home/a/.cargo/bin/codex",
        "/home/a/bin/codex",
    ),
    "opencode": (
        "/p/node_modules/opencode-ai/bin/opencode.exe",
        "/p/node_modules/opencode-linux-x64-baseline/bin/opencode",
        "/home/a/.opencode/bin/opencode",
        "/home/linuxbrew/.linuxbrew/Cellar/opencode/1.18.33/bin/opencode",
    ),
    "copilot": (
        "/p/node_modules/@github/copilot-linux-x64/copilot",
        "/Users/a/.local/bin/copilot",
    ),
}
SCRIPTS = {
    "claude": ("/home/a/.claude/local/node_modules/@anthropic-ai/claude-code/cli.js",),
    "codex": ("/home/a/.volta/tools/image/packages/@openai/codex/lib/node_modules/@openai/codex/bin/codex.js",),
    "gemini": (
        "/usr/lib/node_modules/@google/gemini-cli/bundle/gemini.js",
        "/g/5/.pnpm/@google+gemini-cli@0.61.0/node_modules/@google/gemini-cli/bundle/gemini.js",
        "/opt/homebrew/Cellar/gemini-cli/0.61.0/libexec/lib/node_modules/@google/gemini-cli/bundle/gemini.js",
    ),
    "copilot": ("/p/node_modules/@github/copilot/npm-loader.js",),
}
BASH_WRAPPER = Process(1, "1", "/usr/bin/bash", ("bash", "/home/a/bin/claude"), script="/home/a/scripts/claude")


@pytest.fixture(scope="module")
def profiles() -> Profiles:
    return load_profiles()


def described(profiles: Profiles, *readers: Process, host: str | None = None) -> str | None:
    found = profiles.describing(Agent(id="x", host=host), Foreground(readers[0], readers))
    return None if found is None else found.name


def process(file: str, script: str = "") -> Process:
    return Process(1, "1", file, ("anything",), script=script)


PROGRAMS = [(host, process(file)) for host, files in INSTALLED.items() for file in files] + [
    (host, process(node, script))
    for host, scripts in SCRIPTS.items()
    for script in scripts
    for node in (NODE, "/usr/bin/node-22")
]


@pytest.mark.parametrize(("host", "program"), PROGRAMS)
def test_an_installed_host_is_known_by_its_file_and_is_no_other(
    profiles: Profiles, host: str, program: Process
) -> None:
    for declared in (None, "plain", host):
        assert described(profiles, program, host=declared) == host
        assert described(profiles, BASH_WRAPPER, program, host=declared) == host
    for other in INSTALLED.keys() - {host}:
        assert described(profiles, program, host=other) is None


@pytest.mark.parametrize(
    "stranger",
    [
        Process(1, "1", "/usr/bin/cat", ("claude",)),
        Process(1, "1", "/usr/bin/cat", ("cat", "/usr/lib/node_modules/@anthropic-ai/claude-code/cli.js")),
        Process(1, "1", "/usr/bin/perl", ("claude",), renamed=True),
        Process(1, "1", NODE, ("claude",), renamed=True, script=NODE),
        Process(1, "1", NODE, ("node", "gemini.js"), script="/home/a/src/gemini.js"),
        Process(1, "1", "/home/a/build/claude", ("/home/a/.local/bin/claude",)),
        Process(1, "1", "", ("claude",)),
        BASH_WRAPPER,
    ],
    ids=lambda process: process.file,
)
def test_a_program_with_a_hosts_name_that_is_elsewhere_is_a_stranger(profiles: Profiles, stranger: Process) -> None:
    for host in (None, "plain", *INSTALLED):
        found = described(profiles, stranger, host=host)
        assert found == ("plain" if host == "plain" else None)
