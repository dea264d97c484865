"""A machine's participation in a team: share a session, join one, start and stop the relay, reseed the hub, leave."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from multi_agent_mcp.domain.entity import as_name, is_name, session_name
from multi_agent_mcp.domain.times import format_time, now
from multi_agent_mcp.errors import AlreadyExists, HubUnreachable, InvalidArguments, InvalidId
from multi_agent_mcp.hub.administration import connected_once, make_streams, reseed
from multi_agent_mcp.hub.joining import Token, ask_to_join, let_go, new_token, with_lane
from multi_agent_mcp.hub.server import Server, new_seed, public_of
from multi_agent_mcp.hub.share_directory import HANGS, Membership, RelayClient, Share
from multi_agent_mcp.hub.subjects import Names, lane_for, require_protected
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.records import RelayState, is_noted_alive
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.ownership import require_own
from multi_agent_mcp.system.process import is_alive, start_detached

START_SECONDS, END_SECONDS = 60.0, 15.0
"""The longest waits for a relay that begins, which takes long on a busy machine, and for one that ends."""
LINGER_SECONDS = 2.0
POLL_SECONDS = 0.05
Status = Mapping[str, Any]
"""The relay's state; see `Relay.status`."""


class Sharing:
    """The participation of one session directory in a team of several machines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.share = Share(Files(path))

    @property
    def membership(self) -> Membership:
        """This machine's membership. Raises `InvalidArguments` if the session is not shared."""
        found = self.share.membership()
        if found is None:
            raise InvalidArguments("not_shared")
        return found

    @property
    def server(self) -> Server | None:
        """The hub, if it runs on this machine."""
        membership = self.share.membership()
        return Server(self.share, membership.names) if membership is not None and membership.serves else None

    def is_as(self, name: str | None, listen: str | None, hub: str | None) -> bool:
        """Whether the session is shared like this already, so that the command may be run again as it was at first.
        None stands for anything. Raises `InvalidArguments` if it is not shared."""
        membership, server = self.membership, self.server
        is_there = listen is None or (server is not None and server.listens_at(listen))
        return is_there and name in (None, membership.machine) and hub in (None, ",".join(membership.urls))

    def begin(self, machine: str, listen: str) -> None:
        """Shares the session with an embedded hub on this machine. Raises `InvalidArguments` and `HubUnreachable`."""
        uuid, seed = secrets.token_hex(16), new_seed()
        server = Server(self.share, Names(uuid))
        server.make(listen)
        users = with_lane({"machines": {machine: public_of(seed)}, "tokens": {}}, machine)
        server.let(users)
        server.start()
        asyncio.run(_prepare(server.names, [server.local_url], server.admin_seed, server.certificate))
        lane = users["lanes"][machine]
        self._become(Membership(uuid, machine, (server.local_url,), serves=True, lane=lane), seed, server.certificate)
        if (self.share.record("position").read() or {}).get("sequence"):
            self.reseed()  # it was shared before: its files have revisions of the former hub

    def begin_at(self, machine: str, urls: tuple[str, ...], admin_seed: str, replicas: int) -> None:
        """Shares the session with a hub of the user's own, to whose configuration `hub_account` and `hub_exports` must
        then be added. Raises `InvalidArguments` and `HubUnreachable`."""
        require_protected(urls)
        uuid, seed = secrets.token_hex(16), new_seed()
        asyncio.run(_prepare(Names(uuid), urls, admin_seed, None, replicas))
        self._become(Membership(uuid, machine, urls, own_hub=True, lane=lane_for(machine)), seed, None)

    def _become(self, membership: Membership, seed: str, certificate: str | None) -> None:
        """Makes this machine the first of the team, and the home of all agents."""
        self.share.join(membership, seed, certificate)
        workspace = Workspace(self.path.parent, session_name(self.path.name))
        workspace.registry.settle_at(membership.machine, former=self.share.former_machine)

    @property
    def hub_exports(self) -> str:
        """What the account with the streams has to export in the configuration of the user's own hub: one line."""
        return f"exports: {json.dumps(self.membership.names.exports)}"

    @property
    def hub_account(self) -> str:
        """The account of this machine in the configuration of the user's own hub: one line."""
        known = self.membership
        names = known.names
        account = names.machine_account(known.machine, public_of(self.share.seed()))
        return f"{json.dumps(names.account(known.machine))}: {json.dumps(account)}"

    def require_inviting(self) -> None:
        """Raises `InvalidArguments` if this machine cannot let others in."""
        if self.server is None and not self.membership.own_hub:
            raise InvalidArguments("hub_elsewhere")

    def invite(self, *, replaces: str | None = None) -> Token:
        """Returns a token for one more machine, or for one whose files are lost. Raises as `require_inviting`."""
        self.require_inviting()
        membership, server = self.membership, self.server
        if server is not None:
            return new_token(server, self.path.name, replaces=replaces)
        return Token(membership.uuid, self.path.name, membership.urls, None, "", "", self._next_lane())

    def _next_lane(self) -> str:
        """Returns a lane on a hub of the user's own that this machine has not given away."""
        record = self.share.record("lanes")
        given = record.read() or [self.membership.lane]
        lane = lane_for(self.membership.machine, given)
        record.write([*given, lane] if lane not in given else [lane])
        return lane

    def start_relay(self) -> bool:
        """Starts the relay unless it runs, and waits until it answers; returns whether it was started. Raises
        `HubUnreachable`, also if a running one does not answer."""
        if self._relay_stays():
            return False
        relay = RelayClient(self.share, self.membership)
        where = ["--root", str(self.path.parent), "--session", self.path.name]
        command = [sys.executable, "-m", "multi_agent_mcp", "relay", *where]
        pid = start_detached(command, self.share.path / "relay.log")
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and is_alive(pid, None):
            with suppress(HubUnreachable):
                relay.ask(op="status")
                return True
            time.sleep(POLL_SECONDS)
        raise HubUnreachable("relay_not_started", path=f"{self.share.path.name}/relay.log")

    def _relay_stays(self) -> bool:
        """Returns whether a relay runs and will go on: one that was killed holds its lock until its last thread has
        ended, so this waits up to `LINGER_SECONDS`. One whose lock's file was removed answers all the same. Raises
        `HubUnreachable` for one that hangs."""
        relay, deadline = RelayClient(self.share, self.membership), time.monotonic() + LINGER_SECONDS
        while True:
            try:
                relay.ask(op="status")
            except HubUnreachable as refusal:
                if refusal.key == f"error.{HANGS}":
                    raise
            else:
                return True
            if not self.share.relay_runs or time.monotonic() > deadline:
                return self.share.relay_runs
            time.sleep(POLL_SECONDS)

    def wait_until_complete(self, report: Callable[[Status | None], None], seconds: float = 3600.0) -> None:
        """Waits until this machine has all values of the hub and has sent its own. `report` is called repeatedly with
        the relay's state, None while it does not answer. Raises `HubUnreachable` if the relay has ended, or if nothing
        was received for `seconds`."""
        relay, position = RelayClient(self.share, self.membership), -1
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                state = relay.ask(op="status")
            except HubUnreachable as refusal:
                if not self.share.relay_runs:
                    raise HubUnreachable("relay_gone", path=f"{self.share.path.name}/relay.log") from refusal
                report(None)
            else:
                if state["synchronised"] and not state["pending"]:
                    return
                report(state)
                if state["position"] != position:
                    position, deadline = state["position"], time.monotonic() + seconds
            time.sleep(POLL_SECONDS)
        raise HubUnreachable("not_complete")

    def stop_relay(self) -> bool:
        """Stops the relay, by force if it hangs, and the hub if it runs here. Returns whether either ran. Raises
        `HubUnreachable` for a relay that cannot be killed."""
        pid, answers = self._relay_process()
        if pid is not None:
            _signal(pid, signal.SIGTERM)
        if not self._relay_has_ended(pid) and pid is not None and not answers:
            _signal(pid, signal.SIGKILL)
            if not self._relay_has_ended(pid):
                raise HubUnreachable(HANGS, pid=pid)
        ended = pid is not None
        server = self.server
        if server is not None and server.pid() is not None:
            server.stop()
            ended = True
        return ended

    def _relay_process(self) -> tuple[int | None, bool]:
        """Returns the relay's process, if there is one, and whether it answers."""
        try:
            return int(RelayClient(self.share, self.membership).ask(op="status")["pid"]), True
        except HubUnreachable:
            noted = RelayState(self.share.files).read()
            runs = noted.get("pid_started_at") is not None and is_noted_alive(noted)  # else the id may be another's
            return (int(noted["pid"]) if runs else None), False

    def _relay_has_ended(self, pid: int | None) -> bool:
        """Waits up to `END_SECONDS` for the relay, whose process this is if known, to end; returns whether it has."""
        deadline = time.monotonic() + END_SECONDS
        while (runs := self.share.relay_runs or is_alive(pid or 0, None)) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return not runs

    def reseed(self) -> None:
        """Recreates the hub, which must run here, from this machine's files. Raises `InvalidArguments`."""
        server, membership = self.server, self.membership
        if server is None:
            raise InvalidArguments("hub_elsewhere")
        self.stop_relay()
        server.start()
        noted = self.share.record("position").read() or {}
        workspace = Workspace(self.path.parent, session_name(self.path.name), RelayClient(self.share, membership))
        position, identity = int(noted.get("sequence", 0)), str(noted.get("identity", ""))
        asyncio.run(reseed(server, workspace, membership.machine, position, identity))

    def status(self) -> dict[str, Any]:
        """Returns the relay's state, or the last one it recorded, with `relay` false, if it does not answer."""
        try:
            return {"relay": True, **RelayClient(self.share, self.membership).ask(op="status")}
        except HubUnreachable:
            state = RelayState(self.share.files).read()
            return {**state, "machine": self.membership.machine, "relay": False, "connected": False}

    def cut_off_by_leaving(self) -> list[str]:
        """Returns the machines that lose their hub if this one leaves."""
        server = self.server
        return sorted(server.users()["machines"].keys() - {self.membership.machine}) if server is not None else []

    def leave(self, machine: str | None = None) -> None:
        """Excludes another machine (the hub must run here), or ends this one's membership; its files stay. Raises
        `InvalidArguments`."""
        server = self.server
        if machine is not None and machine != self.membership.machine:
            if server is None:
                raise InvalidArguments("hub_elsewhere")
            let_go(server, machine)
            return
        self.stop_relay()
        self.share.leave()


def join(token: Token, root: Path, machine: str, *, adopt: bool) -> Sharing:
    """Makes the session's directory on this machine and joins the team. Raises `AlreadyExists` for a name that is
    taken, for another session's directory, and without `adopt` for a directory that is not empty; `UntrustedSession`
    for somebody else's; and as `ask_to_join`."""
    require_machine(machine)
    if token.certificate is None:
        require_protected(token.urls)
    workspace = Workspace(root, session_name(token.session))
    require_own(root, workspace.path)
    sharing = Sharing(workspace.path)
    known = sharing.share.membership()
    if known is not None:
        raise AlreadyExists("shared_already" if known.uuid == token.uuid else "other_session", name=token.session)
    if workspace.path.exists() and os.listdir(workspace.path) and not adopt:  # noqa: PTH208 - only whether there is any
        raise AlreadyExists("directory_not_empty", path=str(workspace.path))
    seed = new_seed()
    if token.seed:
        answer = asyncio.run(ask_to_join(token, machine, public_of(seed)))
    else:
        answer = {"settings": {}, "lane": token.lane}
    workspace.make()
    workspace.registry.create()
    workspace.registry.settle_at(machine, former=sharing.share.former_home(token.uuid))
    settings = {"id": token.session, "created_at": format_time(now()), **answer["settings"]}
    with suppress(FileExistsError):
        text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
        workspace.files.create(workspace.settings_path, text.encode())
    workspace.keep_out_of_git()
    sharing.share.record("position").write({"sequence": 0})
    lane = answer["lane"]
    own = Membership(token.uuid, machine, token.urls, own_hub=not token.seed, lane=lane)
    sharing.share.join(own, seed, token.certificate)
    return sharing


def _signal(pid: int, number: int) -> None:
    """Sends a signal to a process that may be stopped (SIGCONT lets it act on the signal) or may have ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        os.kill(pid, signal.SIGCONT)


def machine_name(given: str | None) -> str:
    """Returns the given name of a machine, else one made from the host's name. Raises `InvalidId`."""
    return require_machine(given or as_name(socket.gethostname().split(".")[0], "machine"))


def require_machine(name: str) -> str:
    if not is_name(name):
        raise InvalidId(value=repr(name)[:80])
    return name


async def _prepare(
    names: Names, urls: Sequence[str], admin_seed: str, certificate: str | None, replicas: int = 1
) -> None:
    """Creates the streams of a hub, unless they exist."""
    client = await connected_once(urls, admin_seed, certificate, "admin")
    try:
        await make_streams(client, names, secrets.token_hex(8), replicas=replicas)
    finally:
        await client.close()
