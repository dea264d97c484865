"""`host learn` on a program without a profile, in a real tmux, and the doorbell with the learned profile."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

from multi_agent_mcp.doorbell.tmux.learning import DRAFT_TEXT
from tests.end_to_end.support import COMMAND, Pane, Team, Terminal, wait_until
from tests.programs import REPOSITORY

pytestmark = pytest.mark.tmux
DONE, ASK = "F5", "F6"
AT_REST, SPINS, ASKS = "Say something", "Pondering", "Delete the whole directory?"


@pytest.fixture
def pane(team: Team, terminal: Terminal) -> Pane:
    """A stranger's program, registered for worker-a as its server would."""
    log = team.base / "heard"
    program = f"env PYTHONPATH={REPOSITORY} {sys.executable} -m tests.conformance.unknown_tui {log}"
    made = Pane(terminal, terminal.pane(f"exec {program}").id, log)
    wait_until(lambda: AT_REST in made.screen, "it shows its composer")
    made.belongs_to(team, "worker-a")
    team.services.workspace.registry.update("worker-a", host=None)
    return made


class Hands:
    """A human's actions at the pane; each waits until the program shows its effect."""

    def __init__(self, pane: Pane) -> None:
        self.pane = pane

    def keys(self, *names: str, shows: str) -> None:
        self.pane.terminal("send-keys", "-t", self.pane.id, *names)
        wait_until(lambda: shows in self.pane.screen, shows)

    def draft(self) -> None:
        self.keys("-l", DRAFT_TEXT, shows=f"» {DRAFT_TEXT}")

    def work(self) -> None:
        self.keys("C-u", shows=AT_REST)
        self.keys("-l", "count", shows="» count")
        self.keys("Enter", shows=SPINS)

    def ask(self) -> None:
        self.keys(ASK, shows=ASKS)

    def rest(self) -> None:
        self.keys(DONE, shows=AT_REST)
        wait_until(lambda: not {SPINS, ASKS} & set(self.pane.screen.split()), "at rest")

    @property
    def steps(self) -> list[Callable[[], None]]:
        return [self.rest, self.draft, self.work, self.ask, self.rest]


@contextmanager
def lesson(team: Team, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**team.env, "MULTI_AGENT_MCP_ROOT": str(team.root)}
    with subprocess.Popen(
        [*COMMAND, "host", "learn", "worker-a", *arguments],
        env=environment, cwd=team.base, text=True, encoding="utf-8",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def until(stream: IO[str] | None, words: str) -> str:
    """Reads the stream up to the line with these words; returns the text read."""
    assert stream is not None
    said = ""
    while words not in said:
        line = stream.readline()
        assert line, said
        said += line
    return said


def answer(process: subprocess.Popen[str], text: str = "") -> None:
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


def learned(team: Team, hands: Hands, steps: list[Callable[[], None]] | None = None) -> tuple[int, str, str]:
    """The whole lesson, each question answered with Enter: its exit code, what it said, and its refusal."""
    questions = ["これでよいですか", "これでよいですか", "どれですか", "これでよいですか", "これでよいですか"]
    said = ""
    with lesson(team) as process:
        for number, (show, question) in enumerate(zip(steps or hands.steps, questions, strict=True), 1):
            said += until(process.stdout, f"{number}/5")
            show()
            answer(process)
            said += until(process.stdout, question)
            answer(process)
        answer(process)
        rest, refused = process.communicate(timeout=60)
        return process.returncode, said + rest, refused


def profile(team: Team) -> dict[str, Any]:
    (file,) = (team.root / "hosts").glob("*.yaml")
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def entered(pane: Pane) -> list[str]:
    return [item["line"] for item in map(json.loads, pane.lines) if "line" in item]


def test_what_was_learned_rings_at_rest_and_nowhere_else(team: Team, pane: Pane) -> None:
    hands = Hands(pane)
    assert team.delivery("worker-a") == ("stored", "unknown_host")
    code, said, refused = learned(team, hands)
    assert (code, refused) == (0, ""), said
    assert "待機中: idle" in said
    assert "下書き: draft" in said
    assert "作業中: busy" in said
    assert "質問: dialog" in said
    assert profile(team)["busy"]["screen"] == "Pondering for"
    assert team.delivery("worker-a") == ("submitted", None)
    assert entered(pane)[-1].startswith("[IPC] ")
    for show, reason in ((hands.work, "busy"), (hands.ask, "dialog"), (hands.draft, "draft")):
        team.ask("read", "worker-a")
        hands.rest()
        show()
        heard = len(pane.lines)
        assert team.delivery("worker-a") == ("stored", reason)
        assert "[IPC]" not in pane.screen.partition("╭")[2]
        assert len(pane.lines) == heard
    hands.keys("C-u", shows=AT_REST)
    team.ask("read", "worker-a")
    (file,) = (team.root / "hosts").glob("*.yaml")
    file.write_text(file.read_text(encoding="utf-8").replace("model-", "other-"), encoding="utf-8")
    assert team.delivery("worker-a") == ("stored", "unknown_screen")  # its footer is not the one that was learned


def test_work_that_looks_like_rest_is_shown_again_and_nothing_is_written(team: Team, pane: Pane) -> None:
    hands = Hands(pane)
    with lesson(team) as process:
        for number, show in ((1, hands.rest), (2, hands.draft)):
            until(process.stdout, f"{number}/5")
            show()
            answer(process)
            until(process.stdout, "これでよいですか")
            answer(process)
        until(process.stdout, "3/5")
        hands.keys("C-u", shows=AT_REST)
        answer(process)
        assert "見分けるものがありません" in until(process.stdout, "3/5")
        answer(process, "q")
        assert process.wait(timeout=60) == 1
    assert not (team.root / "hosts").exists()


def test_what_is_never_typed_into_is_not_learned(team: Team, terminal: Terminal) -> None:
    pane = terminal.pane("exec bash --norc")
    pane.belongs_to(team, "worker-a")
    team.services.workspace.registry.update("worker-a", host=None)
    refused = team.run("host", "learn", "worker-a")
    assert (refused.code, "bash" in refused.stderr) == (1, True)


def test_its_own_pane_is_not_learned(team: Team, terminal: Terminal) -> None:
    gate, log = team.base / "gate", team.base / "said"
    command = f"{sys.executable} -m multi_agent_mcp host learn worker-a --root {team.root} 2>{log}"
    pane = terminal.pane(f"while [ ! -e {gate} ]; do sleep 0.1; done; exec env PYTHONPATH={REPOSITORY} {command}")
    pane.belongs_to(team, "worker-a")
    gate.touch()
    wait_until(lambda: log.exists() and log.read_text(encoding="utf-8") != "", "it refuses")
    assert "別のペインで" in log.read_text(encoding="utf-8")


def test_doctor_offers_it_and_names_a_profile_that_cannot_be_used(team: Team, pane: Pane) -> None:
    hosts = team.root / "hosts"
    hosts.mkdir()
    (hosts / "mine.yaml").write_text("composer: [", encoding="utf-8")
    done = team.run("doctor", "--json")
    assert done.code == 1
    findings = {item["subject"]: item for item in done.json["findings"] if item["check"] in ("hosts", "panes")}
    assert findings["hosts/mine.yaml"]["level"] == "problem"
    assert "multi-agent-mcp host learn worker-a" in findings["worker-a"]["repair"]
    assert Path(pane.log).exists() is False


@pytest.mark.parametrize("key", ["C-c", "Escape", "a", "-l", "C-Enter;"])
def test_no_key_is_learned_that_enters_no_line(team: Team, key: str) -> None:
    refused = team.run("host", "learn", "worker-a", f"--submit={key}")
    assert refused.code == 1
    assert "--submit" in refused.stderr
