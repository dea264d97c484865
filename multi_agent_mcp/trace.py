"""The trace that the running call belongs to, as W3C Trace Context names it: `traceparent`, in the `_meta` of a call,
the headers of the files that it causes, and the environment of the programs that we start (docs/telemetry.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from multi_agent_mcp.environment import ENVIRON

VARIABLE = "TRACEPARENT"
"""The variable of OpenTelemetry's specification, Environment Variables as Context Propagation Carriers."""
_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[\x21-\x7e]{0,200})?")
_running: ContextVar[str | None] = ContextVar("traceparent", default=None)


def valid(given: object) -> str | None:
    """The value if it is a traceparent (W3C Trace Context, section 3.2), else None: then the call begins a trace, or
    belongs to none."""
    return given if isinstance(given, str) and _FORM.fullmatch(given) else None


def current() -> str | None:
    """The traceparent of the running call; without one that of this process, which its host may have set."""
    return _running.get() or valid(ENVIRON.get(VARIABLE))


class Called:
    """A call that runs: `error` is its outcome's code, None for success; `attributes` say who called."""

    error: str | None = None
    attributes: Mapping[str, str | int] = {}


@contextmanager
def called(given: object) -> Iterator[Called]:
    """A call in the trace that its `_meta` names: what it causes belongs to it."""
    with within(valid(given) or current()):
        yield Called()


@contextmanager
def within(traceparent: str | None) -> Iterator[None]:
    """Lets what runs in this context, in this thread, belong to a trace; None changes nothing."""
    if traceparent is None:
        yield
        return
    before = _running.set(traceparent)
    try:
        yield
    finally:
        _running.reset(before)


def variables(traceparent: object) -> dict[str, str]:
    """The variables for a program that belongs to this trace; none without a valid one."""
    known = valid(traceparent)
    return {} if known is None else {VARIABLE: known}
