"""The time to wake an agent in a composer like the hosts', and the cost of the hosts' hooks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from unittest.mock import patch

from benchmarks.bench import Bench
from benchmarks.rows.doorbell import IDLE_SECONDS
from benchmarks.table import Finding
from benchmarks.team import SESSION, Team
from benchmarks.timing import in_turns, ms, seconds, wait_until
from benchmarks.wire import Server
from multi_agent_mcp.doorbell.tmux.notifier import QUIET_SECONDS, TmuxNotifier
from multi_agent_mcp.doorbell.tmux.profiles import load_profiles
from multi_agent_mcp.repository import edit_log
from tests.conformance.reader import Log, submitted
from tests.conformance.stage import Seat, Stage, wait_for

STORM = 50
OTHERS_EDITS = 10_000
CALLS = 3  # looking at the pane, pasting, pressing the key
WORKS_SECONDS = 1.0  # longer than the composer works on a line
HOOK_EVENT = json.dumps({"hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "Bash"}).encode()


def entered(bench: Bench) -> Finding:
    """From the call that stores a message until the composer has been given its line, less the pause between paste and
    key. Each message is read before the next one is sent."""
    team = bench.team()
    pause = team.services.settings.limits.submit_pause_seconds
    with _composing() as (stage, seat), _served(team, stage, seat) as server:
        _entered(team, seat, server)
        taken, called = in_turns(bench.scale.rings // 2, lambda: _entered(team, seat, server), lambda: _one_call(stage))
    measured = taken - pause
    return Finding(measured / (CALLS * called), ms(measured), f"{ms(called)} tmux, {CALLS} times")


def storm(bench: Bench) -> Finding:
    """Fifty messages within a second; the agent reads as soon as a line reaches it."""
    team, got = bench.team(), 0
    with _composing() as (stage, seat), _served(team, stage, seat) as server:
        began = time.perf_counter()
        sending = threading.Thread(target=lambda: [team.send(f"message {number}") for number in range(STORM)])
        sending.start()
        wait_until(lambda: bool(submitted(Log(seat.log).read())))
        while sending.is_alive() or team.services.unread_mail_count("admin"):
            got += server.call("read_messages")["count"]
        took = time.perf_counter() - began
        time.sleep(WORKS_SECONDS)
        rings = len(submitted(Log(seat.log).read()))
    return Finding(rings, f"{rings} doorbells, {got} read in {took:.2f} s", sound=rings >= 1 and got == STORM)


def decision(bench: Bench) -> Finding:
    """A pane with a human's draft: how many programs called tmux are run until the doorbell has decided to wait."""
    with _composing() as (stage, seat), _counted(bench.place()) as calls:
        notifier = TmuxNotifier(0.0, load_profiles(), quiet_seconds=0.0)
        agent = stage.workspace.registry.get(seat.agent_id)
        wait_until(lambda: notifier.check(agent) is None)
        os.write(seat.keyboard, b"half a sentence")
        wait_until(lambda: notifier.check(agent) == "draft")
        calls.unlink()
        took = [seconds(lambda: notifier.ring(agent, "[IPC] x")) for _ in range(bench.scale.rings)]
        count = calls.stat().st_size / len(took)
    return Finding(count, f"{count:g} call, {ms(median(took))}")


def hook(bench: Bench) -> Finding:
    """A whole process of `hook` before a tool call, with nothing to say, beside an interpreter that does nothing."""
    return _silent(bench, bench.team(), HOOK_EVENT)


def hook_edit(bench: Bench) -> Finding:
    """The same after an edit that is noted, beside ten thousand lines of what others have edited."""
    team, tree = bench.team(), bench.place()
    (tree / ".git").mkdir()
    call = {"tool_name": "Edit", "tool_input": {"file_path": str(tree / "a.py")}, "cwd": str(tree)}
    event = json.dumps({**json.loads(HOOK_EVENT), "hook_event_name": "PostToolUse", **call}).encode()
    _hooked(_hook_of(team), event)  # the first one writes which repositories there are
    session = str(team.services.path)
    known = edit_log.settings(session)
    assert known is not None
    lines = [edit_log.Edited(f"{n}.py", *known["repositories"].values()) for n in range(OTHERS_EDITS // 2)]
    for agent_id in ("owner", "worker"):
        edit_log.append(session, agent_id, lines, None)
    return _silent(bench, team, event)


def _hook_of(team: Team) -> list[str]:
    command = [sys.executable, "-m", "multi_agent_mcp", "hook", "--root", str(team.root), "--session", SESSION]
    return [*command, "--agent", "admin"]


def _silent(bench: Bench, team: Team, event: bytes) -> Finding:
    ours = _hook_of(team)
    _hooked(ours, event)  # the first one has to look through the mailbox
    time.sleep(IDLE_SECONDS)
    _hooked(ours, event)
    bare = [sys.executable, "-c", "pass"]
    measured, floor = in_turns(bench.scale.rings, lambda: _hooked(ours, event), lambda: _hooked(bare, event))
    return Finding(measured / floor, ms(measured), f"{ms(floor)} python -c pass")


def _hooked(call: list[str], event: bytes) -> float:
    def run() -> None:
        done = subprocess.run(call, input=event, capture_output=True, check=True)
        assert not done.stdout

    return seconds(run)


@contextmanager
def _composing() -> Iterator[tuple[Stage, Seat]]:
    """One pane with an empty composer like Claude Code's, no dialogs, and a human who keeps still."""
    with Stage(1, dialogs=0.0) as stage:
        wait_for(stage.seats, stage)
        yield stage, stage.seats[0]


@contextmanager
def _served(team: Team, stage: Stage, seat: Seat) -> Iterator[Server]:
    """The admin's server, as if started in that pane."""
    team.rings_in("admin", stage.socket, seat.pane_id)
    with team.server("admin") as server:
        server.settle()
        time.sleep(QUIET_SECONDS + 1.0)  # the human's client has only just been attached
        yield server


def _entered(team: Team, seat: Seat, server: Server) -> float:
    log = Log(seat.log)
    before, began = len(submitted(log.read())), time.perf_counter()
    team.send()
    wait_until(lambda: len(submitted(log.read())) > before, every=0.0005)
    took = time.perf_counter() - began
    server.call("read_messages")
    time.sleep(WORKS_SECONDS)
    return took


def _one_call(stage: Stage) -> float:
    return seconds(lambda: stage.tmux("display-message", "-p", "x"))


@contextmanager
def _counted(place: Path) -> Iterator[Path]:
    """Meanwhile every start of tmux adds a byte to a file."""
    calls, real = place / "calls", shutil.which("tmux")
    counting = place / "tmux"
    counting.write_text(f'#!/bin/sh\nprintf x >> "{calls}"\nexec "{real}" "$@"\n', encoding="utf-8")
    counting.chmod(0o755)
    with patch.dict(os.environ, PATH=f"{place}:{os.environ['PATH']}"):
        yield calls
