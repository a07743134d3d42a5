"""Pane 1: the Macs."""

from __future__ import annotations

from textual.content import Content

from core.events import Peer, Plan
from tui.format import (
    BAD,
    DIM,
    Mark,
    duration,
    fit,
    gauge,
    gigabytes_short,
    is_ready,
    layer_range,
    plural,
    trust_mark,
)
from tui.recovery import mac_mark
from tui.state import UiState
from tui.widgets.pane import Drawing, Pane

_NO_PEERS = (
    "Looking for Macs on this network.\n\n"
    "Run macluster on another Mac; it appears here. Press p on both to pair them.\n"
    "You can also start alone: Ctrl+O shows the models of this Mac."
)


class PeerPane(Pane):
    """The Macs with their memory, their layers and how far they are trusted."""

    HELP = """Macs that this Mac knows. ● ready, ◌ connecting, ◐ slow or stuck, ✗ lost or blocked, ↻ rebuilding, \
○ not paired: only paired Macs can hold layers.

The bar is memory in use of the budget that macluster may use there, in GB. The dim line has the state, \
the trust level (◆ paired, ■ hardware-bound, ○ not paired, ◇ seen, ✗ blocked), the first 8 characters of the \
device id and the round trip time."""

    def draw(self, state: UiState, width: int) -> Drawing:
        """A head line, then two lines a Mac."""
        peers = state.snapshot.peers
        ready = sum(map(is_ready, peers))
        known = len(peers) + len(state.departures)
        subtitle = f"{ready} of {plural(known, 'Mac')} ready" if known else "none seen yet"
        return Drawing("1 Peers", peers_content(state, width), subtitle)


def peers_content(state: UiState, width: int) -> Content:
    """The table of the Macs in `width` cells (at least 40)."""
    snapshot = state.snapshot
    if not snapshot.peers and not state.departures:
        return Content(_NO_PEERS)
    name_width = min(max(9, width - 35), 24)
    bar_width = max(4, min(24, width - name_width - 27))
    head = (
        "  "
        + fit("Mac", name_width)
        + fit("chip", 9)
        + fit("GB used/budget", bar_width + 9)
        + fit("layers", 7, right=True)
    )
    lines = [Content.styled(head.rstrip(), DIM)]
    for peer in snapshot.peers:
        lines += [
            _peer_line(peer, mac_mark(state, peer), snapshot.plan, name_width, bar_width),
            _details(peer, mac_mark(state, peer).word, width),
        ]
    for gone in state.departures:
        lines += [
            Content.assemble(("✗ ", BAD), fit(gone.name, name_width), ("left", BAD)),
            Content.styled(fit(f"  ↳ {gone.reason or 'it went away'}", width).rstrip(), DIM),
        ]
    return Content("\n").join(lines)


def _peer_line(peer: Peer, mark: Mark, plan: Plan | None, name_width: int, bar_width: int) -> Content:
    stage = next((s for s in plan.stages if s.device_id == peer.device_id), None) if plan else None
    budget = max(peer.budget_bytes, 0)
    used = f"{gigabytes_short(peer.used_bytes)}/{gigabytes_short(budget)}" if budget else "–"
    return Content.assemble(
        (mark.glyph + " ", mark.style),
        (fit(peer.name, name_width - 1) + " ", "bold" if peer.is_self else ""),
        fit(peer.chip, 8) + " ",
        (gauge(peer.used_bytes, budget, bar_width), "$primary"),
        fit(used, 8, right=True) + " ",
        fit(layer_range(stage.start, stage.stop) if stage else "", 7, right=True),
    )


def _details(peer: Peer, state: str, width: int) -> Content:
    mark = trust_mark(peer.trust)
    words = ["not paired", "press p"] if state == "not paired" else [state]
    if mark.word in ("unpaired", state):  # the level says the same
        del words[0]
    words.append(peer.short_id)
    if peer.is_self:
        words.append("this Mac")
    elif peer.rtt_s is not None:
        words.append(f"rtt {duration(peer.rtt_s)}")
    trust = f"{mark.glyph} {'not paired' if mark.word == 'unpaired' else mark.word}"
    rest = fit(" · " + " · ".join(words), width - 4 - len(trust)).rstrip()
    return Content.assemble(("  ↳ ", DIM), (trust, mark.style), (rest, DIM))
