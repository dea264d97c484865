"""The feature of this folder. It is read at every start."""

from __future__ import annotations

from multi_agent_mcp.features import Feature

TELEMETRY = Feature(
    name="telemetry",
    optional=True,
    settings={"telemetry": ".telemetry.settings:parse_telemetry"},
    services={"telemetry": ".telemetry.recording:Telemetry"},
    needs="telemetry",
    on={
        "sent": "telemetry.sent",
        "marked_read": "telemetry.read",
        "execution_ended": "telemetry.finished",
        "task_changed": "telemetry.changed",
        "process_ends": "telemetry.flush",
    },
    answers={"recorded": "telemetry.call"},
    checks={"telemetry": ".telemetry.recording:check"},
)
