"""The rows of `--scale`, in the order of their table. A case is prepared at both sizes of its `Growth`."""

from __future__ import annotations

from benchmarks.floors import file_read, file_written, python_started, signature_verified
from benchmarks.rows import calls, throughput
from benchmarks.scale import mail, servers, tasks, upkeep, views
from benchmarks.scale.growth import Growth
from benchmarks.table import Row

HUNDRED, THOUSAND, MYRIAD, LAKH, MILLION = (10**digits for digits in (2, 3, 4, 5, 6))


def _times(name: str, title: str, growth: Growth, at_most: float) -> Row:
    return Row(name=name, title=title, measure=growth.times, unit="x", at_most=at_most)


def _each(name: str, title: str, growth: Growth, at_most: float, unit: str) -> Row:
    return Row(name=name, title=title, measure=growth.each, unit=unit, at_most=at_most)


_TASKS = (
    _times("start", "serve: start and first call, finished tasks", Growth(tasks.started, HUNDRED, LAKH, 3), 1.1),
    _times("my-tasks", "get_my_tasks after a change, finished tasks", Growth(tasks.my_tasks, HUNDRED, LAKH), 2),
    _times(
        "report-finished",
        "an admin reads a report, finished tasks",
        Growth(tasks.report_beside_finished, HUNDRED, LAKH),
        2,
    ),
    _times("report-open", "an admin reads a report, open tasks", Growth(tasks.report_beside_open, HUNDRED, 5_000), 2),
    _times("history", "one change of a task, entries of its history", Growth(tasks.long_history, 10, MYRIAD, 2), 2),
    _each(
        "block-line",
        "block the root of subtasks in a line",
        Growth(tasks.block_line, 10, THOUSAND, 1, floor=file_written),
        20,
        "writes a task",
    ),
    _times("dependencies", "get_next_action, a chain of dependencies", Growth(tasks.dependency_chain, 10, 5_000, 3), 2),
)

_UNREAD = (
    _times(
        "send-unread", "send to an agent without a server, unread", Growth(mail.send_unserved, HUNDRED, LAKH, 3), 1.2
    ),
    _times("hook-first", "hook: first look, unread", Growth(mail.hook_first, HUNDRED, MYRIAD), 3),
    _times("hook-news", "hook: after one new message, unread", Growth(mail.hook_news, HUNDRED, MYRIAD), 3),
    _times("hook-silent", "hook: nothing to say, unread", Growth(mail.hook_silent, HUNDRED, LAKH, 9), 1.1),
    _each(
        "first-look",
        "first look of a process (unread)",
        Growth(mail.first_look, HUNDRED, MYRIAD, 3, floor=file_read),
        17,  # PyYAML reads every header; what read them by itself took 5
        "reads a file",
    ),
    # A page changes the directory, and all of it is examined then: no watch tells which files are others.
    _times("unread-page", "read 50, unread", Growth(mail.unread_page, THOUSAND, MYRIAD), 5),
    _each(
        "unread-memory",
        "memory of a server that looked, unread",
        Growth(mail.unread_memory, HUNDRED, LAKH, 1, "MB"),
        1_000,
        "B a file",
    ),
)

_ARCHIVED = (
    _times("status", "get_message_status of the oldest, archived", Growth(mail.status, THOUSAND, MILLION, 3), 2),
    _times("trace", "trace of the oldest, archived", Growth(mail.trace, THOUSAND, MILLION), 2),
    _times("before", "read_messages before the oldest, archived", Growth(mail.oldest_page, THOUSAND, LAKH, 3), 2),
    _times("search", "search once indexed, archived", Growth(mail.found, THOUSAND, LAKH), 5),
    _times("timeline", "timeline, archived", Growth(upkeep.over_archive("timeline"), MYRIAD, MILLION, 3), 2),
    _times("watch", "watch --once, archived", Growth(upkeep.over_archive("watch", "--once"), MYRIAD, MILLION, 3), 2),
    _each(
        "prune",
        "prune --dry-run, archived",
        Growth(upkeep.over_archive("prune", "--dry-run", "--older-than", "0"), MYRIAD, MILLION, 3, floor=file_read),
        1,
        "reads a file",
    ),
    _times(
        "prune-memory",
        "its memory",
        Growth(upkeep.over_archive("prune", "--dry-run", "--older-than", "0", memory=True), MYRIAD, MILLION, 1, "MB"),
        1.2,
    ),
    _each(
        "doctor",
        "doctor, archived",
        Growth(upkeep.over_archive("doctor", signed=True), HUNDRED, LAKH, 3, floor=file_read),
        1,
        "reads a file",
    ),
    _each(
        "verify",
        "doctor --verify, archived",
        Growth(upkeep.over_archive("doctor", "--verify", signed=True), HUNDRED, LAKH, 1, floor=signature_verified),
        3,
        "verifications a message",
    ),
    _times(
        "verify-memory",
        "its memory",
        Growth(upkeep.over_archive("doctor", "--verify", memory=True, signed=True), HUNDRED, LAKH, 1, "MB"),
        1.2,
    ),
)

_OTHERS = (
    _times("conversation", "newest 50 of a conversation", Growth(mail.conversation, HUNDRED, MYRIAD, 3), 2),
    _times("executions", "newest 10 executions", Growth(upkeep.executions, HUNDRED, MYRIAD, 3), 2),
    _times("log", "last 100 lines of a log", Growth(upkeep.log, HUNDRED, MILLION, 3), 2),
    _times("log-memory", "its memory", Growth(upkeep.log_memory, HUNDRED, MILLION, 1, "MB"), 1.2),
    Row(
        name="sessions",
        title="serve: start and first call, ended sessions",
        measure=Growth(upkeep.ended_sessions, 10, MYRIAD, floor=python_started).added,
        unit="interpreters more",
        at_most=1,
    ),
    _each(
        "broadcast",
        "broadcast to so many",
        Growth(mail.broadcast, 10, 500, floor=file_written),
        4,
        "writes a receiver",
    ),
    _times("cli-help", "--help beside python -c pass", Growth(upkeep.empty("--help"), 0, 1), 8),
    _times("cli-unread", "unread beside python -c pass", Growth(upkeep.empty("unread"), 0, 1), 15),
    _times("cli-send", "send beside python -c pass", Growth(upkeep.empty("send", "admin", "hello"), 0, 1), 18),
    Row(
        name="servers",
        title="live servers with nothing to do",
        measure=servers.live,
        unit="ms a minute",
        at_most=13,
        by_name_only=True,
    ),
    Row(name="send", title="send_message over stdio, 1 kB, median", measure=calls.send, at_most=1.3),
    Row(name="writers", title="8 senders beside 8 writers of files", measure=throughput.sends, at_least=0.6),
)

_COMPANY = (
    *(
        Row(
            name=f"{view}-first",
            title=f"/api/{view}, the first time, 200 agents",
            measure=views.first(f"/{view}"),
            unit="s",
            at_most=0.3,
        )
        for view in ("attention", "agents", "health")
    ),
    *(
        Row(
            name=f"{view}-again",
            title=f"/api/{view} while nothing changes",
            measure=views.again(f"/{view}"),
            unit="s",
            at_most=0.03,
        )
        for view in ("attention", "agents", "health")
    ),
    Row(
        name="stats",
        title="/api/stats, the first time, 200 agents",
        measure=views.first("/stats"),
        unit="s",
        at_most=2,
    ),
    Row(
        name="first-search",
        title="the longest wait of the first search, 20 000 messages",
        measure=views.first_search,
        unit="s",
        at_most=2,
    ),
    Row(name="cli-attention", title="attention, 200 agents", measure=views.command("attention"), unit="s"),
    Row(name="cli-stats", title="stats, 200 agents", measure=views.command("stats"), unit="s"),
)

ROWS: tuple[Row, ...] = (*_TASKS, *_UNREAD, *_ARCHIVED, *_OTHERS, *_COMPANY)
