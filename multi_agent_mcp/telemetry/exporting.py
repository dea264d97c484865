"""Exports spans with the official SDK, the extra `telemetry`: as lines of OTLP in a file, or to a collector. Imported
by the thread of `recording` alone, when there is a first span."""

from __future__ import annotations

import fcntl
import io
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from multi_agent_mcp import __version__
from multi_agent_mcp.telemetry.recording import Export, Span
from multi_agent_mcp.telemetry.settings import Destination

logger = logging.getLogger(__name__)

TRACES = "/v1/traces"
COLLECTOR_SECONDS = 5.0
_SCOPE = InstrumentationScope("multi-agent-mcp", __version__)


def exporter(destination: Destination, session: str, directory: Path) -> Export:
    """What exports spans. A relative file is in `directory`, that of the session. It never raises; the first failure
    after a success is logged, in one line."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it logs each failure, with a traceback
    chosen = _exporter(destination, directory)
    resource = Resource.create(
        {"service.name": "multi-agent-mcp", "service.version": __version__, "service.namespace": session}
    )
    failing = False

    def export(spans: Sequence[Span]) -> None:
        nonlocal failing
        failed = chosen.export([_readable(span, resource) for span in spans]) is not SpanExportResult.SUCCESS
        if failed and not failing:
            logger.warning("telemetry: %s cannot be reached or written; spans are dropped until it can", destination)
        failing = failed

    return export


def _exporter(destination: Destination, directory: Path) -> SpanExporter:
    if destination.file is not None:
        from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter

        return FileSpanExporter(stream=AppendedLines(directory / destination.file))
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    given = destination.otlp or ""
    endpoint = given if urlsplit(given).path.strip("/") else given.rstrip("/") + TRACES
    return OTLPSpanExporter(endpoint=endpoint, timeout=COLLECTOR_SECONDS)


class AppendedLines(io.StringIO):
    """A file to which several processes append whole lines: opened again for each, so that it may be rotated. A line
    that does not fit on the disk leaves nothing behind."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def write(self, text: str) -> int:
        data = text.encode()
        opened = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX)
            before = os.fstat(opened).st_size
            if (written := os.write(opened, data)) < len(data):
                os.ftruncate(opened, before)
                raise OSError(f"{written} of {len(data)} bytes were written")
        finally:
            os.close(opened)
        return len(text)


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    status = Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR)
    error = {} if span.error is None else {"error.type": span.error}
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace_id, span.span_id),
        parent=None if span.parent_id is None else _context(span.trace_id, span.parent_id),
        resource=resource,
        attributes={**span.attributes, **error},
        kind=SpanKind[span.kind],
        instrumentation_scope=_SCOPE,
        status=status,
        start_time=span.start,
        end_time=max(span.start, span.end),
    )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
