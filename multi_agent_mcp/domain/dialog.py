"""A dialog in which a host asks the human at its pane, and its choices (docs/protocol.md, Answering a dialog)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from multi_agent_mcp.domain.entity import is_name
from multi_agent_mcp.domain.times import format_time, parse_time


@dataclass(frozen=True)
class Choice:
    """One choice: its number or letter on the screen (`key`) and its words. `lasting`: the host will not ask again.
    `moves` are the keys, as tmux names them, that pick it where its own key does not: they move the mark from where it
    is now, so they are no part of what was asked."""

    key: str
    label: str
    lasting: bool = False
    moves: tuple[str, ...] = field(default=(), compare=False)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys to press in order to pick it, as tmux names them."""
        return self.moves or (self.key,)

    def as_answer(self) -> dict[str, Any]:
        return {"choice": self.key, "label": self.label, "lasting": self.lasting, "keys": list(self.keys)}


@dataclass(frozen=True)
class Dialog:
    """A dialog: its topic (`permission`, `trust`, `hooks` …), its text, one line per row, and its choices in order."""

    topic: str
    text: str
    choices: tuple[Choice, ...]

    @property
    def id(self) -> str:
        """An id derived from all words of the dialog, so that an answer refers to exactly what the person has read."""
        parts = [self.topic, self.text, *(f"{choice.key}\t{choice.label}" for choice in self.choices)]
        return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:12]

    def choice(self, key: str) -> Choice | None:
        """The choice with this key, or None."""
        return next((choice for choice in self.choices if choice.key == key), None)

    def as_answer(self) -> dict[str, Any]:
        choices = [choice.as_answer() for choice in self.choices]
        return {"id": self.id, "topic": self.topic, "text": self.text, "choices": choices}


@dataclass(frozen=True)
class Asked:
    """The fact that an agent's host asks something, without its words, as sent to other machines. `topic` is a dialog's
    topic, or `login`; None if no profile describes it."""

    agent_id: str
    topic: str | None
    since: datetime
    dialog_id: str | None = None
    """The dialog's id (`Dialog.id`), by which two in a row are distinguished; None if no profile describes it."""

    @property
    def ring_id(self) -> str:
        """An id of this dialog's appearance, for the delivery log."""
        return f"dialog.{self.agent_id}.{self.dialog_id or self.topic or '-'}.{format_time(self.since)}"

    @classmethod
    def parse(cls, facts: Mapping[str, Any]) -> Asked:
        """Parses JSON values. Raises `ValueError`, `LookupError`, `TypeError` or `AttributeError` for invalid ones."""
        agent_id, topic, since = facts["agent_id"], facts.get("topic"), parse_time(facts["since"])
        dialog_id = facts.get("dialog_id")
        if (
            since is None
            or not is_name(agent_id)
            or not all(name is None or is_name(name) for name in (topic, dialog_id))
        ):
            raise ValueError(facts)
        return cls(agent_id, topic, since, dialog_id)


@dataclass(frozen=True)
class Answered:
    """The outcome of an answer. `answered`: the dialog is gone after our key, and `screen` is the state of the screen
    now; `pressed`: the key was sent, and `reason` says why its effect is unknown; `refused`: no key was sent, for this
    `reason`."""

    state: str
    reason: str | None = None
    screen: str | None = None
    dialog: Dialog | None = None
    """The dialog that was answered, or that is shown instead of the expected one."""

    def as_answer(self) -> dict[str, Any]:
        """The known fields, for JSON."""
        facts: dict[str, Any] = {"state": self.state, "reason": self.reason, "screen": self.screen}
        known = {name: fact for name, fact in facts.items() if fact is not None}
        return known if self.dialog is None else {**known, "dialog": self.dialog.as_answer()}
