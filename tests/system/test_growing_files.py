"""Files of other programs are read as they grow, up to a bound for each line."""

from __future__ import annotations

from pathlib import Path

import pytest

from multi_agent_mcp.system import other_files
from multi_agent_mcp.system.other_files import BEGINNING, GrowingFile


def test_a_line_longer_than_any_hosts_is_passed_over_and_never_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_files, "LINE_BYTES", 8)
    path = tmp_path / "transcript.jsonl"
    path.write_bytes(b"one\n" + b"x" * 100)
    file = GrowingFile(path, BEGINNING)
    assert [*file.lines()] == [b"one\n"]
    assert file.place.offset >= 96, "what was passed over is not read again"
    for more, lines in (
        (b"y" * 30, []),
        (b"z\ntwo\nthr", [b"two\n"]),
        (b"ee\n", [b"three\n"]),
        (b"1234567\n", [b"1234567\n"]),
    ):
        with path.open("ab") as end:
            end.write(more)
        assert [*file.lines()] == lines
