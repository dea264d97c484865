"""The pages of docs/: their links lead somewhere, none is too long to be read, and what docstrings cite is there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PAGES = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
CITED = re.compile(r"docs/(protocol|hosts)\.md,[\s#]+([A-Z][^).,;:?`\"]*)")
NAMED = re.compile(r"^#+ (.*)$|^\| \*\*(.+?)\*\* \|", re.MULTILINE)
"""A section, or a rule that a table names."""
LONGEST = 400


def anchors(text: str) -> set[str]:
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in HEADING.findall(text)}


def broken(page: Path) -> Iterator[str]:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        place = page.parent / path if path else page
        if ":" in link:
            continue
        if not place.exists() or (anchor and place.suffix == ".md" and anchor not in anchors(place.read_text("utf-8"))):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


def test_no_page_of_docs_is_too_long_to_be_read() -> None:
    lengths = {page.name: len(page.read_text(encoding="utf-8").splitlines()) for page in PAGES}
    lengths.pop("CHANGELOG.md")
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}


def test_no_line_of_the_changelog_is_there_twice() -> None:
    """A merge of two branches may have kept both versions of a part."""
    lines = Counter((REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8").splitlines())
    del lines[""]
    assert [line for line, times in lines.items() if times > 1] == []


def test_what_docstrings_cite_is_a_section() -> None:
    headings = {
        subject: {
            "".join(heading).lower().rstrip("?")
            for page in (REPOSITORY / f"docs/{subject}.md", *REPOSITORY.glob(f"docs/{subject}/*.md"))
            for heading in NAMED.findall(page.read_text(encoding="utf-8"))
        }
        for subject in ("protocol", "hosts")
    }
    cited = {
        (subject, " ".join(section.replace("#", " ").split()).lower())
        for place in ("multi_agent_mcp", "tests", "benchmarks")
        for module in (REPOSITORY / place).rglob("*.py")
        for subject, section in CITED.findall(module.read_text(encoding="utf-8"))
    }
    assert len(cited) > 30
    lost = {
        (subject, section)
        for subject, section in cited
        if not any(section.startswith(heading) for heading in headings[subject])
    }
    assert lost == set()


def test_every_name_that_programs_read_is_documented() -> None:
    """The site's page of them is generated, with what these pages say of each."""
    path = str(REPOSITORY / "scripts")
    spec = spec_from_file_location("site_pages", f"{path}/site_pages.py")
    assert spec is not None
    assert spec.loader is not None
    pages = module_from_spec(spec)
    spec.loader.exec_module(pages)
    names = {name for line in pages.names() for name in re.findall(r"^- `(\w+)`", line)}
    said = "\n".join(page.read_text(encoding="utf-8") for page in PAGES if page.parent != REPOSITORY)
    assert len(names) > 100
    assert {name for name in names if not re.search(rf"\b{name}\b", said)} == set()
