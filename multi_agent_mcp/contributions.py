"""What the features contribute to one session: their services, what follows when something happens, and the answers to
what the core asks without knowing who answers.

It is the one way from a service to others that it does not name as neighbours, and the only one that leads to optional
features: `multi_agent_mcp` can lack the folder of any of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.features import WORK, called

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.features import Action, Feature, Features
    from multi_agent_mcp.settings import Settings
    from multi_agent_mcp.store.partition import Partition
    from multi_agent_mcp.store.workspace import Workspace

EVENTS = {
    "sent": "messages that were stored (messages)",
    "marked_read": "messages that an agent has read (messages, when)",
    "notified": "a notification that was stored (notification)",
    "task_changed": "tasks that have changed (tasks)",
    "waiting": "something waits: for whoever is free, or claims it, for another task, for an answer ()",
    "task_done": "a task has just become done (task)",
    "task_reported": "its assignee has said that it is over (task, summary, whether it failed)",
    "execution_ended": "an execution has just ended (execution)",
    "task_session_ended": "a task session was ended by its own process (agent's id)",
    "agent_recovered": "what the agent's dead sessions left was put in order (agent's id)",
    "looked": "somebody looks what follows from the files ()",
    "heard": "an event of an agent's host (agent's id, host, facts)",
    "answered": "a call of a tool was answered; not after each one ()",
    "edited": "an agent's host has edited files (agent's id, call, whether that is noted)",
    "edits_arrived": "edits came from another machine (agent's id)",
    "console_opened": "the console was opened; nobody waits for it yet ()",
    "process_ends": "this process ends its session ()",
}
"""What happens, and what those to whom it matters (`Feature.on`) are told. They never raise."""
QUESTIONS = {
    "is_alive": "whether a program of an agent lives (agent's id)",
    "has_lost_pane": "whether no program of the agent runs in its pane (agent)",
    "is_at_work": "whether the agent's host works, by its screen (agent)",
    "is_supervised": "whether a process supervises the team ()",
    "opens_chat": "whether a chat window is opened for an agent to whom somebody speaks (agent's id)",
    "next_deadline": "when something follows although no file changes ()",
    "recorded": "a context in which a call is recorded (tool, its traceparent)",
    "tools_of_hosts": "which tools of hosts edit files ()",
    "shared_files": "the files that several agents edit, by agent ()",
    "approval": "what a person has approved of what decides ()",
    "to_merge": "the done tasks whose delivery the project does not have yet ()",
    "edited_for": "the paths that were edited for a task, by repository (task)",
    "workplace": "the agent's own place (agent's id)",
    "wants_workplace": "whether the agent is to have one (agent)",
    "make_workplace": "makes it (agent)",
    "variables": "the variables that the agent's programs get for it (agent's id)",
    "commit_place": "where our server commits for the agent (agent's id)",
    "refusal": "why git does not work in the project as this user ()",
    "delivered": "what a task delivered, and whether it is merged (task's id)",
    "commits": "the commits that name a task (task)",
    "offer": "sends to whoever is free (sender, draft, task that the message brings or None)",
    "meant": "the agents that `@role` or `@any` means (agent, receiver)",
    "offer_item": "keeps a task, question or delegation for whoever is free (agent, receiver, its id)",
    "taken": "who has what was for whoever is free (its id)",
    "sleeping": "who could be started, in order, for each thing that waits for whoever is free ()",
    "await_idle": "waits until a receiver is idle (sender, receiver)",
    "limit": "the usage limit that the agent's host has met, until the agent acts (agent's id)",
    "is_excused": "whether an agent is silent for a reason that passes (its id, how long one may be silent)",
    "tokens": "what each agent took in the last days, in tokens, as far as it was read (days, zone)",
    "spent_today": "what that has cost today, in words ()",
    "usage_rows": "what agents and tasks took in the last days, by model (days, zone)",
    "usage_of_task": "what a task took, by model (task's id)",
    "usage_figures": "all this for the page of statistics (days, zone)",
    "allow_tokens": "lets an agent use more than its budget (agent, tokens)",
}
"""What a feature can be asked (`Feature.answers`)."""


class Contributions:
    """The contributions of the features of one session. Whatever is named is imported and made when it is called."""

    def __init__(self, features: Features, settings: Settings, workspace: Workspace, given: object) -> None:
        """`given`, the session, is what functions of modules get first."""
        self.features = features
        self.service: Callable[[str], Any] = partial(getattr, None)
        """Returns the service of this name, made on first use. Raises `AttributeError` if no feature has it, or nobody
        has made `Services` of the session."""
        self._settings = settings
        self._workspace = workspace
        self._given = given

    def call(self, where: str, *arguments: Any, given: Any = None) -> Any:
        """Calls what a feature names: `service.method`, or a function of a module, which gets `given`, by default the
        session, before the arguments."""
        if ":" in where:
            return called(where, self._given if given is None else given, *arguments)
        name, _, method = where.partition(".")
        return getattr(self.service(name), method)(*arguments)

    def each(self, field: str, *arguments: Any, given: Any = None) -> Iterator[Any]:
        """Calls everything that this field of the features names; yields what is not None."""
        for where in self.features.each(field):
            if (found := self.call(where, *arguments, given=given)) is not None:
                yield found

    def tell(self, event: str, *arguments: Any) -> None:
        """Tells the features that are on of one of the `EVENTS`."""
        for where, places in self._told.get(event, ()):
            if not places or any(os.access(place, os.F_OK) for place in places):
                self.call(where, *arguments)

    def ask(self, question: str, *arguments: Any) -> Any:
        """The answer to one of the `QUESTIONS`; None if nobody answers it. A feature that is off answers, too: what it
        has made is still there."""
        where = self._asked.get(question)
        return None if where is None else self.call(where, *arguments)

    @cached_property
    def _told(self) -> Mapping[str, list[tuple[str, list[str]]]]:
        """By event what follows from it, and the places of which one must be there."""
        found: dict[str, list[tuple[str, list[str]]]] = {}
        for feature in filter(self._is_wanted, self.features.on):
            places = [f"{self._workspace.path}/{place}" for place in feature.only_where]
            for event, where in feature.on.items():
                found.setdefault(event, []).append((where, places))
        return found

    @cached_property
    def _asked(self) -> Mapping[str, str]:
        return {key: where for one in self.features.all if self._is_wanted(one) for key, where in one.answers.items()}

    def _is_wanted(self, feature: Feature) -> bool:
        """Whether the setting is there without which nothing is to be imported for the feature."""
        if not feature.needs:
            return True
        found = getattr(self._settings, feature.needs, None) or self._settings.of(feature.needs)
        return feature.name in self.features and found is not None

    def hold(self, agent_id: str) -> Any:
        """What holds the rings for an agent, whatever is off by now; one access(2) if nothing does, as it is asked at
        every sending."""
        for path, where in self._holds:
            if os.access(path.format(agent_id=agent_id), os.F_OK) and (found := self.call(where, agent_id)) is not None:
                return found
        return None

    def upkeep(self, agent_id: str) -> list[tuple[str, str]]:
        """The files to see to at each call of the agent, whatever is off by now, each with what does so."""
        return [(path.format(agent_id=agent_id), where) for path, where in self._upkeep]

    @cached_property
    def _holds(self) -> list[tuple[str, str]]:
        return self._files("holds")

    @cached_property
    def _upkeep(self) -> list[tuple[str, str]]:
        return self._files("upkeep")

    def _files(self, field: str) -> list[tuple[str, str]]:
        named = (pair for feature in self.features.all for pair in getattr(feature, field).items())
        return [(f"{self._workspace.path}/{path}", where) for path, where in named]

    def next_action(self, agent: Agent, purpose: str, *, before_work: bool) -> dict[str, Any] | None:
        """What an agent is to do next in a session of this purpose, before its own work or else after it."""
        found = (self.call(action.of, agent) for action in self._actions(purpose, before_work=before_work))
        return next(filter(None, found), None)

    def has_action(self, agent: Agent, purpose: str, *, before_work: bool) -> bool:
        """Whether `next_action` would return anything. Changes nothing."""
        return any(self.call(action.waits, agent) for action in self._actions(purpose, before_work=before_work))

    def _actions(self, purpose: str, *, before_work: bool) -> Iterator[Action]:
        return (one for one in self._ranked if purpose in one.purposes and (one.rank < WORK) is before_work)

    @cached_property
    def _ranked(self) -> list[Action]:
        return sorted(self.features.each("actions"), key=lambda action: action.rank)

    def operations(self) -> Iterator[Any]:
        """The services that apply operations, which another process may have to finish, whatever is off by now."""
        return (self.service(name) for feature in self.features.all for name in feature.operations)

    def still_open(self, kept: Features) -> dict[str, Any]:
        """The features of this package that are not `kept` although something of theirs is open: their names, with the
        ids of it."""
        left_out = (one for one in self.features.all if one.still_open and one.name not in kept)
        found = {one.name: self.call(one.still_open) for one in left_out}
        return {name: ids for name, ids in found.items() if ids}

    @cached_property
    def expiring(self) -> list[tuple[Partition[Any], str]]:
        """The places of what may end although no file changes, each with what ends it."""
        ends = [(kind, one.expires.get(kind.directory)) for one in self.features.on for kind in one.kinds]
        collection = self._workspace.collection
        return [(collection(kind).whole, where) for kind, where in ends if where is not None]

    def end_expired(self) -> None:
        """Ends whatever has run out; a stat(2) for each kind where nothing is open."""
        for place, where in self.expiring:
            if place.open():
                self.call(where)
