"""`hook`: the command that a host runs at every tool call, so it must be fast (docs/protocol.md, Hooks).

With nothing to report it ends after reading one small file and three stat(2), before any slower import: hence no click,
argparse or `config`, and imports inside functions. It never breaks a host: every error is one line on standard error
and exit code 0, because hosts take 2 for a refusal.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from contextlib import suppress

from multi_agent_mcp.environment import locale_language, variable
from multi_agent_mcp.hooks.first_look import Noted, look_at_call, surely_silent

TYPE_CHECKING = False  # a hook cannot wait for `typing`
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from multi_agent_mcp.wiring import Services

HELP = "Answer a hook of a host, read from standard input. Hosts run it; see host-config."
WAKE = 2
INPUT_BYTES, INPUT_ENDS = 16 * 1024 * 1024, 16 * 1024
"""The longest event that is parsed; of a longer one the name is looked for at both ends."""
ID_CHARACTERS, PATH_CHARACTERS = 256, 4_096
"""The longest id of a conversation and path that are kept; a longer one is none."""


def main(arguments: Sequence[str]) -> None:
    """Answers one hook and ends the process."""
    code = 0
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - a hook that fails must not stop a host
        _print_error(error)
    _end(code)


def _run(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    if options.get("help"):
        sys.stdout.write(USAGE.format(help=HELP))
        return 0
    if "plugin" in options and ("agent" not in options or variable("configured")):
        return 0
    if options.get("wait"):
        return _wait(options)
    gc.disable()  # the process ends soon
    event = _event()
    if not isinstance(event, dict) or _is_nobodys(options):
        return 0
    said = event.get("hook_event_name")
    event["hook_event_name"] = OTHER_NAMES.get(str(said), said)
    answer = None if _needs_nothing(event) else _answer(event, options)
    if answer is not None:
        sys.stdout.write(json.dumps(_as_read_by(options.get("host"), answer, said)) + "\n")
    return 0


def _is_nobodys(options: dict[str, str]) -> bool:
    """Returns whether a human's own host runs this hook, in a directory whose settings are for agents and name none."""
    return "host" in options and "agent" not in options


def _as_read_by(host: str | None, answer: dict[str, Any], event: Any) -> dict[str, Any]:
    """Returns the answer in the host's form."""
    from multi_agent_mcp.hosts import host_named

    known = host_named(host)
    return answer if known is None else known.hook_answers.of(answer, event)


def _event() -> Any:
    """Reads the host's event from standard input. Of one that is longer than any host's (a call that writes an image of
    a disk) only the name is known: enough to hold an interrupted agent."""
    given = sys.stdin.buffer.read(INPUT_BYTES + 1)
    if len(given) <= INPUT_BYTES:
        return json.loads(given or b"{}")
    import re

    ends = [given[:INPUT_ENDS], given[-INPUT_ENDS:]]
    while more := sys.stdin.buffer.read(INPUT_BYTES):
        ends[1] = (ends[1] + more)[-INPUT_ENDS:]
    name = re.search(rb'"hook_event_name"\s*:\s*"(\w{1,40})"', b"\n".join(ends))
    return {} if name is None else {"hook_event_name": name[1].decode()}


EVENTS = frozenset(
    {"PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SessionStart", "PreCompact", "PostCompact"}
)
OF_LIMITS = frozenset({"StopFailure", "ErrorOccurred", "Notification"})
"""Events that may report a usage limit, and need no answer."""
RARE = frozenset({"SessionStart", "PreCompact", "PostCompact"}) | OF_LIMITS
"""The events that have something to record however quiet it is."""
OTHER_NAMES = {
    "BeforeTool": "PreToolUse",
    "AfterTool": "PostToolUse",
    "BeforeAgent": "UserPromptSubmit",
    "AfterAgent": "Stop",
    "PreCompress": "PreCompact",
}
"""Names that other hosts (Gemini CLI) have for these events. They are here, as a silent hook reads no YAML."""

# The server's middleware checks calls of our own tools; without ToolSearch a host that hides tools could not find the
# tool that reads the interrupt.
NEVER_DENIED = ("mcp__ipc", "mcp__plugin_multi-agent-mcp_ipc", "mcp_ipc_", "ipc-", "ipc_", "ToolSearch")


def _needs_nothing(event: dict[str, Any]) -> bool:
    """Returns whether the event needs no answer."""
    name = event.get("hook_event_name")
    if name == "PreToolUse":
        return str(event.get("tool_name", "")).startswith(NEVER_DENIED)
    return name not in EVENTS | OF_LIMITS or (name == "Stop" and bool(event.get("stop_hook_active")))


def _answer(event: dict[str, Any], options: dict[str, str]) -> dict[str, Any] | None:
    name, host_session = event["hook_event_name"], event.get("session_id")
    host_session = _short(host_session, ID_CHARACTERS)
    purpose, noted = options.get("purpose", "task"), Noted(is_done=False)
    if name not in RARE and "root" in options and "session" in options and "agent" in options:
        path = f"{options['root']}/{options['session']}"
        with suppress(Exception):  # whatever breaks the quick look, the whole one tells of an interrupt
            noted = look_at_call(path, options["agent"], event)
        limited = os.path.lexists(f"{path}/.limits/{options['agent']}.json")
        if not limited and noted.is_done and surely_silent(path, options["agent"], purpose, name, host_session):
            return None
    services, agent_id = _opened(options)
    for refusal in services.session.wrong_features:
        _print_error(refusal)
    from multi_agent_mcp.hooks.answers import Event

    said = Event(
        name,
        host_session,
        options.get("host"),
        transcript=_short(event.get("transcript_path"), PATH_CHARACTERS),
        source=_short(event.get("source"), ID_CHARACTERS),
        is_subagents=event.get("subagent") is True,
        facts=event,
        is_noted=noted.is_noted,
    )
    return services.hooks.answer(agent_id, purpose, said)


def _short(value: Any, most: int) -> str | None:
    return value if isinstance(value, str) and len(value) <= most else None


def _wait(options: dict[str, str]) -> int:
    """Waits until the agent is to be woken, and returns the exit code."""
    import signal

    from multi_agent_mcp.hooks.waiter import HostProcess, Waiter

    host = HostProcess()  # before anything slow, during which the host might end
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    beginning = not sys.stdin.isatty() and _event().get("hook_event_name") == "SessionStart"
    services, agent_id = _opened(options)
    try:
        waiter = Waiter(services.hooks, agent_id, options.get("purpose", "task"), host, beginning=beginning)
        line = waiter.wait()
    except SystemExit:
        return 0
    if line is None:
        return 0
    sys.stderr.write(f"{line}\n")
    return WAKE


def _opened(options: dict[str, str]) -> tuple[Services, str]:
    """Opens the session; returns its services and the agent's id. Raises `Refusal`."""

    from multi_agent_mcp.bootstrap import open_session
    from multi_agent_mcp.config import find_root, working_directory
    from multi_agent_mcp.domain.agent import PURPOSES
    from multi_agent_mcp.domain.entity import agent_id
    from multi_agent_mcp.services.validation import require_choice

    require_choice("purpose", options.get("purpose", "task"), PURPOSES)
    root = find_root(options.get("root"), working_directory())
    services = open_session(root, options.get("session"), in_any_case=True)  # an interrupt must be told
    return services, agent_id(options.get("agent"))


USAGE = """\
Usage: multi-agent-mcp hook [--root DIR] [--session NAME] [--agent ID] [--purpose task|chat]
                            [--host NAME] [--unless-env] [--plugin] [--wait]

{help}

  --unless-env  the environment (MULTI_AGENT_MCP_AGENT, …) wins over the options
  --plugin      say nothing where the environment names no agent, or the agent's own configuration has hooks
  --wait        wait for mail: exit code 2 and the doorbell's line on standard error wake Claude Code
"""
VALUES = ("root", "session", "agent", "purpose", "host")
FLAGS = ("unless-env", "plugin", "wait", "help")


def _options(arguments: Sequence[str]) -> dict[str, str]:
    """Parses the options. They take precedence over the environment, or the reverse with `--unless-env`."""
    given: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).removeprefix("--").partition("=")
        if name in FLAGS and not equals:
            given[name] = "yes"
        elif name in VALUES and (equals or rest):
            given[name] = value if equals else rest.pop(0)
        else:
            raise _wrong_option(name)
    found = {name: text for name in VALUES if name != "host" and (text := variable(name))}
    return {**given, **found} if "unless-env" in given else {**found, **given}


def _wrong_option(name: str) -> Exception:
    from multi_agent_mcp.errors import InvalidArguments

    return InvalidArguments("option_value" if name in VALUES else "unknown_option", name=f"--{name:.60}")


def _print_error(error: BaseException) -> None:
    sentence = str(error) or type(error).__name__
    try:
        from multi_agent_mcp.errors import Refusal
        from multi_agent_mcp.texts import catalogue

        if isinstance(error, Refusal):
            sentence = f"{error.code}: {catalogue(error.language or locale_language()).sentence(error)}"
    finally:
        from multi_agent_mcp.domain.text import one_line

        sys.stderr.write(f"multi-agent-mcp: hook: {one_line(sentence)[:500]}\n")


def _end(code: int) -> None:
    """Exits without finalising the interpreter, which takes a fifth of the time of a hook with nothing to report."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
