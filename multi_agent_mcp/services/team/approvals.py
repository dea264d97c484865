"""What a person has approved of the settings that decide when work is proven and what agents may do (docs/protocol.md,
Approval): a signature by the person's key, beside session.yaml. An agent that is to be checked can write session.yaml,
but cannot sign for it as long as the person's key is out of its reach (docs/security.md, What a gate is worth)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

from multi_agent_mcp.config import read_environment
from multi_agent_mcp.domain.message import is_data_signed_by, signed_data
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import InvalidArguments, Refusal, Unauthorized
from multi_agent_mcp.features.chosen import has_proof
from multi_agent_mcp.hosts import host_named
from multi_agent_mcp.session import Service
from multi_agent_mcp.settings import Settings, read_settings
from multi_agent_mcp.system.process import host_of, is_below, python_program

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent, AgentSession
    from multi_agent_mcp.features import Features
    from multi_agent_mcp.services.team.agents import Agents, Signatures
    from multi_agent_mcp.store.records import Record

State = Literal["approved", "changed", "missing"]
OF_AGENTS = ("role", "edits", "commands", "sandbox")


@dataclass(frozen=True)
class Approval:
    """The state of the approval, by whom and when it was given, and the keys that differ from what was approved, such
    as `checks.tests` or `worker-a.role`."""

    state: State
    by: str | None = None
    at: str | None = None
    changed: tuple[str, ...] = ()

    def as_answer(self) -> dict[str, Any]:
        return asdict(self) | {"changed": list(self.changed)}


APPROVE = {"checks": "checks approve", "rules": "agent approve"}
"""What a person types to approve it, by what is decided."""


def decided(features: Features) -> str:
    """What an approval is called by: the checks, or without `proof` the rules of agents."""
    return "checks" if "proof" in features else "rules"


@dataclass
class Followed:
    """The `agents` that a person's command has registered, as it wrote them, and the keys that `others` have changed
    meanwhile, because of which nothing was approved."""

    agents: list[Agent] = field(default_factory=list)
    others: tuple[str, ...] = ()


@dataclass(eq=False)
class Approvals(Service):
    """The approval of one session, on this machine."""

    agents: Agents
    signatures: Signatures

    def look(self) -> Approval:
        """The approval as it is. Never raises: what cannot be read is not approved."""
        if (record := self._genuine(self.workspace.approval)) is None:
            return Approval("missing")
        try:
            is_last = record["signature"] == (self._last() or record)["signature"]
            differing = _differing(record["content"], self.content())
            changed = tuple(key for key, *_ in differing) if is_last else ("approved.json",)
        except Refusal:  # session.yaml cannot be read
            changed = ("session.yaml",)
        return Approval("changed" if changed else "approved", str(record["by"]), str(record["at"]), changed)

    @property
    def command(self) -> str:
        """What a person types to approve what is there now."""
        return APPROVE[decided(self.session.features)]

    def is_first(self) -> bool:
        """Whether the session is new: it has no agents, and nothing was approved in it."""
        kept = (self.workspace.approval, self.workspace.last_approval)
        return not self.agents.known() and not any(one.read() for one in kept)

    def rules_of(self, agent: Agent) -> dict[str, Any] | None:
        """The keys of the agent's rules as they were last approved; None if nothing was."""
        if (record := self._last()) is None:
            return None
        own = record["content"].get("agents", {}).get(agent.id, {})
        return {**record["content"].get("roles", {}).get(own.get("role", agent.role), {}), **own}

    def done_when(self) -> tuple[str, ...]:
        """The conditions of the session that were last approved."""
        found = (self._last() or {"content": {}})["content"].get("done_when")
        return tuple(map(str, found)) if isinstance(found, list) else ()

    def keep_proof(self) -> bool:
        """Whether what was approved last has proof on, so that switching it off has to be approved."""
        return (last := self._last()) is not None and has_proof(last["content"])

    def _last(self) -> Mapping[str, Any] | None:
        """The last approval that is known: an earlier one that was put back has no say."""
        found = map(self._genuine, (self.workspace.last_approval, self.workspace.approval))
        return max(filter(None, found), key=itemgetter("at"), default=None)

    def _genuine(self, kept: Record) -> Mapping[str, Any] | None:
        record = kept.facts()
        if not isinstance(record.get("content"), dict):
            return None
        by, at, content = str(record.get("by")), str(record.get("at")), record["content"]
        person, data = self.agents.known().get(by), _signed(by, at, content)
        if person is None or not _is_persons(person) or person.removed:
            return None
        is_genuine = self.signatures.is_of(by, lambda key: is_data_signed_by(data, record.get("signature"), key))
        return record if is_genuine else None

    def differences(self, content: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
        """The keys in which this content differs from what was approved last, or, if nothing was, from a session in
        which nothing is set and agents have no rules but their roles: each with what it was (None: nothing) and is."""
        if (last := self._last()) is not None:
            before = last["content"]
        else:
            plain = {name: {"role": rules.get("role")} for name, rules in content["agents"].items()}
            before = {**self._content(Settings()), "agents": plain}
        return list(_differing(before, content))

    def content(self) -> dict[str, Any]:
        """What is signed, as JSON values. Raises as `read_settings`."""
        return self._content(read_settings(self.workspace.settings_path))

    def _content(self, settings: Settings) -> dict[str, Any]:
        checks = {
            name: {"run": c.run, "minutes": c.minutes, "directory": c.directory} for name, c in settings.checks.items()
        }
        found = {
            "checks": checks,
            "protected": settings.protected,
            "done_when": settings.done_when,
            "features": settings.features,
            "reservations": settings.of("reservations") == "enforce",
            "roles": settings.roles,
            "agents": {agent.id: _of(agent) for agent in self.agents.all().values()},
        }
        plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
        return plain

    def approve(self, content: Mapping[str, Any] | None = None) -> Approval:
        """Signs this content, as a person has seen it, or what is there now, with the key of a person of this machine.
        Raises `Unauthorized` in an agent's hands, `InvalidArguments` where no person's key is."""
        by, key = self.require_signer()
        at, content = format_time(self.clock()), self.content() if content is None else content
        signature = signed_data(_signed(by, at, content), key)
        for kept in (self.workspace.approval, self.workspace.last_approval):
            kept.write({"by": by, "at": at, "content": content, "signature": signature})
        self.session.audit("checks approve", by=by)
        return self.look()

    def require_signer(self) -> tuple[str, str]:
        """The person who approves here, and the key. Raises as `approve`."""
        self.require_person()
        person = self._person()
        key = None if person is None else self.agents.known_key(person.id)
        if person is None or key is None:
            people = [agent.id for agent in self.agents.all().values() if _is_persons(agent)]
            named = {"people": ", ".join(people) or "-", "file": self.workspace.approval.path}
            raise InvalidArguments("no_persons_key", **named, command=self.command)
        return person.id, key

    @contextmanager
    def following(self, *, first: bool = False) -> Iterator[Followed]:
        """The agents that a person's command registers within, and puts into what this yields, are approved if all else
        was, and still is; or, at the `first` time, everything. Else nothing is signed, and `others` says what somebody
        else has changed meanwhile. What an agent's process does is not approved."""
        followed, stands = Followed(), first or self.look().state == "approved"
        yield followed
        if not stands:
            return
        with suppress(Unauthorized, InvalidArguments):
            now = self.content()
            if not first and (last := self._last()) is not None:
                known = {**last["content"]["agents"], **{agent.id: _of(agent) for agent in followed.agents}}
                wanted = {**last["content"], "agents": {key: known[key] for key in known if key in now["agents"]}}
                followed.others = tuple(key for key, *_ in _differing(wanted, now))
                now = wanted
            if not followed.others:
                self.approve(now)

    def require_person(self, but: str | None = None) -> None:
        """Raises `Unauthorized` if this process acts for an agent, `but` not for the one that may do this itself."""
        if (agent := self._in_hands_of()) is not None and agent.id != but:
            raise Unauthorized("only_people_approve", agent_id=agent.id)

    def _in_hands_of(self) -> Agent | None:
        """The agent for which this process acts: its host started it, or it was told who it is."""
        known = self.agents.known()
        acting = known.get(read_environment().agent or "")
        if acting is not None and acting.type != "human":
            return acting
        for session in self.workspace.sessions.open():
            agent = known.get(session.agent_id)
            acting_for_it = {pid for pid in _acting_for(session) if pid > 1}
            if agent is not None and agent.type != "human" and is_below(os.getpid(), acting_for_it):
                return agent
        panes = (agent for agent in self.agents.all().values() if agent.type != "human" and agent.pane_pid)
        return next((agent for agent in panes if is_below(os.getpid(), {agent.pane_pid or 0})), None)

    def _person(self) -> Agent | None:
        """Whose key signs on this machine: a person's who is an owner, else another person's, else an owner's."""
        here = [agent for agent in self.agents.at_home().values() if _is_persons(agent)]
        return max(here, key=lambda agent: (agent.type == "human", agent.role == "owner"), default=None)


def _is_persons(agent: Agent) -> bool:
    """Whether the agent's key is a person's; a team may have nobody but an owner of whom that is not said."""
    return agent.type == "human" or agent.role == "owner"


def _acting_for(session: AgentSession) -> set[int]:
    """The processes below which an agent acts: its server, and the program that has started that, unless it is a
    person's: one in Python that is no host we know, such as a test, as one that uses `Team` is. The agent's pane holds
    a host in Python all the same."""
    if session.host_pid is None:
        return set()
    host = host_of(session.pid)
    program = python_program(host)
    return {session.pid} if program is not None and host_named(program) is None else {session.pid, host}


def _of(agent: Agent) -> dict[str, Any]:
    known = {"role": agent.role, **{key: agent.extra[key] for key in OF_AGENTS if key in agent.extra}}
    return {key: value for key, value in known.items() if value is not None}


def _signed(by: str, at: str, content: Mapping[str, Any]) -> bytes:
    facts = {"approval": 1, "by": by, "at": at, "content": content}
    return json.dumps(facts, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode(errors="surrogatepass")


def _differing(approved: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """The keys that differ, with what each was and is. An agent that has gone, or a worker without rules of its own
    that has come, decides nothing."""
    for key, value in now.items():
        before = approved.get(key)
        if key in ("checks", "agents") and isinstance(before, dict):
            for name in sorted({*before, *value} if key == "checks" else value):
                if before.get(name, {"role": "worker"} if key == "agents" else None) != value.get(name):
                    yield f"{key}.{name}" if key == "checks" else name, before.get(name), value.get(name)
        elif before != value:
            yield key, before, value
