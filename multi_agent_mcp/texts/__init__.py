"""The message catalogue: every text an agent or a human is shown, in Japanese and English."""

from __future__ import annotations

import errno
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from multi_agent_mcp.errors import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multi_agent_mcp.errors import Refusal

LANGUAGES = ("ja", "en")
DEFAULT_LANGUAGE = "ja"
CONSOLE = "console"
PEOPLE = "people"
"""The parts of the catalogue that only the console needs, and only people: a server that must start fast does not read
them."""


class Texts:
    """One language of the catalogue. `texts("doorbell.one", sender_id=…)` gives the filled text."""

    def __init__(self, language: str, entries: Mapping[str, str]) -> None:
        self.language = language
        self._entries = entries

    def __call__(self, key: str, /, **values: Any) -> str:
        return self._filled(key, values) if values else self._entries[key]

    def __or__(self, other: Texts) -> Texts:
        """Both parts."""
        return Texts(self.language, {**self._entries, **other._entries})

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def keys(self) -> set[str]:
        return set(self._entries)

    def sentence(self, refusal: Refusal) -> str:
        """The refusal in words."""
        return self._filled(refusal.key, refusal.values)

    def reason(self, reason: Reason) -> str:
        """The reason in words."""
        return self._filled(f"why.{reason.key}", reason.values)

    def refused_by_system(self, error: OSError) -> str:
        """What the operating system refused. The C library says it in English, whatever we speak."""
        name = errno.errorcode.get(error.errno or 0, "")
        known = f"os.{name}"
        return self._entries[known] if known in self else self("os.other", name=name, words=error.strerror or error)

    def why_not_rung(self, reason: str) -> str:
        """A doorbell's reason with its words; the reason itself where it says enough (a dialog's name)."""
        words = self.words_of(reason)
        return reason if words == reason else f"{reason}: {words}"

    def words_of(self, reason: str) -> str:
        """The words alone, in the same cases."""
        kind, _, error = reason.partition("failed_")
        key = "reason.failed" if error and not kind else f"reason.{reason}"
        return self(key, error=error) if key in self else reason

    def _filled(self, key: str, values: Mapping[str, Any]) -> str:
        return self._entries[key].format(**{name: self._in_words(value) for name, value in values.items()})

    def _in_words(self, value: Any) -> Any:
        if isinstance(value, Reason):
            return self.reason(value)
        if isinstance(value, tuple):
            return self("why.separator").join(map(self._in_words, value))
        return self.refused_by_system(value) if isinstance(value, OSError) else value


@cache
def catalogue(language: str, part: str | None = None) -> Texts:
    """The texts of `language`; an unknown language falls back to the default."""
    if language not in LANGUAGES:
        language = DEFAULT_LANGUAGE
    name = f"{language}.yaml" if part is None else f"{part}.{language}.yaml"
    source = Path(__file__).with_name(name).read_text(encoding="utf-8")  # `importlib.resources` takes as long as this
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return Texts(language, yaml.load(source, Loader=loader))  # noqa: S506 - both are safe loaders
