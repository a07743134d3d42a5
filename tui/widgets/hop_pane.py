"""Pane 3: how long every hop takes."""

from __future__ import annotations

import time

from textual.content import Content

from tui.format import DIM, WARN, columns, duration, fit, gauge, scale_top, spark
from tui.hops import Hop, Ring, ring_of
from tui.state import HOP_WINDOW_S, UiState
from tui.widgets.pane import Drawing, Pane


class HopPane(Pane):
    """Every hop with its time per token, its rate and its last minute, all on one scale."""

    HELP = """A hop is the link from one stage to the next. Its time per token is what both ends spend on packing, \
sealing, sending and opening, plus half the round trip.

MB/s is the rate while a frame travels. All bars share the scale in the head line, so they can be compared. \
For one user the time of a token is the sum of all hops and of what every Mac computes."""

    def draw(self, state: UiState, width: int) -> Drawing:
        """The ring as it was lately."""
        return Drawing("3 Hops · last 60 s", hops_content(state, width, time.time()))


def hops_content(state: UiState, width: int, now: float) -> Content:
    """The hops in `width` cells."""
    ring = ring_of(state)
    plan = state.snapshot.plan
    if plan is not None and len(plan.stages) == 1:
        return Content(f"{plan.stages[0].peer} holds the whole model: there are no hops.")
    if not ring.hops:
        return Content("No hops yet.\n\nThey appear when a model runs on several Macs.")
    label = min(max(len(h.label) for h in ring.hops), max(14, width - 30))
    bar = max(6, width - label - 18)
    top = scale_top(max((v for h in ring.hops for _, v in h.samples), default=0.001))
    lines = [_head(label, bar, top)]
    lines += [_line(hop, label, bar, top, now, slowest=hop is ring.slowest) for hop in ring.hops]
    lines += [Content(""), *_sums(ring, width)]
    return Content("\n").join(lines)


def _head(label: int, bar: int, top: float) -> Content:
    start, end = "0 ", f" {duration_short(top)}"
    scale = start + "─" * (bar - len(start) - len(end)) + end
    return Content.styled(
        fit("hop", label) + fit("time", 9, right=True) + fit("MB/s", 7, right=True) + "  " + scale, DIM
    )


def duration_short(seconds: float) -> str:
    """The end of a scale: a round number without decimals."""
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.0f} s"


def _line(hop: Hop, label: int, bar: int, top: float, now: float, *, slowest: bool) -> Content:
    bars = spark(columns(hop.samples, now, HOP_WINDOW_S, bar), top)
    return Content.assemble(
        fit(hop.label, label),
        (fit("–" if hop.transfer_s is None else duration(hop.transfer_s), 9, right=True), WARN if slowest else ""),
        fit(_megabytes(hop.bytes_per_s), 7, right=True),
        "  ",
        (bars, "$accent" if slowest else "$primary"),
    )


def _megabytes(bytes_per_s: float | None) -> str:
    if bytes_per_s is None:
        return "–"
    value = bytes_per_s / 1e6
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _sums(ring: Ring, width: int) -> list[Content]:
    """Where the token time goes, and the slowest hop by name."""
    slowest = ring.slowest
    if slowest is None or ring.token_s <= 0:
        return [Content.styled("Times appear with the first answer.", DIM)]
    share = round(100 * ring.hops_s / ring.token_s)
    first, second = f"token {duration(ring.token_s)}: hops {share} % ", f"compute {100 - share} % "
    bar = min(12, (width - len(first) - len(second) - 1) // 2)
    bars = [gauge(share, 100, bar), gauge(100 - share, 100, bar)] if bar > 1 else ["", ""]
    rtt = "" if slowest.rtt_s is None else f" · rtt {duration(slowest.rtt_s)}"
    return [
        Content.assemble(first, (bars[0], "$accent"), " ", second, (bars[1], "$primary")),
        Content.assemble("slowest: ", (slowest.label, WARN), rtt),
    ]
