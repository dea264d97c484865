"""Operations of a Python program: making a team, and reading in it (docs/python.md)."""

from __future__ import annotations

from collections.abc import Iterator

from multi_agent_mcp import Team
from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.config import session_names
from tests.crash.invariants import mail
from tests.crash.operations.judging import of_one_piece
from tests.crash.operations.mail import with_mail
from tests.crash.stage import Aftermath, Deed, Operation

AGENTS = {"owner": "owner", "admin": "admin", "worker-a": "worker"}


def create(deed: Deed) -> None:
    team = Team.create(deed.root, AGENTS, session="made")
    deed.acknowledge({"agents": list(team)})


def created(after: Aftermath) -> Iterator[str]:
    root = after.root / ".multi-agent-mcp"
    names = session_names(root)
    there = list(open_session(root, "made").agents.at_home()) if names else []
    yield from of_one_piece({name: there.count(name) for name in AGENTS}, acknowledged=after.answer is not None)
    if names and not (root / ".gitignore").exists():
        yield "git would take the keys of the new session"
    Team.create(after.root, AGENTS, session="next" if names else "made").close()
    left = [path.name for path in after.root.iterdir() if path != root]
    yield from (f"{name} is left in the project" for name in left)


def read(deed: Deed) -> None:
    worker = Team.open(deed.root, "demo", doorbell=False)["worker-a"]
    deed.acknowledge(worker.read_messages(limit=2))
    deed.acknowledge(worker.read_messages())


def handed_over(after: Aftermath) -> Iterator[str]:
    """What a call has returned does not come again. What none has is unread, but for the answer that was about to be
    returned."""
    read = {message.id: message.read_at is not None for message in mail(after.services, "worker-a")}
    first, second, third = after.told["ids"]
    answers = [[first, second], [third]]
    returned, to_come = answers[: len(after.answers)], answers[len(after.answers) + 1 :]
    yield from (f"message {name} is gone" for name in after.told["ids"] if name not in read)
    yield from (f"message {name} comes again" for answer in returned for name in answer if not read[name])
    yield from (f"message {name} was consumed" for answer in to_come for name in answer if read[name])


OPERATIONS = (
    Operation("team_create", create, created, bare=True),
    Operation("team_read", read, handed_over, with_mail),
)
