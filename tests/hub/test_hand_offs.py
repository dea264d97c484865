"""A hand-off is known on every machine: whoever takes over the task may work elsewhere."""

from __future__ import annotations

from tests.hub.support import Machine, eventually
from tests.services.tasks_support import new


def test_the_new_assignee_on_another_machine_is_shown_it(desk: Machine, laptop: Machine) -> None:
    here, there = desk.services, laptop.services
    task = new(here, "the house", "admin", by="owner")
    here.task_changes.start(here.agents.get("admin"), task.id)
    kept = here.hand_offs.write(here.agents.get("admin"), "the roof is next\n", None, None)
    eventually(lambda: there.hand_offs.find(kept.hand_off.id))
    found = there.hand_offs.about(task.id, without="worker-a")
    assert found is not None
    assert found.hand_off == kept.hand_off
    assert found.path.name == kept.path.name
