"""Environment variables, for the only modules that read them: `config`; `hook`, which cannot wait for the imports of
`config`; `__main__`; and code that prints before a session is known."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # a silent hook cannot wait for `typing`
if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "MULTI_AGENT_MCP_"
ENVIRON: Mapping[str, str] = os.environ
PASSKEY = f"{PREFIX}PASSKEY"


def take_passkey() -> str | None:
    """Removes the passkey from the environment and returns it, before any program is started that would inherit it (a
    tmux server passes the environment of the process that starts it to every pane)."""
    return os.environ.pop(PASSKEY, None)


def locale_language() -> str:
    """The language to use without a session, by the locale of messages (locale(7)): `ja` or `en`."""
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    chosen = next((value for name in names if (value := ENVIRON.get(name))), "")
    return "ja" if chosen.lower().startswith("ja") else "en"


def login_shell() -> str:
    """The name of the user's shell, from `SHELL` (environ(7))."""
    return os.path.basename(ENVIRON.get("SHELL", ""))  # noqa: PTH119 - `hook` waits for no pathlib


def variable(name: str) -> str | None:
    """The value of `MULTI_AGENT_MCP_{NAME}`; None if it is unset or empty."""
    return ENVIRON.get(f"{PREFIX}{name.upper()}") or None
