"""What becomes a span, and the way there: facts into a queue, at no cost to the call, and out of it in a thread, which
alone imports OpenTelemetry. Nothing here raises, waits, or reads what anybody wrote: names, ids, states and times only.
"""

from __future__ import annotations

import atexit
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.agent import Execution
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.features import load
from multi_agent_mcp.session import Service, Session
from multi_agent_mcp.trace import Called, current, valid, within

if TYPE_CHECKING:
    from multi_agent_mcp.services.doctor.tree import CheckContext, Finding

logger = logging.getLogger(__name__)

WAITING_MAX = 4_096
"""Spans that wait for a slow collector; later ones are dropped."""
BATCH_MAX = 256
LAST_SPANS_SECONDS = 0.3
"""How long the end of a process waits for what it has recorded last."""
SAMPLED = 1

Export = Callable[[Sequence["Span"]], None]


@dataclass(frozen=True)
class Span:
    """A span that has ended; times in nanoseconds since 1970, ids in hexadecimal digits. `kind` is the name of one of
    OpenTelemetry's `SpanKind`; `error` the code of a failure."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str | None
    start: int
    end: int
    attributes: Mapping[str, str | int]
    error: str | None = None


class Telemetry(Service):
    """Records the spans of a session in which they are wanted. What exports them is opened in the thread when there is
    a first one."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._is_on = True
        self._waiting: SimpleQueue[Span | threading.Event] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._mutex = threading.Lock()

    @contextmanager
    def call(self, tool: str, given: object) -> Iterator[Called]:
        """A call of a tool, in the trace that its `_meta` names: what it causes belongs to it."""
        parent, called = valid(given) or current(), Called()
        if not _is_sampled(parent):
            with within(parent):
                yield called
            return
        trace_id = parent.split("-")[1] if parent else secrets.token_hex(16)
        span_id, start = secrets.token_hex(8), time.time_ns()
        with within(f"00-{trace_id}-{span_id}-01"):
            yield called
        about = {"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
        self._put(
            Span(
                name=f"tools/call {tool}",
                kind="SERVER",
                trace_id=trace_id,
                span_id=span_id,
                parent_id=parent.split("-")[2] if parent else None,
                start=start,
                end=time.time_ns(),
                attributes={**about, **called.attributes},
                error=called.error,
            )
        )

    def sent(self, messages: Iterable[Message]) -> None:
        """Messages that were stored a moment ago."""
        for message in messages:
            self._put_entity("send", message.id, "PRODUCER", message.created_at, None, _about(message), message)

    def read(self, messages: Iterable[Message], at: datetime) -> None:
        """Messages that were marked read: the span is the time during which they were unread."""
        for message in messages:
            parent = _span_id("send", message.id)
            self._put_entity(
                "receive", message.id, "CONSUMER", message.created_at, at, _about(message), message, parent=parent
            )

    def finished(self, execution: Execution) -> None:
        """An execution that has ended."""
        if execution.completed_at is None:
            return
        about = {
            "multi_agent_mcp.execution.id": execution.id,
            "multi_agent_mcp.agent.id": execution.agent_id,
            "multi_agent_mcp.task.id": execution.task_id,
            "multi_agent_mcp.status": execution.status,
        }
        failed = "failed" if execution.status == "failed" else None
        self._put_entity(
            "execution",
            execution.id,
            "INTERNAL",
            execution.started_at,
            execution.completed_at,
            about,
            execution,
            error=failed,
        )

    def changed(self, tasks: Iterable[Task]) -> None:
        """Tasks that have changed; those that are over become spans. Several processes may say so of the same task: its
        span is the same one each time, by its id."""
        for task in tasks:
            if task.final:
                about = {
                    "multi_agent_mcp.task.id": task.id,
                    "multi_agent_mcp.agent.id": task.assignee_id or "",
                    "multi_agent_mcp.created_by": task.created_by,
                    "multi_agent_mcp.status": task.status,
                    "multi_agent_mcp.priority": task.priority,
                }
                ended = task.completed_at or task.status_changed_at or task.updated_at
                self._put_entity("task", task.id, "INTERNAL", task.created_at, ended, about, task)

    def flush(self, seconds: float = LAST_SPANS_SECONDS) -> None:
        """Waits until what was recorded is exported, or until so long has passed."""
        if self._thread is not None:
            done = threading.Event()
            self._waiting.put(done)
            done.wait(seconds)

    def _put_entity(
        self,
        name: str,
        entity_id: str,
        kind: str,
        start: datetime,
        end: datetime | None,
        attributes: Mapping[str, str | int],
        entity: Message | Execution | Task,
        *,
        parent: str | None = None,
        error: str | None = None,
    ) -> None:
        """The span of an entity, in the trace of the call that caused it, or else in one of its own."""
        cause = valid(entity.traceparent)
        if not _is_sampled(cause):
            return
        caused_by = cause.split("-")[2] if cause else None
        self._put(
            Span(
                name=name,
                kind=kind,
                trace_id=cause.split("-")[1] if cause else _digest("trace", entity_id, 32),
                span_id=_span_id(name, entity_id),
                parent_id=parent or caused_by,
                start=_nanoseconds(start),
                end=time.time_ns() if end is None else _nanoseconds(end),
                attributes=attributes,
                error=error,
            )
        )

    def _put(self, span: Span) -> None:
        if self._waiting.qsize() >= WAITING_MAX:
            return
        self._waiting.put(span)
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._mutex:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
                self._thread.start()
                atexit.register(self.flush)

    def _run(self) -> None:
        """Exports, in batches. Never ends: what cannot be exported is dropped."""
        export: Export | None = None
        while True:
            spans, ended = self._next()
            try:
                if export is None and self._is_on:
                    export = self._opened()
                if spans and export is not None:
                    export(spans)
            except ImportError:
                logger.warning(
                    "telemetry needs the extra `telemetry` (pip install '.[telemetry]' in a clone); nothing is exported"
                )
                self._is_on = False
            except Exception:
                logger.debug("spans were dropped", exc_info=True)
            for event in ended:
                event.set()

    def _opened(self) -> Export:
        exporter = load(".telemetry.exporting:exporter")  # it imports this module, and OpenTelemetry
        export: Export = exporter(self.session.settings.of("telemetry"), self.session.name, self.session.path)
        return export

    def _next(self) -> tuple[list[Span], list[threading.Event]]:
        items = [self._waiting.get()]
        while len(items) < BATCH_MAX:
            try:
                items.append(self._waiting.get_nowait())
            except Empty:
                break
        spans = [item for item in items if isinstance(item, Span)]
        return spans, [item for item in items if isinstance(item, threading.Event)]


def _about(message: Message) -> dict[str, str | int]:
    return {
        "messaging.system": "multi-agent-mcp",
        "messaging.message.id": message.id,
        "messaging.destination.name": message.receiver_id,
        "multi_agent_mcp.agent.id": message.sender_id,
        "multi_agent_mcp.message.type": message.message_type,
        "multi_agent_mcp.priority": message.priority,
    }


def _is_sampled(traceparent: str | None) -> bool:
    """Whether spans are wanted: a caller that does not record its own spans wants none of ours (section 3.2.2.5)."""
    return traceparent is None or bool(int(traceparent.split("-")[3], 16) & SAMPLED)


def _span_id(name: str, entity_id: str) -> str:
    return _digest(name, entity_id, 16)


def _digest(what: str, entity_id: str, digits: int) -> str:
    return sha256(f"{what} {entity_id}".encode(errors="replace")).hexdigest()[:digits]


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1_000


def check(context: CheckContext) -> Iterator[Finding]:
    """Spans that are asked for and cannot be exported, because OpenTelemetry is not installed."""
    from multi_agent_mcp.services.doctor.tree import PROBLEM

    if context.checks.settings().of("telemetry") is not None and find_spec("opentelemetry.exporter") is None:
        yield context.found("telemetry", PROBLEM, "session.yaml", "telemetry_missing")
