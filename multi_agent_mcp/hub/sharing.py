"""A machine's participation in a team: share a session, join one, start and stop the relay, reseed the hub, leave."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from multi_agent_mcp.domain.entity import as_name, is_name, session_name
from multi_agent_mcp.domain.times import format_time, now
from multi_agent_mcp.errors import AlreadyExists, HubReplaced, HubUnreachable, InvalidArguments, InvalidId, Refusal
from multi_agent_mcp.hub.administration import connected_once, make_streams, newest_revision, reseed
from multi_agent_mcp.hub.admission import LOCK, Token, ask_to_join, let_go, new_token, with_lane
from multi_agent_mcp.hub.server import HubServer, new_seed, public_of
from multi_agent_mcp.hub.share_directory import HANGS, Membership, RelayClient, Share, valid_settings
from multi_agent_mcp.hub.stream import is_key_refused
from multi_agent_mcp.hub.subjects import LANES, Names, lane_for, require_protected
from multi_agent_mcp.programs import python
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.records import KeyFile, RelayState, is_noted_alive
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.ownership import require_own
from multi_agent_mcp.system.process import is_alive, start_detached

START_SECONDS, END_SECONDS = 60.0, 15.0
"""The longest waits for a relay that begins, which takes long on a busy machine, and for one that ends."""
UNREACHED_SECONDS = 60.0
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
    def server(self) -> HubServer | None:
        """The hub, if it runs on this machine."""
        membership = self.share.membership()
        return HubServer(self.share, membership.names) if membership is not None and membership.serves else None

    def is_as(self, name: str | None, listen: str | None, hub: str | None) -> bool:
        """Whether the session is shared like this already, so that the command may be run again as it was at first.
        None stands for anything. Raises `InvalidArguments` if it is not shared."""
        membership, server = self.membership, self.server
        is_there = listen is None or (server is not None and server.listens_at(listen))
        return is_there and name in (None, membership.machine) and hub in (None, ",".join(membership.urls))

    def begin(self, machine: str, listen: str) -> None:
        """Shares the session with an embedded hub on this machine. Raises `InvalidArguments` and `HubUnreachable`."""
        uuid, seed = secrets.token_hex(16), new_seed()
        server = HubServer(self.share, Names(uuid))
        server.make(listen)
        users = with_lane({"machines": {machine: public_of(seed)}, "tokens": {}}, machine)
        server.let(users)
        server.start()
        asyncio.run(_prepare(server.names, [server.local_url], server.admin_seed, server.certificate))
        lane = users["lanes"][machine]
        self._become(Membership(uuid, machine, (server.local_url,), serves=True, lane=lane), seed, server.certificate)
        if self._was_shared():
            self.reseed()  # its files have revisions of the former hub

    def _was_shared(self) -> bool:
        """Returns whether there was a hub before. A restored backup has no note of its position, but agents' records
        with revisions."""
        workspace = Workspace(self.path.parent, session_name(self.path.name))
        noted = self.share.record("position").facts()
        return bool(noted.get("sequence")) or any(was for _, _, was in workspace.registry.shared_values())

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
        workspace.registry.move_home(membership.machine, former=self.share.former_machine)

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

    def configured(self, name: str, text: str) -> Path:
        """Writes a part of the configuration of the user's own hub to a file to be included there; returns its path."""
        path = self.share.path / f"hub-{name}-{self.membership.machine}.conf"
        self.share.files.replace(path, f"{text}\n".encode())
        return path

    def renews(self, token: Token) -> bool:
        """Whether this machine takes part in the team of the token already, whose hub runs elsewhere."""
        known = self.share.membership()
        return known is not None and known.uuid == token.uuid and not known.serves

    def move(self, token: Token) -> None:
        """Uses the hub at the addresses in a token, with its certificate, once it was reached there with this machine's
        key. Raises `HubUnreachable`, and changes nothing then."""
        known = self.membership
        if token.certificate is None:
            require_protected(token.urls)
        asyncio.run(_reached(token, self.share.seed(), known.machine))
        self.share.join(replace(known, urls=token.urls), self.share.seed(), token.certificate)
        self.stop_relay()
        self.start_relay()

    def renew_key(self, token: Token) -> None:
        """Gives this machine a new key, with a token for this machine, and does what `move` does; the hub refuses the
        old key from then on. Raises as `ask_to_join`, and changes nothing then."""
        known, path = self.membership, self.share.path / "renewed.nk"
        is_repeated = path.exists()  # the key may be on the hub, with the one that asked killed before it was in place
        seed = KeyFile(self.share.files, path).ensure(new_seed)
        if token.seed and not (is_repeated and asyncio.run(_is_let_in(token, seed, known.machine))):
            asyncio.run(ask_to_join(token, known.machine, public_of(seed)))
        self.share.join(replace(known, urls=token.urls), seed, token.certificate)
        self.share.files.remove(path)
        self.stop_relay()
        self.start_relay()

    def renew(self) -> None:
        """Gives the hub, which must run here, new keys and a new certificate, and this machine a new key. The others
        go on: the new certificate is signed with the key of the one that they trust. Raises `InvalidArguments` and
        `HubUnreachable`."""
        server = self.server
        if server is None:
            raise InvalidArguments("hub_elsewhere")
        self.stop_relay()
        try:
            server.renew()
            self.share.join(self.membership, new_seed(), server.certificate)
        finally:
            self.start_relay()

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
        return Token(
            uuid=membership.uuid,
            session=self.path.name,
            urls=membership.urls,
            certificate=None,
            id="",
            seed="",
            lane=self._take_lane(),
        )

    def _take_lane(self) -> str:
        """Takes a lane on a hub of the user's own that this machine has not given away, and notes it as given."""
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
        command = [*python(), "relay", *where]
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
        the relay's state, None while it does not answer. Raises `HubUnreachable` if the relay has ended, if the hub
        does not start here, does not know this machine or has not been reached for `UNREACHED_SECONDS`, or if nothing
        has come or gone for `seconds`; `HubReplaced` for a hub that is not used."""
        relay, progress = RelayClient(self.share, self.membership), (-1, -1)
        reached = time.monotonic()
        deadline = reached + seconds
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
                reached = time.monotonic() if state["connected"] else reached
                self._require_waiting_helps(state, reached)
                if (state["position"], state["pending"]) != progress:
                    progress, deadline = (state["position"], state["pending"]), time.monotonic() + seconds
            time.sleep(POLL_SECONDS)
        raise HubUnreachable("not_complete", minutes=round(seconds / 60))

    def _require_waiting_helps(self, state: Status, reached: float) -> None:
        if state["replaced"]:
            raise HubReplaced
        if state["connected"]:
            return
        if state["shut_out"] and not state["own_hub"]:
            raise HubUnreachable("shut_out")
        if state["hub_trouble"] is not None and not state["hub_trouble"]["runs"]:
            raise HubUnreachable("hub_not_started", line=state["hub_trouble"]["words"])
        if time.monotonic() - reached > UNREACHED_SECONDS:
            raise HubUnreachable("hub_not_reached", urls=", ".join(state["urls"]))

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

    def reseed(self, without: str = "") -> int:
        """Recreates the hub, which must run here, from this machine's files, without what the machine `without` has
        written last of what all share; returns how many values that were. If it fails, the relay goes on. Raises
        `InvalidArguments` and `HubUnreachable`."""
        server = self.server
        if server is None:
            raise InvalidArguments("hub_elsewhere")
        if without == self.membership.machine or (without and not is_name(without)):
            raise InvalidArguments("no_such_machine", name=without)
        self.stop_relay()
        try:
            return self._reseed(server, without)
        except Refusal:
            with suppress(Refusal):  # what has failed is said; files that are not on the hub yet are sent by the relay
                self.start_relay()
            raise

    def _reseed(self, server: HubServer, without: str) -> int:
        membership = self.membership
        server.start()
        with self.share.files.locks.held(LOCK):
            users = server.users()
            if users.pop("full", None):  # the values of all will be this machine's
                server.let(users)
        noted = self.share.record("position").facts()
        workspace = Workspace(self.path.parent, session_name(self.path.name), RelayClient(self.share, membership))
        position = int(noted.get("sequence", 0)) or newest_revision(workspace)
        identity = str(noted.get("identity", ""))
        return asyncio.run(reseed(server, workspace, membership.machine, position, identity, without))

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
        machines = server.read("users").get("machines", {}) if server is not None else {}
        return sorted(machines.keys() - {self.membership.machine})

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
    shared: dict[str, Any] = {}
    lane = token.lane
    if token.seed:
        shared, lane = _taken(asyncio.run(ask_to_join(token, machine, public_of(seed))))
    workspace.make()
    workspace.registry.create()
    workspace.registry.move_home(machine, former=sharing.share.former_home(token.uuid))
    settings = {"id": token.session, "created_at": format_time(now()), **shared}
    with suppress(FileExistsError):
        text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
        workspace.files.create(workspace.settings_path, text.encode())
    workspace.keep_out_of_git()
    sharing.share.record("position").write({"sequence": 0})
    own = Membership(token.uuid, machine, token.urls, own_hub=not token.seed, lane=lane)
    sharing.share.join(own, seed, token.certificate)
    return sharing


def _taken(answer: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Returns the settings and the lane in the hub's answer: whoever has made the token names no program that runs
    here. Raises `InvalidArguments` for an answer of another form."""
    settings, lane = answer.get("settings"), answer.get("lane")
    if not isinstance(settings, dict) or lane not in LANES:
        raise InvalidArguments("bad_token")
    try:
        return valid_settings(settings), str(lane)
    except ValueError as error:
        raise InvalidArguments("bad_token") from error


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


async def _reached(token: Token, seed: str, machine: str) -> None:
    """Raises `HubUnreachable` if no hub answers at a token's addresses, or does not know this machine."""
    try:
        await (await connected_once(token.urls, seed, token.certificate, machine)).close()
    except HubUnreachable as refusal:
        if is_key_refused(refusal.__cause__):
            raise HubUnreachable("shut_out") from refusal
        raise


async def _is_let_in(token: Token, seed: str, machine: str) -> bool:
    try:
        await _reached(token, seed, machine)
    except HubUnreachable:
        return False
    return True


async def _prepare(
    names: Names, urls: Sequence[str], admin_seed: str, certificate: str | None, replicas: int = 1
) -> None:
    """Creates the streams of a hub, unless they exist."""
    client = await connected_once(urls, admin_seed, certificate, "admin")
    try:
        await make_streams(client, names, secrets.token_hex(8), replicas=replicas)
    finally:
        await client.close()
