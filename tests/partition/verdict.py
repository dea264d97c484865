"""The verdict of a run: acknowledged items that do not exist exactly once, and differences between the machines."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from multi_agent_mcp.domain.history import NUMBER
from multi_agent_mcp.hub.share_directory import shared_settings
from multi_agent_mcp.hub.subjects import BY_DIRECTORY
from tests.hub.support import Machine, Machines
from tests.partition.hands import RECEIVERS
from tests.partition.writers import Writer

SETTLING_SECONDS = 600.0
SAME_EVERYWHERE = ("ipc", "notifications", *BY_DIRECTORY)
OF_THE_CLIENT = re.compile(r"nats: encountered error\nTraceback .*?(?=^\d{4}-|\Z)", re.MULTILINE | re.DOTALL)
MARK = re.compile(rb"^hub: .*\n", re.MULTILINE)
"""The hub's mark, which is the same everywhere only in the end."""


def wait_until_settled(made: Machines) -> float:
    """Waits until every machine has sent and received everything and all have the same files by name and size; returns
    the seconds this took. Raises `AssertionError` with what is unsettled after `SETTLING_SECONDS`."""
    began = time.monotonic()
    while unsettled := list(_unsettled(made)):
        assert time.monotonic() - began < SETTLING_SECONDS, "\n".join(unsettled)
        time.sleep(0.3)
    return time.monotonic() - began


def _unsettled(made: Machines) -> Iterator[str]:
    states = {name: machine.sharing.status() for name, machine in made.members.items()}
    facts = ("synchronised", "pending", "position")
    lines = [f"{name}: {[state.get(fact) for fact in facts]}" for name, state in states.items()]
    if {tuple(state.get(fact) for fact in facts[:2]) for state in states.values()} != {(True, 0)}:
        yield f"not quiet: {lines}"
    elif len({state["position"] for state in states.values()}) > 1:
        yield f"not equally far: {lines}"
    else:
        outlines = {name: set(outline(machine)) for name, machine in made.members.items()}
        common = set.intersection(*outlines.values())
        yield from (f"only on {name}: {file}" for name, files in outlines.items() for file in sorted(files - common))


def outline(machine: Machine) -> Iterator[tuple[str, int]]:
    """The files that all machines have, with their sizes: the hub's mark is the same everywhere in the end, too."""
    for path in files(machine):
        with suppress(FileNotFoundError):  # it is archived just now
            yield str(path.relative_to(machine.path)), len(MARK.sub(b"", path.read_bytes()))


def files(machine: Machine) -> Iterator[Path]:
    for directory in SAME_EVERYWHERE:
        for path in (machine.path / directory).rglob("*"):
            if path.suffix in (".md", ".log") and "quarantine" not in path.parts:
                yield path


def missing(made: Machines, writers: list[Writer]) -> list[str]:
    """Acknowledged items that are missing or duplicated, on any machine."""
    return [line for machine in made.members.values() for line in _missing_at(machine, writers)]


def _missing_at(machine: Machine, writers: list[Writer]) -> Iterator[str]:
    workspace = machine.services.workspace
    mail = {
        agent_id: [message for message in workspace.mailbox(agent_id).history() if message.sender_id in RECEIVERS]
        for agent_id in RECEIVERS
    }  # without that of a flood
    found = Counter((agent_id, message.content) for agent_id, messages in mail.items() for message in messages)
    ids = Counter((agent_id, message.id) for agent_id, messages in mail.items() for message in messages)
    messages = [(message.receiver, message.words) for writer in writers for message in writer.messages]
    messages += [("admin", words) for writer in writers for words in writer.reported]
    yield from unless_once(machine, "message", messages, found)
    yield from (f"{machine.name}: the message {key} is there {count} times" for key, count in ids.items() if count > 1)
    notes = [note for writer in writers for note in writer.notes]
    tasks = {task.id: task for task in workspace.tasks.all()}
    lines = ((task_id, line.get("reason")) for task_id in tasks for line in tasks[task_id].history)
    answers = [answer for writer in writers for answer in writer.answers.items()]
    standing = Counter((question.id, str(question.answer)) for question in workspace.questions.all())
    titles = Counter(("task", task.title) for task in tasks.values() if task.created_by == "admin")
    created = [("task", title) for writer in writers for title in writer.created]
    yield from (f"{machine.name}: {key} is there {titles[key]} times" for key in created if titles[key] != 1)
    holders = ((key, writer.agent_id) for writer in writers for key in writer.claimed)
    yield from (
        f"{machine.name}: {key} is not {holder}'s" for key, holder in holders if tasks[key].assignee_id != holder
    )
    yield from unless_once(machine, "answer", answers, standing)
    yield from unless_once(machine, "line", notes, Counter((key, words) for key, words in lines if words is not None))


def unless_once(
    machine: Machine, what: str, acknowledged: Iterable[tuple[str, str]], found: Counter[tuple[str, str]]
) -> Iterator[str]:
    """Yields acknowledged items that are missing, and all items that exist more than once."""
    yield from (f"{machine.name}: the {what} {key} is not there" for key in acknowledged if not found[key])
    yield from (f"{machine.name}: the {what} {key} is there {count} times" for key, count in found.items() if count > 1)


def differing(made: Machines) -> list[str]:
    """Files that are not the same on all machines, but for the hub's mark."""
    replicas = {name: dict(contents(machine)) for name, machine in made.members.items()}
    names: set[str] = set().union(*replicas.values())
    return [
        f"{name} differs: {[(machine, len(files.get(name, b''))) for machine, files in replicas.items()]}"
        for name in sorted(names)
        if len({files.get(name) for files in replicas.values()}) > 1
    ]


def contents(machine: Machine) -> Iterator[tuple[str, bytes]]:
    """Yields everything that all machines share, without machine-specific details."""
    base, workspace = machine.path, machine.services.workspace
    for path in files(machine):
        with suppress(FileNotFoundError):
            yield str(path.relative_to(base)), MARK.sub(b"", path.read_bytes())
    for path in (base / "tasks" / "_history").glob("*.jsonl"):
        lines = {line[NUMBER]: line for line in map(json.loads, path.read_bytes().splitlines())}
        yield f"history of {path.stem}", json.dumps(sorted(lines.items())).encode()
    yield from ((key, data) for key, data, _ in workspace.registry.shared_values())
    yield "settings", shared_settings(workspace)
    for path in (base / "audit").glob("*.jsonl"):
        day, _, other = path.stem.partition(".")
        yield f"audit of {other or machine.name} {day}", path.read_bytes()


def faults(made: Machines) -> list[str]:
    """Tracebacks in the relays' logs, except those that the hub's client logs before it connects again."""
    logs = {name: (machine.path / ".share" / "relay.log").read_text() for name, machine in made.members.items()}
    ours = {name: OF_THE_CLIENT.sub("", log) for name, log in logs.items()}
    return [f"{name}: {log[log.index('Traceback') :][:3000]}" for name, log in ours.items() if "Traceback" in log]


def aside(made: Machines) -> list[str]:
    """Quarantined files, except edits that lost to an earlier one of another machine."""
    reasons = [path for machine in made.members.values() for path in machine.path.rglob("quarantine/*.reason.txt")]
    return [f"{path}: {text}" for path in reasons if "another machine" not in (text := path.read_text())]
