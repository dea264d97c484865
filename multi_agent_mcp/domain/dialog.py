"""A question that a host asks the human at its pane, and what can be answered (docs/protocol.md, Answering a
dialog)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from multi_agent_mcp.domain.ids import is_name
from multi_agent_mcp.domain.times import parse_time


@dataclass(frozen=True)
class Choice:
    """One answer: the key that picks it, which is also its number on the screen, and its words. `lasting`: the host
    will not ask again."""

    key: str
    label: str
    lasting: bool = False

    def as_answer(self) -> dict[str, Any]:
        return {"choice": self.key, "label": self.label, "lasting": self.lasting}


@dataclass(frozen=True)
class Dialog:
    """What it is about (`permission`, `trust`, `hooks`), its text, one line per row, and its choices in their
    order."""

    topic: str
    text: str
    choices: tuple[Choice, ...]

    @property
    def id(self) -> str:
        """Of the same dialog always the same; of one with another word, another. It names what a person has read."""
        parts = [self.topic, self.text, *(f"{choice.key}\t{choice.label}" for choice in self.choices)]
        return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:12]

    def choice(self, key: str) -> Choice | None:
        """The choice with this key."""
        return next((choice for choice in self.choices if choice.key == key), None)

    def as_answer(self) -> dict[str, Any]:
        choices = [choice.as_answer() for choice in self.choices]
        return {"id": self.id, "topic": self.topic, "text": self.text, "choices": choices}


@dataclass(frozen=True)
class Asked:
    """That somebody is asked something in an agent's pane, without its words: what other machines are told. `topic` is
    a dialog's, or `login`; None where no profile describes it."""

    agent_id: str
    topic: str | None
    since: datetime

    @classmethod
    def parse(cls, facts: Mapping[str, Any]) -> Asked:
        """Raises `ValueError`, `LookupError`, `TypeError` or `AttributeError` for anything else."""
        agent_id, topic, since = facts["agent_id"], facts.get("topic"), parse_time(facts["since"])
        if since is None or not is_name(agent_id) or not (topic is None or is_name(topic)):
            raise ValueError(facts)
        return cls(agent_id, topic, since)


@dataclass(frozen=True)
class Answered:
    """What came of an answer. `answered`: the dialog is gone after our key, and `screen` is what the host shows now;
    `pressed`: the key was sent, and `reason` says why nobody knows what it did; `refused`: no key was sent, for this
    `reason`."""

    state: str
    reason: str | None = None
    screen: str | None = None
    dialog: Dialog | None = None
    """The one that was answered, or the one that is shown in place of the expected one."""

    def as_answer(self) -> dict[str, Any]:
        """Without what is not known."""
        facts: dict[str, Any] = {"state": self.state, "reason": self.reason, "screen": self.screen}
        known = {name: fact for name, fact in facts.items() if fact is not None}
        return known if self.dialog is None else {**known, "dialog": self.dialog.as_answer()}
