"""One run: senders in several processes, simulated humans, and the result."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.human import Human
from tests.conformance.reader import Log, counted, submitted
from tests.conformance.stage import Stage, wait_for
from tests.conformance.strangers import Strangers
from tests.programs import REPOSITORY

_WHOLE = re.compile(r"\[IPC\] 新しいメッセージ: request from s\d{5} #[0-9a-z]{4}")
SETTLE_SECONDS = 1.0


@dataclass(frozen=True)
class Plan:
    """The sizes of a run. `calm` stretches the humans' pauses; `quiet` is the time for which no human may have
    typed."""

    deliveries: int
    panes: int = 10
    processes: int = 3
    threads: int = 6
    submit_pause: float = 0.02
    quiet: float = 1.0
    calm: float = 4.0
    seed: int = 1


@dataclass(frozen=True)
class Report:
    """The result of a run. Five fields must be empty: `corrupted`, `keys`, `strangers` (input that reached one),
    `lost`, `twice`. `ignored` counts pastes into a dialog that had just opened; hosts ignore them, and no key follows.
    `refused` counts the outcomes of rings for strangers."""

    deliveries: int
    seconds: float
    corrupted: tuple[str, ...]
    keys: tuple[str, ...]
    strangers: tuple[str, ...]
    lost: tuple[str, ...]
    twice: tuple[str, ...]
    given_up: tuple[str, ...]
    ignored: int
    by_human: int
    acts: int
    unknown: tuple[str, ...]
    entered_ms: float
    reasons: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return not (self.corrupted or self.keys or self.strangers or self.lost or self.twice)


def run(plan: Plan) -> Report:
    """Delivers `plan.deliveries` lines into real panes. Takes about 0.06 s each on two cores."""
    began = time.monotonic()
    with Stage(plan.panes) as stage:
        wait_for(stage.seats, stage)
        strangers = Strangers(stage)
        humans = [Human(stage, seat, plan.seed + number, plan.calm) for number, seat in enumerate(stage.seats)]
        for human in humans:
            human.start()
        answers = _deliver(plan, stage)
        for human in humans:
            human.interrupting.set()
        for human in humans:
            human.join()
        time.sleep(SETTLE_SECONDS)
        logs = [Log(seat.log).read() for seat in stage.seats]
        typed = strangers.typed()
        unknown = [path.read_text(encoding="utf-8") for path in stage.workspace.path.glob("unknown_screens/*.txt")]
    return _report(plan, time.monotonic() - began, answers, logs, typed, sum(human.acts for human in humans), unknown)


def _deliver(plan: Plan, stage: Stage) -> list[dict[str, Any]]:
    shares = [plan.deliveries // plan.processes] * plan.processes
    shares[0] += plan.deliveries - sum(shares)
    running, first = [], 0
    for share in shares:
        call = [sys.executable, "-m", "tests.conformance.sender", str(stage.root), str(first), str(share)]
        call += [str(plan.threads), str(plan.submit_pause), str(plan.quiet)]
        running.append(subprocess.Popen(call, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, env=dict(os.environ)))
        first += share
    answers = []
    for process in running:
        out, _ = process.communicate()
        if process.returncode:
            raise RuntimeError("a sender has failed")
        answers.append(json.loads(out))
    return answers


def _report(
    plan: Plan,
    seconds: float,
    answers: list[dict[str, Any]],
    logs: list[list[dict[str, str]]],
    typed: list[str],
    acts: int,
    unknown: list[str],
) -> Report:
    reasons: Counter[str] = Counter()
    entered: list[float] = []
    for answer in answers:
        reasons.update(answer["reasons"])
        entered += answer["entered"]
    lines = [line for events in logs for line in submitted(events)]
    by_human = [
        event["text"] for events in logs for event in events if event["event"] == "line" and event["by"] == "human"
    ]
    times = counted([line for line in lines if _WHOLE.fullmatch(line)])
    wanted = [f"[IPC] 新しいメッセージ: request from s{number:05}" for number in range(plan.deliveries)]
    keys = [json.dumps(event) for events in logs for event in events if event["event"] in ("key", "interrupt")]
    return Report(
        deliveries=plan.deliveries,
        seconds=seconds,
        corrupted=tuple(line for line in lines if not _WHOLE.fullmatch(line)),
        keys=tuple(keys),
        strangers=tuple(typed),
        lost=tuple(line for line in wanted if not times[line] and not any(f"{line} #" in text for text in by_human)),
        twice=tuple(line for line, count in times.items() if count > 1),
        given_up=tuple(line for answer in answers for line in answer["given_up"]),
        ignored=sum(event["event"] == "paste" for events in logs for event in events),
        by_human=sum("[IPC]" in text for text in by_human),
        acts=acts,
        unknown=tuple(unknown),
        entered_ms=statistics.median(entered) if entered else 0.0,
        reasons=dict(reasons.most_common()),
        refused=dict(sum((Counter(answer["refused"]) for answer in answers), Counter())),
    )
