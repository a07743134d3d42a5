"""The batch screen: running requests by lane, and the queue."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content

from core.events import BatchLane, BatchRow, Plan, Snapshot
from tui.control.keymap import BATCH
from tui.screens.base import NodeScreen, Sources, titled
from tui.state.format import DIM, GOOD, WARN, fit, plural
from tui.state.row_words import summary, why_they_wait
from tui.state.seat import nothing_words
from tui.widgets.row_list import RowList, head_content
from tui.widgets.text_view import TextView, title_line

_LANE = 36
_DRAWN = 8


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


def title_content(now: Snapshot, width: int) -> Content:
    """How full the batch is, in `width` cells; below 100 cells without the screen's name."""
    full = summary(now.batch, now.plan) if now.plan else ""
    return Content(fit(f" {full} ", width)) if full and width < 100 else title_line(BatchScreen.TITLE, full, width)


def empty_content(now: Snapshot, *, attached: bool) -> Content:
    if not attached:
        return Content.styled("macluster's service doesn't answer; retrying every second.", WARN)
    if now.plan is None:
        return Content(nothing_words(now))
    if now.plan_status != "ready":
        return Content(f"{now.plan.model} isn't ready yet. The dashboard shows its progress (Esc).")
    words = "No requests running. Requests of other programs appear here too."
    if parked := now.batch.parked_tokens:
        words += f"\n\n{parked} tokens of earlier chats are cached. A prompt that starts the same way reuses them."
    return Content(words)


def ring_content(now: Snapshot, width: int) -> Content:
    """The Macs in ring order, the lanes, and the prompts between them. Which Mac computes which lane is unknown."""
    plan, batch = now.plan, now.batch
    if plan is None:
        return Content("")
    lines = [Content.styled(_ring(plan, width), DIM), *_lanes(batch.lanes, width)]
    if batch.chunks:
        lines.append(_marked("prompts", "▮" * min(batch.chunks, _DRAWN), plural(batch.chunks, "part"), in_flight=True))
    if why := why_they_wait(now):
        lines.append(Content.styled(why, WARN))
    return Content("\n").join(lines)


def _ring(plan: Plan, width: int) -> str:
    names = [stage.peer for stage in plan.stages]
    if len(names) == 1:
        return fit(f"{names[0]} only", width).rstrip()
    return fit(" → ".join([*names, names[0]]), width).rstrip()


def _lanes(lanes: tuple[BatchLane, ...], width: int) -> list[Content]:
    cells = [
        _marked(f"lane {n}", "▮" * min(lane.rows, _DRAWN), plural(lane.rows, "row"), in_flight=lane.in_flight)
        for n, lane in enumerate(lanes, 1)
    ]
    a_line = max(1, width // _LANE)
    padded = [cell + " " * max(0, _LANE - cell.cell_length) for cell in cells]
    return [Content("").join(padded[i : i + a_line]) for i in range(0, len(padded), a_line)]


def _marked(name: str, bars: str, size: str, *, in_flight: bool) -> Content:
    glyph, word, style = ("●", "in flight", GOOD) if in_flight else ("○", "at head", DIM)
    return Content.assemble(f"{name:<8}", (f"{glyph} {word}", style), (f" {bars} ", "$primary"), size)
