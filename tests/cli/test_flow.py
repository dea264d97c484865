"""Where lines are broken for a terminal, above all those of a script without blanks."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from multi_agent_mcp.cli.flow import Flowing, flow
from multi_agent_mcp.domain.text import KEPT

SENTENCE = (
    "ログインの画面を、利用者が「もう一度」押したときだけ作り直します。ウィンドウとキャッシュは、ちょっと待ってから"
    "（約 30 秒）消えます。関係するのは src/login/session.py と tsk_1234abcd です！"
)
NEVER_FIRST = set("、。」）！ゃっょーィウュ") - {"ウ"}
NEVER_LAST = set("「（")


def flowed(text: str, width: int) -> list[str]:
    return [line.plain for line in flow(Text(text), width)]


@pytest.mark.parametrize("width", [20, 33, 60, 80, 200])
def test_a_japanese_sentence_fills_its_lines_and_no_mark_stands_at_a_wrong_end(width: int) -> None:
    lines = flowed(SENTENCE, width)
    assert "".join(lines).replace(" ", "") == SENTENCE.replace(" ", "")
    assert all(cell_len(line) <= width for line in lines)
    assert not {line[0] for line in lines} & NEVER_FIRST
    assert not {line[-1] for line in lines} & NEVER_LAST
    if width >= 60:
        assert all(cell_len(line) > width - 20 for line in lines[:-1])


@pytest.mark.parametrize("width", [30, 40, 60, 80])
def test_a_label_a_number_and_what_they_say_stay_together(width: int) -> None:
    said = "作業中 31 · 回答待ち 9 · レビュー待ち 6 · 利用制限中 5（20:10 まで） · 本日 502 USD"
    parts = [part.strip(" ·") for line in flowed(said, width) for part in line.split(" · ")]
    assert parts == said.split(" · ")
    named = f"タスクの状態: 進行中です。残りは 12 件で、worker-a{KEPT}3, worker-b{KEPT}12 です。" * 2
    lines = flowed(named, width)
    assert not [line for line in lines if line.endswith((":", "残りは", "12", "worker-a", "worker-b"))]
    assert KEPT not in "".join(lines)


def test_a_line_goes_on_below_its_text_and_not_below_its_label_or_mark() -> None:
    assert flowed(f"説明  {'あ' * 30}", 40) == [f"説明  {'あ' * 17}", f"      {'あ' * 13}"]
    assert flowed(f"   ☐ {'あ' * 30}", 40) == [f"   ☐ {'あ' * 17}", f"     {'あ' * 13}"]
    assert flowed(f"path  {'a' * 50}", 40) == [f"path  {'a' * 34}", f"      {'a' * 16}"]


def test_a_cell_of_a_table_is_broken_by_the_same_rules() -> None:
    table = Table(box=None, padding=0, show_header=False)
    table.add_column(max_width=20)
    table.add_row(Flowing(SENTENCE))
    console = Console(width=60)
    with console.capture() as captured:
        console.print(table)
    lines = [line.strip() for line in captured.get().splitlines()]
    assert lines == flowed(SENTENCE, 20)


def test_styles_stay_where_they_are() -> None:
    line = Text("状態: ").append("進行中", "cyan").append("、" + "あ" * 20)
    first, second, *_ = flow(line, 20)
    assert first.spans == [Text.from_markup("状態: [cyan]進行中[/]").spans[0]]
    assert second.spans == []


@pytest.mark.parametrize("width", [34, 40, 60])
@pytest.mark.parametrize("date", ["2026-11-28 18:50:07 UTC", "2026-11-28 18:50:07 (JST)", "2026-11-28 18:50 +0545"])
def test_a_date_keeps_its_time_and_zone_and_a_label_is_not_parted(date: str, width: int) -> None:
    lines = flowed(f"worker-a が使用量の上限に達しました（枠: five_hour）。解除: {date}。 seen {date} and later", width)
    assert sum(line.count(date) for line in lines) == 2, lines
    assert not [line for line in lines if line.startswith("除") or line.endswith("解除:")], lines
