"""Confirmation: nothing is consumed without being delivered (docs/protocol.md, Confirmation).

lease
    Before a file is marked read, the agent session's own file names it as unconfirmed, durably.
confirm
    The answer's last byte was written, and then came another call or a regular end: the file is named no longer.
requeue
    The file is unread again: at once when the answer was refused, replaced or cancelled, else when the process has
    died and the agent's next server starts.

`LiveSession` keeps what is leased; a `Receipt` knows which of it belongs to one answer. Files are named as
`Inbox.reference` does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
from multi_agent_mcp.store.files.locks import Mutex

HANDED_OUT_SECONDS = 60.0
"""An answer that hands something out is nearly written, unless its host reads nothing."""


class Lease(Protocol):
    """Called with the files that are about to be marked read, before they are. What it raises leaves them unread."""

    def __call__(self, files: tuple[str, ...], /) -> None: ...


class Cancelled(Exception):
    """The host has cancelled the call before it handed anything out."""


class Receipt:
    """What one answer hands out, from the call until its fate is known.

    The call's worker thread leases, requeues and completes; the event loop, which must wait for neither a lock nor the
    disk, says whether the answer was written or cancelled.
    """

    def __init__(self, earlier: Sequence[Receipt] = ()) -> None:
        """`earlier` are the receipts of calls whose answers are not written yet."""
        self._mutex = Mutex("receipt")
        self._earlier = earlier
        self._session: LiveSession | None = None
        self._files: tuple[str, ...] = ()
        self._begun = False
        self._cancelled = False
        self._completed = False
        self._settled = threading.Event()

    @property
    def is_settled(self) -> bool:
        """Whether the answer was written, or what a cancelled one would have handed out is unread again."""
        return self._settled.is_set()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled

    def wait_for_cancelled(self, seconds: float) -> None:
        """Until what earlier calls that were cancelled would have handed out is unread again. For one that hands out
        nothing, which may go on for long, at most so many `seconds`."""
        self._wait(seconds, lambda receipt: receipt.is_cancelled)
        self._wait(HANDED_OUT_SECONDS, lambda receipt: receipt.is_cancelled and bool(receipt._files))

    def wait_for_earlier(self, seconds: float) -> None:
        """Until earlier calls are answered, which some take a minute for."""
        self._wait(seconds, lambda _: True)

    def wait_for_answers(self) -> None:
        """Until the answers of earlier calls that hand something out are written."""
        self._wait(HANDED_OUT_SECONDS, lambda receipt: bool(receipt._files))

    def _wait(self, seconds: float, which: Callable[[Receipt], bool]) -> None:
        end = time.monotonic() + seconds
        for receipt in self._earlier:
            if which(receipt):
                receipt._settled.wait(max(end - time.monotonic(), 0))

    def begin(self) -> bool:
        """The worker thread takes up the call. False: it was cancelled before, and hands out nothing."""
        with self._mutex:
            self._begun = not self._cancelled
            return self._begun

    def open(self, session: LiveSession) -> None:
        """The call belongs to this session."""
        self._session = session

    def lease(self, files: tuple[str, ...]) -> None:
        """A `Lease`. Raises `Cancelled` when no answer is awaited any more, and what `LiveSession.lease` raises."""
        if self._cancelled or self._session is None:
            raise Cancelled
        self._session.lease(files)
        self._files += files

    def requeue(self) -> None:
        """The answer hands out nothing after all: it was refused or replaced."""
        files, self._files = self._files, ()
        if files and self._session is not None:
            self._session.requeue(files)

    def complete(self) -> bool:
        """The worker thread is done. Returns whether anything was handed out."""
        with self._mutex:
            self._completed = True
            cancelled = self._cancelled
        self._earlier = ()  # else each would keep all before it
        handed_out = bool(self._files)
        if cancelled:
            self._take_back()
        return handed_out

    def written(self) -> None:
        """The answer's last byte was written; the next call, or a regular end, confirms that it arrived."""
        if self._session is not None:
            self._session.written(self._files)
        self._settled.set()

    def cancel(self) -> None:
        """There will be no such answer: the request was cancelled, or became an error. A worker thread that is still
        at work requeues by itself."""
        with self._mutex:
            self._cancelled = True
            begun, completed = self._begun, self._completed
        if completed:
            threading.Thread(target=self._take_back).start()
        elif not begun:
            self._settled.set()

    def _take_back(self) -> None:
        self.requeue()
        self._settled.set()
