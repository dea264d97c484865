"""The team of `examples/office.yaml` in the middle of its afternoon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from multi_agent_mcp.demo.stage import read_story
from tests.end_to_end.support import REPOSITORY, Team

OFFICE = REPOSITORY / "examples" / "office.yaml"


@contextmanager
def furnished(team: Team, language: str) -> Iterator[Team]:
    """The story told into a bare team; its agents are logged in meanwhile."""
    team.session = "office"
    team.make(f"language: {language}\n{OFFICE.read_text(encoding='utf-8')}")
    story = read_story(OFFICE, team.root, language)
    story.tell()
    try:
        yield team
    finally:
        story.end()
