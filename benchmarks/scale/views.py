"""What the console and the terminal ask of a session of 200 agents, 5 000 tasks and 20 000 messages."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from benchmarks.bench import Bench
from benchmarks.past import Past
from benchmarks.table import Finding
from benchmarks.team import SESSION, Team
from benchmarks.timing import clean, command_seconds, processor_seconds

AGENTS = 200
REPEATED = 20
RESTS = 3.0  # seconds without processor time after which a process rests: on a busy machine it waits for its turn


class Console:
    """A running `web` of a team, as a browser that has opened its link talks to it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        link = urlsplit(process.stdout.readline().strip())
        self._pid, self._host = process.pid, link.netloc
        answer = self._ask(f"{link.path}?{link.query}", {})
        self._headers = {"Cookie": str(answer.getheader("Set-Cookie")).partition(";")[0]}

    def rest(self) -> None:
        """Waits until the process has done what it does by itself."""
        used = -1.0
        while used != (used := processor_seconds(self._pid)):
            time.sleep(RESTS)

    def cost(self, path: str, times: int = 1) -> float:
        """The processor time of one of so many requests."""
        before = processor_seconds(self._pid)
        for _ in range(times):
            self.get(path)
        return (processor_seconds(self._pid) - before) / times

    def get(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.load(self._ask(f"/api{path}", self._headers))
        assert answer["success"], answer
        return answer

    def _ask(self, path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self._host, timeout=600)
        connection.request("GET", path, headers=headers)
        return connection.getresponse()


@contextmanager
def console(team: Team) -> Iterator[Console]:
    command = [sys.executable, "-m", "multi_agent_mcp", "web", "--root", str(team.root), "--session", SESSION]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8", env=clean()) as process:
        try:
            yield Console(process)
        finally:
            process.terminate()


def first(path: str) -> Callable[[Bench], Finding]:
    """The processor time of the first request to a console that rests."""

    def measure(bench: Bench) -> Finding:
        with console(_company(bench)) as opened:
            opened.rest()
            cost = opened.cost(path)
        return Finding(cost, f"{cost * 1000:.0f} ms")

    return measure


def again(path: str) -> Callable[[Bench], Finding]:
    """The processor time of each further one while nothing changes."""

    def measure(bench: Bench) -> Finding:
        with console(_company(bench)) as opened:
            opened.rest()
            opened.get(path)
            cost = opened.cost(path, REPEATED)
        return Finding(cost, f"{cost * 1000:.1f} ms")

    return measure


def command(*words: str) -> Callable[[Bench], Finding]:
    """The processor time of a whole command, which nobody has prepared."""

    def measure(bench: Bench) -> Finding:
        cost = command_seconds(_company(bench).command(*words))
        return Finding(cost, f"{cost:.2f} s")

    return measure


def first_search(bench: Bench) -> Finding:
    """The longest that a request of the first search waits, of all until the index is made."""
    team = _company(bench)
    team.services.search.rebuild()
    waits, begun = [], time.perf_counter()
    with console(team) as opened:
        opened.rest()
        reading = True
        while reading:
            asked = time.perf_counter()
            reading = "reading" in opened.get("/search?q=happened")
            waits.append(time.perf_counter() - asked)
    return Finding(max(waits), f"{max(waits):.2f} s ({len(waits)} requests in {time.perf_counter() - begun:.0f} s)")


def _company(bench: Bench) -> Team:
    return bench.lived("agents at work", min(AGENTS, bench.scale.servers), Past.company)
