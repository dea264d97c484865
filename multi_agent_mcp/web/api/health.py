"""What `doctor` finds."""

from __future__ import annotations

from typing import Any

from multi_agent_mcp.web.request import ApiRequest


def show(ask: ApiRequest) -> dict[str, Any]:
    """The findings, problems first; quarantined files are among them with their reason."""
    from multi_agent_mcp.notify.tmux.snapshot import probe  # libtmux takes 70 ms to import

    findings = ask.services.doctor(probe).examine()
    return {
        "findings": [finding.as_answer() for finding in findings],
        "problems": sum(finding.level == "problem" for finding in findings),
    }
