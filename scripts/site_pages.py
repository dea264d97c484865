"""The pages of the site that are made from something else: the start pages from the READMEs, the reference of tools and
commands from the code (MkDocs, Hooks)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click
from mkdocs.structure.files import File, Files

from multi_agent_mcp.cli.main import COMMANDS, PROGRAM, app
from multi_agent_mcp.domain.agent import PURPOSES, ROLES
from multi_agent_mcp.domain.notification import ACTIONS
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.features.ours import OURS
from multi_agent_mcp.server.calls import Tool
from multi_agent_mcp.server.tools import TOOLS
from multi_agent_mcp.settings import KEYS, feature_keys

REPOSITORY = Path(__file__).parents[1]
COPIED = {
    "README.md": "index.md",
    "README.ja.md": "ja.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/team.yaml": "examples/team.yaml",
    "plugins/claude/skills/multi-agent-mcp/SKILL.md": "agents.md",
    "plugins/claude/skills/multi-agent-mcp/ja.md": "agents-ja.md",
}
"""Files of the repository → their places in the site."""
JAPANESE = ("ja.md", "agents-ja.md")
HELP_COLUMNS = 100
_LINE_END = re.compile(r"(?<=[\u3000-\u9fff\uff00-\uffef])\n *(?=[\u3000-\u9fff\uff00-\uffef])")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are not in docs/."""
    made = {"tools.md": tools(), "commands.md": commands(), "names.md": "\n".join(names())}
    made |= {place: _moved(source, place) for source, place in COPIED.items()}
    for place, content in made.items():
        files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lets what docs/ links to beside itself be found."""
    if page.file.generated_by is None:
        here = posixpath.dirname(page.file.src_uri)
        top = posixpath.relpath(".", posixpath.join("docs", here))
        for source, place in COPIED.items():
            markdown = markdown.replace(f"]({top}/{source}", f"]({posixpath.relpath(place, here)}")
    return markdown


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Says which language a page is in, for screen readers, fonts and line breaks; joins the source's lines where
    Japanese has no space."""
    if page.file.src_uri not in JAPANESE:
        return output
    return _LINE_END.sub("", output).replace('<html lang="en"', '<html lang="ja"', 1)


def _moved(source: str, place: str) -> str:
    """The text of a file of the repository, with the links of its place in the site."""
    text = (REPOSITORY / source).read_text(encoding="utf-8")
    for other, its_place in COPIED.items():
        text = text.replace(f"]({other}", f"]({its_place}")
    text = text.replace("](docs/", "](")
    return text.replace("](ja.md)", "](agents-ja.md)") if place == "agents.md" else text


def tools() -> str:
    """Every tool as a client sees it, and who may call it."""
    return "\n".join(_tools())


def _tools() -> Iterator[str]:
    yield "# Tools\n"
    yield "What an agent's server offers: made from its `tools/list`. What the answers hold stands in"
    yield "[The protocol](protocol/calls.md#tools); a failure has one of the"
    yield "[error codes](protocol/calls.md#error-codes).\n"
    for tool in TOOLS.values():
        yield from _tool(tool)


def _tool(tool: Tool) -> Iterator[str]:
    described = tool.described()
    yield f"## {tool.name}\n"
    yield f"**{described.title}**{' · only looks' if tool.read_only else ''} · {_who(tool)}\n"
    yield f"{_escaped(described.description or '')}\n"
    properties = described.input_schema.get("properties", {})
    if not properties:
        yield "No arguments.\n"
        return
    required = described.input_schema.get("required", [])
    yield "| argument | | type |"
    yield "|---|---|---|"
    for name, schema in properties.items():
        yield f"| `{name}` | {'required' if name in required else ''} | {_type(schema)} |"
    yield ""


def _who(tool: Tool) -> str:
    roles = [role for role in ROLES if role in tool.roles]
    if not roles:
        return "a process that is not bound to an agent"
    who = "everybody" if len(roles) == len(ROLES) else ", ".join(roles)
    purposes = [purpose for purpose in PURPOSES if purpose in tool.purposes]
    return who if len(purposes) == len(PURPOSES) else f"{who}, in {purposes[0]} sessions"


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "properties" in schema:
        return "object: " + ", ".join(f"`{name}`" for name in schema["properties"])
    limits = [
        f"{word} {schema[key]}" for key, word in (("maximum", "at most"), ("default", "default")) if key in schema
    ]
    return ", ".join([kind, *(limit.replace("True", "true") for limit in limits)])


def _escaped(text: str) -> str:
    """Text in which angle brackets and underscores are no markup."""
    return re.sub(r"([<>_*\[\]])", r"\\\1", text)


def commands() -> str:
    """The help of every command, by subject."""
    return "\n".join(_commands())


def _commands() -> Iterator[str]:
    yield "# Commands\n"
    yield "Made from the help of the commands. `--json` prints data for programs; exit codes: 0 done, 1 refused, 2"
    yield "wrong use. `multi-agent-mcp help --man | man -l -` shows the same as a man page.\n"
    root = click.Context(app, info_name=PROGRAM, max_content_width=HELP_COLUMNS, terminal_width=HELP_COLUMNS)
    for subject, names in COMMANDS.items():
        yield f"## {subject}\n"
        for name in names:
            command = app.get_command(root, name)
            if command is not None:
                yield from _command(root, name, command)


def _command(above: click.Context, name: str, command: click.Command) -> Iterator[str]:
    here = click.Context(command, parent=above, info_name=name)
    title = here.command_path.removeprefix(f"{PROGRAM} ")
    if not isinstance(command, click.Group):
        yield f"### {title}\n"
        yield f"```text\n{command.get_help(here)}\n```\n"
        return
    for below in command.list_commands(here):
        found = command.get_command(here, below)
        if found is not None:
            yield from _command(here, below, found)


def names() -> Iterator[str]:
    """What is in answers and files: codes, actions, kinds, keys, each with what the page about it says."""
    yield "# Codes and names\n"
    yield "Made from the code: what programs read in answers and files, each with what the page about it says first."
    ranked = sorted((rank, kind) for feature in OURS for kind, rank in feature.attention.items())
    for title, names, meanings in (
        (
            "Codes of refusals",
            sorted({kind.code for kind in _refusals(Refusal) if hasattr(kind, "code")}),
            _said("protocol/calls.md", 0, 1),
        ),
        ("Actions of notifications", ACTIONS, _said("protocol/notifications.md", 1, 3)),
        ("What `attention` lists, the most serious first", [kind for _, kind in ranked], _said("protocol/people.md")),
        (
            "Checks of `doctor`",
            [name for feature in OURS for name in (*feature.checks, *feature.verifications)],
            _checks(),
        ),
        ("Keys of session.yaml and team.yaml", [*KEYS, *feature_keys()], _said("team.md", 0, 2)),
        ("Features", [feature.name for feature in OURS if feature.optional], _said("protocol/team.md")),
    ):
        yield f"\n## {title}\n"
        for name in names:
            yield f"- `{name}`: {meanings[name]}"


def _said(page: str, named: int = 0, meaning: int = 1) -> dict[str, str]:
    """Name → what a table of the page says of it: the columns of both. Links are those of a page at the top."""
    meanings: dict[str, str] = {}
    for line in (REPOSITORY / "docs" / page).read_text(encoding="utf-8").splitlines():
        cells = re.split(r"(?<!\\) *\| *", line.strip("| ")) if line.startswith("| `") else []
        if len(cells) > meaning:
            said = re.sub(r"\]\((?!\w+:)([^)#]*)", lambda link: f"]({_from_top(page, link[1])}", cells[meaning])
            for name in re.findall(r"`(\w+)`", cells[named]):
                meanings.setdefault(name, said)
    return meanings


def _from_top(page: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link)) if link else page


def _checks() -> dict[str, str]:
    """Name of a check of `doctor` → what it finds: the first sentence of its function's docstring."""
    found = (check for feature in OURS for check in (*feature.checks.items(), *feature.verifications.items()))
    return {
        name: re.split(r"(?<=\.)\s", " ".join((resolve_name(f"multi_agent_mcp{place}").__doc__ or "").split()))[0]
        for name, place in found
    }


def _refusals(kind: type[Refusal]) -> Iterator[type[Refusal]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _refusals(narrower)
