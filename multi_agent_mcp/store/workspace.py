"""The directory tree of one session: the places of its files (docs/format.md, The tree).

What a collection consists of is imported on its first use: most commands look at few of them, and making the classes of
all entities takes longer than reading a mailbox.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from multi_agent_mcp.config import require_utf8
from multi_agent_mcp.domain.agent import PURPOSES, Agent, AgentSession, Execution, HandOff, OwnerWait
from multi_agent_mcp.domain.entity import AgentId, Readable, SessionName, age, differing_in_case, is_name
from multi_agent_mcp.domain.entity import agent_id as parse_agent_id
from multi_agent_mcp.domain.message import Conversation, Delegation, Message, reading_order, without_content
from multi_agent_mcp.errors import (
    AlreadyExists,
    ConversationNotFound,
    DelegationNotFound,
    ExecutionNotFound,
    InvalidArguments,
    InvalidId,
    InvalidSession,
    QuestionNotFound,
    TaskNotFound,
)
from multi_agent_mcp.features import load
from multi_agent_mcp.store.archive import Archive, FinishedMonth
from multi_agent_mcp.store.authority import ALONE, Authority
from multi_agent_mcp.store.collection import Collection
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.inbox import Inbox, Standing
from multi_agent_mcp.store.locks import serving_lock
from multi_agent_mcp.store.partition import WHOLE, Layout, Partition
from multi_agent_mcp.store.records import (
    SHARE,
    AuditLog,
    Conflicts,
    DeliveryLog,
    Intents,
    KeyFile,
    Record,
    RelayState,
    TravelLog,
)
from multi_agent_mcp.store.registry import Registry
from multi_agent_mcp.system.files import make_directories, make_directory, storage_errors, write_new
from multi_agent_mcp.system.ownership import require_entered, require_own

if TYPE_CHECKING:
    from multi_agent_mcp.domain.notification import Notification
    from multi_agent_mcp.domain.proof import Receipt
    from multi_agent_mcp.domain.question import Question
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.features import Kind
    from multi_agent_mcp.store.shared_collection import SharedCollection, Tasks

    Notices = Inbox[Notification]

CONVERSATION = "conversation.md"

R = TypeVar("R", bound=Readable)
Mailbox = Inbox[Message]


def _layout(kind: Kind) -> Layout[Any]:
    """The layout of a kind of another package."""
    return Layout(
        entity_type=load(kind.entity),
        partition=lambda _: WHOLE,
        missing=lambda entity_id: InvalidArguments("nothing_with_id", id=entity_id),
        flat=True,
        prefix=kind.prefix,
        over=lambda entity: getattr(entity, "over", ""),
        order=age,
    )


class Workspace:
    """The directory of one session, `{root}/{session_id}/`. Sub-directories are made with their first file."""

    def __init__(self, root: Path, session: SessionName, authority: Authority = ALONE) -> None:
        self.root = root
        self.authority = authority
        self.session = session
        self.path = root / session
        self.files = Files(self.path)
        self.locks = self.files.locks
        self._mailboxes: dict[str, Mailbox] = {}
        self._notices: dict[str, Notices] = {}
        self._keys: dict[str, KeyFile] = {}
        self._delivery_logs: dict[str, DeliveryLog] = {}
        self._hand_offs: dict[str, Partition[HandOff]] = {}
        self._collections: dict[str, Collection[Any]] = {}

    @property
    def settings_path(self) -> Path:
        return self.path / "session.yaml"

    @property
    def dashboard_path(self) -> Path:
        return self.path / "dashboard" / "dashboard.md"

    def is_here(self, agent: Agent) -> bool:
        """Returns whether this machine is the agent's home, with its server, its pane and its key."""
        return self.authority.here is None or agent.machine in (None, self.authority.here)

    def elsewhere(self, agent: Agent | None) -> str | None:
        """Returns the name of the agent's home if it is another machine; None for this machine or an unknown agent."""
        return None if agent is None or self.is_here(agent) else agent.machine

    def key_path(self, agent_id: AgentId | str) -> Path:
        return self.path / "secrets" / f"{agent_id}.key"

    def key(self, agent_id: AgentId | str) -> KeyFile:
        """Returns the file of an agent's own key."""
        if agent_id not in self._keys:
            self._keys[agent_id] = KeyFile(self.files, self.key_path(agent_id))
        return self._keys[agent_id]

    def make(self) -> None:
        """Makes the session's directory. Raises `AlreadyExists` for a name that differs from that of another session
        only in case, `UntrustedSession` for a directory of somebody else, and `InvalidArguments` for a root that is not
        UTF-8."""
        self.require_possible()
        with storage_errors(self.path):
            make_directory(self.root)
            make_directory(self.path)

    def require_possible(self) -> None:
        """Raises as `make`, which makes nothing then."""
        require_utf8(self.root)
        require_entered(self.root, self.path)
        require_own(self.root, self.path)
        with storage_errors(self.path), suppress(FileNotFoundError):
            if (other := differing_in_case(self.session, os.listdir(self.root))) is not None:  # noqa: PTH208
                raise AlreadyExists("differs_in_case", name=self.session, known=other)

    def keep_out_of_git(self) -> None:
        """Makes git ignore the root, which contains keys. An existing `.gitignore` is kept, and a root that contains
        anything but sessions (`--root .`) gets none, as it would hide the rest."""
        with storage_errors(self.root):
            if all((item / "session.yaml").is_file() or item.name == "hosts" for item in self.root.iterdir()):
                with suppress(FileExistsError):
                    write_new(self.root / ".gitignore", b"*\n")

    def mailbox(self, agent_id: AgentId | str) -> Mailbox:
        """Returns the mailbox of an agent. Raises `InvalidId`, as a hand-written file may have any id."""
        if agent_id not in self._mailboxes:
            path = self.path / "ipc" / parse_agent_id(agent_id)
            kept = {"indexed": without_content, "order": reading_order}
            self._mailboxes[agent_id] = self._inbox(path, Message, f"mailbox-{agent_id}", **kept, receiver_id=agent_id)
        return self._mailboxes[agent_id]

    def notices(self, agent_id: AgentId | str) -> Notices:
        """Returns the notifications of an agent; raises as `mailbox`."""
        if agent_id not in self._notices:
            from multi_agent_mcp.domain.notification import Notification, pressing_order

            path = self.path / "notifications" / parse_agent_id(agent_id)
            lock = f"notifications-{agent_id}"
            pauses = Standing[Notification](
                stays=lambda notice: notice.action == "pause",
                ends=lambda notice: notice.action == "resume",
            )
            kept = {"standing": pauses, "order": pressing_order}
            self._notices[agent_id] = self._inbox(path, Notification, lock, **kept, target_agent_id=agent_id)
        return self._notices[agent_id]

    def unread_count(self, agent_id: AgentId | str) -> int:
        """Returns the number of an agent's unread messages and notifications."""
        return len(self.mailbox(agent_id).unread()) + len(self.notices(agent_id).unread())

    def _inbox(self, path: Path, entity_type: type[R], lock: str, **options: Any) -> Inbox[R]:
        return Inbox(
            self.files,
            path,
            entity_type,
            lock=lock,
            handed_out=partial(self._handed_out, path.name),
            is_foreign=partial(self._is_foreign, path.name),
            keeps_names=self.authority.here is not None,
            **options,
        )

    def _handed_out(self, agent_id: str) -> frozenset[str]:
        """Returns the references of the files that were handed to the agent's sessions and are not confirmed."""
        return frozenset(held for session in self.sessions.open(agent_id) for held in session.unconfirmed)

    def _is_foreign(self, agent_id: str) -> bool:
        return self.authority.here is not None and self.elsewhere(self.registry.all().get(agent_id)) is not None

    def served_purposes(self, agent_id: AgentId | str) -> set[str]:
        """Returns the purposes of the agent's living servers on this machine, which ring for it, also between a logout
        and the next call. Its host lives if there is any."""
        return {purpose for purpose in PURPOSES if self.locks.is_held(serving_lock(agent_id, purpose))}

    def make_inboxes(self, *agent_ids: AgentId | str) -> None:
        """Makes the directories of new agents' inboxes, so that `cp note.md …/ipc/{agent}/` works at once."""
        inboxes = [inbox(agent_id).path for inbox in (self.mailbox, self.notices) for agent_id in agent_ids]
        with storage_errors(next(iter(agent_ids), self.path)):
            make_directories(inboxes, within=self.path)

    @contextmanager
    def room_for(self, agent_id: AgentId | str) -> Iterator[str]:
        """Makes the key and inboxes of a new agent, and removes them if its registration raises within the context.
        Yields the key; an agent that is registered again keeps its own."""
        key = self.key(agent_id)
        had_key = key.read() is not None
        fresh = [inbox.path for inbox in (self.mailbox(agent_id), self.notices(agent_id)) if not inbox.path.exists()]
        try:
            secret = key.ensure()
            self.make_inboxes(agent_id)
            yield secret
        except BaseException:
            for path in fresh:
                self.files.remove_directory(path)
            if not had_key and self.authority.here is None:  # else the hub may know it, and the next attempt needs it
                key.remove()
            raise

    @cached_property
    def registry(self) -> Registry:
        return Registry(self.files, self.path / "agents.json", self.authority)

    @cached_property
    def intents(self) -> Intents:
        return Intents(self.files, self.path / ".intents")

    @cached_property
    def tasks(self) -> Tasks:
        from multi_agent_mcp.domain.task import UNASSIGNED, Task, status_order
        from multi_agent_mcp.store.shared_collection import Tasks

        layout = Layout(
            entity_type=Task,
            partition=lambda task: task.assignee_id or UNASSIGNED,
            missing=lambda task_id: TaskNotFound(task_id=task_id),
            prefix="tsk",
            over=lambda task: task.status if task.final else "",
            group=lambda task: task.parent_task_id or "",
            order=status_order,
            by_id=True,
            may_leave=self._has_told,
        )
        return Tasks(self.files, self.path / "tasks", layout, self.authority, "tsk")

    def collection(self, kind: Kind) -> Collection[Any]:
        """The collection of a kind of entities. Those of another package are in the kind's directory, each named by its
        id; one that says that it is `over`, and as what, is in the archive."""
        if not kind.entity and not kind.layout:
            found: Collection[Any] = getattr(self, kind.directory)
            return found
        if kind.directory not in self._collections:
            layout: Layout[Any] = load(kind.layout)() if kind.layout else _layout(kind)
            self._collections.setdefault(kind.directory, self._made(kind, layout))
        return self._collections[kind.directory]

    def _made(self, kind: Kind, layout: Layout[Any]) -> Collection[Any]:
        if kind.travels != "shared":
            return Collection(self.files, self.path / kind.directory, layout)
        from multi_agent_mcp.store.shared_collection import SharedCollection

        return SharedCollection(self.files, self.path / kind.directory, layout, self.authority, kind.prefix)

    def _has_told(self, task: Task) -> bool:
        """Returns whether the agent that a task's end concerns, if any, has its notification: until then the task stays
        where the next reader, who writes it, looks. An announcement that is unread yet may be read at this moment."""
        from multi_agent_mcp.domain.notification import announcements, interrupt_of, owed_withdrawal, withdrawal_of

        agent_id = task.assignee_id
        if agent_id is None or not is_name(agent_id):  # a hand-written file may name anything
            return True
        if (notice := interrupt_of(task)) is not None and not self.notices(notice.target_agent_id).has(notice):
            return False
        if withdrawal_of(task) is None or self.elsewhere(self.registry.all().get(agent_id)) is not None:
            return True
        inbox = self.notices(agent_id)
        owed = owed_withdrawal(task, lambda notice_id: (found := inbox.find(notice_id)) and found[1])
        return inbox.has(owed) if owed is not None else not inbox.any_unread(frozenset(announcements(task)))

    @cached_property
    def sessions(self) -> Collection[AgentSession]:
        layout = Layout(
            entity_type=AgentSession,
            partition=lambda session: session.agent_id,
            partition_field="agent_id",
            missing=lambda _: InvalidSession(),
            over=lambda session: session.state if session.ended_at is not None else "",
        )
        return Collection(self.files, self.path / "sessions", layout)

    @cached_property
    def delegations(self) -> SharedCollection[Delegation]:
        from multi_agent_mcp.store.shared_collection import SharedCollection

        layout = Layout(  # over with their conversation: `Workspace.retire_delegations`
            entity_type=Delegation,
            partition=lambda delegation: delegation.agent_id,
            partition_field="agent_id",
            missing=lambda delegation_id: DelegationNotFound(delegation_id=delegation_id),
            prefix="dlg",
        )
        return SharedCollection(self.files, self.path / "delegations", layout, self.authority, "dlg")

    @cached_property
    def conversations(self) -> SharedCollection[Conversation]:
        """The conversations, each in its own directory with its messages: `conversations/{id}/conversation.md`."""
        from multi_agent_mcp.store.shared_collection import SharedCollection

        layout = Layout(
            entity_type=Conversation,
            partition=lambda _: WHOLE,
            missing=lambda conversation_id: ConversationNotFound(conversation_id=conversation_id),
            file_name=CONVERSATION,
            over=lambda conversation: "ended" if conversation.status == "ended" else "",
        )
        return SharedCollection(self.files, self.path / "conversations", layout, self.authority, "cnv")

    def conversation_messages(self, conversation_id: str) -> Directory[Message]:
        """Returns the messages of a conversation, beside its own file."""
        located = self.conversations.locate(conversation_id)
        place = located.directory.path if located is not None else self.conversations.base
        return Directory(self.files, place / conversation_id, Message, named=CONVERSATION.__ne__)

    def retire_delegations(self, agent_id: str) -> None:
        """Moves the agent's delegations whose conversation has ended to the archive."""
        for delegation in self.delegations.open(agent_id):
            self.retire_delegation(delegation)

    def retire_delegation(self, delegation: Delegation) -> None:
        talk = self.conversations.find(delegation.reserved_id) if delegation.reserved_id is not None else None
        if talk is not None and talk.status == "ended":
            self.delegations.retire(delegation.id)

    @cached_property
    def questions(self) -> SharedCollection[Question]:
        from multi_agent_mcp.domain.question import Question, asking_order
        from multi_agent_mcp.store.shared_collection import SharedCollection

        layout = Layout(
            entity_type=Question,
            partition=lambda _: WHOLE,
            missing=lambda question_id: QuestionNotFound(question_id=question_id),
            prefix="qst",
            flat=True,
            over=lambda question: question.status if question.closed else "",
            group=lambda question: question.task_id or "",
            order=asking_order,
            may_leave=self._has_told_answer,
        )
        return SharedCollection(self.files, self.path / "questions", layout, self.authority, "qst")

    def _has_told_answer(self, question: Question) -> bool:
        """As `_has_told`, for a closed question and its asker; another machine's agents are notified there. And its
        task must be back: else whoever is killed in between leaves it parked for ever."""
        from multi_agent_mcp.domain.question import answered_notice, is_parked_by

        task = self.tasks.find(question.task_id) if question.park and question.task_id is not None else None
        if task is not None and is_parked_by(task, question):
            return False
        notice = answered_notice(question) if is_name(question.asker_id) else None
        if notice is None or self.elsewhere(self.registry.all().get(question.asker_id)) is not None:
            return True
        return self.notices(notice.target_agent_id).has(notice)

    @cached_property
    def executions(self) -> Collection[Execution]:
        layout = Layout(
            entity_type=Execution,
            partition=lambda execution: execution.agent_id,
            partition_field="agent_id",
            missing=lambda execution_id: ExecutionNotFound(execution_id=execution_id),
            over=lambda execution: "" if execution.running else execution.status,
            group=lambda execution: execution.task_id or "",
        )
        return Collection(self.files, self.path / "executions", layout)

    @cached_property
    def receipts(self) -> Collection[Receipt]:
        """The receipts of checks, by task."""
        from multi_agent_mcp.domain.proof import Receipt

        layout = Layout(
            entity_type=Receipt,
            partition=lambda receipt: receipt.task_id,
            partition_field="task_id",
            missing=lambda receipt_id: InvalidId("invalid_entity_id", value=receipt_id, prefix="rcp"),
        )
        return Collection(self.files, self.path / "receipts", layout)

    def working_directory(self, agent_id: str) -> Record:
        """The record of the directory in which the agent's checks last ran, on this machine."""
        return Record(self.files, self.path / ".checks" / f"{agent_id}.json")

    @property
    def approval(self) -> Record:
        """The record of what a person has approved of the settings."""
        return Record(self.files, self.path / "approved.json")

    @property
    def last_approval(self) -> Record:
        """The same once more: it stays when the other is deleted, spoilt or put back."""
        return Record(self.files, self.path / ".checks" / "approved" / "last.json")

    def reviews_shown(self, agent_id: str) -> Record:
        """The record of what tasks delivered when the agent was last asked to review them, on this machine."""
        return Record(self.files, self.path / ".checks" / "reviews" / f"{agent_id}.json")

    def execution_log(self, execution: Execution) -> Path:
        """Returns the path of an execution's log, which is beside its file, whatever path that file names."""
        partition = self.executions.directory(execution.agent_id).path
        return partition / "logs" / f"{execution.id}.log"

    def hand_offs(self, agent_id: AgentId | str) -> Partition[HandOff]:
        """Returns the hand-offs of an agent: those that count, and the archive of the others. Raises `InvalidId`."""
        if agent_id not in self._hand_offs:
            path = self.path / "handoffs" / parse_agent_id(agent_id)
            kept: dict[str, Any] = {"order": age, "place": {"agent_id": str(agent_id)}}
            lock = f"archive-handoffs-{agent_id}"
            rated: Callable[[HandOff], tuple[str, str]] = lambda item: (item.kind, item.task_id or "")  # noqa: E731
            made = partial(FinishedMonth, self.files, entity_type=HandOff, lock=lock, rated=rated, **kept)
            home = Directory(self.files, path, HandOff, **kept)
            layout = Layout(  # over when there is a newer one, or with their task: `HandOffs.archive_older`
                entity_type=HandOff,
                partition=lambda hand_off: hand_off.agent_id,
                missing=lambda hand_off_id: InvalidId(value=hand_off_id),
                group=lambda hand_off: hand_off.task_id or "",
                order=age,
            )
            self._hand_offs[agent_id] = Partition(home, Archive(path, lock, made), layout)
        return self._hand_offs[agent_id]

    @cached_property
    def owner_waits(self) -> Directory[OwnerWait]:
        return Directory(self.files, self.path / "owner_wait", OwnerWait)

    @cached_property
    def released_waits(self) -> Directory[OwnerWait]:
        return Directory(self.files, self.path / "owner_wait" / "archive", OwnerWait)

    @cached_property
    def relay_state(self) -> RelayState:
        """The state last recorded by this machine's relay."""
        return RelayState(self.files)

    @cached_property
    def travel_log(self) -> TravelLog:
        """The log of mail sent to other machines through the hub, and received from them."""
        return TravelLog(self.files, self.path / SHARE / "travel.jsonl")

    @cached_property
    def conflicts(self) -> Conflicts:
        """Edits by people that conflict with an earlier change by another machine."""
        return Conflicts(self.files)

    def window(self, agent_id: str, purpose: str) -> Record:
        """Returns the record of the window that `up` or the supervisor opened for an agent's session."""
        return Record(self.files, self.path / ".supervisor" / f"{agent_id}-{purpose}.json")

    @property
    def supervision(self) -> Record:
        """The record of the process that supervises this session."""
        return Record(self.files, self.path / ".supervisor" / "running.json")

    @property
    def refused_conversations(self) -> Record:
        """The record of the conversations that hosts have refused to continue."""
        return Record(self.files, self.path / ".supervisor" / "refused.json")

    @property
    def told_versions(self) -> Record:
        """The record of the versions of hosts that `up` has named as newer than their profiles."""
        return Record(self.files, self.path / ".supervisor" / "versions.json")

    @property
    def pane_looks(self) -> Record:
        """The record of the agents' panes as the supervisor last saw them."""
        return Record(self.files, self.path / ".supervisor" / "panes.json")

    @property
    def console_port(self) -> Record:
        """The console's last port, kept so that a browser that has installed its page finds it again."""
        return Record(self.files, self.path / ".console" / "port.json")

    def listed_dialogs(self, agent_id: str) -> Record:
        """The record of the dialogs that were listed to this person."""
        return Record(self.files, self.path / ".listed" / f"{agent_id}.json")

    def hook_state(self, agent_id: str, purpose: str) -> Record:
        """The state of `hook` for an agent's session of this purpose (`hooks/first_look.py`)."""
        name = agent_id if purpose == "task" else f"{agent_id}.{purpose}"
        return Record(self.files, self.path / ".hooks" / f"{name}.json")

    @property
    def notify_command_failure(self) -> Record:
        """The time and the reason of the last failure of `notify_command`; none if it has worked since."""
        return Record(self.files, self.path / ".doorbell" / "notify_command.json")

    @cached_property
    def audit_log(self) -> AuditLog:
        return AuditLog(self.files, self.path / "audit")

    def delivery_log(self, agent_id: AgentId | str) -> DeliveryLog:
        """Returns the log of an agent's doorbell."""
        if agent_id not in self._delivery_logs:
            self._delivery_logs[agent_id] = DeliveryLog(self.files, self.path / ".doorbell" / f"{agent_id}.jsonl")
        return self._delivery_logs[agent_id]
