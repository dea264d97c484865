"""Judges a host's call by the rules of its agent (docs/protocol.md, Rules)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.patterns import matcher
from multi_agent_mcp.domain.shell import denied_by
from multi_agent_mcp.domain.shell_files import written_by
from multi_agent_mcp.domain.text import named, quoted
from multi_agent_mcp.hooks.first_look import ToolCall, relative_paths
from multi_agent_mcp.system.file_status import tree_of

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.hooks.answers import ToolCalls
    from multi_agent_mcp.services.team.rules import AgentRules
    from multi_agent_mcp.settings import Rules

PATTERNS_SHOWN = 200


def judge(calls: ToolCalls, agent: Agent, call: ToolCall) -> str | None:
    """Why a call must not be made: it runs a command that is denied, or edits what the agent may not edit."""
    rules: AgentRules = calls.contributions.service("agent_rules")
    return next(filter(None, (_why_not(calls, one, call) for one in rules.of(agent))), None)


def _why_not(calls: ToolCalls, ruled: Rules, call: ToolCall) -> str | None:
    if call.command and ruled.deny and (found := denied_by(call.command, ruled.deny)) is not None:
        return calls.texts("hook.ruled_out", command=quoted(found))
    if ruled.edits is None:
        return None
    is_allowed = matcher(ruled.edits)

    def located(path: str) -> str:
        return os.path.join(call.cwd, os.path.expanduser(path))  # noqa: PTH111, PTH118

    written = map(located, written_by(call.command, lambda path: os.path.isdir(located(path))))  # noqa: PTH112
    for path in (*call.paths, *written):
        each = relative_paths(ToolCall((path,), "", call.cwd))  # as it is named, and what links lead to
        is_within = tree_of(os.path.realpath(path)) is not None
        if not is_within or not each or not all(map(is_allowed, each)):
            patterns = ", ".join(ruled.edits)[:PATTERNS_SHOWN] or "-"
            return calls.texts("hook.not_yours", path=named(path), patterns=quoted(patterns))
    return None
