"""The programs that `init` looks for on PATH: what starts each in a team, and how to get it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from multi_agent_mcp.host_config.configuration import HOSTS


@dataclass(frozen=True)
class HostProgram:
    """`command` is what `up` runs for an agent; the first prompt is added to it by the host's profile."""

    name: str
    title: str
    command: str
    install: str

    @property
    def is_installed(self) -> bool:
        return shutil.which(self.name) is not None


_EVERY = (
    HostProgram(
        "claude", "Claude Code", "claude --mcp-config {mcp_config}", "npm install -g @anthropic-ai/claude-code"
    ),
    HostProgram("codex", "Codex", "codex {mcp_config}", "npm install -g @openai/codex"),
    HostProgram("gemini", "Gemini CLI", "gemini {mcp_config}", "npm install -g @google/gemini-cli"),
    HostProgram("opencode", "OpenCode", "opencode {mcp_config}", "npm install -g opencode-ai"),
    HostProgram("copilot", "GitHub Copilot CLI", "copilot {mcp_config}", "npm install -g @github/copilot"),
)
PROGRAMS = {program.name: program for program in _EVERY if program.name in HOSTS}
"""By name, the one to prefer first."""
