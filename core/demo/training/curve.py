"""`python -m core.demo.training.curve`: draws the loss curve of the shipped weights, curve.csv to loss-curve.svg."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 40, 44
LOW, HIGH = 0.01, 10.0


def svg(points: Sequence[tuple[int, float]]) -> str:
    """The picture of (step, loss) points, loss on a logarithmic scale."""
    last = points[-1][0]
    line = " ".join(f"{_x(step, last):.1f},{_y(loss):.1f}" for step, loss in points)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="15">Training loss of the demo model (cross entropy, answers only)</text>',
        *(_rule(value) for value in (0.01, 0.1, 1.0, 10.0)),
        *(_mark(step, last) for step in range(0, last + 1, max(1, last // 7))),
        f'<polyline points="{line}" fill="none" stroke="#1f6fb2" stroke-width="1.5"/>',
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 8}" font-size="12" text-anchor="end">step</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _x(step: int, last: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * step / last


def _y(loss: float) -> float:
    share = math.log(loss / LOW) / math.log(HIGH / LOW)
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def _rule(value: float) -> str:
    y = _y(value)
    line = f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ccc"/>'
    return line + f'<text x="{LEFT - 8}" y="{y + 4:.1f}" font-size="12" text-anchor="end">{value:g}</text>'


def _mark(step: int, last: int) -> str:
    y = HEIGHT - BOTTOM + 18
    return f'<text x="{_x(step, last):.1f}" y="{y}" font-size="12" text-anchor="middle">{step}</text>'


def main() -> None:
    """Read the csv beside this file, write the picture beside the model's card."""
    with (HERE / "curve.csv").open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    points = [(int(step), max(LOW, float(loss))) for step, loss in rows]
    (HERE.parent / "loss-curve.svg").write_text(svg(points))


if __name__ == "__main__":
    main()
