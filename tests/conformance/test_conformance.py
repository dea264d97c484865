"""A short run; the long one is `scripts/conformance --deliveries 10000`."""

from __future__ import annotations

import pytest

from tests.conformance.run import Plan, run

pytestmark = [pytest.mark.tmux, pytest.mark.slow]


def test_concurrent_doorbells_amid_a_humans_doings_come_whole_and_once_and_no_key_goes_astray() -> None:
    report = run(Plan(deliveries=40, panes=4))
    assert (report.corrupted, report.keys, report.strangers, report.lost, report.twice) == ((), (), (), (), ())
    assert report.reasons["submitted"] > 0
