"""Who may use the hub: tokens, the reception that lets machines in, and machines that are shut out of all or of a part.

A token is valid for one machine and one day. It contains the hub's URLs, its certificate, and a key that permits one
request and nothing else. The machine makes its own key, of which only the public half leaves it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error

from multi_agent_mcp.domain.entity import differing_in_case, is_name
from multi_agent_mcp.domain.times import format_time, is_recent, now, parse_time
from multi_agent_mcp.errors import AlreadyExists, HubUnreachable, InvalidArguments, InvalidId, Refusal, StorageError
from multi_agent_mcp.hub.administration import PART_BYTES, connected_once, make_room, shares_of, take_new_kinds
from multi_agent_mcp.hub.server import HubServer, is_user_key, new_seed, public_of
from multi_agent_mcp.hub.stream import is_key_refused
from multi_agent_mcp.hub.subjects import LANES, SLOTS, Names, lane_for, slot_of

LOCK = "hub-users"
VALID = timedelta(days=1)
PREFIX = "mam1."
ASKING_SECONDS, ANSWER_SECONDS, ASKED_AGAIN_SECONDS = 12.0, 2.0, 0.2
QUESTION_BYTES = 4096
USED_AGAIN_SECONDS = 5.0
"""The time for which a used token may still ask, in case its answer was lost."""


@dataclass(frozen=True, kw_only=True)
class Token:
    """All that a machine needs to join, as one word with a checksum, as people copy it. `seed` is a key that permits
    one request to join; for a hub of the user's own there is none, and `lane` is that of the machine."""

    uuid: str
    session: str
    urls: tuple[str, ...]
    certificate: str | None
    id: str
    seed: str
    lane: str = ""

    def __str__(self) -> str:
        data = base64.urlsafe_b64encode(json.dumps(asdict(self), separators=(",", ":")).encode()).decode().rstrip("=")
        return f"{PREFIX}{data}.{_check(data)}"

    @classmethod
    def parse(cls, text: str) -> Token:
        """Parses the token at the end of a text, such as the whole printed line. Raises `InvalidArguments`."""
        data, _, check = (text.split() or [""])[-1].removeprefix(PREFIX).partition(".")
        if not data or check != _check(data):
            raise InvalidArguments("bad_token")
        try:
            facts = json.loads(base64.urlsafe_b64decode(data + "==="))
            token = cls(**{**facts, "urls": tuple(facts["urls"])})
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise InvalidArguments("bad_token") from error
        texts = (token.session, *token.urls, token.certificate or "", token.id, token.seed)
        is_lane = token.lane in ("", *LANES)
        if not (all(isinstance(each, str) for each in texts) and is_lane and _UUID.fullmatch(str(token.uuid))):
            raise InvalidArguments("bad_token")  # its words become names on the hub
        return token


_UUID = re.compile("[0-9a-f]{32}")


def _check(data: str) -> str:
    return hashlib.sha256(data.encode(errors="replace")).hexdigest()[:8]


def new_token(server: HubServer, session: str, *, replaces: str | None = None) -> Token:
    """Returns a new token, registered with the server; `replaces` names a machine whose files are lost, which it may
    replace. Raises `InvalidArguments` for an unknown one."""
    seed = new_seed()
    with server.share.files.locks.held(LOCK):
        users = server.users()
        token_id = f"{_free_slot(users['tokens'])}{secrets.token_hex(5)}"
        if replaces is not None and replaces not in users["machines"]:
            raise InvalidArguments("no_such_machine", name=replaces)
        facts = {"nkey": public_of(seed), "created_at": format_time(now()), "replaces": replaces, "used": False}
        server.let({**users, "tokens": {**users["tokens"], token_id: facts}})
    return Token(
        uuid=server.names.uuid,
        session=session,
        urls=tuple(server.urls()),
        certificate=server.certificate,
        id=token_id,
        seed=seed,
    )


def _free_slot(tokens: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns a slot that no token may use any more, else that of the oldest one, which is revoked."""
    taken: dict[str, str] = {}
    for token_id, facts in tokens.items():
        made = parse_time(facts["created_at"])
        if not facts["used"] and made is not None and is_recent(made, now(), VALID):
            taken[slot_of(token_id)] = max(facts["created_at"], taken.get(slot_of(token_id), ""))
    return min(SLOTS, key=lambda slot: taken.get(slot, ""))


async def ask_to_join(token: Token, machine: str, public: str) -> dict[str, Any]:
    """Asks the hub to let this machine in; returns its answer with the `settings`. Raises `HubUnreachable`,
    `InvalidArguments` and `AlreadyExists`."""
    answer = await _answer(token, json.dumps({"machine": machine, "nkey": public}).encode())
    if answer.get("refused") == "already_exists":
        raise AlreadyExists("machine_exists", name=answer.get("name") or machine)
    if answer.get("refused") == StorageError.code:
        raise HubUnreachable("hub_disk")
    if "refused" in answer:
        raise InvalidArguments("token_used")
    return answer


async def _connected(token: Token) -> Client:
    try:
        return await connected_once(token.urls, token.seed, token.certificate, f"join-{slot_of(token.id)}")
    except HubUnreachable as error:
        if is_key_refused(error.__cause__):  # the hub answers, but no longer knows this token
            raise InvalidArguments("token_used") from error
        raise


async def _answer(token: Token, question: bytes) -> dict[str, Any]:
    """Asks, and again if no answer comes: the server that lets a machine in starts again right after its answer, which
    may be lost with the connection. The same key gets the same answer. Raises `HubUnreachable`, and `InvalidArguments`
    for a token that was revoked."""
    deadline = time.monotonic() + ASKING_SECONDS
    while time.monotonic() < deadline:
        answer = await _answer_of_one_connection(token, question, deadline)
        if answer is not None:
            return answer
    raise HubUnreachable


async def _answer_of_one_connection(token: Token, question: bytes, deadline: float) -> dict[str, Any] | None:
    client, subject = await _connected(token), Names(token.uuid).join(token.id)
    try:
        while client.is_connected and time.monotonic() < deadline:
            with suppress(Error, OSError, ValueError):
                answer: dict[str, Any] = json.loads((await client.request(subject, question, ANSWER_SECONDS)).data)
                return answer
            await asyncio.sleep(ASKED_AGAIN_SECONDS)
        return None
    finally:
        await client.close()


@dataclass(eq=False)
class Reception:
    """Lets machines in, on the machine where the hub runs."""

    server: HubServer
    settings: Callable[[], bytes]
    client: Client | None = None
    _forgetting: set[asyncio.Task[None]] = field(default_factory=set)

    async def open(self) -> None:
        """Starts answering requests to join. Raises `HubUnreachable`."""
        if self.is_open:
            return
        await take_new_kinds(self.server)
        url = [self.server.local_url]
        self.client = await connected_once(url, self.server.reception_seed, self.server.certificate, "reception")
        await self.client.subscribe(self.server.names.joins, cb=self._asked)
        await asyncio.to_thread(self.server.note_good)

    @property
    def is_open(self) -> bool:
        return self.client is not None and self.client.is_connected

    async def _asked(self, message: Msg) -> None:
        slot = message.subject.rpartition(".")[2]
        tokens = await asyncio.to_thread(lambda: self.server.users()["tokens"])
        token_id = next((name for name, facts in tokens.items() if slot_of(name) == slot and not facts["used"]), "")
        try:
            question = json.loads(message.data) if len(message.data) < QUESTION_BYTES else {}
            answer = await asyncio.to_thread(self._let_in, token_id, question)
        except Refusal as refusal:
            answer = {"refused": refusal.code, "name": refusal.values.get("name")}
        except (ValueError, LookupError, TypeError, RecursionError):
            answer = {"refused": "invalid_arguments"}
        await message.respond(json.dumps(answer).encode())
        if "refused" not in answer:
            forgetting = asyncio.create_task(self._forget_soon(token_id))
            self._forgetting.add(forgetting)
            forgetting.add_done_callback(self._forgetting.discard)

    async def _forget_soon(self, token_id: str) -> None:
        await asyncio.to_thread(self._apply)  # after the answer, as it starts the server again
        with suppress(HubUnreachable):
            await self.open()
        await asyncio.sleep(USED_AGAIN_SECONDS)
        await asyncio.to_thread(self._forget, token_id)

    def _let_in(self, token_id: str, question: Mapping[str, Any]) -> dict[str, Any]:
        machine, public = str(question["machine"]), str(question["nkey"])
        with self.server.share.files.locks.held(LOCK):
            users = self.server.users()
            token = users["tokens"].get(token_id)
            made = None if token is None else parse_time(token["created_at"])
            if token is None or token["used"] or made is None or not is_recent(made, now(), VALID):
                raise InvalidArguments("token_used")
            asker = f"{machine} {public}"
            if token.get("used_by") not in (None, asker):  # the same one may ask again: its answer may be lost
                raise InvalidArguments("token_used")
            machines = users["machines"]
            if not is_name(machine) or not is_user_key(public):
                raise InvalidId(value=repr(machine)[:80])
            known = machine if machine in machines else differing_in_case(machine, machines)
            if known is not None and token["replaces"] != machine and machines.get(machine) != public:
                raise AlreadyExists("machine_exists", name=known)
            if public in self._keys_but_of(machine, users):
                raise InvalidArguments("token_used")
            tokens = {**users["tokens"], token_id: {**token, "used_by": asker}}
            users = with_lane(users, machine)
            self.server.note({**users, "machines": {**machines, machine: public}, "tokens": tokens})
        return {"settings": json.loads(self.settings()), "lane": users["lanes"][machine]}

    def _keys_but_of(self, machine: str, users: Mapping[str, Any]) -> set[str]:
        """Returns the keys of everybody else on the hub: with one key for two the server does not start."""
        machines = {public for name, public in users["machines"].items() if name != machine}
        own = {public_of(seed) for seed in (self.server.admin_seed, self.server.reception_seed)}
        return machines | own | {facts["nkey"] for facts in users["tokens"].values()}

    def _apply(self) -> None:
        with suppress(Refusal), self.server.share.files.locks.held(LOCK):
            self.server.apply()

    def _forget(self, token_id: str) -> None:
        with suppress(Refusal), self.server.share.files.locks.held(LOCK):
            users = self.server.users()
            used = {**users["tokens"][token_id], "used": True}
            self.server.let({**users, "tokens": {**users["tokens"], token_id: used}})


def with_lane(users: Mapping[str, Any], machine: str) -> dict[str, Any]:
    """Returns the users with a lane for this machine: the one it had, else one that nobody has."""
    lanes = users.get("lanes", {})
    taken = [lanes.get(each) or lane_for(each) for each in users["machines"] if each != machine]
    return {**users, "lanes": {**lanes, machine: lanes.get(machine) or lane_for(machine, taken)}}


def let_go(server: HubServer, machine: str) -> None:
    """Revokes a machine's access to the hub. Raises `InvalidArguments`."""
    with server.share.files.locks.held(LOCK):
        users = server.users()
        if machine not in users["machines"]:
            raise InvalidArguments("no_such_machine", name=machine)
        machines = {name: public for name, public in users["machines"].items() if name != machine}
        server.let({**users, "machines": machines})


async def keep_room(server: HubServer, here: str, part: int = PART_BYTES) -> dict[str, int]:
    """Lets the machines that have written more than a `part` of what all share, other than this one, write no more of
    it, and makes room for what the others write; returns what each has written. Until the hub is made again
    (`Sharing.reseed`). Raises `HubUnreachable`."""
    by = await shares_of(server)
    full = await asyncio.to_thread(_note_full, server, {name for name in by if name != here and by[name] > part})
    await make_room(server, sum(by.get(name, 0) for name in full))
    return by


def _note_full(server: HubServer, full: set[str]) -> set[str]:
    with server.share.files.locks.held(LOCK):
        users = server.users()
        known = users.get("full", {})
        if not full <= known.keys():
            server.let({**users, "full": {**known, **dict.fromkeys(full, True)}})
    return known.keys() | full
