"""Every block of docs/python.md, as it is printed and in its order."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.programs import REPOSITORY, ran

BLOCKS = re.findall(r"^```python\n(.*?)^```$", (REPOSITORY / "docs" / "python.md").read_text("utf-8"), re.M | re.S)
NAMED = re.compile(r"# (\w+\.py)\n")


def test_the_programs_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = [block for block in BLOCKS if not NAMED.match(block)]
    assert len(programs) == 3
    monkeypatch.chdir(tmp_path)
    for program in programs:
        exec(compile(program, "python.md", "exec"), {"__name__": "__main__"})  # noqa: S102 - our own page


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    for block in BLOCKS:
        if named := NAMED.match(block):
            (tmp_path / named[1]).write_text(block)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'temporary'}")
    done = ran(*command, "-c", str(tmp_path / "pytest.ini"), str(tmp_path))
    assert "2 passed" in done.stdout, done.stdout
