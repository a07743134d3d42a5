"""Pane 3, the hop table: how long every hop takes."""

from __future__ import annotations

import time

from textual.content import Content

from tui.control.keymap import HOPS, PANE
from tui.state.bars import columns, scale_top, shares, time_scale, time_spark
from tui.state.format import DIM, WARN, duration, fit, rate
from tui.state.hop_history import HOP_WINDOW_S
from tui.state.hops import Hop, Ring, Shares, ring_of
from tui.state.seat import nothing_words
from tui.state.state import UiState
from tui.widgets.pane import Drawing, Pane

_PARTS = (("compute", "▇", "$primary"), ("encrypt", "▅", "$stage-3"), ("net", "▃", "$accent"), ("wait", "▁", DIM))


class HopPane(Pane):
    """Each hop with its time per token, rate and last minute, on one scale."""

    ACTIONS = (*HOPS, *PANE)

    HELP = """A hop is the link from one stage to the next. Its time per token is encoding, encrypting, sending and \
decrypting at both ends, plus half the round trip.

MB/s is the rate while a frame travels. All bars share the logarithmic scale at the top. For one user, a token takes \
the sum of every Mac's compute, encryption at both ends of every hop, time on the network, and waiting."""

    def draw(self, state: UiState, width: int) -> Drawing:
        return Drawing("3 Hops · last 60 s", hops_content(state, width, time.time()), slowest_words(ring_of(state)))


def hops_content(state: UiState, width: int, now: float) -> Content:
    ring = ring_of(state)
    plan = state.snapshot.plan
    if plan is not None and len(plan.stages) == 1:
        return Content(f"{plan.stages[0].peer} holds the whole model, so there are no hops.")
    if state.snapshot.host:
        return Content(nothing_words(state.snapshot))
    if not ring.hops:
        return Content("No hops yet.\n\nThey appear when a model runs on several Macs.")
    label = min(max(len(h.label) for h in ring.hops), max(14, width - 30))
    bar = max(6, width - label - 18)
    top = scale_top(max((v for h in ring.hops for _, v in h.samples), default=0.001))
    slowest = ring.slowest
    lines = [_head(label, bar, top)]
    lines += [_line(hop, label, bar, top, now, slowest=hop is slowest) for hop in ring.hops]
    spent = ring.shares
    if spent is None or spent.token_s <= 0:
        lines.append(Content.styled("Times appear with the next answer.", DIM))
    else:
        lines += _shares(spent, ring, width)
    return Content("\n").join(lines)


def _head(label: int, bar: int, top: float) -> Content:
    start, end = time_scale(top)
    scale = f"{start} {'─' * (bar - len(start) - len(end) - 2)} {end}"
    head = fit("hop", label) + fit("time", 9, right=True) + fit("MB/s", 7, right=True)
    return Content.styled(f"{head}  {scale}", DIM)


def _line(hop: Hop, label: int, bar: int, top: float, now: float, *, slowest: bool) -> Content:
    bars = time_spark(columns(hop.samples, now, HOP_WINDOW_S, bar), top)
    return Content.assemble(
        fit(hop.label, label),
        (fit("–" if hop.transfer_s is None else duration(hop.transfer_s), 9, right=True), WARN if slowest else ""),
        fit("–" if hop.bytes_per_s is None else rate(hop.bytes_per_s / 1e6), 7, right=True),
        "  ",
        (bars, "$accent" if slowest else "$primary"),
    )


def _shares(spent: Shares, ring: Ring, width: int) -> list[Content]:
    """A bar of the parts, and their names in the same order. Ranks' compute includes the all-reduces."""
    what = f"step of {ring.rows} rows" if ring.rows > 1 else "token"
    head = f"{what} {duration(spent.token_s)}: "
    named = (("compute+reduce", *_PARTS[0][1:]), *_PARTS[1:]) if ring.at_once else _PARTS
    parts = [(*part, seconds) for part, seconds in zip(named, spent, strict=True) if seconds is not None]
    drawn = [part for part in parts if part[-1] > 0]
    cells = shares([round(1e9 * seconds) + 1 for *_, seconds in drawn], max(0, width - len(head)))
    bars = ((glyph * count, tint) for (_, glyph, tint, _), count in zip(drawn, cells, strict=True))
    words = (Content.styled(f"{word} {percent(seconds, spent.token_s)}", tint) for word, _, tint, seconds in parts)
    return [Content.assemble(head, *bars), Content(" ").join(words)]


def percent(part: float, whole: float) -> str:
    share = 100 * part / whole
    return "<1%" if 0 < share < 0.5 else f"{share:.0f}%"


def slowest_words(ring: Ring) -> str:
    if (hop := ring.slowest) is None:
        return ""
    rtt = "" if hop.rtt_s is None else f" · rtt {duration(hop.rtt_s)}"
    return f"slowest: {hop.label}{hop.path and f' · {hop.path}'}{rtt}"
