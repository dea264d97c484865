"""The rows of the table, in its order. To add one: write a function `Bench -> Finding` and name it here."""

from __future__ import annotations

from benchmarks.rows import calls, doorbell, mailboxes, processes, stopping, throughput
from benchmarks.table import Row

ROWS: tuple[Row, ...] = (
    Row(
        name="send",
        title="send_message over stdio, 1 kB, median",
        measure=calls.send,
        at_most=2.5,
        elsewhere="predecessor 18 ms, mcp_agent_mail 94 ms",
    ),
    Row(
        name="send-unserved",
        title="the same, the recipient's server is not running",
        measure=calls.send_unserved,
        at_most=2.5,
    ),
    Row(
        name="throughput",
        title="{processes} processes x {sends} sends to one mailbox",
        measure=throughput.sends,
        at_least=0.4,
        elsewhere="mcp_agent_mail 1-8 /s",
    ),
    Row(
        name="throughput-served",
        title="the same, the recipient's server is running",
        measure=throughput.sends_served,
        at_least=0.4,
    ),
    Row(
        name="unread",
        title="get_unread_count, {read} read messages against {few}, warm",
        measure=mailboxes.unread_warm,
        unit="x",
        at_most=1.5,
        elsewhere="predecessor 3.6 s",
    ),
    Row(
        name="unread-fresh",
        title="the same, first call of a fresh process",
        measure=mailboxes.unread_fresh,
        unit="x",
        at_most=2,
    ),
    Row(
        name="unread-heaped",
        title="the same, {read} read files put into the mailbox by hand, warm",
        measure=mailboxes.unread_heaped,
        unit="x",
    ),
    Row(
        name="unread-heaped-fresh",
        title="the same, first call of a fresh process",
        measure=mailboxes.unread_heaped_fresh,
        unit="x",
    ),
    Row(
        name="read",
        title="read_messages, 1 new among {read} read, against {few}",
        measure=mailboxes.read_one,
        unit="x",
        at_most=2,
        elsewhere="predecessor 4.1 s",
    ),
    Row(
        name="doorbell",
        title="stored -> line visible in an idle pane",
        measure=doorbell.visible,
        unit="ms",
        at_most=25,
        elsewhere="predecessor 2 s cooldown",
    ),
    Row(
        name="spawn",
        title="spawn of serve -> tools/list answered",
        measure=processes.spawn,
        unit="s over floor",
        at_most=0.10,
        elsewhere="mcp_agent_mail 3.4 s",
    ),
    Row(
        name="memory",
        title="resident memory of one server that has rung",
        measure=processes.memory,
        unit="MB over floor",
        at_most=20,
        elsewhere="mcp_agent_mail 217 MB",
    ),
    Row(
        name="tools",
        title="tools/list, largest role, compact JSON",
        measure=processes.tools,
        unit="kB",
        at_most=12,
        elsewhere="predecessor 70.7 kB",
    ),
    Row(
        name="middleware",
        title="a call with nothing unread, {read} old notifications against none",
        measure=stopping.middleware,
        unit="x",
        at_most=1.2,
    ),
    Row(
        name="interrupt",
        title="Owner's change done -> replaced answer of an agent that calls every 10 ms",
        measure=stopping.interrupt,
        unit="ms",
        at_most=30,
    ),
    Row(
        name="next-action",
        title="mail stored -> waiting get_next_action answered",
        measure=stopping.next_action,
        unit="ms",
        at_most=50,
    ),
    Row(
        name="claims",
        title="16 processes claim 200 tasks",
        measure=stopping.claims,
        unit="attempts/s",
        at_least=1_000,
    ),
    Row(
        name="my-tasks",
        title="get_my_tasks, 5 000 finished tasks against 50",
        measure=stopping.my_tasks,
        unit="x",
        at_most=2,
    ),
)
