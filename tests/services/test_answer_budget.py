"""The size of an answer is counted in characters of its JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from multi_agent_mcp.services.answer_budget import RESERVE, AnswerBudget, clipped, first_fitting
from multi_agent_mcp.settings import Limits
from multi_agent_mcp.texts import catalogue, json_size

WORDS = st.text(max_size=300)
TEXTS = catalogue("en")


def budget_of(room: int) -> AnswerBudget:
    return AnswerBudget(Limits(answer_characters=RESERVE + room), TEXTS)


@given(st.lists(WORDS, max_size=30), st.integers(min_value=0, max_value=4_000))
def test_an_answer_is_never_larger_than_its_budget_and_says_what_is_missing(items: list[str], room: int) -> None:
    budget = budget_of(room)
    answer = budget.fitting({}, "items", items)
    kept = answer["items"]
    assert json_size(kept) <= max(room, len("[]"))
    assert kept == items[: len(kept)]
    assert ("truncated" in answer) is (len(kept) < len(items))
    if "truncated" in answer:
        assert (answer["total_count"], answer["how_to_continue"]) == (len(items), TEXTS("more.list"))


@given(st.lists(st.lists(WORDS, max_size=10), min_size=1, max_size=5))
def test_of_each_list_the_newest_are_kept(lists: list[list[str]]) -> None:
    holders = [{"words": words} for words in lists]
    budget_of(1_000).newest_of_each(holders, "words")
    for holder, words in zip(holders, lists, strict=True):
        kept = holder["words"]
        assert kept == words[len(words) - len(kept) :]
        assert ("words_truncated" in holder) is (len(kept) < len(words))
    assert sum(json_size(holder["words"]) for holder in holders) <= 1_000


@given(st.text(max_size=2_000), st.integers(min_value=1, max_value=500))
def test_a_clipped_text_is_the_beginning_and_tells_the_length(text: str, characters: int) -> None:
    shown = clipped(text, characters)
    assert shown is not None
    if shown != text:
        beginning, _, length = shown.rpartition("… (")
        assert text.startswith(beginning)
        assert length == f"{len(text)})"
        assert len(json.dumps(beginning, ensure_ascii=False)) <= characters + 2


def test_nothing_smaller_is_taken_after_what_did_not_fit() -> None:
    assert first_fitting(["a", "b" * 100, "c"], 20) == ["a"]
