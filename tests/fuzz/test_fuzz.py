"""No exception leaves the doors, no file is lost, nothing readable is set aside: the short form of `scripts/fuzz`."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.fuzz.targets import TARGETS

EXAMPLES = {"front_matter": 150, "registry_bytes": 30}
EXAMPLES_OTHERWISE = 12  # each of them opens a session directory and looks at all of it


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_is_put_in_every_door_answers_and_nothing_is_lost(name: str) -> None:
    short = settings(
        max_examples=EXAMPLES.get(name, EXAMPLES_OTHERWISE),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    short(TARGETS[name])()
