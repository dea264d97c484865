"""What the disk of this machine refuses the relay, which waits for it: a full disk has room again some day."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from multi_agent_mcp.errors import HubReplaced, HubUnreachable, StorageError

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Disk:
    """Why it refuses, by what was to be written."""

    _refused: dict[str, str] = field(default_factory=dict)

    @property
    def refuses(self) -> str | None:
        """Why something cannot be written; None: all that was tried last has succeeded."""
        return next(iter(self._refused.values()), None)

    @contextmanager
    def tried(self, what: str) -> Iterator[None]:
        """A refusal within is noted instead of raised: it is to be tried again. What the hub refuses is raised."""
        try:
            yield
        except (HubReplaced, HubUnreachable):
            raise
        except (StorageError, OSError) as error:
            self.refused(what, error)
        else:
            self.took(what)

    def refused(self, what: str, error: StorageError | OSError) -> None:
        words = refusal_words(error)
        if self._refused.get(what) != words:
            self._refused[what] = words
            logger.warning("%s: the disk refuses (%s); it is tried again", what, words)

    def took(self, what: str) -> None:
        if self._refused.pop(what, None) is not None:
            logger.info("%s: the disk takes it again", what)


def refusal_words(error: StorageError | OSError) -> str:
    """`No space left on device (note.md)`."""
    reason = error.values.get("reason") if isinstance(error, StorageError) else error
    if reason is None:
        return str(error)
    if isinstance(reason, OSError):
        path = error.values.get("path") if isinstance(error, StorageError) else error.filename
        return f"{reason.strerror or reason} ({path})" if path else str(reason.strerror or reason)
    return str(reason)
