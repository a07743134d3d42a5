"""Runs the two stages of the benches and draws when each computed: the pictures of lanes and of a window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from screenshots import png
from tests.benches import batch, prefill
from tests.benches.stage_timeline import Activity, Timeline, end_s, middle, timeline
from tui.control.themes import DARK

WIDTH, MARGIN, LABELS = 1080, 36, 92
TRACK, GAP, PANEL_GAP, HEADING = 24, 5, 26, 24
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0)
MOST_TICKS = 12
SEAM = 0.6  # between blocks that touch

COLOURS = tuple(DARK.variables[f"stage-{number}"] for number in (1, 2, 3, 4))
MUTED = DARK.variables["text-muted"]

PIECE_S = 0.6
CHUNK = prefill.CHUNKS[0]


class Panel(NamedTuple):
    """One run: its title, its figures, and when each stage computed."""

    title: str
    figures: str
    stages: Timeline


class Picture(NamedTuple):
    """Panels over one time axis of `seconds`; `legend`: the meaning of the colours, from the first one on."""

    name: str
    title: str
    subtitle: str
    legend: Sequence[str]
    panels: Sequence[Panel]
    seconds: float


def main() -> None:
    png.require()
    for picture in (lanes(), windows()):
        png.write(picture.name, "\n".join(_svg(picture)))


def lanes() -> Picture:
    """A piece from the middle of three ways to decode."""
    panels = []
    with batch.rings(batch.DEFAULT) as rings:
        for name in batch.SHOWN:
            played = rings.play(name, batch.TOKENS)
            stages = timeline(middle(played.traces, PIECE_S), "handle")
            figures = f"{played.turn.tokens_per_s:.1f} tokens/s, {_shares(played.turn.activity)}"
            panels.append(Panel(batch.WAYS[name].meaning, figures, stages))
    subtitle = f"Decode over two stages on one machine, {batch.DEFAULT}. Slivers are the output head."
    return Picture("timeline-lanes", "Lanes keep every stage busy", subtitle, ("lane 1", "lane 2"), panels, PIECE_S)


def windows() -> Picture:
    """A whole prompt, one chunk at a time and with a window."""
    panels = []
    with prefill.sides(prefill.PROMPT_TOKENS, (CHUNK,), prefill.DEFAULT) as sides:
        for window in (1, prefill.PLANNED):
            played = sides.play(prefill.PrefillWay(CHUNK, window), 0)
            speed = prefill.PROMPT_TOKENS / played.turn.seconds
            figures = f"{played.turn.seconds:.2f} s, {speed:.0f} tokens/s, {_shares(played.turn.activity)}"
            title = "One chunk under way" if window == 1 else f"{window} chunks under way"
            panels.append(Panel(title, figures, timeline(played.traces, "step")))
    subtitle = (
        f"{prefill.PROMPT_TOKENS} tokens in chunks of {CHUNK} over two stages on one machine, {prefill.DEFAULT}. "
        "A chunk keeps its colour."
    )
    seconds = max(end_s(panel.stages) for panel in panels)
    return Picture("timeline-prefill", "A window of chunks reads a prompt sooner", subtitle, (), panels, seconds)


def _shares(activity: Activity) -> str:
    return f"both stages compute at once {activity.together:.0%} of the time"


def _svg(picture: Picture) -> Iterator[str]:
    panel_height = HEADING + len(picture.panels[0].stages) * (TRACK + GAP)
    top = MARGIN + 66
    bottom = top + len(picture.panels) * (panel_height + PANEL_GAP) - PANEL_GAP
    height = bottom + 24 + MARGIN
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="Fira Code">'
    yield f'<rect width="{WIDTH}" height="{height}" rx="10" fill="{DARK.background}"/>'
    yield _text(MARGIN, MARGIN + 10, picture.title, size=20, weight=600)
    yield _text(MARGIN, MARGIN + 34, picture.subtitle, colour=MUTED)
    yield from _legend(picture.legend)
    for number, panel in enumerate(picture.panels):
        yield from _panel(panel, top + number * (panel_height + PANEL_GAP), picture.seconds)
    yield from _axis(picture.seconds, bottom)
    yield "</svg>"


def _legend(labels: Sequence[str]) -> Iterator[str]:
    for number, label in enumerate(labels):
        right = WIDTH - MARGIN - 100 * (len(labels) - 1 - number)
        yield _rect(right - 72, MARGIN - 2, 14, 14, COLOURS[number])
        yield _text(right, MARGIN + 10, label, anchor="end")


def _axis(seconds: float, top: float) -> Iterator[str]:
    tick = next(tick for tick in TICKS if seconds / tick <= MOST_TICKS)
    yield _text(MARGIN, top + 24, "ms", colour=MUTED)
    for number in range(int(seconds / tick + 1e-9) + 1):
        x = _x(number * tick, seconds)
        yield f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{top + 6}" stroke="{MUTED}"/>'
        yield _text(x, top + 24, f"{1e3 * number * tick:.0f}", colour=MUTED, anchor="middle")


def _panel(panel: Panel, top: float, seconds: float) -> Iterator[str]:
    left, right = _x(0, seconds), _x(seconds, seconds)
    yield _text(MARGIN, top + 12, panel.title, weight=600, size=14)
    yield _text(right, top + 12, panel.figures, colour=MUTED, anchor="end")
    for number, stage in enumerate(panel.stages):
        y = top + HEADING + number * (TRACK + GAP)
        yield _text(MARGIN, y + 17, f"stage {number + 1}")
        yield _rect(left, y, right - left, TRACK, DARK.panel or "")
        for block in stage:
            x, end = _x(block.start_s, seconds), _x(block.end_s, seconds)
            yield _rect(x, y, max(end - x - SEAM, SEAM), TRACK, COLOURS[block.number % len(COLOURS)])


def _x(at_s: float, seconds: float) -> float:
    left, right = MARGIN + LABELS, WIDTH - MARGIN
    return left + (right - left) * at_s / seconds


def _rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    radius = min(3.0, width / 3)
    return f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{height}" rx="{radius:.1f}" fill="{colour}"/>'


def _text(
    x: float, y: float, text: str, *, colour: str = "", size: int = 13, weight: int = 400, anchor: str = "start"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="{colour or DARK.foreground}">{escape(text)}</text>'
    )


if __name__ == "__main__":
    main()
