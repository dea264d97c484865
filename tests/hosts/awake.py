"""A team opened by `up`, without anybody typing: its hosts begin with their first prompt and follow the answers."""

from __future__ import annotations

import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from multi_agent_mcp.domain import times
from multi_agent_mcp.domain.entity import new_id
from multi_agent_mcp.domain.message import Delegation
from multi_agent_mcp.windows.agent_command import first_prompt
from tests.end_to_end.chat_support import new_task, task_of
from tests.end_to_end.support import UP, Team, Terminal, wait_until
from tests.hosts.claude import Claude
from tests.hosts.codex import Codex
from tests.hosts.copilot import Copilot
from tests.hosts.gemini import Gemini
from tests.hosts.opencode import OpenCode
from tests.hosts.replies import Call, Reply, Request, Say
from tests.hosts.scenarios import Measured
from tests.hosts.scripted_model import WAITING, ScriptedModel, way_to_wait
from tests.hosts.stage import Host, clear_away, environment

CLAUDE, CODEX = Claude(), Codex()
HOSTS: tuple[Host, ...] = (CLAUDE, CODEX, OpenCode(), Gemini(), Copilot())
PARTNERS: dict[str, Host] = {CLAUDE.name: CODEX, CODEX.name: CLAUDE}
"""The host of worker-b; hosts not listed use the same host for both."""
TEAM = """\
session: demo
language: en
agents:
  - {{id: owner, role: owner, type: human}}
  - {{id: admin, role: admin, parent: owner}}
  - {{id: worker-a, role: worker, parent: admin, command: "{first}"}}
  - {{id: worker-b, role: worker, parent: admin, spawn: on_demand, command: "{second}"}}
"""
QUESTION, ANSWER, THANKS = "Which colour shall the door have?", "Green, please.", "Green it is."


class Rule:
    """The call an agent makes when its news match a pattern; `\\1` in an argument is replaced by the pattern's
    group."""

    def __init__(self, pattern: str, tool: str, **arguments: str) -> None:
        self.pattern = re.compile(pattern, re.DOTALL)
        self.tool = tool
        self.arguments = arguments

    def call(self, host: Host, request: Request) -> Call | None:
        found = self.pattern.search(request.news)
        return found and host.tool(self.tool, **{key: found.expand(text) for key, text in self.arguments.items()})


CONVERSATION = r'.*"conversation_id": ?"(cnv_\w+)"'
BEGIN = Rule("", "get_next_action")
WAKE = Rule(r"\[IPC\] New ", "get_next_action")
LEAVE = Rule(r'"action": ?"exit"', "logout")
READ = Rule(r'"action": ?"(conversation_\w+|read_messages)"', "read_messages")
WORKING = (
    Rule(r'"action": ?"work"', "delegate_to_chat_session", target_agent_id="worker-b", purpose=QUESTION),
    Rule(r'"conversations": ?\[.*"status": ?"ended"', "report_completed", result="success", summary=ANSWER),
    WAKE,
)
ASKING = (
    Rule(r'"action": ?"process_delegation"', "get_pending_delegations"),
    Rule(
        r'"delegations": ?\[.*"delegation_id": ?"(dlg_\w+)"',
        "start_conversation",
        target_agent_id="worker-b",
        initial_message=QUESTION,
        delegation_id=r"\1",
    ),
    READ,
    Rule(re.escape(ANSWER) + CONVERSATION, "end_conversation", conversation_id=r"\1", final_message=THANKS),
    Rule(r'"status": ?"ended"', "get_next_action"),
    LEAVE,
    WAKE,
)
ANSWERING = (
    READ,
    Rule('"content": ?"' + re.escape(QUESTION) + CONVERSATION, "send_message", conversation_id=r"\1", content=ANSWER),
    Rule(re.escape(THANKS), "get_next_action"),
    LEAVE,
    WAKE,
)
RULES = {("worker-a", "task"): WORKING, ("worker-a", "chat"): ASKING, ("worker-b", "chat"): ANSWERING}


class AwakeTeam:
    """worker-a in one host and worker-b in another, both talking to one scripted model."""

    def __init__(self, hosts: Sequence[Host], base: Path, env: dict[str, str]) -> None:
        self.hosts = hosts
        first, second = (host.command for host in hosts)
        self.team = Team(base, env).make(TEAM.format(first=first, second=second))
        self.model = ScriptedModel(self.decide)
        for host in dict.fromkeys(hosts):
            env |= host.settle_in(base / "home", self.model.url, trusted=base)
            host.prepare(self.team, base)
        self.terminal = Terminal(Path(tempfile.mkdtemp(prefix="mam-", dir="/tmp")), env)
        self.conversation_over = threading.Event()
        self.prompts: dict[tuple[str, str], str] = {}
        self.begun: set[tuple[str, str]] = set()

    def decide(self, request: Request) -> Reply:
        """Returns the reply of the first matching rule of this agent's session. After delegating, the task session asks
        for its conversations once the scenario allows it."""
        host = next((host for host in self.hosts if host.knows("get_next_action") in request.tools), CLAUDE)
        me = next((key for key, prompt in self.prompts.items() if prompt in request.history), None)
        if me == ("worker-a", "task") and '"delegation_id"' in request.news:
            return replace(host.tool("get_task_conversations"), until=self.conversation_over)
        if me is None:
            return Say("OK")
        rules = RULES[me] if me in self.begun else (BEGIN,)
        call = next((call for rule in rules if (call := rule.call(host, request)) is not None), None)
        return Say("OK") if call is None else self.offered(me, call, request)

    def offered(self, me: tuple[str, str], call: Call, request: Request) -> Call:
        """Returns the call, or a wait for our server if the host does not offer the tool yet."""
        if call.name in request.tools:
            self.begun.add(me)
            return call
        waiting = way_to_wait(request)
        assert waiting is not None, f"neither {call.name} nor a wait for it is offered"
        return waiting

    def up(self) -> float:
        """Opens the windows; returns when that began."""
        services = self.team.services
        for agent_id, purpose in RULES:
            self.prompts[agent_id, purpose] = first_prompt(services, services.agents.get(agent_id), purpose)
        began = time.monotonic()
        self.team.ask(*UP, "--socket", self.terminal.socket)
        return began

    def end(self) -> None:
        self.team.run("down")
        self.terminal.end()
        self.model.close()

    def begins(self, agent_id: str, purpose: str) -> Request:
        """The request with which this session began: its prompt, sent to the model, which calls `get_next_action`."""
        request = self.model.request_with(self.prompts[agent_id, purpose])
        assert isinstance(request.reply, Call)
        assert request.reply.tool.endswith(("get_next_action", *(call.tool for call in WAITING)))
        return request

    @property
    def windows(self) -> list[str]:
        return sorted(self.terminal("list-windows", "-a", "-F", "#{window_name}").splitlines())

    @property
    def screens(self) -> str:
        panes = self.terminal("list-panes", "-a", "-F", "#{pane_id}").splitlines()
        return "\n".join(self.terminal("capture-pane", "-p", "-t", pane) for pane in panes)


@dataclass(frozen=True)
class AwakeScenario:
    """worker-a is the host that is tried, worker-b the other one."""

    title: str
    play: Callable[[AwakeTeam], Measured]

    def fits(self, host: Host) -> bool:  # noqa: ARG002 - as a `Scenario` does
        """Every host is started with a prompt."""
        return True

    def run(self, host: Host, binaries: Path) -> Measured:
        """Plays it in a world of its own."""
        with awake_team((host, PARTNERS.get(host.name, host)), binaries) as team:
            return self.play(team)


@contextmanager
def awake_team(hosts: Sequence[Host], binaries: Path) -> Iterator[AwakeTeam]:
    """A fresh world, with a tmux server whose environment has what the hosts need."""
    base = Path(tempfile.mkdtemp(prefix="mamh-", dir="/tmp"))
    try:
        built = AwakeTeam(hosts, base, environment(base, binaries))
        try:
            yield built
        except Exception as error:
            error.add_note(built.screens)
            raise
        finally:
            built.end()
    finally:
        clear_away(base)


def asks_for_work(team: AwakeTeam) -> Measured:
    task = new_task(team.team, "Paint the door")
    began = team.up()
    asked = team.begins("worker-a", "task")
    handed = team.model.request_with(task.id)
    assert Rule('"action": ?"work"', "").pattern.search(handed.news)
    assert task_of(team.team, task.id).status == "in_progress"
    return Measured((asked.at - began) * 1000, "`up` → the model has its prompt")


def takes_its_delegation(team: AwakeTeam) -> Measured:
    now = times.now()
    delegation = Delegation(
        id=new_id("dlg"),
        agent_id="worker-a",
        target_agent_id="worker-b",
        purpose=QUESTION,
        task_id=None,
        created_at=now,
        updated_at=now,
    )
    team.team.services.workspace.delegations.add(delegation)
    began = team.up()
    asked = team.begins("worker-a", "chat")
    (conversation,) = wait_until(team.team.services.workspace.conversations.all, "a conversation begins")
    assert (conversation.initiator_id, conversation.delegation_id) == ("worker-a", delegation.id)
    assert "worker-a-chat" in team.windows
    return Measured((asked.at - began) * 1000, "`up` → the model of the chat session has its prompt")


def awaits_a_conversation(team: AwakeTeam) -> Measured:
    task = new_task(team.team, "Paint the door")
    began = team.up()
    for agent_id, purpose in RULES:
        team.begins(agent_id, purpose)
    team.model.request_with(THANKS)  # worker-b has read the last words
    team.conversation_over.set()
    wait_until(lambda: task_of(team.team, task.id).status == "done", "the task is done")
    done = time.monotonic()
    looked = team.model.request_with('"conversations"')
    assert all(words in looked.news for words in (QUESTION, ANSWER, THANKS))
    wait_until(lambda: not [name for name in team.windows if name.endswith("-chat")], "the chat windows are closed")
    return Measured((done - began) * 1000, "`up` → asked, answered and ended between both hosts, task done")


AWAKE_SCENARIOS = (
    AwakeScenario("nobody types: a host that `up` opened asks for work", asks_for_work),
    AwakeScenario("nobody types: a chat session takes its delegation", takes_its_delegation),
    AwakeScenario("nobody types: UC020 between two hosts", awaits_a_conversation),
)
