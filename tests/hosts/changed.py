"""An agent that works in another host from now on (`agent set`), also when that is named in a way that leaves our
server out: what `doctor` then says helps."""

from __future__ import annotations

import re
import shlex
import time

from tests.end_to_end.support import wait_until
from tests.hosts.awake import CLAUDE, CODEX
from tests.hosts.lasting import LastingScenario, LastingTeam
from tests.hosts.scenarios import Measured
from tests.hosts.scripted_model import PATIENCE_SECONDS

WITHOUT_OUR_SERVER = "codex -m gpt-5.1-codex"
MANY = 1_000
COMMANDS = re.compile(r"multi-agent-mcp ((?:agent set|restart) [^;(]+)")


def goes_on_in_another_host(team: LastingTeam) -> Measured:
    """From Claude Code to Codex without our server; `doctor` names the commands, which are followed as they stand."""
    team.up()
    team.works(1)
    team.mind.host, team.mind.silent = CODEX, MANY  # it is told to call what it is not offered
    team.team.ask("agent", "set", "worker-a", "--command", WITHOUT_OUR_SERVER)
    (started,) = team.team.run("restart", "worker-a", "--json").json["agents"]
    assert started["state"] == "unconfigured", started
    commands = wait_until(lambda: _repair(team), "doctor says what helps", PATIENCE_SECONDS)
    assert [command.split()[0] for command in commands] == ["agent", "restart"], commands
    began, team.mind.silent = time.monotonic(), 0
    for command in commands:
        team.team.run(*shlex.split(command), *(("--no-wait",) if command.startswith("restart") else ()))
    CODEX.trust_hooks(team.team, lambda: team.screens)
    wait_until(
        lambda: any(item.called for item in team.team.services.sessions.live("worker-a")),
        "our server is there, and has been called",
        PATIENCE_SECONDS,
    )
    took = time.monotonic() - began
    team.works(1)
    team.at_rest()
    assert team.screen.startswith(f"{CODEX.name}:"), team.screen
    return Measured(took * 1000, "`doctor` followed → our server called from Codex; a task done there")


def _repair(team: LastingTeam) -> list[str]:
    """The commands that `doctor` names for a host without our server."""
    findings = team.team.run("doctor", "--json").json["findings"]
    found = (item for item in findings if str(item.get("subject", "")).endswith("worker-a"))
    return next(
        (COMMANDS.findall(text) for item in found if (text := str(item.get("repair"))) and COMMANDS.search(text)), []
    )


CHANGED_SCENARIOS = (
    LastingScenario(
        "another host from now on (agent set), as doctor says",
        goes_on_in_another_host,
        only=frozenset({CLAUDE.name}),
        partner=CODEX,
    ),
)
