"""The modules of mcp that a server imports, and its fallback for other builds of mcp."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from multi_agent_mcp.server import lean_import
{before}
app = lean_import.import_app()
print(callable(app.run), "mcp.server.mcpserver" in sys.modules, "mcp.server.lowlevel.server" in sys.modules)
"""


@pytest.mark.parametrize(
    ("before", "printed"),
    [
        ("", "True False True"),
        ("lean_import.PACKAGES += ('mcp.server.lowlevel.server',)", "True True True"),
        ("lean_import.PACKAGES += ('mcp.nowhere',)", "True True True"),
    ],
    ids=["as mcp is built today", "names are missing", "a package is missing"],
)
def test_a_server_loads_no_more_of_mcp_than_it_can_do_without(before: str, printed: str) -> None:
    program = PROGRAM.format(before=before)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.split() == printed.split()
