"""Widgets for many lines: only those that are to be seen are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from multi_agent_mcp.cli.flow import flow

CHOSEN = Style(reverse=True)


BETWEEN = " · "


def whole_parts(line: str, width: int) -> str:
    """The first parts of a line that have room, as a number that is cut would be another one."""
    parts, more = line.split(BETWEEN), ""
    while len(parts) > 1 and cell_len(BETWEEN.join(parts) + more) > width:
        parts.pop()
        more = f"{BETWEEN}…"
    return BETWEEN.join(parts) + more


class Lines(ScrollView):
    """Lines of text, from `line(number, width)`."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.count = 0
        self.line: Callable[[int, int], Text] = lambda _number, _width: Text("")
        self.cursor: int | None = None

    def render_line(self, y: int) -> Strip:
        number, width = self.scroll_offset.y + y, self.scrollable_content_region.width
        if number >= self.count:
            return Strip.blank(width, self.rich_style)
        spanned = Text().append_text(self.line(number, width))  # what has no span is rendered without its style
        strip = Strip(spanned.render(self.app.console))
        strip = strip.crop_extend(0, width, None).apply_style(self.rich_style)
        return strip.apply_style(CHOSEN) if number == self.cursor else strip

    def fill(self, count: int, line: Callable[[int, int], Text]) -> None:
        """Shows other lines."""
        self.count, self.line = count, line
        self.virtual_size = Size(0, count)
        self.refresh()

    def scroll(self, by: int) -> None:
        """Scrolls by so many lines."""
        self.scroll_to(y=self.scroll_offset.y + by, animate=False)

    def scroll_to_line(self, number: int) -> None:
        """Scrolls as little as possible, so that this line is to be seen."""
        top, height = self.scroll_offset.y, max(self.size.height, 1)
        if not top <= number < top + height:
            self.scroll_to(y=number if number < top else number - height + 1, animate=False)


class Rows(Lines):
    """Lines of which one is chosen."""

    def choose(self, number: int) -> None:
        """Chooses a line, the nearest there is; none if there are no lines."""
        before, self.cursor = self.cursor, max(0, min(number, self.count - 1)) if self.count else None
        if self.cursor is not None:
            self.scroll_to_line(self.cursor)
        for line in (before, self.cursor) if before != self.cursor else ():
            if line is not None:
                self.refresh_line(line)


class Prose(Lines):
    """Text, wrapped at its width."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._text: Sequence[Text] = ()
        self._width = 0

    def show(self, text: Sequence[Text], *, from_end: bool = False) -> None:
        """Shows another text, from its beginning or its end."""
        self._text = text
        self._wrap()
        self.scroll_to(y=self.count if from_end else 0, animate=False)

    def update_text(self, text: Sequence[Text], *, from_end: bool) -> None:
        """Shows the text as it is now, at the same place; at the end if that was to be seen."""
        if text == self._text:
            return
        was_at_end = from_end and self.scroll_offset.y >= self.max_scroll_y
        self._text = text
        self._wrap()
        if was_at_end:
            self.scroll_to(y=self.count, animate=False)

    def on_resize(self) -> None:
        if self._width != self.scrollable_content_region.width:
            self._wrap()

    def _wrap(self) -> None:
        self._width = self.scrollable_content_region.width
        lines = [part for line in self._text for part in self._wrapped(line)]
        self.fill(len(lines), lambda number, _: lines[number])

    def _wrapped(self, line: Text) -> Sequence[Text]:
        if cell_len(line.plain) <= self._width or self._width <= 0:
            return (line,)
        line = line.copy()
        line.expand_tabs(4)
        return flow(line, self._width)
