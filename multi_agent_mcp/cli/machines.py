"""One team on several machines: `share`, `join`, `relay`, `machines`, `leave`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from multi_agent_mcp.cli.context import JSON, ROOT, SessionContext, people_texts, refuse, session_command
from multi_agent_mcp.cli.output import print_json, print_line
from multi_agent_mcp.config import find_root, read_environment
from multi_agent_mcp.errors import InvalidArguments, Refusal

if TYPE_CHECKING:
    from multi_agent_mcp.hub.sharing import Sharing
    from multi_agent_mcp.texts import Texts

NAME = click.option("--name", metavar="MACHINE", help="This machine's name in the team (default: the host's).")


@click.command()
@NAME
@click.option("--listen", metavar="HOST:PORT", default="0.0.0.0:4222", help="Where the hub is to listen.")
@click.option("--hub", metavar="URL,…", help="Use a NATS server or cluster of your own.")
@click.option("--admin-seed", metavar="FILE", type=Path, help="With --hub: an nkey that may make streams there.")
@click.option("--replicas", type=click.IntRange(1, 5), default=1, help="With --hub: how many servers keep each value.")
@click.option("--again", metavar="MACHINE", help="A token for a machine that has lost its files.")
@click.option("--reseed", is_flag=True, help="Make a hub that was lost or is too old anew from this machine's files.")
@session_command()
def share(
    context: SessionContext,
    name: str | None,
    listen: str,
    hub: str | None,
    admin_seed: Path | None,
    replicas: int,
    again: str | None,
    reseed: bool,
) -> None:
    """Let other machines take part in this session: starts the hub here and prints what to run on the other one.

    Run again, it prints a token for one more machine. Each token lets one machine in, within a day.
    """
    sharing = sharing_of(context)
    user = None
    if sharing.share.membership() is None:
        user = _begin(context, sharing, name, listen, (hub, admin_seed, replicas))
    if reseed:
        sharing.reseed()
    sharing.start_relay()
    sharing.wait_until_complete(lambda _: None)
    token = str(sharing.invite(replaces=again))
    context.answer(
        {"machine": sharing.membership.machine, "token": token, "user": user},
        _share_lines(context.services.people, sharing, token, user),
    )


def _begin(
    context: SessionContext, sharing: Sharing, name: str | None, listen: str, own: tuple[str | None, Path | None, int]
) -> str | None:
    from multi_agent_mcp.hub.sharing import machine_name

    machine, (hub, admin_seed, replicas) = machine_name(name), own
    user = None
    if hub is None:
        sharing.begin(machine, listen)
    elif admin_seed is None:
        raise InvalidArguments("no_admin_seed")
    else:
        user = sharing.begin_at(machine, tuple(hub.split(",")), _text_of(admin_seed), replicas)
    context.services.agents.settle_at(machine)
    return user


def _share_lines(texts: Texts, sharing: Sharing, token: str, user: str | None) -> Iterator[str]:
    yield texts("share.done", machine=sharing.membership.machine)
    if user is not None:
        yield texts("share.user", line=user)
    yield texts("share.join")
    yield ""
    yield f"    multi-agent-mcp join {token}"
    yield ""


@click.command()
@click.argument("token")
@NAME
@click.option("--adopt", is_flag=True, help="Into a directory that has files already: they are brought to the hub.")
@ROOT
@JSON
def join(token: str, name: str | None, adopt: bool, root: str | None, as_json: bool) -> None:
    """Take part in a session of another machine, with the token that `share` printed there."""
    texts = people_texts()
    try:
        require_client()
        from multi_agent_mcp.hub.joining import Token
        from multi_agent_mcp.hub.sharing import join as join_session
        from multi_agent_mcp.hub.sharing import machine_name, user_line

        parsed = Token.parse(token)
        where = find_root(root or read_environment().root, Path.cwd())
        sharing = join_session(parsed, where, machine_name(name), adopt=adopt)
        user = None
        if not parsed.seed:
            user = user_line(parsed.uuid, sharing.membership.machine, sharing.share.seed())
            print_line(texts("share.user", line=user))
        sharing.start_relay()
        sharing.wait_until_complete(lambda _: None)
    except Refusal as refusal:
        refuse(refusal, texts, as_json=as_json)
    if as_json:
        print_json({"success": True, "session": parsed.session, "path": str(sharing.path), "user": user})
    else:
        print_line(texts("join.done", session=parsed.session, machine=sharing.membership.machine, path=sharing.path))
        print_line(texts("join.next"))


@click.command()
@click.option("--start", "action", flag_value="start", help="Start it in the background, unless it runs.")
@click.option("--stop", "action", flag_value="stop", help="End it, and the hub if it runs here.")
@session_command(json=False)
def relay(context: SessionContext, action: str | None) -> None:
    """Exchange with the other machines until Ctrl-C. `up`, `share` and `join` start it in the background."""
    from multi_agent_mcp.bootstrap import relay as open_relay

    sharing = sharing_of(context)
    texts = context.services.people
    if action == "start":
        context.answer({}, [texts("relay.started" if sharing.start_relay() else "relay.runs")])
    elif action == "stop":
        context.answer({}, [texts("relay.stopped" if sharing.stop_relay() else "relay.not_running")])
    else:
        open_relay(context.services.root, context.services.session).work()


@click.command()
@session_command()
def machines(context: SessionContext) -> None:
    """List the machines of this session: who is there, what waits, how far behind each one is."""
    status = sharing_of(context).status()
    agents = context.services.agents.by_machine()
    for name in agents:
        status.setdefault("machines", {}).setdefault(name, {"up": False, "since": None, "behind": 0})
    for name, facts in status["machines"].items():
        facts["agents"] = agents.get(name, [])
    context.answer(status, _machine_lines(context.services.people, status))


def _machine_lines(texts: Texts, status: dict[str, Any]) -> Iterator[str]:
    if not status["relay"]:
        yield texts("machines.no_relay")
    elif status.get("replaced"):
        yield texts("machines.replaced")
    elif not status["connected"]:
        yield texts("machines.cut_off", since=status.get("since") or "-")
    if status.get("queued"):
        yield texts("machines.queued", count=status["queued"])
    for name, facts in sorted(status["machines"].items()):
        key = "here" if name == status["machine"] else "up" if facts["up"] else "away"
        words = texts(f"machines.{key}", since=facts["since"] or "-")
        yield f"{name:<16} {words:<40} {', '.join(facts['agents'])}"


@click.command()
@click.argument("machine", required=False)
@session_command()
def leave(context: SessionContext, machine: str | None) -> None:
    """End this machine's part: its files stay, nothing travels. With MACHINE (where the hub is): shut it out."""
    sharing = sharing_of(context)
    name = machine or sharing.membership.machine
    sharing.leave(machine)
    context.answer({"machine": name}, [context.services.people("leave.done", machine=name)])


def _text_of(path: Path) -> str:
    from multi_agent_mcp.system.external_files import read_external

    data = read_external(path)
    if data is None:
        raise InvalidArguments("no_admin_seed")
    return data.decode(errors="replace").strip()


def require_client() -> None:
    """Raises `InvalidArguments` when the extra `machines` is not installed: no other command needs it."""
    if find_spec("nats") is None or find_spec("nkeys") is None:
        raise InvalidArguments("no_machines_extra")


def sharing_of(context: SessionContext) -> Sharing:
    """The session among several machines."""
    require_client()
    from multi_agent_mcp.hub.sharing import Sharing

    return Sharing(context.services.path)
