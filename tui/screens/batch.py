"""The batch screen: running requests by lane, and the queue."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll

from core.events import BatchRow
from tui.control.keymap import BATCH
from tui.screens.base import NodeScreen, Sources, titled
from tui.widgets.batch_text import empty_content, ring_content, title_content
from tui.widgets.row_list import RowList, head_content
from tui.widgets.text_view import TextView


class BatchScreen(NodeScreen):
    """How full the batch is, its rows, and the lanes on their ring."""

    TITLE = "Rows, lanes and queue"
    AUTO_FOCUS = "RowList"
    ACTIONS = BATCH

    HELP = """What is running now, in which lanes, and what is queued."""

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        self._head = TextView(id="head")
        self.list = RowList()
        self._box = titled(Vertical(self._head, self.list, id="rows-box"), "Rows")
        self._lanes = TextView()
        self._ring = titled(VerticalScroll(self._lanes, id="ring"), "On the ring")

    def parts(self) -> ComposeResult:
        with Vertical(id="parts"):
            yield from (self._box, self._ring)

    def _draw(self, width: int) -> None:
        state, now = self._state, self._state.snapshot
        rows = now.batch.rows
        inner = self.list.scrollable_content_region.width
        self._title.draw(title_content(now, width))
        self._head.draw(head_content(inner) if rows else empty_content(now, attached=state.attached))
        self._lanes.draw(ring_content(now, self._ring.scrollable_content_region.width))
        self.list.show(rows, state.answer.request_id if state.answer else "")

    def action_stop(self) -> None:
        """Stop the selected request; asks first if it is another program's."""
        row, answer = self.list.pointed, self._state.answer
        if row is None:
            self.app.notify("There is no request to stop.")
        elif answer is not None and answer.request_id == row.request_id:
            self._stop(row)
        else:
            effect = "The program gets what is written so far and a note that it was stopped."
            title = f"Stop request {row.request_id[:8]} of another program?"
            self.ask(title, effect, ("Let it continue", "Stop it"), lambda _: self._stop(row))

    def _stop(self, row: BatchRow) -> None:
        self.do(self._client.cancel(row.request_id))
