"""The statement outside of every message: what the model is sent has it once, whatever has happened to its host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from tests.end_to_end.support import wait_until
from tests.hosts.lasting import LastingScenario, LastingTeam
from tests.hosts.scenarios import Measured
from tests.hosts.scripted_model import PATIENCE_SECONDS

BEGINNING = "This team's owner has started you (by multi-agent-mcp) as worker-a, worker of the team demo"


def places(body: Any, where: str = "") -> Iterator[str]:
    """Where in a request the statement is."""
    if isinstance(body, dict):
        for key, value in body.items():
            yield from places(value, f"{where}.{key}")
    elif isinstance(body, list):
        for value in body:
            yield from places(value, f"{where}[]")
    elif isinstance(body, str):
        yield from [where.removeprefix(".")] * body.count(BEGINNING)


def is_stated_once(team: LastingTeam) -> Measured:
    """After a start, a compaction where the host can be asked for one, and with the conversation continued."""
    began = time.monotonic()
    team.up()
    team.works(1)
    seen = [("start", _place(team, 0))]
    team.at_rest()
    if command := team.mind.host.compacts:
        summaries = team.summaries
        team.types(command)
        wait_until(lambda: team.summaries > summaries, "it compacts", PATIENCE_SECONDS)
        team.at_rest()
        before = len(team.model.requests)
        team.works(1)
        seen.append(("compaction", _place(team, before)))
        team.at_rest()
    before = len(team.model.requests)
    team.team.ask("restart", "worker-a", "--no-wait")
    team.works(1)
    seen.append(("resume", _place(team, before)))
    assert len({place for _, place in seen}) == 1, seen
    return Measured(
        (time.monotonic() - began) * 1000, f"{', '.join(what for what, _ in seen)}: once, in `{seen[0][1]}`"
    )


def _place(team: LastingTeam, since: int) -> str:
    """The one place of the statement in each request with our tools since this number."""
    found = [list(places(request.body)) for request in team.model.requests[since:]]
    assert found, "nothing was sent"
    assert {len(each) for each in found} == {1}, found
    return found[-1][0]


STATED_SCENARIOS = (
    LastingScenario(
        "the statement is there once, outside of every message",
        is_stated_once,
    ),
)
