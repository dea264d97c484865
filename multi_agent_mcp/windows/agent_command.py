"""The command that runs in an agent's window: with which conversation of its host, and with which prompt it begins
(docs/protocol.md, Team in tmux, Continuing a conversation)."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from multi_agent_mcp.config import home_of, working_directory
from multi_agent_mcp.domain.agent import ROLES, Agent, AgentSession
from multi_agent_mcp.domain.entity import age
from multi_agent_mcp.domain.slot import OWN_SLOTS, Slot
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.doorbell.tmux.profiles import PROMPT, load_profiles
from multi_agent_mcp.doorbell.tmux.team_panes import filled, is_compound, programs_of
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.host_config import MCP_CONFIG, host_of_agent, program_name, words_of
from multi_agent_mcp.hosts import SERVER_NAME, Host, Resume, host_named
from multi_agent_mcp.hosts import hosts as known_hosts
from multi_agent_mcp.services.sessions.host_conversations import is_anothers
from multi_agent_mcp.services.validation import require_text
from multi_agent_mcp.system.process import end, has_lost_terminal, holding, host_of, is_below, noted_by, terminal_of
from multi_agent_mcp.windows.shells import SH, quoted, quoted_in_any, requoted
from multi_agent_mcp.wiring import Services
from multi_agent_mcp.yaml_files import truth

_CONVERSATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
RECENT_SESSIONS = 100
"""How many ended sessions of an agent, newest first, are searched for its last conversation."""
REFUSED_KEPT = 100
END_SECONDS = 5.0
PARTING_SECONDS, LOOK_SECONDS = 2.0, 0.2
"""How long a host that still has the conversation open may take to end, and the time between two looks."""


@dataclass(frozen=True)
class Beginning:
    """How an agent's host begins: with the words that `words` adds to its command it continues `conversation`; else it
    begins a new conversation, and `why` is the reason: `asked`, `team`, `first`, `own_words`, `no_way`, `open`, `moved`
    or `refused`. Both are None for a program that is no known host."""

    conversation: str | None = None
    words: str | None = None
    why: str | None = None

    @property
    def continues(self) -> bool:
        return self.conversation is not None


ANEW = Beginning()
ASKED, REFUSED = "asked", "refused"
FIRST = "first"
"""Why there is nothing to continue; it goes without saying."""


def beginning_of(
    services: Services, agent: Agent, purpose: str, *, fresh: bool = False, ending: Collection[int] = ()
) -> Beginning:
    """Chooses the agent's last conversation of this purpose in the host that its command starts, if it can be continued
    without loss. `fresh`: it shall not; `ending` are processes that end before the host starts."""
    host = host_named(program_name(agent.command or ""))
    if host is None:
        return ANEW
    if fresh:
        return Beginning(why=ASKED)
    own = truth(agent.extra.get("resume"))
    if own is False or (own is None and not services.settings.resume):
        return Beginning(why="team")
    if (resume := host.resume) is None or is_compound(agent.command or ""):
        return Beginning(why="no_way")
    if set(words_of(agent.command or "")) & {*resume.own_words}:
        return Beginning(why="own_words")
    if resume.configured and MCP_CONFIG not in (agent.command or ""):
        return Beginning(why="no_way")
    session = _last(services, agent.id, purpose, host)
    if session is None or session.host_session is None:
        return Beginning(why=FIRST)
    if (obstacle := _obstacle(services, session, resume, ending)) is not None:
        return Beginning(why=obstacle)
    words = resume.words.format(conversation=session.host_session)
    return Beginning(session.host_session, words)


def _last(services: Services, agent_id: str, purpose: str, host: Host) -> AgentSession | None:
    """The agent's newest session of this purpose that was in a conversation of this host."""
    wanted = (
        item
        for item in services.workspace.sessions.all(agent_id, limit=RECENT_SESSIONS)
        if item.purpose == purpose and item.host == host.name and services.sessions.is_here(item)
        if item.host_session is not None and _CONVERSATION.fullmatch(item.host_session)
    )
    newest_first = sorted(wanted, key=age, reverse=True)
    return next((item for item in newest_first if not _is_anothers(services, item)), None)


def _is_anothers(services: Services, session: AgentSession) -> bool:
    return is_anothers(services.workspace, session.agent_id, session.host_session or "")


def _obstacle(services: Services, session: AgentSession, resume: Resume, ending: Collection[int]) -> str | None:
    """Why a conversation is not continued, or None."""
    conversation = session.host_session or ""
    if (why := left(services).get(conversation)) is not None:
        return why
    if (
        session.host_directory is not None
        and not resume.elsewhere
        and session.host_directory != str(working_directory())
    ):
        return "moved"
    return "open" if _stays_open(services, session, resume, ending) else None


def _stays_open(services: Services, session: AgentSession, resume: Resume, ending: Collection[int]) -> bool:
    """Whether a conversation is open and does not get closed: a host whose window was closed just now, or whose tmux
    server was killed, needs a moment to end, and is ended if it does not."""
    until = time.monotonic() + PARTING_SECONDS
    while _is_open(services, session.host_session or "", resume, ending):
        if time.monotonic() >= until:
            return True
        end_left_over(services, session.agent_id, session.purpose)
        time.sleep(LOOK_SECONDS)
    return False


def _is_open(services: Services, conversation: str, resume: Resume, ending: Collection[int]) -> bool:
    """Whether a living process, except those `ending`, has the conversation open: one of our servers says so, or the
    host's own files, or its arguments or open files."""
    running = (item for item in services.sessions.all(ended=False) if services.sessions.is_running(item))
    for session in running:
        if session.host_session == conversation and not is_below(session.pid, ending):
            return True
    others = holding(conversation)
    if resume.running is not None:
        others |= noted_by(home_of(resume.variable, resume.home) / resume.running, conversation)
    return not all(is_below(pid, ending) for pid in others)


# Conversations that are not continued any more: their host ended and said that it does not have them (`refused`), or
# a person asked for a new one (`asked`), which has no id yet when its host is killed early.


def left(services: Services) -> Mapping[str, str]:
    """The conversations that are not continued any more, and why."""
    known = services.workspace.refused_conversations.facts()
    return {name: ASKED if str(said).startswith(ASKED) else REFUSED for name, said in known.items()}


def has_refused(command: str | None, lines: Iterable[str]) -> bool:
    """Whether the host that a command starts says in its last lines that it refused to continue a conversation."""
    host = host_named(program_name(command or ""))
    return host is not None and host.resume is not None and host.resume.is_refused(lines)


def refuse(services: Services, conversation: str, why: str = REFUSED) -> None:
    """Records that a conversation is not continued any more. The caller holds the windows' lock."""
    record = services.workspace.refused_conversations
    kept = [*record.facts().items()][-REFUSED_KEPT:]
    at = format_time(services.clock())
    said = at if why == REFUSED else f"{why} {at}"
    record.write({**dict(kept), conversation: said})


def set_aside(services: Services, agent: Agent, purpose: str) -> None:
    """A person asked for a new conversation: the agent's last one is not continued any more. The caller holds the
    windows' lock."""
    host = host_named(program_name(agent.command or ""))
    session = _last(services, agent.id, purpose, host) if host is not None else None
    if session is not None and session.host_session is not None:
        refuse(services, session.host_session, ASKED)


def end_left_over(services: Services, agent_id: str, purpose: str) -> None:
    """Ends hosts of this agent's sessions that have outlived their window: they would keep its identity and its
    conversation, and nobody sees them (docs/hosts.md, Resume and compaction)."""
    for host, server in _hosts(services, agent_id, purpose):
        if host > 1 and has_lost_terminal(host):
            end_all((host, server))


def end_all(pids: Iterable[int | None]) -> None:
    """Ends these processes, one after the other."""
    for pid in pids:
        if pid is not None and pid > 1 and not end(pid, signal.SIGTERM, END_SECONDS):
            end(pid, signal.SIGKILL, END_SECONDS)


def _hosts(services: Services, agent_id: str, purpose: str) -> Iterator[tuple[int, int | None]]:
    """The hosts of the agent's sessions of this purpose that run on this machine, each with its server; the last one
    also without, if that has died."""
    for session in services.sessions.running(agent_id):
        if session.purpose == purpose and services.sessions.is_here(session):
            yield host_of(session.pid), session.pid
    if (host_alone := services.sessions.host_without_server(agent_id, purpose)) is not None:
        yield host_alone, None


def in_a_terminal(services: Services, agent_id: str, purpose: str) -> int | None:
    """As `with_terminal`, once one whose window was closed just now has had a moment to end."""
    until = time.monotonic() + PARTING_SECONDS
    while (pid := with_terminal(services, agent_id, purpose)) is not None and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
    return pid


def with_terminal(services: Services, agent_id: str, purpose: str) -> int | None:
    """The process of a session of this agent that runs in a terminal, or of its host if its server has died there: a
    person started it without a window of ours, and started again the agent would run twice."""
    for host, server in _hosts(services, agent_id, purpose):
        if any(terminal_of(pid) and not has_lost_terminal(pid) for pid in (server, host) if pid and pid > 1):
            return server or host
    return None


_PART = r"""(?:'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^\s'"\\])"""
_PROGRAM = re.compile(rf"^\s*(?:(?:/\S*/)?env\s+(?:\w+={_PART}*\s+)*)?{_PART}+", re.DOTALL)
"""A simple command up to its program, as a shell reads it; see `program_of`."""


def command_of(
    services: Services, agent: Agent, purpose: str = "task", beginning: Beginning = ANEW, shell: str = SH
) -> str | None:
    """Returns the agent's command for a session of this purpose with its placeholders filled for the `shell` that reads
    it, or None without one; for `{mcp_config}` the host's files are written. Raises `InvalidArguments` for a command
    that cannot be run."""
    if agent.command is None:
        return None
    worktree = services.workplaces.of(agent.id)
    if worktree is None and services.workplaces.wants(agent):
        raise InvalidArguments("no_worktree", agent_id=agent.id)
    prompt = _going_on(services, agent, purpose) if beginning.continues else first_prompt(services, agent, purpose)
    template = _with_prompt(services, agent.command) if prompt else agent.command
    if beginning.words is not None:
        template = _PROGRAM.sub(lambda program: f"{program[0]} {beginning.words}", template, count=1)
    values = {
        "root": services.root,
        "session": services.session.name,
        "agent": agent.id,
        "python": sys.executable,
        "examples": examples_directory(),
        "worktree": worktree.directory if worktree is not None else working_directory(),
    }
    words = {key: quoted(shell, str(value)) for key, value in values.items()}
    words["prompt"] = quoted(shell, prompt) if prompt else ""
    if "{mcp_config}" in template:
        words["mcp_config"] = requoted(
            shell, services.host_configurations.argument(agent, Path(str(values["worktree"])))
        )
    command = filled(template, words)
    if (sandbox := services.agent_rules.sandbox(agent)) is not None:
        within = f"/bin/sh -c {quoted(shell, command)}" if is_compound(command) else command
        command = filled(sandbox, words).replace("{command}", within)
    require_text("command", command)
    if "\0" in command:
        raise InvalidArguments("bad_command", agent_id=agent.id)
    return command


def first_prompt(services: Services, agent: Agent, purpose: str) -> str:
    """Returns the host's first prompt: `prompt` of team.yaml ("" if it is blank), else the agent's identity and the
    request to call `get_next_action`."""
    if agent.prompt is not None:
        return agent.prompt if agent.prompt.strip() else ""
    texts = services.texts
    role = agent.role if agent.role in ROLES else "worker"
    superior = agent.parent_id or texts("prompt.nobody")
    who = texts("prompt.who", agent_id=agent.id, session=services.session.name, role=role, superior=superior)
    who += services.workplaces.prompt(agent.id)
    return texts(f"prompt.{role}.{purpose}", who=who, now=texts("prompt.now", server=SERVER_NAME))


def _going_on(services: Services, agent: Agent, purpose: str) -> str:
    """Returns the prompt of a host that continues a conversation: none if there is nothing to do, as reading the whole
    conversation again is paid for."""
    if agent.prompt is not None and not agent.prompt.strip():
        return ""
    is_needed = PROMPT in (agent.command or "") or services.briefings.holds(agent.id, purpose).has_to_act
    return services.texts("doorbell.begin") if is_needed else ""


def is_prompted(services: Services, slot: Slot, command: str) -> bool:
    """Returns whether a slot's command contains the first prompt, or that of a continued conversation, which the team's
    own windows have none of."""
    if slot in OWN_SLOTS:
        return False
    first = first_prompt(services, services.agents.get(slot.agent_id), slot.purpose)
    prompts = (first, services.texts("doorbell.begin"))
    return any(word in command for prompt in filter(None, prompts) for word in quoted_in_any(prompt))


def left_out(services: Services, agent: Agent) -> dict[str, str]:
    """What the host in an agent's command starts without, as only its author knows where that belongs: the texts of
    `up` that say so, each with the host's name."""
    command = agent.command or ""
    named = next((name for name in programs_of(command) if name in known_hosts()), None)
    if named is None:
        return {}
    is_call = program_name(command) in known_hosts() and not is_compound(command)
    is_prompted = is_call or PROMPT in command or not first_prompt(services, agent, "task")
    is_configured = MCP_CONFIG not in command or host_of_agent(agent) in known_hosts()
    return {key: named for key, holds in (("up.unprompted", is_prompted), ("up.unhooked", is_configured)) if not holds}


def examples_directory() -> Path:
    """Returns the directory of the scripted agents: inside an installed package, or beside it in a clone."""
    package = Path(__file__).parents[1]
    installed = package / "examples"
    return installed if installed.is_dir() else package.parent / "examples"


def _with_prompt(services: Services, command: str) -> str:
    """Returns the command with `{prompt}` added in its host's syntax. A command that contains it, is compound, or runs
    no host with a profile is unchanged: only its author knows where the prompt belongs."""
    if PROMPT in command or is_compound(command):
        return command
    profile = load_profiles(services.root / "hosts").started_by(program_name(command))
    return command if profile is None or profile.prompt is None else f"{command} {profile.prompt}"
