"""Agent sessions: opening, keeping alive and ending them, the leases of the process's own, and requeueing the mail of
dead readers (docs/protocol.md, Agent sessions, Confirmation)."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from multi_agent_mcp.config import working_directory
from multi_agent_mcp.domain.agent import DIED, AgentSession
from multi_agent_mcp.domain.entity import age, new_id
from multi_agent_mcp.domain.times import is_recent
from multi_agent_mcp.errors import InvalidSession, Refusal
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.locks import mutex
from multi_agent_mcp.system.file_status import signature_of
from multi_agent_mcp.system.process import host_of, is_alive, own_start, started_at

if TYPE_CHECKING:
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.domain.notification import Notification
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.sessions.session_records import Executions, OwnerWaits
    from multi_agent_mcp.store.authority import Authority

logger = logging.getLogger(__name__)

LOOKED_AT = 20
"""How many ended sessions are searched for one that was called."""
LAST_SESSIONS = 3
"""How many ended sessions are searched for an agent's last task session."""


@dataclass(eq=False)
class Sessions(Service):
    """The agent sessions of one team."""

    executions: Executions
    owner_waits: OwnerWaits
    binding_mutex: AbstractContextManager[object] = field(default_factory=partial(mutex, "binding"), init=False)
    """Held while this process changes the agent it is bound to."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.activity_written_every = min(
            timedelta(minutes=1), timedelta(minutes=self.session.settings.limits.stuck_minutes) / 4
        )
        """The interval of recording an agent's activity, short enough that no working agent seems stuck."""

    def open(self, agent_id: str, purpose: str | None = None, *, hosted: bool = True) -> LiveSession:
        """Opens a session for this process; `hosted`: a host has started it, which a program that uses `Team` has not.
        The default purpose depends on the work that waits for the agent."""
        live = self.live(agent_id)
        now = self.clock()
        chosen = purpose or self._choose_purpose(agent_id, live)
        task = self._task_in_progress(agent_id, live) if chosen == "task" else None
        token, host = secrets.token_urlsafe(24), host_of(os.getpid()) if hosted else 0
        session = AgentSession(
            id=new_id("ses"),
            agent_id=agent_id,
            purpose=chosen,
            task_id=task.id if task else None,
            token_hash=_token_hash(token),
            pid=os.getpid(),
            pid_started_at=own_start(),
            created_at=now,
            machine=self.workspace.authority.here,
            stopped=self._unanswered(agent_id) if chosen == "task" else None,
            host_pid=host if host > 1 else None,
            host_pid_started_at=started_at(host) if host > 1 else None,
        ).touch(now)
        self.workspace.sessions.add(session)
        return LiveSession(self, session, token)

    def all(self, *, ended: bool) -> list[AgentSession]:
        """The sessions of all agents, oldest first; with `ended` including those that have ended."""
        found = self.workspace.sessions.all() if ended else self.workspace.sessions.open()
        return sorted(found, key=age)

    def running(self, agent_id: str) -> list[AgentSession]:
        """The agent's sessions whose process runs, including expired ones: their process still rings the agent, and its
        next call renews the session."""
        return [session for session in self.workspace.sessions.open(agent_id) if self.is_running(session)]

    def everywhere(self) -> list[AgentSession]:
        """As `running`, of all agents."""
        return [session for session in self.workspace.sessions.open() if self.is_running(session)]

    def live(self, agent_id: str) -> list[AgentSession]:
        """The agent's running sessions that have not expired; a new session leaves their purpose and task to them."""
        now = self.clock()
        return [session for session in self.running(agent_id) if not session.expired(now)]

    def alive(self, agent_id: str) -> bool:
        """Whether a server process of this agent runs, even one that has logged out and opens a new session with its
        next call (docs/format.md, agent session)."""
        return bool(self.running(agent_id) or self.workspace.served_purposes(agent_id))

    def served_purposes(self, agent_id: str) -> set[str]:
        """The purposes of the agent's live sessions and of its servers that open one with their next call."""
        return {session.purpose for session in self.live(agent_id)} | self.workspace.served_purposes(agent_id)

    def alive_since(self, agent_id: str) -> datetime | None:
        """When the oldest of the agent's running sessions was opened; None if none runs."""
        return min((session.created_at for session in self.running(agent_id)), default=None)

    def last_activity(self, agent_id: str) -> datetime | None:
        """When the agent's server was last called, whether it still runs or not; None if never."""
        known = self.workspace.sessions.all(agent_id, limit=1)
        return max((session.last_activity_at for session in known), default=None)

    def host_without_server(self, agent_id: str, purpose: str) -> int | None:
        """The process of the host in which the agent's last session of this purpose was, if that goes on although its
        server has died; None if the session was ended, or it did not begin on this machine."""
        known = self.workspace.sessions.all(agent_id, limit=LOOKED_AT)
        last = max((session for session in known if session.purpose == purpose), key=age, default=None)
        if last is None or last.state not in ("active", DIED) or self.is_running(last) or not self.is_here(last):
            return None
        has_host = last.host_pid is not None and is_alive(last.host_pid, last.host_pid_started_at)
        return last.host_pid if has_host else None

    def recover(self, agent_id: str) -> int:
        """Ends the sessions of dead processes and requeues their unconfirmed files; ends the executions of sessions
        whose file is lost. Returns the number of requeued files."""
        from multi_agent_mcp.domain.task import UNASSIGNED

        recovered = 0
        with self.workspace.locks.held(f"recover-{agent_id}"):
            for listed in self.workspace.sessions.open(agent_id):
                if (session := self._dead(listed)) is not None:
                    recovered += self.requeue(session.agent_id, session.unconfirmed)
                    self.executions.finish_session(session, "session_died")
                    self.workspace.sessions.update(
                        session.id, lambda found: found.with_unconfirmed(()).end(self.clock(), DIED)
                    )
            self.executions.finish_orphans(agent_id)
        for collection in (self.workspace.tasks, self.workspace.sessions, self.workspace.executions):
            collection.archive_over(agent_id)
        self.workspace.tasks.archive_over(UNASSIGNED)  # no agent's recovery but anybody's
        self.workspace.retire_delegations(agent_id)
        self.contributions.tell("agent_recovered", agent_id)
        return recovered

    def recover_dead(self) -> None:
        """Recovers each agent of this machine that has a session of a dead process: other machines can tell only by the
        session's file that it has ended."""
        for agent in self.workspace.registry.active().values():
            if self.workspace.is_here(agent) and any(map(self._has_died, self.workspace.sessions.open(agent.id))):
                self.recover(agent.id)

    # Three looks, in this order: the session's file says that it runs; its process is gone; the file is read again.
    # With the first two alone, a server that confirms its mail and ends regularly between them looks like one that
    # died, and what its host has read comes a second time. A process that is gone writes nothing more, so its last
    # words are final.
    def _dead(self, listed: AgentSession) -> AgentSession | None:
        """The last words of a session whose process is gone without having ended it, else None. They are read once
        nobody writes them any more: it may have confirmed its mail and ended between the listing and the look at its
        process."""
        session = self.workspace.sessions.find(listed.id) if self._has_died(listed) else None
        return session if session is not None and session.ended_at is None else None

    def _has_died(self, session: AgentSession) -> bool:
        return session.ended_at is None and self.is_here(session) and not self.is_running(session)

    def is_running(self, session: AgentSession) -> bool:
        """Whether the session's process runs and has not ended it. A session of another machine counts as running until
        its file says otherwise or the machine is away."""
        return is_running(session, self.workspace.authority)

    def is_here(self, session: AgentSession) -> bool:
        """Whether the session's process is, or was, on this machine."""
        return session.machine in (None, self.workspace.authority.here)

    def confirm(self, agent_id: str, files: Sequence[str]) -> None:
        """Moves mail and notifications that are known to have arrived to the archives, by their files (see
        `Inbox.reference`)."""
        for inbox in (self.workspace.mailbox(agent_id), self.workspace.notices(agent_id)):
            if inbox.has_any(files):
                inbox.confirm(files)

    def bring_back(self, agent_id: str, files: Sequence[str]) -> None:
        """Undoes `confirm`: the files are where they were, marked read."""
        for inbox in (self.workspace.mailbox(agent_id), self.workspace.notices(agent_id)):
            if inbox.has_any(files):
                inbox.unarchive(files)

    def requeue(self, agent_id: str, files: Sequence[str]) -> int:
        """Makes mail and notifications unread again, by their files (see `Inbox.reference`), and restores an Owner's
        wait that one of them released. Returns how many of them had been marked read."""
        returned: list[Message | Notification] = []
        mailbox, notices = self.workspace.mailbox(agent_id), self.workspace.notices(agent_id)
        if mailbox.has_any(files):
            with self.workspace.locks.held(mailbox.lock):
                returned += mailbox.requeue(files)
                if returned:  # before anybody reads them again
                    self.owner_waits.restore(agent_id, [message.id for message in returned])
        if notices.has_any(files):
            with self.workspace.locks.held(notices.lock):
                returned += notices.requeue(files)
        return sum(entity.read_at is not None for entity in returned)

    def has_past(self, session: AgentSession) -> bool:
        """Whether the session's agent was at work before it: an earlier session was called, or a task was begun."""
        earlier = self.workspace.sessions.all(session.agent_id, limit=LOOKED_AT)
        if any(other.called for other in earlier if other.id != session.id):
            return True
        begun = (task.started_at for task in self.workspace.tasks.open(session.agent_id))
        return any(at is not None and at < session.created_at for at in begun)

    def _unanswered(self, agent_id: str) -> tuple[str, ...] | None:
        """The tasks of the interrupts that the agent's last task session had read and not answered."""
        last = self.workspace.sessions.closed(agent_id, limit=LAST_SESSIONS)
        return next((session.stopped for session in last if session.purpose == "task"), None) or None

    def _choose_purpose(self, agent_id: str, live: list[AgentSession]) -> str:
        served = {session.purpose for session in live} | self.workspace.served_purposes(agent_id)
        if "task" not in served and self.workspace.tasks.in_progress(agent_id):
            return "task"
        if "chat" not in served and self._chat_work_waits(agent_id):
            return "chat"
        return "task"

    def _chat_work_waits(self, agent_id: str) -> bool:
        """Whether a delegation without a conversation, or an unread message of a conversation that goes on, waits."""
        delegations = self.workspace.delegations.all(agent_id)
        if any(item.reserved_id is None for item in delegations):
            return True
        unread = (message for _, message in self.workspace.mailbox(agent_id).unread())
        return any(message.message_type == "conversation" and not message.claims_end for message in unread)

    def _task_in_progress(self, agent_id: str, live: list[AgentSession]) -> Task | None:
        taken = {session.task_id for session in live}
        tasks = self.workspace.tasks.in_progress(agent_id)
        return next((task for task in tasks if task.id not in taken), tasks[0] if tasks else None)


class LiveSession:
    """This process's own session and its leases (see `confirmation.py`). Only this object knows the
    token; the file holds its hash.

    The mutex guards `record` and its file and nothing else. No mailbox lock may be taken while it is held, because a
    reading leases under the mailbox's lock.
    """

    def __init__(self, sessions: Sessions, record: AgentSession, token: str) -> None:
        self.record = record
        self.token = token
        self._sessions = sessions
        self._written = record
        self._mutex = mutex("session")
        self._written_out: deque[str] = deque()
        self._to_requeue: deque[str] = deque()
        self._refuses_leases = False
        self._ending = False
        self._path = sessions.workspace.path / "sessions" / record.agent_id / f"{record.id}.md"
        self._file = signature_of(self._path)

    def is_live(self) -> bool:
        """Whether the session has neither ended nor expired (an hour without calls, or earlier if somebody has written
        that into its file)."""
        found = signature_of(self._path)
        if found not in (None, self._file):
            self._file = found
            written = self._sessions.workspace.sessions.find(self.record.id)
            if written is not None and written.expires_at < self._written.expires_at:
                self.record = replace(self.record, expires_at=written.expires_at)
        return self.record.ended_at is None and not self.record.expired(self._sessions.clock())

    def has_sibling(self, purpose: str) -> bool:
        """Whether the agent has a session, or a server, of this other purpose."""
        return purpose in self._sessions.served_purposes(self.record.agent_id) - {self.record.purpose}

    def require_token(self, token: object) -> None:
        """Raises `InvalidSession` for anything but this session's token."""
        if not isinstance(token, str) or not hmac.compare_digest(_token_hash(token), self.record.token_hash):
            raise InvalidSession("session_token")

    def touch(self) -> None:
        """Called at the start of each call: confirms the files of answers that were written, and renews the session."""
        self.requeue(_drained(self._to_requeue))
        confirmed = self._confirm()
        with self._mutex:
            now = self._sessions.clock()
            left = _without(self.record.unconfirmed, confirmed)
            self.record = self.record.touch(now).with_unconfirmed(left)
            recent = is_recent(self._written.last_activity_at, now, self._sessions.activity_written_every)
            if left != self._written.unconfirmed or not (recent and self._written.called):
                self._write(sync=False)

    def _confirm(self) -> tuple[str, ...]:
        """Moves the files of answers that were written to the archives, and returns them: this session's file names
        them until the caller has written it. After a failure they are still handed out, and the next call tries
        again."""
        files = _drained(self._written_out)
        try:
            if files:
                self._sessions.confirm(self.record.agent_id, files)
        except Refusal as refusal:
            logger.warning("what was delivered is not archived yet: %s", refusal)
            self._written_out.extend(files)
            return ()
        return files

    def lease(self, files: tuple[str, ...]) -> None:
        """Leases files (see `Lease`), durably. Raises `InvalidSession` when the session is ending, because nobody would
        requeue the files then."""
        with self._mutex:
            if self._refuses_leases:
                raise InvalidSession
            before = self.record
            self.record = before.with_unconfirmed((*before.unconfirmed, *files))
            try:
                self._write(sync=True)
            except BaseException:
                self.record = before
                raise

    def handed_over(self) -> None:
        """Confirms the files of answers that were written without waiting for another call, for a caller in this
        process, which has them as soon as its call returns. The session's file names them until the next call: whoever
        dies before has moved them, and nothing comes again."""
        confirmed = self._confirm()
        with self._mutex:
            self.record = self.record.with_unconfirmed(_without(self.record.unconfirmed, confirmed))

    def bring_back(self, files: tuple[str, ...]) -> None:
        """Undoes `handed_over` for an answer that never arrived; `requeue` makes the files unread. Never raises."""
        try:
            self._sessions.bring_back(self.record.agent_id, files)
        except Refusal as refusal:
            logger.warning("what was not delivered stays archived: %s", refusal)

    def refuse_leases(self) -> None:
        """Makes `lease` raise from now on; called before the session ends."""
        with self._mutex:
            self._refuses_leases = True

    def written(self, files: tuple[str, ...]) -> None:
        """Records that the answer with these files was written: the next call, or a regular end, confirms them. Takes
        no lock, so the event loop may call it."""
        self._written_out.extend(files)

    def requeue(self, files: tuple[str, ...]) -> None:
        """Makes leased files unread again. Never raises: after a failure the next call, or the end, tries again."""
        with self._mutex:
            files = _both(files, self.record.unconfirmed)
        if not files:
            return
        try:
            self._sessions.requeue(self.record.agent_id, files)
            with self._mutex:  # only now, so that a death meanwhile requeues them as well
                self.record = self.record.with_unconfirmed(_without(self.record.unconfirmed, files))
                self._write(sync=False)
        except Refusal as refusal:
            logger.warning("what was not delivered is not unread again yet: %s", refusal)
            self._to_requeue.extend(files)

    def end(self, state: str = "ended", *, confirm: bool = True) -> None:
        """Ends the session, at logout or at the end of the process, and requeues unconfirmed files. With `confirm` the
        files of answers that were written count as confirmed."""
        self.refuse_leases()
        confirmed = self._confirm() if confirm else ()
        with self._mutex:
            if self._ending:
                return
            left = _without(self.record.unconfirmed, confirmed)
            if left != self.record.unconfirmed:  # first: the process may be killed, or out of time, during the rest
                self.record = self.record.with_unconfirmed(left)
                self._write(sync=False)
            self._ending = True
            self.record = self.record.with_unconfirmed(())  # the file names them until they are unread again
        self._sessions.requeue(self.record.agent_id, left)
        self._sessions.executions.finish_session(self.record, "session_ended")
        with self._mutex:
            self.record = self.record.end(self._sessions.clock(), state)
            self._replace(sync=True)
        if self.record.purpose == "task":  # what it has read and not begun is announced again
            self._sessions.contributions.tell("task_session_ended", self.record.agent_id)

    def note_conversation(self, host: str | None, host_session: str | None) -> None:
        """Records the host's conversation, durably: the next process continues it. Never raises."""
        with self._mutex:
            known = self.record.in_conversation(host, host_session, str(working_directory()) if host_session else None)
            if known != self.record:
                self.record = known
                try:
                    self._write(sync=True)
                except Refusal as refusal:
                    logger.warning("the host's conversation could not be recorded: %s", refusal)

    def bind_task(self, task_id: str) -> None:
        """Records that this session works on the task."""
        with self._mutex:
            if self.record.task_id != task_id:
                self.record = self.record.on_task(task_id)
                self._write(sync=True)

    def told_to_stop(self, task_ids: Sequence[str]) -> None:
        """Records that the agent has read interrupts about these tasks, the last read last."""
        if task_ids:
            self._note(self.record.told_to_stop(task_ids))

    def has_stopped(self, task_id: str) -> None:
        """Records that the agent has answered the interrupts about this task."""
        if self.record.stopped:
            self._note(self.record.has_stopped(task_id))

    def _note(self, record: AgentSession) -> None:
        with self._mutex:
            self.record = replace(self.record, stopped=record.stopped)
            self._write(sync=True)

    def _write(self, *, sync: bool) -> None:
        if not self._ending:
            self._replace(sync=sync)

    def _replace(self, *, sync: bool) -> None:
        """Writes the session's file, always with its content fsynced: a power cut may leave the previous file, never an
        empty one. With `sync` the new file survives a power cut."""
        self._sessions.workspace.sessions.replace(self.record, sync=sync)
        self._written = self.record
        self._file = signature_of(self._path)


def _drained(queue: deque[str]) -> tuple[str, ...]:
    """Removes and returns the items that other threads have added to the queue."""
    return tuple(queue.popleft() for _ in range(len(queue)))


def _without(leased: Iterable[str], gone: Iterable[str]) -> tuple[str, ...]:
    """The leases without those `gone`, as multisets: two concurrent calls may lease the same file, and each releases
    only its own lease."""
    return tuple((Counter(leased) - Counter(gone)).elements())


def _both(some: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    return tuple((Counter(some) & Counter(others)).elements())


def is_running(session: AgentSession, authority: Authority) -> bool:
    """See `Sessions.is_running`."""
    if session.ended_at is not None:
        return False
    if session.machine not in (None, authority.here):
        return authority.is_up(session.machine)
    return is_alive(session.pid, session.pid_started_at)


def _token_hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()
