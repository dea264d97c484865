"""What an agent may do (docs/protocol.md, Rules): its own keys `edits`, `commands` and `sandbox`, else those of its
role, and how far its host holds it to them."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.session import Service
from multi_agent_mcp.settings import RULES, Rules, parse_rules, readable_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.services.team.approvals import Approvals
    from multi_agent_mcp.services.team.workplaces import Workplaces

Strength = Literal["enforced", "advised", "impossible"]


@dataclass(eq=False)
class AgentRules(Service):
    """The rules of one session's agents."""

    approvals: Approvals
    workplaces: Workplaces

    def of(self, agent: Agent) -> tuple[Rules, ...]:
        """The rules that hold for the agent, each by itself: those that are there now, in which its own take the place
        of its role's, key by key; and those that a person approved last. So nobody lifts its own by a change of
        session.yaml, agents.json or approved.json, or by one of them that cannot be read."""
        found = []
        with suppress(Refusal):
            roles = readable_settings(self.workspace.settings_path).roles
            own = {key: agent.extra[key] for key in RULES if key in agent.extra}
            found.append(parse_rules({**roles.get(agent.role, {}), **own}, agent.id))
        if (approved := self.approvals.rules_of(agent)) is not None:
            with suppress(Refusal):
                found.append(parse_rules(approved, agent.id))
        return tuple(dict.fromkeys(found))

    def sandbox(self, agent: Agent) -> str | None:
        """The command around its host's: the approved one before that which is there."""
        return _sandbox_of(self.of(agent))

    def held(self, agent: Agent) -> dict[str, Strength]:
        """How far the agent is held to each of its rules, as far as that is known here."""
        rules, command = self.of(agent), agent.command or ""
        bound, is_told = self.contributions.service("host_configurations").binding(
            agent, self.workplaces.directory(agent.id)
        )
        # a shell has ways that neither hooks nor settings can tell
        told: Strength = "advised" if is_told else "impossible"
        sandbox = _sandbox_of(rules)
        found: dict[str, tuple[object, Strength]] = {
            "edits": (any(one.edits is not None for one in rules), "enforced" if "edits" in bound else told),
            "commands": (any(one.deny for one in rules), "enforced" if "commands" in bound else told),
            "sandbox": (sandbox, "enforced" if command and _is_there(sandbox or "") else "impossible"),
        }
        return {name: hold for name, (ruled, hold) in found.items() if ruled}


def _sandbox_of(rules: Sequence[Rules]) -> str | None:
    return next((one.sandbox for one in reversed(rules) if one.sandbox is not None), None)


def _is_there(sandbox: str) -> bool:
    """Whether the program of a sandbox is on this machine; one that is behind a placeholder is taken for it."""
    program = next((word for word in sandbox.split() if "=" not in word), "")
    return "{" in program or shutil.which(program) is not None
