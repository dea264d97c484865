"""The stage of the hosts' scenarios: a team in its own directory, a separate tmux server, a scripted model, and the
host, started as by a human in a shell."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.times import parse_time
from multi_agent_mcp.doorbell.tmux.client import Server, pane_place
from multi_agent_mcp.doorbell.tmux.profiles import load_profiles
from multi_agent_mcp.doorbell.tmux.screens import Classification, classify
from multi_agent_mcp.doorbell.tmux.snapshot import take_snapshot
from tests.end_to_end.support import Pane, Team, Terminal, wait_until
from tests.hosts.replies import Call, Refuse, Reply
from tests.hosts.scripted_model import PATIENCE_SECONDS, ScriptedModel, reads_its_mail

AGENT = "worker-a"
TEAM = """\
session: demo
language: en
agents:
  - {{id: owner, role: owner, type: human}}
  - {{id: admin, role: admin, parent: owner}}
  - {{id: worker-a, role: worker, parent: admin, host: {host}{ladder}}}
"""
TASK = "Sort the figures"
REFUSING = "#!/bin/sh\nexit 1\n"
KEY_PAUSE_SECONDS = 0.3


@dataclass(frozen=True)
class Program:
    """A host as npm brings it."""

    package: str
    version: str
    command: str


class Host(ABC):
    """The properties and operations that differ between hosts."""

    name: str
    program: Program
    dialog: str
    """Text that appears in its permission dialog."""
    quit: str
    """The input with which a human ends it."""
    command: str
    """Its `command` in team.yaml."""
    compacts = ""
    """The input that has it compact the conversation."""
    offers = ""
    """Text of the menu that has to be open before it takes that input."""
    answers_shown = 1
    """How often its model sees a tool's answer: as text, and as structured content."""
    fills = False
    """Whether it compacts by itself what is longer than `CONTEXT`, in the middle of a turn."""
    trust = ""
    """Text of its question whether its directory is trusted."""
    trusting: tuple[str, ...] = ("Enter",)
    """The keys with which a human says yes to it."""
    lacks: frozenset[str] = frozenset({"rest", "trust", "arguments"})
    """Features that a scenario may need and this host lacks: `arguments` of its own in each call, `hooks`, a `waker` (a
    channel without keys), a `queue` for lines entered while it works, being left at `rest` afterwards, a question of
    `trust`, or a hook run at a `stop`."""

    @abstractmethod
    def settle_in(self, home: Path, url: str, *, trusted: Path, asks: bool = False) -> Mapping[str, str]:
        """Writes its home, offline and past every welcome, for the model at `url`; returns the environment it needs.
        Unless it `asks`, it runs its shell tool freely."""

    def prepare(self, team: Team, directory: Path) -> None:  # noqa: B027 - most need nothing
        """Makes the preparations after which `{mcp_config}` in a command suffices."""

    def refusal(self, until: float) -> Refuse | None:  # noqa: ARG002 - those that are tried do
        """What its service answers at a usage limit that lasts until then, in seconds since the epoch; None: not known
        well enough to be played."""
        return None

    def subscribe(self, env: dict[str, str], home: Path) -> None:  # noqa: B027 - Claude Code does
        """Has it use a subscription, whose limits are told with the time of their end."""

    @property
    def hooked_command(self) -> str:
        """Its `command` with our hooks."""
        return self.command

    def trust_hooks(self, team: Team, screen: Callable[[], str]) -> None:  # noqa: B027 - Codex does
        """Answers its question about our hooks at the start in a window."""

    @abstractmethod
    def furnish(self, stage: Stage, *, hooks: bool) -> str:
        """Writes the configuration of `host-config`; returns the command line with which a human starts it. Without
        `hooks` only the server is configured."""

    def settle(self, stage: Stage, *, asks_about_hooks: bool) -> None:  # noqa: ARG002 - Codex does
        """Answers its questions at the start, until it is idle."""
        stage.wait_for_state("idle")

    @abstractmethod
    def tool(self, name: str, **arguments: Any) -> Call:
        """A call of one of our tools."""

    @abstractmethod
    def shell(self, command: str, *, ask: bool = False) -> Call:
        """A call of its own shell tool; `ask`: one that it asks its human about."""

    headless = ""
    """Its command with `{words}` for what `{mcp_config}` stands for, which asks nobody and ends with its turn."""

    def write(self, path: Path) -> Call:
        """A call of its own tool that writes a file."""
        raise NotImplementedError

    @abstractmethod
    def knows(self, tool: str) -> str:
        """The name under which a request offers one of our tools."""


class Stage:
    """The environment of one scenario."""

    def __init__(self, host: Host, base: Path, team: Team, terminal: Terminal, model: ScriptedModel) -> None:
        self.host = host
        self.base = base
        self.team = team
        self.terminal = terminal
        self.model = model
        self.project = base / "project"
        self.home = base / "home"
        self.hooked = False
        self.profiles = load_profiles()
        self.pane: Pane = terminal.pane("exec bash --norc --noprofile -i")
        self.started = 0.0

    def start(self, *, hooks: bool, trusted: bool) -> None:
        """Starts the host as a human does and waits until it is idle, or asks whether it may trust its directory."""
        self.hooked = hooks
        line = self.host.furnish(self, hooks=hooks)
        (self.base / "start").write_text(f"cd {self.project}\n{line}\n", encoding="utf-8")
        if not trusted:
            self.type(f". {self.base / 'start'}")
            self.press("Enter")
            wait_until(lambda: self.host.trust in self.pane.screen, "the host asks whether it may trust the directory")
            self.registers_pane()
            return
        self.launch(asks_about_hooks=hooks)
        wait_until(lambda: self.team.services.agents.get(AGENT).pane_id == self.pane.id, "our server has started")

    def launch(self, *, asks_about_hooks: bool = False) -> None:
        """Starts or restarts it with the command line in the file `start`."""
        self.started = time.monotonic()
        self.type(f". {self.base / 'start'}")
        self.press("Enter")
        self.host.settle(self, asks_about_hooks=asks_about_hooks)

    def registers_pane(self) -> None:
        """Registers the pane as our server in it will: its host may ask something before it starts one."""
        place = pane_place(self.terminal.socket, self.pane.id)
        assert place is not None
        self.team.services.workspace.registry.update(AGENT, **place)

    def own_configuration(self) -> str:
        """Writes the agent's own files as `host-config` says; returns the line that starts the host with them."""
        configuration = self.team.ask("host-config", self.host.name, "--agent", AGENT)
        for item in configuration["files"]:
            file = Path(item["file"])
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(item["content"], encoding="utf-8")
        return str(configuration["start"])

    # actions of the human

    def type(self, text: str) -> None:
        self.terminal("send-keys", "-t", self.pane.id, "-l", "--", text)

    def press(self, *keys: str) -> None:
        time.sleep(KEY_PAUSE_SECONDS)
        self.terminal("send-keys", "-t", self.pane.id, *keys)

    def say(self, text: str, *replies: Reply) -> None:
        """The human says something, and the model is going to answer with the replies."""
        self.model.script(*replies)
        self.type(text)
        wait_until(lambda: self.draft == text, "the composer holds what was typed")
        self.press("Enter")

    # actions of others

    def send(self, content: str, **options: str) -> str:
        """A message by the command line; returns its id."""
        return str(self.team.send(AGENT, content, sender="admin", **options)["message_id"])

    def interrupt(self) -> None:
        """The task the agent works on is blocked by its superior."""
        task = self.team.ask("task", "add", TASK, "--assignee", AGENT)["task_id"]
        self.team.ask("task", "status", task, "in_progress")
        self.team.ask("task", "status", task, "blocked", "--reason", "scripted")

    # observations

    @property
    def host_process(self) -> int:
        """The process that the shell in the pane has started."""
        shell = self.pane.fact("pane_pid")
        return int(Path(f"/proc/{shell}/task/{shell}/children").read_text().split()[0])

    @property
    def sight(self) -> Classification:
        """The classification of the real screen."""
        seen = take_snapshot(Server(self.terminal.socket).pane(self.pane.id))
        return (
            Classification(seen)
            if isinstance(seen, str)
            else classify(self.profiles.named[self.host.name], seen.screen)
        )

    @property
    def state(self) -> str:
        return self.sight.state

    @property
    def draft(self) -> str:
        """The text typed in the composer."""
        composer = self.sight.composer
        return composer.typed if composer is not None else ""

    def wait_for_state(self, state: str) -> None:
        wait_until(lambda: self.state == state, f"the host is {state}", PATIENCE_SECONDS)

    def steps(self, message_id: str) -> list[tuple[str, str | None, float]]:
        """The steps of a message, each with its reason and the milliseconds since it was stored."""
        (copy,) = self.team.ask("trace", message_id)["copies"]
        times = [(step, parse_time(step["at"])) for step in copy["steps"]]
        first = times[0][1]
        return [
            (step["state"], step.get("reason"), (at - first).total_seconds() * 1000 if at and first else 0.0)
            for step, at in times
        ]

    def step(self, message_id: str, state: str, reason: str | None = None) -> float:
        """Waits for a step; returns its milliseconds since the message was stored."""

        def reached() -> list[float]:
            return [
                at for name, why, at in self.steps(message_id) if name == state and (reason is None or why == reason)
            ]

        return wait_until(reached, f"the message is {state} ({reason})")[0]

    def read_by_model(self, message_id: str, content: str, after: int = 0) -> float:
        """The model got the content as the answer of `read_messages`. Returns the milliseconds until it was read."""
        request = self.model.request_with(content, after)
        assert message_id in request.news, "the content came by itself, not as an answer of read_messages"
        return self.step(message_id, "read")


@contextmanager
def stage(
    host: Host, binaries: Path, *, hooks: bool = False, asks: bool = False, trusted: bool = True
) -> Iterator[Stage]:
    """A fresh world with the host running in it, idle. Without hooks the agent is rung in its pane."""
    base = Path(tempfile.mkdtemp(prefix="mamh-", dir="/tmp"))
    model = ScriptedModel(reads_its_mail(host.tool("read_messages")))
    terminal: Terminal | None = None
    try:
        env = environment(base, binaries)
        env |= host.settle_in(base / "home", model.url, trusted=base / ("project" if trusted else "home"), asks=asks)
        team = Team(base, env).make(TEAM.format(host=host.name, ladder="" if hooks else ", ladder: [tmux]"))
        terminal = Terminal(Path(tempfile.mkdtemp(prefix="mam-", dir="/tmp")), env)
        built = Stage(host, base, team, terminal, model)
        try:
            built.start(hooks=hooks, trusted=trusted)
            yield built
        except Exception as error:
            with contextlib.suppress(AssertionError):
                error.add_note(built.pane.screen)
            raise
    finally:
        if terminal is not None:
            terminal.end()
        model.close()
        clear_away(base)


def names_in(environment: bytes) -> set[str]:
    """The names of an environment, in the form of `env -0` and of `/proc/PID/environ`."""
    return {line.partition(b"=")[0].decode() for line in environment.split(b"\0") if line}


def inhabitants(base: Path) -> Iterator[int]:
    """The processes that live in a world: those with its HOME."""
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"HOME={base / 'home'}".encode() in environ.read_bytes().split(b"\0"):
                yield int(environ.parent.name)


def clear_away(base: Path) -> None:
    """Removes a world, and ends whoever still lives in it: Gemini CLI outlives its window when that closes as it
    begins."""
    for pid in inhabitants(base):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(base, ignore_errors=True)


def environment(base: Path, binaries: Path) -> dict[str, str]:
    """An environment that shares nothing with this machine: no proxy, key, home, or desktop for notices."""
    silent = base / "silent"
    for directory in (silent, base / "home", base / "project"):
        directory.mkdir()
    for name in ("osascript", "notify-send"):
        (silent / name).write_text(REFUSING, encoding="ascii")
        (silent / name).chmod(0o755)
    return {
        "HOME": str(base / "home"),
        "PATH": f"{binaries}:{silent}:{os.environ['PATH']}",
        "SHELL": "/bin/bash",
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "TMUX_TMPDIR": str(base),
    }
