"""The list of rows in the batch screen: running rows, then the queue."""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content

from core.events import BatchRow, RowState
from tui.control.keymap import ROW_LIST
from tui.state.bars import gauge
from tui.state.format import DIM, GOOD, WARN, Mark, count, fit
from tui.widgets.item_list import ItemList

_MARKS: dict[RowState, Mark] = {
    "waiting": Mark("○", "queued", DIM),
    "reading": Mark("◌", "reading", WARN),
    "writing": Mark("●", "writing", GOOD),
}
_BAR = 8


class RowList(ItemList[BatchRow]):
    """One line per request."""

    HELP = """Every request to this Mac's model: ● writing its answer, ◌ reading its prompt, ○ queued.

Rows in one lane step together, so several answers cost little more than one. "reused" tokens of a prompt were cached. \
tok/s counts from the first token of the answer."""

    ACTIONS = ROW_LIST
    KEY = "request_id"

    def __init__(self) -> None:
        super().__init__(id="rows")
        self._ours = ""

    def show(self, rows: tuple[BatchRow, ...], ours: str) -> None:
        self._ours = ours
        self.show_items(rows)

    def rows_of(self, items: tuple[BatchRow, ...], width: int) -> list[Content]:
        return rows_content(items, self._ours, width)

    def place_without(self, before: int) -> int:
        return min(before, len(self._items) - 1)


def head_content(width: int) -> Content:
    cells = _cells(("state", "id", "client", "prompt and answer", "tok/s", "lane"), width)
    return Content.styled("  " + "".join(cells), DIM)


def rows_content(rows: tuple[BatchRow, ...], ours: str, width: int) -> list[Content]:
    queue = [row.request_id for row in rows if row.state == "waiting"]
    return [_row_content(row, queue, row.request_id == ours, width) for row in rows]


def _row_content(row: BatchRow, queue: list[str], is_ours: bool, width: int) -> Content:
    mark = _MARKS[row.state]
    rate = f"{row.tokens_per_s:.1f}" if row.tokens_per_s is not None and row.state == "writing" else "–"
    doing, client = _joined(_doing(row, queue), _room(width)), "this chat" if is_ours else row.client or "other"
    texts = (mark.word, row.request_id[:8], client, doing, rate, str(row.lane or "–"))
    state, name, whose, *others = _cells(texts, width)
    style = "bold" if is_ours else ""
    return Content.assemble((mark.glyph + " ", mark.style), (state, mark.style), name, (whose, style), "".join(others))


def _doing(row: BatchRow, queue: list[str]) -> list[str]:
    prompt = f"prompt {count(row.prompt_tokens)}"
    reused = [f"{count(row.reused)} reused"] if row.reused else []
    if row.state == "waiting":
        place = f"{queue.index(row.request_id) + 1} of {len(queue)} in the queue"
        return [place, prompt, *([f"{count(row.written)} written"] if row.written else [])]
    if row.state == "reading":
        whole = row.prompt_tokens + row.written
        return [f"{row.read}/{whole} {gauge(row.read, whole, _BAR)}", *reused]
    return [f"{row.written}/{row.max_tokens} written", prompt, *reused]


def _joined(parts: list[str], room: int) -> str:
    while len(parts) > 1 and cell_len(" · ".join(parts)) > room:
        parts = parts[:-1]
    return " · ".join(parts)


def _room(width: int) -> int:
    return width - 2 - 8 - 9 - 13 - 7 - 5


def _cells(texts: tuple[str, ...], width: int) -> tuple[str, ...]:
    state, name, whose, doing, rate, lane = texts
    return (
        *(fit(state, 8), fit(name, 9), fit(whose, 13)),
        *(fit(doing, _room(width)), fit(rate, 7, right=True), fit(lane, 5, right=True)),
    )
