"""Tracks whether a tool's answer arrives, and makes its mail unread again if not (docs/protocol.md, Confirmation).
`services/turn/reading.py` chooses the mail of an answer and marks it read.

lease: Before a file is marked read, the agent session's own file lists it as unconfirmed, durably, with the time of the
mark: what another session has marked is not this one's to requeue.
confirm: After the answer's last byte was written and another call or a regular end followed, the file is no longer
listed.
requeue: The file is made unread again: at once if the answer was refused, replaced or cancelled; if the process has
died, when the agent's next server starts.

`LiveSession` keeps all leases, a `Confirmation` those of one answer. Files are named as by `Inbox.reference`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from multi_agent_mcp.store.locks import mutex

if TYPE_CHECKING:
    from multi_agent_mcp.services.sessions.agent_sessions import LiveSession

HANDED_OUT_SECONDS = 60.0
"""How long to wait for an answer with leased files to be written; only a host that reads nothing takes so long."""


class Lease(Protocol):
    """Called with files before they are marked read. If it raises, they stay unread."""

    def __call__(self, files: tuple[str, ...], /) -> None: ...


class Cancelled(Exception):
    """Raised when the host has cancelled the call before it leased anything."""


class Confirmation:
    """The files leased by one answer, from the call until the answer is written or cancelled.

    The call's worker thread leases, requeues and completes; the event loop, which must not wait for locks or the disk,
    calls `written` or `cancel`.
    """

    def __init__(self, earlier: Sequence[Confirmation] = (), *, writes: bool = True) -> None:
        """`earlier` are the confirmations of calls whose answers are not written yet; `writes`: whether the call may
        change anything."""
        self._mutex = mutex("confirmation")
        self._earlier = earlier
        self._writes = writes
        self._has_written = threading.Event()
        self._session: LiveSession | None = None
        self._files: tuple[str, ...] = ()
        self._begun = False
        self._cancelled = False
        self._completed = False
        self._returning = self._returned = False
        self._settled = threading.Event()

    @property
    def is_settled(self) -> bool:
        """Whether the answer was written, or was cancelled and its files are unread again."""
        return self._settled.is_set()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled

    @property
    def is_writing(self) -> bool:
        """Whether the call may still change something before it answers or waits for others."""
        return self._writes and not self._has_written.is_set()

    def wait_for_turn(self) -> None:
        """Waits until the earlier calls that write have written, if this one writes, too: what is created bears times
        in the order of the calls."""
        for confirmation in self._earlier if self._writes else ():
            if confirmation.is_writing:
                confirmation._has_written.wait(HANDED_OUT_SECONDS)

    def give_turn(self) -> None:
        """Called when the call writes nothing more, or is going to wait for others: later calls may write now."""
        self._has_written.set()

    def wait_for_cancelled(self, seconds: float) -> None:
        """Waits until the files of earlier cancelled calls are unread again. For calls that have leased nothing yet,
        which may run for long, waits at most `seconds`."""
        self._wait(seconds, lambda confirmation: confirmation.is_cancelled)
        self._wait(HANDED_OUT_SECONDS, lambda confirmation: confirmation.is_cancelled and bool(confirmation._files))

    def wait_for_earlier(self, seconds: float) -> None:
        """Waits at most `seconds` until earlier calls are answered; some take a minute."""
        self._wait(seconds, lambda _: True)

    def wait_for_answers(self) -> None:
        """Waits until earlier answers with leased files are written."""
        self._wait(HANDED_OUT_SECONDS, lambda confirmation: bool(confirmation._files))

    def _wait(self, seconds: float, which: Callable[[Confirmation], bool]) -> None:
        end = time.monotonic() + seconds
        for confirmation in self._earlier:
            if which(confirmation):
                confirmation._settled.wait(max(end - time.monotonic(), 0))

    def begin(self) -> bool:
        """Called when the worker thread starts the call. False if the call was already cancelled and must not run."""
        with self._mutex:
            self._begun = not self._cancelled
            return self._begun

    def open(self, session: LiveSession) -> None:
        """Sets the session that the call belongs to."""
        self._session = session

    def lease(self, files: tuple[str, ...]) -> None:
        """Leases files (see `Lease`). Raises `Cancelled` when the call was cancelled, and as `LiveSession.lease`."""
        if self._cancelled or self._session is None:
            raise Cancelled
        self._session.lease(files)
        self._files += files

    def requeue(self) -> None:
        """Makes the leased files unread again, because the answer was refused or replaced."""
        files, self._files = self._files, ()
        if files and self._session is not None:
            self._session.requeue(files)

    def complete(self) -> bool:
        """Called when the worker thread is done. Returns whether files are leased."""
        with self._mutex:
            self._completed = True
            cancelled = self._cancelled
        self._earlier = ()  # else each confirmation would keep all earlier ones alive
        handed_out = bool(self._files)
        if cancelled:
            self._take_back()
        return handed_out

    def handed_over(self) -> None:
        """Called by the worker thread instead of `written` for a caller in this process: its answer needs no further
        confirmation. If the caller cancels meanwhile, or afterwards because it was interrupted, all is unread again."""
        with self._mutex:
            self._returning = not self._cancelled
        if not self._returning:
            return
        if self._session is not None and self._files:
            self._session.written(self._files)
            self._session.handed_over()
        with self._mutex:
            self._returning, self._returned = False, True
            cancelled = self._cancelled
        if cancelled:
            self._take_back()
        self._settled.set()

    def written(self) -> None:
        """Called when the answer's last byte was written; the next call, or a regular end, confirms its arrival."""
        if self._session is not None:
            self._session.written(self._files)
        self._settled.set()

    def cancel(self) -> None:
        """Called when there will be no answer, because the request was cancelled or failed. Requeues the files; if the
        worker thread is still running, `complete` does."""
        with self._mutex:
            self._cancelled = True
            begun, completed = self._begun, self._completed and not self._returning
        if completed:
            self._settled.clear()
            threading.Thread(target=self._take_back).start()
        elif not begun:
            self.give_turn()
            self._settled.set()

    def _take_back(self) -> None:
        if self._returned and self._session is not None:
            self._session.bring_back(self._files)
        self.requeue()
        self._settled.set()
