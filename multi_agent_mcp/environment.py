"""Environment variables, for the only modules that read them: `config` and `programs`; `hook`, which cannot wait for
the imports of `config`; `__main__`; and code that prints before a session is known. And what our own programs import
from where."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # a silent hook cannot wait for `typing`
if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "MULTI_AGENT_MCP_"
ENVIRON: Mapping[str, str] = os.environ
PASSKEY = f"{PREFIX}PASSKEY"
MODULE_PATH = "PYTHONPATH"
_PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - `hook` waits for no pathlib
"""The directory from which this package is imported."""


def needs_module_path() -> bool:
    """Whether PYTHONPATH names the directory from which this package is imported."""
    return _PACKAGES in _named()


def leave_out_the_project() -> None:
    """Takes the working directory and the directories of PYTHONPATH off the path of modules, for a program that was
    started without the options of `programs.python`: by a person, or by a file that an earlier version wrote. Call it
    before anything else is imported. Directories of the interpreter's own, and that of this package, stay."""
    named = set(_named()) if not sys.flags.ignore_environment else set()
    try:
        here = {"", os.getcwd()}  # noqa: PTH109
    except FileNotFoundError:  # it was removed
        here = {""}
    if not sys.flags.safe_path and sys.path[:1] and sys.path[0] in here - {_PACKAGES}:
        del sys.path[0]
    if named:
        import site  # the interpreter has imported it

        own = {_PACKAGES, *site.getsitepackages(), site.getusersitepackages()}
        library = os.path.dirname(os.__file__)  # noqa: PTH120
        sys.path[:] = [
            path for path in sys.path if path in own or path.startswith(library) or not named & {path, _absolute(path)}
        ]


def _named() -> list[str]:
    """The directories of PYTHONPATH."""
    return [_absolute(path) for path in ENVIRON.get(MODULE_PATH, "").split(os.pathsep) if path]


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path)  # noqa: PTH100
    except FileNotFoundError:  # a relative one, and the working directory was removed
        return path


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
