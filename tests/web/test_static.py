"""The page's own modules and words, which no compiler looks through: nothing is asked for that is not there, nothing is
there that nobody asks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import multi_agent_mcp.web
from multi_agent_mcp.texts import CONSOLE, LANGUAGES, PEOPLE, catalogue

WEB = Path(multi_agent_mcp.web.__file__).parent
MODULES = {path.name: path.read_text(encoding="utf-8") for path in sorted((WEB / "static").glob("*.js"))}
PAGES = "".join(path.read_text(encoding="utf-8") for path in sorted((WEB / "templates").glob("*.html")))
SERVER = "".join(path.read_text(encoding="utf-8") for path in sorted(WEB.glob("*.py")))

IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./([\w./-]+)";$', re.MULTILINE)
VENDORED = "vendor/"
EXPORT = re.compile(r"^export (?:async )?(?:function|const|let|class) (\w+)", re.MULTILINE)
KEY = re.compile(r"""["'`]((?:[a-z_]+\.)*[a-z_]+)["'`]""")
FAMILY = re.compile(r'`([a-z_.]+)\$\{|"([a-z_.]+\.)" ~|word\("([a-z_.]+)", ')
"""The beginning of keys whose end is data: `status.${status}`, `word("status", status)`, in a template
`"page." ~ page`."""


def imported() -> dict[str, list[tuple[str, str]]]:
    """Module → the names it imports, each with its source."""
    return {
        module: [
            (re.sub("^.* as ", "", name), source)
            for names, source in IMPORT.findall(text)
            for name in names.split(", ")
        ]
        for module, text in MODULES.items()
    }


def test_every_import_is_in_the_form_that_is_read_here() -> None:
    for module, text in MODULES.items():
        assert len(re.findall(r"^import\b", text, re.MULTILINE)) == len(IMPORT.findall(text)), module


def test_what_is_imported_is_exported_and_what_is_exported_imported() -> None:
    exported = {(name, module) for module, text in MODULES.items() for name in EXPORT.findall(text)}
    ours = {pair for pairs in imported().values() for pair in pairs if not pair[1].startswith(VENDORED)}
    assert exported == ours


def test_what_others_wrote_is_apart_with_its_licence() -> None:
    found = {path.name for path in (WEB / "static" / VENDORED).iterdir()}
    libraries = {name for name in found if name.endswith(".js")}
    assert libraries
    assert found == libraries | {name.replace(".js", ".LICENSE") for name in libraries}


def test_what_is_imported_is_used() -> None:
    idle = {
        (module, name)
        for module, pairs in imported().items()
        for name, _ in pairs
        if len(re.findall(rf"\b{name}\b", MODULES[module])) < 2
    }
    assert idle == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_word_that_is_asked_for_is_there(language: str) -> None:
    asked = set(re.findall(r"""\bt\(["']([\w.]+)["'][,)]""", "".join(MODULES.values()) + PAGES))
    assert len(asked) > 100
    words = catalogue(language, CONSOLE) | catalogue(language, PEOPLE)
    assert {key for key in asked if key not in words} == set()


def test_every_word_is_asked_for() -> None:
    everything = "".join(MODULES.values()) + PAGES + SERVER
    asked = set(KEY.findall(everything))
    families = tuple(next(filter(None, found)) for found in FAMILY.findall(everything))
    keys = sorted(catalogue("en", CONSOLE).keys())
    assert [key for key in keys if key not in asked and not key.startswith(families)] == []
