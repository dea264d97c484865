"""What a release derives from the sources is current, valid by its published schema, and ready only when it is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from multi_agent_mcp.hosts import hosts
from multi_agent_mcp.texts import LANGUAGES, skill
from releasing import facts
from releasing.plugins import PROGRAM, SCHEMA, generated, outdated
from releasing.ready import missing
from releasing.stub import STUB, stub

FIXTURES = Path(__file__).parents[1] / "fixtures" / "releasing"


def _schema() -> Any:
    """As published with the specification of 2025-12-11."""
    return json.loads((FIXTURES / "server.schema.json").read_text(encoding="utf-8"))


def test_the_plugins_and_server_json_are_current() -> None:
    assert outdated() == []
    assert {path.parts[1] for path in generated() if path.parts[0] == "plugins"} == set(hosts())


def test_every_placeholder_of_a_plugin_is_filled() -> None:
    """A module with one would not load."""
    placeholder = re.compile(r"(?<![$\w])\{[a-z]+(_[a-z]+)*\}")
    scripts = {path: content for path, content in generated().items() if path.suffix in (".js", ".json")}
    assert {
        path: placeholder.findall(content) for path, content in scripts.items() if placeholder.search(content)
    } == {}


def test_the_types_of_an_agents_methods_are_current() -> None:
    assert STUB.read_text(encoding="utf-8") == stub(), "run scripts/stub"


def test_server_json_is_valid_by_its_published_schema() -> None:
    server = json.loads((facts.REPOSITORY / "server.json").read_text(encoding="utf-8"))
    assert server["$schema"] == SCHEMA == _schema()["$id"]
    jsonschema.Draft7Validator(_schema(), format_checker=jsonschema.FormatChecker()).validate(server)
    assert len(server["description"]) <= 100
    assert server["version"] == facts.SEMANTIC_VERSION
    assert {package["version"] for package in server["packages"]} == {facts.VERSION}


@pytest.mark.parametrize(
    "wrong", [{"description": "x" * 101}, {"name": "no-namespace"}, {"packages": [{"registryType": "pypi"}]}]
)
def test_the_schema_refuses_what_the_registry_would(wrong: dict[str, Any]) -> None:
    server = json.loads((facts.REPOSITORY / "server.json").read_text(encoding="utf-8"))
    assert not jsonschema.Draft7Validator(_schema()).is_valid(server | wrong)


@pytest.mark.parametrize("name", hosts())
def test_a_plugin_names_no_agent_and_no_path_and_starts_the_server_and_hooks(name: str) -> None:
    files = {path: text for path, text in generated().items() if path.parts[:2] == ("plugins", name)}
    together = "\n".join(text for path, text in files.items() if path.suffix != ".md")
    assert f'"{PROGRAM}"' in together
    assert '"serve"' in together
    assert f"{PROGRAM} hook --host {name} --plugin" in together.replace('", "', " ")
    assert str(facts.REPOSITORY) not in together
    assert "{" not in together.replace("${", "").replace("{\n", "").replace("{}", "") or name == "opencode"
    assert all(json.loads(text) for path, text in files.items() if path.suffix == ".json")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_skill_says_the_tools_by_their_names(language: str) -> None:
    from multi_agent_mcp.server.tools import TOOLS

    words = skill(language)
    assert words.startswith("---\nname: multi-agent-mcp\ndescription: ")
    assert len(words.splitlines()) < 120
    named = {name for name in TOOLS if f"{name}(" in words or f"`{name}`" in words}
    assert {"get_next_action", "report_completed", "ask", "answer_question", "hand_off", "reserve_files"} <= named


def test_a_release_of_another_repository_or_tag_is_refused() -> None:
    ours = {"GITHUB_REPOSITORY": facts.slug(), "GITHUB_REF_TYPE": "tag", "GITHUB_REF_NAME": f"v{facts.VERSION}"}
    assert list(missing(ours)) == []
    assert any("pyproject.toml names" in sentence for sentence in missing(ours | {"GITHUB_REPOSITORY": "else/where"}))
    assert any("The tag is v0" in sentence for sentence in missing(ours | {"GITHUB_REF_NAME": "v0"}))
