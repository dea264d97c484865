"""The places of agent sessions, for each of which the team may have a window."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Slot:
    """The place of one agent session: an agent and a purpose."""

    agent_id: str
    purpose: str

    @property
    def label(self) -> str:
        """The slot as text, parsed by `of`; ids contain no dots."""
        return f"{self.agent_id}.{self.purpose}"

    @classmethod
    def of(cls, label: str) -> Slot:
        agent_id, _, purpose = label.rpartition(".")
        return cls(agent_id, purpose)

    @property
    def window_name(self) -> str:
        return f"{self.agent_id}-chat" if self.purpose == "chat" else self.agent_id


SUPERVISOR, OWNER = Slot("supervisor", "-"), Slot("owner", "-")
OWN_SLOTS = (SUPERVISOR, OWNER)
"""The team's windows that are no agent's session: the supervisor's and the Owner's view."""
