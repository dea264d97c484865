"""The records of features: whatever they name is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from operator import attrgetter

import click
import pytest

from multi_agent_mcp.cli.main import COMMANDS, app
from multi_agent_mcp.demo.commands import NAMES
from multi_agent_mcp.domain.notification import ACTIONS
from multi_agent_mcp.domain.task import TASK_STATUSES
from multi_agent_mcp.features import Feature, Features, load
from multi_agent_mcp.features.ours import ALL, OURS, SECTIONS
from multi_agent_mcp.pool.watches import OF_TASKS
from multi_agent_mcp.server.tools import TOOLS, tools_of
from multi_agent_mcp.wiring import Services

OPTIONAL = ("questions", "reservations", "proof", "worktrees", "usage", "telemetry", "timeline", "machines")


def functions(feature: Feature) -> list[str]:
    """The code that a record names by module."""
    return [
        *(command.where for command in feature.commands.values()),
        *(endpoint.where for endpoint in feature.endpoints),
        *(*feature.tools, *feature.items, *feature.judges, *feature.settings.values()),
        *(kind.follows for kind in feature.kinds if kind.follows),
        *(*feature.checks.values(), *feature.verifications.values()),
    ]


def test_exactly_these_can_be_left_out() -> None:
    assert tuple(feature.name for feature in OURS if feature.optional) == OPTIONAL


@pytest.mark.parametrize("feature", OURS, ids=lambda feature: feature.name)
def test_whatever_a_record_names_is_there(feature: Feature, services: Services) -> None:
    for where in functions(feature):
        assert load(where) is not None, where
    for name in (*feature.operations, *feature.briefing, *filter(None, [feature.still_open])):
        assert attrgetter(name)(services) is not None, name
    assert {command.section for command in feature.commands.values()} <= set(SECTIONS)
    assert set(feature.while_waiting) <= TOOLS.keys()
    assert {*feature.of_agents, *filter(None, [feature.switch])} <= feature.settings.keys()


def at(path: str) -> click.Command:
    """The command of this name, with those above it."""
    command: click.Command | None = app
    for name in path.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(app), name)
    assert command is not None
    return command


def said(path: str) -> Iterator[str]:
    """What is said of a command, its arguments and its options."""
    command, lines = at(path), dict(ALL.each("commands"))
    yield lines[path].help if path in lines else ""
    yield command.help or ""
    for parameter in command.params:
        yield from (getattr(parameter, "help", None) or "", parameter.metavar or "")


@pytest.mark.parametrize("feature", OURS, ids=lambda feature: feature.name)
def test_what_a_record_takes_from_others_is_there(feature: Feature) -> None:
    tools = tools_of(Features(OURS))
    choices: dict[str, tuple[str, ...]] = {"scene": NAMES, "state": OF_TASKS, "status": TASK_STATUSES}
    for tool, names in feature.arguments.items():
        for name in names:
            argument, _, inner = name.partition(".")
            schema = TOOLS[tool].described().input_schema["properties"][argument]
            assert not inner or inner in schema["items"]["properties"], name
    for name, phrases in feature.phrases.items():
        words = " ".join(" ".join([tools[name].description] if name in tools else said(name)).split())
        assert [phrase for phrase in phrases if phrase.strip() not in words] == []
    for path, names in feature.options.items():
        command = at(path)
        below = getattr(command, "commands", {})
        assert set(names) <= {parameter.name for parameter in command.params} | set(below)
    for name, values in feature.choices.items():
        for value in values:
            assert value in choices[name], name


def test_the_line_of_a_group_names_commands_that_it_has() -> None:
    named = {name: command.help.partition(": ")[2] for name, command in ALL.each("commands")}
    for name, words in named.items():
        command = app.get_command(click.Context(app), name)
        if words and isinstance(command, click.Group):
            assert {word for word in words.rstrip(".").split(", ") if " " not in word} <= command.commands.keys(), name


def test_each_notification_that_follows_from_something_does_so_by_one_rule() -> None:
    actions = [action for kind in ALL.each("kinds") if kind.follows for action in load(kind.follows)]
    assert len(set(actions)) == len(actions)
    assert set(actions) <= set(ACTIONS)


def test_nothing_is_named_twice() -> None:
    for field in ("commands", "checks", "pages", "settings"):
        names = Counter(name for feature in OURS for name in getattr(feature, field))
        assert [name for name, count in names.items() if count > 1] == []
    for field in ("directory", "prefix", "name"):
        known = Counter(getattr(kind, field) for kind in ALL.each("kinds"))
        assert [value for value, count in known.items() if value and count > 1] == []
    ranks = [rank for _, rank in ALL.each("attention")]
    assert len(set(ranks)) == len(ranks)
    assert len({name for named in COMMANDS.values() for name in named}) == sum(map(len, COMMANDS.values()))
