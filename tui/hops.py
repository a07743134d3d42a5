"""What the hop samples amount to: time per token, where it goes, and which hop is slowest. Pure."""

from __future__ import annotations

from typing import NamedTuple

from tui.state import HopPoint, UiState

RECENT_POINTS = 4


class Hop(NamedTuple):
    """One directed link in ring order. Times are seconds a frame; None where nothing was measured yet.

    `transfer_s` is what the two ends spent on a frame plus half a round trip: clocks of two Macs differ, so a one-way
    time cannot be read off them. `bytes_per_s` is the rate while a frame travels. `samples` are (at, transfer_s).
    """

    source: str
    target: str
    transfer_s: float | None
    compute_s: float | None
    bytes_per_s: float | None
    rtt_s: float | None
    samples: tuple[tuple[float, float], ...]

    @property
    def label(self) -> str:
        """The two Macs with an arrow between them."""
        return f"{self.source}→{self.target}"


class Ring(NamedTuple):
    """All hops. For one user the token time is the sum of all hops and of what every stage computes."""

    hops: tuple[Hop, ...]
    hops_s: float
    compute_s: float

    @property
    def token_s(self) -> float:
        """Seconds a token takes to go round."""
        return self.hops_s + self.compute_s

    @property
    def slowest(self) -> Hop | None:
        """The hop with the longest time, if any was measured."""
        measured = [h for h in self.hops if h.transfer_s is not None]
        return max(measured, key=lambda h: h.transfer_s or 0.0, default=None)


def ring_of(state: UiState) -> Ring:
    """The ring of the active plan with what its hops did lately."""
    names = {p.device_id: p.name for p in state.snapshot.peers}
    plan = state.snapshot.plan
    if plan is not None:
        names = {s.device_id: s.peer for s in plan.stages} | names
        owners = [s.device_id for s in plan.stages]
        pairs = list(zip(owners, owners[1:] + owners[:1], strict=True)) if len(owners) > 1 else []
    else:
        pairs = list(dict.fromkeys((p.source, p.target) for p in state.points))
    rtts = {(s.source, s.target): s.rtt_s for s in state.snapshot.hops}
    hops = tuple(_hop(state, pair, names, rtts.get(pair)) for pair in pairs)
    return Ring(hops, sum(h.transfer_s or 0.0 for h in hops), sum(h.compute_s or 0.0 for h in hops))


def _hop(state: UiState, pair: tuple[str, str], names: dict[str, str], rtt_s: float | None) -> Hop:
    points = [p for p in state.points if (p.source, p.target) == pair]
    # a first sample holds the prefill, whose frames are larger: it counts only while there is nothing else
    steady = [p for p in points if not p.first] or points
    source, target = (names.get(device, device[:8]) for device in pair)
    samples = tuple((p.at, p.transfer_s / p.frames) for p in steady)
    transfer_s, compute_s, rate = _lately(steady[-RECENT_POINTS:])
    return Hop(source, target, transfer_s, compute_s, rate, rtt_s, samples)


def _lately(points: list[HopPoint]) -> tuple[float | None, float | None, float | None]:
    frames = sum(p.frames for p in points)
    if not frames:
        return None, None, None
    transfer_s = sum(p.transfer_s for p in points)
    rate = sum(p.bytes for p in points) / transfer_s if transfer_s > 0 else None
    return transfer_s / frames, sum(p.compute_s for p in points) / frames, rate
