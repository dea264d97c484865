"""The figures in the browser."""

from __future__ import annotations

import re
from datetime import timedelta
from zoneinfo import ZoneInfo

from playwright.sync_api import expect

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.times import in_zone
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.usage.limit import LimitSeen
from tests.end_to_end.support import Team
from tests.usage.support import took
from tests.web.browsing import Person


def test_the_figures_of_the_chosen_days_are_drawn_and_follow_the_work(team: Team, newcomer: Person) -> None:
    services = team.services
    owner = services.agents.owner()
    (task,) = services.task_creation.create(owner, [NewTask(title="<b>bold</b>", assignee_id="worker-a")])
    services.task_changes.set_status(owner, task.id, "in_progress")

    newcomer.visit("stats")
    expect(newcomer.page.locator(".chart")).to_have_count(3)
    expect(newcomer.page.locator(".chart").nth(1).locator("figcaption b")).to_have_text("0")
    services.task_changes.set_status(owner, task.id, "done")
    expect(newcomer.page.locator(".chart").nth(1).locator("figcaption b")).to_have_text("1")
    expect(newcomer.page.locator(".chart").nth(1).locator("[aria-label*='worker-a: 1']")).to_have_count(1)
    expect(newcomer.page.locator("table.tasks a")).to_have_text("<b>bold</b>")

    newcomer.button("stats.days", n="30").click()
    expect(newcomer.page.locator(".chart").first.locator(".plot li")).to_have_count(30)
    newcomer.page.reload()
    expect(newcomer.page.locator(".chart").first.locator(".plot li")).to_have_count(30)
    newcomer.page.locator("table.tasks a").click()
    expect(newcomer.page.locator("dialog h2")).to_have_text("<b>bold</b>")


def test_what_models_took_is_summed_up_priced_sorted_and_held_against_budgets(team: Team, newcomer: Person) -> None:
    services, page, words = team.services, newcomer.page, newcomer.words
    (task,) = services.task_creation.create(services.agents.owner(), [NewTask(title="Dig", assignee_id="worker-a")])
    (team.root / "prices.yaml").write_text("currency: EUR\nper_million:\n  m-1: {input: 10, output: 0}\n")
    took(services, "worker-a", 1_000_000, task_id=task.id)
    took(services, "worker-a", 3_000_000)
    took(services, "admin", 500_000)
    took(services, "admin", 500_000, model="m-2")
    services.workspace.registry.update("worker-a", limits={"tokens_per_day": 5_000_000})
    newcomer.visit("stats")
    expect(page.locator(".totals dd")).to_have_text([re.compile("45.00"), re.compile("45.00")])
    expect(page.locator(".totals")).to_contain_text(words("stats.cost_unknown", n=1))
    rows = page.locator("table.usage tbody tr")
    expect(rows).to_contain_text([words("stats.total"), "worker-a", "admin"])
    expect(rows.first).to_contain_text(f"{words('stats.at_least')}45.00")
    newcomer.leave_picture("stats-cost")
    page.get_by_role("button", name=words("stats.model"), exact=True).first.click()
    expect(rows).to_contain_text([words("stats.total"), "m-1", "m-2"])
    page.locator("table.usage th button").last.click()
    page.locator("table.usage th button").last.click()
    expect(rows).to_contain_text([words("stats.total"), "m-2", "m-1"])
    expect(page.locator(".budgets .is-high")).to_contain_text("worker-a")
    page.set_viewport_size({"width": 390, "height": 844})
    titles = "cells => cells.map((cell) => getComputedStyle(cell, '::before').content)"
    numbers = rows.nth(1).locator("td:not(:first-child)")
    assert numbers.evaluate_all(titles)[0] == f'"{words("stats.input")}"'
    assert "none" not in numbers.evaluate_all(titles)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.emulate_media(media="print", color_scheme="dark")
    newcomer.leave_picture("stats-printed")
    assert newcomer.look("paleTexts") == []
    expect(page.locator("table.agents th").first).to_have_text(words("stats.agent"))
    expect(page.locator("table.agents th button").first).to_be_visible()
    expect(page.locator(".rail")).to_be_hidden()
    page.emulate_media(media="screen")


def test_today_is_the_day_of_the_machine_wherever_the_reader_is_and_its_zone_is_said(
    team: Team, newcomer: Person
) -> None:
    services, page = team.services, newcomer.page
    (team.root / "prices.yaml").write_text("currency: EUR\nper_million:\n  m-1: {input: 10, output: 0}\n")
    took(services, "worker-a", 1_000_000)
    until = services.clock() + timedelta(hours=5)
    services.limits.saw("admin", "claude", LimitSeen(at=services.clock(), window="w", until=until, source="hook"))
    zone = in_zone(services.clock(), services.session.zone).tzname() or "UTC"
    days, browser = set(), page.context.new_cdp_session(page)
    for place in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):  # 25 hours apart
        browser.send("Emulation.setTimezoneOverride", {"timezoneId": place})
        newcomer.visit("")
        expect(page.locator(".state[data-mark=spent]")).to_have_text(
            f"{services.people('glance.spent', cost='10.00 EUR')} ({zone})"
        )
        limited = page.locator(".state[data-mark=limited]")
        expect(limited).to_contain_text(f"{in_zone(until, ZoneInfo(place)):%H:%M}")
        newcomer.visit("stats")
        expect(page.locator("#zone")).to_have_text(newcomer.words("stats.zone", zone=zone))
        days.add(page.locator("#period").text_content())
        expect(page.locator(".totals dd")).to_have_text([re.compile("10.00"), re.compile("10.00")])
    assert len(days) == 1


def test_what_is_named_in_a_chart_is_at_least_half_of_it(team: Team, newcomer: Person) -> None:
    services = team.services
    for number in range(20):
        services.agents.add(Agent(id=f"w-{number:02d}", role="worker", parent_id="admin"))
        took(services, f"w-{number:02d}", 1000 + number)
    newcomer.visit("stats")
    legend = newcomer.page.locator(".chart").last.locator(".legend li")
    expect(legend).to_have_count(11)
    expect(legend.first).to_have_text("w-19")
    expect(legend.last).to_have_text(newcomer.words("stats.others", n=10))
    rows = newcomer.page.locator("table.usage tbody tr")
    expect(rows).to_have_count(21)  # the sum, and each
    expect(newcomer.page.locator("table.agents tbody tr")).to_have_count(20)  # of 24
    newcomer.button("more").first.click()
    expect(newcomer.page.locator("table.agents tbody tr")).to_have_count(24)


def test_charts_of_many_agents_are_of_teams_and_no_column_is_higher_than_its_chart(
    team: Team, newcomer: Person
) -> None:
    services = team.services
    for lead in ("north", "south", "west"):
        services.agents.add(Agent(id=lead, role="admin", parent_id="owner"))
        for number in range(12):
            services.agents.add(Agent(id=f"{lead}-{number:02d}", role="worker", parent_id=lead))
            took(services, f"{lead}-{number:02d}", 1000)
    chart = newcomer.visit("stats").page.locator(".chart").last
    expect(chart.locator(".legend li")).to_have_text(
        [newcomer.words("stats.team", agent=lead) for lead in ("north", "south", "west")]
    )
    top = "one => one.getBoundingClientRect().top"
    column, plot = chart.evaluate(  # at once: the page may draw it again
        f"chart => [...['.stack > div', '.plot'].map(name => chart.querySelector(name))].map({top})"
    )
    assert column >= plot
