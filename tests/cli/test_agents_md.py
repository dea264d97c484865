"""`init --agents-md`: a block in the files that hosts read by themselves, taken out again byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from multi_agent_mcp.project_instructions import BEGIN, END
from tests.cli.conftest import Ask, Run

FILES = {
    "a text": b"# Rules\n\nBe kind.\n",
    "no line break at the end": b"# Rules",
    "several at the end": b"# Rules\n\n\n",
    "Windows": b"# Rules\r\n\r\nBe kind.\r\n",
    "Windows without one at the end": b"# Rules\r\nBe kind.",
    "no UTF-8": b"\xef\xbb\xbfR\xe9sum\xe9\n",
}


@pytest.fixture
def project(session: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the team.yaml."""
    project = session.parents[1]
    monkeypatch.chdir(project)
    return project


@pytest.mark.parametrize("before", FILES.values(), ids=FILES)
def test_the_block_comes_once_and_goes_without_a_trace(ask: Ask, project: Path, before: bytes) -> None:
    file = project / "AGENTS.md"
    file.write_bytes(before)
    assert ask("init", "--agents-md")["instructions"] == [str(file)]
    added = file.read_bytes()
    assert added.startswith(before)
    assert (added.count(BEGIN), added.count(END)) == (1, 1)
    assert b"get_next_action" in added
    assert (b"\r\n" in added) == (b"\r\n" in before)
    assert added.count(b"\r\n") in (0, added.count(b"\n"))

    assert ask("init", "--agents-md")["instructions"] == []
    assert file.read_bytes() == added

    assert ask("init", "--no-agents-md")["instructions"] == [str(file)]
    assert file.read_bytes() == before
    assert ask("init", "--no-agents-md")["instructions"] == []


def test_what_a_person_writes_around_the_block_stays_and_the_block_follows_the_language(
    ask: Ask, project: Path
) -> None:
    file = project / "AGENTS.md"
    ask("init", "--agents-md")
    file.write_bytes(b"Before\n" + file.read_bytes() + b"After\n")
    ask("init", "--agents-md", "--language", "ja")
    text = file.read_text(encoding="utf-8")
    assert "チーム（multi-agent-mcp）" in text
    assert "The team" not in text
    ask("init", "--no-agents-md")
    assert file.read_bytes() in (b"Before\nAfter\n", b"BeforeAfter\n")


def test_a_file_that_holds_nothing_else_goes_again_and_init_alone_makes_none(ask: Ask, project: Path) -> None:
    ask("init")
    assert not (project / "AGENTS.md").exists()
    ask("init", "--agents-md")
    assert not (project / "CLAUDE.md").exists(), "nobody in the team works in Claude Code"
    ask("init", "--no-agents-md")
    assert not (project / "AGENTS.md").exists()


def test_it_says_whether_the_block_was_written_or_taken_out(run: Run, project: Path) -> None:
    run("init")
    file = project / "AGENTS.md"
    assert f"{file}: says now what agents have to know" in run("init", "--agents-md").stdout
    taken = run("init", "--no-agents-md").stdout
    assert f"{file}: what it said of the team was taken out" in taken
    assert "--no-agents-md" not in taken


def test_claude_code_gets_it_once(ask: Ask, project: Path) -> None:
    claude = project / "CLAUDE.md"
    claude.write_bytes(b"Mine.\n")
    assert ask("init", "--agents-md")["instructions"] == [str(project / "AGENTS.md"), str(claude)]
    ask("init", "--no-agents-md")
    assert claude.read_bytes() == b"Mine.\n"

    claude.write_bytes(b"@AGENTS.md\n")
    assert ask("init", "--agents-md")["instructions"] == [str(project / "AGENTS.md")]
    assert claude.read_bytes() == b"@AGENTS.md\n"

    claude.unlink()
    claude.symlink_to("AGENTS.md")
    ask("init", "--agents-md")
    assert claude.is_symlink()
    assert claude.read_bytes().count(BEGIN) == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [(BEGIN + b"\n", "does not have one"), (END + b"\n" + BEGIN + b"\n", "does not have one"), (b"\0", "no text")],
    ids=["half a block", "the wrong way round", "no text"],
)
def test_a_file_that_cannot_be_changed_safely_stays_as_it_is(
    run: Run, ask: Ask, project: Path, content: bytes, says: str
) -> None:
    del ask
    (project / "CLAUDE.md").write_bytes(content)
    refused = run("init", "--agents-md")
    assert refused.exit_code == 1
    assert says.replace("no text", "not a text file") in refused.output
    assert (project / "CLAUDE.md").read_bytes() == content
    assert not (project / "AGENTS.md").exists(), "nothing is changed if one of them cannot be"


def test_a_link_out_of_the_project_is_not_followed(
    run: Run, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "AGENTS.md"
    outside.write_bytes(b"Another's.\n")
    (project / "AGENTS.md").symlink_to(outside)
    refused = run("init", "--agents-md")
    assert refused.exit_code == 1
    assert "leads out of the project" in refused.output
    assert outside.read_bytes() == b"Another's.\n"
