"""The targets of the fuzzer, by name."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz import doors, readers

Target = Callable[[], None]

TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (
        readers.front_matter,
        readers.entity_files,
        readers.registry,
        readers.registry_bytes,
        readers.settings_file,
        readers.team_file,
        readers.state_files,
        doors.tools,
        doors.web,
    )
}
