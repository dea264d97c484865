"""Gemini CLI, offline, with a base URL on loopback and a dummy key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.end_to_end.support import Team
from tests.hosts.replies import Call
from tests.hosts.stage import AGENT, Host, Program, Stage


class Gemini(Host):
    name = "gemini"
    program = Program("@google/gemini-cli", "0.61.0", "gemini")
    quit = "/quit"
    compacts = "/compress"
    dialog = "Allow execution of"
    trust = "Do you trust the files in this folder?"
    command = "gemini {mcp_config}"
    lacks = frozenset({"waker", "queue"})

    def settle_in(self, home: Path, url: str, *, trusted: Path, asks: bool = False) -> Mapping[str, str]:
        settings: dict[str, Any] = {
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": True}},
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
            "privacy": {"usageStatisticsEnabled": False},
            "model": {"name": "gemini-2.5-flash"},
        }
        if not asks:
            settings["tools"] = {"allowed": ["run_shell_command"]}
        config = home / ".gemini"
        config.mkdir()
        (config / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        (config / "trustedFolders.json").write_text(json.dumps({str(trusted): "TRUST_FOLDER"}), encoding="utf-8")
        return {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "scripted", "COLORTERM": "truecolor"}

    def prepare(self, team: Team, directory: Path) -> None:
        team.ask("host-config", "gemini", "--agent", AGENT, "--directory", directory, "--write")

    def furnish(self, stage: Stage, *, hooks: bool) -> str:
        written = stage.team.ask("host-config", "gemini", "--agent", AGENT, "--directory", stage.project, "--write")
        if not hooks:
            (file,) = stage.project.glob(".gemini/settings.json")
            settings = json.loads(file.read_text(encoding="utf-8"))
            file.write_text(json.dumps({**settings, "hooks": {}}), encoding="utf-8")
        return str(written["start"])

    def tool(self, name: str, **arguments: Any) -> Call:
        return Call(self.knows(name), arguments)

    def shell(self, command: str, *, ask: bool = False) -> Call:
        del ask  # it asks about whatever its settings do not allow
        return Call("run_shell_command", {"command": command, "description": "scripted"})

    headless = "gemini -p go --approval-mode yolo {words}"

    def write(self, path: Path) -> Call:
        return Call("write_file", {"file_path": str(path), "content": "new\n"})

    def knows(self, tool: str) -> str:
        return f"mcp_ipc_{tool}"
