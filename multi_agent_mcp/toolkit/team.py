"""A team as a Python program has it (docs/python.md): one more process beside servers, commands and the console."""

from __future__ import annotations

import atexit
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from errno import ENOENT
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, NoReturn, Self

from multi_agent_mcp.config import ROOT_NAME, find_root, find_session, read_environment, session_names
from multi_agent_mcp.errors import NoSuchSession
from multi_agent_mcp.texts import catalogue
from multi_agent_mcp.toolkit.agent import Access, Agent, Refused, refusals

Agents = Mapping[str, str] | Sequence[Mapping[str, Any]]
"""The role of each agent by its id, or mappings with the keys of team.yaml."""


class Team:
    """The agents of one session. `team["worker-a"]` acts for an agent: its methods are the tools of its task session,
    `team["worker-a"].chat` has those of its chat session. Agents that were added meanwhile are there at once.

    Nothing is global: several teams, threads and processes may have one session open. A team that is still open when
    the program ends is closed then; after a fork the child opens its own."""

    def __init__(self, access: Access) -> None:
        """See `create` and `open`."""
        access.look.agents.publish_keys()
        access.look.operations.finish()
        self._access = access
        self._agents: dict[str, Agent] = {}
        self._mutex = RLock()
        atexit.register(self.close)

    @classmethod
    def create(
        cls,
        directory: Path | str,
        agents: Agents,
        *,
        session: str = "demo",
        language: str | None = None,
        doorbell: bool = False,
        **settings: Any,
    ) -> Team:
        """Makes a session in `directory`/.multi-agent-mcp and opens it. Without a `parent` an admin is below the first
        owner, a worker below the first admin, else below the owner. `settings` are keys of session.yaml. Doorbells are
        only listed (`rings`) unless `doorbell` lets them ring.

        Raises `FileExistsError` for a session that exists, `Refused` or `ValueError` for agents or settings that cannot
        be used, `OSError` or `Refused` (storage_error) for a directory that cannot be written or a full disk. Then
        nothing is left behind."""
        from multi_agent_mcp.services.team.setup import create_team, known_settings, team_of

        if unknown := settings.keys() - known_settings(settings.get("features")):
            raise ValueError(f"a session has no such setting: {', '.join(sorted(unknown))}")
        if not (given := _with_parents(agents)):
            raise ValueError("a team has at least one agent")
        root = Path(directory).absolute() / ROOT_NAME
        chosen = {} if language is None else {"language": language}
        data = _plain({"agents": given, **settings, **chosen})
        with refusals(language=language):
            create_team(root, session, team_of(data))
            return cls(Access(root, session, rings=doorbell))

    @classmethod
    def open(cls, directory: Path | str | None = None, session: str | None = None, *, doorbell: bool = True) -> Team:
        """Opens an existing session as the commands find it: the only one in `directory`, or in the nearest
        .multi-agent-mcp at or above it. Without a directory MULTI_AGENT_MCP_ROOT and MULTI_AGENT_MCP_SESSION count,
        else the working directory does. Without `doorbell` nobody is rung (`rings`).

        Raises `FileNotFoundError` if there is none, `Refused` if it cannot be used or there are several."""
        if directory is not None:
            start = Path(directory).absolute()
            root = start if session_names(start) else find_root(None, start)
        else:
            environment = read_environment()
            root, session = find_root(environment.root, Path.cwd()), session or environment.session
        with refusals():
            try:
                return cls(Access(root, find_session(session, root), rings=doorbell))
            except NoSuchSession as refusal:
                if refusal.key == "error.which_session":
                    raise
                raise FileNotFoundError(ENOENT, catalogue("en").sentence(refusal), str(root)) from refusal

    @property
    def path(self) -> Path:
        """The session's directory."""
        return self._access.look.path

    @property
    def session(self) -> str:
        """The session's id."""
        return self._access.session

    @property
    def rings(self) -> list[tuple[str, str]]:
        """The doorbells that would have rung, as (agent's id, line), in order; empty where they really ring."""
        recorder = self._access.recorder
        return [] if recorder is None else list(recorder.rings)

    def __getitem__(self, agent_id: str) -> Agent:
        """The agent; one whose key was replaced meanwhile acts with the new key once it is asked for again."""
        if agent_id not in self:
            raise KeyError(agent_id)
        with self._mutex:
            agent = self._agents.get(agent_id)
            if agent is None or agent._is_disowned:
                agent = self._agents[agent_id] = Agent(self._access, agent_id, "task")
            return agent

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids())

    def __len__(self) -> int:
        return len(self._ids())

    def __contains__(self, agent_id: object) -> bool:
        return agent_id in self._ids()

    def close(self) -> None:
        """Ends the agent sessions that were opened, and their threads, all of them even if one raises. May be called
        again, and of a session whose directory is gone. Raises `Refused` if the disk does not take the end of a
        session, which then ends as if killed."""
        atexit.unregister(self.close)
        if self._access.is_closed or not self._access.is_own:  # else a fork would end its parent's sessions
            return
        self._access.is_closed = True
        try:
            with refusals(self._access.look.texts), ExitStack() as closing:
                for agent in list(self._agents.values()):
                    closing.callback(agent._close)
        except Refused:
            if self.path.exists():
                raise

    def _ids(self) -> list[str]:
        self._access.require_open()
        with refusals(self._access.look.texts):
            return list(self._access.look.agents.all())

    def __enter__(self) -> Self:
        self._access.require_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot copy or pickle {self!r}: open the team again where you need it")

    def __repr__(self) -> str:
        return f"<Team {self.session} in {self._access.root}>"


_LEADERS = ("owner", "admin")


def _with_parents(agents: Agents) -> list[Any]:
    """The agents as team.yaml has them, each with a superior; an owner given by its role alone is a person."""
    if isinstance(agents, Mapping):
        people = {"owner": {"type": "human"}}
        listed = [{"id": agent_id, "role": role, **people.get(str(role), {})} for agent_id, role in agents.items()]
    elif isinstance(agents, str) or not isinstance(agents, Iterable):
        raise ValueError(f"agents are a mapping of ids to roles, or a list of mappings, not {agents!r:.60}")
    else:
        listed = [dict(agent) if isinstance(agent, Mapping) else agent for agent in agents]
    known = [agent for agent in listed if isinstance(agent, dict)]
    owner, admin = (next((each.get("id") for each in known if each.get("role") == role), None) for role in _LEADERS)
    above = {"admin": owner, "worker": admin or owner}
    for each in known:
        superior = above.get(str(each.get("role", "worker")))
        if superior is not None and not each.keys() & {"parent", "parent_id"}:
            each["parent"] = superior
    return listed


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """The data as a file could have said it. Raises `ValueError`."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(data, ensure_ascii=False).encode())
    except (TypeError, UnicodeEncodeError) as error:
        raise ValueError(f"what a team is made of is text, numbers, lists and mappings: {error}") from error
    return plain
