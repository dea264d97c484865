"""The message catalogue: every text an agent or a human is shown, in Japanese and English."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multi_agent_mcp.errors import Refusal

LANGUAGES = ("ja", "en")
DEFAULT_LANGUAGE = "ja"
CONSOLE = "console"
"""The part of the catalogue that only the console needs; a server that must start fast does not read it."""


class Texts:
    """One language of the catalogue. `texts("doorbell.one", sender_id=…)` gives the filled text."""

    def __init__(self, language: str, entries: Mapping[str, str]) -> None:
        self.language = language
        self._entries = entries

    def __call__(self, key: str, /, **values: Any) -> str:
        return self._entries[key].format(**values) if values else self._entries[key]

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def keys(self) -> set[str]:
        return set(self._entries)

    def sentence(self, refusal: Refusal) -> str:
        """The refusal in words."""
        return self._entries[refusal.key].format(**refusal.values)


@cache
def catalogue(language: str, part: str | None = None) -> Texts:
    """The texts of `language`; an unknown language falls back to the default."""
    if language not in LANGUAGES:
        language = DEFAULT_LANGUAGE
    name = f"{language}.yaml" if part is None else f"{part}.{language}.yaml"
    source = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return Texts(language, yaml.load(source, Loader=loader))  # noqa: S506 - both are safe loaders
