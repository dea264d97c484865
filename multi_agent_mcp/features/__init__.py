"""What one subject of the product brings, in one record: its kinds of files, tools, commands, pages, checks, …

Whatever lists such things (`tools/list`, `--help`, `doctor`, `attention`, …) iterates over the records and keeps no
list of its own. A record names code by text, `module:name`, which is imported when it is needed (modules of this
package begin with a dot). So records are read at every start, and this module imports nothing that takes time.

`features.ours` has the records of this package, core and optional ones alike (those of optional folders that are
there), `features.chosen` those that are on in a
session, and those of other packages (docs/first-change.md, A feature).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

GROUP = "multi_agent_mcp.features"
"""The group of entry points by which other packages add features."""


class Kind(NamedTuple):
    """A kind of entities. `directory` is where they are in the session's directory, `prefix` that of their ids, `name`
    what one is called in JSON (`task`); without it an id finds none of them. `follows` names the rules of which
    notifications follow from one (`domain.notification.Rules`). `travels` says how they reach other machines
    (`hub.subjects.Rule`; "": not at all). `is_searched`: `search` reads them, and calls one `found.{name}`. `entity` is
    the class of a kind of another package, whose files are in the directory itself, each named by its id. `layout`
    names what makes the `store.partition.Layout` of an optional kind, and `claims` the kind of values by which the hub
    orders its changes; no machine has a file of those."""

    directory: str
    prefix: str = ""
    name: str = ""
    travels: str = ""
    is_searched: bool = False
    entity: str = ""
    layout: str = ""
    claims: str = ""
    follows: str = ""


class Command(NamedTuple):
    """A command: its section in `--help`, the function, and its line there, for which nothing has to be imported."""

    section: str
    where: str
    help: str


class Endpoint(NamedTuple):
    """An endpoint of the console's API: the path is below `/api`."""

    method: str
    path: str
    where: str


WORK = 50
"""The rank of an agent's own work among next actions: its task, what it is to decide, its mail."""


class Action(NamedTuple):
    """A next action: its rank (before `WORK`, the lowest first, or after it, for an agent with nothing else to do);
    `of(agent) -> the answer of get_next_action, or None`; `waits(agent) -> whether there is one`, which changes
    nothing; and the purposes of the sessions that get it."""

    rank: int
    of: str
    waits: str
    purposes: tuple[str, ...] = ("task",)


class Feature(NamedTuple):
    """What one subject brings. Give every field by its name: more may come.

    Code is named as `module:name`, or as `service.method` of one of our services (`wiring.Services`).
    """

    name: str
    """Its name in `features:` of session.yaml."""
    optional: bool = False
    """Whether a session can do without it."""
    switch: str = ""
    """The key of session.yaml, and team.yaml, without which it is off."""
    settings: Mapping[str, str] = {}
    """Its keys of session.yaml and team.yaml → their parsers: `parse(value, key) -> what Settings.of(key) is`, which
    raises `InvalidArguments` (`settings.refused`)."""
    of_agents: tuple[str, ...] = ()
    """Those of them that an agent may have, too."""
    requires: tuple[str, ...] = ()
    """The features without whose folder it is not there."""
    kinds: tuple[Kind, ...] = ()
    topics: Mapping[str, str] = {}
    """Directories or files of the session → what pages of the console look at again when something there changes."""
    services: Mapping[str, str] = {}
    """Its services by name: their classes, whose fields name their neighbours."""
    on: Mapping[str, str] = {}
    """Events (`contributions.EVENTS`) → what follows from them, in the order of the features."""
    only_where: tuple[str, ...] = ()
    """Directories or files below the session's directory without any of which it need not be told of events."""
    needs: str = ""
    """The setting without which it gets no events and no questions."""
    answers: Mapping[str, str] = {}
    """What others may ask (`contributions.QUESTIONS`) → what answers it."""
    expires: Mapping[str, str] = {}
    """Directories of kinds of which something may end although no file changes → what ends it."""
    upkeep: Mapping[str, str] = {}
    """Files below the session's directory, with `{agent_id}` → what is done at each call of that agent while there is
    one: `service.method(agent's id)`."""
    holds: Mapping[str, str] = {}
    """Files, named as for `upkeep` → what holds the rings for that agent while there is one: `service.method(agent's
    id) -> doorbell.ringing.Hold, or None`."""
    supervised: tuple[str, ...] = ()
    """What the supervisor looks at every few seconds: `service.method() -> lines for it to print, or None`."""
    operations: tuple[str, ...] = ()
    """The services that finish what another process has begun (`services/operations.py`)."""
    tools: tuple[str, ...] = ()
    """Tuples of `server.calls.Tool`."""
    arguments: Mapping[str, tuple[str, ...]] = {}
    """Tools of other features → arguments that are its own; in items of a list as `tasks.done_when`."""
    keys: Mapping[str, tuple[str, ...]] = {}
    """Entities of other features → keys in answers about one that are its own."""
    choices: Mapping[str, tuple[str, ...]] = {}
    """Arguments of other features' tools and commands, by their own name → values that are its own: `status` →
    `review`."""
    phrases: Mapping[str, tuple[str, ...]] = {}
    """Tools and commands of other features (`task add`) → what their descriptions, and those of a command's arguments
    and options, say of it."""
    while_waiting: tuple[str, ...] = ()
    """The tools that an Owner may call who waits for an answer."""
    commands: Mapping[str, Command] = {}
    former_commands: Mapping[str, str] = {}
    """Names that commands had, which go on working and are listed nowhere → the words of what they are called now."""
    options: Mapping[str, tuple[str, ...]] = {}
    """Commands of other features → parameters and commands below them that are its own."""
    endpoints: tuple[Endpoint, ...] = ()
    downloads: Mapping[str, str] = {}
    """Files that the console offers: the path → `download(call) -> {"content": text, "type": its media type}`."""
    styles: tuple[str, ...] = ()
    """What yields the style sheets that pages contain and do not link: `styles() -> Iterable[str]`."""
    pages: tuple[str, ...] = ()
    """The console's pages, by the names of their templates."""
    checks: Mapping[str, str] = {}
    """The checks of `doctor`: `check(context) -> Iterable[Finding]`."""
    verifications: Mapping[str, str] = {}
    """Those that read everything, and run only when asked for."""
    attention: Mapping[str, int] = {}
    """Kinds of items that wait for a person → their rank, the most serious lowest."""
    items: tuple[str, ...] = ()
    """What yields such items: `items(attention, person) -> Iterable[Item]`; `attention.session` is the session."""
    actions: tuple[Action, ...] = ()
    """What agents are to do next."""
    briefing: tuple[str, ...] = ()
    """Sections of the briefing: `service.method(agent, task in hand or None) -> text or None`, or a function of a
    module that is given the session before."""
    judges: tuple[str, ...] = ()
    """What judges a tool call of a host before it is made: `judge(calls, agent, call) -> why not, or None`, where
    `calls.session` is the session."""
    watched: tuple[str, ...] = ()
    """Tables of `watch`: `watched(services, now) -> cli.watch.Part`."""
    of_agent: tuple[str, ...] = ()
    """What the console shows of an agent's files: `of_agent(services, agent) -> Mapping`."""
    texts: str = ""
    """The texts of another package, by language and key: `{"en": {"finding.no_greeting": "…"}, "ja": …}`."""
    still_open: str = ""
    """What returns the ids of all that prevents switching it off: `service.method() -> Sequence[str]`, or a function of
    a module that is given the session."""


def load(where: str) -> Any:
    """What a record names as `module:name`."""
    module, _, name = where.partition(":")
    return attrgetter(name)(import_module(module, "multi_agent_mcp"))


def attempted(where: str, attempt: Callable[[], T], otherwise: T) -> T:
    """What is made of something that a record names. Where that fails for another package it is logged, and `otherwise`
    is returned: it takes nothing from the others."""
    try:
        return attempt()
    except (Exception, SystemExit) as error:
        if where.startswith("."):
            raise
        import logging  # `--help` need not wait for it

        logging.getLogger(__name__).warning("%s of a feature failed: %s: %s", where, type(error).__name__, error)
        return otherwise


def called(where: str, *arguments: Any) -> Any:
    """What a function that a record names returns; None if it is of another package and fails."""

    def call() -> Any:
        found = load(where)(*arguments)
        return list(found) if isinstance(found, Iterator) and not where.startswith(".") else found

    return attempted(where, call, None)


class Features:
    """The features of a session: `on`, and those that are `off`."""

    def __init__(self, on: tuple[Feature, ...], off: tuple[Feature, ...] = ()) -> None:
        self.on = on
        self.off = off
        self._names = frozenset(feature.name for feature in on)

    def __contains__(self, name: str) -> bool:
        """Whether the feature of this name is on."""
        return name in self._names

    def __iter__(self) -> Iterator[Feature]:
        return iter(self.on)

    @property
    def all(self) -> tuple[Feature, ...]:
        """Those that are on and off: files of one that is off are still there."""
        return self.on + self.off

    def each(self, field: str) -> Iterator[Any]:
        """Everything in this field of the features that are on; of a mapping its items."""
        for feature in self.on:
            found = getattr(feature, field)
            yield from found.items() if isinstance(found, Mapping) else found

    def shown(self, name: str, record: Mapping[str, Any]) -> dict[str, Any]:
        """An answer about an entity of this name, without the keys of features that are off."""
        foreign = self.foreign("keys", name)
        return {key: value for key, value in record.items() if key not in foreign}

    def said(self, name: str, words: str) -> str:
        """A description of the tool or command of this name, without what it says of features that are off."""
        for phrase in sorted(self.foreign("phrases", name), key=len, reverse=True):
            words = re.sub(r"\s+".join(map(re.escape, phrase.split(" "))), "", words)
        return words

    def offered(self, name: str, choices: Iterable[str]) -> tuple[str, ...]:
        """The values that an argument of this name can have, without those of features that are off."""
        foreign = self.foreign("choices", name)
        return tuple(choice for choice in choices if choice not in foreign)

    def foreign(self, field: str, name: str) -> set[str]:
        """What belongs to features that are off in something of this name that is not theirs: arguments and phrases of
        a tool, options of a command."""
        return {part for feature in self.off for part in getattr(feature, field).get(name, ())}
