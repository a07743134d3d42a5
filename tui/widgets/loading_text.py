"""Loading progress of a model, Mac by Mac."""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content

from core.events import Stage, StageState
from tui.state.bars import gauge
from tui.state.format import STAGE_MARKS, fit
from tui.state.progress_rate import BAR, byte_words, left_words
from tui.state.state import UiState

_NAME = 12
_WIDE = 72


def loading_lines(state: UiState, width: int) -> list[Content]:
    plan, known = state.snapshot.plan, {s.device_id: s for s in state.snapshot.stages}
    return [_line(state, stage, known.get(stage.device_id), width) for stage in (plan.stages if plan else ())]


def _line(state: UiState, stage: Stage, step: StageState | None, width: int) -> Content:
    mark = STAGE_MARKS[step.status if step is not None else "waiting"]
    done, total = (step.done_bytes, step.total_bytes) if step is not None else (0, 0)
    total = total or stage.weight_bytes
    done = total if mark.word == "ready" else done
    pace = state.loads.get(stage.device_id) if mark.word in ("loading", "fetching", "comparing") else None
    size, *speed = byte_words(done, total, pace.per_s if pace else None).split(" · ")
    cells = BAR if width >= _WIDE else BAR // 2
    room = width - 2 - _NAME - 1 - cells - cell_len(f" {size} · {mark.word}")
    more = _that_fit([*speed, *left_words(pace.left_s if pace else None)], room)
    return Content.assemble(
        (mark.glyph + " ", mark.style),
        fit(stage.peer, _NAME) + " ",
        (gauge(done, total, cells), "$primary"),
        f" {size} · ",
        (mark.word, mark.style),
        "".join(f" · {word}" for word in more),
    )


def _that_fit(words: list[str], room: int) -> list[str]:
    while words and sum(cell_len(word) + 3 for word in words) > room:
        words = words[:-1]
    return words


def load_left_s(state: UiState) -> float | None:
    """Seconds until the slowest Mac is done; None if unknown."""
    waits = [known.device_id for known in state.snapshot.stages if known.status in ("loading", "fetching", "comparing")]
    left = [pace.left_s for mac in waits if (pace := state.loads.get(mac))]
    return max((each for each in left if each is not None), default=None)
