"""The log screen: lines by level, Mac and text, with milliseconds."""

from __future__ import annotations

from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, Static

from tui.control.keymap import LOGS_SCREEN
from tui.control.messages import Copied
from tui.screens.base import NodeScreen, Sources
from tui.state.format import DIM, GOOD, WARN
from tui.state.logs import filter_words
from tui.state.state import UiState
from tui.widgets.log_view import LogView


class LogsScreen(NodeScreen):
    """All log lines, with a filter."""

    TITLE = "Logs"
    AUTO_FOCUS = "LogView"
    ACTIONS = LOGS_SCREEN

    HELP = """Log lines of all connected Macs, in this Mac's time. / filters by text, m by Mac, l by level."""

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        self._file = sources.client.home.log
        self._filter = Input(id="filter", placeholder="text", compact=True)
        self.log_view = LogView(id="log-lines")
        self.log_view.remove_class("pane")
        self._box = Vertical(id="logs-box", classes="pane")

    def parts(self) -> ComposeResult:
        with self._box:
            yield Horizontal(Static("/", markup=False), self._filter, id="filter-line")
            yield self.log_view

    def show(self, state: UiState) -> None:
        """Show new lines, which describe themselves."""
        self._state = state
        self.log_view.show(state)

    def laid_out(self) -> None:
        self.show(self._state)
        self.redraw()

    def on_log_view_described(self) -> None:
        self.redraw()

    def _draw(self, width: int) -> None:
        view = self.log_view
        self._box.border_title = Content(filter_words(view.chosen, view.count))
        self._box.border_subtitle = Content(_ending(_below_home(self._file), width - 8))
        follow = Content.assemble(" follow ", ("● on", GOOD) if view.auto_scroll else ("○ off", WARN))
        space = max(1, width - 6 - follow.cell_length)
        self._title.draw(Content.assemble((" Logs", "bold"), (" " * space, DIM), follow))

    def on_input_changed(self, event: Input.Changed) -> None:
        self.log_view.choose(self.log_view.chosen._replace(text=event.value.strip()))

    def on_input_submitted(self) -> None:
        self.log_view.focus()

    def action_filter(self) -> None:
        self._filter.focus()

    def action_file(self) -> None:
        self.app.notify(f"Log file: {self._file}")
        self.post_message(Copied(str(self._file)))

    async def action_back(self) -> None:
        if self.focused is self._filter:
            self.log_view.focus()
        elif self._filter.value:
            self._filter.value = ""
        else:
            self.dismiss()


def _ending(path: str, width: int) -> str:
    return path if len(path) <= width else "…" + path[len(path) - width + 1 :]


def _below_home(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
