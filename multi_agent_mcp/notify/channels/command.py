"""The channel `notify_command`: the user's own command, for people who are away (a push service, a pager, a chat)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from errno import errorcode

from multi_agent_mcp.config import child_environment
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.domain.times import format_time, is_recent, now, parse_time
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.notify.channel import Channel
from multi_agent_mcp.notify.wording import sanitized
from multi_agent_mcp.store.json_file import Record

COMMAND_SECONDS = 5.0
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

    def ring(self, agent: Agent, line: str) -> Delivery:
        """`rung` when the command ended with 0."""
        if (reason := self.check(agent)) is not None:
            return Delivery("stored", reason)
        program, *arguments = self._command
        call = [program, *(part.replace("{line}", sanitized(line)) for part in arguments)]
        try:
            code = _run(call, self._seconds)
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
        last = self._failure.read()
        if not isinstance(last, dict) or last.get("failure") != HUNG:
            return False
        at = parse_time(last.get("at"))
        return at is not None and is_recent(at, self._clock(), HANGS_FOR)


def _run(call: Sequence[str], seconds: float) -> int:
    """Runs a program and returns its exit code. After `seconds` kills its process group and raises `TimeoutExpired`."""
    quiet = subprocess.DEVNULL
    running = subprocess.Popen(
        call, env=child_environment(), stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
    )
    try:
        return running.wait(seconds)
    finally:
        if running.returncode is None:  # also when the user interrupts us
            with suppress(OSError, subprocess.TimeoutExpired):  # it has just ended, or the kernel does not release it
                os.killpg(running.pid, signal.SIGKILL)
                running.wait(seconds)
