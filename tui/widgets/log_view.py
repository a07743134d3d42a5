"""Log lines, for pane 4 and the log screen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual.content import Content
from textual.message import Message
from textual.widgets import Log

from core.events import LogLine
from tui.control.actions import KeyOwner
from tui.control.keymap import LOG_PANE, LOGS, Action
from tui.control.messages import Copied
from tui.state.logs import LEVELS, LogFilter, beginning, is_wanted, long_lines, next_mac, short_lines
from tui.state.state import LOGS_KEPT, UiState

_COLOURS = {"WARN": "text-warning", "ERROR": "text-error"}
_LEVEL = re.compile(r"^(?:[\d:.]+ )?(WARN|ERROR) ")
_WHEN = re.compile(r"^\d\d:\d\d:\d\d\S*|  \S+ \d\d:\d\d$")


class LogView(KeyOwner, Log):
    """Log lines with filters and a flag to follow. Lines can be selected."""

    HELP = """Log lines of all connected Macs, newest at the bottom. "follow" stays with the newest line; it stops \
while you look at earlier ones.

The level hides less important lines. The whole log of this Mac is also in a file; o on the log screen copies its \
path."""

    ACTIONS: ClassVar[tuple[Action, ...]] = LOGS

    @dataclass
    class Described(Message):
        """The filter, the number of lines or the flag to follow changed."""

    def __init__(self, *, id: str) -> None:
        # a line can take several rows
        super().__init__(highlight=True, max_lines=LOGS_KEPT * 4, id=id, classes="pane")
        self.highlighter = self._colour  # type: ignore[assignment]
        self.chosen = LogFilter()
        self.wraps = True
        self.count = 0
        self._seen: tuple[LogLine, ...] = ()
        self._room = self._height = 0

    def rows(self, line: LogLine) -> list[str]:
        return long_lines(line, self._room, wraps=self.wraps)

    def on_resize(self) -> None:
        was_at_end = self.scroll_offset.y + self._height >= self.virtual_size.height
        self._height = self.size.height
        self.call_after_refresh(self._fit, follows=self.auto_scroll and (was_at_end or self.is_vertical_scroll_end))

    def _fit(self, *, follows: bool) -> None:
        width = self.size.width - 1  # a scrollbar appears
        if width != self._room:
            self._room = width
            self._write_all()
        if follows:
            self.scroll_end(animate=False, x_axis=False)

    def show(self, state: UiState) -> None:
        lines, seen = state.logs, self._seen
        if lines is seen:
            return
        same, gone = beginning(seen, lines)
        self._seen = lines
        if self._room > 0:
            self._take_back(seen[len(seen) - gone :])
            self._write(lines[same:])

    def choose(self, chosen: LogFilter) -> None:
        self.chosen = chosen
        self._write_all()

    def _write_all(self) -> None:
        if self._room > 0:
            follows = self.auto_scroll and self.is_vertical_scroll_end
            self.clear()
            self.count = 0
            self._write(self._seen)
            if follows:
                self.scroll_end(animate=False, x_axis=False)

    def _take_back(self, last: tuple[LogLine, ...]) -> None:
        wanted = [line for line in last if is_wanted(line, self.chosen)]
        self.count -= len(wanted)
        end = len(self._lines)
        start = max(0, end - sum(len(self.rows(line)) for line in wanted))
        del self._lines[start:]
        for row in range(start, end):
            self._render_line_cache.discard(row)

    def _write(self, lines: tuple[LogLine, ...]) -> None:
        fresh = [line for line in lines if is_wanted(line, self.chosen)]
        self.count += len(fresh)
        self.write_lines([row for line in fresh for row in self.rows(line)])
        self.post_message(self.Described())

    def _update_size(self, updates: int, lines: list[str]) -> None:  # type: ignore[override]
        """Update at once: Textual starts a thread for every line, which may outlive the app."""
        self._update_maximum_width(updates, max(map(cell_len, lines), default=0))

    def _colour(self, text: Text) -> Text:
        colours = self.app.theme_variables
        if found := _LEVEL.search(text.plain):
            text.stylize(colours.get(_COLOURS[found[1]], ""), *found.span(1))
        if found := _WHEN.search(text.plain):
            text.stylize(colours.get("text-muted", ""), *found.span())
        return text

    def action_follow(self) -> None:
        self.auto_scroll = not self.auto_scroll
        if self.auto_scroll:
            self.scroll_end(animate=False)
        self.post_message(self.Described())

    def action_level(self) -> None:
        least = LEVELS[(LEVELS.index(self.chosen.least) + 1) % len(LEVELS)]
        self.choose(self.chosen._replace(least=least))

    def action_wrap(self) -> None:
        self.wraps = not self.wraps
        self._write_all()

    def action_mac(self) -> None:
        self.choose(next_mac(self.chosen, self._seen))

    def action_copy_lines(self) -> None:
        self.post_message(Copied("\n".join(self.lines)))


class LogPane(LogView):
    """Pane 4: one row per line, unless `w` wraps them."""

    ACTIONS = (*LOG_PANE, *LOGS)

    def on_mount(self) -> None:
        self.border_title = Content("4 Logs")
        self.wraps = False

    def rows(self, line: LogLine) -> list[str]:
        return short_lines(line, self._room, wraps=self.wraps)

    def on_log_view_described(self, event: LogView.Described) -> None:
        event.stop()
        follow = "● on" if self.auto_scroll else "○ off"
        mac = f" · {self.chosen.mac}" if self.chosen.mac else ""
        self.border_subtitle = Content(f"follow {follow} · level {self.chosen.least}{mac}")
