"""The statement outside of every message: what the model is sent has it once, whatever has happened to its host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Any

from tests.hosts.awake import HOSTS
from tests.hosts.lasting import LastingScenario, LastingTeam
from tests.hosts.scenarios import Measured
from tests.hosts.stage import Host

BEGINNING = "This team's owner has started you (by multi-agent-mcp) as worker-a, worker of the team demo"
ASKED = "get_next_action"
FOLLOWING = {host.name: HOSTS[(number + 1) % len(HOSTS)] for number, host in enumerate(HOSTS)}
"""The host that an agent is given next: each is left once, and taken once."""


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
    """After a start, a compaction that a person asks for, and with the conversation continued."""
    began = time.monotonic()
    team.up()
    team.works(1)
    seen = [("start", _place(team, 0))]
    team.compacts()
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


def is_stated_once_in_the_next_host(team: LastingTeam, following: Host) -> Measured:
    """The agent is given another host (`agent set`) and restarted: that has the statement once, each of our tools once,
    and nothing that was written or set for the former one."""
    team.up()
    team.works(1)
    team.at_rest()
    former, written = _place(team, 0), _files(team)
    variables = team.configurations.environment(team.worker)
    before, began = len(team.model.requests), time.monotonic()
    following.prepare(team.team, team.team.base)
    team.mind.host = following
    team.team.ask("agent", "set", "worker-a", "--command", following.command)
    team.team.ask("restart", "worker-a", "--no-wait")
    team.works(1)
    team.at_rest()
    assert team.screen.startswith(f"{following.name}:"), team.screen
    offered = [[tool for tool in item.tools if tool.endswith(ASKED)] for item in team.model.requests[before:]]
    assert [following.knows(ASKED)] in offered, offered
    assert all(len(tools) <= 1 for tools in offered), offered
    with chdir(team.team.base):  # where Gemini CLI's settings are
        own = team.configurations.environment(team.worker)
        own_words = team.configurations.argument(team.worker, team.team.base) + str(own)
    strange = [str(path) for path in written if str(path) not in own_words]
    strange += [f"{name}=" for name in {*variables} - {*own}]
    given = team.given_to_hosts()
    assert given, "its host runs"
    assert not [word for word in strange if word in given], (strange, given)
    return Measured(
        (time.monotonic() - began) * 1000, f"`{former}` → {following.name}: once, in `{_place(team, before)}`"
    )


def _files(team: LastingTeam) -> list[Path]:
    """What was written for hosts."""
    return [path for path in (team.team.path / "hosts").rglob("*") if path.is_file()]


def _place(team: LastingTeam, since: int) -> str:
    """The one place of the statement in each request with our tools since this number."""
    found = [list(places(request.body)) for request in team.model.requests[since:]]
    assert found, "nothing was sent"
    assert {len(each) for each in found} == {1}, found
    return found[-1][0]


STATED_SCENARIOS = (
    LastingScenario("the statement is there once, outside of every message", is_stated_once),
    *(
        LastingScenario(
            f"the statement is there once after a change of host (to {following.name})",
            partial(is_stated_once_in_the_next_host, following=following),
            only=frozenset({former}),
            partner=following,
        )
        for former, following in FOLLOWING.items()
    ),
)
