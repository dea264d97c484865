"""Reasons why a message was not delivered further: every reason the doorbell gives has a sentence for a person."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from string import Formatter

import pytest

from multi_agent_mcp.doorbell.tmux.profiles import load_profiles
from multi_agent_mcp.doorbell.tmux.screens import TYPEABLE, UNKNOWN
from multi_agent_mcp.texts import LANGUAGES, PEOPLE, catalogue
from tests.test_layers import layer, modules

CARRIERS = {"Delivery": 1, "Echo": 0, "Classification": 0}
"""Classes that carry a reason to the delivery log, with the position of that argument. The state of a classification is
a reason unless it is harmless (`TYPEABLE`) or `unknown`, whose reason is `unknown_screen`."""
GIVES_REASONS = ("str | None", "PaneSnapshot | str", "Attempt | str", "Profile | str")
"""Return annotations of those functions in `doorbell/` that return the reason of a failure."""


def codes_of(module: str, given: ast.expr | None) -> Iterator[str]:
    """Yields the texts an expression may evaluate to: literals, constants by name, both branches, and values returned
    by functions of the module."""
    match given:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Name(id=name) if name.isupper():
            if isinstance(value := getattr(import_module(module), name), str):
                yield value
        case ast.IfExp(body=one, orelse=other):
            yield from (*codes_of(module, one), *codes_of(module, other))
        case ast.BoolOp(values=values):
            for value in values:
                yield from codes_of(module, value)
        case ast.Call(func=ast.Name(id=name)):
            for function in functions(module):
                if function.name == name:
                    yield from returned(module, function)


def functions(module: str) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(modules()[module]) if isinstance(node, ast.FunctionDef))


def returned(module: str, function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Return):
            yield from codes_of(module, node.value)
        elif isinstance(node, ast.Dict):  # a table of reasons and their conditions
            for key in node.keys:
                yield from codes_of(module, key)


def carried(module: str) -> Iterator[str]:
    for node in ast.walk(modules()[module]):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CARRIERS:
            place = CARRIERS[node.func.id]
            yield from codes_of(module, node.args[place] if len(node.args) > place else None)


def shown() -> Iterator[str]:
    """Yields the names in the hosts' profiles of screens into which nothing is typed."""
    for profile in load_profiles().named.values():
        yield from (view.state for view in profile.views)
        yield from profile.composer.modes if profile.composer else ()


@cache
def reasons() -> frozenset[str]:
    """Every reason that is a literal in the code; only `failed_{error}` is composed at run time."""
    found = {code for module in modules() for code in carried(module)}
    for module in notifying():
        if not module.endswith(".learning"):  # its reasons go to the user of `host learn`
            for function in functions(module):
                if function.returns is not None and ast.unparse(function.returns) in GIVES_REASONS:
                    found |= set(returned(module, function))
    return frozenset(found | set(shown())) - {*TYPEABLE, UNKNOWN}


def notifying() -> list[str]:
    return [module for module in modules() if layer(module) == "doorbell"]


@cache
def written() -> frozenset[str]:
    """Every string literal in the code, and the names of screens."""
    nodes = (node for module in modules() for node in ast.walk(modules()[module]))
    literals = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return frozenset(literals | set(shown()))


def test_the_words_of_the_doorbell_are_seen() -> None:
    assert {"no_pane", "human_typing", "pane_gone", "vim_normal", "codex_failed", "already_sent"} <= reasons()


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_reason_is_told_with_its_code_and_its_words(language: str) -> None:
    texts = catalogue(language, PEOPLE)
    assert texts.why_not_rung("a_dialog_of_a_host") == "a_dialog_of_a_host"
    assert "`agent set ID --pane %N`" in texts.why_not_rung("no_pane")  # `agent add` refuses who is registered
    assert texts.why_not_rung("failed_OSError") == f"failed_OSError: {texts('reason.failed', error='OSError')}"


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_reason_has_a_sentence_and_every_sentence_a_reason(language: str) -> None:
    texts = catalogue(language, PEOPLE)
    told = {key.removeprefix("reason.") for key in sorted(texts.keys()) if key.startswith("reason.")}
    assert reasons() - told == set()
    assert told - written() - {"failed"} == set()
    named = {code: {name for _, name, _, _ in Formatter().parse(texts(f"reason.{code}")) if name} for code in told}
    assert {code: names for code, names in named.items() if names} == {"failed": {"error"}}
