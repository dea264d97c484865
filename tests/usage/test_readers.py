"""What the hosts' own files say, against what the model served while they were recorded: equal to the token."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.domain.times import now
from multi_agent_mcp.usage.tokens import Tokens
from multi_agent_mcp.wiring import Services
from tests.services.tasks_support import moved, new
from tests.usage.support import AGENT, RECORDED, conversation_of, counted, lay_out, served, tokens, told


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, in which the hosts keep their files."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def expected(host: str, name: str) -> Tokens:
    """What was served, without what the host does not record."""
    found = served(host, name)
    left_out: dict[str, int] = found.get("compaction") or found.get("compression") or {}
    counts = {key: count - left_out.get(key, 0) for key, count in found["served"].items()}
    cached = counts.get("cached", counts["cache_read"] if host == "copilot" else 0)
    return Tokens(
        counts["input"] - cached,
        counts["output"],
        counts.get("cache_read", cached),
        counts.get("cache_write", 0),
        counts.get("thoughts", 0),
    )


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("claude", "transcript_usage_compaction_fork.jsonl"),
        ("claude", "transcript_usage_subagent_resume.jsonl"),
        ("codex", "rollout_usage_compaction_resume.jsonl"),
        ("codex", "rollout_usage_subagent.jsonl"),
        ("gemini", "chat_usage_compression.jsonl"),
        ("copilot", "events_usage.jsonl"),
    ],
)
def test_every_host_s_files_are_counted_to_the_token(services: Services, home: Path, host: str, name: str) -> None:
    paths = lay_out(home, host, name)
    for path in paths:
        if (
            path.parent.name != "subagents"
            and "parent_thread_id" not in path.read_text(encoding="utf-8").split("\n")[0]
        ):
            told(services, host, path)
    assert tokens(services) == expected(host, name)
    assert tokens(services) == expected(host, name)  # nothing is counted twice
    (services.path / ".usage" / "ledger.sqlite").unlink()
    assert tokens(services) == expected(host, name)  # it is derived
    assert {row.agent_id for row in counted(services)} == {AGENT}


def test_a_conversation_whose_file_no_hook_named_is_found_by_its_id(services: Services, home: Path) -> None:
    (path,) = lay_out(home, "codex", "rollout_usage_compaction_resume.jsonl")
    conversation = conversation_of(path, "codex")
    services.workspace.hook_state(AGENT, "task").write({"transcripts": {conversation: ["codex", None]}})
    assert tokens(services) == expected("codex", "rollout_usage_compaction_resume.jsonl")


def test_a_server_s_look_reads_no_ended_session_while_there_is_no_ledger(services: Services, home: Path) -> None:
    (path,) = lay_out(home, "codex", "rollout_usage_compaction_resume.jsonl")
    live = services.sessions.open(AGENT, "task")
    live.note_conversation("codex", conversation_of(path, "codex"))
    live.end()
    services.usage.clock = now  # that of the files: the session ended before
    services.usage.refresh(recent=True)
    assert not services.usage.ledger.path.exists()
    assert tokens(services) == expected("codex", "rollout_usage_compaction_resume.jsonl")


def test_a_compaction_that_copilot_records_counts(services: Services, home: Path) -> None:
    (path,) = lay_out(home, "copilot", "events_compaction_error.jsonl")
    told(services, "copilot", path)
    assert tokens(services) == Tokens(1000, 20)


def response(number: int, model: str = "claude-opus-5-5", **more: Any) -> str:
    usage = {"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 0}
    message = {"id": f"msg_{number}", "model": model, "usage": usage, "content": [{"type": "text", "text": "SECRET"}]}
    line = {"type": "assistant", "requestId": f"req_{number}", "timestamp": "2026-11-21T21:46:02Z", "message": message}
    return f"{json.dumps(line | more)}\n"


@pytest.fixture
def transcript(services: Services, home: Path) -> Path:
    """A transcript of Claude with one response."""
    path = home / ".claude" / "projects" / "-x" / "0a0a.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(response(1), encoding="utf-8")
    told(services, "claude", path)
    return path


def test_what_is_appended_is_counted_when_its_line_is_complete(services: Services, transcript: Path) -> None:
    assert tokens(services) == Tokens(10, 1, 100)
    with transcript.open("a", encoding="utf-8") as file:
        file.write(response(2)[:50])
        file.flush()
        assert tokens(services) == Tokens(10, 1, 100)
        file.write(response(2)[50:] + response(3))
    assert tokens(services) == Tokens(30, 3, 300)


def test_a_file_that_shrinks_is_replaced_or_vanishes_loses_and_doubles_nothing(
    services: Services, transcript: Path
) -> None:
    transcript.write_text(response(1) + response(2), encoding="utf-8")
    assert tokens(services) == Tokens(20, 2, 200)
    transcript.write_text(response(2) + response(3) + response(4), encoding="utf-8")
    assert tokens(services) == Tokens(40, 4, 400)
    transcript.unlink()
    assert tokens(services) == Tokens(40, 4, 400)


def test_what_the_host_says_in_another_form_is_unknown_and_never_0(services: Services, transcript: Path) -> None:
    with transcript.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"type": "assistant", "message": {"id": "m", "model": "x", "usage": {"in": 3}}}) + "\n")
        file.write('not json "assistant"\n')
    rows = [row.as_answer() for row in counted(services)]
    assert [row["input"] for row in rows] == [10, "unknown"]
    assert rows[1]["agent_id"] == AGENT
    assert services.usage.unread_agents() == [AGENT]


def test_no_text_of_a_transcript_is_kept(services: Services, transcript: Path) -> None:
    assert tokens(services) is not None
    kept = b"".join(path.read_bytes() for path in (services.path / ".usage").iterdir())
    assert b"SECRET" not in kept
    assert b"claude-opus-5-5" in kept
    assert transcript.exists()


def test_tokens_belong_to_the_task_that_was_worked_on(services: Services, transcript: Path) -> None:
    task = new(services)
    moved(services, task, "in_progress")
    assert [(row.task_id, row.tokens) for row in counted(services)] == [(task.id, Tokens(10, 1, 100))]
    assert services.usage.of_task(task.id)[0].tokens == Tokens(10, 1, 100)
    assert transcript.exists()


def test_opencode_s_database_is_read_with_its_sub_agents(services: Services, home: Path) -> None:
    path = home / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    said = (RECORDED / "opencode" / "message_assistant.json").read_text(encoding="utf-8")
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE session (id TEXT PRIMARY KEY, parent_id TEXT)")
        database.execute("CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_updated INTEGER, data TEXT)")
        database.execute("INSERT INTO session VALUES ('ses_1', NULL), ('ses_2', 'ses_1'), ('ses_3', NULL)")
        rows = [(f"msg_{number}", f"ses_{number}", number, said) for number in (1, 2, 3)]
        database.executemany("INSERT INTO message VALUES (?, ?, ?, ?)", rows)
        database.commit()
        services.workspace.hook_state(AGENT, "task").write({"transcripts": {"ses_1": ["opencode", None]}})
        assert tokens(services) == Tokens(2004, 44, 1004)
        database.execute("INSERT INTO message VALUES ('msg_4', 'ses_2', 9, ?)", (said,))
        database.commit()
        assert tokens(services) == Tokens(3006, 66, 1506)


def test_what_was_read_is_not_read_again(services: Services, transcript: Path) -> None:
    filler = json.dumps({"type": "user", "message": {"content": "x" * 10_000}}) + "\n"
    with transcript.open("a", encoding="utf-8") as file:
        file.write(filler)
    assert tokens(services) == Tokens(10, 1, 100)
    middle = transcript.read_text(encoding="utf-8").index("x" * 1_000) + 2_000
    with transcript.open("r+", encoding="utf-8") as file:
        file.seek(middle)
        file.write(f"\n{response(9)}")
        file.seek(0, os.SEEK_END)
        file.write(response(2))
    assert tokens(services) == Tokens(20, 2, 200)
