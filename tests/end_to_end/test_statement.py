"""The statement: in the host's own place for it, or at the beginning of what our server says, never in both."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.texts import LANGUAGES, catalogue
from multi_agent_mcp.wiring import Services
from tests.end_to_end.support import TEAM, Team

LONGEST = "w" * 64


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_fits_whatever_the_agents_are_called(language: str) -> None:
    texts = catalogue(language)
    said = texts("statement", agent_id=LONGEST, role="worker", session=LONGEST, superior=LONGEST, server="ipc")
    assert len(said) <= 1_200
    assert len(f"{said}\n{texts('server.instructions')}") <= 2_048, "Claude Code cuts what is longer"
    for word in ("[IPC]", "authority", "superior", "colleague", "self", "system", "unverified", "multi-agent-mcp"):
        assert word in said


@pytest.mark.anyio
async def test_a_servers_instructions_begin_with_it_unless_its_host_has_it(team: Team) -> None:
    said = team.services.statements.of(team.services.agents.get("worker-a"))
    for options, begins in (((), True), (("--no-statement",), False)):
        async with team.server("worker-a", *options, mode="legacy") as worker:
            assert (worker.client.instructions or "").startswith(said) is begins


@pytest.mark.parametrize("whose", ["team", "agent"])
def test_it_can_be_left_out(bare: Team, whose: str) -> None:
    text = TEAM if whose == "agent" else f"statement: off\n{TEAM}"
    team = bare.make(text.replace("id: worker-a,", "id: worker-a, statement: off,") if whose == "agent" else text)
    services = team.services
    assert services.statements.of(services.agents.get("worker-a")) == ""
    assert bool(services.statements.of(services.agents.get("worker-b"))) is (whose == "agent")
    shown = {host: _start(services, host) for host in ("claude", "codex", "copilot")}
    assert not any(
        word in start for start in shown.values() for word in ("append-system", "developer_", "INSTRUCTIONS")
    )


def _start(services: Services, host: str) -> str:
    return services.host_configurations.of(host, "worker-a").start


def _changed(services: Services, command: str) -> Agent:
    return services.agents.change("worker-a", command=command)


def test_codexs_own_developer_instructions_stay_before_it(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text('model = "m"\ndeveloper_instructions = "Write \\"tests\\"."\n')
    agent = _changed(services, "codex {mcp_config}")
    words = shlex.split(services.host_configurations.argument(agent))
    (option,) = (word for word in words if word.startswith("developer_instructions="))
    said = tomllib.loads(option)["developer_instructions"]
    assert said == f'Write "tests".\n\n{services.statements.of(agent)}'
    own = _changed(services, "codex -c developer_instructions=x {mcp_config}")
    assert "developer_instructions" not in services.host_configurations.argument(own)


def test_copilots_directories_stay_before_ours(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COPILOT_CUSTOM_INSTRUCTIONS_DIRS", "/mine")
    agent = _changed(services, "copilot {mcp_config}")
    services.host_configurations.argument(agent)
    named = services.host_configurations.environment(agent)["COPILOT_CUSTOM_INSTRUCTIONS_DIRS"].split(",")
    (file,) = Path(named[1]).iterdir()
    assert named[0] == "/mine"
    assert file.read_text(encoding="utf-8").endswith(services.statements.of(agent))


def test_opencode_reads_it_beside_other_instructions(services: Services) -> None:
    agent = _changed(services, "opencode {mcp_config}")
    services.host_configurations.argument(agent)
    file = Path(services.host_configurations.environment(agent)["OPENCODE_CONFIG"])
    (named,) = json.loads(file.read_text(encoding="utf-8"))["instructions"]
    assert Path(named).read_text(encoding="utf-8") == services.statements.of(agent)
    services.host_configurations.argument(services.agents.get("worker-a"))
    assert json.loads(file.read_text(encoding="utf-8"))["instructions"] == [named]
