"""The application: lists, the particulars of what is chosen, and commands, each of which is shown before it runs."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.message import Message
from textual.widgets import Input, Static

from multi_agent_mcp.cli import watch
from multi_agent_mcp.cli.screen.actions import KeyCommand, Subject, actions_of, command_line, led
from multi_agent_mcp.cli.screen.lines import BETWEEN, Lines, Prose, Rows, whole_parts
from multi_agent_mcp.cli.screen.listings import Listing, Picture, particulars, row_text, shows_pane, take, title_of
from multi_agent_mcp.domain.text import as_printed, columns, one_line, sanitize, shortened
from multi_agent_mcp.domain.times import local_zone
from multi_agent_mcp.programs import child_environment, python
from multi_agent_mcp.system.file_events import Changes, TreeWatch

if TYPE_CHECKING:
    from pathlib import Path

    from multi_agent_mcp.wiring import Services

CALM_SHARE = 3
"""After a look at the session so many times as long as it took pass before the next."""
PANE_SECONDS = 2.0
LONG_SECONDS = 3600.0
LAST_SECONDS = 2.0
SAID_COLUMNS = 160
WIDEST = 500
MOVES = {"up": -1, "down": 1, "k": -1, "j": 1}
PAGES = {"pageup": -1, "pagedown": 1}
EDGES = {"home": -1, "end": 1}
LISTS = {"tab": 1, "right": 1, "shift+tab": -1, "left": -1}
ENDS = frozenset({"q", "Q", "ctrl+d"})
DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan", "d": "bold"}


FILTER = KeyCommand("/", "filter", (), "words")
"""The only key that is no command: it narrows the list while words are typed; Escape shows all again."""


class Taken(Message):
    """The session was looked at."""

    def __init__(self, picture: Picture) -> None:
        super().__init__()
        self.picture = picture


class Described(Message):
    """The particulars of what a row is about."""

    def __init__(self, subject: Subject, lines: list[Text]) -> None:
        super().__init__()
        self.subject, self.lines = subject, lines


class CommandEnded(Message):
    """A command has ended."""

    def __init__(self, action: KeyCommand, words: Sequence[str], code: int, output: str) -> None:
        super().__init__()
        self.action, self.words, self.code, self.output = action, words, code, output


class Failed(Message):
    """A thread has failed, which ends the application."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class WatchScreen(App[None]):
    """`watch` in a terminal. `given` are the options that lead every command to this session."""

    CSS = """
    Screen { layout: vertical; overflow: hidden; }
    Static, Input { height: 1; }
    Static { text-wrap: nowrap; text-overflow: ellipsis; }
    #title { text-overflow: clip; }
    Lines { scrollbar-size: 1 1; overflow-x: hidden; }
    Prose { scrollbar-gutter: stable; }
    #rows { height: 1fr; min-height: 1; }
    #particulars { height: 1fr; }
    #command { height: auto; max-height: 3; text-wrap: wrap; }
    #typed { border: none; padding: 0; display: none; }
    #keys { dock: bottom; }
    #glance { display: none; }
    .telling #glance { display: block; }
    .asking #typed { display: block; }
    .reading #rows, .reading #heads { display: none; }
    """
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, services: Services, messages: int, given: Sequence[str] = ()) -> None:
        super().__init__()
        _ = services.recent_attention  # libtmux asks standard output for its encoding, which Textual's has not
        self.services, self.texts, self.given = services, services.people, given
        self.error: Exception | None = None
        self._messages = messages
        owner = watch.owner_of(services)
        self._person = None if owner is None else owner.id
        self._changes, self._choices = Changes(), Changes()
        self._picture: Picture | None = None
        self._listed = "attention"
        self._chosen: dict[str, Subject | None] = {}
        self._asked: KeyCommand | None = None
        self._sought: dict[str, str] = {}
        """The words that the rows of a list must have, by its name."""
        self._narrowed: tuple[Listing, str, Listing] | None = None
        self._drawn: object = None
        self._is_output = False
        bodies = (self._follow, self._describe)
        self._threads = [threading.Thread(target=self._attempt, args=(body,), daemon=True) for body in bodies]

    def compose(self) -> ComposeResult:
        for name in ("glance", "heading", "lists", "heads"):
            yield Static(id=name, markup=False)
        yield Rows("rows")
        yield Static(id="title", markup=False)
        yield Prose("particulars")
        yield Static(id="command", markup=False)
        yield Input(id="typed", select_on_focus=False)
        yield Static(id="keys", markup=False)

    def on_mount(self) -> None:
        self.theme = "ansi-dark"
        self.animation_level = "none"
        self.set_focus(None)
        with suppress(NotImplementedError, RuntimeError):  # no main thread
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit)

    def on_ready(self) -> None:
        for thread in self._threads:
            thread.start()

    def on_unmount(self) -> None:
        self._changes.close()
        self._choices.close()

    def close(self) -> None:
        """Waits for the threads, which end with the application: so nobody is rung any more."""
        for thread in self._threads:
            thread.join(LAST_SECONDS)

    # What threads do.

    def _attempt(self, body: Callable[[], None]) -> None:
        try:
            body()
        except Exception as error:  # noqa: BLE001 - it is raised again by `run`
            self._tell(Failed(error))

    def _tell(self, message: Message) -> None:
        with suppress(RuntimeError):  # the application has ended
            self.post_message(message)

    def _follow(self) -> None:
        """Looks at the session whenever its files change, and as time passes."""

        def noticed(path: Path) -> None:
            if path.parts[0] in watch.SHOWN:
                self._changes.notify()

        with TreeWatch(self.services.path, noticed), self.services.people_doorbells():
            while not self._changes.closed:
                seen, began = self._changes.count, time.monotonic()
                self._tell(Taken(take(self.services, self._messages)))
                time.sleep(max(watch.CALM_SECONDS, CALM_SHARE * (time.monotonic() - began)))
                self._changes.wait(seen, watch.TICK_SECONDS)

    def _describe(self) -> None:
        """Reads the particulars of what is chosen, again when that changes; a pane also as time passes."""
        while not self._choices.closed:
            seen, subject = self._choices.count, self.chosen
            if subject is not None and not self._is_output:
                self._tell(Described(subject, particulars(self.services, subject)))
            self._choices.wait(seen, PANE_SECONDS if shows_pane(subject) else LONG_SECONDS)

    def _run(self, action: KeyCommand, words: Sequence[str]) -> None:
        done = subprocess.run(
            [*python(), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=child_environment(),
            check=False,
        )
        self._tell(CommandEnded(action, words, done.returncode, as_printed(done.stdout.decode(errors="replace"))))

    # What comes from them.

    def on_taken(self, message: Taken) -> None:
        if not self.is_running:
            return  # what is shown is being taken away
        self._picture = message.picture
        if not any(listing.name == self._listed for listing in message.picture.listings):
            self._listed = message.picture.listings[0].name
        self._show_list()
        self._choices.notify()

    def on_described(self, message: Described) -> None:
        chosen = self.chosen
        if self.is_running and not self._is_output and chosen is not None and chosen.id == message.subject.id:
            self.query_one(Prose).update_text(message.lines, from_end=shows_pane(chosen))

    def on_command_ended(self, message: CommandEnded) -> None:
        if not self.is_running:
            return
        command, output, is_done = command_line(message.words), message.output.rstrip("\n"), message.code == 0
        outcome = self.texts("steer.done") if is_done else self.texts("steer.failed", code=message.code)
        first = "" if message.action.reads else output.partition("\n")[0]
        self._say(command, shortened(one_line(f"{outcome}  {first}"), SAID_COLUMNS), "green" if is_done else "red")
        self._show_output(command, [_output_line(line, message.action) for line in output.split("\n")])
        if message.action.reads and is_done:
            self._read()
        self.services.recent_attention.look_again()
        self._changes.notify()

    def on_failed(self, message: Failed) -> None:
        self.error = message.error
        self.exit()

    # The lists.

    @property
    def listing(self) -> Listing | None:
        if self._picture is None:
            return None
        whole, words = self._picture.listing(self._listed), self._sought.get(self._listed, "")
        if not words:
            return whole
        if self._narrowed is None or self._narrowed[0] is not whole or self._narrowed[1] != words:
            self._narrowed = whole, words, whole.narrowed(words)
        return self._narrowed[2]

    @property
    def chosen(self) -> Subject | None:
        """What the chosen row is about."""
        return self._chosen.get(self._listed)

    @property
    def actions(self) -> list[KeyCommand]:
        """What can be done now."""
        return actions_of(self.chosen, self._person, self.services.session.features)

    def _show_list(self) -> None:
        """Draws the list, if anything of it has changed."""
        if (picture := self._picture) is None or (listing := self.listing) is None:
            return
        rows, counted = self.query_one(Rows), [len(other.subjects) for other in picture.listings]
        width = rows.scrollable_content_region.width
        drawn = (picture.heading, picture.glance, counted, listing.name, listing.rows, width)
        if drawn != self._drawn:
            self._drawn = drawn
            heads = [self.texts(f"table.{name}") for name in listing.columns]
            self._put("#heading", Text(whole_parts(picture.heading, self.size.width), style="bold"))
            self._put("#glance", Text(whole_parts(picture.glance, self.size.width), style="bold cyan"))
            self.screen.set_class(bool(picture.glance), "telling")
            self._put("#lists", self._list_names(picture))
            names = listing.columns
            head = row_text(heads, listing.widths(width, heads), names)
            head.stylize("dim")
            self._put("#heads", head)
            rows.fill(
                len(listing.subjects), lambda at, room: row_text(listing.rows[at], listing.widths(room, heads), names)
            )
        place = listing.position(self.chosen)
        rows.choose((rows.cursor or 0) if place is None else place)
        self._choose()

    def _put(self, where: str, line: Text) -> None:
        """Shows a line that takes as much room as before."""
        self.query_one(where, Static).update(line, layout=False)

    def _list_names(self, picture: Picture) -> Text:
        """The names of the lists, from the first with which the shown one has room."""
        names, of_each, shown = Text(), list[Text](), 0
        for listing in picture.listings:
            count, sought = len(listing.subjects), self._sought.get(listing.name, "")
            if sought and listing.name == self._listed and self.listing is not None:
                words = (
                    f" {self.texts(f'watch.{listing.name}')} {len(self.listing.subjects)}/{count}: {one_line(sought)} "
                )
            else:
                words = f" {self.texts(f'watch.{listing.name}')} {count} "
            is_shown = listing.name == self._listed
            shown = len(of_each) if is_shown else shown
            of_each.append(Text(words, "reverse bold" if is_shown else ""))
        while shown and sum(name.cell_len for name in of_each[: shown + 1]) + 1 > self.size.width:
            del of_each[0]
            shown -= 1
        for name in of_each:
            names.append_text(name)
        return names

    def _choose(self) -> None:
        """Notes what is chosen after the cursor or the list has changed."""
        listing, cursor = self.listing, self.query_one(Rows).cursor
        now = listing.subjects[cursor] if listing is not None and cursor is not None else None
        before, self._chosen[self._listed] = self.chosen, now
        if (now and now.id) != (before and before.id) or now is None:
            self._leave_output()
        if not self._is_output:
            self._show_title(title_of(now, self.texts) if now is not None else "")
        self._show_keys()

    def _leave_output(self) -> None:
        """Shows the particulars of what is chosen, from the beginning."""
        self._is_output = False
        self.query_one(Prose).show([])
        self._choices.notify()

    def _show_output(self, title: str, lines: Sequence[Text]) -> None:
        self._is_output = True
        self._show_title(f"$ {title}")
        self.query_one(Prose).show(lines)

    def _show_title(self, words: str) -> None:
        self._put("#title", Text(f"── {one_line(words)} ".ljust(WIDEST, "─"), style="dim"))

    def _show_keys(self) -> None:
        """The last line: what the keys do now. How to end is there at any width, and where they have no room, how to
        see all."""
        at = "" if self._picture is None else f"{self._picture.at.astimezone(local_zone()):%H:%M:%S}"
        end = self.texts("watch.quits", time=at)
        shown = [self._key_words(action) for action in self.actions if action.shown]
        if self._asked is not None:
            shown, end = [self.texts("steer.enter"), self.texts("steer.escape")], self.texts("steer.ends")
        elif self.screen.has_class("reading"):
            shown = [self.texts("steer.back"), *shown]
        else:
            last = [f"/ {self.texts('steer.filter')}", f"Tab {self.texts('steer.lists')}"]
            shown = [f"o {self.texts('steer.open')}", *shown, *last]
        if columns(BETWEEN.join([*shown, end])) > self.size.width and self._asked is None:
            end = BETWEEN.join([f"? {self.texts('steer.keys')}", end.rpartition(BETWEEN)[2]])
        while shown and columns(BETWEEN.join([*shown, end])) > self.size.width:
            shown.pop()
        self._put("#keys", Text(BETWEEN.join([*shown, end])))

    def _key_words(self, action: KeyCommand) -> str:
        return f"{action.key} {self.texts(f'steer.{action.name}')}"

    def _explain_keys(self) -> None:
        """What each key does now, and which command that is."""
        own = (("o", "open"), ("/", "filter"), ("Tab", "lists"), ("q", "end"))
        said = [(action.key, action.name, command_line(action.filled("…"))) for action in self.actions]
        words = [(key, self.texts(f"steer.{name}"), "") for key, name in own]
        rows = [*((key, self.texts(f"steer.{name}"), command) for key, name, command in said), *words]
        wide = max(columns(name) for _, name, _ in rows)
        lines = [f"{key:3}  {name}{' ' * (wide - columns(name))}  {command}".rstrip() for key, name, command in rows]
        self._show_output("", [Text(line) for line in lines])
        self._show_title(self.texts("steer.keys"))
        self._read()

    # The keys.

    async def on_event(self, event: events.Event) -> None:
        """Takes keys before widgets get them: each comes in its turn, also where several are typed at once."""
        if not isinstance(event, events.Key) or event.is_forwarded or not self.is_running or not self._takes(event.key):
            await super().on_event(event)

    def _takes(self, key: str) -> bool:
        if key == "ctrl+c":
            self.exit()
            return True
        if self._asked is None:
            return self._key(key)
        typed = self.query_one(Input)
        if self._asked.asks is not None and self.focused is not typed:
            self.set_focus(typed)  # a terminal may say late that it lost the focus
        return self._asked_key(key)

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_list)

    def _key(self, key: str) -> bool:
        """Does what a key does while nothing is asked; returns whether it does anything."""
        is_reading = self.screen.has_class("reading")
        if key in ENDS:
            self.exit()
        elif key in MOVES or key in PAGES or key in EDGES:
            self._move(key, self.query_one(Prose if is_reading else Rows))
        elif key in LISTS and not is_reading:
            self._go_to_list(LISTS[key])
        elif key in ("o", "enter") and not is_reading:
            self._read()
        elif key == "slash" and not is_reading:
            self._ask(FILTER)
        elif key == "question_mark":
            self._explain_keys()
        elif key == "escape" and not is_reading and self._sought.pop(self._listed, ""):
            self._show_list()
        elif key in ("o", "enter", "escape"):
            self.screen.remove_class("reading")
            self._leave_output()
            self._choose()
        elif (action := next((one for one in self.actions if one.key == key), None)) is not None:
            self._ask(action)
        else:
            return False
        return True

    def _move(self, key: str, lines: Lines) -> None:
        by = MOVES.get(key) or PAGES.get(key, 0) * max(lines.size.height - 1, 1) or EDGES.get(key, 0) * lines.count
        if isinstance(lines, Rows):
            lines.choose((lines.cursor or 0) + by)
            self._choose()
        else:
            lines.scroll(by)

    def _go_to_list(self, by: int) -> None:
        if self._picture is not None:
            names = [listing.name for listing in self._picture.listings]
            self._listed = names[(names.index(self._listed) + by) % len(names)]
            self._leave_output()
            self.query_one(Rows).choose(0)
            self._show_list()

    def _read(self) -> None:
        """Gives the particulars the room of the list."""
        self.screen.add_class("reading")
        self._show_keys()

    # Commands: shown first, run by Enter.

    def _ask(self, action: KeyCommand) -> None:
        self._asked = action
        typed = self.query_one(Input)
        typed.value = ""
        typed.placeholder = self.texts(f"steer.ask_{action.asks}") if action.asks else ""
        self.screen.set_class(action.asks is not None, "asking")
        self.set_focus(typed if action.asks else None)
        self._preview()
        self._show_keys()

    def _preview(self) -> None:
        if self._asked is FILTER:
            self._sought[self._listed] = self.query_one(Input).value.strip()
            self._show_list()
        elif self._asked is not None:
            words = command_line(self._command(self._asked))
            self.query_one("#command", Static).update(Text(f"$ {words}", style="bold"))

    def _command(self, action: KeyCommand) -> list[str]:
        """The words of the command, with the options that lead it to this session."""
        return led(action.filled(self.query_one(Input).value.strip()), self.given)

    def _asked_key(self, key: str) -> bool:
        if key == "escape" or (key == "enter" and self._asked is FILTER):
            if key == "escape" and self._asked is FILTER:
                self._sought.pop(self._listed, None)
            self._leave_asking()
            self._say("", "", "")
            self._show_list()
        elif key == "enter" and self._asked is not None and self._asked.asks is None:
            self._submit()
        else:
            return self._asked is not None and self._asked.asks is None
        return True

    def on_input_changed(self) -> None:
        self._preview()

    def on_input_submitted(self) -> None:
        if self._asked is not None and not (self._asked.needs and not self.query_one(Input).value.strip()):
            self._submit()

    def _submit(self) -> None:
        action = self._asked
        if action is None:
            return
        words = self._command(action)
        self._leave_asking()
        if action.takes_terminal:
            self._say("", "", "")
            with self.suspend():
                subprocess.run([*python(), *words], env=child_environment(), check=False)
            return
        self._say(command_line(words), self.texts("steer.running"), "yellow")
        threading.Thread(target=self._attempt, args=(lambda: self._run(action, words),), daemon=True).start()

    def _leave_asking(self) -> None:
        self._asked = None
        self.screen.remove_class("asking")
        self.set_focus(None)
        self._show_keys()

    def _say(self, command: str, outcome: str, style: str) -> None:
        """Shows the last command and what became of it."""
        line = Text(f"$ {command}  " if command else "").append(outcome, style)
        self.query_one("#command", Static).update(line)


def _output_line(line: str, action: KeyCommand) -> Text:
    style = DIFF_STYLES.get(line[:1], "") if action.name == "diff" else ""
    return Text(sanitize(line), style=style)


def run(services: Services, messages: int, given: Sequence[str]) -> None:
    """Shows the session until q, Ctrl-C or the end of the terminal. Raises what a thread of it has failed with."""
    screen = WatchScreen(services, messages, given)
    screen.run(mouse=False)  # so that the terminal goes on selecting text
    screen.close()
    if screen.error is not None:
        raise screen.error
