"""Support for the tests of the services."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.services.mail import Sent
from multi_agent_mcp.services.sessions.confirmation import Lease
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.wiring import Services


def send(services: Services, sender: str, receiver: str | None, content: str = "hello", **fields: Any) -> Sent:
    draft = Draft(content=content, receiver_id=receiver, **fields)
    return services.messages.send(services.agents.get(sender), draft)


def read(services: Services, reader: str, lease: Lease | None = None, **query: Any) -> dict[str, Any]:
    return services.reading.read(services.agents.get(reader), Query(**query), lease)


def contents(answer: dict[str, Any]) -> list[str]:
    return [message["content"] for message in answer["messages"]]


def size(answer: dict[str, Any]) -> int:
    """Characters of the answer as the agent's host sees it."""
    return len(json.dumps(answer, ensure_ascii=False))


def mail(services: Services) -> list[Path]:
    """Every message file of the session, wherever it is."""
    return sorted((services.workspace.path / "ipc").rglob("*.md"))


def by_hand(services: Services, receiver: str, name: str, text: str) -> Path:
    path = services.workspace.path / "ipc" / receiver / name
    path.write_bytes(text.encode())
    return path


def unread(services: Services, agent_id: str) -> int:
    return len(services.workspace.mailbox(agent_id).unread(fresh=True))


def syncs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files and directories that are fsynced from now on."""
    synced: list[Path] = []
    real = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return synced
