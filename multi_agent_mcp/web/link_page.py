"""The page that leads a person's browser to the console."""

from __future__ import annotations

import html
import logging
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

logger = logging.getLogger(__name__)


class LinkPage:
    """A private file that leads a browser to a link, from `open` to `remove`.

    It opens the console's one-time link in the person's browser without showing it to other users of this machine:
    arguments of a process are public (proc(5), `/proc/PID/cmdline`), so the browser is given the name of the file, a
    page that leads to the link."""

    PAGE = """\
<!DOCTYPE html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={link}">
<title>multi-agent-mcp</title>
<a href="{link}">multi-agent-mcp</a>
"""

    def __init__(self) -> None:
        self._directory: TemporaryDirectory[str] | None = None

    def open(self, link: str, failed: Callable[[], None]) -> None:
        """Writes the page and opens it in the person's browser, on a thread of its own, as a browser in a terminal runs
        until it is left. Calls `failed` there if none could be started. Raises `OSError`."""
        self._directory = _private_directory()
        page = Path(self._directory.name, "open.html")
        page.touch(mode=0o600)
        page.write_text(self.PAGE.format(link=html.escape(link)), encoding="ascii")
        threading.Thread(target=_open, args=(page.as_uri(), failed), daemon=True).start()

    def remove(self) -> None:
        """Removes the page; does nothing twice."""
        if self._directory is not None:
            with suppress(OSError):
                self._directory.cleanup()


def _private_directory() -> TemporaryDirectory[str]:
    """A new directory with mode 0700. Browsers that are snaps read nothing but what is visible in the home directory
    (snapcraft.io, the home interface)."""
    with suppress(OSError, RuntimeError):
        return TemporaryDirectory(prefix="multi-agent-mcp-", dir=Path.home())
    return TemporaryDirectory(prefix="multi-agent-mcp-")


def _open(address: str, failed: Callable[[], None]) -> None:
    try:
        is_open = webbrowser.open(address)
    except (webbrowser.Error, OSError, ValueError) as error:  # ValueError: BROWSER has a quotation mark too few
        logger.warning("no browser: %s", error)
        is_open = False
    if not is_open:
        failed()
