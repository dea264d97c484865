"""File events: what is put into a watched directory is told."""

from __future__ import annotations

import queue
from pathlib import Path

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.store.files import Files
from multi_agent_mcp.store.inbox import Inbox
from multi_agent_mcp.store.watch import Watch
from tests.store.support import mailbox, message, put

PATIENCE_SECONDS = 20.0


def test_a_delivered_message_is_told_with_its_directory(files: Files) -> None:
    told: queue.Queue[Path] = queue.Queue()
    inbox: Inbox[Message] = mailbox(files)
    with Watch([inbox.path, files.base / "other"], told.put):
        inbox.deliver(message(1))
        assert told.get(timeout=PATIENCE_SECONDS) == inbox.path


def test_a_file_written_by_hand_is_told_and_others_are_not(files: Files) -> None:
    told: queue.Queue[Path] = queue.Queue()
    first, second = files.base / "first", files.base / "second"
    with Watch([first, second], told.put):
        put(first / ".hidden.md", "x")
        put(first / "x.tmp", "x")
        put(second / "note.md", "x")
        assert told.get(timeout=PATIENCE_SECONDS) == second


def test_an_archived_message_is_told_as_gone(files: Files) -> None:
    told: queue.Queue[Path] = queue.Queue()
    inbox: Inbox[Message] = mailbox(files)
    inbox.deliver(message(1))
    inbox.mark_read([name for name, _ in inbox.unread()], message(2).created_at)
    with Watch([inbox.path], told.put):
        assert inbox.archive_read(keep=0, above=0) == 1
        assert told.get(timeout=PATIENCE_SECONDS) == inbox.path
