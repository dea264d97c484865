"""The documentation site builds strictly, is whole, and loads nothing from elsewhere (scripts/site)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from multi_agent_mcp.cli.main import COMMANDS
from multi_agent_mcp.server.tools import TOOLS

REPOSITORY = Path(__file__).parents[1]
LOADED = re.compile(r"""<(?:script|img|iframe|source|link(?=[^>]*\brel="?(?:stylesheet|icon|preconnect|preload))[^>]*)\b
                        [^>]*\b(?:src|href)=["']?(https?:)?//""", re.VERBOSE)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broken link, a page that no menu names, or an anchor that is not there fails the build: a warning does, which
    `--quiet` would swallow, and `strict` with it."""
    directory = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "NO_MKDOCS_2_WARNING": "1", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", directory],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    loud = [line for line in done.stderr.splitlines() if not line.startswith("INFO ")]
    assert (done.returncode, done.stdout, loud) == (0, "", [])
    return directory


def test_every_tool_and_command_is_explained(site: Path) -> None:
    tools, commands = ((site / name).read_text(encoding="utf-8") for name in ("tools.html", "commands.html"))
    assert [name for name in TOOLS if f'id="{name}"' not in tools] == []
    names = [name for group in COMMANDS.values() for name in group]
    assert [name for name in names if f"multi-agent-mcp {name}" not in commands] == []


def test_both_start_pages_lead_every_reader_to_a_page(site: Path) -> None:
    readers = {"daily", "machines", "security", "python", "json-api", "compared"}
    for start, for_agents in (("index", "agents"), ("ja", "agents-ja")):
        text = (site / f"{start}.html").read_text(encoding="utf-8").partition("<article")[2]
        assert "images/interrupt.svg" in text
        assert {name for name in (*readers, for_agents) if f'href="{name}.html' not in text} == set()


def test_pages_are_found_by_words_of_both_languages(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert set(index["config"]["lang"]) == {"en", "ja"}
    places = {word: {item["location"].split("#")[0] for item in index["docs"] if word in item["text"]} for word in (
        "エージェント", "approve_task_request", "TRACEPARENT",
    )}  # fmt: skip
    assert "ja.html" in places["エージェント"]
    assert "telemetry.html" in places["TRACEPARENT"]
    assert "tools.html" in {item["location"].split("#")[0] for item in index["docs"] if "approve_task" in item["title"]}


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = {page.name: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    assert len(pages) > 15
    assert {name: LOADED.findall(text) for name, text in pages.items() if LOADED.search(text)} == {}
