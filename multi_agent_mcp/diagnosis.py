"""What `doctor` is given to look at: the services of a session, and the panes of its agents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from multi_agent_mcp.doorbell.tmux.client import harmful_options, misnamed
from multi_agent_mcp.doorbell.tmux.profiles import load_profiles
from multi_agent_mcp.features import called
from multi_agent_mcp.services.attention import EXAMINE_EVERY
from multi_agent_mcp.services.doctor.doctor import Doctor
from multi_agent_mcp.services.doctor.tree import CheckContext
from multi_agent_mcp.session import Service
from multi_agent_mcp.system.process import running_files

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.doorbell.tmux.notifier import TmuxNotifier
    from multi_agent_mcp.host_config import HostConfigurations
    from multi_agent_mcp.services.background import PartsDone
    from multi_agent_mcp.services.doctor.tree import Finding
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.operations import Operations
    from multi_agent_mcp.services.overview.missing_sessions import MissingSessions
    from multi_agent_mcp.services.overview.pane_looks import LookAtPane
    from multi_agent_mcp.services.overview.stuck_agents import StuckAgents
    from multi_agent_mcp.services.overview.supervision import Supervision
    from multi_agent_mcp.services.questions import QuestionEffects
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.sessions.session_records import OwnerWaits
    from multi_agent_mcp.services.tasks.checks import Checks
    from multi_agent_mcp.services.team.agents import Agents, Signatures
    from multi_agent_mcp.services.unchanged import WhileUnchanged


@dataclass(eq=False)
class Diagnosis(Service):
    agents: Agents
    sessions: Sessions
    owner_waits: OwnerWaits
    missing_sessions: MissingSessions
    supervision: Supervision
    derived_notices: DerivedNotices
    question_effects: QuestionEffects
    stuck_agents: StuckAgents
    signatures: Signatures
    checks: Checks
    operations: Operations
    pane_notifier: TmuxNotifier
    host_configurations: HostConfigurations
    unchanged: WhileUnchanged
    _demanded: int = field(default=0, init=False)

    def findings(self, progress: PartsDone | None = None, *, anyway: bool = False) -> list[Finding]:
        """The findings of `doctor`, examined again only when something has changed, after some minutes, or `anyway`: an
        edit in place and a mode(7) show in no directory."""
        self._demanded += anyway
        examine = lambda: self.doctor().examine(progress=progress)  # noqa: E731
        return self.unchanged.get("findings", examine, of=self._demanded, good_for=EXAMINE_EVERY)

    def doctor(self, probe: Callable[[Agent], str | None] | None = None, look_at: LookAtPane | None = None) -> Doctor:
        """The doctor. `probe` returns why an agent's pane cannot be rung, `look_at` the host in it; by default both ask
        tmux."""
        profiles, features = load_profiles(self.session.root / "hosts"), self.session.features
        context = CheckContext(
            session=self.session,
            agents=self.agents,
            sessions=self.sessions,
            owner_waits=self.owner_waits,
            missing_sessions=self.missing_sessions,
            supervision=self.supervision,
            derived=self.derived_notices,
            question_effects=self.question_effects,
            stuck_agents=self.stuck_agents,
            signatures=self.signatures,
            checks=self.checks,
            operations=self.operations,
            probe=probe or self.pane_notifier.probe,
            program=lambda agent: running_files(agent.pane_pid),
            look_at=look_at or self.pane_notifier.host,
            misnamed=misnamed,
            harmful_options=harmful_options,
            hosts=[profile.name for profile in profiles.named.values() if not profile.never],
            profiles_left_out=profiles.left_out,
            contributions=self.contributions,
            dialog=self.pane_notifier.dialog,
            hooks_ran=lambda session: bool(self.contributions.service("hooks").have_run(session)),
            outdated_files=self.host_configurations.outdated,
            still_open=lambda: self.contributions.still_open(features),
        )
        checks, verifications = (
            {name: partial(called, where) for name, where in features.each(field)}
            for field in ("checks", "verifications")
        )
        return Doctor(context, checks, verifications)
