"""The records of features: whatever they name is there."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter

import click
import pytest

from multi_agent_mcp.cli.main import COMMANDS, app
from multi_agent_mcp.domain.notification import ACTIONS
from multi_agent_mcp.features import Feature, load
from multi_agent_mcp.features.ours import ALL, OURS, SECTIONS
from multi_agent_mcp.server.tools import TOOLS
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


@pytest.mark.parametrize("feature", OURS, ids=lambda feature: feature.name)
def test_what_a_record_takes_from_others_is_there(feature: Feature) -> None:
    for tool, names in feature.arguments.items():
        for name in names:
            argument, _, inner = name.partition(".")
            schema = TOOLS[tool].described().input_schema["properties"][argument]
            assert not inner or inner in schema["items"]["properties"], name
    lines = {name: command.help for name, command in ALL.each("commands")}
    for name, phrases in feature.phrases.items():
        for phrase in phrases:
            assert phrase in (TOOLS[name].description if name in TOOLS else lines[name])
    for path, names in feature.options.items():
        command = app.get_command(click.Context(app), path.split()[0])
        for name in path.split()[1:]:
            command = command.commands[name]  # type: ignore[union-attr]
        assert command is not None
        below = getattr(command, "commands", {})
        assert set(names) <= {parameter.name for parameter in command.params} | set(below)


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
