"""One open session: what every service is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from multi_agent_mcp.contributions import Contributions
from multi_agent_mcp.domain.times import local_zone
from multi_agent_mcp.features.ours import ALL
from multi_agent_mcp.texts import PEOPLE, Texts, catalogue

if TYPE_CHECKING:
    from multi_agent_mcp.errors import Refusal
    from multi_agent_mcp.features import Features
    from multi_agent_mcp.settings import Settings
    from multi_agent_mcp.store.workspace import Workspace


@dataclass(frozen=True, eq=False)
class Session:
    """The files of a session, its settings, its texts, the clock, the features that are on and off, and what they
    contribute. One per process and session."""

    workspace: Workspace
    settings: Settings
    texts: Texts
    clock: Callable[[], datetime]
    features: Features = ALL
    wrong_features: tuple[Refusal, ...] = ()
    """What is wrong with `features:` in session.yaml, or with all of it (`open_session`)."""

    @property
    def name(self) -> str:
        """The session's id."""
        return self.workspace.session

    @property
    def root(self) -> Path:
        return self.workspace.root

    @property
    def path(self) -> Path:
        """The session's directory."""
        return self.workspace.path

    @property
    def machine(self) -> str | None:
        """This machine's name; None unless the session is shared."""
        return self.workspace.authority.here

    @cached_property
    def contributions(self) -> Contributions:
        """The way to what a service does not name."""
        return Contributions(self.features, self.settings, self.workspace, self)

    @cached_property
    def people(self) -> Texts:
        """The texts, including those for people only."""
        return self.texts | catalogue(self.texts.language, PEOPLE)

    @cached_property
    def zone(self) -> tzinfo:
        """The time zone of the person at this machine."""
        return local_zone()

    def audit(self, tool: str, **facts: object) -> None:
        """Adds a line to the audit log, durably."""
        self.workspace.audit_log.add(self.clock(), tool, **facts)


@dataclass(eq=False)
class Service:
    """A use case of one session. It names the other services that it uses, and `wiring` gives them by these names."""

    session: Session

    def __post_init__(self) -> None:
        # Attributes and not properties: they are read some hundred times in a call of a tool.
        self.workspace = self.session.workspace
        self.texts = self.session.texts
        self.clock = self.session.clock
        self.contributions = self.session.contributions
