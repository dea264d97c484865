"""Commands for looking on, as processes of their own: `timeline` and `watch` (contract §7)."""

from __future__ import annotations

from xml.etree import ElementTree

from tests.system.support import Team


def test_the_timeline_is_a_table_a_picture_or_data(team: Team) -> None:
    task = team.ask("task", "add", "Build it", "--assignee", "worker-a")["task_id"]
    team.ask("task", "status", task, "in_progress", "--as", "worker-a")
    team.ask("task", "status", task, "blocked", "--reason", "wait")
    team.send("worker-b", "hello", subject="a\nsubject")
    table = team.run("timeline").stdout
    for told in ("task in_progress", "interrupt blocked", "owner → worker-a", "admin → worker-b", "a subject"):
        assert told in table
    data = team.ask("timeline")
    assert [arrow["subject"] for arrow in data["arrows"]] == ["a\nsubject"]
    assert [mark["by"] for mark in data["marks"]] == ["owner"]
    picture = team.base / "picture.svg"
    assert team.run("timeline", "--svg", picture).stdout == f"{picture}\n"
    drawn = picture.read_text(encoding="utf-8")
    assert task in {element.get("data-id") for element in ElementTree.fromstring(drawn).iter()}  # noqa: S314 - ours
    assert team.run("timeline", "--svg", "-").stdout == drawn
    assert team.ask("timeline", "--to", "2026-01-01")["arrows"] == []
    refused = team.run("timeline", "--from", "yesterday", "--json")
    assert (refused.code, refused.json["error"]) == (1, "invalid_arguments")
