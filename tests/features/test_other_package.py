"""A feature of another package, `examples/feature/`, installed into an environment of its own
(docs/protocol.md, Features; docs/first-change.md, A feature)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.cli.conftest import TEAM
from tests.end_to_end.conftest import anyio_backend  # noqa: F401 - a fixture
from tests.end_to_end.support import Ran, run

EXAMPLE = Path(__file__).parents[2] / "examples" / "feature"
BROKEN = {
    "broken": "broken:NOTHING",
    "noisy": "noisy:NOISY",
    "quitter": "quitter:NOTHING",
    "leaver": "leaver:LEAVER",
    "thief": "thief:THIEF",
}
MODULES = {
    "broken": "raise RuntimeError('no such thing')",
    "noisy": """
from multi_agent_mcp.features import Feature, Kind
NOISE = Kind("noises", "nse", "noise", entity="decisions.rules:Decision", follows="noisy:RULES", is_searched=True)
NOISY = Feature(
    name="noisy", tools=("noisy:fails",), items=("noisy:fails",), checks={"noisy": "noisy:fails"}, kinds=(NOISE,),
    briefing=("noisy:fails",), judges=("noisy:fails",), texts="noisy:gone", settings={"noise": "noisy:fails"},
)
def fails(*_):
    raise ValueError("a bug")
def __getattr__(name):
    if name != "RULES":
        raise AttributeError(name)
    from multi_agent_mcp.domain.notification import Following, Notification
    def of(noise, agents):
        yield Notification(
            id="ntf_0123456789ab", target_agent_id="admin", type="status_change", action="noise_made",
            created_at=noise.created_at,
        )
    return {"noise_made": Following(of), "noise_gone": Following(fails)}
""",
    "quitter": "raise SystemExit(3)",
    "leaver": """
from multi_agent_mcp.features import Command, Feature
LEAVER = Feature(
    name="leaver", tools=("quitter:TOOLS",), checks={"leaver": "quitter:check"}, texts="quitter:TEXTS",
    commands={"bye": Command("Mail", "quitter:bye", "Leave.")},
)
""",
    "thief": """
from multi_agent_mcp.features import Command, Feature
THIEF = Feature(name="thief", commands={"send": Command("Mail", "thief:send", "Send it to me.")})
""",
}


@dataclass(frozen=True)
class Installed:
    """An interpreter with this package, and others that declare features; a project with a session."""

    python: Path
    project: Path

    @property
    def session(self) -> Path:
        return self.project / ".multi-agent-mcp" / "demo"

    def run(self, *words: str) -> Ran:
        command: list[str | Path] = [self.python, "-E", "-P", "-m", "multi_agent_mcp", *words]
        return run(command, env=self.env, cwd=self.project)

    def json(self, *words: str) -> dict[str, Any]:
        ran = self.run(*words, "--json")
        assert ran.json["success"], ran
        return ran.json

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.project), "LC_ALL": "C.UTF-8", "TERM": "dumb"}

    def say(self, features: str) -> None:
        (self.project / "team.yaml").write_text(f"{TEAM}features: {features}\n", encoding="utf-8")

    @asynccontextmanager
    async def server(self, agent_id: str) -> Any:
        words = ["-E", "-P", "-m", "multi_agent_mcp", "serve", "--agent", agent_id, "--root", str(self.session.parent)]
        parameters = StdioServerParameters(command=str(self.python), args=words, env=self.env, cwd=self.project)
        async with Client(stdio_client(parameters)) as client:
            yield client


def declare(site: Path, name: str, entries: dict[str, str]) -> None:
    """Writes what an installer writes of a distribution with these entry points."""
    info = site / f"{name}-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n")
    lines = (f"{key} = {value}" for key, value in entries.items())
    (info / "entry_points.txt").write_text("\n".join(["[multi_agent_mcp.features]", *lines, ""]))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the example and three packages that do not behave."""
    base = tmp_path_factory.mktemp("environment")
    venv.create(base, with_pip=False, symlinks=True)
    (site,) = base.glob("lib/python*/site-packages")
    (site / "tested.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    shutil.copytree(EXAMPLE / "decisions", site / "decisions", ignore=shutil.ignore_patterns("__pycache__"))
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declare(site, project["name"], project["entry-points"]["multi_agent_mcp.features"])
    declare(site, "others", BROKEN)
    for name, text in MODULES.items():
        (site / f"{name}.py").write_text(text)
    return base / "bin" / "python"


@pytest.fixture
def installed(environment: Path, tmp_path: Path) -> Installed:
    made = Installed(environment, tmp_path)
    made.say("{decisions: on}")
    ran = made.run("init")
    assert ran.code == 0, ran
    return made


def test_it_is_neither_there_nor_imported_until_it_is_on(installed: Installed) -> None:
    installed.say("{decisions: off}")
    assert installed.run("init").code == 0
    assert installed.run("decisions").code == 2
    assert "decisions" not in installed.run("--help").stdout
    program = "import sys; from pathlib import Path; from multi_agent_mcp.bootstrap import open_session; "
    program += "open_session(Path(sys.argv[1]), 'demo'); print('decisions' in sys.modules)"
    command = [str(installed.python), "-E", "-P", "-c", program, str(installed.session.parent)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_key_of_its_own_is_judged_and_read_by_its_parser(installed: Installed) -> None:
    installed.say("{decisions: on}\ndecisions_shown: 0")
    ran = installed.run("init")
    assert (ran.code, "decisions_shown must be a number from 1 to 20" in ran.stderr) == (1, True), ran
    installed.say("{decisions: on}\ndecisions_shown: 1")
    assert installed.json("init")["changed"] == {"session.yaml": ["decisions_shown"]}
    (installed.session / "decisions").mkdir()
    for number, text in enumerate(("We use tabs.", "We use spaces.")):
        header = f"---\nid: dcn_00000000000{number}\nagent_id: worker-a\n---\n"
        (installed.session / "decisions" / f"dcn_00000000000{number}.md").write_text(header + text)
    briefing = installed.run("agent", "brief", "worker-a").stdout
    assert ("We use spaces." in briefing, "We use tabs." in briefing) == (True, False)


@pytest.mark.anyio
async def test_a_call_of_its_tool_leaves_an_entity_that_waits_for_the_human_and_is_in_the_briefing(
    installed: Installed,
) -> None:
    async with installed.server("worker-a") as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert listed["note_decision"].input_schema["required"] == ["decision"]
        empty = await client.call_tool("note_decision", {"decision": " "})
        assert empty.structured_content["error"] == "invalid_arguments"
        answer = await client.call_tool("note_decision", {"decision": "We use tabs."})
        decision_id = answer.structured_content["decision_id"]
    file = installed.session / "decisions" / f"{decision_id}.md"
    assert file.read_text(encoding="utf-8").endswith("We use tabs.\n") or "We use tabs." in file.read_text()
    (item,) = (one for one in installed.json("attention")["items"] if one["kind"] == "decision")
    assert (item["id"], item["agent_id"]) == (decision_id, "worker-a")
    assert "We use tabs." in item["text"]
    assert "You have decided: " in installed.run("agent", "brief", "worker-a").stdout
    assert "You have decided: " not in installed.run("agent", "brief", "admin").stdout
    assert installed.json("show", decision_id[:8])["id"] == decision_id
    assert [one["id"] for one in installed.json("search", "tabs")["results"]] == [decision_id]
    assert "  decision  " in installed.run("search", "tabs").stdout
    assert "decisions" in installed.run("--help").stdout
    async with installed.server("admin") as client:
        told = (await client.call_tool("get_unread_count", {})).structured_content["notification"]
        assert told.startswith("[")
        assert installed.json("decisions", "--seen", decision_id)["decisions"] == []
        told = (await client.call_tool("get_notifications", {})).structured_content
        assert told["notifications"] == []
    assert not [one for one in installed.json("attention")["items"] if one["kind"] == "decision"]
    (archived,) = (installed.session / "decisions" / "archive").glob(f"*/{decision_id}.md")
    assert archived.is_file()


def test_a_damaged_file_of_it_is_a_finding_of_its_check(installed: Installed) -> None:
    place = installed.session / "decisions"
    place.mkdir()
    (place / "dcn_0123456789ab.md").write_bytes(b"---\nid: [\n---\n")
    for _ in range(2):  # now, and when it has been set aside
        found = [one for one in installed.run("doctor", "--json").json["findings"] if one["check"] == "decisions"]
        assert [(one["level"], one["subject"]) for one in found] == [("problem", "dcn_0123456789ab.md")]
        assert "cannot be read" in found[0]["finding"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("broken", "RuntimeError: no such thing"),
        ("thief", "send exists already"),
        ("noisy", "AttributeError"),
        ("quitter", "SystemExit: 3"),
        ("leaver", "SystemExit: 3"),
    ],
)
def test_one_that_cannot_be_loaded_is_refused_by_init_and_up_and_named_by_the_others(
    installed: Installed, name: str, words: str
) -> None:
    installed.say(f"{{decisions: on, {name}: on}}")
    ran = installed.run("init")
    assert (ran.code, words in ran.stderr, name in ran.stderr) == (1, True, True), ran
    settings = installed.session / "session.yaml"
    settings.write_text(settings.read_text().replace("decisions:", f"{name}: 'on'\n  decisions:"))
    ran = installed.run("up", "--no-wait")
    assert (ran.code, words in ran.stderr) == (1, True), ran
    ran = installed.run("send", "admin", "hello")
    assert ran.code == 0, ran
    assert name == "noisy" or name in ran.stderr or words in ran.stderr
    assert installed.run("decisions").code == 0
    assert installed.run("doctor", "--json").json["findings"] is not None


def test_a_command_that_cannot_be_loaded_is_named(installed: Installed) -> None:
    settings = installed.session / "session.yaml"
    settings.write_text(settings.read_text().replace("decisions:", "leaver: 'on'\n  decisions:"))
    ran = installed.run("bye")
    assert (ran.code, "quitter:bye of a feature failed: SystemExit: 3" in ran.stderr) == (2, True), ran


@pytest.mark.anyio
async def test_bugs_of_one_take_nothing_from_the_others(installed: Installed) -> None:
    settings = installed.session / "session.yaml"
    text = settings.read_text().replace("decisions:", "noisy: 'on'\n  decisions:")
    settings.write_text(f"{text}noise: 1\n")
    assert installed.run("checks", "approve").code == 0
    (installed.session / "noises").mkdir()
    (installed.session / "noises" / "nse_0123456789ab.md").write_text("---\nid: nse_0123456789ab\n---\na noise\n")
    async with installed.server("admin") as client:
        assert (await client.call_tool("get_unread_count", {})).structured_content["success"]
        (notice,) = (await client.call_tool("get_notifications", {})).structured_content["notifications"]
        assert notice["message"] == notice["instruction"] == "noise_made"  # its texts are lacking
    assert "  noise  " in installed.run("search", "noise").stdout
    async with installed.server("worker-a") as client:
        assert "note_decision" in {tool.name for tool in (await client.list_tools()).tools}
        assert (await client.call_tool("note_decision", {"decision": "x"})).structured_content["success"]
        assert (await client.call_tool("get_next_action", {})).structured_content["success"]
    assert [one["kind"] for one in installed.json("attention")["items"]] == ["decision"]
    assert "You have decided: " in installed.run("agent", "brief", "worker-a").stdout
    assert installed.run("doctor", "--json").json["findings"] is not None
    event = json.dumps({"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "git stash"}})
    command: list[str | Path] = [installed.python, "-E", "-P", "-m", "multi_agent_mcp", "hook", "--agent", "worker-a"]
    assert run(command, env=installed.env, cwd=installed.project, stdin=event.encode()).code == 0


def test_the_example_touches_no_file_of_the_package() -> None:
    assert sys.modules.get("decisions") is None
    assert {path.suffix for path in EXAMPLE.rglob("*") if path.is_file() and "__pycache__" not in path.parts} == {
        ".py",
        ".toml",
    }
