"""A question and its answer: how soon a person's phone rings, and how soon the asker is notified."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from statistics import median

from benchmarks.bench import Bench
from benchmarks.table import Finding
from benchmarks.team import Team
from benchmarks.timing import in_turns, ms, seconds, wait_until
from benchmarks.wire import Server

EVERY = 0.001


def rung(bench: Bench) -> Finding:
    """From an agent's call of `ask` to the start of the person's `notify_command`, each question answered before the
    next one is asked."""
    team, place = bench.team(), bench.place()
    settings = team.services.workspace.settings_path
    settings.write_text(f'{settings.read_text()}\nnotify_command: ["touch", "{place}/{{id}}"]\n', encoding="utf-8")
    touch = ["touch", str(place / "floor")]
    with team.server("admin") as server:
        server.settle()
        _rung(team, server, place)
        taken, floor = in_turns(
            bench.scale.rings,
            lambda: _rung(team, server, place),
            lambda: seconds(lambda: subprocess.run(touch, check=True)),
        )
    return Finding(taken, ms(taken), f"{ms(floor)} touch")


def told(bench: Bench) -> Finding:
    """From a person's answer at the command line being done: how many calls its asker makes until an answer says that
    something has come. `get_notifications` then has to hold the answer."""
    team, calls, heard = bench.team(), [], []
    with team.server("admin") as server:
        server.settle()
        for number in range(bench.scale.spawns):
            question_id = server.call("ask", question=f"Which of {number}?")["question_id"]
            subprocess.run(team.command("answer", question_id, "this"), stdout=subprocess.DEVNULL, check=True)
            answered_at, count = time.perf_counter(), 1
            while not server.call("get_unread_count")["notification"].startswith("【"):
                count += 1
            calls.append(count)
            heard.append(time.perf_counter() - answered_at)
            (notice,) = server.call("get_notifications")["notifications"]
            if (notice["question_id"], notice["answer"]) != (question_id, "this"):
                return Finding(max(calls), f"{notice}", sound=False)
    return Finding(max(calls), f"{max(calls)} call, {ms(median(heard))} after the command")


def _rung(team: Team, server: Server, place: Path) -> float:
    began = time.perf_counter()
    question_id = server.call("ask", question=f"Which at {began}?")["question_id"]
    wait_until((place / question_id).exists, every=EVERY)
    taken = time.perf_counter() - began
    team.services.questions.answer(team.services.agents.get("owner"), question_id, "this")
    server.call("get_notifications")
    return taken
