"""Pane 1: the Macs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache, partial

from textual.content import Content
from textual.geometry import Region

from core.events import Peer, Plan
from tui.control.keymap import PEERS
from tui.control.messages import Copied, MacAction, MacAsked
from tui.state.bars import gauge
from tui.state.disabled_reasons import why_not_mac
from tui.state.format import BAD, DIM, WARN, Mark, duration, fit, gigabytes_short, is_ready, peer_trust, plural
from tui.state.plan_words import part_of
from tui.state.recovery import mac_mark
from tui.state.state import Departure, UiState, own_first, strangers
from tui.widgets.pane import Drawing, Pane

_NO_PEERS = (
    "Looking for Macs on this network.\n\n"
    "Run macluster on another Mac and it appears here. Press p on both to pair them.\n"
    "You can also start alone: Ctrl+O shows the models on this Mac."
)
_CURSOR = "$block-cursor-background"
_ALL = range(sys.maxsize)


class PeerPane(Pane):
    """The Macs with memory, layers and trust."""

    HELP = """Macs that this Mac knows. ● ready, ◌ connecting, ◐ slow or stuck, ✗ offline or blocked, ↻ rebuilding, \
○ not paired: only paired Macs can hold layers.

The bar shows memory in use, out of the budget that macluster may use there, in GB. The dim line has the trust level \
(◆ paired, ○ not paired, ◇ seen, ✗ blocked), the state, the first 8 characters of the device id, and the round trip \
time. A Mac that is left out holds no layers of the next model you load."""

    ACTIONS = PEERS

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._pointed_id = ""
        self._seen = _ALL

    @property
    def pointed(self) -> Peer | None:
        peers = own_first(self._state)
        return next((p for p in peers if p.device_id == self._pointed_id), peers[0] if peers else None)

    def draw(self, state: UiState, width: int) -> Drawing:
        peers = state.snapshot.peers
        ready = sum(map(is_ready, peers))
        others = len(strangers(state))
        ours = len(peers) - others + len(state.departures)
        subtitle = f"{ready} of {plural(ours, 'Mac')} ready" if ours else "none seen yet"
        subtitle += f" · {others} not paired" if others else ""
        if self._body.text_selection is None:  # a marked row keeps its place
            top = self.scroll_offset.y
            self._seen = range(top, top + max(1, self.scrollable_content_region.height))
        drawing = peers_in_sight(state, width, self._cursor, self._seen)
        return drawing._replace(subtitle=subtitle + drawing.subtitle)

    @property
    def _cursor(self) -> str:
        return self.pointed.device_id if self.has_focus and self.pointed else ""

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.show(self._state)

    def action_copy_text(self) -> None:
        self.post_message(Copied(peers_content(self._state, self.scrollable_content_region.width, self._cursor).plain))

    def on_focus(self) -> None:
        self.show(self._state)

    def on_blur(self) -> None:
        self.show(self._state)

    def action_cursor_down(self) -> None:
        self._move(1)

    def action_cursor_up(self) -> None:
        self._move(-1)

    def action_cursor_first(self) -> None:
        self._move(-len(self._state.snapshot.peers))

    def action_cursor_last(self) -> None:
        self._move(len(self._state.snapshot.peers))

    def why_not(self, run: str) -> str:
        return why_not_mac(self._state, self.pointed, run)

    def action_ask(self, action: MacAction) -> None:
        pointed = self.pointed
        self.post_message(MacAsked(pointed.device_id if pointed else "", action))

    def _move(self, rows: int) -> None:
        peers, pointed = own_first(self._state), self.pointed
        if pointed is None:
            return
        at = max(0, min(len(peers) - 1, peers.index(pointed) + rows))
        self._pointed_id = peers[at].device_id
        self.show(self._state)
        top = 1 + sum(map(_height, peers[:at])) if at else 0  # the header line scrolls into view with the first Mac
        self.scroll_to_region(Region(0, top, 1, _height(peers[at]) + (at == 0)), animate=False)


def peers_content(state: UiState, width: int, pointed: str = "") -> Content:
    """The table of the Macs in `width` cells (at least 40); the cursor is on the device id `pointed`."""
    return peers_in_sight(state, width, pointed, _ALL).body


def peers_in_sight(state: UiState, width: int, pointed: str, seen: range) -> Drawing:
    """The same table, but only Macs with lines in `seen`: of a hundred Macs, most are out of sight. The subtitle counts
    those below.
    """
    snapshot = state.snapshot
    if not snapshot.peers and not state.departures:
        return Drawing("1 Peers", Content(_NO_PEERS))
    peers = own_first(state)
    marks = tuple(mac_mark(state, peer) for peer in peers)
    return _table(peers, marks, snapshot.used_plan, state.departures, state.skipped, width, pointed, seen)


@lru_cache(maxsize=2)  # called twice a second
def _table(
    peers: tuple[Peer, ...],
    marks: tuple[Mark, ...],
    plan: Plan | None,
    departures: tuple[Departure, ...],
    skipped: tuple[str, ...],
    width: int,
    pointed: str,
    seen: range,
) -> Drawing:
    name_width = min(max(9, width - 35), 24)
    bar_width = max(4, min(24, width - name_width - 27))

    def mac(peer: Peer, mark: Mark) -> list[Content]:
        is_pointed = peer.device_id == pointed
        row = _peer_line(peer, mark, plan, name_width, bar_width, is_pointed=is_pointed)
        row = row.pad_right(max(0, width - row.cell_length)).stylize(f"on {_CURSOR}") if is_pointed else row
        details = _details(peer, mark.word, width, is_skipped=peer.device_id in skipped)
        problem = [Content.styled(fit(f"  ✗ {peer.problem}", width).rstrip(), BAD)] if peer.problem else []
        return [row, details, *problem]

    blocks: list[tuple[int, Callable[[], list[Content]]]] = [
        (1, lambda: [_head_line(name_width, bar_width)]),
        *((_height(peer), partial(mac, peer, mark)) for peer, mark in zip(peers, marks, strict=True)),
        *((2, partial(_departure, gone, name_width, width)) for gone in departures),
    ]
    above, lines, below, more, at = 0, list[Content](), 0, 0, 0
    for height, draw in blocks:
        if at + height <= seen.start:
            above += height
        elif at >= seen.stop:
            below, more = below + height, more + 1
        else:
            lines += draw()
        at += height
    said = f" · {more} more below" if more else ""
    return Drawing("1 Peers", Content("\n").join(lines), said, above=above, below=below)


def _head_line(name_width: int, bar_width: int) -> Content:
    used, layers = fit("GB used/budget", bar_width + 9), fit("layers", 7, right=True)
    return Content.styled(f"  {fit('Mac', name_width)}{fit('chip', 9)}{used}{layers}".rstrip(), DIM)


def _departure(gone: Departure, name_width: int, width: int) -> list[Content]:
    return [
        Content.assemble(("✗ ", BAD), fit(gone.name, name_width), ("left", BAD)),
        Content.styled(fit(f"  ↳ {gone.reason or 'it left the network'}", width).rstrip(), DIM),
    ]


def _height(peer: Peer) -> int:
    return 3 if peer.problem else 2


def _peer_line(
    peer: Peer, mark: Mark, plan: Plan | None, name_width: int, bar_width: int, *, is_pointed: bool
) -> Content:
    stage = next((s for s in plan.stages if s.device_id == peer.device_id), None) if plan else None
    reads = plan is not None and plan.prefill is not None and plan.prefill.stage.device_id == peer.device_id
    budget = max(peer.budget_bytes, 0)
    used = f" {gigabytes_short(peer.used_bytes)}/{gigabytes_short(budget)}" if budget else "–"
    bar, room = bar_width - max(0, len(used) - 8), max(8, len(used))  # a long figure shortens the bar
    return Content.assemble(
        (mark.glyph, mark.style),
        ("▸" if is_pointed else " ", "bold"),
        (fit(peer.name, name_width - 1) + " ", "bold" if peer.is_self or is_pointed else ""),
        fit(peer.chip, 8) + " ",
        (gauge(peer.used_bytes, budget, bar), "$primary"),
        fit(used, room, right=True) + " ",
        fit(part_of(plan, stage) if plan and stage else "prefill" if reads else "", 7, right=True),
    )


def _details(peer: Peer, state: str, width: int, *, is_skipped: bool) -> Content:
    mark = peer_trust(peer)
    words = ["not paired", "press p"] if state == "not paired" else [state]
    if mark.word in ("unpaired", state):  # the level says the same
        del words[0]
    words.append(peer.short_id)
    if peer.is_self:
        words.append("this Mac")
    elif peer.rtt_s is not None:
        words.append(duration(peer.rtt_s))
    skipped = "– left out · " if is_skipped else ""
    trust = f"{mark.glyph} {'not paired' if mark.word == 'unpaired' else mark.word}"
    rest = fit(" · " + " · ".join(words), width - 4 - len(skipped) - len(trust)).rstrip()
    return Content.assemble(("  ↳ ", DIM), (skipped, WARN), (trust, mark.style), (rest, DIM))
