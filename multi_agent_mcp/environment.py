"""The environment, for its only two readers: `config`, and `hook`, which cannot wait for what `config` imports."""

from __future__ import annotations

import os
from collections.abc import Mapping

PREFIX = "MULTI_AGENT_MCP_"
ENVIRON: Mapping[str, str] = os.environ


def variable(name: str) -> str | None:
    """`MULTI_AGENT_MCP_{NAME}`; None when it is not set, or empty."""
    return ENVIRON.get(f"{PREFIX}{name.upper()}") or None
