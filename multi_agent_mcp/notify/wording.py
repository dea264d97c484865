"""The words of a doorbell: its one line, which never holds anything an agent wrote freely (docs/protocol.md, Doorbell
line), and for people what its reasons mean and what to do about those that stay."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from multi_agent_mcp.domain.delivery import UnreadMessage
from multi_agent_mcp.domain.message import MESSAGE_TYPES
from multi_agent_mcp.domain.sanitize import sanitize
from multi_agent_mcp.texts import Texts

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_MEANINGS: Mapping[str, str] = {
    "no_hook": "no waiter of its host lives: `host-config claude --write`, then start the host",
    "no_codex_thread": "Codex has not named its thread yet: it does at its first turn with our server",
    "codex_gone": "its server does not run, so nobody would read what Codex queues: start the agent",
    "no_codex": "there is no `codex` command on PATH",
    "not_human": "it is for people, not for agents",
    "no_desktop": "neither osascript nor notify-send is on PATH",
    "bad_notify_command": "`notify_command` in session.yaml is not a program and its arguments, as a list of texts",
    "no_notify_command": "the program of `notify_command` is not to be found here, or may not be run",
    "notify_command_failed": "`notify_command` did not end in time; tried again within a minute",
    "no_pane": "no pane is registered: start it in tmux with `up` or `serve`, or `agent set ID --pane %N`",
    "pane_gone": "its pane is closed: start the agent again",
    "pane_changed": "another program runs in its pane now: start the agent again",
    "pane_dead": "the program in its pane has ended",
    "tmux_gone": "its tmux server does not run",
    "tmux_restarted": "another tmux server runs at its socket: start the agent again",
    "tmux_timeout": "tmux did not answer within two seconds",
    "no_tmux": "there is no tmux on PATH",
    "shell": "a shell would run what is typed: start the host in the pane",
    "copy_mode": "somebody scrolls in the pane; tried again when they leave",
    "input_off": "input to the pane is switched off (select-pane -d)",
    "synchronized": "panes are synchronized: the line would go into all of them",
    "human_typing": "somebody types there; tried again in a few seconds",
    "draft": "somebody's draft stands in the composer; tried again when it is gone",
    "unknown_host": "no profile describes the program in its pane, or it is not the registered one of a `host: plain`; "
    "`doctor` says what to do",
    "unknown_screen": "a screen that no profile describes; saved in unknown_screens/ for whoever corrects the profile",
    "no_such_rung": "its `ladder` in agents.json names a channel that does not exist here (`notify_command` does once "
    "session.yaml has one)",
}


def doorbell_line(texts: Texts, messages: Sequence[UnreadMessage]) -> str:
    """`[IPC] 新しいメッセージ: {message_type} from {sender_id}`, or the count when there are several.

    A hand-written file may claim any type and sender; what is not a known type or a plain name is not repeated.
    """
    if len(messages) != 1:
        return texts("doorbell.many", count=len(messages))
    message = messages[0]
    message_type = message.message_type if message.message_type in MESSAGE_TYPES else "request"
    sender_id = message.sender_id if _NAME.fullmatch(message.sender_id) else "unknown"
    return texts("doorbell.one", message_type=message_type, sender_id=sender_id)


def sanitized(line: str) -> str:
    """The line without anything a terminal might obey, and without tabs and newlines (docs/protocol.md, Typing into a
    pane, Harmless text)."""
    return sanitize(line, " ").replace("\t", " ").replace("\n", " ")


def meaning(reason: str | None) -> str:
    """One line for people; the reason itself where it says enough (a dialog's name)."""
    if reason is None:
        return "can ring"
    return f"{reason}: {_MEANINGS[reason]}" if reason in _MEANINGS else reason
