"""What this machine's disk refuses to the relay, which tries again, as a full disk may have room later."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from multi_agent_mcp.domain.times import format_time, now
from multi_agent_mcp.errors import HubReplaced, HubUnreachable, StorageError

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Disk:
    """The current refusals of the disk, by what was to be written."""

    _refused: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def unwritten(self) -> dict[str, str] | None:
        """The first current refusal: `path`, `reason`, and `since` when; None if all last attempts succeeded."""
        return next(iter(self._refused.values()), None)

    @contextmanager
    def tried(self, what: str) -> Iterator[None]:
        """Records a refusal by the disk within the context instead of raising it, for a retry. Refusals by the hub are
        raised."""
        try:
            yield
        except (HubReplaced, HubUnreachable):
            raise
        except (StorageError, OSError) as error:
            self.refused(what, error)
        else:
            self.took(what)

    def refused(self, what: str, error: StorageError | OSError) -> None:
        path, reason = refusal_words(error)
        known = self._refused.get(what)
        if known is None or known["reason"] != reason:
            logger.warning("%s: the disk refuses (%s: %s); it is tried again", what, path, reason)
        since = format_time(now()) if known is None else known["since"]
        self._refused[what] = {"path": path, "reason": reason, "since": since}

    def took(self, what: str) -> None:
        if self._refused.pop(what, None) is not None:
            logger.info("%s: the disk takes it again", what)


def refusal_words(error: StorageError | OSError) -> tuple[str, str]:
    """Returns the path and the reason: `No space left on device`."""
    if isinstance(error, OSError):
        return str(error.filename or "-"), str(error.strerror or error)
    path, reason = str(error.values.get("path", "-")), error.values.get("reason", str(error))
    return path, str((reason.strerror if isinstance(reason, OSError) else None) or reason)
