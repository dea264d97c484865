"""The command that runs in an agent's window, and the prompt its host begins with (docs/protocol.md, Team in tmux)."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.agent import ROLES, Agent
from multi_agent_mcp.doorbell.tmux.profiles import PROMPT, load_profiles
from multi_agent_mcp.doorbell.tmux.team_panes import filled, is_compound
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.host_config import SERVER_NAME, program_name
from multi_agent_mcp.services.overview.supervision import OWN_SLOTS, Slot
from multi_agent_mcp.services.validation import require_text
from multi_agent_mcp.windows.continuing import ANEW, Beginning

if TYPE_CHECKING:
    from multi_agent_mcp.wiring import Services

_FIRST_WORD = re.compile(r"""^\s*(?:'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^\s'"\\])+""", re.DOTALL)
"""The program of a simple command, as a shell reads it."""


def command_of(services: Services, agent: Agent, purpose: str = "task", beginning: Beginning = ANEW) -> str | None:
    """Returns the agent's command for a session of this purpose with its placeholders filled, or None without one; for
    `{mcp_config}` the host's files are written. Raises `InvalidArguments` for a command that cannot be run."""
    if agent.command is None:
        return None
    worktree = services.worktrees.of(agent.id)
    if worktree is None and services.worktrees.wants(agent):
        raise InvalidArguments("no_worktree", agent_id=agent.id)
    prompt = _going_on(services, agent, purpose) if beginning.continues else first_prompt(services, agent, purpose)
    template = _with_prompt(services, agent.command) if prompt else agent.command
    if beginning.words is not None:
        template = _FIRST_WORD.sub(lambda program: f"{program[0]} {beginning.words}", template, count=1)
    values = {
        "root": services.root,
        "session": services.session,
        "agent": agent.id,
        "python": sys.executable,
        "examples": examples_directory(),
        "worktree": worktree.path if worktree is not None else Path.cwd(),
    }
    quoted = {key: shlex.quote(str(value)) for key, value in values.items()}
    quoted["prompt"] = shlex.quote(prompt) if prompt else ""
    if "{mcp_config}" in template:
        quoted["mcp_config"] = services.host_configurations.argument(agent)
    command = filled(template, quoted)
    require_text("command", command)
    if "\0" in command:
        raise InvalidArguments("bad_command", agent_id=agent.id)
    return command


def first_prompt(services: Services, agent: Agent, purpose: str) -> str:
    """Returns the host's first prompt: `prompt` of team.yaml ("" if it is blank), else the agent's identity and the
    request to call `get_next_action`."""
    if agent.prompt is not None:
        return agent.prompt if agent.prompt.strip() else ""
    texts = services.texts
    role = agent.role if agent.role in ROLES else "worker"
    superior = agent.parent_id or texts("prompt.nobody")
    who = texts("prompt.who", agent_id=agent.id, session=services.session, role=role, superior=superior)
    if (worktree := services.worktrees.of(agent.id)) is not None:
        who += texts("prompt.worktree", branch=worktree.branch)
    return texts(f"prompt.{role}.{purpose}", who=who, now=texts("prompt.now", server=SERVER_NAME))


def _going_on(services: Services, agent: Agent, purpose: str) -> str:
    """Returns the prompt of a host that continues a conversation: none if there is nothing to do, as reading the whole
    conversation again is paid for."""
    if agent.prompt is not None and not agent.prompt.strip():
        return ""
    is_needed = PROMPT in (agent.command or "") or services.briefings.holds(agent.id, purpose).has_to_act
    return services.texts("doorbell.begin") if is_needed else ""


def is_prompted(services: Services, slot: Slot, command: str) -> bool:
    """Returns whether a slot's command contains the first prompt, or that of a continued conversation, which the team's
    own windows have none of."""
    if slot in OWN_SLOTS:
        return False
    first = first_prompt(services, services.agents.get(slot.agent_id), slot.purpose)
    prompts = (first, services.texts("doorbell.begin"))
    return any(prompt and shlex.quote(prompt) in command for prompt in prompts)


def examples_directory() -> Path:
    """Returns the directory of the scripted agents: inside an installed package, or beside it in a clone."""
    package = Path(__file__).parents[1]
    installed = package / "examples"
    return installed if installed.is_dir() else package.parent / "examples"


def _with_prompt(services: Services, command: str) -> str:
    """Returns the command with `{prompt}` added in its host's syntax. A command that contains it, is compound, or runs
    no host with a profile is unchanged: only its author knows where the prompt belongs."""
    if PROMPT in command or is_compound(command):
        return command
    profile = load_profiles(services.root / "hosts").started_by(program_name(command))
    return command if profile is None or profile.prompt is None else f"{command} {profile.prompt}"
