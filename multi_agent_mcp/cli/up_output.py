"""The output of `up`: warnings, the agents' states while it waits, and the table at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from multi_agent_mcp.cli.output import indented, print_line, titled_table
from multi_agent_mcp.cli.status import first_command
from multi_agent_mcp.domain.sanitize import one_line
from multi_agent_mcp.texts import Texts
from multi_agent_mcp.windows.agent_state import OPEN, READY, AgentState

if TYPE_CHECKING:
    from multi_agent_mcp.windows.preflight import Preflight
    from multi_agent_mcp.windows.readiness import Report
    from multi_agent_mcp.windows.startup import Startup


def warnings(checked: Preflight, texts: Texts) -> Iterator[str]:
    """Yields the variables that would not reach the agents, and the remedy."""
    if checked.withheld:
        yield texts("up.withheld", socket_path=checked.socket_path, names=", ".join(checked.withheld))
        yield texts("up.remedy", command=checked.remedy)
        yield ""


def summary(startup: Startup, texts: Texts) -> Iterator[str]:
    """Yields all agents' states, the last lines of ended programs, and the commands to show the team."""
    rows = [(state.agent_id, state.pane_id or "-", state.note(texts)) for state in startup.states]
    yield from titled_table(texts, ("agent", "pane", "note"), rows)
    for state in startup.states:
        if state.last_lines:
            yield ""
            yield texts("up.last_lines", agent_id=state.agent_id)
            yield from indented("\n".join(state.last_lines))
    if (command := startup.attach_command) is not None:
        yield ""
        yield texts("up.attach", command=command)
        yield texts("up.inside")
    if any(state.asks for state in startup.states):
        yield texts("up.answer")
    ready = [state.agent_id for state in startup.states if state.state == READY]
    if startup.is_fine and ready:
        yield texts("status.next", command=first_command(startup.windows.services.agents.get(ready[0])))


@contextmanager
def progress(texts: Texts, *, is_silent: bool) -> Iterator[Report]:
    """Yields the function that reports states: on a terminal it redraws a list, which is removed at the end; elsewhere
    it prints a line for every change."""
    if is_silent:
        yield lambda _: None
    elif sys.stdout.isatty():
        with _live_list(texts) as report:
            yield report
    else:
        yield _changes(texts)


@contextmanager
def _live_list(texts: Texts) -> Iterator[Report]:
    from rich.console import Console  # rich takes 40 ms to import
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(highlight=False), transient=True, auto_refresh=False) as live:
        yield lambda states: live.update(
            Text("\n".join(_lines(states, texts).values()), no_wrap=True, overflow="ellipsis"), refresh=True
        )


def _changes(texts: Texts) -> Report:
    said: dict[str, str] = {}

    def report(states: Sequence[AgentState]) -> None:
        now = _lines(states, texts)
        for agent_id, line in now.items():
            if said.get(agent_id) != line:
                print_line(line)
        sys.stdout.flush()
        said.update(now)

    return report


def _lines(states: Sequence[AgentState], texts: Texts) -> dict[str, str]:
    """Returns a line for each agent that is waited for, by its id."""
    return {
        state.agent_id: one_line(f"{state.agent_id}: {state.note(texts)}")
        for state in states
        if state.pane_id is not None and state.state != OPEN
    }
