"""The wiring: every service is made, of what the names of its fields say."""

from __future__ import annotations

import ast
import re
from operator import attrgetter
from pathlib import Path
from types import MethodType

import pytest

import multi_agent_mcp
from multi_agent_mcp.contributions import EVENTS, QUESTIONS
from multi_agent_mcp.features.ours import OURS
from multi_agent_mcp.wiring import ByName, Services, _Part

PACKAGE = Path(multi_agent_mcp.__file__).parent
BY_NAME = sorted(name for name in vars(ByName) if not name.startswith("_"))


@pytest.mark.parametrize("name", BY_NAME)
def test_a_service_is_given_what_its_fields_are_said_to_be(services: Services, name: str) -> None:
    service = getattr(services, name)
    assert type(service).__name__ == ByName.__annotations__[name]
    for parameter, kind in type(service).__init__.__annotations__.items():
        if parameter in ("return", "session") or not kind.isidentifier():
            continue
        given = vars(service).get(parameter, vars(service).get(f"_{parameter}"))
        if given is not None and not isinstance(given, MethodType):  # it is kept, and of a kind that has a name
            assert kind in {base.__name__ for base in type(given).__mro__}, parameter


@pytest.mark.parametrize("name", ["notifier", "contributions", "pane_notifier", "worktrees"])
def test_what_is_wired_by_hand_or_by_a_feature_is_made_once(services: Services, name: str) -> None:
    get = attrgetter(name)
    assert get(services) is get(services)


def leads_back(value: object) -> bool:
    """Whether a call of this runs code of the wiring."""
    owner = getattr(value, "__self__", None)
    return isinstance(owner, Services) or getattr(value, "__module__", "") == Services.__module__


def test_no_way_leads_back_into_the_wiring_but_the_contributions(services: Services) -> None:
    names = [name for kind in (ByName, Services) for name, part in vars(kind).items() if isinstance(part, _Part)]
    names += [name for feature in OURS for name in feature.services]
    made = {name: vars(getattr(services, name)) for name in names}
    found = {f"{name}.{field}" for name, kept in made.items() for field, value in kept.items() if leads_back(value)}
    assert found == set()


def named(method: str) -> set[str]:
    """What the package calls this method of the contributions with, as its first argument."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(value=asked, attr=called), args=[ast.Constant(value=str(name)), *_]):
                    if called == method and ast.unparse(asked).endswith("contributions"):
                        found.add(name)
    return found


def test_whatever_is_told_or_asked_is_in_the_tables_and_somebody_listens() -> None:
    assert named("tell") == EVENTS.keys() == {event for feature in OURS for event in feature.on}
    answered = {question for feature in OURS for question in feature.answers}
    assert named("ask") == QUESTIONS.keys() == answered


def test_every_service_that_a_door_names_is_there(services: Services) -> None:
    known = {*dir(services), *vars(services), *(name for feature in OURS for name in feature.services)}
    texts = (path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py") if path.parent.name != "features")
    named = {name for text in texts for name in re.findall(r"(?<!feature\.)\bservices\.(\w+)", text)}
    assert named - known - {path.stem for path in (PACKAGE / "services").iterdir()} - {"items"} == set()
