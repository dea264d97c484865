"""The words of a doorbell: its one line, which never holds anything an agent wrote freely (docs/protocol.md, Doorbell
line), and for people what its reasons mean and what to do about those that stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from multi_agent_mcp.domain.delivery import DoorbellItem, UnreadMessage, UnreadNotification
from multi_agent_mcp.domain.ids import is_name
from multi_agent_mcp.domain.message import MESSAGE_TYPES
from multi_agent_mcp.domain.notification import ACTIONS, TYPES
from multi_agent_mcp.domain.sanitize import sanitize
from multi_agent_mcp.texts import Texts

SYSTEM = "system"
"""Who caused what no agent did."""
_MEANINGS: Mapping[str, str] = {
    "no_hook": "no waiter of its host lives: `host-config claude --write`, then start the host",
    "no_codex_thread": "Codex has not named its thread yet: it does at its first turn with our server",
    "codex_gone": "its server does not run, so nobody would read what Codex queues: start the agent",
    "no_codex": "there is no `codex` command on PATH",
    "not_human": "notices on the desktop are for humans",
    "no_desktop": "neither osascript nor notify-send is on PATH",
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
    "no_task_session": "it is for a task session and only a chat session runs: the supervisor opens one",
    "no_chat_session": "it is for a chat session and none runs: the supervisor opens one",
    "no_such_rung": "its `ladder` in agents.json names a channel that does not exist",
}


def doorbell_line(texts: Texts, items: Sequence[DoorbellItem]) -> str:
    """The one line for what is unread: what a single item is and whose, else how many there are of each kind.

    A hand-written file may claim any type and sender; what is not a known word or a plain name is not repeated.
    """
    messages = [item for item in items if isinstance(item, UnreadMessage)]
    notices = [item for item in items if isinstance(item, UnreadNotification)]
    if messages and notices:
        return texts("doorbell.both", messages=len(messages), notifications=len(notices))
    if notices:
        return _about_notifications(texts, notices)
    if len(messages) != 1:
        return texts("doorbell.many", count=len(messages))
    message = messages[0]
    message_type = message.message_type if message.message_type in MESSAGE_TYPES else "request"
    return texts("doorbell.one", message_type=message_type, sender_id=_name(message.sender_id))


def _about_notifications(texts: Texts, notices: Sequence[UnreadNotification]) -> str:
    if len(notices) > 1:
        return texts("doorbell.notifications", count=len(notices))
    notice = notices[0]
    known = (word for word in (notice.action, notice.type) if word in (*ACTIONS, *TYPES))
    agent_id = SYSTEM if notice.sender_id is None else _name(notice.sender_id)
    return texts("doorbell.notification", action=next(known, TYPES[-1]), agent_id=agent_id)


def _name(agent_id: str) -> str:
    return agent_id if is_name(agent_id) else "unknown"


def sanitized(line: str) -> str:
    """The line without anything a terminal might obey, and without tabs and newlines (docs/protocol.md, Typing into a
    pane, Harmless text)."""
    return sanitize(line, " ").replace("\t", " ").replace("\n", " ")


def meaning(reason: str | None) -> str:
    """One line for people; the reason itself where it says enough (a dialog's name)."""
    if reason is None:
        return "can ring"
    return f"{reason}: {_MEANINGS[reason]}" if reason in _MEANINGS else reason
