"""Patterns as in .gitignore: which lists can match the same file."""

from __future__ import annotations

import pytest

from multi_agent_mcp.domain.reservation import can_overlap, expressions, matcher, parsed_patterns
from multi_agent_mcp.errors import InvalidArguments


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("src/", "src/x/y.py"),
        ("src/", "src"),
        ("*.py", "src/"),
        ("src/*.py", "src/app.py"),
        ("src/**", "src/api/**"),
        ("src/**/a.py", "src/a.py"),
        ("README.md", "docs/README.md"),
        ("a*", "*b"),
        ("[ab].c", "[!a].c"),
        ("*", "a/b"),
        ("a/*", "a/b/c"),
        ("*.py", "src"),
        ("v1.2", "v1.2/a/*.md"),
        (".github", "*.yml"),
    ],
)
def test_patterns_that_can_match_one_file_overlap(one: str, other: str) -> None:
    assert can_overlap([one], [other])
    assert can_overlap([other], ["elsewhere/", one])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("src/", "docs/"),
        ("README.md", "src/"),
        ("Makefile", "Dockerfile"),
        ("*.md", "*.py"),
        ("/README.md", "docs/README.md"),
        ("src/*.py", "src/x/y.py"),
        ("[ab].c", "[!ab].c"),
        ("docs/?.md", "docs/ab.md"),
        ("a/b", "a/c"),
        ("*.md", "src/a.py"),
        ("test_*", "/src/a.py"),
        ("src/**/*.md", "src/a.py"),
        ("[", "src/a.py"),
    ],
)
def test_patterns_that_cannot_match_one_file_do_not(one: str, other: str) -> None:
    assert not can_overlap([one], [other])
    assert not can_overlap([other], [one])


def test_an_absolute_path_in_the_working_tree_is_meant_relative_to_it() -> None:
    assert parsed_patterns(["/home/it/src/a.py", "./b", " c "], "/home/it") == ("/src/a.py", "b", "c")


def test_an_exception_counts_for_the_file_that_it_names() -> None:
    assert not can_overlap(["docs/*", "!docs/a.md"], ["docs/a.md"])
    assert can_overlap(["docs/*", "!docs/a.md"], ["docs/b.md"])


def test_a_hook_matches_with_the_expressions_as_the_library_does() -> None:
    import re

    patterns = ["src/*.py", "!src/own.py", "docs/"]
    for path in ("src/a.py", "src/own.py", "docs/x/y", "docs", "src/x/a.py"):
        found = [includes for includes, text in expressions(patterns) if re.match(text, path)]
        assert bool(found and found[-1]) == matcher(patterns)(path)


@pytest.mark.parametrize("patterns", [[], [""], ["#x"], ["../x"], ["a/../../b"], ["a\nb"], ["!a"], ["x" * 301], ["/"]])
def test_what_is_no_pattern_is_refused(patterns: list[str]) -> None:
    with pytest.raises(InvalidArguments):
        parsed_patterns(patterns)
