"""The commands for a team in tmux: `up`, `restart`, `down`, `attach` and `supervise`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from multi_agent_mcp.bootstrap import require_features
from multi_agent_mcp.cli.context import SessionContext, indented, print_line, session_command
from multi_agent_mcp.cli.next_step import first_command, here
from multi_agent_mcp.cli.rendering import titled_table
from multi_agent_mcp.domain.text import one_line
from multi_agent_mcp.errors import InvalidArguments, Refusal
from multi_agent_mcp.texts import Texts
from multi_agent_mcp.windows.readiness import OPEN, READY, AgentState, Report

if TYPE_CHECKING:
    from multi_agent_mcp.windows.preflight import Preflight
    from multi_agent_mcp.windows.up_down import Startup

# The output of `up`: warnings, the agents' states while it waits, and the table at the end.


def warnings(checked: Preflight, texts: Texts) -> Iterator[str]:
    """Yields the variables that would not reach the agents, with the remedy, and hosts that are newer than known."""
    for host in checked.newer:
        yield texts("up.newer", title=host.title, version=host.version, proven=host.proven)
        yield ""
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
        yield texts("up.attach", command=here(startup.windows.services, "multi-agent-mcp attach"), tmux=command)
        yield texts("up.inside")
    if startup.only and not startup.windows.services.supervision.running():
        yield texts("up.unsupervised")
    if any(state.asks for state in startup.states):
        yield texts("up.answer")
    ready = [state.agent_id for state in startup.states if state.state == READY]
    if startup.is_fine and ready:
        services = startup.windows.services
        yield texts("status.next", command=here(services, first_command(services.agents.get(ready[0]))))


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


SOCKET = click.option(
    "--socket", metavar="PATH", help="The tmux socket (default: the server this terminal is in, else tmux's default)."
)
TEAM_SOCKET = click.option("--socket", metavar="PATH", help="The tmux socket (default: that of the team's windows).")
WAIT = click.option("--wait/--no-wait", default=True, help="Wait until every agent is ready or asks for something.")
TIMEOUT = click.option(
    "--timeout", type=click.IntRange(0, 3600), default=60, metavar="SECONDS", help="How long (default: 60)."
)
FRESH = click.option("--fresh", is_flag=True, help="Begin new conversations instead of continuing the last ones.")
AGENTS = click.argument("agent_ids", metavar="[AGENT]...", nargs=-1)


@click.command()
@AGENTS
@SOCKET
@click.option("--tmux-config", metavar="FILE", help="A tmux.conf for a server that is started now.")
@click.option(
    "--supervisor/--no-supervisor",
    default=True,
    help="Run the supervisor in a pane: it opens windows for chat work and for agents with `spawn: on_demand`.",
)
@click.option("--watch/--no-watch", default=True, help="Open a window `owner` with `watch`, for the human.")
@FRESH
@WAIT
@TIMEOUT
@click.option("--attach/--no-attach", default=True, help="In tmux: show the team's windows in this terminal.")
@session_command()
def up(
    context: SessionContext,
    agent_ids: tuple[str, ...],
    socket: str | None,
    tmux_config: str | None,
    supervisor: bool,
    watch: bool,
    fresh: bool,
    wait: bool,
    timeout: int,
    attach: bool,
) -> None:
    """Open a tmux window for every agent that has a command in team.yaml (or for those named), register its pane, and
    say who is ready and what waits for you.

    A host goes on with its last conversation where it can do so without loss.

    In a command {mcp_config}, {prompt}, {root}, {session}, {agent}, {python} and {examples} are filled in.

    Exit code 1 when somebody is not ready.

    Example: `multi-agent-mcp up`
    """
    from multi_agent_mcp.config import tmux_socket
    from multi_agent_mcp.windows.up_down import Startup
    from multi_agent_mcp.windows.window_registry import TeamWindows

    require_features(context.services, context.services.settings.features)
    if context.services.machine is not None:
        from multi_agent_mcp.cli.machines import sharing_of

        sharing_of(context).start_relay()
    path = str(Path(socket).absolute()) if socket else tmux_socket()
    startup = Startup(TeamWindows(context.services, path, tmux_config, joins=socket is None), agent_ids)
    _warn(context, startup)
    with progress(context.texts, is_silent=context.as_json) as report:
        startup.open(supervisor=supervisor, owner=watch, fresh=fresh, report=report)
        _wait(startup, timeout if wait else None, report)
    _tell(context, startup)
    if attach and wait and not context.as_json and sys.stdout.isatty():
        startup.show()
    if not startup.is_fine:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("agent_id", metavar="AGENT")
@TEAM_SOCKET
@FRESH
@WAIT
@TIMEOUT
@session_command()
def restart(context: SessionContext, agent_id: str, socket: str | None, fresh: bool, wait: bool, timeout: int) -> None:
    """End the program in an agent's window and start its command there again, as after a change in team.yaml. Without a
    window, open one, as `up AGENT` does. Mail and tasks stay, and its host goes on with its conversation.

    Exit code 1 when it is not ready.

    Example: `multi-agent-mcp restart worker-a`
    """
    from multi_agent_mcp.windows.up_down import Startup
    from multi_agent_mcp.windows.window_registry import team_windows

    startup = Startup(team_windows(context.services, socket), [agent_id])
    _warn(context, startup)
    startup.restart(fresh=fresh)
    with progress(context.texts, is_silent=context.as_json) as report:
        _wait(startup, timeout if wait else None, report)
    _tell(context, startup)
    if not startup.is_fine:
        raise click.exceptions.Exit(1)


def _relay_lines(context: SessionContext) -> list[str]:
    """What `down` leaves running of a team on several machines."""
    if context.services.machine is None:
        return []
    from multi_agent_mcp.cli.machines import sharing_of

    with suppress(Refusal):  # without the client there is no relay, either
        return [context.texts("down.relay")] if sharing_of(context).share.relay_runs else []
    return []


def _warn(context: SessionContext, startup: Startup) -> None:
    for line in () if context.as_json else warnings(startup.preflight, context.texts):
        print_line(line)


def _wait(startup: Startup, timeout: int | None, report: Report) -> None:
    if timeout is not None:
        startup.wait(timeout, report)


def _tell(context: SessionContext, startup: Startup) -> None:
    """Answers with the agents' states and what their hosts ask."""
    from multi_agent_mcp.cli.attention import dialogs_answer, list_dialogs, undescribed_lines

    asked, others = startup.asked()
    answer = startup.as_answer() | {"dialogs": dialogs_answer(asked)}
    lines = [*summary(startup, context.texts), *([""] if asked or others else [])]
    context.answer(answer, [*lines, *list_dialogs(context, asked), *undescribed_lines(others, context.texts)])


@click.command()
@AGENTS
@TEAM_SOCKET
@session_command()
def down(context: SessionContext, agent_ids: tuple[str, ...], socket: str | None) -> None:
    """Close the panes that `up` and the supervisor opened, or only those of the agents named; these stay closed,
    whatever work waits, until `up`. Mail and tasks stay.

    Exit code 1 when windows stay open because this is a copy of the session that opened them, or out of reach.

    Example: `multi-agent-mcp down worker-a`
    """
    from multi_agent_mcp.windows.up_down import close_agents, close_team
    from multi_agent_mcp.windows.window_registry import team_windows

    names = [context.services.agents.still_here(agent_id).id for agent_id in agent_ids]
    windows = team_windows(context.services, socket)
    closed = close_agents(windows, names) if names else close_team(windows)
    texts = context.texts
    lines = [texts("down.closed", names=", ".join(closed)) if closed else texts("down.nothing")]
    lines += [texts("down.until", agents=" ".join(names))] if names else _relay_lines(context)
    strange = {
        path: [slot for slot in slots if not names or slot.agent_id in names] for path, slots in windows.strange.items()
    }
    left = {path: [slot.window_name for slot in slots] for path, slots in strange.items() if slots}
    lines += [texts("down.strange", names=", ".join(left[path]), path=path) for path in left]
    lost = {found.slot.window_name: found.pid for found in windows.lost if not names or found.slot.agent_id in names}
    lines += [texts("down.lost", name=name, pid=pid) for name, pid in lost.items()]
    context.answer({"closed": closed, "left": left, **({"lost": lost} if lost else {})}, lines)
    if left or lost:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("agent_id", metavar="[AGENT]", required=False)
@TEAM_SOCKET
@session_command(json=False)
def attach(context: SessionContext, agent_id: str | None, socket: str | None) -> None:
    """Show the team's windows in this terminal, beginning with the agent named; inside the team's tmux server, switch
    to them. Ctrl-b d leads back.

    Example: `multi-agent-mcp attach worker-a`
    """
    from multi_agent_mcp.cli.machines import run_there
    from multi_agent_mcp.config import read_environment
    from multi_agent_mcp.windows.attachment import find_attachment
    from multi_agent_mcp.windows.window_registry import team_windows

    if agent_id is not None:
        run_there(context, agent_id, ["attach"], terminal=True)
        context.services.agents.here(agent_id)
    found = find_attachment(team_windows(context.services, socket), agent_id)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidArguments("attach_no_terminal", command=found.command)
    if not found.is_here and read_environment().pane is not None:
        raise InvalidArguments("attach_other_server", command=found.command)
    found.show()


@click.command()
@session_command(json=False)
def supervise(context: SessionContext) -> None:
    """Open windows for missing agent sessions and close finished ones, until `down` or Ctrl-C. Runs inside tmux.

    Example: `multi-agent-mcp supervise`
    """
    from multi_agent_mcp.config import read_environment
    from multi_agent_mcp.windows.supervisor import Supervisor
    from multi_agent_mcp.windows.window_registry import TeamWindows

    pane = read_environment().pane
    if pane is None:
        raise InvalidArguments("supervise_outside")
    supervisor = Supervisor(TeamWindows(context.services, pane.socket_path))
    supervisor.run(lambda event: print_line(f"{time.strftime('%H:%M:%S')} {event}"))
