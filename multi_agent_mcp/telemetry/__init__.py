"""Spans of calls, messages, executions and tasks for OpenTelemetry, where session.yaml asks for them
(docs/telemetry.md)."""
