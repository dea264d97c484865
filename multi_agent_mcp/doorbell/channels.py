"""The chain of channels, which tries a recipient's from the strongest to the weakest (docs/protocol.md, Channels), and
those beside the pane: `notify_command`, desktop notices, those that press no key, and the status line."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from errno import errorcode
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import MANY, OFFLINE, About, ChannelReport, Delivery
from multi_agent_mcp.domain.times import format_time, is_recent, now, parse_time
from multi_agent_mcp.doorbell.channel import HOOK, LINE_GONE, Channel, has_taken, sanitized
from multi_agent_mcp.errors import StorageError, TmuxTimeout
from multi_agent_mcp.hosts import WITHOUT_A_HOST, host_named
from multi_agent_mcp.programs import child_environment
from multi_agent_mcp.settings import Settings
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.records import Record
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.texts import Texts
from multi_agent_mcp.trace import variables

if TYPE_CHECKING:
    from multi_agent_mcp.doorbell.tmux.client import Pane
    from multi_agent_mcp.doorbell.tmux.notifier import TmuxNotifier

T = TypeVar("T")

logger = logging.getLogger(__name__)

NEED_A_PANE = ("tmux", "status_line")
_LEAST_TELLING = (
    *("no_desktop", "no_pane"),
    *("no_hook", "no_codex_thread", "no_codex", "codex_gone", "not_human", "status_line"),
)
"""Reasons that only say that the agent lacks the channel, so that another channel's reason is more useful. The most
useful first: what an Owner without a pane lacks is a desktop command, not a pane."""
KEYS = "tmux"
"""The channel that types into the agent's pane."""
NO_SUCH_CHANNEL = "no_such_channel"
"""The reason for an unknown name in an agent's key `ladder` of agents.json; spelled in the terms of that file."""


class ChannelChain(Channel):
    """Tries an agent's channels in order until one delivers the line; if none does, returns the most useful reason.
    Never raises: a failing doorbell must not lose the answer about a message that was stored."""

    name = "ladder"

    def __init__(self, channels: Mapping[str, Callable[[], Channel]]) -> None:
        self._channels = channels  # created when needed: most calls ring nobody

    def check(self, agent: Agent) -> str | None:
        """None if any channel could ring, else the most useful reason."""
        reasons: list[str | None] = []
        for reason in self._answers(agent, lambda channel: channel.check(agent)):
            if reason is None:
                return None
            reasons.append(reason)
        return min(reasons, key=_tells_little, default="no_doorbell")

    def ring(self, agent: Agent, line: str, about: About = MANY) -> Delivery:
        failed: list[str | None] = []
        for delivery in self._answers(agent, lambda channel: self._rung(channel, agent, line, about)):
            if isinstance(delivery, Delivery) and delivery.state != "stored":
                return delivery
            failed.append(delivery.reason if isinstance(delivery, Delivery) else delivery)
        return Delivery("stored", min(failed, key=_tells_little, default="no_doorbell"))

    def _rung(self, channel: Channel, agent: Agent, line: str, about: About) -> Delivery:
        """Rings, unless the line would wait in the queue of a host that cannot reach its model: one more each time."""
        if channel.name == CodexQueue.name and KEYS in self._channels and agent.pane_id is not None:
            reason = self._asked(KEYS, agent, lambda keys: keys.check(agent))
            if reason == OFFLINE:
                return Delivery("stored", OFFLINE)
        return channel.ring(agent, line, about)

    def ring_at_once(self, agent: Agent, line: str, about: About) -> Delivery | None:
        if NotifyCommand.name not in self.names(agent):
            return None
        delivery = self._asked(NotifyCommand.name, agent, lambda channel: channel.ring(agent, line, about))
        return delivery if isinstance(delivery, Delivery) else Delivery("stored", delivery)

    def finish(self, agent: Agent) -> Delivery:
        for name in self.names(agent) if agent.pane_id is not None else ():  # without one no line is left behind
            delivery = self._asked(name, agent, lambda channel: channel.finish(agent))
            if isinstance(delivery, Delivery) and delivery.reason != LINE_GONE:
                return delivery
        return Delivery("stored", LINE_GONE)

    def clear(self, agent: Agent) -> None:
        for name in self.names(agent) if agent.pane_id is not None else ():  # without one no count is shown
            self._asked(name, agent, lambda channel: channel.clear(agent))

    def explain(self, agent: Agent, *, is_silent: bool = False) -> tuple[ChannelReport, ...]:
        """The state of each channel; rings nothing, types nothing. A channel that raises is `failed_{error}`. Some
        reasons pass in a second (`draft`, `human_typing`), others need another set-up (`no_hook`, `no_pane`)."""

        def state(name: str) -> str | None:
            if is_silent and name in NEED_A_PANE:
                return TmuxTimeout.code
            return self._asked(name, agent, lambda channel: channel.check(agent))

        return tuple(ChannelReport(name, state(name)) for name in self._wanted(agent))

    def names(self, agent: Agent) -> tuple[str, ...]:
        """The agent's channels, strongest first: its own key `ladder` in agents.json, else its host's."""
        return tuple(name for name in self._wanted(agent) if name in self._channels)

    def _wanted(self, agent: Agent) -> tuple[str, ...]:
        """As `names`, but with unknown names of the agent's own list, which `explain` reports."""
        wanted = agent.extra.get("ladder")
        if isinstance(wanted, list):
            return tuple(map(str, wanted))
        host = host_named(agent.host)
        return tuple(name for name in (host.channels if host else WITHOUT_A_HOST) if name in self._channels)

    def _answers(self, agent: Agent, question: Callable[[Channel], T]) -> Iterator[T | str]:
        """As `_asked`, for the agent's channels in order. A tmux that does not answer one is not asked by the next."""
        is_silent = False
        for name in self.names(agent):
            if not (is_silent and name in NEED_A_PANE):
                answer = self._asked(name, agent, question)
                is_silent = is_silent or getattr(answer, "reason", answer) == TmuxTimeout.code
                yield answer

    def _asked(self, name: str, agent: Agent, question: Callable[[Channel], T]) -> T | str:
        """The result of `question` for a channel, else the reason why the channel cannot be asked."""
        if name not in self._channels:
            return NO_SUCH_CHANNEL
        if name in NEED_A_PANE and agent.pane_id is None:
            return "no_pane"  # without importing its module, which takes time
        try:
            return question(self._channels[name]())
        except Exception as error:  # noqa: BLE001 - after any failure of a channel the next one is tried
            logger.warning("the channel %s failed: %s: %s", name, type(error).__name__, error)
            return f"failed_{type(error).__name__}"


def _tells_little(reason: str | None) -> int:
    """Sorts reasons, useful ones (0) first; of equal ones `min` takes the stronger channel's."""
    return _LEAST_TELLING.index(reason) + 1 if reason in _LEAST_TELLING else 0


def default_chain(workspace: Workspace, settings: Settings, texts: Texts) -> ChannelChain:
    """The chain of all channels, each created when it is first needed."""

    channels: dict[str, Callable[[], Channel]] = {
        "hook": lambda: HookChannel(workspace.files),
        "codex_queue": lambda: CodexQueue(lambda agent_id: bool(workspace.served_purposes(agent_id))),
        "tmux": cache(lambda: pane_notifier(workspace, settings)),
        "desktop": lambda: DesktopNotifier(texts("doorbell.title")),
        "status_line": cache(lambda: StatusLine(workspace.unread_count)),
    }
    if (command := settings.notify_command) is not None:
        channels["notify_command"] = lambda: NotifyCommand(command, workspace.notify_command_failure)
    return ChannelChain(channels)


def pane_notifier(workspace: Workspace, settings: Settings) -> TmuxNotifier:
    """The channel that types into panes, with the package's host profiles and those in `{root}/hosts/*.yaml`."""
    from multi_agent_mcp.doorbell.tmux.learning import UnknownScreens
    from multi_agent_mcp.doorbell.tmux.notifier import TmuxNotifier
    from multi_agent_mcp.doorbell.tmux.profiles import load_profiles

    profiles = load_profiles(workspace.root / "hosts")
    for file, reason in profiles.left_out.items():
        logger.warning("hosts/%s is left out: %s", file, reason)
    unknown = UnknownScreens(workspace.files, workspace.path / "unknown_screens")
    return TmuxNotifier(settings.limits.submit_pause_seconds, profiles, unknown.save)


COMMAND_SECONDS = 5.0
_PLACE = re.compile(r"\{(?:line|kind|id)\}")
HANGS_FOR = timedelta(seconds=60)
"""How long a command that did not end is not tried again: every sender would wait for it."""
HUNG = "timeout"


class NotifyCommand(Channel):
    """Runs `notify_command` of session.yaml, without a shell and ignoring its output. `failure` records its last
    failure, for `doctor` and other processes."""

    name = "notify_command"

    def __init__(
        self,
        command: Sequence[str],
        failure: Record,
        clock: Callable[[], datetime] = now,
        seconds: float = COMMAND_SECONDS,
    ) -> None:
        self._command = command
        self._failure = failure
        self._clock = clock
        self._seconds = seconds

    def check(self, agent: Agent) -> str | None:
        """`not_human` for agents; `bad_notify_command` when session.yaml has no usable command; `no_notify_command`
        when its program is missing; `notify_command_failed` for `HANGS_FOR` after it hung."""
        if not agent.may_be_human:
            return "not_human"
        if not self._command:
            return "bad_notify_command"
        if shutil.which(self._command[0]) is None:
            return "no_notify_command"
        return "notify_command_failed" if self._hung_recently() else None

    def ring(self, agent: Agent, line: str, about: About = MANY) -> Delivery:
        """`rung` when the command ended with 0."""
        if (reason := self.check(agent)) is not None:
            return Delivery("stored", reason)
        program, *arguments = self._command
        call = [program, *(_filled(part, sanitized(line), about) for part in arguments)]
        try:
            code = _run(call, self._seconds, about.traceparent)
            failure = f"exit {code}" if code else ""
        except subprocess.TimeoutExpired:
            failure = HUNG
        except (OSError, ValueError) as error:
            failure = errorcode.get(getattr(error, "errno", 0) or 0, type(error).__name__)
        with suppress(StorageError):  # a full disk must not cause the line to be sent twice
            self._note(failure)
        return Delivery("stored", "notify_command_failed") if failure else Delivery("rung", "notify_command")

    def _note(self, failure: str) -> None:
        if failure:
            self._failure.write({"at": format_time(self._clock()), "failure": failure}, durable=False)
        else:
            self._failure.remove()

    def _hung_recently(self) -> bool:
        last = self._failure.facts()
        at = parse_time(last.get("at")) if last.get("failure") == HUNG else None
        return at is not None and is_recent(at, self._clock(), HANGS_FOR)


def _filled(part: str, line: str, about: About) -> str:
    """The argument with the line, and the kind and id of what it announces, in their places; each is filled in once, so
    that nothing within the line is taken for a place."""
    known = {"{line}": line, "{kind}": about.kind, "{id}": about.id}
    return _PLACE.sub(lambda found: known[found[0]], part)


def _run(call: Sequence[str], seconds: float, traceparent: str | None) -> int:
    """Runs a program and returns its exit code. After `seconds` kills its process group and raises `TimeoutExpired`."""
    quiet = subprocess.DEVNULL
    running = subprocess.Popen(
        call,
        env=child_environment(**variables(traceparent)),
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,
    )
    try:
        return running.wait(seconds)
    finally:
        if running.returncode is None:  # also when the user interrupts us
            with suppress(OSError, subprocess.TimeoutExpired):  # it has just ended, or the kernel does not release it
                os.killpg(running.pid, signal.SIGKILL)
                running.wait(seconds)


# Desktop notices for a human outside tmux. The text is always an argument, never built into a script.

_APPLESCRIPT = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)


class DesktopNotifier(Channel):
    """`osascript` where it is on PATH (macOS), else `notify-send` (Linux)."""

    name = "desktop"

    def __init__(self, title: str) -> None:
        self.title = title

    def check(self, agent: Agent) -> str | None:
        """`not_human` for agents, who have panes; `no_desktop` where no command that shows notices is on PATH."""
        if not agent.may_be_human:
            return "not_human"
        return None if notice_command(self.title, "") else "no_desktop"

    def ring(self, agent: Agent, line: str, about: About = MANY) -> Delivery:  # noqa: ARG002
        """`rung` when the notice was handed to the desktop."""
        reason, call = self.check(agent), notice_command(self.title, sanitized(line))
        if reason is not None or call is None:
            return Delivery("stored", reason)
        return Delivery("rung", "desktop") if has_taken(call) else Delivery("stored", "desktop_failed")


def notice_command(title: str, line: str) -> Sequence[str] | None:
    """The command that shows a notice, chosen by PATH; None when there is none."""
    if osascript := shutil.which("osascript"):
        script = [part for statement in _APPLESCRIPT for part in ("-e", statement)]
        return [osascript, *script, title, line]
    if notify_send := shutil.which("notify-send"):
        return [notify_send, "--", title, line]
    return None


# The channels that press no key: a waiter in the host, and Codex's own queue.

_THREAD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{7,127}")


class HookChannel(Channel):
    """Leaves the ring to a waiter, a process that the host runs in the background (Claude Code's `asyncRewake`): it
    watches the agent's inboxes and wakes the model itself. The waiter lives while the process named in
    `{session}/.hooks/{agent_id}.armed` (`….chat.armed` for a chat session) does."""

    name = HOOK

    def __init__(self, files: Files) -> None:
        self._files = files

    def check(self, agent: Agent) -> str | None:
        """`no_hook` if no waiter lives, because none was set up or the host is not running."""
        from multi_agent_mcp.system.process import is_alive  # here: few agents have a waiter

        waiter = f"{agent.id}.chat" if agent.extra.get("purpose") == "chat" else agent.id
        pid = Record(self._files, self._files.base / ".hooks" / f"{waiter}.armed").read()
        return None if isinstance(pid, int) and pid > 1 and is_alive(pid, None) else "no_hook"

    def ring(self, agent: Agent, line: str, about: About = MANY) -> Delivery:  # noqa: ARG002 - the waiter composes its own line
        """`rung` while a waiter lives, else `stored`."""
        reason = self.check(agent)
        return Delivery("rung", HOOK) if reason is None else Delivery("stored", reason)


class CodexQueue(Channel):
    """Passes the line to the agent's Codex thread with `codex queue`, pressing no key: drafts stay, and Codex waits
    until dialogs are closed (docs/hosts.md, Waking without keys)."""

    name = "codex_queue"

    def __init__(self, is_served: Callable[[str], bool]) -> None:
        self._is_served = is_served

    def check(self, agent: Agent) -> str | None:
        """`no_codex_thread` until Codex has named the thread, at its first turn; `codex_gone` when the agent's server
        does not live, because Codex silently accepts lines for a thread that nobody has open; `no_codex` when the
        command is missing."""
        thread = agent.extra.get("codex_thread_id")
        if not isinstance(thread, str) or not _THREAD.fullmatch(thread):
            return "no_codex_thread"
        if not self._is_served(agent.id):
            return "codex_gone"
        return None if shutil.which("codex") else "no_codex"

    def ring(self, agent: Agent, line: str, about: About = MANY) -> Delivery:  # noqa: ARG002
        """`submitted` when Codex accepted the line."""
        if (reason := self.check(agent)) is not None:
            return Delivery("stored", reason)
        home = agent.extra.get("codex_home")
        environment = child_environment(CODEX_HOME=home) if isinstance(home, str) else None
        call = ["codex", "queue", "--thread", str(agent.extra["codex_thread_id"]), "--message", sanitized(line)]
        taken = has_taken(call, environment)
        return Delivery("submitted", "codex_queue") if taken else Delivery("stored", "codex_failed")


# The weakest channel: unread counts in a tmux option, for the status line.

OPTION = "@ipc_unread"


class StatusLine(Channel):
    """Sets `@ipc_unread` of the agent's tmux session to `worker-a:3 worker-b:1`, for `#{@ipc_unread}` in
    `status-right`. It informs a human who looks and wakes no agent, so it never counts as rung."""

    name = "status_line"

    def __init__(self, unread: Callable[[str], int]) -> None:
        self._unread = unread

    def check(self, agent: Agent) -> str | None:
        """The reason when the agent has no living pane or its tmux does not answer."""
        from multi_agent_mcp.doorbell.tmux.client import TIMEOUT  # here and below: a sender without a pane asks no tmux
        from multi_agent_mcp.doorbell.tmux.snapshot import GONE, probe

        reason = probe(agent)
        return reason if reason in (*GONE, TIMEOUT) else None

    def ring(self, agent: Agent, line: str, about: About = MANY) -> Delivery:  # noqa: ARG002 - only a number is shown
        """Always `stored`, with the reason `status_line` when the option shows the count."""
        if agent.pane_id is None or agent.socket_path is None:
            return Delivery("stored", "no_pane")
        from multi_agent_mcp.doorbell.tmux.client import Server

        failure = _show(Server(agent.socket_path).pane(agent.pane_id), agent.id, self._unread(agent.id))
        return Delivery("stored", failure or "status_line")

    def clear(self, agent: Agent) -> None:
        self.ring(agent, "")


def _show(pane: Pane, agent_id: str, unread: int) -> str | None:
    """Writes the count if it has changed; returns None, or why it could not be written. The current value is read from
    tmux each time, because several processes may set it."""
    known = pane.cmd("show-options", "-q", "-v", OPTION)
    counts = dict(word.rpartition(":")[::2] for word in " ".join(known.stdout).split() if ":" in word)
    if known.failure or counts.get(agent_id, "0") == str(unread):
        return known.failure
    counts[agent_id] = str(unread)
    text = " ".join(f"{name}:{count}" for name, count in sorted(counts.items()) if count != "0")
    return pane.cmd("set-option", OPTION, text).failure
