"""The files that hosts keep, laid out in a home from recordings of the real ones."""

from __future__ import annotations

import json
import os
import sqlite3
from datetime import UTC
from pathlib import Path
from typing import Any

from multi_agent_mcp.hooks.answers import Event
from multi_agent_mcp.store.derived_databases import writing
from multi_agent_mcp.usage.tokens import Tokens, UsageRow
from multi_agent_mcp.wiring import Services

RECORDED = Path(__file__).parents[1] / "fixtures" / "hosts2"
FOLDERS = {
    "claude": ".claude/projects/-project",
    "codex": ".codex/sessions/2026/11/23",
    "gemini": ".gemini/tmp/project/chats",
    "copilot": ".copilot/session-state/1b0f1efc-efa9-4659-9235-9ac25ce97a3e",
}
AGENT = "worker-a"


def served(host: str, name: str) -> dict[str, Any]:
    """What the model served while a recording was made."""
    found: dict[str, dict[str, Any]] = json.loads((RECORDED / host / "served.json").read_bytes())
    return found[name]


def lay_out(home: Path, host: str, name: str) -> list[Path]:
    """Writes the files of which a recording consists as the host keeps them; returns them, the main one first."""
    written: dict[Path, list[str]] = {}
    for line in (RECORDED / host / name).read_text(encoding="utf-8").splitlines():
        file = json.loads(line).get("_file", "events.jsonl")
        path = home / FOLDERS[host] / file
        if host == "claude" and file.startswith("agent-"):
            path = home / FOLDERS[host] / json.loads(line)["sessionId"] / "subagents" / file
        written.setdefault(path, []).append(line)
    for path, lines in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return sorted(written, key=lambda path: len(path.parts))


def conversation_of(path: Path, host: str) -> str:
    """The host's id of the conversation that a file holds."""
    first = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    found: dict[str, str] = {
        "claude": path.stem,
        "codex": first.get("payload", {}).get("id"),
        "gemini": first.get("sessionId"),
        "copilot": path.parent.name,
    }
    return found[host]


def told(services: Services, host: str, path: Path, agent_id: str = AGENT) -> None:
    """The host calls our hook in this conversation."""
    event = Event("SessionStart", conversation_of(path, host), host, str(path))
    services.hooks.answer(agent_id, "task", event)


def counted(services: Services, days: int = 100) -> list[UsageRow]:
    found: list[UsageRow] = services.usage.rows(days, UTC)
    return found


def tokens(services: Services) -> Tokens | None:
    """All tokens of the session."""
    total = Tokens()
    for row in counted(services):
        if row.tokens is None:
            return None
        total += row.tokens
    return total


def took(services: Services, agent_id: str, tokens: int, *, task_id: str | None = None, model: str = "m-1") -> None:
    """A response of a model is in the ledger, as if a host's files had told of it just now."""
    row = (os.urandom(8), agent_id, task_id, model, services.clock().timestamp(), tokens)

    def insert(database: sqlite3.Connection) -> None:
        with writing(database):
            database.execute("INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?, 0, 0, 0, 0)", row)

    services.usage.ledger.use(insert)
