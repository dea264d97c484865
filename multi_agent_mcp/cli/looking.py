"""Commands that look at a session: `show`, `search`, `web`, and no command at all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from multi_agent_mcp.cli.agents import agent_facts
from multi_agent_mcp.cli.context import (
    SessionContext,
    indented,
    open_context,
    people_texts,
    print_error,
    print_line,
    print_lines,
    refuse,
    session_command,
    text_of,
)
from multi_agent_mcp.cli.mail import spoken_lines
from multi_agent_mcp.cli.next_step import next_command, waiting
from multi_agent_mcp.cli.rendering import (
    Styled,
    folded,
    is_terminal,
    local_time,
    local_words,
    short_id,
    status_words,
    subjects_words,
    together,
    words_of_code,
)
from multi_agent_mcp.config import find_root, no_session, read_environment, session_names, working_directory
from multi_agent_mcp.domain.entity import EPOCH, Entity, as_json
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.text import BOXES, columns, display_id, one_line
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import InvalidArguments, Refusal
from multi_agent_mcp.services.search import Found, Results, SearchQuery
from multi_agent_mcp.system.ownership import require_own, require_root_entered
from multi_agent_mcp.texts import Texts

if TYPE_CHECKING:
    from datetime import datetime

    from multi_agent_mcp.services.attention import Item
    from multi_agent_mcp.services.overview.snapshot import AgentRow, Snapshot

SECRETS = ("token_hash",)


@click.command()
@click.argument("id_", metavar="ID", help="Of anything, or its first digits; an agent's name, too.")
@session_command()
def show(context: SessionContext, id_: str) -> None:
    """Show a task, message, conversation, execution, notification … by its id, or by the first digits of it.

    Example: `multi-agent-mcp show 1a2b3c4d`
    """
    services = context.services
    agent = services.agents.all().get(id_)
    if agent is not None:
        facts = agent_facts(context, agent)
        said = facts | {"status": words_of_code("state.agent", agent.status, context.texts)}
        context.answer({"kind": "agent", "id": agent.id, "agent": facts}, field_lines(said, context.texts))
        return
    try:
        kind, place = services.lookup.find(id_)
    except InvalidArguments:
        if get_close_matches(id_, services.agents.all()):
            services.agents.get(id_)  # a name mistyped: the refusal says which may have been meant
        raise
    shown = services.session.features.shown(kind.name, as_json(place.entity))
    facts = {name: value for name, value in shown.items() if name not in SECRETS}
    path = str(place.path.relative_to(services.path))
    if isinstance(place.entity, Task):  # whoever may review it has seen what it delivers, as with `task show`
        services.shown_states.note(context.agent(None).id, [place.entity])
    lines = [*entity_lines(place.entity, context.texts, {"path": path}), *_further(context, kind.name, place.id)]
    context.answer({"kind": kind.name, "id": place.id, "path": path, kind.name: facts}, lines)


def _further(context: SessionContext, kind: str, id_: str) -> Iterator[str]:
    """Yields what a person wants to see with an entity: a conversation's messages, a task's commits."""
    service = context.services.conversations
    for task in context.services.board.existing([id_]) if kind == "task" else ():
        yield from commit_lines(context.services.contributions.ask("commits", task) or [], context.texts)
    if kind == "conversation":
        found = service.get(id_)
        spoken = [service.spoken(found, message) for message in service.messages_of(id_)]
        yield from ("", *(line for message in spoken for line in spoken_lines(message, context.texts)))


def commit_lines(commits: Sequence[Mapping[str, Any]], texts: Texts) -> Iterator[str]:
    """A task's commits."""
    if commits:
        yield from ("", texts("task.commits"))
    for one in commits:
        yield one_line(f"  {one['commit'][:10]}  {local_time(one['at'], texts)}  {one['subject']}")


APART = ("title", "subject", "history")
"""Fields that are not among the others: they are above or below them."""
UNSEEN = frozenset(
    {
        "signature",
        "traceparent",
        "intent_id",
        "interrupt_id",
        "approval_status",
        "message_id",
        "host_session",
        "pid_started_at",
        "extra",
    }
)
"""Fields that say nothing to a person: only a pipe gets them."""
CODES = {
    **dict.fromkeys(("status", "state"), "state"),
    **dict.fromkeys(("type", "message_type"), "type"),
    **dict.fromkeys(("purpose", "target_purpose"), "purpose"),
    **{name: name for name in ("priority", "action", "role")},
}
"""The fields whose values are codes, and the kind of each: see `words_of_code`."""
NEVER = format_time(EPOCH)
"""The time of what a file written by a person does not say."""
WIDTH = 26


def entity_lines(entity: Entity, texts: Texts, facts: dict[str, Any] | None = None) -> Iterator[str]:
    """Yields an entity for people: its fields, as far as it has them, then its title, its text and its history. `facts`
    are further fields."""
    fields = {name: value for name, value in as_json(entity).items() if name not in SECRETS}
    body = entity.BODY or ""
    known = {name: value for name, value in fields.items() if name not in (*APART, body)}
    title = fields.get("title") or fields.get("subject")
    if title and is_terminal():
        yield from (Styled(one_line(str(title)), "bold"), "")
    yield from field_lines(known | (facts or {}), texts)
    if title and not is_terminal():
        yield from ("", one_line(str(title)))
    if text := fields.get(body):
        yield from ("", *indented(str(text).rstrip("\n")))
    if history := fields.get("history"):
        yield ""
        yield from (_change(entry, texts) for entry in history)


def field_lines(fields: Mapping[str, Any], texts: Texts) -> Iterator[str]:
    """Yields the fields that have a value, one a line; in a terminal those that a person understands, in words."""
    shown = {name: value for name, value in fields.items() if value not in (None, "", [], {}, NEVER)}
    if not is_terminal():
        for name, value in shown.items():
            words = ", ".join(map(str, value)) if isinstance(value, list) and not _has_parts(value) else value
            yield f"{name + ':':{WIDTH}}{one_line(local_time(words, texts))}"
        return
    rows = [
        (texts.word("field", name) if first else "", words)
        for name, value in shown.items()
        if name not in UNSEEN
        for first, words in _said(name, value, texts)
    ]
    width = max((columns(label) for label, _ in rows), default=0) + 2
    for label, words in rows:
        yield f"{label}{' ' * (width - columns(label))}{words}"


def _said(name: str, value: Any, texts: Texts) -> Iterator[tuple[bool, str]]:
    """Yields a field's value in words, a checklist one item a line, and with each whether it is the first line."""
    is_list = isinstance(value, list) and all(isinstance(each, Mapping) and "completed" in each for each in value)
    for number, each in enumerate(value if is_list else [value]):
        yield number == 0, _words(name, each, texts)


def _words(name: str, value: Any, texts: Texts) -> str:
    """A field's value for a person: ids by their first digits, but its own, which may be passed on."""
    if isinstance(value, bool):
        return texts("answer.yes" if value else "answer.no")
    if isinstance(value, str) and name in CODES:
        return words_of_code(CODES[name], value, texts)
    if isinstance(value, Mapping):
        if isinstance(value.get("completed"), bool):  # an item of a checklist
            return f"{BOXES[value['completed']]} {one_line(str(value.get('text', '')))}"
        parts = ((key, each) for key, each in value.items() if each not in (None, "", [], {}))
        return ", ".join(f"{texts.word('field', key)} {_words(key, each, texts)}" for key, each in parts)
    if isinstance(value, list):
        return ", ".join(_words(name, each, texts) for each in value)
    said = one_line(local_time(value, texts))
    return said if name in ("id", "path", "log_file_path") else short_id(said)


def _has_parts(values: list[Any]) -> bool:
    return any(isinstance(value, (list, dict)) for value in values)


def _change(entry: Mapping[str, Any], texts: Texts) -> str:
    """A line of a history: when, who, and each field with its value before and after."""
    if is_terminal():
        known = {key: value for key, value in entry.items() if key not in ("at", "by", *UNSEEN)}
        facts = ", ".join(
            f"{texts.word('field', key)} {_arrow_words(key, value, texts)}" for key, value in known.items()
        )
    else:
        facts = ", ".join(f"{key} {_arrow(value)}" for key, value in entry.items() if key not in ("at", "by"))
    return one_line(f"{local_time(entry.get('at', '-'), texts)}  {display_id(str(entry.get('by', '-')))}: {facts}")


def _arrow_words(key: str, value: Any, texts: Texts) -> str:
    if isinstance(value, list):
        return " → ".join(_arrow_words(key, each, texts) for each in value)
    return "-" if value in (None, "") else _words(key, value, texts)


def _arrow(value: Any) -> str:
    if isinstance(value, list):
        return " → ".join(map(_arrow, value))
    return "-" if value in (None, "") else str(value).lower() if isinstance(value, bool) else str(value)


# `search`: finds words in mail, tasks, conversations and execution logs, archived ones included.

TOLD_EVERY = 500


@click.command()
@click.argument(
    "words",
    nargs=-1,
    required=True,
    help="All of them are looked for, each as part of any word; quote a phrase. "
    "`from:AGENT to:AGENT task:ID after:TIME before:TIME` among them narrow the search.",
)
@click.option("--limit", default=20, type=click.IntRange(1, 1_000), help="How many, the newest first.")
@click.option("--rebuild", is_flag=True, help="Recreate the index first. It is derived, so nothing is lost.")
@session_command()
def search(context: SessionContext, words: tuple[str, ...], limit: int, rebuild: bool) -> None:
    """Find words in messages, tasks, questions, conversations, hand-offs and the logs of executions.

    Example: `multi-agent-mcp search login from:admin`
    """
    query = SearchQuery.parse(map(text_of, words))
    service, texts = context.services.search, context.texts
    if rebuild:
        service.rebuild()
    with _progress(texts) as told:
        results = service.find(query, limit, told)
    answer = {"results": [found.as_answer() for found in results.found], "has_more": results.more}
    context.answer(answer, _hit_lines(results, texts))


def _hit_lines(results: Results, texts: Texts) -> Iterator[str]:
    if not results.found:
        yield texts("search.nothing")
    for found in results.found:
        at = local_time(format_time(found.at), texts)
        yield f"{at}  {texts.word('found', found.kind)}  {_between(found)}  {one_line(found.title)}"
        yield from indented(found.excerpt)
        yield from indented(found.path if found.line is None else f"{found.path}:{found.line}")
    if results.more:
        yield texts("search.more")


def _between(found: Found) -> str:
    """Returns sender and receiver, as far as known."""
    return " → ".join(display_id(name) for name in (found.sender_id, found.receiver_id) if name is not None)


@contextmanager
def _progress(texts: Texts) -> Iterator[Callable[[], None]]:
    """Yields a function that counts files read and shows the number on a terminal: the first search reads all."""
    count = 0

    def told() -> None:
        nonlocal count
        count += 1
        if count % TOLD_EVERY == 0 and sys.stderr.isatty():
            sys.stderr.write(f"\r{texts('search.reading', count=count)}")
            sys.stderr.flush()

    yield told
    if count >= TOLD_EVERY and sys.stderr.isatty():
        sys.stderr.write("\n")


# `multi-agent-mcp` without a command: the nearest session's state and the next command, or how to create a session.


def status() -> None:
    """Prints the state. Several sessions, none of them selected, are refused with their names."""
    root = find_root(read_environment().root, working_directory())
    try:
        require_root_entered(root)
        require_own(root)
    except Refusal as refusal:
        refuse(refusal)
    if not session_names(root):
        missing = no_session(root)
        if missing.key != "error.no_session_yet":
            refuse(missing)
        print_line(people_texts()("status.first_steps").rstrip("\n"))
        return
    with open_context(None, None) as context:
        seen = context.services.snapshots.take(messages=0)
        items = waiting(context)
        at_a_glance = context.services.glances.line(items)
        for line in chain([at_a_glance] if at_a_glance else [], lines(seen, items, context.texts)):
            print_lines(line)


WAITING_SHOWN = 5
TOLD_APART = frozenset({"mail"})
"""The kinds of items that have a line of their own."""


def lines(seen: Snapshot, items: Sequence[Item], texts: Texts) -> Iterator[str]:
    """Yields a few lines: running agents, unread mail, tasks, what waits and what helps, and the next command."""
    asking = {item.agent_id for item in items if item.dialog is not None or item.kind in ("dialog", "login")}
    running = [_running(row, seen.at, texts, asks=row.agent.id in asking) for row in seen.agents]
    yield texts(
        "status.agents", session=seen.session, count=len(seen.agents), running=_listed(filter(None, running), texts)
    )
    unread = (together(f"{row.agent.id} {row.unread}") for row in seen.agents if row.unread)
    yield texts("status.unread", agents=_listed(unread, texts))
    counts = (together(f"{status_words(status, texts)} {count}") for status, count in seen.counts.items() if count)
    yield texts("status.tasks", tasks=_listed(counts, texts))
    if rows := [item for item in items if item.kind not in TOLD_APART]:
        from multi_agent_mcp.cli.attention import attention_lines  # rich takes 40 ms to import
        from multi_agent_mcp.cli.watch import kind_alone

        groups = folded(rows, kind_alone)
        yield ""
        yield from attention_lines(groups[:WAITING_SHOWN], seen.at, texts)
        if (left := sum(map(len, groups[WAITING_SHOWN:]))) > 0:
            yield texts("status.more", count=left)
        yield ""
    yield texts("status.next", command=next_command(seen.agents, seen.counts, items))


def _running(row: AgentRow, now: datetime, texts: Texts, *, asks: bool) -> str | None:
    """Returns an agent whose program runs, with what keeps it from working; None for one that does not run."""
    if not (row.alive or asks):
        return None
    if asks:
        return texts("status.asks", agent_id=row.agent.id)
    if row.interrupts or row.pause:
        return texts("status.paused" if row.pause else "status.interrupted", agent_id=row.agent.id)
    if row.limit:
        until = local_words(row.limit.until, now, texts) if row.limit.until else row.limit.until_said
        return texts("status.limited", agent_id=row.agent.id, until=until)
    return row.agent.id


NAMED, ROOM = 6, 400
"""How many of many items are named in a line of free text, and how many columns that may take."""


def _listed(items: Iterable[str], texts: Texts) -> str:
    """The items with commas between them; a terminal gets the first few of many."""
    found = list(items)
    if is_terminal() and len(found) > NAMED + 1:
        return subjects_words(found, texts, named=NAMED, room=ROOM)
    return ", ".join(found) or "-"


# `web`: the Owner's console in a browser.


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="The port on 127.0.0.1; 0 is any free one (default: that of the last time, if it is free).",
)
@click.option("--open", "open_browser", is_flag=True, help="Open the link in your browser.")
@session_command(acting=True)
def web(context: SessionContext, port: int | None, open_browser: bool) -> None:
    """Show a session in a browser, live, until Ctrl-C: board, agents, messages, timeline.

    The link works once; the browser that opens it keeps a cookie. The server listens on this machine only.

    Example: `multi-agent-mcp web --open`
    """
    from multi_agent_mcp.web.link_page import LinkPage
    from multi_agent_mcp.web.serving import serve  # starlette and uvicorn are for this command alone

    page = LinkPage()

    def ready(link: str) -> None:
        context.answer({"url": link}, [link])
        sys.stdout.flush()  # a program that starts us waits for this line
        if open_browser:
            page.open(link, failed=lambda: print_error(context.texts("web.no_browser")))

    serve(context.services, port, context.acting, ready, spent=page.remove)
