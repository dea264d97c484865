"""Patterns as in .gitignore: which lists can match the same file."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from multi_agent_mcp.domain.patterns import can_overlap, matcher, parsed_patterns
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


TOKENS = ["a", "b", "ab", "*", "?", "**", "/", "[ab]", "[!c]", "a*", "*b", "**/", "/**", "\\a", "\\*", "[a-b]", ".c"]
PATTERN = st.builds(
    str.__add__,
    st.sampled_from(["", "", "", "!"]),
    st.lists(st.sampled_from(TOKENS), min_size=1, max_size=6).map("".join),
)
PATH = st.lists(st.sampled_from(["a", "b", "ab", "ba", "aab", "c", "*", "a.c"]), min_size=1, max_size=5).map("/".join)


@given(st.lists(PATTERN, min_size=1, max_size=3), PATH)
def test_patterns_match_as_in_git(patterns: list[str], path: str) -> None:
    """As `pathspec` has it, but that no bracket matches a slash, and `/` by itself nothing, as in git."""
    try:
        spec = GitIgnoreSpec.from_lines(patterns)
    except ValueError:
        assume(False)
    assume(not {"/", "!/"} & {*patterns})
    assume("/" not in path or not any("[!" in pattern for pattern in patterns))
    assert matcher(patterns)(path) == spec.match_file(path)


@pytest.mark.parametrize("path", ["a" * 4_000, "a/" * 2_000 + "a", "ab/" * 1_000])
@pytest.mark.parametrize(
    "pattern",
    ["[a-z]*" * 45 + "1", "**/a/" * 55 + "z", "*a" * 140 + "z", "**/*a*/" * 40 + "z", "a**b" * 70, "?*" * 150],
)
def test_no_number_of_wildcards_makes_a_match_long(pattern: str, path: str) -> None:
    """It would take longer than the universe has been there: that it ends is the test."""
    assert not matcher([pattern])(path) or "?" in pattern
    can_overlap([pattern], [pattern[::-1].replace("]z-a[", "[a-z]"), path[:200]])


def test_a_range_of_all_characters_costs_nothing() -> None:
    assert can_overlap(["[\x01-\U0010ffff]" * 40], ["x" * 40])


NAMES = [
    "app/blog/[slug]/page.tsx",
    "app/[[...all]]/page.tsx",
    "[post-id]/x",
    "src/back\\slash.c",
    "a[b",
    "[",
    "[z-a]",
    "x\\",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_without_wildcards_outside_brackets_is_that_file(name: str) -> None:
    (pattern,) = parsed_patterns([name], "/home/it")
    assert matcher([pattern])(name)
    assert not matcher([pattern])("other/page.tsx")
    assert can_overlap([pattern], [name])
    assert not can_overlap([pattern], ["/elsewhere/x.py"])


@pytest.mark.parametrize("name", ["#x", "!x", "ends with ", "what?", "[!a-\\]z]"])
def test_a_file_that_exists_is_that_file_whatever_its_name(name: str) -> None:
    (pattern,) = parsed_patterns([name], "/home/it", lambda path: path == name)
    assert matcher([pattern])(name)
    assert not matcher([pattern])("x")


@pytest.mark.parametrize(
    ("given", "meant", "not_meant"),
    [
        ("src/**", "packages/[app]/src/a.py", "src/a.py"),
        ("src/", "packages/[app]/src/a.py", "src/a.py"),
        ("new/x.py", "packages/[app]/new/x.py", "new/x.py"),
        ("*.py", "packages/[app]/src/a.py", "b.py"),
        ("./src", "packages/[app]/src/a.py", "src/a.py"),
        ("packages/[app]/src", "packages/[app]/src/a.py", "packages/[app]/packages/[app]/src/a.py"),
        ("/docs", "docs/a.md", "packages/[app]/docs/a.md"),
        ("docs/*.md", "docs/a.md", "packages/[app]/docs/a.md"),
        ("what?", "packages/[app]/what?", "packages/[app]/whats"),
        ("/home/it/packages/[app]/src", "packages/[app]/src/a.py", "src/a.py"),
    ],
)
def test_who_works_below_the_top_means_what_is_there(given: str, meant: str, not_meant: str) -> None:
    there = {"packages", "packages/[app]", "packages/[app]/src", "packages/[app]/src/", "packages/[app]/what?", "docs"}
    found = parsed_patterns([given], "/home/it", lambda path: path in there, "packages/[app]")
    assert (matcher(found)(meant), matcher(found)(not_meant)) == (True, False), found


def test_letters_may_be_composed_or_not() -> None:
    assert matcher(["caf\u00e9/"])("cafe\u0301/menu")
    assert matcher(["cafe\u0301/"])("caf\u00e9/menu")


@pytest.mark.parametrize(
    "patterns",
    [
        [],
        [""],
        ["#x"],
        ["../x"],
        ["a/../../b"],
        ["a\nb"],
        ["!a"],
        ["x" * 301],
        ["/"],
        ["[!a-\\]z]"],
        ["a*[z-a]"],
        ["*\\"],
    ],
)
def test_what_is_no_pattern_is_refused(patterns: list[str]) -> None:
    with pytest.raises(InvalidArguments):
        parsed_patterns(patterns)
