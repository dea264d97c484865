"""The message catalogue: all texts for agents and people, in Japanese and English."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from multi_agent_mcp.errors import Reason, Refusal

LANGUAGES = ("ja", "en")
DEFAULT_LANGUAGE = "ja"
CONSOLE = "console"
PEOPLE = "people"
"""The parts of the catalogue for the console and for people only; servers, which must start fast, do not load them."""
QUOTED_CHARACTERS = 1_000
"""Of each value in a refusal: it may be whatever a caller gave, and the sentence has to fit into an answer
(docs/protocol.md, Answers)."""


_BY_NUMBER = re.compile(r"\{(\w+):([^{}|]*)\|([^{}]*)\}")
"""Words for one, and for any other number: `{count} {count:file|files}`."""


def json_size(value: Any) -> int:
    """The number of characters of the value as JSON."""
    return len(json.dumps(value, ensure_ascii=False, default=str))


def beginning(text: str, characters: int) -> str:
    """The longest beginning of the text that fits into this many characters of JSON."""
    low, high = 0, min(len(text), characters)
    if json_size(text[:high]) <= characters + len('""'):
        return text[:high]
    while low < high:
        middle = (low + high + 1) // 2
        if json_size(text[:middle]) <= characters + len('""'):
            low = middle
        else:
            high = middle - 1
    return text[:low]


def shortened(text: str, characters: int) -> str:
    """The text cut to about this many characters of JSON, with its length appended if it was cut."""
    shown = beginning(text, characters)
    return text if shown == text else f"{shown}… ({len(text)})"


class Texts:
    """One language of the catalogue. `texts("doorbell.one", sender_id=…)` returns the filled text."""

    def __init__(self, language: str, entries: Mapping[str, str]) -> None:
        self.language = language
        self._entries = entries

    def __call__(self, key: str, /, **values: Any) -> str:
        return self._filled(key, values) if values else self._entries[key]

    def __or__(self, other: Texts) -> Texts:
        """The union of two parts of the catalogue."""
        return Texts(self.language, {**self._entries, **other._entries})

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def keys(self) -> set[str]:
        return set(self._entries)

    def word(self, kind: str, code: str) -> str:
        """The text of a code, `{kind}.{code}`; the code itself if it has none, as in a hand-written file."""
        key = f"{kind}.{code}"
        return self(key) if key in self else code

    def sentence(self, refusal: Refusal) -> str:
        """The sentence for a refusal, with giant values shortened."""
        return self._refused(refusal.key, refusal.values)

    def reason(self, reason: Reason) -> str:
        """The text of a reason, with giant values shortened."""
        return self._refused(f"why.{reason.key}", reason.values)

    def refused_by_system(self, error: OSError) -> str:
        """The text for an `OSError`, in this language if known, else with the C library's English words."""
        name = errno.errorcode.get(error.errno or 0, "")
        known = f"os.{name}"
        return self._entries[known] if known in self else self("os.other", name=name, words=error.strerror or error)

    def why_not_rung(self, reason: str) -> str:
        """A doorbell's reason followed by its text; only the reason if it has no text (a dialog's topic)."""
        words = self.words_of(reason)
        return reason if words == reason else f"{reason}: {words}"

    def words_of(self, reason: str) -> str:
        """The text of a doorbell's reason alone, else the reason."""
        kind, _, error = reason.partition("failed_")
        key = "reason.failed" if error and not kind else f"reason.{reason}"
        return self(key, error=error) if key in self else reason

    def screen(self, seen: str) -> str:
        """What is seen in an agent's pane: the host with its state, `claude: idle`, or a reason why it is not."""
        host, is_host, state = seen.partition(": ")
        return f"{host}: {self.word('screen', state)}" if is_host else self.words_of(seen)

    def asks_about(self, topic: str | None) -> str:
        """The words for what a host asks about; general ones for a topic without a text (of a user's own profile)."""
        key = f"up.dialog:{topic}"
        return self(key if key in self else "up.dialog")

    def _refused(self, key: str, values: Mapping[str, Any]) -> str:
        return self._filled(key, {name: self._quoted(value) for name, value in values.items()})

    def _quoted(self, value: Any) -> Any:
        """A value of a refusal in words. Those of a reason are shortened there."""
        words = self._in_words(value)
        is_whole = isinstance(value, (Reason, tuple, int, float))
        return words if is_whole else shortened(str(words), QUOTED_CHARACTERS)

    def _filled(self, key: str, values: Mapping[str, Any]) -> str:
        text = self._entries[key]
        if "|" in text:
            text = _BY_NUMBER.sub(lambda found: found[2 if str(values.get(found[1])) == "1" else 3], text)
        return text.format(**{name: self._in_words(value) for name, value in values.items()})

    def _in_words(self, value: Any) -> Any:
        if isinstance(value, Reason):
            return self.reason(value)
        if isinstance(value, tuple):
            return self("why.separator").join(map(self._in_words, value))
        return self.refused_by_system(value) if isinstance(value, OSError) else value


def skill(language: str) -> str:
    """The skill: what an agent may look up, because the server's instructions have no room for it."""
    return Path(__file__).with_name(f"skill.{language}.md").read_text(encoding="utf-8")


@cache
def catalogue(language: str, part: str | None = None) -> Texts:
    """The texts of `language`; an unknown language falls back to the default."""
    if language not in LANGUAGES:
        language = DEFAULT_LANGUAGE
    name = f"{language}.yaml" if part is None else f"{part}.{language}.yaml"
    source = Path(__file__).with_name(name).read_text(encoding="utf-8")  # `importlib.resources` takes as long as this
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return Texts(language, yaml.load(source, Loader=loader))  # noqa: S506 - both are safe loaders
