"""Figures of the ring from hop samples: time per token, its parts, the slowest hop. Pure."""

from __future__ import annotations

from typing import NamedTuple

from core.events import HopSample, PathKind
from tui.state.hop_history import HopPoint, last_of
from tui.state.plan_words import is_of_ranks
from tui.state.state import UiState

RECENT_POINTS = 4
# the slowest hop is named if it is slower by this factor
CLEARLY = 1.2


class Hop(NamedTuple):
    """One directed link in ring order. Times are seconds per frame; None before anything was measured."""

    source: str
    target: str
    compute_s: float | None  # of the sender
    seal_s: float | None  # encoding, encrypting and decrypting at both ends
    wire_s: float | None  # sending, plus half a round trip: a one-way time can't be read off two clocks
    bytes_per_s: float | None  # while a frame travels
    rtt_s: float | None
    samples: tuple[tuple[float, float], ...]  # (seconds since the epoch, transfer_s)
    pair: tuple[str, str] = ("", "")  # device ids
    path: PathKind = ""

    @property
    def transfer_s(self) -> float | None:
        return None if self.seal_s is None or self.wire_s is None else self.seal_s + self.wire_s

    @property
    def label(self) -> str:
        return f"{self.source}→{self.target}"


class Shares(NamedTuple):
    """Where the time of a token goes, in seconds: the sum over all Macs and hops, or for ranks the slowest Mac."""

    compute_s: float
    seal_s: float
    wire_s: float
    wait_s: float | None  # the rest of the measured time, None if unknown

    @property
    def token_s(self) -> float:
        return sum(seconds for seconds in self if seconds is not None)


class Ring(NamedTuple):
    """All hops of the ring."""

    hops: tuple[Hop, ...]
    turn_s: float | None  # seconds from one frame to the next, by the clock of the first Mac
    rows: int  # answers written at the same time
    at_once: bool = False  # the Macs are ranks

    @property
    def is_measured(self) -> bool:
        return bool(self.hops) and all(h.transfer_s is not None for h in self.hops)

    @property
    def shares(self) -> Shares | None:
        """Where the time of a token goes. If rows take turns on the ring, the waiting time is unknown."""
        if not self.is_measured:
            return None
        compute_s, seal_s, wire_s = (sum(getattr(h, f) for h in self.hops) for f in ("compute_s", "seal_s", "wire_s"))
        if self.at_once:
            compute_s = max(h.compute_s or 0.0 for h in self.hops)
        if self.turn_s is None or self.rows > 1:
            return Shares(compute_s, seal_s, wire_s, None)
        # half a round trip of another frame is an estimate; it can't exceed the rest
        wire_s = min(wire_s, max(0.0, self.turn_s - compute_s - seal_s))
        return Shares(compute_s, seal_s, wire_s, max(0.0, self.turn_s - compute_s - seal_s - wire_s))

    @property
    def longest_s(self) -> float | None:
        return max((h.transfer_s for h in self.hops if h.transfer_s is not None), default=None)

    @property
    def slowest(self) -> Hop | None:
        """The hop that is clearly slower than all others, if there is one."""
        if not self.is_measured:
            return None
        first, second = sorted(self.hops, key=lambda h: -(h.transfer_s or 0.0))[:2]
        return first if (first.transfer_s or 0.0) >= CLEARLY * (second.transfer_s or 0.0) else None


def ring_of(state: UiState) -> Ring:
    """The ring of the active plan, with recent measurements."""
    names = {p.device_id: p.name for p in state.snapshot.peers}
    plan = state.snapshot.plan
    if plan is not None:
        names = {s.device_id: s.peer for s in plan.stages} | names
        owners = [s.device_id for s in plan.stages]
        pairs = list(zip(owners, owners[1:] + owners[:1], strict=True)) if len(owners) > 1 else []
    else:
        pairs = list(dict.fromkeys((p.source, p.target) for p in state.points))
    reported = {(s.source, s.target): s for s in state.snapshot.hops}
    points = {pair: _steady(state, pair) for pair in pairs}
    hops = tuple(_hop(points[pair], pair, names, reported.get(pair)) for pair in pairs)
    turn_s = _turn_s(points[pairs[0]], points[pairs[-1]]) if pairs else None
    return Ring(hops, turn_s, len(state.snapshot.batch.running), plan is not None and is_of_ranks(plan))


def _steady(state: UiState, pair: tuple[str, str]) -> list[HopPoint]:
    points = [p for p in state.points if (p.source, p.target) == pair] or last_of(state.past, pair)
    # a first sample has the prefill's larger frames: it counts only without others
    return [p for p in points if not p.first] or points


def _turn_s(leaving: list[HopPoint], coming: list[HopPoint]) -> float | None:
    sent, came = _mean(leaving, "source_s"), _mean(coming, "target_s")
    return None if sent is None or came is None else sent + came


def _hop(points: list[HopPoint], pair: tuple[str, str], names: dict[str, str], reported: HopSample | None) -> Hop:
    source, target = (names.get(device, device[:8]) for device in pair)
    recent = points[-RECENT_POINTS:]
    transfer_s = sum(p.transfer_s for p in recent)
    return Hop(
        source=source,
        target=target,
        compute_s=_mean(points, "compute_s"),
        seal_s=_mean(points, "seal_s"),
        wire_s=_mean(points, "wire_s"),
        bytes_per_s=sum(p.bytes for p in recent) / transfer_s if transfer_s > 0 else None,
        rtt_s=reported.rtt_s if reported else None,
        samples=tuple((p.at, p.transfer_s / p.frames) for p in points),
        pair=pair,
        path=reported.path if reported else "",
    )


def _mean(points: list[HopPoint], field: str) -> float | None:
    recent = points[-RECENT_POINTS:]
    frames = sum(p.frames for p in recent)
    return sum(getattr(p, field) for p in recent) / frames if frames else None
