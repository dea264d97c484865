"""Support for the system tests: a team's directory, its servers over stdio, its command line, a tmux server."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import anyio
import mcp_types as types
from mcp.client.client import Client
from mcp.client.session import MessageHandlerFnT
from mcp.client.stdio import StdioServerParameters, stdio_client

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.services.team.setup import add_missing, create_session, read_team
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.store.codec import codec
from multi_agent_mcp.wiring import Services
from tests.programs import pauses

SESSION = "demo"
PATIENCE_SECONDS = 60.0
REPOSITORY = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "multi_agent_mcp")
INSIDE = (sys.executable, "-I", "-S", str(REPOSITORY / "tests" / "end_to_end" / "inside.py"))
UP = ("up", "--no-wait", "--no-watch")
"""`up` for agents that have no server, and for tests that count windows."""

NO_NOTICE = "通知はありません"
NOTICE = "【重要】通知があります。get_notifications を呼び出して確認してください。"
INTERRUPTED = (
    "通知があります。\n\n1. get_notifications() を呼び出して詳細を確認してください\n2. 通知の指示に従ってください"
)

TEAM = """\
session: demo
agents:
  - {id: owner, role: owner, type: human, host: plain}
  - {id: admin, role: admin, parent: owner, host: plain}
  - {id: worker-a, role: worker, parent: admin, host: plain}
  - {id: worker-b, role: worker, parent: admin, host: plain}
"""

ERROR_CODES = frozenset(
    [
        "invalid_id",
        "invalid_arguments",
        "invalid_session",
        "unauthorized",
        "wrong_session_purpose",
        "agent_not_found",
        "agent_not_assigned_to_project",
        "task_not_found",
        "conversation_not_found",
        "delegation_not_found",
        "execution_not_found",
        "message_not_found",
        "invalid_status_transition",
        "not_proven",
        "already_exists",
        "not_participant",
        "conversation_not_active",
        "owner_waiting",
        "polling_blocked",
        "content_too_large",
        "storage_error",
    ]
)

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS) -> T:
    """The first truthy value of `condition`; fails after so long, saying what did not happen."""
    deadline = time.monotonic() + seconds
    for pause in pauses():
        if value := condition():
            return value
        if time.monotonic() > deadline:
            break
        time.sleep(pause)
    raise AssertionError(f"it did not happen within {seconds:.0f} s: {what}")


async def eventually(condition: Callable[[], T], what: str) -> T:
    """`wait_until` that lets servers' answers come in meanwhile."""
    return await anyio.to_thread.run_sync(wait_until, condition, what)


async def eventually_answers(ask: Callable[[], Awaitable[T]], wanted: Callable[[T], object], what: str) -> T:
    """Repeats the request until the answer is `wanted`."""
    answer: T | None = None
    with anyio.move_on_after(PATIENCE_SECONDS):
        for pause in pauses():
            answer = await ask()
            if wanted(answer):
                return answer
            await anyio.sleep(pause)
    raise AssertionError(f"it did not happen within {PATIENCE_SECONDS:.0f} s: {what}; last seen: {answer!r}")


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        answer = json.loads(self.stdout)
        assert isinstance(answer, dict)
        return answer


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    cwd: Path,
    stdin: bytes = b"",
    before: Callable[[], None] | None = None,
) -> Ran:
    """Runs a command to its end; a traceback is never an answer, whatever was asked."""
    done = subprocess.run(
        [str(part) for part in command],
        env=dict(env),
        cwd=cwd,
        input=stdin,
        capture_output=True,
        check=False,
        timeout=6 * PATIENCE_SECONDS,
        preexec_fn=before,
    )
    ran = Ran(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran


def envelope(result: types.CallToolResult) -> dict[str, Any]:
    """The answer, after checking what docs/protocol.md, Answers, says of every answer."""
    assert len(result.content) == 1
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    answer = result.structured_content
    assert isinstance(answer, dict)
    assert json.loads(content.text) == answer
    assert len(content.text) < 9_000
    assert answer["success"] is not bool(result.is_error)
    assert answer["notification"] in (NO_NOTICE, NOTICE)
    if not answer["success"]:
        assert answer["error"] in ERROR_CODES
        assert answer["message"].strip()
        assert "\n" not in answer["message"]
    return answer


@dataclass
class Agent:
    """An agent's server process, as its host sees it."""

    client: Client
    pid: int

    async def raw(self, tool: str, **arguments: Any) -> types.CallToolResult:
        return await self.client.call_tool(tool, arguments)

    async def answer(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Returns the tool's answer, an error too, after checking its form."""
        return envelope(await self.raw(tool, **arguments))

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        answer = await self.answer(tool, **arguments)
        assert answer["success"], answer
        return answer

    async def refused(self, tool: str, **arguments: Any) -> str:
        """The code a call is refused with."""
        answer = await self.answer(tool, **arguments)
        assert not answer["success"], answer
        return str(answer["error"])

    async def tools(self) -> dict[str, types.Tool]:
        listed = await self.client.list_tools(cache_mode="bypass")
        return {tool.name: tool for tool in listed.tools}

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    async def gone(self) -> None:
        """Waits for the end of the process."""
        await eventually(lambda: not _runs(self.pid), f"process {self.pid} ends")


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def _leave() -> None:
    """Makes a program that is about to be started nobody's child. How it ends is known by what it says alone."""
    parent = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == parent:
        time.sleep(0.001)


@dataclass
class Team:
    """A session directory of its own, with a home and an environment that touch nobody's desktop or tmux."""

    base: Path
    env: dict[str, str]
    session: str = SESSION
    started: int = field(default=0)

    @property
    def root(self) -> Path:
        return self.base / "root"

    @property
    def path(self) -> Path:
        return self.root / self.session

    @property
    def services(self) -> Services:
        """This test's own look at the files, with nothing cached."""
        return open_session(self.root, self.session)

    def make(self, text: str = TEAM) -> Team:
        """Creates the session as `init` does, without starting a process."""
        file = self.base / "team.yaml"
        file.write_text(text, encoding="utf-8")
        team = read_team(file)
        create_session(self.root, self.session, team, None)
        add_missing(self.services.agents, team)
        return self

    def run(
        self,
        *arguments: str | Path,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        before: Callable[[], None] | None = None,
        inside: Pane | None = None,
    ) -> Ran:
        """The command line on this team, `inside` a pane or outside of tmux."""
        root = {"MULTI_AGENT_MCP_ROOT": str(self.root)}
        environment = {**self.env, **root, **(inside.env if inside else {}), **(env or {})}
        starter = inside.starter if inside else ()
        return run((*starter, *COMMAND, *arguments), env=environment, cwd=self.base, stdin=stdin, before=before)

    def ask(
        self,
        *arguments: str | Path,
        env: Mapping[str, str] | None = None,
        before: Callable[[], None] | None = None,
        inside: Pane | None = None,
    ) -> dict[str, Any]:
        """A command's JSON answer; it must have succeeded."""
        ran = self.run(*arguments, "--json", env=env, before=before, inside=inside)
        assert ran.code == 0, ran
        assert ran.stderr == ""
        assert ran.json["success"] is True
        return ran.json

    def decide(self, *arguments: str) -> dict[str, Any]:
        """`ask`, by a person while servers run: their host is this process, and what is below it is in their hands."""
        return self.ask(*arguments, before=_leave)

    def send(self, receiver: str, content: str = "hello", *, sender: str = "admin", **options: str) -> dict[str, Any]:
        """`send`, by somebody whose server does not run."""
        given = [text for name, value in options.items() for text in (f"--{name}", value)]
        return self.ask("send", receiver, content, "--as", sender, *given)

    def post(self, receiver: str, content: str = "hello") -> None:
        """A message from the admin, without the price of a process."""
        services = self.services
        services.messages.send(services.agents.get("admin"), Draft(content=content, receiver_id=receiver))

    def delivery(self, receiver: str, *, sender: str = "admin") -> tuple[str, str | None]:
        """State and reason of a message sent now."""
        delivery = self.send(receiver, sender=sender)["delivery"][receiver]
        return delivery["state"], delivery.get("reason")

    def mailbox(self, agent_id: str) -> list[Message]:
        """Returns every message in the agent's mailbox and its archive, read directly from the files, oldest first by
        the time in the header, as file names have a resolution of one second."""
        decode = codec(Message).decode
        found = (decode(path.read_bytes()) for path in (self.path / "ipc" / agent_id).rglob("*.md"))
        return sorted(found, key=lambda message: (message.created_at, message.id))

    def unread(self, agent_id: str) -> list[Message]:
        return [message for message in self.mailbox(agent_id) if message.read_at is None]

    def key(self, agent_id: str) -> str:
        return (self.path / "secrets" / f"{agent_id}.key").read_text(encoding="ascii").strip()

    def notify(self, agent_id: str, name: str, **header: str) -> None:
        """Writes a notification as another program would: a scratch file that is renamed."""
        lines = [f"{key}: {value}" for key, value in header.items() if key != "instruction"]
        text = "\n".join(["---", *lines, "---", "", header.get("instruction", "")])
        self.drop(self.path / "notifications" / agent_id / name, text)

    def drop(self, path: Path, text: str) -> None:
        scratch = self.base / f"{path.name}.part"
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(path)

    @asynccontextmanager
    async def server(
        self,
        agent_id: str | None,
        *options: str,
        mode: str = "auto",
        env: Mapping[str, str] | None = None,
        on_message: MessageHandlerFnT | None = None,
        cwd: Path | None = None,
        inside: Pane | None = None,
        starter: tuple[str, ...] = (),
    ) -> AsyncIterator[Agent]:
        """Starts `serve` as a host does, `inside` a pane or outside of tmux, by the words of a `starter` if it shall
        have another host than this process. Its standard error must never hold a traceback."""
        self.started += 1
        errors = self.base / f"server-{self.started}.stderr"
        arguments = [*COMMAND[1:], "serve", "--root", str(self.root), "--session", self.session, *options]
        arguments += ["--agent", agent_id] if agent_id else []
        program, *words = (inside.starter if inside else starter) + (COMMAND[0], *arguments)
        environment = {**self.env, **(inside.env if inside else {}), **(env or {})}
        parameters = StdioServerParameters(command=program, args=words, env=environment, cwd=cwd)
        with errors.open("w", encoding="utf-8") as file:
            client = Client(stdio_client(parameters, file), mode=mode, message_handler=on_message)
            failed: Exception | None = None
            async with client:
                try:
                    yield Agent(client, self._newest_pid(agent_id) if agent_id else 0)
                except Exception as error:  # noqa: BLE001 - raised again below, out of the client's exception groups
                    failed = error
            if failed is not None:
                raise failed
        said = errors.read_text(encoding="utf-8")
        assert "Traceback" not in said, said

    def _newest_pid(self, agent_id: str) -> int:
        sessions = self.services.sessions.live(agent_id)
        return max(sessions, key=lambda session: session.created_at).pid


class Terminal:
    """A tmux server of this test's own, on a socket in a short directory."""

    def __init__(self, directory: Path, env: Mapping[str, str]) -> None:
        self.socket = str(directory / "s")
        self._directory = directory
        self._env = dict(env)
        self._panes = 0
        self("new-session", "-d", "-s", "work", "-x", "120", "-y", "30", "exec cat")

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-f", "/dev/null", "-S", self.socket, *arguments],
            env=self._env,
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout.rstrip("\n")

    def pane(self, command: str | None = None, *, starts: bool = False) -> Pane:
        """A window whose program writes every line that is submitted to it into a file. With `starts` other programs
        can be started inside."""
        self._panes += 1
        log = self._directory / f"lines-{self._panes}"
        starter = shlex.join([*INSIDE, f"{log}.s"])
        before = f"{starter} </dev/null & " if starts else ""
        pane_id = self("new-window", "-d", "-P", "-F", "#{pane_id}", before + (command or f"exec tee {log}"))
        return self._ready(Pane(self, pane_id, log))

    def split(self, beside: Pane) -> Pane:
        """Opens a second pane of this kind in the same window."""
        self._panes += 1
        log = self._directory / f"lines-{self._panes}"
        pane_id = self("split-window", "-d", "-P", "-F", "#{pane_id}", "-t", beside.id, f"exec tee {log}")
        return self._ready(Pane(self, pane_id, log))

    def _ready(self, pane: Pane) -> Pane:
        """Waits until the shell through which tmux starts a window's command has become the program."""
        wait_until(lambda: pane.fact("pane_current_command") != "", "the pane's program runs")
        start = pane.fact("pane_start_command").strip('"')
        if start.startswith("exec tee") or start.endswith(f"& exec tee {pane.log}"):
            wait_until(lambda: pane.fact("pane_current_command") == "tee" and pane.log.exists(), "tee runs")
        return pane

    def end(self) -> None:
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], env=self._env, capture_output=True, check=False)
        shutil.rmtree(self._directory, ignore_errors=True)


@dataclass(frozen=True)
class Pane:
    """One pane. `lines` are the inputs of its program, each ended by an Enter."""

    terminal: Terminal
    id: str
    log: Path

    @property
    def lines(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []

    @property
    def screen(self) -> str:
        return self.terminal("capture-pane", "-p", "-J", "-t", self.id).rstrip()

    @property
    def env(self) -> dict[str, str]:
        """The variables that tmux sets for programs in this pane."""
        return {"TMUX": f"{self.terminal.socket},{self.fact('pid')},0", "TMUX_PANE": self.id}

    @property
    def starter(self) -> tuple[str, ...]:
        """The words that have a command started inside."""
        wait_until(Path(f"{self.log}.s").exists, "programs can be started in the pane")
        return (*INSIDE, f"{self.log}.s")

    def fact(self, name: str) -> str:
        return self.terminal("display-message", "-p", "-t", self.id, f"#{{{name}}}")

    def belongs_to(self, team: Team, agent_id: str) -> None:
        """Registers the pane as a server in it does; its program is declared to read lines."""
        from multi_agent_mcp.doorbell.tmux.client import pane_place

        place = pane_place(self.terminal.socket, self.id)
        assert place is not None
        team.services.workspace.registry.update(agent_id, **place, host="plain")


def line(sender: str = "admin", message_type: str = "request") -> str:
    """The doorbell for one message."""
    return f"[IPC] 新しいメッセージ: {message_type} from {sender}"


def count_line(count: int) -> str:
    """The doorbell for several."""
    return f"[IPC] 新しいメッセージ: {count}件"


def notice_line(action: str, agent_id: str = "system") -> str:
    """The doorbell for one notification."""
    return f"[IPC] 新しい通知: {action} from {agent_id}"


@contextmanager
def workers(team: Team, jobs: Sequence[Sequence[str]]) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes of `tests.end_to_end.processes`, all started before any begins its work; killed at the end."""
    command = [sys.executable, "-m", "tests.end_to_end.processes"]
    begun = [
        subprocess.Popen(
            [*command, *job],
            env=team.env,
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        for job in jobs
    ]
    try:
        for process in begun:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in begun:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        yield begun
    finally:
        for process in begun:
            process.kill()
            process.communicate()


def outcome(process: subprocess.Popen[str]) -> list[str]:
    """The lines a worker printed; it must have ended well."""
    out, err = process.communicate(timeout=3 * PATIENCE_SECONDS)
    assert process.returncode == 0, err
    return out.split()
