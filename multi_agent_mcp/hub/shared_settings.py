"""The settings of `session.yaml` that machines share: language and limits. Not `notify_command`: no other machine may
decide which program runs here."""

from __future__ import annotations

import json
from typing import Any

import yaml

from multi_agent_mcp.config import load_yaml, parse_limits
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.texts import LANGUAGES

SHARED = ("language", "limits")


def shared_settings(workspace: Workspace) -> bytes:
    """Returns the shared part of the settings as JSON."""
    settings = load_yaml(workspace.settings_path) or {}
    return json.dumps({key: settings[key] for key in SHARED if settings.get(key)}, sort_keys=True).encode()


def accept_settings(workspace: Workspace, data: bytes) -> None:
    """Applies settings of another machine. Raises `ValueError` and `Refusal` for invalid ones."""
    said: dict[str, Any] = json.loads(data)
    if said.get("language") not in LANGUAGES:
        raise ValueError("language")
    parse_limits(said.get("limits"))
    if data != shared_settings(workspace):
        settings = {**load_yaml(workspace.settings_path), **{key: said[key] for key in SHARED if key in said}}
        text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
        workspace.files.replace(workspace.settings_path, text.encode())
