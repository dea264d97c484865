"""The commands for a team on several machines: `share`, `join`, `relay`, `machines`, `leave`."""

from __future__ import annotations

import logging
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from multi_agent_mcp.cli.context import (
    JSON,
    ROOT,
    SessionContext,
    people_texts,
    print_answer,
    print_error,
    print_line,
    refuse,
    session_command,
    system_errors,
    text_of,
)
from multi_agent_mcp.cli.rendering import column_table, is_terminal, local_times, local_words
from multi_agent_mcp.config import find_root, read_environment, working_directory
from multi_agent_mcp.domain.entity import session_name
from multi_agent_mcp.domain.text import one_line
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import AlreadyExists, InvalidArguments, Refusal
from multi_agent_mcp.services.overview.snapshot import AWAY, CONNECTED, MachineRow, TeamOfMachines
from multi_agent_mcp.texts import Texts

if TYPE_CHECKING:
    from multi_agent_mcp.hub.admission import Token
    from multi_agent_mcp.hub.sharing import Sharing, Status

LISTEN = "0.0.0.0:4222"
SHARE_SECONDS = 60.0
QUIET_SECONDS = 2.0
AGAIN_SECONDS = 5.0
NAME = click.option(
    "--name", metavar="MACHINE", help="This machine's name in the team (default: what it was before, else the host's)."
)


@click.command()
@NAME
@click.option("--listen", metavar="HOST:PORT", help=f"Where the hub listens (default: {LISTEN}).")
@click.option("--hub", metavar="URL,…", help="Use a NATS server or cluster of your own.")
@click.option("--admin-seed", metavar="FILE", type=Path, help="With --hub: an nkey that may create streams there.")
@click.option(
    "--replicas", type=click.IntRange(1, 5), help="With --hub: how many servers keep each value (default: 1)."
)
@click.option("--again", metavar="MACHINE", help="A token for a machine that has lost its files.")
@click.option("--reseed", is_flag=True, help="Recreate a hub that was lost or is too old from this machine's files.")
@click.option("--without", metavar="MACHINE", help="With --reseed: leave out what this machine has written.")
@click.option("--renew", is_flag=True, help="New keys for the hub and this machine, and a new certificate; no token.")
@session_command()
def share(
    context: SessionContext,
    name: str | None,
    listen: str | None,
    hub: str | None,
    admin_seed: Path | None,
    replicas: int | None,
    again: str | None,
    reseed: bool,
    without: str | None,
    renew: bool,
) -> None:
    """Let other machines take part in this session: starts the hub here and prints what to run on the other one.

    Run again, it prints a token for one more machine. Each token lets one machine in, within a day.

    Example: `multi-agent-mcp share`
    """
    sharing = sharing_of(context)
    if renew:
        _renew(context, sharing)
        return
    is_new = sharing.share.membership() is None and again is None and not reseed
    if is_new:
        _begin(sharing, name, listen or LISTEN, (hub, admin_seed, replicas or 1))
    elif not sharing.is_as(name, listen, hub):
        raise AlreadyExists("shared_already", name=context.services.session.name)
    sharing.require_inviting()  # before waiting for a hub that may be away
    account = sharing.hub_account if is_new and hub is not None else None
    exports = sharing.hub_exports if account is not None else None
    if without is not None and not reseed:
        raise InvalidArguments("without_reseed")
    left_out = sharing.reseed(without or "") if reseed else 0
    sharing.start_relay()
    if account is None:  # else nothing is received before the hub knows this machine
        sharing.wait_until_complete(JoinProgress(context.texts).told, SHARE_SECONDS)
    token = str(sharing.invite(replaces=again))
    context.answer(
        {"machine": sharing.membership.machine, "token": token, "account": account, "exports": exports}
        | ({"left_out": left_out} if without is not None else {}),
        [
            *([context.texts("share.left_out", count=left_out, machine=without)] if without is not None else []),
            *_share_lines(context.texts, sharing, token, account, exports),
        ],
    )


def _renew(context: SessionContext, sharing: Sharing) -> None:
    machine = sharing.membership.machine
    sharing.renew()
    sharing.wait_until_complete(JoinProgress(context.texts).told, SHARE_SECONDS)
    context.answer({"machine": machine}, [context.texts("share.renewed", machine=machine)])


def _begin(sharing: Sharing, name: str | None, listen: str, own: tuple[str | None, Path | None, int]) -> None:
    from multi_agent_mcp.hub.sharing import machine_name

    machine, (hub, admin_seed, replicas) = machine_name(name or sharing.share.former_machine), own
    if hub is None:
        sharing.begin(machine, listen)
    elif admin_seed is None:
        raise InvalidArguments("no_admin_seed")
    else:
        sharing.begin_at(machine, tuple(hub.split(",")), _text_of(admin_seed), replicas)


def _share_lines(texts: Texts, sharing: Sharing, token: str, account: str | None, exports: str | None) -> Iterator[str]:
    yield texts("share.done", machine=sharing.membership.machine)
    if account is not None and exports is not None:
        yield texts("share.exports", path=sharing.configured("exports", exports))
        yield texts("share.account", path=sharing.configured("account", account))
    yield texts("share.join")
    yield ""
    yield f"    multi-agent-mcp join {token}"
    yield ""


@click.command()
@click.argument("token")
@NAME
@click.option(
    "--adopt", is_flag=True, help="Join with a directory that already contains files: they are sent to the hub."
)
@click.option("--renew", is_flag=True, help="Give this machine a new key, with a token of `share --again MACHINE`.")
@ROOT
@JSON
def join(token: str, name: str | None, adopt: bool, renew: bool, root: str | None, as_json: bool) -> None:
    """Take part in a session of another machine, with the token that `share` printed there. A machine that takes part
    already takes the hub's new addresses and certificate from the token, which stays unused.

    For `-` the token is read from standard input, so that no other user of this machine can read it.

    Example: `multi-agent-mcp join - < token.txt`
    """
    texts = people_texts()
    try:
        require_client()
        from multi_agent_mcp.hub.admission import Token
        from multi_agent_mcp.hub.sharing import Sharing, machine_name
        from multi_agent_mcp.hub.sharing import join as join_session

        parsed = Token.parse(text_of(token))
        with system_errors():
            where = find_root(root or read_environment().root, working_directory())
        sharing = Sharing(where / session_name(parsed.session))
        if renew or sharing.renews(parsed):
            _renew_with(sharing, parsed, texts, renew=renew, as_json=as_json)
            return
        with _says_if_joined(sharing, parsed, texts):
            join_session(parsed, where, machine_name(name or sharing.share.former_machine), adopt=adopt)
            sharing.start_relay()
            account = None if parsed.seed else sharing.hub_account
            if account is None:  # else nothing is received before the hub knows this machine
                sharing.wait_until_complete(JoinProgress(texts).told)
    except Refusal as refusal:
        refuse(refusal, texts, as_json=as_json)
    facts = {"session": parsed.session, "path": str(sharing.path)}
    done = texts("join.done", machine=sharing.membership.machine, **facts)
    given = [texts("share.account", path=sharing.configured("account", account))] if account is not None else []
    print_answer({**facts, "account": account}, [done, *given, texts("join.next")], as_json=as_json)


def _renew_with(sharing: Sharing, token: Token, texts: Texts, *, renew: bool, as_json: bool) -> None:
    machine, urls, account = sharing.membership.machine, list(token.urls), None
    if not sharing.renews(token):
        raise InvalidArguments("renewed_here")
    if renew:
        sharing.renew_key(token)
        account = None if token.seed else sharing.hub_account
    else:
        sharing.move(token)
    done = texts("join.rekeyed" if renew else "join.renewed", machine=machine, urls=", ".join(urls))
    given = [texts("share.account", path=sharing.configured("account", account))] if account is not None else []
    print_answer({"machine": machine, "urls": urls, "account": account}, [done, *given], as_json=as_json)


@contextmanager
def _says_if_joined(sharing: Sharing, token: Token, texts: Texts) -> Iterator[None]:
    """Ctrl-C ends the command, but neither the membership nor the relay: once this machine has joined, that is said."""
    try:
        yield
    except KeyboardInterrupt:
        known = sharing.share.membership()
        if known is not None and known.uuid == token.uuid:
            kind = "goes_on" if sharing.share.relay_runs else "to_start"
            print_error(texts(f"join.{kind}", machine=known.machine))
        raise


class JoinProgress:
    """Prints the progress of a machine that receives the hub's values, or what it waits for, on standard error: nothing
    for `QUIET_SECONDS`, then at most every `AGAIN_SECONDS`."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._kind = self._line = ""
        self._since = self._said_at = time.monotonic()

    def told(self, state: Status | None) -> None:
        """Takes the relay's state, None if it does not answer, and prints a line if one is due."""
        kind, values = _waits_for(state)
        line, now = self._texts(f"join.{kind}", **values), time.monotonic()
        if kind != self._kind:
            self._kind, self._since, self._said_at = kind, now, float("-inf")
        if line != self._line and now - self._since > QUIET_SECONDS and now - self._said_at > AGAIN_SECONDS:
            self._line, self._said_at = line, now
            print_error(line)
            sys.stderr.flush()


def _waits_for(state: Status | None) -> tuple[str, Mapping[str, object]]:
    if state is None:
        return "no_answer", {}
    if state["unwritten"] is not None:
        return "disk", state["unwritten"]
    if not state["connected"]:
        return "shut_out" if state["shut_out"] else "no_hub", {}
    if state["synchronised"]:
        return "sending", {"count": state["pending"]}
    until = state["restore_until"]
    return "receiving", {"percent": 100 * min(state["position"], until) // until if until else 0}


@click.command()
@click.option("--start", "action", flag_value="start", help="Start it in the background, unless it runs.")
@click.option("--stop", "action", flag_value="stop", help="End it, and the hub if it runs here.")
@session_command(json=False)
def relay(context: SessionContext, action: str | None) -> None:
    """Exchange with the other machines until Ctrl-C. `up`, `share` and `join` start it in the background.

    Example: `multi-agent-mcp relay --start`
    """
    from multi_agent_mcp.bootstrap import relay as open_relay

    sharing = sharing_of(context)
    texts = context.texts
    if action == "start":
        context.answer({}, [texts("relay.started" if sharing.start_relay() else "relay.runs")])
    elif action == "stop":
        context.answer({}, [texts("relay.stopped" if sharing.stop_relay() else "relay.not_running")])
    else:
        open_relay(context.services.root, context.services.session.name).work()


@click.command()
@click.argument("action", metavar="[set", required=False, type=click.Choice(["set"]))
@click.argument("machine", metavar="MACHINE]", required=False)
@click.option("--ssh", metavar="HOST", help="With set: reach MACHINE from here by ssh to HOST ('' for no more).")
@click.option("--there", metavar="DIR", default="", help="With set: the root directory on MACHINE.")
@session_command()
def machines(context: SessionContext, action: str | None, machine: str | None, ssh: str | None, there: str) -> None:
    """List the machines of this session: who is there, what waits, how far behind each one is.

    `machines set MACHINE --ssh HOST` is for this machine alone: `attach` and `answer` for an agent at home on MACHINE
    then run there, over your own ssh.

    Example: `multi-agent-mcp machines`
    """
    seen = context.services.machines.look()
    if seen is None:
        raise InvalidArguments("not_shared")
    if action is None:
        context.answer(seen.as_answer(), _machine_lines(context.texts, seen, context.services.clock()))
        return
    if machine not in {row.name for row in seen.machines} - {seen.here}:
        raise InvalidArguments("no_such_machine", name=machine or "-")
    if ssh is None or not context.services.machines.set_way(machine, ssh, there):
        raise InvalidArguments("bad_ssh", value=repr(ssh or "")[:80])
    context.answer({"machine": machine, "ssh": ssh}, [context.texts("machines.ssh", machine=machine, host=ssh or "-")])


def run_there(context: SessionContext, agent_id: str, words: Sequence[str], *arguments: str, terminal: bool) -> None:
    """Runs one of our commands on an agent's home, if that is another machine for which there is a way by ssh, and ends
    with its exit code; else returns."""
    way = context.services.machines.way_to(agent_id)
    if way is None:
        return
    where = ["--session", context.services.session.name, *(["--root", way.root] if way.root else [])]
    asked = shlex.join(["multi-agent-mcp", *words, *where, "--", agent_id, *arguments])
    call = ["ssh", *(["-t"] if terminal else []), "--", way.host, asked]
    try:
        code = subprocess.call(call)
    except OSError as error:
        raise InvalidArguments("no_ssh") from error
    raise click.exceptions.Exit(code)


def _machine_lines(texts: Texts, seen: TeamOfMachines, now: datetime) -> Iterator[str]:
    if seen.exchange != CONNECTED:
        facts = {"since": _moment(seen.since), "machine": seen.here, "pid": seen.relay_pid, **seen.tried}
        yield local_times(texts(f"machines.{seen.exchange}", **facts), texts)
    if seen.hub_finding is not None:
        yield texts(f"machines.{seen.hub_finding}", **seen.hub_words)
    if seen.queued:
        yield texts("machines.queued", count=seen.queued)
    for row in seen.machines:
        yield from (texts(f"machines.{trouble}", machine=row.name) for trouble in row.troubles)
    for edit in seen.edits:
        yield local_times(texts("machines.edit", path=one_line(edit["path"]), at=edit["at"]), texts)
    columns: dict[str, Callable[[MachineRow], object]] = {
        "machine": attrgetter("name"),
        "state": lambda row: _state(texts, row, now),
        "queued": lambda row: _count(row.queued),
        "behind": lambda row: _count(row.behind),
        "conflicts": lambda row: _count(row.conflicts),
        "agents": lambda row: ", ".join(row.agents) or "-",
    }
    yield from column_table(texts, seen.machines, columns)


def _state(texts: Texts, row: MachineRow, now: datetime) -> str:
    is_unheard = row.state == AWAY and row.since is None
    since = _moment(row.since) if row.since is None or not is_terminal() else local_words(row.since, now, texts)
    return texts("machines.unheard" if is_unheard else f"machines.{row.state}", since=since)


def _moment(moment: datetime | None) -> str:
    return "-" if moment is None else format_time(moment)


def _count(number: int | None) -> str:
    return "?" if number is None else str(number or "-")


@click.command()
@click.argument("machine", required=False)
@click.option("--yes", is_flag=True, help="Do not ask, even if the hub is here and the team ends with it.")
@session_command()
def leave(context: SessionContext, machine: str | None, *, yes: bool) -> None:
    """End this machine's part: its files stay, nothing travels. With MACHINE (where the hub is): shut it out.

    Example: `multi-agent-mcp leave`
    """
    sharing, texts = sharing_of(context), context.texts
    here = sharing.membership.machine
    name = machine or here
    cut_off = sharing.cut_off_by_leaving() if name == here else []
    if cut_off and not yes:
        _confirm_end(context, ", ".join(cut_off))
    sharing.leave(machine)
    ended = [texts("leave.ended", machines=", ".join(cut_off))] if cut_off else []
    context.answer({"machine": name, "cut_off": cut_off}, [texts("leave.done", machine=name), *ended])


def _confirm_end(context: SessionContext, cut_off: str) -> None:
    """Asks a person at a terminal whether to end the team for all machines. Raises `InvalidArguments` without one."""
    if context.as_json or not sys.stdin.isatty():
        raise InvalidArguments("leave_ends_team", machines=cut_off)
    print_line(context.texts("leave.ends", machines=cut_off))
    click.confirm(context.texts("leave.sure"), abort=True)


def _text_of(path: Path) -> str:
    from multi_agent_mcp.system.other_files import read_external

    data = read_external(path)
    if data is None:
        raise InvalidArguments("no_admin_seed")
    return data.decode(errors="replace").strip()


def require_client() -> None:
    """Raises `InvalidArguments` if the extra `machines` is not installed, which only these commands need."""
    if find_spec("nats") is None or find_spec("nkeys") is None:
        raise InvalidArguments("no_machines_extra")
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns whenever the client ends a TLS connection


def sharing_of(context: SessionContext) -> Sharing:
    """Returns the session's part in a team of several machines; raises as `require_client`."""
    require_client()
    from multi_agent_mcp.hub.sharing import Sharing

    return Sharing(context.services.path)
