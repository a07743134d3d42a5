"""Pane 4: what the nodes report, line by line."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.binding import BindingType
from textual.content import Content
from textual.widgets import Log

from core.events import LOG_LINES_KEPT, LogLine
from tui.actions import bindings
from tui.format import clock, fit
from tui.registry import LOGS
from tui.state import UiState
from tui.widgets.messages import Copied

_LEVELS = ("DEBUG", "INFO", "WARN", "ERROR")
_COLOURS = {" WARN ": "text-warning", " ERROR": "text-error"}


class LogView(Log):
    """Log lines that can be selected, with a level filter and a flag to follow."""

    HELP = """What the nodes report, newest at the bottom. "follow" stays with the newest line; it stops while you \
look at earlier ones.

The level hides lines of less weight. The whole log is also in the file node.log of the state folder."""

    ACTIONS = LOGS
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(LOGS)]

    def __init__(self, *, id: str) -> None:
        super().__init__(highlight=True, max_lines=LOG_LINES_KEPT * 4, id=id, classes="pane")
        self.highlighter = self._colour  # type: ignore[assignment]
        self.border_title = Content("4 Logs")
        self._least = "INFO"
        self._lines_seen: tuple[LogLine, ...] = ()

    def on_mount(self) -> None:
        """Say what the filter is."""
        self._describe()

    def on_resize(self) -> None:
        """A lower pane would otherwise leave the newest lines below its edge."""
        if self.auto_scroll:
            self.scroll_end(animate=False)

    def show(self, state: UiState) -> None:
        """Write the lines that are new in `state`."""
        lines, seen = state.snapshot.logs, self._lines_seen
        if lines is seen:
            return
        self._lines_seen = lines
        if seen and seen[-1] in lines:
            fresh = lines[len(lines) - lines[::-1].index(seen[-1]) :]
        else:
            self.clear()
            fresh = lines
        self.write_lines([log_line(line) for line in fresh if self._wanted(line)])

    def _wanted(self, line: LogLine) -> bool:
        return _LEVELS.index(line.level) >= _LEVELS.index(self._least)

    def _colour(self, text: Text) -> Text:
        """Colour the level word. Rich needs the colour itself, since it knows no theme."""
        for word, name in _COLOURS.items():
            if text.plain[8:14] == word:
                text.stylize(self.app.theme_variables.get(name, ""), 9, 14)
        text.stylize("dim", 0, 8)
        return text

    def _describe(self) -> None:
        follow = "● on" if self.auto_scroll else "○ off"
        self.border_subtitle = Content(f"follow {follow} · level {self._least}")

    def action_follow(self) -> None:
        """Follow new lines, or stop."""
        self.auto_scroll = not self.auto_scroll
        if self.auto_scroll:
            self.scroll_end(animate=False)
        self._describe()

    def action_level(self) -> None:
        """The next least level; after the highest comes the lowest."""
        self._least = _LEVELS[(_LEVELS.index(self._least) + 1) % len(_LEVELS)]
        self.clear()
        self.write_lines([log_line(line) for line in self._lines_seen if self._wanted(line)])
        self._describe()

    def action_copy_lines(self) -> None:
        """Copy all lines that are shown."""
        self.post_message(Copied("\n".join(self.lines)))


def log_line(line: LogLine) -> str:
    """A line as it stands in the pane: time, level, Mac, text."""
    return f"{clock(line.at, seconds=True)} {line.level:<5} {fit(line.source, 8)} {line.text}"
