"""A host that meets its usage limit, told as the real service tells it (docs/protocol.md, Limited agents)."""

from __future__ import annotations

import time

from multi_agent_mcp.domain.times import now
from tests.end_to_end.chat_support import notifications, task_of
from tests.end_to_end.literal import TEXTS
from tests.end_to_end.support import wait_until
from tests.hosts.lasting import LastingScenario, LastingTeam, at_work
from tests.hosts.scenarios import Measured
from tests.hosts.scripted_model import PATIENCE_SECONDS

LIMIT_SECONDS = 75.0
LONGEST_SECONDS = LIMIT_SECONDS + 180
"""Claude Code goes on by itself about 105 s after the reset."""
RESET = "usage limit has reset"
"""Words of the prompt with which Claude Code goes on by itself."""
SEEN_SECONDS = 5.0
QUIET_SECONDS = 45.0
"""How long nothing more may come after it went on: longer than the 30 s over which rings are spread."""


def waits_for_its_reset(team: LastingTeam) -> Measured:
    """A worker with a task meets a limit: it is seen, its superior is told once, nobody rings it until the reset, also
    when the supervisor was killed meanwhile; then it goes on by itself, or is rung once."""
    task, services = at_work(team), team.team.services
    team.at_rest()
    team.mind.holds = False
    before = len(team.model.requests)
    team.mind.limited_until = reset = float(int(time.time() + LIMIT_SECONDS))
    team.types("go on")
    limit = wait_until(lambda: services.limits.now("worker-a"), "the limit is seen", PATIENCE_SECONDS)
    assert limit is not None
    seen = now().timestamp() - (team.mind.refused_at or 0)
    assert seen <= SEEN_SECONDS, f"it was seen after {seen:.1f} s"
    assert limit.until is not None, f"without a reset, by the {limit.source}"
    assert abs(limit.until.timestamp() - reset) < 60, f"the reset is {limit.until}"
    team.team.send("worker-a", "when you can", sender="admin")
    team.kill_the_supervisor()
    team.up()
    assert "limited" in {item["kind"] for item in team.team.ask("attention")["items"]}
    if services.screen(services.agents.get("worker-a")).endswith("dialog"):
        team.presses("Escape")  # a person closes what the host asks about it
    wait_until(lambda: task_of(team.team, task.id).status == "done", "the task is done", LONGEST_SECONDS)
    done = time.time()
    assert done > reset, "before the reset"
    wait_until(lambda: time.time() > done + QUIET_SECONDS, "more would have come", 2 * QUIET_SECONDS)
    asked = [request for request in team.model.requests[before:] if request.news]
    told = [notice for notice in notifications(team.team, "admin") if notice.action == "agent_limited"]
    assert len(told) == 1, f"its superior was told {len(told)} times"
    lines = [words for request in asked for words in request.news.splitlines() if words.startswith("[IPC] ")]
    by_itself = any(RESET in request.news for request in asked)
    assert lines.count(TEXTS("doorbell.go_on")) <= (not by_itself), lines
    how = "it went on by itself" if by_itself else f"rung: {lines}"
    return Measured(seen * 1000, f"refused → limited ({limit.source}); {how}, {done - reset:.0f} s after the reset")


LIMITED_SCENARIOS = (
    LastingScenario(
        "limited: seen, told once, rung once or not at all",
        waits_for_its_reset,
        subscribed=True,
        only=frozenset({"claude", "codex"}),
    ),
)
