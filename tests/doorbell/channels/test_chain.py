"""The channels that an agent has, and the handling of unusable ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import ChannelReport, Delivery
from multi_agent_mcp.doorbell.channel import Channel, Recorder
from multi_agent_mcp.doorbell.channels import ChannelChain, CodexQueue, DesktopNotifier, HookChannel
from multi_agent_mcp.store.durable_files import Files

NAMES = ("hook", "codex_queue", "tmux", "desktop", "status_line")

IN_A_PANE = Agent(id="a", pane_id="%1", socket_path="/none")


@pytest.mark.parametrize(
    ("host", "ladder", "expected"),
    [
        ("claude", None, ("hook", "tmux", "desktop", "status_line")),
        ("codex", None, NAMES),
        (None, None, ("tmux", "desktop", "status_line")),
        ("gemini", None, ("tmux", "desktop", "status_line")),
        ("codex", ["desktop", "nonsense", "tmux"], ("desktop", "tmux")),
    ],
)
def test_the_channels_follow_the_host_unless_the_agent_names_its_own(
    host: str | None, ladder: list[str] | None, expected: tuple[str, ...]
) -> None:
    extra = {} if ladder is None else {"ladder": ladder}
    chain = ChannelChain(dict.fromkeys(NAMES, Recorder))
    assert chain.names(Agent(id="a", host=host, extra=extra)) == expected


def test_a_channel_that_cannot_be_used_gives_way_to_the_next_and_its_reason_counts_when_none_works() -> None:
    first, second = Recorder(Delivery("stored", "draft")), Recorder(Delivery("rung", "desktop"))
    chain = ChannelChain({"tmux": lambda: first, "desktop": lambda: second})
    assert chain.ring(IN_A_PANE, "line") == Delivery("rung", "desktop")
    second.outcome = Delivery("stored", "no_desktop")
    assert chain.check(IN_A_PANE) == "draft"
    assert chain.ring(IN_A_PANE, "line") == Delivery("stored", "draft")
    assert len(first.rings) == 2
    second.outcome = Delivery("rung", "desktop")
    assert chain.check(IN_A_PANE) is None


def test_what_needs_a_pane_is_not_even_made_for_an_agent_without_one() -> None:
    def libraries() -> Channel:
        raise AssertionError

    chain = ChannelChain({"tmux": libraries, "status_line": libraries})
    assert chain.check(Agent(id="a")) == "no_pane"
    assert chain.ring(Agent(id="a"), "line") == Delivery("stored", "no_pane")


def test_an_owner_without_a_pane_lacks_a_desktop_command() -> None:
    reasons = {"tmux": "no_pane", "desktop": "no_desktop", "status_line": "no_pane"}
    chain = ChannelChain({name: partial(Recorder, Delivery("stored", reason)) for name, reason in reasons.items()})
    assert chain.ring(Agent(id="owner", role="owner"), "line") == Delivery("stored", "no_desktop")


def test_the_chain_explains_each_channel_and_rings_none(tmp_path: Path) -> None:
    pane = Recorder(Delivery("submitted"))
    channels: dict[str, Callable[[], Channel]] = {
        "hook": lambda: HookChannel(Files(tmp_path)),
        "codex_queue": lambda: CodexQueue(lambda _: False),
        "tmux": lambda: pane,
        "desktop": lambda: DesktopNotifier("title"),
    }
    ladder = ["hook", "codex_queue", "nonsense", "tmux", "desktop"]
    agent = replace(IN_A_PANE, extra={"ladder": ladder})
    assert [(report.name, report.reason) for report in ChannelChain(channels).explain(agent)] == [
        ("hook", "no_hook"),
        ("codex_queue", "no_codex_thread"),
        ("nonsense", "no_such_channel"),
        ("tmux", None),
        ("desktop", "not_human"),
    ]
    assert pane.rings == []
    assert ChannelChain(channels).explain(IN_A_PANE)[0] == ChannelReport("tmux")


def test_a_channel_that_breaks_when_asked_does_not_hide_the_others() -> None:
    def broken() -> Channel:
        raise OSError("x")

    chain = ChannelChain({"tmux": broken, "desktop": Recorder, "status_line": Recorder})
    reports = chain.explain(IN_A_PANE)
    assert [report.reason for report in reports] == ["failed_OSError", None, None]


def test_an_agent_without_any_channel_is_said_to_have_no_pane() -> None:
    nowhere = {name: lambda: Recorder(Delivery("stored", "no_pane")) for name in ("tmux", "desktop")}
    chain = ChannelChain({"hook": lambda: Recorder(Delivery("stored", "no_hook")), **nowhere})
    assert chain.ring(Agent(id="a", host="claude"), "line") == Delivery("stored", "no_pane")


@pytest.mark.parametrize(("pid", "state"), [("own", "rung"), ("999999999", "stored"), ("x", "stored")])
def test_the_hook_is_a_channel_while_its_waiter_lives(tmp_path: Path, pid: str, state: str) -> None:
    (tmp_path / ".hooks").mkdir()
    written = str(os.getpid()) if pid == "own" else pid  # a process id would be another one in every xdist worker
    (tmp_path / ".hooks" / "a.armed").write_text(f"{written}\n", encoding="ascii")
    assert HookChannel(Files(tmp_path)).ring(Agent(id="a"), "line").state == state
    assert HookChannel(Files(tmp_path)).ring(Agent(id="b"), "line") == Delivery("stored", "no_hook")


def test_nothing_is_queued_for_a_codex_that_cannot_reach_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codex = tmp_path / "codex"
    codex.write_text('#!/bin/sh\necho "$@" >> "$0.log"\n')
    codex.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    keys = Recorder(Delivery("stored", "offline"))
    chain = ChannelChain({"codex_queue": lambda: CodexQueue(lambda _: True), "tmux": lambda: keys})
    agent = replace(IN_A_PANE, host="codex", extra={"codex_thread_id": "0199-thread"})
    assert chain.ring(agent, "line") == Delivery("stored", "offline")
    assert not (tmp_path / "codex.log").exists()
    keys.outcome = Delivery("stored", "draft")
    assert chain.ring(agent, "line") == Delivery("submitted", "codex_queue")
    assert len((tmp_path / "codex.log").read_text().splitlines()) == 1


def test_codex_is_handed_the_line_without_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(id="a", host="codex", extra={"codex_thread_id": "0199-thread"})
    monkeypatch.setenv("PATH", str(tmp_path))
    queue, closed = CodexQueue(lambda _: True), CodexQueue(lambda _: False)
    assert queue.ring(agent, "line") == Delivery("stored", "no_codex")
    codex = tmp_path / "codex"
    codex.write_text(f'#!/bin/sh\nprintf "%s|" "$@" > {tmp_path}/said\n', encoding="ascii")
    codex.chmod(0o755)
    assert closed.ring(agent, "line") == Delivery("stored", "codex_gone")
    assert not (tmp_path / "said").exists()
    assert queue.ring(agent, "a ; line") == Delivery("submitted", "codex_queue")
    assert (tmp_path / "said").read_text() == "queue|--thread|0199-thread|--message|a ; line|"
    assert queue.ring(Agent(id="a", host="codex"), "line") == Delivery("stored", "no_codex_thread")
