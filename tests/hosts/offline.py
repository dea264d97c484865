"""A host whose model cannot be reached for a while (docs/protocol.md, Stuck agents)."""

from __future__ import annotations

import time

from tests.end_to_end.support import wait_until
from tests.hosts.lasting import LastingScenario, LastingTeam, at_work
from tests.hosts.scenarios import LINE, MAIL, Measured
from tests.hosts.scripted_model import PATIENCE_SECONDS

AWAY_SECONDS = 100.0
"""Longer than the minute after which it is said, and the half of one between two looks of the supervisor."""
SAID = "offline"


def is_offline_for_a_while(team: LastingTeam) -> Measured:
    """Its model goes away with a task in hand: that is said everywhere after a minute, nobody is told twice, nothing is
    typed meanwhile, and it ends by itself."""
    at_work(team)
    team.at_rest()
    before = len(team.model.requests)
    team.model.leave()
    went = time.monotonic()
    team.types("go on")
    wait_until(lambda: team.screen.endswith(SAID), "its screen is known", PATIENCE_SECONDS)
    message = team.team.send("worker-a", MAIL, sender="admin")["message_id"]
    wait_until(lambda: _told(team) == [SAID] * 4, "all of them say it", AWAY_SECONDS)
    said = time.monotonic()
    wait_until(lambda: time.monotonic() > went + AWAY_SECONDS, "it is away", PATIENCE_SECONDS)
    assert _told(team) == [SAID] * 4, "it was said for a moment only"
    (copy,) = team.team.ask("trace", message)["copies"]
    steps = [(step["state"], step.get("reason")) for step in copy["steps"]]
    assert {why for _, why in steps} <= {None, SAID}, steps
    assert not {"rung", "submitted"} & {state for state, _ in steps}, steps
    assert LINE not in team.screens, "a line waits in its queue"
    team.mind.holds = False
    team.model.come_back()
    came = time.monotonic()
    team.model.request_with(MAIL, after=before)
    back = time.monotonic()
    wait_until(lambda: not set(_told(team)) & {SAID}, "it is said no more", PATIENCE_SECONDS)
    rung = sum(LINE in request.news for request in team.model.requests[before:])
    assert rung == 1, f"rung {rung} times"
    notices = [item for item in team.team.mailbox("admin") if SAID in item.content]
    assert len(notices) <= 1, notices
    return Measured((said - went) * 1000, f"model away → said; {back - came:.0f} s after its return the mail is read")


def _told(team: LastingTeam) -> list[str]:
    """What `up`, `agent list`, `watch` and `attention` say of the worker."""
    asked = team.team.run("up", "--no-watch", "--json", "--socket", team.terminal.socket).json
    listed = {item["id"]: item for item in team.team.ask("agent", "list")["agents"]}
    watched = team.team.run("watch", "--once").stdout
    items = [item for item in team.team.ask("attention")["items"] if item.get("agent_id") == "worker-a"]
    said = [
        next(item["state"] for item in asked["agents"] if item["agent_id"] == "worker-a") == SAID,
        bool(listed["worker-a"].get(SAID)),
        SAID in watched,
        any("cannot reach its model" in str(item) for item in items),
    ]
    return [SAID if it else "" for it in said]


OFFLINE_SCENARIOS = (
    LastingScenario(
        "its model is away for 100 s: said to be offline, not rung, goes on",
        is_offline_for_a_while,
        only=frozenset({"codex"}),  # Claude Code's waiter is woken once meanwhile: it does not look at the screen
    ),
)
