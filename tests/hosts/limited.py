"""A host that meets its usage limit, told as the real service tells it (docs/protocol.md, Limited agents)."""

from __future__ import annotations

import time
from functools import partial

from multi_agent_mcp.domain.times import now
from tests.end_to_end.chat_support import notifications, task_of
from tests.end_to_end.literal import TEXTS
from tests.end_to_end.support import wait_until
from tests.hosts.lasting import LastingScenario, LastingTeam, at_work
from tests.hosts.replies import Request
from tests.hosts.scenarios import Measured
from tests.hosts.scripted_model import PATIENCE_SECONDS

LIMIT_SECONDS = 75.0
LONGEST_SECONDS = LIMIT_SECONDS + 180
"""Claude Code goes on by itself about 105 s after the reset."""
RESET = "usage limit has reset"
"""Words of the prompt with which Claude Code goes on by itself."""
SEEN_SECONDS = 5.0
QUEUED_SECONDS = 15.0
"""How long it may take until Codex looks into its queue, and a little more."""
QUIET_SECONDS = 45.0
"""How long nothing more may come after it went on: longer than the 30 s over which rings are spread."""


def waits_for_its_reset(team: LastingTeam, *, mail: bool) -> Measured:
    """A worker with a task meets a limit: it is seen, its superior is told once, nobody rings it until the reset, also
    when the supervisor was killed meanwhile; then it goes on by itself, or is rung once: about the `mail` that came, or
    to go on."""
    task, services = at_work(team), team.team.services
    # a line that waits in Codex' queue would come as the person types, whose line would stay in the composer
    wait_until(
        lambda: time.monotonic() - team.model.requests[-1].at > QUEUED_SECONDS, "no line comes", PATIENCE_SECONDS
    )
    team.at_rest()
    team.mind.holds, team.mind.resumes = False, True
    before = len(team.model.requests)
    team.mind.limited_until = reset = float(int(time.time() + LIMIT_SECONDS))
    team.types("go on")
    seen = _is_seen(team, reset)
    if mail:
        team.team.send("worker-a", "when you can", sender="admin")
    team.kill_the_supervisor()
    team.up()
    assert "limited" in {item["kind"] for item in team.team.ask("attention")["items"]}
    if services.pane_notifier.screen(services.agents.get("worker-a")).endswith("dialog"):
        team.presses("Escape")  # a person closes what the host asks about it
    wait_until(lambda: task_of(team.team, task.id).status == "done", "the task is done", LONGEST_SECONDS)
    done = time.time()
    assert done > reset, "before the reset"
    wait_until(lambda: time.time() > done + QUIET_SECONDS, "more would have come", 2 * QUIET_SECONDS)
    asked = [request for request in team.model.requests[before:] if request.news]
    told = [notice for notice in notifications(team.team, "admin") if notice.action == "agent_limited"]
    assert len(told) == 1, f"its superior was told {len(told)} times"
    by_itself = any(RESET in request.news for request in asked)
    rung = [line for request in asked if (line := _line(request)) is not None]
    assert by_itself or len(rung) == 1, f"rung: {rung}"
    assert mail or not (by_itself and rung), f"it went on by itself, and was rung: {rung}"
    assert mail or all(line.startswith(TEXTS("doorbell.go_on")) for line in rung), f"rung: {rung}"
    assert len(rung) <= 1, f"rung: {rung}"  # one that went on by itself may have been told of the mail by a hook
    assert not team.team.services.workspace.unread_count("worker-a"), "its mail is unread"
    how = f"by itself: {by_itself}, rung: {rung}"
    return Measured(seen * 1000, f"refused → limited; {how}, task done {done - reset:.0f} s after the reset")


def _is_seen(team: LastingTeam, reset: float) -> float:
    """Waits until the limit is seen, with its reset; returns the seconds since the refusal."""
    limit = wait_until(lambda: team.team.services.limits.now("worker-a"), "the limit is seen", PATIENCE_SECONDS)
    assert limit is not None
    seen = now().timestamp() - (team.mind.refused_at or 0)
    assert seen <= SEEN_SECONDS, f"it was seen after {seen:.1f} s"
    assert limit.until is not None, f"without a reset, by the {limit.source}"
    assert abs(limit.until.timestamp() - reset) < 60, f"the reset is {limit.until}"
    return seen


def _line(request: Request) -> str | None:
    """The doorbell's line that the model was sent; a hook may repeat it."""
    return next((words for words in request.news.splitlines() if words.startswith("[IPC] ")), None)


LIMITED_SCENARIOS = tuple(
    LastingScenario(
        f"limited with {what}: seen, told once, rung once or not at all",
        partial(waits_for_its_reset, mail=mail),
        subscribed=True,
        only=frozenset({"claude", "codex"}),
    )
    for what, mail in (("a task", False), ("a task and mail", True))
)
