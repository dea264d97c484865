"""A host is one file: with `hosts/sixth.yaml` added to the package, `init`, `up`, hooks and the doorbell know it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import multi_agent_mcp
from multi_agent_mcp.hosts import description
from tests.end_to_end.support import Terminal, wait_until
from tests.programs import REPOSITORY

pytestmark = [pytest.mark.tmux, pytest.mark.slow]

SIXTH: Mapping[str, Any] = {
    "commands": ["sixth"],
    "files": [".*/node_modules/@sixth/cli/.*"],
    "prompt": "--ask {prompt}",
    "preference": 0,
    "title": "Sixth",
    "install": "npm install -g @sixth/cli",
    "command": "sixth {mcp_config}",
    "channels": ["tmux", "status_line"],
    "hook_answers": {"addition": "top_level"},
    "configuration": {
        "own": {"sixth.json": {"servers": {"ipc": {"command": "{program}", "args": "{serve}", "env": "{identity}"}}}},
        "words": "--servers {sixth.json}",
        "start": "sixth {mcp_config}",
        "start_shared": "sixth",
    },
}
PROGRAM = """\
#!{python}
import json, runpy, sys
sys.path.insert(0, {repository!r})
with open({log!r} + ".arguments", "w") as file:
    json.dump(sys.argv[1:], file)
sys.argv = ["composer", "claude", {log!r}, "1", "0"]
runpy.run_module("tests.conformance.composer", run_name="__main__")
"""


def test_a_host_that_is_one_file_more_is_known_everywhere(
    tmp_path: Path, env: dict[str, str], terminal: Terminal
) -> None:
    site, work, log = tmp_path / "site", tmp_path / "work", str(tmp_path / "log")
    shutil.copytree(Path(multi_agent_mcp.__file__).parent, site / "multi_agent_mcp")
    fields = {**description("claude"), **SIXTH}  # its screens are Claude Code's
    (site / "multi_agent_mcp" / "hosts" / "sixth.yaml").write_text(yaml.safe_dump(fields), encoding="utf-8")
    program = tmp_path / "node_modules" / "@sixth" / "cli" / "sixth"
    program.parent.mkdir(parents=True)
    program.write_text(PROGRAM.format(python=sys.executable, repository=str(REPOSITORY), log=log), encoding="utf-8")
    program.chmod(0o755)
    work.mkdir()
    # an interpreter of its own, because the warm one has imported this package
    variables = {**env, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1", "PATH": f"{program.parent}:{env['PATH']}"}

    def ask(*words: str, stdin: str = "") -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "multi_agent_mcp", *words], cwd=work, env=variables, input=stdin, text=True,
            capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout or "null")

    ask("init", "--admin", "sixth", "--workers", "sixth", "--language", "en", "--json")
    assert "sixth {mcp_config}" in (work / "team.yaml").read_text(encoding="utf-8")
    shown = ask("host-config", "sixth", "--agent", "worker-a", "--json")
    assert json.loads(shown["content"])["servers"]["ipc"]["args"][-1] == "worker-a"
    ask("up", "worker-a", "--socket", terminal.socket, "--no-wait", "--no-watch", "--no-supervisor", "--json")
    try:
        wait_until(lambda: Path(f"{log}.arguments").exists(), "it was started")
        given = json.loads(Path(f"{log}.arguments").read_text(encoding="utf-8"))
        assert (given[0], given[2]) == ("--servers", "--ask")
        assert "get_next_action" in given[3]
        delivery = ask("send", "worker-a", "Hello.", "--json")["delivery"]["worker-a"]
        wait_until(lambda: "[IPC] New message: request from owner" in Path(log).read_text(encoding="utf-8"), "it rang")
        assert delivery["state"] in ("rung", "submitted")
        event = json.dumps({"hook_event_name": "PostToolUse", "tool_name": "Bash"})
        where = ("--root", str(work / ".multi-agent-mcp"), "--session", "work", "--agent", "worker-a")
        assert list(ask("hook", "--host", "sixth", *where, stdin=event)) == ["additionalContext"]
    finally:
        ask("down", "--json")
