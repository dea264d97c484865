"""The entity, what may be done with it, and what others ask about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

from decisions import KIND
from multi_agent_mcp.domain.agent import Agent, nearest_superior
from multi_agent_mcp.domain.entity import EPOCH, Identified, new_id
from multi_agent_mcp.domain.notification import Following, Notification, Rules, derived_id
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.text import quoted
from multi_agent_mcp.services.attention import Attention, Item
from multi_agent_mcp.services.doctor.tree import PROBLEM, CheckContext, Finding, damaged
from multi_agent_mcp.services.validation import require_text, require_words
from multi_agent_mcp.session import Service, Session
from multi_agent_mcp.settings import refused
from multi_agent_mcp.store.collection import Collection

SHOWN = 3
SHOWN_MAX = 20


def parse_shown(given: Any, name: str) -> int:
    """Parses `decisions_shown` of session.yaml or team.yaml: how many the briefing has. Raises `InvalidArguments`."""
    if given is not None and (type(given) is not int or not 0 < given <= SHOWN_MAX):
        raise refused("no_number", name=name, limit=SHOWN_MAX)
    return given or SHOWN


@dataclass(frozen=True, kw_only=True)
class Decision(Identified):
    """A decision that an agent has taken. Its file is `decisions/{id}.md`; what was seen is in the archive."""

    BODY: ClassVar = "text"

    id: str
    agent_id: str = ""
    task_id: str | None = None
    created_at: datetime = EPOCH
    seen_at: datetime | None = None
    text: str = ""

    @property
    def over(self) -> str:
        """What it has ended as; "" while it is open."""
        return "seen" if self.seen_at is not None else ""


def noted(decision: Decision, agents: Mapping[str, Agent]) -> Iterator[Notification]:
    """Its superior hears of it, as long as the human has not seen it."""
    superior = nearest_superior(decision.agent_id, agents)
    if superior is not None and not decision.over:
        yield Notification(
            id=derived_id("decision_noted", decision.id, superior.id),
            target_agent_id=superior.id,
            type="status_change",
            action="decision_noted",
            created_at=decision.created_at,
            sender_id=decision.agent_id,
        )


FOLLOWING: Rules = {"decision_noted": Following(noted)}
"""What follows from a decision: whoever looks writes it once, and marks it read when it follows no more."""


class Decisions(Service):
    """The decisions of one session."""

    @property
    def _all(self) -> Collection[Decision]:
        return self.workspace.collection(KIND)

    def note(self, agent: Agent, text: str, task_id: str | None) -> Decision:
        """Notes a decision. Raises `InvalidArguments` for text that is empty or cannot be stored."""
        require_words("decision", text)
        require_text("decision", text)
        made = Decision(id=new_id("dcn"), agent_id=agent.id, task_id=task_id, created_at=self.clock(), text=text)
        return self._all.add(made)

    def see(self, decision_id: str) -> Decision:
        """Marks one as seen; it is no longer open then."""
        at = self.clock()
        return self._all.update(decision_id, lambda found: replace(found, seen_at=at))

    def open(self) -> list[Decision]:
        return self._all.open()


def items(attention: Attention, _person: Agent) -> Iterator[Item]:
    """What waits for the human."""
    for one in Decisions(attention.session).open():
        yield Item(
            kind="decision",
            agent_id=one.agent_id,
            id=one.id,
            since=one.created_at,
            text=quoted(one.text),
            command=f"multi-agent-mcp decisions --seen {one.id}",
        )


def section(session: Session, agent: Agent, _task: Task | None) -> str | None:
    """The lines of an agent's briefing."""
    mine = [one for one in Decisions(session).open() if one.agent_id == agent.id]
    shown = mine[-session.settings.of("decisions_shown", SHOWN) :]
    return "\n".join(session.texts("decisions.noted", text=quoted(one.text)) for one in shown) or None


def check(context: CheckContext) -> Iterator[Finding]:
    """Files that cannot be read: `doctor` finds them set aside, with the reason."""
    for name, reason in damaged(context, KIND):
        yield context.found("decisions", PROBLEM, name, "decision_damaged", reason=reason)
