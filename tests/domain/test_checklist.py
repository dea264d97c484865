"""The requested items, compared with the reported ones."""

from __future__ import annotations

from multi_agent_mcp.domain.task_reports import compare, without_items


def test_what_was_asked_for_comes_first_whether_it_was_reported_or_not() -> None:
    description = "Do:\n- [ ] Write  it\n  * [x] test it\n1. [ ] ship it\n- no item\n- [ ]\n"
    reported = [{"text": "WRITE it", "completed": True}, {"text": "and more", "completed": False}]
    assert [tuple(item.values()) for item in compare(description, reported)] == [
        ("Write  it", True, True, True),
        ("test it", False, True, False),
        ("ship it", False, True, False),
        ("and more", False, False, True),
    ]


def test_a_description_without_a_list_leaves_what_was_reported() -> None:
    assert compare("- [] a\n[ ] b\n-[ ] c", [{"text": "x", "completed": True}]) == [
        {"text": "x", "completed": True, "asked": False, "reported": True}
    ]
    assert compare("- [ ] " + " " * 100_000, []) == []


def test_a_list_that_is_shown_as_one_is_taken_out_of_its_description_only_if_nothing_explains_it_there() -> None:
    assert without_items("Please:\n\n- [ ] dig\n\n- [x] fill\n\nThanks") == "Please:\n\n\nThanks"
    assert without_items("- [ ] dig\n- [ ] fill\n") == ""
    for whole in ("- [ ] dig\nFor it:\n- [ ] buy", "- [ ] dig\n  deep", "no list", ""):
        assert without_items(whole) == whole
