"""A captured pane as cells that a page can show."""

from __future__ import annotations

import pytest

from multi_agent_mcp.doorbell.tmux.screens import parsed
from multi_agent_mcp.doorbell.tmux.snapshot import pieces
from tests.doorbell.tmux.test_screens import FIXTURES, SCREENS


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("plain", [{"text": "plain"}]),
        ("\x1b[1;31mred\x1b[0m on", [{"text": "red", "fg": "1", "bold": True}, {"text": " on"}]),
        ("\x1b[38;5;196mr\x1b[48;5;244mg\x1b[49mb", [
            {"text": "r", "fg": "#ff0000"}, {"text": "g", "fg": "#ff0000", "bg": "#808080"},
            {"text": "b", "fg": "#ff0000"},
        ]),
        ("\x1b[38;2;1;2;3;4mx\x1b[24;39my", [{"text": "x", "fg": "#010203", "underline": True}, {"text": "y"}]),
        ("\x1b[97;100mx\x1b[7mi", [
            {"text": "x", "fg": "15", "bg": "8"}, {"text": "i", "fg": "15", "bg": "8", "inverse": True},
        ]),
        ("a日本b", [{"text": "a"}, {"text": "日本", "wide": True}, {"text": "b"}]),
        ("\x1b[38;5;999mx\x1b[38;2;1my\x1b[777mz", [{"text": "x"}, {"text": "y"}, {"text": "z"}]),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", [{"text": "link"}]),
        ("a\x0elqk\x0fq", [{"text": "a"}, {"text": "┌─┐"}, {"text": "q"}]),
        ("<b>no markup</b>", [{"text": "<b>no markup</b>"}]),
    ],
)  # fmt: skip
def test_a_line_is_pieces_of_one_look(line: str, row: list[dict[str, object]]) -> None:
    assert [list(found) for found in pieces([line])] == [row]


def test_a_look_goes_on_in_the_next_row() -> None:
    assert [list(row) for row in pieces(["\x1b[32mone", "two"])] == [
        [{"text": "one", "fg": "2"}],
        [{"text": "two", "fg": "2"}],
    ]


@pytest.mark.parametrize("name", SCREENS)
def test_no_letter_of_a_real_screen_is_lost(name: str) -> None:
    lines = (FIXTURES / f"{name}.ansi.txt").read_text(encoding="utf-8").split("\n")
    rows, _ = parsed(lines)
    assert ["".join(piece["text"] for piece in row).rstrip(" ") for row in pieces(lines)] == list(rows)
