"""SVG chart of throughput against latency: a dot per scenario or load level, p50 with a whisker to p95."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Final

from core.bench.scenarios.percentiles import Segment
from core.bench.scenarios.report import ScenarioResult

WIDTH, HEIGHT = 1080, 560
LEFT, RIGHT, TOP, BOTTOM = 84, 300, 64, 60
_INK: Final = "#1f2430"
_FAINT: Final = "#c9ced8"
_COLOURS: Final = ("#3465a4", "#a4343a", "#3a7d44", "#8a5a00", "#6a3d9a", "#007f86", "#b8336a", "#5b5b5b")


def svg(results: Sequence[ScenarioResult], runner: str) -> str:
    """Draw the chart; a line joins the load levels of one scenario. The latency axis is logarithmic."""
    found = [(one, e2e) for one in results if (e2e := one.segments.get("total_e2e"))]
    return "\n".join(_svg(found, runner)) + "\n"


def _svg(found: Sequence[tuple[ScenarioResult, Segment]], runner: str) -> Iterator[str]:
    most = ceil(max((one.requests_per_s for one, _ in found), default=1.0) * 1.1) or 1
    times = [1e3 * each for _, e2e in found for each in (e2e.p50, e2e.p95) if each > 0] or [1.0]
    low, high = floor(log10(min(times))), max(ceil(log10(max(times))), floor(log10(min(times))) + 1)

    def x(per_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * per_s / most

    def y(ms: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (log10(max(ms, 10.0**low)) - low) / (high - low)

    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">'
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    yield _text(LEFT, 28, "Throughput against latency", size=20)
    yield _text(LEFT, 48, f"Dot: p50 from request to end of answer; whisker: p95. {runner.partition(';')[0]}.", size=12)
    for power in range(low, high + 1):
        at = y(10.0**power)
        yield _line(LEFT, at, WIDTH - RIGHT, at, _FAINT)
        yield _text(LEFT - 8, at + 4, _time(10.0**power), anchor="end", size=12)
    for tick in range(6):
        at = x(most * tick / 5)
        yield _line(at, HEIGHT - BOTTOM, at, HEIGHT - BOTTOM + 5, _INK)
        yield _text(at, HEIGHT - BOTTOM + 20, f"{most * tick / 5:.1f}", anchor="middle", size=12)
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, "requests per second", anchor="middle", size=13)
    for number, name in enumerate(dict.fromkeys(one.name for one, _ in found)):
        colour = _COLOURS[number % len(_COLOURS)]
        mine = [(x(one.requests_per_s), y(1e3 * e2e.p50), y(1e3 * e2e.p95)) for one, e2e in found if one.name == name]
        if len(mine) > 1:
            way = " ".join(f"{at:.1f},{p50:.1f}" for at, p50, _ in mine)
            yield f'<polyline points="{way}" fill="none" stroke="{colour}"/>'
        for at, p50, p95 in mine:
            yield _line(at, p50, at, p95, colour)
            yield f'<circle cx="{at:.1f}" cy="{p50:.1f}" r="5" fill="{colour}"/>'
            yield _text(at + 8, p50 + 4, str(number + 1), size=12)
        row = TOP + 10 + 22 * number
        yield f'<circle cx="{WIDTH - RIGHT + 30}" cy="{row - 4}" r="5" fill="{colour}"/>'
        yield _text(WIDTH - RIGHT + 42, row, f"{number + 1}  {name}", size=13)
    yield "</svg>"


def _time(ms: float) -> str:
    return f"{ms:g} ms" if ms < 1000 else f"{ms / 1000:g} s"


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, words: str, *, size: int, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {place} fill="{_INK}">{escape(words)}</text>'
