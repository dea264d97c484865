"""The channels that press no key: a waiter in the host, and Codex's own queue."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable

from multi_agent_mcp.config import child_environment
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.notify.channel import HOOK, Channel, has_taken
from multi_agent_mcp.notify.wording import sanitized
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.json_file import Record
from multi_agent_mcp.system.process import is_alive

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
        waiter = f"{agent.id}.chat" if agent.extra.get("purpose") == "chat" else agent.id
        pid = Record(self._files, self._files.base / ".hooks" / f"{waiter}.armed").read()
        return None if isinstance(pid, int) and pid > 1 and is_alive(pid, None) else "no_hook"

    def ring(self, agent: Agent, line: str) -> Delivery:  # noqa: ARG002 - the waiter composes its own line
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

    def ring(self, agent: Agent, line: str) -> Delivery:
        """`submitted` when Codex accepted the line."""
        if (reason := self.check(agent)) is not None:
            return Delivery("stored", reason)
        home = agent.extra.get("codex_home")
        environment = child_environment(CODEX_HOME=home) if isinstance(home, str) else None
        call = ["codex", "queue", "--thread", str(agent.extra["codex_thread_id"]), "--message", sanitized(line)]
        taken = has_taken(call, environment)
        return Delivery("submitted", "codex_queue") if taken else Delivery("stored", "codex_failed")
