"""The features of the session that a command line is about, before anything else is imported for it: `--help` and the
look-up of a command wait for them."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING

from multi_agent_mcp.environment import variable
from multi_agent_mcp.features.ours import ALL, OURS

if TYPE_CHECKING:
    from multi_agent_mcp.features import Features

ROOT_NAME = ".multi-agent-mcp"
SETTINGS = "session.yaml"
SETTINGS_BYTES = 1 << 20


def features_at_hand(arguments: Sequence[str]) -> Features:
    """The features of the session that these words, the environment or the directory name. All of this package if that
    cannot be told, or if its session.yaml names none; what is wrong there is said when the session is opened."""
    try:
        path = _settings_path(arguments)
        written = b"" if path is None else _own_bytes(path)
        keys = ("features", *(feature.switch for feature in OURS if feature.switch))
        if path is None or not any(key.encode() in written for key in keys):
            return ALL
    except (OSError, ValueError):
        return ALL
    from pathlib import Path

    from multi_agent_mcp.errors import Refusal
    from multi_agent_mcp.features.chosen import chosen
    from multi_agent_mcp.settings import read_settings

    try:
        settings = read_settings(Path(path))
        features = chosen(settings.features, settings.switched)[0]
        if "proof" in features or not _keeps_proof(path):
            return features
        return chosen({**settings.features, "proof": "on"}, settings.switched)[0]
    except Refusal:
        return ALL


def _keeps_proof(path: str) -> bool:
    """Whether what was approved has proof on. Nothing is verified here: this is about which commands there are."""
    import json

    from multi_agent_mcp.features.chosen import has_proof

    try:
        return has_proof(json.loads(_own_bytes(f"{os.path.dirname(path)}/approved.json"))["content"])  # noqa: PTH120
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _settings_path(arguments: Sequence[str]) -> str | None:
    root = _given(arguments, "root") or _nearest_root()
    if root is None:
        return None
    root = os.path.expanduser(root)  # noqa: PTH111 - pathlib takes long to import
    session = _given(arguments, "session")
    names = [session] if session else os.listdir(root)  # noqa: PTH208
    found = [path for name in names if os.path.isfile(path := f"{root}/{name}/{SETTINGS}")]  # noqa: PTH113
    return found[0] if len(found) == 1 else None


def _given(arguments: Sequence[str], name: str) -> str | None:
    """The value of an option, or of its variable."""
    words = list(arguments)
    for place, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option == "--":
            break
        if option == f"--{name}":
            return value if equals else next(iter(words[place + 1 :]), None)
    return variable(name)


def _nearest_root() -> str | None:
    directory = os.getcwd()  # noqa: PTH109
    while True:
        if os.path.isdir(root := f"{directory}/{ROOT_NAME}"):  # noqa: PTH112
            return root
        if directory == (directory := os.path.dirname(directory)):  # noqa: PTH120
            return None


def _own_bytes(path: str) -> bytes:
    """The content of a file of this user; empty for another one: it must not decide what is imported."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        return os.read(descriptor, SETTINGS_BYTES) if is_own else b""
    finally:
        os.close(descriptor)
