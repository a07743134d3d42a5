"""Text of the hop screen: chart, phases, gain of a cable, speed test. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from textual.content import Content

from core.errors import Problem
from core.events import Progress
from core.requests.checks import SpeedResult
from tui.state import hop_phases
from tui.state.bars import STEPS, columns, gauge, scale_top, time_scale, time_spark
from tui.state.format import BAD, DIM, WARN, count, duration, fit, path_words
from tui.state.hop_history import HOP_WINDOW_S, HopPoint
from tui.state.hops import Hop, Ring
from tui.state.state import UiState
from tui.widgets.text_view import title_line

ROWS: Final = 5
_AXIS: Final = 9
_LABEL: Final = 27
_TIME: Final = 10


class SpeedTest(NamedTuple):
    """A speed test of a hop: running, its result, or why it failed."""

    is_running: bool = False
    result: SpeedResult | None = None
    problem: Problem | None = None


def window_word(window_s: float) -> str:
    if window_s < 100:
        return f"{window_s:.0f} s"
    return f"{window_s / 60:.0f} min" if window_s < 3600 else f"{window_s / 3600:.0f} h"


def title_content(state: UiState, ring: Ring, hop: Hop | None, test: SpeedTest, width: int) -> Content:
    if hop is None:
        return title_line("Hop details", "", width)
    left = f"Hop {ring.hops.index(hop) + 1} of {len(ring.hops)} · {hop.source} → {hop.target}"
    host = next((p.address.rpartition(":")[0] for p in state.snapshot.peers if p.device_id == hop.pair[1]), "")
    rtt = "" if hop.rtt_s is None else f"rtt {duration(hop.rtt_s)}"
    via = hop.path or (test.result.via if test.result else "")
    known = [part for part in ("TLS 1.3 + seal", rtt, via, host) if part]
    while 1 + len(left) + sum(len(part) + 3 for part in known) > width and known:
        known.pop()
    return title_line(left, " · ".join(reversed(known)), width, style=DIM)


def chart_content(state: UiState, ring: Ring, hop: Hop, now: float, window_s: float, width: int) -> Content:
    """The time of a frame, on one scale for all hops, with percentiles; in `width` cells."""
    points = {h.pair: hop_phases.points_of(state, h.pair, now, window_s) for h in ring.hops}
    top = _top(points.values())
    cells = columns(hop_phases.samples_of(points[hop.pair]), now, window_s, max(1, width - _AXIS))
    tint = "$accent" if hop is ring.slowest else "$primary"
    marks = [_mark(top), "", _mark(top / 2), "", ""]
    lines = [
        Content.assemble((f"{fit(mark, _AXIS - 2, right=True)} ┤", DIM), (row, tint))
        for mark, row in zip(marks, bar_rows(cells, top), strict=True)
    ]
    end = f" last {window_word(window_s)}"
    axis = f"{fit('0', _AXIS - 2, right=True)} ┼" + "─" * max(0, width - _AXIS - len(end)) + end
    return Content("\n").join([*lines, Content.styled(axis, DIM), _spread(points[hop.pair], window_s)])


def bar_rows(values: Sequence[float | None], top: float) -> list[str]:
    """One column per value on the scale 0 to `top`, `ROWS` high, topmost row first; a space for None."""
    steps = len(STEPS)
    heights = [0 if v is None else max(1, round(ROWS * steps * min(v, top) / top)) for v in values]
    return ["".join(_cell(height - row * steps) for height in heights) for row in reversed(range(ROWS))]


def _cell(height: int) -> str:
    """The part of a bar in one row; `height` is what reaches above the row's foot, in eighths."""
    return " " if height <= 0 else STEPS[min(height, len(STEPS)) - 1]


def _mark(seconds: float) -> str:
    return f"{seconds * 1e3:g} ms"


def _spread(points: list[HopPoint], window_s: float) -> Content:
    found = hop_phases.spread_of(points)
    if found is None:
        return Content.styled("No traffic in this period.", DIM)
    grain = "0.5 s" if window_s <= HOP_WINDOW_S else "10 s"
    times = "   ".join(f"{n} {duration(t)}" for n, t in zip(("p50", "p95", "max"), found, strict=True))
    return Content.assemble(times, (f"   (means of {grain})", DIM))


def ring_content(state: UiState, ring: Ring, hop: Hop, now: float, window_s: float, width: int) -> Content:
    """One line per hop, on one scale, in `width` cells."""
    points = {h.pair: hop_phases.points_of(state, h.pair, now, window_s) for h in ring.hops}
    top = _top(points.values())
    bar = max(0, width - 2 - _LABEL - _TIME - 1)
    head = f"  {fit('all hops', _LABEL)}{fit('p50', _TIME, right=True)}  {' to '.join(time_scale(top))}"
    lines = [Content.styled(head, DIM)]
    for each in ring.hops:
        spread = hop_phases.spread_of(points[each.pair])
        middle = duration(spread.p50_s) if spread else "–"
        bars = time_spark(columns(hop_phases.samples_of(points[each.pair]), now, window_s, max(1, bar)), top)
        words = f"{'▸ ' if each is hop else '  '}{fit(each.label, _LABEL)}{fit(middle, _TIME, right=True)} "
        lines.append(Content.assemble(words, (bars, "$accent" if each is ring.slowest else "$primary")))
    return Content("\n").join(lines)


def _top(points: Iterable[list[HopPoint]]) -> float:
    return scale_top(max((time for found in points for _, time in hop_phases.samples_of(found)), default=0.001))


def frames_word(points: list[HopPoint]) -> str:
    phases = hop_phases.phases_of(points)
    if phases is None:
        return ""
    size = f"{phases.bytes / 1e3:.1f} KB" if phases.bytes >= 1000 else f"{phases.bytes:.0f} B"
    return f"{count(phases.frames)} frames of {size}"


def phases_content(hop: Hop, points: list[HopPoint], width: int) -> Content:
    """Where the time of a frame goes, as figures and bars on one scale, in `width` cells."""
    phases = hop_phases.phases_of(points)
    if phases is None:
        return Content.styled("Times appear with the next answer.", DIM)
    parts = _parts(hop, phases)
    longest = max(time for _, time, _ in parts)
    bar = max(0, width - _LABEL - _TIME - 1)
    lines = []
    for name, time, tint in parts:
        words = f"{fit(name, _LABEL)}{fit(duration(time), _TIME, right=True)} "
        lines.append(Content.assemble(words, (gauge(time, longest, bar).replace(STEPS[0], " "), tint)))
    return Content("\n").join(lines)


def _parts(hop: Hop, phases: hop_phases.Phases) -> list[tuple[str, float, str]]:
    return [
        (f"{fit(hop.source, 12).rstrip()} computes", phases.compute_s, "$primary"),
        ("encode", phases.codec_s, "$accent"),
        ("encrypt", phases.seal_s, "$accent"),
        ("send", phases.send_s, "$accent"),
        ("network (half round trip)", phases.wire_s, "$accent"),
        (f"{fit(hop.target, 12).rstrip()} decrypts", phases.open_s, "$accent"),
        ("idle, waiting", phases.wait_s, DIM),
    ]


def worth_content(ring: Ring, hop: Hop, test: SpeedTest) -> Content:
    """The gain of a cable, by measurement."""
    spent = ring.shares
    if spent is None or spent.token_s <= 0:
        return Content("")
    if hop.path == "Thunderbolt":
        return Content("This hop uses a Thunderbolt cable; there is no faster path.")
    if ring.at_once:
        why = "The Macs wait for each other twice per layer over this hop"
        return Content(f"{why}; a faster link shortens every token.")
    # a test measures the link alone; pings compete with other traffic
    rtt_s = test.result.rtt_s if test.result else hop.rtt_s
    worth = hop_phases.worth_of(ring, rtt_s)
    if worth is None or rtt_s is None:
        why = "several answers share the ring" if ring.rows > 1 else "the round trip isn't measured yet"
        return Content.styled(f"Can't say what a cable would gain here: {why}.", DIM)
    if worth.saved_s < hop_phases.WORTH_SAYING * worth.token_s:
        compute = spent.compute_s / spent.token_s
        if compute >= 0.5:
            return Content(f"Nothing to gain here: compute takes {100 * compute:.0f} % of a token.")
        return Content("A cable wouldn't help here: the network isn't what takes the time.")
    head = (("▲ Slowest hop. ", WARN),) if hop is ring.slowest else ()
    return Content.assemble(
        *head,
        f"With a cable ({duration(hop_phases.CABLE_RTT_S)} round trip instead of {duration(rtt_s)}) this hop would "
        f"save {duration(worth.saved_s)} of a token's {duration(worth.token_s)}: +{100 * worth.gain:.0f} % tok/s.",
    )


def speed_content(test: SpeedTest, progress: Progress | None, width: int) -> Content:
    """The running test, its result, or how to start one."""
    if test.is_running:
        done, total = (progress.done, progress.total) if progress else (0, 0)
        bar = gauge(done, total, min(24, max(4, width - 40)))
        return Content.assemble("Speed test  ", (bar, "$primary"), f"  {done} of {total or '…'}  ", ("Esc: stop", DIM))
    if test.problem is not None:
        return Content.assemble(("✗ Speed test failed: ", BAD), f"{test.problem.what} {test.problem.fix}".rstrip())
    if test.result is None:
        return Content.styled("s tests the speed of this link in a few seconds.", DIM)
    found, loaded = test.result, duration(test.result.loaded_rtt_s)
    speed, trip = f"{found.bytes_per_s / 1e6:.0f} MB/s", f"{duration(found.rtt_s)} round trip"
    least = f" (min {duration(found.rtt_min_s)})"
    how = f"{found.frames} encrypted messages in {duration(found.seconds)}; round trip under load {loaded}"
    lines = [
        Content.assemble("Speed test  ", (speed, "bold"), " · ", (trip, "bold"), least),
        Content.styled(how, DIM),
        *([Content.styled(f"Networks: {path_words(found.paths)}", DIM)] if len(found.paths) > 1 else []),
        *([Content.styled("An answer was being written during the test.", DIM)] if found.answering else []),
    ]
    return Content("\n").join(lines)
