"""The interface of a channel, one way to ring an agent, and the text that it rings with: one line, which never contains
anything an agent wrote freely (docs/protocol.md, Doorbell line)."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import (
    MANY,
    About,
    ChannelReport,
    Delivery,
    DoorbellItem,
    FirstPrompt,
    GoOn,
    UnreadNotification,
)
from multi_agent_mcp.domain.entity import is_name
from multi_agent_mcp.domain.message import MESSAGE_TYPES, Message
from multi_agent_mcp.domain.notification import ACTIONS, TYPES
from multi_agent_mcp.domain.text import sanitize
from multi_agent_mcp.texts import Texts

LINE_GONE = "line_gone"
HOOK = "hook"
"""The channel that leaves the ring to a waiter in the host, and the reason that the delivery log gives for it."""

CALL_SECONDS = 5.0


def has_taken(call: Sequence[str], environment: Mapping[str, str] | None = None) -> bool:
    """Runs `call`; whether it exited with 0 within `CALL_SECONDS`."""
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(
            call, env=environment, stdin=quiet, capture_output=True, timeout=CALL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


class Channel(ABC):
    """A way to ring, or the chain of all of them."""

    name: str

    @abstractmethod
    def check(self, agent: Agent) -> str | None:
        """The reason why `ring` would fail at this moment, or None. Types nothing, shows nothing, never raises."""

    @abstractmethod
    def ring(self, agent: Agent, line: str, about: About = MANY) -> Delivery:
        """Rings the agent. The state `stored`, with a reason, means that this channel is not usable now."""

    def ring_at_once(self, agent: Agent, line: str, about: About) -> Delivery | None:  # noqa: ARG002 - most are no phone
        """Rings a person's phone, whatever was rung before; None if the person has none."""
        return None

    def finish(self, agent: Agent) -> Delivery:  # noqa: ARG002 - most leave no line behind
        """Enters a line that an earlier attempt typed but did not enter: `submitted`, or `stored` with the reason,
        which is `line_gone` when no such line is left."""
        return Delivery("stored", LINE_GONE)

    def clear(self, agent: Agent) -> None:  # noqa: B027 - most show nothing that lasts
        """Removes anything still displayed, by whichever process; called when nothing is unread any more."""

    def names(self, agent: Agent) -> tuple[str, ...]:  # noqa: ARG002 - only a chain differs between agents
        """The names of the agent's channels, strongest first."""
        return (self.name,)

    def explain(self, agent: Agent, *, is_silent: bool = False) -> tuple[ChannelReport, ...]:  # noqa: ARG002
        """The names of the agent's channels and their `check`, strongest first. `is_silent`: its tmux did not answer a
        moment ago, and is not asked again."""
        return (ChannelReport(self.name, self.check(agent)),)


# A channel that only records its rings: for tests, and for agents that no human or program plays.


@dataclass
class Recorder(Channel):
    """Records every ring and returns `outcome`."""

    outcome: Delivery = field(default_factory=lambda: Delivery("submitted"))
    name: str = "recorder"
    rings: list[tuple[str, str]] = field(default_factory=list)

    def check(self, agent: Agent) -> str | None:  # noqa: ARG002 - the same for everybody
        return self.outcome.reason if self.outcome.state == "stored" else None

    def ring(self, agent: Agent, line: str, about: About = MANY) -> Delivery:  # noqa: ARG002 - the line says enough
        self.rings.append((agent.id, line))
        return self.outcome


SYSTEM = "system"
"""The sender shown for notifications that no agent caused."""


def doorbell_line(texts: Texts, items: Sequence[DoorbellItem]) -> str:
    """The doorbell line for these unread items: the kind and sender of a single one, else the count of each kind; for a
    first prompt alone what to call, after a usage limit to go on.

    A hand-written file may claim any type and sender; only known types and plain names are repeated.
    """
    messages = [item for item in items if isinstance(item, Message)]
    notices = [item for item in items if isinstance(item, UnreadNotification)]
    if messages and notices:
        return texts("doorbell.both", messages=len(messages), notifications=len(notices))
    if notices:
        return _about_notifications(texts, notices)
    if not messages:
        return texts("doorbell.go_on" if any(isinstance(item, GoOn) for item in items) else "doorbell.begin")
    if len(messages) != 1:
        return texts("doorbell.many", count=len(messages))
    message = messages[0]
    message_type = message.message_type if message.message_type in MESSAGE_TYPES else "request"
    return texts("doorbell.one", message_type=message_type, sender_id=_name(message.sender_id))


def about(items: Sequence[DoorbellItem]) -> About:
    """The kind and id of the only item: `message` and its id; a notification's action, or else its type, and the id of
    its question, or else its own."""
    if len(items) != 1 or isinstance(item := items[0], FirstPrompt | GoOn):
        return MANY
    if isinstance(item, Message):
        return About("message", _name(item.id), item.traceparent)
    return About(_word(item), _name(item.question_id or item.id))


def _word(notice: UnreadNotification) -> str:
    known = (word for word in (notice.action, notice.type) if word in (*ACTIONS, *TYPES))
    return next(known, TYPES[-1])


def _about_notifications(texts: Texts, notices: Sequence[UnreadNotification]) -> str:
    if len(notices) > 1:
        return texts("doorbell.notifications", count=len(notices))
    notice = notices[0]
    agent_id = SYSTEM if notice.sender_id is None else _name(notice.sender_id)
    return texts("doorbell.notification", action=_word(notice), agent_id=agent_id)


def _name(agent_id: str) -> str:
    return agent_id if is_name(agent_id) else "unknown"


def sanitized(line: str) -> str:
    """The line without anything a terminal might obey, and without tabs and newlines (docs/protocol.md, Typing into a
    pane, Harmless text)."""
    return sanitize(line, " ").replace("\t", " ").replace("\n", " ")
