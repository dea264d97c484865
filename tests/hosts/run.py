"""`scripts/test-hosts`: the real hosts, in a real tmux, offline but for npm's installing them; a table at the end."""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.end_to_end.support import REPOSITORY
from tests.hosts import points
from tests.hosts.awake import AWAKE_SCENARIOS, HOSTS, PARTNERS, AwakeScenario
from tests.hosts.changed import CHANGED_SCENARIOS
from tests.hosts.lasting import LASTING_SCENARIOS, LastingScenario
from tests.hosts.limited import LIMITED_SCENARIOS
from tests.hosts.offline import OFFLINE_SCENARIOS
from tests.hosts.plugged import PLUGIN_SCENARIOS, PluginScenario
from tests.hosts.replies import Json
from tests.hosts.ruled import RULED_SCENARIOS, RuledScenario
from tests.hosts.sandboxed import SANDBOXED_SCENARIOS, SandboxedScenario
from tests.hosts.scenarios import SCENARIOS, Scenario
from tests.hosts.stage import Host
from tests.hosts.stated import FOLLOWING, STATED_SCENARIOS
from tests.hosts.worktrees import WorktreesScenario

AnyScenario = (
    PluginScenario | Scenario | AwakeScenario | LastingScenario | RuledScenario | SandboxedScenario | WorktreesScenario
)

INSTALL_SECONDS = 600


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    host: str
    version: str
    scenario: str
    passed: bool
    milliseconds: str
    what: str


def main(arguments: Sequence[str]) -> int:
    """Plays the scenarios; 0 when all of them passed."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # no host is left behind
    hosts = [host for host in HOSTS if options.host in (None, host.name)]
    partners = [other[host.name] for other in (PARTNERS, FOLLOWING) for host in hosts if host.name in other]
    needed = dict.fromkeys([*hosts, *partners])
    binaries = install(needed, options.cache, latest=options.latest)
    rows = []
    for host in hosts:
        version = version_of(host, binaries)
        if options.points:
            rows += play_points(host, version, binaries, options.points, options.seed)
            continue
        scenarios: list[AnyScenario] = [
            *SCENARIOS,
            *AWAKE_SCENARIOS,
            *LASTING_SCENARIOS,
            *LIMITED_SCENARIOS,
            *OFFLINE_SCENARIOS,
            *CHANGED_SCENARIOS,
            *PLUGIN_SCENARIOS,
            *SANDBOXED_SCENARIOS,
            *STATED_SCENARIOS,
            *RULED_SCENARIOS,
            WorktreesScenario(),
        ]
        for scenario in scenarios:
            is_wanted = not options.only or any(words in scenario.title for words in options.only)
            if scenario.fits(host) and is_wanted:
                for _ in range(options.repeat):
                    rows.append(play(host, version, scenario, binaries))
                    _say(f"{host.name:8} {'ok    ' if rows[-1].passed else 'FAILED'} {scenario.title}: {rows[-1].what}")
    sys.stdout.write("\n".join(table(rows)) + "\n")
    return 0 if rows and all(row.passed for row in rows) else 1


def play(host: Host, version: str, scenario: AnyScenario, binaries: Path) -> Row:
    try:
        measured = scenario.run(host, binaries)
    except Exception as error:  # noqa: BLE001 - one scenario's failure must not keep the others from being played
        _say("".join(traceback.format_exception(error, limit=-3)))
        return Row(host.name, version, scenario.title, False, "–", " ".join(str(error).split())[:80])
    return Row(host.name, version, scenario.title, True, f"{measured.milliseconds:.0f}", measured.what)


def play_points(host: Host, version: str, binaries: Path, number: int, seed: int | None) -> list[Row]:
    """Plays random points of work; one line for each kind."""
    seed = secrets.randbelow(10_000) if seed is None else seed
    _say(f"{host.name:8} {number} points, --seed {seed}")
    rows = []
    played = points.play_points(host, binaries, number, seed, _say)
    for what in dict.fromkeys(item.point.what for item in played):
        those = [item for item in played if item.point.what == what]
        good = [item for item in those if item.fault is None]
        slowest = f"{max((item.seconds for item in good), default=0) * 1000:.0f}"
        title = f"{what} at {len(those)} random points of work (seed {seed}): {len(good)} went on"
        rows.append(Row(host.name, version, title, good == those, slowest, "the task's beginning → done, the slowest"))
    return rows


def install(hosts: Iterable[Host], cache: Path, *, latest: bool) -> Path:
    """Installs what is missing into the cache; returns the directory of the commands. The version that the profiles
    were made from, or the newest where that cannot be had."""
    cache.mkdir(parents=True, exist_ok=True)
    for host in hosts:
        program = host.program
        installed = cache / "node_modules" / program.package / "package.json"
        if installed.exists() and not latest:
            continue
        for version in ("latest",) if latest else (program.version, "latest"):
            _say(f"installing {program.package}@{version}")
            if _npm(cache, f"{program.package}@{version}"):
                break
        else:
            raise SystemExit(f"{program.package} could not be installed")
    binaries = cache / "node_modules" / ".bin"
    if (node := node_to_install(binaries, [_described(cache, host.program.package) for host in hosts])) is not None:
        _say(f"installing node@{node}: the one that is here is older than a host asks for")
        if not _npm(cache, f"node@{node}"):
            raise SystemExit(f"node@{node} could not be installed")
    return binaries


def node_to_install(binaries: Path, packages: Iterable[Json]) -> int | None:
    """Returns the major version of Node.js that these packages ask for, if neither the cache's commands nor PATH have
    it; else None."""
    done = subprocess.run(
        ["node", "--version"], env=_with(binaries), capture_output=True, encoding="utf-8", check=False, timeout=60
    )
    asked = [re.search(r"[0-9]+", package.get("engines", {}).get("node", "")) for package in packages]
    wanted = max((int(found[0]) for found in asked if found is not None), default=0)
    return wanted if wanted > int(done.stdout.strip().lstrip("v").partition(".")[0]) else None


def _described(cache: Path, package: str) -> Json:
    text = (cache / "node_modules" / package / "package.json").read_text(encoding="utf-8")
    described: Json = json.loads(text)
    return described


def _with(binaries: Path) -> dict[str, str]:
    """This environment, in which the cache's commands come first, as in the scenarios."""
    return {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}"}


def version_of(host: Host, binaries: Path) -> str:
    """Returns the version that the program prints."""
    call = [str(binaries / host.program.command), "--version"]
    done = subprocess.run(call, env=_with(binaries), capture_output=True, encoding="utf-8", check=True, timeout=60)
    return next((word.rstrip(".") for word in done.stdout.split() if word[0].isdigit()), "?")


def table(rows: Iterable[Row]) -> Iterable[str]:
    """Yields the lines of the table in Markdown, in the form of docs/hosts.md."""
    yield "| host | version | scenario | result | ms | what the number is |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        result = "ok" if row.passed else "FAILED"
        yield f"| {row.host} | {row.version} | {row.scenario} | {result} | {row.milliseconds} | {row.what} |"


def _npm(cache: Path, package: str) -> bool:
    call = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(cache), package]
    try:
        done = subprocess.run(call, capture_output=True, encoding="utf-8", check=False, timeout=INSTALL_SECONDS)
    except FileNotFoundError:
        raise SystemExit("npm is missing: install Node.js 20 or newer") from None
    if done.returncode:
        _say(done.stderr)
    return done.returncode == 0


def _directory(text: str) -> Path:
    """The hosts are started elsewhere: the commands in it are named by whole paths."""
    return Path(text).resolve()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/test-hosts", description=__doc__)
    parser.add_argument("--cache", metavar="DIR", type=_directory, default=REPOSITORY / ".cache" / "hosts")
    parser.add_argument("--host", choices=[host.name for host in HOSTS])
    only = "only scenarios whose title holds these words (or those of another --only)"
    parser.add_argument("--only", metavar="WORDS", action="append", default=[], help=only)
    parser.add_argument("--repeat", metavar="N", type=int, default=1, help="play each scenario so many times")
    parser.add_argument(
        "--points", metavar="N", type=int, help="instead: kill tmux, or compact, at so many random points of work"
    )
    parser.add_argument("--seed", metavar="N", type=int, help="which points (default: others each time)")
    parser.add_argument("--latest", action="store_true", help="the newest versions instead of the known ones")
    return parser


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()
