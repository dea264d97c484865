"""The picture of a session: well-formed, complete, harmless."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from multi_agent_mcp.domain.text import sanitize
from multi_agent_mcp.texts import LANGUAGES, catalogue
from multi_agent_mcp.timeline.drawing import ROWS_MAX, draw, lay_out, stylesheet
from multi_agent_mcp.timeline.events import (
    OTHERS,
    Arrow,
    Bar,
    Interruption,
    Lane,
    Life,
    PaneAnswer,
    StatusPeriod,
    Talk,
    Timeline,
)
from multi_agent_mcp.timeline.scale import Scale

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOSTILE = "</text><script>alert(1)</script>\"' &amp; \x00\x1b[2J\u202eevil\u200b\u2062\U000e0041\ud800\uffff]]>"
EN = catalogue("en")


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def task(number: int, start: float, end: float | None, *, title: str = "Build", agent_id: str = "worker") -> Bar:
    spans = (StatusPeriod(status="in_progress", start=at(start), end=None if end is None else at(end)),)
    outcome = None if end is None else "done"
    return Bar(
        task_id=f"tsk_{number}",
        title=title,
        agent_id=agent_id,
        start=at(start),
        end=spans[0].end,
        spans=spans,
        outcome=outcome,
    )


def message(number: int, sent: float, read: float | None = None, *, subject: str = "", kind: str = "request") -> Arrow:
    return Arrow(
        message_id=f"message-{number}",
        sender_id="admin",
        receiver_id="worker",
        message_type=kind,
        priority="normal",
        subject=subject,
        sent_at=at(sent),
        read_at=None if read is None else at(read),
    )


def session(text: str = "plain") -> Timeline:
    """A timeline with one of everything and this text wherever agents can write."""
    return Timeline(
        start=at(0),
        end=at(100),
        lanes=(
            Lane(agent_id="admin", role="admin"),
            Lane(agent_id="worker", role=text, depth=1),
            Lane(agent_id=OTHERS),
        ),
        arrows=(message(1, 10, 12, subject=text), message(2, 20, subject=text, kind=text)),
        bars=(task(1, 5, 60, title=text), task(2, 30, None, title=text)),
        marks=(
            Interruption(notification_id="ntf_1", agent_id="worker", action=text, message=text, at=at(50), by="admin"),
            Interruption(
                notification_id="ntf_2", agent_id="worker", action="pause", message=text, at=at(70), read_at=at(80)
            ),
        ),
        lives=(Life(session_id="ses_1", agent_id="worker", purpose=text, start=at(1)),),
        answers=(
            PaneAnswer(
                agent_id="worker", by="admin", at=at(40), question=text, choice="1", label=text, state="answered"
            ),
        ),
        talks=(
            Talk(
                conversation_id="cnv_1",
                initiator_id="admin",
                target_agent_id=text,
                purpose=text,
                status=text,
                start=at(40),
                end=at(45),
            ),
        ),
    )


def parsed(svg: str) -> Element:
    return ElementTree.fromstring(svg)  # noqa: S314 - it is our own drawing


def tags(root: Element) -> set[str]:
    return {element.tag.rpartition("}")[2] for element in root.iter()}


def stand_for(root: Element) -> Counter[tuple[str | None, str | None]]:
    found = ((element.get("data-kind"), element.get("data-id")) for element in root.iter())
    return Counter(pair for pair in found if pair[0] is not None)


def test_everything_that_happened_is_in_the_picture_and_says_what_it_stands_for() -> None:
    assert stand_for(parsed(draw(session(), texts=EN))) == {
        ("agent", "admin"): 1,
        ("agent", "worker"): 1,
        ("agent", OTHERS): 1,
        ("message", "message-1"): 1,
        ("message", "message-2"): 1,
        ("task", "tsk_1"): 1,
        ("task", "tsk_2"): 1,
        ("interrupt", "ntf_1"): 1,
        ("interrupt", "ntf_2"): 1,
        ("answer", None): 1,
        ("session", "ses_1"): 1,
        ("conversation", "cnv_1"): 2,
    }


def test_each_of_them_tells_more_on_hovering() -> None:
    root = parsed(draw(session("a subject"), texts=EN))
    silent = [item for item in root.iter() if item.get("data-kind") and not list(item.iter(f"{_namespace(root)}title"))]
    assert silent == []
    assert "<title>admin → worker: request\na subject\n" in draw(session("a subject"), texts=EN)
    assert "read +2.0 s" in draw(session(), texts=EN)


def test_the_legend_calls_a_status_what_the_board_calls_it() -> None:
    written = {element.text for element in parsed(draw(session(), texts=catalogue("ja"))).iter()}
    assert "進行中" in written
    assert "in_progress" not in written


def _namespace(root: Element) -> str:
    return root.tag.removesuffix("svg")


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_an_agent_wrote_is_text_and_commands_nothing(language: str) -> None:
    svg = draw(session(HOSTILE), texts=catalogue(language))
    root = parsed(svg)
    assert tags(root) == tags(parsed(draw(session(), texts=catalogue(language))))
    assert "alert(1)" in "".join(root.itertext())
    assert sanitize(svg) == svg
    assert not any(name.startswith("on") for element in root.iter() for name in element.attrib)
    svg.encode()


def test_it_stands_alone_without_links_scripts_or_style_of_its_page() -> None:
    svg = draw(session(), texts=EN).replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|href|url\(|@import|<script|<foreignObject", svg)
    names = re.findall(r"\.([\w-]+)[^{}]*\{", stylesheet())
    assert {name for name in names if not name.startswith("tl-")} == set()


def test_every_class_that_is_drawn_has_a_rule() -> None:
    root = parsed(draw(session(), texts=EN))
    used = {name for element in root.iter() for name in element.get("class", "").split()}
    groups = {"tl-message", "tl-bar", "tl-mark"}
    assert {name for name in used - groups if f".{name}" not in stylesheet()} == set()


def test_light_dark_or_as_the_reader_prefers() -> None:
    light, dark, either = (draw(session(), texts=EN, dark=dark) for dark in (False, True, None))
    assert "prefers-color-scheme" in either
    assert "prefers-color-scheme" not in light + dark
    assert light != dark


def _luminance(colour: str) -> float:
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_words_can_be_read_on_their_ground_and_lines_be_seen(dark: bool) -> None:
    css, _, paper = stylesheet(dark).partition("@media print")
    assert ("fill: #ffffff" in paper) is dark
    fill = dict(re.findall(r"\.tl-([\w-]+) \{ fill: (#\w{6}) \}", css))
    text = re.search(r"\.tl-heading \{ fill: (#\w{6})", css)
    muted = re.search(r"\.tl-tick \{ fill: (#\w{6})", css)
    assert text is not None
    assert muted is not None
    for ground in (fill["ground"], fill["stripe"]):
        assert _contrast(text[1], ground) >= 4.5
        assert _contrast(muted[1], ground) >= 4.5
        assert _contrast(fill["sign-word"], ground) >= 4.5
        for ink in re.findall(r"\.tl-ink-[\w-]+ \{ stroke: (#\w{6})", css):
            assert _contrast(ink, ground) >= 3.0
    for status in ("backlog", "todo", "in_progress", "blocked"):
        assert _contrast(text[1], fill[f"fill-{status}"]) >= 4.5


def test_overlapping_tasks_are_in_different_rows_and_a_crowd_stays_in_bounds() -> None:
    apart = Timeline(start=at(0), end=at(100), lanes=(Lane(agent_id="worker"),), bars=(task(1, 0, 40), task(2, 60, 90)))
    scale = Scale(apart.start, apart.end, 0, 1000)
    assert [placed.row for placed in lay_out(apart, scale).bands[0].bars] == [0, 0]
    crowd = Timeline(
        start=at(0), end=at(100), lanes=apart.lanes, bars=tuple(task(number, number, 99) for number in range(50))
    )
    (band,) = lay_out(crowd, scale).bands
    assert [placed.row for placed in band.bars] == [*range(ROWS_MAX), *[None] * 44]
    assert sum(kind == "task" for kind, _ in stand_for(parsed(draw(crowd, texts=EN)))) == 50


def test_tasks_without_a_row_are_counts_of_how_many_there_are_at_a_time_once_they_are_many() -> None:
    bars = tuple(task(number, number, 600) for number in range(500))
    root = parsed(draw(Timeline(start=at(0), end=at(600), lanes=(Lane(agent_id="worker"),), bars=bars), texts=EN))
    found = Counter(kind for kind, _ in stand_for(root))
    assert found["task"] == ROWS_MAX
    titles = (count.findtext("{*}title") or "" for count in root.iterfind(".//*[@data-kind='count']"))
    told = [int(title.rpartition(" ")[2]) for title in titles]
    assert told == sorted(told), "they all go on to the end"
    assert told[-1] == 500 - ROWS_MAX


@pytest.mark.parametrize(
    ("length", "labels"),
    [
        (0.4, ["11-21 12:00:00.000", "12:00:00.050"]),
        (60, ["11-21 12:00:00", "12:00:10"]),
        (7_200, ["11-21 12:00", "12:15"]),
        (86_400 * 20, ["2026-11-23", "2026-11-25"]),
    ],
)
def test_the_axis_has_round_times_at_a_readable_distance(length: float, labels: list[str]) -> None:
    scale = Scale(at(0), at(length), 100, 1100)
    ticks = list(scale.ticks())
    assert [label for _, label in ticks][:2] == labels
    assert all(100 <= x <= 1100 for x, _ in ticks)
    assert all(right[0] - left[0] >= 90 for left, right in pairwise(ticks))


def test_what_is_outside_the_period_is_drawn_at_its_border() -> None:
    scale = Scale(at(0), at(10), 100, 200)
    assert [scale.x(at(-5)), scale.x(at(5)), scale.x(at(50)), scale.x(None)] == [100, 150, 200, 200]


def test_a_period_without_length_or_events_can_be_drawn() -> None:
    root = parsed(draw(Timeline(start=NOON, end=NOON), texts=EN, width=10))
    assert float(root.get("width", "")) >= 480


def test_what_is_left_out_is_said() -> None:
    assert "7 older ones" in draw(Timeline(start=NOON, end=NOON, left_out=7), texts=EN)


def hundreds(count: int) -> Timeline:
    arrows = tuple(message(n, n * 500 / count, n + 1) for n in range(count))
    return Timeline(start=at(0), end=at(500), lanes=session().lanes, arrows=arrows)


def test_more_than_a_hundred_messages_are_counts_of_what_was_sent_and_received_and_no_arrows() -> None:
    root = parsed(draw(hundreds(100), texts=EN, width=800))
    assert sum(kind == "message" for kind, _ in stand_for(root)) == 100
    assert "tl-dense" in root.get("class", "")
    root = parsed(draw(hundreds(500), texts=EN))
    found = Counter(kind for kind, _ in stand_for(root))
    assert "message" not in found
    told = [
        re.findall(r"\d+", title.text.rpartition("\n")[2])
        for count in root.iterfind(".//*[@data-kind='count']")
        if (title := count.find("{*}title")) is not None and title.text
    ]
    assert sum(int(sent) for sent, _ in told) == sum(int(received) for _, received in told) == 500
    periods = sorted({count.get("data-id", "") for count in root.iterfind(".//*[@data-kind='count']")})
    assert all(one.partition("-")[2] == other.partition("-")[0] for one, other in pairwise(periods))


def test_a_folded_team_is_on_the_lane_of_its_head_and_says_how_many_it_is() -> None:
    folded = parsed(draw(session(), texts=EN, teams={"admin": ["worker"]}))
    assert stand_for(folded) == {
        ("team", "admin"): 1,
        ("agent", OTHERS): 1,
        **{pair: n for pair, n in stand_for(parsed(draw(session(), texts=EN))).items() if pair[0] != "agent"},
    }
    assert [text.text for text in folded.iter() if (text.text or "").startswith("▸")] == ["▸ admin"]
    assert any((text.text or "").startswith("+1") for text in folded.iter())
    unfolded = parsed(draw(session(), texts=EN, teams={"admin": ["worker"]}, unfolded=["admin"]))
    assert stand_for(unfolded)["agent", "worker"] == stand_for(unfolded)["team", "admin"] == 1


def test_lengths_kinds_and_states_are_words_of_the_language() -> None:
    root = parsed(draw(session(), texts=catalogue("ja")))
    told = "".join(element.text or "" for element in root.iter() if not element.tag.endswith("style"))
    assert re.search(r"\d+(秒|分|時間)", told)
    assert not re.search(r"\d (ms|s|min|h|d)\b|task_\w+|in_progress|\{\w+\}", told)
    assert ": 依頼" in told


@pytest.mark.parametrize(("when", "anchor"), [(10, None), (99, "end")])
def test_what_an_interrupt_says_is_not_cut_at_the_right_border(when: float, anchor: str | None) -> None:
    mark = Interruption(
        notification_id="ntf_1", agent_id="worker", action="blocked", message="", at=at(when), by="admin"
    )
    lanes = (Lane(agent_id="admin"), Lane(agent_id="worker"))
    root = parsed(draw(Timeline(start=at(0), end=at(100), lanes=lanes, marks=(mark,)), texts=EN))
    (word,) = [element for element in root.iter() if element.get("class") == "tl-sign-word"]
    assert word.get("text-anchor") == anchor
