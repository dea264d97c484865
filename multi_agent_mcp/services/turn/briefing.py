"""The briefing: what an agent has to know to go on after its host has forgotten it, by a compaction, `/clear` or a
restart (docs/protocol.md, Briefing). It is one view of the snapshot that `watch` and the dashboard show. Features add
sections to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from multi_agent_mcp.domain.agent import ROLES, superiors
from multi_agent_mcp.domain.entity import age
from multi_agent_mcp.domain.text import quoted, quoted_lines
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.domain.message import Conversation, Delegation
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.chat.delegations import Delegations
    from multi_agent_mcp.services.overview.snapshot import AgentRow, Snapshots
    from multi_agent_mcp.services.sessions.session_records import HandOffs, Kept
    from multi_agent_mcp.services.team.agents import Signatures


T = TypeVar("T")
BRIEFING_CHARACTERS = 1_500
HAND_OFF_SHOWN, HAND_OFF_MOST = 600, 700
"""The characters of a hand-off that are shown; and with the mark before each of its lines, which may be many."""
PATH_SHOWN = 250
"""The longest absolute path of a hand-off; a longer one is shown from the root's directory on."""
TITLE_CHARACTERS, ITEM_CHARACTERS, REASON_CHARACTERS = 100, 60, 80
_BRACKETS = str.maketrans("()（）", "[][]")
LINES_SHOWN = 4
"""The items of a checklist, the conversations and so on that a section names; of more it gives the number."""


@dataclass(frozen=True, kw_only=True)
class Holds:
    """What one agent holds at a moment: its `row` of the snapshot (its task in progress, its pause, its unread mail),
    what else of its work is open, and the hand-off with which it goes on."""

    row: AgentRow
    purpose: str
    superior_id: str | None
    notices: int
    blocked: Sequence[Task]
    waiting: Sequence[Task]
    given: Sequence[Task]
    conversations: Sequence[Conversation]
    delegations: Sequence[Delegation]
    hand_off: Kept | None

    @property
    def has_work(self) -> bool:
        """Whether there is anything to go on with."""
        return bool(
            self.row.task
            or self.row.pause
            or self.blocked
            or self.conversations
            or self.delegations
            or self.given
            or self.hand_off
        )

    @property
    def has_to_act(self) -> bool:
        """Whether it is this agent's turn, so that it is to be woken."""
        waits = (self.row.unread, self.notices, self.waiting, self.conversations, self.delegations)
        return self.row.task is not None or any(waits)


@dataclass(eq=False)
class Briefings(Service):
    """Briefs the agents of one team. The sections of the features are between the task and the mail."""

    snapshots: Snapshots
    delegations: Delegations
    hand_offs: HandOffs
    signatures: Signatures

    def holds(self, agent_id: str, purpose: str = "task") -> Holds:
        """What the agent holds now. Raises `AgentNotFound`."""
        row = self._with_task_in_hand(self.snapshots.agent(agent_id))
        mine = sorted(self.workspace.tasks.open(agent_id), key=age)
        talks = sorted((item for item in self.workspace.conversations.open() if item.has(agent_id)), key=age)
        unread = (notice for _, notice in self.workspace.notices(agent_id).unread())
        return Holds(
            row=row,
            purpose=purpose,
            superior_id=self._superior(agent_id),
            notices=sum(1 for notice in unread if notice.meant_for(purpose)),
            blocked=[task for task in mine if task.status == "blocked"],
            waiting=[task for task in mine if task.status == "todo"],
            given=[task for task in self.workspace.tasks.open() if _is_under_way(task, agent_id)],
            conversations=talks,
            delegations=self.delegations.unstarted(agent_id),
            hand_off=self.hand_offs.current(agent_id, row.task),
        )

    def text(self, holds: Holds, *, go_on: str = "hook") -> str:
        """The briefing, at most `BRIEFING_CHARACTERS`. `go_on` says by what it reaches the agent: a `hook`, or the
        `answer` of `get_next_action`, which says what to do next. Who it is, its hand-off and how to go on are whole;
        the other sections are cut, the longest first, where there is no room for all."""
        first, hand_off = self._identity(holds), self._hand_off(holds)
        nothing = go_on == "hook" and not holds.has_work
        last = self.texts("briefing.nothing_begun" if nothing else f"briefing.go_on.{go_on}")
        kept = [part for part in (first, hand_off, last) if part]
        room = BRIEFING_CHARACTERS - sum(len(part) + 1 for part in kept)
        middle = _fitted([part for part in self._between(holds) if part], room)
        return "\n".join(part for part in (first, *middle, hand_off, last) if part)

    def of(self, agent_id: str, purpose: str = "task", *, go_on: str = "hook") -> str:
        """The briefing of an agent. Raises `AgentNotFound`."""
        return self.text(self.holds(agent_id, purpose), go_on=go_on)

    def _between(self, holds: Holds) -> Iterator[str | None]:
        yield from (self._task(holds), self._stopped(holds), self._given(holds))
        yield from self.contributions.each("briefing", holds.row.agent, holds.row.task)
        yield from (self._talks(holds), self._unread(holds))

    # The sections

    def _identity(self, holds: Holds) -> str:
        agent = holds.row.agent
        superior = holds.superior_id or self.texts("prompt.nobody")
        role = agent.role if agent.role in ROLES else "worker"
        who = self.texts("prompt.who", agent_id=agent.id, session=self.workspace.session, role=role, superior=superior)
        return self.texts("briefing.chat", who=who) if holds.purpose == "chat" else who

    def _task(self, holds: Holds) -> str | None:
        if (task := holds.row.task) is None:
            count = len(holds.waiting)
            return self.texts("briefing.waiting", count=count) if count else self.texts("briefing.no_task")
        task = self.hand_offs.as_reported(holds.row.agent.id, task)
        facts = {"task_id": task.id, "title": quoted(task.title, TITLE_CHARACTERS), "status": task.status}
        by = self._with_authority(task.given_by, holds)
        lines = [self.texts("briefing.task", **facts, progress=task.progress, by=by)]
        items = [item for item in task.checklist if isinstance(item, Mapping)]
        still_open = [item for item in items if not item.get("completed")]
        lines += self._listed(still_open, self._item_line)
        return "\n".join(lines)

    def _item_line(self, item: Mapping[str, Any]) -> str:
        return f"- [ ] {quoted(str(item.get('text', '')), ITEM_CHARACTERS)}"

    def _stopped(self, holds: Holds) -> str | None:
        lines = []
        if (pause := holds.row.pause) is not None:
            reason = _because(pause.reason)
            lines.append(self.texts("briefing.paused", by=pause.sender_id or "system", reason=reason))
        lines += self._listed(holds.blocked, self._blocked_line)
        return "\n".join(lines) or None

    def _blocked_line(self, task: Task) -> str:
        reason = _because(task.blocked_reason)
        title = quoted(task.title, ITEM_CHARACTERS)
        return self.texts("briefing.blocked", task_id=task.id, title=title, reason=reason)

    def _given(self, holds: Holds) -> str | None:
        return "\n".join(self._listed(holds.given, self._given_line)) or None

    def _given_line(self, task: Task) -> str:
        facts = {"assignee_id": task.assignee_id, "status": task.status, "title": quoted(task.title, ITEM_CHARACTERS)}
        return self.texts("briefing.given", task_id=task.id, **facts)

    def _talks(self, holds: Holds) -> str | None:
        lines = [*self._listed(holds.conversations, lambda item: self._conversation_line(holds, item))]
        lines += self._listed(holds.delegations, self._delegation_line)
        return "\n".join(lines) or None

    def _conversation_line(self, holds: Holds, item: Conversation) -> str:
        other = item.target_agent_id if item.initiator_id == holds.row.agent.id else item.initiator_id
        facts = {"conversation_id": item.id, "by": self._with_authority(other, holds), "status": item.status}
        return self.texts("briefing.conversation", **facts, purpose=quoted(item.purpose or "-", ITEM_CHARACTERS))

    def _delegation_line(self, item: Delegation) -> str:
        purpose = quoted(item.purpose, ITEM_CHARACTERS)
        return self.texts("briefing.delegation", agent_id=item.target_agent_id, purpose=purpose)

    def _unread(self, holds: Holds) -> str | None:
        if not (holds.row.unread or holds.notices):
            return None
        return self.texts("briefing.unread", messages=holds.row.unread, notifications=holds.notices)

    def _hand_off(self, holds: Holds) -> str | None:
        if holds.hand_off is None:
            return None
        item, path = holds.hand_off
        place = str(path.absolute())
        if len(place) > PATH_SHOWN:
            place = str(path.relative_to(self.workspace.root.parent))
        shown = item.content[:HAND_OFF_SHOWN].rstrip()
        content = quoted_lines(shown if len(item.content) <= HAND_OFF_SHOWN else f"{shown}…", HAND_OFF_MOST)
        by = "own" if item.agent_id == holds.row.agent.id else "other"
        author = self._with_authority(item.agent_id, holds)
        return self.texts(f"briefing.hand_off.{by}", by=author, path=place, content=content)

    def _with_authority(self, agent_id: str, holds: Holds) -> str:
        """An agent, and what it is to the one that is briefed."""
        standing = self.signatures.standing(agent_id, holds.row.agent.id)
        return self.texts(f"authority.{standing}", agent_id=agent_id)

    def _listed(self, items: Sequence[T], line: Callable[[T], str]) -> Iterator[str]:
        """The first items, one line each, and how many more there are."""
        yield from map(line, items[:LINES_SHOWN])
        if len(items) > LINES_SHOWN:
            yield self.texts("briefing.more", count=len(items) - LINES_SHOWN)

    def _with_task_in_hand(self, row: AgentRow) -> AgentRow:
        """The row with the task that a running session of the agent works on, rather than another one in progress."""
        bound = {session.task_id for session in row.running}
        in_progress = self.workspace.tasks.in_progress(row.agent.id)
        return replace(row, task=next((task for task in in_progress if task.id in bound), row.task))

    def _superior(self, agent_id: str) -> str | None:
        try:
            return next((superior.id for superior in superiors(agent_id, self.workspace.registry.all())), None)
        except Refusal:  # a broken hierarchy
            return None


def _is_under_way(task: Task, agent_id: str) -> bool:
    return task.given_away_by(agent_id) and task.status in ("todo", "in_progress", "blocked")


def _because(reason: str | None) -> str:
    """Another's reason in the brackets that follow a sentence of ours, which no bracket of its own can close."""
    return f" ({quoted(reason.translate(_BRACKETS), REASON_CHARACTERS)})" if reason else ""


def _fitted(parts: Sequence[str], room: int) -> list[str]:
    """The parts, of which the longest are cut to one length so that all fit into so many characters."""
    wanted = sorted(len(part) + 1 for part in parts)
    longest = room
    for place, length in enumerate(wanted):
        longest = room // (len(wanted) - place)
        if length > longest:
            break
        room -= length
    else:
        return list(parts)
    return [part if len(part) < longest else f"{part[: max(longest - 2, 0)].rstrip()}…" for part in parts]
