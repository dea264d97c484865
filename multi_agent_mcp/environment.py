"""Environment variables, for the only code that reads them: `config`; `hook`, which cannot wait for what `config`
imports; `__main__`; and what prints before a session is known."""

from __future__ import annotations

import os
from collections.abc import Mapping

PREFIX = "MULTI_AGENT_MCP_"
ENVIRON: Mapping[str, str] = os.environ
PASSKEY = f"{PREFIX}PASSKEY"


def take_passkey() -> str | None:
    """The passkey, once: it leaves the environment before anything is started that would inherit it (a tmux server
    keeps the environment of the process that starts it, and hands it to every pane)."""
    return os.environ.pop(PASSKEY, None)


def locale_language() -> str:
    """The language while there is no session yet, by the locale of messages (locale(7)): `ja` or `en`."""
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    chosen = next((value for name in names if (value := ENVIRON.get(name))), "")
    return "ja" if chosen.lower().startswith("ja") else "en"


def login_shell() -> str:
    """The name of the user's shell, as environ(7) has it."""
    return os.path.basename(ENVIRON.get("SHELL", ""))  # noqa: PTH119 - `hook` waits for no pathlib


def variable(name: str) -> str | None:
    """`MULTI_AGENT_MCP_{NAME}`; None when it is not set, or empty."""
    return ENVIRON.get(f"{PREFIX}{name.upper()}") or None
