"""The team.yaml that `init` writes if there is none: for the hosts on PATH, or of scripted agents."""

from __future__ import annotations

import json
import re
import string
import unicodedata
from pathlib import Path

from multi_agent_mcp.cli.context import people_texts
from multi_agent_mcp.domain.ids import as_name
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.hosts import hosts
from multi_agent_mcp.system.external_files import FileChange, apply_change

Agent = dict[str, str]
OWNER = {"id": "owner", "role": "owner", "type": "human"}
SCRIPTED = "{{python}} {{examples}}/agents/{role}.py"
"""The command of a scripted agent."""


def write_team(path: Path, name: str, language: str, agents: list[Agent]) -> None:
    """Writes a team.yaml with comments. Raises `StorageError`, also if the file exists by now."""
    lines = [f"  - {{{', '.join(f'{key}: {_scalar(value)}' for key, value in agent.items())}}}" for agent in agents]
    text = people_texts()("team.file", session=json.dumps(name), language=language, agents="\n".join(lines))
    apply_change(FileChange(path, None, text.encode()), path.parent)


def host_agents(admin: str | None, workers: str | None) -> list[Agent]:
    """Returns an Owner, an admin and workers with these hosts, else with those on PATH. Raises `InvalidArguments`."""
    found = [name for name, program in hosts().items() if program.is_installed]
    if not (found or (admin and workers)):
        known = ", ".join(f"{program.title} (`{program.install}`)" for program in hosts().values())
        raise InvalidArguments("no_hosts", known=known)
    admin = admin or found[0]
    names = workers.split(",") if workers else [found[0], found[1 % len(found)]]
    return _team(hosts()[admin].command, [hosts()[name].command for name in names])


def scripted_agents() -> list[Agent]:
    """Returns an Owner and the scripted agents of the examples, which need no installation and no account."""
    agents = _team(SCRIPTED.format(role="admin"), [SCRIPTED.format(role="worker")] * 2)
    return [agent if agent is OWNER else {**agent, "host": "plain"} for agent in agents]


def name_of(directory: Path) -> str:
    """Returns a session name for a directory: its name without accents and characters that names may not contain."""
    plain = re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFKD", directory.name))
    return as_name(plain, "team")


def _team(admin: str, workers: list[str]) -> list[Agent]:
    if len(workers) > len(string.ascii_lowercase):
        raise InvalidArguments("bad_parameter", name="--workers")
    below = [
        {"id": f"worker-{letter}", "role": "worker", "parent": "admin", "command": command}
        for letter, command in zip(string.ascii_lowercase, workers, strict=False)
    ]
    return [OWNER, {"id": "admin", "role": "admin", "parent": "owner", "command": admin}, *below]


def _scalar(value: str) -> str:
    """Returns a value as YAML: plain words as they are, others in quotes."""
    return value if re.fullmatch("[a-z-]+", value) else json.dumps(value, ensure_ascii=False)
