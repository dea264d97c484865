"""The commands `lease`, `leases` and `when`."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, NoReturn

import click

from multi_agent_mcp.cli.context import SessionContext, print_error, refuse, session_command
from multi_agent_mcp.cli.rendering import ago, column_table
from multi_agent_mcp.cli.watch import Part
from multi_agent_mcp.config import HELD_LEASES, read_environment
from multi_agent_mcp.domain.text import display_id, named, one_line, shortened
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.pool.leases import COMMAND_SHOWN, as_answer
from multi_agent_mcp.pool.watches import OF_AGENTS, OF_TASKS
from multi_agent_mcp.programs import child_environment

if TYPE_CHECKING:
    from multi_agent_mcp.pool.circles import Circles
    from multi_agent_mcp.pool.leases import CommandLease, Leases
    from multi_agent_mcp.wiring import Services


@click.command()
@click.argument("name", help="What only so many may use at once.")
@click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--slots", default=1, type=click.IntRange(1), help="How many may have it at once.")
@session_command(json=False)
def lease(context: SessionContext, name: str, command: tuple[str, ...], slots: int) -> None:
    """Run a command once it is its turn; the exit code is the command's.

    Example: `multi-agent-mcp lease build -- git --version`
    """
    leases: Leases = context.services.leases
    mine = leases.ask(name, slots, command)
    circles: Circles = context.services.circles
    try:
        for circle in (one for one in circles.look() if mine.agent_id in one.agent_ids):
            print_error(context.texts("lease.circle", circle=circle.words(context.texts)))
        mine = leases.wait(mine)
        code = _ran(leases, mine, command)
    except OSError as error:
        _not_run(context, command, error)
    finally:
        leases.end(mine)
    sys.exit(code)


def _ran(leases: Leases, lease: CommandLease, command: tuple[str, ...]) -> int:
    environment = child_environment(**{HELD_LEASES: leases.held_by(lease)})
    child = subprocess.Popen(command, env=environment)
    leases.started(lease, child.pid)
    handled = {number: lambda got, _: child.send_signal(got) for number in (signal.SIGTERM, signal.SIGHUP)}
    before = {number: signal.signal(number, handler) for number, handler in handled.items()}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the command, too
    try:
        return _exit_code(child.wait())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _not_run(context: SessionContext, command: tuple[str, ...], error: OSError) -> NoReturn:
    """Says that the command cannot be run, with the exit code of a shell: 127 if there is none, else 126."""
    is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
    key, facts = ("no_such_command", {}) if is_missing else ("not_executable", {"reason": error.strerror or error})
    refusal = InvalidArguments(key, program=named(command[0]), **facts)
    refuse(refusal, context.texts, as_json=context.as_json, code=127 if is_missing else 126)


def _exit_code(code: int) -> int:
    """As a shell has it: 128 and the number of the signal that ended a process."""
    return code if code >= 0 else 128 - code


@click.command()
@click.option(
    "--end", metavar="PID", help="End the command with this process id: its lease is free, or not waited for."
)
@session_command()
def leases(context: SessionContext, end: str | None) -> None:
    """List which commands have a lease on this machine, and which wait for one, in their order.

    Example: `multi-agent-mcp leases`
    """
    if end is not None:
        ended = context.services.leases.stop(end)
        said = context.texts("leases.ended", name=ended.name, runs=shortened(one_line(ended.command), COMMAND_SHOWN))
        context.answer({"ended": as_answer(ended)}, [said])
        return
    found = context.services.leases.all()
    now = context.services.clock()
    columns = _columns(context.services, now)
    lines = column_table(context.texts, found, columns) if found else [context.texts("leases.none")]
    context.answer({"leases": list(map(as_answer, found))}, lines)


def _columns(services: Services, now: datetime) -> dict[str, Callable[[CommandLease], object]]:
    texts = services.people
    return {
        "name": lambda one: one.name,
        "status": lambda one: texts(f"lease.{one.state}"),
        "for": lambda one: ago(one.began or now, now, texts),
        "agent": lambda one: display_id(one.agent_id) if one.agent_id else "-",
        "pid": lambda one: str(one.pid),
        "runs": lambda one: shortened(one_line(one.command), COMMAND_SHOWN),
    }


def watched(services: Services, now: datetime) -> Part:
    """The leases in `watch`."""
    found = services.leases.all()
    columns = _columns(services, now)
    rows = [tuple(str(column(one)) for column in columns.values()) for one in found]
    return Part("leases", tuple(columns), rows, list(map(as_answer, found)))


@click.command()
@click.argument("target", metavar="AGENT|TASK", help="An agent, or a task's id.")
@click.argument("state", help=f"Of an agent: {', '.join(OF_AGENTS)}; of a task: {', '.join(OF_TASKS)}.")
@click.argument("command", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@session_command()
def when(context: SessionContext, target: str, state: str, command: tuple[str, ...]) -> None:
    """Wait until an agent or a task is in a state, then run a command, whose exit code it has.

    A task that ends otherwise, or an agent that is removed, ends the waiting, too: exit code 1, and no command is run.

    Example: `multi-agent-mcp when worker-a available`
    """
    if target not in context.services.agents.known():
        target = context.services.lookup.full_id(target, "tsk")
    reached = context.services.watches.await_state(target, state, read_environment().agent, print_error)
    if reached == state and command:
        try:
            code = subprocess.run(command, env=child_environment(), check=False).returncode
        except OSError as error:
            _not_run(context, command, error)
        sys.exit(_exit_code(code))
    said = context.texts("watch.reached", target=target, state=reached)
    context.answer({"target": target, "state": reached}, [said])
    if reached != state:
        sys.exit(1)
