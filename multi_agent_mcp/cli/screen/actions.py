"""What can be done about the row that is chosen: each action is a command, filled in but for what a person types."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import click

from multi_agent_mcp.cli.main import PROGRAM, app, commands_of
from multi_agent_mcp.domain.text import one_line

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.features import Features
    from multi_agent_mcp.services.attention import Item
    from multi_agent_mcp.services.overview.snapshot import AgentRow, MessageRow

TYPED = "\0"
"""The place in a command of what the person types; it is left out with its option if that is empty."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a row is about. `id` finds it again in the next picture; `is_merge`: of the task, what is to be merged;
    `listed`: the id of what a feature's table has there."""

    id: str
    agent: AgentRow | None = None
    task: Task | None = None
    message: MessageRow | None = None
    item: Item | None = None
    is_merge: bool = False
    listed: str | None = None

    @property
    def entity_id(self) -> str | None:
        """The id of what has a file of its own, if the row is about such a thing."""
        if self.task is not None:
            return self.task.id
        if self.message is not None:
            return self.message.id
        return self.listed if self.item is None else self.item.id


class KeyCommand(NamedTuple):
    """A command behind a key. `name` is its text `steer.{name}`; `asks`: what is typed has the text `steer.ask_{asks}`;
    `needs`: there is no command without it. `shown`: its key is on the last line. `takes_terminal`: it shows
    something by itself; `reads`: its output is what one wants."""

    key: str
    name: str
    words: tuple[str, ...]
    asks: str | None = None
    needs: bool = False
    shown: bool = True
    takes_terminal: bool = False
    reads: bool = False

    def filled(self, typed: str = "") -> list[str]:
        """The words of the command with what was typed."""
        words: list[str] = []
        for word in self.words:
            if word != TYPED:
                words.append(word)
            elif typed:
                # A word of a person must not pass for an option.
                words += [typed] if words[-1].startswith("--") or not typed.startswith("-") else ["--", typed]
            elif words[-1].startswith("--"):
                words.pop()
        return words


def command_line(words: Sequence[str]) -> str:
    """The command as a shell takes it, on one harmless line."""
    return one_line(shlex.join([PROGRAM, *words]))


def led(words: Sequence[str], given: Sequence[str]) -> list[str]:
    """A command with these options, which every command takes behind its name."""
    depth = 0
    command: click.Command = app
    context = click.Context(app)
    while given and isinstance(command, click.Group) and depth < len(words):
        below = command.get_command(context, words[depth])
        if below is None:
            break
        command, depth = below, depth + 1
    return [*words[:depth], *given, *words[depth:]]


def actions_of(subject: Subject | None, person: str | None, features: Features) -> list[KeyCommand]:
    """The actions of this person for what is chosen, as far as the features that are on have their commands; each key
    once."""
    if subject is None:
        return []
    known = {name for commands in commands_of(features).values() for name in commands}
    found: dict[str, KeyCommand] = {}
    for action in _actions(subject, person):
        command, below, *_ = *action.words, ""
        if command in known and below not in features.foreign("options", command):
            found.setdefault(action.key, action)
    return list(found.values())


def _actions(subject: Subject, person: str | None) -> Iterator[KeyCommand]:
    """All of them, the most specific first."""
    item, is_here = subject.item, subject.item is None or subject.item.machine is None
    own = [*_of_item(item)] if item is not None and is_here else []
    yield from own
    if (subject.listed or "").startswith("rsv_"):
        yield KeyCommand("e", "release", ("release", str(subject.listed)))
    if subject.is_merge and subject.task is not None:
        yield KeyCommand("m", "merge", ("workspace", "merge", subject.task.id))
    if subject.task is not None and is_here:
        yield from _of_task(subject.task)
    if subject.message is not None and subject.message.receiver_id == person:
        yield KeyCommand("s", "reply", ("reply", subject.message.id, TYPED), "message", needs=True)
    if subject.agent is not None and subject.agent.agent.id != person:
        yield from _of_agent(subject.agent)
    if item is not None and is_here and not own and subject.task is None and (words := _helping(item)):
        yield KeyCommand("h", "help", words, takes_terminal=words[0] == "attach", reads=True)
    yield KeyCommand("n", "new", ("task", "add", TYPED), "title", needs=True)


def _of_item(item: Item) -> Iterator[KeyCommand]:
    if item.approved:
        yield KeyCommand("h", "help", _helping(item), reads=True)
    if item.kind in ("paused", "budget"):
        yield KeyCommand("r", "resume", _helping(item))
    if item.kind in ("mail", "conversation") and item.id is not None:
        yield KeyCommand("s", "reply", ("reply", item.id, TYPED), "message", needs=True)
    if item.question is not None:
        for number, choice in enumerate(item.question.choices[:9], 1):
            apart = ("--",) if choice.startswith("-") else ()
            yield KeyCommand(str(number), "answer", ("answer", item.question.id, *apart, choice), shown=False)
        yield KeyCommand("a", "answer", ("answer", item.question.id, TYPED), "answer", needs=True)
    elif item.dialog is not None and item.agent_id is not None:
        words = ("answer", "--question", item.dialog.id, item.agent_id)
        for offered in item.dialog.choices:
            if offered.key.isdecimal():
                yield KeyCommand(offered.key, "answer", (*words, offered.key), shown=False)
        yield KeyCommand("a", "answer", (*words, TYPED), "answer", needs=True)


def _of_task(task: Task) -> Iterator[KeyCommand]:
    state = ("--state", str(head)) if (head := (task.delivery or {}).get("head")) else ()
    if task.status == "review" or task.approval_status == "pending":
        yield KeyCommand("y", "approve", ("task", "approve", *state, task.id))
        yield KeyCommand("x", "reject", ("task", "reject", *state, "--reason", TYPED, task.id), "reason")
    if task.assignee_id is not None and task.status not in ("backlog", "todo"):
        yield KeyCommand("d", "diff", ("task", "diff", task.id), reads=True)
    if task.status == "blocked":
        yield KeyCommand("b", "unblock", ("task", "status", task.id, "todo"))
    elif task.approval_status != "pending" and not task.final:
        yield KeyCommand("b", "block", ("task", "status", "--reason", TYPED, task.id, "blocked"), "reason")
    if not task.final:
        yield KeyCommand("g", "assign", ("task", "assign", task.id, TYPED), "agent", needs=True)


def _of_agent(row: AgentRow) -> Iterator[KeyCommand]:
    agent_id = row.agent.id
    yield KeyCommand("s", "send", ("send", agent_id, TYPED), "message", needs=True)
    if row.agent.may_be_human:
        return
    if row.task is not None and not row.interrupts:
        yield KeyCommand("b", "block", ("interrupt", "--reason", TYPED, agent_id), "reason")
    if row.pause is None:
        yield KeyCommand("p", "pause", ("interrupt", "--action", "pause", "--reason", TYPED, agent_id), "reason")
    else:
        yield KeyCommand("r", "resume", ("resume", agent_id))
    if row.agent.pane_id is not None:
        yield KeyCommand("t", "attach", ("attach", agent_id), takes_terminal=True)
    yield KeyCommand("c", "talk", ("conversation", "start", agent_id, TYPED), "message", needs=True, shown=False)


def _helping(item: Item) -> tuple[str, ...]:
    """The words of the item's own command, if it is one of ours, complete as it is."""
    try:
        program, *words = shlex.split(item.command)
    except ValueError:
        return ()
    return tuple(words) if program == PROGRAM and words and "…" not in item.command else ()
