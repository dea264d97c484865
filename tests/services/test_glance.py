"""The line that says how the team is: nothing that is zero, and each part about what it names."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from multi_agent_mcp.domain.times import duration_words, format_time, moment_in_words
from multi_agent_mcp.services.questions import Asking
from multi_agent_mcp.system.git import git
from multi_agent_mcp.usage.limit import LimitSeen
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.repository.conftest import project  # noqa: F401 - a fixture
from tests.services.tasks_support import moved, new, running
from tests.usage.support import took


def line(services: Services) -> str:
    return services.glances.line(services.attention.of(services.agents.owner()))


def test_it_names_who_works_asks_and_waits_and_what_is_to_be_merged(
    services: Services,
    clock: Clock,
    project: Path,  # noqa: F811
) -> None:
    assert line(services) == ""
    place = Path(services.worktrees.ensure(services.agents.get("worker-a")).path)
    task = running(services)
    for minutes in (20, 50):
        services.questions.ask(
            services.agents.get("admin"), Asking(question=f"{minutes}?", to_id="owner", minutes=minutes), None
        )
    words = services.people
    asking = words("glance.asking", count=2)
    soon = words("glance.next", time=duration_words(timedelta(minutes=20), words))
    assert line(services).startswith(words("glance.working", count=1))
    assert words("glance.with", said=asking, more=soon) in line(services)
    clock.advance(1_800)
    assert words("glance.overdue", count=1) in line(services)
    (place / "a.txt").write_text("two\n")
    git(place, "commit", "-qam", "two")
    task = moved(services, task, "done")
    clock.advance(40)
    assert words("glance.merge", count=1) in line(services)
    assert words("glance.working", count=1) not in line(services)
    services.merging.merge(services.agents.owner(), task)
    clock.advance(40)
    assert words("glance.merge", count=1) not in line(services)
    review = running(services, "again", done_when=("review:owner",))
    services.deliveries.conclude(services.deliveries.deliver(services.agents.get("worker-a"), review.id, None))
    assert words("glance.reviews", count=1) in line(services)
    assert new(services).status == "todo"


def test_it_says_what_today_cost_as_far_as_prices_are_known(services: Services, clock: Clock) -> None:
    (services.root / "prices.yaml").write_text("currency: EUR\nper_million:\n  m-1: {input: 10, output: 0}\n")
    took(services, "worker-a", 1_000_000)
    took(services, "worker-a", 1_000_000, model="m-2")
    assert line(services) == services.people("glance.spent", cost="10.00 EUR")
    clock.advance(2 * 86_400)
    assert line(services) == ""


def test_a_limit_that_ends_on_another_day_says_which_and_a_page_gets_the_moment(
    services: Services, clock: Clock
) -> None:
    until = clock() + timedelta(hours=30)
    seen = LimitSeen(at=clock(), window="weekly", until=until, source="hook")
    services.limits.saw("worker-a", "claude", seen)
    words = services.people
    day = moment_in_words(until, clock(), services.session.zone, words)
    assert words("time.months").split()[until.month - 1] in day
    assert words("glance.limited", count=1, at=day) in line(services)
    items = services.attention.of(services.agents.owner())
    (part,) = [part.as_answer() for part in services.glances.of(items) if part.name == "limited"]
    assert part["words"] == words("glance.limited", count=1, at=format_time(until))
    assert "exact" not in part


def test_one_who_asks_asks_in_the_singular(services: Services) -> None:
    services.questions.ask(services.agents.get("admin"), Asking(question="Now?", to_id="owner"), None)
    assert line(services) == services.people("glance.asking", count=1) == "1 asks you"
