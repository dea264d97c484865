"""GitHub Copilot CLI, offline, with a custom model provider, which needs no login."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.hosts.replies import Call
from tests.hosts.stage import Host, Program, Stage


class Copilot(Host):
    name = "copilot"
    program = Program("@github/copilot", "1.0.102", "copilot")
    quit = "/exit"
    compacts = "/compact"
    answers_shown = 2
    dialog = "Do you want to run this command?"
    trust = "Confirm folder trust"
    command = "copilot {mcp_config}"
    lacks = frozenset({"arguments", "waker", "queue"})

    def settle_in(self, home: Path, url: str, *, trusted: Path, asks: bool = False) -> Mapping[str, str]:
        config = home / ".copilot" / "config.json"
        config.parent.mkdir()
        config.write_text(json.dumps({"trustedFolders": [str(trusted)]}), encoding="utf-8")
        return {
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
            "COPILOT_PROVIDER_API_KEY": "scripted",
            "COPILOT_MODEL": "gpt-4.1",
            "COPILOT_AUTO_UPDATE": "false",
            **({} if asks else {"COPILOT_ALLOW_ALL": "1"}),
        }

    def furnish(self, stage: Stage, *, hooks: bool) -> str:
        line = stage.own_configuration()
        return line if hooks else re.sub(r" --plugin-dir \S+", "", line)  # it begins with a variable for the shell

    def tool(self, name: str, **arguments: Any) -> Call:
        return Call(self.knows(name), arguments)

    def shell(self, command: str, *, ask: bool = False) -> Call:
        del ask  # it asks about whatever it was not allowed
        return Call("bash", {"command": command, "description": "scripted"})

    headless = "copilot -p go --allow-all {words}"

    def write(self, path: Path) -> Call:
        return Call("create", {"path": str(path), "file_text": "new\n"})

    def knows(self, tool: str) -> str:
        return f"ipc-{tool}"
