"""The common parts of commands on a session: options, the opened session, refusals as exit codes.

Exit codes: 0 done, 1 refused or failed, 2 wrong use.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce, wraps
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, NoReturn

import click

from multi_agent_mcp.cli.rendering import Painted, Styled, is_terminal, wrapped
from multi_agent_mcp.domain.text import BOXES, KEPT, columns, display_id, one_line, sanitize, shortened
from multi_agent_mcp.environment import locale_language
from multi_agent_mcp.errors import AgentNotFound, InvalidArguments, NoSuchSession, Refusal, system_error
from multi_agent_mcp.texts import PEOPLE, Texts, catalogue

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.delivery import Delivery
    from multi_agent_mcp.services.mail import Sent
    from multi_agent_mcp.wiring import Services


# The output of commands: plain lines and tables for people, JSON for programs.

EXCERPT_COLUMNS = 72
COMMAND = "multi-agent-mcp "
_ITEM = re.compile(r"([ \t]*)[-*+][ \t]+\[([ xX])\][ \t]+")
"""The beginning of a checklist's item in Markdown."""
_FENCE = re.compile(r"[ \t]*(```+|~~~+)")


def print_json(answer: Any) -> None:
    """Prints JSON; characters are escaped unless standard output is UTF-8, so that none is lost."""
    is_unicode = codecs.lookup(sys.stdout.encoding).name == "utf-8"
    sys.stdout.write(json.dumps(answer, ensure_ascii=not is_unicode, indent=2) + "\n")


def print_answer(answer: Mapping[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Prints the result of a command, as JSON or as lines for people."""
    if as_json:
        print_json({"success": True, **answer})
        return
    for line in lines:
        print_lines(line)


def print_line(line: str = "") -> None:
    """Prints one line for people, without control characters, so that an agent's text cannot control the terminal."""
    sys.stdout.write((line if isinstance(line, Painted) else sanitize(line)) + "\n")


def print_lines(line: str) -> None:
    """Prints a line in as many as the terminal needs, broken between words and indented alike; whole if it was laid
    out, or names a command, which somebody may copy, or goes into a pipe."""
    fits = isinstance(line, Painted) or not is_terminal() or columns(sanitize(line)) <= get_terminal_size().columns
    is_plain = fits and not (isinstance(line, Styled) and is_terminal())
    for part in [line] if is_plain or COMMAND in line else wrapped(line):
        print_line(part if isinstance(part, Painted) or not is_terminal() else part.replace(KEPT, " "))


def print_error(line: str) -> None:
    """Prints one line on standard error."""
    sys.stderr.write(f"multi-agent-mcp: {one_line(line)}\n")


def text_of(argument: str) -> str:
    """Returns the argument, or for `-` the content of standard input."""
    return sys.stdin.read() if argument == "-" else argument


def delivery_lines(context: SessionContext, sent: Sent) -> Iterator[str]:
    """Yields the message's id, then a line with the delivery to each receiver."""
    yield sent.message_id
    for agent_id, delivery in sent.delivery.items():
        yield delivery_line(context, agent_id, delivery)


def delivery_line(context: SessionContext, agent_id: str, delivery: Delivery) -> str:
    """Returns the line that says whether an agent was rung, and how one that does not run is started."""
    from multi_agent_mcp.domain.delivery import LIFELESS

    texts, key = context.texts, f"sent.{delivery.reason}"
    if delivery.state == "stored" and delivery.reason in LIFELESS and (starts := _starts(context.services, agent_id)):
        key = starts
    elif key not in texts:
        key = f"sent.{delivery.state}" if delivery.reason is None else f"sent.{delivery.state}_because"
    return texts(key, agent_id=agent_id, reason=texts.words_of(delivery.reason or ""))


def _starts(services: Services, agent_id: str) -> str | None:
    """Returns the key of the text that says who starts this agent; None if it has no command, or runs without a
    pane."""
    from multi_agent_mcp.domain.agent import PURPOSES
    from multi_agent_mcp.domain.slot import Slot

    if services.agents.get(agent_id).command is None or services.sessions.alive(agent_id):
        return None
    missing, slots = services.missing_sessions, [Slot(agent_id, purpose) for purpose in PURPOSES]
    is_awaited = any(slot in slots and not missing.is_down(slot) for slot in missing.needed())
    return "sent.supervisor_starts" if is_awaited and services.supervision.is_running() else "sent.up_starts"


def unverified(message: Mapping[str, Any], texts: Texts) -> str:
    """Returns the note after a sender's name if the signature is missing or wrong, else ""."""
    return texts("mail.unverified") if message.get("verified") is False else ""


def placed(agent_id: str | None, machine: str | None) -> str:
    """Returns an agent's id, with its machine if there are several: `worker-a@laptop`."""
    return display_id(agent_id) if machine is None else f"{display_id(agent_id)}@{display_id(machine)}"


def indented(text: str) -> Iterator[str]:
    """Yields an agent's text indented, line by line, so that none can pass for one of our lines, which are not
    indented. A terminal gets the items of a checklist with boxes, but not those in fenced code."""
    fence = ""
    for line in text.split("\n"):
        if found := _FENCE.match(line):
            fence = "" if fence and found[1].startswith(fence) else fence or found[1]
        elif not fence and is_terminal() and (item := _ITEM.match(line)):
            line = f"{item[1]}{BOXES[item[2] != ' ']} {line[item.end() :]}"
        yield f"   {line}".rstrip()


def excerpt(text: str) -> str:
    """Returns an agent's text on one line, shortened to `EXCERPT_COLUMNS`, in a wider terminal to one line of it;
    `--json` has the whole text."""
    there = get_terminal_size().columns if is_terminal() else 0
    return shortened(one_line(text), max(EXCERPT_COLUMNS, there))


def _not_empty(_: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value == "":
        refuse(InvalidArguments("option_empty", name=parameter.opts[0]), code=WRONG_USE)
    return value


ROOT = click.option(
    "--root", metavar="DIR", callback=_not_empty, help="The root directory (default: the nearest .multi-agent-mcp)."
)
SESSION = click.option("--session", metavar="NAME", help="The session (default: the only one there is).")
AS = click.option("--as", "acting", metavar="AGENT", help="Who you are (default: the Owner).")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


class OptionOf(click.Option):
    """An option that is an optional folder's `feature`'s: without the folder no command has it."""

    def __init__(self, *names: Any, feature: str, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.feature = feature


class Id(click.ParamType[str]):
    """The type of an argument or option that takes an entity's id, or the beginning of one with or without its prefix,
    where that leaves one: `click.argument("task_id", type=Id("tsk"))`. The command gets the whole id, or what was given
    if there is none; the beginning of none is refused. A kind is known by the prefix of its ids
    (`services/search.py`)."""

    name = "id"

    def __init__(self, *prefixes: str) -> None:
        self.prefixes = prefixes

    def completed(self, context: SessionContext, given: Any) -> Any:
        if isinstance(given, tuple | list):
            return [self.completed(context, item) for item in given]
        found = given and context.services.lookup.full_id(given, *self.prefixes)
        (prefix, *others) = self.prefixes
        if found and not others and re.fullmatch(rf"{prefix}_[0-9a-f]{{1,11}}|[0-9a-f]{{4,11}}", found):
            raise InvalidArguments("nothing_with_id", id=given)
        return found


Command = Callable[..., None]
WRONG_USE = 2


class SessionContext:
    """An opened session and the human in front of it; `acting` is the agent named by `--as`."""

    def __init__(self, services: Services, acting: str | None, *, as_json: bool) -> None:
        self.services = services
        self.acting = acting
        self.as_json = as_json
        self.has_answered = False

    @property
    def me(self) -> Agent:
        """The acting agent: `--as`, else the Owner. Raises `Unauthorized` if its home is another machine."""
        agent = self.agent(None)
        self.services.agents.require_here(agent)
        return agent

    @property
    def person(self) -> Agent:
        """The acting agent, of a command that decides over agents: raises `Unauthorized` also in the hands of an agent,
        unless it acts as itself."""
        me = self.me
        self.services.approvals.require_person(but=me.id)
        return me

    def agent(self, agent_id: str | None) -> Agent:
        """Returns the agent with this id, or for None the acting one; raises as `Agents.get` and `Agents.owner`."""
        agents = self.services.agents
        chosen = self.acting if agent_id is None else agent_id
        return agents.owner() if chosen is None else agents.get(chosen)

    @property
    def texts(self) -> Texts:
        """The texts for people, in the session's language."""
        return self.services.people

    def answer(self, answer: dict[str, Any], lines: Iterable[str]) -> None:
        """Prints the answer as JSON, or the lines for people."""
        self.has_answered = True
        print_answer(answer, lines, as_json=self.as_json)

    def wrong_use(self, key: str, **values: object) -> NoReturn:
        """Reports an error in the command line and exits with code 2."""
        refuse(InvalidArguments(key, **values), self.texts, as_json=self.as_json, code=WRONG_USE)


def session_command(
    *, acting: bool = False, json: bool = True, in_any_case: bool = False
) -> Callable[[Command], Command]:
    """Decorates a command that works on a session: adds the options `--root` and `--session` (with `acting` also
    `--as`, with `json` also `--json`), opens the session, `in_any_case` as `open_session`, and passes it as the first
    argument."""
    added = [ROOT, SESSION, *([AS] if acting else []), *([JSON] if json else [])]

    def decorate(function: Command) -> Command:
        @wraps(function)
        def command(
            root: str | None, session: str | None, acting: str | None = None, as_json: bool = False, **given: Any
        ) -> None:
            if click.get_current_context().invoked_subcommand is not None:
                return  # a group that does something by itself (`doctor`), and a command below it was given
            with open_context(root, session, acting, as_json=as_json, in_any_case=in_any_case) as context:
                for parameter in click.get_current_context().command.params:
                    if isinstance(parameter.type, Id) and parameter.name is not None:
                        given[parameter.name] = parameter.type.completed(context, given[parameter.name])
                function(context, **given)

        return reduce(lambda decorated, option: option(decorated), reversed(added), command)

    return decorate


@contextmanager
def open_context(
    root: str | None,
    session: str | None,
    acting: str | None = None,
    *,
    as_json: bool = False,
    in_any_case: bool = False,
) -> Iterator[SessionContext]:
    """Opens the session for one command; a refusal inside becomes one sentence and exit code 1."""
    from multi_agent_mcp.bootstrap import open_session  # `--help` need not wait for all services
    from multi_agent_mcp.config import find_root, read_environment, working_directory

    services = None
    context = None
    where = None
    try:
        with system_errors():
            environment = read_environment()
            given = root or environment.root
            where = find_root(given, working_directory() if given else Path.cwd())  # a removed one holds no session
            named = environment.session if session is None else session
            services = open_session(where, named, in_any_case=in_any_case)
            services.agents.publish_keys()
            services.operations.finish()
        for wrong in services.session.wrong_features:
            print_error(services.people.sentence(wrong))
        context = SessionContext(services, acting, as_json=as_json)
        if acting is not None:
            context.agent(acting)  # also where the command turns out not to need it
        yield context
    except Refusal as refusal:
        if services is None and where is not None and isinstance(refusal, NoSuchSession):
            _look_for_windows(where, as_json=as_json)
        # A program expects one JSON object: a failure after the answer goes to standard error.
        texts = services.people if services is not None else None
        refuse(_with_meant(refusal, services), texts, as_json=as_json and not (context and context.has_answered))


def _look_for_windows(root: Path, *, as_json: bool) -> None:
    """Where there is no session, `up` is refused with the windows of one that was deleted while they ran, and `down`
    closes them."""
    from multi_agent_mcp.windows.left_over import close_left_over, left_over, names_of

    command = click.get_current_context().command.name
    found = left_over(root) if command in ("up", "down") else []
    if not found:
        return
    if command == "up":
        refuse(NoSuchSession("no_session_windows", root=root.name, names=", ".join(names_of(found))), as_json=as_json)
    closed = close_left_over(found)
    said = people_texts()("down.left_over", names=", ".join(closed), root=root.name)
    print_answer({"closed": closed, "left": {}}, [said], as_json=as_json)
    raise click.exceptions.Exit(0)


def _with_meant(refusal: Refusal, services: Services | None) -> Refusal:
    """The refusal of an unknown agent with the names that may have been meant."""
    if services is None or not isinstance(refusal, AgentNotFound) or refusal.key != "error.agent_not_found":
        return refusal
    from difflib import get_close_matches  # few names are unknown

    meant = get_close_matches(str(refusal.values.get("agent_id")), services.agents.all())
    return AgentNotFound("agent_meant", **refusal.values, meant=", ".join(meant)) if meant else refusal


@contextmanager
def system_errors() -> Iterator[None]:
    """Turns an `OSError` outside the store into a refusal."""
    try:
        yield
    except OSError as error:
        raise system_error(error) from error


def people_texts(language: str = "") -> Texts:
    """Returns the texts for people while no session is known, in this language, else in that of the locale."""
    language = language or locale_language()
    return catalogue(language) | catalogue(language, PEOPLE)


def refuse(refusal: Refusal, texts: Texts | None = None, *, as_json: bool = False, code: int = 1) -> NoReturn:
    """Prints the reason on standard error (or as JSON on standard output) and exits. Without a session's `texts` it is
    in the language of the session that could not be opened, else of the locale."""
    sentence = (texts or catalogue(refusal.language or locale_language())).sentence(refusal)
    if as_json:
        print_json({"success": False, "error": refusal.code, "message": sentence})
    else:
        print_error(f"{refusal.code}: {sentence}")
    raise click.exceptions.Exit(code)
