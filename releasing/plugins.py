"""`scripts/plugins`: the hosts' plugins, the marketplaces by which hosts find them, and server.json.

server.json is for the MCP registry. All of them are made from the descriptions of the hosts (field `plugin`), the skill
and `facts`, and are checked in, because hosts install a plugin from a repository as it is.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from multi_agent_mcp.host_config import HOOK_SECONDS, filled
from multi_agent_mcp.hosts import description, hosts
from multi_agent_mcp.texts import LANGUAGES, skill
from releasing import facts

PROGRAM = "multi-agent-mcp"
DESCRIPTION = "Mail, tasks and interrupts between AI coding agents in tmux panes, through nothing but files."
"""The MCP registry takes at most 100 characters."""
SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
DIRECTORIES = (Path("plugins"), Path(".claude-plugin"), Path(".agents/plugins"), Path(".github/plugin"))
"""Whatever else is in them was generated once, and is out of date."""
READMES = (Path("README.md"), Path("README.ja.md"))
MARKER = re.compile(r"(?<=<!-- mcp-name: )\S+(?= -->)")


def generated() -> dict[Path, str]:
    """The content of every generated file, by its path in the repository."""
    files = {path: text for name in hosts() for path, text in _of_host(name)}
    files[Path("server.json")] = _as_json(server())
    texts = {readme: (facts.REPOSITORY / readme).read_text(encoding="utf-8") for readme in READMES}
    return files | {readme: MARKER.sub(facts.registry_name(), text) for readme, text in texts.items()}


def server() -> dict[str, Any]:
    """server.json (https://github.com/modelcontextprotocol/registry, docs/reference/server-json)."""
    identity = {
        "ROOT": "The directory of the sessions (default: the nearest .multi-agent-mcp)",
        "SESSION": "The session (default: the only one there is)",
        "AGENT": "The agent that this server acts for; `multi-agent-mcp up` sets it in each agent's pane",
    }
    variables = [{"name": f"MULTI_AGENT_MCP_{name}", "description": words} for name, words in identity.items()]
    return {
        "$schema": SCHEMA,
        "name": facts.registry_name(),
        "title": PROGRAM,
        "description": DESCRIPTION,
        "repository": {"url": facts.address(), "source": "github"},
        "websiteUrl": facts.address(),
        "version": facts.SEMANTIC_VERSION,
        "packages": [
            {
                "registryType": "pypi",
                "identifier": PROGRAM,
                "version": facts.VERSION,
                "runtimeHint": "uvx",
                "transport": {"type": "stdio"},
                "packageArguments": [
                    {"type": "positional", "value": "serve"},
                    {"type": "named", "name": "--plugin"},
                ],
                "environmentVariables": variables,
            }
        ],
    }


def _of_host(name: str) -> Iterator[tuple[Path, str]]:
    plugin, directory = description(name).get("plugin"), Path("plugins", name)
    if plugin is None:
        return
    values = _values(name, plugin)
    for file, content in plugin["files"].items():
        yield directory / file, _written(filled(content, values))
    for language in LANGUAGES if "skill" in plugin else ():
        beside = "SKILL.md" if language == "en" else f"{language}.md"
        yield (directory / plugin["skill"]).with_name(beside), skill(language)
    for file, content in plugin.get("marketplace", {}).items():
        yield Path(file), _written(filled(content, values))


def _values(name: str, plugin: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the placeholders: as in an agent's configuration, but for the program on PATH, and for whichever
    agent the environment names."""
    serve, hook = ["serve", "--plugin"], [PROGRAM, "hook", "--host", name, "--plugin"]
    return {
        "program": PROGRAM,
        "serve": serve,
        "server_words": json.dumps([PROGRAM, *serve]),
        "identity": {variable: plugin["identity"].replace("{name}", variable) for variable in plugin.get("passed", ())},
        "hook": shlex.join(hook),
        "hook_anyone": shlex.join(hook),
        "hook_words": json.dumps(hook),
        "hook_milliseconds": HOOK_SECONDS * 1000,
        "permission": "{}",  # rules are an agent's, in its own configuration
        "version": facts.SEMANTIC_VERSION,
        "description": DESCRIPTION,
        "address": facts.address(),
    }


def _written(content: Any) -> str:
    return content if isinstance(content, str) else _as_json(content)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def outdated() -> list[Path]:
    """The files that differ from what would be written, and those that nothing writes any more."""
    wanted, base = generated(), facts.REPOSITORY
    differing = [path for path, text in wanted.items() if _present(base / path) != text]
    present = (found.relative_to(base) for directory in DIRECTORIES for found in (base / directory).rglob("*"))
    return differing + [path for path in sorted(present) if (base / path).is_file() and path not in wanted]


def _present(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/plugins", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say what is out of date; exit code 1 then")
    options = parser.parse_args(arguments)
    files, old = generated(), outdated()
    for path in old:
        print(f"{path} is out of date: run scripts/plugins" if options.check else f"{path}")
        if options.check:
            continue
        target = facts.REPOSITORY / path
        if path in files:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(files[path], encoding="utf-8")
        else:
            target.unlink()
    return 1 if old and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
