"""The cluster in three lines, for a terminal with room for the chat only."""

from __future__ import annotations

from textual.content import Content

from core.events import Peer, Snapshot
from tui.state.bars import TEXTURES, TINTS, columns, gauge, scale_top, time_scale, time_spark
from tui.state.format import BAD, DIM, WARN, gigabytes_short, peer_mark
from tui.state.hop_history import HOP_WINDOW_S
from tui.state.hops import ring_of
from tui.state.plan_words import part_of
from tui.state.recovery import mac_mark, part_mark
from tui.state.seat import led_words
from tui.state.state import UiState, own_first
from tui.widgets.layer_bar import layer_bar


def strip_content(state: UiState, width: int, now: float) -> Content:
    """Split, Macs, hops: one line each."""
    room = width - 2
    lines = [_split(state.snapshot, room), _macs(state), _hops(state, room, now)]
    return Content("\n").join(Content(" ") + line.truncate(room, ellipsis=True) for line in lines)


def _split(snapshot: Snapshot, room: int) -> Content:
    plan = snapshot.plan
    if snapshot.host:
        return Content(led_words(snapshot.host, snapshot))
    if plan is None:
        return Content.styled("no model loaded · Ctrl+O chooses one", DIM)
    if snapshot.plan_status == "broken" and snapshot.plan_problem is not None:
        return Content.styled(f"✗ broken: {snapshot.plan_problem.what}", BAD)
    states = {s.device_id: s for s in snapshot.stages}
    legend = Content("")
    for i, stage in enumerate(plan.owners):
        step = states.get(stage.device_id)
        layers, mark = part_of(plan, stage), part_mark(snapshot, stage)
        if mark.word not in ("ready", "loading"):
            layers = mark.word
        elif step is not None and step.status == "loading":
            layers = gauge(step.done_bytes, step.total_bytes or stage.weight_bytes, 6)
        legend += Content.assemble("  ", (TEXTURES[i % 4], TINTS[i % 4]), f" {stage.peer} ", (layers, DIM))
    bar = max(8, room - legend.cell_length)
    return layer_bar([s.stop - s.start for s in plan.owners], bar) + legend


def _macs(state: UiState) -> Content:
    peers = own_first(state)
    if state.departures:
        gone = state.departures[-1]
        return Content.styled(f"✗ {gone.name} left: {gone.reason}", BAD)
    trouble = [p for p in peers if mac_mark(state, p).word not in ("ready", "not paired")]
    if trouble:
        mark = mac_mark(state, trouble[0])
        words = f"{mark.glyph} {trouble[0].name} {mark.word}"
        return Content.assemble((words, mark.style), (" · F2 shows the Macs", DIM))
    if not peers:
        return Content.styled("no Macs seen yet", DIM)
    parts = [Content.assemble((peer_mark(p).glyph, peer_mark(p).style), f" {p.name} {_memory(p)}") for p in peers]
    return Content("  ").join([*parts, Content.styled("GB used/budget", DIM)])


def _memory(peer: Peer) -> str:
    if not peer.budget_bytes:
        return peer_mark(peer).word
    return f"{gigabytes_short(peer.used_bytes)}/{gigabytes_short(peer.budget_bytes)}"


def _hops(state: UiState, room: int, now: float) -> Content:
    ring = ring_of(state)
    plan = state.snapshot.plan
    if plan is not None and len(plan.stages) == 1:
        return Content.styled("one Mac holds the whole model: no hops", DIM)
    if ring.longest_s is None:
        when = "with the next answer" if plan else "when a model runs on several Macs"
        when = f"on the screen of {state.snapshot.host.led_by}" if state.snapshot.host else when
        return Content.styled(f"hops appear {when}", DIM)
    top = scale_top(max(v for h in ring.hops for _, v in h.samples))
    tail = f" ms (scale {'–'.join(time_scale(top))})"
    cells = max(3, min(12, (room - len(tail) - 5) // len(ring.hops) - 8))
    parts = [Content("hops ")]
    for hop in ring.hops:
        bars = time_spark(columns(hop.samples, now, HOP_WINDOW_S, cells), top)
        value = "–" if hop.transfer_s is None else f"{hop.transfer_s * 1e3:.1f}"
        text, tint = (WARN, "$accent") if hop is ring.slowest else ("$foreground", "$primary")
        parts.append(Content.assemble((f" {value:>5} ", text), (bars, tint)))
    return Content("").join([*parts, Content.styled(tail, DIM)])
