"""An agent of a team, as a program acts for it (docs/python.md)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import cached_property, partial
from threading import RLock, Thread, current_thread, main_thread
from time import sleep
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.texts import LANGUAGES, Texts, catalogue
from multi_agent_mcp.toolkit.methods import ToolMethods

if TYPE_CHECKING:
    from pathlib import Path

    from multi_agent_mcp.server.calls import Middleware, Tool
    from multi_agent_mcp.services.sessions.confirmation import Confirmation
    from multi_agent_mcp.wiring import Services

T = TypeVar("T")


class Refused(Exception):
    """A call that was refused and changed nothing. `code` and `message` are those of docs/protocol.md, Error codes;
    `answer` is the whole answer."""

    def __init__(self, code: str, message: str, answer: Mapping[str, Any] | None = None) -> None:
        super().__init__(code, message, answer)
        self.code = code
        self.message = message
        self.answer = dict(answer or {"success": False, "error": code, "message": message})

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Interrupted(Exception):
    """An interrupt has replaced the answer: `text` says what to do, `executed` whether the tool has run all the same.
    Every call but `logout` raises it until `get_notifications` has read the interrupt."""

    def __init__(self, text: str, executed: bool) -> None:
        super().__init__(text, executed)
        self.text = text
        self.executed = executed

    def __str__(self) -> str:
        return self.text


@contextmanager
def refusals(texts: Texts | None = None, language: str | None = None) -> Iterator[None]:
    """Raises what is refused inside as `Refused`, in words of `texts`, else of the language."""
    try:
        yield
    except Refusal as refusal:
        known = texts or catalogue(language if language in LANGUAGES else "en")
        raise Refused(refusal.code, known.sentence(refusal)) from refusal


def _apart(call: Callable[[], T], cancel: Callable[[], None]) -> T:
    """What `call` returns or raises in a thread of its own, and `cancel` if the wait for it is interrupted. Ctrl-C, or
    a test's time limit, raises in the main thread between any two steps: there it would leave locks held for ever.

    Returns once the system's thread has ended, too: as it ends it takes a lock of OpenSSL, which in a child that is
    forked meanwhile would be held for ever."""
    made: list[Callable[[], T]] = []

    def run() -> None:
        try:
            result = copied.run(call)
            made.append(lambda: result)
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            made.append(partial(_raised, error))

    copied = copy_context()
    thread = Thread(target=run, name="call", daemon=True)
    try:
        thread.start()
        thread.join()
        while os.path.exists(f"/proc/self/task/{thread.native_id}"):  # noqa: PTH110 - see above
            sleep(1e-5)
    except BaseException:
        cancel()
        raise
    return made[0]()


def _raised(error: BaseException) -> NoReturn:
    raise error


class Access:
    """How the agents of one `Team` get at its session, until the team is closed. Without `rings` doorbells are only
    recorded."""

    def __init__(self, root: Path, session: str, *, rings: bool) -> None:
        from multi_agent_mcp.doorbell.channel import Recorder

        self.root = root
        self.session = session
        self.recorder = None if rings else Recorder()
        self.is_closed = False
        self.look = self.services()
        self._pid = os.getpid()

    @property
    def is_own(self) -> bool:
        """Whether this process has opened it: a fork of it shares neither threads nor sessions."""
        return self._pid == os.getpid()

    @cached_property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that a bound agent of this session may have: not `authenticate`, with which a process says whose it
        is."""
        from multi_agent_mcp.server.tools import tools_of  # and the schemas of all tools: not before the first call

        return {name: tool for name, tool in tools_of(self.look.session.features).items() if tool.roles}

    def services(self) -> Services:
        """The session as one process has it: once for the team's own `look`, and once for each agent session, so that
        nothing differs from a server."""
        from multi_agent_mcp.bootstrap import open_session

        return open_session(self.root, self.session, notifier=self.recorder)

    def require_open(self) -> None:
        """Raises `ValueError` for a team that is closed, or was opened before a fork, and in another thread than the
        main one once the program ends."""
        if self.is_closed:
            raise ValueError(f"the team {self.session} is closed")
        if not self.is_own:
            raise ValueError(f"the team {self.session} was opened by another process: open it again after a fork")
        from multi_agent_mcp.system.process import program_ends  # with a team that was opened, it is loaded

        if current_thread() is not main_thread() and program_ends():
            raise ValueError(f"the team {self.session} is closed: the program ends")


class Agent(ToolMethods):
    """One agent session, opened by its first call: each tool is a method. Safe to use from several threads."""

    def __init__(self, access: Access, agent_id: str, purpose: str) -> None:
        self._access = access
        self._id = agent_id
        self._purpose = purpose
        self._mutex = RLock()
        self._middleware: Middleware | None = None
        self._unanswered: list[Confirmation] = []

    @property
    def id(self) -> str:
        """The agent's id."""
        return self._id

    @cached_property
    def chat(self) -> Agent:
        """The agent's chat session: the same methods, of which those for chat sessions are allowed."""
        return self if self._purpose == "chat" else Agent(self._access, self._id, "chat")

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot copy or pickle {self!r}: open the team again where you need it")

    def __repr__(self) -> str:
        return f"<{self._purpose} session of {self._id} in {self._access.session}>"

    @property
    def _tools(self) -> Mapping[str, Tool]:
        return self._access.tools

    def _call(self, tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self._access.require_open()
        confirmation = self._next(writes=not tool.read_only)
        made = partial(self._made, tool.name, arguments, confirmation)
        return _apart(made, confirmation.cancel) if current_thread() is main_thread() else made()

    def _made(self, name: str, arguments: Mapping[str, Any], confirmation: Confirmation) -> dict[str, Any]:
        from multi_agent_mcp.server.calls import EXECUTED

        try:
            middleware = self._opened()
            if not confirmation.begin():
                raise ValueError("the call was interrupted")  # nobody waits for it
            confirmation.wait_for_cancelled(0)
            result = middleware.call(name, arguments, confirmation)
            confirmation.handed_over()
        except BaseException:
            confirmation.cancel()
            raise
        if middleware.binding.disowned.is_set():
            self._end()
        answer: dict[str, Any] | None = result.structured_content
        if answer is None:
            text, *_ = (part.text for part in result.content if part.type == "text")
            raise Interrupted(text, executed=bool((result.meta or {}).get(EXECUTED)))
        if result.is_error:
            raise Refused(str(answer["error"]), str(answer["message"]), answer)
        return answer

    def _next(self, *, writes: bool) -> Confirmation:
        from multi_agent_mcp.services.sessions.confirmation import Confirmation

        with self._mutex:
            earlier = [each for each in self._unanswered if not each.is_settled]
            confirmation = Confirmation(earlier, writes=writes)
            self._unanswered = [*earlier, confirmation]
            return confirmation

    def _opened(self) -> Middleware:
        """Opens the agent session at the first call, as a server does when it is started. Raises `ValueError` for a
        team that is closed, and `Refused`."""
        self._access.require_open()
        with self._mutex:
            if self._middleware is None:
                self._access.require_open()
                self._middleware = self._bound()
            return self._middleware

    def _bound(self) -> Middleware:
        from multi_agent_mcp.server.binding import Binding
        from multi_agent_mcp.server.calls import Middleware

        with refusals():
            services = self._access.services()
        project, rings = self._access.root.parent, self._access.recorder is None
        binding = Binding(services, purpose=self._purpose, directory=project, rings=rings, disown=self._end_soon)
        try:
            with refusals(services.texts):
                binding.bind_process(self._id, None)
                (binding.start_background if rings else binding.start_if_examined)()
        except BaseException:
            with suppress(Refusal, OSError):
                binding.close(confirm=False)
            raise
        return Middleware(binding, self._access.tools)

    @property
    def _is_disowned(self) -> bool:
        """Whether the agent's key was replaced: every further call is refused."""
        return self._middleware is not None and self._middleware.binding.disowned.is_set()

    def _end_soon(self) -> None:
        """Ends the session from a thread of its own, as the one that looks at files cannot wait for itself."""
        Thread(target=self._end, name=f"end-{self._id}", daemon=True).start()

    def _end(self) -> None:
        with suppress(Refusal, OSError):
            self._close_binding()

    def _close_binding(self) -> None:
        middleware = self._middleware
        if middleware is not None:
            middleware.binding.close()
            middleware.services.contributions.tell("process_ends")

    def _close(self) -> None:
        """Ends the agent's sessions and their threads, for good; both, whatever fails. Raises as `LiveSession.end`."""
        chat = self.__dict__.get("chat")
        try:
            if chat is not None and chat is not self:
                chat._close()
        finally:
            with self._mutex:  # a first call may be about to open it
                self._close_binding()
