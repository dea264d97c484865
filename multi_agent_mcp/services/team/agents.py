"""The agents of a session: registering, changing, removing, passkeys."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from multi_agent_mcp.config import session_names
from multi_agent_mcp.domain.agent import Agent, is_known_superior, is_superior, owners, superiors
from multi_agent_mcp.domain.entity import AgentId, assembled, session_name
from multi_agent_mcp.domain.entity import agent_id as parse_agent_id
from multi_agent_mcp.domain.message import Message, has_old_scheme, is_signed_by, is_signed_with, public_key, signature
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import (
    AgentNotAssignedToProject,
    AgentNotFound,
    AlreadyExists,
    HasSubordinates,
    InvalidArguments,
    InvalidSession,
    Refusal,
    StorageError,
    Unauthorized,
    UntrustedSession,
)
from multi_agent_mcp.session import Service, Session
from multi_agent_mcp.store.locks import LEAVING
from multi_agent_mcp.store.registry import SHARED
from multi_agent_mcp.store.workspace import Workspace

logger = logging.getLogger(__name__)

_TEXTS = frozenset({"name", "command", "host", "prompt"})
"""The fields that people write."""


class Agents(Service):
    """The registry of one session and its agents' keys."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.registry = session.workspace.registry
        self._proven: dict[str, str] = {}
        self._inboxes: dict[str, tuple[Path, Path]] = {}

    def read_once(self) -> AbstractContextManager[None]:
        """Returns a context in which this thread sees one state of the registry; see `Registry.read_once`."""
        return self.registry.read_once()

    def all(self) -> Mapping[str, Agent]:
        """Returns the agents that are not removed, by id."""
        return self.registry.active()

    def known(self) -> Mapping[str, Agent]:
        """Returns all agents by id, removed ones too: their history is still there."""
        return self.registry.all()

    def get(self, agent_id: str) -> Agent:
        """Returns an agent. Raises `InvalidId` or `AgentNotFound`."""
        return self.registry.get(parse_agent_id(agent_id))

    def filtered(self, agent_id: str | None) -> str | None:
        """Returns the id to select by, None for no selection. As `get`, but a removed agent's is valid: its history is
        still there."""
        if agent_id is not None and parse_agent_id(agent_id) not in self.registry.all():
            raise AgentNotFound(agent_id=agent_id)
        return agent_id

    def name_of(self, agent_id: str) -> str:
        """Returns the display name of an agent, also of a removed one; "" for an unknown id."""
        agent = self.registry.all().get(agent_id)
        return "" if agent is None else agent.name

    def participant(self, agent_id: str) -> Agent:
        """As `get`, but raises `AgentNotAssignedToProject` for an agent of another session under this root
        (docs/protocol.md, Chat-session operations)."""
        try:
            return self.get(agent_id)
        except AgentNotFound:
            if any(map(partial(self._is_active_in, agent_id), session_names(self.workspace.root))):
                raise AgentNotAssignedToProject(agent_id=agent_id, session=self.workspace.session) from None
            raise

    def _is_active_in(self, agent_id: str, session: str) -> bool:
        try:
            return agent_id in Workspace(self.workspace.root, session_name(session)).registry.active()
        except UntrustedSession:  # somebody else's, beside this one
            return False

    def owner(self) -> Agent:
        """Returns the human who owns the team; of several, one whose home is this machine, else the first. Raises
        `AgentNotFound`."""
        found = owners(self.all())
        if not found:
            raise AgentNotFound("no_owner")
        return next(filter(self.workspace.is_here, found), found[0])

    def add(self, agent: Agent) -> Agent:
        """Registers an agent with its key, inboxes and record. Raises `AlreadyExists`, `InvalidId` and
        `HubUnreachable`, and `InvalidArguments` for text that UTF-8 cannot encode, and a name of several lines."""
        parse_agent_id(agent.id)
        _require_sound({name: getattr(agent, name) for name in _TEXTS})
        self.registry.require_free(agent.id)
        self.workspace.authority.require()  # fails before anything is made
        return self.registry.add(agent, self._prepared)

    @contextmanager
    def _prepared(self, agent: Agent) -> Iterator[Agent]:
        with self.workspace.room_for(agent.id) as key:
            yield replace(
                agent,
                name=agent.name or agent.id,
                created_at=agent.created_at or format_time(self.clock()),
                passkey_hash=passkey_hash(key),
                public_key=public_key(key),
                machine=self.workspace.authority.here,
            )

    def register(self, agent: Agent, *, by: Agent) -> tuple[Agent, bool]:
        """Registers an agent for the tool `register_agent_to_ipc`; returns it, and False if it was known. Raises
        `AlreadyExists` for an id that differs from a known one only in case, and `Unauthorized` if anybody but an owner
        registers an owner.

        Without a parent the new agent is placed below the one that registers it.
        """
        if agent.role == "owner" and by.role != "owner":
            raise Unauthorized("role_raise", role=agent.role)
        if agent.parent_id is not None:
            self.get(agent.parent_id)
        elif agent.role != "owner":
            agent = replace(agent, parent_id=by.id)
        try:
            return self.add(agent), True
        except AlreadyExists:
            if agent.id not in self.all():
                raise  # another agent, whose id differs only in case
            return self.get(agent.id), False

    def change(self, agent_id: str, **changed: Any) -> Agent:
        """Sets these fields of an agent as a person wants them; "" removes a value. Raises `InvalidId` or
        `AgentNotFound`, `Unauthorized` for its pane, host or command if its home is another machine, and
        `InvalidArguments` as `add`."""
        agent = self.get(agent_id)
        _require_sound({name: changed[name] for name in changed.keys() & _TEXTS})
        if changed.keys() - set(SHARED):
            self.require_here(agent)
        wanted = {key: None if value == "" else value for key, value in changed.items()}
        if wanted.get("name", agent.name) is None:
            wanted["name"] = agent.id
        return self.registry.revise(agent.id, lambda known: known.changed_by_person(wanted))

    def note(self, agent_id: str, **facts: Any) -> None:
        """Records facts that a process determined about its agent, such as its pane or its host's thread."""
        self.registry.update(agent_id, **facts)

    def take_home(self, agent_id: str) -> Agent:
        """Makes this machine an agent's home and its key here the agent's key. Messages signed elsewhere stay valid. A
        second call has no effect."""
        agent = self.registry.get(agent_id)
        keys = self._own_keys(agent)
        self.workspace.make_inboxes(agent_id)
        return self.registry.update(
            agent_id, machine=self.workspace.authority.here, machines=self._homes(agent), **keys
        )

    def without_key(self) -> list[str]:
        """Returns the ids of the agents of this machine whose passkey is not there any more."""
        return [agent_id for agent_id in self.at_home() if not os.path.lexists(self.key_file(agent_id))]

    def renew_key(self, agent_id: str) -> Agent:
        """Makes a passkey for an agent that has lost its own. What it signed before stays genuine: the earlier public
        key is kept. (One that may be in other hands is replaced by removing the agent: docs/security.md, Keys.) Raises
        `HubUnreachable` before anything is made."""
        agent = self.here(agent_id)
        self.workspace.authority.require()
        return self.registry.update(agent_id, **self._own_keys(agent))

    def _own_keys(self, agent: Agent) -> dict[str, Any]:
        """Returns the fields of the agent's record for the passkey that is here, which is made if there is none."""
        key = self.workspace.key(agent.id).ensure()
        keys: dict[str, Any] = {"public_key": public_key(key), "passkey_hash": passkey_hash(key)}
        if agent.public_key != keys["public_key"]:
            former = [*agent.extra.get("former_public_keys", ()), *filter(None, [agent.public_key])]
            keys["former_public_keys"] = list(dict.fromkeys(former))
        return keys

    def at_home(self) -> Mapping[str, Agent]:
        """Returns the agents whose home is this machine."""
        return {agent_id: agent for agent_id, agent in self.all().items() if self.workspace.is_here(agent)}

    def by_machine(self) -> dict[str, list[str]]:
        """Returns the ids of the agents by the machine that is their home."""
        found: dict[str, list[str]] = {}
        for agent in self.all().values():
            if agent.machine is not None:
                found.setdefault(agent.machine, []).append(agent.id)
        return found

    def here(self, agent_id: str) -> Agent:
        """Returns an agent whose home is this machine; raises as `get` and `require_here`."""
        agent = self.get(agent_id)
        self.require_here(agent)
        return agent

    def elsewhere(self, agent: Agent) -> str | None:
        """See `Workspace.elsewhere`."""
        return self.workspace.elsewhere(agent)

    def require_here(self, agent: Agent) -> None:
        """Raises `Unauthorized` for an agent of another machine, which has its key: nobody here can sign for it."""
        if agent.machine is not None and not self.workspace.is_here(agent):
            raise Unauthorized("other_home", agent_id=agent.id, machine=agent.machine)

    def acting(self, agent_id: str) -> Agent:
        """Returns the agent for which a process makes a call. Raises `AgentNotFound`; as `require_here`, as the agent
        may have moved while its machine was away; and `UntrustedSession` if somebody else owns a directory on the way
        to its mail or notifications: whoever put it there could tell the agent anything."""
        agent = self.registry.get(agent_id)
        self.require_here(agent)
        if agent_id not in self._inboxes:
            self._inboxes[agent_id] = self.workspace.mailbox(agent_id).path, self.workspace.notices(agent_id).path
        for inbox in self._inboxes[agent_id]:
            self.workspace.files.containment.require(inbox)
        return agent

    def move(self, agent_id: str, machine: str) -> Agent:
        """Makes a machine the agent's home; the relay of another machine completes the move there."""
        agent = self.get(agent_id)
        if machine == self.workspace.authority.here:
            return self.take_home(agent_id)
        return self.registry.update(agent_id, machine=machine, machines=self._homes(agent))

    def _homes(self, agent: Agent) -> list[str]:
        """Returns the machines that have been an agent's home: files written there stay valid."""
        here = self.workspace.authority.here
        return list(dict.fromkeys(filter(None, [*agent.extra.get("machines", ()), agent.machine, here])))

    def make_inboxes(self, agent_id: str) -> None:
        """See `Workspace.make_inboxes`."""
        self.workspace.make_inboxes(agent_id)

    def remove(self, agent_id: str) -> Agent:
        """Marks an agent as removed: it gets no more mail; its record and its files stay. Raises `InvalidId`,
        `AgentNotFound`, `HasSubordinates` unless its subordinates are removed, too, and
        `InvalidArguments` while it has open tasks."""
        self.require_removable(agent_id)
        if still_open := sorted(task.id for task in self.workspace.tasks.open(agent_id)):
            raise InvalidArguments("has_open_tasks", agent_id=agent_id, names=", ".join(still_open))
        return self.registry.update(agent_id, status="removed")

    def leaving(self, agent_id: str) -> AbstractContextManager[object]:
        """A context in which the agent is being removed: with the tasks that it gives away it would become idle."""
        return self.workspace.locks.lock(f"{LEAVING}-{agent_id}")

    def is_leaving(self, agent_id: str) -> bool:
        """Whether somebody is removing the agent now."""
        return self.workspace.locks.is_held(f"{LEAVING}-{agent_id}")

    def require_removable(self, agent_id: str) -> Agent:
        """The agent, if it may be removed but for its tasks. Raises as `remove`."""
        found = self.get(agent_id)
        if below := [agent.id for agent in self.all().values() if agent.parent_id == agent_id]:
            raise HasSubordinates(agent_id=agent_id, names=", ".join(below))
        return found

    def still_here(self, agent_id: str) -> Agent:
        """As `here`, also for a removed agent: its program may still run."""
        found = self.registry.all().get(parse_agent_id(agent_id)) or self.get(agent_id)
        self.require_here(found)
        return found

    def require_assignable(self, actor: Agent, assignee: Agent) -> None:
        """Raises `Unauthorized` if `assignee` is an owner or a superior of `actor`. An owner may assign work to all
        agents, and every agent to itself. `actor` may have been removed."""
        if actor.role == "owner" or assignee.id == actor.id:
            return
        if assignee.role == "owner" or is_superior(assignee.id, actor.id, self.registry.all()):
            raise Unauthorized("superior_task", agent_id=assignee.id)

    def key_file(self, agent_id: str) -> Path:
        """Returns the path of the agent's passkey."""
        return self.workspace.key_path(agent_id)

    def superiors(self, agent_id: str) -> list[Agent]:
        """Returns the strict ancestors, nearest first; raises if the hierarchy has a cycle or a missing agent."""
        return list(superiors(agent_id, self.all()))

    def authenticate(self, agent_id: object, passkey: object) -> Agent:
        """Returns the agent if the passkey is its own; this process then signs with it, even if the key file cannot be
        read. Raises `InvalidId`, `AgentNotFound`, `InvalidSession`, and `Unauthorized` as `require_here`."""
        agent = self.registry.get(parse_agent_id(agent_id))
        self.require_here(agent)
        if not isinstance(passkey, str) or not is_passkey_of(agent, passkey):
            raise InvalidSession("wrong_passkey", agent_id=agent.id)
        self._proven[agent.id] = passkey
        self.publish_keys()
        if agent.public_key not in (None, public_key(passkey)):
            logger.warning("the public key of %s in agents.json is not its key's: see doctor", agent.id)
        return agent

    def require_key(self, agent_id: str) -> None:
        """Raises `InvalidSession` if the key that this process has proven for the agent was replaced: it is neither in
        the key's file any more nor is its hash in `agents.json`. (An agent that moves to another machine has
        another hash meanwhile.)"""
        proven, agent = self._proven.get(agent_id), self.all().get(agent_id)
        if proven is None or agent is None or is_passkey_of(agent, proven):
            return
        if self.workspace.key(agent_id).read() != proven:
            raise InvalidSession("key_replaced", agent_id=agent_id)

    def publish_keys(self) -> None:
        """Adds missing public keys (of agents registered before messages were signed with Ed25519) if this process has
        the passkey and its hash is right. Existing ones are not replaced; `doctor` reports those that do not match.
        Never raises `StorageError`: the next process tries again."""
        with suppress(StorageError):
            for agent in self.all().values():
                key = self.known_key(agent.id) if self.workspace.is_here(agent) and agent.public_key is None else None
                if key is not None and is_passkey_of(agent, key):
                    self.registry.update(agent.id, public_key=public_key(key))

    def known_key(self, agent_id: str) -> str | None:
        """Returns the agent's key if this process has it, the one that it has proven before a stored one; else None,
        also for an invalid id, as in a hand-written message. An empty key counts as none, since anybody could sign with
        it."""
        if agent_id in self._proven:
            return self._proven[agent_id]
        try:
            return self.stored_key(parse_agent_id(agent_id)) or None
        except Refusal:
            return None

    def stored_key(self, agent_id: AgentId | str) -> str:
        """Returns the key in `secrets/{agent_id}.key`; raises `InvalidSession` if it is missing."""
        key = self.workspace.key(agent_id).read()
        if key is None:
            raise InvalidSession("missing_passkey", agent_id=agent_id)
        return key


def _require_sound(texts: Mapping[str, Any]) -> None:
    from multi_agent_mcp.services.validation import require_one_line, require_text  # most commands only look agents up

    for name, text in texts.items():
        (require_one_line if name == "name" and text else require_text)(name, text)


def is_passkey_of(agent: Agent, passkey: str) -> bool:
    return hmac.compare_digest(passkey_hash(passkey).encode(), str(agent.passkey_hash).encode())


def passkey_hash(passkey: str) -> str:
    """Returns the hash to store. Keys are 256 random bits and cannot be guessed, so a plain digest is enough."""
    return f"sha256:{hashlib.sha256(passkey.encode(errors='surrogatepass')).hexdigest()}"


# Signatures: messages are signed with their sender's key, and only verified ones have an effect.
#
# All agents' processes run as the same user and can read every key: a signature shows only that a message was written
# by this program or by somebody who took the key on purpose (docs/security.md).


Verdict = Literal["signed", "unsigned", "tampered", "no_key", "misplaced"]
Authority = Literal["superior", "colleague", "self", "unverified", "system"]
"""What somebody's words are to an agent (docs/protocol.md, Authority): `system` is what the product itself says."""


class Signatures:
    """Signs messages with their senders' keys and verifies them with the public keys."""

    def __init__(self, agents: Agents) -> None:
        self.agents = agents

    def sign(self, message: Message) -> Message:
        """Returns the message with its sender's signature; unsigned, with a warning in the log, if the key cannot be
        read."""
        return self.sign_all([message], message.sender_id)[0]

    def sign_all(self, messages: Sequence[Message], sender_id: str) -> list[Message]:
        """Signs several messages of one sender; see `sign`."""
        key = self.agents.known_key(sender_id) if messages else None
        if key is None:
            for message in messages:
                logger.warning("message %s is not signed: the key of %s cannot be read", message.id, sender_id)
            return list(messages)
        return [assembled(Message, {**vars(message), "signature": signature(message, key)}) for message in messages]

    def verdict(self, message: Message, mailbox_of: str | None = None) -> Verdict:
        """Returns the result of verifying a message. `misplaced`: it is genuine, but not addressed to `mailbox_of`."""
        if message.signature is None:
            return "unsigned"
        genuine = self._is_genuine(message)
        if not genuine:
            return "no_key" if genuine is None else "tampered"
        return "signed" if mailbox_of in (None, message.receiver_id) else "misplaced"

    def verifies(self, message: Message, mailbox_of: str | None = None) -> bool:
        return self.verdict(message, mailbox_of) == "signed"

    def authority(self, message: Message | None, reader_id: str) -> Authority:
        """What a message in the reader's mailbox is to the reader; None for one that is not there any more."""
        if message is None or not self.verifies(message, reader_id):
            return "unverified"
        return self.standing(message.sender_id, reader_id)

    def of_first(self, reader_id: str, unread: Sequence[Message]) -> Authority:
        """The authority of the first of these messages in the reader's mailbox; they may be without their contents."""
        found = self.agents.workspace.mailbox(reader_id).find(unread[0].id, fresh=False)
        return self.authority(found and found[1], reader_id)

    def standing(self, agent_id: str, reader_id: str) -> Authority:
        """What an agent is to another, or to itself: `unverified` for one that is not in the team (any more). In a
        broken hierarchy nobody is a superior."""
        agents = self.agents.all()
        if agent_id not in agents:
            return "unverified"
        if agent_id == reader_id:
            return "self"
        return "superior" if is_known_superior(agent_id, reader_id, agents) else "colleague"

    def _is_genuine(self, message: Message) -> bool | None:
        """Returns whether the signature is valid, also that of a removed agent; None without a key to check it."""
        sender = self.agents.registry.all().get(message.sender_id)
        if sender is None:
            return None
        if has_old_scheme(message):
            key = self.agents.known_key(sender.id)
            if key is not None and is_signed_with(message, key):
                return True
            return None if key is None or sender.extra.get("former_public_keys") else False  # it may be of a lost key
        known = _public_keys(sender)
        return any(is_signed_by(message, key) for key in known) if known else None

    def is_of(self, agent_id: str, is_signed_by_key: Callable[[str], bool]) -> bool:
        """Whether something is signed by this agent: `is_signed_by_key` judges by a public key."""
        agent = self.agents.registry.all().get(agent_id)
        return agent is not None and any(map(is_signed_by_key, _public_keys(agent)))


def _public_keys(agent: Agent) -> list[str]:
    return [key for key in (agent.public_key, *agent.extra.get("former_public_keys", ())) if key is not None]
